//! Copies bad files anew, from the campaign's own source or from other replicas of it.
//!
//! A copy comes to a directory of this host first (`staging`), and goes on only if it has the
//! digest that is recorded of the file. What stands under the name is then looked at and read once
//! more, and moved aside by the facts of that look (`aside`); the copy takes the name only if
//! nothing has it, and what stands there is read back (`replace`). `candidate` keeps what becomes
//! of each file, `known` finds those that earlier readings have found, `admission` says which may
//! be mended at all, `place` where they stand, `sealed` which files a dataset has, and `ranges`
//! where in its list they may be. In: findings on a batch. Out: the same findings, of which those
//! that were mended are well. A process that is killed leaves a file as it was, moved aside, or
//! copied anew; the next reading finds which. Must not know the queue's rules.

mod admission;
mod aside;
mod candidate;
mod known;
mod place;
mod ranges;
mod replace;
mod sealed;
mod staging;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_core::{AccountMap, Blame, Fault, FaultCode, Filter, Hash32, IfExists, PathList, Preserve, RelPath};
use longhaul_engine::{
    Credentials, ExpectedFile, ExpectedFiles, Job, JobDestination, JobSource, LocalDest, Metadata, RATE_MIN, Settings,
    Stop, run,
};
use longhaul_jobs::ClaimId;
use longhaul_jobs::queue::VerifyShard;
use longhaul_manifest::{Item, ItemKind};
use rustix::process::geteuid;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use self::candidate::{Candidate, CandidateState};
use self::place::{dataset_name, unfit};
pub(super) use self::ranges::ListRanges;
use self::staging::Staging;
use super::batch::{BatchFindings, ReadRules, StopsAtEnd, findings};
use super::ground::{FileRead, ReadFiles};
use super::orders::{ChangedUse, MendOrders};
use super::shard::{NamesBatch, ShardFiles, TimesKept};
use super::{Verifier, blocking};
use crate::jobs::mover::Halt;
use crate::jobs::spec::{CampaignPlace, beneath};

/// The mending of one batch.
struct Mending<'a> {
    verifier: &'a Verifier,
    orders: &'a MendOrders,
    files: &'a ShardFiles,
    given: &'a VerifyShard,
    id: ClaimId,
    stop: &'a Stop,
    /// When it was told to stop.
    stopped: watch::Receiver<Option<Instant>>,
    /// The digest of the sealed list by which candidates were found to be in their dataset.
    list: OnceLock<Hash32>,
}

/// The outcome of a transfer: what was heard of each file, and the fault that ended it.
struct Carried {
    files: BTreeMap<RelPath, FileRead>,
    fault: Option<Fault>,
}

/// Copies that are right, and the trees that they are from.
struct Gathered {
    trees: Vec<CampaignPlace>,
    staging: Staging,
}

/// The end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CarryTo {
    /// To the directory of this host in which copies lie for a while.
    Staging,
    /// To the destination, where nothing that stands is replaced.
    Destination,
}

impl Verifier {
    /// Mends what is bad in a batch, if the verifier was told to. What was found is never lost:
    /// whatever ends the mending, each file that stays bad is in the findings.
    pub(super) async fn mend(
        &self,
        (given, id, reached): (&VerifyShard, ClaimId, u64),
        (files, batch): (&ShardFiles, &NamesBatch),
        mut found: BatchFindings,
        (stopping, deadline): (Halt, Option<Instant>),
    ) -> BatchFindings {
        let Some(orders) = &self.orders.mend else { return found };
        let mut candidates = candidate::candidates(orders, (files, batch), &mut found);
        candidate::give_up_long(&mut candidates, (self.orders.budget, deadline));
        let (trigger, stop) = Stop::new();
        let _guard = StopsAtEnd(trigger);
        let (stopper, stopped) = watch::channel(None);
        let list = OnceLock::new();
        let mending = Mending { verifier: self, orders, files, given, id, stop: &stop, stopped, list };
        let ended = tokio::select! {
            ended = mending.all(&mut candidates, &mut found) => ended,
            never = self.stop_mending((given, id, reached), stopping, &stopper) => match never {},
        };
        let why = ended.err();
        found.bad.extend(candidates.into_iter().map(|candidate| candidate.unmended(why.as_ref())));
        found
    }

