//! One reading of a source for several readers: each byte comes off the disk once, as long as the
//! readers keep up with each other.
//!
//! In: a tree, and the reader that wants its files. Out: trees that look like it, one for each
//! reader, whose files take their bytes from a bounded place that all share. `blocks` decides who
//! reads and who waits, `tree` has the trees and files that readers see. A reader that falls behind
//! reads for itself, so none holds the others for long. Each tree is scanned by its own reader. It
//! knows no destinations.

mod blocks;
mod tree;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use longhaul_sys::{SharedSlot, Slab, Slot};

use crate::affinity::Affinity;
use crate::error::DiskError;
use crate::io::{ChunkIo, Depth, EngineKind};
use crate::source::{SourceFile, SourceTree};
use blocks::{BlockAnswer, BlockKey, BlockSize, ReaderId, SharedBlocks};
use tree::SharedTree;

pub(crate) use tree::SharedSmall;

/// The memory and the I/O of a reading that several readers share.
#[derive(Clone, Debug)]
pub struct ReadingMeans {
    /// Bytes of a block: a multiple of 4096. Files are read in blocks of this size.
    pub block_bytes: usize,
    /// Blocks that there is memory for. At least [`SharedReading::blocks_min`].
    pub blocks: usize,
    /// Requests in flight per disk.
    pub depth: Depth,
    /// The I/O engine that reads.
    pub engine: EngineKind,
    /// Where its threads run.
    pub affinity: Affinity,
}

/// A reading of one source that several readers share.
#[derive(Clone)]
pub struct SharedReading {
    place: Arc<ReadingPlace>,
}

/// A reader of a source that others read too. When the last clone is dropped, nobody waits for it
/// any more.
#[derive(Clone)]
pub struct SourceReader {
    seat: Arc<ReaderSeat>,
}

/// The bytes that a shared reading has read and given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadingFigures {
    /// Bytes that were read from the source.
    pub bytes_read: u64,
    /// Bytes that all readers together have taken.
    pub bytes_taken: u64,
}

impl SharedReading {
    /// Begins a reading for so many readers (1 to [`SharedReading::MOST_READERS`]).
    ///
    /// # Errors
    /// [`DiskError::Engine`] when the engine is not available, or there is no address space.
    pub fn start(means: ReadingMeans, readers: usize) -> Result<SharedReading, DiskError> {
        let ReadingMeans { block_bytes, blocks, depth, engine, affinity } = means;
        let no_memory = |source| DiskError::Engine { engine: "buffers", source };
        let slab = Slab::new(block_bytes, blocks).map_err(no_memory)?;
        let io = ChunkIo::start_bound(engine, depth, &slab, affinity)?;
        let beside = SharedReading::beside(readers);
        let room = blocks.saturating_sub(beside).max(1) as u64 * block_bytes as u64;
        let held = HeldBlocks { blocks: SharedBlocks::new(room, readers), kept: HashMap::new() };
        let place = ReadingPlace {
            held: Mutex::new(held),
            landed: Condvar::new(),
            room: Condvar::new(),
            slab,
            io,
            begun: Instant::now(),
            bytes_read: AtomicU64::new(0),
            bytes_taken: AtomicU64::new(0),
        };
        Ok(SharedReading { place: Arc::new(place) })
    }

    /// The most readers of one source.
    pub const MOST_READERS: usize = blocks::READERS_MAX;

    /// The fewest blocks of memory with which so many readers can share.
    pub fn blocks_min(readers: usize) -> usize {
        ROOM_BLOCKS_MIN + SharedReading::beside(readers)
    }

    /// Blocks of memory for what is read by one reader alone, and for what has left the place and
    /// is still being copied.
    fn beside(readers: usize) -> usize {
        readers + 1
    }

    /// The reader of this number, from 0. To be made once for each.
    pub fn reader(&self, number: usize) -> SourceReader {
        let seat = ReaderSeat { place: self.place.clone(), reader: ReaderId(number) };
        SourceReader { seat: Arc::new(seat) }
    }

