//! The manifest at the receiver: pages come in, answers go out, small entries go to a batch, and
//! directories to their end.
//!
//! In: pages, surveys and stagings. Out: answers, and the orders that begin each entry. Chunks are
//! left to `flow`.

use std::sync::Arc;

use longhaul_core::limits::LINK_BYTES_MAX;
use longhaul_core::{Blame, ChunkMap, Entry, EntryKind, Fault, FaultCode, FileId, RelPath, hint};

use super::compare::{Comparison, goes_in_chunks};
use super::large::{LargeStage, LargeTarget};
use super::partial::Partial;
use super::policy::{PolicyDecision, Seen, is_committed};
use super::readback::Checks;
use super::skipped::wants_digest;
use super::{EntryRef, EntryState, Receiver, ReceiverAction, Surveyed};
use crate::steps;
use crate::time::Timestamp;
use crate::wire::message::{Answer, FileEnd, FileFault, Message, Outcome, Page, PageExtras, PageNames};

impl Receiver {
    /// A page came: its entries are placed and looked up on the disk.
    pub(super) fn on_page(&mut self, mut page: Page) -> Result<(), Fault> {
        self.manifest.take_page(&page)?;
        self.manifest.add_extras(&mut page)?;
        self.manifest.add_names(&mut page)?;
        let mut survey = Vec::with_capacity(page.entries.len());
        for (id, entry) in (page.first.0..).map(FileId).zip(page.entries) {
            self.manifest.follow(&entry)?;
            survey.push(self.hold(id, entry)?);
        }
        self.expect_nothing_unasked();
        if survey.is_empty() {
            self.drop_unasked();
            self.manifest.answer_page();
        } else {
            self.actions.push(ReceiverAction::Survey(survey));
        }
        Ok(())
    }

    /// The extras of the next page came.
    pub(super) fn on_extras(&mut self, extras: PageExtras) -> Result<(), Fault> {
        if !self.config.preserve.has_extras() {
            return Err(Fault::protocol("extras that were not agreed on"));
        }
        self.manifest.take_extras(extras)
    }

    /// The several names of files of the next page came.
    pub(super) fn on_names(&mut self, names: PageNames) -> Result<(), Fault> {
        if !self.config.preserve.hardlinks {
            return Err(Fault::protocol("several names of files, which were not agreed on"));
        }
        self.manifest.take_names(names)
    }

    fn hold(&mut self, id: FileId, entry: Entry) -> Result<Arc<EntryRef>, Fault> {
        if let EntryKind::Symlink { target } = &entry.kind
            && (target.is_empty() || target.len() > LINK_BYTES_MAX || target.contains(&0))
        {
            return Err(Fault::protocol("a symbolic link with an impossible target"));
        }
        if let EntryKind::Stream { kept_bytes, .. } = entry.kind {
            self.expect_stream(kept_bytes)?;
        }
        let (placed, state) = match self.config.landing.place(&entry.path) {
            // Nothing is made of it, so its path may have no place, such as a source itself that
            // cannot be read.
            placed if matches!(entry.kind, EntryKind::Unsent { .. }) => {
                (placed.unwrap_or_else(|_| entry.path.clone()), EntryState::Surveyed)
            }
            Ok(placed) if entry.kind == EntryKind::DirEnd => (placed, EntryState::DirEnd),
            Ok(placed) => (placed, EntryState::Surveyed),
            Err(fault) if fault.code == FaultCode::Protocol => return Err(fault),
            // The survey must name every entry of the page; looking at the root does no harm.
            Err(fault) => (RelPath::root(), EntryState::Unplaced(fault)),
        };
        Ok(self.manifest.insert(id, entry, placed, state))
    }

    /// The findings at the names of one page, in its order.
    pub fn handle_survey(&mut self, now: Timestamp, first: FileId, found: Vec<Result<Surveyed, Fault>>) {
        if self.is_over() {
            return;
        }
        let mut wanted = vec![0u8; found.len().div_ceil(8)];
        let (mut compared, mut skipped) = (Vec::new(), Vec::new());
        for (at, found) in found.into_iter().enumerate() {
            let id = FileId(first.0 + at as u64);
            match self.decide(id, found) {
                Answered::Wanted => wanted[at / 8] |= 1 << (at % 8),
                Answered::Compared(held) => compared.push(held),
                Answered::Skipped(held) => skipped.push(held),
                Answered::NotWanted => {}
            }
        }
        let unasked = self.take_unasked(first, &mut wanted);
        self.manifest.answer_page();
        self.actions.push(ReceiverAction::Send(Message::Answer(Answer { first, wanted })));
        self.actions.extend(unasked);
        self.compare_small(compared);
        self.digest_skipped(skipped);
        self.settle_down(now);
    }

