//! Unfinished transfers: the users that see them, and the time when they are removed.

use std::fs;

use longhaul_sys::lock;
use serde_json::json;

use crate::fixture::left::Left;
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, files};
use crate::hostile::Wired;
use crate::hostile::proxy::{Gate, Kind, Way, hold_after};

const DAY: u64 = 86_400;

/// The principal of this process's user in a journal.
fn me() -> String {
    format!("uid:{}", rustix::process::geteuid().as_raw())
}

fn of_client(site: &Site) -> String {
    format!("key:{}", site.client.key())
}

fn left<'a>(tag: u8, principal: &'a str, path: &'a str) -> Left<'a> {
    Left { tag, principal, path, held: 3 }
}

#[test]
fn a_daemon_lists_what_is_left_of_ones_own_files_and_of_nobody_elses() {
    let site = Site::new();
    let mine = of_client(&site);
    let other = format!("key:{}", Host::new().key());
    left(1, &mine, "a/new").lay(&site.root());
    left(2, &mine, "b").lay(&site.root());
    left(3, &other, "a/others").lay(&site.root());
    left(4, &me(), "a/local").lay(&site.root());
    let lines = |location: &str| site.client.run(["ls", "--partials", location]).succeed().stdout_text().to_owned();
    let line = |name: &str, tag: u8| format!("{name}  3.0 MiB of 8.0 MiB since 2001-09-09T01:46:40Z by owner {tag}\n");
    assert_eq!(lines(&site.url("")), line("a/new", 1) + &line("b", 2));
    assert_eq!(lines(&site.url("a")), line("new", 1));
    // Nothing stands there, but something is on its way.
    assert_eq!(lines(&site.url("a/new")), line("new", 1));
    assert_eq!(lines(&site.url("b/")), line("b", 2));
    fs::create_dir(site.root().join("empty")).unwrap();
    assert_eq!(lines(&site.url("empty")), "");
    site.client.run(["ls", "--partials", &site.url("missing")]).fail(3);
    assert_eq!(lines(&site.daemon.url("")), line("data/a/new", 1) + &line("data/b", 2), "of all roots");
    site.client.run(["ls", "--partials", &site.daemon.url("elsewhere/")]).fail(4);
    let outcome = site.client.run(["ls", &site.url("")]).succeed();
    assert_eq!(outcome.stdout_text(), "a/\nempty/\n", "without being asked for, none is listed: {outcome}");
}

#[test]
fn scripts_read_all_that_is_known_of_a_partial() {
    // So old a partial would be collected.
    let site = Site::with(DaemonConfig::default().line("[limits]\npartials = 0"));
    let (mine, root) = (of_client(&site), site.root());
    let one = left(1, &mine, "b");
    one.lay(&root);
    files::set_mtime(one.journal(&root), 1_000_000_060, 0);
    let temporary = one.temporary(&root).file_name().unwrap().to_str().unwrap().to_owned();
    let outcome = site.client.run(["ls", "--partials", "--json", &site.url("")]).succeed();
    let expected = json!({
        "v": 1, "type": "entry", "path": "b", "kind": "partial", "bytes": 8 << 20, "mode": "0600",
        "mtime": "2001-09-09T01:47:40Z", "bytes_held": 3 << 20, "since": "2001-09-09T01:46:40Z",
        "owner": "owner 1", "principal": mine, "temporary": temporary, "in_use_by": null,
    });
    assert_eq!(outcome.events_of("entry"), [expected], "{outcome}");
    let long = site.client.run(["ls", "-l", "--partials", &site.url("")]).succeed();
    let text = format!(
        "       3145728 of        8388608 since 2001-09-09T01:46:40Z written 2001-09-09T01:47:40Z \
         by owner 1 {mine} b in {temporary}\n"
    );
    assert_eq!(long.stdout_text(), text);
}

#[test]
fn who_may_only_push_sees_its_partials_too() {
    let site = Site::granting(DaemonConfig::default(), "create", "read,create");
    left(1, &of_client(&site), "b").lay(&site.root());
    let outcome = site.client.run(["ls", "--partials", &site.url("")]).succeed();
    assert!(outcome.stdout_text().starts_with("b  "), "{outcome}");
}

#[test]
fn local_partials_are_found_from_the_destination_and_beneath_it() {
    let host = Host::new();
    left(1, &me(), "run/new").lay(&host.path("in"));
    left(2, "key:other", "run/served").lay(&host.path("in"));
    left(3, &me(), "top").lay(host.dir());
    let names = |location: &str| {
        let outcome = host.run(["ls", "--partials", location]).succeed();
        let name = |line: &str| line.split("  ").next().unwrap().to_owned();
        outcome.stdout_text().lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("in"), ["run/new"]);
    assert_eq!(names("in/run/"), ["new"]);
    assert_eq!(names("in/run/new"), ["new"]);
    assert_eq!(names("."), ["top"]);
    host.run(["ls", "--partials", "missing"]).fail(3);
    host.run(["ls", "--partials", "missing/too"]).fail(3);
}

