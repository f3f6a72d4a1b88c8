//! Whether candidates may be mended at all, whatever their copies are: the campaign must be what it
//! was as the verifier began, the destination the directory in which files stood, and a dataset the
//! one that the campaign has made.
//!
//! In: candidates, and looks at the queue and the destination. Out: candidates that are given up,
//! with the reasons. It is asked before copies are fetched, which may take hours, and again before
//! they take names. Must not know how a copy is made.

use std::collections::BTreeSet;

use longhaul_core::Fault;
use longhaul_jobs::{BadKind, CampaignState};

use super::candidate::Candidate;
use super::place::unfit;
use super::sealed::{ReadingEnd, SealedFile};
use super::{Mending, sealed};
use crate::jobs::verify::blocking;
use crate::jobs::verify::orders::AbsenceUse;
use crate::jobs::verify::shard::TimesKept;

impl Mending<'_> {
    /// Gives up candidates that may not be mended.
    ///
    /// # Errors
    /// The fault of a queue that does not answer.
    pub(super) async fn admit(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        self.give_up_long_paths(candidates)?;
        self.doubt_place(candidates).await?;
        self.admit_again(candidates).await
    }

    /// The same without the look at the destination, right before names are touched: of all
    /// candidates to whose names nothing was done yet.
    ///
    /// # Errors
    /// As [`Mending::admit`].
    pub(super) async fn admit_again(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        self.doubt_campaign(candidates).await?;
        self.doubt_dataset(candidates).await
    }

    /// Gives up files whose paths are too long with that of the dataset before them: copies go
    /// beneath the directory above that. The others of their batch are mended all the same.
    fn give_up_long_paths(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        let (_, within) = self.receiving()?;
        for candidate in candidates.iter_mut().filter(|one| one.is_untouched()) {
            if let Err(error) = within.concat(candidate.path()) {
                candidate.give_up(format_args!("no transfer takes its path beneath the destination: {error}"));
            }
        }
        Ok(())
    }

    /// Gives up lost files where nothing tells that the destination is the directory in which
    /// others stood: its disk may not be mounted.
    async fn doubt_place(&self, candidates: &mut [Candidate]) -> Result<(), Fault> {
        let is_believed = self.verifier.orders.absences == AbsenceUse::Believed;
        let is_doubted = |one: &Candidate| one.is_untouched() && one.found.kind == BadKind::Lost;
        if is_believed || !candidates.iter().any(is_doubted) {
            return Ok(());
        }
        let mark = self.files.mark_now().await;
        if blocking(move || mark.is_same()).await? {
            return Ok(());
        }
        for candidate in candidates.iter_mut().filter(|one| is_doubted(one)) {
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
            Some(now) if now.spec != begun.spec || now.key != begun.key => {}
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
        let Some(dataset) = self.verifier.dataset_here(self.orders)? else {
            give_up(candidates, "a daemon does not tell whether its dataset is the campaign's");
            return Ok(());
        };
        if self.list.get().is_some() {
            if let Some(why) = self.unlisted().await? {
                give_up(candidates, &why);
            }
            return Ok(());
        }
        let onto = self.files.onto();
        let untouched = candidates.iter().filter(|one| one.is_untouched());
        let paths: BTreeSet<_> =
            untouched.map(|one| onto.concat(one.path())).collect::<Result<_, _>>().map_err(unfit)?;
        let (end, ranges) = (ReadingEnd::default(), self.verifier.list_ranges.clone());
        let is_over = end.flag();
        let listed = match blocking(move || sealed::listed(&dataset, &paths, (&ranges, &is_over))).await? {
            Ok(listed) => listed,
            Err(fault) => {
                give_up(candidates, &unconfirmed(&fault));
                return Ok(());
            }
        };
        tracing::debug!(segments = listed.segments_read, files = listed.files.len(), "looked into the sealed list");
        for candidate in candidates.iter_mut().filter(|one| one.is_untouched()) {
            let sealed = onto.concat(candidate.path()).ok().and_then(|path| listed.files.get(&path));
            if let Some(why) = unlike(candidate, (sealed, self.files.keeps_times)) {
                candidate.give_up(why);
            }
        }
        // Whoever asks again sees by it whether the list is the same still.
        let _ = self.list.set(listed.list);
        Ok(())
    }

    /// The reason why the dataset is not, or may not be, the one whose list was read. `None`: it
    /// is, or none was read, as files of the campaign appeared one by one.
    ///
    /// # Errors
    /// The fault of a name that is no path.
    pub(super) async fn unlisted(&self) -> Result<Option<String>, Fault> {
        let (Some(list), Some(dataset)) = (self.list.get(), self.verifier.dataset_here(self.orders)?) else {
            return Ok(None);
        };
        Ok(match blocking(move || sealed::digest_of(&dataset)).await? {
            Ok(now) if now == *list => None,
            Ok(_) => Some("another dataset has taken the name meanwhile".to_owned()),
            Err(fault) => Some(unconfirmed(&fault)),
        })
    }
}

/// The reason why a file is not as the sealed list of the dataset has it. `None`: it is.
/// Where times are not kept, the list has those at which files came.
fn unlike(candidate: &Candidate, (sealed, times): (Option<&SealedFile>, TimesKept)) -> Option<&'static str> {
    let Some(sealed) = sealed else {
        return Some("the dataset has no such file in its sealed list: it may be another one");
    };
    let given = candidate.item.mtime.filter(|_| times == TimesKept::Yes);
    let is_of_other_time = sealed.mtime.zip(given).is_some_and(|(sealed, given)| sealed != given);
    match sealed.b3 {
        None => Some("the dataset has no digest of it in its sealed list"),
        Some(b3) if b3 != candidate.b3 => Some("the dataset has it with another digest in its sealed list"),
        Some(_) => is_of_other_time.then_some("the dataset has it with another time in its sealed list"),
    }
}

fn give_up(candidates: &mut [Candidate], why: &str) {
    candidates.iter_mut().filter(|one| one.is_untouched()).for_each(|one| one.give_up(why));
}

fn unconfirmed(fault: &Fault) -> String {
    format!("the sealed list of the dataset does not confirm it: {}", fault.message)
}
