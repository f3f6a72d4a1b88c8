//! For tests and simulators: the sender's counters, counted anew, and its bounds.

use longhaul_core::limits::PAGE_ENTRIES_MAX;

use super::outstanding::CHUNKS_OUTSTANDING_MAX;
use super::{ENTRIES_OUTSTANDING_MAX, FILES_BUNDLED_MAX, OfferState, Sender};

impl Sender {
    /// Panics at the first counter that has drifted and the first bound that is broken.
    pub fn audit(&self) {
        let chunks = |state: &OfferState| match state {
            OfferState::Large(large) => large.outstanding(),
            _ => 0,
        };
        let (chunks_outstanding, files_begun, parts_held) = self.outstanding.counted();
        assert_eq!(chunks_outstanding, self.entries.values().map(chunks).sum::<usize>(), "chunks outstanding");
        assert_eq!(self.bundles.files(), self.bundles.counted().1, "files in bundles");
        let large = || {
            self.entries
                .values()
                .filter_map(|state| if let OfferState::Large(large) = state { Some(large) } else { None })
        };
        assert_eq!(files_begun, large().filter(|large| large.is_begun()).count(), "files begun");
        assert_eq!(parts_held, large().map(|large| large.parts_held()).sum::<usize>(), "pieces held");
        assert!(chunks_outstanding <= CHUNKS_OUTSTANDING_MAX);
        assert!(self.bundles.files() <= FILES_BUNDLED_MAX + PAGE_ENTRIES_MAX);
        assert!(self.entries.len() <= ENTRIES_OUTSTANDING_MAX);
    }

    /// Bundles and chunks that were not sent, or have no good verdict.
    pub fn outstanding(&self) -> (usize, usize) {
        (self.bundles.counted().0, self.outstanding.counted().0)
    }
}