#[test]
fn a_partial_that_another_process_writes_is_in_use_and_looking_takes_nothing() {
    let host = Host::new();
    let me = me();
    let one = left(1, &me, "f");
    one.lay(&host.path("in"));
    let before = fs::read(one.journal(&host.path("in"))).unwrap();
    let journal = fs::File::options().write(true).open(one.journal(&host.path("in"))).unwrap();
    assert!(lock::try_lock(&journal).unwrap());
    let outcome = host.run(["ls", "--partials", "in"]).succeed();
    assert!(outcome.stdout_text().ends_with("by owner 1, in use by owner 1 (process 77)\n"), "{outcome}");
    drop(journal);
    let outcome = host.run(["ls", "--partials", "in"]).succeed();
    assert!(outcome.stdout_text().ends_with("by owner 1\n"), "{outcome}");
    assert_eq!(fs::read(one.journal(&host.path("in"))).unwrap(), before);
}

#[test]
fn a_file_that_arrives_is_in_use_and_one_that_waits_beside_it_is_not() {
    let gate = Gate::default();
    let holding = gate.clone();
    let wired = Wired::new(move |kind, way| {
        (kind != Kind::Control && way == Way::ToDaemon).then(|| hold_after(2 << 20, holding.clone()))
    });
    let site = &wired.site;
    left(1, &of_client(site), "waiting").lay(&site.root());
    files::make(site.client.path("f"), 1, 24 << 20);
    let far = format!("lh://{}/data/f", wired.proxy.addr());
    let push = site.client.run(["push", "--lanes", "2", "--chunk-size", "1MiB", "f", &far]);
    let running = push.args(["--peer-key", site.daemon.key()]).start();
    gate.wait_reached();
    let outcome = site.client.run(["ls", "--partials", "--json", &site.url("")]).succeed();
    let users: Vec<_> =
        outcome.events_of("entry").iter().map(|entry| (entry["path"].clone(), entry["in_use_by"].clone())).collect();
    assert_eq!(users, [(json!("f"), json!("client 'tester'")), (json!("waiting"), json!(null))], "{outcome}");
    gate.open();
    running.fail(0);
    let outcome = site.client.run(["ls", "--partials", &site.url("")]).succeed();
    assert!(outcome.stdout_text().starts_with("waiting  ") && outcome.stdout_text().lines().count() == 1, "{outcome}");
}

#[test]
fn a_daemon_removes_what_nobody_came_back_for_and_nothing_else() {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let key = format!("key:{}", client.key());
    // In the order in which they are looked at: the log line of the last says that all were.
    let [held, young, old] = [left(1, &key, "d/held"), left(2, &key, "d/young"), left(3, &key, "d/old")];
    held.lay_aged(&root, 15 * DAY);
    young.lay_aged(&root, 13 * DAY);
    old.lay_aged(&root, 15 * DAY);
    let (standing, small) = (root.join("d/standing"), old.temporary(&root).with_extension("x"));
    fs::write(&standing, "whole").unwrap();
    fs::write(&small, "not ours").unwrap();
    let another = root.join("d/.longhaul-0303030303030303aaaaaaaaaaaaaaaa");
    fs::write(&another, "of a small file of that session").unwrap();
    let session = fs::File::options().write(true).open(held.journal(&root)).unwrap();
    assert!(lock::try_lock(&session).unwrap());
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let daemon = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).start(&server);
    let line = daemon.wait_log("an abandoned partial was removed");
    for word in ["owner 3", "0303030303030303", "files=1", "temporaries=2", "held=3145728"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert_eq!([&old.journal(&root), &old.temporary(&root), &another].map(|path| path.exists()), [false; 3]);
    for kept in [held, young] {
        assert!(kept.journal(&root).exists() && kept.temporary(&root).exists(), "{}", kept.path);
    }
    assert!(standing.exists() && small.exists());
    assert_eq!(daemon.log().matches("abandoned partial").count(), 1, "{}", daemon.log());
}

#[test]
fn the_config_says_after_how_long_a_partial_is_abandoned() {
    let (client, server) = (Host::new(), Host::new());
    let (offered, closed) = (server.make_dir("offered"), server.make_dir("closed"));
    let key = format!("key:{}", client.key());
    left(1, &key, "hours").lay_aged(&closed, 3 * 3600);
    left(1, &key, "hour").lay_aged(&offered, 3600);
    left(2, &key, "hours").lay_aged(&offered, 3 * 3600);
    // Roots are looked at by name: the one that no client may write to comes first.
    let config = DaemonConfig::default().line("limits = { partials = '2h' }");
    let config = config.root("a-closed", &closed, "read").root("b-offered", &offered, ALL_RIGHTS);
    let daemon = config.client("tester", client.key(), &[]).start(&server);
    daemon.wait_log("an abandoned partial was removed");
    assert_eq!(fs::read_dir(closed.join(".longhaul")).unwrap().count(), 1);
    let left_over: Vec<_> =
        fs::read_dir(offered.join(".longhaul")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left_over, [left(1, &key, "hour").journal(&offered)]);
}
