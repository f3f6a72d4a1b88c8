//! Merges chunk digests, in any order, into the root of their file.
//!
//! Takes the [`Digest`] of each verified chunk and gives the file's root once all are in. Two
//! finished siblings become their parent at once, so that memory grows with the disorder of the
//! chunks, not with their number. Must not know how digests are made, declared or stored.

use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{Digest, Hash32};
use crate::chunkmap::{ChunkMap, DigestKind};
use crate::units::{ChunkIndex, ChunkSize};

/// Merges the chunks of one file, in any order, each once.
///
/// BLAKE3 splits a tree at the largest power of two below its length. Seen from the leaves: on each
/// level neighbours pair up, and a last one without a neighbour rises as it is.
#[derive(Clone, Debug)]
pub struct RootMerger {
    map: ChunkMap,
    /// Finished subtrees by their first chunk. They are disjoint, and no two of them are siblings.
    subtrees: BTreeMap<u64, Subtree>,
    root: Option<Hash32>,
    inserted: u64,
    end: TreeEnd,
}

/// Whether the end of a tree is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeEnd {
    /// It is: the map says it.
    Known,
    /// It is not. A subtree that begins with the first chunk may be the whole tree, whose root is
    /// made of its halves in another way than a parent is. So no parent is made there.
    Open,
}

/// The subtree of `2^level` chunks from its key on, without the chunks behind the file's end.
#[derive(Clone, Copy, Debug)]
struct Subtree {
    level: u32,
    cv: Hash32,
}

/// A run of chunks that is one subtree, and its digest: a short form of merged chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePart {
    /// Its first chunk.
    pub start: ChunkIndex,
    /// How many chunks it has: a power of two, or fewer if the file ends before.
    pub chunks: u64,
    /// The root if it is the whole file, else a chaining value.
    pub digest: Digest,
}

/// The reason why a digest was not taken. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The file has no such chunk.
    #[error("there is no chunk {} in a file of {chunks}", index.0)]
    OutOfRange {
        /// The chunk that was given.
        index: ChunkIndex,
        /// How many the file has.
        chunks: u64,
    },
    /// The chunk is in already, with this or another digest.
    #[error("chunk {} was merged before", index.0)]
    Duplicate {
        /// The chunk that was given.
        index: ChunkIndex,
    },
    /// A run of chunks that is no subtree of this file.
    #[error("chunks from {} on, {chunks} of them, are no subtree", index.0)]
    NoSubtree {
        /// The first chunk that was given.
        index: ChunkIndex,
        /// How many were given.
        chunks: u64,
    },
    /// The file's length asks for the other kind of digest.
    #[error("the digest of chunk {} must be a {want:?}", index.0)]
    WrongKind {
        /// The chunk that was given.
        index: ChunkIndex,
        /// The kind that its digest must have.
        want: DigestKind,
    },
}

impl RootMerger {
    /// Nothing merged yet of the file that `map` describes.
    pub const fn new(map: ChunkMap) -> RootMerger {
        RootMerger { map, subtrees: BTreeMap::new(), root: None, inserted: 0, end: TreeEnd::Known }
    }

    /// Nothing merged yet of a stream that is longer than one chunk of `size`. It has no root
    /// before its end is known.
    pub fn unended(size: ChunkSize) -> RootMerger {
        RootMerger { end: TreeEnd::Open, ..RootMerger::new(ChunkMap::unended(size)) }
    }

    /// Whether it merges a stream whose end is not known.
    pub fn is_unended(&self) -> bool {
        self.end == TreeEnd::Open
    }

    /// The same chunks in the tree of a stream that has ended, and has two chunks at least.
    ///
    /// # Errors
    /// [`MergeError::OutOfRange`] when a chunk is in that lies behind the end.
    pub fn ended(&self, map: ChunkMap) -> Result<RootMerger, MergeError> {
        let chunks = map.chunks();
        let mut ended = RootMerger { inserted: self.inserted, ..RootMerger::new(map) };
        for (start, Subtree { level, cv }) in &self.subtrees {
            if chunks < 2 || start + (1 << level) > chunks {
                return Err(MergeError::OutOfRange { index: ChunkIndex(*start), chunks });
            }
            ended.rise(*start, *level, *cv);
        }
        Ok(ended)
    }

    /// Takes the digest of one chunk.
    ///
    /// # Errors
    /// [`MergeError`] when the chunk is none of this file's, is in already, or its digest is of the
    /// wrong kind.
    pub fn insert(&mut self, index: ChunkIndex, digest: Digest) -> Result<(), MergeError> {
        let (chunks, want) = (self.map.chunks(), self.map.kind());
        if index.0 >= chunks {
            return Err(MergeError::OutOfRange { index, chunks });
        }
        if digest.kind() != want {
            return Err(MergeError::WrongKind { index, want });
        }
        if self.contains(index) {
            return Err(MergeError::Duplicate { index });
        }
        match digest {
            Digest::Root(root) => self.root = Some(root),
            Digest::Cv(cv) => self.rise(index.0, 0, cv),
        }
        self.inserted += 1;
        Ok(())
    }

