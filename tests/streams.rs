//! Destinations that are one stream of bytes: standard output and devices, plain and as archives.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::FileType;

use crate::fixture::tree::Tree;
use crate::fixture::{DaemonConfig, PROGRAM, Run, Running, Site, Trip, Way, files};
use crate::hostile::proxy::{Gate, Kind, hold_after};
use crate::hostile::{Direction, Wired};

const MIB: usize = 1 << 20;

/// Options with which no more than a few chunks are ahead of the reader.
const NARROW: [&str; 6] = ["--chunk-size", "1MiB", "--memory", "4MiB", "--retry-for", "0"];

/// A pull of `name` beneath the root of a site.
fn pull(site: &Site, options: &[&str], name: &str) -> Run {
    site.client.run(["pull"]).args(options).arg(site.url(name)).arg("-")
}

/// A pull into a fifo, and the fifo's other end.
fn pull_to_fifo(site: &Site, options: &[&str], name: &str) -> (Running, File) {
    let fifo = site.client.path("out");
    files::make_special(&fifo, FileType::Fifo);
    let run = site.client.run(["pull", "--json", "--to-device"]).args(NARROW).args(options);
    let running = run.arg(site.url(name)).arg(&fifo).start();
    (running, File::open(&fifo).unwrap())
}

/// Takes so many bytes out of a fifo.
fn take(fifo: &mut File, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fifo.read_exact(&mut bytes).unwrap();
    bytes
}

