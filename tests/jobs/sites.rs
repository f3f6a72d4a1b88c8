//! `job site`: sites of hosts are named, bounded and listed.
//!
//! Takes hosts; gives tests. Must not know the rules of the queue.

use super::{counts, left, plant};
use crate::fixture::Host;

#[test]
fn hosts_are_given_a_site_and_movers_go_on_within_its_bounds() {
    let host = &Host::new();
    host.run(["job", "site"]).fail(3);
    host.run(["job", "site", "dtn1:7214", "--movers-in", "3"]).succeed();
    let set =
        host.run(["job", "site", "far", "--host", "a.example", "--host", "[::1]:80", "--movers-in", "2"]).succeed();
    assert_eq!(set.stdout_text(), "far: 2 movers in, 64 out; its hosts: a.example:7214, [::1]:80\n");
    host.run(["job", "site", "far", "--drop", "[::1]:80"]).succeed();
    host.run(["job", "site", "near", "--host", ".", "--movers-in", "1", "--movers-out", "1"]).succeed();
    let listed = host.run(["job", "site", "--json"]).succeed().events_of("job_site");
    let of = |name: &str| listed.iter().find(|site| site["name"] == name).unwrap();
    assert_eq!(of("far")["hosts"], serde_json::json!(["a.example:7214"]));
    assert_eq!((&of("near")["hosts"], &of("near")["movers_out"]), (&serde_json::json!(["this host"]), &1.into()));
    for (args, said) in [
        (["job", "site", "near", "--movers-in", "0"].as_slice(), "1 to 10000"),
        (&["job", "site", "near", "--host", "a b"], "HOST[:PORT]"),
        (&["job", "site", "near", "--drop", "a.example"], "no host of that site"),
        (&["job", "site", "a.example", "--host", "b.example"], "has no hosts of its own"),
        (&["job", "site", "dtn1", "--movers-in", "2"], "its port"),
    ] {
        let refused = host.run(args).fail(2);
        assert!(refused.stderr.contains(said), "{refused}");
    }
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "--shard-files", "20", "ds", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain", "--movers", "4"]).succeed();
    assert_eq!(counts(&left(host, "all")), [101, 0, 0]);
}

#[test]
fn a_user_whose_key_cannot_be_made_adds_unsigned_campaigns_to_a_queue_in_a_file() {
    let host = &Host::new();
    plant(&host.path("ds"));
    let home = host.path("no-home");
    std::os::unix::fs::symlink(host.path("nowhere/config"), &home).unwrap();
    let run = |args: &[&str]| {
        host.run(args).env("XDG_CONFIG_HOME", &home).env("LONGHAUL_QUEUE", host.path("queue.db")).succeed()
    };
    let added = run(&["job", "add", "--name", "all", "ds", "to"]);
    assert!(added.stderr.contains("nobody signs the campaign: "), "{added}");
    run(&["job", "plan", "all"]);
    run(&["job", "run", "--drain"]);
    assert!(host.path("to/ds").is_dir());
}
