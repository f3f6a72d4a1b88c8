//! The campaigns that a command names: one, or all members of a family.
//!
//! In: a queue, and the text that a user typed. Out: each campaign in turn, so that every command
//! takes a family where it takes a campaign. A member that fails holds none of the others. Must not
//! know the rules of the queue.

use longhaul_core::{Blame, Fault, FaultCode, PlainText};
use longhaul_jobs::{Campaign, CampaignId, Store};

use super::{JobOutput, Named, queue_failed, queue_place};
use crate::cli::job::JobCampaignArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::jobs::{QueueStore, campaigns_named};

/// An open queue, and the campaigns in it that a command names.
pub(super) struct Members {
    store: QueueStore,
    all: Vec<Campaign>,
}

impl Members {
    /// The campaigns of the arguments: one at least.
    ///
    /// # Errors
    /// A fault of code not-found if there is none, and those of the queue.
    pub(super) fn find(args: &JobCampaignArgs, context: Context) -> Result<Members, Error> {
        let mut store = queue_place(&args.queue.queue, context)?.open()?;
        let all = campaigns(&mut store, &args.campaign)?;
        Ok(Members { store, all })
    }

    /// Whether they are several: a family.
    pub(super) fn is_family(&self) -> bool {
        self.all.len() > 1
    }

    /// The campaigns, as they were when they were found.
    pub(super) fn all(&self) -> &[Campaign] {
        &self.all
    }

    /// Does something with each of them. What goes wrong with a member of a family is told with its
    /// name, and the others follow; the exit is the worst.
    ///
    /// # Errors
    /// That of a campaign that was named alone.
    pub(super) fn each(
        &mut self,
        telling: &mut JobOutput,
        mut work: impl FnMut(&mut Named, &mut JobOutput) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for campaign in &self.all {
            let mut named = Named { store: &mut self.store, id: campaign.id };
            let before = telling.set_exit_aside();
            match work(&mut named, telling) {
                Err(error) if self.all.len() > 1 => telling.failed(&of_one(&campaign.name, error)),
                done => done?,
            }
            telling.join_exit(before);
        }
        Ok(())
    }

    /// One of them.
    pub(super) fn named(&mut self, id: CampaignId) -> Named<'_> {
        Named { store: &mut self.store, id }
    }

    /// Looks at each of them, until that fails.
    ///
    /// # Errors
    /// The first one. That of a member of a family has its name before it.
    pub(super) fn look<T>(&mut self, mut at: impl FnMut(&mut Named) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let mut looked = Vec::with_capacity(self.all.len());
        for campaign in &self.all {
            match at(&mut Named { store: &mut self.store, id: campaign.id }) {
                Err(error) if self.all.len() > 1 => return Err(of_one(&campaign.name, error).into()),
                found => looked.push(found?),
            }
        }
        Ok(looked)
    }
}

/// The campaigns that a text stands for: that of a name, all members of a family, or that of a
/// number. One at least.
///
/// # Errors
/// A fault of code not-found if there is none, a usage fault if both a campaign and a family have
/// the name, and those of the queue.
pub(super) fn campaigns(store: &mut QueueStore, text: &str) -> Result<Vec<Campaign>, Error> {
    let found = store.transact(|rows| campaigns_named(rows, text)).map_err(queue_failed)??;
    if !found.is_empty() {
        return Ok(found);
    }
    let message = format_args!("there is no campaign '{}' in the queue", PlainText::from(text));
    let fault = Fault::new(FaultCode::NotFound, Blame::Local, message);
    Err(fault.hint_in_words("'longhaul job ls' lists those that there are").into())
}

/// The fault of one of several, with its name before it.
pub(super) fn of_one(name: &str, error: Error) -> Fault {
    let fault = Fault::from(error);
    Fault { message: PlainText::of(format_args!("{name}: {}", fault.message)), ..fault }
}
