//! One shard in one claim: its list, its transfers, its heartbeats, its report.
//!
//! In: a shard that was granted. Out: a report to the queue. Files are those of the sealed
//! manifest, never of another scan. If the mover's part of the rate changes, the transfer is
//! stopped in order and goes on with the new rate in the same claim. Must not know which shard is next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, Filter, PathList, RelPath};
use longhaul_engine::{Job, JobDestination, JobSource, RATE_MIN, Settings, Stop, StopTrigger};
use longhaul_jobs::queue::{Beat, BeatAnswer, Finished, Granted, Outcome, Report, beat, finish};
use longhaul_jobs::{AlikeWatch, Amount, JobsError, Rows, Segment, Tenure};

use super::source::{Look, differing};
use super::tally::Tally;
use super::{Halt, Mover, ShardEnd, halted, random};
use crate::jobs::faults::fault_of_jobs;
use crate::jobs::spec::CampaignSpec;

/// A shard with everything that its transfers need.
struct Work {
    job: Job,
    settings: Settings,
    tally: Arc<Tally>,
}

/// The reason why a transfer was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// The mover's part of the rate is another one: the transfer goes on with it.
    Rate(Option<u64>),
    /// The shard is handed back.
    HandBack,
    /// The shard is another mover's.
    Gone,
}

/// Moves a shard as far as it goes, and reports it.
pub(super) async fn move_shard(mover: &Mover, granted: &Granted, stopping: Halt) -> ShardEnd {
    let begun = Instant::now();
    let outcome = match prepare(mover, granted).await {
        Err(fault) => {
            mover.observer.trouble(&fault);
            Some((None, Outcome::Broken { code: fault.code, welcome: false }))
        }
        Ok(work) => {
            let outcome = transfers(mover, granted, &work, (stopping, begun)).await;
            outcome.map(|outcome| (Some(work.tally), outcome))
        }
    };
    let Some((tally, outcome)) = outcome else {
        return ShardEnd { state: None, files_failed: 0, bytes_moved: 0 };
    };
    let figures = tally.map(|tally| tally.figures());
    let files_failed = if let Outcome::Through(faults) = &outcome { faults.len() as u64 } else { 0 };
    let report = Report {
        shard: granted.shard.id,
        claim: granted.shard.claim,
        done: figures.map(|figures| figures.done).unwrap_or_default(),
        moved: figures.map_or(0, |figures| figures.moved),
        outcome,
        chance: random().map_or(0, u64::from_ne_bytes),
    };
    let bytes_moved = report.moved;
    let state = match settle(mover, report).await {
        Ok(Finished::Recorded(state)) => Some(state),
        Ok(Finished::Gone) => None,
        Err(error) => {
            mover.observer.trouble(&fault_of_jobs(&error));
            None
        }
    };
    ShardEnd { state, files_failed, bytes_moved }
}

/// Reports. A report that the rules refuse is a mistake of this program, and holds the shard; a
/// store that fails is tried again some times, and after that the lease lapses.
async fn settle(mover: &Mover, mut report: Report) -> Result<Finished, JobsError> {
    for pause in REPORT_PAUSES {
        let asked = report.clone();
        match mover.queue.transact(move |rows| finish(rows, &asked)).await {
            Err(JobsError::Store { .. }) => tokio::time::sleep(pause).await,
            Err(error @ (JobsError::Miscounted { .. } | JobsError::NamedTwice(_))) => {
                mover.observer.trouble(&fault_of_jobs(&error));
                report.outcome = Outcome::Broken { code: FaultCode::Internal, welcome: true };
                report.done = Amount::default();
            }
            other => return other,
        }
    }
    mover.queue.transact(move |rows| finish(rows, &report)).await
}

/// Reads what the shard is, and leaves out files whose source is another one by now.
async fn prepare(mover: &Mover, granted: &Granted) -> Result<Work, Fault> {
    let spec = CampaignSpec::decode(&granted.campaign.spec)?;
    let (shard, key) = (granted.shard.clone(), granted.campaign.key);
    let segment = mover.queue.transact(move |rows| segment_of(rows, &shard)).await;
    let segment = segment.map_err(|error| fault_of_jobs(&error))?;
    let (shelf, part) = (mover.shelf.clone(), granted.shard.part);
    let listing = blocking(move || shelf.listing(key, &segment, part)).await??;
    let mut items = listing.items;
    if !spec.settings.metadata.preserve.links {
        items.retain(longhaul_manifest::Item::is_file);
    }
    let missing = || Fault::new(FaultCode::Usage, Blame::Local, "the campaign has no source for a shard of it");
    let job = spec.job(listing.source).ok_or_else(missing)?;
    let given_up: Vec<_> = granted.given_up.iter().map(|fault| fault.path.clone()).collect();
    let tally = Arc::new(Tally::new(&items, &given_up, AlikeWatch::of(&granted.shard)));
    let mut settings = Settings { filter: Filter::default(), ..spec.settings };
    settings.memory = mover.orders.memory.unwrap_or(settings.memory);
    Ok(Work { job, settings, tally })
}

