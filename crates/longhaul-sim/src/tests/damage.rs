//! Sessions in which units arrive damaged, altered or forged, or a disk fails for good.

use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_core::{BundleId, FaultCode, LaneId, Unit};
use longhaul_proto::wire::message::{Finding, Outcome};

use super::{chunk, file, is_committed, many, play, sparse};
use crate::events::Event;
use crate::plan::{CHUNK, Plan};
use crate::session::Session;

#[test]
fn without_trouble_everything_is_committed_with_one_sending_each() {
    for seed in 0..20 {
        let items = [many(30, 7, 100), vec![file("a", 5 * CHUNK + 1), file("b", CHUNK), sparse("c", 6)]].concat();
        let session = play(Plan { safe: seed % 2 == 0, ..Plan::one_session(items) }, seed);
        assert!(session.outcomes().all(is_committed));
        assert!(session.sendings().values().all(|count| *count == 1));
        let tally = session.receiver().tally();
        assert_eq!((tally.committed, tally.files), (tally.durable, 33));
        assert_eq!(session.receiver().seen.waits, 0, "nothing waits for a clock at the end");
    }
}

#[test]
fn a_unit_that_arrives_damaged_is_sent_again_and_right_at_the_end() {
    for seed in 0..40 {
        let items = [many(12, 4, 200), vec![file("big", 20 * CHUNK + 5)]].concat();
        let mut plan = Plan { safe: seed % 2 == 0, ..Plan::one_session(items) };
        plan.rates.flips = 150;
        let session = play(plan, seed);
        assert_eq!(session.judged_wrong() as u32, session.sent_again());
        assert!(session.sendings().values().all(|count| *count <= ATTEMPTS_MAX));
    }
}

#[test]
fn a_chunk_that_is_always_damaged_fails_its_file_and_no_other() {
    for (seed, safe) in [(1, true), (2, false)] {
        let mut plan = Plan { safe, ..Plan::one_session(vec![file("bad", 8 * CHUNK), file("good", 8 * CHUNK)]) };
        plan.scene.always_flipped.insert(chunk(0, 3));
        let session = play(plan, seed);
        assert_eq!(session.failure("bad"), Some(FaultCode::Mismatch));
        assert!(matches!(session.outcome("good"), Outcome::Committed(Some(_))));
        assert_eq!(session.sendings()[&chunk(0, 3)], ATTEMPTS_MAX);
        assert!(session.receiver().seen.findings.contains(&(chunk(0, 3), Finding::GivenUp)));
        assert!(!session.stands("bad"));
    }
}

#[test]
fn a_bundle_that_is_always_damaged_fails_each_of_its_files_though_the_receiver_cannot_name_them() {
    for (seed, safe) in [(3, true), (4, false)] {
        let mut plan = Plan { safe, ..Plan::one_session(many(40, 40, 150)) };
        plan.scene.always_flipped.insert(Unit::Bundle(BundleId(0)));
        let session = play(plan, seed);
        let failed = session.failed();
        assert!((1..=5).contains(&failed), "{failed} files of 150 bytes in a bundle of 1 KiB");
        for name in ["d0/f0", "d0/f1"] {
            assert_eq!(session.failure(name), Some(FaultCode::Mismatch), "{name}");
        }
    }
}

#[test]
fn altered_headers_on_a_safe_lane_never_change_what_is_written() {
    let mut failed = 0;
    for seed in 0..60 {
        let items = [many(10, 5, 220), vec![file("x", 6 * CHUNK + 9), file("y", 6 * CHUNK + 9)]].concat();
        let mut plan = Plan::one_session(items);
        plan.rates.alters = 300;
        let session = play(plan, seed);
        failed += session.failed();
        let mismatch = |o: &Outcome| !matches!(o, Outcome::Failed(fault) if fault.code != FaultCode::Mismatch);
        assert!(session.outcomes().all(mismatch));
    }
    assert!(failed > 0, "three altered headers in a row give a file up");
}

