//! Datagrams that the receiver's system dropped, and that are found lost later.
//!
//! In: a lane's counts of both. Out: the losses among these that are the path's. It judges nothing,
//! and is used by the rate control and by the breaker, each for itself.

use std::time::Duration;

use crate::time::Timestamp;

/// The drops of a lane that were said and not yet found lost.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::udp) struct DropBalance {
    /// Drops of the span that is under way, and of the one before.
    young: u32,
    old: u32,
    since: Timestamp,
    /// The total of the last status.
    said: u32,
}

impl DropBalance {
    /// Nothing is owed, and `said` is the total of drops so far.
    pub(in crate::udp) fn new(now: Timestamp, said: u32) -> DropBalance {
        DropBalance { young: 0, old: 0, since: now, said }
    }

    /// Takes the total of drops and the packets found lost of a status. Gives the drops that are
    /// new, and those losses that no drop explains: a drop explains one for two round trips at
    /// least, as a receiver says at once what its system dropped, and it is found lost later.
    pub(in crate::udp) fn take(&mut self, now: Timestamp, said: u32, lost: u32, round_trip: Duration) -> (u32, u32) {
        let span = (round_trip * HELD_ROUNDS).max(HELD_LEAST);
        let age = now.since(self.since);
        if age >= span {
            self.old = if age < span * 2 { self.young } else { 0 };
            (self.young, self.since) = (0, now);
        }
        let fresh = said.wrapping_sub(self.said);
        self.said = said;
        self.young = self.young.saturating_add(fresh);
        let by_old = lost.min(self.old);
        let by_young = (lost - by_old).min(self.young);
        self.old -= by_old;
        self.young -= by_young;
        (fresh, lost - by_old - by_young)
    }
}

/// Round trips for which a drop explains a loss, and the shortest time.
const HELD_ROUNDS: u32 = 2;
const HELD_LEAST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1000)
    }

    #[test]
    fn a_drop_explains_one_loss_of_the_next_two_round_trips() {
        let mut balance = DropBalance::new(at(0), 7);
        assert_eq!(balance.take(at(10), 17, 4, ROUND_TRIP), (10, 0));
        assert_eq!(balance.take(at(150), 17, 5, ROUND_TRIP), (0, 0));
        assert_eq!(balance.take(at(160), 17, 5, ROUND_TRIP), (0, 4), "one was left");
        assert_eq!(balance.take(at(190), 27, 0, ROUND_TRIP), (10, 0));
        assert_eq!(balance.take(at(390), 27, 3, ROUND_TRIP), (0, 0));
        assert_eq!(balance.take(at(600), 27, 3, ROUND_TRIP), (0, 3), "it is too long ago");
    }

    #[test]
    fn totals_wrap_and_may_be_anything() {
        let mut balance = DropBalance::new(at(0), u32::MAX);
        assert_eq!(balance.take(at(1), 1, 3, ROUND_TRIP), (2, 1));
        assert_eq!(balance.take(at(2), 0, u32::MAX, ROUND_TRIP), (u32::MAX, 0));
        assert_eq!(balance.take(at(3), u32::MAX, u32::MAX, ROUND_TRIP), (u32::MAX, 0));
    }
}
