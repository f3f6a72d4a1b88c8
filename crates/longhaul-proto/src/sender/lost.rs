//! Chunks that the receiver has lost after it acknowledged them: they are read and sent once more.
//!
//! In: `SendAgain`. Out: orders to read. A chunk that is acknowledged is forgotten here, so the
//! receiver says what digest it had: a source that gives other bytes now has changed. Knows nothing
//! of how chunks are lost.

use longhaul_core::{Attempt, ChunkIndex, Digest, DigestKind, Fault, FileId, Unit};

use super::files::SentChunk;
use super::{OfferState, Sender, SenderAction};
use crate::wire::message::{Finding, LostChunk, SendAgain};

impl Sender {
    /// The receiver wants chunks once more.
    pub(super) fn on_send_again(&mut self, again: &SendAgain) -> Result<(), Fault> {
        let file = again.file;
        match self.entries.get(&file) {
            Some(OfferState::Large(_)) => {}
            // Its fault is said, or it failed at the receiver and its outcome overtook this.
            Some(OfferState::Idle) => return Ok(()),
            None if self.manifest.was_sent(file) => return Ok(()),
            _ => {
                return Err(Fault::protocol(format_args!("chunks wanted again of entry {}, which has none", file.0)));
            }
        }
        if again.chunks.is_empty() {
            return Err(Fault::protocol("no chunks wanted again"));
        }
        again.chunks.iter().try_for_each(|lost| self.on_lost(file, *lost))
    }

    fn on_lost(&mut self, file: FileId, lost: LostChunk) -> Result<(), Fault> {
        let LostChunk { index, attempt, digest } = lost;
        let room = self.outstanding.room();
        let Some(large) = self.large(file) else { return Ok(()) };
        let refused = || {
            let unit = Unit::Chunk { file, index };
            Err(Fault::protocol(format_args!("{unit} is wanted again, which was not acknowledged, or too many are")))
        };
        match large.chunks.get_mut(&index) {
            // It counts as wanted still: its lane has not reported the sending that was
            // acknowledged.
            Some(chunk) => {
                let was_good = matches!(chunk.overtook, Some(Finding::Good(_)));
                if !was_good || chunk.again.is_some() || attempt <= chunk.attempt {
                    return refused();
                }
                chunk.again = Some(attempt);
            }
            None if attempt > Attempt::FIRST && large.merger.contains(index) && room > 0 => {
                let digest = match large.map.kind() {
                    DigestKind::Root => Digest::Root(digest),
                    DigestKind::Cv => Digest::Cv(digest),
                };
                self.send_again(file, index, SentChunk::lost(attempt, Some(digest)));
            }
            None => return refused(),
        }
        Ok(())
    }

    /// Orders a chunk that was acknowledged to be read and sent once more.
    pub(super) fn send_again(&mut self, file: FileId, index: ChunkIndex, chunk: SentChunk) {
        let Some(large) = self.large(file) else { return };
        let (map, attempt) = (large.map, chunk.attempt);
        large.chunks.insert(index, chunk);
        self.outstanding.want(1);
        self.actions.push_back(SenderAction::ReadChunk { file, index, attempt, map, expect: None });
    }
}
