//! `job link` and `job set`: rules of links and campaigns are changed while shards are moved.
//!
//! Takes hosts; gives tests. Must not know the rules of the queue.

use rustix::process::Signal;
use serde_json::Value;

use super::{counts, left, plant};
use crate::fixture::{Host, files};

/// The rate that a link is given, bytes/s.
const SLOW: u64 = 1 << 20;

/// A campaign of several shards from `ds`.
fn planned(host: &Host, name: &str) {
    host.run(["job", "add", "--name", name, "--shard-files", "20", "ds", &format!("to-{name}")]).succeed();
    host.run(["job", "plan", name]).succeed();
}

/// The only link of a host, as `job link` tells it with these words.
fn link(host: &Host, words: &[&str]) -> Value {
    let mut told = host.run([&["job", "link", "--json"][..], words].concat()).succeed().events_of("job_link");
    assert_eq!(told.len(), 1, "{told:?}");
    told.remove(0)
}

#[test]
fn a_link_that_is_closed_or_drained_stands_still_until_it_is_opened() {
    let host = &Host::new();
    host.run(["job", "link"]).fail(3);
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "ds", "to"]).succeed();
    assert_eq!(host.run(["job", "link"]).succeed().stdout_text(), "");
    let refused = host.run(["job", "link", ".", ".", "--close"]).fail(3);
    assert!(refused.stderr.contains("no link from 'this host' to 'this host'"), "{refused}");
    assert!(refused.stderr.contains("the first 'longhaul job plan'"), "{refused}");
    host.run(["job", "plan", "all"]).succeed();
    for (option, state) in [("--close", "closed"), ("--drain", "draining")] {
        assert_eq!(link(host, &[".", ".", option])["state"], state);
        host.run(["job", "run", "--drain"]).fail(23);
        let figures = left(host, "all");
        assert_eq!((counts(&figures), &figures["links"][0]["state"]), ([0, 0, 101], &state.into()));
    }
    // Nobody but a user opens what a user has closed.
    link(host, &[".", ".", "--close"]);
    host.run(["job", "release", "all"]).succeed();
    assert_eq!(link(host, &[])["state"], "closed");
    assert_eq!(link(host, &[".", "this host", "--open"])["state"], "open");
    host.run(["job", "mover", "--drain"]).succeed();
    assert_eq!(counts(&left(host, "all")), [101, 0, 0]);
    let told = host.run(["job", "link"]).succeed();
    let line = "this host to this host: open, 0 of 8 movers at work, no limit, always open\n";
    assert!(told.stdout_text().ends_with(line), "{told}");
}

#[test]
fn a_mover_at_work_keeps_the_rate_of_its_link_and_hands_its_shard_back_when_the_link_is_closed_by_hours() {
    let host = &Host::new();
    files::make(host.path("ds/large"), 1, 64 << 20);
    host.run(["job", "add", "--name", "slow", "ds", "to"]).succeed();
    host.run(["job", "plan", "slow"]).succeed();
    let slow = link(host, &[".", ".", "--rate", "1MiB/s"]);
    assert_eq!(slow["limit_bytes_per_s"], SLOW);
    let number = slow["link"].to_string();
    let mover = host.run(["job", "run", "--json"]).start();
    let claimed = mover.wait_event(|event| (event["state"] == "claimed").then(|| event.clone()));
    assert_eq!((&claimed["limit_bytes_per_s"], &claimed["fence"]), (&SLOW.into(), &1.into()));
    let shut = link(host, &[&number, "--calendar", "in UTC: else closed"]);
    assert_eq!((&shut["waits"], &shut["now_bytes_per_s"]), (&"link-hours".into(), &0.into()));
    assert_eq!((&shut["movers_busy"], &shut["limit_bytes_per_s"]), (&1.into(), &SLOW.into()));

    // It hears of the hours with its next heartbeat. Without the rate, all would be there by then.
    let back = mover.wait_event(|event| (event["state"] == "planned").then(|| event.clone()));
    assert!(back["bytes_moved"].as_u64().unwrap() < 64 << 20, "{back}");
    let figures = left(host, "slow");
    assert_eq!((counts(&figures), &figures["links"][0]["waits"]), ([0, 0, 1], &"link-hours".into()));
    let told = host.run(["job", "left", "slow"]).succeed();
    assert!(told.stdout_text().contains("open (closed now by its calendar)"), "{told}");

    let free = link(host, &[&number, "--calendar", "none", "--rate", "none"]);
    assert_eq!((&free["waits"], &free["calendar"]), (&Value::Null, &"".into()));
    let is_second = |event: &Value| event["state"] == "claimed" && event["fence"] == 2;
    let again = mover.wait_event(|event| is_second(event).then(|| event.clone()));
    assert_eq!(again["limit_bytes_per_s"], Value::Null);
    mover.wait_event(|event| (event["state"] == "done").then_some(()));
    mover.signal(Signal::TERM);
    mover.fail(143);
    assert_eq!(counts(&left(host, "slow")), [1, 0, 0]);
}

