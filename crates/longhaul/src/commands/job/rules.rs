//! `job set`: the rules of a campaign that its owner has not signed are changed.
//!
//! In: a queue, a campaign, and the options of `job add` that are such rules. Out: its row, by the
//! rules of the queue, and the campaign as `job show` tells it.

use std::ffi::OsString;

use longhaul_jobs::queue::{CampaignWish, Change, set_campaign};

use super::add::{calendar, deadline, priority, retry_rules, weight};
use super::steer::is_over;
use super::{JobOutput, Members, told};
use crate::cli::job::JobSetArgs;
use crate::commands::Context;
use crate::error::Error;

/// Changes the rules that are given, and tells the campaign.
pub(super) fn set(args: &JobSetArgs, context: Context, telling: &mut JobOutput) -> Result<(), Error> {
    let wish = wish(args)?;
    let mut members = Members::find(&args.campaign, context)?;
    let (changes, spares) = (wish != CampaignWish::default(), !members.all().iter().all(is_over));
    members.each(telling, |named, telling| {
        let id = named.id;
        // Members of a family that are over keep their rules, unless all are: then that is refused.
        if changes && !(spares && is_over(&named.figures()?.campaign)) {
            named.transact(|rows| set_campaign(rows, id, &wish))?;
        }
        telling.campaign(&told(&named.figures()?));
        Ok(())
    })
}

fn wish(args: &JobSetArgs) -> Result<CampaignWish, Error> {
    Ok(CampaignWish {
        priority: priority(&args.priority)?,
        weight: weight(&args.weight)?,
        deadline: change(&args.deadline, deadline)?,
        calendar: change(&args.calendar, calendar)?,
        retry: change(&args.retry_rules, retry_rules)?,
    })
}

/// The change of something that `none` takes away.
pub(super) fn change<T>(
    flag: &Option<OsString>,
    parse: impl FnOnce(&Option<OsString>) -> Result<Option<T>, Error>,
) -> Result<Change<T>, Error> {
    if flag.as_deref().is_some_and(|text| text == "none") {
        return Ok(Change::Remove);
    }
    Ok(parse(flag)?.map_or(Change::Keep, Change::Set))
}
