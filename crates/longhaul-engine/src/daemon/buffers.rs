//! Owns the memory of one session out of the daemon's: four chunks at first, more as its lanes
//! carry data.
//!
//! In: the most that a session may come to need. Out: a claim that grows while the session runs and
//! ends with it, or a refusal. A session that gets no more goes on with the memory it has: its
//! lanes wait for their own buffers, never for another session. It knows no messages and no lanes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use longhaul_core::limits::MEMORY_CHUNKS_MIN;
use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, hint};
use longhaul_net::PublicKey;
use longhaul_sys::Slab;

use super::root_places::RootPlace;
use super::shares::{ClientShares, Full, Share};
use crate::budget::{self, MEMORY_DEFAULT};
use crate::session::overhead;

/// The memory that a session may come to need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The size of its buffers.
    pub(super) chunk: ChunkSize,
    /// Bytes of all of its buffers.
    pub(super) memory: ByteCount,
    /// Further bytes that it has from its start.
    pub(super) reserve: u64,
}

/// The memory of one session. Dropping it gives everything back.
pub(super) struct Buffers {
    share: Arc<Mutex<Claimed>>,
    chunk: u64,
}

/// The bytes of a session: out of its client's share of the daemon's, and out of those of each root
/// that it is on.
struct Claimed {
    share: Share,
    roots: Vec<RootPlace>,
}

impl Claimed {
    /// Claims more of all of them, or of none. Returns whether it has them.
    fn grow(&mut self, bytes: u64) -> bool {
        let has = self.roots.iter_mut().position(|root| !root.grow(bytes)).unwrap_or(self.roots.len());
        let fits = has == self.roots.len() && self.share.grow(bytes).is_ok();
        if !fits {
            self.roots[..has].iter_mut().for_each(|root| root.shrink(bytes));
        }
        fits
    }

    /// Gives some of them back.
    fn shrink(&mut self, bytes: u64) {
        self.roots.iter_mut().for_each(|root| root.shrink(bytes));
        self.share.shrink(bytes);
    }
}

/// Bytes that are given back to a session's claim when this is dropped, if the session still runs.
struct Lent {
    share: Weak<Mutex<Claimed>>,
    bytes: u64,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(share) = self.share.upgrade() {
            lock(&share).shrink(self.bytes);
        }
    }
}

/// Bytes of all buffers of one session: the default, or four of its chunks if those are more, but
/// no more than the daemon has.
pub(super) fn session_memory(all: ByteCount, chunk: ChunkSize) -> ByteCount {
    MEMORY_DEFAULT.max(budget::memory_for(chunk)).min(all)
}

impl Need {
    /// The need of a session with chunks of this size, at a daemon with `all` bytes for all
    /// sessions.
    ///
    /// # Errors
    /// [`FaultCode::Unsupported`] if the daemon can never hold four of its chunks.
    pub(super) fn new(all: ByteCount, chunk: ChunkSize) -> Result<Need, Fault> {
        let least = budget::memory_for(chunk);
        if least > all {
            let size = ByteCount(chunk.bytes());
            let why =
                format_args!("chunks of {size} need {least} of memory, and this daemon has {all} for all sessions");
            return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Memory::SmallerChunksOrAsk));
        }
        Ok(Need { chunk, memory: session_memory(all, chunk), reserve: 0 })
    }

    /// Bytes with which it begins.
    pub(super) fn first(&self) -> u64 {
        MEMORY_CHUNKS_MIN * self.chunk.bytes() + self.reserve
    }
}

impl Buffers {
    /// Claims the memory with which a session begins. The `roots` that it is on have taken it.
    ///
    /// # Errors
    /// The limit that stands in the way.
    pub(super) fn claim(
        memory: &ClientShares,
        client: PublicKey,
        need: Need,
        roots: &mut Vec<RootPlace>,
    ) -> Result<Buffers, Full> {
        let chunk = need.chunk.bytes();
        let share = memory.claim(client, need.first())?;
        let roots = std::mem::take(roots);
        Ok(Buffers { share: Arc::new(Mutex::new(Claimed { share, roots })), chunk })
    }