#[test]
fn the_priority_that_is_set_says_which_campaign_is_claimed_next() {
    let host = &Host::new();
    plant(&host.path("ds"));
    planned(host, "first");
    planned(host, "second");
    let args = ["job", "set", "second", "--priority", "9", "--weight", "7", "--retry-rules", "changed=5", "--json"];
    let set = host.run(args).succeed().events_of("job_campaign").remove(0);
    let rules = &set["rules"];
    assert_eq!(
        (&rules["priority"], &rules["weight"], &rules["retry_rules"]),
        (&9.into(), &7.into(), &"changed=5".into())
    );
    assert!(set["owner"].is_string(), "its owner's signature holds as before: {set}");
    let hours = ["job", "set", "second", "--calendar", "in UTC: else 1 Gbit/s", "--deadline", "10d"];
    host.run(hours).succeed();
    let shown = host.run(["job", "set", "second"]).succeed();
    assert!(shown.stdout_text().contains("calendar   in UTC: else 1 Gbit/s\n"), "{shown}");
    let none = host.run(["job", "set", "second", "--calendar", "none", "--deadline", "none"]).succeed();
    assert!(none.stdout_text().contains("deadline   none\ncalendar   none\nretries    changed=5\n"), "{none}");

    let told = host.run(["job", "run", "--drain", "--json"]).succeed().events_of("job_shard");
    let claimed = told.iter().filter(|shard| shard["state"] == "claimed");
    let names: Vec<_> = claimed.map(|shard| shard["name"].as_str().unwrap()).collect();
    let of_second = names.iter().filter(|name| **name == "second").count();
    assert!(of_second > 1 && names.len() > of_second, "{names:?}");
    assert!(names[..of_second].iter().all(|name| *name == "second"), "{names:?}");

    let refused = host.run(["job", "set", "second", "--priority", "1"]).fail(2);
    assert!(refused.stderr.contains("is done"), "{refused}");
    let shown = host.run(["job", "set", "second"]).succeed();
    assert!(shown.stdout_text().contains("priority   9\n"), "{shown}");
}

#[test]
fn rules_that_cannot_be_are_refused_and_change_nothing() {
    let host = &Host::new();
    plant(&host.path("ds"));
    planned(host, "all");
    let before = (link(host, &[]), host.run(["job", "show", "all"]).succeed().stdout_text().to_owned());
    for (words, exit, said) in [
        (&["link", "99", "--close"][..], 3, "there is no link 99"),
        (&["link", ".", "node.example", "--close"], 3, "'node.example:7214'"),
        (&["link", "x", "--close"], 2, "FROM TO"),
        (&["link", "--close"], 2, "LINK|FROM"),
        (&["link", ".", ".", "--open", "--close"], 2, "cannot be used with"),
        (&["link", ".", ".", "--calendar", "nights 8 Gbit/s"], 2, "begins with its time zone"),
        (&["link", ".", ".", "--calendar", "in UTC: days open, sometimes closed"], 2, "'sometimes closed'"),
        (&["link", ".", ".", "--rate", "fast"], 2, "--rate"),
        (&["link", ".", ".", "--rate", "1B/s"], 2, "too little"),
        (&["link", ".", ".", "--movers", "0"], 2, "1 to 10000"),
        (&["set", "none", "--priority", "1"], 3, "'none'"),
        (&["set", "all", "--priority", "10"], 2, "0 to 9"),
        (&["set", "all", "--weight", "0"], 2, "1 to 1000"),
        (&["set", "all", "--deadline", "soon"], 2, "2026-12-24T18:00:00Z"),
        (&["set", "all", "--calendar", "in Nowhere/Else: else closed"], 2, "there is no time zone 'Nowhere/Else'"),
        (&["set", "all", "--retry-rules", "gone=1"], 2, "there is no fault 'gone'"),
        (&["set", "all", "--rate", "1Gbit/s"], 2, "its owner has signed"),
    ] {
        let refused = host.run([&["job"][..], words].concat()).fail(exit);
        assert!(refused.stderr.contains(said), "{refused}");
    }
    let after = (link(host, &[]), host.run(["job", "show", "all"]).succeed().stdout_text().to_owned());
    assert_eq!(before, after);
}
