//! The lanes of one side of a session: their threads, how they are closed, which are to be given up, what replaces them.
//!
//! In: joined streams, and the ends of threads. Out: lanes to give up, ids to grant, a fault when there has been none for too
//! long. What a lost lane carried is the machines' business. Knows no messages and no machines.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::limits::LANE_JOIN_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, LaneId, Role};
use longhaul_net::LaneCloser;
use longhaul_proto::sender::Unfinished;
use tokio::sync::mpsc::UnboundedSender;

use super::regrow::Regrow;
use super::stall::Stalls;
use super::{Event, JoinedLane};
use crate::faults::system_fault;
use crate::lane::pulse::{Doing, Pulse};

/// How a side treats its lanes.
#[derive(Debug)]
pub(crate) struct LaneRules {
    /// Which side it is.
    pub(crate) role: Role,
    /// Lanes that there should be.
    pub(crate) target: u32,
    /// A lane that stands still for so long, while others move, is given up.
    pub(crate) stall_after: Duration,
    /// How lost ones are replaced.
    pub(crate) regrow: Regrow,
}

/// The end of a lane's thread, and of this side's end of the lane.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    /// Which.
    pub(crate) id: LaneId,
    /// Why, unless the sender ended it in order.
    pub(crate) fault: Option<Fault>,
    /// What a sending lane had in hand.
    pub(crate) unfinished: Option<Unfinished>,
    /// Units that a receiving lane delivered.
    pub(crate) landed: u64,
}

/// What a lane's thread is given besides its stream.
#[derive(Debug)]
pub(crate) struct Reins {
    /// It beats here.
    pub(crate) pulse: Pulse,
    /// Ends when the lane is given up: for a thread that waits for something else than its stream.
    pub(crate) quit: Receiver<()>,
}

/// The lanes. See the module.
#[derive(Debug)]
pub(crate) struct Lanes {
    running: BTreeMap<LaneId, Running>,
    /// Threads of lanes that were given up or have ended.
    leaving: Vec<(LaneCloser, JoinHandle<()>)>,
    stalls: Stalls,
    regrow: Regrow,
    target: u32,
    next_look: Instant,
    /// Since when there is no lane, and what the last one died of.
    none_since: Option<Instant>,
    last_fault: Option<Fault>,
    /// Pieces and units of lanes that are gone.
    gone: (u64, u64),
}

#[derive(Debug)]
struct Running {
    closer: LaneCloser,
    thread: JoinHandle<()>,
    pulse: Pulse,
    /// Dropped when the lane is given up.
    _quit: Sender<()>,
    /// Since when data on it is not acknowledged by the other host at all.
    silent: Option<Instant>,
    /// Since when it has been in the middle of one unit without a piece of it, and how many pieces it had brought.
    starved: Option<(Instant, u64)>,
}

impl Lanes {
    pub(crate) fn new(rules: LaneRules) -> Lanes {
        let now = Instant::now();
        Lanes {
            running: BTreeMap::new(),
            leaving: Vec::new(),
            stalls: Stalls::new(rules.role, rules.stall_after),
            regrow: rules.regrow,
            target: rules.target,
            next_look: now + LOOK_EVERY,
            none_since: Some(now),
            last_fault: None,
            gone: (0, 0),
        }
    }

    /// Starts a lane's thread.
    pub(crate) fn start(
        &mut self,
        lane: JoinedLane,
        sink: UnboundedSender<Event>,
        run: impl FnOnce(JoinedLane, Reins) -> LaneEnd + Send + 'static,
    ) -> Result<(), Fault> {
        let (id, closer, pulse) = (lane.id, lane.stream.closer(), Pulse::default());
        let (tell_to_quit, quit) = bounded(0);
        let reins = Reins { pulse: pulse.clone(), quit };
        let thread = std::thread::Builder::new()
            .name(format!("lane-{}", id.0))
            .spawn(move || drop(sink.send(Event::LaneEnded(run(lane, reins)))))
            .map_err(|e| system_fault("a lane's thread", &e))?;
        self.running.insert(id, Running { closer, thread, pulse, _quit: tell_to_quit, silent: None, starved: None });
        self.regrow.joined(id);
        self.none_since = None;
        Ok(())
    }

    /// A lane's thread is over. The fault that ends the session, if this does.
    pub(crate) fn ended(&mut self, end: &LaneEnd) -> Option<Fault> {
        self.close(end.id);
        let fault = end.fault.clone().unwrap_or_else(|| {
            Fault::new(FaultCode::Lost, Blame::Path, "a lane ended before its session")
                .hint("run the same command again")
        });
        // What the way did to a lane is made good by another; what the peer or this host did is not.
        if !fault.retry() {
            return Some(fault);
        }
        if self.running.is_empty() && matches!(self.regrow, Regrow::Never) {
            return Some(fault);
        }
        tracing::debug!(target: "longhaul::session", lane = end.id.0, %fault, "a lane is lost");
        self.last_fault = Some(fault);
        None
    }

