//! Copies from one daemon to another: whoever orders one sends no byte of it.

use std::fs;

use rustix::process::Signal;

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
fn a_client_that_detaches_is_not_missed() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 24 * MIB);
    let left = scene.copy("f", "").args(["--detach", "--rate", "20MB/s"]).succeed();
    let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
    scene.to.wait_log(&format!("order {order} ended, its client had left: complete"));
    assert!(fs::read(scene.target.path("landing/f")).unwrap() == fs::read(scene.source.path("data/f")).unwrap());
    scene.client.run(["copy", "--detach", "a", "b"]).fail(2);
}

#[test]
fn a_copy_ends_when_the_right_that_was_lent_is_taken_away() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 64 * MIB);
    let running = scene.copy("f", "").args(["--rate", "10MB/s"]).start();
    running.wait_type("progress");
    let path = scene.source.path("serve.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.split("[[client]]").next().unwrap()).unwrap();
    scene.from.signal(Signal::HUP);
    running.fail(4);
    let refused = scene.copy("f", "").finish();
    assert_ne!(refused.code, 0);
}
