//! Owns the memory that packets wait in: blocks filled from the front, each free again when its
//! last packet has gone. Takes the room a packet needs, gives spans. Must not know what a packet
//! is.

use crate::packet::FRAME_BYTES_MAX;

/// The place where a frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    block: u32,
    start: u32,
    len: u32,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    used: usize,
    /// The number of holds on its spans.
    spans_held: u64,
}

/// Blocks, of which some are free. No memory is given back to the system: memory that was needed
/// once is needed again.
#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<Block>,
    /// The block freed last is taken first: it is the one in the cache.
    free: Vec<u32>,
    current: Option<u32>,
    blocks_max: usize,
}

impl Store {
    /// A store for frames of `bytes` bytes in total at a time.
    pub(crate) fn with_room_for(bytes: u64) -> Store {
        let mut store = Store { blocks: Vec::new(), free: Vec::new(), current: None, blocks_max: 0 };
        store.grow_to(bytes);
        store
    }

    /// Holds at least `bytes` from now on; memory is taken when it is needed.
    pub(crate) fn grow_to(&mut self, bytes: u64) {
        // Twice, as small packets are rounded up and blocks are kept by the last packet in them.
        let blocks = usize::try_from(bytes / (BLOCK_BYTES as u64 / 2)).unwrap_or(usize::MAX);
        self.blocks_max = self.blocks_max.max(blocks.saturating_add(SPARE_BLOCKS));
    }

    /// Room for the longest frame. `None` if all blocks are held.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        let fits = |block: &Block| block.bytes.len() - block.used >= FRAME_BYTES_MAX;
        if !self.current.is_some_and(|at| fits(&self.blocks[at as usize])) {
            self.current = self.next_block();
        }
        let block = &mut self.blocks[self.current? as usize];
        Some(&mut block.bytes[block.used..])
    }

    fn next_block(&mut self) -> Option<u32> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        if self.blocks.len() >= self.blocks_max {
            return None;
        }
        self.blocks.push(Block { bytes: vec![0; BLOCK_BYTES].into_boxed_slice(), used: 0, spans_held: 0 });
        u32::try_from(self.blocks.len() - 1).ok()
    }

    /// The span of a frame of `len` bytes that was read into the room; it is not kept yet.
    pub(crate) fn span(&self, len: usize) -> Option<Span> {
        let block = self.current?;
        let start = u32::try_from(self.blocks[block as usize].used).ok()?;
        Some(Span { block, start, len: u32::try_from(len).ok()? })
    }

    /// Keeps the span until it has been released `times` times.
    pub(crate) fn keep(&mut self, span: Span, times: u32) {
        if times > 0 {
            let block = &mut self.blocks[span.block as usize];
            block.used = ((span.start + span.len) as usize).next_multiple_of(ALIGNMENT).min(block.bytes.len());
            block.spans_held += u64::from(times);
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        &self.blocks[span.block as usize].bytes[span.start as usize..(span.start + span.len) as usize]
    }

    pub(crate) fn release(&mut self, span: Span) {
        let block = &mut self.blocks[span.block as usize];
        assert!(block.spans_held > 0, "a span was released more often than it was kept");
        block.spans_held -= 1;
        if block.spans_held == 0 {
            block.used = 0;
            if self.current != Some(span.block) {
                self.free.push(span.block);
            }
        }
    }
}

/// The size of a block: sixteen of the longest frames, of which at most one is wasted at the end.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks beyond the held ones: the block that is being filled, and those kept by a packet that was
/// held back.
const SPARE_BLOCKS: usize = 8;
/// A cache line: the kernel copies to and from lines of its own.
const ALIGNMENT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn put(store: &mut Store, byte: u8, len: usize, times: u32) -> Option<Span> {
        store.room()?[..len].fill(byte);
        let span = store.span(len)?;
        store.keep(span, times);
        Some(span)
    }

    #[test]
    fn what_is_kept_stays_as_it_was_until_it_is_released() {
        let mut store = Store::with_room_for(4 << 20);
        let mut held = VecDeque::new();
        for round in 0..10_000usize {
            let (byte, len) = (round as u8, 1 + round * 7919 % 60_000);
            held.push_back((put(&mut store, byte, len, 1).expect("a few are held"), byte));
            if held.len() > 40 {
                // Not in order: a packet that was held back is released late.
                let (span, byte) = held.remove(round % 3).unwrap();
                assert!(store.bytes(span).iter().all(|found| *found == byte), "round {round}");
                store.release(span);
            }
        }
        assert!(store.blocks.len() < 12, "{} blocks for 2.4 MB", store.blocks.len());
    }

    #[test]
    fn a_full_store_has_no_room_until_something_is_released() {
        let mut store = Store::with_room_for(0);
        let spans: Vec<_> = std::iter::from_fn(|| put(&mut store, 1, 60_000, 1)).collect();
        assert!(spans.len() >= SPARE_BLOCKS * 15, "{}", spans.len());
        let (last, others): (Vec<_>, Vec<_>) =
            spans.into_iter().filter(|span| span.block == 3).partition(|span| span.start == 0);
        for span in others {
            store.release(span);
            assert!(store.room().is_none(), "the block is held by its first span");
        }
        store.release(last[0]);
        assert!(store.room().is_some());
    }

    #[test]
    fn a_span_kept_twice_is_free_after_the_second_release() {
        let mut store = Store::with_room_for(0);
        let twice = put(&mut store, 7, 100, 2).unwrap();
        store.release(twice);
        put(&mut store, 9, 100, 1).unwrap();
        assert_eq!(store.bytes(twice), [7; 100]);
    }

    #[test]
    fn a_block_that_is_being_filled_is_not_given_out_again() {
        let mut store = Store::with_room_for(0);
        let first = put(&mut store, 1, 100, 1).unwrap();
        store.release(first);
        let spans: Vec<_> = (0..100u8).map(|byte| put(&mut store, byte, 60_000, 1).unwrap()).collect();
        for (span, byte) in spans.iter().zip(0..100u8) {
            assert!(store.bytes(*span).iter().all(|found| *found == byte), "{byte}");
        }
    }

    #[test]
    fn one_packet_at_a_time_always_uses_the_same_memory() {
        let mut store = Store::with_room_for(1 << 30);
        for _ in 0..1000 {
            let span = put(&mut store, 1, 60_000, 1).unwrap();
            assert_eq!(span.start, 0);
            store.release(span);
        }
        assert_eq!(store.blocks.len(), 1);
    }
}
