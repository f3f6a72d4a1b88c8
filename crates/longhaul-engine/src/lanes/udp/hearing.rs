//! Judges whether the other end of a lane that sends is there, and whether what is sent lands.
//!
//! In: the times of messages and of statuses, and what these say has landed. Out: whether the lane
//! moves, and why it is lost. It knows no socket and no unit.

use std::time::Duration;

use longhaul_proto::time::Timestamp;

use super::packets::Arrivals;
use super::statuses::StatusAccount;

/// The words of the other end.
pub(super) struct Hearing {
    /// Bounds the statuses that are taken in.
    pub(super) statuses: StatusAccount,
    /// Room for plain texts.
    pub(super) scratch: Vec<u8>,
    /// When they came.
    pub(super) arrivals: Arrivals,
    patience: Duration,
    /// Since when it has said nothing though it owes a word.
    waiting_since: Timestamp,
    /// Since when messages were sent and nothing has landed, and how many they are.
    in_vain: Option<(Timestamp, u32)>,
    /// Bytes of pieces that have landed.
    landed: u64,
}

impl Hearing {
    /// Begins to listen to an end that is given up after so much time.
    pub(super) fn new(now: Timestamp, patience: Duration) -> Hearing {
        Hearing {
            statuses: StatusAccount::new(now),
            scratch: Vec::new(),
            arrivals: Arrivals::default(),
            patience,
            waiting_since: now,
            in_vain: None,
            landed: 0,
        }
    }

    /// Notes that a message of a unit was sent, or an END.
    pub(super) fn sent(&mut self, now: Timestamp) {
        let (_, messages) = self.in_vain.get_or_insert((now, 0));
        *messages = messages.saturating_add(1);
    }

    /// Takes a status: the bytes of pieces that have landed in all, and the units that became
    /// whole. Gives whether the lane has moved.
    pub(super) fn heard(&mut self, now: Timestamp, landed: u64, whole: usize) -> bool {
        self.waiting_since = now;
        let has_moved = landed > self.landed || whole > 0;
        if has_moved {
            (self.landed, self.in_vain) = (landed.max(self.landed), None);
        }
        has_moved
    }

    /// Notes that the other end lacks nothing, and so owes no word.
    pub(super) fn owes_nothing(&mut self, now: Timestamp) {
        (self.waiting_since, self.in_vain) = (now, None);
    }

    /// Judges a lane whose other end owes a word. Gives why the lane is lost.
    pub(super) fn judge(&self, now: Timestamp) -> Option<&'static str> {
        if now.since(self.waiting_since) >= self.patience {
            return Some("the other end of a UDP lane says nothing");
        }
        // Where the rate is low a message takes long, and each has to have its chance.
        let is_vain = |(since, messages)| now.since(since) >= self.patience && messages >= IN_VAIN_LEAST;
        self.in_vain.is_some_and(is_vain).then_some("nothing that a UDP lane sends lands, though its other end answers")
    }
}

/// Messages that were sent in vain at least before a lane is lost: with a loss of 10 % four in a
/// row are lost once in 10,000 times, and that for 20 s.
const IN_VAIN_LEAST: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    /// The second in which a lane is lost that sends each `every` seconds, and whose other end
    /// answers each second that so many bytes have landed.
    fn lost_after(every: u64, landed: impl Fn(u64) -> u64) -> Option<u64> {
        let mut hearing = Hearing::new(at(0), PATIENCE);
        (0..1000).find(|second| {
            if second % every == 0 {
                hearing.sent(at(*second));
            }
            hearing.heard(at(*second), landed(*second), 0);
            hearing.judge(at(*second)).is_some()
        })
    }

    #[test]
    fn a_lane_whose_pieces_vanish_is_lost_though_its_other_end_answers() {
        assert_eq!(lost_after(1, |_| 0), Some(20));
        assert_eq!(lost_after(1, |second| second.min(5)), Some(26), "what came once is no progress");
        assert_eq!(lost_after(1, |second| second / 15), None);
        assert_eq!(lost_after(15, |_| 0), Some(45), "four messages have their chance");
    }

    #[test]
    fn a_silent_end_is_given_up_if_it_owes_a_word() {
        let mut hearing = Hearing::new(at(0), PATIENCE);
        hearing.owes_nothing(at(300));
        assert_eq!(hearing.judge(at(319)), None);
        assert!(hearing.judge(at(320)).is_some());
        hearing.heard(at(320), 0, 0);
        assert_eq!(hearing.judge(at(339)), None);
    }

    #[test]
    fn a_word_of_which_nothing_landed_moves_nothing() {
        let mut hearing = Hearing::new(at(0), PATIENCE);
        assert_eq!([0, 1200, 1200, 2400].map(|landed| hearing.heard(at(1), landed, 0)), [false, true, false, true]);
        assert!(hearing.heard(at(1), 2400, 1), "a hole has no bytes");
    }
}
