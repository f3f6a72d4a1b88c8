//! The two ends of a UDP lane: properties over paths that lose, copy, delay and spoil, and planted
//! bugs that they find.

mod breaker;
mod control;
mod hands;
mod jumbo;
mod known;
mod line;
mod lossy;
mod mutants;
mod receiving;
mod roads;
mod sending;
mod shallow;
mod signals;
mod spare;
mod world;
mod worlds;

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use longhaul_proto::Timestamp;
use world::{Plan, World};

fn units() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![Just(0_u64), 1..3_000_u64, 3_000..120_000_u64, Just(1192 * 12), Just(1432 * 24)], 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_units_are_whole_whatever_the_path_does(
        units in units(),
        slots in 1_u32..12,
        faults in (0_u64..400, 0_u64..900, 0_u64..300, 0_u64..100),
        late in 0_u64..30_000,
        delay in 50_u64..50_000,
        hole in proptest::option::of((1232_u16..1472, 1_000_000_u64..1_300_000)),
        seed in any::<u64>(),
    ) {
        let (lost, statuses_lost, copied, spoiled) = faults;
        let slots = slots.min(units.len() as u32);
        let (late, delay) = (Duration::from_micros(late), Duration::from_micros(delay));
        let bytes: u64 = units.iter().sum();
        let hole = hole.map(|(size, from)| (size, Timestamp(from)));
        let plan = Plan { slots, lost, statuses_lost, copied, spoiled, late, delay, hole, ..Plan::sound(units, seed) };
        let mut world = World::new(plan, None);
        prop_assert_eq!(world.play(), Ok(()));
        prop_assert_eq!(world.sending.open_units(), 0);
        let counts = world.receiving.counts();
        prop_assert!(counts.bytes == bytes || (world.cuts > 0 && counts.bytes > bytes), "{} of {}", counts.bytes, bytes);
    }

    #[test]
    fn no_more_is_sent_again_than_was_lost(seed in any::<u64>(), lost in 1_u64..100, statuses_lost in 0_u64..300) {
        let plan = Plan { lost, statuses_lost, slots: 32, ..Plan::sound(vec![100_000; 80], seed) };
        let mut world = World::new(plan, None);
        prop_assert_eq!(world.play(), Ok(()));
        let counts = world.sending.counts();
        let (lost, repairs) = (world.lost, counts.resent - counts.copies);
        prop_assert!(repairs <= lost * 102 / 100, "{counts:?}, lost {lost}");
        // Copies are of the tail: at most two of each packet that the last slots lost.
        prop_assert!(counts.copies <= 2 * lost.min(32 * 84 / 5), "{counts:?}, lost {lost}");
    }

    #[test]
    fn nothing_is_sent_again_that_was_only_late(seed in any::<u64>(), late in 0_u64..2_400, copied in 0_u64..100) {
        let plan = Plan { late: Duration::from_micros(late), copied, ..Plan::sound(vec![100_000; 30], seed) };
        let mut world = World::new(plan, None);
        prop_assert_eq!(world.play(), Ok(()));
        prop_assert_eq!((world.sending.counts().resent, world.sending.counts().lost), (0, 0));
    }
}

#[test]
fn a_path_that_begins_to_swallow_large_datagrams_costs_one_cut() {
    for seed in 0..8 {
        let hole = Some((1300, Timestamp(1_200_000)));
        let mut world = World::new(Plan { hole, slots: 32, ..Plan::sound(vec![100_000; 100], seed) }, None);
        assert_eq!(world.play(), Ok(()));
        assert_eq!((world.cuts, world.sending.datagram_bytes()), (1, 1232));
    }
}

/// All slots are on the way when it begins, so that nothing but the description of the oldest unit
/// is sent for most of it.
#[test]
fn an_outage_is_not_taken_for_a_path_that_swallows_large_datagrams() {
    for (seed, slots) in (0..8).zip([1, 2, 4, 8].into_iter().cycle()) {
        let outage = Some((Timestamp(1_150_000), Timestamp(4_150_000)));
        let mut world = World::new(Plan { outage, slots, ..Plan::sound(vec![100_000; 60], seed) }, None);
        assert_eq!(world.play(), Ok(()));
        assert_eq!((world.cuts, world.sending.datagram_bytes()), (0, 1472), "seed {seed}");
    }
}

/// At 1.6 Gbit/s and 300 ms, with a loss of 10 %, there are more gaps than a report may hold, so
/// that larger pieces land and are not reported for long.
#[test]
fn many_gaps_are_not_taken_for_a_path_that_swallows_large_datagrams() {
    let (rate, delay) = (200_000_000, Duration::from_millis(150));
    let plan = Plan { rate, delay, lost: 100, slots: 100, ..Plan::sound(vec![600_000; 140], 7) };
    let mut world = World::new(plan, None);
    assert_eq!(world.play(), Ok(()));
    assert_eq!((world.cuts, world.sending.datagram_bytes()), (0, 1472));
}

/// At 300 ms and a loss of 1 %, whatever the seed: a second loss of the same packet costs the
/// session no round trip, as repairs of the tail are sent three times.
#[test]
fn the_tail_takes_two_round_trips() {
    for seed in 0..40 {
        let delay = Duration::from_millis(150);
        let plan = Plan { lost: 10, slots: 64, delay, ..Plan::sound(vec![100_000; 60], seed * 7919) };
        let mut world = World::new(plan, None);
        assert_eq!(world.play(), Ok(()));
        let (sent, there) = (world.all_sent.expect("it ended"), world.all_there.expect("all is there"));
        assert!(there.since(sent) <= 4 * delay, "seed {seed}: {:?}", there.since(sent));
    }
}
