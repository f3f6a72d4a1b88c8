//! Decides which holes may arrive: chunks of files that were announced sparse, while they are
//! wanted, once for each attempt.
//!
//! In: the session's wants, as it sends them. Out: whether a hole that a lane brings is worth
//! hashing. A header without payload can stand for 64 MiB of zeros, so this is asked before
//! anything is hashed. The machine judges the hole afterwards. It knows no streams and no digests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Attempt, ChunkIndex, ChunkMap, ChunkSize, Entry, EntryKind, FileId, Unit};
use longhaul_proto::Message;
use longhaul_proto::wire::data::Piece;
use longhaul_proto::wire::message::Finding;

/// The holes that may arrive in one session. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes(Arc<Mutex<HashMap<FileId, Sparse>>>);

/// A file that was announced sparse and is not settled.
#[derive(Debug)]
struct Sparse {
    map: ChunkMap,
    /// The wanted chunks, each with the attempt that may arrive. No more than are wanted at a time.
    wanted: HashMap<ChunkIndex, Attempt>,
}

impl Holes {
    /// Records an announced entry. `chunk`: the chunk size of files that are not continued.
    pub(crate) fn announce(&self, file: FileId, entry: &Entry, chunk: ChunkSize) {
        if let EntryKind::File { len, sparse: true, .. } = entry.kind {
            self.lock().insert(file, Sparse { map: ChunkMap::new(len, chunk), wanted: HashMap::new() });
        }
    }

    /// Records the wants in a message. To be called before the message is sent.
    pub(crate) fn say(&self, message: &Message) {
        match message {
            Message::WantChunks(want) => self.want(want.file, want.start, want.count),
            Message::CheckChunks(check) => self.want(check.file, check.start, check.digests.len() as u64),
            Message::Resume(resume) => {
                if let Some(sparse) = self.lock().get_mut(&resume.file) {
                    sparse.map = ChunkMap::new(sparse.map.len(), resume.chunk);
                }
            }
            Message::Verdicts(verdicts) => {
                for verdict in verdicts.iter().filter(|verdict| verdict.finding == Finding::Again) {
                    let Unit::Chunk { file, index } = verdict.unit else { continue };
                    if let Some(sparse) = self.lock().get_mut(&file) {
                        sparse.wanted.insert(index, verdict.attempt.next());
                    }
                }
            }
            _ => {}
        }
    }

    fn want(&self, file: FileId, start: ChunkIndex, count: u64) {
        if let Some(sparse) = self.lock().get_mut(&file) {
            sparse.wanted.extend((start.0..start.0 + count).map(|index| (ChunkIndex(index), Attempt::FIRST)));
        }
    }

    /// Records that a unit arrived: no hole may come in its place.
    pub(crate) fn arrived(&self, piece: &Piece) {
        if let Unit::Chunk { file, index } = piece.unit
            && let Some(sparse) = self.lock().get_mut(&file)
            && sparse.wanted.get(&index) == Some(&piece.attempt)
        {
            sparse.wanted.remove(&index);
        }
    }

    /// Forgets a file that is settled.
    pub(crate) fn forget(&self, file: FileId) {
        self.lock().remove(&file);
    }

    /// Whether this hole may arrive now. It may not arrive again.
    pub(in crate::lanes) fn take(&self, piece: &Piece) -> bool {
        let Unit::Chunk { file, index } = piece.unit else { return false };
        let mut files = self.lock();
        let Some(sparse) = files.get_mut(&file) else { return false };
        let fits = piece.chunk == sparse.map.size() && sparse.map.len_of(index) == Some(piece.unit_len);
        let may = fits && sparse.wanted.get(&index) == Some(&piece.attempt);
        if may {
            sparse.wanted.remove(&index);
        }
        may
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, Sparse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use longhaul_core::{DigestKind, Inode, Meta, RelPath};
    use longhaul_proto::wire::message::{CheckChunks, Resume, Verdict, WantChunks};

    pub(crate) const FILE: FileId = FileId(3);

    /// Holes of a session to which a file of ten and a half chunks of 1 MiB was announced.
    pub(crate) fn announced(sparse: bool) -> (Holes, ChunkSize) {
        let (holes, chunk) = (Holes::default(), ChunkSize::from_bytes(1 << 20).expect("a size"));
        let kind = EntryKind::File { len: 10 << 20 | 1 << 19, inode: Inode::default(), sparse };
        let path = RelPath::new("f").expect("a path");
        holes.announce(FILE, &Entry { path, kind, meta: Meta::default() }, chunk);
        (holes, chunk)
    }

    pub(crate) fn want(start: u64, count: u64) -> Message {
        Message::WantChunks(WantChunks { file: FILE, start: ChunkIndex(start), count })
    }

    /// A hole in the place of a chunk.
    pub(crate) fn hole(index: u64, attempt: u32, unit_len: u64, chunk: ChunkSize) -> Piece {
        Piece {
            unit: Unit::Chunk { file: FILE, index: ChunkIndex(index) },
            attempt: Attempt(attempt),
            offset: 0,
            len: 0,
            unit_len,
            chunk,
            digest: DigestKind::Cv,
            hole: true,
            same: false,
            trailer: true,
        }
    }

    #[test]
    fn a_hole_may_arrive_once_while_its_chunk_is_wanted() {
        let (holes, chunk) = announced(true);
        let hole = |index, attempt| hole(index, attempt, 1 << 20, chunk);
        assert!(!holes.take(&hole(0, 1)), "it is not wanted yet");
        holes.say(&want(0, 3));
        assert!(!holes.take(&hole(0, 2)) && !holes.take(&hole(3, 1)));
        assert!(holes.take(&hole(0, 1)) && !holes.take(&hole(0, 1)));
        let again = Verdict { unit: hole(0, 1).unit, attempt: Attempt(1), finding: Finding::Again };
        holes.say(&Message::Verdicts(vec![again]));
        assert!(!holes.take(&hole(0, 1)) && holes.take(&hole(0, 2)));
        holes.arrived(&hole(1, 1));
        assert!(!holes.take(&hole(1, 1)), "data came in its place");
        holes.forget(FILE);
        assert!(!holes.take(&hole(2, 1)));
    }

    #[test]
    fn a_hole_is_as_long_as_its_chunk() {
        let (holes, chunk) = announced(true);
        holes.say(&want(0, 11));
        let larger = ChunkSize::from_bytes(64 << 20).expect("a size");
        assert!(!holes.take(&hole(1, 1, 64 << 20, larger)) && !holes.take(&hole(1, 1, 1 << 19, chunk)));
        assert!(holes.take(&hole(10, 1, 1 << 19, chunk)));
    }

    #[test]
    fn a_file_that_was_not_announced_sparse_has_no_holes() {
        let (holes, chunk) = announced(false);
        holes.say(&want(0, 3));
        assert!(!holes.take(&hole(0, 1, 1 << 20, chunk)));
    }

    #[test]
    fn a_file_that_is_continued_has_holes_of_its_own_chunks_and_what_is_compared_may_be_one() {
        let (holes, _) = announced(true);
        let small = ChunkSize::from_bytes(1 << 18).expect("a size");
        holes.say(&Message::Resume(Resume { file: FILE, chunk: small, parts: Vec::new(), more: false }));
        let digests = vec![[0; 32]; 2];
        holes.say(&Message::CheckChunks(CheckChunks { file: FILE, start: ChunkIndex(4), digests }));
        assert!(holes.take(&hole(4, 1, 1 << 18, small)) && holes.take(&hole(5, 1, 1 << 18, small)));
        assert!(!holes.take(&hole(6, 1, 1 << 18, small)));
    }
}