    /// Adds another claim of the session's client to this one.
    pub(super) fn absorb(&self, share: Share) {
        lock(&self.share).share.absorb(share);
    }

    /// Takes this many of its bytes out of the session's claim: they may outlive it.
    pub(super) fn split(&self, bytes: u64) -> Share {
        lock(&self.share).share.split(bytes)
    }

    /// Has `slab` use the claimed bytes, and claim more for each further buffer that must be there
    /// at the same time.
    pub(super) fn feed(&self, slab: &Slab) {
        let (share, chunk) = (Arc::downgrade(&self.share), self.chunk);
        // The claim ends with the session, even where a buffer stays behind in the kernel for a
        // moment.
        let grow = move |slots: usize| share.upgrade().is_some_and(|share| lock(&share).grow(slots as u64 * chunk));
        slab.grow_from(MEMORY_CHUNKS_MIN as usize, Box::new(grow));
    }

    /// A function that claims this many bytes more, for the session's memory besides buffers, and
    /// returns whether they are there.
    pub(super) fn more(&self) -> overhead::ClaimMemory {
        let share = Arc::downgrade(&self.share);
        Box::new(move |bytes| share.upgrade().is_some_and(|share| lock(&share).grow(bytes)))
    }

    /// A function that claims this many bytes more for as long as what it returns is held.
    pub(super) fn lend(&self) -> overhead::LendMemory {
        let share = Arc::downgrade(&self.share);
        Box::new(move |bytes| {
            let fits = share.upgrade().is_some_and(|share| lock(&share).grow(bytes));
            fits.then(|| Box::new(Lent { share: share.clone(), bytes }) as overhead::LentMemory)
        })
    }

    /// A function that claims `bytes` bytes more when it is first called, for lanes that keep
    /// payload in this process besides buffers, and returns whether they are there.
    pub(super) fn room(&self, bytes: u64) -> Box<dyn FnMut() -> bool + Send> {
        let (share, mut has) = (Arc::downgrade(&self.share), false);
        Box::new(move || {
            has = has || share.upgrade().is_some_and(|share| lock(&share).grow(bytes));
            has
        })
    }
}

