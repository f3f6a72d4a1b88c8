//! How a world begins: its sites, links, campaigns and shards, and the rules of its scheduler.
//!
//! In: a seed. Out: rows. Must not know what goes wrong later.

use std::num::NonZero;

use longhaul_core::FaultCode;
use longhaul_jobs::queue::{
    LinkLimits, NewCampaign, SiteLimits, add_campaign, add_commit, add_link, add_segment, add_site, begin_campaign,
};
use longhaul_jobs::{
    Amount, CampaignId, Cut, JobsError, LinkId, Micros, PermitPlace, Priority, Segment, Store, Weight,
};

use crate::hours::Closed;
use crate::world::{FILE_BYTES, Rng, SECOND, START, World};

impl World {
    /// Makes the sites, links, campaigns and shards of a seed. Rules of the scheduler come from a
    /// stream of their own: what else a seed has does not depend on them.
    pub(crate) fn set_up(&mut self, seed: u64) -> Result<(), JobsError> {
        let mut rules = Rng::of(!seed);
        let most = |rng: &mut Rng| NonZero::new(1 + rng.below(2) as u32).unwrap_or(NonZero::<u32>::MIN);
        let mut sites = Vec::new();
        for name in ["near", "far"] {
            let limits = SiteLimits { movers_in: most(&mut self.rng), movers_out: most(&mut self.rng) };
            let site = self.store.transact(|rows| add_site(rows, name, limits))?;
            self.permits.insert(PermitPlace::From(site), limits.movers_out.get());
            self.permits.insert(PermitPlace::To(site), limits.movers_in.get());
            sites.push(site);
        }
        let (near, far) = (sites[0], sites[1]);
        for _ in 0..1 + self.rng.below(2) {
            let movers = most(&mut self.rng);
            let rate = rules.one_in(4).then(|| 1 + rules.below(1_000_000));
            let (limits, closed) = (LinkLimits { movers, rate }, Closed::drawn(&mut rules, 6));
            let link = self.store.transact(|rows| add_link(rows, (near, far), limits, &closed.calendar()))?;
            self.hours.links.insert(link, closed);
            self.permits.insert(PermitPlace::Link(link), movers.get());
            self.links.push(link);
        }
        for name in ["one", "two"].into_iter().take(1 + self.rng.index(2)) {
            let closed = Closed::drawn(&mut rules, 4);
            let new = NewCampaign {
                name: name.to_owned(),
                priority: [5, 5, 2, 8].get(rules.index(4)).and_then(|value| Priority::new(*value)).unwrap_or_default(),
                weight: [100, 100, 1, 1000]
                    .get(rules.index(4))
                    .and_then(|value| Weight::new(*value))
                    .unwrap_or_default(),
                deadline: rules.one_in(3).then(|| Micros(START + rules.below(1200) * SECOND)),
                calendar: closed.calendar(),
                ..NewCampaign::default()
            };
            let campaign = self.store.transact(|rows| add_campaign(rows, &new))?;
            self.hours.campaigns.insert(campaign, closed);
            for number in 0..1 + self.rng.below(3) {
                let link = self.links[self.rng.index(self.links.len())];
                self.add_shard(campaign, number, link)?;
            }
            if self.rng.one_in(2) {
                self.add_commit(campaign)?;
            }
            self.store.transact(|rows| begin_campaign(rows, campaign))?;
            self.campaigns.push(campaign);
        }
        Ok(())
    }

    /// Has the files of a campaign appear together.
    fn add_commit(&mut self, campaign: CampaignId) -> Result<(), JobsError> {
        let of_campaign = self.store.all_shards().filter(|shard| shard.campaign == campaign);
        let files = of_campaign.flat_map(|shard| (0..shard.total.files).map(|file| (shard.id, file))).collect();
        let link = self.links[self.rng.index(self.links.len())];
        let commit = self.store.transact(|rows| add_commit(rows, campaign, link))?;
        self.destination.commits.insert(commit, files);
        Ok(())
    }

    fn add_shard(&mut self, campaign: CampaignId, number: u64, link: LinkId) -> Result<(), JobsError> {
        let alike = self.rng.one_in(12);
        let files = if alike { 10 } else { 1 + self.rng.below(4) };
        let total = Amount { files, bytes: files * FILE_BYTES };
        let segment = Segment { campaign, number, digest: [0; 32], total };
        let cut = Cut { first: 0, end: files, total };
        let added = self.store.transact(|rows| add_segment(rows, &segment, link, &[cut]))?;
        for file in 0..files {
            let fault = match (alike, self.rng.below(12)) {
                (true, 0) => None,
                (true, _) | (false, 0) => Some((FaultCode::NotFound, u64::MAX)),
                (false, 1) => Some((FaultCode::Changed, 1 + self.rng.below(4))),
                _ => None,
            };
            self.bad.extend(fault.map(|fault| ((added[0], file), fault)));
        }
        Ok(())
    }
}