    /// Decides on one entry.
    fn decide(&mut self, id: FileId, found: Result<Surveyed, Fault>) -> Answered {
        let (seen, partial, committed, doubtful) = match found {
            Ok(Surveyed { found: seen, partial, committed, doubtful }) => (Ok(seen), partial, committed, doubtful),
            Err(fault) => (Err(fault), None, false, false),
        };
        if let (Ok(seen), Some(slot)) = (&seen, self.manifest.get_mut(id)) {
            slot.replace = self.config.policy.replace(seen);
        }
        let Some(slot) = self.manifest.get(id) else { return Answered::NotWanted };
        let (held, is_placed) = (slot.entry.clone(), matches!(slot.state, EntryState::Surveyed));
        if let Ok(seen) = &seen
            && is_placed
            && let Some(naming) = self.naming(&held, seen, (doubtful, committed), partial.as_ref())
        {
            self.begin_naming(id, naming);
            return Answered::NotWanted;
        }
        let Some(slot) = self.manifest.get(id) else { return Answered::NotWanted };
        let fail = |code, message: &str, hint: hint::Names| {
            Outcome::Failed(Fault::new(code, Blame::Local, message).about(held.placed.escaped()).hint(hint))
        };
        let outcome = match (&slot.state, &held.entry.kind, seen) {
            (EntryState::Unplaced(fault), ..) => Outcome::Failed(fault.clone()),
            (EntryState::DirEnd, ..) => return Answered::NotWanted,
            (_, EntryKind::Unsent { failure: None, .. }, _) => Outcome::Unsent,
            (_, EntryKind::Unsent { failure: Some(code), why }, _) => {
                Outcome::Failed(at_the_sender(*code, why).about(held.placed.escaped()))
            }
            (_, _, Err(fault)) => Outcome::Failed(fault),
            (_, EntryKind::Dir, Ok(Seen::Dir | Seen::Absent)) if self.config.dry_run => Outcome::Planned,
            (_, EntryKind::Dir, Ok(Seen::Dir | Seen::Absent)) => Outcome::Committed(None),
            (_, EntryKind::Dir, Ok(_)) => fail(
                FaultCode::InTheWay,
                "something that is no directory stands where one goes",
                hint::Names::RemoveOrChooseAnother,
            ),
            (.., Ok(seen)) if committed && !doubtful && is_committed(&held.entry, &seen) => Outcome::Skipped,
            (.., Ok(seen)) => match self.config.policy.decide(&held.entry, &held.placed, &seen, doubtful) {
                PolicyDecision::Skip => Outcome::Skipped,
                PolicyDecision::Fail(fault) => Outcome::Failed(fault),
                PolicyDecision::Send | PolicyDecision::Compare if self.config.dry_run => Outcome::Planned,
                PolicyDecision::Send | PolicyDecision::Compare if self.manifest.is_busy(&held.placed) => fail(
                    FaultCode::Exists,
                    "another source of this transfer is being written under the same name",
                    hint::Names::GiveDifferentNames,
                ),
                PolicyDecision::Compare if !goes_in_chunks(&held.entry.kind, self.config.bundled_max) => {
                    self.manifest.occupy(id, EntryState::Comparing);
                    return Answered::Compared(held);
                }
                PolicyDecision::Compare => return self.begin(id, &held, partial, Some(Comparison::default())),
                PolicyDecision::Send => return self.begin(id, &held, partial, None),
            },
        };
        if outcome == Outcome::Skipped && wants_digest(&self.config, &held) {
            // It keeps nobody from its path: nothing is written there.
            self.manifest.set_state(id, EntryState::Digesting);
            self.manifest.waiting.reads(&held);
            return Answered::Skipped(held);
        }
        self.finish(id, outcome);
        Answered::NotWanted
    }

    /// Begins an entry that is to be sent or compared.
    pub(super) fn begin(
        &mut self,
        id: FileId,
        held: &Arc<EntryRef>,
        partial: Option<Arc<Partial>>,
        comparison: Option<Comparison>,
    ) -> Answered {
        let (state, answered) = match held.entry.kind {
            EntryKind::File { len, .. } if len <= self.config.bundled_max => (EntryState::Wanted, Answered::Wanted),
            EntryKind::File { len, inode, .. } => {
                self.window.queue(id, (inode.dev, len));
                let may_go_on = comparison.is_none() || self.config.policy.may_modify;
                let fits = |p: &Arc<Partial>| {
                    may_go_on && p.map().len() == len && p.map().size().bytes() <= self.config.chunk_max.bytes()
                };
                let mut large = match partial.filter(fits) {
                    Some(partial) => LargeTarget::continued(partial),
                    None => LargeTarget::new(ChunkMap::new(len, self.config.chunk)),
                };
                large.checks = Checks::under(&self.config);
                large.comparison = comparison;
                (EntryState::Large(Box::new(large)), Answered::Wanted)
            }
            EntryKind::Stream { inode, .. } => {
                self.window.queue(id, (inode.dev, 0));
                let mut large = LargeTarget::of_stream(self.config.chunk, partial);
                large.checks = Checks::under(&self.config);
                (EntryState::Large(Box::new(large)), Answered::Wanted)
            }
            _ => {
                self.actions.push(ReceiverAction::MakeLink(held.clone()));
                (EntryState::Staging(None), Answered::NotWanted)
            }
        };
        self.manifest.occupy(id, state);
        answered
    }

