//! The report of a mover that ends with a shard.
//!
//! In: a claim, what stands, what failed, and why the session ended. Out: the shard's next state,
//! rows of its failed files, and pauses. Must not know how a mover found out.

use std::collections::BTreeMap;

use longhaul_core::{Blame, FaultCode, PlainText};

use super::commit::let_commit_go;
use super::{advance, campaign_of, link_of, notices, permits, shard_of, verify};
use crate::error::JobsError;
use crate::ids::{Amount, Claim, Micros, ShardId};
use crate::retry::{Treatment, shard_pause, treatment};
use crate::rows::{BackOff, CampaignState, FailedFile, FaultState, Hold, Link, LinkState, Shard, ShardState, Tries};
use crate::store::Rows;

/// The report of a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The shard.
    pub shard: ShardId,
    /// The mover's claim.
    pub claim: Claim,
    /// Files that stand at the destination, as far as this claim knows.
    pub done: Amount,
    /// Bytes that became durable in this claim, as in a heartbeat.
    pub moved: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// No claim was shown: the destination keeps none.
    pub unclaimed: bool,
    /// A random number, which spreads pauses.
    pub chance: u64,
}

/// How a mover ended with a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Each file stands, was given up before, or failed now.
    Through(Vec<FileFault>),
    /// The session ended with a fault.
    Broken {
        /// The fault.
        code: FaultCode,
        /// The place that failed.
        at: BreakPlace,
        /// Whether the destination had let the session begin.
        welcome: bool,
    },
    /// It stopped for this reason, as nearly all files fail alike.
    Alike(Hold),
    /// It was asked to stop, or its host needs it to.
    HandedBack,
}

/// The place of a fault that ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakPlace {
    /// The way to the destination, or the destination: all shards of the link meet the fault.
    Link,
    /// The mover's host, or the source there: the link is as well as it was, and another host may
    /// move the shard.
    Host,
    /// The shard itself, as queue and manifest have it: every mover meets the same.
    Shard,
}

/// A file that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Its path in the manifest: bytes.
    pub path: Vec<u8>,
    /// Its size by the manifest.
    pub bytes: u64,
    /// The fault.
    pub code: FaultCode,
    /// Whose failure it is.
    pub blame: Blame,
    /// The words of it. At most 1 KiB of them is kept.
    pub message: PlainText,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It is recorded, and the shard has this state.
    Recorded(ShardState),
    /// The shard is another's: nothing was recorded.
    Gone,
}

/// Times that a shard is begun in vain before it is held: as a mover was not heard of again, or as
/// its session failed on a link on which others went well.
pub(super) const VAIN_MAX: u32 = 5;
/// Times that a shard's sessions fail after they began, or that movers' hosts cannot move it, with
/// no progress, before it is held although others of its link may be as ill. An outage ends
/// sessions before they begin.
const BREAKS_MAX: u32 = 20;

