//! The count of a shard's files, as the engine tells of them.
//!
//! In: the items of a shard, and events of its transfers. Out: what stands, what failed and why,
//! and the wish to stop where nearly all files fail alike. Each file is counted once, with its
//! bytes by the manifest. Must not know the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Blame, FaultCode, Hash32, Mtime, PlainText, RelPath};
use longhaul_engine::{Event, ExpectedFile, ExpectedFiles, FileEvent, FileStatus, Observer, StopTrigger};
use longhaul_jobs::queue::FileFault;
use longhaul_jobs::{AlikeWatch, Amount, Hold};
use longhaul_manifest::{Item, ItemKind};

/// The count. It hears the engine.
pub(super) struct Tally(Mutex<TallyCounts>);

/// The figures of a shard in one claim.
struct TallyCounts {
    files: BTreeMap<RelPath, ShardFile>,
    /// Files that were sent, and whose digest is known.
    sent: u64,
    watch: AlikeWatch,
    hold: Option<Hold>,
    /// A fault of a file that is really that of the destination.
    destination_fault: Option<FaultCode>,
    is_welcome: bool,
    is_claim_kept: bool,
    is_unheard: bool,
    /// Bytes that became durable in earlier transfers of this claim, and in this one.
    moved_before: u64,
    moved: u64,
    trigger: Option<StopTrigger>,
    /// Whether what was read counts as moved: a commit moves nothing, and reads all.
    counts_reading: bool,
}

/// A file of a shard.
#[derive(Clone, Debug)]
pub(super) struct ShardFile {
    /// Its length by the manifest.
    pub(super) bytes: u64,
    /// Its time by the manifest.
    pub(super) mtime: Option<Mtime>,
    /// Whether it is a regular file: else a link.
    pub(super) is_regular: bool,
    /// Its BLAKE3, if it was sent in this claim.
    pub(super) b3: Option<Hash32>,
    outcome: FileOutcome,
}

/// The outcome of a file.
#[derive(Clone, Debug)]
enum FileOutcome {
    Open,
    Stands,
    Failed(FileFault),
}

/// The figures of a tally at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TallyFigures {
    /// Files that stand at the destination.
    pub(super) done: Amount,
    /// Bytes that became durable.
    pub(super) moved: u64,
    /// The reason to hold the shard, if nearly all files fail alike.
    pub(super) hold: Option<Hold>,
    /// The fault of the destination that files failed with.
    pub(super) destination_fault: Option<FaultCode>,
    /// Whether a session had begun.
    pub(super) is_welcome: bool,
    /// Whether a destination has kept a claim.
    pub(super) is_claim_kept: bool,
    /// Whether files were settled of which it was not told.
    pub(super) is_unheard: bool,
}

impl Tally {
    /// The tally of these items, of which `given_up` are left out.
    pub(super) fn new(items: &[Item], given_up: &[Vec<u8>], watch: AlikeWatch) -> Tally {
        let mut files = BTreeMap::new();
        let given_up: BTreeSet<&[u8]> = given_up.iter().map(Vec::as_slice).collect();
        for item in items {
            if given_up.contains(item.path.as_bytes()) {
                continue;
            }
            let is_regular = matches!(item.kind, ItemKind::File { .. });
            let (bytes, mtime, outcome) = (item.bytes(), item.mtime, FileOutcome::Open);
            files.insert(item.path.clone(), ShardFile { bytes, mtime, is_regular, b3: None, outcome });
        }
        Tally(Mutex::new(TallyCounts {
            files,
            sent: 0,
            watch,
            hold: None,
            destination_fault: None,
            is_welcome: false,
            is_claim_kept: false,
            is_unheard: false,
            moved_before: 0,
            moved: 0,
            trigger: None,
            counts_reading: false,
        }))
    }

    /// The tally of a commit, whose files are those of all shards. They are not counted one by one.
    pub(super) fn of_commit() -> Tally {
        let tally = Tally::new(&[], &[], AlikeWatch::default());
        tally.counts().counts_reading = true;
        tally
    }

