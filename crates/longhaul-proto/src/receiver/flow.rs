//! The flow of chunks through all files together: descriptors, wants, writes, group syncs, seals, failures.
//!
//! Takes the disk's reports; orders what follows. Wants stop while the disk is behind, nothing else does. What one file
//! is at stands in `large`.

use longhaul_core::digest::Hash32;
use longhaul_core::limits::CHUNKS_WANTED_MAX;
use longhaul_core::{Blame, ChunkIndex, Fault, FaultCode, FileId};

use super::large::{Large, Stage};
use super::{Action, Receiver, State};
use crate::time::Timestamp;
use crate::wire::message::{Message, Outcome, WantChunks};

/// Large files with a descriptor open at once: bounds descriptors, not speed (256 chunks fill any pipe we know).
pub(super) const LARGE_OPEN_MAX: usize = 256;

impl Receiver {
    pub(super) fn large(&mut self, id: FileId) -> Option<&mut Large> {
        match self.entries.get_mut(&id).map(|slot| &mut slot.state) {
            Some(State::Large(large)) => Some(large),
            _ => None,
        }
    }

    /// Opens files as descriptors allow, and wants chunks as the window allows: a disk that stalls stops wants.
    pub(super) fn create_and_want(&mut self) {
        while self.large_open < LARGE_OPEN_MAX
            && let Some(id) = self.to_create.pop_first()
        {
            let Some(slot) = self.entries.get_mut(&id) else { continue };
            if let State::Large(large) = &mut slot.state {
                large.stage = Stage::Creating;
                self.large_open += 1;
                self.actions.push_back(Action::Create(slot.held.clone()));
            }
        }
        let undurable_max = self.config.group.bytes.saturating_mul(2).max(1);
        while self.chunks_wanted < CHUNKS_WANTED_MAX
            && self.unsynced.undurable < undurable_max
            && let Some(&file) = self.to_want.first()
        {
            let room = (CHUNKS_WANTED_MAX - self.chunks_wanted) as u64;
            let Some(large) = self.large(file).filter(|large| large.has_chunks_to_want()) else {
                self.to_want.pop_first();
                continue;
            };
            let count = room.min(large.map.chunks() - large.next_want.0);
            let start = large.want(count);
            self.chunks_wanted += count as usize;
            // What makes room for these must be heard before them, or the sender counts too many.
            self.says.flush(&mut self.actions);
            self.actions.push_back(Action::Send(Message::WantChunks(WantChunks { file, start, count })));
        }
    }

    /// The temporary file stands (or not): its chunks may be wanted.
    pub fn handle_created(&mut self, now: Timestamp, id: FileId, result: Result<(), Fault>) {
        if self.is_over() {
            return;
        }
        let Some(large) = self.large(id).filter(|large| large.stage == Stage::Creating) else { return };
        match result {
            Ok(()) => {
                large.stage = Stage::Open;
                self.to_want.insert(id);
                self.end_if_failed(id);
            }
            Err(fault) => {
                large.stage = Stage::Waiting;
                self.large_open -= 1;
                self.fail_file(id, fault);
            }
        }
        self.settle_down(now);
    }

    /// A chunk is written (or not).
    pub fn handle_written(&mut self, now: Timestamp, id: FileId, index: ChunkIndex, result: Result<(), Fault>) {
        if self.is_over() {
            return;
        }
        let Some(large) = self.large(id).filter(|large| large.is_writing(index)) else { return };
        let bytes = large.wrote(now, index);
        let may_sync = large.stage == Stage::Open && large.failed.is_none();
        let since = large.since;
        self.chunks_wanted -= 1;
        self.unsynced.undurable += bytes;
        if may_sync {
            self.unsynced.join(id, bytes, since);
        }
        match result {
            Ok(()) => self.proceed(id),
            Err(fault) => self.fail_file(id, fault),
        }
        self.settle_down(now);
    }

