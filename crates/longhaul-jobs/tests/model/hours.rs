//! The hours in which links and campaigns stand still, beside the calendars that say so.
//!
//! In: a stream of numbers. Out: calendars, and whether a time is one in which nothing may be
//! claimed. Must not know how calendars are read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use longhaul_jobs::{Calendar, CampaignId, LinkId, Micros, Shard};

use crate::world::{Rng, SECOND};

/// The minutes of a day, in UTC, in which something stands still: from, and to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed(Vec<(u64, u64)>);

/// The closed minutes of all links and campaigns of a world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hours {
    pub(crate) links: BTreeMap<LinkId, Closed>,
    pub(crate) campaigns: BTreeMap<CampaignId, Closed>,
}

impl Closed {
    /// Some minutes of the hours in which worlds play, or, but for one in so many, none.
    pub(crate) fn drawn(rng: &mut Rng, one_in: u64) -> Closed {
        if !rng.one_in(one_in) {
            return Closed::default();
        }
        // A clock may be off by an hour.
        let spans = (15..=17).map(|hour| {
            let from = hour * 60 + rng.below(16);
            (from, from + 1 + rng.below(3))
        });
        Closed(spans.collect())
    }

    /// The calendar that says so.
    pub(crate) fn calendar(&self) -> Calendar {
        let mut text = String::new();
        for (from, to) in &self.0 {
            let begin = if text.is_empty() { "in UTC: " } else { ", " };
            let _ = write!(text, "{begin}{:02}:{:02}-{:02}:{:02} closed", from / 60, from % 60, to / 60, to % 60);
        }
        text.parse().expect("a calendar")
    }

    fn has(&self, now: Micros) -> bool {
        let minute = now.0 / SECOND / 60 % 1440;
        self.0.iter().any(|(from, to)| (*from..*to).contains(&minute))
    }
}

impl Hours {
    /// Whether a shard may not be claimed at a time, for its link or its campaign.
    pub(crate) fn are_closed(&self, shard: &Shard, now: Micros) -> bool {
        let closed = [self.links.get(&shard.link), self.campaigns.get(&shard.campaign)];
        closed.into_iter().flatten().any(|closed| closed.has(now))
    }
}
