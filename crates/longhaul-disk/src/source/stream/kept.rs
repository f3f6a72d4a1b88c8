//! The bytes of a stream that were read and may be needed again: blocks, from the one that is being
//! filled back to the oldest that is not durable at the receiver.
//!
//! In: bytes in order, and ranges that are durable. Out: bytes at any offset that is kept, as often
//! as they are asked for. The number of blocks is bounded: a reader waits until one is let go.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::Fault;

/// See the module.
pub(super) struct KeptBlocks {
    block_bytes: usize,
    blocks_max: usize,
    state: Mutex<KeptState>,
    changed: Condvar,
    /// Called after each change that a session is to hear of.
    watch: Mutex<Option<Watch>>,
}

/// Called when a stream has come further.
pub(super) type Watch = Box<dyn Fn() + Send>;

#[derive(Default)]
struct KeptState {
    blocks: BTreeMap<u64, KeptBlock>,
    /// Buffers that are used again.
    free: Vec<Vec<u8>>,
    /// Bytes that the input gave.
    read: u64,
    /// Bytes of them that can be read here, but for those that were let go.
    filled: u64,
    /// How the input ended. `None` before that.
    end: Option<Result<(), Fault>>,
    /// Whether nobody reads any more.
    is_closed: bool,
}

/// A block whose bytes are there.
struct KeptBlock {
    bytes: Vec<u8>,
    /// A bit for each 64th of the block that is durable.
    durable: u64,
}

/// How far a stream is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSoFar {
    /// Bytes that can be sent.
    pub bytes: u64,
    /// How it ended. `None` before its end.
    pub end: Option<Result<(), Fault>>,
}

impl KeptBlocks {
    /// No bytes yet; at most `blocks_max` blocks of `block_bytes` each will be kept.
    pub(super) fn new(block_bytes: usize, blocks_max: usize) -> KeptBlocks {
        let (state, changed, watch) = (Mutex::default(), Condvar::new(), Mutex::default());
        KeptBlocks { block_bytes, blocks_max, state, changed, watch }
    }