    /// Submits syncs when enough was written or enough time has passed since. A file that is being synced takes part
    /// again when that is over.
    pub(super) fn sync_groups(&mut self, now: Timestamp) {
        if !self.unsynced.is_due(now, self.config.group) {
            return;
        }
        self.unsynced.bytes = 0;
        self.unsynced.since = None;
        for id in std::mem::take(&mut self.unsynced.files) {
            if let Some(large) = self.large(id) {
                large.begin_sync();
                self.actions.push_back(Action::SyncData(id));
            }
        }
    }

    /// A sync of a file's data came back. It speaks for the writes that were seen complete when it was submitted.
    pub fn handle_synced(&mut self, now: Timestamp, id: FileId, result: Result<(), Fault>) {
        if self.is_over() {
            return;
        }
        let Some(large) = self.large(id).filter(|large| large.stage == Stage::Syncing) else { return };
        large.stage = Stage::Open;
        match result {
            Ok(()) => {
                let durable = large.synced();
                let (written, since) = (large.written, large.since);
                let may_sync = written > 0 && large.failed.is_none();
                self.tally.durable += durable;
                self.unsynced.undurable -= durable;
                if may_sync {
                    self.unsynced.join(id, written, since);
                }
                self.proceed(id);
            }
            Err(fault) => self.fail_file(id, fault),
        }
        self.settle_down(now);
    }

    /// What may follow once the disk has done something for a file: its end, or its seal.
    pub(super) fn proceed(&mut self, id: FileId) {
        self.end_if_failed(id);
        let Some(slot) = self.entries.get_mut(&id) else { return };
        let State::Large(large) = &mut slot.state else { return };
        let Some((declared, computed)) = large.roots_when_whole() else { return };
        if declared != computed {
            let fault = Fault::new(
                FaultCode::Mismatch,
                Blame::Path,
                "the file's digest is not the one that the sender declared",
            );
            return self.fail_file(id, fault);
        }
        large.stage = Stage::Sealing;
        self.unsynced.leave(id, large);
        self.actions.push_back(Action::Seal(slot.held.clone()));
    }

    /// The bytes of a staged file that become durable with its batch, and its root.
    pub(super) fn staged(&self, id: FileId) -> (u64, Option<Hash32>) {
        match self.entries.get(&id).map(|slot| (&slot.state, &slot.held.entry.kind)) {
            Some((State::Large(large), _)) => (large.undurable(), large.declared_root),
            Some((State::Staged(root), longhaul_core::EntryKind::File { len, .. })) => (*len, *root),
            _ => (0, None),
        }
    }

    /// A file will not be committed: nothing more of it is wanted, and it ends when the disk is done with it.
    pub(super) fn fail_file(&mut self, id: FileId, fault: Fault) {
        let Some(slot) = self.entries.get_mut(&id) else { return };
        let fault = if fault.object.is_empty() { fault.about(slot.held.placed.escaped()) } else { fault };
        let State::Large(large) = &mut slot.state else {
            return self.finish(id, Outcome::Failed(fault));
        };
        self.unsynced.leave(id, large);
        large.fail(fault);
        self.end_if_failed(id);
    }

    /// Ends a failed file once the disk is done with it.
    fn end_if_failed(&mut self, id: FileId) {
        let Some(large) = self.large(id).filter(|large| !large.is_at_disk()) else { return };
        let Some(fault) = large.failed.take() else { return };
        if large.is_open() {
            self.actions.push_back(Action::Discard(id));
        }
        self.finish(id, Outcome::Failed(fault));
    }

    /// Gives back what a large file occupied.
    pub(super) fn release(&mut self, id: FileId, large: &Large) {
        self.chunks_wanted -= large.wanted;
        self.unsynced.leave(id, large);
        self.unsynced.undurable -= large.undurable();
        self.to_create.remove(&id);
        self.to_want.remove(&id);
        if large.is_open() {
            self.large_open -= 1;
        }
    }
}
