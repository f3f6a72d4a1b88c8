//! SIGHUP: a daemon reads its configuration again, and serves all of it or nothing of it.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::fixture::tree::Tree;
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, Running, files, hearing_hangups};

const MIB: usize = 1 << 20;

/// A daemon's host and the hosts of three clients, none of which is let in yet.
struct Scene {
    server: Host,
    clients: [Host; 3],
    root: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let server = Host::new();
        let root = server.make_dir("data");
        Scene { server, clients: [Host::new(), Host::new(), Host::new()], root }
    }

    /// A configuration with one root, which has this rate if any, and these clients.
    fn config(&self, rate: &str, clients: &[usize]) -> DaemonConfig {
        let limit = if rate.is_empty() { String::new() } else { format!("rate = '{rate}'") };
        let config = DaemonConfig::default().root_line(&limit).root("data", &self.root, ALL_RIGHTS);
        clients.iter().fold(config, |config, n| {
            config.client(&format!("client{n}"), self.clients[*n].key(), &[("data", ALL_RIGHTS)])
        })
    }

    /// A line that lets a reload add roots anywhere on the daemon's host.
    fn anywhere(&self) -> String {
        format!("[limits]\nreload_beneath = ['{}']", self.server.dir().display())
    }

    fn start(&self, config: &DaemonConfig) -> Daemon {
        config.start_as(&self.server, |run| run.beneath(hearing_hangups()))
    }

    /// Has the daemon read this configuration, and waits until it says how that went.
    fn reload(&self, daemon: &Daemon, config: &DaemonConfig) -> String {
        config.write(&self.server);
        hang_up(daemon)
    }

    fn run(&self, client: usize, daemon: &Daemon, words: &[&str]) -> Run {
        let words = words.iter().map(|word| word.replace("URL", &daemon.url("data")));
        self.clients[client].run(words).args(["--peer-key", daemon.key()])
    }

    /// A pull that has begun.
    fn pulling(&self, client: usize, daemon: &Daemon) -> Running {
        let running = self.run(client, daemon, &["pull", "--json", "URL/f", "got"]).start();
        running.wait_type("start");
        running
    }
}

/// Sends the signal, and returns the line that tells how the reload went.
fn hang_up(daemon: &Daemon) -> String {
    let before = daemon.log().lines().filter(|line| line.contains("SIGHUP: ")).count();
    daemon.signal(Signal::HUP);
    daemon.wait_log_after(before, "SIGHUP: ")
}

fn fault(outcome: &Outcome) -> (String, String) {
    let fault = &outcome.events_of("fault")[0];
    (fault["code"].as_str().unwrap().to_owned(), fault["message"].as_str().unwrap().to_owned())
}

