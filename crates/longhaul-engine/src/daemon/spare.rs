//! Decides when memory that ended sessions have freed goes back to the system: at once after the
//! first of them, and then at most once a second.
//!
//! In: a word from each session that has ended. Out: calls of the allocator. Without them, what
//! each of many sessions held at its height would add up, thread by thread, until the daemon ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_sys::give_back_free_memory;

/// The memory that sessions leave. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SpareMemory(Arc<Mutex<Freed>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Freed {
    /// Nothing was freed since memory was given back.
    #[default]
    Nothing,
    /// Memory is being given back, or was within the last second.
    GivingBack,
    /// More was freed meanwhile.
    More,
}

impl SpareMemory {
    /// A session has ended and has freed what it held. To be called in a runtime.
    pub(super) fn freed(&self) {
        if self.notes_freed() {
            tokio::spawn(self.clone().give_back());
        }
    }

    async fn give_back(self) {
        loop {
            // It cannot fail, and a runtime that ends has no use for it.
            let _ = tokio::task::spawn_blocking(give_back_free_memory).await;
            tokio::time::sleep(GIVE_BACK_EVERY).await;
            if !self.goes_on() {
                return;
            }
        }
    }

    /// Notes that memory was freed. Returns whether nobody is about to give it back.
    fn notes_freed(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = *state == Freed::Nothing;
        *state = if is_idle { Freed::GivingBack } else { Freed::More };
        is_idle
    }

    /// Whether more was freed since memory was given back last.
    fn goes_on(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = *state == Freed::More;
        *state = if goes_on { Freed::GivingBack } else { Freed::Nothing };
        goes_on
    }
}

/// The shortest time between two calls of the allocator: each looks at all free memory.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_while_memory_is_given_back_is_given_back_too() {
        let spare = SpareMemory::default();
        assert!(spare.notes_freed(), "the first one begins");
        assert!(!spare.notes_freed(), "another one does not begin a second time");
        assert!(spare.goes_on(), "for the other one");
        assert!(!spare.goes_on(), "nothing was freed since");
        assert!(spare.notes_freed(), "and it begins anew");
    }
}
