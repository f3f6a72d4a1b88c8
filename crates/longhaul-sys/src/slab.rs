//! The payload memory of one side of a session: one mapping, cut into equal aligned slots with one
//! owner each.
//!
//! The holder of a [`Slot`] owns its bytes; dropping it anywhere gives them back. Claiming waits,
//! so memory is bounded by construction. Knows nothing of the meaning of the bytes.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Asks the giver of memory for this many slots more. Gives whether it granted them.
pub type Grow = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// One mapping cut into equal slots. Untouched slots take no memory until a ring registers them.
pub struct Slab {
    /// Start of the first slot, aligned to [`REGION_ALIGN`].
    base: NonNull<u8>,
    /// The mapping for `munmap`, which is longer than the slots by the alignment.
    mapping: (NonNull<u8>, usize),
    slot_bytes: usize,
    slots: usize,
    home: Mutex<Home>,
    returned: Condvar,
    /// The giver of memory. Unset if all memory is there from the start.
    grow: OnceLock<Grow>,
}

struct Home {
    /// Indices of free slots. The last one returned leaves first, so that few slots are ever
    /// touched when few are needed.
    free: Vec<u32>,
    /// The number of slots that may be claimed at a time.
    limit: usize,
    /// Slots for which memory was given.
    given: usize,
    /// Whether the giver had less for the last claim that needed more.
    is_tight: bool,
    closed: bool,
}

impl Home {
    fn take(&mut self, slots: usize) -> Option<u32> {
        if slots - self.free.len() < self.limit.min(self.given) { self.free.pop() } else { None }
    }

    /// Whether more memory would allow another claim.
    fn wants_memory(&self, slots: usize) -> bool {
        self.given < self.limit.min(slots) && slots - self.free.len() >= self.given
    }
}

/// Sole owner of the bytes of one slot; dropping it returns it to its slab.
pub struct Slot {
    slab: Arc<Slab>,
    index: u32,
}

/// A slot whose bytes do not change any more, for several readers. It returns to its slab when the
/// last clone is dropped.
#[derive(Clone, Debug)]
pub struct SharedSlot(Arc<Slot>);

// SAFETY: `base` and `mapping` point to memory that the slab owns until it is dropped, and that it
// never reads or writes itself; all other fields are `Send` and `Sync` on their own. Access to the
// bytes goes through `Slot`, of which there is one per index.
unsafe impl Send for Slab {}
// SAFETY: as above; `&Slab` gives no access to the bytes.
unsafe impl Sync for Slab {}

