//! Permits: how many movers are at a link, at both of its hosts, and at the sites of these.
//!
//! In: a claim and its lease. Out: permit rows, in all of these places or in none. Must not know
//! shards, but for their numbers.

use crate::error::JobsError;
use crate::ids::{Claim, Due, Micros, ShardId, SiteId};
use crate::rows::{Link, Permit, PermitPlace, Site};
use crate::store::Rows;

/// The claim that a permit is for, and the end of its lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    /// The shard.
    pub(super) shard: ShardId,
    /// The claim.
    pub(super) claim: Claim,
    /// The end of the lease.
    pub(super) until: Micros,
}

/// The permits of a claim, behind the wish to take or to renew them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// One of them cannot be had, and nothing was changed.
    Refused,
    /// It has all of them.
    Within,
    /// It has all of them, and at one of the places there are as many others before it as may be
    /// there: the bound was lowered since.
    Beyond,
}

/// Gives a claim its permits at a link, of which `movers` movers may be, and at the hosts and sites
/// of the link; those that it has are renewed.
pub(super) fn take(
    rows: &mut dyn Rows,
    (link, movers): (&Link, u32),
    holder: Holder,
    due: Due,
) -> Result<Taken, JobsError> {
    let mut places = vec![(PermitPlace::Link(link.id), movers)];
    for site in sites_of(rows, link.from)? {
        places.push((PermitPlace::From(site.id), site.movers_out));
    }
    for site in sites_of(rows, link.to)? {
        places.push((PermitPlace::To(site.id), site.movers_in));
    }
    let held = rows.permits_of(holder.shard)?;
    let (mut taken, mut end) = (Vec::with_capacity(places.len()), Taken::Within);
    for (place, most) in places {
        let own = held.iter().find(|permit| permit.place == place && permit.claim == holder.claim);
        let slot = match own {
            Some(own) => {
                if own.slot >= most && before(&rows.permits(place)?, own.slot, due) >= most as usize {
                    end = Taken::Beyond;
                }
                Some(own.slot)
            }
            None => free_slot(&rows.permits(place)?, most, due),
        };
        let Some(slot) = slot else { return Ok(Taken::Refused) };
        let Holder { shard, claim, until } = holder;
        taken.push(Permit { place, slot, shard, claim, until });
    }
    taken.iter().try_for_each(|permit| rows.put_permit(permit))?;
    Ok(end)
}

/// Movers with lower slots than this one.
fn before(permits: &[Permit], slot: u32, due: Due) -> usize {
    permits.iter().filter(|permit| permit.slot < slot && !due.has_passed(permit.until)).count()
}

/// A host's own site, and the site of hosts to which it belongs.
fn sites_of(rows: &mut dyn Rows, host: SiteId) -> Result<Vec<Site>, JobsError> {
    let mut sites = Vec::with_capacity(2);
    for id in [Some(host), rows.site_above(host)?].into_iter().flatten() {
        sites.push(rows.site(id)?.ok_or(JobsError::NoSite(id))?);
    }
    Ok(sites)
}

/// Gives back the permits of a claim, and no other's.
pub(super) fn give_back(rows: &mut dyn Rows, shard: ShardId, claim: Claim) -> Result<(), JobsError> {
    let held = rows.permits_of(shard)?;
    held.iter().filter(|permit| permit.claim == claim).try_for_each(|permit| rows.remove_permit(permit))
}

/// Movers that are at a link.
pub(super) fn movers_at(rows: &mut dyn Rows, link: &Link, due: Due) -> Result<u32, JobsError> {
    let permits = rows.permits(PermitPlace::Link(link.id))?;
    Ok(permits.iter().filter(|permit| !due.has_passed(permit.until)).count() as u32)
}

/// The lowest slot that nobody has, if fewer than `most` are taken.
fn free_slot(permits: &[Permit], most: u32, due: Due) -> Option<u32> {
    let live: Vec<u32> =
        permits.iter().filter(|permit| !due.has_passed(permit.until)).map(|permit| permit.slot).collect();
    if live.len() >= most as usize {
        return None;
    }
    (0..most).find(|slot| !live.contains(slot))
}
