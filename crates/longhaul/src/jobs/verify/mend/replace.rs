//! Has copies take the names of bad files: what stands is looked at and read once more, moved
//! aside, and given its copy at once, a few names at a time; then it is read back.
//!
//! In: candidates, and the copies of them that are right. Out: candidates that are well go to the
//! findings, and the others stay with their reasons. Where a file lies that was moved aside is
//! always told. Must not know where copies are from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::{Blame, Escaped, Fault, FaultCode, PlanName, RelPath};
use longhaul_engine::{Job, JobSource, LocalSource, NameFacts, NameKind};
use longhaul_jobs::BadKind;
use longhaul_jobs::queue::FoundBad;

use super::aside::{AsideGround, FileAnswer};
use super::candidate::{AsideFile, Candidate, CopyPut};
use super::place::unfit;
use super::staging::{Staging, room_at};
use super::{CarryTo, Gathered, Mending, stopped};
use crate::jobs::spec::CampaignPlace;
use crate::jobs::verify::batch::BatchFindings;
use crate::jobs::verify::blocking;
use crate::jobs::verify::orders::ChangedUse;

/// The answers on names that were looked at.
type FactsSeen = BTreeMap<RelPath, FileAnswer<Option<NameFacts>>>;

impl Mending<'_> {
    /// Has the copies take the names. Candidates that are well go to the findings, and the others
    /// stay.
    ///
    /// # Errors
    /// The fault that ended it early. What was begun is read back all the same.
    pub(super) async fn replace(
        &self,
        candidates: &mut Vec<Candidate>,
        gathered: &Gathered,
        found: &mut BatchFindings,
    ) -> Result<(), Fault> {
        let ended = self.take_names(candidates, (&gathered.staging, found)).await;
        let read = self.read_back(candidates, (&gathered.trees, found)).await;
        ended.and(read)
    }

    /// Gives lost files their copies, and then damaged ones, which are moved aside before that.
    async fn take_names(
        &self,
        candidates: &mut Vec<Candidate>,
        (staging, found): (&Staging, &mut BatchFindings),
    ) -> Result<(), Fault> {
        // To fetch the copies may have taken hours.
        tokio::select! {
            admitted = self.admit(candidates) => admitted?,
            () = self.to_stop() => return Err(stopped()),
        }
        self.put_lost(candidates, staging).await?;
        let standing = paths_of(candidates, is_standing);
        if standing.is_empty() {
            return Ok(());
        }
        self.need_time()?;
        let mut ground = match self.aside().await {
            Ok(ground) => ground,
            Err(fault) => {
                for candidate in candidates.iter_mut().filter(|one| is_standing(one)) {
                    candidate.give_up(format_args!("it could not be moved aside: {}", fault.message));
                }
                return Ok(());
            }
        };
        for names in standing.chunks(NAMES_AT_ONCE) {
            let going = tokio::select! {
                going = self.going(names, (&mut *candidates, &mut *found), &mut ground) => going?,
                () = self.to_stop() => return Err(stopped()),
            };
            tokio::select! {
                admitted = self.admit_again(candidates) => admitted?,
                () = self.to_stop() => return Err(stopped()),
            }
            let going = self.prepared(going, candidates, staging).await?;
            self.need_time()?;
            self.swap(going, candidates, (&mut ground, staging)).await?;
        }
        Ok(())
    }

    /// Gives lost files their copies, some at a time: what is admitted is asked again before each
    /// few of them, as the copying of all may take hours.
    async fn put_lost(&self, candidates: &mut [Candidate], staging: &Staging) -> Result<(), Fault> {
        let is_lost = |one: &&Candidate| one.staged().is_some() && one.found.kind == BadKind::Lost;
        let lost = candidates.iter().filter(is_lost).map(|one| (one.path().clone(), one.item.bytes())).collect();
        let rate = self.verifier.orders.budget.into_iter().chain(self.orders.spec.settings.rate).min();
        let bytes_max = rate.map_or(BYTES_AT_ONCE, |rate| rate.saturating_mul(SECONDS_AT_ONCE).min(BYTES_AT_ONCE));
        for (at, names) in portions(lost, bytes_max).into_iter().enumerate() {
            // The first few were admitted right now.
            if at > 0 {
                tokio::select! {
                    admitted = self.admit_again(candidates) => admitted?,
                    () = self.to_stop() => return Err(stopped()),
                }
            }
            self.need_time()?;
            self.put(candidates, (&names, staging)).await?;
        }
        Ok(())
    }

    /// Begins nothing once it is to stop.
    fn need_time(&self) -> Result<(), Fault> {
        if self.stopped.borrow().is_some() { Err(stopped()) } else { Ok(()) }
    }

    /// The destination, of which files are to be moved aside.
    async fn aside(&self) -> Result<AsideGround, Fault> {
        let plan = PlanName { digest: *blake3::hash(&self.id.0).as_bytes(), made: seconds_now() };
        let (dest, onto) = (self.verifier.destination(self.orders), self.within()?);
        let credentials = match dest {
            CampaignPlace::Here(_) => None,
            CampaignPlace::Daemon { .. } => Some(self.key().await?),
        };
        AsideGround::open((dest, onto), credentials, plan, self.stop).await
    }

    /// Looks at names and reads them once more. Gives those that are damaged still, with their
    /// facts. One that is well by now goes to the findings, and any other is given up.
    async fn going(
        &self,
        names: &[RelPath],
        (candidates, found): (&mut Vec<Candidate>, &mut BatchFindings),
        ground: &mut AsideGround,
    ) -> Result<Vec<(RelPath, NameFacts)>, Fault> {
        let looked = ground.look(names.to_vec(), self.stop).await?;
        let looked: FactsSeen = names.iter().cloned().zip(looked).collect();
        let items = candidates.iter().filter(|one| looked.contains_key(one.path())).map(|one| one.item.clone());
        let again = self.read(items.collect()).await?;
        let mut going = Vec::new();
        candidates.retain_mut(|candidate| {
            let Some(seen) = looked.get(candidate.path()) else { return true };
            let bad = again.bad.iter().find(|bad| bad.path == candidate.path().as_bytes());
            let Some(bad) = bad.filter(|bad| !self.is_passed_over(bad)) else {
                found.passed_over += u64::from(bad.is_some());
                found.well.push(candidate.path().as_bytes().to_vec());
                return false;
            };
            match seen {
                Ok(Some(seen)) if bad.kind == BadKind::Damaged && seen.kind == NameKind::File => {
                    going.push((candidate.path().clone(), *seen));
                }
                Err(fault) => candidate.give_up(&fault.message),
                Ok(_) => {
                    candidate.found = bad.clone();
                    candidate.give_up("it is not as it was found at first, and stays");
                }
            }
            true
        });
        Ok(going)
    }

    /// Gives those whose copies can be read, and find room at the destination if that is a
    /// directory of this host. The others are given up, and stand as they are.
    async fn prepared(
        &self,
        going: Vec<(RelPath, NameFacts)>,
        candidates: &mut [Candidate],
        staging: &Staging,
    ) -> Result<Vec<(RelPath, NameFacts)>, Fault> {
        let mut room = match self.verifier.destination(self.orders) {
            CampaignPlace::Here(dest) => Some(blocking(move || room_at(&dest)).await??),
            CampaignPlace::Daemon { .. } => None,
        };
        let (_, within) = self.receiving()?;
        let mut prepared = Vec::with_capacity(going.len());
        for (path, facts) in going {
            let Some(candidate) = candidates.iter_mut().find(|one| *one.path() == path) else { continue };
            let Some(at) = candidate.staged() else { continue };
            let left = room.map(|room| room.checked_sub(candidate.item.bytes()));
            match (left, staging.is_readable(at, &within.concat(&path).map_err(unfit)?)) {
                (Some(None), _) => candidate.give_up("there is no room for its copy at the destination"),
                (_, Err(fault)) => candidate.give_up(&fault.message),
                (left, Ok(())) => {
                    room = left.flatten();
                    prepared.push((path, facts));
                }
            }
        }
        Ok(prepared)
    }

    /// Moves names aside and gives them their copies. A copy is sent wherever it is not known that
    /// the name is taken: it replaces nothing.
    async fn swap(
        &self,
        going: Vec<(RelPath, NameFacts)>,
        candidates: &mut [Candidate],
        (ground, staging): (&mut AsideGround, &Staging),
    ) -> Result<(), Fault> {
        if going.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = going.iter().map(|(path, _)| path.clone()).collect();
        let ends = tokio::select! {
            ends = ground.withdraw(going, self.stop) => ends,
            () = self.patience() => Err(stopped()),
        };
        let mut ends = match ends {
            Ok(ends) => ends.into_iter(),
            Err(fault) => vec![Err(fault); names.len()].into_iter(),
        };
        for path in &names {
            let Some(candidate) = candidates.iter_mut().find(|one| one.path() == path) else { continue };
            candidate.moved(ends.next(), ground.kept_in(path));
        }
        self.put(candidates, (&names.into_iter().collect(), staging)).await
    }

    /// Has copies go under these names, where nothing is replaced. None go beneath the name of a
    /// dataset that is not the one whose list was read, or is gone.
    async fn put(
        &self,
        candidates: &mut [Candidate],
        (names, staging): (&BTreeSet<RelPath>, &Staging),
    ) -> Result<(), Fault> {
        let trees: BTreeSet<usize> =
            candidates.iter().filter(|one| names.contains(one.path())).filter_map(Candidate::staged).collect();
        let (dest, within) = self.receiving()?;
        for at in trees {
            if let Some(why) = self.unlisted().await? {
                let is_left = |one: &&mut Candidate| one.staged().is_some() && one.put == CopyPut::No;
                for candidate in candidates.iter_mut().filter(is_left).filter(|one| names.contains(one.path())) {
                    candidate.give_up(&why);
                }
                return Ok(());
            }
            let is_meant = |one: &Candidate| one.staged() == Some(at) && names.contains(one.path());
            let placed = candidates.iter().filter(|one| is_meant(one)).map(|one| within.concat(one.path()));
            let placed = placed.collect::<Result<Vec<_>, _>>().map_err(unfit)?;
            let from = JobSource::Local(vec![LocalSource::contents(staging.stage(at)?)]);
            let job = Job::between(from, dest.receiving());
            let carried = tokio::select! {
                carried = self.carry(job, &placed, CarryTo::Destination) => carried,
                () = self.patience() => Err(stopped()),
            };
            let (files, fault) = match carried {
                Ok(carried) => (carried.files, carried.fault),
                Err(fault) => (BTreeMap::new(), Some(fault)),
            };
            let sent = candidates.iter_mut().filter(|one| is_meant(one));
            for (candidate, placed) in sent.zip(&placed) {
                candidate.sent(files.get(placed), fault.as_ref());
            }
        }
        Ok(())
    }

    /// Reads back what has the names of copies. What is well is mended, whatever was heard of its
    /// transfer.
    async fn read_back(
        &self,
        candidates: &mut Vec<Candidate>,
        (trees, found): (&[CampaignPlace], &mut BatchFindings),
    ) -> Result<(), Fault> {
        let is_sent = |one: &Candidate| one.put != CopyPut::No;
        let items: Vec<_> = candidates.iter().filter(|one| is_sent(one)).map(|one| one.item.clone()).collect();
        if items.is_empty() {
            return Ok(());
        }
        let again = tokio::select! {
            again = self.read(items) => again,
            () = self.patience() => Err(stopped()),
        };
        let again = match again {
            Ok(again) => again,
            Err(fault) => {
                for candidate in candidates.iter_mut().filter(|one| one.put == CopyPut::Done) {
                    candidate.why.push("its copy has the name, and was not read back".to_owned());
                }
                return Err(fault);
            }
        };
        if let Some(why) = self.unlisted().await? {
            self.tell_astray(candidates, &why);
            return Ok(());
        }
        candidates.retain_mut(|candidate| {
            if !is_sent(candidate) {
                return true;
            }
            let bad = again.bad.iter().find(|bad| bad.path == candidate.path().as_bytes());
            if let Some(bad) = bad.filter(|bad| !self.is_passed_over(bad)) {
                candidate.found = bad.clone();
                return true;
            }
            found.well.push(candidate.path().as_bytes().to_vec());
            let from = candidate.staged().and_then(|at| trees.get(at)).map(CampaignPlace::shown);
            match candidate.mended(from.unwrap_or_default()).filter(|_| bad.is_none()) {
                Some(file) => found.mended.push(file),
                None => self.tell_kept(candidate),
            }
            found.passed_over += u64::from(bad.is_some());
            false
        });
        Ok(())
    }

    /// Tells of copies that were sent while another dataset has taken the name, or none has it any
    /// more. None of them is told as mended.
    fn tell_astray(&self, candidates: &mut [Candidate], why: &str) {
        for candidate in candidates.iter_mut().filter(|one| one.put != CopyPut::No) {
            candidate.why.push(format!("{why}, while its copy was put"));
            let shown = Escaped(candidate.path().as_bytes()).to_string();
            let message = format_args!("the copy of '{shown}' may have gone where it does not belong: {why}");
            let fault = Fault::new(FaultCode::Changed, Blame::Local, message).about(shown.clone());
            self.verifier.observer.trouble(&fault.hint_in_words(
                "look beneath the name of the dataset, and remove the file if the dataset there is another one; \
                 a directory with that name and without a sealed list in it was made for the copy",
            ));
        }
    }

    /// Whether somebody has changed a file, and the verifier was told that this is no fault.
    fn is_passed_over(&self, bad: &FoundBad) -> bool {
        bad.kind == BadKind::Changed && self.verifier.orders.changed == ChangedUse::PassedOver
    }

    /// Tells where a file lies whose name has something else by now that is well.
    fn tell_kept(&self, candidate: &Candidate) {
        let (AsideFile::In(kept) | AsideFile::Perhaps(kept)) = &candidate.kept else { return };
        let shown = Escaped(candidate.path().as_bytes()).to_string();
        let message = format_args!("'{shown}' was given something else by somebody, while it was mended");
        let fault = Fault::new(FaultCode::Changed, Blame::Local, message).about(shown.clone());
        let hint = format!("what stood there before may lie in {kept}");
        self.verifier.observer.trouble(&fault.hint_in_words(hint));
    }
}

