//! The lists of a family: a source that one member has listed is not listed again for the others.
//!
//! In: a campaign that is being planned, and the other members of its family. Out: the sealed
//! manifest of one of these, as the campaign's own. What another owner has signed, or nobody, is
//! not taken: whoever plans the campaign signs its lists. Must not know how a source is listed.

use longhaul_jobs::{Campaign, OmittedName, Store};
use longhaul_manifest::Sealed;
use longhaul_net::PublicKey;

use super::queue_failed;
use crate::error::Error;
use crate::jobs::{CampaignSpec, QueueStore, Shelf, Signed, family_of, members, signed};

/// The list of a source, taken from another member.
pub(super) struct SharedList {
    /// The campaign that had it.
    pub(super) of: String,
    /// The names that could not be read as it was made, as the campaign's own.
    pub(super) omitted: Vec<OmittedName>,
}

/// Takes the list of a campaign's source from another member of its family. `None`: no member has
/// it, or the campaign has one itself. `owner` is the key that signs the plan, if one does.
///
/// # Errors
/// Those of the queue, and of the disk.
pub(super) fn taken(
    (store, shelf): (&mut QueueStore, &Shelf),
    (campaign, spec): (&Campaign, &CampaignSpec),
    number: usize,
    owner: Option<PublicKey>,
) -> Result<Option<SharedList>, Error> {
    let out = shelf.manifest(campaign.key, number);
    let Some(family) = family_of(&campaign.name).filter(|_| Sealed::open(&out).is_err()) else { return Ok(None) };
    let all = store.transact(|rows| members(rows, family)).map_err(queue_failed)?;
    if !all.iter().any(|member| member.id == campaign.id) {
        return Ok(None);
    }
    for other in all {
        let Ok(theirs) = CampaignSpec::decode(&other.spec) else { continue };
        let Some(at) = same_list((spec, number), &theirs).filter(|_| other.id != campaign.id) else { continue };
        let Ok(sealed) = Sealed::open(&shelf.manifest(other.key, at)) else { continue };
        // A dataset needs all names: those that could not be read may be readable by now.
        if spec.dataset.is_some() && sealed.head().omitted > 0 {
            continue;
        }
        let roots = match (store.transact(|rows| signed(rows, &other)).map_err(queue_failed)?, owner) {
            (Signed::By(theirs, roots), Some(owner)) if theirs == owner => roots,
            (Signed::Nobody, None) => Vec::new(),
            _ => continue,
        };
        // Before it is planned, it has signed none yet.
        let is_other = roots.get(at).is_some_and(|root| *root != sealed.digest());
        if is_other || !shelf.share(&sealed, &out)? {
            continue;
        }
        let mut omitted = store.transact(|rows| rows.omitted(other.id)).map_err(queue_failed)?;
        omitted.retain(|name| name.source == at as u64);
        for name in &mut omitted {
            (name.campaign, name.source) = (campaign.id, number as u64);
        }
        return Ok(Some(SharedList { of: other.name, omitted }));
    }
    Ok(None)
}

/// The number of another campaign's source whose list is that of this one's: of the same directory,
/// by the same filters, met with the same keys.
fn same_list((spec, number): (&CampaignSpec, usize), theirs: &CampaignSpec) -> Option<usize> {
    let list = |spec: &CampaignSpec, number: usize| {
        let source = spec.sources.get(number)?;
        serde_json::to_vec(&(&source.top, &source.only, &spec.settings.filter, &spec.keys)).ok()
    };
    let own = list(spec, number)?;
    (0..theirs.sources.len()).find(|at| list(theirs, *at).as_ref() == Some(&own))
}
