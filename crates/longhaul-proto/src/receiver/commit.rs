//! The last steps: staged files gather into batches; a batch is made durable, renamed, and made
//! durable again.
//!
//! The steps are listed at `BatchStage`. The handling of an error at a barrier, or after the
//! renames, lies in `doubt`. One batch is under way at a time; files staged meanwhile make the next
//! one, so that batches grow as large as syncing is slow.

mod doubt;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{ATTEMPTS_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{Blame, Fault, FaultCode, FileId};

use super::journal::JournalEntry;
use super::large::Leftover;
use super::readback::misread;
use super::window::LARGE_OPEN_MAX;
use super::{EntryState, ReadBackReason, Receiver, ReceiverAction, Replace, SyncGroup};
use crate::steps;
use crate::time::Timestamp;
use crate::wire::message::Outcome;

use doubt::Doubt;

/// Staged files on their way to their final names.
#[derive(Debug, Default)]
pub(super) struct Committer {
    /// Staged files that are not in a batch yet.
    gathered: Vec<FileId>,
    gathered_bytes: u64,
    gathered_large: usize,
    since: Option<Timestamp>,
    /// Staged files that a batch postponed, as their target did not answer, and that wait for
    /// another one.
    postponed: Vec<PostponedFile>,
    /// When the first of these was postponed. `None` if there are none.
    postponed_since: Option<Timestamp>,
    /// The files of the batch under way, in the order of its renames.
    batch: Vec<FileId>,
    /// The stage of the batch under way. `None` if there is no batch.
    stage: Option<BatchStage>,
    /// Files of the batch that were renamed.
    renamed: HashSet<FileId>,
    /// Files of the batch that fail, and why.
    failures: HashMap<FileId, Fault>,
    /// Files of the batch that are being read back.
    reading: Vec<FileId>,
    /// The failed sync that leaves the batch in doubt. `None` if no sync failed.
    doubt: Option<Doubt>,
}

/// A staged file that waits for another batch.
#[derive(Clone, Copy, Debug)]
struct PostponedFile {
    id: FileId,
    /// Its bytes that are not durable.
    bytes: u64,
    is_large: bool,
}

/// The stage of the batch under way.
///
/// ```text
/// stage     event                                          action         next stage
/// (new)     a batch is due                                 Barrier        Barrier
/// Barrier   durable; files in bundles are to be read back  ReadStaged     ReadBack
/// Barrier   durable; nothing to read back, or second try   Publish        Publish
/// Barrier   failed, the first time                         ReadStaged     ReadBack
/// Barrier   failed again, or no file of it made it in time -              (settled)
/// ReadBack  read, asked for by the user                    Publish        Publish
/// ReadBack  read after a failed barrier                    BarrierAgain   Barrier
/// ReadBack  read after a failed sync of directories        SyncDirsAgain  SyncDirs
/// ReadBack  read after a failed sync, no file is left      -              (settled)
/// Publish   renamed, file by file                          SyncDirs       SyncDirs
/// SyncDirs  durable                                        -              (settled)
/// SyncDirs  failed, the first time                         ReadStaged     ReadBack
/// SyncDirs  failed again                                   -              (settled)
/// ```
///
/// After a failed sync with no file in bundles to read back, `ReadBack` is passed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchStage {
    /// The staged files are being made durable under their temporary names.
    Barrier,
    /// The files that came in bundles are being read back.
    ReadBack,
    /// The files are being renamed to their final names.
    Publish,
    /// The renames are being made durable.
    SyncDirs,
}

/// A batch begins at once when it has this many files, ...
const BATCH_FILES: usize = ENTRIES_UNSETTLED_MAX / 8;
/// ... or this many bytes that are not synced yet (never more than a sync group, as wants stop when
/// too many bytes are not durable), ...
const BATCH_BYTES: u64 = 256 << 20;
/// ... or this many descriptors that other files wait for, ...
const BATCH_LARGE: usize = LARGE_OPEN_MAX / 2;
/// ... or when its oldest file has waited this long, or nothing else is under way.
const BATCH_WAIT: Duration = Duration::from_millis(500);