    /// A buffer for the next block, as soon as there is room for one. `None` if nobody reads any
    /// more.
    pub(super) fn next_buffer(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        while state.blocks.len() >= self.blocks_max && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return None;
        }
        Some(state.free.pop().unwrap_or_else(|| vec![0; self.block_bytes]))
    }

    /// Notes that the input gave so many more bytes.
    pub(super) fn read(&self, bytes: usize) {
        self.lock().read += bytes as u64;
        self.changed.notify_all();
    }

    /// Takes a block whose first `len` bytes were filled: all of them, but at the end of the
    /// stream.
    pub(super) fn filled(&self, mut bytes: Vec<u8>, len: usize) {
        bytes.truncate(len);
        let mut state = self.lock();
        let at = state.filled / self.block_bytes as u64;
        state.filled += len as u64;
        state.blocks.insert(at, KeptBlock { bytes, durable: 0 });
        drop(state);
        self.tell();
    }

    /// The input has ended.
    pub(super) fn end(&self, how: Result<(), Fault>) {
        self.lock().end = Some(how);
        self.tell();
    }

    /// Nobody reads any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Calls `watch` after each change from now on.
    pub(super) fn watch(&self, watch: Watch) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
    }

    /// How far the stream is.
    pub(super) fn so_far(&self) -> StreamSoFar {
        let state = self.lock();
        StreamSoFar { bytes: state.filled, end: state.end.clone() }
    }

    /// Waits until more than a block was read, or the input has ended. Gives how far the stream is.
    pub(super) fn wait_for_more_than_a_block(&self) -> StreamSoFar {
        self.wait_until(|state, block| state.read > block)
    }

    /// Waits until the input has ended.
    pub(super) fn wait_for_end(&self) -> StreamSoFar {
        self.wait_until(|_, _| false)
    }

    fn wait_until(&self, is_enough: impl Fn(&KeptState, u64) -> bool) -> StreamSoFar {
        let mut state = self.lock();
        while state.end.is_none() && !state.is_closed && !is_enough(&state, self.block_bytes as u64) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        StreamSoFar { bytes: state.filled, end: state.end.clone() }
    }

    /// Copies bytes at `offset` into `buf`. Gives how many: 0 behind the last.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if they were let go.
    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.lock();
        if offset >= state.filled {
            return Ok(0);
        }
        let (block, within) = (offset / self.block_bytes as u64, (offset % self.block_bytes as u64) as usize);
        let gone = || io::Error::new(io::ErrorKind::NotFound, "it was durable at the receiver, and is not kept");
        let bytes = state.blocks.get(&block).and_then(|kept| kept.bytes.get(within..)).ok_or_else(gone)?;
        let len = bytes.len().min(buf.len());
        buf[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// Lets go of a range that is durable. A block goes when all of it is.
    pub(super) fn release(&self, start: u64, len: u64) {
        let block = self.block_bytes as u64;
        let part = (block / PARTS).max(1);
        let mut state = self.lock();
        let (mut at, end) = (start, start.saturating_add(len).min(state.filled));
        while at < end {
            let (number, next) = (at / block, (at / block + 1) * block);
            let bits = part_bits((at % block).div_ceil(part), (end.min(next) - number * block) / part);
            let Some(kept) = state.blocks.get_mut(&number) else {
                at = next;
                continue;
            };
            kept.durable |= bits;
            if kept.durable == u64::MAX
                && kept.bytes.len() as u64 == block
                && let Some(kept) = state.blocks.remove(&number)
            {
                state.free.push(kept.bytes);
            }
            at = next;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn tell(&self) {
        self.changed.notify_all();
        if let Some(watch) = &*self.watch.lock().unwrap_or_else(PoisonError::into_inner) {
            watch();
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bit for each part from `from` up to `to`, of 64.
fn part_bits(from: u64, to: u64) -> u64 {
    let below = |part: u64| if part >= PARTS { u64::MAX } else { (1 << part) - 1 };
    below(to) & !below(from)
}

/// Parts of a block whose durability is noted: the smallest chunk of a session is no smaller than
/// the 64th part of the largest.
const PARTS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(kept: &KeptBlocks, byte: u8, len: usize) {
        let mut buffer = kept.next_buffer().expect("room");
        buffer[..len].fill(byte);
        kept.read(len);
        kept.filled(buffer, len);
    }

    #[test]
    fn what_is_kept_is_read_again_until_all_of_its_block_is_durable() {
        let kept = KeptBlocks::new(256, 2);
        fill(&kept, 1, 256);
        fill(&kept, 2, 256);
        let mut buf = [0; 300];
        assert_eq!(kept.read_at(&mut buf, 100).ok(), Some(156));
        assert_eq!(kept.read_at(&mut buf, 512).ok(), Some(0));
        kept.release(0, 128);
        assert_eq!(kept.read_at(&mut buf, 0).ok(), Some(256), "half of it is not durable");
        kept.release(128, 128);
        assert!(kept.read_at(&mut buf, 0).is_err());
        assert_eq!((kept.read_at(&mut buf, 256).ok(), buf[0]), (Some(256), 2));
        fill(&kept, 3, 10);
        assert_eq!((kept.read_at(&mut buf, 512).ok(), buf[9]), (Some(10), 3));
        kept.release(0, u64::MAX);
        assert_eq!(kept.read_at(&mut buf, 512).ok(), Some(10), "the last block is kept to the end");
    }

    #[test]
    fn no_more_blocks_are_filled_than_there_is_room_for() {
        let kept = std::sync::Arc::new(KeptBlocks::new(64, 1));
        fill(&kept, 1, 64);
        let waiting = kept.clone();
        let thread = std::thread::spawn(move || waiting.next_buffer().is_some());
        kept.release(0, 64);
        assert!(thread.join().expect("it ends"));
        fill(&kept, 1, 64);
        let waiting = kept.clone();
        let thread = std::thread::spawn(move || waiting.next_buffer().is_some());
        kept.close();
        assert!(!thread.join().expect("it ends"));
    }

    #[test]
    fn a_short_stream_is_known_to_be_one_and_a_long_one_before_its_end() {
        let kept = KeptBlocks::new(64, 2);
        fill(&kept, 1, 64);
        kept.read(1);
        assert_eq!(kept.wait_for_more_than_a_block(), StreamSoFar { bytes: 64, end: None });
        let kept = KeptBlocks::new(64, 2);
        fill(&kept, 1, 64);
        kept.end(Ok(()));
        assert_eq!(kept.wait_for_more_than_a_block(), StreamSoFar { bytes: 64, end: Some(Ok(())) });
    }
}
