//! Decides when memory that ended sessions and listings have freed goes back to the system: at
//! once, and a second later for what their threads let go of last, at most once a second in all.
//!
//! In: a word from each that has ended. Out: calls of the allocator. Without them, what each of
//! many sessions held at its height would add up, thread by thread, until the daemon ends. It does
//! not know what was freed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_sys::give_back_free_memory;

/// The memory that sessions leave. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SpareMemory(Arc<Mutex<Freed>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Freed {
    /// Nothing since memory was given back, and nobody is at work on it.
    #[default]
    Nothing,
    /// Memory that nobody has begun to give back.
    Something,
    /// Memory that goes back now. Another look follows.
    GivenOnce,
    /// Memory that goes back now, for the second time.
    GivenTwice,
}

impl SpareMemory {
    /// A session or a listing has ended and has freed what it held. To be called in a runtime.
    pub(super) fn freed(&self) {
        if self.notes_freed() {
            tokio::spawn(self.clone().give_back());
        }
    }

    async fn give_back(self) {
        while self.goes_on() {
            // It cannot fail, and a runtime that ends has no use for it.
            let _ = tokio::task::spawn_blocking(give_back_free_memory).await;
            tokio::time::sleep(GIVE_BACK_EVERY).await;
        }
    }

    /// Notes that memory was freed. Returns whether nobody is at work on giving it back.
    fn notes_freed(&self) -> bool {
        std::mem::replace(&mut *self.lock(), Freed::Something) == Freed::Nothing
    }

    /// Whether memory is to be given back now: if any was freed, and once more behind that.
    fn goes_on(&self) -> bool {
        let mut freed = self.lock();
        let (next, goes_on) = match *freed {
            Freed::Something => (Freed::GivenOnce, true),
            Freed::GivenOnce => (Freed::GivenTwice, true),
            Freed::GivenTwice | Freed::Nothing => (Freed::Nothing, false),
        };
        *freed = next;
        goes_on
    }

    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Freed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shortest time between two calls of the allocator: each looks at all free memory.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_that_memory_was_freed_is_followed_by_two_calls_and_many_at_once_by_no_more() {
        let spare = SpareMemory::default();
        for time in ["first", "second"] {
            assert!(spare.notes_freed(), "the {time} one sets to work");
            assert!(!spare.notes_freed(), "another one finds somebody at work");
            assert!(spare.goes_on() && spare.goes_on(), "at once and a second later");
            assert!(!spare.goes_on(), "nothing was freed since");
        }
    }

    #[test]
    fn memory_that_is_freed_meanwhile_is_followed_by_two_calls_too_of_the_one_at_work() {
        for calls in [1, 2] {
            let spare = SpareMemory::default();
            assert!(spare.notes_freed() && (0..calls).all(|_| spare.goes_on()));
            assert!(!spare.notes_freed(), "behind {calls} calls somebody is at work still");
            assert!(spare.goes_on() && spare.goes_on() && !spare.goes_on());
        }
    }
}
