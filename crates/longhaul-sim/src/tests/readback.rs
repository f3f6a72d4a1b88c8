//! Sessions that read back what they wrote, on a medium that may keep other bytes.

use std::collections::BTreeSet;

use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_core::{FaultCode, Unit};
use longhaul_proto::receiver::{Source, SyncGroup};
use longhaul_proto::wire::message::{Finding, Outcome};

use super::{bytes, chunk, file, is_committed, left, many, play, sparse, with_left};
use crate::plan::{CHUNK, Item, Plan};

/// A session that reads back; single chunks and bundles.
fn read_back(seed: u64) -> Plan {
    let items = [many(12, 4, 200), vec![file("a", 40 * CHUNK + 5), file("b", CHUNK), sparse("c", 6)]].concat();
    let mut plan = Plan { safe: seed.is_multiple_of(2), ..Plan::one_session(items) };
    plan.terms.read_back = true;
    plan
}

#[test]
fn everything_is_read_back_once_before_it_is_committed() {
    for seed in 0..20 {
        let session = play(read_back(seed), seed);
        assert!(session.outcomes().all(is_committed));
        let files = session.world.env.plan.items.iter().filter(|item| matches!(item, Item::File { .. }));
        let len: u64 = files.map(|item| bytes(item).len() as u64).sum();
        let tally = session.receiver().tally();
        assert_eq!((tally.read_back, tally.misread), (len, 0));
        assert_eq!(session.receiver().seen.read.back, 12 + 41 + 1 + 7);
        assert!(session.sendings().values().all(|count| *count == 1));
        assert_eq!(session.receiver().seen.waits, 0, "nothing waits for a clock at the end");
    }
}

#[test]
fn a_chunk_that_the_medium_gives_back_wrongly_is_sent_and_written_again() {
    for seed in 0..40 {
        let mut plan = read_back(seed);
        plan.rates.spoils = 100;
        plan.terms.group = SyncGroup::default();
        let session = play(plan, seed);
        let again = session.sent_again();
        let chunks = session.sendings().keys().filter(|unit| matches!(unit, Unit::Chunk { .. })).count();
        let misread = session.receiver().tally().misread;
        assert!(chunks == 49 && again > 0 && misread > 0, "{again} of {chunks}");
        for outcome in session.outcomes() {
            let failed = matches!(outcome, Outcome::Failed(fault) if fault.code != FaultCode::Mismatch);
            assert!(!failed, "{outcome:?}");
        }
    }
}

#[test]
fn a_small_file_that_the_medium_gives_back_wrongly_is_sent_again_with_none_that_stands() {
    let mut again = 0;
    for seed in 0..40 {
        let mut plan = Plan::one_session(many(60, 9, 100));
        plan.terms.read_back = true;
        (plan.rates.spoils, plan.rates.lanes.losses) = (60, 200 * (seed as u32 % 2));
        let session = play(plan, seed);
        again += session.sent_again();
        let tally = session.receiver().tally();
        assert!(tally.misread.is_multiple_of(100) && tally.read_back == tally.committed + tally.misread, "{tally:?}");
        for outcome in session.outcomes() {
            let given_up = matches!(outcome, Outcome::Failed(fault) if fault.code == FaultCode::Mismatch);
            assert!(given_up || is_committed(outcome), "{outcome:?}");
        }
        assert_eq!(session.sender().machine.outstanding().0, 0, "every bundle has its verdict");
    }
    assert!(again > 40, "{again} sendings again");
}

#[test]
fn a_place_that_the_medium_never_keeps_fails_its_file_after_three_tries_and_no_other() {
    for seed in 0..10 {
        let mut plan = read_back(seed);
        let content = |path: &str| {
            let item = plan.items.iter().find(|item| item.path() == path).expect("an entry");
            bytes(item).to_vec()
        };
        plan.scene.always_spoilt = vec![content("a")[3 * CHUNK..][..CHUNK].to_vec(), content("d0/f1")];
        let session = play(plan, seed);
        for path in ["a", "d0/f1"] {
            assert_eq!(session.failure(path), Some(FaultCode::Mismatch), "{path}");
            assert!(!session.stands(path));
        }
        assert_eq!(session.failed(), 2);
        let large = session.world.env.plan.items.iter().position(|item| item.path() == "a").expect("an entry") as u64;
        assert_eq!(session.sendings()[&chunk(large, 3)], ATTEMPTS_MAX);
        assert!(session.receiver().seen.findings.contains(&(chunk(large, 3), Finding::GivenUp)));
        assert_eq!(session.receiver().tally().misread, 3 * CHUNK as u64 + 3 * 200);
    }
}

#[test]
fn what_an_earlier_session_left_is_read_back_and_where_it_is_bad_its_file_fails() {
    let big = file("big", 20 * CHUNK + 5);
    let held: BTreeSet<u64> = (0..18).collect();
    for seed in 0..10 {
        let good = left(&big, CHUNK, held.clone(), Source::Same);
        let mut plan = with_left(Plan::one_session(vec![big.clone()]), vec![good]);
        plan.terms.read_back = true;
        let session = play(plan.clone(), seed);
        assert!(is_committed(session.outcome("big")));
        assert_eq!((session.sendings().len(), session.receiver().seen.read.back), (3, 21));
        assert_eq!(session.receiver().tally().misread, 0);
        plan.scene.always_spoilt = vec![bytes(&big)[7 * CHUNK..][..CHUNK].to_vec()];
        assert_eq!(play(plan, seed).failure("big"), Some(FaultCode::Mismatch));
    }
}
