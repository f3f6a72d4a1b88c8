//! Confinement of the daemon: it goes on as another user, in every thread; it reads and writes
//! nothing but its own places; what it lacks it says, and what it must not do is refused.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Site, files, hearing_hangups};

/// The fields of `/proc/PID/status` with these names, of every thread of a daemon.
fn threads(daemon: &Daemon, names: &[&str]) -> Vec<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    // A thread may end between the two looks.
    let status = |task: PathBuf| fs::read_to_string(task.join("status")).ok();
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let of_thread = |status: String| names.iter().map(|name| field(&status, name)).collect();
    let threads: Vec<_> = tasks.filter_map(|task| status(task.unwrap().path())).map(of_thread).collect();
    assert!(threads.len() > 2, "a daemon has threads");
    threads
}

/// Whether the daemon says that a layer is active. Says that a test has not run, if it is not.
fn is_active(daemon: &Daemon, layer: &str) -> bool {
    let line = daemon.wait_log("confinement: ");
    let is_active = line.contains(&format!("{layer}: active"));
    if !is_active {
        eprintln!("SKIPPED: {line}");
    }
    is_active
}

fn start(host: &Host, config: &Path) -> Daemon {
    Daemon::start(host.run(["serve", "--json", "--config"]).arg(config).beneath(hearing_hangups()))
}

/// Has a daemon read its config again, and returns the line that says how that went.
fn reload(daemon: &Daemon) -> String {
    let before = daemon.log().lines().filter(|line| line.contains("SIGHUP: ")).count();
    daemon.signal(Signal::HUP);
    daemon.wait_log_after(before, "SIGHUP: ")
}

#[test]
fn every_thread_has_the_filter_of_calls_and_no_way_to_more_powers() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 3 << 20);
    site.client.run(["push", "f", &site.url("")]).succeed();
    if is_active(&site.daemon, "seccomp") {
        for thread in threads(&site.daemon, &["Seccomp", "NoNewPrivs", "Name"]) {
            assert_eq!(thread[..2], ["2", "1"], "{thread:?}");
        }
    }
}

#[test]
fn a_daemon_reads_nothing_beyond_its_places_unless_that_is_off() {
    for (line, confined) in [("[limits]\nconfine = 'off'", false), ("[limits]\nconfine = 'auto'", true)] {
        let (host, elsewhere) = (Host::new(), Host::new());
        let config = DaemonConfig::default().line(line).root("data", &host.make_dir("data"), "read");
        let path = config.client("one", host.key(), &[("data", "read")]).write(&host);
        let daemon = start(&host, &path);
        if confined && !is_active(&daemon, "landlock") {
            continue;
        }
        let other = elsewhere.path("serve.toml");
        // Another file: the one that was read at the start may be read wherever it goes.
        fs::copy(&path, &other).unwrap();
        fs::remove_file(&path).unwrap();
        files::link(&other, &path);
        let said = reload(&daemon);
        let (loaded, refused) = (said.contains("is loaded"), said.contains("ermission denied"));
        assert_eq!((loaded, refused), (!confined, confined), "{said}");
        fs::rename(&other, &path).unwrap();
        assert!(reload(&daemon).contains("the configuration is loaded: nothing has changed"));
    }
}

#[test]
fn a_check_tells_what_is_active() {
    let host = Host::new();
    let root = host.make_dir("data");
    let check = |line: &str| {
        let path = DaemonConfig::default().line(line).root("data", &root, ALL_RIGHTS).write(&host);
        host.run(["serve", "--check-config", "--config"]).arg(path)
    };
    let outcome = check("[limits]\nconfine = 'auto'").succeed();
    assert!(outcome.stderr.contains("confinement: user: as it was started; landlock: "), "{outcome}");
    let outcome = check("[limits]\nconfine = 'off'").succeed();
    assert!(outcome.stderr.contains("landlock: off (confine = \"off\"); seccomp: off"), "{outcome}");
    for (line, flaw) in [
        ("[limits]\nconfine = 'on'", "serve.toml:3:11: "),
        ("[limits]\nreload_beneath = ['srv']", "reload_beneath takes absolute paths"),
        ("user = 'root'", "serve.toml:2:8: 'root' is root"),
        ("user = '0'", "is root"),
        ("user = 'no such user'", "there is no user 'no such user' on this host"),
    ] {
        let outcome = check(line).fail(2);
        assert!(outcome.stderr.contains(flaw), "{line}: {outcome}");
    }
}

#[test]
fn a_shelf_that_others_may_write_to_costs_what_is_cut_off_and_nothing_else() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 3 << 20);
    let shelf = site.root().join(".longhaul");
    fs::create_dir(&shelf).unwrap();
    files::set_mode(&shelf, 0o777);
    site.client.run(["push", "f", &site.url("")]).succeed();
    site.daemon.wait_log("'.longhaul' belongs to another user, or other users may write to it");
    assert_eq!(fs::read_dir(&shelf).unwrap().count(), 0);
    assert!(fs::read(site.root().join("f")).unwrap() == files::bytes(1, 3 << 20));
}

/// A host whose directories other users may enter.
fn open_host() -> Host {
    let host = Host::within(&std::env::temp_dir());
    files::set_mode(host.dir(), 0o755);
    host
}

/// Writes a config that all may read.
fn write(config: &DaemonConfig, host: &Host) -> PathBuf {
    let path = config.write(host);
    files::set_mode(&path, 0o644);
    path
}