fn lock(share: &Mutex<Claimed>) -> MutexGuard<'_, Claimed> {
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::Identity;

    const GIB: u64 = 1 << 30;

    fn key() -> PublicKey {
        Identity::generate().expect("a key").public()
    }

    fn need(all: u64) -> Need {
        Need::new(ByteCount(all), ChunkSize::DEFAULT).expect("it fits")
    }

    /// A session's memory, and the slab that it feeds. No page of the slab is touched.
    fn session(memory: &ClientShares, client: PublicKey, all: u64) -> Option<(Buffers, Arc<Slab>)> {
        let need = need(all);
        let buffers = Buffers::claim(memory, client, need, &mut Vec::new()).ok()?;
        let slots = budget::slots(need.memory, need.chunk).expect("slots");
        let slab = Slab::new(need.chunk.bytes() as usize, slots).expect("a slab");
        buffers.feed(&slab);
        Some((buffers, slab))
    }

    fn all_slots(slab: &Arc<Slab>) -> Vec<longhaul_sys::Slot> {
        std::iter::from_fn(|| slab.try_claim()).collect()
    }

    #[test]
    fn what_a_lane_has_besides_buffers_is_claimed_and_given_back_when_it_ends() {
        let memory = ClientShares::growing("memory", GIB, 0);
        let (buffers, _slab) = session(&memory, key(), GIB).expect("there is room");
        let before = memory.taken().0;
        let mut lend = buffers.lend();
        let lent = lend(2 << 20).expect("there is room");
        assert_eq!(memory.taken().0, before + (2 << 20));
        assert!(lend(GIB).is_none(), "there is no more than that");
        drop(lent);
        assert_eq!(memory.taken().0, before);
        let lent = lend(2 << 20);
        drop(buffers);
        drop(lent);
        assert_eq!(memory.taken().0, 0, "the claim of the session has it");
    }

    #[test]
    fn sessions_that_carry_nothing_leave_room_for_all_that_are_allowed() {
        let memory = ClientShares::growing("memory", 4 * GIB, 16 << 20);
        let client = key();
        let idle: Vec<_> = (0..64).map_while(|_| session(&memory, client, 4 * GIB)).collect();
        assert_eq!(idle.len(), 64, "as many sessions as a daemon has by default");
        let (_buffers, slab) = session(&memory, key(), 4 * GIB).expect("another key");
        assert_eq!(all_slots(&slab).len(), 64, "all that a session may have");
    }

    #[test]
    fn a_session_that_gets_no_more_goes_on_with_what_it_has_and_grows_when_others_end() {
        let memory = ClientShares::growing("memory", 64 << 20, 16 << 20);
        let (first, first_slab) = session(&memory, key(), 64 << 20).expect("the first");
        let (_second, second_slab) = session(&memory, key(), 64 << 20).expect("the second");
        let out = all_slots(&first_slab);
        assert_eq!(out.len(), 8, "but for what the other one began with, and room for another");
        assert_eq!(all_slots(&second_slab).len(), 4);
        drop((first, out, first_slab));
        assert_eq!(all_slots(&second_slab).len(), 8);
    }

    #[test]
    fn one_client_whose_sessions_carry_data_leaves_a_quarter() {
        let memory = ClientShares::growing("memory", 4 * GIB, 16 << 20);
        let client = key();
        let sessions: Vec<_> = (0..20).map_while(|_| session(&memory, client, 4 * GIB)).collect();
        let out: usize = sessions.iter().map(|(_, slab)| all_slots(slab)).map(|slots| slots.len()).sum();
        assert!(out as u64 * (4 << 20) <= 3 * GIB, "{out} buffers");
        let (_buffers, slab) = session(&memory, key(), 4 * GIB).expect("another key");
        assert_eq!(all_slots(&slab).len(), 64);
    }

    #[test]
    fn whoever_comes_while_all_carry_data_can_begin() {
        let memory = ClientShares::growing("memory", 4 * GIB, 16 << 20);
        let busy: Vec<_> = (0..20).map_while(|_| session(&memory, key(), 4 * GIB)).collect();
        let out: Vec<_> = busy.iter().map(|(_, slab)| all_slots(slab)).collect();
        assert_eq!(busy.len(), 20);
        let newcomers: Vec<_> = (0..30).map_while(|_| session(&memory, key(), 4 * GIB)).collect();
        assert_eq!(newcomers.len(), 30);
        drop(out);
    }

    #[test]
    fn chunks_that_the_daemon_can_never_hold_are_refused_with_what_would_do() {
        let fault =
            Need::new(ByteCount(16 << 20), ChunkSize::from_bytes(8 << 20).expect("a size")).expect_err("32 MiB");
        assert_eq!((fault.code, fault.hint), (FaultCode::Unsupported, Some(hint::Memory::SmallerChunksOrAsk.into())));
        assert_eq!(need(16 << 20).memory, ByteCount(16 << 20));
        assert_eq!(need(64 * GIB).memory, MEMORY_DEFAULT);
    }

    #[test]
    fn room_beside_the_buffers_is_claimed_once() {
        let memory = ClientShares::growing("memory", 128 << 20, 16 << 20);
        let (buffers, slab) = session(&memory, key(), 128 << 20).expect("a session");
        let mut room = buffers.room(32 << 20);
        assert!(room() && room());
        assert_eq!(all_slots(&slab).len(), 12);
        assert!(!buffers.room(1)(), "what is left is kept free");
    }
}
