//! A seeded stream of numbers, and a queue to begin with.
//!
//! In: seeds. Out: numbers, and the same queue in any store. Must not know a backend.

use std::num::NonZero;

use longhaul_jobs::queue::{
    LinkLimits, NewCampaign, SiteLimits, add_campaign, add_link, add_segment, add_site, begin_campaign,
};
use longhaul_jobs::{Amount, CampaignId, Cut, JobsError, LinkId, Rows, Segment};

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn id(&mut self) -> [u8; 16] {
        ((u128::from(self.next()) << 64) | u128::from(self.next())).to_be_bytes()
    }
}

/// A link with three movers, and so many campaigns of so many shards of ten files of ten bytes.
pub(crate) fn begin(rows: &mut dyn Rows, campaigns: u64, shards: u64) -> Result<(LinkId, Vec<CampaignId>), JobsError> {
    let movers = NonZero::new(3).unwrap();
    let limits = SiteLimits { movers_in: movers, movers_out: movers };
    let (from, to) = (add_site(rows, "from", limits)?, add_site(rows, "to", limits)?);
    let calendar = "in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s".parse().unwrap();
    let link = add_link(rows, (from, to), LinkLimits { movers, rate: Some(1000) }, &calendar)?;
    let mut added = Vec::new();
    for at in 0..campaigns {
        let retry = "changed=2, not-found=1".parse().unwrap();
        let spec = vec![0, 255, at as u8];
        let hooks = "mail:campaign,fault chat:shard,campaign,fault".parse().unwrap();
        let new = NewCampaign { name: format!("campaign {at}"), retry, spec, hooks, ..NewCampaign::default() };
        let campaign = add_campaign(rows, &new)?;
        let total = Amount { files: 10, bytes: 100 };
        let cuts: Vec<Cut> = (0..shards).map(|at| Cut { first: at * 10, end: at * 10 + 10, total }).collect();
        let total = Amount { files: shards * 10, bytes: shards * 100 };
        add_segment(rows, &Segment { campaign, number: 0, digest: [7; 32], total }, link, &cuts)?;
        begin_campaign(rows, campaign)?;
        added.push(campaign);
    }
    Ok((link, added))
}