/// When a batch may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// At once.
    Now,
    /// At once, if no other file is about to be staged.
    IfAlone,
}

impl Committer {
    /// Takes a staged file with `bytes` that are not durable.
    pub(super) fn gather(&mut self, now: Timestamp, id: FileId, bytes: u64, is_large: bool) {
        self.gathered.push(id);
        self.gathered_bytes = self.gathered_bytes.saturating_add(bytes);
        self.gathered_large += usize::from(is_large);
        self.since.get_or_insert(now);
    }

    /// Whether a batch is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.stage.is_some()
    }

    /// Whether anything is staged or being committed.
    pub(super) fn has_any(&self) -> bool {
        self.is_busy() || self.waiting() > 0
    }

    /// The number of staged files that wait for a batch.
    fn waiting(&self) -> usize {
        self.gathered.len() + self.postponed.len()
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        if self.stage.is_some() {
            return None;
        }
        let first = [self.since, self.postponed_since].into_iter().flatten().min();
        first.map(|since| since.after(BATCH_WAIT))
    }

    /// Lets files leave the batch under way, whose target did not answer in time. They wait for
    /// another one, and not for less than an ordinary batch does: a target that hangs is asked
    /// again now and then, not all the time.
    fn postpone(&mut self, now: Timestamp, files: Vec<PostponedFile>) {
        if files.is_empty() {
            return;
        }
        let leave: HashSet<FileId> = files.iter().map(|file| file.id).collect();
        self.batch.retain(|id| !leave.contains(id));
        self.postponed.extend(files);
        self.postponed_since.get_or_insert(now);
    }

    /// Gathers postponed files whose time has come.
    fn gather_postponed(&mut self, now: Timestamp) {
        let Some(since) = self.postponed_since.filter(|since| now >= since.after(BATCH_WAIT)) else { return };
        self.postponed_since = None;
        for PostponedFile { id, bytes, is_large } in std::mem::take(&mut self.postponed) {
            self.gather(since, id, bytes, is_large);
        }
        self.since = self.since.min(Some(since));
    }

    /// When a batch may begin. `None` if nothing is staged or a batch is under way.
    fn due(&self, now: Timestamp, group: SyncGroup) -> Option<Due> {
        if self.stage.is_some() {
            return None;
        }
        let deadline = self.since?.after(BATCH_WAIT);
        let full = self.gathered.len() >= BATCH_FILES
            || self.gathered_bytes >= BATCH_BYTES.min(group.bytes)
            || self.gathered_large >= BATCH_LARGE
            || now >= deadline;
        Some(if full { Due::Now } else { Due::IfAlone })
    }

    /// Moves the batch under way on, or begins it.
    fn enter(&mut self, next: BatchStage) {
        match &mut self.stage {
            Some(stage) => steps::step(stage, next),
            None => {
                steps::begin(&next);
                self.stage = Some(next);
            }
        }
    }

    /// Ends the batch under way.
    fn leave(&mut self) {
        if let Some(stage) = self.stage.take() {
            steps::end(&stage);
        }
    }

    /// Makes the staged files the batch under way.
    fn begin(&mut self) -> Vec<FileId> {
        self.batch = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        self.gathered_large = 0;
        self.since = None;
        self.enter(BatchStage::Barrier);
        self.batch.clone()
    }
}

impl Receiver {
    /// Begins a batch when one is due.
    pub(super) fn move_batch(&mut self, now: Timestamp) {
        if !self.committer.is_busy() {
            self.committer.gather_postponed(now);
        }
        let begins = match self.committer.due(now, self.config.group) {
            Some(Due::Now) => true,
            // If memory for more entries is lacking, none are asked for.
            Some(Due::IfAlone) => {
                let no_more = self.manifest.has_every_name() || self.session.pressure().is_cramped;
                self.session.is_ending() || no_more && !self.others_may_join()
            }
            None => false,
        };
        if begins {
            let batch = self.committer.begin();
            self.actions.push(ReceiverAction::Barrier(batch));
        }
    }

