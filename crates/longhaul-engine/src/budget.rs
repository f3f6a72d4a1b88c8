//! Divides the memory of one session side: into chunk-sized slots, the lanes that they carry, and
//! the I/O that fills them.
//!
//! In: the settings for memory, chunks and lanes. Out: the numbers of slots and lanes, and a side's
//! buffers with their I/O. It knows no sessions.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::{
    CHUNK_LOG2_MAX, DISK_DEPTH_MAX, LANES_MAX, LONG_PATH_MILLISECONDS, MEMORY_BYTES_DEFAULT, MEMORY_CHUNKS_MIN,
};
use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, Role, hint};
use longhaul_disk::{Affinity, ChunkIo, Depth, EngineKind};
use longhaul_net::LaneMemory;
use longhaul_proto::tuning::transport;
use longhaul_sys::Slab;

/// Bytes of buffers of a session side by default.
pub const MEMORY_DEFAULT: ByteCount = ByteCount(MEMORY_BYTES_DEFAULT);
/// Lanes by default: the number that filled a loopback in the prototype (research: 1 to 4 within
/// noise).
pub const LANES_DEFAULT: u32 = 4;
/// Lanes at first by default on a long path: each connection begins with ten segments, so twice as
/// many lanes are a round trip ahead.
pub(crate) const LANES_FAR: u32 = 8;

/// Lanes that are dialled with the control connection where the path is long: no more before the
/// daemon has answered, so that its handshakes have room for eight such sessions of one network.
pub(crate) const LANES_EARLY: u32 = 4;
/// Lanes over QUIC by default: none is slowed down by its losses, so more of them serve the
/// processors alone.
pub(crate) const LANES_QUIC: u32 = 4;

/// Lanes over UDP: one carries 15 to 25 Gbit/s, and repairs what is lost without standing still.
pub(crate) const LANES_UDP: u32 = 1;
/// Bytes of one end of a lane over UDP besides slots: an inbox of 16 runs of 64 KiB and one run to
/// send, 256 KiB of messages on their way, and what is known of the pieces of units that are not
/// whole, 16 KiB for a chunk of 4 MiB.
pub(crate) const UDP_LANE_BYTES: u64 = 2 << 20;
/// Lanes that a transfer may come to use by default: a connection that a loss of 0.1 % keeps at a
/// thirtieth of the path then still fills it with the others.
pub(crate) const LANES_AUTO_MAX: u32 = 32;
/// Lanes that a transfer begins with on a path that is known: there is room left for the trial of
/// another transport.
pub(crate) const LANES_KNOWN_MAX: u32 = LANES_AUTO_MAX - transport::LANES;
/// A path is long from this round trip on.
pub(crate) const FAR: Duration = Duration::from_millis(LONG_PATH_MILLISECONDS);
/// Lanes at first over a path with this round trip of which nothing is known.
pub(crate) fn usual_lanes(rtt: Duration) -> u32 {
    if rtt >= FAR { LANES_FAR } else { LANES_DEFAULT }
}

/// Lanes that stay of `first`, once it is known that a path of this round trip needs no more: those
/// beyond the usual number were for the start. Where `first` is all that may be, it was asked for.
pub(crate) fn lanes_after_start(first: u32, most: u32, rtt: Duration) -> u32 {
    if rtt >= FAR && first == LANES_FAR && most > first { LANES_DEFAULT } else { first }
}

/// Slots of a receiver that reads back written files or compares standing ones, besides its memory:
/// one is filled while the other is hashed.
pub(crate) const READ_BACK_SLOTS: usize = 2;
/// Threads that read skipped files for their roots, with a buffer each: enough to keep a fast disk
/// busy while as many cores hash.
pub(crate) const DIGEST_SLOTS: usize = 4;
/// The largest number of slots of a slab.
const SLOTS_MAX: u64 = 1 << 16;

/// The slots that `memory` holds.
///
/// # Errors
/// [`FaultCode::Usage`] when they are too few.
pub(crate) fn slots(memory: ByteCount, chunk: ChunkSize) -> Result<usize, Fault> {
    let slots = memory.get() / chunk.bytes();
    if slots < MEMORY_CHUNKS_MIN {
        return Err(Fault::new(
            FaultCode::Usage,
            Blame::Local,
            format_args!(
                "a memory of {memory} holds fewer than {MEMORY_CHUNKS_MIN} chunks of {}",
                ByteCount(chunk.bytes())
            ),
        )
        .hint(hint::Memory::RaiseOrSmallerChunks));
    }
    if slots > SLOTS_MAX {
        let chunk = ByteCount(chunk.bytes());
        let message = format_args!("a memory of {memory} holds more than {SLOTS_MAX} chunks of {chunk}");
        return Err(Fault::new(FaultCode::Usage, Blame::Local, message).hint(hint::Memory::LowerOrLargerChunks));
    }
    Ok(usize::try_from(slots).unwrap_or(usize::MAX))
}