    fn counts(&self) -> MutexGuard<'_, TallyCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files that were sent in this claim, and whose digest is known.
    pub(super) fn sent(&self) -> u64 {
        self.counts().sent
    }

    /// A transfer begins, which this stops.
    pub(super) fn begin(&self, trigger: StopTrigger) {
        let mut counts = self.counts();
        counts.moved_before = counts.moved_before.saturating_add(counts.moved);
        (counts.moved, counts.trigger) = (0, Some(trigger));
    }

    /// The figures.
    pub(super) fn figures(&self) -> TallyFigures {
        let counts = self.counts();
        let stands = counts.files.values().filter(|file| matches!(file.outcome, FileOutcome::Stands));
        let done = stands.fold(Amount::default(), |sum, file| Amount {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(file.bytes),
        });
        TallyFigures {
            done,
            moved: counts.moved_before.saturating_add(counts.moved),
            hold: counts.hold,
            destination_fault: counts.destination_fault,
            is_welcome: counts.is_welcome,
            is_claim_kept: counts.is_claim_kept,
            is_unheard: counts.is_unheard,
        }
    }

    /// The files that are not settled.
    pub(super) fn open(&self) -> Vec<(RelPath, ShardFile)> {
        self.of(|outcome| matches!(outcome, FileOutcome::Open))
    }

    /// The files that are not settled, as the manifest says that they are.
    pub(super) fn expected(&self) -> ExpectedFiles {
        let expected = |file: ShardFile| match file.is_regular {
            true => ExpectedFile::File { bytes: file.bytes, mtime: file.mtime },
            false => ExpectedFile::Link,
        };
        self.open().into_iter().map(|(path, file)| (path, expected(file))).collect()
    }

    /// The files that stand, as far as the engine knows.
    pub(super) fn standing(&self) -> Vec<(RelPath, ShardFile)> {
        self.of(|outcome| matches!(outcome, FileOutcome::Stands))
    }

    fn of(&self, which: impl Fn(&FileOutcome) -> bool) -> Vec<(RelPath, ShardFile)> {
        let counts = self.counts();
        let files = counts.files.iter().filter(|(_, file)| which(&file.outcome));
        files.map(|(path, file)| (path.clone(), file.clone())).collect()
    }

    /// A file failed by what this mover saw itself, whatever was told of it before.
    pub(super) fn fail(&self, path: &RelPath, code: FaultCode, message: impl std::fmt::Display) {
        let message = PlainText::of(message);
        self.counts().fail(path, (code, Blame::Local), &message);
    }

    /// The dataset has appeared that has all of the files.
    pub(super) fn all_stand(&self) {
        let mut counts = self.counts();
        let open = counts.files.values_mut().filter(|file| matches!(file.outcome, FileOutcome::Open));
        open.for_each(|file| file.outcome = FileOutcome::Stands);
    }

    /// The files that failed.
    pub(super) fn faults(&self) -> Vec<FileFault> {
        let counts = self.counts();
        let failed = counts.files.values().filter_map(|file| match &file.outcome {
            FileOutcome::Failed(fault) => Some(fault.clone()),
            FileOutcome::Open | FileOutcome::Stands => None,
        });
        failed.collect()
    }

    /// The shard is through. Gives the reason to hold it instead.
    pub(super) fn finish(&self) -> Option<Hold> {
        self.counts().watch.finish()
    }
}