    /// Takes a whole subtree, as [`RootMerger::parts`] of another merger of the same file gives it.
    ///
    /// # Errors
    /// [`MergeError`] when it is no subtree of this file, when any of it is in already, or when its
    /// digest is of the wrong kind.
    pub fn insert_part(&mut self, part: &TreePart) -> Result<(), MergeError> {
        let (chunks, index) = (self.map.chunks(), part.start);
        let level = part.chunks.max(1).next_power_of_two().trailing_zeros();
        let end = index.0.checked_add(part.chunks).filter(|end| *end <= chunks);
        let Some(end) = end.filter(|_| part.chunks > 0) else {
            return Err(MergeError::OutOfRange { index, chunks });
        };
        let whole = part.chunks == chunks;
        let aligned = index.0.is_multiple_of(1 << level) && (part.chunks == 1 << level || end == chunks);
        let may_be_all = self.is_unended() && index.0 == 0 && part.chunks > 1;
        if !aligned || may_be_all {
            return Err(MergeError::NoSubtree { index, chunks: part.chunks });
        }
        let want = if whole { DigestKind::Root } else { DigestKind::Cv };
        if part.digest.kind() != want {
            return Err(MergeError::WrongKind { index, want });
        }
        if self.root.is_some()
            || self.subtrees.range(..end).next_back().is_some_and(|(start, s)| start + (1 << s.level) > index.0)
        {
            return Err(MergeError::Duplicate { index });
        }
        match part.digest {
            Digest::Root(root) => self.root = Some(root),
            Digest::Cv(cv) => self.rise(index.0, level, cv),
        }
        self.inserted += part.chunks;
        Ok(())
    }

    /// The merged chunks, in as few subtrees as possible, in order.
    pub fn parts(&self) -> Vec<TreePart> {
        if let Some(root) = self.root {
            return vec![TreePart { start: ChunkIndex(0), chunks: self.map.chunks(), digest: Digest::Root(root) }];
        }
        let part = |(start, subtree): (&u64, &Subtree)| TreePart {
            start: ChunkIndex(*start),
            chunks: (1 << subtree.level).min(self.map.chunks() - start),
            digest: Digest::Cv(subtree.cv),
        };
        self.subtrees.iter().map(part).collect()
    }

    /// Whether the chunk is in.
    pub fn contains(&self, index: ChunkIndex) -> bool {
        self.held_until(index) > index.0
    }

    /// Whether all chunks from `start` up to `end` are in.
    pub fn contains_all(&self, start: ChunkIndex, end: ChunkIndex) -> bool {
        let mut at = start.0;
        while at < end.0 {
            let until = self.held_until(ChunkIndex(at));
            if until <= at {
                return false;
            }
            at = until;
        }
        true
    }

    /// The end of the subtree that holds the chunk; the chunk itself if none does.
    fn held_until(&self, index: ChunkIndex) -> u64 {
        let chunks = self.map.chunks();
        if self.root.is_some() {
            return chunks;
        }
        // Subtrees are disjoint: only the last one that starts at or before the chunk can hold it.
        let before = self.subtrees.range(..=index.0).next_back();
        let end = before.map_or(0, |(start, subtree)| (start + (1 << subtree.level)).min(chunks));
        end.max(index.0)
    }

    /// The digest of the file, once every chunk is in.
    pub const fn root(&self) -> Option<Hash32> {
        self.root
    }

    /// How many chunks are in.
    pub const fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Joins the subtree with its sibling, their parent with its own, and so on until a sibling is
    /// missing.
    fn rise(&mut self, mut start: u64, from: u32, mut cv: Hash32) {
        let chunks = self.map.chunks();
        for level in from.. {
            let sibling = start ^ (1 << level);
            if sibling >= chunks {
                continue;
            }
            let may_be_all = self.is_unended() && start.min(sibling) == 0;
            let Some(other) = (if may_be_all { None } else { self.take(sibling, level) }) else {
                self.subtrees.insert(start, Subtree { level, cv });
                return;
            };
            let (left, right) = if sibling < start { (&other, &cv) } else { (&cv, &other) };
            if chunks <= 2 << level {
                self.root = Some(*merge_subtrees_root(left, right, Mode::Hash).as_bytes());
                return;
            }
            cv = merge_subtrees_non_root(left, right, Mode::Hash);
            start = start.min(sibling);
        }
    }

    /// Removes the subtree at `start` if it has grown to `level`.
    fn take(&mut self, start: u64, level: u32) -> Option<Hash32> {
        let subtree = *self.subtrees.get(&start)?;
        if subtree.level != level {
            return None;
        }
        self.subtrees.remove(&start);
        Some(subtree.cv)
    }

    /// The number of subtrees that are held, which take the memory.
    pub fn parts_held(&self) -> usize {
        self.subtrees.len()
    }
}

#[cfg(test)]
mod tests;
