//! The rolling verification of what was delivered: which shard is read back next, what was found,
//! and which bad files are copied anew.
//!
//! In: what verifiers ask and find. Out: shards to read, the rows of bad files, notices. A verifier
//! that dies loses its lease, and the next one goes on where its last word was. Must not know how a
//! file is read.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_core::PlainText;

use super::add::join_running;
use super::{campaign_of, notices, shard_of};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, ClaimId, Due, Micros, ShardId};
use crate::rows::{
    BadFile, BadKind, Campaign, CampaignState, FailedFile, FaultState, NoticeKind, Shard, ShardKind, ShardState, Tries,
    Verification,
};
use crate::store::{BadSum, Rows, VerificationSums};
use crate::tenure::LEASE;

/// The wish of a verifier for a shard.
#[derive(Clone, Copy, Debug)]
pub struct VerifyAsk {
    /// The campaign.
    pub campaign: CampaignId,
    /// Each byte is read once in this time.
    pub cycle: Duration,
    /// Random bytes for the claim.
    pub id: ClaimId,
}

/// The answer to a verifier that wants a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyTurn {
    /// This shard is to be read.
    Shard(Box<VerifyShard>),
    /// All was read in this cycle, or is read by others: something is due in this time at the
    /// latest. `None`: nothing stands.
    NothingDue(Option<Duration>),
}

/// A shard that a verifier was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyShard {
    /// The shard.
    pub shard: Shard,
    /// Its campaign.
    pub campaign: Campaign,
    /// The reading goes on behind so many names of the shard.
    pub entry: u64,
    /// Its files that were given up, and so do not stand.
    pub given_up: Vec<FailedFile>,
    /// Its files that are known to be bad.
    pub bad: Vec<BadFile>,
}

/// The news of a verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyNews {
    /// The shard.
    pub shard: ShardId,
    /// The id that the verifier drew.
    pub id: ClaimId,
    /// Names of the shard that it is through with.
    pub entry: u64,
    /// The paths that it looked at since its last word, and found well.
    pub well: Vec<Vec<u8>>,
    /// The files that it found bad.
    pub bad: Vec<FoundBad>,
    /// The step that it takes next.
    pub next: VerifyNext,
}

/// A file that a verifier found bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBad {
    /// Its path in the manifest: bytes.
    pub path: Vec<u8>,
    /// Its size by the manifest.
    pub bytes: u64,
    /// The way in which it is bad.
    pub kind: BadKind,
    /// The words of it. At most 1 KiB of them is kept.
    pub message: PlainText,
}

/// The next step of a verifier with its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyNext {
    /// It reads on.
    GoesOn,
    /// It gives the shard back, and whoever has it next goes on behind what was read.
    GivesBack,
    /// It has read all of it.
    IsThrough,
}

/// The answer to the news of a verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyHeard {
    /// It is recorded; so many of the files were not known to be bad in this way.
    Recorded(u64),
    /// The shard is another's, or is moved again: nothing was recorded.
    Gone,
}

/// The figures of what was delivered of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFigures {
    /// Its sums by the last readings.
    pub sums: VerificationSums,
    /// Its bad files.
    pub bad: Vec<BadSum>,
}

/// The step of a clock that is taken for one: a reading that was noted farther ahead than twice
/// this counts as none.
const CLOCK_STEP: Duration = Duration::from_secs(3600);
/// The part of a cycle for which a reading that was broken off is gone on with. One that lay longer
/// begins anew, as what it had read is no news any more.
const GOES_ON_WITHIN: u32 = 10;
/// Shards with bad files that are looked at, at a time.
const MENDED_AT_A_TIME: usize = 1000;

