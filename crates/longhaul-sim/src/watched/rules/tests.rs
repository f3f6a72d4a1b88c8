//! Ends of sessions that the rules allow or forbid, with one payload that has no verdict.

use longhaul_core::{Attempt, DigestKind, FileOffset, Unit};
use longhaul_proto::wire::message::{Declared, Ending};

use super::*;
use crate::link::{Lane, Ready};
use crate::plan::Plan;

const LANE: LaneId = LaneId(3);

/// Rules under which one chunk arrived on a lane, with a trailer unless the lane is `safe`.
fn with_arrival(safe: bool) -> (Rules, Declared) {
    let plan = Plan::quiet(1);
    let unit = Unit::Chunk { file: FileId(1), index: ChunkIndex(0) };
    let ready = Ready {
        unit,
        attempt: Attempt::FIRST,
        payload: Some(vec![7; 9]),
        same: false,
        len: 9,
        kind: DigestKind::Root,
        start: FileOffset(0),
        chunk: plan.chunk_of(1),
    };
    let (frame, sent) = Lane::new(LANE, 0, &plan).send(&ready, safe);
    let mut rules = Rules::new(&plan.receiver_config(1));
    rules.landed(&Lane::new(LANE, 0, &plan).receive(&frame).expect("a piece").0);
    (rules, Declared { lane: LANE, seq: sent.seq, unit, attempt: sent.attempt, digest: sent.digest })
}

fn finish(mut rules: Rules) {
    rules.check(&ReceiverAction::Finished(Ending::default()), &mut Seen::default());
}

#[test]
#[should_panic(expected = "payload without a verdict")]
fn an_end_without_a_verdict_on_a_trailer_is_found() {
    finish(with_arrival(false).0);
}

#[test]
#[should_panic(expected = "payload without a verdict")]
fn an_end_without_a_verdict_on_a_declared_unit_is_found() {
    let (mut rules, declared) = with_arrival(true);
    rules.hears(&Message::Digests(vec![declared]));
    finish(rules);
}

#[test]
fn a_unit_that_nobody_declared_and_one_of_a_lost_lane_need_no_verdict() {
    finish(with_arrival(true).0);
    let (mut rules, _) = with_arrival(false);
    rules.lane_ended(LANE);
    finish(rules);
}
