//! The chunks of a stream that wait for their turn: files in the order in which they were entered,
//! each from its first byte to its last.
//!
//! In: files, and their chunks in any order. Out: the chunk that goes out next, if it is here.
//! Counts and orders only: it knows no output, no buffers and no threads.

use std::collections::BTreeMap;

/// The chunks that wait, each with an item that stands for its bytes.
#[derive(Debug)]
pub(super) struct Lineup<T> {
    files: BTreeMap<Turn, LinedFile<T>>,
    /// The turn of the file that is entered next.
    next: Turn,
    held: usize,
}

/// The place of a file in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(u64);

/// A file of which bytes are still to go out.
#[derive(Debug)]
struct LinedFile<T> {
    len: u64,
    /// The bytes that go out before its first one.
    head: Vec<u8>,
    /// The offset of the byte that goes out next.
    at: u64,
    /// The chunks that are here, by their offsets.
    chunks: BTreeMap<u64, (u64, T)>,
}

/// A chunk whose turn has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextChunk<T> {
    /// The bytes that go out before it: of a file that begins with it.
    pub(super) head: Vec<u8>,
    /// The chunk.
    pub(super) item: T,
    /// The length of the file, if it ends with this chunk.
    pub(super) ends: Option<u64>,
}

/// The part of a file that left the line early.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftEarly<T> {
    /// Its chunks that were here.
    pub(super) items: Vec<T>,
    /// Whether some of its bytes had gone out.
    pub(super) was_begun: bool,
}

impl<T> Default for Lineup<T> {
    fn default() -> Lineup<T> {
        Lineup { files: BTreeMap::new(), next: Turn(0), held: 0 }
    }
}

impl<T> Lineup<T> {
    /// Enters a file of `len` bytes behind all others.
    pub(super) fn enter(&mut self, len: u64, head: Vec<u8>) -> Turn {
        let turn = self.next;
        self.next = Turn(turn.0 + 1);
        self.files.insert(turn, LinedFile { len, head, at: 0, chunks: BTreeMap::new() });
        turn
    }

    /// Takes a chunk of `len` bytes at `offset` of a file.
    ///
    /// # Errors
    /// The item, if the file is not in the line, or has no such bytes to send any more.
    pub(super) fn put(&mut self, turn: Turn, offset: u64, len: u64, item: T) -> Result<(), T> {
        let Some(file) = self.files.get_mut(&turn) else { return Err(item) };
        let fits = offset >= file.at && offset.checked_add(len).is_some_and(|end| end <= file.len);
        if !fits || len == 0 || file.chunks.contains_key(&offset) {
            return Err(item);
        }
        file.chunks.insert(offset, (len, item));
        self.held += 1;
        Ok(())
    }

    /// Takes the chunk out whose turn has come. `None` if it is not here.
    pub(super) fn take(&mut self) -> Option<NextChunk<T>> {
        let mut first = self.files.first_entry()?;
        let file = first.get_mut();
        let (len, item) = file.chunks.remove(&file.at)?;
        let head = std::mem::take(&mut file.head);
        file.at += len;
        let ends = (file.at == file.len).then_some(file.len);
        if ends.is_some() {
            first.remove();
        }
        self.held -= 1;
        Some(NextChunk { head, item, ends })
    }

    /// The number of chunks that can go out one after the other.
    pub(super) fn ready(&self) -> usize {
        let mut ready = 0;
        for file in self.files.values() {
            let mut at = file.at;
            while let Some((len, _)) = file.chunks.get(&at) {
                at += len;
                ready += 1;
            }
            if at < file.len {
                break;
            }
        }
        ready
    }

    /// The number of chunks that are here.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether a file is out in part: nothing else may go out before the rest of it.
    pub(super) fn is_within_file(&self) -> bool {
        self.files.first_key_value().is_some_and(|(_, file)| file.at > 0)
    }

    /// Takes a file out of the line. `None` if it is not there, or all of its bytes are out.
    pub(super) fn leave(&mut self, turn: Turn) -> Option<LeftEarly<T>> {
        let file = self.files.remove(&turn)?;
        self.held -= file.chunks.len();
        let items = file.chunks.into_values().map(|(_, item)| item).collect();
        Some(LeftEarly { items, was_begun: file.at > 0 })
    }

    /// Takes all chunks out.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.held = 0;
        let chunks = self.files.values_mut().flat_map(|file| std::mem::take(&mut file.chunks));
        chunks.map(|(_, (_, item))| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(lineup: &mut Lineup<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| lineup.take()).map(|next| next.item).collect()
    }

    #[test]
    fn chunks_go_out_in_the_order_of_files_and_offsets_whatever_came_first() {
        let mut lineup = Lineup::default();
        let (a, b) = (lineup.enter(10, b"A".to_vec()), lineup.enter(4, b"B".to_vec()));
        for (turn, offset, len, item) in [(b, 0, 4, "b0"), (a, 8, 2, "a8"), (a, 4, 4, "a4")] {
            assert_eq!(lineup.put(turn, offset, len, item), Ok(()));
        }
        assert_eq!((lineup.take(), lineup.ready(), lineup.held()), (None, 0, 3));
        assert_eq!(lineup.put(a, 0, 4, "a0"), Ok(()));
        assert_eq!((lineup.ready(), lineup.held(), lineup.is_within_file()), (4, 4, false));
        let first = lineup.take().expect("it is here");
        assert_eq!(first, NextChunk { head: b"A".to_vec(), item: "a0", ends: None });
        assert!(lineup.is_within_file());
        assert_eq!(lineup.take().map(|next| (next.item, next.ends)), Some(("a4", None)));
        assert_eq!(lineup.take().map(|next| (next.item, next.ends)), Some(("a8", Some(10))));
        assert!(!lineup.is_within_file());
        assert_eq!(items(&mut lineup), ["b0"]);
        assert_eq!((lineup.ready(), lineup.held()), (0, 0));
    }

    #[test]
    fn a_chunk_that_went_out_or_does_not_fit_is_given_back() {
        let mut lineup = Lineup::default();
        let turn = lineup.enter(8, Vec::new());
        assert_eq!(lineup.put(turn, 0, 4, "first"), Ok(()));
        assert_eq!(lineup.put(turn, 0, 4, "twice"), Err("twice"));
        assert_eq!(lineup.put(turn, 4, 5, "long"), Err("long"));
        assert_eq!(lineup.put(turn, u64::MAX, 2, "far"), Err("far"));
        assert_eq!(items(&mut lineup), ["first"]);
        assert_eq!(lineup.put(turn, 0, 4, "late"), Err("late"));
        assert_eq!(lineup.put(turn, 4, 4, "last"), Ok(()));
        assert_eq!(items(&mut lineup), ["last"]);
        assert_eq!(lineup.put(turn, 4, 4, "over"), Err("over"));
    }

    #[test]
    fn a_file_that_leaves_early_lets_the_next_one_go() {
        let mut lineup = Lineup::default();
        let (a, b) = (lineup.enter(8, Vec::new()), lineup.enter(4, Vec::new()));
        assert_eq!((lineup.put(a, 4, 4, "a4"), lineup.put(b, 0, 4, "b0")), (Ok(()), Ok(())));
        assert_eq!(lineup.leave(a), Some(LeftEarly { items: vec!["a4"], was_begun: false }));
        assert_eq!(lineup.leave(a), None);
        assert_eq!(items(&mut lineup), ["b0"]);
    }
}