fn segment_of(rows: &mut dyn Rows, shard: &longhaul_jobs::Shard) -> Result<Segment, JobsError> {
    let segments = rows.segments(shard.campaign)?;
    let found = segments.into_iter().find(|segment| segment.number == shard.part.segment);
    found.ok_or(JobsError::BadRow("a shard is of a segment that is not there"))
}

/// Runs transfers until the shard is through or its claim is to end. `None`: it is another mover's.
async fn transfers(
    mover: &Mover,
    granted: &Granted,
    work: &Work,
    (mut stopping, begun): (Halt, Instant),
) -> Option<Outcome> {
    let mut rate = granted.rate;
    let mut leased = Leased { granted, begun, tenure: Tenure::new(Duration::ZERO), rate };
    loop {
        mark_changed(work, source_top(&work.job)).await;
        let open: Vec<RelPath> = work.tally.open().into_iter().map(|(path, _)| path).collect();
        if open.is_empty() || work.tally.figures().hold.is_some() {
            return Some(conclude(work, None).await);
        }
        let files_from = Some(Arc::new(PathList::new(&open)));
        let settings = Settings { files_from, rate: lower(work.settings.rate, rate), ..work.settings.clone() };
        let (trigger, stop) = Stop::new();
        work.tally.begin(trigger.clone());
        // A claim at the destination goes with the transfer here: `granted.campaign.key`,
        // `granted.shard.id` and `granted.shard.claim` are what a gate keeps.
        let (job, credentials, observer) = (work.job.clone(), mover.credentials.clone(), work.tally.clone());
        let runtime = tokio::runtime::Handle::current();
        // On a thread of its own: it must not wait while a heartbeat waits for the queue's file.
        let mut running = tokio::task::spawn_blocking(move || {
            runtime.block_on(longhaul_engine::run(job, credentials, settings, observer, stop))
        });
        let (mut stopped, mut is_halted) = (None, false);
        let report = loop {
            tokio::select! {
                report = &mut running => break report,
                () = tokio::time::sleep(leased.next_beat()) => {
                    if let Some(why) = leased.beat(mover, work, &trigger).await {
                        stopped.get_or_insert(why);
                        if why == Stopped::Gone {
                            stopped = Some(why);
                        }
                    }
                }
                _ = halted(&mut stopping), if !is_halted => {
                    is_halted = true;
                    trigger.stop(FaultCode::Terminated);
                    stopped = Some(stopped.filter(|why| *why == Stopped::Gone).unwrap_or(Stopped::HandBack));
                }
            }
        };
        let fault = match report {
            Ok(report) => report.fault,
            Err(error) => Some(Fault::new(FaultCode::Internal, Blame::Bug, error)),
        };
        match (stopped, fault) {
            (Some(Stopped::Gone), _) => return None,
            (_, None) => return Some(conclude(work, None).await),
            (Some(Stopped::Rate(new)), Some(fault)) if fault.code == FaultCode::Terminated => {
                (rate, leased.rate) = (new, new);
            }
            (Some(_), Some(_)) => return Some(Outcome::HandedBack),
            (None, Some(fault)) => return Some(conclude(work, Some((mover, fault))).await),
        }
    }
}

/// The outcome of a transfer that ended by itself.
async fn conclude(work: &Work, ended: Option<(&Mover, Fault)>) -> Outcome {
    let figures = work.tally.figures();
    if let Some(hold) = figures.hold {
        return Outcome::Alike(hold);
    }
    if let Some((mover, fault)) = ended {
        mover.observer.trouble(&fault);
        return Outcome::Broken { code: fault.code, welcome: figures.is_welcome };
    }
    if let Some(code) = figures.destination_fault {
        return Outcome::Broken { code, welcome: true };
    }
    mark_changed_behind(work).await;
    for (path, _) in work.tally.open() {
        let message = format_args!("the source had no '{}' when its shard was moved", path.escaped());
        work.tally.fail(&path, FaultCode::NotFound, message);
    }
    match work.tally.finish() {
        Some(hold) => Outcome::Alike(hold),
        None => Outcome::Through(work.tally.faults()),
    }
}