    /// Closes this side's end of a lane; its thread ends soon.
    pub(crate) fn close(&mut self, id: LaneId) {
        let Some(lane) = self.running.remove(&id) else { return };
        lane.closer.close();
        let reading = lane.pulse.read();
        self.gone = (self.gone.0 + reading.pieces, self.gone.1 + reading.units);
        self.leaving.push((lane.closer, lane.thread));
        self.leaving.retain(|(_, thread)| !thread.is_finished());
        if self.running.is_empty() {
            self.none_since.get_or_insert(Instant::now());
        }
        self.regrow.lost(Instant::now());
    }

    /// The lanes to give up now, looked for once a second. `owing` names those that owe something they have not begun;
    /// `peer_stalls`: the other side said of late that its disk does.
    pub(crate) fn find_stalled(&mut self, owing: impl FnOnce() -> BTreeSet<LaneId>, peer_stalls: bool) -> Vec<LaneId> {
        let now = Instant::now();
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now + LOOK_EVERY;
        let readings: Vec<_> = self.running.iter().map(|(id, lane)| (*id, lane.pulse.read())).collect();
        let mut found = self.stalls.find(now, &readings, &owing(), peer_stalls);
        for (id, lane) in &mut self.running {
            let silent = lane.is_silent(now) | lane.is_starved(now, self.stalls.starving_after());
            if silent && !found.contains(id) {
                found.push(*id);
            }
        }
        found
    }

    /// Pieces that went or came so far, and whether a lane waits for this side's buffers.
    pub(crate) fn pieces(&self) -> (u64, bool) {
        let readings = || self.running.values().map(|lane| lane.pulse.read());
        let held_up = readings().any(|reading| reading.doing == Doing::Waiting);
        (self.gone.0 + readings().map(|reading| reading.pieces).sum::<u64>(), held_up)
    }

    /// Ids to grant in place of lanes that are lost.
    pub(crate) fn grant(&mut self) -> Vec<LaneId> {
        let units = self.gone.1 + self.running.values().map(|lane| lane.pulse.read().units).sum::<u64>();
        self.regrow.grant(Instant::now(), self.running.len(), self.target, units)
    }

    /// When [`Lanes::grant`] wants to be called.
    pub(crate) fn grant_at(&self) -> Option<Instant> {
        self.regrow.grant_at()
    }

    /// Dials lanes that were granted; true if this side dials.
    pub(crate) fn dial(&mut self, ids: impl Iterator<Item = LaneId>, sink: &UnboundedSender<Event>) -> bool {
        let room = (self.target as usize).saturating_sub(self.running.len());
        self.regrow.dial(ids, room, sink)
    }

    /// Why the session must end, when it has been without a lane for too long.
    pub(crate) fn without_any(&self) -> Option<Fault> {
        let since = self.none_since.filter(|since| since.elapsed() >= LANELESS_MAX)?;
        let seconds = since.elapsed().as_secs();
        Some(self.last_fault.clone().unwrap_or_else(|| {
            Fault::new(FaultCode::Lost, Blame::Path, format_args!("no lane joined the session in {seconds} s"))
                .hint("check that a firewall lets several connections to the port through")
        }))
    }

    /// Closes all at once.
    pub(crate) fn close_all(&self) {
        self.running.values().for_each(|lane| lane.closer.close());
    }

    /// Waits until all threads are over: those at work may finish what they are at.
    pub(crate) fn join(self) {
        let running = self.running.into_values().map(|lane| (lane.closer, lane.thread, lane._quit));
        let threads: Vec<_> = running.map(|(closer, thread, quit)| (closer, thread, Some(quit))).collect();
        let leaving = self.leaving.into_iter().map(|(closer, thread)| (closer, thread, None));
        for (closer, thread, _quit) in threads.into_iter().chain(leaving) {
            if !thread.is_finished() {
                closer.close();
            }
            let _ = thread.join();
        }
    }
}

impl Running {
    /// Whether data that was on its way at every look was not acknowledged in all that time.
    fn is_silent(&mut self, now: Instant) -> bool {
        let silent = self.closer.unacknowledged().is_some_and(|silence| silence >= LOOK_EVERY);
        self.silent = if silent { self.silent.or(Some(now)) } else { None };
        self.silent.is_some_and(|since| now - since >= SILENT_MAX)
    }

    /// Whether the rest of a unit that was begun stays away, though its sender had all of it: something on the way took it in and
    /// keeps it. A slow lane may take longer for a piece: the kernel knows whether bytes still come.
    fn is_starved(&mut self, now: Instant, after: Duration) -> bool {
        let reading = self.pulse.read();
        self.starved = match self.starved {
            _ if reading.doing != Doing::Moving => None,
            Some((since, pieces)) if pieces == reading.pieces => Some((since, pieces)),
            _ => Some((now, reading.pieces)),
        };
        let still = self.starved.is_some_and(|(since, _)| now - since >= after);
        still && self.closer.quiet().is_some_and(|quiet| quiet >= after)
    }
}

/// Lanes are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A lane whose data the other host does not acknowledge for so long does not reach it: four or five retransmissions.
const SILENT_MAX: Duration = Duration::from_secs(20);
/// A session without any lane is given up: ids are good for 10 s, a handshake under way may take as long again.
const LANELESS_MAX: Duration = Duration::from_secs(2 * LANE_JOIN_SECONDS_MAX);
