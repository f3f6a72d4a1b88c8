//! Exit codes: the result for a script that reads no messages.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, geteuid};

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, PROGRAM, Run, Site, Trip, files, hearing_hangups};

#[test]
fn what_is_written_wrongly_exits_with_2_and_moves_nothing() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let before = Tree::of(host.dir());
    let cases: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["copy"],
        &["copy", "f"],
        &["copy", "--no-such-option", "f", "g"],
        &["copy", "-a", "f", "g"],
        &["copy", "-c", "f", "g"],
        &["copy", "--checksum", "f", "g"],
        &["copy", "--lanes", "0", "f", "g"],
        &["copy", "--lanes", "129", "f", "g"],
        &["copy", "--chunk-size", "512KiB", "f", "g"],
        &["copy", "--chunk-size", "3MiB", "f", "g"],
        &["copy", "--chunk-size", "128MiB", "f", "g"],
        &["copy", "--chunk-size", "4MiB", "--memory", "15MiB", "f", "g"],
        &["copy", "--memory", "lots", "f", "g"],
        &["copy", "--protect", "public", "f", "g"],
        &["copy", "--engine", "steam", "f", "g"],
        &["copy", "--pin", "everywhere", "f", "g"],
        &["copy", "--pin", "", "f", "g"],
        &["copy", "--pin", "0-", "f", "g"],
        &["copy", "--pin", "3-1", "f", "g"],
        &["copy", "--pin", "1024", "f", "g"],
        &["copy", "--io", "psychic", "f", "g"],
        &["copy", "--if-exists", "perhaps", "f", "g"],
        &["copy", "--preserve", "hardlink", "f", "g"],
        &["copy", "--preserve", "colour", "f", "g"],
        &["copy", "--transport", "quic", "f", "g"],
        &["copy", "--transport", "sctp", "f", "lh://h/data/"],
        &["copy", "--transport", "udp", "f", "g"],
        &["push", "--transport", "udp", "--protect", "safe", "f", "lh://h/data/"],
        &["push", "--transport", "quic", "--protect", "safe", "f", "lh://h/data/"],
        &["copy", "--retry-for", "10", "f", "g"],
        &["copy", "--stall-timeout", "0s", "f", "g"],
        &["copy", "--rate", "1Gb/s", "f", "g"],
        &["copy", "--rate", "1kB/s", "f", "g"],
        &["copy", "--include", "[", "f", "g"],
        &["copy", "--files-from", "no-such-list", "f", "g"],
        &["copy", "--peer-key", "lhk1:short", "f", "g"],
        &["copy", "", "g"],
        &["copy", "f", ""],
        &["copy", "f", "lh://h/data/../etc"],
        &["copy", "f", "lh://h"],
        &["copy", "f", "lh://h:0/data/"],
        &["copy", "f", "lh://h:99999/data/"],
        &["copy", "f", "lh://user@h/data/"],
        &["copy", "f", "lh:///data/"],
        &["copy", "f", "lh://[::1/data/"],
        &["copy", "f", "http://h/data"],
        &["copy", "f", "host::path"],
        &["copy", "host::path", "g"],
        &["copy", "--detach", "f", "lh://b/data/y"],
        &["copy", "--dialler", "source", "f", "g"],
        &["copy", "--attach", "x", "lh://a/data/x", "lh://b/data/y"],
        &["copy", "f", "lh://a/data/x", "g"],
        &["copy", "lh://a/data/x", "lh://b/data/x", "g"],
        &["push", "lh://a/data/x", "g"],
        &["pull", "f", "g"],
        &["pull", "lh://a/data/x", "lh://a/data/y"],
        &["bench", "disk"],
        &["doctor"],
        &["serve", "--no-such-option"],
        &["key", "authorize", "lhk1:short", "--name", "n", "--root", "r=read"],
    ];
    for args in cases {
        let outcome = host.run(*args).fail(2);
        assert!(!outcome.stderr.is_empty(), "{outcome}");
        tree::assert_same(&before, &Tree::of(host.dir()), outcome);
    }
}

