//! [`Striped`]: the bodies of a striped file that is being written, and the places of its chunks.
//!
//! In: chunks, each of which goes to the target that will have it soonest, and what a sync and a
//! seal have to make durable. The stripe file itself is the first body of the
//! [`TargetFile`](crate::TargetFile) and belongs to the destination on its home target. In this
//! order, a chunk counts: its body is synced, its record is appended to the stripe file, and that
//! is synced. Knows no sessions and no peers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::digest::Digest;
use longhaul_core::{Candidate, ChunkIndex, ChunkMap, Meta, Place, RelPath, TargetId, TempName, soonest};
use rustix::io::Errno;

use super::body::{Body, DiskBody, Zeros};
use super::fs::FsTarget;
use super::{Room, TargetTree};
use crate::at_once::at_once;
use crate::direct::{Handle, IoMode};
use crate::error::{DiskError, ErrorKind};
use crate::load::{TargetCondition, may_go_elsewhere};
use crate::stripe::{
    BLOCK_RECORDS_MAX, Draft, Footer, HEADER_BYTES, Header, LogEnd, Record, Stripes, Whole, block, stripe_file_len,
};

/// The bodies of a striped file.
pub(crate) struct Striped {
    stripes: Arc<Stripes>,
    id: TempName,
    /// Its path beneath the destination, and beneath the top of the set.
    path: RelPath,
    set_path: Vec<u8>,
    zeros: Zeros,
    draft: Mutex<Draft>,
    /// One for each target that is there, in order.
    pieces: Vec<Piece>,
    /// The end of its records. Held by the one sync that is under way.
    log: Mutex<LogEnd>,
}

/// The body on one target.
struct Piece {
    /// The destination of bodies on the target.
    store: Arc<FsTarget>,
    /// It, once a chunk went there.
    body: OnceLock<Body>,
    /// The length that its file was given so far. Held while that is changed, and while it is made.
    grown: Mutex<u64>,
    /// Whether it takes no more chunks: its file system is full, or failed.
    is_full: AtomicBool,
    /// Whether the stripe file has the record of it.
    is_recorded: AtomicBool,
    /// The room on the target, and when it was asked for.
    room: Mutex<Option<(Instant, Option<Room>)>>,
}

/// Whether a write failed for want of space: then others on that target will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// It did.
    Yes,
    /// It failed for another reason.
    No,
}

/// The name of a striped file: its id, and its path beneath the destination and beneath the top of
/// the set.
pub(crate) struct StripedName<'n> {
    /// The id.
    pub(crate) id: &'n TempName,
    /// The path beneath the destination.
    pub(crate) path: &'n RelPath,
    /// The path beneath the top of the set.
    pub(crate) set_path: Vec<u8>,
}

impl Striped {
    /// A striped file of which nothing is written. `stores` are the destinations of bodies.
    pub(crate) fn new(
        stripes: &Arc<Stripes>,
        stores: &[Arc<FsTarget>],
        name: StripedName<'_>,
        (map, zeros): (ChunkMap, Zeros),
    ) -> Striped {
        let piece = |store: &Arc<FsTarget>| Piece {
            store: Arc::clone(store),
            body: OnceLock::new(),
            grown: Mutex::new(0),
            is_full: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            room: Mutex::default(),
        };
        Striped {
            stripes: Arc::clone(stripes),
            id: *name.id,
            path: name.path.clone(),
            set_path: name.set_path,
            zeros,
            draft: Mutex::new(Draft::new(map)),
            pieces: stores.iter().map(piece).collect(),
            log: Mutex::new(LogEnd { blocks: 0, end: HEADER_BYTES as u64 }),
        }
    }

    /// Takes over what an earlier session recorded.
    pub(crate) fn recorded(self, draft: Draft, log: LogEnd) -> Striped {
        Striped { draft: Mutex::new(draft), log: Mutex::new(log), ..self }
    }

    /// Takes a body that an earlier session made, which has this length now. Returns false if the
    /// set has no such target.
    pub(crate) fn reopened(&self, target: TargetId, body: Body, len: u64) -> bool {
        let Some(piece) = self.piece(target) else { return false };
        *lock(&piece.grown) = len;
        piece.is_recorded.store(true, Ordering::Relaxed);
        piece.body.set(body).is_ok()
    }