/// The memory of this host in bytes: no buffers can be larger. (The limit of a cgroup is not taken
/// into account: it may be changed while a transfer runs, and pages of buffers that are never used
/// do not count.)
pub fn host_memory() -> ByteCount {
    let system = rustix::system::sysinfo();
    ByteCount((system.totalram as u64).saturating_mul(u64::from(system.mem_unit)))
}

/// Refuses buffers that are larger than the memory of this host.
///
/// # Errors
/// [`FaultCode::Usage`].
pub(crate) fn possible(memory: ByteCount) -> Result<(), Fault> {
    let most = host_memory();
    if memory <= most {
        return Ok(());
    }
    let message = format_args!("a memory of {memory} is more than this host has, which is {most}");
    let mebibytes = MEMORY_BYTES_DEFAULT >> 20;
    Err(Fault::new(FaultCode::Usage, Blame::Local, message).hint(hint::Memory::LowerToDefault { mebibytes }))
}

/// The largest chunk of which `memory` holds enough, at least `chunk`.
pub(crate) fn largest_chunk(memory: ByteCount, chunk: ChunkSize) -> ChunkSize {
    let fits = |log2: &u8| 1u64 << log2 <= memory.get() / MEMORY_CHUNKS_MIN;
    let largest = (chunk.log2()..=CHUNK_LOG2_MAX).take_while(fits).last().and_then(ChunkSize::from_log2);
    largest.unwrap_or(chunk)
}

/// Bytes of a buffer through which skipped files are read: a request of 4 MiB is enough for any
/// disk.
pub(crate) fn digest_bytes(chunk: ChunkSize) -> u64 {
    chunk.bytes().min(ChunkSize::DEFAULT.bytes())
}

/// The least memory that holds enough chunks of this size.
pub(crate) fn memory_for(chunk: ChunkSize) -> ByteCount {
    ByteCount(chunk.bytes().saturating_mul(MEMORY_CHUNKS_MIN))
}

/// The lanes that `slots` carry: lanes may hold half of the memory.
pub(crate) fn lanes(wanted: u32, slots: usize) -> u32 {
    wanted.min(LANES_MAX).min(u32::try_from(slots / 2).unwrap_or(u32::MAX)).max(1)
}

/// The slots, out of `slots`, for buffers on a side where lanes keep payload in windows as well.
pub(crate) fn beside_windows(slots: usize) -> usize {
    (slots / 2).max(MEMORY_CHUNKS_MIN as usize / 2)
}

/// Bytes that the windows of all lanes together may take, on a side with `memory` bytes in all.
pub(crate) fn windows(memory: u64) -> u64 {
    memory / 2
}

/// Bytes to set aside for lanes whose memory is `lane`, on a side with `memory` bytes in all.
pub(crate) fn windows_of(lane: LaneMemory, memory: u64) -> u64 {
    match lane {
        LaneMemory::Kernel | LaneMemory::Slots => 0,
        LaneMemory::Window { .. } => windows(memory),
    }
}

/// The lanes, out of `wanted`, whose memory `lane` is there for each, on a side with `memory` bytes
/// in all.
pub(crate) fn lanes_with(lane: LaneMemory, wanted: u32, memory: u64) -> u32 {
    match lane {
        LaneMemory::Kernel | LaneMemory::Slots => wanted,
        LaneMemory::Window { bytes_min } => {
            wanted.min(u32::try_from(windows(memory) / bytes_min as u64).unwrap_or(u32::MAX)).max(1)
        }
    }
}

/// The lanes for which a sender with so many slots reads ahead: one that keeps its slots until they
/// are acknowledged has use for all of them.
pub(crate) fn lanes_to_read_for(lane: LaneMemory, lanes: u32, slots: usize) -> u32 {
    match lane {
        LaneMemory::Kernel | LaneMemory::Window { .. } => lanes,
        LaneMemory::Slots => u32::try_from(slots).unwrap_or(u32::MAX),
    }
}

/// The buffers and the chunk I/O of one session side.
pub(crate) struct SessionBuffers {
    /// The buffers. Pages that are never touched cost nothing.
    pub(crate) slab: Arc<Slab>,
    /// The I/O that fills or empties them.
    pub(crate) io: ChunkIo,
}

/// Fills all slots that are free with the same noise. Its pages are there afterwards, and no disk
/// can make less of it.
pub(crate) fn fill_with_noise(slab: &Arc<Slab>) {
    let mut slots: Vec<_> = std::iter::from_fn(|| slab.try_claim()).collect();
    let Some((first, others)) = slots.split_first_mut() else { return };
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in first.chunks_exact_mut(8) {
        // xorshift64: compressors find nothing in it.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    others.iter_mut().for_each(|slot| slot.copy_from_slice(first));
}

/// The memory and I/O settings of a session side.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPlan {
    /// The slots that its memory holds.
    pub(crate) slots: usize,
    /// The most lanes that it may come to have.
    pub(crate) lanes: u32,
    /// Requests in flight per disk. `None`: each disk gets as many as still pay.
    pub(crate) depth: Option<usize>,
    /// I/O engine.
    pub(crate) engine: EngineKind,
    /// Chunk size.
    pub(crate) chunk: ChunkSize,
    /// Where threads run.
    pub(crate) affinity: Affinity,
}

