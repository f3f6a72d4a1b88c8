//! One striped file that is written: its draft, its bodies, and how far it is.
//!
//! In: what its process decides and what comes back. Out: what is to be done next. It is the part
//! of the model that `longhaul-disk`'s `destination/striped.rs` is of the program. Gives no orders.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_core::stripe::{Draft, PlacedChunk, Spot, SyncPass, Unsynced};
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, TargetId};

use super::disk::NodeId;
use super::texts::{FileNo, VersionNo};

/// A striped file that is written.
#[derive(Debug)]
pub(crate) struct StripeDoer {
    pub(crate) file: FileNo,
    pub(crate) version: VersionNo,
    pub(crate) home: usize,
    pub(crate) stripe: NodeId,
    pub(crate) draft: Draft,
    pub(crate) bodies: BTreeMap<usize, DoerBody>,
    /// Chunks that are to come.
    pub(crate) wanted: VecDeque<u64>,
    /// The recorded place of each chunk. `None`: a hole.
    pub(crate) recorded: BTreeMap<u64, Option<Spot>>,
    /// Chunks that are holes, recorded or not.
    pub(crate) holes: BTreeSet<u64>,
    /// Chunks on targets that failed, until they are written elsewhere.
    pub(crate) lost: BTreeSet<u64>,
    pub(crate) pass: Option<PassRun>,
    pub(crate) passes: u32,
    /// The number of blocks of records.
    pub(crate) log_blocks: u32,
    /// Whether the name of the stripe file is durable.
    pub(crate) is_named: bool,
    pub(crate) stage: Stage,
    /// Orders of its stage that have not come back.
    pub(crate) outstanding: u32,
    /// Whether its stage waits until its home is well.
    pub(crate) is_stalled: bool,
    /// The file that stands under its path.
    pub(crate) replaces: Option<FileNo>,
    /// Writes that were ordered, and those of them beside which another one was: for planted bugs.
    pub(crate) writes: Vec<(u64, Spot)>,
    pub(crate) losers: Vec<(u64, Spot)>,
    /// Slots that a planted bug uses in place of others.
    pub(crate) aliases: BTreeMap<SpotKey, u64>,
    /// Whether a planted bug has written the footers already.
    pub(crate) has_footers: bool,
}

/// A place as a key: target and slot.
pub(crate) type SpotKey = (usize, u64);

/// A body of a file that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoerBody {
    pub(crate) node: NodeId,
    /// Whether its name is durable.
    pub(crate) is_named: bool,
    /// Whether the stripe file has the record of it.
    pub(crate) is_recorded: bool,
}

/// How far a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Writing,
    /// Its records are synced: those of an earlier process may be in the cache alone, and what
    /// older ones name must stay until then.
    Records,
    /// Writes to its bodies are waited for.
    Losers,
    Footers,
    FooterSyncs,
    Header,
    HeaderSync,
    Publish,
    NameSync,
}

/// A sync that is under way.
#[derive(Debug)]
pub(crate) struct PassRun {
    pub(crate) number: u32,
    pub(crate) pass: SyncPass,
    /// Targets whose sync has not come back.
    pub(crate) waits: BTreeSet<usize>,
    pub(crate) unsynced: Unsynced,
    pub(crate) since: u64,
    pub(crate) records: Vec<PlacedChunk>,
    pub(crate) bodies: Vec<(usize, NodeId)>,
    pub(crate) step: PassStep,
}

/// How far a sync is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassStep {
    Bodies,
    Append,
    LogSync,
}

impl StripeDoer {
    pub(crate) fn new(
        (file, version): (FileNo, VersionNo),
        (home, stripe): (usize, NodeId),
        draft: Draft,
    ) -> StripeDoer {
        StripeDoer {
            file,
            version,
            home,
            stripe,
            draft,
            bodies: BTreeMap::new(),
            wanted: VecDeque::new(),
            recorded: BTreeMap::new(),
            holes: BTreeSet::new(),
            lost: BTreeSet::new(),
            pass: None,
            passes: 0,
            log_blocks: 0,
            is_named: false,
            stage: Stage::Writing,
            outstanding: 0,
            is_stalled: false,
            replaces: None,
            writes: Vec::new(),
            losers: Vec::new(),
            aliases: BTreeMap::new(),
            has_footers: false,
        }
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.draft.map().chunks()
    }

