//! A block of a shared reading: who is owed it, who asked for it, and how much of it was taken.
//!
//! In: what readers do. Out: who still takes it. Knows neither the room nor the time.

use std::collections::BTreeSet;

use crate::stat::Identity;

/// A block of a version of a file: its number, in blocks from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    /// The version of the file.
    pub(crate) file: Identity,
    /// Its number, from 0.
    pub(crate) number: u64,
}

/// The number of a reader, under [`READERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReaderId(pub(crate) usize);

/// The bytes of a block, and those that it takes in the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSize {
    /// Bytes that a reader takes.
    pub(crate) len: usize,
    /// Bytes that the block takes in the place, at least 1.
    pub(crate) kept: u64,
}

/// A set of readers, one bit for each.
pub(crate) type ReaderSet = u64;

/// The largest number of readers of one source.
pub(crate) const READERS_MAX: usize = 64;

/// A block that is there, or is being read.
#[derive(Debug)]
pub(crate) struct Block {
    /// Its place in the order in which blocks were asked for.
    pub(crate) place: u64,
    /// Its bytes.
    pub(crate) size: BlockSize,
    /// Whether it has been read.
    pub(crate) is_landed: bool,
    /// The reader that reads it for all.
    pub(crate) reader: ReaderId,
    /// The readers in step that have neither taken it nor gone past it.
    pub(crate) owed: ReaderSet,
    /// The readers that asked for it while it was being read.
    pub(crate) asked: ReaderSet,
    /// Bytes that readers have taken of it that took no more than a part so far.
    pub(crate) parts: Vec<(ReaderId, usize)>,
}

/// How much of a block a reader has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockTaken {
    InPart,
    Whole,
}

impl ReaderId {
    /// The set of it alone.
    pub(crate) fn bit(self) -> ReaderSet {
        1 << (self.0 % READERS_MAX)
    }

    /// The readers of a set.
    pub(crate) fn all_of(set: ReaderSet) -> impl Iterator<Item = ReaderId> {
        (0..READERS_MAX).map(ReaderId).filter(move |reader| set & reader.bit() != 0)
    }
}

/// The blocks that are there and nobody is owed, by their places.
#[derive(Debug, Default)]
pub(crate) struct SpareBlocks {
    places: BTreeSet<u64>,
    /// Bytes that they take in the place.
    bytes: u64,
}

impl SpareBlocks {
    /// Takes a block in, if it is one.
    pub(crate) fn note(&mut self, block: &Block) {
        if block.is_spare() && self.places.insert(block.place) {
            self.bytes += block.size.kept;
        }
    }

    /// A block has left.
    pub(crate) fn forget(&mut self, block: &Block) {
        if self.places.remove(&block.place) {
            self.bytes -= block.size.kept;
        }
    }

    /// The place of the oldest.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.places.first().copied()
    }

    /// Their number.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Bytes that they take in the place.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Block {
    /// The readers that still take it.
    pub(crate) fn wanted(&self) -> ReaderSet {
        self.owed | self.asked
    }

    /// Whether it is there and nobody wants it.
    pub(crate) fn is_spare(&self) -> bool {
        self.is_landed && self.wanted() == 0
    }

    /// A reader takes bytes of it.
    pub(crate) fn take(&mut self, reader: ReaderId, bytes: usize) -> BlockTaken {
        self.asked &= !reader.bit();
        let before = self.parts.iter_mut().find(|(of, _)| *of == reader);
        let taken = match before {
            Some((_, taken)) => {
                *taken += bytes;
                *taken
            }
            None if bytes < self.size.len => {
                self.parts.push((reader, bytes));
                bytes
            }
            None => bytes,
        };
        if taken >= self.size.len { BlockTaken::Whole } else { BlockTaken::InPart }
    }
}
