//! The flow of chunks through all files together: descriptors, wants, writes, group syncs, seals,
//! failures.
//!
//! Takes the disk's reports and orders the next steps. Wants stop while the disk is behind; nothing
//! else does. The state of one file lies in `large`.

use longhaul_core::digest::{Hash32, TreePart};
use longhaul_core::{Blame, ChunkIndex, ChunkMap, Fault, FaultCode, FileId};

use super::large::{LargeStage, LargeTarget, Leftover, Want};
use super::stream::map_of;
use super::{Created, EntryState, Receiver, ReceiverAction, WantOrder};
use crate::steps;
use crate::time::Timestamp;
use crate::wire::message::{CheckChunks, Message, Outcome, Resume, WantChunks, WantLast};

impl Receiver {
    pub(super) fn large(&mut self, id: FileId) -> Option<&mut LargeTarget> {
        self.manifest.large(id)
    }

    /// Opens files as descriptors allow, and wants chunks as the window allows: a disk that stalls
    /// stops wants.
    pub(super) fn create_and_want(&mut self, now: Timestamp) {
        while let Some(id) = self.window.next_to_open()
            && self.admit(now, id)
        {
            self.window.dequeue(id);
            let Some(slot) = self.manifest.get_mut(id) else { continue };
            if let EntryState::Large(large) = &mut slot.state {
                self.window.open(id);
                if large.comparison.is_some() && large.partial.is_none() {
                    steps::step(&mut large.stage, LargeStage::Comparing);
                    self.window.want_chunks_of(id);
                } else {
                    let len = large.map.len();
                    let is_fresh = large.partial.is_none() && large.comparison.is_none() && !large.is_stream();
                    let cut = self.config.cut.filter(|_| is_fresh && self.config.order == WantOrder::Any);
                    let cut = cut.map(|cut| cut.chunk_of(len, self.config.chunk, self.window.load()));
                    if let Some(chunk) = cut.filter(|chunk| *chunk != large.map.size()) {
                        large.begin_anew(ChunkMap::new(len, chunk));
                    }
                    steps::step(&mut large.stage, LargeStage::Creating);
                    self.window.begin_creating();
                    // A partial that turns out to be gone is begun anew in the session's chunks.
                    let partial = large.partial.clone();
                    let size = if partial.is_some() { self.config.chunk } else { large.map.size() };
                    self.actions.push(ReceiverAction::Create(slot.entry.clone(), partial, size));
                }
            }
        }
        if self.is_draining() {
            return;
        }
        let undurable_max = self.config.group.bytes.saturating_mul(2).max(1);
        self.copy_equal(undurable_max);
        while self.unsynced.undurable() < undurable_max
            && let Some((file, room)) = self.window.next_to_want()
        {
            let Some(large) = self.large(file).filter(|large| large.has_chunks_to_want()) else {
                self.window.want_no_more_of(file);
                continue;
            };
            if let Some(again) = large.want_lost(room) {
                self.ask_again(file, again);
                continue;
            }
            let Some(want) = large.want(room) else { continue };
            let compares = large.comparison.is_some();
            self.window.take(file, want.count as usize);
            if compares {
                self.compare(file, want);
                continue;
            }
            // The verdicts that make room for these chunks must be heard before them, or the sender
            // counts too many.
            self.actions.flush();
            self.actions.push(ReceiverAction::Send(ask_for(file, want)));
        }
    }

    /// The temporary is made, or opened as an earlier session left it, so that its chunks may be
    /// wanted. Or that failed.
    pub fn handle_create(&mut self, now: Timestamp, id: FileId, result: Result<Created, Fault>) {
        if self.is_over() {
            return;
        }
        if self.large(id).is_none_or(|large| large.stage != LargeStage::Creating) {
            return;
        }
        self.window.end_creating();
        let Some(large) = self.large(id) else { return };
        match result {
            Ok(created) => {
                steps::step(&mut large.stage, LargeStage::Open);
                self.opened(id, created);
                self.go_on_replacing(id);
                self.end_if_failed(id);
            }
            Err(fault) => {
                steps::step(&mut large.stage, LargeStage::Waiting);
                self.window.close(id);
                self.stop_replacing(id);
                self.fail_file(id, fault);
            }
        }
        self.settle_down(now);
    }