    /// Whether a chunk has a place, and needs no other one.
    pub(crate) fn has(&self, index: u64) -> bool {
        let is_there = self.draft.spot(ChunkIndex(index)).is_some() || self.holes.contains(&index);
        is_there && !self.lost.contains(&index)
    }

    fn is_recorded(&self, index: u64) -> bool {
        let place = self.draft.spot(ChunkIndex(index));
        self.has(index) && self.recorded.get(&index) == Some(&place)
    }

    /// Chunks that have a place and are not recorded there.
    pub(crate) fn unrecorded(&self) -> usize {
        (0..self.chunks()).filter(|index| self.has(*index) && !self.is_recorded(*index)).count()
    }

    /// Whether every chunk has a place.
    pub(crate) fn is_placed(&self) -> bool {
        (0..self.chunks()).all(|index| self.has(index))
    }

    /// Whether every chunk is recorded.
    pub(crate) fn is_recorded_whole(&self) -> bool {
        (0..self.chunks()).all(|index| self.is_recorded(index))
    }

    /// Targets on which chunks lie.
    pub(crate) fn used(&self) -> Vec<usize> {
        self.bodies.keys().copied().filter(|target| self.draft.uses(TargetId(*target as u32))).collect()
    }

    /// Asks for chunks once more.
    pub(crate) fn want(&mut self, chunks: impl IntoIterator<Item = u64>) {
        for index in chunks {
            if !self.wanted.contains(&index) {
                self.wanted.push_back(index);
            }
        }
    }

    /// Gives up what a target holds of it and no record names: a sync of that target failed, and a
    /// later one may say nothing of what this one has lost.
    pub(crate) fn give_up_unrecorded(&mut self, target: usize) -> usize {
        let pass = self.draft.begin_sync();
        let lost = self.draft.give_up(&pass, &Unsynced::from([TargetId(target as u32)]));
        self.draft.put_back(&pass);
        let count = lost.len();
        self.want(lost.into_iter().map(|index| index.0));
        count
    }

    /// Recorded chunks on a target.
    pub(crate) fn recorded_on(&self, target: usize) -> Vec<u64> {
        let on = |spot: &Option<Spot>| spot.is_some_and(|spot| spot.target.0 as usize == target);
        let there =
            self.recorded.iter().filter(|(index, spot)| on(spot) && self.draft.spot(ChunkIndex(**index)) == **spot);
        there.map(|(index, _)| *index).collect()
    }

    /// The place of a chunk as it is written down.
    pub(crate) fn as_written(&self, chunk: PlacedChunk) -> PlacedChunk {
        let spot = chunk.spot.map(|spot| Spot { slot: self.slot_of(spot), ..spot });
        PlacedChunk { spot, ..chunk }
    }

    /// The last write of a chunk to a target.
    pub(crate) fn last_write(&self, index: u64, target: usize) -> Option<Spot> {
        let is_it = |(other, spot): &&(u64, Spot)| *other == index && spot.target.0 as usize == target;
        self.writes.iter().rev().find(is_it).map(|(_, spot)| *spot)
    }

    /// The slot that is written to.
    pub(crate) fn slot_of(&self, spot: Spot) -> u64 {
        self.aliases.get(&(spot.target.0 as usize, spot.slot)).copied().unwrap_or(spot.slot)
    }
}

/// The map of a file of so many chunks.
pub(crate) fn map_of(chunks: u64) -> ChunkMap {
    let size = ChunkSize::from_log2(CHUNK_LOG2).unwrap_or(ChunkSize::DEFAULT);
    ChunkMap::new(chunks << CHUNK_LOG2, size)
}

/// Chunks are said to have 1 KiB.
const CHUNK_LOG2: u8 = 10;
pub(crate) const SET_CHUNK: u64 = 1 << CHUNK_LOG2;
