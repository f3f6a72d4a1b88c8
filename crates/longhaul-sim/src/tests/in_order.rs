//! Sessions whose files have checksums that need all bytes in order: each file is read once more
//! before it is sealed.

use std::collections::BTreeSet;

use longhaul_core::FaultCode;
use longhaul_proto::receiver::{Source, SyncGroup};

use super::{bytes, file, is_committed, left, many, play, sparse, with_left};
use crate::plan::{CHUNK, Plan};

/// A session with files in bundles and in chunks.
fn in_order(seed: u64) -> Plan {
    let items = [many(12, 4, 200), vec![file("a", 40 * CHUNK + 5), file("b", CHUNK), sparse("c", 6)]].concat();
    let mut plan = Plan { safe: seed.is_multiple_of(2), ..Plan::one_session(items) };
    plan.terms.in_order = true;
    plan.terms.read_back = seed % 3 == 2;
    plan
}

#[test]
fn every_file_of_chunks_is_read_once_in_order_and_those_of_bundles_are_not() {
    for seed in 0..20 {
        let plan = Plan { terms: crate::plan::Terms { read_back: false, ..in_order(seed).terms }, ..in_order(seed) };
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        let chunks = 41 + 1 + 7;
        assert_eq!((session.receiver().seen.read.in_order, session.receiver().seen.read.back), (chunks, 0));
        let large = ["a", "b", "c"].map(|path| {
            let item = session.world.env.plan.items.iter().find(|item| item.path() == path).expect("an entry");
            bytes(item).len() as u64
        });
        let tally = session.receiver().tally();
        assert_eq!((tally.read_back, tally.misread), (large.iter().sum(), 0));
        assert_eq!(session.receiver().seen.waits, 0, "nothing waits for a clock at the end");
    }
}

#[test]
fn many_files_are_read_a_few_at_a_time_and_each_has_its_turn() {
    for seed in 0..20 {
        let files = (0..12).map(|at| file(&format!("f{at}"), (at + 1) * CHUNK)).collect();
        let mut plan = Plan::one_session(files);
        plan.terms.in_order = true;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        assert_eq!(session.receiver().seen.read.in_order, (1..=12).sum(), "each chunk once");
    }
}

#[test]
fn a_file_whose_chunks_a_sync_gives_up_is_read_again_when_they_have_come() {
    let (mut lost, mut read) = (0, 0);
    for seed in 0..40 {
        let mut plan = in_order(seed);
        plan.terms.group = SyncGroup { bytes: 4 * CHUNK as u64, ..SyncGroup::default() };
        plan.rates.hangs.chunks = 300;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        lost += session.world.env.seen.chunks_lost;
        read += session.receiver().seen.read.in_order;
    }
    assert!(lost > 400, "{lost} chunks were lost");
    assert!(read >= 40 * (41 + 1 + 7), "{read} chunks were read");
}

#[test]
fn what_an_earlier_session_left_is_read_with_the_rest_and_not_before() {
    let big = file("big", 20 * CHUNK + 5);
    let held: BTreeSet<u64> = (0..18).collect();
    for seed in 0..10 {
        let good = left(&big, CHUNK, held.clone(), Source::Same);
        let mut plan = with_left(Plan::one_session(vec![big.clone()]), vec![good]);
        plan.terms.in_order = true;
        let session = play(plan, seed);
        assert!(is_committed(session.outcome("big")));
        assert_eq!((session.receiver().seen.read.in_order, session.receiver().seen.read.back), (21, 0));
        assert_eq!(session.sendings().len(), 3);
    }
}

#[test]
fn a_file_that_cannot_be_read_fails_alone() {
    let mut failed = 0;
    for seed in 0..40 {
        let mut plan = in_order(seed);
        plan.rates.read_faults = 20;
        let session = play(plan, seed);
        for outcome in session.outcomes().filter(|outcome| !is_committed(outcome)) {
            use longhaul_proto::wire::message::Outcome;
            assert!(matches!(outcome, Outcome::Failed(fault) if fault.code == FaultCode::Io), "{outcome:?}");
            failed += 1;
        }
    }
    assert!(failed > 0, "no disk failed");
}
