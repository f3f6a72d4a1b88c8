//! Files are begun only while there is room for them at the destination.

use longhaul_core::FaultCode;
use longhaul_proto::receiver::Source;
use longhaul_proto::wire::message::Outcome;

use super::{file, is_committed, left, many, play, sparse, with_left};
use crate::plan::{CHUNK, Plan};
use crate::session::Session;

fn committed(session: &Session) -> usize {
    session.receiver().seen.outcomes.values().filter(|outcome| is_committed(outcome)).count()
}

fn failed(session: &Session) -> Vec<FaultCode> {
    let code = |outcome: &Outcome| match outcome {
        Outcome::Failed(fault) => Some(fault.code),
        _ => None,
    };
    session.receiver().seen.outcomes.values().filter_map(code).collect()
}

#[test]
fn as_many_files_as_fit_are_committed_and_the_first_that_does_not_fails_alone() {
    for seed in 0..60 {
        let items = (0..6).map(|n| file(&format!("f{n}"), 9 * CHUNK)).collect();
        let mut plan = Plan::one_session(items);
        // A write beyond the room would break a promise.
        plan.scene.room = Some(28 * CHUNK as u64);
        let session = Session::new(plan, seed).run();
        assert_eq!((committed(&session), failed(&session)), (3, vec![FaultCode::NoSpace]), "seed {seed}");
        assert_eq!(session.kept(), 0, "seed {seed}");
    }
}

#[test]
fn what_is_held_of_a_file_needs_no_room_again() {
    let item = file("big", 20 * CHUNK);
    let left = left(&item, CHUNK, (0..12).collect(), Source::Same);
    let plan = |room| {
        let mut plan = with_left(Plan::one_session(vec![item.clone()]), vec![left.clone()]);
        plan.scene.room = Some(room);
        plan
    };
    assert_eq!(committed(&play(plan(8 * CHUNK as u64), 1)), 1);
    let session = Session::new(plan(7 * CHUNK as u64), 1).run();
    assert_eq!(failed(&session), [FaultCode::NoSpace]);
    assert_eq!(session.receiver().held_unopened(), 12 * CHUNK as u64, "what was held is held still");
    assert_eq!(session.kept(), 12);
}

#[test]
fn holes_and_small_files_are_not_measured() {
    let mut plan = Plan::one_session([many(12, 4, 200), vec![sparse("holes", 30)]].concat());
    // With the small files, which are written whether there is room or not.
    plan.scene.room = Some(17 * CHUNK as u64 + 12 * 200);
    assert!(failed(&play(plan, 1)).is_empty());
}