#[test]
fn a_frame_put_into_a_safe_lane_by_another_costs_sendings_but_no_truth() {
    for seed in 0..40 {
        let items = vec![file("x", 12 * CHUNK), file("y", 3 * CHUNK)];
        let mut session = Session::new(Plan { lanes: 1, ..Plan::one_session(items) }, seed);
        let frame = loop {
            let on_the_way = session.world.env.clock.events().filter_map(|event| match event {
                Event::Landed(no, LaneId(0), frame) => Some((*no, frame.clone())),
                _ => None,
            });
            if let Some(second) = on_the_way.collect::<Vec<_>>().get(1) {
                break second.clone();
            }
            session.step();
        };
        session.world.env.clock.after(0, Event::Landed(frame.0, LaneId(0), frame.1));
        // Everything behind it is out of step: files fail, or the session ends for the frame that
        // no one announced. At each step, names show nothing but what was offered.
        session.run();
    }
}

#[test]
fn a_full_disk_ends_the_session_and_both_sides_hear_of_the_file_first() {
    for seed in 0..30 {
        let mut plan = Plan::one_session([many(20, 5, 200), vec![file("big", 30 * CHUNK)]].concat());
        plan.rates.disk_faults = 100;
        plan.scene.fault = Some(FaultCode::NoSpace);
        let session = Session::new(plan, seed).run();
        let codes = session.faults().map(|fault| fault.map(|fault| fault.code));
        assert_eq!(codes, [Some(FaultCode::NoSpace); 2], "seed {seed}");
        let full = |o: &Outcome| matches!(o, Outcome::Failed(fault) if fault.code == FaultCode::NoSpace);
        let named = session.receiver().seen.outcomes.values().any(full);
        assert!(named, "seed {seed}: the file is named before the session ends");
        assert!(session.outcomes().any(full), "seed {seed}: also to the sender");
    }
}

#[test]
fn a_fault_that_spares_files_ends_the_session_and_no_file_has_failed() {
    for (seed, code) in (0..30).flat_map(|seed| {
        [FaultCode::Exhausted, FaultCode::TargetFailed, FaultCode::Superseded].map(|code| (seed, code))
    }) {
        let mut plan = Plan::one_session([many(20, 5, 200), vec![file("big", 30 * CHUNK)]].concat());
        plan.rates.disk_faults = 100;
        plan.scene.fault = Some(code);
        let session = Session::new(plan, seed).run();
        let codes = session.faults().map(|fault| fault.map(|fault| fault.code));
        assert_eq!(codes, [Some(code); 2], "seed {seed}");
        let failed = |o: &Outcome| matches!(o, Outcome::Failed(_));
        let told = session.outcomes().any(failed);
        assert!(!told && !session.receiver().seen.outcomes.values().any(failed), "seed {seed}, {code:?}");
    }
}

/// Plays `plan` with a disk that fails often, in many orders.
fn play_failing(plan: &Plan) {
    let mut failed = 0;
    for seed in 0..120 {
        let mut plan = plan.clone();
        (plan.rates.disk_faults, plan.rates.read_faults) = (80, 80);
        let session = play(plan, seed);
        assert!(session.outcomes().all(|o| matches!(o, Outcome::Committed(_) | Outcome::Failed(_))));
        failed += session.failed();
    }
    assert!(failed > 60, "{failed} files failed in all");
}

#[test]
fn an_outcome_may_overtake_the_answer_that_wanted_the_file() {
    let mut plan = Plan::one_session((0..12).map(|n| file(&format!("f{n}"), CHUNK)).collect());
    plan.scene.any_class_order = true;
    play_failing(&plan);
}

#[test]
fn an_outcome_may_overtake_the_wants_of_its_chunks() {
    let files = ["a", "b", "c"].map(|name| file(name, 40 * CHUNK));
    play_failing(&Plan::one_session(files.to_vec()));
}

#[test]
fn a_source_may_fail_after_its_end_was_said() {
    let mut bad = 0;
    for seed in 0..200 {
        let items = vec![file("a", 6 * CHUNK), file("b", 6 * CHUNK)];
        let mut plan = Plan { safe: seed % 2 == 0, ..Plan::one_session(items) };
        (plan.rates.flips, plan.rates.source_faults) = (400, 100);
        let session = play(plan, seed);
        for (id, outcome) in &session.sender().outcomes {
            let is_bad = session.sender().units.bad.contains(id);
            assert!(!is_bad || matches!(outcome, Outcome::Failed(_)));
            bad += usize::from(is_bad);
        }
    }
    assert!(bad > 100, "{bad} sources were bad");
}