fn give(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
}

/// The number of the user `nobody` and of its group.
const NOBODY: u32 = 65534;

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_daemon_with_a_user_has_nothing_of_root_in_any_thread_and_serves_and_reloads() {
    let (server, client) = (open_host(), Host::new());
    let root = server.make_dir("data");
    give(&root, NOBODY);
    let beneath = format!("[limits]\nreload_beneath = ['{}']", server.dir().display());
    let config = DaemonConfig::default().line("user = 'nobody'").line("state = 'state'").line(&beneath);
    let config = config.root("data", &root, ALL_RIGHTS);
    let daemon = start(&server, &write(&config, &server));
    daemon.wait_log("confinement: user: nobody, no capabilities; ");
    assert!(!daemon.log().contains("runs as root"), "{}", daemon.log());
    assert!(reload(&daemon).contains("nothing has changed"), "root's identity need not be read again");
    let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    write(&config, &server);
    let said = reload(&daemon);
    assert!(said.contains("new clients: tester"), "{said}");
    let run = |words: &[&str]| client.run(words).args(["--peer-key", daemon.key()]);
    files::make(client.path("d/large"), 1, 5 << 20);
    files::make(client.path("d/small"), 2, 100);
    run(&["push", "d", &daemon.url("data/")]).succeed();
    run(&["pull", &daemon.url("data/d"), "got/"]).succeed();
    assert!(fs::read(client.path("got/d/large")).unwrap() == files::bytes(1, 5 << 20));
    for name in ["d", "d/large", "d/small"] {
        let found = fs::metadata(root.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{name}");
    }
    let names = ["Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"];
    let (ids, none) = (vec![NOBODY.to_string(); 4].join(" "), "0000000000000000");
    for thread in threads(&daemon, &names) {
        assert_eq!(thread, [ids.as_str(), &ids, "65534", none, none, none, none, none, "1"], "{names:?}");
    }
    let state = fs::metadata(server.path("state")).unwrap();
    assert_eq!((state.uid(), state.mode() & 0o777), (NOBODY, 0o700));
    // Another root, which is not the user's.
    let closed = server.make_dir("closed");
    files::set_mode(&closed, 0o700);
    write(&config.clone().root("closed", &closed, "read"), &server);
    let said = reload(&daemon);
    assert!(said.contains("everything stays as it was: the user 'nobody' of the config cannot read"), "{said}");
    give(&closed, NOBODY);
    assert!(reload(&daemon).contains("new roots: closed"));
    write(&config.line("confine = 'off'"), &server);
    assert!(reload(&daemon).contains("a running daemon keeps its user and its confinement"));
    daemon.signal(Signal::TERM);
    daemon.wait_gone();
    assert!(!server.path("state/admin.sock").exists());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_user_that_lacks_something_is_told_before_anybody_connects() {
    let server = open_host();
    let root = server.make_dir("data");
    files::set_mode(&root, 0o755);
    let state = server.make_dir("state");
    files::set_mode(&state, 0o700);
    let config =
        |rights, state: &str| DaemonConfig::default().line("user = 'nobody'").line(state).root("data", &root, rights);
    let start = |path: &Path| server.run(["serve", "--config"]).arg(path).finish();
    for (rights, line, mode, lack) in [
        ("read", "", 0o600, "cannot read"),
        ("read,create", "", 0o644, "cannot write to"),
        ("read", "state = 'state'", 0o644, "cannot write to state (state)"),
    ] {
        let path = config(rights, line).write(&server);
        files::set_mode(&path, mode);
        for outcome in [start(&path), server.run(["serve", "--check-config", "--config"]).arg(&path).finish()] {
            assert!(outcome.code == 4 && outcome.stderr.contains("the user 'nobody' of the config"), "{outcome}");
            assert!(outcome.stderr.contains(lack) && outcome.stderr.contains("give it to that user"), "{outcome}");
        }
    }
    let path = write(&config("read", ""), &server);
    let checked = server.run(["serve", "--check-config", "--config"]).arg(path).succeed();
    assert!(checked.stderr.contains("confinement: user: nobody, no capabilities"), "{checked}");
}

/// Where every user may make names, a thing in the place of the shelf must not keep all others out.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn whatever_another_user_has_planted_in_a_root_keeps_nobody_out() {
    for planted in ["directory", "file", "link", "fifo"] {
        let site = Site::new();
        files::set_mode(site.root(), 0o1777);
        files::make(site.client.path("f"), 1, 3 << 20);
        let shelf = site.root().join(".longhaul");
        match planted {
            "directory" => files::make(shelf.join("ABABABABABABABAB.journal"), 1, 100),
            "file" => files::write(&shelf, "planted"),
            "link" => files::link(site.server.make_dir("outside"), &shelf),
            _ => files::make_special(&shelf, rustix::fs::FileType::Fifo),
        }
        std::os::unix::fs::lchown(&shelf, Some(12345), Some(12345)).unwrap();
        site.client.run(["push", "f", &site.url("")]).succeed();
        let said = site.daemon.wait_log("no journal can be written");
        assert!(said.contains("'.longhaul' belongs to another user"), "{planted}: {said}");
        assert!(fs::read(site.root().join("f")).unwrap() == files::bytes(1, 3 << 20), "{planted}");
    }
}