    /// The bytes so far.
    pub fn figures(&self) -> ReadingFigures {
        let figure = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        ReadingFigures { bytes_read: figure(&self.place.bytes_read), bytes_taken: figure(&self.place.bytes_taken) }
    }
}

impl SourceReader {
    /// The same tree, whose files are read together with the other readers. All readers must be
    /// given the same tree, or trees of the same files.
    #[must_use]
    pub fn over(&self, tree: Arc<dyn SourceTree>) -> Arc<dyn SourceTree> {
        Arc::new(SharedTree::new(tree, self.seat.clone()))
    }
}

/// A reader at the place. It leaves when it is dropped.
struct ReaderSeat {
    place: Arc<ReadingPlace>,
    reader: ReaderId,
}

/// The place of blocks, its memory and its I/O.
struct ReadingPlace {
    held: Mutex<HeldBlocks>,
    /// Notified when a block has landed or failed.
    landed: Condvar,
    /// Notified when there may be more room.
    room: Condvar,
    slab: Arc<Slab>,
    io: ChunkIo,
    begun: Instant,
    bytes_read: AtomicU64,
    bytes_taken: AtomicU64,
}

/// The blocks that are there, and their bytes.
struct HeldBlocks {
    blocks: SharedBlocks,
    kept: HashMap<BlockKey, BlockBytes>,
}

/// The bytes of a block.
#[derive(Clone, Debug)]
enum BlockBytes {
    Slot(SharedSlot),
    /// The bytes of a small file: a slot would hold many.
    Heap(Arc<[u8]>),
}

impl BlockBytes {
    fn bytes(&self) -> &[u8] {
        match self {
            BlockBytes::Slot(slot) => slot,
            BlockBytes::Heap(bytes) => bytes,
        }
    }
}

/// Part of a block: its bytes from `from` on.
struct BlockPart<'b> {
    key: BlockKey,
    size: BlockSize,
    from: usize,
    into: &'b mut [u8],
}

/// The turn of a reader, once the block is there or is its own to read.
enum BlockTurn {
    Take(BlockBytes),
    Read,
    Alone,
}

impl ReaderSeat {
    /// Waits until a block is there, or this reader is to read it.
    fn turn(&self, key: BlockKey, size: BlockSize) -> BlockTurn {
        let place = &*self.place;
        let mut held = place.lock();
        loop {
            let answer = held.blocks.want(self.reader, key, size, place.begun.elapsed());
            held.let_leave();
            match answer {
                BlockAnswer::Take => match held.kept.get(&key) {
                    Some(kept) => return BlockTurn::Take(kept.clone()),
                    // It cannot be: what has landed is kept until it leaves.
                    None => return BlockTurn::Alone,
                },
                BlockAnswer::Read => return BlockTurn::Read,
                BlockAnswer::Alone => return BlockTurn::Alone,
                BlockAnswer::Landing => held = place.wait(&place.landed, held, LANDING_MAX),
                BlockAnswer::Full(most) => held = place.wait(&place.room, held, most),
            }
        }
    }

    /// Whether a block is in the place, or is being read.
    fn is_known(&self, key: BlockKey) -> bool {
        self.place.lock().blocks.is_known(key)
    }

    /// Fills a part of a block of a file, by one reading for all readers.
    fn fill(&self, file: &Arc<SourceFile>, part: BlockPart<'_>) -> Result<(), DiskError> {
        let BlockPart { key, size, from, into } = part;
        loop {
            match self.turn(key, size) {
                BlockTurn::Take(kept) => {
                    into.copy_from_slice(&kept.bytes()[from..from + into.len()]);
                    drop(kept);
                    self.took(key, into.len());
                    return Ok(());
                }
                BlockTurn::Read => self.place.read_block(file, key, size)?,
                BlockTurn::Alone => {
                    let start = key.number * self.place.block_bytes() + from as u64;
                    let slot = self.place.read_slot(file, start, into.len())?;
                    into.copy_from_slice(&slot[..into.len()]);
                    self.place.count_taken(into.len());
                    return Ok(());
                }
            }
        }
    }