    /// Small files, links or a sealed file are staged under temporary names. Or that failed.
    pub fn handle_stage(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        if self.is_over() {
            return;
        }
        for (id, result) in results {
            self.stage(now, id, result);
        }
        self.settle_down(now);
    }

    fn stage(&mut self, now: Timestamp, id: FileId, result: Result<(), Fault>) {
        let Some(slot) = self.manifest.get_mut(id) else { return };
        match &mut slot.state {
            EntryState::Large(large) if large.stage == LargeStage::Sealing => {
                let next = if result.is_ok() { LargeStage::Staged } else { LargeStage::Open };
                steps::step(&mut large.stage, next);
                large.unsavable = result.is_err();
            }
            EntryState::Staging(root) if result.is_ok() => {
                let root = *root;
                steps::step(&mut slot.state, EntryState::Staged(root));
            }
            EntryState::Staging(_) => {}
            _ => return,
        }
        match result {
            Ok(()) => {
                let (bytes, _) = self.staged(id);
                let is_large = self.large(id).is_some();
                self.committer.gather(now, id, bytes, is_large);
            }
            Err(fault) => self.fail_file(id, fault),
        }
    }

    /// The sender read the last chunk of a file and says its root.
    pub(super) fn on_file_end(&mut self, end: FileEnd) -> Result<(), Fault> {
        if let Some(large) = self.manifest.large(end.file) {
            large.end(end.root)?;
            self.proceed(end.file);
            return Ok(());
        }
        match self.manifest.get(end.file) {
            // Settled already (it failed here): the sender did not know yet.
            None if self.manifest.was_offered(end.file) => Ok(()),
            _ => Err(Fault::protocol("the end of a file that was not wanted in chunks")),
        }
    }

    /// The sender cannot send a file, or cannot send a chunk of it again.
    pub(super) fn on_file_fault(&mut self, fault: FileFault) -> Result<(), Fault> {
        match self.manifest.get(fault.file).map(|slot| &slot.state) {
            Some(EntryState::Wanted | EntryState::Compared(_)) => {}
            Some(EntryState::Large(large)) if !large.is_sealed() => {}
            None if self.manifest.was_offered(fault.file) => return Ok(()),
            _ => return Err(Fault::protocol("a failure of a file that was not wanted, or is here already")),
        }
        self.fail_file(fault.file, at_the_sender(fault.code, &fault.message));
        Ok(())
    }

    /// Orders mode and times of directories whose entries are all settled: a run of directory ends
    /// at the front of all entries.
    pub(super) fn finish_dirs(&mut self) {
        let run = self.manifest.ended_dirs();
        if run.is_empty() {
            return;
        }
        if self.config.dry_run {
            run.into_iter().for_each(|held| self.finish(held.id, Outcome::Planned));
            return;
        }
        self.manifest.begin_finishing_dirs();
        self.actions.push(ReceiverAction::FinishDirs(run));
    }

    /// Mode and times of directories are set. Or that failed.
    pub fn handle_finish_dirs(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        if self.is_over() {
            return;
        }
        self.manifest.end_finishing_dirs();
        for (id, result) in results {
            match result {
                Ok(()) => self.finish(id, Outcome::Committed(None)),
                Err(fault) => self.finish(id, Outcome::Failed(fault)),
            }
        }
        self.settle_down(now);
    }

    /// The session has no right to change directories, and none was changed. The session ends by
    /// that, and no directory has failed.
    pub fn handle_finish_dirs_refused(&mut self, now: Timestamp, fault: &Fault) {
        if self.is_over() {
            return;
        }
        self.manifest.end_finishing_dirs();
        self.session.bar(fault);
        self.settle_down(now);
    }
}

/// The answer to the sender for one entry.
pub(super) enum Answered {
    Wanted,
    NotWanted,
    /// Not wanted yet: the standing file is to be read first.
    Compared(Arc<EntryRef>),
    /// Not wanted: the standing file is to be read for its root.
    Skipped(Arc<EntryRef>),
}

/// A failure at the sender. A code that would end a session here becomes an I/O error, as it is
/// about the sender's disk and not this side's.
fn at_the_sender(code: FaultCode, why: &str) -> Fault {
    let code = if code.ends_session() { FaultCode::Io } else { code };
    let blame = if code == FaultCode::Mismatch { Blame::Path } else { Blame::Peer };
    Fault::new(code, blame, why).said_by_peer()
}
