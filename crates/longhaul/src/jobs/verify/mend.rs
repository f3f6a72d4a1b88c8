//! Copies bad files anew, from the campaign's own source or from other replicas of it.
//!
//! A copy comes to a directory of this host first (`staging`), and goes on only if it has the
//! digest that is recorded of the file. What stands under the name is then looked at and read once
//! more, and moved aside by the facts of that look (`aside`); the copy takes the name only if
//! nothing has it, and what stands there is read back. `candidate` keeps what becomes of each file,
//! `known` finds those that earlier readings have found. In: findings on a batch. Out: the same
//! findings, of which those that were mended are well. A process that is killed leaves a file as it
//! was, moved aside, or copied anew; the next reading finds which. Must not know the queue's rules.

mod aside;
mod candidate;
mod known;
mod staging;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::{AccountMap, Blame, Fault, FaultCode, Filter, IfExists, PathList, PlanName, Preserve, RelPath};
use longhaul_engine::{
    Credentials, ExpectedFile, Job, JobDestination, JobSource, LocalDest, LocalSource, Metadata, NameFacts, NameKind,
    RATE_MIN, Settings, Stop, Withdrawn, run,
};
use longhaul_jobs::queue::VerifyShard;
use longhaul_jobs::{BadKind, ClaimId};
use longhaul_manifest::{Item, ItemKind};
use tokio::time::sleep;

use self::aside::AsideGround;
use self::candidate::{Candidate, CandidateState};
use self::staging::Staging;
use super::batch::{BatchFindings, StopsAtEnd, findings};
use super::ground::{FileRead, ReadFiles};
use super::news::MendedFile;
use super::orders::{AbsenceUse, MendOrders};
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
    /// Mends what is bad in a batch, if the verifier was told to. `None`: it was stopped.
    pub(super) async fn mend(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        (files, batch): (&ShardFiles, &NamesBatch),
        mut found: BatchFindings,
        mut stopping: Halt,
    ) -> Option<BatchFindings> {
        let Some(orders) = &self.orders.mend else { return Some(found) };
        let mut candidates = candidate::candidates(orders, (files, batch), &mut found);
        if candidates.is_empty() {
            return Some(found);
        }
        let (trigger, stop) = Stop::new();
        let _guard = StopsAtEnd(trigger);
        let mending = Mending { verifier: self, orders, files, given, id, stop: &stop };
        let gathered = tokio::select! {
            gathered = mending.gather(&mut candidates) => gathered,
            _ = stopping.wait_for(Option::is_some) => return None,
        };
        let ended = match gathered {
            Err(fault) => Err(fault),
            Ok(None) => Ok(()),
            // A name that has nothing under it for a moment is given its file before the end.
            Ok(Some(gathered)) => tokio::select! {
                ended = mending.replace(&mut candidates, &gathered, &mut found) => ended,
                () = patience_behind(&mut stopping) => return None,
            },
        };
        let why = ended.err();
        found.bad.extend(candidates.into_iter().map(|candidate| candidate.unmended(why.as_ref())));
        Some(found)
    }

    /// The campaign's destination.
    fn destination(&self, orders: &MendOrders) -> CampaignPlace {
        self.orders.at.clone().map_or_else(|| orders.spec.to.clone(), CampaignPlace::Here)
    }
}

