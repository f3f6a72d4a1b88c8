//! Memory of one session side: how many chunk-sized slots, how many lanes they carry.

use std::sync::Arc;

use longhaul_core::limits::LANES_MAX;
use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode};
use longhaul_sys::Slab;

/// Buffers of a session side when nobody says otherwise.
pub const MEMORY_DEFAULT: ByteCount = ByteCount(256 << 20);
/// Lanes when nobody says otherwise: the number that filled a loopback in the prototype (research: 1 to 4 within noise).
pub const LANES_DEFAULT: u32 = 4;
/// Fewer slots than this cannot overlap reading, sending, receiving and writing.
const SLOTS_MIN: u64 = 4;

/// The slots that `memory` holds.
///
/// # Errors
/// [`FaultCode::Usage`] when they are too few.
pub(crate) fn slots(memory: ByteCount, chunk: ChunkSize) -> Result<usize, Fault> {
    let slots = memory.get() / chunk.bytes();
    if slots < SLOTS_MIN {
        return Err(Fault::new(
            FaultCode::Usage,
            Blame::Local,
            format_args!("--memory {memory} holds fewer than {SLOTS_MIN} chunks of {}", ByteCount(chunk.bytes())),
        )
        .hint("raise --memory or lower --chunk-size"));
    }
    Ok(usize::try_from(slots).unwrap_or(usize::MAX))
}

/// The lanes that `slots` carry: they may hold half of the memory.
pub(crate) fn lanes(wanted: u32, slots: usize) -> u32 {
    wanted.min(LANES_MAX).min(u32::try_from(slots / 2).unwrap_or(u32::MAX)).max(1)
}

/// Requests in flight per disk when nobody says otherwise: 8 fill the disks measured, and leave half of the slots to lanes.
pub(crate) fn depth(slots: usize) -> usize {
    (slots / 2).clamp(1, 8)
}

/// The buffers themselves; pages that are never touched cost nothing.
///
/// # Errors
/// A [`Fault`] when the system does not give the address space.
pub(crate) fn slab(slots: usize, chunk: ChunkSize) -> Result<Arc<Slab>, Fault> {
    Slab::new(chunk.bytes() as usize, slots).map_err(|e| {
        Fault::new(
            FaultCode::Unsupported,
            Blame::Local,
            format_args!("cannot map {slots} buffers of {}: {e}", ByteCount(chunk.bytes())),
        )
        .hint("lower --memory")
    })
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
    fn memory_of_fewer_than_four_chunks_is_a_usage_fault() {
        let code = |bytes| slots(ByteCount(bytes), ChunkSize::DEFAULT).map_err(|f| f.code);
        assert_eq!(code(16 << 20), Ok(4));
        assert_eq!(code((16 << 20) - 1), Err(FaultCode::Usage));
    }
}
