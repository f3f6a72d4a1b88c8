//! One shard in one claim: its list, its transfers, its report.
//!
//! In: a shard that was granted. Out: a report to the queue. Files are those of the sealed
//! manifest, never of another scan. If the mover's part of the rate changes, the transfer is
//! stopped in order and goes on with the new rate in the same claim. Must not know which shard is
//! next.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, Filter, PathList, RelPath};
use longhaul_engine::{
    CampaignFiles, Credentials, Job, RATE_MIN, Report as EngineReport, Settings, Stop, StopTrigger, commit_dataset,
};
use longhaul_jobs::queue::{BreakPlace, Finished, Granted, Outcome, Report, finish};
use longhaul_jobs::{AlikeWatch, Amount, CampaignId, JobsError, LinkId, Rows, Segment};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::aside::FaultExtent;
use super::claim::{Begun, ClaimInHand, ClaimShowing, ClaimStep};
use super::digests::DigestKeeper;
use super::faulted::{code_of, has_outlasted_grant, own_place, place_of};
use super::lease::{LeaseKeeper, LeaseNews, LeaseStop};
use super::tally::Tally;
use super::unchanged::{expecting, mark_changed, mark_changed_behind, source_top};
use super::{Halt, Mover, ShardEnd, commit, halted, random};
use crate::jobs::faults::fault_of_jobs;
use crate::jobs::records;
use crate::jobs::spec::CampaignSpec;

/// A shard with everything that its transfers need.
pub(super) struct Work {
    /// The link over which it goes, and its campaign.
    pub(super) of: (LinkId, CampaignId),
    /// Its transfer.
    pub(super) job: Job,
    /// The key that daemons are shown. `None`: it meets none.
    pub(super) credentials: Option<Credentials>,
    /// The settings of its transfers.
    pub(super) settings: Settings,
    /// The count of its files.
    pub(super) tally: Arc<Tally>,
    /// The list of all files, if it is the commit of a campaign. `None`: it moves files.
    pub(super) list: Option<Arc<dyn CampaignFiles>>,
}

/// How a mover ended with a shard, before the queue heard of it.
struct MoveEnd {
    /// The count of its files. `None`: nothing was read of it.
    tally: Option<Arc<Tally>>,
    /// `None`: it is another mover's.
    outcome: Option<Outcome>,
    unclaimed: bool,
}

/// Moves a shard as far as it goes, and reports it. Its claim, which was `asked` for at a time, is
/// kept by heartbeats all the while.
pub(super) async fn move_shard(mover: &Mover, granted: &Granted, asked: Instant, stopping: Halt) -> ShardEnd {
    let tally = OnceLock::new();
    let (news, heard) = watch::channel(LeaseNews { rate: granted.rate, stop: None });
    let claim = ClaimInHand::of(granted);
    let keeper = LeaseKeeper { mover, granted, claim: &claim, asked, tally: &tally, news };
    tokio::select! {
        end = move_leased(mover, (granted, &claim), &tally, Orders { heard, stopping }) => end,
        never = keeper.keep() => match never {},
    }
}

