//! [`Piece`]: the body of a striped file on one target: whether it is made, how long it is, and
//! whether it takes more chunks.
//!
//! In: orders to make it and to make it longer, from threads of their own, as a disk that hangs
//! would hold up whoever gives them. Out: whether the next chunk may be written there now. Knows no
//! chunks and no digests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::{Candidate, ChunkMap, RelPath, TargetId, TempName};
use rustix::io::Errno;

use super::super::body::{Body, DiskBody, Zeros};
use super::super::fs::FsTarget;
use super::super::{Room, TargetTree};
use super::{StripedName, lock};
use crate::error::DiskError;
use crate::load::TargetCondition;

/// The body on one target.
pub(super) struct Piece {
    /// The destination of bodies on the target.
    pub(super) store: Arc<FsTarget>,
    /// It, once it is made.
    pub(super) body: OnceLock<Body>,
    /// The length that its file was given so far. Held while that is changed, and while it is made.
    grown: Mutex<u64>,
    /// The same length, for who must not wait.
    ready_to: AtomicU64,
    /// Whether a thread is making it, or making it longer.
    is_preparing: AtomicBool,
    /// Whether it takes no more chunks: its file system is full, or failed, or it is given up.
    is_full: AtomicBool,
    /// Whether it is to be removed once no write to it is under way.
    is_forsaken: AtomicBool,
    /// Whether that is done, or left to others.
    is_removed: AtomicBool,
    /// Whether the stripe file has the record of it.
    pub(super) is_recorded: AtomicBool,
    /// The room on the target, and when it was asked for.
    room: Mutex<Option<(Instant, Option<Room>)>>,
}

impl Piece {
    /// The piece on the target of this store, of which nothing is made.
    pub(super) fn on(store: &Arc<FsTarget>) -> Piece {
        Piece {
            store: Arc::clone(store),
            body: OnceLock::new(),
            grown: Mutex::new(0),
            ready_to: AtomicU64::new(0),
            is_preparing: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_forsaken: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            room: Mutex::default(),
        }
    }

    /// The target.
    pub(super) fn target(&self) -> TargetId {
        self.store.load_id()
    }

    /// Takes a body that an earlier session made, which has this length now.
    pub(super) fn reopened(&self, body: Body, len: u64) -> bool {
        *lock(&self.grown) = len;
        self.ready_to.store(len, Ordering::Release);
        self.is_recorded.store(true, Ordering::Relaxed);
        self.body.set(body).is_ok()
    }

    /// Whether it takes no more chunks.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Takes no more chunks from now on.
    pub(super) fn close(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// The file, once it is made.
    pub(super) fn on_disk(&self) -> Option<&DiskBody> {
        self.body.get().and_then(Body::on_disk)
    }

    /// Whether a chunk that ends at `end` may be written now.
    pub(super) fn is_ready(&self, end: u64) -> bool {
        end <= self.ready_to.load(Ordering::Acquire)
    }

    /// Whether the caller is to have it prepared: nobody else does.
    pub(super) fn takes_preparation(&self) -> bool {
        !self.is_full() && !self.is_preparing.swap(true, Ordering::AcqRel)
    }

    /// Whether a thread prepares it.
    pub(super) fn is_preparing(&self) -> bool {
        self.is_preparing.load(Ordering::Acquire)
    }

    /// Makes it, if that is still to be done, and gives it a length that reaches to `end`. The
    /// caller took the preparation.
    pub(super) fn prepare(
        &self,
        name: &StripedName,
        end: u64,
        (map, zeros): (ChunkMap, Zeros),
    ) -> Result<(), DiskError> {
        let made = self.make(&name.path, &name.id, zeros);
        let made = made.and_then(|()| self.grow(&name.path, end, map));
        self.is_preparing.store(false, Ordering::Release);
        self.store.judged(made)
    }

    /// The preparation could not even begin.
    pub(super) fn leave_unprepared(&self) {
        self.is_preparing.store(false, Ordering::Release);
    }

    /// Makes the body, if that is still to be done.
    fn make(&self, path: &RelPath, id: &TempName, zeros: Zeros) -> Result<(), DiskError> {
        let _grown = lock(&self.grown);
        if self.body.get().is_none() {
            let body = self.store.create_piece(path, id, zeros)?;
            // Nobody else sets it while the lock is held.
            let _ = self.body.set(body);
            // Nothing was written to it, and whoever gave it up did not find it.
            self.remove_if_forsaken();
        }
        Ok(())
    }

    /// Gives its file a length that reaches to `end`: writes within the length run side by side,
    /// each that would extend it would wait for the others.
    fn grow(&self, path: &RelPath, end: u64, map: ChunkMap) -> Result<(), DiskError> {
        let mut grown = lock(&self.grown);
        if end <= *grown || self.is_full() {
            return Ok(());
        }
        let body = self.on_disk().ok_or_else(|| DiskError::call("write to a body of", path, Errno::NOENT))?;
        // There may be more slots than chunks: some were given up.
        let most = map.chunks().saturating_mul(map.size().bytes());
        let ahead = grown.saturating_mul(2).min(most);
        let least = end.saturating_add(GROWN_SLOTS_MIN << map.size().log2());
        // A file system may take the length that is needed, and not one so far ahead.
        let lengths = [least.max(ahead), end];
        let set = |to: &u64| body.handle().kernel().ftruncate(body, *to).map(|()| *to);
        let to = set(&lengths[0]).or_else(|_| set(&lengths[1]));
        *grown = to.map_err(|error| body.handle().error("set the length of a body of", error))?;
        self.ready_to.store(*grown, Ordering::Release);
        Ok(())
    }

    /// Waits until nobody makes it ready for more chunks. Once it is closed, nobody does any more.
    pub(super) fn wait_until_prepared(&self) {
        drop(lock(&self.grown));
    }

    /// The target as one that may take a chunk. `None`: it takes none.
    pub(super) fn candidate(&self) -> Option<Candidate> {
        if self.is_full() {
            return None;
        }
        let mut known = lock(&self.room);
        let room = match *known {
            Some((asked, room)) if asked.elapsed() < ROOM_HOLDS => room,
            _ => {
                let room = self.store.room(&RelPath::root());
                *known = Some((Instant::now(), room));
                room
            }
        };
        Some(self.store.candidate(self.target(), room))
    }

    /// Gives the body up: it goes once no write to it is under way.
    pub(super) fn forsake(&self) {
        self.close();
        self.is_forsaken.store(true, Ordering::SeqCst);
    }

    /// Removes the body if it was forsaken. No write to it is under way.
    pub(super) fn remove_if_forsaken(&self) {
        if self.is_forsaken.load(Ordering::SeqCst) {
            self.remove();
        }
    }

    fn remove(&self) {
        let Some(body) = self.body.get().filter(|_| !self.is_removed.swap(true, Ordering::SeqCst)) else { return };
        match self.store.condition() {
            // The removal would hang whoever makes it. What cannot be removed stays, as an orphan
            // that `set check` tells.
            TargetCondition::Hung => {
                let name = body.on_disk().map(|disk| String::from_utf8_lossy(disk.temp().name()).into_owned());
                tracing::warn!(target: "longhaul::disk", number = self.target().0, name, "a body is left on a target that hangs");
            }
            _ => body.discard(),
        }
    }
}

/// The room on a target is asked for again after this time: a call for each chunk and target would
/// be much, and a target that is full says so.
const ROOM_HOLDS: Duration = Duration::from_millis(100);
/// A body is given room for so many chunks ahead at least, and for twice as many as it has each
/// time it is full.
const GROWN_SLOTS_MIN: u64 = 32;