    /// Its header as long as it is not whole.
    pub(crate) fn unfinished(&self) -> Vec<u8> {
        self.header(None).to_bytes(self.stripes.key())
    }

    /// The body on a target, once it is made.
    pub(crate) fn body(&self, target: TargetId) -> Option<&Body> {
        self.piece(target)?.body.get()
    }

    /// The targets that have a body of it.
    pub(crate) fn targets(&self) -> impl Iterator<Item = TargetId> {
        self.made().map(|(piece, _)| piece.store.load_id())
    }

    /// The way in which its first body is really written.
    pub(crate) fn mode(&self) -> IoMode {
        let body = self.made().find_map(|(_, body)| body.on_disk());
        body.map(DiskBody::handle).map_or(IoMode::Buffered, Handle::mode)
    }

    /// Whether a request of `len` bytes at `offset` is one of its chunks.
    pub(crate) fn has(&self, offset: u64, len: usize) -> bool {
        self.draft().chunk_at(offset, len).is_some()
    }

    /// Notes the digest of a chunk that is about to be written, or is a hole.
    pub(crate) fn note_digest(&self, index: ChunkIndex, digest: Digest) {
        self.draft().digest(index, *digest.bytes());
    }

    /// Notes that the chunk at `offset` is a hole.
    pub(crate) fn is_hole(&self, offset: u64) {
        let mut draft = self.draft();
        let index = ChunkIndex(offset >> draft.map().size().log2());
        draft.is_hole(index);
    }

    /// The place of a chunk that was written.
    pub(crate) fn place_of(&self, offset: u64) -> Option<Place> {
        let draft = self.draft();
        let spot = draft.spot(ChunkIndex(offset >> draft.map().size().log2()))?;
        Some(Place { target: spot.target, offset: spot.slot << draft.map().size().log2() })
    }