#[test]
fn what_another_tools_users_type_by_habit_is_explained_or_does_nothing() {
    let host = Host::new();
    files::make(host.path("d/f"), 1, 10);
    host.run(["copy", "-r", "d", "e"]).succeed();
    assert!(host.path("e/d/f").exists());
    for (option, instead) in [("-a", "--preserve"), ("-c", "--if-exists verify"), ("--checksum", "--if-exists verify")]
    {
        let outcome = host.run(["copy", option, "d", "g"]).fail(2);
        assert!(outcome.stderr.contains(instead), "{option}: {outcome}");
    }
}

#[test]
fn help_and_version_are_answers() {
    let host = Host::new();
    for args in [&["--help"][..], &["--version"], &["copy", "--help"], &["serve", "--help"], &["key", "--help"]] {
        let outcome = host.run(args).succeed();
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{outcome}");
    }
}

#[test]
fn a_missing_source_is_3_and_one_of_several_is_23() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("there"), 1, 10);
        for sources in [&["missing"][..], &["missing", "missing-too"], &["no/such/dir/"]] {
            let outcome = trip.run(&[], sources, "new/").fail(3);
            assert_eq!(outcome.counts(), (0, 0, sources.len() as u64), "{trip}: {outcome}");
            assert!(outcome.stderr.contains("No such file"), "{trip}: {outcome}");
        }
        let outcome = trip.run(&[], &["missing", "there"], "").fail(23);
        assert_eq!(outcome.counts(), (1, 0, 1), "{trip}: {outcome}");
        assert_eq!(Tree::of(trip.dest()).node("there").kind, Tree::of(trip.source()).node("there").kind, "{trip}");
    }
}

#[test]
fn a_destination_beneath_a_file_is_refused_and_the_file_stays() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 10);
        files::make(trip.dest().join("file"), 2, 10);
        let outcome = trip.run(&[], &["f"], "file/g").finish();
        assert_ne!(outcome.code, 0, "{trip}: {outcome}");
        assert_eq!(fs::read(trip.dest().join("file")).unwrap(), files::bytes(2, 10), "{trip}");
        let outcome = trip.run(&[], &["f"], "file/").finish();
        assert_ne!(outcome.code, 0, "{trip}: {outcome}");
        assert_eq!(fs::read(trip.dest().join("file")).unwrap(), files::bytes(2, 10), "{trip}");
    }
}

#[test]
fn a_daemon_that_is_away_is_5() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    // A port that was free a moment ago: no program accepts there.
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcome = host.run(["push", "--json", "f", &format!("lh://{addr}/data/")]).fail(5);
    assert_eq!(outcome.events_of("fault")[0]["retry"], true, "{outcome}");
    host.run(["pull", "--retry-for", "0", &format!("lh://{addr}/data/f"), "g"]).fail(5);
    host.run(["ls", &format!("lh://{addr}/")]).fail(5);
}

#[test]
fn unreadable_files_are_named_and_the_rest_arrives() {
    let host = Shared::new();
    for name in ["good", "bad", "bad-large", "dir/inside", "good-large"] {
        files::make(host.host.path("d").join(name), 1, if name.ends_with("large") { 2 << 20 } else { 100 });
    }
    host.give_away("d");
    for name in ["bad", "bad-large", "dir"] {
        files::set_mode(host.host.path("d").join(name), 0);
    }
    let outcome = host.run(["copy", "--json", "d", "new"]).fail(23);
    files::set_mode(host.host.path("d/dir"), 0o700);
    assert_eq!(outcome.counts(), (2, 0, 3), "{outcome}");
    for name in ["d/bad", "d/bad-large", "d/dir"] {
        assert_eq!(outcome.file(name)["status"], "failed", "{outcome}");
    }
    assert!(host.host.path("new/d/good").exists() && host.host.path("new/d/good-large").exists(), "{outcome}");
    assert!(!host.host.path("new/d/bad").exists() && !host.host.path("new/d/bad-large").exists(), "{outcome}");
    assert_eq!(tree::leftovers(host.host.path("new")), [""; 0], "{outcome}");
}

