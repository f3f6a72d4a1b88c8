//! The receiver's session loop: one machine, one target side, the lanes that fill it.
//!
//! `wait` changes nothing, `absorb` is synchronous, `settle` has done what the machine orders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, IfExists};
use longhaul_disk::{ChunkIo, TargetTree};
use longhaul_proto::Message;
use longhaul_proto::receiver::{Action, Config, Held, Receiver, SkippedDigests};
use longhaul_proto::wire::bundle::bundled_max;
use longhaul_proto::wire::message::{Ending, Outcome, Tally};
use longhaul_sys::Slab;

use super::Event;
use super::allowed::Asked;
use super::bare::{Gate, Pass};
use super::control::Link;
use super::control::{Incoming, Wake};
use super::course::ReceiveCourse;
use super::destination::{Report, Whereabouts, Writing, WritingOptions};
use super::overhead::ENTRY_BYTES;
use super::settled::tell_settled;
use super::totals::Moved;
use crate::api::{self, Observer, Progress};
use crate::budget;
use crate::journals::Ledger;
use crate::lanes::JoinedLane;
use crate::lanes::bottleneck::WaitsFor;
use crate::lanes::event::LaneEnd;
use crate::lanes::pool::Reins;
use crate::lanes::worker;
use crate::lanes::worker::holes::Holes;
use crate::lanes::worker::pulse::{OVERDUE, Watch};
use crate::lanes::worker::receive::Arrival;

/// What a receiving session works with.
pub(crate) struct Receiving {
    /// Where it writes.
    pub(crate) tree: Arc<dyn TargetTree>,
    /// Its buffers.
    pub(crate) slab: Arc<Slab>,
    /// Its chunk I/O.
    pub(crate) io: ChunkIo,
    /// What was agreed.
    pub(crate) config: Config,
    /// What may come.
    pub(crate) asked: Asked,
    /// Where the destination stands, for people.
    pub(crate) base: String,
    /// Where that is on this host, for people.
    pub(crate) place: String,
    /// What is written down of it.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// The receiving side of a session: it owns the machine and is the only one who changes it.
///
/// Lanes, the destination's workers and the control connection run elsewhere and report through one queue of events, so that one thing
/// happens at a time here and no lock is needed. A round of the loop has three steps:
///
/// 1. [`Link::wait`] waits for an event, for the machine's timeout or for the next second. It changes nothing.
/// 2. [`Loop::absorb`] takes the event in: a message goes to the machine's `handle_message`, a report of a worker to the `handle_*` of
///    its name, an arrival to `handle_landed`. Up to [`EVENTS_AT_ONCE`] more that are there already follow, so that verdicts leave
///    together.
/// 3. [`Loop::settle`] has the machine's actions done until it orders no more: messages leave, the destination's workers are given their
///    jobs. It tells observers and the sender how far the session is.
///
/// The loop ends when the machine gives its verdict.
struct Loop<'a> {
    link: Link,
    machine: Receiver,
    writing: Writing,
    slab: Arc<Slab>,
    /// Which holes lanes may bring.
    holes: Holes,
    chunk: ChunkSize,
    watch: Watch,
    /// Lets in what takes no buffer, and the passes of what is being dealt with.
    gate: Gate,
    bare: Vec<Pass>,
    asked: Asked,
    /// Whether the one source takes the destination's name.
    renamed: bool,
    course: &'a mut ReceiveCourse,
    /// The last second whose counters observers were told.
    told: u64,
    /// What the sender was told last, and when.
    said: (f64, Tally),
    /// The most payload that was here so far, pieces of units among it.
    received_most: u64,
    /// The sender learns the roots of skipped files.
    tells_digests: bool,
    verdict: Option<Result<Ending, Fault>>,
    told_by_peer: bool,
    /// The batch that was under way is at its end.
    batch_over: bool,
    /// Units that came so far, holes among them.
    arrived: u64,
    /// How many had come when lanes were last found standing still.
    stalled_at: Option<u64>,
}

