//! A world: sessions of one command that follow one another, the daemon that admits them, and the
//! blows that end them.
//!
//! Takes a plan and plays it: the next event, then whether a blow is due. Ends when the command has
//! succeeded, a second one has found nothing to do, and nothing is left over; or at the first
//! broken promise.

mod blows;

use longhaul_core::{FaultCode, IfExists};

use crate::env::Env;
use crate::events::{Event, SessionNo};
use crate::fs::Fs;
use crate::mutants::Mutant;
use crate::plan::{Blow, Plan};
use crate::receiving::RecvSession;
use crate::sending::{SendSession, SenderEnd};

/// The world.
pub(crate) struct World {
    pub(crate) env: Env,
    /// The sending side. `None` between two sessions.
    pub(crate) sender: Option<SendSession>,
    /// The session, and the one before while it closes.
    pub(crate) receivers: Vec<RecvSession>,
    /// A session that waits for the one before to close.
    waiting: Option<SessionNo>,
    sessions: u32,
    host_down_until: u64,
    blows: Vec<(u64, Blow)>,
    next_blow: u64,
    /// The time of the last fault. `None` before faults are over.
    calm_since: Option<u64>,
    /// The time from then to the end that is allowed, in microseconds.
    patience_us: u64,
    succeeded: Succeeded,
    pub(crate) events: u64,
}

