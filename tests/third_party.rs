//! Copies from one daemon to another: whoever orders one sends no byte of it.

mod lists;

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, files, hearing_hangups};

const MIB: usize = 1 << 20;

/// A client, a daemon that has files, and one that fetches them.
struct Scene {
    client: Host,
    source: Host,
    target: Host,
    from: Daemon,
    to: Daemon,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), |from| dials(&format!("127.0.0.0/8:{}", port(from))))
    }

    /// A scene with these rights at the two daemons, lines of the first one's configuration, and
    /// those of the second one's.
    fn with(
        (read, write): (&str, &str),
        sending: DaemonConfig,
        fetching: impl FnOnce(&Daemon) -> DaemonConfig,
    ) -> Scene {
        let (client, source, target) = (Host::new(), Host::new(), Host::new());
        let (data, landing) = (source.make_dir("data"), target.make_dir("landing"));
        let sending = sending.root("data", &data, ALL_RIGHTS).client("tester", client.key(), &[("data", read)]);
        let from = sending.start_as(&source, |run| run.beneath(hearing_hangups()));
        let config = fetching(&from).root("landing", &landing, ALL_RIGHTS);
        let to = config.client("tester", client.key(), &[("landing", write)]).start(&target);
        for daemon in [&from, &to] {
            client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        Scene { client, source, target, from, to }
    }

    /// A scene in which the daemon that has files may dial, and the other one may not.
    fn turned() -> Scene {
        let (client, source, target) = (Host::new(), Host::new(), Host::new());
        let (data, landing) = (source.make_dir("data"), target.make_dir("landing"));
        let config = DaemonConfig::default().line("limits.sync_interval = '50ms'").line("state = 'state'");
        let config =
            config.root("landing", &landing, ALL_RIGHTS).client("tester", client.key(), &[("landing", "create")]);
        let to = config.start(&target);
        let config = dials(&format!("127.0.0.1:{}", port(&to))).root("data", &data, ALL_RIGHTS);
        let from = config.client("tester", client.key(), &[("data", "read")]).start(&source);
        for daemon in [&from, &to] {
            client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        Scene { client, source, target, from, to }
    }

    fn copy(&self, path: &str, dest: &str) -> Run {
        let (from, to) = (self.from.url(&format!("data/{path}")), self.to.url(&format!("landing/{dest}")));
        self.client.run(["copy", "--json", &from, &to])
    }

    /// A tree at the source: small and large files, directories, links.
    fn make_tree(&self) {
        let top = self.source.path("data/t");
        fs::create_dir_all(top.join("d/e")).unwrap();
        for n in 0..40 {
            files::make(top.join(format!("d/small-{n}")), n, 100 + n as usize * 37);
        }
        files::make(top.join("large"), 99, 9 * MIB + 7);
        files::link("large", top.join("link"));
        fs::create_dir(top.join("empty")).unwrap();
    }

    fn fetched(&self, path: &str) -> Tree {
        Tree::of(self.target.path("landing").join(path))
    }
}

fn dials(rule: &str) -> DaemonConfig {
    DaemonConfig::default().line(&format!("third_party.dial = ['{rule}']"))
}

/// Another daemon of the same host, on the port of this one, which is gone.
fn restarted(host: &Host, gone: &Daemon) -> Daemon {
    let path = host.path("serve.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("127.0.0.1:0", gone.addr())).unwrap();
    Daemon::start(host.run(["serve", "--json", "--config"]).arg(path))
}

/// Waits until the audit log of a daemon has the refusal of such a request of this key.
fn wait_refused(host: &Host, what: &str, key: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(host.path("audit.jsonl")).unwrap_or_default();
        let all: Vec<Value> = text.lines().flat_map(serde_json::from_str).collect();
        if all.iter().any(|record| record["deed"] == "refused" && record["what"] == what && record["key"] == key) {
            return;
        }
        assert!(Instant::now() < until, "{what}: {all:#?}");
        std::thread::yield_now();
    }
}

/// Has a daemon know no client any more.
fn take_clients_out(host: &Host, daemon: &Daemon) {
    let path = host.path("serve.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.split("[[client]]").next().unwrap()).unwrap();
    daemon.signal(Signal::HUP);
}

fn port(daemon: &Daemon) -> &str {
    daemon.addr().rsplit_once(':').unwrap().1
}

fn fault(outcome: &Outcome) -> (String, String) {
    let fault = &outcome.events_of("fault")[0];
    let text = |name: &str| fault[name].as_str().unwrap().to_owned();
    (text("message"), text("hint"))
}

#[test]
fn a_tree_goes_from_one_daemon_to_the_other_and_its_client_hears_of_each_file() {
    let scene = Scene::new();
    scene.make_tree();
    let copied = scene.copy("t", "").succeed();
    tree::assert_same(&Tree::of(scene.source.path("data/t")), &scene.fetched("t"), "the tree");
    assert_eq!(copied.events_of("start")[0]["direction"], "third-party");
    assert_eq!(copied.file("t/large")["status"], "committed");
    assert_eq!(copied.summary()["files_committed"], 42);
    // It is known by its own key at neither daemon.
    assert!(scene.from.wait_log("ended: pull from data/t by grant").contains("client=tester"));
    scene.to.wait_log("ended: copy from lh://");
    let again = scene.copy("t", "").succeed();
    assert_eq!(
        (again.summary()["files_committed"].as_u64(), again.summary()["files_skipped"].as_u64()),
        (Some(0), Some(42))
    );
}

#[test]
fn a_file_takes_the_name_of_a_destination_that_does_not_stand() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 5, 3 * MIB);
    scene.copy("f", "g").succeed();
    let got = fs::read(scene.target.path("landing/g")).unwrap();
    assert!(got == fs::read(scene.source.path("data/f")).unwrap());
}

