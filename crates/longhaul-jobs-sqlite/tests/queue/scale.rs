//! The size of a large campaign, which is that of its shards and not of its files.
//!
//! In: a campaign of 10^8 files. Out: bytes of the file, and its sums. Must not know statements.

use longhaul_jobs::left::left;
use longhaul_jobs::queue::{LinkLimits, NewCampaign, SiteLimits, add_campaign, add_link, add_segment, add_site};
use longhaul_jobs::{Amount, PlanLimits, Planner, Segment, Store};
use longhaul_jobs_sqlite::SqliteStore;
use std::num::NonZero;

const FILES: u64 = 100_000_000;
const SEGMENT_FILES: u64 = 1_000_000;

#[test]
fn a_campaign_of_a_hundred_million_files_takes_less_than_twenty_megabytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let one = NonZero::new(1).unwrap();
    let (campaign, link) = store
        .transact(|rows| {
            let limits = SiteLimits { movers_in: one, movers_out: one };
            let (from, to) = (add_site(rows, "from", limits)?, add_site(rows, "to", limits)?);
            let link = add_link(rows, (from, to), LinkLimits { movers: one, rate: None }, &"".parse().unwrap())?;
            let new = NewCampaign { name: "large".to_owned(), ..NewCampaign::default() };
            Ok((add_campaign(rows, &new)?, link))
        })
        .unwrap();
    for number in 0..FILES / SEGMENT_FILES {
        let entries = (0..SEGMENT_FILES).map(|file| ((), 3000 + file % 2000));
        let cuts: Vec<_> = Planner::cuts(PlanLimits::of_rate(None), entries).map(Result::unwrap).collect();
        let total = cuts.iter().try_fold(Amount::default(), |sum, cut| sum.plus(cut.total)).unwrap();
        let segment = Segment { campaign, number, digest: [0; 32], total };
        store.transact(|rows| add_segment(rows, &segment, link, &cuts)).unwrap();
    }
    let sums = store.transact(|rows| left(rows, campaign)).unwrap();
    assert_eq!(sums.left, Amount { files: FILES, bytes: FILES * 3000 + FILES / 2000 * (1999 * 1000) });
    // The quickest of some looks: others may be busy meanwhile.
    let look = |store: &mut SqliteStore| {
        let begun = std::time::Instant::now();
        store.transact(|rows| left(rows, campaign)).unwrap();
        begun.elapsed()
    };
    let took = (0..20).map(|_| look(&mut store)).min().unwrap();
    assert!(took < std::time::Duration::from_millis(50), "what is left took {took:?}");
    drop(store);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 20_000_000, "{bytes} bytes");
}
