//! The signatures of campaigns: what an owner signs, and whether a row is what its owner signed.
//!
//! In: rows of the queue, and an owner's key. Out: signatures as rows, and the owner of a campaign
//! whose rows are what was signed. Whoever may write to a database may change a row; with this they
//! cannot have a mover move anything else. Must not know whom a mover trusts.

use longhaul_core::Hash32;
use longhaul_jobs::queue::queue_id;
use longhaul_jobs::{
    Campaign, CampaignId, CampaignSignature, CampaignState, JobsError, ManifestSignature, Micros, QueueId, Rows,
};
use longhaul_net::{Identity, PublicKey};

/// The owner of a campaign, as far as its rows say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signed {
    /// Its rows are what this owner signed, with the digests of its manifests once it is planned.
    By(PublicKey, Vec<Hash32>),
    /// It has no signature.
    Nobody,
    /// The row of its signature makes no sense.
    Unreadable,
    /// It is said to be of this owner, who signed something else.
    Otherwise(PublicKey),
    /// This owner signed it, and another plan of it, or none.
    PlannedOtherwise(PublicKey),
}

/// The words with which each message begins. A message of another version or kind is another one.
const CAMPAIGN_WORDS: &[u8] = b"longhaul campaign 1\n";
const PLAN_WORDS: &[u8] = b"longhaul campaign plan 1\n";

/// Signs a campaign that was just added, for this queue alone. `fresh` is the queue's id if it has
/// none yet.
///
/// # Errors
/// [`JobsError::NoCampaign`], [`JobsError::Store`].
pub fn sign_campaign(
    rows: &mut dyn Rows,
    id: CampaignId,
    (owner, fresh): (&Identity, QueueId),
) -> Result<(), JobsError> {
    let campaign = rows.campaign(id)?.ok_or(JobsError::NoCampaign(id))?;
    let (queue, at, key) = (queue_id(rows, fresh)?, rows.now()?, owner.public());
    let spec = owner.sign(&campaign_message(queue, &campaign, (&key, at)));
    rows.put_signature(&CampaignSignature { campaign: id, owner: *key.as_bytes(), at, spec, manifest: None })
}

/// Signs what a campaign was planned as: the digests of its manifests, and of all of its segments
/// in the queue. Nothing is signed that is not this owner's: movers then say what is wrong.
///
/// # Errors
/// [`JobsError::Store`], and those of rows that make no sense.
pub fn sign_plan(
    rows: &mut dyn Rows,
    id: CampaignId,
    (owner, roots): (&Identity, Vec<Hash32>),
) -> Result<(), JobsError> {
    let campaign = rows.campaign(id)?.ok_or(JobsError::NoCampaign(id))?;
    let Some(mut kept) = rows.signature(id)? else { return Ok(()) };
    let Some(message) = message_of(rows, &campaign, &kept)? else { return Ok(()) };
    if kept.owner != *owner.public().as_bytes() || !owner.public().has_signed(&message, &kept.spec) {
        return Ok(());
    }
    let signature = owner.sign(&plan_message(&message, &roots, &segments_of(rows, id)?));
    kept.manifest = Some(ManifestSignature { roots, signature });
    rows.put_signature(&kept)
}

/// The owner of a campaign. Once it is planned, its plan counts too.
///
/// # Errors
/// [`JobsError::Store`].
pub fn signed(rows: &mut dyn Rows, campaign: &Campaign) -> Result<Signed, JobsError> {
    match look(rows, campaign) {
        Err(error) if error.is_of_rows() => Ok(Signed::Unreadable),
        looked => looked,
    }
}

fn look(rows: &mut dyn Rows, campaign: &Campaign) -> Result<Signed, JobsError> {
    let Some(kept) = rows.signature(campaign.id)? else { return Ok(Signed::Nobody) };
    let owner = PublicKey::from_bytes(kept.owner);
    let message = message_of(rows, campaign, &kept)?;
    let Some(message) = message.filter(|message| owner.has_signed(message, &kept.spec)) else {
        return Ok(Signed::Otherwise(owner));
    };
    if matches!(campaign.state, CampaignState::Planning | CampaignState::Cancelled) {
        return Ok(Signed::By(owner, Vec::new()));
    }
    let Some(ManifestSignature { roots, signature }) = kept.manifest else {
        return Ok(Signed::PlannedOtherwise(owner));
    };
    let plan = plan_message(&message, &roots, &segments_of(rows, campaign.id)?);
    if !owner.has_signed(&plan, &signature) {
        return Ok(Signed::PlannedOtherwise(owner));
    }
    Ok(Signed::By(owner, roots))
}

fn segments_of(rows: &mut dyn Rows, id: CampaignId) -> Result<Vec<Hash32>, JobsError> {
    Ok(rows.segments(id)?.into_iter().map(|segment| segment.digest).collect())
}

/// The message of a campaign in this queue. `None`: the queue has no id any more.
fn message_of(
    rows: &mut dyn Rows,
    campaign: &Campaign,
    kept: &CampaignSignature,
) -> Result<Option<Vec<u8>>, JobsError> {
    let owner = PublicKey::from_bytes(kept.owner);
    Ok(rows.queue_id()?.map(|queue| campaign_message(queue, campaign, (&owner, kept.at))))
}

/// The message that an owner signs for a campaign: `longhaul campaign 1` and a line feed, and then
/// the queue's id, the campaign's number, its key, its name, the owner's key, the time, the hooks
/// and the spec, each behind its length. Lengths and numbers are eight bytes, the lowest one first.
/// The spec is the bytes of the row, and has sources, destination, filters, rules and keys. What
/// only orders or delays the work is not in it: priority, weight, deadline, calendar, retry rules.
fn campaign_message(queue: QueueId, campaign: &Campaign, (owner, at): (&PublicKey, Micros)) -> Vec<u8> {
    let (id, at, hooks) = (campaign.id.0.to_le_bytes(), at.0.to_le_bytes(), campaign.hooks.to_string());
    let parts: [&[u8]; 8] = [
        &queue.0,
        &id,
        &campaign.key.0,
        campaign.name.as_bytes(),
        owner.as_bytes(),
        &at,
        hooks.as_bytes(),
        &campaign.spec,
    ];
    message(CAMPAIGN_WORDS, &parts)
}

/// The message that an owner signs for a plan: `longhaul campaign plan 1` and a line feed, and then
/// the campaign's message, the digests of its manifests, and those of its segments, each behind its
/// length.
fn plan_message(campaign: &[u8], roots: &[Hash32], segments: &[Hash32]) -> Vec<u8> {
    message(PLAN_WORDS, &[campaign, roots.as_flattened(), segments.as_flattened()])
}

fn message(words: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut message = words.to_vec();
    for part in parts {
        message.extend_from_slice(&(part.len() as u64).to_le_bytes());
        message.extend_from_slice(part);
    }
    message
}

#[cfg(test)]
mod tests;
