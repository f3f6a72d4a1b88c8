//! The signatures of campaigns: what an owner signs, and whether a row is what its owner signed.
//!
//! In: rows of the queue, and an owner's key. Out: signatures as rows, and the owner of a campaign
//! whose rows are what was signed. Whoever may write to a database may change a row; with this they
//! cannot have a mover move anything else. Must not know whom a mover trusts.

use longhaul_core::Hash32;
use longhaul_jobs::queue::{NewCampaign, queue_id};
use longhaul_jobs::{
    Campaign, CampaignId, CampaignKey, CampaignSignature, CampaignState, HookWishes, JobsError, ManifestSignature,
    Micros, QueueId, Rows,
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

/// The part of a campaign that its owner signs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SignedPart<'a> {
    id: CampaignId,
    key: &'a CampaignKey,
    name: &'a str,
    hooks: &'a HookWishes,
    spec: &'a [u8],
}

impl SignedPart<'_> {
    fn of(campaign: &Campaign) -> SignedPart<'_> {
        let Campaign { id, key, name, hooks, spec, .. } = campaign;
        SignedPart { id: *id, key, name, hooks, spec }
    }
}

/// The words with which each message begins. A message of another version or kind is another one.
const CAMPAIGN_WORDS: &[u8] = b"longhaul campaign 1\n";
const PLAN_WORDS: &[u8] = b"longhaul campaign plan 1\n";

/// Signs a campaign that was just added, for this queue alone. What was asked for is signed, and
/// not what the store makes of it. `fresh` is the queue's id if it has none yet.
///
/// # Errors
/// [`JobsError::Altered`] if the store has something else, [`JobsError::NoCampaign`],
/// [`JobsError::Store`].
pub fn sign_campaign(
    rows: &mut dyn Rows,
    (id, new): (CampaignId, &NewCampaign),
    (owner, fresh): (&Identity, QueueId),
) -> Result<(), JobsError> {
    let NewCampaign { key, name, hooks, spec, .. } = new;
    let asked = SignedPart { id, key, name, hooks, spec };
    if SignedPart::of(&rows.campaign(id)?.ok_or(JobsError::NoCampaign(id))?) != asked {
        return Err(JobsError::Altered("the campaign is another one than was added"));
    }
    let (queue, at, key) = (queue_id(rows, fresh)?, rows.now()?, owner.public());
    let spec = owner.sign(&campaign_message(queue, asked, (&key, at)));
    rows.put_signature(&CampaignSignature { campaign: id, owner: *key.as_bytes(), at, spec, manifest: None })
}

/// Signs what a campaign was planned as: the digests of its manifests, and of all of their
/// segments. `campaign` is one that this owner signed, as it was when it was planned: a row that
/// was changed since is not signed, nor are segments of the queue that are in no manifest.
///
/// # Errors
/// [`JobsError::Altered`] if the store has another campaign, signature or plan,
/// [`JobsError::Store`], and those of rows that make no sense.
pub fn sign_plan(
    rows: &mut dyn Rows,
    campaign: &Campaign,
    owner: &Identity,
    (roots, segments): (Vec<Hash32>, &[Hash32]),
) -> Result<(), JobsError> {
    let id = campaign.id;
    let found = rows.campaign(id)?.ok_or(JobsError::NoCampaign(id))?;
    if SignedPart::of(&found) != SignedPart::of(campaign) {
        return Err(JobsError::Altered("the campaign is another one than was planned"));
    }
    let other = JobsError::Altered("the campaign is not signed by the owner who plans it");
    let Some(mut kept) = rows.signature(id)? else { return Err(other) };
    let Some(message) = message_of(rows, campaign, &kept)? else { return Err(other) };
    if kept.owner != *owner.public().as_bytes() || !owner.public().has_signed(&message, &kept.spec) {
        return Err(other);
    }
    if segments_of(rows, id)? != segments {
        return Err(JobsError::Altered("its segments are others than those of its manifests"));
    }
    let signature = owner.sign(&plan_message(&message, &roots, segments));
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
    let part = SignedPart::of(campaign);
    Ok(rows.queue_id()?.map(|queue| campaign_message(queue, part, (&owner, kept.at))))
}

/// The message that an owner signs for a campaign: `longhaul campaign 1` and a line feed, and then
/// the queue's id, the campaign's number, its key, its name, the owner's key, the time, the hooks
/// and the spec, each behind its length. Lengths and numbers are eight bytes, the lowest one first.
/// The spec is the bytes of the row, and has sources, destination, filters, rules and keys. What
/// only orders or delays the work is not in it: priority, weight, deadline, calendar, retry rules.
fn campaign_message(queue: QueueId, campaign: SignedPart, (owner, at): (&PublicKey, Micros)) -> Vec<u8> {
    let (id, at, hooks) = (campaign.id.0.to_le_bytes(), at.0.to_le_bytes(), campaign.hooks.to_string());
    let parts: [&[u8]; 8] = [
        &queue.0,
        &id,
        &campaign.key.0,
        campaign.name.as_bytes(),
        owner.as_bytes(),
        &at,
        hooks.as_bytes(),
        campaign.spec,
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