/// Gives a verifier the shard that was read last the longest time ago, if it is due.
///
/// # Errors
/// [`JobsError::WrongState`] while the campaign is planned, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn take_to_verify(rows: &mut dyn Rows, ask: &VerifyAsk) -> Result<VerifyTurn, JobsError> {
    let campaign = campaign_of(rows, ask.campaign)?;
    if campaign.state == CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    let now = rows.now()?;
    let first = rows.first_to_verify(campaign.id, Due::at(now, LEASE), believed(now))?;
    let Some((id, last)) = first else { return Ok(VerifyTurn::NothingDue(None)) };
    let due = if last == Micros(0) { now } else { last.plus(ask.cycle) };
    if due > now {
        return Ok(VerifyTurn::NothingDue(Some(due.since(now))));
    }
    let shard = shard_of(rows, id)?;
    let before = rows.verification(id)?;
    let entry = before.as_ref().map_or(0, |row| kept_entry(row, now, ask.cycle));
    let (last, until) = (before.map_or(Micros(0), |row| row.last), now.plus(LEASE));
    let row = Verification { shard: id, campaign: campaign.id, last, entry, claim: ask.id, until };
    rows.put_verification(&row)?;
    let mut given_up = rows.faults_of(id)?;
    given_up.retain(|fault| fault.state == FaultState::GivenUp);
    let bad = rows.bad_files_of(id)?;
    Ok(VerifyTurn::Shard(Box::new(VerifyShard { shard, campaign, entry, given_up, bad })))
}

/// The latest time that a reading may have been noted at.
fn believed(now: Micros) -> Micros {
    Due::at(now, CLOCK_STEP).latest
}

/// The names that a broken reading is through with, if it is gone on with.
fn kept_entry(row: &Verification, now: Micros, cycle: Duration) -> u64 {
    let is_fresh = row.until <= believed(now) && now.since(row.until) <= cycle / GOES_ON_WITHIN;
    if is_fresh { row.entry } else { 0 }
}

/// Takes the news of a verifier. Only the one that has the shard is heard, and only while nothing
/// of the shard is moved again.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that name others which are not there.
pub fn note_verified(rows: &mut dyn Rows, news: &VerifyNews) -> Result<VerifyHeard, JobsError> {
    let found = rows.verification(news.shard)?.filter(|row| row.claim == news.id);
    let (Some(mut row), now) = (found, rows.now()?) else { return Ok(VerifyHeard::Gone) };
    let shard = shard_of(rows, news.shard)?;
    if !is_delivered(shard.state) {
        return Ok(VerifyHeard::Gone);
    }
    let campaign = campaign_of(rows, shard.campaign)?;
    let known = rows.bad_files_of(shard.id)?;
    let well: BTreeSet<&[u8]> = news.well.iter().map(Vec::as_slice).collect();
    for file in known.iter().filter(|file| well.contains(file.path.as_slice())) {
        rows.remove_bad_file(shard.id, &file.path)?;
    }
    let (mut fresh, mut worst) = (0, None);
    for found in &news.bad {
        let before = known.iter().find(|file| file.path == found.path);
        if before.is_none_or(|before| before.kind != found.kind) {
            fresh += 1;
            worst = worst.max(Some((severity(found.kind), found.kind)));
        }
        rows.put_bad_file(&bad_file(&shard, found, before, now))?;
    }
    (row.entry, row.until) = (news.entry, now);
    match news.next {
        VerifyNext::GoesOn => row.until = now.plus(LEASE),
        VerifyNext::GivesBack => {}
        VerifyNext::IsThrough => (row.last, row.entry) = (now, 0),
    }
    rows.put_verification(&row)?;
    if let Some((_, kind)) = worst {
        notices::note_shard(rows, &campaign, &shard, (NoticeKind::Fault, Some(kind.code())))?;
    }
    Ok(VerifyHeard::Recorded(fresh))
}

fn is_delivered(state: ShardState) -> bool {
    matches!(state.kind(), ShardKind::Done | ShardKind::Partial)
}

/// The place of a kind among those that hooks are told: other content is worse than none.
const fn severity(kind: BadKind) -> u8 {
    match kind {
        BadKind::Changed => 0,
        BadKind::Unread => 1,
        BadKind::Lost => 2,
        BadKind::Damaged => 3,
    }
}

fn bad_file(shard: &Shard, found: &FoundBad, before: Option<&BadFile>, now: Micros) -> BadFile {
    let same = before.filter(|before| before.kind == found.kind);
    BadFile {
        shard: shard.id,
        campaign: shard.campaign,
        path: found.path.clone(),
        bytes: found.bytes,
        kind: found.kind,
        message: found.message.clone().cut(),
        mending: before.is_some_and(|before| before.mending),
        first: same.map_or(now, |before| before.first),
        last: now,
    }
}

