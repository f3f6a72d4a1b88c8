//! Tells the time of a session: on the machine's clock, in seconds, and of the processor.

use std::time::Instant;

use longhaul_proto::Timestamp;

use crate::cpu::process_micros;

/// The clock of a session, which begins at 0.
#[derive(Clone, Copy)]
pub(super) struct SessionClock {
    start: Instant,
    /// The process's CPU time at the start, microseconds.
    cpu_start: u64,
}

impl SessionClock {
    /// A session that begins at `now`.
    pub(super) fn start(now: Instant) -> SessionClock {
        SessionClock { start: now, cpu_start: process_micros() }
    }

    /// The time on the machine's clock.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Seconds since the session began.
    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// CPU microseconds of this process since the session began.
    pub(super) fn cpu_us(&self) -> u64 {
        process_micros().saturating_sub(self.cpu_start)
    }
}