    /// Whether an entry that is not staged yet may still join the batch. (Directory ends and names
    /// of files that are not committed wait for batches, not the reverse.)
    fn others_may_join(&self) -> bool {
        self.manifest.len_without_ends() - self.manifest.waiting.len() > self.committer.waiting()
    }

    /// The batch is durable under temporary names, but for the files that it gives: their target
    /// did not answer in time, and they wait for another batch. Or that failed and none of it may
    /// be believed.
    pub fn handle_barrier(&mut self, now: Timestamp, result: Result<Vec<FileId>, Fault>) {
        if self.is_over() || self.committer.stage != Some(BatchStage::Barrier) {
            return;
        }
        match result {
            Ok(postponed) => {
                self.postpone(now, postponed);
                self.barrier_held();
            }
            Err(fault) => self.doubt_content(fault),
        }
        self.settle_down(now);
    }

    /// Takes files out of the batch whose target did not answer in time. Files that a failed sync
    /// has left in doubt are waited for instead: a later sync of them would prove nothing.
    fn postpone(&mut self, now: Timestamp, postponed: Vec<FileId>) {
        if self.committer.doubt.is_some() {
            return self.fail_postponed(postponed);
        }
        let of_batch = postponed.into_iter().filter(|id| self.committer.batch.contains(id)).collect::<Vec<_>>();
        let files = of_batch.into_iter().map(|id| {
            let (bytes, _) = self.staged(id);
            PostponedFile { id, bytes, is_large: self.large(id).is_some() }
        });
        let files = files.collect();
        self.committer.postpone(now, files);
    }

    /// Goes on with a durable batch: its small files are read back if that is asked for and was not
    /// done for a doubt. (Chunks were read back before.)
    fn barrier_held(&mut self) {
        if self.committer.batch.is_empty() {
            return self.committer.leave();
        }
        let small = if self.config.read_back { self.small_of_batch() } else { Vec::new() };
        if small.is_empty() || self.committer.doubt.is_some() {
            return self.publish();
        }
        self.committer.enter(BatchStage::ReadBack);
        self.committer.reading = small.clone();
        self.actions.push(ReceiverAction::ReadStaged { files: small, why: ReadBackReason::Verify });
    }

    /// The roots of small files of the batch, as the medium gives them back. A file with another
    /// root leaves the batch and is wanted again, or fails after its last attempt. A file without a
    /// result fails.
    pub fn handle_read_staged(&mut self, now: Timestamp, results: Vec<(FileId, Result<Hash32, Fault>)>) {
        if self.is_over() || self.committer.stage != Some(BatchStage::ReadBack) {
            return;
        }
        if self.committer.doubt.is_some() {
            self.proven(results);
            return self.settle_down(now);
        }
        let mut results: HashMap<_, _> = results.into_iter().collect();
        for id in std::mem::take(&mut self.committer.reading) {
            let (len, root) = self.staged(id);
            let fault = match results.remove(&id) {
                Some(Ok(found)) => {
                    self.tally.read_back += len;
                    if root == Some(found) {
                        continue;
                    }
                    self.tally.misread += len;
                    if self.want_small_again(id) {
                        self.committer.batch.retain(|of| *of != id);
                        continue;
                    }
                    let placed = self.manifest.get(id).map(|slot| slot.entry.placed.escaped().to_string());
                    misread(format_args!(
                        "the disk gives back other bytes than were written to it, {ATTEMPTS_MAX} times"
                    ))
                    .about(placed.unwrap_or_default())
                }
                Some(Err(fault)) => fault,
                None => forgotten(),
            };
            self.committer.failures.insert(id, fault);
        }
        self.publish();
        self.settle_down(now);
    }

    /// Orders the renames of all files of the batch that have not failed.
    fn publish(&mut self) {
        self.committer.doubt = None;
        self.committer.enter(BatchStage::Publish);
        let good = self.committer.batch.iter().filter(|id| !self.committer.failures.contains_key(id));
        let replace = |id: &FileId| self.manifest.get(*id).map_or(Replace::Never, |slot| slot.replace);
        let renames = good.map(|id| (*id, replace(id))).collect();
        self.actions.push(ReceiverAction::Publish(renames));
    }