/// Takes a mover's report. Only the claim that has the shard is heard.
///
/// # Errors
/// [`JobsError::Miscounted`] if a report of all files does not account for each, once and with its
/// bytes, [`JobsError::NamedTwice`], [`JobsError::Store`], and those of rows that name others which
/// are not there.
pub fn finish(rows: &mut dyn Rows, report: &Report) -> Result<Finished, JobsError> {
    let mut shard = shard_of(rows, report.shard)?;
    if shard.lease_of(report.claim).is_none() {
        return Ok(Finished::Gone);
    }
    let now = rows.now()?;
    let mut link = link_of(rows, shard.link)?;
    let campaign = campaign_of(rows, shard.campaign)?;
    let link_was_well = if link.back_off.failures == 0 { Health::Well } else { Health::Failing };
    advance((&mut shard, &mut link), now, report.done, report.moved);
    shard.state = match &report.outcome {
        Outcome::Through(faults) => {
            shard.done = report.done;
            link.back_off = BackOff::default();
            let mismatches = faults.iter().filter(|fault| fault.code == FaultCode::Mismatch).count();
            link.count_mismatches(u32::try_from(mismatches).unwrap_or(u32::MAX));
            let tries = |code| campaign.retry.tries(code);
            let waiting = record_faults(rows, &mut shard, faults, &tries)?;
            settled(&mut shard, waiting, now, report.chance)
        }
        Outcome::Alike(hold) => ShardState::Held(*hold),
        Outcome::HandedBack => ShardState::Planned,
        Outcome::Broken { code, at: BreakPlace::Shard, .. } => ShardState::Held(Hold::Broken(*code)),
        Outcome::Broken { code, at: BreakPlace::Host, .. } => host_failed(&mut shard, *code, (now, report.chance)),
        // A session of a shard has not let go of what is staged yet. The link is well.
        Outcome::Broken { code: FaultCode::Busy, .. } if shard.part.is_commit() => {
            shard.tries.again = shard.tries.again.saturating_add(1);
            shard.turn.not_before = now.plus(shard_pause(shard.tries.again, report.chance));
            ShardState::Planned
        }
        Outcome::Broken { code, welcome: true, .. } if shard.part.is_commit() && is_of_stage(*code) => {
            stage_failed(&mut shard, *code, (now, report.chance))
        }
        Outcome::Broken { code, welcome, .. } => {
            let counts = *welcome && *code != FaultCode::Unreachable;
            // What a commit reads again shows that the link is well, and it may be the only shard
            // there.
            let before = if shard.part.is_commit() { Health::Failing } else { link_was_well };
            broken((&mut shard, &mut link), *code, (now, report.chance), (before, counts))
        }
    };
    shard.news.unclaimed = report.unclaimed;
    shard.left()?;
    if campaign.state == CampaignState::Cancelled && !shard.state.kind().is_settled() {
        shard.state = ShardState::Cancelled;
    }
    permits::give_back(rows, shard.id, report.claim)?;
    rows.put_link(&link)?;
    rows.put_shard(&shard)?;
    if let Outcome::Through(_) = &report.outcome {
        verify::note_delivered(rows, shard.id)?;
    }
    if shard.state == ShardState::Done {
        let_commit_go(rows, &campaign)?;
    }
    notices::note_end(rows, &campaign, &shard, &report.outcome)?;
    Ok(Finished::Recorded(shard.state))
}

/// How a link was before a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    Failing,
}

/// The state of a shard that is through, and the pause before its files are tried again.
fn settled(shard: &mut Shard, waiting: Amount, now: Micros, chance: u64) -> ShardState {
    if waiting.files > 0 {
        shard.tries = Tries { again: shard.tries.again.saturating_add(1), ..Tries::default() };
        shard.turn.not_before = now.plus(shard_pause(shard.tries.again, chance));
        return ShardState::Planned;
    }
    shard.tries = Tries::default();
    if shard.failed.files > 0 { ShardState::Partial } else { ShardState::Done }
}

/// The state of a shard whose session failed. It goes behind the others of its campaign for a
/// while: if it is what breaks sessions, the next try of the link is made with another one. It
/// counts against the shard if the session had begun: sooner if the link was well before, and
/// later if it was not, as it may be the only shard that is left there.
fn broken(
    (shard, link): (&mut Shard, &mut Link),
    code: FaultCode,
    (now, chance): (Micros, u64),
    (before, counts): (Health, bool),
) -> ShardState {
    match treatment(code) {
        Treatment::HandBack => ShardState::Planned,
        Treatment::Hold => ShardState::Held(Hold::Broken(code)),
        Treatment::Close => {
            link.state = LinkState::Closed(Some(code));
            ShardState::Planned
        }
        Treatment::BackOff => {
            link.fail(now, chance);
            let Tries { lapses, breaks, .. } = &mut shard.tries;
            *breaks = breaks.saturating_add(u32::from(counts));
            *lapses = lapses.saturating_add(u32::from(counts && before == Health::Well));
            if counts && (*lapses >= VAIN_MAX || *breaks >= BREAKS_MAX) {
                return ShardState::Held(Hold::Broken(code));
            }
            shard.turn.not_before = now.plus(shard_pause((*lapses).max(1), chance));
            ShardState::Planned
        }
    }
}

/// Whether a fault that ended a commit which had begun is one of the place where the files are
/// staged: of a disk, or of the right to a name there.
const fn is_of_stage(code: FaultCode) -> bool {
    matches!(code, FaultCode::Io | FaultCode::Denied)
}

