//! The last steps: staged files gather into batches; a batch is made durable, renamed, and made
//! durable again.
//!
//! barrier (data and metadata of all) -> (read back what came in bundles) -> publish (rename all)
//! -> sync directories -> settle all. What an error at a barrier, or behind the renames, leaves of
//! a batch is decided in `doubt`. One batch is under way at a time; what is staged meanwhile makes
//! the next one, so that batches grow as large as syncing is slow.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{ATTEMPTS_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{Blame, Fault, FaultCode, FileId};

use super::doubt::Doubt;
use super::flow::LARGE_OPEN_MAX;
use super::journal::JournalEntry;
use super::large::Leftover;
use super::readback::misread;
use super::{ReadBackReason, Receiver, ReceiverAction, Replace, SyncGroup};
use crate::time::Timestamp;
use crate::wire::message::Outcome;

/// Staged files on their way to their final names.
#[derive(Debug, Default)]
pub(super) struct Committer {
    /// Staged, not yet in a batch.
    pub(super) gathered: Vec<FileId>,
    gathered_bytes: u64,
    gathered_large: usize,
    since: Option<Timestamp>,
    /// The batch under way, in the order of its renames.
    pub(super) batch: Vec<FileId>,
    pub(super) stage: Option<BatchStage>,
    /// Those of it that were renamed.
    renamed: HashSet<FileId>,
    /// Files of the batch that fail, and why.
    pub(super) failures: HashMap<FileId, Fault>,
    /// Files of the batch that are being read back.
    pub(super) reading: Vec<FileId>,
    /// A sync of the batch failed.
    pub(super) doubt: Option<Doubt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchStage {
    Barrier,
    ReadBack,
    Publish,
    SyncDirs,
}

/// A batch begins at once when it has so many files, ...
const BATCH_FILES: usize = ENTRIES_UNSETTLED_MAX / 8;
/// ... or so many bytes that were not synced yet (never more than a group: wants stop when too much
/// is not durable), ...
const BATCH_BYTES: u64 = 256 << 20;
/// ... or holds so many descriptors that others wait for, ...
const BATCH_LARGE: usize = LARGE_OPEN_MAX / 2;
/// ... or its oldest file has waited so long, or nothing else is under way.
const BATCH_WAIT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Now,
    IfAlone,
}

impl Committer {
    /// A file is staged, with `bytes` that are not durable.
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
        self.is_busy() || !self.gathered.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        if self.stage.is_some() { None } else { self.since.map(|t| t.after(BATCH_WAIT)) }
    }

    /// Whether a batch may begin now if nothing else is about to join it, and whether it must not
    /// wait for others.
    fn due(&self, now: Timestamp, group: SyncGroup) -> Option<Due> {
        let deadline = self.deadline()?;
        let full = self.gathered.len() >= BATCH_FILES
            || self.gathered_bytes >= BATCH_BYTES.min(group.bytes)
            || self.gathered_large >= BATCH_LARGE
            || now >= deadline;
        Some(if full { Due::Now } else { Due::IfAlone })
    }

    /// Makes what was gathered the batch under way.
    fn begin(&mut self) -> Vec<FileId> {
        self.batch = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        self.gathered_large = 0;
        self.since = None;
        self.stage = Some(BatchStage::Barrier);
        self.batch.clone()
    }
}

impl Receiver {
    /// Begins a batch when one is due.
    pub(super) fn move_batch(&mut self, now: Timestamp) {
        let begins = match self.committer.due(now, self.config.group) {
            Some(Due::Now) => true,
            // Where there is no memory for more entries none are asked for.
            Some(Due::IfAlone) => {
                let no_more = self.pages.last_seen || self.is_cramped;
                self.fatal.is_some() || no_more && !self.others_may_join()
            }
            None => false,
        };
        if begins {
            let batch = self.committer.begin();
            self.actions.push_back(ReceiverAction::Barrier(batch));
        }
    }

    /// Whether anything is still on its way to being staged while no batch is under way. (Directory
    /// ends wait for batches, not the reverse.)
    fn others_may_join(&self) -> bool {
        self.entries.len() > self.dir_ends + self.committer.gathered.len()
    }

    /// The batch is durable under temporary names (or nothing of it may be believed).
    pub fn handle_barrier(&mut self, now: Timestamp, result: Result<(), Fault>) {
        if self.is_over() || self.committer.stage != Some(BatchStage::Barrier) {
            return;
        }
        match result {
            Ok(()) => self.barrier_held(),
            Err(fault) => self.doubt_content(fault),
        }
        self.settle_down(now);
    }

    /// The batch is durable: small files are read back if that is asked for (chunks have been, and
    /// what was in doubt was).
    fn barrier_held(&mut self) {
        let small = if self.config.read_back { self.small_of_batch() } else { Vec::new() };
        if small.is_empty() || self.committer.doubt.is_some() {
            return self.publish();
        }
        self.committer.stage = Some(BatchStage::ReadBack);
        self.committer.reading = small.clone();
        self.actions.push_back(ReceiverAction::ReadStaged { files: small, why: ReadBackReason::Verify });
    }

    /// What the small files of the batch are on the medium. One that is not what it was leaves the
    /// batch and is wanted again, or is not renamed; nor is one without a result.
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
                    let placed = self.entries.get(&id).map(|slot| slot.entry.placed.escaped().to_string());
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

    /// Renames the batch, but for what has failed already.
    fn publish(&mut self) {
        self.committer.doubt = None;
        self.committer.stage = Some(BatchStage::Publish);
        let good = self.committer.batch.iter().filter(|id| !self.committer.failures.contains_key(id));
        let replace = |id| self.entries.get(id).map_or(Replace::Never, |slot| slot.replace);
        let renames = good.map(|id| (*id, replace(id))).collect();
        self.actions.push_back(ReceiverAction::Publish(renames));
    }

    /// The batch is renamed, file by file. A file without a result is taken for not renamed.
    pub fn handle_publish(&mut self, now: Timestamp, results: Vec<(FileId, Result<(), Fault>)>) {
        if self.is_over() || self.committer.stage != Some(BatchStage::Publish) {
            return;
        }
        self.committer.stage = Some(BatchStage::SyncDirs);
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
        self.actions.push_back(ReceiverAction::SyncDirs(renamed));
        self.settle_down(now);
    }

    /// The renames are durable: the batch is committed. If they are not, those renamed stand under
    /// their final names, whole, but fail: what is acknowledged must survive.
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

    /// Ends the batch: files that failed have each its reason, the others have `renamed`.
    pub(super) fn settle_batch(&mut self, renamed: &Result<(), Fault>) {
        (self.committer.stage, self.committer.doubt) = (None, None);
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
                    self.actions.push_back(leftover);
                    self.finish(id, Outcome::Failed(fault));
                }
                (None, Err(fault)) => self.finish(id, Outcome::Failed(fault.clone())),
                (None, Ok(())) => {
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

    /// What becomes of the temporary of a file that was not renamed.
    fn leftover(&mut self, id: FileId, fault: &Fault) -> Leftover {
        let keeps = self.large(id).is_some() && fault.code.keeps_partial();
        if keeps { Leftover::Keep } else { Leftover::Discard }
    }
}

pub(super) fn forgotten() -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, "a file was left out when its batch was renamed")
}
