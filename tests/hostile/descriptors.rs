//! Daemons that may open too few files: they say so when they start, and a session that runs out of
//! descriptors ends and continues later.

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, files, tree};

/// Files that are each sent in chunks, and are all open at a time.
const FILES: u64 = 120;

fn with_limit(config: &DaemonConfig, server: &Host, limit: u64) -> Daemon {
    config.start_as(server, |run| run.beneath(["prlimit".to_owned(), format!("--nofile={limit}:{limit}")]))
}

#[test]
fn a_daemon_with_too_few_descriptors_says_so_and_a_session_that_runs_out_ends_and_goes_on_later() {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let config =
        DaemonConfig::default().root("data", &root, ALL_RIGHTS).client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    for n in 0..FILES {
        files::make(client.path(format!("many/{n}")), n, 300 << 10);
    }
    let daemon = with_limit(&config, &server, 100);
    let warning = daemon.wait_log("too few open files");
    assert!(warning.contains("WARN") && warning.contains("limit=100") && warning.contains("need="), "{warning}");
    let push = |daemon: &Daemon| {
        let run = client.run(["push", "--json", "--retry-for", "0", "--peer-key", daemon.key(), "many"]);
        run.arg(daemon.url("data/")).finish()
    };
    let outcome = push(&daemon);
    assert_eq!(outcome.code, 5, "{outcome}");
    let fault = &outcome.events_of("fault")[0];
    assert_eq!(fault["code"], "exhausted", "{outcome}");
    assert!(fault["hint"].as_str().unwrap().contains("ulimit -n"), "{outcome}");
    let (_, _, failed) = outcome.counts();
    assert_eq!(failed, 0, "no list of files for what ails the host: {outcome}");
    drop(daemon);

    let daemon = config.start(&server);
    let outcome = push(&daemon);
    assert_eq!(outcome.code, 0, "{outcome}");
    tree::assert_same(&tree::Tree::of(client.path("many")), &tree::Tree::of(root.join("many")), &outcome);
}
