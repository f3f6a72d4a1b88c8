//! Owns the pools of the destination side: runs a job on one of them and reports its outcome to the
//! session loop.
//!
//! In: jobs. Out: the report of each, in which faults for want of room name what is short. It knows
//! no files and does not know what a job does.

use std::sync::Arc;

use longhaul_core::Fault;
use longhaul_disk::{Affinity, DiskError, TargetTree};
use tokio::sync::mpsc::UnboundedSender;

use super::{DestinationDone, SessionEvent, Whereabouts};
use crate::cpu::{Stage, StageTimes};
use crate::faults::system_fault;
use crate::workers::Workers;

/// The pools of the destination side, and the way by which jobs report.
pub(super) struct DestinationJobs {
    reporter: JobReporter,
    /// Held once by each job that is under way or waits for its turn.
    under_way: Arc<()>,
    survey: Workers,
    stage: Workers,
    /// `None`: files are sealed where they are staged.
    seal: Option<Workers>,
    sync: Workers,
    commit: Workers,
    journal: Workers,
    /// Measures room while files are open; it waits for no other work.
    room: Workers,
}

/// The means by which a job of any thread does its work and reports it.
#[derive(Clone)]
pub(super) struct JobReporter {
    tree: Arc<dyn TargetTree>,
    sink: UnboundedSender<SessionEvent>,
    times: StageTimes,
    whereabouts: Arc<Whereabouts>,
}

/// A pool of the destination side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// Looks at names, one page after the other.
    Survey,
    /// Creates, writes and seals, several files at a time.
    Stage,
    /// Seals files that lie on several targets, and waits for each of these.
    Seal,
    /// Syncs the data of files.
    Sync,
    /// Commits batches, one step after the other.
    Commit,
    /// Writes the journal, and does what must come after an earlier record.
    Journal,
    /// Measures room.
    Room,
}

impl DestinationJobs {
    /// Starts the pools.
    pub(super) fn start(
        tree: Arc<dyn TargetTree>,
        whereabouts: Whereabouts,
        affinity: &Affinity,
        times: StageTimes,
        sink: UnboundedSender<SessionEvent>,
    ) -> Result<DestinationJobs, Fault> {
        // One that hangs keeps a thread.
        let targets = tree.loads().len();
        let syncers = if targets > 1 { (SYNCERS + targets).min(SYNCERS_MAX) } else { SYNCERS };
        let pool = |name, n| Workers::start(name, n, affinity).map_err(|e| system_fault("file threads", &e));
        Ok(DestinationJobs {
            reporter: JobReporter { tree, sink, times, whereabouts: Arc::new(whereabouts) },
            under_way: Arc::default(),
            survey: pool("survey", 1)?,
            stage: pool("stage", STAGERS)?,
            // Files that are begun go on beside those that wait for a target that hangs.
            seal: (targets > 1).then(|| pool("seal", syncers)).transpose()?,
            sync: pool("sync", syncers)?,
            commit: pool("commit", 1)?,
            journal: pool("journal", 1)?,
            room: pool("room", 1)?,
        })
    }

    /// Runs `job` on a pool and sends its report.
    pub(super) fn report(&self, pool: Pool, job: impl FnOnce(&dyn TargetTree) -> DestinationDone + Send + 'static) {
        let (reporter, under_way) = (self.reporter.clone(), self.under_way.clone());
        self.run(pool, move || {
            let mut report = reporter.times.count(Stage::Files, || job(&*reporter.tree));
            report.each_fault(|fault| reporter.whereabouts.name_shortage(&*reporter.tree, fault));
            drop(under_way);
            reporter.say(report);
        });
    }

    /// Runs `job` on a pool. It reports nothing, and does not count as under way.
    pub(super) fn run(&self, pool: Pool, job: impl FnOnce() + Send + 'static) {
        let workers = match pool {
            Pool::Survey => &self.survey,
            Pool::Stage => &self.stage,
            Pool::Seal => self.seal.as_ref().unwrap_or(&self.stage),
            Pool::Sync => &self.sync,
            Pool::Commit => &self.commit,
            Pool::Journal => &self.journal,
            Pool::Room => &self.room,
        };
        workers.run(job);
    }

    /// The means for a job on another thread.
    pub(super) fn reporter(&self) -> &JobReporter {
        &self.reporter
    }

    /// The number of jobs that are under way or wait for their turn.
    pub(super) fn under_way(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }

    /// Whether as many jobs are under way as files are staged at a time.
    pub(super) fn is_full(&self) -> bool {
        self.under_way() >= STAGERS
    }
}

impl JobReporter {
    /// The tree to which the session writes.
    pub(super) fn tree(&self) -> &Arc<dyn TargetTree> {
        &self.tree
    }

    /// The counters of processor time.
    pub(super) fn times(&self) -> &StageTimes {
        &self.times
    }

    /// Sends a report.
    pub(super) fn say(&self, report: DestinationDone) {
        let _ = self.sink.send(SessionEvent::Wrote(report));
    }

    /// The fault of an error of the disk. If it is for want of room, it names what is short.
    pub(super) fn fault(&self, error: &DiskError) -> Fault {
        let mut fault = error.fault();
        self.whereabouts.name_shortage(&*self.tree, &mut fault);
        fault
    }
}

/// Threads that create, write and seal: creating names waits for the directory's lock more than for
/// the processor.
const STAGERS: usize = 4;
/// Group syncs at a time. There is one more for each of several targets, ...
const SYNCERS: usize = 2;
/// ... up to so many in all.
const SYNCERS_MAX: usize = 16;
