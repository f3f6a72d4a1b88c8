//! Tells a session that wants a path whether the session that owns the path is alive, and lets it
//! ask that owner to end.
//!
//! In: every message of the other side, from the session's link. Out: whether one came after a
//! question; and to the session, that it is asked or told to end. It knows no paths.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::Fault;
use tokio::sync::Notify;

/// The signs of life of one session, shared with sessions that may ask for them.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Messages heard so far.
    heard_count: Mutex<u64>,
    /// When the last one was heard. `None` before the first.
    heard_at: Mutex<Option<Instant>>,
    spoken: Condvar,
    asked: AtomicBool,
    evicted: AtomicBool,
    eviction: Notify,
    /// Why no more may be published: a newer claim takes the place of this session's.
    superseded: OnceLock<Fault>,
}

/// A question for a sign of life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Messages heard before.
    heard: u64,
    at: Instant,
}

impl Question {
    /// When it was asked.
    pub(crate) fn at(self) -> Instant {
        self.at
    }
}

impl Presence {
    /// Records a message of the other side.
    pub(crate) fn hear(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        *self.heard_count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.spoken.notify_all();
    }

    /// When a message of the other side was last heard. `None` before the first.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a session asked since the last call.
    pub(crate) fn take_question(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// Asks for a sign of life. Returns the question for [`Presence::answers`]. Does not wait.
    pub(crate) fn ask(&self) -> Question {
        let heard = *self.heard_count.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.store(true, Ordering::Relaxed);
        Question { heard, at: Instant::now() }
    }

    /// Waits for any message of the other side since the question, for at most `patience` from its
    /// time. Blocks.
    pub(crate) fn answers(&self, question: Question, patience: Duration) -> bool {
        let until = question.at + patience;
        let mut heard = self.heard_count.lock().unwrap_or_else(PoisonError::into_inner);
        while *heard == question.heard {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            heard = self.spoken.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Tells the session to end, because another one takes its place.
    pub(crate) fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        self.eviction.notify_one();
    }

    /// Tells the session to end by this fault, because a newer claim takes the place of its own.
    pub(crate) fn supersede(&self, fault: Fault) {
        let _ = self.superseded.set(fault);
        self.evict();
    }

    /// The fault of a session whose claim another one takes the place of. `None` if none does.
    pub(crate) fn superseded(&self) -> Option<&Fault> {
        self.superseded.get()
    }

    /// Waits until the session is told to end.
    pub(crate) async fn evicted(&self) {
        while !self.evicted.load(Ordering::Acquire) {
            self.eviction.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_word_after_the_question_counts_and_none_before() {
        let presence = Arc::new(Presence::default());
        presence.hear();
        assert!(!presence.answers(presence.ask(), Duration::from_millis(1)));
        assert!(presence.take_question() && !presence.take_question());
        let answering = presence.clone();
        let thread = std::thread::spawn(move || {
            while !answering.take_question() {
                std::thread::yield_now();
            }
            answering.hear();
        });
        assert!(presence.answers(presence.ask(), Duration::from_secs(60)));
        thread.join().expect("it answers");
    }
}
