//! The rate at which a conversation has files read: its share of the caps of the daemon, as it is
//! when some files are begun, and the time that is owed behind them.
//!
//! In: rates that are set, and bytes. Out: a rate and waits. Must not know files.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::api::RATE_MIN;
use crate::session::SessionEvent;

/// The share of a conversation.
pub(super) struct ReadingPace {
    granted: Mutex<GrantedRate>,
}

struct GrantedRate {
    /// In bytes/s. `None`: no cap holds it.
    rate: Option<u64>,
    changes: UnboundedReceiver<SessionEvent>,
}

impl ReadingPace {
    /// The share now, in bytes/s, and what tells of its changes.
    pub(super) fn new(rate: Option<u64>, changes: UnboundedReceiver<SessionEvent>) -> ReadingPace {
        ReadingPace { granted: Mutex::new(GrantedRate { rate, changes }) }
    }

    /// The lower one of the share and a rate that is asked for, bytes/s. 0 asks for none.
    pub(super) fn now(&self, asked: u64) -> Option<u64> {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(event) = granted.changes.try_recv() {
            if let SessionEvent::OwnRate(rate) = event {
                granted.rate = rate;
            }
        }
        let asked = (asked > 0).then_some(asked);
        [asked, granted.rate].into_iter().flatten().min().map(|rate| rate.max(RATE_MIN))
    }
}

/// The time that is left of the one that so many bytes take at a rate. Without it, orders of one
/// small file each would be free, as would holes, which take no time to be read.
pub(super) fn owed(bytes: u64, rate: u64, begun: Instant) -> Duration {
    let takes = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64).unwrap_or(Duration::MAX);
    takes.saturating_sub(begun.elapsed())
}

/// How many bytes are begun at a rate before it is looked at again.
pub(super) fn begun_at_once(rate: u64) -> u64 {
    rate.saturating_mul(RATE_KEPT_SECONDS)
}

/// Seconds after which a rate that was changed holds, but for a file that takes longer.
const RATE_KEPT_SECONDS: u64 = 20;

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn a_rate_that_is_set_meanwhile_holds_and_the_lower_one_counts() {
        let (sink, changes) = unbounded_channel();
        let pace = ReadingPace::new(None, changes);
        let mib = 1 << 20;
        assert_eq!((pace.now(0), pace.now(5 * mib)), (None, Some(5 * mib)));
        sink.send(SessionEvent::OwnRate(Some(9 * mib))).expect("heard");
        sink.send(SessionEvent::OwnRate(Some(3 * mib))).expect("heard");
        assert_eq!((pace.now(0), pace.now(5 * mib), pace.now(mib)), (Some(3 * mib), Some(3 * mib), Some(mib)));
        sink.send(SessionEvent::OwnRate(None)).expect("heard");
        assert_eq!(pace.now(0), None);
    }

    #[test]
    fn bytes_that_took_no_time_are_owed() {
        let owed_now = owed(10 << 20, 1 << 20, Instant::now());
        assert!(owed_now > Duration::from_secs(9) && owed_now <= Duration::from_secs(10), "{owed_now:?}");
        let begun = Instant::now().checked_sub(Duration::from_secs(20)).unwrap_or_else(Instant::now);
        assert!(owed(10 << 20, 1 << 20, begun) <= Duration::from_secs(10));
    }
}
