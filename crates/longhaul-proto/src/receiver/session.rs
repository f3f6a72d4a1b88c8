//! Whether a session goes on, is held up, or ends: its phase, the drain beside it, and the fault
//! that will end it.
//!
//! In: steps of the machine, faults, and how much waits for this host. Out: what may still be done.
//! Knows no entries and orders nothing.

use std::time::Duration;

use longhaul_core::{Fault, FaultCode};

use crate::steps;
use crate::time::Timestamp;

/// The phase of the session. A drain (`drain`) runs beside it.
///
/// ```text
/// phase       event                                            action         next phase
/// Running     all pages answered, no entry left, journal idle  Tidy           Tidying
/// Running     fault, and the drain is over                     Abort          Over
/// Tidying     the destination is tidied                        send Complete  Completing
/// Tidying     fault                                            Abort          Over
/// Completing  Bye                                              Finished       Over
/// Completing  fault                                            Abort          Over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionPhase {
    Running,
    /// Every entry is settled. The doer syncs standing names and removes journals that are done.
    Tidying,
    /// `Complete` is said; the sender's `Bye` is awaited.
    Completing,
    Over,
}

/// The state of a session as a whole. See the module.
#[derive(Debug)]
pub(super) struct SessionState {
    phase: SessionPhase,
    /// The way to an end by a fault. `None` while the session goes on.
    drain: Option<Drain>,
    /// A fault of one file that every other file would meet too. It ends the session.
    fatal: Option<Fault>,
    /// Whether the session has lost the right to publish. Then no file fails for it.
    is_barred: bool,
    /// When a full disk ends the session, even if staged files are not committed. `None` before.
    end_by: Option<Timestamp>,
    pressure: Pressure,
}

/// The fault that a session ends with after a drain, and when it does at the latest.
#[derive(Debug)]
struct Drain {
    fault: Fault,
    /// `None` as long as the drain has not begun.
    until: Option<Timestamp>,
}

/// The reasons for which a machine asks for less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    /// More waits for the connection or the disk than an honest sender causes.
    pub(super) is_backlogged: bool,
    /// There is no memory for more entries.
    pub(super) is_cramped: bool,
}

impl SessionState {
    /// A session that has just begun.
    pub(super) fn new() -> SessionState {
        SessionState {
            phase: SessionPhase::Running,
            drain: None,
            fatal: None,
            is_barred: false,
            end_by: None,
            pressure: Pressure::default(),
        }
    }

    /// The phase.
    pub(super) fn phase(&self) -> SessionPhase {
        self.phase
    }

    /// Moves on to the next phase.
    pub(super) fn enter(&mut self, phase: SessionPhase) {
        steps::step(&mut self.phase, phase);
    }

    /// Whether the machine has said its last.
    pub(super) fn is_over(&self) -> bool {
        self.phase == SessionPhase::Over
    }

    /// The reasons for which the machine asks for less.
    pub(super) fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Sets the reasons for which the machine asks for less. True if they changed.
    pub(super) fn press(&mut self, pressure: Pressure) -> bool {
        std::mem::replace(&mut self.pressure, pressure) != pressure
    }

    /// Ends the session by the fault of a file, unless another one does already.
    pub(super) fn end_by_file(&mut self, fault: &Fault) {
        self.fatal.get_or_insert_with(|| fault.clone());
    }

    /// Ends the session as it may not publish. No file has failed by that.
    pub(super) fn bar(&mut self, fault: &Fault) {
        self.is_barred = true;
        self.end_by_file(fault);
    }

    /// Whether the session has lost the right to publish.
    pub(super) fn is_barred(&self) -> bool {
        self.is_barred
    }

    /// Whether the fault of a file ends the session.
    pub(super) fn is_ending(&self) -> bool {
        self.fatal.is_some()
    }

    /// Whether the session ends because the destination is full.
    pub(super) fn is_short_of_room(&self) -> bool {
        !self.is_barred && self.fatal.as_ref().is_some_and(|fault| fault.code == FaultCode::NoSpace)
    }

    /// Whether staged files may still be committed before a full disk ends the session. Their time
    /// begins with the first call.
    pub(super) fn may_commit_first(&mut self, now: Timestamp) -> bool {
        now < *self.end_by.get_or_insert(now.after(ENDING_MAX))
    }

    /// The fault of a file that ends the session now.
    pub(super) fn take_fatal(&mut self) -> Option<Fault> {
        self.fatal.take()
    }

    /// When the session must be looked at again. `None` if it only waits for events.
    pub(super) fn end_by(&self) -> Option<Timestamp> {
        self.end_by
    }

    /// Begins the drain by which the session ends with `fault`.
    pub(super) fn begin_drain(&mut self, fault: Fault) {
        self.drain = Some(Drain { fault, until: None });
    }

    /// Whether the session drains: it takes nothing in any more.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// When the drain must end. At once (0) as long as it has not begun; `None` without a drain.
    pub(super) fn drain_deadline(&self) -> Option<Timestamp> {
        self.drain.as_ref().map(|drain| drain.until.unwrap_or(Timestamp(0)))
    }

    /// When the drain must end, which is in `at_most` if it begins now. `None` without a drain.
    pub(super) fn drain_until(&mut self, now: Timestamp, at_most: Duration) -> Option<Timestamp> {
        self.drain.as_mut().map(|drain| *drain.until.get_or_insert(now.after(at_most)))
    }

    /// Ends the drain and the session. Gives the fault; `None` without a drain.
    pub(super) fn end_drain(&mut self) -> Option<Fault> {
        let fault = self.drain.as_ref().map(|drain| drain.fault.clone())?;
        self.enter(SessionPhase::Over);
        Some(fault)
    }
}

/// How long a full disk may commit files. A batch has at most 256 MiB unsynced: 16 MB/s suffice.
const ENDING_MAX: Duration = Duration::from_secs(20);
