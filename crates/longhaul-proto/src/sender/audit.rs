//! For tests and simulators: the sender's counters, counted anew, and its bounds.

use longhaul_core::limits::PAGE_ENTRIES_MAX;

use super::{CHUNKS_OUTSTANDING_MAX, ENTRIES_OUTSTANDING_MAX, FILES_BUNDLED_MAX, OfferState, Sender};

impl Sender {
    /// Panics at the first counter that has drifted and the first bound that is broken.
    pub fn audit(&self) {
        let chunks = |state: &OfferState| match state {
            OfferState::Large(large) => large.outstanding(),
            _ => 0,
        };
        assert_eq!(self.chunks_outstanding, self.entries.values().map(chunks).sum::<usize>(), "chunks outstanding");
        assert_eq!(self.files_bundled, self.bundles.values().map(|b| b.files.len()).sum::<usize>(), "files in bundles");
        let large = || {
            self.entries
                .values()
                .filter_map(|state| if let OfferState::Large(large) = state { Some(large) } else { None })
        };
        assert_eq!(self.files_begun, large().filter(|large| large.is_begun()).count(), "files begun");
        assert_eq!(self.parts_held, large().map(|large| large.parts_held()).sum::<usize>(), "pieces held");
        assert!(self.chunks_outstanding <= CHUNKS_OUTSTANDING_MAX);
        assert!(self.files_bundled <= FILES_BUNDLED_MAX + PAGE_ENTRIES_MAX);
        assert!(self.entries.len() <= ENTRIES_OUTSTANDING_MAX);
    }

    /// Bundles and chunks that were not sent, or have no good verdict.
    pub fn outstanding(&self) -> (usize, usize) {
        (self.bundles.len(), self.chunks_outstanding)
    }
}