#[test]
fn a_source_that_is_missing_fails_as_in_a_pull() {
    let scene = Scene::new();
    let copied = scene.copy("no/such", "").finish();
    let pulled = scene.client.run(["pull", &scene.from.url("data/no/such"), "here"]).finish();
    assert_eq!(copied.code, pulled.code, "{copied:?}");
    assert_ne!(copied.code, 0);
}

#[test]
fn nothing_is_dialled_by_default_nor_beyond_the_rules() {
    let none = |_: &Daemon| DaemonConfig::default();
    let scene = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), none);
    scene.make_tree();
    let refused = scene.copy("t", "").fail(4);
    let (message, hint) = fault(&refused);
    assert!(message.contains("may not dial 127.0.0.1:"), "{message}");
    assert!(hint.contains("'dial' of [third_party] in serve.toml"), "{hint}");
    let by_name = |from: &Daemon| dials(&format!("localhost:{}", port(from)));
    let scene = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), by_name);
    scene.make_tree();
    // A name counts at public addresses alone, whatever it resolves to.
    let at = format!("localhost:{}", port(&scene.from));
    scene.client.run(["key", "trust", &at, scene.from.key()]).succeed();
    let refused = scene.client.run(["copy", "--json", &format!("lh://{at}/data/t"), &scene.to.url("landing")]).fail(4);
    let (message, _) = fault(&refused);
    assert!(message.contains("no rule of 'dial'"), "{message}");
    assert!(tree::leftovers(scene.target.path("landing")).is_empty());
}

#[test]
fn rights_that_the_client_has_not_are_not_lent() {
    let rule = |from: &Daemon| dials(&format!("127.0.0.1:{}", port(from)));
    let scene = Scene::with(("create", ALL_RIGHTS), DaemonConfig::default(), rule);
    scene.make_tree();
    let (message, _) = fault(&scene.copy("t", "").fail(4));
    assert!(message.contains("no right 'read'"), "{message}");
    let scene = Scene::with(("read", "read"), DaemonConfig::default(), rule);
    scene.make_tree();
    let (message, _) = fault(&scene.copy("t", "").fail(4));
    assert!(message.contains("no right 'create'"), "{message}");
}

#[test]
fn a_copy_from_a_daemon_to_itself_is_refused_at_once() {
    let scene = Scene::new();
    files::make(scene.target.path("landing/f"), 5, MIB);
    let ends = ["landing/f", "landing/g"].map(|path| scene.to.url(path));
    let refused = scene.client.run(["copy", "--json", &ends[0], &ends[1]]).fail(7);
    let (message, _) = fault(&refused);
    assert!(message.contains("a copy has its two ends at two daemons"), "{message}");
    assert!(!scene.target.path("landing/g").exists());
}

