//! The manners of a session: what it does to the queue of a path of its own, and who may have all of
//! one.

use super::*;

/// Bits a second that the path carries.
const LINE: f64 = 200e6;
const PATH: &str = "rate=200Mbit/s,rtt=20ms,queue=0.6bdp";

#[test]
#[ignore = "needs root: run by .ci/run"]
fn alone_a_session_fills_its_path_and_hardly_its_queue() {
    let far = Far::new(PATH);
    let run = far.client.run(["bench", "net", "--json", "--seconds", "8", "--direction", "push"]);
    let run = run.args(["--peer-key", far.daemon.key()]).arg(far.daemon.url(""));
    let outcome = run.beneath(far.wan.near().prefix()).succeed();
    let session = outcome.events_of("bench_net").remove(0);
    assert!(session["bytes_per_s"].as_f64().unwrap() * 8.0 > 0.8 * LINE, "{session}");
    let forward = far.forward();
    assert!(forward.dropped_queue * 50 < forward.packets, "{forward:?} {session}");
}

#[test]
fn all_of_a_path_is_for_those_whom_the_daemon_allows_it() {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let daemon = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).start(&server);
    files::make(client.path("f"), 1, 100);
    let push = |share: &str| {
        let run = client.run(["push", "--share", share, "--peer-key", daemon.key(), "f"]);
        run.arg(daemon.url("data/f")).finish()
    };
    let refused = push("all");
    assert_eq!(refused.code, 4, "{refused}");
    assert!(refused.stderr.contains("--share fair"), "{refused}");
    for share in ["fair", "polite"] {
        assert_eq!(push(share).code, 0, "{share}: {}", daemon.log());
    }
}
