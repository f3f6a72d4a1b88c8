//! Paths that swallow large packets and tell nobody: a jumbo path with ordinary links in it, a tunnel behind a filter. Nothing
//! is asked of the user. Needs root.

use crate::fixture::Outcome;
use crate::hostile::Direction;
use crate::wan::{MIB, PROTECTIONS, moves_a_tree};

/// What was said of the size of segments.
fn told(outcome: &Outcome) -> Vec<String> {
    let changes =
        outcome.events_of("lanes").into_iter().filter_map(|event| event["change"].as_str().map(str::to_owned));
    changes.filter(|change| change.starts_with("to segments of ")).collect()
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_tree_arrives_right_though_no_large_packet_does() {
    for (hole, segments) in [("1500", "to segments of 1440 bytes"), ("1300", "to segments of 1220 bytes")] {
        for direction in [Direction::Push, Direction::Pull] {
            for protect in PROTECTIONS {
                let path = format!("rate=400Mbit/s,rtt=20ms,hole={hole}");
                let (_, outcome) = moves_a_tree(&path, direction, protect, 20 * MIB + 5);
                assert_eq!(told(&outcome), [segments], "{path} {direction:?} {protect}: {outcome}");
            }
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn segments_stay_large_where_they_pass_though_some_are_lost() {
    for direction in [Direction::Push, Direction::Pull] {
        let (_, outcome) = moves_a_tree("rate=400Mbit/s,rtt=60ms,loss=1e-2", direction, "private", 20 * MIB + 5);
        assert_eq!(told(&outcome), [""; 0], "{direction:?}: {outcome}");
    }
}
