//! Owns one lane that stands: its thread, its connection, and the counts of looks at it.
//!
//! In: a started thread, and the pulse on which it beats. Out: readings for the search for the
//! number of lanes and for the watch over them. It knows no other lane.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::LaneId;
use longhaul_net::{LaneHandle, TransportFacts};

use super::manners::LaneMet;
use super::road::LaneRoad;
use super::tune::RunningLane;
use super::worker::pulse::{Doing, Pulse, PulseReading};

/// A lane that stands. See the module.
#[derive(Debug)]
pub(crate) struct StandingLane {
    pub(crate) handle: LaneHandle,
    thread: JoinHandle<()>,
    pulse: Pulse,
    /// Tells the thread to end the lane in order; dropped when the lane is given up.
    quit: Sender<()>,
    /// Whether it was told to end.
    retiring: bool,
    /// Looks of this second, and how many of them found nothing in hand.
    look_counts: (u32, u32),
    /// Since when the other host has acknowledged none of the data on the lane. `None` if it
    /// acknowledges.
    silent: Option<Instant>,
    /// Since when the lane has been in the middle of one unit without moving a piece, and how many
    /// pieces it had moved.
    starved: Option<(Instant, u64)>,
}

/// A lane whose thread has ended or soon will.
#[derive(Debug)]
pub(crate) struct EndingLane {
    handle: LaneHandle,
    thread: JoinHandle<()>,
}

impl StandingLane {
    /// Starts the thread. `run` gets the receiver that tells it to end in order.
    pub(crate) fn start(
        id: LaneId,
        handle: LaneHandle,
        pulse: Pulse,
        run: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> std::io::Result<StandingLane> {
        let (quit, told) = bounded(1);
        let thread = std::thread::Builder::new().name(format!("lane-{}", id.0)).spawn(move || run(told))?;
        Ok(StandingLane {
            handle,
            thread,
            pulse,
            quit,
            retiring: false,
            look_counts: (0, 0),
            silent: None,
            starved: None,
        })
    }

    /// Tells the lane to finish the unit in hand and end.
    pub(crate) fn retire(&mut self) {
        self.retiring = true;
        // It is told once; a thread that has ended hears nothing.
        let _ = self.quit.try_send(());
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring
    }

    /// The facts of its transport.
    pub(crate) fn facts(&self) -> TransportFacts {
        self.handle.facts()
    }

    pub(crate) fn reading(&self) -> PulseReading {
        self.pulse.read()
    }

    /// The lane as its manners see it.
    pub(crate) fn met(&self, id: LaneId) -> LaneMet<'_> {
        LaneMet { id, handle: &self.handle, idle: self.pulse.idle() }
    }

    /// Looks at what the lane does now; the look counts for its next [`RunningLane`].
    pub(crate) fn doing(&mut self) -> Doing {
        let doing = self.pulse.read().doing;
        self.look_counts.0 += 1;
        self.look_counts.1 += u32::from(doing == Doing::Nothing);
        doing
    }

    /// A summary of the looks since the last call.
    pub(crate) fn look(&mut self, lane: LaneId) -> RunningLane {
        let (looked, idle) = std::mem::take(&mut self.look_counts);
        let idle = (idle * 1000).checked_div(looked).unwrap_or(0) as u16;
        let reading = self.pulse.read();
        let in_hand = reading.unit.saturating_sub(reading.in_hand);
        let (handle, counters) = (self.handle.clone(), self.handle.counters());
        RunningLane { lane, handle, counters, idle, in_hand, retiring: self.retiring }
    }

    /// Whether the lane is of no use by its transport's account. Call it once in `every`.
    pub(crate) fn is_dead(&mut self, now: Instant, every: Duration, starving_after: Duration) -> bool {
        self.is_silent(now, every) | self.is_starved(now, starving_after)
    }

    /// Whether data was on its way at every look and none was acknowledged in all that time.
    fn is_silent(&mut self, now: Instant, every: Duration) -> bool {
        let silent = self.handle.unacknowledged().is_some_and(|silence| silence >= every);
        self.silent = if silent { self.silent.or(Some(now)) } else { None };
        self.silent.is_some_and(|since| now - since >= SILENT_MAX)
    }

    /// Whether the rest of a unit that was begun stays away though its sender had all of it:
    /// something on the path swallowed it. A slow lane may take longer for a piece; the kernel
    /// knows whether bytes still come.
    fn is_starved(&mut self, now: Instant, after: Duration) -> bool {
        let reading = self.pulse.read();
        self.starved = match self.starved {
            _ if reading.doing != Doing::Moving => None,
            Some((since, pieces)) if pieces == reading.pieces => Some((since, pieces)),
            _ => Some((now, reading.pieces)),
        };
        let still = self.starved.is_some_and(|(since, _)| now - since >= after);
        still && self.handle.quiet().is_some_and(|quiet| quiet >= after)
    }

    /// Adds the lane to the road of all.
    pub(crate) fn add_to(&self, road: &mut LaneRoad) {
        road.add_lane(&self.handle, self.pulse.payload_times());
    }

    /// Closes this side's end; the thread ends soon. Also returns the counters at that time.
    pub(crate) fn close(self) -> (EndingLane, PulseReading) {
        self.handle.close();
        self.pulse.close();
        (EndingLane { handle: self.handle, thread: self.thread }, self.pulse.read())
    }

    /// Lets the thread finish its work, and waits for it.
    pub(crate) fn join(self) {
        // Dropped only after the join: it would tell the thread that the lane is given up.
        let _quit = self.quit;
        EndingLane { handle: self.handle, thread: self.thread }.join();
    }
}

impl EndingLane {
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    pub(crate) fn join(self) {
        if !self.thread.is_finished() {
            self.handle.close();
        }
        let _ = self.thread.join();
    }
}

/// A lane whose data the other host has not acknowledged for this long does not reach it: four or
/// five retransmissions failed by then.
const SILENT_MAX: Duration = Duration::from_secs(20);

/// The sums over lanes that do not stand any more.
#[derive(Debug, Default)]
pub(super) struct RetiredLanes {
    /// Pieces that they moved.
    pub(super) pieces: u64,
    /// Units that they moved.
    pub(super) units: u64,
    /// Their road, and the round trips of those that stand.
    pub(super) road: LaneRoad,
}
