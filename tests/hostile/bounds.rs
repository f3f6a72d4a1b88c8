//! Bounds of clients and roots: what may be stored, the space that stays free, lanes and memory.

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_proto::Message;
use rustix::fs::FileType;
use rustix::process::Signal;

use super::peer::{Client, file, page, push_to};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, files, hearing_hangups, tool};

const MIB: usize = 1 << 20;
/// Times that somebody asks who has a staged dataset. To ask takes some 50 ms.
const LOOKS_MAX: u32 = 200;

/// A client and a daemon's host with one root.
struct Scene {
    client: Host,
    server: Host,
}

impl Scene {
    fn new() -> Scene {
        let (client, server) = (Host::new(), Host::new());
        server.make_dir("data");
        Scene { client, server }
    }

    /// A configuration with these lines of the root and of the client.
    fn config(&self, root: &str, client: &str) -> DaemonConfig {
        let dir = self.server.path("data");
        let config = DaemonConfig::default().line("state = 'state'").root_line(root).root("data", &dir, ALL_RIGHTS);
        config.client("tester", self.client.key(), &[("data", ALL_RIGHTS)]).client_line(client)
    }

    fn start(&self, config: &DaemonConfig) -> Daemon {
        config.start_as(&self.server, |run| run.beneath(hearing_hangups()))
    }

    fn reload(&self, daemon: &Daemon, config: &DaemonConfig) {
        config.write(&self.server);
        let before = daemon.log().matches("the configuration is loaded").count();
        daemon.signal(Signal::HUP);
        daemon.wait_log_after(before, "the configuration is loaded");
    }

    fn push(&self, daemon: &Daemon, what: &str, to: &str) -> Run {
        let run = self.client.run(["push", "--json", "--retry-for", "0", "--peer-key", daemon.key()]);
        run.arg(what).arg(daemon.url(&format!("data/{to}")))
    }

    fn admin(&self, words: &[&str]) -> Outcome {
        self.server.run(["admin"]).args(words).args(["--socket", "state/admin.sock"]).succeed()
    }

    fn standing(&self) -> Vec<String> {
        let entries = fs::read_dir(self.server.path("data")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with(".longhaul")).collect();
        names.sort();
        names
    }
}

/// Fails unless a run ended for want of room, and said so with these words.
#[track_caller]
fn assert_no_space(outcome: &Outcome, words: &str) {
    assert_eq!(outcome.code, 7, "{outcome}");
    let fault = outcome.events_of("fault").pop().expect("a fault");
    assert_eq!(fault["code"], "no-space", "{outcome}");
    assert!(outcome.stderr.contains(words), "{words:?} is not said: {outcome}");
}

#[test]
fn a_root_takes_no_more_than_may_be_stored_in_it_and_remembers_that_over_a_restart() {
    let scene = Scene::new();
    files::make(scene.client.path("one"), 1, 2 * MIB);
    files::make(scene.client.path("two"), 2, 2 * MIB);
    let config = scene.config("stored = '3MiB'", "");
    let daemon = scene.start(&config);
    scene.push(&daemon, "one", "one").succeed();
    let refused = |daemon: &Daemon| {
        let outcome = scene.push(daemon, "two", "two").finish();
        assert_no_space(&outcome, "within the limits of its daemon");
        assert_eq!(scene.standing(), ["one"], "{outcome}");
    };
    refused(&daemon);
    let told = scene.admin(&["status", "--json"]);
    let stored = &told.events_of("admin_status")[0]["roots"][0]["stored"];
    assert_eq!((stored["bytes"].as_u64(), stored["bytes_max"].as_u64()), (Some(2 << 20), Some(3 << 20)), "{told}");
    assert_eq!((stored["files"].as_u64(), stored["files_max"].as_u64()), (Some(1), None), "{told}");
    daemon.signal(Signal::TERM);
    daemon.wait_gone();
    let daemon = scene.start(&config);
    refused(&daemon);
    // A file that takes the place of another counts in its place, once it has it.
    files::make(scene.client.path("small"), 3, 100);
    scene.push(&daemon, "small", "one").args(["--if-exists", "replace"]).succeed();
    scene.push(&daemon, "two", "two").succeed();
    // A reload holds for what is stored already.
    scene.reload(&daemon, &scene.config("stored = '1MiB'", ""));
    assert_no_space(&scene.push(&daemon, "small", "three").finish(), "2.0 MiB of the 1.0 MiB");
    scene.reload(&daemon, &scene.config("", ""));
    scene.push(&daemon, "small", "three").succeed();
}

