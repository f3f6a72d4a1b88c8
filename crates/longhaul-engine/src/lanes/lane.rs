//! One lane that stands: its thread, its connection, and what it was at whenever somebody looked.
//!
//! In: a started thread and what it beats on. Out: what the search for lanes and the watch over
//! them want to know. Knows no other lane.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use longhaul_core::LaneId;
use longhaul_net::LaneHandle;

use super::tune::RunningLane;
use super::worker::pulse::{Doing, Pulse, PulseReading};

/// A lane that stands. See the module.
#[derive(Debug)]
pub(crate) struct StandingLane {
    pub(crate) handle: LaneHandle,
    thread: JoinHandle<()>,
    pulse: Pulse,
    /// Told when the lane shall end in order, dropped when it is given up.
    quit: Sender<()>,
    /// It was told to end.
    retiring: bool,
    /// How often it was looked at in this second, and how often it had nothing in hand.
    look_counts: (u32, u32),
    /// Since when data on it is not acknowledged by the other host at all.
    silent: Option<Instant>,
    /// Since when it has been in the middle of one unit without a piece of it, and how many pieces
    /// it had brought.
    starved: Option<(Instant, u64)>,
}

/// A lane's thread that is over, or soon will be.
#[derive(Debug)]
pub(crate) struct EndingLane {
    handle: LaneHandle,
    thread: JoinHandle<()>,
}

impl StandingLane {
    /// Starts the thread: `run` is given what tells it to end in order.
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

    /// Has it finish what it has in hand, and end.
    pub(crate) fn retire(&mut self) {
        self.retiring = true;
        // It is told once; a thread that is over hears nothing.
        let _ = self.quit.try_send(());
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring
    }

    pub(crate) fn is_quic(&self) -> bool {
        self.handle.is_quic()
    }

    pub(crate) fn reading(&self) -> PulseReading {
        self.pulse.read()
    }

    /// What it is at in this moment, which counts for its next [`RunningLane`].
    pub(crate) fn doing(&mut self) -> Doing {
        let doing = self.pulse.read().doing;
        self.look_counts.0 += 1;
        self.look_counts.1 += u32::from(doing == Doing::Nothing);
        doing
    }

    /// What it was at since the last time; `unit`: bytes of a chunk.
    pub(crate) fn look(&mut self, lane: LaneId, unit: u64) -> RunningLane {
        let (looked, idle) = std::mem::take(&mut self.look_counts);
        let idle = (idle * 1000).checked_div(looked).unwrap_or(0) as u16;
        let in_hand = if self.pulse.read().doing == Doing::Nothing { 0 } else { unit / 2 };
        let (handle, state) = (self.handle.clone(), self.handle.state());
        RunningLane { lane, handle, state, idle, in_hand, retiring: self.retiring }
    }

    /// Whether it is of no use by the kernel's account. To be asked once in `every`.
    pub(crate) fn is_dead(&mut self, now: Instant, every: Duration, starving_after: Duration) -> bool {
        self.is_silent(now, every) | self.is_starved(now, starving_after)
    }

    /// Whether data that was on its way at every look was not acknowledged in all that time.
    fn is_silent(&mut self, now: Instant, every: Duration) -> bool {
        let silent = self.handle.unacknowledged().is_some_and(|silence| silence >= every);
        self.silent = if silent { self.silent.or(Some(now)) } else { None };
        self.silent.is_some_and(|since| now - since >= SILENT_MAX)
    }

    /// Whether the rest of a unit that was begun stays away, though its sender had all of it:
    /// something on the way took it in and keeps it. A slow lane may take longer for a piece: the
    /// kernel knows whether bytes still come.
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

    /// Closes this side's end: its thread ends soon. What it had moved by then comes with it.
    pub(crate) fn close(self) -> (EndingLane, PulseReading) {
        self.handle.close();
        self.pulse.close();
        (EndingLane { handle: self.handle, thread: self.thread }, self.pulse.read())
    }

    /// Lets its thread finish what it is at, and waits for it.
    pub(crate) fn join(self) {
        // Dropped only then: it would tell the thread that the lane is given up.
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

/// A lane whose data the other host does not acknowledge for so long does not reach it: four or
/// five retransmissions.
const SILENT_MAX: Duration = Duration::from_secs(20);
