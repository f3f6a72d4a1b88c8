//! Chunks that the disk gives up: the target that has them hangs, and a sync does not cover them.
//!
//! In: what a sync does not cover. Out: the same chunks wanted once more, as soon as the window has
//! room for them. A lost chunk was verified: its verdict is said, and its digest is in the file's
//! tree. So it must come again with this digest, and its file is not whole before. A hang is no
//! damage: the attempts of a lost chunk are counted anew. Knows no targets.

use std::collections::BTreeSet;

use longhaul_core::{Blame, ChunkIndex, Fault, FaultCode, FileId, Unit};

use super::chunks::{ChunkEvent, ChunkState};
use super::large::LargeTarget;
use super::{Receiver, ReceiverAction};
use crate::wire::message::{Finding, LostChunk, Message, SendAgain, Verdict};

/// The lost chunks of one file.
#[derive(Debug, Default)]
pub(super) struct LostChunks {
    /// Chunks that the sender was not asked for again yet.
    unasked: BTreeSet<ChunkIndex>,
    /// The number of chunks whose digests are in the file's tree, and which have not come again.
    awaited: usize,
}

impl LostChunks {
    /// Whether the sender is still to be asked for a lost chunk.
    pub(super) fn has_unasked(&self) -> bool {
        !self.unasked.is_empty()
    }

    /// Whether a lost chunk has not come again.
    pub(super) fn has_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Notes that a lost chunk has come again. (If chunks are read back: and was found good.)
    pub(super) fn has_come(&mut self) {
        self.awaited -= 1;
    }

    /// Forgets the chunks that are not asked for, as their file fails.
    pub(super) fn forget_unasked(&mut self) {
        self.unasked.clear();
    }

    /// Panics at the first counter that differs from what the chunks themselves say. `awaited` is
    /// `None` for a file that has failed, which forgets chunks and waits for none.
    #[cfg(any(test, feature = "audit"))]
    pub(super) fn audit(&self, lost: usize, awaited: Option<usize>) {
        assert_eq!(self.unasked.len(), lost, "lost chunks that are not asked for");
        let awaited = awaited.unwrap_or(self.awaited);
        assert_eq!(self.awaited, awaited, "lost chunks that have not come again");
    }
}

impl LargeTarget {
    /// Notes that the bytes of a chunk were not sent.
    pub(super) fn resumes(&mut self, index: ChunkIndex) {
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.is_resumed = true;
        }
    }

    /// Gives up the bytes of a chunk that is written or being synced. It is wanted as the next
    /// attempt, unless the file has failed.
    fn lose(&mut self, index: ChunkIndex, state: ChunkState) -> Result<(), Fault> {
        self.step(index, ChunkEvent::Lost);
        let bytes = self.map.len_of(index).unwrap_or(0);
        if state == ChunkState::Syncing {
            self.syncing -= bytes;
        } else {
            self.written -= bytes;
            self.since = self.since.filter(|_| self.written > 0);
        }
        if self.failed.is_some() {
            self.chunks.remove(&index);
            return Ok(());
        }
        let Some(chunk) = self.chunks.get(&index).copied() else { return Ok(()) };
        if self.checks.are_on() {
            self.wanted -= 1;
            if let Some(digest) = chunk.digest.filter(|_| !chunk.judged) {
                self.enter_tree(index, digest)?;
            }
        }
        if let Some(lost) = self.chunks.get_mut(&index) {
            (lost.attempt, lost.counted_from) = (chunk.attempt.next(), chunk.attempt.next());
            (lost.digest, lost.before, lost.standing_digest) = (None, chunk.digest, None);
            (lost.judged, lost.is_resumed, lost.is_given_up) = (false, false, false);
        }
        self.checks.in_order.lost();
        self.lost.unasked.insert(index);
        self.lost.awaited += 1;
        Ok(())
    }

    /// The next lost chunks to ask for again, at most `room`. `None` if there are none.
    pub(super) fn want_lost(&mut self, room: u64) -> Option<Vec<LostChunk>> {
        let most = room.min(AGAIN_AT_ONCE) as usize;
        let next: Vec<ChunkIndex> = self.lost.unasked.iter().take(most).copied().collect();
        for index in &next {
            self.lost.unasked.remove(index);
            self.step(*index, ChunkEvent::AskedAgain);
        }
        self.wanted += next.len();
        let lost = |index: &ChunkIndex| {
            let chunk = self.chunks.get(index)?;
            Some(LostChunk { index: *index, attempt: chunk.attempt, digest: *chunk.before?.bytes() })
        };
        let again: Vec<_> = next.iter().filter_map(lost).collect();
        (!again.is_empty()).then_some(again)
    }
}