#[test]
fn a_client_stores_no_more_files_than_it_may_and_what_came_before_stands() {
    let scene = Scene::new();
    for n in 0..9 {
        files::make(scene.client.path(format!("many/{n}")), n, 1000);
    }
    let daemon = scene.start(&scene.config("", "files = 5"));
    let outcome = scene.push(&daemon, "many", "").finish();
    assert_no_space(&outcome, "5 of the 5 files");
    let clients = scene.admin(&["clients"]);
    assert!(clients.stdout_text().contains("STORED") && clients.stdout_text().contains("5 of 5 files"), "{clients}");
    assert_eq!(fs::read_dir(scene.server.path("data/many")).unwrap().count(), 5, "{outcome}");
    scene.reload(&daemon, &scene.config("", "files = 9"));
    scene.push(&daemon, "many", "").succeed();
    tree::assert_same(&Tree::of(scene.client.path("many")), &Tree::of(scene.server.path("data/many")), "many");
}

#[test]
fn what_was_staged_of_a_dataset_and_did_not_appear_counts_no_longer_once_it_is_removed() {
    let scene = Scene::new();
    let config = scene.config("stored = '5MiB'", "");
    let daemon = scene.start(&config);
    files::make(scene.client.path("ds/one"), 1, 2 * MIB);
    files::make_special(scene.client.path("ds/pipe"), FileType::Fifo);
    let push = || scene.push(&daemon, "ds/", "").args(["--as-dataset", "run-7"]);
    push().fail(23);
    fs::remove_dir_all(scene.client.path("ds")).unwrap();
    files::make(scene.client.path("ds/two"), 2, 2 * MIB);
    push().succeed();
    assert_eq!(scene.standing(), ["run-7"]);
    // Together they were too much.
    files::make(scene.client.path("three"), 3, 2 * MIB);
    scene.push(&daemon, "three", "three").succeed();
}

/// Makes everything directly in the holder of a dataset, and in its shelf, look as if it had been
/// left alone for long.
fn age_holder(root: &Path) {
    let is_holder = |path: &PathBuf| path.to_string_lossy().contains("/.longhaul-dataset-");
    let paths = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let holder = paths(root).into_iter().find(is_holder).expect("a holder");
    let shelf = holder.join(".longhaul");
    let in_shelf = if shelf.exists() { paths(&shelf) } else { Vec::new() };
    for path in in_shelf.into_iter().chain(paths(&holder)).chain([holder]) {
        files::set_mtime(path, 1_000_000_000, 0);
    }
}

#[test]
fn a_dataset_that_was_left_is_listed_and_goes_with_its_count_when_nobody_came_back_for_it() {
    let scene = Scene::new();
    let config = scene.config("", "stored = '3MiB'").line("[limits]\nunfinished = 1");
    let daemon = scene.start(&config);
    files::make(scene.client.path("ds/one"), 1, 2 * MIB);
    files::make_special(scene.client.path("ds/pipe"), FileType::Fifo);
    let push = |daemon: &Daemon, name| scene.push(daemon, "ds/", "").args(["--as-dataset", name]);
    push(&daemon, "run-7").fail(23);
    let list = ["ls", "--partials", "--json", "--peer-key", daemon.key(), &daemon.url("data/")];
    // The daemon lets go of it when it has seen that the client is gone.
    let listed = (0..LOOKS_MAX).find_map(|_| {
        let listed = scene.client.run(list).succeed().events_of("entry");
        listed.iter().all(|entry| entry["in_use_by"].is_null()).then_some(listed)
    });
    let listed = listed.expect("the session ends");
    assert!(listed.len() == 1 && listed[0]["path"] == "run-7" && listed[0]["bytes_held"] == 2 * MIB, "{listed:?}");
    assert_eq!(listed[0]["kind"], "partial", "{listed:?}");
    assert_no_space(&push(&daemon, "run-8").finish(), "1 datasets of the same client are staged here");
    files::make(scene.client.path("two"), 2, 2 * MIB);
    assert_no_space(&scene.push(&daemon, "two", "two").finish(), "1.0 MiB are free");
    daemon.signal(Signal::TERM);
    daemon.wait_gone();
    age_holder(&scene.server.path("data"));
    let daemon = scene.start(&config);
    let line = daemon.wait_log("an abandoned dataset was removed");
    assert!(line.contains("path=run-7") && line.contains("files=1"), "{line}");
    scene.push(&daemon, "two", "two").succeed();
    let left = fs::read_dir(scene.server.path("data")).unwrap().count();
    assert_eq!((scene.standing(), left), (vec!["two".to_owned()], 1));
}

