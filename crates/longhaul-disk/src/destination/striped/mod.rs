//! [`Striped`]: the bodies of a striped file that is being written, and the places of its chunks.
//!
//! In: chunks, each with the target that the line of chunks ([`ChunkIo`](crate::ChunkIo)) chose for
//! it, and the ends of their writes. Out: slots in bodies, and what a sync and a seal have to make
//! durable (`commit`). Which write of a chunk counts is decided by the draft
//! ([`longhaul_core::stripe`]). The stripe file itself is the first body of the
//! [`TargetFile`](crate::TargetFile) and belongs to the destination on its home target. Knows no
//! sessions and no peers.

mod commit;
mod piece;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::Digest;
use longhaul_core::stripe::{Draft, Spot, WriteOutcome};
use longhaul_core::{Candidate, ChunkIndex, ChunkMap, Place, RelPath, TargetId, TempName};
use rustix::io::Errno;

use super::body::{Body, DiskBody, Zeros};
use super::fs::FsTarget;
use crate::direct::{Handle, IoMode};
use crate::error::{DiskError, ErrorKind};
use crate::load::{TargetCondition, TargetLoad, may_go_elsewhere};
use crate::stripe::{HEADER_BYTES, Header, LogEnd, Stripes, Whole};

use piece::Piece;

/// The bodies of a striped file.
pub(crate) struct Striped {
    stripes: Arc<Stripes>,
    name: StripedName,
    zeros: Zeros,
    draft: Mutex<Draft>,
    /// Told at the end of each write.
    ended: Condvar,
    /// One for each target that is there, in order.
    pieces: Vec<Piece>,
    /// The end of its records. Held by the one sync that is under way.
    log: Mutex<LogEnd>,
    /// The last error of a target on which no body could be made, if it was not want of room.
    refusal: Mutex<Option<DiskError>>,
}

/// Whether a write failed for want of space: then others on that target will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// It did.
    Yes,
    /// It failed for another reason.
    No,
}

/// The turn of a write among those of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteTurn {
    /// The chunk is written anew: what it was before counts no more.
    First,
    /// Another write of the same bytes is under way.
    Hedge,
}

/// The name of a striped file: its id, and its path beneath the destination and beneath the top of
/// the set.
pub(crate) struct StripedName {
    /// The id.
    pub(crate) id: TempName,
    /// The path beneath the destination.
    pub(crate) path: RelPath,
    /// The path beneath the top of the set.
    pub(crate) set_path: Vec<u8>,
}

impl Striped {
    /// A striped file of which nothing is written. `stores` are the destinations of bodies.
    pub(crate) fn new(
        stripes: &Arc<Stripes>,
        stores: &[Arc<FsTarget>],
        name: StripedName,
        (map, zeros): (ChunkMap, Zeros),
    ) -> Striped {
        Striped {
            stripes: Arc::clone(stripes),
            name,
            zeros,
            draft: Mutex::new(Draft::new(map)),
            ended: Condvar::new(),
            pieces: stores.iter().map(Piece::on).collect(),
            log: Mutex::new(LogEnd { blocks: 0, end: HEADER_BYTES as u64 }),
            refusal: Mutex::default(),
        }
    }

    /// Takes over what an earlier session recorded.
    pub(crate) fn recorded(self, draft: Draft, log: LogEnd) -> Striped {
        Striped { draft: Mutex::new(draft), log: Mutex::new(log), ..self }
    }

    /// Takes a body that an earlier session made, which has this length now. Returns false if the
    /// set has no such target.
    pub(crate) fn reopened(&self, target: TargetId, body: Body, len: u64) -> bool {
        self.piece(target).is_some_and(|piece| piece.reopened(body, len))
    }

    /// Its header as long as it is not whole.
    pub(crate) fn unfinished(&self) -> Vec<u8> {
        self.header(None).to_bytes(self.stripes.key())
    }

    /// The body on a target, once it is made.
    pub(crate) fn body(&self, target: TargetId) -> Option<&Body> {
        self.piece(target)?.body.get()
    }

    /// The way in which its first body is really written.
    pub(crate) fn mode(&self) -> IoMode {
        let body = self.pieces.iter().find_map(Piece::on_disk);
        body.map(DiskBody::handle).map_or(IoMode::Buffered, Handle::mode)
    }

    /// The number of targets that are there.
    pub(crate) fn target_count(&self) -> usize {
        self.pieces.len()
    }

    /// The targets on which chunks of it lie.
    pub(crate) fn targets(&self) -> Vec<TargetId> {
        let draft = self.draft();
        self.pieces.iter().map(Piece::target).filter(|target| draft.uses(*target)).collect()
    }

    /// The load of a target.
    pub(crate) fn load(&self, target: TargetId) -> Option<&Arc<TargetLoad>> {
        self.piece(target).map(|piece| piece.store.load())
    }

    /// The chunk of which a request of `len` bytes at `offset` is all. `None`: the file has no such
    /// chunk.
    pub(crate) fn chunk_at(&self, offset: u64, len: usize) -> Option<ChunkIndex> {
        self.draft().chunk_at(offset, len)
    }

    /// Notes the digest of a chunk that is about to be written, or is a hole.
    pub(crate) fn note_digest(&self, index: ChunkIndex, digest: Digest) {
        self.draft().note_digest(index, *digest.bytes());
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
        Some(place(spot, draft.map()))
    }

