//! The size of a large campaign, which is that of its shards and not of its files.
//!
//! In: a campaign of 10^8 files. Out: bytes of the file, and its sums. Must not know statements.

use longhaul_jobs::left::left;
use longhaul_jobs::queue::{
    LinkLimits, NewCampaign, SiteLimits, VerifyAsk, VerifyTurn, add_campaign, add_link, add_segment, add_site,
    begin_campaign, take_to_verify,
};
use longhaul_jobs::{
    Amount, CampaignId, ClaimId, Micros, PlanLimits, Planner, Segment, ShardId, ShardKind, ShardState, Store,
    Verification,
};
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
    let next = verify_all_but_one(&mut store, campaign);
    assert!(next < std::time::Duration::from_millis(50), "the shard to be read next took {next:?}");
    drop(store);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 20_000_000, "{bytes} bytes");
}

/// Has all shards delivered, and all but the last one read back. Gives the time of finding that.
fn verify_all_but_one(store: &mut SqliteStore, campaign: CampaignId) -> std::time::Duration {
    let last = store.transact(|rows| {
        begin_campaign(rows, campaign)?;
        let mut shards = rows.shards(campaign, ShardKind::Planned, ShardId(0), usize::MAX >> 1)?;
        for shard in &mut shards {
            (shard.state, shard.done) = (ShardState::Done, shard.total);
            rows.put_shard(shard)?;
        }
        let last = shards.pop().unwrap().id;
        for shard in shards {
            let (last, until) = (rows.now()?, rows.now()?);
            rows.put_verification(&Verification {
                shard: shard.id,
                campaign,
                last,
                entry: 0,
                claim: ClaimId([7; 16]),
                until,
                failed: Micros(0),
                unlisted: None,
            })?;
        }
        Ok(last)
    });
    let (last, cycle) = (last.unwrap(), std::time::Duration::from_secs(86_400));
    let look = |id| {
        let (ask, begun) =
            (VerifyAsk { campaign, cycle, begun: Micros(0), id: ClaimId([id; 16]) }, std::time::Instant::now());
        let turn = store.transact(|rows| take_to_verify(rows, &ask)).unwrap();
        (turn, begun.elapsed())
    };
    let looks: Vec<_> = (0..20).map(look).collect();
    assert!(matches!(&looks[0].0, VerifyTurn::Shard(given) if given.shard.id == last));
    assert!(matches!(looks[1].0, VerifyTurn::NothingDue(Some(_))));
    looks.into_iter().map(|look| look.1).min().unwrap()
}
