//! Ends a source with a time limit: chunks that were read in time are delivered and judged, if that
//! does not take long, before the source reports its end. So little is sent in vain.
//!
//! In: orders, verdicts and failed reads of the one file, counted. Out: the failure, when it is
//! time to report it. It sends nothing and knows no lanes.

use std::time::{Duration, Instant};

use longhaul_core::{Fault, FileId};

/// Counts the chunks under way. See the module.
#[derive(Debug, Default)]
pub(crate) struct TimedSourceEnd {
    /// Chunks that were ordered and have neither a verdict nor failed. A lane that is lost leaves
    /// some here for ever.
    under_way: u64,
    /// The first failure, and until when the remaining chunks are waited for.
    failed: Option<(FileId, Fault, Instant)>,
    is_reported: bool,
}

impl TimedSourceEnd {
    /// Counts a chunk that is to be read.
    pub(super) fn ordered(&mut self) {
        self.under_way += 1;
    }

    /// Counts units that were judged.
    pub(super) fn judged(&mut self, units: usize) {
        self.under_way = self.under_way.saturating_sub(units as u64);
    }

    /// Records that a chunk cannot be read, because the time is over.
    pub(super) fn unreadable(&mut self, file: FileId, fault: Fault) {
        self.under_way = self.under_way.saturating_sub(1);
        self.failed.get_or_insert_with(|| (file, fault, Instant::now() + DRAIN_MAX));
    }

    /// The failure to report, once, when no chunk is under way any more or the wait was too long.
    pub(super) fn drained(&mut self, now: Instant) -> Option<(FileId, Fault)> {
        let (file, fault, until) = self.failed.as_ref().filter(|_| !self.is_reported)?;
        if self.under_way > 0 && now < *until {
            return None;
        }
        self.is_reported = true;
        Some((*file, fault.clone()))
    }
}

/// How long chunks that were read in time are waited for. On a link so slow that a few chunks take
/// longer nobody waits for them.
const DRAIN_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::{Blame, FaultCode};

    fn fault() -> Fault {
        Fault::new(FaultCode::Changed, Blame::Local, "over")
    }

    #[test]
    fn the_end_is_said_once_and_only_when_everything_is_judged() {
        let (mut drain, now) = (TimedSourceEnd::default(), Instant::now());
        (0..4).for_each(|_| drain.ordered());
        drain.judged(1);
        assert_eq!(drain.drained(now), None, "the time is not over");
        drain.unreadable(FileId(0), fault());
        drain.unreadable(FileId(0), fault());
        assert_eq!(drain.drained(now), None, "one is under way");
        drain.judged(1);
        assert_eq!(drain.drained(now), Some((FileId(0), fault())));
        assert_eq!(drain.drained(now), None);
    }

    #[test]
    fn what_a_lost_lane_had_is_not_waited_for_for_ever() {
        let (mut drain, now) = (TimedSourceEnd::default(), Instant::now());
        drain.ordered();
        drain.ordered();
        drain.unreadable(FileId(0), fault());
        assert_eq!(drain.drained(now), None);
        assert!(drain.drained(now + DRAIN_MAX * 2).is_some());
    }
}
