//! Notices to hooks: written with the event that they tell of, in one transaction, and kept until
//! a mover that has the hook says that it was told.
//!
//! In: events of shards and campaigns, and movers with hooks. Out: notices to be told, one by one.
//! A mover that dies in between is followed by another one, so a hook may be told twice. Must not
//! know what a hook is.

use std::time::Duration;

use longhaul_core::{FaultCode, PlainText};

use super::Outcome;
use super::admit::{Admission, AdmitAll};
use crate::error::JobsError;
use crate::ids::{ClaimId, Due, Micros};
use crate::left::left;
use crate::retry::{Treatment, link_pause, treatment};
use crate::rows::{Campaign, Delivery, Hold, HookKey, Notice, NoticeEvent, NoticeKind, NoticeShard, Shard, ShardState};
use crate::store::Rows;

/// A notice that a mover has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenNotice {
    /// The notice.
    pub notice: Notice,
    /// Its campaign.
    pub campaign: Campaign,
}

/// How a hook was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// It was.
    Told,
    /// It was not.
    Failed {
        /// The words of it. At most 1 KiB of them is kept.
        words: PlainText,
        /// Tries behind which it is given up.
        tries_max: u32,
        /// A random number, which spreads pauses.
        chance: u64,
    },
    /// The mover ends, and leaves it to the next one.
    HandedBack,
}

/// Notices of shards and faults that wait for a hook of a campaign behind a leader's turn. What
/// happens while so many wait is not told to that hook; the end of the campaign always is.
pub const NOTICES_MAX: u64 = 10_000;
/// Notices to a hook of a campaign that were given up and are kept: the last ones.
const GIVEN_UP_MAX: usize = 1000;
/// Rows without sense that are given up at a time.
const SENSELESS_MAX: usize = 100;
/// The longest time that a mover may take for a notice, and the longest pause between two tries.
pub const NOTICE_TIME_MAX: Duration = Duration::from_secs(600);
/// Times that a notice is begun, whatever movers say: one that kills each of them ends there.
const NOTICE_TRIES_MAX: u32 = 1000;

/// Takes a notice for one of these hooks, the first ones first, of which the mover says within
/// `time` how it went. `None` if there is none that is due. A notice whose row makes no sense is
/// given up, and one whose campaign makes none is passed over for a while.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that make no sense.
pub fn take_notice(
    rows: &mut dyn Rows,
    hooks: &[HookKey],
    taking: (ClaimId, Duration),
) -> Result<Option<TakenNotice>, JobsError> {
    take_notice_among(rows, hooks, taking, &AdmitAll)
}

