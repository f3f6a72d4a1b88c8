//! The rolling verification of what was delivered: which shard is read back next, and what was
//! found.
//!
//! In: what verifiers ask and find. Out: shards to read, the rows of bad files, notices. A verifier
//! that dies loses its lease, and the next one goes on where its last word was. Must not know how a
//! file is read.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_core::PlainText;

use super::{campaign_of, notices, shard_of};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, ClaimId, Due, Micros, ShardId};
use crate::rows::{
    BadFile, BadKind, Campaign, CampaignState, FailedFile, FaultState, NoticeKind, Shard, ShardKind, ShardState,
    UnlistedBad, Verification,
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
    /// The begin of its run: of a shard of which a try failed since, the next one has time.
    pub begun: Micros,
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
    /// Its files that were given up, and so do not stand, but for those that are known to be bad.
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
    /// It gives the shard back, as something of it cannot be read: others go first for a while.
    Fails,
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
/// Bad files of a shard that have rows of their own. Of more of them, one row has their number.
pub const BAD_FILES_MAX: usize = 100;
/// The time for which a shard that could not be read is left alone in one run, in microseconds.
const PAUSE_AFTER_FAILURE_MICROS: u64 = 3600 * 1_000_000;

/// Gives a verifier the shard that was read last the longest time ago, if it is due.
///
/// # Errors
/// [`JobsError::WrongState`] while the campaign is planned, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn take_to_verify(rows: &mut dyn Rows, ask: &VerifyAsk) -> Result<VerifyTurn, JobsError> {
    let Some(campaign) = standing_campaign(rows, ask.campaign)? else { return Ok(VerifyTurn::NothingDue(None)) };
    let now = rows.now()?;
    let failed_before = ask.begun.max(Micros(now.0.saturating_sub(PAUSE_AFTER_FAILURE_MICROS)));
    let first = rows.first_to_verify(campaign.id, Due::at(now, LEASE), (believed(now), failed_before))?;
    let Some((id, last)) = first else { return Ok(VerifyTurn::NothingDue(None)) };
    let due = if last == Micros(0) { now } else { last.plus(ask.cycle) };
    if due > now {
        return Ok(VerifyTurn::NothingDue(Some(due.since(now))));
    }
    let shard = shard_of(rows, id)?;
    Ok(VerifyTurn::Shard(Box::new(give(rows, (campaign, shard), ask, now)?)))
}

/// Gives a verifier that mends the shard with the lowest number above `after` of which files are
/// known to be bad in one of these ways. It need not be due. `None`: none of them is free.
///
/// # Errors
/// As [`take_to_verify`].
pub fn take_to_mend(
    rows: &mut dyn Rows,
    ask: &VerifyAsk,
    (mut after, kinds): (ShardId, &[BadKind]),
) -> Result<Option<VerifyShard>, JobsError> {
    let Some(campaign) = standing_campaign(rows, ask.campaign)? else { return Ok(None) };
    let now = rows.now()?;
    let leases = Due::at(now, LEASE);
    while let Some(id) = rows.bad_shard(campaign.id, after)? {
        after = id;
        let (shard, bad) = (shard_of(rows, id)?, rows.bad_files_of(id)?);
        let is_meant = bad.iter().any(|file| !file.path.is_empty() && kinds.contains(&file.kind));
        let is_free = rows.verification(id)?.is_none_or(|row| leases.has_passed(row.until));
        if is_meant && is_free && is_delivered(shard.state) {
            return give(rows, (campaign, shard), ask, now).map(Some);
        }
    }
    Ok(None)
}

/// A campaign of which something may stand under its names. `None`: what has the name of its
/// dataset is another one, or nothing.
fn standing_campaign(rows: &mut dyn Rows, id: CampaignId) -> Result<Option<Campaign>, JobsError> {
    let campaign = campaign_of(rows, id)?;
    if campaign.state == CampaignState::Planning {
        return Err(JobsError::WrongState { campaign: campaign.id, state: campaign.state.name() });
    }
    let is_staged = rows.commit_of(campaign.id)?.is_some_and(|commit| commit.state != ShardState::Done);
    Ok((!is_staged).then_some(campaign))
}

/// Gives a shard to whoever asks, with what is known of it.
fn give(
    rows: &mut dyn Rows,
    (campaign, shard): (Campaign, Shard),
    ask: &VerifyAsk,
    now: Micros,
) -> Result<VerifyShard, JobsError> {
    let id = shard.id;
    let before = rows.verification(id)?;
    let entry = before.as_ref().map_or(0, |row| kept_entry(row, now, ask.cycle));
    let (last, until) = (before.as_ref().map_or(Micros(0), |row| row.last), now.plus(LEASE));
    let unlisted = before.filter(|_| entry > 0).and_then(|row| row.unlisted);
    let (campaign_id, claim, failed) = (campaign.id, ask.id, Micros(0));
    rows.put_verification(&Verification {
        shard: id,
        campaign: campaign_id,
        last,
        entry,
        claim,
        until,
        failed,
        unlisted,
    })?;
    let bad = rows.bad_files_of(id)?;
    let is_bad = |path: &[u8]| bad.iter().any(|file| file.path == path);
    let mut given_up = rows.faults_of(id)?;
    given_up.retain(|fault| fault.state == FaultState::GivenUp && !is_bad(&fault.path));
    Ok(VerifyShard { shard, campaign, entry, given_up, bad })
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
    let (fresh, worst) = note_bad((&mut *rows, &shard), (&known, &mut row), news, now)?;
    (row.entry, row.until) = (news.entry, now);
    match news.next {
        VerifyNext::GoesOn => row.until = now.plus(LEASE),
        VerifyNext::GivesBack => {}
        VerifyNext::Fails => row.failed = now,
        VerifyNext::IsThrough => (row.last, row.entry) = (now, 0),
    }
    note_unlisted((&mut *rows, &shard), (&known, row.unlisted), news.next, now)?;
    if news.next == VerifyNext::IsThrough {
        row.unlisted = None;
    }
    rows.put_verification(&row)?;
    if let Some(kind) = worst {
        notices::note_shard(rows, &campaign, &shard, (NoticeKind::Fault, Some(kind.code())))?;
    }
    Ok(VerifyHeard::Recorded(fresh))
}

