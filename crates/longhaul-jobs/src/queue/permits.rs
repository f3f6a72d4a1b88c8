//! Permits: how many movers are at a link, and at both of its sites.
//!
//! In: a claim and its lease. Out: permit rows, in all three places or in none. Must not know
//! shards, but for their numbers.

use crate::error::JobsError;
use crate::ids::{Claim, Due, Micros, ShardId};
use crate::rows::{Link, Permit, PermitPlace};
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

/// Gives a claim its permits at a link, of which `movers` movers may be, and at the sites of the
/// link; those that it has are renewed. Gives `false` and changes nothing if one cannot be had.
pub(super) fn take(
    rows: &mut dyn Rows,
    (link, movers): (&Link, u32),
    holder: Holder,
    due: Due,
) -> Result<bool, JobsError> {
    let site_from = rows.site(link.from)?.ok_or(JobsError::NoSite(link.from))?;
    let site_to = rows.site(link.to)?.ok_or(JobsError::NoSite(link.to))?;
    let places = [
        (PermitPlace::Link(link.id), movers),
        (PermitPlace::From(link.from), site_from.movers_out),
        (PermitPlace::To(link.to), site_to.movers_in),
    ];
    let held = rows.permits_of(holder.shard)?;
    let mut taken = Vec::with_capacity(places.len());
    for (place, most) in places {
        let own = held.iter().find(|permit| permit.place == place && permit.claim == holder.claim);
        let slot = match own {
            Some(own) => Some(own.slot),
            None => free_slot(&rows.permits(place)?, most, due),
        };
        let Some(slot) = slot else { return Ok(false) };
        let Holder { shard, claim, until } = holder;
        taken.push(Permit { place, slot, shard, claim, until });
    }
    taken.iter().try_for_each(|permit| rows.put_permit(permit))?;
    Ok(true)
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
