//! Campaigns of one link, one of which the mover's host cannot move: the others go on.
//!
//! Takes a daemon and keys; gives tests. Must not know the rules of the queue.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

use super::{counts, left};
use crate::fixture::{Site, files};

#[test]
fn a_campaign_whose_key_is_gone_from_the_movers_host_stops_no_other_campaign_of_its_link() {
    let site = Site::new();
    let host = &site.client;
    fs::copy(host.config("identity"), host.path("own-key")).unwrap();
    for (name, key) in [("gone", &["--identity", "own-key"][..]), ("well", &[])] {
        (0..6).for_each(|number| files::make(host.path(format!("{name}/{number}")), number, 100));
        let to = site.url(name);
        host.run(["job", "add", "--name", name, "--shard-files", "1", name, &to]).args(key).succeed();
        host.run(["job", "plan", name]).succeed();
    }
    fs::remove_file(host.path("own-key")).unwrap();
    let refused = host.run(["job", "run", "--drain", "gone"]).finish();
    assert!(refused.code != 0 && refused.stderr.contains("own-key"), "alone it is refused at once: {refused}");

    let running = host.run(["job", "run", "--json", "--drain"]).start();
    let done = RefCell::new(BTreeSet::new());
    running.wait_event(|event| {
        if event["type"] == "job_shard" && event["name"] == "well" && event["state"] == "done" {
            done.borrow_mut().insert(event["shard"].as_u64());
        }
        (done.borrow().len() == 6).then_some(())
    });
    running.signal(Signal::TERM);
    let outcome = running.finish();
    // Its link would have waited behind each of its faults, and each shard of the other one let it
    // go.
    let shards = outcome.events_of("job_shard");
    let given_back = shards.iter().filter(|event| event["name"] == "gone" && event["state"] == "planned").count();
    assert!(given_back <= 3, "{outcome}");
    assert_eq!((counts(&left(host, "well")), counts(&left(host, "gone"))), ([6, 0, 0], [0, 0, 6]), "{outcome}");
}