#[test]
fn options_that_only_the_host_of_one_end_could_keep_are_refused() {
    let client = Host::new();
    for (options, what) in [
        (&["--path", "127.0.0.1"][..], "a path of this host's addresses"),
        (&["--preserve", "+owner", "--map-user", "1:2"], "a mapping of accounts"),
    ] {
        let refused = client.run(["copy", "--json", "lh://127.0.0.1:1/data/f", "lh://127.0.0.1:2/landing"]);
        let (message, _) = fault(&refused.args(options).fail(2));
        assert!(message.contains(&format!("{what} cannot be given")), "{message}");
    }
    // A claim goes with the names of a shard alone, and not with those of a user's list.
    let claim = format!("{0}:1:1:{0}", "0a".repeat(16));
    let claimed = ["--claim", &claim, "--files-from", "-"];
    let refused = client.run(["copy", "--json", "lh://127.0.0.1:1/data/t/", "lh://127.0.0.1:2/landing/"]);
    let (message, _) = fault(&refused.args(BY_SOURCE).args(claimed).input("f\n").fail(2));
    assert!(message.contains("a claim, where the source dials, cannot be given"), "{message}");
}

#[test]
fn partials_go_on_when_the_fetching_daemon_was_killed() {
    let mut scene = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), |from| {
        dials(&format!("127.0.0.0/8:{}", port(from))).line("limits.sync_interval = '50ms'")
    });
    files::make(scene.source.path("data/f"), 7, 64 * MIB);
    let running = scene.copy("f", "").args(["--rate", "40MB/s"]).start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes >= 8 * MIB as u64));
    scene.to.kill();
    running.fail(5);
    scene.to = restarted(&scene.target, &scene.to);
    let copied = scene.copy("f", "").succeed();
    assert!(copied.summary()["bytes_resumed"].as_u64().unwrap() >= 4 * MIB as u64, "{}", copied.summary());
    assert!(fs::read(scene.target.path("landing/f")).unwrap() == fs::read(scene.source.path("data/f")).unwrap());
}

#[test]
fn a_copy_goes_on_over_a_restart_of_the_sending_daemon_which_remembers_what_is_used_up() {
    let config = DaemonConfig::default().line("state = 'state'");
    let rule = |from: &Daemon| dials(&format!("127.0.0.1:{}", port(from))).line("limits.sync_interval = '50ms'");
    let mut scene = Scene::with(("read", ALL_RIGHTS), config, rule);
    files::make(scene.source.path("data/f"), 7, 48 * MIB);
    let running = scene.copy("f", "").args(["--rate", "20MB/s"]).start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes >= 8 * MIB as u64));
    scene.from.kill();
    scene.from = restarted(&scene.source, &scene.from);
    let copied = running.finish();
    assert_eq!(copied.code, 0, "{copied}");
    assert!(fs::read(scene.target.path("landing/f")).unwrap() == fs::read(scene.source.path("data/f")).unwrap());
    scene.from.wait_log("ended: pull from data/f by grant");
    let used = fs::read_to_string(scene.source.path("state/grants")).unwrap();
    let of_client = |line: &&str| line.starts_with(scene.client.key());
    assert_eq!(used.lines().filter(of_client).count(), 1, "{used}");
    // The next daemon keeps it, and each copy has a grant of its own.
    scene.from.kill();
    scene.from = restarted(&scene.source, &scene.from);
    scene.copy("f", "again").succeed();
    scene.from.wait_log("ended: pull from data/f by grant");
    let used = fs::read_to_string(scene.source.path("state/grants")).unwrap();
    assert_eq!(used.lines().filter(of_client).count(), 2, "{used}");
}

#[test]
fn an_interrupt_stops_the_copy_and_keeps_what_came() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 64 * MIB);
    let running = scene.copy("f", "").args(["--rate", "20MB/s"]).start();
    running.wait_type("progress");
    running.signal(Signal::INT);
    running.fail(130);
    scene.to.wait_log("ended: copy from lh://");
    scene.from.wait_log("ended: pull from data/f by grant");
    assert!(!scene.target.path("landing/f").exists());
}

#[test]
fn a_client_that_detaches_is_not_missed_and_learns_the_end_by_the_name_of_its_order() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 24 * MIB);
    let left = scene.copy("f", "").args(["--detach", "--rate", "20MB/s"]).succeed();
    let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
    let attach = |name: &str| scene.copy("f", "").args(["--attach", name]);
    // It is waited for, and told again to whoever asks later.
    for _ in 0..2 {
        let ended = attach(&order).succeed();
        assert_eq!(ended.events_of("start")[0]["direction"], "third-party");
        assert_eq!(ended.summary()["files_committed"], 1, "{ended}");
        assert_eq!(ended.summary()["bytes_committed"], 24 * MIB);
    }
    scene.to.wait_log(&format!("order {order} ended, its client had left: complete"));
    assert!(fs::read(scene.target.path("landing/f")).unwrap() == fs::read(scene.source.path("data/f")).unwrap());
    let unknown = attach(&"0f".repeat(16)).finish();
    let (message, hint) = fault(&unknown);
    assert!(message.contains("is known here") && hint.contains("give the copy again"), "{message} {hint}");
    assert_ne!(unknown.code, 0);
    attach("0f").fail(2);
    attach(&order).args(["--detach"]).fail(2);
    for flag in [&["--detach"][..], &["--attach", &order]] {
        scene.client.run(["copy", "a", "b"]).args(flag).fail(2);
    }
}