    /// The batch is renamed, file by file. A file without a result counts as not renamed.
    pub fn handle_publish(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        if self.is_over() || self.committer.stage != Some(BatchStage::Publish) {
            return;
        }
        self.committer.enter(BatchStage::SyncDirs);
        let mut results: HashMap<_, _> = results.into_iter().collect();
        let mut renamed = Vec::with_capacity(self.committer.batch.len());
        for id in &self.committer.batch {
            match results.remove(id) {
                _ if self.committer.failures.contains_key(id) => {}
                Some(Ok(())) => renamed.push(*id),
                Some(Err(fault)) => drop(self.committer.failures.insert(*id, fault)),
                None => drop(self.committer.failures.insert(*id, forgotten())),
            }
        }
        self.committer.renamed = renamed.iter().copied().collect();
        self.actions.push(ReceiverAction::SyncDirs(renamed));
        self.settle_down(now);
    }

    /// The session has no right to rename the batch, and nothing of it was renamed. The session
    /// ends by that; no file has failed, and what is written of large ones stays for the next one.
    pub fn handle_publish_refused(&mut self, now: Timestamp, fault: &Fault) {
        if self.is_over() || self.committer.stage != Some(BatchStage::Publish) {
            return;
        }
        self.session.bar(fault);
        let failed = self.committer.batch.iter().map(|id| (*id, fault.clone()));
        self.committer.failures.extend(failed);
        self.settle_batch(&Ok(()));
        self.settle_down(now);
    }

    /// The renames are durable, and the batch is committed. Or they are not: the renamed files
    /// stand whole under their final names, but fail if they stay in doubt, as an acknowledged file
    /// must survive a crash.
    pub fn handle_sync_dirs(&mut self, now: Timestamp, result: Result<(), Fault>) {
        if self.is_over() || self.committer.stage != Some(BatchStage::SyncDirs) {
            return;
        }
        match result {
            Ok(()) => self.settle_batch(&Ok(())),
            Err(fault) => self.doubt_names(fault),
        }
        self.settle_down(now);
    }

    /// Settles the batch: failed files each with their fault, the others with `renamed`.
    pub(super) fn settle_batch(&mut self, renamed: &Result<(), Fault>) {
        self.committer.leave();
        self.committer.doubt = None;
        let stands = std::mem::take(&mut self.committer.renamed);
        let mut failures = std::mem::take(&mut self.committer.failures);
        for id in std::mem::take(&mut self.committer.batch) {
            match (failures.remove(&id), renamed) {
                (Some(fault), _) if stands.contains(&id) => self.finish(id, Outcome::Failed(fault)),
                (Some(fault), _) => {
                    let leftover = match self.leftover(id, &fault) {
                        Leftover::Keep => ReceiverAction::Release(id),
                        Leftover::Discard => {
                            let durable = self.large(id).map_or(0, |large| large.durable);
                            self.tally.durable = self.tally.durable.saturating_sub(durable);
                            ReceiverAction::Discard(id)
                        }
                    };
                    self.actions.push(leftover);
                    self.finish(id, Outcome::Failed(fault));
                }
                (None, Err(fault)) => self.finish(id, Outcome::Failed(fault.clone())),
                (None, Ok(())) => {
                    if let Some(EntryState::Linked(root)) = self.manifest.get(id).map(|slot| &slot.state) {
                        let root = *root;
                        self.finish(id, Outcome::Linked(root));
                        continue;
                    }
                    let (bytes, root) = self.staged(id);
                    let is_large = self.large(id).is_some();
                    self.tally.durable = self.tally.durable.saturating_add(bytes);
                    self.finish(id, Outcome::Committed(root));
                    if is_large {
                        self.journal.add(JournalEntry::Done(id));
                    }
                }
            }
        }
    }

    /// The fate of the temporary of a file that was not renamed.
    fn leftover(&mut self, id: FileId, fault: &Fault) -> Leftover {
        let keeps = self.large(id).is_some() && (fault.code.keeps_partial() || self.session.is_barred());
        if keeps { Leftover::Keep } else { Leftover::Discard }
    }
}

fn forgotten() -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, "a file was left out when its batch was renamed")
}
