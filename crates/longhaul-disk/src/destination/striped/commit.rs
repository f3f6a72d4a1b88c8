//! The order in which a striped file becomes durable: its bodies, then the records of their chunks;
//! at the end the footers, then the header.
//!
//! In: the moment to sync or to seal. Out: a file of which every chunk that counts is durable, and
//! the chunks that were given up, as the sync of their body did not come back. A chunk counts once
//! its body is synced, its record is appended to the stripe file, and that is synced.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::load::{HANG_MIN, patience};
use longhaul_core::stripe::{PlacedChunk, SyncPass, Unsynced};
use longhaul_core::{ChunkIndex, Meta, TargetId};
use rustix::io::Errno;

use super::super::body::{Body, DiskBody};
use super::super::fs::FsTarget;
use super::piece::Piece;
use super::{Striped, lock};
use crate::at_once::at_once;
use crate::direct::IoMode;
use crate::error::DiskError;
use crate::load::{TargetCondition, TargetLoad};
use crate::stripe::{BLOCK_RECORDS_MAX, Footer, LogEnd, Record, Whole, block, stripe_file_len};

/// Whether a target that does not answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// As long as it takes.
    Endless,
    /// As long as a target may take that does not hang.
    Patient,
}

/// The outcome of the sync of one body.
type BodySynced = (TargetId, Result<(), DiskError>);

impl Striped {
    /// Makes durable what was written before: the bodies, then their records in the stripe file,
    /// which is `stripe` at `home`. Returns the chunks that are given up and have to be sent again:
    /// their target does not answer, and others can take them.
    pub(crate) fn sync(self: &Arc<Self>, home: &FsTarget, stripe: &DiskBody) -> Result<Vec<ChunkIndex>, DiskError> {
        self.sync_waiting(home, stripe, Waiting::Patient)
    }

    fn sync_waiting(
        self: &Arc<Self>,
        home: &FsTarget,
        stripe: &DiskBody,
        waiting: Waiting,
    ) -> Result<Vec<ChunkIndex>, DiskError> {
        let mut log = lock(&self.log);
        let pass = self.draft().begin_sync();
        let recorded = self.sync_bodies(&pass, waiting).and_then(|unsynced| {
            let lost = self.draft().give_up(&pass, &unsynced);
            self.record(home, stripe, &mut log, &pass.synced(&unsynced)).map(|()| lost)
        });
        recorded.inspect_err(|_| self.draft().put_back(&pass))
    }

