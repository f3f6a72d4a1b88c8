//! The cutting of a campaign's manifests into shards.
//!
//! In: sealed manifests, one for each source. Out: segments and shards as rows of the queue, one
//! transaction for each segment: a run that was killed goes on behind the last one. Directories are
//! in no shard's sums: they come with what lies in them. Must not know how manifests are made.

use std::num::NonZero;

use longhaul_core::Fault;
use longhaul_jobs::queue::{LinkLimits, SiteLimits, add_link, add_segment, add_site, begin_campaign};
use longhaul_jobs::{
    Amount, Calendar, Campaign, Cut, JobsError, LinkId, PlanLimits, Planner, Rows, Segment, SiteId, Store,
};
use longhaul_manifest::{ItemKind, Sealed};

use super::faults::{fault_of_jobs, fault_of_manifest};
use super::spec::CampaignSpec;

/// A campaign that was planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CampaignPlan {
    /// Its shards.
    pub shards: u64,
    /// Their files and bytes.
    pub total: Amount,
}

/// The movers that a link and a site allow at a time. On one host more of them share its disks.
const MOVERS_OF_LINK: NonZero<u32> = NonZero::<u32>::MIN.saturating_add(7);
const MOVERS_OF_SITE: NonZero<u32> = NonZero::<u32>::MIN.saturating_add(63);

/// Cuts the manifests of a campaign, and lets it begin.
///
/// # Errors
/// The fault of a manifest that cannot be read, or is another one than an earlier run had begun to
/// cut, and those of the queue.
pub fn plan_shards(
    store: &mut impl Store,
    campaign: &Campaign,
    spec: &CampaignSpec,
    manifests: &[Sealed],
) -> Result<CampaignPlan, Fault> {
    let id = campaign.id;
    let known = |error: JobsError| fault_of_jobs(&error);
    let (link, rate) = store
        .transact(|rows| {
            let link = link_between(rows, &spec.site_from(), &spec.to.site())?;
            let rate = rows.link(link)?.map_or(0, |link| link.meter.rate);
            Ok((link, rate))
        })
        .map_err(known)?;
    let limits = limits(spec, (rate > 0).then_some(rate));
    let mut number = 0;
    for sealed in manifests {
        let mut items = sealed.items();
        for found in &sealed.head().segments {
            let (cuts, total) = cuts_of(&mut items, found.items, limits, spec)?;
            let segment = Segment { campaign: id, number, digest: found.digest, total };
            store.transact(|rows| add_once(rows, &segment, link, &cuts)).map_err(known)?;
            number += 1;
        }
    }
    let sums = store.transact(|rows| {
        begin_campaign(rows, id)?;
        rows.shard_sums(id)
    });
    let mut planned = CampaignPlan::default();
    for sum in sums.map_err(known)? {
        planned.shards += sum.shards;
        planned.total = planned.total.plus(sum.total).unwrap_or(planned.total);
    }
    Ok(planned)
}

/// Adds a segment with its shards, unless an earlier planner or another one at this time has done
/// so.
fn add_once(rows: &mut dyn Rows, segment: &Segment, link: LinkId, cuts: &[Cut]) -> Result<(), JobsError> {
    let stands = rows.segments(segment.campaign)?.into_iter().find(|known| known.number == segment.number);
    match stands {
        None => add_segment(rows, segment, link, cuts).map(drop),
        Some(known) if known == *segment => Ok(()),
        Some(_) => Err(JobsError::BadRow("a segment is planned with another content")),
    }
}

fn limits(spec: &CampaignSpec, rate: Option<u64>) -> PlanLimits {
    let bounds = spec.bounds;
    if bounds.files.is_none() && bounds.bytes.is_none() {
        return PlanLimits::of_rate(rate);
    }
    let (files, bytes) = (bounds.files.unwrap_or(SHARD_FILES), bounds.bytes.unwrap_or(SHARD_BYTES));
    PlanLimits::of_amount(Amount { files, bytes })
}

