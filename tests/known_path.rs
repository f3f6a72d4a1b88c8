//! Paths that earlier runs used: lanes begin with the number that did best there, and a file
//! that is of no use is never in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fixture::{Outcome, Site, files};

/// A run's file of known paths, and the content by which `site`'s daemon is known with 3 lanes.
fn known(site: &Site) -> (PathBuf, String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (peer, loopback) = (site.daemon.key(), "127.0.0.1");
    let entry = serde_json::json!({
        "peer": peer, "remote": loopback, "local": loopback, "interface": 1, "rtt_us": 1000,
        "lanes": { "is": 3, "at": now },
    });
    let path = site.client.path(".local/state/longhaul/paths.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    (path, serde_json::json!({ "v": 1, "paths": [entry] }).to_string())
}

/// The highest rate that is read from the file, bytes/s: a higher one is read as this.
const PATH_RATE_MAX: u64 = 12_500_000_000;

/// The pushes of which one at least fills loopback: about three of four do on a machine that has
/// nothing else to do, and more on a busy one.
const PUSHES_MAX: usize = 12;

/// The changes of lanes that are told of an earlier run.
fn told(outcome: &Outcome) -> Vec<String> {
    let said = |event: &serde_json::Value| {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("change"), text("reason"))
    };
    let all = outcome.events_of("lanes");
    all.iter().map(said).filter(|line| line.contains("an earlier run")).collect()
}

fn lanes(outcome: &Outcome) -> u64 {
    outcome.events_of("start")[0]["lanes"].as_u64().unwrap()
}

#[test]
fn a_run_over_a_known_path_begins_with_the_lanes_that_did_best_unless_the_user_gives_a_number() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 1000);
    let (path, content) = known(&site);
    let push = |options: &[&str], name: &str| {
        let to = site.daemon.url(&format!("data/{name}"));
        site.client.run(["push", "--json"]).args(options).args(["f", &to]).succeed()
    };
    let first = lanes(&push(&[], "first"));
    assert_ne!(first, 3);
    fs::write(&path, &content).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let outcome = push(&[], "known");
    assert_eq!(lanes(&outcome), 3);
    assert_eq!(told(&outcome), ["begun with 3: an earlier run over this path did best so"]);
    let outcome = push(&["--lanes", "2"], "given");
    assert_eq!((lanes(&outcome), told(&outcome)), (2, Vec::new()));
    let outcome = site.client.run(["pull", "--json"]).arg(site.daemon.url("data/known")).arg("back").succeed();
    assert_eq!(lanes(&outcome), first, "in a pull the daemon searches");
    // It is a cache: whatever is wrong with it, a run is as if there were none.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(lanes(&push(&[], "open-to-all")), first);
    fs::write(&path, &content[..content.len() / 2]).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(lanes(&push(&[], "damaged")), first);
}

#[test]
fn a_push_over_udp_leaves_the_rate_that_it_found_and_a_rate_that_lies_stops_nothing() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 64 << 20);
    let (path, _) = known(&site);
    let push = |name: &str| {
        let to = site.daemon.url(&format!("data/{name}"));
        site.client.run(["push", "--json", "--transport", "udp", "f", &to]).succeed();
        let text = fs::read_to_string(&path).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let mut left = push("first");
    let rate = |left: &serde_json::Value| left["paths"][0]["rate"]["is"]["bytes_per_second"].as_u64().unwrap();
    assert!(rate(&left) > 0, "{left}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    left["paths"][0]["rate"]["is"]["bytes_per_second"] = u64::MAX.into();
    fs::write(&path, left.to_string()).unwrap();
    // A push that was over before the path was full leaves what it knew.
    let another = (0..PUSHES_MAX).map(|n| rate(&push(&format!("again-{n}")))).find(|left| *left < PATH_RATE_MAX);
    assert!(another.is_some_and(|left| left > 0), "another took its place: {another:?}");
}