/// Has bad files of some kinds copied anew, of the settled shards behind `after`, a thousand at
/// most. Gives the files, and the shard to go on behind; `None` there if that was the last one.
///
/// # Errors
/// [`JobsError::WrongState`] if the campaign is cancelled or still planned,
/// [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn mend(
    rows: &mut dyn Rows,
    id: CampaignId,
    kinds: &[BadKind],
    after: ShardId,
) -> Result<(u64, Option<ShardId>), JobsError> {
    let mut campaign = campaign_of(rows, id)?;
    if matches!(campaign.state, CampaignState::Cancelled | CampaignState::Planning) {
        return Err(JobsError::WrongState { campaign: id, state: campaign.state.name() });
    }
    let shards = rows.bad_shards(id, after, MENDED_AT_A_TIME)?;
    let last = shards.last().filter(|_| shards.len() == MENDED_AT_A_TIME).copied();
    let mut files = 0;
    for shard in shards {
        files += mend_shard(rows, shard, kinds)?;
    }
    if files > 0 && campaign.state == CampaignState::Done {
        join_running(rows, &mut campaign)?;
        rows.put_campaign(&campaign)?;
    }
    Ok((files, last))
}

fn mend_shard(rows: &mut dyn Rows, id: ShardId, kinds: &[BadKind]) -> Result<u64, JobsError> {
    let mut shard = shard_of(rows, id)?;
    if !is_delivered(shard.state) {
        return Ok(0);
    }
    let mut files = 0;
    for mut file in rows.bad_files_of(id)? {
        if file.mending || !kinds.contains(&file.kind) {
            continue;
        }
        let amount = Amount { files: 1, bytes: file.bytes };
        shard.done = shard.done.minus(amount).ok_or(JobsError::BadRow("a shard has fewer files than bad ones"))?;
        file.mending = true;
        rows.put_bad_file(&file)?;
        files += 1;
    }
    if files > 0 {
        (shard.state, shard.tries) = (ShardState::Planned, Tries::default());
        rows.put_shard(&shard)?;
    }
    Ok(files)
}

/// The paths of a shard that are copied in place of what stands there.
pub(super) fn mending(rows: &mut dyn Rows, shard: ShardId) -> Result<Vec<Vec<u8>>, JobsError> {
    let files = rows.bad_files_of(shard)?.into_iter().filter(|file| file.mending);
    Ok(files.map(|file| file.path).collect())
}

/// A shard was moved, and its files that are not in `failed` stand: they are not bad any more, and
/// all of it is read anew. Files that are given up have rows as such.
pub(super) fn note_delivered<'a>(
    rows: &mut dyn Rows,
    shard: &Shard,
    failed: impl Iterator<Item = &'a [u8]>,
) -> Result<(), JobsError> {
    let failed: BTreeSet<&[u8]> = failed.collect();
    let is_settled = shard.state.kind().is_settled();
    for file in rows.bad_files_of(shard.id)?.into_iter().filter(|file| file.mending) {
        if is_settled || !failed.contains(file.path.as_slice()) {
            rows.remove_bad_file(shard.id, &file.path)?;
        }
    }
    let Some(row) = rows.verification(shard.id)? else { return Ok(()) };
    let (last, until) = (Micros(0), Micros(0));
    rows.put_verification(&Verification { last, entry: 0, claim: ClaimId::default(), until, ..row })
}

/// The figures of what was delivered of a campaign, where each byte is to be read in a cycle.
///
/// # Errors
/// [`JobsError::Store`], [`JobsError::TooMuch`].
pub fn verify_figures(rows: &mut dyn Rows, id: CampaignId, cycle: Duration) -> Result<VerifyFigures, JobsError> {
    let now = rows.now()?;
    let cycle = u64::try_from(cycle.as_micros()).unwrap_or(u64::MAX);
    let stale_before = Micros(now.0.saturating_sub(cycle));
    let sums = rows.verification_sums(id, stale_before, believed(now))?;
    Ok(VerifyFigures { sums, bad: rows.bad_sums(id)? })
}