    /// Fills `into` with a whole small file. `read` reads it, if nobody else did.
    fn fill_small(
        &self,
        key: BlockKey,
        into: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let size = BlockSize { len: into.len(), kept: (into.len() + KEPT_BESIDE) as u64 };
        match self.turn(key, size) {
            BlockTurn::Take(kept) => into.copy_from_slice(kept.bytes()),
            BlockTurn::Read => {
                let result = read(into);
                self.place.count_read(into.len());
                self.place.land(key, result.as_ref().ok().map(|()| BlockBytes::Heap(Arc::from(&*into))));
                result?;
            }
            BlockTurn::Alone => {
                self.place.count_read(into.len());
                self.place.count_taken(into.len());
                return read(into);
            }
        }
        self.took(key, into.len());
        Ok(())
    }

    fn took(&self, key: BlockKey, bytes: usize) {
        self.place.count_taken(bytes);
        if self.place.lock().blocks.took(self.reader, key, bytes) {
            self.place.room.notify_all();
        }
    }
}

impl Drop for ReaderSeat {
    fn drop(&mut self) {
        self.place.lock().blocks.leave(self.reader);
        self.place.room.notify_all();
    }
}

impl ReadingPlace {
    fn block_bytes(&self) -> u64 {
        self.slab.slot_bytes() as u64
    }

    /// Reads a block into the place, as this was the reader's turn.
    fn read_block(&self, file: &Arc<SourceFile>, key: BlockKey, size: BlockSize) -> Result<(), DiskError> {
        let read = self.read_slot(file, key.number * self.block_bytes(), size.len);
        let (kept, result) = match read {
            Ok(slot) => (Some(BlockBytes::Slot(slot.share())), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.land(key, kept);
        result
    }

    /// Reads into a buffer of the place, and waits for that.
    fn read_slot(&self, file: &Arc<SourceFile>, start: u64, len: usize) -> Result<Slot, DiskError> {
        let closed = || DiskError::Engine { engine: "buffers", source: io::ErrorKind::BrokenPipe.into() };
        let slot = self.slab.claim().ok_or_else(closed)?;
        let (done, read) = bounded(1);
        let done = move |slot, result| drop(done.send((slot, result)));
        self.io.read(file.clone(), start, len, slot, Box::new(done));
        let (slot, result) = read.recv().map_err(|_| closed())?;
        result?;
        self.count_read(len);
        Ok(slot)
    }

    /// A block that was being read is there, or was not read.
    fn land(&self, key: BlockKey, kept: Option<BlockBytes>) {
        let mut held = self.lock();
        match kept {
            Some(kept) => {
                held.kept.insert(key, kept);
                held.blocks.landed(key);
            }
            None => held.blocks.failed(key),
        }
        drop(held);
        self.landed.notify_all();
        self.room.notify_all();
    }

    fn count_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn count_taken(&self, bytes: usize) {
        self.bytes_taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn wait<'h>(
        &self,
        changed: &Condvar,
        held: MutexGuard<'h, HeldBlocks>,
        most: Duration,
    ) -> MutexGuard<'h, HeldBlocks> {
        changed.wait_timeout(held, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, HeldBlocks> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldBlocks {
    /// Gives up the bytes of blocks that have left.
    fn let_leave(&mut self) {
        while let Some(key) = self.blocks.poll_leaving() {
            self.kept.remove(&key);
        }
    }
}

impl fmt::Debug for ReaderSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderSeat").field("reader", &self.reader).finish_non_exhaustive()
    }
}

/// The fewest blocks in the place: one that is taken, one that is read, and two between.
const ROOM_BLOCKS_MIN: usize = 4;
/// Bytes of memory that a small file takes in the place beside its content.
const KEPT_BESIDE: usize = 512;
/// The time after which a reader asks again for a block that another one reads. It is told when the
/// block lands; this is for the case that it is not.
const LANDING_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