impl TallyCounts {
    fn file(&mut self, event: &FileEvent) {
        if self.counts_reading && !matches!(event.status, FileStatus::Failed(_)) {
            self.moved = self.moved.saturating_add(event.bytes);
        }
        let Some(known) = self.files.get_mut(&event.path) else { return };
        if !matches!(known.outcome, FileOutcome::Open) {
            return;
        }
        match &event.status {
            FileStatus::Failed(fault) => {
                if matches!(fault.code, FaultCode::NoSpace | FaultCode::ReadOnly | FaultCode::TargetFailed) {
                    self.destination_fault.get_or_insert(fault.code);
                }
                self.fail(&event.path, (fault.code, fault.blame), &fault.message);
            }
            FileStatus::Committed | FileStatus::Skipped if known.is_regular && event.bytes != known.bytes => {
                let message = format!(
                    "the source '{}' has {} bytes, and had {} when the campaign was planned",
                    event.path.escaped(),
                    event.bytes,
                    known.bytes
                );
                self.fail(&event.path, (FaultCode::Changed, Blame::Local), &PlainText::from(message.as_str()));
            }
            FileStatus::Committed | FileStatus::Skipped | FileStatus::Linked => {
                known.b3 = event.b3.filter(|_| matches!(event.status, FileStatus::Committed));
                known.outcome = FileOutcome::Stands;
                self.sent += u64::from(known.b3.is_some());
                self.settle(None);
            }
            FileStatus::Planned | FileStatus::Staged => {}
        }
    }

    fn fail(&mut self, path: &RelPath, (code, blame): (FaultCode, Blame), message: &PlainText) {
        let Some(known) = self.files.get_mut(path) else { return };
        let was_open = matches!(known.outcome, FileOutcome::Open);
        known.outcome = FileOutcome::Failed(FileFault {
            path: path.as_bytes().to_vec(),
            bytes: known.bytes,
            code,
            blame,
            message: message.clone(),
        });
        if was_open {
            self.settle(Some(code));
        }
    }

    fn settle(&mut self, failed: Option<FaultCode>) {
        if let Some(hold) = self.watch.settle(failed)
            && self.hold.is_none()
        {
            self.hold = Some(hold);
            if let Some(trigger) = &self.trigger {
                trigger.stop(FaultCode::Terminated);
            }
        }
    }
}

impl Observer for Tally {
    fn claim_kept(&self) {
        self.counts().is_claim_kept = true;
    }

    fn event(&self, event: Event) {
        match event {
            Event::Start(_) => self.counts().is_welcome = true,
            Event::Progress(progress) => {
                let mut counts = self.counts();
                counts.moved = counts.moved.max(progress.bytes_durable.saturating_sub(progress.bytes_resumed));
            }
            Event::File(file) => self.counts().file(&file),
            Event::Unheard(names) => self.counts().is_unheard |= names > 0,
            Event::Skipped { path, message, .. } => {
                if let Ok(path) = RelPath::new(path) {
                    self.counts().fail(&path, (FaultCode::Changed, Blame::Local), &PlainText::from(message.as_str()));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_manifest::Sums;

    use super::*;

    fn event(path: &str, status: FileStatus) -> Event {
        let (path, own, sums) = (RelPath::new(path).unwrap(), Default::default(), Sums::default());
        let (placed, b3, regular, renamed) = (path.clone(), None, true, false);
        Event::File(FileEvent { path, placed, status, bytes: 5, b3, regular, renamed, own, sums })
    }

    #[test]
    fn what_a_commit_has_read_counts_as_moved_and_its_files_as_none() {
        let tally = Tally::of_commit();
        tally.event(event("a", FileStatus::Skipped));
        tally.event(event("b", FileStatus::Skipped));
        let figures = tally.figures();
        assert_eq!((figures.moved, figures.done), (10, Amount::default()));
        let shard = Tally::new(&[], &[], AlikeWatch::default());
        shard.event(event("a", FileStatus::Skipped));
        assert_eq!(shard.figures().moved, 0);
    }

    #[test]
    fn the_files_of_a_dataset_that_has_appeared_stand() {
        let items = ["a", "b"].map(|path| Item::file(RelPath::new(path).unwrap(), Some(3), Sums::default()));
        let tally = Tally::new(&items, &[], AlikeWatch::default());
        tally.all_stand();
        assert_eq!((tally.figures().done, tally.open().len()), (Amount { files: 2, bytes: 6 }, 0));
    }
}
