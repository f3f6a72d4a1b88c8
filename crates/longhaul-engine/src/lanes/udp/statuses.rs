//! Bounds how many statuses of the other end a lane takes in.
//!
//! In: the time of each that opened. Out: whether it is taken in. Each costs a look at all units
//! that are not whole, so that an end that says thousands of them would keep a processor busy. It
//! knows nothing of what they say.

use longhaul_proto::time::Timestamp;

/// An account of statuses: an end that keeps the protocol never exhausts it. What is dropped is
/// said again, as each status says everything.
#[derive(Debug)]
pub(super) struct StatusAccount {
    left: u64,
    counted: Timestamp,
}

impl StatusAccount {
    /// A full account.
    pub(super) fn new(now: Timestamp) -> StatusAccount {
        StatusAccount { left: AT_ONCE, counted: now }
    }

    /// Whether one more is taken in; counts it.
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        let millis = now.since(self.counted).as_millis() as u64;
        if millis > 0 {
            self.left = self.left.saturating_add(millis.saturating_mul(PER_MS)).min(AT_ONCE);
            self.counted = Timestamp(self.counted.0 + millis * 1000);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Statuses that are taken in each millisecond: a report has 32 at most, and there is none sooner
/// than 2 ms after the last.
const PER_MS: u64 = 20;
/// Statuses that are taken in at once: those of 50 ms, in which a thread may not have run.
const AT_ONCE: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_taken_in_as_often_as_an_honest_end_may_say_them() {
        let mut account = StatusAccount::new(Timestamp(500));
        let mut taken = |micros, offered: usize| (0..offered).filter(|_| account.take(Timestamp(micros))).count();
        assert_eq!(taken(500, 5000), 1000);
        assert_eq!(taken(1499, 5000), 0);
        assert_eq!(taken(2999, 5000), 40, "what is less than a millisecond is not lost");
        assert_eq!(taken(3500, 5000), 20);
        // 32 each 2 ms, for ever.
        assert!((1..10_000).all(|report| taken(3500 + report * 2000, 32) == 32));
        assert_eq!(taken(3_600_000_000, 5000), 1000);
    }
}