impl Mending<'_> {
    /// Has right copies come to this host. `None`: none is to be had. Nothing changes at the
    /// destination.
    async fn gather(&self, candidates: &mut [Candidate]) -> Result<Option<Gathered>, Fault> {
        self.doubt_place(candidates).await?;
        if candidates.iter().all(|candidate| candidate.state != CandidateState::Wanted) {
            return Ok(None);
        }
        let (trees, staging) = (self.trees()?, self.staging().await?);
        self.fetch(candidates, (&trees, &staging)).await?;
        self.dress(candidates, &staging).await?;
        let has_any = candidates.iter().any(|candidate| candidate.staged().is_some());
        Ok(has_any.then_some(Gathered { trees, staging }))
    }

    /// Has the copies take the names. Candidates that are well go to the findings, and the others
    /// stay.
    async fn replace(
        &self,
        candidates: &mut Vec<Candidate>,
        gathered: &Gathered,
        found: &mut BatchFindings,
    ) -> Result<(), Fault> {
        self.make_way(candidates, found).await;
        self.put(candidates, &gathered.staging).await?;
        self.read_back(candidates, (&gathered.trees, found)).await
    }

    /// Gives up lost files where nothing tells that the destination is the directory in which
    /// others stood: its disk may not be mounted.
    async fn doubt_place(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        let is_believed = self.verifier.orders.absences == AbsenceUse::Believed;
        if is_believed || candidates.iter().all(|candidate| candidate.found.kind != BadKind::Lost) {
            return Ok(());
        }
        let mark = self.files.mark_now().await;
        if blocking(move || mark.is_same()).await? {
            return Ok(());
        }
        for candidate in candidates.iter_mut().filter(|candidate| candidate.found.kind == BadKind::Lost) {
            candidate.give_up("the destination may not be the directory in which files stood (--believe-losses)");
        }
        Ok(())
    }

    /// The trees from which copies are taken, with the names of the shard.
    fn trees(&self) -> Result<Vec<CampaignPlace>, Fault> {
        if !self.orders.from.is_empty() {
            let beneath = |tree: &CampaignPlace| tree.clone().at(self.files.onto());
            let trees = self.orders.from.iter().map(beneath).collect::<Result<_, _>>();
            return trees.map_err(|error| Fault::new(FaultCode::Usage, Blame::Local, error));
        }
        let missing = || Fault::new(FaultCode::Usage, Blame::Local, "the campaign has no source for a shard of it");
        let source = self.orders.spec.sources.get(self.files.source()).ok_or_else(missing)?;
        Ok(vec![source.top.clone()])
    }

    async fn staging(&self) -> Result<Staging, Fault> {
        let (named, dest) = (self.orders.dir.clone(), self.verifier.destination(self.orders));
        let manifests = self.verifier.shelf.manifest(self.given.campaign.key, 0);
        blocking(move || match (named, dest) {
            (Some(dir), _) => Staging::make(&dir),
            (None, CampaignPlace::Here(dest)) => Staging::make_at(&dest),
            (None, CampaignPlace::Daemon { .. }) => Staging::make(manifests.parent().unwrap_or(&manifests)),
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
        for (at, tree) in trees.iter().enumerate() {
            let is_wanted = |candidate: &&Candidate| candidate.state == CandidateState::Wanted;
            let wanted: Vec<_> = candidates.iter().filter(is_wanted).map(|one| one.item.clone()).collect();
            if wanted.is_empty() {
                break;
            }
            let stage = staging.stage(at)?;
            let mut dest = LocalDest::directory(&stage);
            // One of another length is refused before a byte of it comes.
            let expected = |item: &Item| match item.kind {
                ItemKind::File { bytes: Some(bytes) } => {
                    Some((item.path.clone(), ExpectedFile::File { bytes, mtime: None }))
                }
                _ => None,
            };
            dest.expected = Some(Arc::new(wanted.iter().filter_map(expected).collect()));
            let job = Job::between(tree.contents(), JobDestination::Local(dest));
            let names = wanted.iter().map(|item| &item.path);
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
        let dest = self.verifier.destination(self.orders).at(self.files.onto());
        let Ok(CampaignPlace::Here(dest)) = dest else { return Ok(()) };
        let trees: BTreeSet<usize> = candidates.iter().filter_map(Candidate::staged).collect();
        for at in trees {
            let paths = candidates.iter().filter(|one| one.staged() == Some(at)).map(|one| one.path().clone());
            let (stage, dest, paths) = (staging.stage(at)?, dest.clone(), paths.collect::<Vec<_>>());
            blocking(move || staging::dress(&stage, &dest, &paths)).await??;
        }
        Ok(())
    }

    /// Moves aside what stands under the names. Where that fails, names under which nothing stands
    /// are given their files all the same.
    async fn make_way(&self, candidates: &mut Vec<Candidate>, found: &mut BatchFindings) {
        let Err(fault) = self.move_aside(candidates, found).await else { return };
        for candidate in candidates.iter_mut().filter(|one| is_standing(one)) {
            candidate.give_up(format_args!("it could not be moved aside: {}", fault.message));
        }
    }

    /// Moves files aside as they were found: each is looked at, read once more, and moved by the
    /// facts of that look.
    async fn move_aside(&self, candidates: &mut Vec<Candidate>, found: &mut BatchFindings) -> Result<(), Fault> {
        let names: Vec<_> = candidates.iter().filter(|one| is_standing(one)).map(|one| one.path().clone()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let plan = PlanName { digest: *blake3::hash(&self.id.0).as_bytes(), made: seconds_now() };
        let (dest, onto) = (self.verifier.destination(self.orders), self.files.onto().clone());
        let credentials = match dest {
            CampaignPlace::Here(_) => None,
            CampaignPlace::Daemon { .. } => Some(self.key().await?),
        };
        let mut ground = AsideGround::open((dest, onto), credentials, plan, self.stop).await?;
        let facts = ground.look(names.clone(), self.stop).await?;
        let facts: BTreeMap<_, _> = names.into_iter().zip(facts).collect();
        let going = self.read_again(candidates, &facts, found).await?;
        let ends = ground.withdraw(going.clone(), self.stop).await?;
        let ends: BTreeMap<_, _> = going.into_iter().map(|(path, _)| path).zip(ends).collect();
        for candidate in candidates.iter_mut().filter(|one| is_standing(one)) {
            match ends.get(candidate.path()) {
                Some(Ok(Withdrawn::Moved)) => candidate.kept = Some(ground.kept_in(candidate.path())),
                Some(Err(fault)) => candidate.give_up(format_args!("it could not be moved aside: {}", fault.message)),
                Some(Ok(_)) | None => candidate.give_up("what has its name is another one by now, and stays"),
            }
        }
        Ok(())
    }

    /// Reads candidates that stand once more. Gives those that are bad still, with their facts. One
    /// that is well by now goes to the findings, and any other is given up.
    async fn read_again(
        &self,
        candidates: &mut Vec<Candidate>,
        facts: &BTreeMap<RelPath, Result<Option<NameFacts>, Fault>>,
        found: &mut BatchFindings,
    ) -> Result<Vec<(RelPath, NameFacts)>, Fault> {
        let items = candidates.iter().filter(|one| facts.contains_key(one.path())).map(|one| one.item.clone());
        let again = self.read(items.collect()).await?;
        let mut going = Vec::new();
        candidates.retain_mut(|candidate| {
            let Some(seen) = facts.get(candidate.path()) else { return true };
            match (again.bad.iter().find(|bad| bad.path == candidate.path().as_bytes()), seen) {
                (None, _) => {
                    found.well.push(candidate.path().as_bytes().to_vec());
                    return false;
                }
                (Some(_), Err(fault)) => candidate.give_up(&fault.message),
                (Some(bad), Ok(Some(seen))) if is_bad_still(bad.kind) && seen.kind == NameKind::File => {
                    going.push((candidate.path().clone(), *seen));
                }
                (Some(bad), Ok(_)) => {
                    candidate.found = bad.clone();
                    candidate.give_up("somebody has changed it since it was read");
                }
            }
            true
        });
        found.passed_over += again.passed_over;
        Ok(going)
    }

    /// Has the copies go under their names, where nothing is replaced.
    async fn put(&self, candidates: &mut [Candidate], staging: &Staging) -> Result<(), Fault> {
        let trees: BTreeSet<usize> = candidates.iter().filter_map(Candidate::staged).collect();
        let dest = self.verifier.destination(self.orders).at(self.files.onto());
        let dest = dest.map_err(|error| Fault::new(FaultCode::Usage, Blame::Local, error))?;
        for at in trees {
            let names: Vec<_> =
                candidates.iter().filter(|one| one.staged() == Some(at)).map(|one| one.path().clone()).collect();
            let from = JobSource::Local(vec![LocalSource::contents(staging.stage(at)?)]);
            let job = Job::between(from, dest.receiving());
            let carried = match self.carry(job, &names, CarryTo::Destination).await {
                Ok(carried) => carried,
                Err(fault) => Carried { files: BTreeMap::new(), fault: Some(fault) },
            };
            for candidate in candidates.iter_mut().filter(|one| one.staged() == Some(at)) {
                let heard = carried.files.get(candidate.path());
                candidate.put = heard.is_some_and(Result::is_ok);
                match (heard, &carried.fault) {
                    (Some(Ok(_)), _) => {}
                    (Some(Err(why)), _) => candidate.why.push(why.to_string()),
                    (None, fault) => candidate.why.extend(fault.as_ref().map(|fault| fault.message.to_string())),
                }
            }
        }
        Ok(())
    }

    /// Reads back what has the names of the copies. What is well is mended, whatever was heard of
    /// its transfer.
    async fn read_back(
        &self,
        candidates: &mut Vec<Candidate>,
        (trees, found): (&[CampaignPlace], &mut BatchFindings),
    ) -> Result<(), Fault> {
        let items: Vec<_> =
            candidates.iter().filter(|one| one.staged().is_some()).map(|one| one.item.clone()).collect();
        let again = self.read(items).await?;
        candidates.retain_mut(|candidate| {
            let Some(at) = candidate.staged() else { return true };
            if let Some(bad) = again.bad.iter().find(|bad| bad.path == candidate.path().as_bytes()) {
                candidate.found = bad.clone();
                return true;
            }
            let path = candidate.path().as_bytes().to_vec();
            found.well.push(path.clone());
            if candidate.put {
                found.mended.push(MendedFile {
                    path,
                    bytes: candidate.found.bytes,
                    kind: candidate.found.kind,
                    from: trees.get(at).map(CampaignPlace::shown).unwrap_or_default(),
                    kept: candidate.kept.take(),
                });
            }
            false
        });
        Ok(())
    }

    /// Looks at files of the destination, and reads them.
    async fn read(&self, items: Vec<Item>) -> Result<BatchFindings, Fault> {
        let batch = NamesBatch { items, end: 0 };
        findings(self.files, &batch, self.verifier.rules(), self.stop).await
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
        let files_from = Some(Arc::new(PathList::new(names)));
        let settings = Settings { files_from, ..self.settings(base, to) };
        let heard = Arc::new(ReadFiles::default());
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
        // Each file is a copy of its own: its further names may be well.
        let preserve = Preserve { hardlinks: false, ..spec.metadata.preserve };
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

/// Waits until the verifier is to stop, and then for as long as copies may still take their names.
async fn patience_behind(stopping: &mut Halt) {
    let _ = stopping.wait_for(Option::is_some).await;
    sleep(REPLACING_MAX).await;
}

/// Whether something has the name of a candidate, whose copy is there.
fn is_standing(candidate: &Candidate) -> bool {
    candidate.staged().is_some() && candidate.found.kind != BadKind::Lost
}

/// Whether a file that was damaged or could not be read is so still.
fn is_bad_still(kind: BadKind) -> bool {
    matches!(kind, BadKind::Damaged | BadKind::Unread)
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

/// Seconds since 1970.
fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time for which copies of a verifier that is to stop still take their names.
const REPLACING_MAX: Duration = Duration::from_secs(30);