impl Receiver {
    /// Takes chunks as lost whose bytes a sync has given up. (It may have been ordered before they
    /// were written, and begun after.)
    pub(super) fn lose(&mut self, file: FileId, lost: &[ChunkIndex]) -> Result<(), Fault> {
        lost.iter().try_for_each(|index| self.lose_chunk(file, *index))?;
        if !lost.is_empty() {
            self.window.want_chunks_of(file);
        }
        Ok(())
    }

    fn lose_chunk(&mut self, file: FileId, index: ChunkIndex) -> Result<(), Fault> {
        let Some(large) = self.large(file) else { return Ok(()) };
        let unit = Unit::Chunk { file, index };
        let chunk = match large.chunks.get_mut(&index) {
            Some(chunk) if matches!(chunk.state, ChunkState::Written | ChunkState::Syncing) => *chunk,
            // Its buffer is in use until the write is reported.
            Some(chunk) if chunk.state == ChunkState::Verified => {
                chunk.is_given_up = true;
                return Ok(());
            }
            Some(chunk) if matches!(chunk.state, ChunkState::Wanted | ChunkState::Lost) => return Ok(()),
            _ => {
                let message = format_args!("{unit} is given up, which was synced or never written");
                return Err(Fault::new(FaultCode::Internal, Blame::Bug, message));
            }
        };
        let (bytes, has_failed, mut room) = (large.map.len_of(index).unwrap_or(0), large.failed.is_some(), large.room);
        large.lose(index, chunk.state)?;
        self.unsynced.count_no_more(bytes);
        if chunk.is_resumed {
            self.tally.resumed = self.tally.resumed.saturating_sub(bytes);
        }
        if has_failed {
            return Ok(());
        }
        self.rooms.written_in_vain(&mut room, bytes);
        if let Some(large) = self.large(file) {
            large.room = room;
        }
        // It did arrive as it was sent. Without this the sender could not be asked for it as for
        // any other lost chunk.
        if self.config.read_back {
            self.window.give_back(file, 1);
            if let Some(digest) = chunk.digest.filter(|_| !chunk.judged) {
                self.actions.verdict(Verdict { unit, attempt: chunk.attempt, finding: Finding::Good(digest) });
            }
        }
        Ok(())
    }

    /// Takes a chunk as lost whose bytes were given up before its write was reported. False if
    /// they were not.
    pub(super) fn lose_written(&mut self, file: FileId, index: ChunkIndex) -> bool {
        let chunk = self.large(file).and_then(|large| large.chunks.get(&index));
        let is_given_up = chunk.is_some_and(|chunk| chunk.is_given_up);
        if is_given_up && let Err(fault) = self.lose(file, &[index]) {
            self.abort(fault);
        }
        is_given_up
    }

    /// Asks the sender for lost chunks.
    pub(super) fn ask_again(&mut self, file: FileId, chunks: Vec<LostChunk>) {
        self.window.take(file, chunks.len());
        // Their verdicts, and those that make room for them, must be heard before.
        self.actions.flush();
        self.actions.push(ReceiverAction::Send(Message::SendAgain(SendAgain { file, chunks })));
    }
}

/// The fault of a file of which a lost chunk comes again with other bytes.
pub(super) fn came_otherwise() -> Fault {
    Fault::new(FaultCode::Changed, Blame::Peer, "the source gives other bytes than when it was read before")
}

/// Lost chunks in one message; at some 45 bytes each they stay far below its bound.
const AGAIN_AT_ONCE: u64 = 1024;
