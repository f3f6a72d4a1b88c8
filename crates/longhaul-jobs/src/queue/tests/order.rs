//! The order in which shards become ready.
//!
//! In: campaigns side by side. Out: whose shards come first.

use super::*;

/// Claims so many shards, one after the other, and counts those of each campaign.
fn turns(bench: &mut Bench, of: &[CampaignId], shards: usize) -> Vec<usize> {
    let mut counts = vec![0; of.len()];
    for _ in 0..shards {
        let granted = bench.must_claim();
        bench.pass(1);
        bench.finish(&granted, 10, Outcome::Through(vec![]));
        counts[of.iter().position(|id| *id == granted.campaign.id).unwrap()] += 1;
    }
    counts
}

#[test]
fn campaigns_of_one_priority_share_a_link_by_their_weights() {
    let mut bench = Bench::new(2, None);
    let weight = |weight| Weight::new(weight).unwrap();
    let light = bench.campaign(NewCampaign { weight: weight(10), ..named("light") }, 100);
    let heavy = bench.campaign(NewCampaign { weight: weight(30), ..named("heavy") }, 100);
    let counts = turns(&mut bench, &[light, heavy], 80);
    assert!((18..=30).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_campaign_that_joins_later_owes_nothing_and_is_owed_nothing() {
    let mut bench = Bench::new(1, None);
    let old = bench.campaign(named("old"), 100);
    turns(&mut bench, &[old], 50);
    let new = bench.campaign(named("new"), 100);
    let counts = turns(&mut bench, &[old, new], 20);
    assert!(counts[0] >= 8 && counts[1] >= 8, "{counts:?}");
}

#[test]
fn a_higher_priority_goes_first_and_a_deadline_at_risk_before_it() {
    let mut bench = Bench::new(1, None);
    let priority = Priority::new(9).unwrap();
    let usual = bench.campaign(named("usual"), 20);
    let urgent = bench.campaign(NewCampaign { priority, ..named("urgent") }, 30);
    assert_eq!(turns(&mut bench, &[usual, urgent], 10)[0], 0);
    // The link moves some 100 bytes a second, and 1000 are left.
    bench.pass(50);
    assert_eq!(turns(&mut bench, &[usual, urgent], 5)[0], 0);
    let rate = bench.link().meter.rate_at(bench.store.now);
    assert!(rate > 0);
    let soon = Micros(bench.store.now.0 + 1_000_000 * 1000 / rate);
    let deadline = bench.campaign(NewCampaign { deadline: Some(soon), ..named("deadline") }, 10);
    let counts = turns(&mut bench, &[usual, urgent, deadline], 6);
    assert!(counts[2] >= 3, "{counts:?}: what was ready before comes first");
}

#[test]
fn only_the_leader_of_the_present_term_schedules() {
    let (mut bench, _) = Bench::one_campaign(3);
    let (one, two) = (MoverId([1; 16]), MoverId([2; 16]));
    let ask = |store: &mut Memory, who| store.transact(|rows| lead(rows, who)).unwrap();
    assert_eq!(ask(&mut bench.store, one), Some(1));
    assert_eq!(ask(&mut bench.store, two), None);
    bench.pass(15);
    assert_eq!(ask(&mut bench.store, two), Some(2));
    assert_eq!(ask(&mut bench.store, one), None);
    assert_eq!(bench.store.transact(|rows| schedule(rows, 1)).unwrap(), None);
    assert!(bench.store.transact(|rows| schedule(rows, 2)).unwrap().is_some());
}

#[test]
fn ready_shards_are_bounded_by_the_permits_of_their_link() {
    let (mut bench, _) = Bench::one_campaign(100);
    assert_eq!(bench.schedule().readied, 4);
    assert_eq!(bench.schedule().readied, 0);
}
