//! Tests of sessions that read back what they wrote, on a medium that may keep other bytes.

use std::collections::BTreeSet;

use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_core::{FaultCode, Unit};

use super::plan::{CHUNK, Plan, file, many, path, sparse};
use super::scenarios::{chunk, failure, left, play};
use crate::receiver::{Source, SyncGroup};
use crate::wire::message::{Finding, Outcome};

/// A world that reads back; single chunks and a bundle.
fn read_back(seed: u64) -> Plan {
    let items = [many(12, 4, 200), vec![file("a", 40 * CHUNK + 5), file("b", CHUNK), sparse("c", 6)]].concat();
    Plan { read_back: true, safe: seed.is_multiple_of(2), ..Plan::new(items).seed(seed) }
}

#[test]
fn everything_is_read_back_once_before_it_is_committed() {
    for seed in 0..20 {
        let world = play(Plan { dawdling: 0, ..read_back(seed) });
        assert!(world.told.values().all(|outcome| matches!(outcome, Outcome::Committed(_))));
        let (bytes, tally) =
            (world.plan.items.iter().map(|item| item.bytes.len() as u64).sum(), world.receiver.tally());
        assert_eq!((tally.read_back, tally.misread), (bytes, 0));
        assert_eq!(world.target.checks, (12 + 41 + 1 + 7, 0));
        assert!(world.sendings.values().all(|count| *count == 1));
        assert_eq!(world.waits, 0, "nothing waits for a clock at the end");
    }
}

#[test]
fn a_chunk_that_the_medium_gives_back_wrongly_is_sent_and_written_again() {
    for seed in 0..40 {
        let world = play(Plan { spoils: 100, group: SyncGroup::default(), ..read_back(seed) });
        let again: u32 = world.sendings.values().map(|count| count - 1).sum();
        let chunks = world.sendings.keys().filter(|unit| matches!(unit, Unit::Chunk { .. })).count();
        assert!(chunks == 49 && again > 0 && world.receiver.tally().misread > 0, "{again} of {chunks}");
        for outcome in world.told.values() {
            let failed = matches!(outcome, Outcome::Failed(fault) if fault.code != FaultCode::Mismatch);
            assert!(!failed, "{outcome:?}");
        }
    }
}

#[test]
fn a_small_file_that_the_medium_gives_back_wrongly_is_sent_again_with_none_that_stands() {
    let mut again = 0;
    for seed in 0..40 {
        let plan = Plan {
            spoils: 60,
            read_back: true,
            losses: 20 * (seed as u32 % 2),
            ..Plan::new(many(60, 9, 100)).seed(seed)
        };
        let world = play(plan);
        again += world.sendings.values().map(|count| count - 1).sum::<u32>();
        let tally = world.receiver.tally();
        assert!(tally.misread.is_multiple_of(100) && tally.read_back == tally.committed + tally.misread, "{tally:?}");
        for outcome in world.told.values() {
            let given_up = matches!(outcome, Outcome::Failed(fault) if fault.code == FaultCode::Mismatch);
            assert!(given_up || matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        }
        assert_eq!(world.sender.outstanding().0, 0, "every bundle has its verdict");
    }
    assert!(again > 40, "{again} sendings again");
}

#[test]
fn a_place_that_the_medium_never_keeps_fails_its_file_after_three_tries_and_no_other() {
    for seed in 0..10 {
        let mut plan = read_back(seed);
        plan.always_spoilt = [(path("a"), 3), (path("d0/f1"), 0)].into();
        let world = play(plan);
        for name in ["a", "d0/f1"] {
            assert_eq!(failure(&world, name), Some(FaultCode::Mismatch), "{name}");
            assert!(!world.target.names.contains_key(&path(name)));
        }
        let failed = world.told.values().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
        assert_eq!(failed, 2);
        let large = world.plan.items.iter().position(|item| item.entry.path == path("a")).expect("an entry") as u64;
        assert_eq!(world.sendings[&chunk(large, 3)], ATTEMPTS_MAX);
        assert!(world.findings.contains(&(chunk(large, 3), Finding::GivenUp)));
        assert_eq!(world.receiver.tally().misread, 3 * CHUNK as u64 + 3 * 200);
    }
}

#[test]
fn what_an_earlier_session_left_is_read_back_and_where_it_is_bad_its_file_fails() {
    let big = file("big", 20 * CHUNK + 5);
    let held: BTreeSet<u64> = (0..18).collect();
    for seed in 0..10 {
        let good = left(&big, CHUNK, held.clone(), Source::Same);
        let plan = Plan { left: vec![good], read_back: true, ..Plan::new(vec![big.clone()]).seed(seed) };
        let world = play(plan.clone());
        assert!(matches!(world.outcome("big"), Outcome::Committed(_)));
        assert_eq!((world.sendings.len(), world.target.checks), (3, (21, 0)));
        let world = play(Plan { always_spoilt: [(path("big"), 7)].into(), ..plan });
        assert_eq!(failure(&world, "big"), Some(FaultCode::Mismatch));
    }
}