    /// A place for the chunk of `len` bytes at `offset`: the one that it has, or one on the target
    /// that will have it soonest. The body is ready for the write.
    ///
    /// # Errors
    /// `NOSPC` if no target has room for it; otherwise the system's error.
    pub(crate) fn place(&self, offset: u64, len: usize) -> Result<Place, DiskError> {
        let map = self.draft().map();
        let index = self.draft().chunk_at(offset, len);
        let index = index.ok_or_else(|| DiskError::Bounds { path: (&self.path).into(), offset, len })?;
        loop {
            let known = self.draft().spot(index);
            let known = known.filter(|spot| self.piece(spot.target).is_some_and(|piece| !piece.is_full()));
            let target = match known {
                Some(spot) => spot.target,
                None => self.choose(len as u64)?,
            };
            let piece = self.piece(target).ok_or_else(|| self.no_room())?;
            let spot = match known {
                Some(spot) => spot,
                None => self.draft().place(index, target),
            };
            let offset = spot.slot << map.size().log2();
            let grown = piece.grow(&self.path, offset.saturating_add(map.size().bytes()), map);
            match piece.store.judged(grown) {
                Ok(()) => {
                    piece.body.get().and_then(Body::on_disk).into_iter().for_each(|body| body.share().add(len as u64));
                    return Ok(Place { target, offset });
                }
                Err(error) if is_for_another(&error) => piece.is_full.store(true, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
    }

    /// The target for `len` more bytes, with its body made.
    fn choose(&self, len: u64) -> Result<TargetId, DiskError> {
        loop {
            let candidates = self.candidates();
            let target = soonest(&candidates, len).ok_or_else(|| self.no_room())?;
            let piece = self.piece(target).ok_or_else(|| self.no_room())?;
            let map = self.draft().map();
            let made = piece.make(&self.path, &self.id, (map, self.zeros));
            match piece.store.judged(made) {
                Ok(()) => return Ok(target),
                Err(error) if is_for_another(&error) => piece.is_full.store(true, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
    }

    /// The targets that may take a chunk: those that are well, or else all that did not fail.
    fn candidates(&self) -> Vec<Candidate> {
        let known: Vec<_> = self.pieces.iter().map(|piece| (piece.store.condition(), piece)).collect();
        let of = |is_one: &dyn Fn(TargetCondition) -> bool| -> Vec<Candidate> {
            let found = known.iter().filter(|(condition, _)| is_one(*condition));
            found.filter_map(|(_, piece)| piece.candidate()).collect()
        };
        let well = of(&|condition| condition == TargetCondition::Well);
        if well.is_empty() { of(&|condition| condition != TargetCondition::Failed) } else { well }
    }

    fn no_room(&self) -> DiskError {
        DiskError::call("find a target with room for", &self.path, Errno::NOSPC)
    }

    /// Notes that the chunk at `offset` was written to its place.
    pub(crate) fn wrote(&self, offset: u64) {
        let mut draft = self.draft();
        let index = ChunkIndex(offset >> draft.map().size().log2());
        draft.written(index);
    }

    /// Notes that a write of `len` bytes to a target failed.
    pub(crate) fn failed(&self, target: TargetId, len: usize, full: Full) {
        if let Some(piece) = self.piece(target) {
            if let Some(body) = piece.body.get().and_then(Body::on_disk) {
                body.share().take_off(len as u64);
            }
            piece.is_full.fetch_or(full == Full::Yes, Ordering::Relaxed);
        }
    }

    /// Removes its bodies.
    pub(crate) fn discard(&self) {
        // No write that is still under way makes a new one.
        self.pieces.iter().for_each(|piece| piece.is_full.store(true, Ordering::Relaxed));
        self.made().for_each(|(_, body)| body.discard());
    }

    /// Makes durable what was written before: the bodies, then their records in the stripe file,
    /// which is `stripe` at `home`.
    pub(crate) fn sync(&self, home: &FsTarget, stripe: &DiskBody) -> Result<(), DiskError> {
        let mut log = lock(&self.log);
        let fresh = self.draft().take_fresh();
        let synced = self.sync_records(home, stripe, &mut log, &fresh.records);
        synced.inspect_err(|_| self.draft().put_back(&fresh))
    }

    fn sync_records(
        &self,
        home: &FsTarget,
        stripe: &DiskBody,
        log: &mut LogEnd,
        chunks: &[Record],
    ) -> Result<(), DiskError> {
        let mut new = Vec::new();
        let mut records = Vec::new();
        for (piece, body) in self.made().filter(|(piece, _)| !piece.is_recorded.load(Ordering::Relaxed)) {
            if let Some(disk) = body.on_disk() {
                records.push(Record::of_body(piece.store.load_id(), &disk.node()));
                new.push(piece);
            }
        }
        self.on_each(|piece, body| {
            // All that was to go there went elsewhere.
            if piece.store.condition() == TargetCondition::Failed && !self.uses(piece.store.load_id()) {
                return Ok(());
            }
            piece.store.judged(piece.store.sync_body(&self.path, body))
        })?;
        records.extend_from_slice(chunks);
        for part in records.chunks(BLOCK_RECORDS_MAX) {
            let bytes = block(self.stripes.key(), &self.id, log.blocks, part);
            home.write_at(stripe, &bytes, log.end).map_err(|error| stripe.handle().error("write", error))?;
            *log = LogEnd { blocks: log.blocks + 1, end: log.end + bytes.len() as u64 };
        }
        home.sync_body(&self.path, stripe)?;
        new.iter().for_each(|piece| piece.is_recorded.store(true, Ordering::Relaxed));
        Ok(())
    }

    /// Makes the whole file durable on its bodies, and its stripe file ready for its name: the
    /// metadata of that is still to be set, and it is not synced. Returns the length of the stripe
    /// file.
    pub(crate) fn seal(&self, home: &FsTarget, stripe: &DiskBody, meta: &Meta) -> Result<u64, DiskError> {
        self.sync(home, stripe)?;
        let (root, map, holes) = {
            let draft = self.draft();
            (draft.root(), draft.map(), draft.holes())
        };
        let root = root.ok_or_else(|| DiskError::call("put together", &self.path, Errno::IO))?;
        let holder = self.made().map(|(piece, _)| piece.store.load_id()).find(|target| self.uses(*target));
        self.on_each(|piece, body| {
            let target = piece.store.load_id();
            let slots = self.draft().slots_on(target);
            if slots.is_empty() {
                return Ok(());
            }
            let holes = if holder == Some(target) { holes.clone() } else { Vec::new() };
            let end = (slots.len() as u64) << map.size().log2();
            let (id, path, meta) = (self.id, self.set_path.clone(), *meta);
            let footer = Footer { id, target, path, map, root, meta, slots, holes }.to_bytes(self.stripes.key());
            piece.store.judged(piece.store.end_body(&self.path, body, (end, &footer)))
        })?;
        self.made().filter(|(piece, _)| !self.uses(piece.store.load_id())).for_each(|(_, body)| body.discard());
        let LogEnd { blocks, end } = *lock(&self.log);
        let header = self.header(Some(Whole { root, blocks, end })).to_bytes(self.stripes.key());
        home.write_at(stripe, &header, 0).map_err(|error| stripe.handle().error("write", error))?;
        Ok(stripe_file_len(end))
    }

    /// Whether any chunk lies in the body on a target.
    fn uses(&self, target: TargetId) -> bool {
        self.draft().end_needed(target) > 0
    }

    fn header(&self, whole: Option<Whole>) -> Header {
        Header { id: self.id, path: self.set_path.clone(), map: self.draft().map(), whole }
    }

    /// Does something with each body that is made, with all of them at the same time.
    fn on_each(&self, act: impl Fn(&Piece, &DiskBody) -> Result<(), DiskError> + Sync) -> Result<(), DiskError> {
        let bodies: Vec<_> = self.made().filter_map(|(piece, body)| Some((piece, body.on_disk()?))).collect();
        at_once(&bodies, |(piece, body)| act(piece, body))
    }

    fn piece(&self, target: TargetId) -> Option<&Piece> {
        self.pieces.iter().find(|piece| piece.store.load_id() == target)
    }

    fn made(&self) -> impl Iterator<Item = (&Piece, &Body)> {
        self.pieces.iter().filter_map(|piece| Some((piece, piece.body.get()?)))
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        lock(&self.draft)
    }
}

impl Piece {
    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn candidate(&self) -> Option<Candidate> {
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
        Some(self.store.candidate(self.store.load_id(), room))
    }

    /// Makes the body, if that is still to be done.
    fn make(&self, path: &RelPath, id: &TempName, (map, zeros): (ChunkMap, Zeros)) -> Result<(), DiskError> {
        let _grown = lock(&self.grown);
        if self.body.get().is_none() {
            let most = map.chunks().saturating_mul(map.size().bytes());
            let body = self.store.create_piece(path, id, (most, zeros))?;
            // Nobody else sets it while the lock is held.
            let _ = self.body.set(body);
        }
        Ok(())
    }

    /// Gives its file a length that reaches to `end`: writes within the length run side by side,
    /// each that would extend it would wait for the others.
    fn grow(&self, path: &RelPath, end: u64, map: ChunkMap) -> Result<(), DiskError> {
        let mut grown = lock(&self.grown);
        if end <= *grown {
            return Ok(());
        }
        let body = self.body.get().and_then(Body::on_disk);
        let body = body.ok_or_else(|| DiskError::call("write to a body of", path, Errno::NOENT))?;
        let most = map.chunks().saturating_mul(map.size().bytes());
        let ahead = (*grown).max(GROWN_SLOTS_MIN << map.size().log2()).saturating_mul(2).min(most);
        // A file system may take the length that is needed, and not one so far ahead.
        let lengths = [end.max(ahead), end];
        let set = |to: &u64| body.handle().kernel().ftruncate(body, *to).map(|()| *to);
        let to = set(&lengths[0]).or_else(|_| set(&lengths[1]));
        *grown = to.map_err(|error| body.handle().error("set the length of a body of", error))?;
        Ok(())
    }
}

impl fmt::Debug for Striped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striped").field("id", &self.id).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Whether another target is to take what failed with this error.
fn is_for_another(error: &DiskError) -> bool {
    error.kind() == ErrorKind::NoSpace || may_go_elsewhere(error)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The room on a target is asked for again after this time: a call for each chunk and target would
/// be much, and a target that is full says so.
const ROOM_HOLDS: Duration = Duration::from_millis(100);
/// A body is given room for so many chunks at first, and for twice as many each time it is full.
const GROWN_SLOTS_MIN: u64 = 32;
