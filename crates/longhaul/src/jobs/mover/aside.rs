//! The links and campaigns that a mover leaves alone for a while, as its own host could not move
//! their shards.
//!
//! In: faults of this host by the link and the campaign of their shards, and shards that went well.
//! Out: the links and campaigns of which the mover asks the queue for no shard by now, and those
//! that it gives up. Other movers go on with all of them. A fault that is about what one campaign
//! names sets that campaign aside, and no other one of its link. Must not know the queue.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::{Fault, FaultCode};
use longhaul_jobs::retry::link_pause;
use longhaul_jobs::{CampaignId, LinkId};

/// The links and campaigns that are left alone by all movers of this process.
#[derive(Debug)]
pub(super) struct HostAside {
    links: AsideBook<LinkId>,
    campaigns: AsideBook<CampaignId>,
}

/// The links, or the campaigns, that are left alone.
#[derive(Debug)]
struct AsideBook<K> {
    /// Faults of one in a row behind which it is given up. `None`: it is tried for ever.
    failures_max: Option<u32>,
    entries: Mutex<BTreeMap<K, AsideEntry>>,
}

/// A link or a campaign of which a shard met a fault of this host.
#[derive(Debug)]
struct AsideEntry {
    /// Faults in a row, where those of shards that were moved together count once.
    failures: u32,
    until: Instant,
    fault: Fault,
}

/// All that is left alone at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AsideNow {
    /// Links.
    pub(super) links: AsideKeys<LinkId>,
    /// Campaigns.
    pub(super) campaigns: AsideKeys<CampaignId>,
}

/// The links, or the campaigns, that are left alone at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AsideKeys<K> {
    /// No shard of them is asked for.
    pub(super) waiting: Vec<K>,
    /// The ones among them of which this host has moved nothing, however often it tried.
    pub(super) given_up: Vec<K>,
}

/// The extent of a fault of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultExtent {
    /// The shards of one campaign would meet it.
    Campaign,
    /// All shards that go from this host over the link would.
    Link,
}

impl FaultExtent {
    /// The extent of a fault by its code, where nothing else tells. A file or directory of this
    /// host that is missing, or may not be used, and a disk that cannot be read or written are what
    /// a campaign names: its source, its place, its manifest or its key; and an owner or a key that
    /// is refused is that of a campaign. Whatever else a host is short of it lacks for each
    /// campaign: memory, open files or room.
    pub(super) const fn of(code: FaultCode) -> FaultExtent {
        match code {
            FaultCode::Denied | FaultCode::NotFound | FaultCode::Io | FaultCode::ReadOnly | FaultCode::TargetFailed => {
                FaultExtent::Campaign
            }
            _ => FaultExtent::Link,
        }
    }
}

impl HostAside {
    /// Nothing is left alone yet.
    pub(super) fn new(failures_max: Option<u32>) -> HostAside {
        HostAside { links: AsideBook::new(failures_max), campaigns: AsideBook::new(failures_max) }
    }

    /// Takes a fault of this host, met by a shard of a link and of a campaign. Whichever of both it
    /// is about waits for 10 s to 10 min, doubled each time.
    pub(super) fn failed(
        &self,
        (link, campaign): (LinkId, CampaignId),
        (fault, extent): (&Fault, FaultExtent),
        at: (Instant, u64),
    ) {
        match extent {
            FaultExtent::Campaign => self.campaigns.failed(campaign, fault, at),
            FaultExtent::Link => self.links.failed(link, fault, at),
        }
    }

    /// This host moved a shard of a link and of a campaign.
    pub(super) fn well(&self, (link, campaign): (LinkId, CampaignId)) {
        self.links.well(link);
        self.campaigns.well(campaign);
    }

    /// The campaigns of which a fault is known.
    pub(super) fn campaigns_known(&self) -> Vec<CampaignId> {
        self.campaigns.entries().keys().copied().collect()
    }

