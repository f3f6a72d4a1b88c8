//! The small files that a sender says before anybody asked for them, at the beginning of a session.
//!
//! In: how many bytes may go out so, and the report that they were read. Out: the order to read
//! them, once and before the first page. They count as offered and not as sent: a receiver that has
//! taken one says its outcome, and one that has not wants it as any other. So nothing that a
//! receiver says makes more of them go out. Knows no payload.

use std::collections::BTreeMap;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{BUNDLE_FILES_MAX, BUNDLED_FILE_BYTES_MAX, UNASKED_BYTES_MAX};
use longhaul_core::{EntryKind, Fault, FileId, Unit};

use super::{OfferState, OfferedContent, Sender, SenderAction, Small, wrong_digest};
use crate::wire::bundle::table_bytes;
use crate::wire::message::Outcome;

/// The files that are said unasked.
#[derive(Debug, Default)]
pub(super) struct SaidUnasked {
    step: UnaskedStep,
    /// The roots of those that were said and have no outcome.
    roots: BTreeMap<FileId, Hash32>,
    /// Whether the first page is answered.
    is_answered: bool,
}

/// How far that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UnaskedStep {
    /// None are said, or none any more.
    #[default]
    Over,
    /// They and the first page may have so many bytes.
    Allowed(u64),
    /// They are being read, and the first page waits for them.
    Reading,
}

impl SaidUnasked {
    /// Whether they are being read.
    pub(super) fn is_being_read(&self) -> bool {
        self.step == UnaskedStep::Reading
    }

    /// The page that begins with `first` is answered.
    pub(super) fn hear_answer(&mut self, first: FileId) {
        self.is_answered |= first == FileId(0);
    }
}

impl Sender {
    /// Lets small files go out before the first page, if that did not leave yet: they, their table
    /// and the page together may have so many bytes. The receiver must be one that takes them.
    pub fn allow_unasked(&mut self, bytes: u64) {
        if self.manifest.first_page().is_some() {
            self.manifest.unasked.step = UnaskedStep::Allowed(bytes.min(UNASKED_BYTES_MAX));
        }
    }

    /// Whether the files of [`SenderAction::PackUnasked`] are still waited for.
    pub fn is_packing_unasked(&self) -> bool {
        !self.is_over && self.manifest.unasked.is_being_read()
    }

    /// Whether the first page waits for files that go before it, which are ordered to be read now
    /// if they were not yet.
    pub(super) fn must_pack_unasked(&mut self) -> bool {
        let UnaskedStep::Allowed(bytes_max) = self.manifest.unasked.step else {
            return self.manifest.unasked.is_being_read();
        };
        let files = self.small_files_within(bytes_max.saturating_sub(self.manifest.page_bytes()));
        self.manifest.unasked.step = if files.is_empty() { UnaskedStep::Over } else { UnaskedStep::Reading };
        if files.is_empty() {
            return false;
        }
        self.actions.push_back(SenderAction::PackUnasked(files));
        true
    }

    /// Small files of the first page that fit a bundle of so many bytes, in order. A further name
    /// of a file is none: it is made a name, and not sent.
    fn small_files_within(&self, bytes_max: u64) -> Vec<Small> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        for (file, entry) in self.manifest.first_page().into_iter().flatten() {
            let EntryKind::File { len, .. } = entry.kind else { continue };
            let fits = bytes + len + table_bytes(files.len() + 1) as u64 <= bytes_max;
            let is_small = len <= BUNDLED_FILE_BYTES_MAX && entry.meta.names.is_none();
            if is_small && fits && files.len() < BUNDLE_FILES_MAX {
                bytes += len;
                files.push(Small { file, len, standing_root: None });
            }
        }
        files
    }

    /// The files of [`SenderAction::PackUnasked`] were read and said, but for those that are
    /// missing here, with these roots. The first page follows.
    pub fn handle_pack_unasked(&mut self, said: Vec<(FileId, Hash32)>) {
        if !self.is_packing_unasked() {
            return;
        }
        let roots = said.into_iter().collect();
        self.manifest.unasked = SaidUnasked { step: UnaskedStep::Over, roots, is_answered: false };
        self.send_page();
    }

    /// Whether the receiver has heard all of a file and leaves it at that: it was said unasked, its
    /// page is answered, and it has no outcome.
    pub(super) fn was_taken_unasked(&self, file: FileId) -> bool {
        self.manifest.unasked.is_answered && self.manifest.unasked.roots.contains_key(&file)
    }

    /// Compares the root of a file that the receiver has committed and did not ask for with the one
    /// that was said. `state` is the last of the file.
    pub(super) fn settle_unasked(&mut self, file: FileId, state: &OfferState, outcome: &Outcome) -> Result<(), Fault> {
        let Some(said) = self.manifest.unasked.roots.remove(&file) else { return Ok(()) };
        // A file that was wanted all the same has a verdict on its bundle.
        let (OfferState::Offered(OfferedContent::Bytes(len)), Outcome::Committed(root)) = (state, outcome) else {
            return Ok(());
        };
        if *root != Some(said) {
            return Err(wrong_digest(Unit::Chunk { file, index: longhaul_core::ChunkIndex(0) }));
        }
        self.payload.all += *len;
        self.payload.done += *len;
        Ok(())
    }
}
