//! `job ls`, `show`, `left`, `report`: what campaigns there are, what is left of them, what failed.
//!
//! In: a queue. Out: lines and events. Changes nothing in the queue.

use longhaul_jobs::queue::{NOTICES_MAX, OMITTED_NAMES_MAX};
use longhaul_jobs::{CampaignId, FailedFile, JobsError, Rows, Shard, ShardId, ShardKind, Store};

use super::{Figures, JobOutput, Members, Named, figures, queue_failed, queue_place, told};
use crate::cli::job::{JobCampaignArgs, JobQueueArgs};
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;

/// Lists the campaigns.
pub(super) fn list(args: &JobQueueArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let place = queue_place(&args.queue, context)?;
    let mut store = place.open()?;
    telling.note(format_args!("the queue is {place}"));
    let ids = store.transact(|rows| rows.campaign_ids()).map_err(queue_failed)?;
    let all = ids.into_iter().map(|id| figures(&mut store, id)).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<_> = all.iter().map(told).collect();
    telling.campaigns(&all);
    Ok(())
}

/// Tells all that a campaign says, what is left of it, and what holds it.
pub(super) fn show(args: &JobCampaignArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    Members::find(args, context)?.each(telling, show_one)
}

fn show_one(named: &mut Named, telling: &mut JobOutput) -> Result<(), Error> {
    let figures = named.figures()?;
    telling.campaign(&told(&figures));
    let Figures { campaign, left, .. } = figures;
    telling.left(&campaign, &left);
    let mut after = ShardId(0);
    while let Some(shards) = page(named, ShardKind::Held, &mut after)? {
        shards.iter().for_each(|shard| telling.held(shard));
    }
    let id = campaign.id;
    let most = usize::try_from(NOTICES_MAX).unwrap_or(usize::MAX).saturating_mul(2);
    let notices = named.transact(|rows| rows.notices(id, 0, most))?;
    campaign.hooks.all().iter().for_each(|wish| telling.hook(wish, &notices));
    Ok(())
}

/// Tells what is left, and of a family the sum.
pub(super) fn tell_left(args: &JobCampaignArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let figures = Members::find(args, context)?.look(|named| named.figures())?;
    let all: Vec<_> = figures.into_iter().map(|Figures { campaign, left, .. }| (campaign, left)).collect();
    telling.left_of_all(&all);
    Ok(())
}

/// Lists the files that failed.
pub(super) fn report(args: &JobCampaignArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let mut members = Members::find(args, context)?;
    let is_family = members.is_family();
    members.each(telling, |named, telling| {
        if is_family {
            telling.member(&named.figures()?.campaign.name);
        }
        report_one(named, telling)
    })
}

fn report_one(named: &mut Named, telling: &mut JobOutput) -> Result<(), Error> {
    let id = named.id;
    named.transact(|rows| rows.omitted(id))?.iter().for_each(|name| telling.omitted(name));
    for kind in ShardKind::ALL {
        let mut after = ShardId(0);
        while let Some(shards) = page(named, kind, &mut after)? {
            for shard in shards {
                let faults: Vec<FailedFile> = named.transact(|rows| rows.faults_of(shard.id))?;
                faults.iter().for_each(|fault| telling.fault(fault, shard.claim.fence));
                if telling.is_deaf() {
                    return Ok(());
                }
            }
        }
    }
    let left = named.figures()?.left;
    if left.omitted > OMITTED_NAMES_MAX as u64 {
        let names = left.omitted - OMITTED_NAMES_MAX as u64;
        telling.note(format_args!("{names} more names could not be read by 'longhaul job plan', and were not kept"));
    }
    if left.failed.files + left.cancelled.files + left.left.files + left.omitted > 0 {
        telling.exits(Exit::Partial);
    }
    Ok(())
}

/// The next shards of a kind. `None` behind the last.
fn page(named: &mut Named, kind: ShardKind, after: &mut ShardId) -> Result<Option<Vec<Shard>>, Error> {
    let (id, from) = (named.id, *after);
    let shards = named.transact(|rows| shards_of(rows, id, kind, from))?;
    let Some(last) = shards.last() else { return Ok(None) };
    *after = last.id;
    Ok(Some(shards))
}

fn shards_of(
    rows: &mut dyn Rows,
    campaign: CampaignId,
    kind: ShardKind,
    after: ShardId,
) -> Result<Vec<Shard>, JobsError> {
    rows.shards(campaign, kind, after, SHARDS_AT_A_TIME)
}

/// Shards that are read at a time.
const SHARDS_AT_A_TIME: usize = 1000;