    /// Syncs the bodies of a pass, all at the same time. Returns the targets that are given up.
    fn sync_bodies(self: &Arc<Self>, pass: &SyncPass, waiting: Waiting) -> Result<Unsynced, DiskError> {
        let mut left: Unsynced = pass.targets();
        let (began, (tx, rx)) = (Instant::now(), channel());
        for target in &left {
            self.begin_sync_of(*target, &tx);
        }
        drop(tx);
        let mut outcome = Ok(());
        while !left.is_empty() {
            let answer = match self.patience_with(&left, waiting).map(|most| most.saturating_sub(began.elapsed())) {
                Some(rest) => rx.recv_timeout(rest),
                None => rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match answer {
                Ok((target, result)) => {
                    left.remove(&target);
                    outcome = outcome.and(result);
                }
                Err(RecvTimeoutError::Timeout)
                    if self.is_silent(&left, began.elapsed()) && self.can_do_without(&left) =>
                {
                    left.iter().filter_map(|target| self.load(*target)).for_each(|load| load.hangs(began.elapsed()));
                    break;
                }
                Err(RecvTimeoutError::Timeout) => match rx.recv_timeout(ASK_AGAIN) {
                    Ok((target, result)) => {
                        left.remove(&target);
                        outcome = outcome.and(result);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(self.lost_sync()),
                },
                // A thread that ended without an answer panicked.
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost_sync()),
            }
        }
        outcome.map(|()| left)
    }

    /// Syncs the body on a target on a thread of its own, which may hang.
    fn begin_sync_of(self: &Arc<Self>, target: TargetId, tell: &Sender<BodySynced>) {
        let (this, theirs) = (Arc::clone(self), tell.clone());
        let sync = move || {
            let result = this.sync_body(target);
            if let (Ok(()), Some(load)) = (&result, this.load(target)) {
                load.answered();
            }
            // Nobody listens any more if it took too long.
            let _ = theirs.send((target, result));
        };
        let begun = thread::Builder::new().name("targets".into()).spawn(sync);
        // Where the host has no more threads it is done here.
        if begun.is_err() {
            let _ = tell.send((target, self.sync_body(target)));
        }
    }

    fn sync_body(&self, target: TargetId) -> Result<(), DiskError> {
        let Some((piece, body)) = self.piece(target).and_then(|piece| Some((piece, piece.on_disk()?))) else {
            return Err(DiskError::call("sync a body of", &self.name.path, Errno::NOENT));
        };
        piece.store.judged(piece.store.sync_body(&self.name.path, body))
    }

    /// The time after which these targets are given up. `None`: they are waited for. A file that is
    /// written through the page cache may have any amount to sync.
    fn patience_with(&self, targets: &BTreeSet<TargetId>, waiting: Waiting) -> Option<Duration> {
        let of = |target: &TargetId| {
            let piece = self.piece(*target)?;
            let is_direct = piece.on_disk()?.handle().mode() == IoMode::Direct;
            is_direct.then(|| patience(piece.store.load().figures().latency))
        };
        let each: Option<Vec<Duration>> = targets.iter().map(of).collect();
        each.filter(|_| waiting == Waiting::Patient)?.into_iter().max()
    }

    /// Whether no write to these targets came back lately. A disk that became slow answers one
    /// after the other, and the sync behind them: sending again what it was given would cost more
    /// than waiting. Where no write is under way, the sync alone may take longer.
    fn is_silent(&self, targets: &BTreeSet<TargetId>, waited: Duration) -> bool {
        let is_silent = |load: &Arc<TargetLoad>| match load.silent_for() {
            Some(silent) => silent >= HANG_MIN,
            None => load.patience_left(waited).is_zero(),
        };
        targets.iter().filter_map(|target| self.load(*target)).all(is_silent)
    }

    /// Whether chunks on these targets can go to others.
    fn can_do_without(&self, targets: &BTreeSet<TargetId>) -> bool {
        let takes = |piece: &Piece| {
            !targets.contains(&piece.target()) && !piece.is_full() && piece.store.condition() == TargetCondition::Well
        };
        self.pieces.iter().any(takes)
    }

    fn lost_sync(&self) -> DiskError {
        DiskError::call("sync the bodies of", &self.name.path, Errno::IO)
    }

    /// Appends the records of chunks whose bodies are synced, and of the bodies that are new.
    fn record(
        &self,
        home: &FsTarget,
        stripe: &DiskBody,
        log: &mut LogEnd,
        chunks: &[PlacedChunk],
    ) -> Result<(), DiskError> {
        let used: BTreeSet<TargetId> = chunks.iter().filter_map(|chunk| chunk.spot).map(|spot| spot.target).collect();
        let is_new = |piece: &&Piece| used.contains(&piece.target()) && !piece.is_recorded.load(Ordering::Relaxed);
        let new: Vec<&Piece> = self.pieces.iter().filter(is_new).collect();
        let of_body = |piece: &&Piece| Some(Record::of_body(piece.target(), &piece.on_disk()?.node()));
        let mut records: Vec<Record> = new.iter().filter_map(of_body).collect();
        records.extend(chunks.iter().copied().map(Record::of_chunk));
        for part in records.chunks(BLOCK_RECORDS_MAX) {
            let bytes = block(self.stripes.key(), &self.name.id, log.blocks, part);
            home.write_at(stripe, &bytes, log.end).map_err(|error| stripe.handle().error("write", error))?;
            *log = LogEnd { blocks: log.blocks + 1, end: log.end + bytes.len() as u64 };
        }
        home.sync_body(&self.name.path, stripe)?;
        new.iter().for_each(|piece| piece.is_recorded.store(true, Ordering::Relaxed));
        Ok(())
    }

    /// Makes the whole file durable on its bodies, and its stripe file ready for its name: the
    /// metadata of that is still to be set, and it is not synced. Returns the length of the stripe
    /// file. It waits for the targets on which chunks lie, however long they take, and for no
    /// others.
    pub(crate) fn seal(self: &Arc<Self>, home: &FsTarget, stripe: &DiskBody, meta: &Meta) -> Result<u64, DiskError> {
        self.sync_waiting(home, stripe, Waiting::Endless)?;
        self.wait_for_writes();
        // What is being made ready for more chunks would change the length of a body that is whole.
        self.pieces.iter().for_each(Piece::close);
        let (root, map, holes) = {
            let draft = self.draft();
            (draft.root(), draft.map(), draft.holes())
        };
        let root = root.ok_or_else(|| DiskError::call("put together", &self.name.path, Errno::IO))?;
        let used: Vec<&Piece> = self.pieces.iter().filter(|piece| self.uses(piece)).collect();
        let holder = used.first().map(|piece| piece.target());
        at_once(&used, |piece| {
            let Some(body) = piece.on_disk() else { return Ok(()) };
            piece.wait_until_prepared();
            let (target, slots) = (piece.target(), self.draft().slots_on(piece.target()));
            let holes = if holder == Some(target) { holes.clone() } else { Vec::new() };
            let end = (slots.len() as u64) << map.size().log2();
            let (id, path, meta) = (self.name.id, self.name.set_path.clone(), Meta::new(meta.mode, meta.mtime));
            let footer = Footer { id, target, path, map, root, meta, slots, holes }.to_bytes(self.stripes.key());
            piece.store.judged(piece.store.end_body(&self.name.path, body, (end, &footer)))
        })?;
        self.pieces.iter().filter(|piece| !self.uses(piece)).for_each(|piece| self.forsake(piece));
        let LogEnd { blocks, end } = *lock(&self.log);
        let header = self.header(Some(Whole { root, blocks, end })).to_bytes(self.stripes.key());
        home.write_at(stripe, &header, 0).map_err(|error| stripe.handle().error("write", error))?;
        Ok(stripe_file_len(end))
    }

    /// Waits until no write is under way to a body in which chunks lie: a write that lost to
    /// another one of its chunk would land behind the end of the body, or on its footer.
    fn wait_for_writes(&self) {
        let mut draft = self.draft();
        while self.pieces.iter().any(|piece| draft.uses(piece.target()) && draft.writes_on(piece.target()) > 0) {
            draft = self.ended.wait(draft).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether any chunk lies in a body.
    fn uses(&self, piece: &Piece) -> bool {
        piece.body.get().and_then(Body::on_disk).is_some() && self.draft().uses(piece.target())
    }
}

/// Targets that cannot be done without are looked at again after this time: another one may have
/// become well.
const ASK_AGAIN: Duration = Duration::from_millis(500);
