//! Lends slots to a tokio-uring runtime: as plain buffers, or through a table of slots registered
//! with the ring.
//!
//! Lives on one ring's thread. A [`Slot`] goes in with an operation and comes back with its result;
//! while the kernel may touch its bytes nobody else can hold it, even if the operation's future is
//! dropped. A [`SharedSlot`] is only read, by several rings at a time if need be. Knows nothing of
//! the content of files.

use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use tokio_uring::buf::fixed::{FixedBuf, FixedBufRegistry};
use tokio_uring::buf::{BoundedBuf, IoBuf, IoBufMut};
use tokio_uring::fs::File;

use crate::slab::{SharedSlot, Slab, Slot};

/// Reads and writes on one ring, whose buffers are the slots of one slab. Registered slots save the
/// kernel from pinning their pages at each request (half the CPU of a 4 MiB request).
pub struct RingSlots {
    slab: Arc<Slab>,
    table: RefCell<Option<Table>>,
}

struct Table {
    registry: FixedBufRegistry<RegisteredSlot>,
    slots: usize,
}

impl RingSlots {
    /// Nothing registered yet: every request is a plain one.
    pub fn new(slab: &Arc<Slab>) -> RingSlots {
        RingSlots { slab: Arc::clone(slab), table: RefCell::new(None) }
    }

    /// Registers the first `slots` slots with the ring of this thread's runtime, in place of those
    /// registered before. They become resident and are charged to the limit of locked memory.
    ///
    /// # Errors
    /// The error of the kernel, `OutOfMemory` above the limit; nothing is registered then.
    ///
    /// # Panics
    /// Outside of a tokio-uring runtime.
    pub fn register(&self, slots: usize) -> io::Result<()> {
        let slots = slots.min(self.slab.slots()).min(REGISTERED_MAX);
        if let Some(old) = self.table.borrow_mut().take() {
            old.registry.unregister()?;
        }
        if slots == 0 {
            return Ok(());
        }
        let registry = FixedBufRegistry::new(
            (0..slots as u32)
                .map(|index| RegisteredSlot { start: self.slab.slot_start(index), slab: Arc::clone(&self.slab) }),
        );
        registry.register()?;
        *self.table.borrow_mut() = Some(Table { registry, slots });
        Ok(())
    }

    /// How many slots are registered.
    pub fn registered(&self) -> usize {
        self.table.borrow().as_ref().map_or(0, |table| table.slots)
    }

    /// Reads from `offset` of `file` into the bytes `range` of the slot: one request, which may be
    /// short.
    ///
    /// # Panics
    /// If `range` is empty or not within the slot, or outside of a tokio-uring runtime.
    pub async fn read_at(
        &self,
        file: &File,
        slot: Slot,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, Slot) {
        match self.lend(slot) {
            Loan::Fixed(fixed, held) => {
                let (result, fixed) = file.read_fixed_at(fixed.slice(range), offset).await;
                (result, held.back(fixed.into_inner()))
            }
            Loan::Plain(slot) => {
                let (result, lent) = file.read_at(Lent(slot).slice(range), offset).await;
                (result, lent.into_inner().0)
            }
        }
    }

    /// Writes the bytes `range` of the slot to `offset` of `file`: one request, which may be short.
    ///
    /// # Panics
    /// As [`RingSlots::read_at`].
    pub async fn write_at(
        &self,
        file: &File,
        slot: Slot,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, Slot) {
        self.write_from(file, slot, (range, offset)).await
    }

    /// The same from a slot that others read as well. This ring has one request on it at a time;
    /// further ones are plain.
    ///
    /// # Panics
    /// As [`RingSlots::read_at`].
    pub async fn write_shared_at(
        &self,
        file: &File,
        slot: SharedSlot,
        range: Range<usize>,
        offset: u64,
    ) -> (io::Result<usize>, SharedSlot) {
        self.write_from(file, slot, (range, offset)).await
    }

    async fn write_from<S: Lendable>(
        &self,
        file: &File,
        slot: S,
        (range, offset): (Range<usize>, u64),
    ) -> (io::Result<usize>, S) {
        match self.lend(slot) {
            Loan::Fixed(fixed, held) => {
                let (result, fixed) = file.write_fixed_at(fixed.slice(range), offset).await;
                (result, held.back(fixed.into_inner()))
            }
            Loan::Plain(slot) => {
                let (result, lent) = file.write_at(Lent(slot).slice(range), offset).submit().await;
                (result, lent.into_inner().0)
            }
        }
    }