    /// Says when mending is to stop: as the verifier is, or as the shard is another's. Keeps the
    /// shard until then, and while names are given their files.
    async fn stop_mending(
        &self,
        kept: (&VerifyShard, ClaimId, u64),
        mut stopping: Halt,
        stopper: &watch::Sender<Option<Instant>>,
    ) -> Infallible {
        tokio::select! {
            () = self.keep_lease(kept) => {}
            _ = stopping.wait_for(Option::is_some) => {}
        }
        stopper.send_replace(Some(Instant::now()));
        self.keep_lease(kept).await;
        std::future::pending().await
    }
}

impl Mending<'_> {
    /// Mends candidates. Those that are well by then go to the findings, and the others stay.
    async fn all(&self, candidates: &mut Vec<Candidate>, found: &mut BatchFindings) -> Result<(), Fault> {
        if candidates.iter().all(|candidate| candidate.state != CandidateState::Wanted) {
            return Ok(());
        }
        let gathered = tokio::select! {
            gathered = self.gather(candidates) => gathered?,
            () = self.to_stop() => return Err(stopped()),
        };
        match gathered {
            None => Ok(()),
            Some(gathered) => self.replace(candidates, &gathered, found).await,
        }
    }

    /// Waits until it is to stop.
    async fn to_stop(&self) {
        let mut told = self.stopped.clone();
        if told.wait_for(Option::is_some).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until it is to stop, and then for as long as copies may still take their names.
    async fn patience(&self) {
        self.to_stop().await;
        let since = *self.stopped.borrow();
        sleep_until(since.unwrap_or_else(Instant::now) + REPLACING_MAX).await;
    }

    /// Has right copies come to this host. `None`: none is to be had. Nothing changes at the
    /// destination.
    async fn gather(&self, candidates: &mut [Candidate]) -> Result<Option<Gathered>, Fault> {
        self.admit(candidates).await?;
        if candidates.iter().all(|candidate| candidate.state != CandidateState::Wanted) {
            return Ok(None);
        }
        let (trees, staging) = (self.trees()?, self.staging().await?);
        self.fetch(candidates, (&trees, &staging)).await?;
        self.dress(candidates, &staging).await?;
        let has_any = candidates.iter().any(|candidate| candidate.staged().is_some());
        Ok(has_any.then_some(Gathered { trees, staging }))
    }

    /// The path beneath the campaign's destination beneath which the files of the shard stand.
    fn within(&self) -> Result<RelPath, Fault> {
        let onto = self.files.onto();
        match dataset_name(self.orders)? {
            Some(name) => name.concat(onto).map_err(unfit),
            None => Ok(onto.clone()),
        }
    }

    /// The directory to which copies are sent, and the path in it beneath which the files stand. It
    /// is not within a dataset: what longhaul keeps for a transfer would come into that, and change
    /// the times of its directories.
    fn receiving(&self) -> Result<(CampaignPlace, RelPath), Fault> {
        let dest = self.verifier.destination(self.orders);
        match self.orders.spec.dataset {
            Some(_) => Ok((dest, self.within()?)),
            None => Ok((dest.at(self.files.onto()).map_err(unfit)?, RelPath::root())),
        }
    }

    /// The trees from which copies are taken, with the names of the shard.
    fn trees(&self) -> Result<Vec<CampaignPlace>, Fault> {
        if !self.orders.from.is_empty() {
            let beneath = |tree: &CampaignPlace| tree.clone().at(self.files.onto());
            let trees = self.orders.from.iter().map(beneath).collect::<Result<_, _>>();
            return trees.map_err(unfit);
        }
        let missing = || Fault::new(FaultCode::Usage, Blame::Local, "the campaign has no source for a shard of it");
        let source = self.orders.spec.sources.get(self.files.source()).ok_or_else(missing)?;
        Ok(vec![source.top.clone()])
    }

    async fn staging(&self) -> Result<Staging, Fault> {
        let dest = self.verifier.destination(self.orders);
        let manifests = self.verifier.shelf.manifest(self.given.campaign.key, 0);
        blocking(move || match dest {
            CampaignPlace::Here(dest) => Staging::make_at(&dest),
            CampaignPlace::Daemon { .. } => Staging::make(manifests.parent().unwrap_or(&manifests)),
        })
        .await?
    }

    /// Has copies come to this host, from each tree those that the trees before it did not give.
    /// One that has not the digest that is recorded goes no farther.
    async fn fetch(
        &self,
        candidates: &mut [Candidate],
        (trees, staging): (&[CampaignPlace], &Staging),
    ) -> Result<(), Fault> {
        let (_, within) = self.receiving()?;
        for (at, tree) in trees.iter().enumerate() {
            let is_wanted = |candidate: &&Candidate| candidate.state == CandidateState::Wanted;
            let wanted: Vec<_> = candidates.iter().filter(is_wanted).map(|one| one.item.clone()).collect();
            if wanted.is_empty() {
                break;
            }
            let stage = staging.stage_in(at, &within)?;
            let mut dest = LocalDest::directory(&stage);
            // One of another length, or that was not asked for, is refused before a byte of it
            // comes.
            let expected = |item: &Item| match item.kind {
                ItemKind::File { bytes: Some(bytes) } => {
                    Some((item.path.clone(), ExpectedFile::File { bytes, mtime: None }))
                }
                _ => None,
            };
            let names = wanted.iter().map(|item| &item.path);
            let expected: ExpectedFiles = wanted.iter().filter_map(expected).collect();
            dest.expected = Some(Arc::new(expected.only(names.clone())));
            let job = Job::between(tree.contents(), JobDestination::Local(dest));
            let mut carried = self.carry(job, names, CarryTo::Staging).await?;
            for candidate in candidates.iter_mut().filter(|one| one.state == CandidateState::Wanted) {
                let heard = carried.files.remove(&candidate.item.path);
                candidate.judge(heard, carried.fault.as_ref(), (at, &tree.shown()));
            }
            if self.files.keeps_times == TimesKept::Yes {
                give_times(&stage, candidates.iter_mut().filter(|one| one.staged() == Some(at))).await?;
            }
        }
        Ok(())
    }

    /// Gives directories of copies what those at the destination have, which so keep it. What those
    /// at a daemon have is not known.
    async fn dress(&self, candidates: &[Candidate], staging: &Staging) -> Result<(), Fault> {
        let (CampaignPlace::Here(dest), within) = self.receiving()? else { return Ok(()) };
        let trees: BTreeSet<usize> = candidates.iter().filter_map(Candidate::staged).collect();
        for at in trees {
            let staged = candidates.iter().filter(|one| one.staged() == Some(at));
            let paths = staged.map(|one| within.concat(one.path())).collect::<Result<Vec<_>, _>>().map_err(unfit)?;
            let (stage, dest) = (staging.stage(at)?, dest.clone());
            blocking(move || staging::dress(&stage, &dest, &paths)).await??;
        }
        Ok(())
    }

    /// Looks at files of the destination, and reads them.
    async fn read(&self, items: Vec<Item>) -> Result<BatchFindings, Fault> {
        let batch = NamesBatch { items, end: 0 };
        // What was changed is not well here, also where it is passed over.
        let rules = ReadRules { changed: ChangedUse::Bad, ..self.verifier.rules() };
        findings(self.files, &batch, rules, self.stop).await
    }

    /// Carries out a transfer of these names, at no more than the budget.
    async fn carry<'n>(
        &self,
        job: Job,
        names: impl IntoIterator<Item = &'n RelPath>,
        to: CarryTo,
    ) -> Result<Carried, Fault> {
        let is_far = matches!(job.from, JobSource::Remote(..)) || matches!(job.to, JobDestination::Remote(..));
        let credentials = if is_far { Some(self.key().await?) } else { None };
        let spec = &self.orders.spec.settings;
        let base = match is_far {
            // The pairs of addresses of a campaign are those of its own daemon.
            true => Settings { paths: Vec::new(), ..spec.clone() },
            false => Settings { io: spec.io, engine: spec.engine, depth: spec.depth, ..Settings::default() },
        };
        let names: BTreeSet<RelPath> = names.into_iter().cloned().collect();
        let files_from = Some(Arc::new(PathList::new(&names)));
        let settings = Settings { files_from, ..self.settings(base, to) };
        let heard = Arc::new(ReadFiles::of(names));
        let (observer, runtime, stop) = (heard.clone(), tokio::runtime::Handle::current(), self.stop.clone());
        // On a thread of its own: it must not wait while something here waits for the queue's file.
        let running =
            tokio::task::spawn_blocking(move || runtime.block_on(run(job, credentials, settings, observer, stop)));
        let report = running.await.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))?;
        Ok(Carried { files: heard.taken(), fault: report.fault })
    }

    /// These settings, as a transfer to this end has them.
    fn settings(&self, base: Settings, to: CarryTo) -> Settings {
        let (spec, orders) = (&self.orders.spec.settings, &self.verifier.orders);
        // Accounts are mapped once, and nothing that stands is replaced.
        let (accounts, if_exists) = match to {
            CarryTo::Staging => (AccountMap::default(), IfExists::Replace),
            CarryTo::Destination => (spec.metadata.accounts.clone(), IfExists::Fail),
        };
        // Each file is a copy of its own: its further names may be well. Copies of a verifier that
        // is not root have its own account as their owner, which is nobody's at the destination.
        let preserve = Preserve { hardlinks: false, ..spec.metadata.preserve };
        let preserve = match to {
            CarryTo::Destination if !geteuid().is_root() => Preserve { owner: false, acls: false, ..preserve },
            CarryTo::Destination | CarryTo::Staging => preserve,
        };
        let rate = spec.rate.into_iter().chain(orders.budget).min();
        Settings {
            if_exists,
            metadata: Metadata { preserve, accounts },
            filter: Filter::default(),
            memory: orders.memory.unwrap_or(spec.memory),
            rate: rate.map(|rate| rate.max(RATE_MIN)),
            digests: false,
            dry_run: false,
            ..base
        }
    }

    /// The key that daemons are shown.
    async fn key(&self) -> Result<Credentials, Fault> {
        let (ring, keys) = (Arc::clone(&self.verifier.keys), self.orders.spec.keys.clone());
        blocking(move || ring.credentials(&keys)).await?
    }
}

/// The fault of a mending that was to stop.
fn stopped() -> Fault {
    Fault::new(FaultCode::Terminated, Blame::Local, "the verifier was to stop before that, or has lost the shard")
}

/// Gives copies the times of the files that they replace, whatever those of the tree are that gave
/// them.
async fn give_times<'c>(stage: &Path, copies: impl Iterator<Item = &'c mut Candidate>) -> Result<(), Fault> {
    for candidate in copies {
        let Some(mtime) = candidate.item.mtime else { continue };
        let place = beneath(stage, candidate.path());
        if let Err(error) = blocking(move || staging::give_time(&place, mtime)).await? {
            candidate.give_up(format_args!("its copy cannot be given its time: {error}"));
        }
    }
    Ok(())
}

/// The time for which copies of a verifier that is to stop still take their names.
const REPLACING_MAX: Duration = Duration::from_secs(30);
