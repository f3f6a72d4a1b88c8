//! Sources that are one stream of bytes: standard input and the output of a command, as one file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use rustix::fs::FileType;
use rustix::process::Signal;

use crate::fixture::{DaemonConfig, PROTECTIONS, Run, Site, files};
use crate::hostile::proxy::{Gate, Kind, hold_after};
use crate::hostile::{Direction, Wired};

const MIB: usize = 1 << 20;

/// Options with which a stream is longer than what is kept of it.
const NARROW: [&str; 4] = ["--chunk-size", "1MiB", "--memory", "16MiB"];

/// A push of standard input to `name` beneath the root of a site.
fn push(site: &Site, options: &[&str], name: &str) -> Run {
    site.client.run(["push"]).args(options).args(["-", &site.url(name)])
}

/// A copy of standard input to `out` in the client's directory.
fn copy(site: &Site, options: &[&str]) -> Run {
    site.client.run(["copy"]).args(options).args(["-", "out"])
}

/// Gives a run a fifo as its standard input.
fn fed_by(run: Run, fifo: &Path) -> Run {
    files::make_special(fifo, FileType::Fifo);
    run.beneath(["sh", "-c", "exec \"$0\" \"$@\" < in"])
}

/// Writes bytes into a fifo, in pieces. The counter says how many the other end has taken.
fn feed(fifo: &Path, bytes: Vec<u8>) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let (counter, fifo) = (taken.clone(), fifo.to_owned());
    let thread = thread::spawn(move || {
        let mut end = OpenOptions::new().write(true).open(fifo).unwrap();
        for piece in bytes.chunks(64 << 10) {
            end.write_all(piece).unwrap();
            counter.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    (taken, thread)
}

/// The names that stand in a directory, those of temporaries and journals with them.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn standard_input_of_any_length_becomes_a_file_at_a_daemon() {
    for protect in PROTECTIONS {
        let site = Site::new();
        for (seed, len) in [0, 1, (256 << 10) + 1, MIB, MIB + 1, 4 * MIB, 33 * MIB + 7].into_iter().enumerate() {
            let bytes = files::bytes(seed as u64 + 1, len);
            let options = [&NARROW[..], &["--json", "--protect", protect]].concat();
            let outcome = push(&site, &options, "deep/f").input(bytes.clone()).succeed();
            assert!(fs::read(site.root().join("deep/f")).unwrap() == bytes, "{protect} {len}: {outcome}");
            assert_eq!(outcome.counts(), (1, 0, 0), "{outcome}");
            let file = &outcome.events_of("file")[0];
            assert_eq!((&file["bytes"], &file["status"]), (&len.into(), &"committed".into()), "{outcome}");
            assert_eq!(file["b3"], blake3::hash(&bytes).to_hex().as_str(), "{outcome}");
            assert_eq!(names(&site.root().join("deep")), ["f"], "{outcome}");
        }
    }
}

#[test]
fn standard_input_of_any_length_becomes_a_file_of_this_host() {
    let site = Site::new();
    for (seed, len) in [0, 1, MIB - 1, MIB, MIB + 1, 8 * MIB, 33 * MIB + 7].into_iter().enumerate() {
        let bytes = files::bytes(seed as u64 + 1, len);
        copy(&site, &NARROW).input(bytes.clone()).succeed();
        assert!(fs::read(site.client.path("out")).unwrap() == bytes, "{len}");
    }
}

#[test]
fn the_file_has_the_mode_of_one_that_a_shell_makes() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    for (umask, mode) in [("077", 0o600), ("022", 0o644)] {
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        copy(&site, &[]).input("some").beneath(["sh", "-c", &script]).succeed();
        let stands = fs::metadata(site.client.path("out")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(stands, mode, "{umask}: {stands:o}");
    }
}

#[test]
fn a_stream_goes_to_one_of_several_targets() {
    let site = Site::new();
    let bytes = files::bytes(9, 12 * MIB + 3);
    for target in ["t0", "t1"] {
        fs::create_dir(site.client.path(target)).unwrap();
    }
    let options = ["--target", "t0", "--target", "t1", "--allow-same-device"];
    let run = site.client.run(["copy", "-", "f"]).args(options).args(NARROW).input(bytes.clone());
    let outcome = run.succeed();
    let found: Vec<_> = ["t0/f", "t1/f"].into_iter().filter_map(|at| fs::read(site.client.path(at)).ok()).collect();
    assert!(found == [bytes], "{outcome}");
}

#[test]
fn a_stream_goes_over_quic_and_is_read_back_from_the_disk() {
    let site = Site::new();
    let bytes = files::bytes(3, 21 * MIB + 5);
    let outcome = push(&site, &["--json", "--transport", "quic", "--chunk-size", "1MiB", "--memory", "64MiB"], "q");
    outcome.input(bytes.clone()).succeed();
    assert!(fs::read(site.root().join("q")).unwrap() == bytes);
    let options = [&NARROW[..], &["--json", "--verify", "disk"]].concat();
    let outcome = push(&site, &options, "v").input(bytes.clone()).succeed();
    assert!(fs::read(site.root().join("v")).unwrap() == bytes);
    assert_eq!(outcome.summary()["bytes_read_back"], bytes.len(), "{outcome}");
}

#[test]
fn a_producer_that_is_slower_than_the_link_is_waited_for() {
    let site = Site::new();
    let bytes = files::bytes(5, 6 * MIB + 3);
    let options = [&NARROW[..], &["--json", "--sync-interval", "50ms"]].concat();
    let run = fed_by(site.client.run(["copy"]).args(&options).args(["-", "out"]), &site.client.path("in"));
    let running = run.start();
    let mut end = OpenOptions::new().write(true).open(site.client.path("in")).unwrap();
    end.write_all(&bytes[..4 * MIB]).unwrap();
    // All that was written is durable while the producer pauses.
    running.wait_event(|event| (event["bytes_durable"].as_u64()? >= 3 * MIB as u64).then_some(()));
    end.write_all(&bytes[4 * MIB..]).unwrap();
    drop(end);
    let outcome = running.fail(0);
    assert!(fs::read(site.client.path("out")).unwrap() == bytes, "{outcome}");
}

#[test]
fn a_producer_that_is_faster_than_the_link_is_held_back_by_the_memory() {
    let gate = Gate::default();
    let holding = gate.clone();
    let wired = Wired::new(move |kind, way| {
        (kind != Kind::Control && way == Direction::Push.way()).then(|| hold_after(2 << 20, holding.clone()))
    });
    let site = &wired.site;
    let bytes = files::bytes(6, 40 * MIB);
    let far = format!("lh://{}/data/f", wired.proxy.addr());
    let run = site.client.run(["push", "-", &far, "--peer-key", site.daemon.key(), "--json", "--lanes", "2"]);
    let running = fed_by(run.args(NARROW), &site.client.path("in")).start();
    let (taken, feeding) = feed(&site.client.path("in"), bytes.clone());
    gate.wait_reached();
    // Half of the memory keeps what was read.
    running.wait_event(|event| (event["bytes_total"].as_u64()? >= 8 * MIB as u64).then_some(()));
    let read = taken.load(Ordering::Relaxed);
    gate.open();
    feeding.join().unwrap();
    let outcome = running.fail(0);
    assert!(read <= 16 * MIB, "{read} bytes were taken: {outcome}");
    assert!(fs::read(site.root().join("f")).unwrap() == bytes, "{outcome}");
}

#[test]
fn a_lane_or_a_connection_that_is_cut_in_the_middle_loses_nothing() {
    for protect in PROTECTIONS {
        let lane = if protect == "safe" { Kind::SafeLane } else { Kind::PrivateLane };
        for kind in [lane, Kind::Control] {
            let gate = Gate::default();
            let holding = gate.clone();
            let wired = Wired::new(move |kind, way| {
                (kind != Kind::Control && way == Direction::Push.way()).then(|| hold_after(3 << 20, holding.clone()))
            });
            let site = &wired.site;
            let bytes = files::bytes(7, 24 * MIB + 17);
            let far = format!("lh://{}/data/f", wired.proxy.addr());
            let run = site.client.run(["push", "-", &far, "--peer-key", site.daemon.key(), "--json", "--lanes", "2"]);
            let run = run.args(NARROW).args(["--protect", protect, "--retry-for", "60s"]).input(bytes.clone());
            let running = run.start();
            gate.wait_reached();
            wired.proxy.cut(kind);
            if kind == Kind::Control {
                running.wait_stderr("dialling again");
            }
            gate.open();
            let outcome = running.fail(0);
            assert!(fs::read(site.root().join("f")).unwrap() == bytes, "{protect} {kind:?}: {outcome}");
            assert_eq!(outcome.counts(), (1, 0, 0), "{outcome}");
            assert_eq!(names(&site.root()), ["f"], "{outcome}");
        }
    }
}

#[test]
fn a_daemon_that_is_killed_in_the_middle_gets_again_what_it_had_not_made_durable() {
    let site = Site::with(DaemonConfig::default().line("limits = { sync_interval = '1min' }"));
    let bytes = files::bytes(7, 24 * MIB + 17);
    let options = [&NARROW[..], &["--json", "--retry-for", "60s"]].concat();
    let run = fed_by(push(&site, &options, "f"), &site.client.path("in"));
    let running = run.start();
    let mut end = OpenOptions::new().write(true).open(site.client.path("in")).unwrap();
    // A quarter of the 8 MiB that are kept is synced at a time, so that one chunk is not. It is
    // sent when it is known that it is not the last one.
    end.write_all(&bytes[..=MIB]).unwrap();
    running.wait_event(|event| (event["bytes_received"].as_u64()? >= MIB as u64).then_some(()));
    site.daemon.kill();
    running.wait_stderr("dialling again");
    let again = site.restarted();
    end.write_all(&bytes[MIB + 1..]).unwrap();
    drop(end);
    let outcome = running.fail(0);
    assert!(fs::read(site.root().join("f")).unwrap() == bytes, "{outcome}\n{}", again.log());
    assert_eq!(outcome.summary()["bytes_resent"], MIB, "{outcome}");
}

#[test]
fn a_run_that_is_killed_is_not_gone_on_with_and_the_next_one_removes_what_it_left() {
    let site = Site::new();
    let (first, second) = (files::bytes(1, 9 * MIB), files::bytes(2, 6 * MIB + 1));
    let options = [&NARROW[..], &["--json"]].concat();
    let running = fed_by(push(&site, &options, "f"), &site.client.path("in")).start();
    let mut end = OpenOptions::new().write(true).open(site.client.path("in")).unwrap();
    end.write_all(&first).unwrap();
    running.wait_event(|event| (event["bytes_durable"].as_u64()? >= 4 * MIB as u64).then_some(()));
    running.signal(Signal::KILL);
    running.fail(137);
    assert!(!site.root().join("f").exists());
    let outcome = push(&site, &options, "f").input(second.clone()).succeed();
    assert!(fs::read(site.root().join("f")).unwrap() == second, "{outcome}");
    assert_eq!(outcome.summary()["bytes_resumed"], 0, "{outcome}");
    assert_eq!(names(&site.root()), ["f"], "{outcome}");
}

#[test]
fn a_stream_that_is_not_what_was_expected_leaves_the_old_file() {
    let site = Site::new();
    let (old, bytes) = (files::bytes(1, 100), files::bytes(2, 9 * MIB + 5));
    let (right, wrong) = (blake3::hash(&bytes).to_hex().to_string(), "0".repeat(64));
    let len = bytes.len().to_string();
    for content in [&bytes[..], &bytes[..70_000]] {
        fs::write(site.root().join("f"), &old).unwrap();
        fs::write(site.client.path("out"), &old).unwrap();
        for options in [["--expect-bytes", "8"], ["--expect-bytes", "99999999"], ["--expect-b3", &wrong]] {
            let options = [&NARROW[..], &options, &["--json"]].concat();
            for (run, at) in [(push(&site, &options, "f"), site.root()), (copy(&site, &options), site.client.path(""))]
            {
                let name = if at == site.root() { "f" } else { "out" };
                let outcome = run.input(content).fail(6);
                assert_eq!(fs::read(at.join(name)).unwrap(), old, "{outcome}");
                assert!(names(&at).iter().all(|name| !name.starts_with(".longhaul-")), "{outcome}");
                assert!(outcome.stderr.contains("expected"), "{outcome}");
            }
        }
    }
    let options = [&NARROW[..], &["--json", "--expect-bytes", &len, "--expect-b3", &right]].concat();
    let outcome = push(&site, &options, "f").input(bytes.clone()).succeed();
    assert!(fs::read(site.root().join("f")).unwrap() == bytes, "{outcome}");
    assert_eq!(outcome.summary()["io"]["end_of_stream"], "proven", "{outcome}");
}

#[test]
fn a_command_that_does_not_end_well_commits_nothing() {
    let site = Site::new();
    files::make(site.client.path("big"), 4, 12 * MIB);
    for (command, says) in [
        ("cat big; exit 3", "exit code 3"),
        ("echo a few bytes; exit 1", "exit code 1"),
        ("cat big; kill -9 $$", "signal 9"),
        ("no-such-command-here", "exit code 127"),
    ] {
        let run = site.client.run(["push", "--json"]).args(NARROW).args(["--from-command", command]);
        let outcome = run.arg(site.url("f")).fail(1);
        assert!(outcome.stderr.contains(says), "{command}: {outcome}");
        assert!(!site.root().join("f").exists() && outcome.counts() == (0, 0, 1), "{command}: {outcome}");
        let run = site.client.run(["copy"]).args(NARROW).args(["--from-command", command, "out"]);
        run.fail(1);
        assert!(!site.client.path("out").exists(), "{command}");
    }
    let run = site.client.run(["push", "--json"]).args(NARROW).args(["--from-command", "cat big"]);
    let outcome = run.arg(site.url("f")).succeed();
    assert!(fs::read(site.root().join("f")).unwrap() == files::bytes(4, 12 * MIB), "{outcome}");
    assert_eq!(outcome.summary()["io"]["end_of_stream"], "proven", "{outcome}");
}

#[test]
fn nobody_sees_a_stream_before_its_end_and_the_end_says_whether_it_is_proven() {
    let site = Site::new();
    let (old, bytes) = (files::bytes(1, 100), files::bytes(2, 5 * MIB));
    fs::write(site.root().join("f"), &old).unwrap();
    let run = fed_by(push(&site, &[&NARROW[..], &["--json"]].concat(), "f"), &site.client.path("in"));
    let running = run.start();
    let mut end = OpenOptions::new().write(true).open(site.client.path("in")).unwrap();
    end.write_all(&bytes).unwrap();
    running.wait_event(|event| (event["bytes_durable"].as_u64()? >= 4 * MIB as u64).then_some(()));
    assert_eq!(fs::read(site.root().join("f")).unwrap(), old);
    drop(end);
    let outcome = running.fail(0);
    assert!(fs::read(site.root().join("f")).unwrap() == bytes, "{outcome}");
    assert!(outcome.stderr.contains("end of stream not proven"), "{outcome}");
    assert!(outcome.stderr.contains("a stream is read once"), "{outcome}");
    assert!(outcome.events_of("start")[0]["notes"].to_string().contains("read once"), "{outcome}");
    assert_eq!(outcome.summary()["io"]["end_of_stream"], "not proven", "{outcome}");
}

#[test]
fn a_file_that_stands_is_replaced_unless_that_is_refused() {
    let site = Site::new();
    for rule in ["skip-same", "verify", "replace", "fail"] {
        for len in [10, 3 * MIB] {
            fs::write(site.root().join("f"), files::bytes(1, len)).unwrap();
            let options = [&NARROW[..], &["--if-exists", rule]].concat();
            let outcome = push(&site, &options, "f").input(files::bytes(2, len)).finish();
            let (code, seed) = if rule == "fail" { (23, 1) } else { (0, 2) };
            assert_eq!(outcome.code, code, "{rule} {len}: {outcome}");
            assert!(fs::read(site.root().join("f")).unwrap() == files::bytes(seed, len), "{rule} {len}: {outcome}");
        }
    }
    let site = Site::granting(DaemonConfig::default(), "read,create", "read,create");
    files::make(site.root().join("f"), 1, 10);
    let outcome = push(&site, &NARROW, "f").input(files::bytes(2, 3 * MIB)).fail(4);
    assert!(outcome.stderr.contains("may not replace"), "{outcome}");
}

#[test]
fn a_receiver_that_can_write_no_more_ends_the_stream_with_exit_7() {
    let site = Site::new();
    let bytes = files::bytes(8, 24 * MIB);
    let run = copy(&site, &NARROW).input(bytes).beneath(["prlimit", "--fsize=8388608"]);
    let outcome = run.fail(7);
    assert!(outcome.stderr.contains("out"), "{outcome}");
    assert!(!outcome.stderr.contains("to continue"), "{outcome}");
    assert!(!site.client.path("out").exists(), "{outcome}");
    assert!(names(&site.client.path("")).iter().all(|name| !name.starts_with(".longhaul-")), "{outcome}");
}

#[test]
fn a_stream_wants_the_name_of_a_file() {
    let site = Site::new();
    fs::create_dir(site.client.path("d")).unwrap();
    fs::create_dir(site.root().join("d")).unwrap();
    for dest in ["d", "d/", "."] {
        let outcome = site.client.run(["copy", "-", dest]).input("x").fail(2);
        assert!(outcome.stderr.contains("no name of its own"), "{outcome}");
    }
    for name in ["d/", ""] {
        let outcome = push(&site, &[], name).input("x").fail(2);
        assert!(outcome.stderr.contains("no name of its own"), "{outcome}");
    }
    let outcome = push(&site, &[], "d").input("x").fail(23);
    assert!(outcome.stderr.contains("a directory stands where the file goes"), "{outcome}");
}

#[test]
fn what_a_stream_that_is_read_does_not_go_together_with_is_a_usage_error() {
    let site = Site::new();
    let url = site.url("f");
    for (line, says) in [
        (&["push", "-", "other", &url][..], "goes alone"),
        (&["push", "-", "-", &url], "goes alone"),
        (&["push", "--from-command", "true", "-", &url], "the one source"),
        (&["pull", "--from-command", "true", "there"], "pull fetches"),
        (&["copy", "-", "-"], "DEST is a stream too"),
        (&["push", "--expect-bytes", "5", "some", &url], "prove the end"),
        (&["push", "--expect-b3", "12", "-", &url], "64 hex digits"),
        (&["push", "--files-from", "list", "-", &url], "files-from"),
        (&["push", "--exclude", "*.tmp", "-", &url], "choose files"),
        (&["push", "--memory", "16MiB", "-", &url], "fewer than 8 chunks"),
        (&["push", &url], "SOURCE and a DEST"),
    ] {
        files::write(site.client.path("list"), "x\n");
        let outcome = site.client.run(line).fail(2);
        assert!(outcome.stderr.contains(says), "{outcome}");
    }
    assert!(names(&site.root()).is_empty());
}

#[test]
fn a_dry_run_of_a_stream_reads_nothing_of_it_and_runs_no_command() {
    let site = Site::new();
    let run = site.client.run(["push", "-n", "--from-command", "touch made"]).arg(site.url("f"));
    let outcome = run.succeed();
    assert!(outcome.stdout_text().contains("data/f"), "{outcome}");
    assert!(!site.client.path("made").exists() && names(&site.root()).is_empty(), "{outcome}");
}

#[test]
fn no_variable_runs_a_command_or_says_what_a_stream_must_be() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 100);
    let variables =
        [("LONGHAUL_FROM_COMMAND", "touch made"), ("LONGHAUL_EXPECT_BYTES", "7"), ("LONGHAUL_EXPECT_B3", "no digest")];
    let run = site.client.run(["push", "f"]).arg(site.url("f"));
    variables.iter().fold(run, |run, (name, value)| run.env(name, value)).succeed();
    let run = site.client.run(["push", "-"]).arg(site.url("stream")).input(b"eight bytes".to_vec());
    variables.iter().fold(run, |run, (name, value)| run.env(name, value)).succeed();
    assert!(!site.client.path("made").exists());
    assert_eq!(std::fs::read(site.root().join("stream")).unwrap(), b"eight bytes");
}

#[test]
fn the_last_chunk_of_a_stream_is_written_and_read_back_past_the_page_cache() {
    let site = Site::new();
    let bytes = files::bytes(31, 5 * MIB + 777);
    let options = [&NARROW[..], &["--io", "direct", "--verify", "disk"]].concat();
    copy(&site, &options).input(bytes.clone()).succeed();
    assert!(fs::read(site.client.path("out")).unwrap() == bytes);
}