    /// Forgets the faults of campaigns.
    pub(super) fn forget(&self, campaigns: &[CampaignId]) {
        self.campaigns.entries().retain(|id, _| !campaigns.contains(id));
    }

    /// The links and campaigns that are left alone.
    pub(super) fn now(&self, now: Instant) -> AsideNow {
        AsideNow { links: self.links.now(now), campaigns: self.campaigns.now(now) }
    }

    /// The last fault of one of these links or campaigns that is given up.
    pub(super) fn fault(&self, (links, campaigns): (&[LinkId], &[CampaignId])) -> Option<Fault> {
        self.links.fault(links).or_else(|| self.campaigns.fault(campaigns))
    }
}

impl<K: Copy + Ord> AsideBook<K> {
    fn new(failures_max: Option<u32>) -> AsideBook<K> {
        AsideBook { failures_max, entries: Mutex::default() }
    }

    fn failed(&self, key: K, fault: &Fault, (now, chance): (Instant, u64)) {
        let mut entries = self.entries();
        let before = entries.get(&key);
        if before.is_some_and(|aside| now < aside.until) {
            return;
        }
        let failures = before.map_or(0, |aside| aside.failures).saturating_add(1);
        let until = now + link_pause(failures, chance);
        entries.insert(key, AsideEntry { failures, until, fault: fault.clone() });
    }

    fn well(&self, key: K) {
        self.entries().remove(&key);
    }

    fn now(&self, now: Instant) -> AsideKeys<K> {
        let entries = self.entries();
        let of = |which: &dyn Fn(&AsideEntry) -> bool| {
            entries.iter().filter(|(_, aside)| which(aside)).map(|(key, _)| *key).collect()
        };
        AsideKeys {
            waiting: of(&|aside| now < aside.until || self.is_given_up(aside)),
            given_up: of(&|aside| self.is_given_up(aside)),
        }
    }

    fn fault(&self, counted: &[K]) -> Option<Fault> {
        let entries = self.entries();
        let mut given_up = entries.iter().filter(|(key, aside)| self.is_given_up(aside) && counted.contains(key));
        given_up.next().map(|(_, aside)| aside.fault.clone())
    }

