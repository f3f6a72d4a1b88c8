//! The work in chunks that the receiver has outstanding at the sender, and its bounds.
//!
//! In: files that begin and end, chunks that are wanted and judged. Out: the room that is left, and
//! the fault of a receiver that goes beyond it. Knows no file.

use longhaul_core::Fault;
use longhaul_core::limits::{CHUNKS_WANTED_MAX, FILES_BEGUN_MAX};

use super::files::LargeSource;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    chunks: usize,
    /// Files in chunks that the receiver has begun and that have no outcome.
    files: usize,
    /// Pieces in which the receiver said that it holds files that have no outcome.
    parts: usize,
}

impl Outstanding {
    /// The number of chunks that the receiver may still want.
    pub(super) fn room(&self) -> usize {
        CHUNKS_OUTSTANDING_MAX.saturating_sub(self.chunks)
    }

    /// Counts chunks that are wanted.
    pub(super) fn want(&mut self, chunks: usize) {
        self.chunks += chunks;
    }

    /// Counts a chunk that is judged, or not wanted any more.
    pub(super) fn end_chunk(&mut self) {
        self.chunks -= 1;
    }

    /// Counts a file that is begun.
    pub(super) fn begin_file(&mut self) {
        self.files += 1;
    }

    /// Checks that the receiver has begun no more files than it may have open.
    ///
    /// # Errors
    /// A [`Fault`] of the peer.
    pub(super) fn check_files(&self) -> Result<(), Fault> {
        match self.files {
            0..=FILES_BEGUN_HERE_MAX => Ok(()),
            _ => Err(Fault::protocol("the receiver begins more files than it may have open")),
        }
    }

    /// Counts the pieces in which the receiver holds a file, `before` of which are counted already.
    /// Whether they are no more than files are left in.
    #[must_use]
    pub(super) fn hold(&mut self, before: usize, parts: usize) -> bool {
        self.parts = self.parts.saturating_sub(before) + parts;
        self.parts <= PARTS_HELD_MAX
    }

    /// Gives back what a file in chunks takes.
    pub(super) fn release(&mut self, large: &LargeSource) {
        self.chunks -= large.outstanding();
        self.parts -= large.parts_held();
        self.files -= usize::from(large.is_begun());
    }

    /// Chunks, files and pieces.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn counted(&self) -> (usize, usize, usize) {
        (self.chunks, self.files, self.parts)
    }
}

/// The most chunks that a receiver may have outstanding before it counts as broken: as many as it
/// may want, and as many that it found good before their lanes reported them.
pub(super) const CHUNKS_OUTSTANDING_MAX: usize = 2 * CHUNKS_WANTED_MAX;
/// The most files in chunks that a receiver may have begun before it counts as broken.
const FILES_BEGUN_HERE_MAX: usize = 2 * FILES_BEGUN_MAX;
/// The most pieces in which a receiver may hold all files without outcome together. A session that
/// ends leaves as many pieces as chunks were outstanding then, over all its files. Only a hundred
/// such sessions, none of which ended a file, come to this; a sender holds some 8 MiB then.
const PARTS_HELD_MAX: usize = 128 << 10;