    fn opened(&mut self, id: FileId, created: Created) {
        let chunk = self.config.chunk;
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let (EntryState::Large(large), Some(map)) = (&mut slot.state, map_of(&slot.entry.entry.kind, chunk)) else {
            return;
        };
        match created {
            Created::Fresh if large.partial.is_some() => large.begin_anew(map),
            Created::Continued(held) if large.partial.is_some() => large.partial = Some(held),
            Created::Fresh | Created::Continued(_) => {}
        }
        if large.partial.is_some() {
            match large.resume() {
                Ok(parts) => self.tell_resume(id, parts),
                Err(fault) => self.fail_file_leaving(id, fault, Leftover::Discard),
            }
            self.read_back_held(id);
        } else if large.map.size() != chunk {
            self.tell_resume(id, Vec::new());
        }
        self.window.want_chunks_of(id);
    }

    /// Tells the sender which chunks of a file are held, in as many messages as that needs.
    fn tell_resume(&mut self, file: FileId, parts: Vec<TreePart>) {
        let Some(large) = self.large(file) else { return };
        let (chunk, resumed) = (large.map.size(), large.resumed());
        large.durable += resumed;
        self.tally.resumed += resumed;
        self.tally.durable += resumed;
        let mut parts = parts.chunks(PARTS_AT_ONCE).map(<[TreePart]>::to_vec).peekable();
        loop {
            let now = parts.next().unwrap_or_default();
            let more = parts.peek().is_some();
            self.actions.push(ReceiverAction::Send(Message::Resume(Resume { file, chunk, parts: now, more })));
            if !more {
                return;
            }
        }
    }

    /// A chunk is written. Or that failed.
    pub fn handle_write(&mut self, now: Timestamp, id: FileId, index: ChunkIndex, result: Result<(), Fault>) {
        if self.is_over() {
            return;
        }
        if !self.large(id).is_some_and(|large| large.is_writing(index)) {
            return;
        }
        if !self.config.read_back {
            self.window.give_back(id, 1);
        }
        let Some(large) = self.large(id) else { return };
        if let Err(fault) = result {
            large.not_written(index);
            self.fail_file(id, fault);
            return self.settle_down(now);
        }
        let bytes = large.wrote(now, index);
        let mut room = large.room;
        let may_sync = large.stage == LargeStage::Open && large.failed.is_none();
        let since = large.since;
        self.unsynced.wrote(bytes);
        self.rooms.written(&mut room, bytes);
        if let Some(large) = self.large(id) {
            large.room = room;
        }
        if !self.lose_written(id, index) && may_sync {
            self.unsynced.join(id, bytes, since);
        }
        self.sync_what_waits_for_nothing(id);
        self.proceed(id);
        self.settle_down(now);
    }

    /// Submits syncs when enough was written or enough time has passed since. A file that is being
    /// synced takes part again when that is over.
    pub(super) fn sync_groups(&mut self, now: Timestamp) {
        for id in self.unsynced.take_due(now, self.config.group) {
            if let Some(large) = self.large(id) {
                large.begin_sync();
                self.actions.push(ReceiverAction::SyncData(id));
            }
        }
    }

    /// A sync of a file came back. It covers the writes that were complete when it was submitted,
    /// but for the chunks that it gives: the target that has them did not answer, and their bytes
    /// are given up.
    pub fn handle_sync_data(&mut self, now: Timestamp, id: FileId, result: Result<Vec<ChunkIndex>, Fault>) {
        if self.is_over() {
            return;
        }
        let Some(large) = self.large(id).filter(|large| large.stage == LargeStage::Syncing) else { return };
        steps::step(&mut large.stage, LargeStage::Open);
        if let Ok(lost) = &result
            && let Err(fault) = self.lose(id, lost)
        {
            self.large(id).into_iter().for_each(|large| large.unsavable = true);
            self.fail_file_leaving(id, fault, Leftover::Discard);
            return self.settle_down(now);
        }
        let Some(large) = self.large(id) else { return };
        match result {
            Ok(_) => {
                let chunks = large.synced();
                let (written, since) = (large.written, large.since);
                let may_sync = written > 0 && large.failed.is_none();
                if self.config.read_back {
                    self.read_back(id, &chunks);
                } else {
                    self.journal_chunks(id, chunks);
                }
                if may_sync {
                    self.unsynced.join(id, written, since);
                    self.sync_what_waits_for_nothing(id);
                }
                self.proceed(id);
            }
            Err(fault) => {
                large.unsavable = true;
                self.fail_file(id, fault);
            }
        }
        self.settle_down(now);
    }

