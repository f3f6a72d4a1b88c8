//! Whether candidates may be mended at all, whatever their copies are: the campaign must be what it
//! was as the verifier began, the destination the directory in which files stood, and a dataset the
//! one that the campaign has made.
//!
//! In: candidates, and looks at the queue and the destination. Out: candidates that are given up,
//! with the reasons. It is asked before copies are fetched, which may take hours, and again before
//! they take names. Must not know how a copy is made.

use std::collections::BTreeSet;
use std::path::PathBuf;

use longhaul_core::{Blame, Fault, FaultCode, PathError, RelPath};
use longhaul_jobs::{BadKind, CampaignState};

use super::candidate::Candidate;
use super::{Mending, sealed};
use crate::jobs::spec::{CampaignPlace, beneath};
use crate::jobs::verify::orders::{AbsenceUse, MendOrders};
use crate::jobs::verify::{Verifier, blocking};

impl Verifier {
    /// The campaign's destination.
    pub(super) fn destination(&self, orders: &MendOrders) -> CampaignPlace {
        self.orders.at.clone().map_or_else(|| orders.spec.to.clone(), CampaignPlace::Here)
    }

    /// The directory of this host that is the campaign's dataset. `None`: its files appeared one by
    /// one, or the dataset is at a daemon.
    pub(super) fn dataset_here(&self, orders: &MendOrders) -> Option<PathBuf> {
        let CampaignPlace::Here(dest) = self.destination(orders) else { return None };
        dataset_name(orders).ok().flatten().map(|name| beneath(&dest, &name))
    }
}

/// The name of the campaign's dataset, as a path.
///
/// # Errors
/// The fault of a name that is no path.
pub(super) fn dataset_name(orders: &MendOrders) -> Result<Option<RelPath>, Fault> {
    let name = orders.spec.dataset.as_ref().map(|name| RelPath::new(name.as_bytes()));
    name.transpose().map_err(unfit)
}

impl Mending<'_> {
    /// Gives up candidates that may not be mended.
    ///
    /// # Errors
    /// The fault of a queue that does not answer.
    pub(super) async fn admit(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        self.doubt_place(candidates).await?;
        self.admit_again(candidates).await
    }

    /// The same of those that are damaged, whose names are about to be moved aside.
    ///
    /// # Errors
    /// As [`Mending::admit`].
    pub(super) async fn admit_again(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        self.doubt_campaign(candidates).await?;
        self.doubt_dataset(candidates).await
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

    /// Gives up all of a campaign that the queue has otherwise than as the verifier began, or that
    /// was cancelled since.
    async fn doubt_campaign(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        let (id, begun) = (self.verifier.orders.campaign, &self.orders.begun);
        let now = self.verifier.transact(move |rows| rows.campaign(id)).await?;
        let is_cancelled = |state| state == CampaignState::Cancelled;
        match now {
            Some(now) if now.spec != begun.spec => {}
            Some(now) if is_cancelled(now.state) && !is_cancelled(begun.state) => {
                give_up(candidates, "the campaign was cancelled since the verifier began");
                return Ok(());
            }
            Some(_) => return Ok(()),
            None => {}
        }
        give_up(candidates, "the queue says something else of the campaign than when the verifier began");
        Ok(())
    }

    /// Gives up files that are not in the dataset that has the name, by its own sealed list: that
    /// may be another one than the campaign's by now.
    async fn doubt_dataset(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        if self.orders.spec.dataset.is_none() || !candidates.iter().any(Candidate::is_untouched) {
            return Ok(());
        }
        let Some(dataset) = self.verifier.dataset_here(self.orders) else {
            give_up(candidates, "a daemon does not tell whether its dataset is the campaign's");
            return Ok(());
        };
        if let Some(list) = self.list.get() {
            match blocking(move || sealed::digest_of(&dataset)).await? {
                Ok(now) if now == *list => {}
                Ok(_) => give_up(candidates, "another dataset has taken the name meanwhile"),
                Err(fault) => give_up(candidates, &unconfirmed(&fault)),
            }
            return Ok(());
        }
        let onto = self.files.onto();
        let untouched = candidates.iter().filter(|one| one.is_untouched());
        let paths: BTreeSet<_> =
            untouched.map(|one| onto.concat(one.path())).collect::<Result<_, _>>().map_err(unfit)?;
        let (list, listed) = match blocking(move || sealed::listed(&dataset, &paths)).await? {
            Ok(listed) => listed,
            Err(fault) => {
                give_up(candidates, &unconfirmed(&fault));
                return Ok(());
            }
        };
        for candidate in candidates.iter_mut().filter(|one| one.is_untouched()) {
            match onto.concat(candidate.path()).ok().and_then(|path| listed.get(&path)) {
                Some(b3) if *b3 == candidate.b3 => {}
                Some(_) => candidate.give_up("the dataset has it with another digest in its sealed list"),
                None => candidate.give_up("the dataset has no such file in its sealed list: it may be another one"),
            }
        }
        // Whoever asks again sees by it whether the list is the same still.
        let _ = self.list.set(list);
        Ok(())
    }
}

fn give_up(candidates: &mut [Candidate], why: &str) {
    candidates.iter_mut().filter(|one| one.is_untouched()).for_each(|one| one.give_up(why));
}

fn unconfirmed(fault: &Fault) -> String {
    format!("the sealed list of the dataset does not confirm it: {}", fault.message)
}

/// The fault of a path that no transfer takes.
pub(super) fn unfit(error: PathError) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, error)
}