#[test]
fn a_reload_lets_one_client_in_ends_the_session_of_one_that_is_gone_and_no_other() {
    let scene = Scene::new();
    let bytes = files::bytes(1, 4 * MIB);
    fs::write(scene.root.join("f"), &bytes).unwrap();
    // At this rate neither would be over within a minute.
    let daemon = scene.start(&scene.config("64KiB/s", &[0, 1]));
    let (stays, goes) = (scene.pulling(0, &daemon), scene.pulling(1, &daemon));
    scene.run(2, &daemon, &["ls", "URL/"]).fail(4);
    let said = scene.reload(&daemon, &scene.config("", &[0, 2]));
    for part in
        ["new clients: client2", "removed clients: client1", "changed roots: data", "ended as denied: 1 session"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let denied = goes.finish();
    assert_eq!(denied.code, 4, "{denied}");
    let (code, message) = fault(&denied);
    assert!(code == "denied" && message.contains("the daemon's administrator has changed"), "{denied}");
    daemon.wait_log("ended: pull from data/f: denied");
    stays.fail(0);
    assert!(fs::read(scene.clients[0].path("got")).unwrap() == bytes);
    scene.run(2, &daemon, &["pull", "URL/f", "got"]).succeed();
    let refused = scene.run(1, &daemon, &["pull", "--json", "URL/f", "got"]).fail(4);
    assert!(fault(&refused).1.contains("does not know the key"), "{refused}");
}

#[test]
fn a_configuration_that_cannot_be_served_changes_nothing() {
    let scene = Scene::new();
    files::make(scene.root.join("f"), 1, 1000);
    let good = scene.config("", &[0]);
    let daemon = scene.start(&good);
    let more = || scene.config("", &[0, 1]);
    let inner = scene.server.make_dir("data/inner");
    let other_listen = more().listen("127.0.0.2");
    files::make(scene.server.path("other/identity"), 1, 100);
    for (config, flaw) in [
        (more().line("surprise = 1"), "serve.toml:2:1: unknown key 'surprise'"),
        (more().line("[limits]\nsessions = 0"), "sessions must be 1 to 4096"),
        (more().root("missing", &scene.server.path("missing"), "read"), "root 'missing'"),
        (more().root("inner", &inner, "read"), "lies in root 'data'"),
        (more().client("greedy", scene.clients[2].key(), &[("nowhere", "read")]), "there is no root 'nowhere'"),
        (other_listen, "a running daemon listens where it began to (127.0.0.1:0), and 'listen' says 127.0.0.2:0"),
        (more().line("identity = 'other/identity'"), "a running daemon keeps its identity"),
    ] {
        let said = scene.reload(&daemon, &config);
        assert!(
            said.contains("is not loaded, and everything stays as it was") && said.contains(flaw),
            "{flaw}: {said}"
        );
        scene.run(0, &daemon, &["ls", "URL/f"]).succeed();
        scene.run(1, &daemon, &["ls", "URL/f"]).fail(4);
    }
    let said = scene.reload(&daemon, &good);
    assert!(said.contains("the configuration is loaded: nothing has changed"), "{said}");
    let said = scene.reload(&daemon, &more());
    assert!(said.contains("new clients: client1"), "{said}");
    scene.run(1, &daemon, &["ls", "URL/f"]).succeed();
}

#[test]
fn another_key_in_the_file_of_the_identity_is_no_reload() {
    let scene = Scene::new();
    let daemon = scene.start(&scene.config("", &[0]));
    let identity = scene.server.config("identity");
    fs::copy(scene.clients[0].config("identity"), &identity).unwrap();
    let said = scene.reload(&daemon, &scene.config("", &[0, 1]));
    for part in ["a running daemon keeps its key", "start the daemon again for that"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    scene.run(1, &daemon, &["ls", "URL/"]).fail(4);
}

#[test]
fn who_loses_the_right_that_a_session_needs_is_denied_and_goes_on_where_it_ended_once_it_has_it_again() {
    let scene = Scene::new();
    let bytes = files::bytes(3, 64 * MIB);
    fs::write(scene.clients[0].path("f"), &bytes).unwrap();
    let rights = |rate: &str, rights: &str| {
        let config = DaemonConfig::default().root_line(rate).root("data", &scene.root, ALL_RIGHTS);
        config.client("tester", scene.clients[0].key(), &[("data", rights)])
    };
    let daemon = scene.start(&rights("rate = '4MB/s'", ALL_RIGHTS));
    let push = ["push", "--json", "--chunk-size", "1MiB", "f", "URL/"];
    let running = scene.run(0, &daemon, &push).start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes >= 2 << 20));
    // It replaces nothing, but it may.
    let said = scene.reload(&daemon, &rights("", "read,create"));
    assert!(said.contains("ended as denied: 1 session (tester: push to data/.)"), "{said}");
    let denied = running.finish();
    assert_eq!((denied.code, fault(&denied).0.as_str()), (4, "denied"), "{denied}");
    assert!(!scene.root.join("f").exists());
    let outcome = scene.run(0, &daemon, &push).succeed();
    assert!(outcome.summary()["bytes_resumed"].as_u64().unwrap() >= 2 << 20, "{outcome}");
    assert!(fs::read(scene.root.join("f")).unwrap() == bytes);
}

#[test]
fn roots_come_go_and_move_and_a_session_goes_on_where_it_began() {
    let scene = Scene::new();
    let bytes = files::bytes(4, 4 * MIB);
    fs::write(scene.clients[0].path("f"), &bytes).unwrap();
    let (elsewhere, more) = (scene.server.make_dir("elsewhere"), scene.server.make_dir("more"));
    let key = scene.clients[0].key();
    let daemon = scene.start(&scene.config("64KiB/s", &[0]).line(&scene.anywhere()));
    let running = scene.run(0, &daemon, &["push", "--json", "f", "URL/"]).start();
    running.wait_type("start");
    let config = DaemonConfig::default()
        .line(&scene.anywhere())
        .root("data", &elsewhere, ALL_RIGHTS)
        .root("more", &more, ALL_RIGHTS);
    let said = scene.reload(&daemon, &config.client("client0", key, &[("data", ALL_RIGHTS), ("more", "create")]));
    for part in ["new roots: more", "changed roots: data", "changed clients: client0"] {
        assert!(said.contains(part) && !said.contains("denied"), "{part}: {said}");
    }
    running.fail(0);
    assert!(fs::read(scene.root.join("f")).unwrap() == bytes, "where it began");
    assert_eq!(Tree::of(&elsewhere).paths(), [""]);
    for to in [daemon.url("data/g"), daemon.url("more/g")] {
        scene.run(0, &daemon, &["push", "f", &to]).succeed();
    }
    assert!(elsewhere.join("g").exists() && more.join("g").exists());
    scene.reload(&daemon, &scene.config("", &[0]).line(&scene.anywhere()));
    scene.run(0, &daemon, &["push", "f", &daemon.url("more/h")]).fail(4);
    scene.run(0, &daemon, &["ls", "URL/f"]).succeed();
}