#[test]
fn a_client_that_left_hears_that_its_copy_failed() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 64 * MIB);
    let left = scene.copy("f", "").args(["--detach", "--rate", "10MB/s"]).succeed();
    let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
    let waiting = scene.copy("f", "").args(["--attach", &order]).start();
    waiting.wait_type("start");
    take_clients_out(&scene.source, &scene.from);
    waiting.fail(4);
    assert!(!scene.target.path("landing/f").exists());
}

#[test]
fn a_copy_that_was_left_is_stopped_by_its_name_and_by_its_own_key_alone() {
    let other = Host::new();
    let scene = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), |from| {
        let config = dials(&format!("127.0.0.0/8:{}", port(from))).line("limits.sync_interval = '50ms'");
        config.client("other", other.key(), &[("landing", ALL_RIGHTS)])
    });
    files::make(scene.source.path("data/f"), 7, 64 * MIB);
    let left = scene.copy("f", "").args(["--detach", "--rate", "10MB/s"]).succeed();
    let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
    let named = |name: &str| scene.copy("f", "").args(["--attach", name]);
    let waiting = named(&order).start();
    waiting.wait_type("start");
    scene.copy("f", "").args(["--stop"]).fail(2);
    let unknown = named(&"0f".repeat(16)).args(["--stop"]).finish();
    assert!(fault(&unknown).0.contains("is known here"), "{unknown}");
    other.run(["key", "trust", scene.to.addr(), scene.to.key()]).succeed();
    let ends = [scene.from.url("data/f"), scene.to.url("landing")];
    let foreign = other.run(["copy", "--json", &ends[0], &ends[1], "--attach", &order, "--stop"]).finish();
    assert!(fault(&foreign).0.contains("is known here"), "{foreign}");
    let until = Instant::now() + Duration::from_secs(60);
    let held = || {
        let listed = scene.client.run(["ls", "--partials", "--json", &scene.to.url("landing")]).finish();
        listed.events_of("entry").iter().filter_map(|entry| entry["bytes_held"].as_u64()).sum::<u64>()
    };
    while held() < 8 * MIB as u64 {
        assert!(Instant::now() < until, "nothing of it is held");
    }
    // Whoever waits for it hears of the same end, and so does whoever stops it once more.
    named(&order).args(["--stop"]).fail(130);
    waiting.fail(130);
    named(&order).args(["--stop"]).fail(130);
    scene.to.wait_log("is stopped by its client");
    scene.to.wait_log(&format!("order {order} ended, its client had left: interrupted"));
    assert!(!scene.target.path("landing/f").exists());
    let copied = scene.copy("f", "").succeed();
    assert!(copied.summary()["bytes_resumed"].as_u64().unwrap() > 0, "what came was kept: {copied}");
}

#[test]
fn all_files_of_a_copy_between_daemons_appear_together() {
    let scene = Scene::new();
    scene.make_tree();
    let copied = scene.copy("t/", "").args(["--as-dataset", "run-7"]).succeed();
    assert_eq!(copied.summary()["files_committed"], 42, "{copied}");
    let large = fs::read(scene.target.path("landing/run-7/large")).unwrap();
    assert!(large == fs::read(scene.source.path("data/t/large")).unwrap());
    let again = scene.copy("t/", "").args(["--as-dataset", "run-7"]).finish();
    assert_ne!(again.code, 0, "it stands: {again}");
}

#[test]
fn a_sync_between_daemons_says_what_was_new_changed_and_the_same() {
    let scene = Scene::new();
    scene.make_tree();
    let (from, to) = (scene.from.url("data/t/"), scene.to.url("landing/t"));
    let sync = || scene.client.run(["sync", "--json", &from, &to]);
    let counts = |told: &Outcome| {
        let sync = &told.events_of("sync")[0];
        ["new", "changed", "same"].map(|field| sync[field].as_u64().unwrap())
    };
    assert_eq!(counts(&sync().succeed()), [42, 0, 0]);
    files::make(scene.source.path("data/t/d/small-0"), 77, 120);
    files::make(scene.source.path("data/t/one-more"), 78, 120);
    assert_eq!(counts(&sync().succeed()), [1, 1, 41]);
    sync().args(["--detach"]).fail(2);
    fs::write(scene.client.path("names"), "d/small-1\nd/small-2\n").unwrap();
    for n in [1, 3] {
        files::make(scene.source.path(format!("data/t/d/small-{n}")), 79, 130);
    }
    assert_eq!(counts(&sync().args(["--files-from", "names"]).succeed()), [0, 1, 1], "small-3 is not named");
}