async fn move_leased(
    mover: &Mover,
    (granted, claim): (&Granted, &ClaimInHand),
    tally: &OnceLock<Arc<Tally>>,
    orders: Orders,
) -> ShardEnd {
    let keeper = DigestKeeper {
        mover,
        path: mover.shelf.record(granted.campaign.key, granted.shard.id),
        tag: records::tag_of(claim.hold().await.id),
    };
    let prepared = match granted.shard.part.is_commit() {
        true => commit::prepare(mover, granted).await,
        false => prepare(mover, granted).await,
    };
    let MoveEnd { tally, outcome, unclaimed } = match prepared {
        Err(Unprepared { fault, at, extent }) => {
            set_aside((mover, of_shard(granted)), (&fault, extent), at);
            let outcome = Outcome::Broken { code: fault.code, at, welcome: false };
            MoveEnd { tally: None, outcome: Some(outcome), unclaimed: false }
        }
        Ok(work) => {
            tally.get_or_init(|| work.tally.clone());
            let mut showing = ClaimShowing::of(&work.job);
            let outcome = tokio::select! {
                outcome = transfers((mover, claim), &work, orders, &mut showing) => outcome,
                never = keeper.keep_meanwhile(&work.tally) => match never {},
            };
            MoveEnd { tally: Some(work.tally), outcome, unclaimed: showing.goes_without }
        }
    };
    if let Some(Outcome::Through(_) | Outcome::Alike(_)) = &outcome {
        mover.aside.well(of_shard(granted));
    }
    let held = *claim.hold().await;
    let Some(outcome) = outcome else {
        return ShardEnd { state: None, files_failed: 0, bytes_moved: 0, fence: held.fence.0, unclaimed };
    };
    if let Some(tally) = &tally {
        keeper.keep(tally).await;
    }
    let figures = tally.map(|tally| tally.figures());
    let files_failed = if let Outcome::Through(faults) = &outcome { faults.len() as u64 } else { 0 };
    let report = Report {
        shard: granted.shard.id,
        claim: held,
        done: figures.map(|figures| figures.done).unwrap_or_default(),
        moved: figures.map_or(0, |figures| figures.moved),
        outcome,
        unclaimed,
        chance: random().map_or(0, u64::from_ne_bytes),
    };
    // A commit has read so much, and moved nothing.
    let bytes_moved = if granted.shard.part.is_commit() { 0 } else { report.moved };
    let state = match settle(mover, report).await {
        Ok(Finished::Recorded(state)) => Some(state),
        Ok(Finished::Gone) => None,
        Err(error) => {
            mover.observer.trouble(&fault_of_jobs(&error));
            None
        }
    };
    ShardEnd { state, files_failed, bytes_moved, fence: held.fence.0, unclaimed }
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
                report.outcome = Outcome::Broken { code: FaultCode::Internal, at: BreakPlace::Shard, welcome: true };
                report.done = Amount::default();
            }
            other => return other,
        }
    }
    mover.queue.transact(move |rows| finish(rows, &report)).await
}

/// The reason why a shard could not be begun.
pub(super) struct Unprepared {
    /// The fault.
    pub(super) fault: Fault,
    /// The place of it.
    pub(super) at: BreakPlace,
    /// The others who meet it, if the place is this host.
    pub(super) extent: FaultExtent,
}

impl Unprepared {
    /// A fault of what this host has not, or does not trust, of one campaign, while others may: its
    /// key, a place, or its owner.
    pub(super) fn of_campaign(fault: Fault) -> Unprepared {
        Unprepared { fault, at: BreakPlace::Host, extent: FaultExtent::Campaign }
    }

    /// A queue that does not answer here, or rows of a campaign that make no sense.
    pub(super) fn of_queue(error: &JobsError) -> Unprepared {
        let extent = if error.is_of_rows() { FaultExtent::Campaign } else { FaultExtent::Link };
        Unprepared { extent, ..fault_of_jobs(error).into() }
    }
}

impl From<Fault> for Unprepared {
    /// The place of a fault of the manifest or the campaign's row, as this host has them.
    fn from(fault: Fault) -> Unprepared {
        let (at, extent) = (own_place(&fault), FaultExtent::of(fault.code));
        Unprepared { fault, at, extent }
    }
}

/// The link and the campaign of a shard.
pub(super) fn of_shard(granted: &Granted) -> (LinkId, CampaignId) {
    (granted.shard.link, granted.shard.campaign)
}

/// Tells of a fault that ended a shard's transfers, or kept them from beginning. If this host is
/// ill, it leaves the shard's link or campaign alone for a while.
fn set_aside((mover, of): (&Mover, (LinkId, CampaignId)), (fault, extent): (&Fault, FaultExtent), at: BreakPlace) {
    mover.observer.trouble(fault);
    if at == BreakPlace::Host {
        let chance = random().map_or(0, u64::from_ne_bytes);
        mover.aside.failed(of, (fault, extent), (std::time::Instant::now(), chance));
    }
}

/// Reads what the shard is, and leaves out files whose source is another one by now.
async fn prepare(mover: &Mover, granted: &Granted) -> Result<Work, Unprepared> {
    let spec = CampaignSpec::decode(&granted.campaign.spec)?;
    let (shard, key) = (granted.shard.clone(), granted.campaign.key);
    let (admitting, campaign) = (Arc::clone(&mover.admitting), granted.campaign.clone());
    // What was signed may be another thing by now: the segment is read together with it.
    let read = mover.queue.transact(move |rows| Ok((segment_of(rows, &shard)?, admitting.admit(rows, &campaign)?)));
    let (segment, admitted) = read.await.map_err(|error| Unprepared::of_queue(&error))?;
    let roots = admitted.map_err(Unprepared::of_campaign)?;
    let (shelf, part) = (mover.shelf.clone(), granted.shard.part);
    let listing = blocking(move || shelf.listing((key, roots.as_deref()), &segment, part)).await??;
    let mut items = listing.items;
    if !spec.settings.metadata.preserve.links {
        items.retain(longhaul_manifest::Item::is_file);
    }
    let credentials = credentials_of(mover, &spec).await?;
    let missing = || Fault::new(FaultCode::Usage, Blame::Local, "the campaign has no source for a shard of it");
    let job = spec.job(listing.source).ok_or_else(missing)?.cataloguing(mover.catalogue.clone());
    admit_ground(mover, &job).await?;
    let given_up: Vec<_> = granted.given_up.iter().map(|fault| fault.path.clone()).collect();
    let tally = Arc::new(Tally::new(&items, &given_up, AlikeWatch::of(&granted.shard)));
    let mut settings = Settings { filter: Filter::default(), ..spec.settings };
    settings.memory = mover.orders.memory.unwrap_or(settings.memory);
    Ok(Work { of: of_shard(granted), job, credentials, settings, tally, list: None })
}

