//! Jobs of the receiving doer: steps one after the other, then a report. A step is an operation, or
//! one that the journal's machine turns into operations when it is reached.
//!
//! Jobs run beside each other, but those that append to the journal one at a time, and surveys in
//! order. An operation that fails ends its job, or the part of it that belongs to one entry. Knows
//! nothing of the reasons for jobs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkIndex, Fault, FileId, SessionTag};
use longhaul_proto::receiver::{self, Base, Created, EntryRef, Named};

use super::book::JournalStep;
use crate::fs::{Op, OpId};

/// The condition under which a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// While nothing has failed.
    Well,
    /// To clean up after something failed; how it ends does not matter.
    Failed,
    /// In any case; how it ends does not matter.
    Anyway,
}

/// The work of a step.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// An operation.
    Disk(Op),
    /// A step that the journal's machine turns into operations.
    Journal(JournalStep),
}

/// One step of a job.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The work of it.
    pub(super) work: Work,
    /// The entry that alone fails with it. `None` if the job does.
    pub(super) item: Option<FileId>,
    when: When,
    /// The change of a journal that it belongs to.
    change: Option<ChangePart>,
}

/// The place of an operation in a change of a journal.
#[derive(Clone, Copy, Debug)]
enum ChangePart {
    /// Others of the same change follow.
    Within(SessionTag),
    /// The change is done when it is.
    Last(SessionTag),
}

/// A step that has ended.
#[derive(Debug)]
pub(super) enum StepEnd {
    /// Well, and a change of this journal with it.
    ChangeDone(SessionTag),
    /// Badly, and a change of this journal with it.
    ChangeFailed(SessionTag, Op),
    /// In any other way.
    Other,
}

impl Step {
    pub(super) fn new(op: Op) -> Step {
        Step { work: Work::Disk(op), item: None, when: When::Well, change: None }
    }

    /// A step of the journal's machine.
    pub(super) fn journal(step: JournalStep) -> Step {
        Step { work: Work::Journal(step), item: None, when: When::Well, change: None }
    }

    /// Marks an operation of a change of a journal, behind which others follow.
    pub(super) fn within_change(mut self, journal: SessionTag) -> Step {
        self.change = Some(ChangePart::Within(journal));
        self
    }

    /// Marks the last operation of a change of a journal.
    pub(super) fn ending_change(mut self, journal: SessionTag) -> Step {
        self.change = Some(ChangePart::Last(journal));
        self
    }

    /// Ties the step to one entry: if it fails, the others go on.
    pub(super) fn of(mut self, item: FileId) -> Step {
        self.item = Some(item);
        self
    }

    pub(super) fn if_failed(mut self) -> Step {
        self.when = When::Failed;
        self
    }

    pub(super) fn anyway(mut self) -> Step {
        self.when = When::Anyway;
        self
    }
}

/// The report when a job is done.
#[derive(Clone, Debug)]
pub(super) enum Then {
    Opened,
    /// With the directories that were synced for it.
    Surveyed(Vec<Arc<EntryRef>>, Vec<String>),
    Measured,
    Created(FileId, Created),
    Written(FileId, ChunkIndex),
    Standing(Vec<Arc<EntryRef>>),
    SkippedDigested(Vec<Arc<EntryRef>>),
    StandingChunks(Base, Vec<ChunkIndex>),
    Retouched(Vec<FileId>),
    Staged(Vec<FileId>),
    /// Another name of a file is not made.
    NotNamed(FileId, Named),
    /// Another name of a file is made.
    Named(FileId, Option<Hash32>),
    /// With the chunks that it should cover.
    Synced(FileId, BTreeSet<ChunkIndex>),
    ReadBack(FileId, Vec<ChunkIndex>),
    ReadInOrder(FileId, Vec<ChunkIndex>),
    StagedReadBack(Vec<FileId>),
    Journalled(Vec<receiver::JournalEntry>),
    /// With the files that it postpones.
    Barrier(Vec<FileId>),
    Published(Vec<FileId>),
    DirsSynced,
    DirsFinished(Vec<FileId>),
    Tidied,
    Nothing,
    Closed,
}

/// The queue in which jobs wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    None,
    Journal,
    Survey,
}

/// Something to be done.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) queue: Queue,
    steps: VecDeque<Step>,
    pub(super) then: Then,
    running: Option<(OpId, Step)>,
    /// The error of all of it, or of single entries of it.
    pub(super) failed: Option<Fault>,
    items_failed: BTreeMap<FileId, Fault>,
}

impl Job {
    pub(super) fn new(then: Then) -> Job {
        Job {
            queue: Queue::None,
            steps: VecDeque::new(),
            then,
            running: None,
            failed: None,
            items_failed: BTreeMap::new(),
        }
    }

    pub(super) fn step(mut self, step: Step) -> Job {
        self.steps.push_back(step);
        self
    }

    pub(super) fn op(self, op: Op) -> Job {
        self.step(Step::new(op))
    }

    pub(super) fn ops(self, ops: impl IntoIterator<Item = Op>) -> Job {
        ops.into_iter().fold(self, Job::op)
    }

    pub(super) fn in_order(mut self, queue: Queue) -> Job {
        self.queue = queue;
        self
    }

    /// A step of the journal's machine; such jobs are done one after the other.
    pub(super) fn journal(self, step: JournalStep) -> Job {
        self.in_order(Queue::Journal).step(Step::journal(step))
    }

    /// Puts steps before all that are left, for the entry that they belong to.
    pub(super) fn prepend(&mut self, steps: Vec<Step>, item: Option<FileId>) {
        steps.into_iter().rev().for_each(|step| self.steps.push_front(Step { item, ..step }));
    }

    /// The next step to begin, if any is left.
    pub(super) fn next(&mut self) -> Option<Step> {
        while let Some(step) = self.steps.pop_front() {
            let failed = self.failed.is_some() || step.item.is_some_and(|item| self.items_failed.contains_key(&item));
            if step.when == When::Anyway || failed == (step.when == When::Failed) {
                return Some(step);
            }
        }
        None
    }

    pub(super) fn begun(&mut self, id: OpId, step: Step) {
        self.running = Some((id, step));
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Notes the end of its operation.
    pub(super) fn ended(&mut self, result: Result<(), Fault>) -> StepEnd {
        let Some((_, step)) = self.running.take() else { return StepEnd::Other };
        let Step { work: Work::Disk(op), item, when, change } = step else { return StepEnd::Other };
        let has_failed = result.is_err();
        if let Err(fault) = result
            && when == When::Well
        {
            self.fail(item, fault);
        }
        match change {
            Some(ChangePart::Within(journal) | ChangePart::Last(journal)) if has_failed => {
                StepEnd::ChangeFailed(journal, op)
            }
            Some(ChangePart::Last(journal)) => StepEnd::ChangeDone(journal),
            _ => StepEnd::Other,
        }
    }

    /// Notes the failure of all of it, or of one entry.
    pub(super) fn fail(&mut self, item: Option<FileId>, fault: Fault) {
        match item {
            Some(item) => drop(self.items_failed.entry(item).or_insert(fault)),
            None => drop(self.failed.get_or_insert(fault)),
        }
    }

    /// Stops it: no more of its operations begin.
    pub(super) fn cancel(&mut self) {
        self.steps.clear();
    }

    pub(super) fn result(&self) -> Result<(), Fault> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The result for one entry.
    pub(super) fn result_of(&self, item: FileId) -> Result<(), Fault> {
        self.items_failed.get(&item).cloned().map_or(Ok(()), Err).and(self.result())
    }
}
