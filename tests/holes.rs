//! Paths that swallow large packets silently: a jumbo path with ordinary links in it, a tunnel
//! behind a filter. The user has to do nothing. Needs root.

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Outcome, files};
use crate::hostile::Direction;
use crate::wan::{Far, MIB, PROTECTIONS, moves_a_tree};

/// The events about the size of segments.
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
                let (_, outcome) = moves_a_tree(&path, direction, &["--protect", protect], 20 * MIB + 5);
                assert_eq!(told(&outcome), [segments], "{path} {direction:?} {protect}: {outcome}");
            }
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_path_that_comes_to_swallow_large_packets_is_gone_on_with() {
    const LEN: usize = 60 * MIB + 5;
    for direction in [Direction::Push, Direction::Pull] {
        let far = Far::new("rate=160Mbit/s,rtt=20ms");
        let (near, there) = (far.client.path("f"), far.root.join("f"));
        let url = far.daemon.url("data/f");
        let (verb, source, ends) = match direction {
            Direction::Push => ("push", &near, ["f", &url]),
            Direction::Pull => ("pull", &there, [&url, "f"]),
        };
        files::make(source, 1, LEN);
        let running = far.run(verb).args(["--chunk-size", "1MiB"]).args(ends).start();
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 4 << 20));
        far.change("hole=1500");
        let outcome = running.finish();
        let context = format!("{direction:?}: {outcome}\n{}", far.daemon.log());
        assert_eq!((outcome.code, told(&outcome)), (0, vec!["to segments of 1440 bytes".to_owned()]), "{context}");
        assert_eq!(outcome.events_of("redial").len(), 0, "the session goes on: {context}");
        tree::assert_same(&Tree::of(&near), &Tree::of(&there), &context);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn segments_stay_large_where_they_pass_though_some_are_lost() {
    for direction in [Direction::Push, Direction::Pull] {
        let (_, outcome) =
            moves_a_tree("rate=400Mbit/s,rtt=60ms,loss=1e-2", direction, &["--protect", "private"], 20 * MIB + 5);
        assert_eq!(told(&outcome), [""; 0], "{direction:?}: {outcome}");
    }
}