/// The same, of a mover that moves some campaigns. Notices of the others stay as they are, for
/// movers that move those. A notice that its campaign does not wish is removed: no rule wrote it.
///
/// # Errors
/// As [`take_notice`], and those of the admission.
pub fn take_notice_among(
    rows: &mut dyn Rows,
    hooks: &[HookKey],
    (taker, time): (ClaimId, Duration),
    among: &dyn Admission,
) -> Result<Option<TakenNotice>, JobsError> {
    let now = rows.now()?;
    let due = Due::at(now, NOTICE_TIME_MAX);
    let mut passed_over = Vec::new();
    for hook in hooks {
        let mut senseless = 0;
        while senseless < SENSELESS_MAX {
            let mut notice = match rows.first_notice(hook, due, &passed_over) {
                Ok(None) => break,
                Ok(Some(notice)) => notice,
                Err(error) if error.is_of_rows() => {
                    rows.give_up_first_notice(hook, due, &passed_over)?;
                    senseless += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let campaign = match rows.campaign(notice.campaign) {
                Ok(None) => {
                    rows.remove_notice(notice.number)?;
                    continue;
                }
                Ok(Some(campaign)) if !among.admits(rows, &campaign)? => {
                    passed_over.push(campaign.id);
                    continue;
                }
                Ok(Some(campaign)) if !campaign.hooks.told_of(notice.event.kind).any(|key| key == hook) => {
                    rows.remove_notice(notice.number)?;
                    senseless += 1;
                    continue;
                }
                Ok(Some(campaign)) => Some(campaign),
                Err(error) if error.is_of_rows() => None,
                Err(error) => return Err(error),
            };
            let time = if campaign.is_some() { time.min(NOTICE_TIME_MAX) } else { NOTICE_TIME_MAX };
            let Delivery { given_up, tries, .. } = &mut notice.delivery;
            (*tries, *given_up) = (tries.saturating_add(1), *tries >= NOTICE_TRIES_MAX);
            (notice.delivery.not_before, notice.delivery.taker) = (now.plus(time), taker);
            rows.put_notice(&notice)?;
            match campaign {
                Some(campaign) if !notice.delivery.given_up => return Ok(Some(TakenNotice { notice, campaign })),
                Some(campaign) => rows.trim_given_up(campaign.id, hook, GIVEN_UP_MAX)?,
                None => senseless += 1,
            }
        }
    }
    Ok(None)
}

/// Takes the word of whoever took a notice. Nobody else is heard.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that make no sense.
pub fn settle_notice(rows: &mut dyn Rows, taken: &Notice, telling: &Telling) -> Result<(), JobsError> {
    let Some(mut notice) = rows.notice(taken.number)?.filter(|notice| notice.delivery.taker == taken.delivery.taker)
    else {
        return Ok(());
    };
    let now = rows.now()?;
    match telling {
        Telling::Told => return rows.remove_notice(notice.number),
        Telling::HandedBack => {
            notice.delivery.tries = notice.delivery.tries.saturating_sub(1);
            notice.delivery.not_before = Micros(0);
        }
        Telling::Failed { words, tries_max, chance } => {
            notice.delivery.failure = Some(words.clone().cut());
            notice.delivery.given_up = notice.delivery.tries >= *tries_max;
            notice.delivery.not_before = now.plus(link_pause(notice.delivery.tries, *chance));
        }
    }
    rows.put_notice(&notice)?;
    if notice.delivery.given_up {
        rows.trim_given_up(notice.campaign, &notice.hook, GIVEN_UP_MAX)?;
    }
    Ok(())
}

/// Writes the notices of a shard with which a mover ended.
pub(super) fn note_end(
    rows: &mut dyn Rows,
    campaign: &Campaign,
    shard: &Shard,
    outcome: &Outcome,
) -> Result<(), JobsError> {
    let fault = match outcome {
        Outcome::Broken { code, .. } if treatment(*code) != Treatment::HandBack => Some(*code),
        Outcome::Alike(Hold::Alike { code, .. }) => Some(*code),
        _ => None,
    };
    match (shard.state, fault) {
        (ShardState::Done | ShardState::Partial, _) => note_shard(rows, campaign, shard, (NoticeKind::Shard, None)),
        (_, Some(code)) => note_shard(rows, campaign, shard, (NoticeKind::Fault, Some(code))),
        _ => Ok(()),
    }
}

/// Writes the notices of a shard.
pub(super) fn note_shard(
    rows: &mut dyn Rows,
    campaign: &Campaign,
    shard: &Shard,
    (kind, code): (NoticeKind, Option<FaultCode>),
) -> Result<(), JobsError> {
    let event = NoticeEvent {
        kind,
        shard: Some(NoticeShard { id: shard.id, link: shard.link, fence: shard.claim.fence }),
        state: PlainText::from(shard.state.kind().name()),
        total: shard.total,
        done: shard.done,
        failed: shard.failed,
        code,
        at: rows.now()?,
    };
    note(rows, campaign, &event)
}

/// Writes the notices of a campaign that came to its end.
pub(super) fn note_campaign(rows: &mut dyn Rows, campaign: &Campaign) -> Result<(), JobsError> {
    if campaign.hooks.told_of(NoticeKind::Campaign).next().is_none() {
        return Ok(());
    }
    // A row that makes no sense keeps no campaign from its end: it is told without figures then.
    let (total, done, failed) = match left(rows, campaign.id) {
        Err(error) if error.is_of_rows() => Default::default(),
        left => left.map(|left| (left.total, left.done, left.failed))?,
    };
    let event = NoticeEvent {
        kind: NoticeKind::Campaign,
        shard: None,
        state: PlainText::from(campaign.state.name()),
        total,
        done,
        failed,
        code: None,
        at: rows.now()?,
    };
    note(rows, campaign, &event)
}

/// Bounds the notices of a campaign that wait. The leader does so: movers that end with shards
/// would be in each other's way if each of them counted what all write.
pub(super) fn bound_waiting(rows: &mut dyn Rows, campaign: &Campaign) -> Result<(), JobsError> {
    campaign.hooks.all().iter().try_for_each(|wish| rows.trim_waiting(campaign.id, &wish.key, NOTICES_MAX))
}

fn note(rows: &mut dyn Rows, campaign: &Campaign, event: &NoticeEvent) -> Result<(), JobsError> {
    for hook in campaign.hooks.told_of(event.kind) {
        let number = rows.next_number()?;
        let (hook, event, delivery) = (hook.clone(), event.clone(), Delivery::default());
        rows.put_notice(&Notice { number, hook, campaign: campaign.id, event, delivery })?;
    }
    Ok(())
}
