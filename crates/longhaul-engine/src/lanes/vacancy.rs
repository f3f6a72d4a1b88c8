//! The time for which a session has no lane, and the fault that ends it when that takes too long.
//!
//! In: lanes that begin and end, and the faults of lost ones. Out: the fault of the session. It
//! knows no lane.

use std::time::{Duration, Instant};

use longhaul_core::limits::LANE_JOIN_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, hint};

/// See the module.
#[derive(Debug)]
pub(super) struct Vacancy {
    /// Since when there is no lane. `None` if there is one.
    since: Option<Instant>,
    /// The fault of the lane that was lost last.
    last_fault: Option<Fault>,
}

impl Vacancy {
    /// A session that has no lane yet.
    pub(super) fn begin() -> Vacancy {
        Vacancy { since: Some(Instant::now()), last_fault: None }
    }

    /// Notes that there is a lane.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// Notes that there is no lane any more.
    pub(super) fn resume(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Keeps the fault of a lost lane.
    pub(super) fn blame(&mut self, fault: Fault) {
        self.last_fault = Some(fault);
    }

    /// The fault that ends a session that has been without a lane for too long. `None` as long as
    /// it has not.
    pub(super) fn fault(&self) -> Option<Fault> {
        let since = self.since.filter(|since| since.elapsed() >= LANELESS_MAX)?;
        let seconds = since.elapsed().as_secs();
        Some(self.last_fault.clone().unwrap_or_else(|| {
            Fault::new(FaultCode::Lost, Blame::Path, format_args!("no lane joined the session in {seconds} s"))
                .hint(hint::Network::LetLanesThrough)
        }))
    }
}

/// A session without any lane is given up after this: ids are good for 10 s, and a handshake under
/// way may take as long again.
const LANELESS_MAX: Duration = Duration::from_secs(2 * LANE_JOIN_SECONDS_MAX);