#[test]
fn a_file_that_check_cannot_look_at_is_unread_and_not_missing() {
    let host = Shared::new();
    files::make(host.host.path("d/closed/inside"), 1, 100);
    files::make(host.host.path("d/bad"), 1, 100);
    let digest = files::b3sum(host.host.path("d/bad"));
    fs::write(host.host.path("list"), format!("{digest}  bad\n{digest}  closed/inside\n{digest}  gone\n")).unwrap();
    host.give_away("d");
    for name in ["d/bad", "d/closed"] {
        files::set_mode(host.host.path(name), 0);
    }
    let outcome = host.run(["check", "--json", "list", "d"]).fail(23);
    files::set_mode(host.host.path("d/closed"), 0o700);
    let status = |path: &str| {
        let events = outcome.events_of("check");
        let event = events.iter().find(|event| event["path"] == path).unwrap_or_else(|| panic!("{path}: {outcome}"));
        event["status"].as_str().unwrap().to_owned()
    };
    assert_eq!([status("bad"), status("closed/inside"), status("gone")], ["unread", "unread", "missing"], "{outcome}");
}

#[test]
fn one_unreadable_file_is_4() {
    let host = Shared::new();
    files::make(host.host.path("f"), 1, 100);
    host.give_away("f");
    files::set_mode(host.host.path("f"), 0);
    host.run(["copy", "--json", "f", "g"]).fail(4);
    assert!(!host.host.path("g").exists());
}

#[test]
fn a_destination_that_may_not_be_written_is_4() {
    let host = Shared::new();
    files::make(host.host.path("f"), 1, 100);
    host.give_away("f");
    fs::create_dir(host.host.path("closed")).unwrap();
    host.give_away("closed");
    files::set_mode(host.host.path("closed"), 0o500);
    let outcome = host.run(["copy", "--json", "f", "closed/g"]).fail(4);
    assert_eq!(outcome.summary()["files_committed"], 0, "{outcome}");
}

#[test]
fn an_ordinary_user_with_8_mib_of_lockable_memory_can_do_all_of_it() {
    for engine in crate::fixture::engines() {
        let host = Shared::new();
        files::make(host.host.path("d/small"), 1, 1000);
        files::make(host.host.path("d/large"), 2, (40 << 20) + 17);
        host.give_away("d");
        let run = host.run(["copy", "--json", "--engine", *engine, "d/", "new"]);
        let outcome = run.beneath(["prlimit", "--memlock=8388608:8388608"]).fail(0);
        assert_eq!(outcome.counts(), (2, 0, 0), "engine {engine}: {outcome}");
        let (sent, stands) = (Tree::of(host.host.path("d")), Tree::of(host.host.path("new")));
        tree::assert_same(&sent, &stands, format!("engine {engine}: {outcome}"));
        assert_eq!(outcome.summary()["io"]["engine"], **engine, "{outcome}");
    }
}

#[test]
fn the_first_signal_ends_a_run_in_order_and_leaves_no_final_name() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 143)] {
        for trip in Trip::each_way() {
            files::make_sparse(trip.source().join("f"), 1 << 40, &[]);
            let running = trip.run(&[], &["f"], "g").beneath(hearing_hangups()).start();
            running.wait_type("progress");
            running.signal(signal);
            running.wait_stderr("stopping: writing down what has come; once more to stop now");
            let outcome = running.fail(code);
            let summary = outcome.summary();
            assert_eq!(summary["files_committed"], 0, "{trip}: {outcome}");
            assert!(outcome.stderr.contains("run it again"), "{trip}: {outcome}");
            assert!(!trip.dest().join("g").exists(), "{trip}");
        }
    }
}

#[test]
fn a_run_beneath_nohup_survives_its_terminal() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 20 << 20);
        // What is ignored when a program begins is what nohup leaves it.
        let script = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
        let running = trip.run(&["--rate", "20MB/s"], &["f"], "g").beneath(script).start();
        running.wait_type("progress");
        running.signal(Signal::HUP);
        running.fail(0);
    }
}

#[test]
fn a_file_beyond_the_limit_on_lengths_fails_with_the_limit_named() {
    let host = Host::new();
    files::make(host.path("f"), 1, 20 << 20);
    let outcome = host.run(["copy", "--json", "f", "g"]).beneath(["prlimit", "--fsize=1000000"]).fail(7);
    let fault = &outcome.events_of("fault")[0];
    assert!(fault["hint"].as_str().unwrap().contains("ulimit -f"), "{outcome}");
    assert!(!host.path("g").exists(), "{outcome}");
}

