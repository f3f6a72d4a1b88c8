//! Bounds the memory of a session besides its buffers: entries without outcome, and messages that
//! the other side has not taken in.
//!
//! In: how much memory that is, as often as it may have grown. Out: whether there is memory for it.
//! A daemon claims it from the memory of all sessions, step by step, and keeps the claim until the
//! session ends; a client has as much as it needs. It knows no messages.

/// Claims this many bytes more. Returns whether they are there.
pub(crate) type ClaimMemory = Box<dyn FnMut(u64) -> bool + Send>;

/// Claims this many bytes for as long as what comes back is held. `None` if they are not there.
pub(crate) type LendMemory = Box<dyn FnMut(u64) -> Option<LentMemory> + Send>;
/// Memory that is given back when this is dropped.
pub(crate) type LentMemory = Box<dyn Send>;

/// The memory of one session besides its buffers. See the module.
#[derive(Default)]
pub(crate) struct Overhead {
    /// `None`: nobody counts it.
    claim: Option<ClaimMemory>,
    claimed: usize,
}

impl Overhead {
    /// Memory that is claimed by `claim`.
    pub(crate) fn claimed(claim: ClaimMemory) -> Overhead {
        Overhead { claim: Some(claim), claimed: 0 }
    }

    /// Whether there is memory for this many bytes. If not, nothing new is begun until there are
    /// fewer.
    pub(crate) fn holds(&mut self, bytes: usize) -> bool {
        let Some(claim) = &mut self.claim else { return true };
        while bytes > FREE_BYTES + self.claimed {
            if !claim(STEP_BYTES as u64) {
                return false;
            }
            self.claimed += STEP_BYTES;
        }
        true
    }
}

/// Bytes that an entry without outcome takes besides its names: its place in a map, its state, the
/// state of its digest.
pub(crate) const ENTRY_BYTES: usize = 384;
/// Bytes that every session has without a claim, so that one which can claim nothing goes on: a
/// page and what follows from it take less. For 64 sessions, the default of a daemon, it is 128
/// MiB. Pages that were asked for before come all the same: with ordinary names they take as much
/// again, with the longest 10 MiB.
const FREE_BYTES: usize = 2 << 20;
/// A claim grows by this many bytes.
const STEP_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn what_is_held_is_claimed_once_and_a_refusal_lasts_until_there_is_less() {
        let left = Arc::new(AtomicU64::new(2));
        let claim = {
            let left = left.clone();
            move |bytes: u64| {
                assert_eq!(bytes, STEP_BYTES as u64);
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            }
        };
        let mut overhead = Overhead::claimed(Box::new(claim));
        assert!(overhead.holds(FREE_BYTES));
        assert_eq!(left.load(Ordering::Relaxed), 2, "it costs nothing so far");
        assert!(overhead.holds(FREE_BYTES + 1) && overhead.holds(FREE_BYTES + STEP_BYTES));
        assert_eq!(left.load(Ordering::Relaxed), 1);
        assert!(!overhead.holds(FREE_BYTES + 3 * STEP_BYTES));
        assert!(overhead.holds(FREE_BYTES + 2 * STEP_BYTES), "what it has claimed it keeps");
        left.store(1, Ordering::Relaxed);
        assert!(overhead.holds(FREE_BYTES + 3 * STEP_BYTES), "others ended");
    }

    #[test]
    fn who_counts_nothing_holds_anything() {
        assert!(Overhead::default().holds(usize::MAX));
    }
}