#[test]
fn each_name_of_one_file_counts_as_a_file() {
    let scene = Scene::new();
    files::make(scene.client.path("many/0"), 1, 1000);
    (1..9).for_each(|n| {
        fs::hard_link(scene.client.path("many/0"), scene.client.path(format!("many/{n}"))).unwrap();
    });
    let daemon = scene.start(&scene.config("", "files = 5"));
    let outcome = scene.push(&daemon, "many", "").args(["--preserve", "+hardlinks"]).finish();
    assert_no_space(&outcome, "5 of the 5 files");
    assert_eq!(fs::read_dir(scene.server.path("data/many")).unwrap().count(), 5, "{outcome}");
}

#[test]
fn a_length_that_no_disk_has_is_refused_by_the_reserve_before_anything_is_made() {
    let scene = Scene::new();
    let daemon = scene.start(&scene.config("reserve = '1%'", ""));
    for len in [i64::MAX as u64, 1 << 60] {
        let identity = longhaul_net::Identity::load(&scene.client.config("identity")).unwrap();
        let mut client = Client::dial(daemon.addr().parse().unwrap(), identity);
        client.agree(push_to("data", "huge"));
        client.lane();
        client.speech.say(&page(0, vec![file("large", len)]));
        let code = client.speech.hear_until(|message| match message {
            Message::Refuse(fault) => Some(fault.code.name()),
            Message::WantChunks(_) => Some("wanted"),
            _ => None,
        });
        assert_eq!(code, Some("no-space"), "{len}: {}", daemon.log());
        drop(client);
        daemon.wait_log("ended: push to data/huge");
        assert_eq!(scene.standing(), ["huge"], "nothing was begun");
    }
}

#[test]
fn space_that_is_reserved_is_not_taken() {
    let scene = Scene::new();
    files::make(scene.client.path("f"), 1, 100);
    files::make(scene.client.path("large"), 1, 2 * MIB);
    // No file system has so much left.
    let reserves = [("reserve = '99%'", ""), ("reserve = '1000000TiB'", ""), ("", "reserve = '1000000TiB'")];
    for (root, client) in reserves {
        let daemon = scene.start(&scene.config(root, client));
        assert_no_space(&scene.push(&daemon, "f", "f").finish(), "keeps in reserve");
        assert_no_space(&scene.push(&daemon, "large", "f").finish(), "within the limits of its daemon");
        assert_eq!(scene.standing(), [""; 0]);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_ends_in_order_when_others_bring_the_space_down_to_the_reserve_and_goes_on_later() {
    let scene = Scene::new();
    let data = scene.server.path("data");
    let mounted = Mounted(data.to_str().unwrap().to_owned());
    tool("mount", &["-t", "tmpfs", "-o", "size=96m", "tmpfs", &mounted.0]);
    files::make(scene.client.path("f"), 1, 24 * MIB);
    let daemon = scene.start(&scene.config("reserve = '48MiB'\nrate = '16Mbit/s'", ""));
    let running = scene.push(&daemon, "f", "f").args(["--chunk-size", "1MiB"]).start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|durable| *durable > 0));
    fs::write(data.join("ballast"), vec![1; 60 * MIB]).unwrap();
    let outcome = running.finish();
    assert_no_space(&outcome, "keeps in reserve");
    assert!(!data.join("f").exists(), "{outcome}");
    fs::remove_file(data.join("ballast")).unwrap();
    scene.reload(&daemon, &scene.config("reserve = '48MiB'", ""));
    let outcome = scene.push(&daemon, "f", "f").succeed();
    assert!(outcome.summary()["bytes_resumed"].as_u64().unwrap() > 0, "it goes on where it ended: {outcome}");
    assert_eq!(fs::read(data.join("f")).unwrap(), files::bytes(1, 24 * MIB));
    drop(daemon);
}

