//! The audit log of a daemon: a record for each deed of a client, in a file that its owner alone
//! reads, and that can be moved away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, files, hearing_hangups};

fn site() -> Site {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let config = DaemonConfig::default().watch("audit = 'audit.jsonl'").root("data", &root, ALL_RIGHTS);
    let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    let daemon = config.start_as(&server, |run| run.beneath(hearing_hangups()));
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    Site { client, server, daemon }
}

/// The records so far; each line must be one.
fn records(site: &Site) -> Vec<Value> {
    records_in(site, "audit.jsonl")
}

fn records_in(site: &Site, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(site.server.path(name)).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    text[..whole].lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// Waits until a record fits, and returns it.
fn wait_for(site: &Site, fits: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let all = records(site);
        if let Some(found) = all.iter().find(|record| fits(record)) {
            return found.clone();
        }
        assert!(Instant::now() < until, "{all:#?}");
        std::thread::yield_now();
    }
}

fn is(record: &Value, deed: &str, path: &str) -> bool {
    record["deed"] == deed && record["path"] == path
}

fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[test]
fn what_a_client_pushes_replaces_pulls_and_lists_is_recorded_with_its_digest() {
    let site = site();
    let (small, large) = (files::bytes(1, 1000), files::bytes(2, 9 << 20));
    let from = site.client.make_dir("from");
    fs::write(from.join("small"), &small).unwrap();
    fs::write(from.join("large"), &large).unwrap();
    site.client.run(["push", "from/", &site.url("to")]).succeed();
    let committed = wait_for(&site, |record| is(record, "committed", "to/small"));
    assert_eq!((committed["bytes"].as_u64(), committed["b3"].as_str()), (Some(1000), Some(&*hex(&small))));
    assert_eq!((committed["root"].as_str(), committed["client"].as_str()), (Some("data"), Some("tester")));
    assert_eq!((committed["key"].as_str(), committed["code"].as_str()), (Some(site.client.key()), Some("ok")));
    assert!(committed["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{committed}");
    let large_one = wait_for(&site, |record| is(record, "committed", "to/large"));
    assert_eq!(large_one["b3"].as_str(), Some(&*hex(&large)));
    let ended = wait_for(&site, |record| record["deed"] == "session_ended");
    assert_eq!((ended["session"].as_str(), ended["count"].as_u64()), (committed["session"].as_str(), Some(2)));

    fs::write(from.join("small"), files::bytes(3, 999)).unwrap();
    site.client.run(["push", "from/small", &site.url("to/small"), "--if-exists", "replace"]).succeed();
    let replaced = wait_for(&site, |record| is(record, "replaced", "to/small"));
    assert_eq!(replaced["b3"].as_str(), Some(&*hex(&files::bytes(3, 999))));

    site.client.run(["pull", &site.url("to"), "got"]).succeed();
    for (path, bytes) in [("to/small", 999), ("to/large", 9 << 20)] {
        let opened = wait_for(&site, |record| is(record, "opened", path));
        let sent = wait_for(&site, |record| is(record, "sent", path));
        assert_eq!((opened["bytes"].as_u64(), opened["root"].as_str()), (Some(bytes), Some("data")), "{opened}");
        assert_eq!(opened["session"], sent["session"]);
        assert!(sent["b3"].as_str().is_some_and(|b3| b3.len() == 64), "{sent}");
    }
    site.client.run(["ls", &site.url("to")]).succeed();
    wait_for(&site, |record| is(record, "listed", "to") && record["code"] == "ok");
    assert_eq!(fs::metadata(site.server.path("audit.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_refused_request_a_stranger_and_a_path_of_odd_bytes_are_recorded_on_lines_of_their_own() {
    let config = DaemonConfig::default().watch("audit = 'audit.jsonl'");
    let site = Site::granting(config, "create", ALL_RIGHTS);
    site.client.run(["pull", &site.url("f"), "got"]).fail(4);
    let refused = wait_for(&site, |record| record["deed"] == "refused");
    assert_eq!((refused["code"].as_str(), refused["what"].as_str()), (Some("denied"), Some("pull")), "{refused}");
    assert_eq!((refused["root"].as_str(), refused["path"].as_str()), (Some("data"), Some("f")), "{refused}");

    let stranger = Host::new();
    stranger.run(["key", "trust", site.daemon.addr(), site.daemon.key()]).succeed();
    stranger.run(["ls", &site.daemon.url("data/")]).fail(4);
    let unknown = wait_for(&site, |record| record["key"] == stranger.key());
    assert!(unknown["client"].is_null() && unknown["code"] == "denied", "{unknown}");

    let odd = "a\n{\"deed\":\"sent\"}\u{1b}[2J\"\u{202e}";
    fs::write(site.client.path(odd), "x").unwrap();
    site.client.run(["push", &format!("./{odd}"), &site.url("")]).succeed();
    let committed = wait_for(&site, |record| record["deed"] == "committed");
    let path = committed["path"].as_str().unwrap();
    assert!(path.starts_with("a\\x0a{") && path.contains("\\x1b[2J\""), "{path}");
    assert!(records(&site).iter().all(|record| record["deed"] != "sent"), "no line was forged");
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew_at_a_hangup() {
    let site = site();
    fs::write(site.client.path("f"), "x").unwrap();
    site.client.run(["push", "f", &site.url("one")]).succeed();
    wait_for(&site, |record| record["deed"] == "session_ended");
    fs::rename(site.server.path("audit.jsonl"), site.server.path("audit.jsonl.1")).unwrap();
    site.daemon.signal(Signal::HUP);
    site.daemon.wait_log("the configuration is loaded");
    site.client.run(["push", "f", &site.url("two")]).succeed();
    wait_for(&site, |record| is(record, "committed", "two"));
    let before = records_in(&site, "audit.jsonl.1");
    assert!(before.iter().any(|record| is(record, "committed", "one")), "{before:#?}");
}

#[test]
fn where_everything_must_be_recorded_nothing_is_done_while_it_cannot_be() {
    let host = Host::new();
    let root = host.make_dir("data");
    let config = DaemonConfig::default().watch("audit = '/dev/full'").watch("audit_required = true");
    let config = config.root("data", &root, ALL_RIGHTS).write(&host);
    // A device is no log; it would not be taken.
    let outcome = host.run(["serve", "--config"]).arg(config).fail(2);
    assert!(outcome.stderr.contains("it is no regular file"), "{outcome}");
    let config = DaemonConfig::default().watch("audit_required = true").root("data", &root, ALL_RIGHTS);
    let outcome = host.run(["serve", "--check-config", "--config"]).arg(config.write(&host)).fail(2);
    assert!(outcome.stderr.contains("audit_required needs"), "{outcome}");
}

#[test]
fn the_log_has_one_line_for_each_session_as_json_where_that_is_asked_for() {
    let site = Site::with(DaemonConfig::default().watch("log_format = 'json'"));
    fs::write(site.client.path("f"), files::bytes(1, 5000)).unwrap();
    site.client.run(["push", "f", &site.url("g")]).succeed();
    let line = site.daemon.wait_log("ended: push to data/g");
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!((told["level"].as_str(), told["result"].as_str()), (Some("INFO"), Some("complete")), "{told}");
    assert_eq!((told["client"].as_str(), told["key"].as_str()), (Some("tester"), Some(site.client.key())));
    assert_eq!((told["files"].as_u64(), told["failed"].as_u64()), (Some(1), Some(0)));
    assert_eq!((told["bytes"].as_u64(), told["digests"].as_u64()), (Some(5000), Some(1)));
    assert!(told["seconds"].as_f64().is_some() && told["limited_by"].is_string() && told["peer"].is_string(), "{told}");
    let all = site.daemon.log();
    let ours = all.lines().filter(|line| line.starts_with('{'));
    let ended: Vec<Value> = ours.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ended.iter().filter(|line| line["message"].as_str().unwrap().starts_with("ended:")).count(), 1);
}

#[test]
fn files_of_a_dataset_are_recorded_as_staged_and_the_dataset_when_it_has_appeared() {
    let site = site();
    let from = site.client.make_dir("ds");
    fs::write(from.join("f"), files::bytes(1, 1000)).unwrap();
    site.client.run(["push", "ds/", &site.url("in/"), "--as-dataset", "run-7"]).succeed();
    wait_for(&site, |record| is(record, "staged", "in/run-7/f"));
    let appeared = wait_for(&site, |record| is(record, "committed", "in/run-7"));
    let head = fs::read(site.root().join("in/run-7/.longhaul-manifest/head.lhm")).unwrap();
    assert_eq!(appeared["b3"], hex(&head));
    assert!(!records(&site).iter().any(|record| is(record, "committed", "in/run-7/f")));
}