/// Runs a receiving session to its end. The course's totals then hold the fault, if any.
pub(crate) async fn run(link: Link, receiving: Receiving, course: &mut ReceiveCourse) {
    course.begin();
    let options = WritingOptions {
        chunk: receiving.config.chunk,
        bundled_max: bundled_max(receiving.config.chunk, receiving.config.bundled_max),
        preserve: receiving.config.preserve,
        dry_run: receiving.config.dry_run,
        may_replace: receiving.config.policy.may_replace(),
        reserve: (receiving.config.read_back || receiving.config.policy.if_exists == IfExists::Verify)
            .then_some(receiving.slab.slot_bytes()),
        digests: (receiving.config.digests != SkippedDigests::Unwanted && !receiving.config.dry_run)
            .then_some(budget::digest_bytes(receiving.config.chunk_max) as usize),
    };
    let whereabouts = Whereabouts::new(&receiving.place);
    let started = Writing::start(
        receiving.tree,
        receiving.io.clone(),
        (receiving.ledger, whereabouts.clone()),
        options,
        link.times.clone(),
        link.sink(),
    );
    let renamed = receiving.config.landing.renamed().is_some();
    let tells_digests = receiving.config.digests == SkippedDigests::Told;
    let mut machine = Receiver::new(receiving.config, receiving.base).named(whereabouts.name());
    let writing = match started {
        Ok(writing) => writing,
        Err(fault) => {
            let mut link = link;
            link.refuse(&fault, false);
            link.end().await;
            course.totals.fault = Some(fault);
            return;
        }
    };
    machine.handle_timeout(link.now());
    let mut this = Loop {
        link,
        machine,
        writing,
        slab: receiving.slab,
        holes: Holes::default(),
        chunk: options.chunk,
        watch: Watch::new(),
        gate: Gate::default(),
        bare: Vec::new(),
        asked: receiving.asked,
        renamed,
        course,
        told: 0,
        said: (0.0, Tally::default()),
        received_most: 0,
        tells_digests,
        verdict: None,
        told_by_peer: false,
        batch_over: false,
        arrived: 0,
        stalled_at: None,
    };
    this.settle();
    while this.verdict.is_none() {
        let timeout = this.machine.poll_timeout();
        let wake = this.link.wait(timeout).await;
        this.absorb(wake);
        // Whatever else is there already is taken in before anything is ordered: verdicts then leave together.
        for _ in 0..EVENTS_AT_ONCE {
            match this.link.try_next() {
                Some(wake) => this.absorb(wake),
                None => break,
            }
        }
        this.watch_lanes();
        this.machine.handle_timeout(this.link.now());
        this.settle();
    }
    this.finish(receiving.io).await;
}

/// Events absorbed before their consequences are ordered.
const EVENTS_AT_ONCE: usize = 64;
/// What limits at this end, and what came, is said so often: the sender, which tells the whole each second, is to know it then.
const SAY_EVERY: Duration = Duration::from_millis(500);