/// The bound of a shard of which only the other one was given: those of the planner.
const SHARD_FILES: u64 = 10_000;
const SHARD_BYTES: u64 = 1 << 40;

/// The cuts of the next segment, counted in its items, and the sums of its files.
fn cuts_of(
    items: &mut longhaul_manifest::Items<'_>,
    count: u64,
    limits: PlanLimits,
    spec: &CampaignSpec,
) -> Result<(Vec<Cut>, Amount), Fault> {
    let (mut cuts, mut planner, mut total) = (Vec::new(), Planner::new(limits), Amount::default());
    let mut first = 0;
    for at in 0..count {
        let Some(item) = items.next() else { break };
        let item = item.map_err(|error| fault_of_manifest(&error))?;
        let is_moved = match item.kind {
            ItemKind::File { .. } => true,
            ItemKind::Link { .. } => spec.settings.metadata.preserve.links,
            ItemKind::Dir => false,
        };
        if !is_moved {
            continue;
        }
        let too_much = || fault_of_jobs(&JobsError::TooMuch("files or bytes of a segment"));
        total = total.plus(Amount { files: 1, bytes: item.bytes() }).ok_or_else(too_much)?;
        if let Some(cut) = planner.push(item.bytes()).map_err(|error| fault_of_jobs(&error))? {
            cuts.push(Cut { first, end: at, total: cut.total });
            first = at;
        }
    }
    if let Some(cut) = planner.finish().map_err(|error| fault_of_jobs(&error))? {
        cuts.push(Cut { first, end: count, total: cut.total });
    }
    Ok((cuts, total))
}

/// The link between two sites by their names, which is added if there is none.
fn link_between(rows: &mut dyn Rows, from: &str, to: &str) -> Result<LinkId, JobsError> {
    let (from, to) = (site_named(rows, from)?, site_named(rows, to)?);
    if let Some(link) = rows.links()?.into_iter().find(|link| (link.from, link.to) == (from, to)) {
        return Ok(link.id);
    }
    let limits = LinkLimits { movers: MOVERS_OF_LINK, rate: None };
    add_link(rows, (from, to), limits, &Calendar::default())
}

fn site_named(rows: &mut dyn Rows, name: &str) -> Result<SiteId, JobsError> {
    if let Some(site) = rows.sites()?.into_iter().find(|site| site.name == name) {
        return Ok(site.id);
    }
    add_site(rows, name, SiteLimits { movers_in: MOVERS_OF_SITE, movers_out: MOVERS_OF_SITE })
}

#[cfg(test)]
mod tests {
    use longhaul_jobs::queue::{NewCampaign, add_campaign};
    use longhaul_jobs::{CampaignKey, Memory, Micros};

    use super::*;

    #[test]
    fn two_planners_at_once_add_each_segment_once_and_another_content_is_refused() {
        let mut store = Memory::at(Micros(1_000_000));
        let total = Amount { files: 3, bytes: 30 };
        let cuts = [Cut { first: 0, end: 3, total }];
        let (campaign, link) = store
            .transact(|rows| {
                let new = NewCampaign {
                    key: CampaignKey([1; 16]),
                    name: "a".to_owned(),
                    priority: Default::default(),
                    weight: Default::default(),
                    deadline: None,
                    calendar: Calendar::default(),
                    retry: Default::default(),
                    spec: Vec::new(),
                };
                Ok((add_campaign(rows, &new)?, link_between(rows, "here", "there")?))
            })
            .unwrap();
        let segment = Segment { campaign, number: 0, digest: [7; 32], total };
        for _planner in 0..2 {
            store.transact(|rows| add_once(rows, &segment, link, &cuts)).unwrap();
        }
        let sums = store.transact(|rows| rows.shard_sums(campaign)).unwrap();
        assert_eq!(sums.iter().map(|sum| (sum.shards, sum.total)).collect::<Vec<_>>(), [(1, total)]);
        let other = Segment { digest: [8; 32], ..segment };
        assert!(store.transact(|rows| add_once(rows, &other, link, &cuts)).is_err());
    }
}