/// The key that daemons of a campaign are shown. `None`: it meets none.
pub(super) async fn credentials_of(mover: &Mover, spec: &CampaignSpec) -> Result<Option<Credentials>, Unprepared> {
    match &mover.keys {
        Some(ring) if spec.needs_key() => {
            let (ring, keys) = (Arc::clone(ring), spec.keys.clone());
            // Whatever is wrong with a key of this host, others may have theirs.
            blocking(move || ring.credentials(&keys)).await?.map(Some).map_err(Unprepared::of_campaign)
        }
        _ => Ok(None),
    }
}

/// Refuses places of this host that this mover does not serve. Another host may serve them.
pub(super) async fn admit_ground(mover: &Mover, job: &Job) -> Result<(), Unprepared> {
    let (ground, asked) = (mover.orders.ground.clone(), job.clone());
    blocking(move || ground.admit(&asked)).await?.map_err(Unprepared::of_campaign)
}

fn segment_of(rows: &mut dyn Rows, shard: &longhaul_jobs::Shard) -> Result<Segment, JobsError> {
    let segments = rows.segments(shard.campaign)?;
    let found = segments.into_iter().find(|segment| segment.number == shard.part.segment);
    found.ok_or(JobsError::BadRow("a shard is of a segment that is not there"))
}

/// The orders that reach a shard while it is moved.
struct Orders {
    heard: watch::Receiver<LeaseNews>,
    stopping: Halt,
}

impl Orders {
    fn news(&mut self) -> LeaseNews {
        *self.heard.borrow_and_update()
    }

    /// The order to stop, of the lease or of the mover.
    fn stop(&mut self) -> Option<LeaseStop> {
        let halts = self.stopping.borrow().is_some();
        self.news().stop.or(halts.then_some(LeaseStop::HandBack))
    }

    /// Waits until a transfer with this rate is to stop. A commit moves nothing at any rate.
    async fn wait(&mut self, work: &Work, rate: Option<u64>) {
        while self.stop().is_none() && (work.list.is_some() || !is_another(rate, self.news().rate)) {
            tokio::select! {
                changed = self.heard.changed() => if changed.is_err() { std::future::pending().await },
                _ = halted(&mut self.stopping) => {}
            }
        }
    }
}

/// Runs transfers until the shard is through or its claim is to end. `None`: it is another mover's.
async fn transfers(
    (mover, claim): (&Mover, &ClaimInHand),
    work: &Work,
    mut orders: Orders,
    showing: &mut ClaimShowing,
) -> Option<Outcome> {
    loop {
        mark_changed(work, source_top(&work.job)).await;
        let open: Vec<RelPath> = work.tally.open().into_iter().map(|(path, _)| path).collect();
        if open.is_empty() && work.list.is_none() || work.tally.figures().hold.is_some() {
            return Some(conclude(work, None).await);
        }
        match orders.stop() {
            Some(LeaseStop::Gone) => return None,
            Some(LeaseStop::HandBack) => return Some(Outcome::HandedBack),
            None => {}
        }
        let rate = orders.news().rate;
        let shown = claim.shown().await;
        let by = (!showing.goes_without).then_some(shown);
        let (begun_at, before) = (Instant::now(), (work.tally.figures().moved, open.len()));
        let job = Job { claim: by, ..expecting(&work.job, &work.tally) };
        let (trigger, mut running) = begin((work, job.clone()), &open, rate);
        let (report, was_stopped) = tokio::select! {
            report = &mut running => (report, false),
            () = orders.wait(work, rate) => {
                trigger.stop(FaultCode::Terminated);
                (running.await, true)
            }
        };
        let fault = match report {
            Ok(report) => report.fault,
            Err(error) => Some(Fault::new(FaultCode::Internal, Blame::Bug, error)),
        };
        match (orders.stop(), fault) {
            (Some(LeaseStop::Gone), _) => return None,
            (_, None) => return Some(conclude(work, None).await),
            // It has appeared in an earlier claim, whose mover did not hear it, or of which the
            // queue knows nothing any more: then it had all files of its shards.
            (_, Some(fault)) if is_of_campaign(work) && fault.code == FaultCode::Published => {
                work.tally.all_stand();
                return Some(through(work));
            }
            (Some(LeaseStop::HandBack), Some(_)) => return Some(Outcome::HandedBack),
            // The mover's part of the rate is another one: the transfer goes on with it.
            (None, Some(fault)) if was_stopped && fault.code == FaultCode::Terminated => {}
            (None, Some(fault))
                if has_progressed(work, before) && has_outlasted_grant(&job, &fault, begun_at.elapsed()) => {}
            (None, Some(fault)) => match showing.behind(&fault, shown, begun(work)) {
                ClaimStep::GoWithout => {}
                ClaimStep::Raise(kept) => match claim.raise(mover, kept).await {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => {
                        mover.observer.trouble(&fault_of_jobs(&error));
                        return Some(Outcome::HandedBack);
                    }
                },
                ClaimStep::End => return Some(conclude(work, Some((mover, fault))).await),
            },
        }
    }
}

