//! Whether a session lives: asked by another session that wants a path which this one holds.
//!
//! The session's link notes every word of the other side here, and asks for one when it is told to.
//! Knows nothing of paths.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The pulse of one session, shared with whoever may ask.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Words heard so far.
    heard_count: Mutex<u64>,
    /// When the last one was.
    heard_at: Mutex<Option<Instant>>,
    spoken: Condvar,
    asked: AtomicBool,
    evicted: AtomicBool,
    eviction: Notify,
}

/// A sign of life that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Words heard before.
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
    /// The other side said something.
    pub(crate) fn hear(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        *self.heard_count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.spoken.notify_all();
    }

    /// When the other side said something for the last time.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody asked since this was last called.
    pub(crate) fn take_question(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// Asks for a sign of life; gives what [`Presence::answers`] wants to know. Does not wait.
    pub(crate) fn ask(&self) -> Question {
        let heard = *self.heard_count.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.store(true, Ordering::Relaxed);
        Question { heard, at: Instant::now() }
    }

    /// Waits for any word of the other side since a question, for at most `patience` from when it
    /// was asked. Blocks.
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

    /// Tells the session to end: another one takes its place.
    pub(crate) fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        self.eviction.notify_one();
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