#[test]
fn a_root_whose_directory_was_replaced_is_served_again_after_a_reload() {
    let scene = Scene::new();
    let config = scene.config("", &[0]).line(&scene.anywhere());
    let daemon = scene.start(&config);
    fs::rename(&scene.root, scene.server.path("away")).unwrap();
    fs::create_dir(&scene.root).unwrap();
    files::make(scene.root.join("f"), 1, 1000);
    scene.run(0, &daemon, &["ls", "URL/f"]).fail(7);
    scene.reload(&daemon, &config);
    scene.run(0, &daemon, &["ls", "URL/f"]).succeed();
}

#[test]
fn a_root_that_a_confined_daemon_cannot_reach_takes_a_start_and_all_stays_as_it_was() {
    let scene = Scene::new();
    let granted = |rights| DaemonConfig::default().root("data", &scene.root, rights);
    let with = |config: DaemonConfig, rights| config.client("client0", scene.clients[0].key(), &[("data", rights)]);
    let daemon = scene.start(&with(granted("read"), "read"));
    if !daemon.wait_log("confinement: ").contains("landlock: active") {
        eprintln!("SKIPPED: landlock is not active");
        return;
    }
    let elsewhere = Host::new();
    let more = elsewhere.make_dir("more");
    for (config, root) in
        [(granted("read").root("more", &more, "read"), "root 'more'"), (granted("read,create"), "root 'data'")]
    {
        let said = scene.reload(&daemon, &with(config, "read").client("client1", scene.clients[1].key(), &[]));
        for part in
            ["everything stays as it was", root, "lies beyond the places", "start the daemon again", "reload_beneath"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        scene.run(0, &daemon, &["ls", "URL/"]).succeed();
        scene.run(1, &daemon, &["ls", "URL/"]).fail(4);
    }
    let inner = with(DaemonConfig::default().root("data", &scene.server.make_dir("data/inner"), "read"), "read");
    assert!(scene.reload(&daemon, &inner).contains("changed roots: data"), "what lies within reach is reached");
}

#[test]
fn a_client_and_a_root_have_as_many_sessions_as_they_may_and_a_reload_changes_that() {
    let scene = Scene::new();
    files::make(scene.root.join("f"), 1, 4 * MIB);
    // The last table is the second client's.
    let path = scene.config("64KiB/s", &[0, 1]).line("state = 'state'").write(&scene.server);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}sessions = 1\n")).unwrap();
    let serve = scene.server.run(["serve", "--json", "--config"]).arg(&path);
    let daemon = Daemon::start(serve.beneath(hearing_hangups()));
    let refused = |client: usize, limit: &str| {
        let pull = scene.run(client, &daemon, &["pull", "--json", "--retry-for", "0", "URL/f", "other"]);
        let outcome = pull.fail(5);
        let (code, message) = fault(&outcome);
        assert!(code == "busy" && message.contains(limit), "{limit}: {outcome}");
    };
    let one = scene.pulling(1, &daemon);
    refused(1, "this key has all of the sessions that its client may have here: sessions = 1");
    let two = scene.pulling(0, &daemon);
    let bounded = text.replace("rate = '64KiB/s'", "rate = '64KiB/s'\nsessions = 2");
    fs::write(&path, bounded).unwrap();
    hang_up(&daemon);
    for client in [0, 1] {
        refused(client, "root 'data' has as many sessions as it may: sessions = 2");
    }
    fs::write(&path, text.replace("rate = '64KiB/s'", "")).unwrap();
    hang_up(&daemon);
    scene.run(1, &daemon, &["pull", "URL/f", "other"]).succeed();
    one.fail(0);
    two.fail(0);
}