impl Slab {
    /// Maps `slots` slots of `slot_bytes` each, zeroed, starting at a 2 MiB boundary, huge pages
    /// welcome.
    ///
    /// # Errors
    /// `InvalidInput` unless `slot_bytes` is a positive multiple of 4096 and there are 1 to 65,536
    /// slots; else the error of the system (out of memory or address space).
    pub fn new(slot_bytes: usize, slots: usize) -> io::Result<Arc<Slab>> {
        let fits = slot_bytes > 0 && slot_bytes.is_multiple_of(SLOT_ALIGN) && (1..=SLOTS_MAX).contains(&slots);
        let total = slot_bytes.checked_mul(slots).and_then(|bytes| bytes.checked_add(REGION_ALIGN));
        let Some(mapped_bytes) = total.filter(|_| fits) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "slots must be multiples of 4096 bytes, 1 to 65536",
            ));
        };
        let start = map(mapped_bytes)?;
        let skip = start.as_ptr().align_offset(REGION_ALIGN);
        // SAFETY: `skip` is under REGION_ALIGN and the mapping is longer than the slots by
        // REGION_ALIGN.
        let base = unsafe { start.add(skip) };
        advise_huge(base, slot_bytes * slots);
        let free = (0..slots as u32).rev().collect();
        Ok(Arc::new(Slab {
            base,
            mapping: (start, mapped_bytes),
            slot_bytes,
            slots,
            home: Mutex::new(Home { free, limit: slots, given: slots, is_tight: false, closed: false }),
            returned: Condvar::new(),
            grow: OnceLock::new(),
        }))
    }

    /// Limits the memory to the first `given` slots (at least 1) from now on. For further slots
    /// that must be claimed at a time, `grow` is asked, for twice as many first, as rings register
    /// them so. If it grants none, a claim waits for a free slot. To be called once, before any
    /// slot is claimed.
    pub fn grow_from(&self, given: usize, grow: Grow) {
        if self.grow.set(grow).is_ok() {
            self.lock().given = given.clamp(1, self.slots);
        }
    }

    /// The next free slot, which it waits for. `None` once the slab is closed.
    pub fn claim(self: &Arc<Self>) -> Option<Slot> {
        let mut home = self.lock();
        loop {
            if home.closed {
                return None;
            }
            if let Some(index) = self.take(&mut home) {
                return Some(Slot { slab: Arc::clone(self), index });
            }
            home = self.returned.wait(home).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A free slot. `None` if there is none now, or the slab is closed.
    pub fn try_claim(self: &Arc<Self>) -> Option<Slot> {
        let mut home = self.lock();
        if home.closed {
            return None;
        }
        self.take(&mut home).map(|index| Slot { slab: Arc::clone(self), index })
    }

    fn take(&self, home: &mut Home) -> Option<u32> {
        if home.wants_memory(self.slots)
            && let Some(grow) = self.grow.get()
        {
            let more = home.given.min(self.slots - home.given);
            home.is_tight = !grow(more);
            home.given += if home.is_tight { usize::from(more > 1 && grow(1)) } else { more };
            // Others wait as well, and there may be more than one free slot now.
            self.returned.notify_all();
        }
        home.take(self.slots)
    }

    /// Limits the slots that are claimed at a time from now on, to at least 1. Claimed slots beyond
    /// that stay valid. At first all slots may be claimed.
    pub fn set_limit(&self, limit: usize) {
        self.lock().limit = limit.max(1);
        self.returned.notify_all();
    }

    /// Lets nobody claim any more and wakes all that wait. Claimed slots stay valid.
    pub fn close(&self) {
        self.lock().closed = true;
        self.returned.notify_all();
    }

    /// Bytes of each slot.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Number of slots, free or not.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of the slots that may be out at a time as yet.
    pub fn given_bytes(&self) -> u64 {
        self.given() as u64 * self.slot_bytes as u64
    }

    /// Number of slots that may be out at a time as yet.
    pub fn given(&self) -> usize {
        let home = self.lock();
        home.given.min(home.limit)
    }

    /// Number of slots that may be out at a time if the giver of memory does as the last time:
    /// those that were given, if it had less than was asked for, and else all.
    pub fn within_reach(&self) -> usize {
        let home = self.lock();
        if home.is_tight { home.given.min(home.limit) } else { home.limit.min(self.slots) }
    }

    /// Number of free slots.
    pub fn free(&self) -> usize {
        self.lock().free.len()
    }

    /// Start of slot `index`.
    pub(crate) fn slot_start(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.slots, "slot {index} of {}", self.slots);
        // SAFETY: the index is in range, so the offset stays within the mapping.
        unsafe { self.base.add(index as usize * self.slot_bytes) }
    }

    fn lock(&self) -> MutexGuard<'_, Home> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh anonymous private mapping at an address of the kernel's choice touches no
    // existing memory.
    let start =
        unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
    NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// Asks for huge pages: fewer page table entries to walk when the kernel pins a slot. Not having
/// them is no failure.
fn advise_huge(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the range lies within a mapping that we own; this advice changes no content.
    let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
}

impl Drop for Slab {
    fn drop(&mut self) {
        let (start, bytes) = self.mapping;
        // SAFETY: mapped by `map` with this length, and unmapped only here. Each slot and each
        // registration with a ring holds an `Arc` of the slab, so none is left.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }
}

impl Slot {
    /// The slot's number in its slab.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The slab it belongs to.
    pub fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }
}

impl Slot {
    /// Gives the slot to several readers. Nobody can write to it from now on.
    pub fn share(self) -> SharedSlot {
        SharedSlot(Arc::new(self))
    }
}

impl SharedSlot {
    /// The slot's number in its slab.
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// The slab it belongs to.
    pub fn slab(&self) -> &Arc<Slab> {
        &self.0.slab
    }
}

impl Deref for SharedSlot {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Slot {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and zeroed or written since; this slot is its only owner,
        // borrowed shared here.
        unsafe { slice::from_raw_parts(self.slab.slot_start(self.index).as_ptr(), self.slab.slot_bytes) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed alone here.
        unsafe { slice::from_raw_parts_mut(self.slab.slot_start(self.index).as_ptr(), self.slab.slot_bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slab.lock().free.push(self.index);
        self.slab.returned.notify_one();
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("slots", &self.slots).field("slot_bytes", &self.slot_bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("index", &self.index).finish_non_exhaustive()
    }
}

/// The alignment of every slot's start and length: the largest memory alignment that O_DIRECT asks
/// for in practice.
const SLOT_ALIGN: usize = 4096;
/// The alignment of the region: a huge page.
const REGION_ALIGN: usize = 2 << 20;
/// The most slots of a slab: far beyond any session, and small enough for small indices.
const SLOTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn slots_are_aligned_apart_and_zeroed() {
        let slab = Slab::new(8192, 3).expect("slab");
        let mut slots: Vec<Slot> = std::iter::from_fn(|| slab.try_claim()).collect();
        assert_eq!(slots.len(), 3);
        for (n, slot) in slots.iter_mut().enumerate() {
            assert_eq!(slot.as_ptr().align_offset(4096), 0);
            assert_eq!(slot.len(), 8192);
            assert!(slot.iter().all(|&b| b == 0));
            slot.fill(n as u8 + 1);
        }
        for (n, slot) in slots.iter().enumerate() {
            assert!(slot.iter().all(|&b| b == n as u8 + 1));
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for (bytes, slots) in [(0, 1), (4095, 1), (4096, 0), (4096, SLOTS_MAX + 1), (usize::MAX & !4095, 2)] {
            assert!(Slab::new(bytes, slots).is_err(), "{bytes} x {slots}");
        }
    }

    #[test]
    fn a_claim_waits_for_a_return() {
        let slab = Slab::new(4096, 1).expect("slab");
        let held = slab.claim().expect("first");
        let (tx, rx) = mpsc::channel();
        let waiter = {
            let slab = Arc::clone(&slab);
            thread::spawn(move || tx.send(slab.claim().map(|slot| slot.index())))
        };
        assert!(rx.try_recv().is_err());
        drop(held);
        assert_eq!(rx.recv(), Ok(Some(0)));
        waiter.join().expect("waiter").expect("sent");
        assert_eq!(slab.free(), 1);
    }

    #[test]
    fn memory_is_asked_for_when_slots_must_be_out_and_not_before() {
        let slab = Slab::new(4096, 12).expect("slab");
        let (tx, asked) = mpsc::channel();
        let left = Mutex::new(5);
        slab.grow_from(
            2,
            Box::new(move |more| {
                tx.send(more).expect("somebody counts");
                let mut left = left.lock().expect("no panic");
                let given = more <= *left;
                *left -= if given { more } else { 0 };
                given
            }),
        );
        let mut out: Vec<Slot> = (0..2).map_while(|_| slab.try_claim()).collect();
        assert_eq!((out.len(), asked.try_iter().count()), (2, 0));
        out.extend((0..2).map_while(|_| slab.try_claim()));
        assert_eq!((out.len(), asked.try_iter().collect::<Vec<_>>()), (4, vec![2]));
        out.extend(slab.try_claim());
        assert_eq!((out.len(), asked.try_iter().collect::<Vec<_>>()), (5, vec![4, 1]));
        out.extend((0..9).map_while(|_| slab.try_claim()));
        assert_eq!(out.len(), 7, "no more was given");
        asked.try_iter().for_each(drop);
        out.clear();
        out.extend((0..7).map_while(|_| slab.try_claim()));
        assert_eq!((out.len(), asked.try_iter().count()), (7, 0), "what was given stays");
        slab.set_limit(3);
        assert!(slab.try_claim().is_none() && asked.try_iter().count() == 0, "it is not memory that is short");
    }

    #[test]
    fn all_slots_are_within_reach_until_less_memory_is_given_than_was_asked_for() {
        let slab = Slab::new(4096, 16).unwrap();
        slab.grow_from(2, Box::new(|more| more < 4));
        let mut out: Vec<Slot> = (0..4).map_while(|_| slab.try_claim()).collect();
        assert_eq!((slab.given(), slab.within_reach()), (4, 16));
        out.extend(slab.try_claim());
        assert_eq!((slab.given(), slab.within_reach()), (5, 5), "one more was given, and not four");
        slab.set_limit(3);
        assert_eq!((slab.given(), slab.within_reach()), (3, 3));
    }

    #[test]
    fn closing_wakes_claimants_and_leaves_slots_valid() {
        let slab = Slab::new(4096, 1).expect("slab");
        let mut held = slab.claim().expect("first");
        let waiter = {
            let slab = Arc::clone(&slab);
            thread::spawn(move || slab.claim().is_none())
        };
        slab.close();
        assert!(waiter.join().expect("waiter"));
        held.fill(7);
        assert_eq!(held[4095], 7);
        drop(held);
        assert!(slab.try_claim().is_none());
    }

    #[test]
    fn a_slot_outlives_the_last_handle_of_its_slab() {
        let mut slot = Slab::new(4096, 2).expect("slab").claim().expect("slot");
        slot.fill(9);
        assert_eq!(slot[0], 9);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a file of the kernel's, beneath no root")]
    fn untouched_slots_are_not_resident() {
        let slab = Slab::new(4 << 20, 512).expect("2 GiB of address space");
        let mut slot = slab.claim().expect("slot");
        slot[0] = 1;
        let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
        let resident_pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("resident");
        assert!(resident_pages * 4096 < 256 << 20, "{resident_pages} pages");
    }
}