/// A mounted file system; unmounted when dropped, also by a panic.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &["-l", &self.0]);
    }
}

#[test]
fn a_session_has_no_more_lanes_than_its_root_and_its_client_may() {
    let scene = Scene::new();
    files::make(scene.client.path("f"), 1, 9 * MIB);
    for (root, client, most) in [("lanes = 2", "", 2), ("lanes = 3", "lanes = 1", 1)] {
        let daemon = scene.start(&scene.config(root, client));
        let outcome = scene.push(&daemon, "f", "f").args(["--lanes", "8", "--if-exists", "replace"]).succeed();
        let start = &outcome.events_of("start")[0];
        assert_eq!(start["lanes"].as_u64(), Some(most), "{outcome}");
        assert!(outcome.events_of("lanes").iter().all(|event| event["lanes"].as_u64() <= Some(most)), "{outcome}");
    }
}

#[test]
fn the_sessions_on_a_root_have_its_memory_and_no_more() {
    let scene = Scene::new();
    files::make(scene.client.path("f"), 1, 40 * MIB);
    let daemon = scene.start(&scene.config("memory = '16MiB'\nrate = '40Mbit/s'", ""));
    let running = scene.push(&daemon, "f", "f").start();
    running.wait_type("start");
    let refused = scene.push(&daemon, "f", "g").fail(5);
    assert!(refused.stderr.contains("root 'data' have all the memory that they may: 16.0 MiB"), "{refused}");
    scene.reload(&daemon, &scene.config("", ""));
    assert_eq!(running.finish().code, 0);
    scene.push(&daemon, "f", "g").succeed();
}

#[test]
fn bounds_that_cannot_hold_are_mistakes_of_the_configuration() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let check = |top: &str, line: &str| {
        let config = DaemonConfig::default().line(top).root_line(line).root("r", &dir, "read").write(&host);
        host.run(["serve", "--check-config", "--config"]).arg(config)
    };
    for (top, line, flaw) in [
        ("", "stored = '1GiB'", "state"),
        ("", "files = 7", "state"),
        ("state = 's'", "stored = 'much'", "much"),
        ("state = 's'", "files = -1", "files must be 0 or more"),
        ("", "reserve = '100%'", "1% to 99%"),
        ("", "reserve = '-1'", "-1"),
        ("", "lanes = 0", "lanes must be 1 to 128"),
        ("", "memory = '1MiB'", "memory must be 16.0 MiB"),
    ] {
        let outcome = check(top, line).fail(2);
        assert!(outcome.stderr.contains(flaw) && outcome.stderr.contains("serve.toml:"), "{line}: {outcome}");
    }
    check("state = 's'", "stored = '1TiB'\nfiles = 0\nreserve = '5%'\nlanes = 1\nmemory = '64MiB'").succeed();
    assert!(!Path::new(&host.path("s")).exists(), "a check makes nothing");
}

#[test]
fn counts_that_nobody_can_read_keep_the_daemon_from_starting() {
    let scene = Scene::new();
    let state = scene.server.make_dir("state");
    fs::write(state.join("stored"), "nonsense\n").unwrap();
    files::set_mode(state.join("stored"), 0o600);
    let config = scene.config("stored = '1GiB'", "").write(&scene.server);
    let outcome = scene.server.run(["serve", "--config"]).arg(config).finish();
    assert!(outcome.code != 0 && outcome.stderr.contains("line 1 of what is stored here"), "{outcome}");
}
