//! Sessions whose lanes are lost or retired.

use longhaul_core::{FaultCode, LaneId};
use longhaul_proto::wire::message::Outcome;

use super::{file, is_committed, many, play, sparse};
use crate::events::{Event, SessionNo};
use crate::plan::{CHUNK, Item, Plan};
use crate::session::Session;

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

#[test]
fn a_straggler_that_is_given_up_at_the_end_costs_what_it_had_and_nothing_is_waited_for() {
    let (mut again, mut taken) = (0, 0);
    for seed in 0..60 {
        let mut plan = Plan { lanes: 4, safe: seed % 2 == 0, ..Plan::one_session(vec![file("a", 40 * CHUNK + 1)]) };
        // A unit takes minutes on it.
        plan.rates.lanes.straggler = Some((LaneId(0), 100_000));
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed), "seed {seed}");
        assert_eq!(u64::from(session.sent_again()), session.went_down(), "seed {seed}");
        let closed: Vec<_> = session.sender().taken_by_closed().collect();
        assert!(matches!(closed[..], [(LaneId(0), _)]), "no other lane is given up: {closed:?}");
        assert!(session.world.env.clock.now().0 < 60_000_000, "seed {seed}: the straggler is waited for");
        (again, taken) = (again + u64::from(session.sent_again()), taken + closed[0].1);
    }
    assert!(again > 60 && taken >= again, "it has something, or this tests nothing: {again} of {taken}");
}

#[test]
fn what_is_sent_again_is_what_went_down_with_lanes_and_nothing_else() {
    let mut seen = 0;
    for seed in 0..60 {
        let entries = vec![file("a", 40 * CHUNK + 1), file("b", 9 * CHUNK)];
        let mut plan = Plan { lanes: 1 + seed as u32 % 4, ..Plan::one_session(entries) };
        plan.rates.lanes.losses = 100;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed), "seed {seed}");
        // A lane that breaks had one in hand besides what it took.
        let (again, lost) = (session.sent_again(), session.sender().taken_by_closed().count());
        let bound = session.went_down() + lost as u64;
        assert!(u64::from(again) <= bound, "seed {seed}: {again} of {bound}");
        seen += again;
    }
    assert!(seen > 0, "nothing was sent again, so this tests nothing");
}

/// A session whose lanes deliver in any order, as those over UDP do.
fn in_any_order(items: Vec<Item>) -> Plan {
    let mut plan = Plan { safe: false, ..Plan::one_session(items) };
    plan.rates.lanes.overtaking = true;
    plan
}

/// The end that finds that a lane is lost.
#[derive(Clone, Copy, Debug)]
enum Finder {
    /// Its sending end breaks, and packets on their way with it.
    Sender,
    /// The receiver gives it up.
    Receiver,
}

/// Plays a small session whose lane is lost after so many events. `None` if it is over by then.
fn lost_after(events: u64, lane: LaneId, finder: Finder, seed: u64) -> Option<Session> {
    let mut session = Session::new(in_any_order(vec![file("a", 6 * CHUNK + 1), file("b", 70)]), seed);
    while session.world.events < events || session.world.receivers.is_empty() {
        session.step();
        if session.world.is_over() {
            return None;
        }
    }
    let (no, env) = (SessionNo(1), &mut session.world.env);
    match finder {
        Finder::Sender => {
            env.break_lane(no, lane);
            env.clock.after(0, Event::NearBreaks(no, lane));
        }
        Finder::Receiver => env.clock.after(0, Event::FarGivesUp(no, lane)),
    }
    Some(session.run_well())
}

/// Orders in which the lanes of one plan deliver. In some of them a lane has a gap as it is lost.
const IN_ANY_ORDER_SEEDS: u64 = 4;

#[test]
fn a_lane_in_any_order_may_be_lost_at_every_moment_and_everything_arrives_whole() {
    let (mut played, mut gaps) = (0, 0);
    let ends = [0, 1].into_iter().flat_map(|lane| [(lane, Finder::Sender), (lane, Finder::Receiver)]);
    for (seed, (lane, finder)) in (1..=IN_ANY_ORDER_SEEDS).flat_map(|seed| ends.clone().map(move |end| (seed, end))) {
        for events in 0.. {
            let Some(session) = lost_after(events, LaneId(lane), finder, seed) else { break };
            assert!(session.outcomes().all(is_committed), "{lane}, {finder:?}, after {events} events");
            let receiver = session.world.receivers.first().expect("a session is under way");
            (played, gaps) = (played + 1, gaps + u32::from(receiver.has_gap(LaneId(lane))));
        }
    }
    assert!(played > 100 && gaps > 0, "or this tests little: {played} played, {gaps} with a gap");
}

#[test]
fn units_that_came_behind_a_gap_of_a_lane_that_is_lost_are_not_sent_again() {
    let (mut gaps, mut again) = (0, 0);
    for seed in 0..60 {
        let items = vec![file("a", 40 * CHUNK + 1), file("b", 9 * CHUNK)];
        let mut plan = Plan { lanes: 1 + seed as u32 % 4, ..in_any_order(items) };
        plan.rates.lanes.losses = 100;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed), "seed {seed}");
        let receiver = session.world.receivers.first().expect("a session is under way");
        let closed: Vec<_> = session.sender().taken_by_closed().collect();
        // A lane that breaks had one in hand besides what it took.
        let (sent_again, bound) = (session.sent_again(), session.went_down() + closed.len() as u64);
        assert!(u64::from(sent_again) <= bound, "seed {seed}: {sent_again} of {bound}");
        gaps += closed.iter().filter(|(lane, _)| receiver.has_gap(*lane)).count();
        again += sent_again;
    }
    assert!(gaps > 0 && again > 0, "or this tests nothing: {gaps} gaps, {again} sent again");
}