#[test]
fn more_memory_than_the_host_has_is_refused_before_anything_is_made() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 100);
    files::make(site.root().join("f"), 1, 100);
    let (there, new) = (site.url("f"), site.url("new/f"));
    for (verb, from, to) in [("copy", "f", "new/f"), ("push", "f", new.as_str()), ("pull", there.as_str(), "new/f")] {
        let outcome = site.client.run([verb, "--json", "--memory", "900TiB", from, to]).fail(2);
        assert!(outcome.stderr.contains("more memory than this host has"), "{outcome}");
        assert!(!site.client.path("new").exists() && !site.root().join("new").exists(), "{outcome}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let host = Host::new();
    for n in 0..2000 {
        files::make(host.path(format!("d/f{n}")), n, 10);
    }
    let script = format!("{PROGRAM} copy --json d new | head -n 1; exit ${{PIPESTATUS[0]}}");
    let outcome = host.run(["-c", &script]).program("bash").finish();
    assert!(matches!(outcome.code, 141 | 143), "{outcome}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
}

#[test]
fn a_lost_link_is_5_and_a_daemon_that_stops_says_so() {
    let site = Site::new();
    files::make_sparse(site.client.path("f"), 1 << 40, &[]);
    let running = site.client.run(["push", "--json", "--retry-for", "0", "f", &site.url("g")]).start();
    running.wait_type("progress");
    site.daemon.signal(Signal::TERM);
    let outcome = running.fail(5);
    assert_eq!(outcome.events_of("fault")[0]["retry"], true, "{outcome}");
    assert!(outcome.stderr.contains("shutting down"), "{outcome}");
    let root = site.root();
    let daemon = site.daemon.finish();
    assert_eq!(daemon.code, 0, "{daemon}");
    assert!(!root.join("g").exists(), "what is left of it stands under another name: {daemon}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn what_another_user_left_at_the_top_keeps_nobody_from_copying() {
    let plants: [(&str, Plant); 5] = [
        ("a directory", |at| fs::create_dir(at).unwrap()),
        ("a file", |at| fs::write(at, b"mine").unwrap()),
        ("a link to a directory", |at| files::link("/tmp", at)),
        ("a link to nothing", |at| files::link("nowhere", at)),
        ("a fifo", |at| files::make_special(at, rustix::fs::FileType::Fifo)),
    ];
    for (what, plant) in plants {
        let host = Host::new();
        files::make(host.path("d/large"), 1, 3 << 20);
        files::make(host.path("d/small"), 2, 100);
        let theirs = host.make_dir("new").join(".longhaul");
        plant(&theirs);
        std::os::unix::fs::lchown(&theirs, Some(65534), Some(65534)).unwrap();
        let outcome = host.run(["copy", "--json", "d", "new"]).succeed();
        assert_eq!(outcome.counts(), (2, 0, 0), "{what}: {outcome}");
        assert!(outcome.stderr.contains("no journal can be written"), "{what}: {outcome}");
        assert_eq!(tree::leftovers(host.path("new")), [".longhaul"], "{what}: {outcome}");
    }
}

/// Puts a file or another thing at a path.
type Plant = fn(&Path);

/// A host that an ordinary user shares, with a copy of the program that this user can reach. If the
/// tests do not run as root, that user is the one who runs them.
struct Shared {
    host: Host,
}

impl Shared {
    fn new() -> Shared {
        let host = Host::within(&std::env::temp_dir());
        files::set_mode(host.dir(), 0o777);
        fs::create_dir(host.config_home()).unwrap();
        files::set_mode(host.config_home(), 0o777);
        // By a process of its own: one that another test starts meanwhile would keep this process's
        // descriptor open, and a file that is open for writing cannot be run.
        let copied = Command::new("cp").arg(PROGRAM).arg(host.path("longhaul")).status().unwrap();
        assert!(copied.success());
        Shared { host }
    }

    /// Makes everything at a path the ordinary user's own.
    fn give_away(&self, name: &str) {
        if geteuid().is_root() {
            give(&self.host.path(name));
        }
    }

    fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Run {
        let run = self.host.run(args).program(self.host.path("longhaul"));
        if !geteuid().is_root() {
            return run;
        }
        run.beneath([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
            "--inh-caps=-all",
        ])
    }
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
    assert_eq!(fs::symlink_metadata(path).unwrap().uid(), 65534);
}
