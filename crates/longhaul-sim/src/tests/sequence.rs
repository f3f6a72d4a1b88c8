//! Sessions whose destination writes chunks only in the order of the files.

use longhaul_core::FaultCode;
use longhaul_proto::receiver::WantOrder;
use longhaul_proto::wire::message::Outcome;

use super::{file, is_committed, many, sparse};
use crate::plan::{CHUNK, Item, Plan};
use crate::session::Session;
use crate::watched::ReceiverEnd;

/// Files of all kinds, in chunks and in bundles.
fn items() -> Vec<Item> {
    let large = [file("a", 40 * CHUNK + 1), sparse("b", 9), file("c", 3 * CHUNK), file("e", 0)];
    large.into_iter().chain(many(12, 5, 100)).chain([file("x", 7 * CHUNK), file("y", CHUNK + 1)]).collect()
}

fn plan(seed: u64, chunks_max: usize) -> Plan {
    let mut plan = Plan { safe: seed.is_multiple_of(2), lanes: 1 + seed as u32 % 4, ..Plan::one_session(items()) };
    plan.bundled_max = if seed.is_multiple_of(3) { 0 } else { 256 };
    plan.terms.order = WantOrder::Sequence { chunks_max };
    plan.scene.any_class_order = seed % 2 == 1;
    plan
}

#[test]
fn a_destination_that_keeps_early_chunks_gets_each_one_in_its_turn_however_few_it_keeps() {
    for chunks_max in [1, 2, 5, 50] {
        let mut most = 0;
        for seed in 0..25 {
            let mut plan = plan(seed, chunks_max);
            plan.rates.lanes.losses = if seed % 3 == 0 { 150 } else { 0 };
            let session = Session::new(plan, seed).run_well();
            assert!(session.outcomes().all(is_committed), "seed {seed}");
            let early = session.receiver().seen.rounds.early_most;
            assert!(early < chunks_max, "seed {seed}: {early} chunks were kept, of {chunks_max}");
            most = early.max(most);
        }
        assert!(most > 0 || chunks_max == 1, "nothing ever came early, of {chunks_max}");
    }
}

#[test]
fn a_file_that_fails_in_part_ends_the_session_and_nothing_behind_it_is_called_committed() {
    let mut ended = 0;
    for seed in 0..60 {
        let mut plan = plan(seed, 6);
        plan.rates.flips = 250;
        let session = Session::new(plan, seed).run();
        match &session.receiver().seen.end {
            // A file of which no chunk came through fails alone.
            Some(ReceiverEnd::Finished) => {
                let is_mismatch =
                    |outcome: &Outcome| matches!(outcome, Outcome::Failed(fault) if fault.code == FaultCode::Mismatch);
                assert!(session.outcomes().all(|outcome| is_committed(outcome) || is_mismatch(outcome)), "seed {seed}");
            }
            Some(ReceiverEnd::Aborted(fault)) => {
                assert_eq!(fault.code, FaultCode::Mismatch, "seed {seed}: {fault}");
                ended += 1;
            }
            None => panic!("seed {seed}: it came to no end"),
        }
    }
    assert!(ended > 5, "{ended} sessions ended early, or this tests nothing");
}
