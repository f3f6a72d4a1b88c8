//! Sessions whose lanes are lost or retired.

use longhaul_core::FaultCode;
use longhaul_proto::wire::message::Outcome;

use super::{file, is_committed, many, play, sparse};
use crate::plan::{CHUNK, Plan};

fn plays_out(plan: impl Fn(u64) -> Plan) -> u64 {
    let mut lost = 0;
    for seed in 0..60 {
        let mut plan = plan(seed);
        plan.rates.lanes.losses = 200;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed), "seed {seed}");
        lost += session.world.env.seen.lanes_lost;
    }
    lost
}

#[test]
fn whatever_lanes_are_lost_everything_arrives_whole() {
    for safe in [false, true] {
        let large = plays_out(|seed| {
            let items = vec![file("a", 40 * CHUNK + 1), sparse("b", 9), file("c", 3 * CHUNK)];
            let mut plan = Plan { safe, lanes: 1 + seed as u32 % 4, ..Plan::one_session(items) };
            plan.scene.any_class_order = seed % 2 == 0;
            plan
        });
        let small = plays_out(|seed| Plan { safe, lanes: 1 + seed as u32 % 4, ..Plan::one_session(many(60, 9, 100)) });
        assert!(large > 300 && small > 50, "lanes are lost, or this tests nothing: {large} and {small}");
    }
}

#[test]
fn lanes_that_are_retired_lose_nothing_and_nothing_is_sent_twice() {
    let mut retired = 0;
    for seed in 0..60 {
        let entries = [file("a", 40 * CHUNK + 1), sparse("b", 9), file("c", 3 * CHUNK)];
        let entries = entries.into_iter().chain(many(20, 9, 100)).collect();
        let mut plan = Plan { lanes: 1 + seed as u32 % 4, safe: seed % 2 == 0, ..Plan::one_session(entries) };
        plan.rates.lanes.retirements = 200;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed), "seed {seed}");
        assert!(session.sendings().values().all(|times| *times == 1), "seed {seed}");
        retired += session.world.env.seen.lanes_lost;
    }
    assert!(retired > 60 * 4, "lanes are retired, or this tests nothing: {retired}");
}

#[test]
fn damage_on_lanes_that_are_lost_is_still_sent_again_and_right() {
    for seed in 0..60 {
        let mut plan = Plan { lanes: 3, ..Plan::one_session(vec![file("a", 30 * CHUNK)]) };
        (plan.rates.flips, plan.rates.alters, plan.rates.lanes.losses) = (100, 50, 150);
        for outcome in play(plan, seed).outcomes() {
            let given_up = matches!(outcome, Outcome::Failed(fault) if fault.code == FaultCode::Mismatch);
            assert!(given_up || is_committed(outcome), "{outcome:?}");
        }
    }
}
