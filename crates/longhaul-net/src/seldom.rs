//! Limits how often the same message may be logged. Pure: the time is an argument.

use std::time::{Duration, Instant};

/// Lets one message through in each period, and counts the others.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    next: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Lets one message through in each period of `every`.
    #[must_use]
    pub const fn new(every: Duration) -> Seldom {
        Seldom { every, next: None, unsaid: 0 }
    }

    /// Counts one more message. `Some` if it may be logged now, with the number of messages held
    /// back since the last one that was.
    pub fn once_more(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.unsaid += 1;
            return None;
        }
        self.next = Some(now + self.every);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_in_a_while_and_the_count_of_the_others() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut seldom = Seldom::new(minute);
        assert_eq!(seldom.once_more(start), Some(0));
        assert_eq!(seldom.once_more(start + minute / 2), None);
        assert_eq!(seldom.once_more(start + minute * 9 / 10), None);
        assert_eq!(seldom.once_more(start + minute), Some(2));
        assert_eq!(seldom.once_more(start + minute * 3 / 2), None);
        assert_eq!(seldom.once_more(start + minute * 2), Some(1));
    }
}