    fn is_given_up(&self, aside: &AsideEntry) -> bool {
        self.failures_max.is_some_and(|most| aside.failures >= most)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<K, AsideEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::Blame;

    use super::*;

    const ILL: LinkId = LinkId(1);
    /// Two campaigns of one link.
    const ONE: (LinkId, CampaignId) = (ILL, CampaignId(5));
    const OTHER: (LinkId, CampaignId) = (ILL, CampaignId(6));

    fn fault(code: FaultCode) -> Fault {
        Fault::new(code, Blame::Local, "it failed")
    }

    /// The same fault, with the extent that its code has.
    fn by_code(fault: &Fault) -> (&Fault, FaultExtent) {
        (fault, FaultExtent::of(fault.code))
    }

    fn is_nothing(now: &AsideNow) -> bool {
        now.links.waiting.is_empty() && now.campaigns.waiting.is_empty()
    }

    fn exhausted() -> Fault {
        fault(FaultCode::Exhausted)
    }

    #[test]
    fn a_link_waits_longer_behind_each_fault_of_this_host_and_other_links_do_not() {
        let (aside, start) = (HostAside::new(None), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let waits = |seconds| aside.now(at(seconds)).links.waiting == [ILL];
        assert!(is_nothing(&aside.now(start)));
        aside.failed(ONE, by_code(&exhausted()), (start, 0));
        assert!(waits(9) && !waits(10));
        // A shard of another campaign that was moved beside the first one.
        aside.failed(OTHER, by_code(&exhausted()), (at(9), 0));
        assert!(!waits(10), "it is the same fault");
        aside.failed(ONE, by_code(&exhausted()), (at(10), 0));
        assert!(waits(29) && !waits(30));
        (3..100).for_each(|n| aside.failed(ONE, by_code(&exhausted()), (at(n * 1000), 0)));
        assert!(waits(99_599) && !waits(99_600), "for 10 min, and it is never given up");
        aside.well(OTHER);
        aside.failed(ONE, by_code(&exhausted()), (at(200_000), 0));
        assert!(!waits(200_010), "it begins anew behind a shard that went well");
    }

    #[test]
    fn a_link_is_given_up_behind_so_many_faults_in_a_row_unless_something_went_well() {
        let (aside, start) = (HostAside::new(Some(3)), Instant::now());
        let fails = |n: u64| aside.failed(ONE, by_code(&exhausted()), (start + Duration::from_secs(n * 1000), 0));
        let links = || aside.now(start + Duration::from_secs(1_000_000)).links;
        (0..2).for_each(fails);
        aside.well(ONE);
        (2..4).for_each(fails);
        assert!(links().given_up.is_empty() && aside.fault((&[ILL], &[])).is_none());
        fails(4);
        assert_eq!((links().given_up, aside.fault((&[ILL], &[]))), (vec![ILL], Some(exhausted())));
        assert_eq!(links().waiting, [ILL], "it is asked for no more");
        assert_eq!(aside.fault((&[LinkId(2)], &[ONE.1])), None);
    }

    #[test]
    fn a_fault_of_what_one_campaign_names_leaves_the_other_campaigns_of_its_link_alone() {
        let start = Instant::now();
        for code in [FaultCode::NotFound, FaultCode::Denied, FaultCode::Io, FaultCode::ReadOnly] {
            let aside = HostAside::new(Some(2));
            aside.failed(ONE, by_code(&fault(code)), (start, 0));
            let now = aside.now(start);
            assert_eq!((now.links.waiting, now.campaigns.waiting), (vec![], vec![ONE.1]), "{code:?}");
            // Whatever the other one moves says nothing of the first.
            aside.well(OTHER);
            aside.failed(ONE, by_code(&fault(code)), (start + Duration::from_secs(10), 0));
            let now = aside.now(start + Duration::from_secs(1_000_000));
            assert_eq!((now.links.given_up, now.campaigns.given_up), (vec![], vec![ONE.1]), "{code:?}");
            assert_eq!(aside.fault((&[ILL], &[ONE.1])), Some(fault(code)));
            assert_eq!(aside.fault((&[ILL], &[OTHER.1])), None);
            aside.well(ONE);
            assert!(is_nothing(&aside.now(start)));
        }
    }

    #[test]
    fn the_fault_of_one_campaign_is_forgotten_and_no_other_one() {
        let (aside, start) = (HostAside::new(None), Instant::now());
        for shard in [ONE, OTHER] {
            aside.failed(shard, by_code(&fault(FaultCode::NotFound)), (start, 0));
        }
        assert_eq!(aside.campaigns_known(), [ONE.1, OTHER.1]);
        aside.forget(&[ONE.1]);
        assert_eq!(aside.now(start).campaigns.waiting, [OTHER.1]);
    }

    #[test]
    fn whatever_code_a_key_of_one_campaign_fails_with_its_link_is_not_left_alone() {
        let (aside, start) = (HostAside::new(None), Instant::now());
        aside.failed(ONE, (&fault(FaultCode::Usage), FaultExtent::Campaign), (start, 0));
        let now = aside.now(start);
        assert_eq!((now.links.waiting, now.campaigns.waiting), (vec![], vec![ONE.1]));
    }

    #[test]
    fn what_a_host_is_short_of_it_lacks_for_each_campaign_of_the_link() {
        for code in [FaultCode::Exhausted, FaultCode::NoSpace, FaultCode::Busy, FaultCode::Internal] {
            let (aside, start) = (HostAside::new(None), Instant::now());
            aside.failed(ONE, by_code(&fault(code)), (start, 0));
            let now = aside.now(start);
            assert_eq!((now.links.waiting, now.campaigns.waiting), (vec![ILL], vec![]), "{code:?}");
        }
    }
}