    /// Takes the next step of a file once the disk has done something for it: its end, or its seal.
    pub(super) fn proceed(&mut self, id: FileId) {
        self.end_if_failed(id);
        if self.is_draining() {
            return;
        }
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let EntryState::Large(large) = &mut slot.state else { return };
        let equal = large.roots_when_equal();
        let Some((declared, computed)) = equal.or_else(|| large.roots_when_whole()) else { return };
        if declared != computed {
            let fault = Fault::new(
                FaultCode::Mismatch,
                Blame::Path,
                "the file's digest is not the one that the sender declared",
            );
            return self.fail_file_leaving(id, fault, Leftover::Discard);
        }
        if equal.is_some() {
            steps::step(&mut large.stage, LargeStage::Retouching);
            let held = slot.entry.clone();
            return self.retouch(vec![held]);
        }
        if self.begin_in_order(id) {
            return;
        }
        self.seal(id);
    }

    /// Orders the seal of a whole file.
    fn seal(&mut self, id: FileId) {
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let EntryState::Large(large) = &mut slot.state else { return };
        steps::step(&mut large.stage, LargeStage::Sealing);
        self.unsynced.leave(id, large);
        self.actions.push(ReceiverAction::Seal(slot.entry.clone()));
    }

    /// The bytes of a staged file that become durable with its batch, and its root.
    pub(super) fn staged(&self, id: FileId) -> (u64, Option<Hash32>) {
        match self.manifest.get(id).map(|slot| (&slot.state, &slot.entry.entry.kind)) {
            Some((EntryState::Large(large), _)) => (large.undurable(), large.declared_root),
            Some((EntryState::Staged(root), longhaul_core::EntryKind::File { len, .. })) => (*len, *root),
            _ => (0, None),
        }
    }

    /// Fails a file: nothing more of it is wanted, and it is settled when the disk has no work on
    /// it.
    pub(super) fn fail_file(&mut self, id: FileId, fault: Fault) {
        // Nobody can go on with a stream whose sender has given it up or goes on without it.
        let is_stream = self.large(id).is_some_and(|large| large.is_stream());
        let keeps = fault.code.keeps_partial() && !is_stream;
        let leftover = if keeps { Leftover::Keep } else { Leftover::Discard };
        self.fail_file_leaving(id, fault, leftover);
    }

    /// As [`Receiver::fail_file`], with the fate of the temporary given.
    pub(super) fn fail_file_leaving(&mut self, id: FileId, fault: Fault, leftover: Leftover) {
        let Some(slot) = self.manifest.get_mut(id) else { return };
        let fault = if fault.object.is_empty() { fault.about(slot.entry.placed.escaped()) } else { fault };
        let EntryState::Large(large) = &mut slot.state else {
            return self.finish(id, Outcome::Failed(fault));
        };
        self.unsynced.leave(id, large);
        if matches!(self.config.order, WantOrder::Sequence { .. }) && large.has_received() {
            self.session.end_by_file(&fault);
        }
        large.fail(fault, leftover);
        self.end_if_failed(id);
    }

    /// Settles a failed file once the disk has no work on it and its kept chunks are journalled.
    pub(super) fn end_if_failed(&mut self, id: FileId) {
        let Some(large) = self.large(id).filter(|large| !large.is_at_disk()) else { return };
        if large.is_to_be_saved() {
            large.begin_sync();
            return self.actions.push(ReceiverAction::SyncData(id));
        }
        if large.is_kept() && self.journal.speaks_of(id) {
            return;
        }
        let Some(large) = self.large(id) else { return };
        let Some((fault, leftover)) = large.failed.take() else { return };
        let durable = large.durable;
        if large.has_temporary() {
            self.actions.push(match leftover {
                Leftover::Keep => ReceiverAction::Release(id),
                Leftover::Discard => {
                    self.tally.durable = self.tally.durable.saturating_sub(durable);
                    ReceiverAction::Discard(id)
                }
            });
        }
        self.finish(id, Outcome::Failed(fault));
    }

    /// Gives back the resources of a large file.
    pub(super) fn release(&mut self, id: FileId, large: &LargeTarget) {
        if large.is_open() {
            self.window.close(id);
        }
        self.window.forget(id, large.wanted);
        self.unsynced.leave(id, large);
        self.unsynced.count_no_more(large.undurable());
        self.rooms.give_back(large.room);
    }
}

/// The message that asks for chunks.
pub(super) fn ask_for(file: FileId, want: Want) -> Message {
    match want.digests {
        None if want.is_last_of_stream => Message::WantLast(WantLast { file }),
        None => Message::WantChunks(WantChunks { file, start: want.start, count: want.count }),
        Some(digests) => Message::CheckChunks(CheckChunks { file, start: want.start, digests }),
    }
}

/// Parts in one message; at some 45 bytes each they stay far below its bound.
const PARTS_AT_ONCE: usize = 1024;