impl Loop<'_> {
    fn absorb(&mut self, wake: Wake) {
        let Some(incoming) = self.link.absorb(wake) else { return };
        let now = self.link.now();
        match incoming {
            Incoming::Stop(fault) => self.machine.abort(fault),
            Incoming::Message(message) => {
                self.told_by_peer |= matches!(message, Message::Refuse(_));
                let asked = if let Message::Page(page) = &message { self.asked.check(&page.entries) } else { Ok(()) };
                match asked {
                    Ok(()) => self.machine.handle_message(now, message),
                    Err(fault) => self.machine.abort(fault),
                }
            }
            Incoming::Event(Event::Lane(joined)) => {
                if let Err(fault) = self.start_lane(joined) {
                    self.machine.abort(fault);
                }
            }
            Incoming::Event(Event::LaneEnded(end)) => {
                self.machine.handle_lane_ended(now, end.id, end.landed);
                self.fit_buffers();
            }
            Incoming::Event(Event::Arrived(mut arrival, pass)) => {
                self.course.progressed = Some(Instant::now());
                self.course.totals.moved(1);
                self.arrived += 1;
                self.holes.arrived(&arrival.landed.piece);
                self.writing.keep(&mut arrival);
                self.machine.handle_landed(now, arrival.landed);
                self.bare.extend(pass);
            }
            Incoming::Event(Event::Wrote(report)) => self.absorb_report(report),
            // All is settled and said; that the sender goes without a word changes nothing. (Its last word may be among
            // the events that were absorbed just now: then the machine is over and tells it.)
            Incoming::Event(Event::ControlEnded(_)) if !self.machine.is_over() => {
                self.verdict = Some(Ok(Ending::default()))
            }
            // The link keeps what is said of lanes and rates to itself.
            Incoming::Event(
                Event::Inbound(_)
                | Event::ControlEnded(_)
                | Event::Undialled(_)
                | Event::OwnRate(_)
                | Event::Sent(_)
                | Event::Read(_),
            ) => {}
        }
    }

    fn start_lane(&mut self, joined: JoinedLane) -> Result<(), Fault> {
        // The sender gave it up before it stood here; dropped, it is closed.
        if !self.machine.handle_lane_joined(joined.id) {
            return Ok(());
        }
        let (slab, sink, times) = (self.slab.clone(), self.link.sink(), self.link.times.clone());
        let (holes, gate) = (self.holes.clone(), self.gate.clone());
        let started = self.link.start_lane(joined, move |joined, Reins { pulse, pacer, .. }| {
            let id = joined.id;
            let deliver = |arrival: Arrival| {
                let pass = arrival.slot.is_none().then(|| gate.enter());
                let _ = sink.send(Event::Arrived(arrival, pass));
            };
            let means =
                worker::receive::Means { slab: &slab, pacer: &pacer, times: &times, pulse: &pulse, holes: &holes };
            let (landed, result) = worker::receive::run(joined, means, deliver);
            LaneEnd { id, fault: result.err(), unfinished: None, landed }
        });
        self.fit_buffers();
        started
    }

    /// Lanes over QUIC have the other half of the memory.
    fn fit_buffers(&self) {
        let slots = self.slab.slots();
        self.slab.set_limit(if self.link.any_quic() { budget::beside_windows(slots) } else { slots });
    }

    /// What the sender says that it sent must come: over another lane, if one stands still. Not for ever over yet another: if
    /// nothing came between, it is not the lane.
    fn watch_lanes(&mut self) {
        let stalled = self.link.stalled_lanes(|| self.machine.lanes_owing());
        if !stalled.is_empty() && self.stalled_at.replace(self.arrived) == Some(self.arrived) {
            let fault = Fault::new(FaultCode::Lost, Blame::Path, "one lane after the other stood still in the middle");
            return self.machine.abort(fault.hint("run the same command again, or with --protect private"));
        }
        stalled.into_iter().for_each(|lane| self.machine.lose_lane(lane));
        let (pieces, held_up) = self.link.pieces();
        if self.watch.is_overdue(self.machine.is_owed_arrivals(), pieces, held_up) {
            let seconds = OVERDUE.as_secs();
            let fault = Fault::new(
                FaultCode::Lost,
                Blame::Path,
                format_args!("data that was sent did not arrive in {seconds} s"),
            );
            self.machine.abort(fault.hint("run the same command again, or with --protect private"));
        }
    }

    fn absorb_report(&mut self, report: Report) {
        let now = self.link.now();
        match report {
            Report::Surveyed { first, found } => self.machine.handle_surveyed(now, first, found),
            Report::Room(room) => self.machine.handle_room(now, room),
            Report::Created(file, result) => {
                let result = self.writing.created(file, result);
                self.machine.handle_created(now, file, result);
            }
            Report::Written { file, index, result } => self.machine.handle_written(now, file, index, result),
            Report::Synced((file, result)) => self.machine.handle_synced(now, file, result),
            Report::ReadBack { file, results } => self.machine.handle_read_back(now, file, results),
            Report::StagedReadBack(results) => {
                self.machine.handle_staged_read_back(now, results);
                self.batch_over = !self.machine.has_batch();
            }
            Report::Standing(results) => self.machine.handle_standing(now, results),
            Report::StandingChunks { file, results } => self.machine.handle_standing_chunks(now, file, results),
            Report::SkippedRead(bytes) => self.machine.handle_skipped_read(bytes),
            Report::SkippedDigested(results) => self.machine.handle_skipped_digested(now, results),
            Report::Retouched(results) => self.machine.handle_retouched(now, results),
            Report::Journalled(result) => self.machine.handle_journalled(now, result),
            Report::Tidied(result) => self.machine.handle_tidied(result),
            Report::Staged(results) => {
                let results = self.writing.staged(results);
                self.machine.handle_staged(now, results);
            }
            Report::Barrier(result) => {
                self.machine.handle_barrier(now, result);
                self.batch_over = !self.machine.has_batch();
            }
            Report::Published(results) => self.machine.handle_published(now, results),
            Report::DirsSynced(result) => {
                self.machine.handle_dirs_synced(now, result);
                self.batch_over = !self.machine.has_batch();
            }
            Report::DirsFinished(results) => self.machine.handle_dirs_finished(now, results),
        }
    }

    /// Has done what the machine orders, and tells the counters.
    fn settle(&mut self) {
        let entries_bytes = self.machine.names_bytes() + self.machine.unsettled() * ENTRY_BYTES;
        let is_cramped = self.link.is_cramped(entries_bytes);
        self.course.totals.scanned = self.machine.has_every_name();
        self.machine.handle_cramped(self.link.now(), is_cramped);
        let is_backlogged = self.link.is_backlogged() || self.writing.is_swamped();
        self.machine.handle_backlog(self.link.now(), is_backlogged);
        while self.verdict.is_none()
            && let Some(action) = self.machine.poll_action()
        {
            self.act(action);
        }
        self.bare.clear();
        if self.machine.is_draining() {
            self.writing.hurry();
        }
        // Not before what became of its files was ordered.
        if std::mem::take(&mut self.batch_over) {
            self.writing.end_batch();
        }
        self.link.at_work = self.writing.is_at_work();
        self.link.waits_for = if self.writing.is_full() { WaitsFor::Target } else { WaitsFor::Buffers };
        if self.verdict.is_none() && self.link.judged_for() >= SAY_EVERY {
            self.link.judge();
        }
        let seconds = self.link.seconds();
        if self.verdict.is_none() && seconds - self.said.0 >= SAY_EVERY.as_secs_f64() {
            let tally = self.tally();
            // Who is not told the roots is not told either how far they are: it shall hear instead that this disk is waited for.
            let tally = Tally { standing: if self.tells_digests { tally.standing } else { 0 }, ..tally };
            if tally != self.said.1 {
                self.link.say(Message::Tally(tally));
            }
            self.said = (seconds, tally);
        }
        if self.verdict.is_none() && seconds as u64 > self.told {
            self.told = seconds as u64;
            let progress = self.progress();
            self.link.observer.event(api::Event::Progress(progress));
        }
        self.link.settle();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(Message::Complete(ending)) => {
                self.link.judge();
                let cpu_us = self.link.cpu_us();
                self.link.ending = true;
                self.link.say(Message::Complete(Ending { cpu_us, ..ending }));
            }
            Action::Send(message) => {
                if matches!(message, Message::WantChunks(_)) {
                    self.course.totals.begin_moving();
                }
                self.holes.say(&message);
                self.link.say(message);
            }
            Action::Survey(page) => {
                for held in &page {
                    self.course.totals.found(&held.entry.kind);
                    self.holes.announce(held.id, &held.entry, self.chunk);
                }
                self.writing.survey(page, self.course.committed.before());
            }
            Action::MeasureRoom { held, behind_discards } => self.writing.measure_room(held, behind_discards),
            Action::Create(held, partial) => self.writing.create(held, partial),
            Action::MakeLink(held) => self.writing.make_link(held),
            Action::Write { file, index, ticket } => self.writing.write(file, index, ticket),
            Action::WriteBundle { ticket, files } => self.writing.write_bundle(ticket, files),
            Action::ReadStanding(files) => self.writing.read_standing(files),
            Action::DigestSkipped(files) => {
                // What an earlier session told is not told again, and need not be read again.
                let (told, files): (Vec<_>, Vec<_>) =
                    files.into_iter().partition(|held| self.course.was_told(&held.entry));
                if !files.is_empty() {
                    self.writing.digest_skipped(files);
                }
                if !told.is_empty() {
                    let told = told.iter().map(|held| (held.id, Ok(None))).collect();
                    self.machine.handle_skipped_digested(self.link.now(), told);
                }
            }
            Action::ReadStandingChunks { base, chunks } => self.writing.read_standing_chunks(base, chunks),
            Action::Copy { base, index, digest } => self.writing.copy(base, index, digest),
            Action::Retouch { files, metadata } => self.writing.retouch(files, metadata),
            Action::Drop(ticket) => self.writing.drop_payload(ticket),
            Action::SyncData(file) => self.writing.sync_data(file),
            Action::ReadBack { file, chunks } => self.writing.read_back(file, chunks),
            Action::ReadBackStaged { files, why } => self.writing.read_staged_back(files, why),
            Action::BarrierAgain(files) => self.writing.barrier_again(files),
            Action::Journal(records) => self.writing.journal(records),
            Action::Tidy => self.writing.tidy(),
            Action::Seal(held) => self.writing.seal(held),
            Action::Barrier(files) => {
                self.batch_over = false;
                self.writing.barrier(&files);
            }
            Action::Publish(renames) => self.writing.publish(renames),
            Action::SyncDirs(_) => self.writing.sync_dirs(),
            Action::SyncDirsAgain(_) => self.writing.sync_dirs_again(),
            Action::FinishDirs(dirs) => self.writing.finish_dirs(dirs),
            Action::Discard(file) => self.writing.discard(file),
            Action::Keep(file) => self.writing.leave(file),
            Action::CloseLane(lane) => self.link.close_lane(lane),
            Action::Settled(held, outcome) => {
                self.holes.forget(held.id);
                self.settled(&held, outcome);
            }
            Action::Finished(ending) => self.verdict = Some(Ok(ending)),
            Action::Abort(fault) => self.verdict = Some(Err(fault)),
        }
    }

    fn settled(&mut self, held: &Arc<Held>, outcome: Outcome) {
        self.course.settled(&held.entry, &outcome);
        self.writing.settled(held, &outcome);
        if self.course.is_news(&held.entry) {
            tell_settled((held, self.renamed), outcome, &mut self.course.totals, &*self.link.observer);
        }
    }

    /// The machine's counters, and what is here of units that are not whole.
    fn tally(&mut self) -> Tally {
        let tally = self.machine.tally();
        let here = tally.received + self.link.in_hand();
        // A unit is judged a moment after its lane has nothing in hand: until then its bytes are still arriving.
        self.received_most = if self.verdict.is_some() { here } else { self.received_most.max(here) };
        Tally { arriving: self.received_most - tally.received, ..tally }
    }

    fn progress(&mut self) -> Progress {
        let tally = self.tally();
        let arrived = self.course.totals.arrived_of(&tally);
        self.course.totals.progress_with(&Progress {
            seconds: self.link.seconds(),
            counted_s: self.link.seconds(),
            bytes_received: tally.received.saturating_add(tally.arriving),
            bytes_arrived: arrived,
            bytes_resumed: tally.resumed,
            silent_s: self.link.silent_for(arrived).as_secs_f64(),
            bytes_durable: self.course.totals.durable_of(tally.durable, tally.resumed),
            limited_by: self.link.limited().map(Into::into),
            bytes_digested: tally.standing,
            ..Progress::default()
        })
    }

    /// Ends everything in order: lanes, then disk work, then what was not published goes.
    async fn finish(mut self, io: ChunkIo) {
        self.link.judge();
        let progress = self.progress();
        self.link.observer.event(api::Event::Progress(progress));
        let (tally, resent) = (self.tally(), self.machine.bytes_resent());
        let unopened = self.machine.held_unopened();
        let totals = &mut self.course.totals;
        match self.verdict.take() {
            Some(Ok(ending)) => totals.sender_cpu_us = Some(ending.cpu_us).filter(|us| *us > 0),
            Some(Err(fault)) => {
                // The sender tells its user what is held.
                self.link.say(Message::Tally(Tally { durable: tally.durable.saturating_add(unopened), ..tally }));
                self.link.refuse(&fault, self.told_by_peer);
                totals.fault = Some(fault);
                self.writing.give_up();
            }
            None => {}
        }
        let fresh = tally.durable.saturating_sub(tally.resumed);
        totals.session_over(&Moved {
            seconds: self.link.seconds(),
            sent: 0,
            received: tally.received.saturating_add(tally.arriving),
            durable: tally.durable,
            resumed: tally.resumed,
            holes: tally.holes,
            held: tally.held().saturating_add(unopened),
            read_back: tally.read_back,
            misread: tally.misread,
            digested: tally.standing,
            resent,
            lost: tally.received.saturating_sub(fresh),
        });
        totals.add_limits(self.link.limits());
        totals.add_receiver_cpu(self.link.cpu_us());
        totals.io = Some(io.report());
        totals.add_stages(self.link.times.seconds());
        self.slab.close();
        self.gate.close();
        let Loop { link, writing, .. } = self;
        link.end().await;
        // Waits for what is outstanding: not on the runtime's own threads.
        let _ = tokio::task::spawn_blocking(move || drop((writing, io))).await;
    }
}