impl SessionBuffers {
    /// Fills the buffers that the sender of a measurement will use, all with the same noise: bytes
    /// that are read again, into another buffer, must be the same. No stage can make less of noise,
    /// and the pages are there: untouched, all of them would be one page of zeros, which is always
    /// in cache.
    pub(crate) fn fill_with_noise(&self) {
        fill_with_noise(&self.slab);
    }

    /// Maps the buffers and starts the I/O.
    ///
    /// # Errors
    /// A [`Fault`] when the system does not give the address space or the engine.
    pub(crate) fn start(role: Role, means: MemoryPlan) -> Result<SessionBuffers, Fault> {
        let MemoryPlan { slots, lanes, depth, engine, chunk, affinity } = means;
        let (half, found_max) = (slots / 2, DISK_DEPTH_MAX as usize);
        let found = Depth::Found { start: half.clamp(1, DEPTH_FIRST), most: half.clamp(1, found_max) };
        let depth = depth.map_or(found, Depth::Fixed);
        let slots = match role {
            Role::Sender if engine == EngineKind::Void => slots.min(sender_slots(depth.start(), lanes)),
            // How many devices its sources lie on shows only later.
            Role::Sender => slots.min(sender_slots(depth.most() * DEVICES_AT_ONCE, lanes)),
            Role::Receiver => slots,
        };
        let slab = Slab::new(chunk.bytes() as usize, slots).map_err(|e| {
            let size = ByteCount(chunk.bytes());
            Fault::new(FaultCode::Unsupported, Blame::Local, format_args!("cannot map {slots} buffers of {size}: {e}"))
                .hint(hint::Memory::Lower)
        })?;
        let io = ChunkIo::start_bound(engine, depth, &slab, affinity)?;
        Ok(SessionBuffers { slab, io })
    }
}

/// Requests in flight per disk at first, where their number is to be found: 8 fill most disks. Half
/// of the slots are left to lanes, however many are found.
const DEPTH_FIRST: usize = 8;

/// Disks that a sender may keep busy at their full depth. Further ones share the slots of these.
const DEVICES_AT_ONCE: usize = 4;

/// Slots that keep a disk and lanes busy: those being read, and three for each lane (one on its
/// way, two that wait, so that a hiccup of the disk is not felt). A sender that reads further ahead
/// only touches memory that is cold in every cache: a fifth of its CPU time went into clearing
/// pages for that.
pub(crate) fn sender_slots(depth: usize, lanes: u32) -> usize {
    depth + 3 * lanes as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_hold_at_most_half_of_the_memory() {
        assert_eq!(lanes(8, 64), 8);
        assert_eq!(lanes(8, 4), 2);
        assert_eq!(lanes(500, 4096), LANES_MAX);
    }

    #[test]
    fn there_are_no_more_lanes_than_have_a_window_each_where_they_need_one() {
        let window = LaneMemory::Window { bytes_min: 4 << 20 };
        assert_eq!(lanes_with(window, 8, 256 << 20), 8);
        assert_eq!(lanes_with(window, 8, 32 << 20), 4);
        assert_eq!(lanes_with(window, 8, 1 << 20), 1, "one there must be");
        assert_eq!(lanes_with(LaneMemory::Kernel, 8, 1 << 20), 8);
        let memory = 32 << 20;
        assert_eq!((windows_of(window, memory), windows_of(LaneMemory::Kernel, memory)), (memory / 2, 0));
    }

    #[test]
    fn every_buffer_holds_the_same_noise() {
        let chunk = ChunkSize::from_bytes(1 << 20).expect("a chunk");
        let (engine, affinity) = (EngineKind::Void, Affinity::default());
        let means = MemoryPlan { slots: 4, lanes: 1, depth: Some(1), engine, chunk, affinity };
        let machinery = SessionBuffers::start(Role::Sender, means).expect("machinery");
        machinery.fill_with_noise();
        let slots: Vec<_> = std::iter::from_fn(|| machinery.slab.try_claim()).collect();
        assert_eq!(slots.len(), 4);
        assert!(slots.iter().all(|slot| slot[..] == slots[0][..]));
        assert!(slots[0].chunks(8).all(|word| word != [0; 8]));
    }

    #[test]
    fn memory_of_fewer_than_four_chunks_is_a_usage_fault() {
        let code = |bytes| slots(ByteCount(bytes), ChunkSize::DEFAULT).map_err(|f| f.code);
        assert_eq!(code(16 << 20), Ok(4));
        assert_eq!(code((16 << 20) - 1), Err(FaultCode::Usage));
    }
}
