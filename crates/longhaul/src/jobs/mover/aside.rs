//! The links that a mover leaves alone for a while, as its own host could not move their shards.
//!
//! In: faults of this host by the links of their shards, and shards that went well. Out: the links
//! that the mover asks the queue for by now, and those that it gives up. Other movers go on with
//! all of them. Must not know the queue, nor what failed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::Fault;
use longhaul_jobs::LinkId;
use longhaul_jobs::retry::link_pause;

/// The links that are left alone by all movers of this process.
#[derive(Debug)]
pub(super) struct LinksAside {
    /// Faults of a link in a row behind which it is given up. `None`: it is tried for ever.
    failures_max: Option<u32>,
    links: Mutex<BTreeMap<LinkId, LinkAside>>,
}

/// A link of which a shard met a fault of this host.
#[derive(Debug)]
struct LinkAside {
    /// Faults in a row, where those of shards that were moved together count once.
    failures: u32,
    until: Instant,
    fault: Fault,
}

/// The links that are left alone at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AsideNow {
    /// No shard of them is asked for.
    pub(super) waiting: Vec<LinkId>,
    /// The links among them of which this host has moved nothing, however often it tried.
    pub(super) given_up: Vec<LinkId>,
}

impl LinksAside {
    /// No link is left alone yet.
    pub(super) fn new(failures_max: Option<u32>) -> LinksAside {
        LinksAside { failures_max, links: Mutex::default() }
    }

    /// Takes a fault of this host, met by a shard of a link. The link waits for 10 s to 10 min,
    /// doubled each time.
    pub(super) fn failed(&self, link: LinkId, fault: &Fault, (now, chance): (Instant, u64)) {
        let mut links = self.links();
        let before = links.get(&link);
        if before.is_some_and(|aside| now < aside.until) {
            return;
        }
        let failures = before.map_or(0, |aside| aside.failures).saturating_add(1);
        let until = now + link_pause(failures, chance);
        links.insert(link, LinkAside { failures, until, fault: fault.clone() });
    }

    /// This host moved a shard of a link.
    pub(super) fn well(&self, link: LinkId) {
        self.links().remove(&link);
    }

    /// The links that are left alone.
    pub(super) fn now(&self, now: Instant) -> AsideNow {
        let links = self.links();
        let of = |which: &dyn Fn(&LinkAside) -> bool| {
            links.iter().filter(|(_, aside)| which(aside)).map(|(link, _)| *link).collect()
        };
        AsideNow {
            waiting: of(&|aside| now < aside.until || self.is_given_up(aside)),
            given_up: of(&|aside| self.is_given_up(aside)),
        }
    }

    /// The last fault of a link that is given up, of those for which `counts` says so.
    pub(super) fn fault(&self, counts: impl Fn(LinkId) -> bool) -> Option<Fault> {
        let links = self.links();
        let mut given_up = links.iter().filter(|(link, aside)| self.is_given_up(aside) && counts(**link));
        given_up.next().map(|(_, aside)| aside.fault.clone())
    }

    fn is_given_up(&self, aside: &LinkAside) -> bool {
        self.failures_max.is_some_and(|most| aside.failures >= most)
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<LinkId, LinkAside>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::{Blame, FaultCode};

    use super::*;

    const ILL: LinkId = LinkId(1);

    fn denied() -> Fault {
        Fault::new(FaultCode::Denied, Blame::Local, "the key cannot be read")
    }

    #[test]
    fn a_link_waits_longer_behind_each_fault_of_this_host_and_other_links_do_not() {
        let (aside, start) = (LinksAside::new(None), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let waits = |seconds| aside.now(at(seconds)).waiting == [ILL];
        assert_eq!(aside.now(start), AsideNow::default());
        aside.failed(ILL, &denied(), (start, 0));
        assert!(waits(9) && !waits(10));
        // A shard that was moved beside the first one.
        aside.failed(ILL, &denied(), (at(9), 0));
        assert!(!waits(10), "it is the same fault");
        aside.failed(ILL, &denied(), (at(10), 0));
        assert!(waits(29) && !waits(30));
        (3..100).for_each(|n| aside.failed(ILL, &denied(), (at(n * 1000), 0)));
        assert!(waits(99_599) && !waits(99_600), "for 10 min, and it is never given up");
        aside.well(ILL);
        aside.failed(ILL, &denied(), (at(200_000), 0));
        assert!(!waits(200_010), "it begins anew behind a shard that went well");
    }

    #[test]
    fn a_link_is_given_up_behind_so_many_faults_in_a_row_unless_something_went_well() {
        let (aside, start) = (LinksAside::new(Some(3)), Instant::now());
        let fails = |n: u64| aside.failed(ILL, &denied(), (start + Duration::from_secs(n * 1000), 0));
        let given_up = || aside.now(start + Duration::from_secs(1_000_000)).given_up;
        (0..2).for_each(fails);
        aside.well(ILL);
        (2..4).for_each(fails);
        assert!(given_up().is_empty() && aside.fault(|_| true).is_none());
        fails(4);
        assert_eq!((given_up(), aside.fault(|_| true)), (vec![ILL], Some(denied())));
        assert_eq!(aside.now(start + Duration::from_secs(1_000_000)).waiting, [ILL], "it is asked for no more");
        assert_eq!(aside.fault(|link| link != ILL), None);
    }
}