#[test]
fn each_refusal_of_an_order_and_of_a_grant_is_in_the_audit_log() {
    let audited = || DaemonConfig::default().watch("audit = 'audit.jsonl'");
    let scene = Scene::with(("create", ALL_RIGHTS), audited(), |from| {
        dials(&format!("127.0.0.1:{}", port(from))).watch("audit = 'audit.jsonl'")
    });
    files::make(scene.source.path("data/f"), 7, 100);
    scene.copy("f", "").fail(4);
    // The daemon that fetches is no client of the other one.
    wait_refused(&scene.source, "pull", scene.to.key());
    let nowhere = Scene::with(("read", ALL_RIGHTS), DaemonConfig::default(), |_| audited());
    nowhere.copy("f", "").fail(4);
    wait_refused(&nowhere.target, "order", nowhere.client.key());
}

#[test]
fn a_copy_ends_when_the_right_that_was_lent_is_taken_away() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 64 * MIB);
    let running = scene.copy("f", "").args(["--rate", "10MB/s"]).start();
    running.wait_type("progress");
    take_clients_out(&scene.source, &scene.from);
    running.fail(4);
    let refused = scene.copy("f", "").finish();
    assert_ne!(refused.code, 0);
}

const BY_SOURCE: [&str; 2] = ["--dialler", "source"];

#[test]
fn the_daemon_of_the_sources_dials_where_that_of_the_destination_may_not() {
    let scene = Scene::turned();
    scene.make_tree();
    scene.copy("t", "").fail(4);
    let copied = scene.copy("t", "").args(BY_SOURCE).succeed();
    tree::assert_same(&Tree::of(scene.source.path("data/t")), &scene.fetched("t"), "the tree");
    assert_eq!(copied.events_of("start")[0]["direction"], "third-party");
    assert_eq!(copied.file("t/large")["status"], "committed");
    assert_eq!(copied.summary()["files_committed"], 42);
    scene.from.wait_log("ended: copy from data/t to lh://");
    assert!(scene.to.wait_log("ended: push to landing/. by grant").contains("client=tester"));
    let again = scene.copy("t", "").args(BY_SOURCE).succeed();
    assert_eq!(again.summary()["files_skipped"], 42, "{again}");
    files::make(scene.source.path("data/f"), 5, 3 * MIB);
    scene.copy("f", "g").args(BY_SOURCE).succeed();
    let sent = fs::read(scene.target.path("landing/g")).unwrap();
    assert!(sent == fs::read(scene.source.path("data/f")).unwrap());
    let whole = scene.copy("t/", "").args(BY_SOURCE).args(["--as-dataset", "run-7"]).succeed();
    assert_eq!(whole.summary()["files_committed"], 42, "{whole}");
    assert!(scene.target.path("landing/run-7/large").exists());
    let missing = scene.copy("no/such", "").args(BY_SOURCE).finish();
    assert_ne!(missing.code, 0);
    let claim = format!("{0}:1:1:{0}", "0a".repeat(16));
    scene.copy("t", "").args(BY_SOURCE).args(["--claim", &claim]).fail(2);
    scene.client.run(["copy", "a", "b"]).args(BY_SOURCE).fail(2);
}

#[test]
fn a_copy_by_the_source_goes_on_over_a_restart_of_the_other_daemon_without_its_client() {
    let mut scene = Scene::turned();
    files::make(scene.source.path("data/f"), 7, 48 * MIB);
    let left = scene.copy("f", "").args(BY_SOURCE).args(["--detach", "--rate", "20MB/s"]).succeed();
    let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
    scene.to.kill();
    scene.to = restarted(&scene.target, &scene.to);
    let ended = scene.copy("f", "").args(BY_SOURCE).args(["--attach", &order]).succeed();
    assert_eq!(ended.summary()["files_committed"], 1, "{ended}");
    assert!(fs::read(scene.target.path("landing/f")).unwrap() == fs::read(scene.source.path("data/f")).unwrap());
}