    fn lend<S: Lendable>(&self, slot: S) -> Loan<S> {
        let table = self.table.borrow();
        let (slab, index) = (slot.slab(), slot.index() as usize);
        let fixed = table
            .as_ref()
            .filter(|table| Arc::ptr_eq(slab, &self.slab) && index < table.slots)
            .and_then(|table| table.registry.check_out(index));
        match fixed {
            Some(fixed) => Loan::Fixed(fixed, Held(ManuallyDrop::new(slot))),
            None => Loan::Plain(slot),
        }
    }
}

/// A holder of a slot's bytes.
trait Lendable: Deref<Target = [u8]> + Unpin + 'static {
    fn slab(&self) -> &Arc<Slab>;
    fn index(&self) -> u32;
}

impl Lendable for Slot {
    fn slab(&self) -> &Arc<Slab> {
        Slot::slab(self)
    }
    fn index(&self) -> u32 {
        Slot::index(self)
    }
}

impl Lendable for SharedSlot {
    fn slab(&self) -> &Arc<Slab> {
        SharedSlot::slab(self)
    }
    fn index(&self) -> u32 {
        SharedSlot::index(self)
    }
}

enum Loan<S> {
    Fixed(FixedBuf, Held<S>),
    Plain(S),
}

/// The slot whose bytes are out as a [`FixedBuf`]. Dropped without [`Held::back`] (the operation's
/// future was dropped, the kernel may still write) it never returns the slot: the slot is lost, but
/// no byte has two owners.
struct Held<S>(ManuallyDrop<S>);

impl<S> Held<S> {
    /// The operation is complete: checks the buffer in and gives the slot back.
    fn back(self, fixed: FixedBuf) -> S {
        drop(fixed);
        ManuallyDrop::into_inner(self.0)
    }
}

/// A slot as the buffer of one plain operation, which owns its holder until its completion. A
/// shared one is lent for writing to a file only, which reads it.
struct Lent<S>(S);

// SAFETY: the bytes lie in the slab's mapping, whose address does not change when the holder moves,
// and which the holder keeps mapped; they are all initialised (zeroed by the mapping, or written
// since), and those of a shared slot do not change as long as any clone of it is held.
unsafe impl<S: Lendable> IoBuf for Lent<S> {
    fn stable_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn bytes_init(&self) -> usize {
        self.0.len()
    }
    fn bytes_total(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: as above; the slot is the sole owner of the bytes.
unsafe impl IoBufMut for Lent<Slot> {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
    unsafe fn set_init(&mut self, _pos: usize) {
        // All of it is initialised already.
    }
}

/// A slot's memory as the registry sees it. It gives access to nobody: the registry hands out a
/// [`FixedBuf`] for it only in `lend`, to the owner of the slot, or to writes of a shared slot,
/// which only read it.
struct RegisteredSlot {
    start: NonNull<u8>,
    /// Keeps the memory mapped for as long as it is registered.
    slab: Arc<Slab>,
}

// SAFETY: `start` is the start of `slot_bytes` initialised bytes that stay mapped as long as `slab`
// is held.
unsafe impl IoBuf for RegisteredSlot {
    fn stable_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }
    fn bytes_init(&self) -> usize {
        self.slab.slot_bytes()
    }
    fn bytes_total(&self) -> usize {
        self.slab.slot_bytes()
    }
}

// SAFETY: as above. That the bytes are used by one owner at a time is ensured by `lend`.
unsafe impl IoBufMut for RegisteredSlot {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
    unsafe fn set_init(&mut self, _pos: usize) {
        // All of it is initialised already.
    }
}

/// The most slots that the registry takes (UIO_MAXIOV).
const REGISTERED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Runs `test` on a ring, or says that there is none here.
    fn on_a_ring<F: Future<Output = ()>>(test: F) {
        match tokio_uring::Runtime::new(&tokio_uring::builder()) {
            Ok(runtime) => runtime.block_on(test),
            Err(error) => eprintln!("SKIPPED: no io_uring here: {error}"),
        }
    }

