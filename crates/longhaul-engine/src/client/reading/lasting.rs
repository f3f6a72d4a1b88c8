//! How long a reading at a daemon goes on with nothing heard: over lost conversations, and over
//! words that say nothing.
//!
//! In: faults of conversations, and words. Out: pauses, and the faults of what goes on too long.
//! Must not know files.

use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode};

/// The words of a daemon that say nothing but that it lives. It has one for some seconds: one that
/// has no end of them keeps a reader busy for ever.
pub(super) struct EmptyWords {
    begun: Instant,
    count: u64,
}

impl EmptyWords {
    /// None yet.
    pub(super) fn new() -> EmptyWords {
        EmptyWords { begun: Instant::now(), count: 0 }
    }

    /// Counts one more.
    ///
    /// # Errors
    /// [`FaultCode::Protocol`] if they are too many for the time.
    pub(super) fn count(&mut self) -> Result<(), Fault> {
        self.count += 1;
        match self.count > SIGNS_FREE + self.begun.elapsed().as_secs() {
            true => Err(Fault::protocol("words without end that say nothing")),
            false => Ok(()),
        }
    }
}

/// Conversations that were lost in a row with nothing heard in them.
#[derive(Default)]
pub(super) struct LostTalks {
    since: Option<Instant>,
    count: u32,
}

impl LostTalks {
    /// The pause before the next one.
    ///
    /// # Errors
    /// The same fault, if it does not pass, or they are lost for too long.
    pub(super) fn pause_behind(&mut self, fault: Fault) -> Result<Duration, Fault> {
        let since = self.since.get_or_insert_with(Instant::now);
        let is_enough = self.count >= LOST_IN_A_ROW_MIN && since.elapsed() > LOST_FOR_MAX;
        if !may_pass(&fault) || is_enough {
            return Err(fault);
        }
        let pause = (DIALLED_AGAIN_AFTER * 2_u32.pow(self.count.min(5))).min(DIALLED_AGAIN_MAX);
        self.count = self.count.saturating_add(1);
        Ok(pause)
    }
}

/// Whether a conversation that ended so may go on in another one.
fn may_pass(fault: &Fault) -> bool {
    match fault.code {
        FaultCode::Lost | FaultCode::TimedOut | FaultCode::Unreachable | FaultCode::Busy => true,
        // Other sessions of a daemon may end; on this host no other session does.
        FaultCode::Exhausted => fault.blame == Blame::Peer,
        _ => false,
    }
}

/// How long conversations may be lost with nothing heard in any: a host starts anew meanwhile.
const LOST_FOR_MAX: Duration = Duration::from_secs(300);
/// The number that is lost at least: in each of them a large file may have been read for hours.
const LOST_IN_A_ROW_MIN: u32 = 5;
/// The pause behind the first one, and the longest.
const DIALLED_AGAIN_AFTER: Duration = Duration::from_secs(1);
const DIALLED_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Words that say nothing, besides one for each second.
const SIGNS_FREE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_starts_anew_is_waited_for_and_one_that_refuses_is_not() {
        let fault = |code| Fault::new(code, Blame::Peer, "gone");
        let mut lost = LostTalks::default();
        let pauses = [1, 2, 4, 8, 16, 30, 30];
        let waited = pauses.map(|_| lost.pause_behind(fault(FaultCode::Busy)).expect("again").as_secs());
        assert_eq!(waited, pauses);
        assert!(lost.pause_behind(fault(FaultCode::Denied)).is_err());
        assert!(lost.pause_behind(fault(FaultCode::Exhausted)).is_ok(), "others there may end");
        let here = Fault::new(FaultCode::Exhausted, Blame::Local, "too many files are open");
        assert!(lost.pause_behind(here).is_err());
        lost.since = Instant::now().checked_sub(LOST_FOR_MAX + Duration::from_secs(1));
        assert!(lost.pause_behind(fault(FaultCode::Lost)).is_err());
    }
}