/// Whether bytes have become durable, or files were settled, since so many bytes were moved and so
/// many files were open. An order that had all its time for nothing is not gone on with: its source
/// may only pretend to send.
fn has_progressed(work: &Work, (moved, open): (u64, usize)) -> bool {
    work.tally.figures().moved > moved || work.tally.open().len() < open
}

/// Whether the destination has kept a claim of the shard.
fn begun(work: &Work) -> Begun {
    if work.tally.figures().is_claim_kept { Begun::Yes } else { Begun::No }
}

/// Begins a transfer of the files that are open, as this job.
fn begin((work, job): (&Work, Job), open: &[RelPath], rate: Option<u64>) -> (StopTrigger, JoinHandle<EngineReport>) {
    let files_from = Some(Arc::new(PathList::new(open)));
    let settings = Settings { files_from, rate: lower(work.settings.rate, rate), ..work.settings.clone() };
    let (trigger, stop) = Stop::new();
    work.tally.begin(trigger.clone());
    let (credentials, observer) = (work.credentials.clone(), work.tally.clone());
    let (runtime, list) = (tokio::runtime::Handle::current(), work.list.clone());
    // On a thread of its own: it must not wait while something here waits for the queue's file.
    let running = tokio::task::spawn_blocking(move || match list {
        None => runtime.block_on(longhaul_engine::run(job, credentials, settings, observer, stop)),
        Some(list) => runtime.block_on(commit_dataset(list, job, credentials, settings, (observer, stop))),
    });
    (trigger, running)
}

/// The outcome of a transfer that ended by itself.
async fn conclude(work: &Work, ended: Option<(&Mover, Fault)>) -> Outcome {
    let figures = work.tally.figures();
    if let Some(hold) = figures.hold {
        return Outcome::Alike(hold);
    }
    if let Some((mover, fault)) = ended {
        let code = code_of(&fault);
        let at = place_of(&work.job, &fault);
        set_aside((mover, work.of), (&fault, FaultExtent::of(fault.code)), at);
        return Outcome::Broken { code, at, welcome: figures.is_welcome };
    }
    if figures.is_unheard {
        // It is not known which of the files that are open stand.
        return Outcome::Broken { code: FaultCode::TimedOut, at: BreakPlace::Link, welcome: true };
    }
    if let Some(code) = figures.destination_fault {
        return Outcome::Broken { code, at: BreakPlace::Link, welcome: true };
    }
    mark_changed_behind(work).await;
    for (path, _) in work.tally.open() {
        let message = format_args!("the source had no '{}' when its shard was moved", path.escaped());
        work.tally.fail(&path, FaultCode::NotFound, message);
    }
    through(work)
}

/// The outcome of a transfer of which each file is settled.
fn through(work: &Work) -> Outcome {
    match work.tally.finish() {
        Some(hold) => Outcome::Alike(hold),
        None => Outcome::Through(work.tally.faults()),
    }
}

/// Whether it brings a part of a dataset.
fn is_of_campaign(work: &Work) -> bool {
    work.list.is_some() || work.job.part.is_some()
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
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))
}

/// The pauses between reports to a store that fails.
const REPORT_PAUSES: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(9)];

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