/// Marks files as changed that are others than when the campaign was planned: before they are sent,
/// as far as they lie on this host.
async fn mark_changed(work: &Work, top: Option<std::path::PathBuf>) {
    let Some(top) = top else { return };
    mark(work, Look { top, files: work.tally.open() }).await;
}

/// The same behind a transfer: a source that was written to meanwhile, and what came from a source
/// at a daemon with another time.
async fn mark_changed_behind(work: &Work) {
    let files = work.tally.standing();
    let top = match (source_top(&work.job), &work.job.to) {
        (Some(top), _) => top,
        (None, JobDestination::Local(dest)) if work.settings.metadata.preserve.times => dest.path.clone(),
        (None, _) => return,
    };
    mark(work, Look { top, files }).await;
}

async fn mark(work: &Work, look: Look) {
    for (path, words) in blocking(move || differing(&look)).await.unwrap_or_default() {
        work.tally.fail(&path, FaultCode::Changed, words);
    }
}

/// The directory of this host in which the sources lie.
fn source_top(job: &Job) -> Option<std::path::PathBuf> {
    match &job.from {
        JobSource::Local(sources) => sources.first().map(|source| source.path.clone()),
        _ => None,
    }
}

/// A claim that is kept by heartbeats.
struct Leased<'a> {
    granted: &'a Granted,
    /// When the shard was claimed, by this process's clock.
    begun: Instant,
    tenure: Tenure,
    rate: Option<u64>,
}

impl Leased<'_> {
    fn next_beat(&self) -> Duration {
        self.tenure.next_beat().saturating_sub(self.begun.elapsed())
    }

    /// A heartbeat. Gives the reason for which it stopped the transfer, if it did.
    async fn beat(&mut self, mover: &Mover, work: &Work, trigger: &StopTrigger) -> Option<Stopped> {
        let (asked, figures) = (self.begun.elapsed(), work.tally.figures());
        let shard = &self.granted.shard;
        let news = Beat { shard: shard.id, claim: shard.claim, done: figures.done, moved: figures.moved };
        let stop = |why| {
            trigger.stop(FaultCode::Terminated);
            Some(why)
        };
        match mover.queue.transact(move |rows| beat(rows, &news)).await {
            Ok(BeatAnswer::GoOn(rate)) => {
                self.tenure = Tenure::new(asked);
                if is_another(self.rate, rate) { stop(Stopped::Rate(rate)) } else { None }
            }
            Ok(BeatAnswer::Stop(_)) => {
                self.tenure = Tenure::new(asked);
                stop(Stopped::HandBack)
            }
            Ok(BeatAnswer::Gone) => stop(Stopped::Gone),
            Err(error) => {
                mover.observer.trouble(&fault_of_jobs(&error));
                if !self.tenure.holds(self.begun.elapsed()) {
                    return stop(Stopped::HandBack);
                }
                tokio::time::sleep(BEAT_PAUSE).await;
                None
            }
        }
    }
}

/// Whether a rate is so much another one that a transfer is begun anew for it.
fn is_another(is: Option<u64>, wanted: Option<u64>) -> bool {
    match (is, wanted) {
        (None, None) => false,
        (Some(is), Some(wanted)) => wanted < is - is / 10 || wanted > is.saturating_add(is / 2),
        _ => true,
    }
}

/// The lower of two rates, and no less than a transfer may be given.
fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    let least = match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    least.map(|rate| rate.max(RATE_MIN))
}

/// Runs work that may wait on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))
}

/// The pauses between reports to a store that fails.
const REPORT_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(9)];
/// The pause behind a heartbeat that failed.
const BEAT_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_begun_anew_for_a_rate_that_is_clearly_another_one() {
        for (is, wanted, anew) in [
            (None, None, false),
            (Some(1000), None, true),
            (None, Some(1000), true),
            (Some(1000), Some(900), false),
            (Some(1000), Some(899), true),
            (Some(1000), Some(1500), false),
            (Some(1000), Some(1501), true),
        ] {
            assert_eq!(is_another(is, wanted), anew, "{is:?} {wanted:?}");
        }
        assert_eq!(lower(Some(1), None), Some(RATE_MIN));
        assert_eq!(lower(Some(9 * RATE_MIN), Some(3 * RATE_MIN)), Some(3 * RATE_MIN));
    }
}
