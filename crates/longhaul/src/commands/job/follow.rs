//! `job wait`, `watch`: looks at a campaign, or at all of a family, again and again until it is
//! over.
//!
//! In: a queue. Out: lines and events, and the exit of the campaign. The queue is a file that
//! others write to, so that it is asked and tells nothing by itself. Changes nothing.

use std::thread;
use std::time::{Duration, Instant};

use longhaul_jobs::queue::AdmitAll;
use longhaul_jobs::{Campaign, CampaignState, Left, ShardState};

use super::add::parsed;
use super::{Figures, JobOutput, Members, Named};
use crate::cli::job::{JobWaitArgs, JobWatchArgs};
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::jobs::is_drained;
use crate::output::exit_of_campaign;
use crate::values;

/// Waits for a campaign, or for all of a family. The exit is the worst.
pub(super) fn wait(args: &JobWaitArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let most = parsed("max-time", &args.max_time, values::retry_for)?;
    let (mut members, begun) = (Members::find(&args.campaign, context)?, Instant::now());
    loop {
        let LookedAt { all, exit } = look(&mut members)?;
        let is_late = most.is_some_and(|most| begun.elapsed() >= most);
        if exit.is_some() || is_late {
            telling.left_of_all(&all);
            telling.exits(exit.unwrap_or(Exit::Temporary));
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Tells what is left again and again.
pub(super) fn watch(args: &JobWatchArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let form = "a time from 1s to 1d, as 5s or 10m";
    let bounds = Duration::from_secs(1)..=Duration::from_secs(86_400);
    let every = parsed("every", &args.every, |text| values::time_between(text, bounds, form))?.unwrap_or(WATCH_EVERY);
    let mut members = Members::find(&args.campaign, context)?;
    loop {
        let LookedAt { all, exit } = look(&mut members)?;
        telling.left_of_all(&all);
        telling.flush();
        if let Some(exit) = exit {
            telling.exits(exit);
            return Ok(());
        }
        if telling.is_deaf() {
            return Ok(());
        }
        thread::sleep(every);
    }
}

/// A look at a campaign, or at all of a family.
struct LookedAt {
    all: Vec<(Campaign, Left)>,
    /// The worst exit of them. `None`: something more comes of one of them without a user.
    exit: Option<Exit>,
}

/// Looks at each of them.
fn look(members: &mut Members) -> Result<LookedAt, Error> {
    let mut looked = LookedAt { all: Vec::new(), exit: Some(Exit::Complete) };
    for (campaign, left, is_over) in members.look(look_at)? {
        let exit = is_over.then(|| exit_of_campaign(&campaign, &left));
        looked.exit = looked.exit.and_then(|worst| Some(worst.worse(exit?)));
        looked.all.push((campaign, left));
    }
    Ok(looked)
}

/// Looks at a campaign, and says whether it is over: one that is done or cancelled is, and one of
/// which nothing can be moved before a user plans it, releases it, or opens a link.
fn look_at(named: &mut Named) -> Result<(Campaign, Left, bool), Error> {
    let Figures { campaign, left, .. } = named.figures()?;
    let id = named.id;
    let is_drained = named.transact(|rows| {
        let links: Vec<_> = rows.links()?.into_iter().map(|link| link.id).collect();
        is_drained(rows, &[id], &links, &AdmitAll)
    })?;
    // Behind its last shard, the leader's next turn says that it is done.
    let is_over = match campaign.state {
        CampaignState::Done | CampaignState::Cancelled => true,
        CampaignState::Running => is_drained && (left.left.files > 0 || is_held(left.commit)),
        CampaignState::Planning | CampaignState::Held => is_drained,
    };
    Ok((campaign, left, is_over))
}

fn is_held(commit: Option<ShardState>) -> bool {
    matches!(commit, Some(ShardState::Held(_)))
}

/// A campaign that is waited for is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The time between two tellings of `watch`.
const WATCH_EVERY: Duration = Duration::from_secs(5);
