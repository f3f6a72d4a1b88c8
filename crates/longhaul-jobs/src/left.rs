//! How much is left of a campaign: exact sums, and the time that they take at the present rate.
//!
//! In: sums over a campaign's rows. Out: files, bytes and times, by link and by fault. It is
//! arithmetic over what is recorded, and nothing is estimated but the time. Must not know how it is
//! shown.

use std::time::Duration;

use longhaul_core::FaultCode;

use crate::calendar::Calendar;
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, LinkId};
use crate::rows::{CampaignState, FaultState, LinkState, LinkWait, ShardKind, ShardState};
use crate::store::Rows;

/// A campaign in figures: `total` is the sum of `done`, `failed`, `cancelled` and `left`, always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// All of it.
    pub total: Amount,
    /// Files that stand at its destinations. Of shards that movers have it is what they last said.
    pub done: Amount,
    /// Files that were given up.
    pub failed: Amount,
    /// Files that will not be moved, as the campaign was cancelled.
    pub cancelled: Amount,
    /// The rest.
    pub left: Amount,
    /// The part of the rest that waits for a user.
    pub held: Amount,
    /// Names that could not be read when it was planned. They are in no other figure.
    pub omitted: u64,
    /// Shards whose last mover showed no claim, as the destination keeps none.
    pub unclaimed: u64,
    /// The rest, by link.
    pub links: Vec<LinkLeft>,
    /// Files that failed and do not stand, by fault.
    pub faults: Vec<FaultLeft>,
    /// The time of the slowest link: links work side by side.
    pub time: TimeLeft,
    /// How far the commit is by which all files appear together. `None`: each appears when it is
    /// done.
    pub commit: Option<ShardState>,
}

/// The rest of a campaign on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLeft {
    /// The link.
    pub link: LinkId,
    /// Its state.
    pub state: LinkState,
    /// The reason why nothing of the rest begins there, though it is open.
    pub waits: Option<LinkWait>,
    /// The rest.
    pub left: Amount,
    /// The part of it that waits for a user.
    pub held: Amount,
    /// The present rate, of all campaigns together, bytes/s.
    pub rate: u64,
    /// The time that is left at that rate.
    pub time: TimeLeft,
}

/// Files that failed with one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultLeft {
    /// The fault.
    pub code: FaultCode,
    /// Files that are tried again. They are part of what is left.
    pub waiting: Amount,
    /// Files that were given up.
    pub given_up: Amount,
}

/// A time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeLeft {
    /// Nothing is left.
    Nothing,
    /// At the present rate it takes so long.
    Takes(Duration),
    /// Nothing moves at present, so that no time can be said.
    StandsStill,
}

/// The figures of a campaign.
///
/// # Errors
/// [`JobsError::NoCampaign`], [`JobsError::TooMuch`] for sums beyond 64 bits,
/// [`JobsError::BadRow`], [`JobsError::Store`].
pub fn left(rows: &mut dyn Rows, campaign: CampaignId) -> Result<Left, JobsError> {
    let row = rows.campaign(campaign)?.ok_or(JobsError::NoCampaign(campaign))?;
    let zero = Amount::default();
    let mut sums = Left {
        total: zero,
        done: zero,
        failed: zero,
        cancelled: zero,
        left: zero,
        held: zero,
        omitted: row.omitted,
        unclaimed: 0,
        links: Vec::new(),
        faults: faults(rows, campaign, row.state)?,
        time: TimeLeft::Nothing,
        commit: rows.commit_of(campaign)?.map(|commit| commit.state),
    };
    for sum in rows.shard_sums(campaign)? {
        let counted = sum.done.plus(sum.failed).ok_or(TOO_MUCH)?;
        let rest = sum.total.minus(counted).ok_or(JobsError::BadRow("a shard has more files settled than files"))?;
        sums.unclaimed = sums.unclaimed.saturating_add(sum.unclaimed);
        add(&mut sums.total, sum.total)?;
        add(&mut sums.done, sum.done)?;
        add(&mut sums.failed, sum.failed)?;
        if sum.kind == ShardKind::Cancelled {
            add(&mut sums.cancelled, rest)?;
            continue;
        }
        add(&mut sums.left, rest)?;
        let link = link_left(rows, &mut sums.links, (sum.link, &row.calendar))?;
        add(&mut link.left, rest)?;
        if sum.kind == ShardKind::Held {
            add(&mut link.held, rest)?;
            add(&mut sums.held, rest)?;
        }
    }
    for link in &mut sums.links {
        link.time = time(link.left, link.rate);
        link.waits = link.waits.filter(|_| link.left.files > 0);
        sums.time = sums.time.max(link.time);
    }
    Ok(sums)
}

const TOO_MUCH: JobsError = JobsError::TooMuch("files of a campaign");

fn link_left<'a>(
    rows: &mut dyn Rows,
    links: &'a mut Vec<LinkLeft>,
    (id, calendar): (LinkId, &Calendar),
) -> Result<&'a mut LinkLeft, JobsError> {
    if let Some(at) = links.iter().position(|link| link.link == id) {
        return Ok(&mut links[at]);
    }
    let (link, now) = (rows.link(id)?.ok_or(JobsError::NoLink(id))?, rows.now()?);
    let (zero, rate, time) = (Amount::default(), link.meter.rate_at(now), TimeLeft::Nothing);
    let waits = link.waits(calendar, now);
    links.push(LinkLeft { link: id, state: link.state, waits, left: zero, held: zero, rate, time });
    let last = links.len() - 1;
    Ok(&mut links[last])
}

/// Failed files by fault. Those of a cancelled campaign that waited are not tried again.
fn faults(rows: &mut dyn Rows, campaign: CampaignId, campaign_is: CampaignState) -> Result<Vec<FaultLeft>, JobsError> {
    let mut faults: Vec<FaultLeft> = Vec::new();
    for sum in rows.fault_sums(campaign)? {
        if campaign_is == CampaignState::Cancelled && sum.state == FaultState::Waiting {
            continue;
        }
        let at = faults.iter().position(|fault| fault.code == sum.code).unwrap_or_else(|| {
            faults.push(FaultLeft { code: sum.code, waiting: Amount::default(), given_up: Amount::default() });
            faults.len() - 1
        });
        let fault = &mut faults[at];
        let part = if sum.state == FaultState::Waiting { &mut fault.waiting } else { &mut fault.given_up };
        add(part, sum.amount)?;
    }
    Ok(faults)
}

fn add(sum: &mut Amount, more: Amount) -> Result<(), JobsError> {
    *sum = sum.plus(more).ok_or(TOO_MUCH)?;
    Ok(())
}

/// The time of so much at a rate, rounded up to a second. Files without bytes take no time that a
/// rate could tell.
fn time(left: Amount, rate: u64) -> TimeLeft {
    match (left.files, left.bytes, rate) {
        (0, _, _) => TimeLeft::Nothing,
        (_, 0, _) => TimeLeft::Takes(Duration::ZERO),
        (_, _, 0) => TimeLeft::StandsStill,
        (_, bytes, rate) => TimeLeft::Takes(Duration::from_secs(bytes.div_ceil(rate))),
    }
}