    #[test]
    fn registered_and_plain_slots_carry_the_same_bytes() {
        on_a_ring(async {
            let slab = Slab::new(4096, 4).expect("slab");
            let ring = RingSlots::new(&slab);
            ring.register(2).expect("register");
            assert_eq!(ring.registered(), 2);
            let file = File::from_std(tempfile::tempfile().expect("tempfile"));
            let slots: Vec<Slot> = (0..4).filter_map(|_| slab.claim()).collect();
            for (n, mut slot) in slots.into_iter().enumerate() {
                slot.fill(n as u8 + 1);
                let (wrote, mut slot) = ring.write_at(&file, slot, 8..4096, n as u64 * 4096).await;
                assert_eq!(wrote.expect("write"), 4088);
                slot.fill(0);
                let (read, slot) = ring.read_at(&file, slot, 0..4088, n as u64 * 4096).await;
                assert_eq!(read.expect("read"), 4088);
                assert!(slot[..4088].iter().all(|&b| b == n as u8 + 1));
                assert!(slot[4088..].iter().all(|&b| b == 0));
            }
            assert_eq!(slab.free(), 4);
        });
    }

    #[test]
    fn a_shared_slot_is_written_twice_at_a_time_and_returns_after_the_last() {
        on_a_ring(async {
            let slab = Slab::new(4096, 2).expect("slab");
            let ring = RingSlots::new(&slab);
            ring.register(1).expect("register");
            let file = File::from_std(tempfile::tempfile().expect("tempfile"));
            let mut slot = slab.claim().expect("slot");
            assert_eq!(slot.index(), 0, "it is registered");
            slot.fill(7);
            let shared = slot.share();
            let one = ring.write_shared_at(&file, shared.clone(), 0..4096, 0);
            let other = ring.write_shared_at(&file, shared.clone(), 0..4096, 4096);
            drop(shared);
            let ((one, _), (other, last)) = both(one, other).await;
            assert_eq!((one.expect("write"), other.expect("write")), (4096, 4096));
            assert_eq!(slab.free(), 1);
            drop(last);
            assert_eq!(slab.free(), 2);
            let (read, slot) = ring.read_at(&file, slab.claim().expect("slot"), 0..4096, 4096).await;
            assert_eq!(read.expect("read"), 4096);
            assert!(slot.iter().all(|&b| b == 7));
        });
    }

    /// Waits for two futures that are under way at the same time.
    async fn both<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
        let (mut one, mut other) = (Box::pin(one), Box::pin(other));
        let (mut first, mut second) = (None, None);
        std::future::poll_fn(move |cx| {
            use std::task::Poll;
            if first.is_none()
                && let Poll::Ready(output) = one.as_mut().poll(cx)
            {
                first = Some(output);
            }
            if second.is_none()
                && let Poll::Ready(output) = other.as_mut().poll(cx)
            {
                second = Some(output);
            }
            match (first.take(), second.take()) {
                (Some(one), Some(other)) => Poll::Ready((one, other)),
                (one, other) => {
                    (first, second) = (one, other);
                    Poll::Pending
                }
            }
        })
        .await
    }

    #[test]
    fn a_table_can_grow_between_requests() {
        on_a_ring(async {
            let slab = Slab::new(4096, 8).expect("slab");
            let ring = RingSlots::new(&slab);
            let mut file = tempfile::tempfile().expect("tempfile");
            file.write_all(&[5; 4096]).expect("content");
            let file = File::from_std(file);
            for slots in [1, 4, 100, 0] {
                ring.register(slots).expect("register");
                assert_eq!(ring.registered(), slots.min(8));
                let slot = slab.claim().expect("slot");
                let (read, slot) = ring.read_at(&file, slot, 0..4096, 0).await;
                assert_eq!(read.expect("read"), 4096);
                assert!(slot.iter().all(|&b| b == 5));
            }
        });
    }

    #[test]
    fn a_dropped_request_never_frees_its_slot_early() {
        on_a_ring(async {
            let slab = Slab::new(4096, 2).expect("slab");
            let ring = RingSlots::new(&slab);
            ring.register(1).expect("register");
            let (reader, _writer) = io::pipe().expect("pipe");
            let file = File::from_std(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
            let slot = slab.claim().expect("slot");
            let mut read = Box::pin(ring.read_at(&file, slot, 0..4096, u64::MAX));
            let pending = std::future::poll_fn(|cx| std::task::Poll::Ready(read.as_mut().poll(cx).is_pending())).await;
            assert!(pending, "nothing was written into the pipe");
            drop(read);
            assert_eq!(slab.free(), 1, "the kernel still owns the other");
        });
    }
}
