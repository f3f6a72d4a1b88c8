//! `job hold`, `release`, `cancel`, `retry`: what users decide about a campaign.
//!
//! In: a queue and a campaign. Out: rows, by the rules; and what a cancelled campaign has staged on
//! this host goes. Movers hear of it with their next beat.

use longhaul_core::ByteCount;
use longhaul_jobs::queue::{Selection, cancel, hold, release, retry, retry_commit, set_link_state};
use longhaul_jobs::{Campaign, CampaignId, CampaignState, JobsError, LinkState, Rows, ShardId, Store, codes};

use super::add::parsed;
use super::{JobOutput, Members, Named, told};
use crate::cli::job::{JobCampaignArgs, JobRetryArgs};
use crate::commands::Context;
use crate::error::{Error, Flaw};
use crate::jobs::{Discarded, discard_staged, page_of};

/// A decision about a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing of it begins.
    Hold,
    /// It goes on.
    Release,
    /// It ends for good.
    Cancel,
}

/// Carries a decision out. Members of a family that are over are passed over, unless all are.
pub(super) fn steer(
    args: &JobCampaignArgs,
    step: Step,
    context: Context,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    let mut members = Members::find(args, context)?;
    let (spares, mut stepped) = (!members.all().iter().all(is_over), Vec::new());
    members.each(telling, |named, telling| {
        let (id, figures) = (named.id, named.figures()?);
        if spares && is_over(&figures.campaign) {
            let Campaign { name, state, .. } = &figures.campaign;
            telling.note(format_args!("{name} is {} already, and is passed over", state.name()));
            return Ok(());
        }
        named.transact(|rows| match step {
            Step::Hold => hold(rows, id),
            Step::Release => {
                release(rows, id)?;
                open_links(rows, id)
            }
            Step::Cancel => cancel(rows, id),
        })?;
        stepped.push(named.figures()?);
        Ok(())
    })?;
    let all: Vec<_> = stepped.iter().map(told).collect();
    if !all.is_empty() {
        telling.campaigns(&all);
    }
    if step == Step::Cancel {
        members.each(telling, discard)?;
    }
    Ok(())
}

/// Whether a campaign will not go on.
pub(super) fn is_over(campaign: &Campaign) -> bool {
    matches!(campaign.state, CampaignState::Done | CampaignState::Cancelled)
}

/// Removes what a campaign that was cancelled has staged on this host, as far as nobody has to do
/// with it any more.
fn discard(named: &mut Named, telling: &mut JobOutput) -> Result<(), Error> {
    let (id, campaign) = (named.id, named.figures()?.campaign);
    let store = &mut *named.store;
    match discard_staged(&campaign, &mut |at| store.transact(|rows| page_of(rows, id, at))) {
        Ok(Discarded::Nothing) => {}
        Ok(Discarded::InUse) => telling.note(
            "a mover has shards of the campaign still: it removes what is staged on its host as it ends with them, and \
             so does this command if it is run again",
        ),
        Ok(Discarded::Removed(removed)) => {
            let (files, bytes) = (removed.files, ByteCount(removed.bytes));
            telling.note(format_args!("what the campaign had staged on this host is removed: {files} files, {bytes}"));
        }
        Err(fault) => telling.failed(&fault),
    }
    Ok(())
}

/// Opens the links of a campaign that closed themselves, so that whoever has mended the reason
/// needs one command.
fn open_links(rows: &mut dyn Rows, campaign: CampaignId) -> Result<(), JobsError> {
    for sum in rows.shard_sums(campaign)? {
        let state = rows.link(sum.link)?.map(|link| link.state);
        if !sum.kind.is_settled() && matches!(state, Some(LinkState::Closed(Some(_)))) {
            set_link_state(rows, sum.link, LinkState::Open)?;
        }
    }
    Ok(())
}

/// Whether nothing of a campaign can be tried again: it is not planned yet, or was cancelled.
fn has_no_faults(campaign: &Campaign) -> bool {
    matches!(campaign.state, CampaignState::Planning | CampaignState::Cancelled)
}

/// Has files tried again.
pub(super) fn retry_faults(args: &JobRetryArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let code = args.code.as_ref().map(Into::into);
    let code = parsed("code", &code, |text| {
        let form = "the name of a fault, as not-found or changed";
        codes::code_of_name(text).ok_or_else(|| Flaw::Form { given: text.to_owned(), form })
    })?;
    let selection = code.map_or(Selection::All, Selection::Code);
    let (mut files, mut commit) = (0, None);
    let mut members = Members::find(&args.campaign, context)?;
    let spares = !members.all().iter().all(has_no_faults);
    members.each(telling, |named, telling| {
        let (id, mut after) = (named.id, Some(ShardId(0)));
        let campaign = named.figures()?.campaign;
        if spares && has_no_faults(&campaign) {
            telling.note(format_args!("{} is {}, and is passed over", campaign.name, campaign.state.name()));
            return Ok(());
        }
        while let Some(from) = after {
            let (more, next) = named.transact(|rows| retry(rows, id, selection, from))?;
            (files, after) = (files + more, next);
        }
        let mut after = Some(ShardId(0));
        while let Some(from) = after {
            let again = named.transact(|rows| retry_commit(rows, id, selection, from))?;
            (files, after) = (files + again.files, again.next);
            commit = again.state.or(commit);
        }
        Ok(())
    })?;
    telling.retried(files, commit);
    Ok(())
}