    /// The targets that may take a chunk: those that are well, or else all that did not fail.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let known: Vec<_> = self.pieces.iter().map(|piece| (piece.store.condition(), piece)).collect();
        let of = |is_one: &dyn Fn(TargetCondition) -> bool| -> Vec<Candidate> {
            let found = known.iter().filter(|(condition, _)| is_one(*condition));
            found.filter_map(|(_, piece)| piece.candidate()).collect()
        };
        let well = of(&|condition| condition == TargetCondition::Well);
        if well.is_empty() { of(&|condition| condition != TargetCondition::Failed) } else { well }
    }

    /// Whether the next chunk may be written to a target now. Otherwise it is to be prepared.
    pub(crate) fn is_ready(&self, target: TargetId) -> bool {
        let end = self.draft().next_end(target);
        self.piece(target).is_some_and(|piece| !piece.is_full() && piece.is_ready(end))
    }

    /// Whether the caller is to prepare the body on a target now: it is not ready for the chunk
    /// after some more, and nobody else prepares it.
    pub(crate) fn takes_preparation(&self, target: TargetId) -> bool {
        let soon = self.end_soon(target);
        self.piece(target).is_some_and(|piece| !piece.is_ready(soon) && piece.takes_preparation())
    }

    /// The end of the chunk after some more on a target.
    fn end_soon(&self, target: TargetId) -> u64 {
        let draft = self.draft();
        draft.next_end(target).saturating_add(PREPARED_SLOTS << draft.map().size().log2())
    }

    /// Makes the body on a target ready for the next chunks. A target that cannot do that takes no
    /// more of them.
    pub(crate) fn prepare(&self, target: TargetId) {
        let Some(piece) = self.piece(target) else { return };
        let map = self.draft().map();
        if let Err(error) = piece.prepare(&self.name, self.end_soon(target), (map, self.zeros)) {
            piece.close();
            if !is_for_another(&error) {
                let path = self.name.path.escaped();
                tracing::warn!(target: "longhaul::disk", number = target.0, %path, %error, "a target takes no chunks of a file");
                *lock(&self.refusal) = Some(error);
            }
        }
    }

    /// The preparation of the body on a target could not begin.
    pub(crate) fn leave_unprepared(&self, target: TargetId) {
        self.piece(target).into_iter().for_each(Piece::leave_unprepared);
    }

    /// Whether any body is being prepared.
    pub(crate) fn is_preparing(&self) -> bool {
        self.pieces.iter().any(Piece::is_preparing)
    }

    /// The error of a chunk that no target takes.
    pub(crate) fn no_room(&self) -> DiskError {
        let refusal = lock(&self.refusal).take();
        refusal.unwrap_or_else(|| DiskError::call("find a target with room for", &self.name.path, Errno::NOSPC))
    }

    /// Begins a write of a chunk of `len` bytes to a slot of its own on a target that is ready.
    pub(crate) fn begin_write(
        &self,
        index: ChunkIndex,
        target: TargetId,
        (len, turn): (usize, WriteTurn),
    ) -> (Spot, Place) {
        if let Some(disk) = self.piece(target).and_then(Piece::on_disk) {
            disk.share().add(len as u64);
        }
        let mut draft = self.draft();
        let spot = match turn {
            WriteTurn::First => draft.begin_write(index, target),
            WriteTurn::Hedge => draft.begin_hedge(index, target),
        };
        (spot, place(spot, draft.map()))
    }

    /// Notes that a write of a chunk completed.
    pub(crate) fn end_write(&self, index: ChunkIndex, spot: Spot) -> WriteOutcome {
        let outcome = self.draft().end_write(index, spot);
        self.ended.notify_all();
        outcome
    }

    /// Notes that a write of a chunk of `len` bytes failed.
    pub(crate) fn fail_write(&self, index: ChunkIndex, spot: Spot, len: usize, full: Full) {
        if let Some(piece) = self.piece(spot.target) {
            if let Some(disk) = piece.on_disk() {
                disk.share().take_off(len as u64);
            }
            if full == Full::Yes {
                piece.close();
            }
        }
        self.draft().fail_write(index, spot);
        self.ended.notify_all();
    }

    /// Removes the body on a target that waited for the end of the last write to it.
    pub(crate) fn remove_if_forsaken(&self, target: TargetId) {
        let is_idle = self.draft().writes_on(target) == 0;
        if let Some(piece) = self.piece(target).filter(|_| is_idle) {
            piece.remove_if_forsaken();
        }
    }

    /// Removes a body in which nothing lies, now or when the last write to it has ended.
    fn forsake(&self, piece: &Piece) {
        // In this order: a write that ends in between removes it, too.
        piece.forsake();
        self.remove_if_forsaken(piece.target());
    }

    /// Removes its bodies. The one on a target to which a write is under way goes when that has
    /// ended.
    pub(crate) fn discard(&self) {
        self.pieces.iter().for_each(|piece| self.forsake(piece));
    }

    fn header(&self, whole: Option<Whole>) -> Header {
        Header { id: self.name.id, path: self.name.set_path.clone(), map: self.draft().map(), whole }
    }

    fn piece(&self, target: TargetId) -> Option<&Piece> {
        self.pieces.iter().find(|piece| piece.target() == target)
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        lock(&self.draft)
    }
}

impl fmt::Debug for Striped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striped").field("id", &self.name.id).field("path", &self.name.path).finish_non_exhaustive()
    }
}

/// Whether another target is to take what failed with this error.
pub(crate) fn is_for_another(error: &DiskError) -> bool {
    error.kind() == ErrorKind::NoSpace || may_go_elsewhere(error)
}

/// The place of a chunk in a body, as an offset.
fn place(spot: Spot, map: ChunkMap) -> Place {
    Place { target: spot.target, offset: spot.slot << map.size().log2() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body is made longer when so many more chunks would not fit its length, so that no chunk waits
/// for that.
const PREPARED_SLOTS: u64 = 8;