/// The progress of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Succeeded {
    NotYet,
    /// It succeeded and is run once more.
    Once,
    /// The second run found nothing to do.
    Twice,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64, mutant: Option<Mutant>, trace: bool) -> World {
        let mut blows = plan.blows.clone();
        blows.reverse();
        let mut env = Env::new(plan, seed, mutant, trace);
        env.clock.after(0, Event::Dial);
        let next_blow = blows.last().map_or(CALM_AFTER, |(after, _)| *after);
        World {
            env,
            sender: None,
            receivers: Vec::new(),
            waiting: None,
            sessions: 0,
            host_down_until: 0,
            blows,
            next_blow,
            calm_since: None,
            patience_us: PATIENCE_US,
            succeeded: Succeeded::NotYet,
            events: 0,
        }
    }

    /// Allows [`IDEALS`] times `ideal_us` and a fixed time after the last fault. `ideal_us` is the
    /// time of the same world without faults.
    pub(crate) fn allow(&mut self, ideal_us: u64) {
        self.patience_us = IDEALS * ideal_us + PATIENCE_US;
    }

    /// A world that continues after the host of another one died: with its remaining file system
    /// and its promises.
    pub(crate) fn after(dead: &World, fs: Fs) -> World {
        let mut world = World::new(dead.env.plan.clone(), dead.events, dead.env.mutant, false);
        world.env.fs = fs;
        world.env.source = dead.env.source.clone();
        world.env.ledger = dead.env.ledger.clone();
        world.calm();
        world.env.check_survivors();
        world
    }

    /// Plays to the end; the ledger has the first broken promise then.
    pub(crate) fn run(&mut self) {
        while !self.is_over() {
            self.step();
        }
        if self.env.ledger.violation.is_none() && !self.env.plan.scene.is_one_session {
            self.env.check_end();
        }
        self.env.seen.events = self.events;
        self.env.seen.sessions = u64::from(self.sessions);
        self.env.seen.time_us = self.env.clock.now().0;
        self.env.seen.calm_us = self.env.clock.now().0.saturating_sub(self.calm_since.unwrap_or(0));
    }

    /// Whether nothing is left to be played, or a promise is broken.
    pub(crate) fn is_over(&self) -> bool {
        if self.env.plan.scene.is_one_session {
            let has_ended = self.sender.as_ref().is_some_and(|sender| sender.ended.is_some());
            let is_closed = self.receivers.iter().all(RecvSession::is_closed);
            return has_ended && is_closed || self.env.ledger.violation.is_some();
        }
        let last_is_closed = self.receivers.iter().all(|receiver| receiver.no.0 < self.sessions);
        self.succeeded == Succeeded::Twice && last_is_closed || self.env.ledger.violation.is_some()
    }

    /// Plays the next event.
    pub(crate) fn step(&mut self) {
        let Some(event) = self.env.clock.pop() else {
            return self.env.violate(|| "nothing can happen any more, and the transfer is not over".to_owned());
        };
        if matches!(event, Event::ReceiverTimeout(_))
            && self.env.clock.events().all(|e| matches!(e, Event::ReceiverTimeout(_)))
        {
            self.receivers.iter_mut().for_each(|receiver| receiver.machine.seen.waits += 1);
        }
        self.take(event);
        self.events += 1;
        self.strike_if_due();
        let events_max = EVENTS_MAX + 400 * self.env.plan.chunks() + 40 * self.env.plan.items.len() as u64;
        if self.events > events_max {
            self.env.violate(|| format!("no end after {events_max} events"));
        }
        let patience_us = self.patience_us;
        if self.calm_since.is_some_and(|since| self.env.clock.now().0 > since + patience_us) {
            self.env.violate(|| format!("no end {:.1} s after the last fault", patience_us as f64 / 1e6));
        }
    }

    fn take(&mut self, event: Event) {
        let env = &mut self.env;
        let session = match &event {
            Event::Accept(no) | Event::ToReceiver(no, _) | Event::ToSender(no, _) | Event::Landed(no, ..) => Some(*no),
            Event::NearJoins(no, ..) | Event::FarJoins(no, _) => Some(*no),
            _ => None,
        };
        if session.is_some_and(|no| env.cut.contains(&no)) {
            return;
        }
        match event {
            Event::Dial => self.dial(),
            Event::Accept(no) => self.accept(no),
            Event::ToReceiver(no, message) => {
                if let Some(receiver) = self.receivers.iter_mut().find(|r| r.no == no) {
                    receiver.hears(env, *message);
                }
            }
            Event::Landed(no, lane, frame) => {
                if let Some(receiver) = self.receivers.iter_mut().find(|r| r.no == no) {
                    receiver.landed(env, lane, frame);
                }
            }
            Event::FarEnds(no, lane) | Event::FarGivesUp(no, lane) | Event::FarJoins(no, lane) => {
                if let Some(receiver) = self.receivers.iter_mut().find(|r| r.no == no) {
                    match event {
                        Event::FarEnds(..) => receiver.lane_ends(env, lane),
                        Event::FarGivesUp(..) => receiver.gives_up(env, lane),
                        _ => receiver.lane_joins(env, lane),
                    }
                }
            }
            Event::ReceiverTimeout(no) | Event::ReceiverActs(no) | Event::ReceiverLoses(no) => {
                if let Some(receiver) = self.receivers.iter_mut().find(|r| r.no == no) {
                    match event {
                        Event::ReceiverTimeout(_) => receiver.time_passed(env),
                        Event::ReceiverActs(_) => receiver.act_late(env),
                        _ => receiver.stop(env, FaultCode::Lost, "the connection is gone"),
                    }
                }
            }
            Event::Disk(id) => {
                if let Some((no, job, result)) = env.end(id)
                    && let Some(receiver) = self.receivers.iter_mut().find(|r| r.no == no)
                {
                    receiver.op_ended(env, job, result);
                }
            }
            Event::JobDone(no, job) => {
                if let Some(receiver) = self.receivers.iter_mut().find(|r| r.no == no) {
                    receiver.job_done(env, job);
                }
            }
            Event::Closed(no) => self.closed(no),
            Event::ToSender(..)
            | Event::Sent(..)
            | Event::NearEnds(..)
            | Event::NearBreaks(..)
            | Event::NearRetires(..)
            | Event::NearJoins(..)
            | Event::Scan(_)
            | Event::Source(..)
            | Event::SenderActs(_)
            | Event::SenderLoses(_) => self.sender_takes(event),
        }
    }

    fn sender_takes(&mut self, event: Event) {
        let env = &mut self.env;
        let Some(sender) = self.sender.as_mut() else { return };
        let ours = |no: SessionNo| sender.no == no;
        match event {
            Event::ToSender(no, message) if ours(no) => sender.hears(env, *message),
            Event::Sent(no, sent) if ours(no) => sender.sent(env, sent),
            Event::NearEnds(no, lane, unfinished) if ours(no) => sender.lane_ended(env, lane, unfinished),
            Event::NearBreaks(no, lane) if ours(no) => sender.finds_broken(env, lane),
            Event::NearRetires(no, lane) if ours(no) => sender.lane_retired(env, lane),
            Event::NearJoins(no, lane, from) if ours(no) => sender.lane_joins(env, lane, from),
            Event::Scan(no) if ours(no) => sender.scan(env),
            Event::Source(no, job) if ours(no) => sender.work(env, job),
            Event::SenderActs(no) if ours(no) => sender.act_late(env),
            Event::SenderLoses(no) if ours(no) => sender.loses(env),
            _ => return,
        }
        if sender.ended.is_some() && !self.env.plan.scene.is_one_session {
            self.sender_ended();
        }
    }

    /// The command begins a session, if it reaches the receiver's host.
    fn dial(&mut self) {
        if self.sender.is_some() || self.succeeded == Succeeded::Twice {
            return;
        }
        let now = self.env.clock.now().0;
        if now < self.host_down_until || now < self.env.partition_until {
            let us = 200_000 + self.env.rng.below(800_000);
            return self.env.clock.after(us, Event::Dial);
        }
        self.sessions += 1;
        let no = SessionNo(self.sessions);
        self.env.say(|| format!("s{} begins", no.0));
        self.sender = Some(SendSession::new(&self.env, no));
        let at = self.env.arrival();
        self.env.clock.at(at, Event::Accept(no));
    }

    /// Takes a session that reached the receiver: the one before is stopped and closed before
    /// anything else.
    fn accept(&mut self, no: SessionNo) {
        let env = &mut self.env;
        if env.clock.now().0 < self.host_down_until {
            return env.clock.after(1000, Event::SenderLoses(no));
        }
        if env.is(Mutant::NoFence) {
            self.receivers.push(RecvSession::start(env, no));
            return;
        }
        self.waiting = Some(no);
        for receiver in self.receivers.iter_mut().filter(|r| !r.is_closed()) {
            receiver.stop(env, FaultCode::Interrupted, "a newer session takes over");
        }
        self.admit();
    }

    fn admit(&mut self) {
        let early = self.env.is(Mutant::ReassignEarly);
        if !self.receivers.iter().all(|r| r.is_closed() || early && r.is_at_disk()) {
            return;
        }
        if let Some(no) = self.waiting.take() {
            self.receivers.retain(|r| !r.is_closed());
            self.receivers.push(RecvSession::start(&mut self.env, no));
        }
    }

    fn closed(&mut self, no: SessionNo) {
        if self.env.plan.scene.is_one_session {
            return;
        }
        self.receivers.retain(|r| r.no != no);
        self.env.say(|| format!("s{} receiver is closed", no.0));
        self.admit();
    }

    /// The sender's part of a session is over: the command begins another one, or has succeeded.
    fn sender_ended(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        self.env.seen.sent += sender.payload_bytes;
        // The user has repaired the disk before running the command again.
        self.env.nth = None;
        match (&sender.ended, self.succeeded) {
            // Changes after a file was read are for another run.
            (Some(SenderEnd::Complete), _) if !sender.is_up_to_date(&self.env) => {}
            (Some(SenderEnd::Complete), Succeeded::NotYet) => {
                // A partial that it could not know of may be continued by the next one, which sends
                // what is lacking.
                if self.env.ledger.blind != Some(sender.no.0) {
                    self.succeeded = Succeeded::Once;
                }
                self.blows.clear();
                self.calm();
            }
            (Some(SenderEnd::Complete), _) => {
                self.succeeded = Succeeded::Twice;
                let if_exists = self.env.plan.terms.if_exists;
                let anew = if_exists == IfExists::Replace;
                // If a journal has a partial whose temporary is gone (its end could not be
                // journalled), the standing file may be copied and committed once more. It is not
                // sent.
                let whole = if_exists == IfExists::Verify || sender.was_all_skipped();
                if !anew && (!whole || sender.payload_bytes > 0) {
                    self.env.violate(|| "the command sends again what it has committed".to_owned());
                }
            }
            (Some(SenderEnd::Aborted(_)), _) => {
                let us = self.env.rng.below(2_000_000);
                self.env.clock.after(us, Event::ReceiverLoses(sender.no));
            }
            _ => {}
        }
        let us = 1000 + self.env.rng.below(500_000);
        self.env.clock.after(us, Event::Dial);
    }

    fn strike_if_due(&mut self) {
        if self.calm_since.is_some() || self.env.plan.scene.is_one_session {
            return;
        }
        self.next_blow = self.next_blow.saturating_sub(1);
        if self.next_blow > 0 {
            return;
        }
        match self.blows.pop() {
            Some((_, blow)) => {
                self.env.say(|| format!("-- {blow:?}"));
                self.strike(blow);
                self.next_blow = self.blows.last().map_or(CALM_AFTER, |(after, _)| *after);
            }
            None => self.calm(),
        }
    }

    /// Ends the faults: no new ones happen once the present ones have passed.
    fn calm(&mut self) {
        self.env.say(|| "-- calm".to_owned());
        self.env.calm = true;
        let now = self.env.clock.now().0;
        let refused = self.env.refused.map_or(0, |(_, until)| until);
        self.calm_since.get_or_insert(now.max(refused).max(self.host_down_until).max(self.env.partition_until));
    }
}

/// Events after the last blow until faults by chance end.
const CALM_AFTER: u64 = 300;
/// The most events of a world; each chunk adds 400.
const EVENTS_MAX: u64 = 40_000;
/// The time that is allowed after the last fault, as a multiple of the time of the same world
/// without faults: all work before the last fault may be lost, and the command is run a second
/// time. With 3, the worst of 10,000 seeds needed 7.9 s of [`PATIENCE_US`], the median none.
const IDEALS: u64 = 3;
/// The time for waits that began before the last fault, in microseconds: 30 s for a declaration, 8
/// s for a stalled operation, 4 s to drain, a few to dial again.
const PATIENCE_US: u64 = 45_000_000;