fn paths_of(candidates: &[Candidate], is_meant: impl Fn(&Candidate) -> bool) -> Vec<RelPath> {
    candidates.iter().filter(|one| is_meant(one)).map(|one| one.path().clone()).collect()
}

/// Whether something has the name of a candidate, whose copy is there.
fn is_standing(candidate: &Candidate) -> bool {
    candidate.staged().is_some() && candidate.found.kind != BadKind::Lost
}

/// Divides files into portions of so many names and bytes at most, each of one file at least.
fn portions(files: Vec<(RelPath, u64)>, bytes_max: u64) -> Vec<BTreeSet<RelPath>> {
    let (mut portions, mut bytes) = (Vec::<BTreeSet<RelPath>>::new(), 0_u64);
    for (path, length) in files {
        bytes = bytes.saturating_add(length);
        match portions.last_mut() {
            Some(last) if last.len() < LOST_AT_ONCE && bytes <= bytes_max => {
                last.insert(path);
            }
            _ => {
                bytes = length;
                portions.push(BTreeSet::from([path]));
            }
        }
    }
    portions
}

/// Seconds since 1970.
fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Names that have nothing under them at a time, at most.
const NAMES_AT_ONCE: usize = 16;
/// Lost files that are given their copies in one transfer, at most.
const LOST_AT_ONCE: usize = 128;
/// Bytes of them, unless one alone has more.
const BYTES_AT_ONCE: u64 = 64 << 20;
/// The time that such a transfer takes at a budget, about.
const SECONDS_AT_ONCE: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_files_are_put_in_portions_of_few_names_and_bytes_and_a_large_one_goes_alone() {
        let file = |number: usize, bytes| (RelPath::new(format!("{number:04}").as_bytes()).unwrap(), bytes);
        let sizes = |files: Vec<_>| portions(files, 10).iter().map(BTreeSet::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![]), [0; 0]);
        assert_eq!(sizes(vec![file(0, 4), file(1, 6), file(2, 1), file(3, 99), file(4, 1)]), [2, 1, 1, 1]);
        assert_eq!(sizes((0..LOST_AT_ONCE + 1).map(|number| file(number, 0)).collect()), [LOST_AT_ONCE, 1]);
    }
}