/// The rest of a fifo.
fn rest(mut fifo: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    fifo.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Runs the system's `tar` in a directory with an archive as its input.
fn tar(dir: &Path, args: &[&str], archive: &[u8]) -> String {
    let path = dir.join("archive.tar");
    fs::write(&path, archive).unwrap();
    let output = Command::new("tar").args(args).arg("-f").arg(&path).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(&path).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_file_goes_to_standard_output_byte_for_byte_over_several_lanes() {
    for protect in ["safe", "private"] {
        let site = Site::new();
        for (seed, len) in [0, 1, 4 << 10, (256 << 10) + 1, MIB - 1, MIB, MIB + 1, 23 * MIB + 7].into_iter().enumerate()
        {
            files::make(site.root().join("f"), seed as u64 + 1, len);
            let options = ["--chunk-size", "1MiB", "--memory", "16MiB", "--lanes", "4", "--protect", protect];
            let outcome = pull(&site, &options, "f").succeed();
            assert!(outcome.stdout == files::bytes(seed as u64 + 1, len), "{protect} {len}: {}", outcome.stderr);
            assert!(outcome.stderr.contains("a stream cannot be gone on with"), "{}", outcome.stderr);
        }
    }
}

#[test]
fn a_file_goes_out_over_quic_and_within_this_host_as_well() {
    let site = Site::new();
    files::make(site.root().join("f"), 7, 9 * MIB + 3);
    let options = ["--transport", "quic", "--chunk-size", "1MiB", "--memory", "32MiB"];
    assert!(pull(&site, &options, "f").succeed().stdout == files::bytes(7, 9 * MIB + 3));
    files::make(site.client.path("g"), 8, 9 * MIB + 3);
    let copied = site.client.run(["copy", "--chunk-size", "1MiB", "--memory", "8MiB", "g", "-"]).succeed();
    assert!(copied.stdout == files::bytes(8, 9 * MIB + 3));
}

#[test]
fn the_least_memory_carries_a_file_that_is_much_larger() {
    let site = Site::new();
    files::make(site.root().join("f"), 3, 40 * MIB + 1);
    let (running, fifo) = pull_to_fifo(&site, &["--block-size", "300KiB"], "f");
    assert!(rest(fifo) == files::bytes(3, 40 * MIB + 1));
    let outcome = running.fail(0);
    let summary = outcome.summary();
    assert_eq!(summary["io"]["buffers"], 4, "{outcome}");
    assert_eq!(summary["io"]["stream"]["bytes"], 40 * MIB + 1, "{outcome}");
    assert_eq!(summary["io"]["stream"]["blocks"], (40 * MIB + 1).div_ceil(300 << 10), "{outcome}");
    assert_eq!(summary["io"]["stream"]["under_runs"], 0, "{outcome}");
}

#[test]
fn the_last_block_is_padded_if_that_is_asked_for() {
    let site = Site::new();
    files::make(site.root().join("f"), 3, 2 * MIB + 5);
    let out = pull(&site, &["--pad-last", "--block-size", "512KiB"], "f").succeed().stdout;
    assert_eq!(out.len(), 2 * MIB + (512 << 10));
    assert!(out[..2 * MIB + 5] == files::bytes(3, 2 * MIB + 5)[..]);
    assert!(out[2 * MIB + 5..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_archive_is_what_tar_reads_and_has_everything() {
    for trip in Trip::each_way().filter(|trip| trip.way() != Way::Push) {
        let top = trip.source().join("top");
        let long = format!("{}/{}", "d".repeat(120), "n".repeat(200));
        for (name, len) in [("a", 0), ("b", 5), ("new\nline", 700), ("large", 3 * MIB + 11), (&long, 99), ("z/y/x", 1)]
        {
            files::make(top.join(name), len as u64 + 1, len);
        }
        files::make_sparse(top.join("sparse"), 4 * MIB as u64, &[(MIB as u64, 4096)]);
        files::link("b", top.join("link"));
        files::link("t".repeat(150), top.join("far"));
        fs::create_dir(top.join("empty")).unwrap();
        files::set_mtime(top.join("b"), 1_000_000_007, 120_000_000);
        files::set_mtime(top.join("empty"), 77, 0);
        let out = trip.run_out(&["--tar"], &["top"]).succeed().stdout;
        assert_eq!(out.len() % 512, 0, "{trip}");
        let listed = tar(trip.host().dir(), &["-t"], &out);
        assert!(listed.contains("top/new\\nline"), "{trip}: {listed}");
        let dir = trip.host().make_dir("extracted");
        tar(&dir, &["-x", "-p"], &out);
        assert_eq!(Tree::of(dir.join("top")), Tree::of(&top), "{trip}");
    }
}

#[test]
fn several_sources_make_one_archive() {
    let site = Site::new();
    for name in ["one/f", "two/g", "three"] {
        files::make(site.root().join(name), name.len() as u64, 300 << 10);
    }
    let run = site.client.run(["pull", "--tar"]).args(["one", "two/", "three"].map(|name| site.url(name)));
    let out = run.arg("-").succeed().stdout;
    let mut listed: Vec<String> =
        tar(site.client.dir(), &["-t"], &out).lines().filter(|name| !name.ends_with('/')).map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, ["g", "one/f", "three"]);
}

#[test]
fn an_entry_that_cannot_be_read_is_left_out_and_the_archive_is_whole() {
    let site = Site::new();
    files::make(site.root().join("d/good"), 1, 2 * MIB);
    files::make(site.root().join("d/other"), 2, 10);
    files::make_special(site.root().join("d/fifo"), FileType::Fifo);
    let outcome = pull(&site, &["--tar"], "d").succeed();
    assert!(outcome.stderr.contains("fifo"), "{outcome}");
    let listed = tar(site.client.dir(), &["-t"], &outcome.stdout);
    assert!(listed.contains("d/good") && listed.contains("d/other") && !listed.contains("d/fifo"), "{listed}");
}

#[test]
fn a_source_that_changes_in_the_middle_ends_the_stream_with_exit_24() {
    let site = Site::new();
    files::make(site.root().join("f"), 9, 64 * MIB);
    let (running, mut fifo) = pull_to_fifo(&site, &[], "f");
    let first = take(&mut fifo, MIB);
    OpenOptions::new().write(true).open(site.root().join("f")).unwrap().set_len(40 * MIB as u64).unwrap();
    let all = [first, rest(fifo)].concat();
    let outcome = running.fail(24);
    assert!(all.len() <= 40 * MIB, "{} bytes: {outcome}", all.len());
    assert!(all == files::bytes(9, 64 * MIB)[..all.len()], "what left is what was there");
    assert_eq!(outcome.counts().0, 0, "nothing is called committed: {outcome}");
}

#[test]
fn a_source_that_changes_in_an_archive_cuts_it_off() {
    let site = Site::new();
    files::make(site.root().join("d/a"), 9, 64 * MIB);
    files::make(site.root().join("d/b"), 9, 10);
    let (running, mut fifo) = pull_to_fifo(&site, &["--tar"], "d");
    let first = take(&mut fifo, MIB);
    OpenOptions::new().write(true).open(site.root().join("d/a")).unwrap().set_len(40 * MIB as u64).unwrap();
    let all = [first, rest(fifo)].concat();
    running.fail(24);
    let path = site.client.path("cut.tar");
    fs::write(&path, all).unwrap();
    let listed = Command::new("tar").arg("-tf").arg(&path).stderr(Stdio::null()).status().unwrap();
    assert!(!listed.success(), "nobody takes it for a whole archive");
}

#[test]
fn a_reader_that_goes_away_is_an_error_with_exit_7() {
    let site = Site::new();
    files::make(site.root().join("f"), 9, 32 * MIB);
    let (running, mut fifo) = pull_to_fifo(&site, &[], "f");
    take(&mut fifo, MIB);
    drop(fifo);
    let outcome = running.fail(7);
    assert!(outcome.stderr.contains("Broken pipe"), "{outcome}");
    assert_eq!(outcome.counts().0, 0, "{outcome}");
    let script = format!("{PROGRAM} pull {} - | head -c 100000 | wc -c; exit ${{PIPESTATUS[0]}}", site.url("f"));
    let piped = Run::new(site.client.dir(), &site.client.config_home()).program("bash").args(["-c", &script]).fail(7);
    assert_eq!(piped.stdout_text().trim(), "100000", "{piped}");
    assert!(piped.stderr.contains("cannot write to 'standard output': Broken pipe"), "{piped}");
    let script = format!("{PROGRAM} pull {} - > /dev/full", site.url("f"));
    let full = Run::new(site.client.dir(), &site.client.config_home()).program("bash").args(["-c", &script]).fail(7);
    assert!(full.stderr.contains("No space left"), "{full}");
}

#[test]
fn a_daemon_that_is_lost_in_the_middle_ends_the_stream_with_exit_5() {
    let site = Site::new();
    files::make(site.root().join("f"), 9, 64 * MIB);
    let (running, mut fifo) = pull_to_fifo(&site, &["--retry-for", "1h"], "f");
    let first = take(&mut fifo, MIB);
    site.daemon.kill();
    let all = [first, rest(fifo)].concat();
    let outcome = running.fail(5);
    assert!(all.len() < 64 * MIB && all == files::bytes(9, 64 * MIB)[..all.len()], "{outcome}");
    assert!(outcome.stderr.contains("it begins anew"), "{outcome}");
    assert!(!outcome.stderr.contains("to continue"), "{outcome}");
    assert!(!outcome.stderr.contains("held: "), "{outcome}");
}

#[test]
fn a_stream_that_is_fed_too_slowly_counts_its_under_runs() {
    let gate = Gate::default();
    let held = gate.clone();
    let wired = Wired::new(move |kind, way| {
        (kind != Kind::Control && way == Direction::Pull.way()).then(|| hold_after(5 << 19, held.clone()))
    });
    files::make(wired.site.root().join("f"), 9, 6 * MIB);
    let fifo = wired.site.client.path("out");
    files::make_special(&fifo, FileType::Fifo);
    let url = format!("lh://{}/data/f", wired.proxy.addr());
    let run = wired.site.client.run(["pull", "--json", "--to-device", "--peer-key", wired.site.daemon.key()]);
    let run = run.args(NARROW).args(["--prefill", "1MiB", "--lanes", "1"]);
    let running = run.arg(url).arg(&fifo).start();
    let mut fifo = File::open(&fifo).unwrap();
    let mut bytes = take(&mut fifo, 2 * MIB);
    gate.wait_reached();
    gate.open();
    bytes.extend(rest(fifo));
    assert!(bytes == files::bytes(9, 6 * MIB));
    let outcome = running.fail(0);
    assert!(outcome.summary()["io"]["stream"]["under_runs"].as_u64().is_some_and(|count| count > 0), "{outcome}");
    assert!(outcome.stderr.contains("under-run"), "{outcome}");
}

#[test]
fn a_prefill_of_everything_lets_everything_through() {
    let site = Site::new();
    files::make(site.root().join("d/large"), 1, 9 * MIB + 1);
    (0..40).for_each(|n| files::make(site.root().join(format!("d/small-{n}")), n + 2, n as usize * 100));
    let options = ["--tar", "--prefill", "100%", "--chunk-size", "1MiB", "--memory", "8MiB"];
    let out = pull(&site, &options, "d").succeed().stdout;
    let dir = site.client.make_dir("extracted");
    tar(&dir, &["-x", "-p"], &out);
    assert_eq!(Tree::of(dir.join("d")), Tree::of(site.root().join("d")));
}

#[test]
fn what_a_stream_does_not_go_together_with_is_a_usage_error() {
    let site = Site::new();
    files::make(site.root().join("d/f"), 1, 10);
    let (f, d) = (site.url("d/f"), site.url("d"));
    for (line, says) in [
        (&["pull", &f, &f, "-"][..], "give --tar"),
        (&["pull", &d, "-"], "give --tar"),
        (&["pull", "--json", &f, "-"], "standard output"),
        (&["pull", "--manifest", "-", &f, "-"], "standard output"),
        (&["pull", "--verify", "disk", &f, "-"], "reads back"),
        (&["pull", "--extra-checksum", "crc32c,md5", &f, "-"], "read once more"),
        (&["pull", "--tar", &f, "there"], "--tar writes an archive"),
        (&["pull", "--to-device", &f, "-"], "--to-device"),
        (&["pull", "--block-size", "1KiB", &f, "-"], "64KiB to 16MiB"),
        (&["pull", "--prefill", "0", &f, "-"], "--prefill"),
    ] {
        let outcome = site.client.run(line).fail(2);
        assert!(outcome.stderr.contains(says), "{outcome}");
        if !line.contains(&"--json") {
            assert!(outcome.stdout.is_empty(), "{outcome}");
        }
    }
    let missing = pull(&site, &[], "nothing").fail(3);
    assert!(missing.stdout.is_empty(), "{missing}");
    let file = site.client.run(["pull", "--to-device", &f, "no-device"]).fail(7);
    assert!(file.stderr.contains("no-device"), "{file}");
}

#[test]
fn a_dry_run_of_a_stream_shows_what_would_go_out_and_writes_none_of_it() {
    let site = Site::new();
    files::make(site.root().join("d/f"), 1, 10);
    let outcome = pull(&site, &["-n", "--tar"], "d").succeed();
    assert!(outcome.stdout_text().contains("standard output (d/f)"), "{outcome}");
    assert!(outcome.stdout_text().contains("10 bytes"), "{outcome}");
}

#[test]
fn a_stream_from_a_daemon_that_only_reads_needs_no_other_right() {
    let site = Site::granting(DaemonConfig::default(), "read", "read");
    files::make(site.root().join("f"), 4, 100);
    assert_eq!(pull(&site, &["-q"], "f").succeed().stdout, files::bytes(4, 100));
}