/// Writes the rows of files that are bad, and removes those of files that are well. Gives how many
/// were not known, and the worst of them.
fn note_bad(
    (rows, shard): (&mut dyn Rows, &Shard),
    (known, row): (&[BadFile], &mut Verification),
    news: &VerifyNews,
    now: Micros,
) -> Result<(u64, Option<BadKind>), JobsError> {
    let well: BTreeSet<&[u8]> = news.well.iter().map(Vec::as_slice).collect();
    let (gone, kept): (Vec<_>, Vec<_>) =
        known.iter().filter(|file| !file.path.is_empty()).partition(|file| well.contains(file.path.as_slice()));
    for file in gone {
        rows.remove_bad_file(shard.id, &file.path)?;
    }
    let (mut listed, mut fresh, mut worst) = (kept.len(), 0, None);
    for found in &news.bad {
        let before = kept.iter().find(|file| file.path == found.path);
        if !is_known_bad(known, found) {
            fresh += 1;
            worst = Some(worst.map_or(found.kind, |worst: BadKind| worst.worse(found.kind)));
        }
        if before.is_none() && listed >= BAD_FILES_MAX {
            row.unlisted = Some(one_more(row.unlisted, found)?);
            continue;
        }
        listed += usize::from(before.is_none());
        rows.put_bad_file(&bad_file(shard, found, before.copied(), now))?;
    }
    Ok((fresh, worst))
}

fn one_more(unlisted: Option<UnlistedBad>, found: &FoundBad) -> Result<UnlistedBad, JobsError> {
    let one = Amount { files: 1, bytes: found.bytes };
    let Some(before) = unlisted else { return Ok(UnlistedBad { worst: found.kind, amount: one }) };
    let amount = before.amount.plus(one).ok_or(JobsError::TooMuch("bad files of a shard"))?;
    Ok(UnlistedBad { worst: before.worst.worse(found.kind), amount })
}

/// Writes the row of bad files that have none. Until the reading is through, it stays at what it
/// was before, if that is more.
fn note_unlisted(
    (rows, shard): (&mut dyn Rows, &Shard),
    (known, counted): (&[BadFile], Option<UnlistedBad>),
    next: VerifyNext,
    now: Micros,
) -> Result<(), JobsError> {
    let before = unlisted(known);
    let is_through = next == VerifyNext::IsThrough;
    let Some(counted) = counted else {
        return if is_through && before.is_some() { rows.remove_bad_file(shard.id, b"") } else { Ok(()) };
    };
    let kept = before.filter(|_| !is_through);
    let kind = kept.map_or(counted.worst, |kept| kept.kind.worse(counted.worst));
    let files = kept.map_or(0, |kept| kept.files).max(counted.amount.files);
    let found = FoundBad {
        path: Vec::new(),
        bytes: kept.map_or(0, |kept| kept.bytes).max(counted.amount.bytes),
        kind,
        message: PlainText::of(format_args!("only {BAD_FILES_MAX} bad files of a shard are listed")),
    };
    rows.put_bad_file(&BadFile { files, ..bad_file(shard, &found, before, now) })
}

fn is_delivered(state: ShardState) -> bool {
    matches!(state.kind(), ShardKind::Done | ShardKind::Partial)
}

/// Whether a bad file is known to be bad in this way. One that has no row is, if the row of those
/// without says so.
pub fn is_known_bad(known: &[BadFile], found: &FoundBad) -> bool {
    let row = known.iter().find(|file| file.path == found.path);
    row.or_else(|| unlisted(known)).is_some_and(|file| file.kind == found.kind)
}

/// The row of the bad files that have none.
fn unlisted(known: &[BadFile]) -> Option<&BadFile> {
    known.iter().find(|file| file.path.is_empty())
}

fn bad_file(shard: &Shard, found: &FoundBad, before: Option<&BadFile>, now: Micros) -> BadFile {
    let same = before.filter(|before| before.kind == found.kind);
    BadFile {
        shard: shard.id,
        campaign: shard.campaign,
        path: found.path.clone(),
        files: 1,
        bytes: found.bytes,
        kind: found.kind,
        message: found.message.clone().cut(),
        first: same.map_or(now, |before| before.first),
        last: now,
    }
}

/// A shard was moved: all of it is read anew. What is known to be bad is so until it is read.
pub(super) fn note_delivered(rows: &mut dyn Rows, shard: ShardId) -> Result<(), JobsError> {
    let Some(row) = rows.verification(shard)? else { return Ok(()) };
    rows.put_verification(&Verification {
        last: Micros(0),
        entry: 0,
        claim: ClaimId::default(),
        until: Micros(0),
        failed: Micros(0),
        unlisted: None,
        ..row
    })
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
