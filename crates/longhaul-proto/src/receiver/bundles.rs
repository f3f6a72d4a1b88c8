//! Bundles that a receiver has not done with: those that are wanted again, and those whose files
//! are being read back.
//!
//! In: attempts that failed, files that were read back. Out: the attempt that is admitted, and the
//! bundle whose last file was read. Knows no entries and says nothing.

use std::collections::HashMap;

use longhaul_core::{Attempt, BundleId, Digest};

use super::unasked::UnaskedBundle;

/// The bundles. See the module.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    /// The attempt that is admitted of bundles that are wanted again; of all others it is the
    /// first.
    again: HashMap<BundleId, Attempt>,
    /// Bundles whose files are being read back.
    unread: HashMap<BundleId, Unread>,
    /// The one that comes before anybody asked for it.
    pub(super) unasked: UnaskedBundle,
}

/// A bundle whose files are being read back. It has no verdict until all of them were, so that it
/// can still be sent again.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) attempt: Attempt,
    pub(super) computed: Digest,
    /// Files of it that are not settled.
    files_pending: usize,
    /// Whether one of its files is wanted again.
    pub(super) is_spoilt: bool,
}

/// The result of reading a file of a bundle back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It is settled, committed or failed.
    Over,
    /// It is wanted again.
    Spoilt,
}

impl Bundles {
    /// The attempt of this bundle that is admitted.
    pub(super) fn admitted(&self, id: BundleId) -> Attempt {
        self.again.get(&id).copied().unwrap_or(Attempt::FIRST)
    }

    /// The bundle is wanted again: `attempt` came to nothing.
    pub(super) fn want_again(&mut self, id: BundleId, attempt: Attempt) {
        self.again.insert(id, attempt.next());
    }

    /// The bundle is not wanted again: it came, or is given up.
    pub(super) fn want_no_more(&mut self, id: BundleId) {
        self.again.remove(&id);
    }

    /// How many bundles are wanted again.
    pub(super) fn wanted_again(&self) -> usize {
        self.again.len()
    }

    /// This many files of a bundle are being read back.
    pub(super) fn begin_reading(&mut self, id: BundleId, (attempt, computed): (Attempt, Digest), files: usize) {
        self.unread.insert(id, Unread { attempt, computed, files_pending: files, is_spoilt: false });
    }

    /// A bundle whose files are being read back.
    pub(super) fn unread(&self, id: BundleId) -> Option<&Unread> {
        self.unread.get(&id)
    }

    /// A file of the bundle was read back. Gives the bundle after its last one.
    pub(super) fn read(&mut self, id: BundleId, reading: Reading) -> Option<Unread> {
        let unread = self.unread.get_mut(&id)?;
        unread.files_pending -= 1;
        unread.is_spoilt |= reading == Reading::Spoilt;
        if unread.files_pending > 0 {
            return None;
        }
        self.unread.remove(&id)
    }
}