/// The state of a commit that failed where its files are staged. Its link is well for others, and
/// it waits by itself, longer each time; it is held once it has come no farther so many times. A
/// right that it lacks does not come by waiting.
fn stage_failed(shard: &mut Shard, code: FaultCode, (now, chance): (Micros, u64)) -> ShardState {
    shard.tries.lapses = shard.tries.lapses.saturating_add(1);
    if shard.tries.lapses >= VAIN_MAX || treatment(code) == Treatment::Close {
        return ShardState::Held(Hold::Broken(code));
    }
    shard.turn.not_before = now.plus(shard_pause(shard.tries.lapses, chance));
    ShardState::Planned
}

/// The state of a shard that the mover's own host could not move. Its link is not touched, and
/// whatever the fault is, another host may be well: the shard goes behind the others, and is held
/// only when hosts have tried it many times. The mover leaves the link alone for a while by itself.
fn host_failed(shard: &mut Shard, code: FaultCode, (now, chance): (Micros, u64)) -> ShardState {
    if treatment(code) == Treatment::HandBack {
        return ShardState::Planned;
    }
    shard.tries.breaks = shard.tries.breaks.saturating_add(1);
    if shard.tries.breaks >= BREAKS_MAX {
        return ShardState::Held(Hold::Broken(code));
    }
    shard.turn.not_before = now.plus(shard_pause(shard.tries.breaks, chance));
    ShardState::Planned
}

/// Writes the rows of failed files, removes those of files that stand now, and gives the sum of
/// those that are tried again. The shard's sum of what was given up is counted anew.
fn record_faults(
    rows: &mut dyn Rows,
    shard: &mut Shard,
    faults: &[FileFault],
    tries: &dyn Fn(FaultCode) -> u32,
) -> Result<Amount, JobsError> {
    let now = rows.now()?;
    let mut known: BTreeMap<Vec<u8>, FailedFile> =
        rows.faults_of(shard.id)?.into_iter().map(|fault| (fault.path.clone(), fault)).collect();
    let too_much = || JobsError::TooMuch("failed files of a shard");
    let mut given_up = Amount::default();
    known.values().filter(|fault| fault.state == FaultState::GivenUp).try_for_each(|fault| {
        given_up = given_up.plus(Amount { files: 1, bytes: fault.bytes }).ok_or_else(too_much)?;
        Ok::<_, JobsError>(())
    })?;
    let (mut waiting, mut written) = (Amount::default(), BTreeMap::new());
    for fault in faults {
        let before = known.remove(&fault.path);
        if before.as_ref().is_some_and(|before| before.state == FaultState::GivenUp) {
            return Err(JobsError::NamedTwice(shard.id));
        }
        let row = failed_file(shard, fault, before.as_ref(), (now, tries(fault.code)));
        let amount = Amount { files: 1, bytes: fault.bytes };
        let sum = if row.state == FaultState::GivenUp { &mut given_up } else { &mut waiting };
        *sum = sum.plus(amount).ok_or_else(too_much)?;
        if written.insert(fault.path.clone(), row).is_some() {
            return Err(JobsError::NamedTwice(shard.id));
        }
    }
    let counted = shard.done.plus(given_up).and_then(|sum| sum.plus(waiting)).ok_or_else(too_much)?;
    if counted != shard.total {
        return Err(JobsError::Miscounted { shard: shard.id, total: shard.total, counted });
    }
    written.values().try_for_each(|row| rows.put_fault(row))?;
    known.values().filter(|row| row.state == FaultState::Waiting).try_for_each(|row| rows.remove_fault(row))?;
    shard.failed = given_up;
    Ok(waiting)
}

fn failed_file(
    shard: &Shard,
    fault: &FileFault,
    before: Option<&FailedFile>,
    (now, most): (Micros, u32),
) -> FailedFile {
    let tries = before.map_or(0, |before| before.tries).saturating_add(1);
    FailedFile {
        campaign: shard.campaign,
        shard: shard.id,
        path: fault.path.clone(),
        bytes: fault.bytes,
        code: fault.code,
        blame: fault.blame,
        message: fault.message.clone().cut(),
        state: if tries >= most { FaultState::GivenUp } else { FaultState::Waiting },
        tries,
        first: before.map_or(now, |before| before.first),
        last: now,
    }
}
