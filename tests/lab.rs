//! `longhaul bench` of disks: tables, events and plots of small runs, refusals, and no file left
//! behind, whatever ends it.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::device::{Kind, SectorSize, Volume};
use crate::fixture::{Host, Run, files};

const MIB: u64 = 1 << 20;

/// A small run of a command, after whose words comes the place.
struct Case {
    command: &'static str,
    /// The type of its events.
    kind: &'static str,
    /// Whether it takes a file; else it takes a directory.
    of_file: bool,
    args: &'static [&'static str],
    /// Rows of its table, and events.
    rows: usize,
    /// Labels of its plot, lines in the legend among them.
    labels: &'static [&'static str],
}

const DISK: Case = Case {
    command: "disk",
    kind: "bench_disk",
    of_file: false,
    args: &["--bytes", "4MiB", "--chunk-size", "64KiB,1MiB", "--depth", "1,3"],
    rows: 8,
    labels: &[
        "chunk size (bytes)",
        "rate (MB/s)",
        "64 KiB",
        "1 MiB",
        "depth 1",
        "depth 3",
        "Sequential write, 1 target",
    ],
};

const CASES: [Case; 4] = [
    DISK,
    Case {
        command: "iops",
        kind: "bench_iops",
        of_file: false,
        args: &["--bytes", "4MiB", "--time", "100ms", "--request", "4KiB", "--workers", "1,2", "--outstanding", "4"],
        rows: 2,
        labels: &["requests (1000/s)", "outstanding requests of each worker (number)", "1 worker", "2 workers"],
    },
    Case {
        command: "pileup",
        kind: "bench_pileup",
        of_file: false,
        args: &["--files", "3", "--bytes", "1MiB", "--time", "100ms", "--threads", "1,4,2"],
        rows: 3,
        labels: &["threads (number)", "rate (MB/s)", "3 files"],
    },
    Case {
        command: "scan",
        kind: "bench_scan",
        of_file: true,
        args: &["--region", "1MiB"],
        rows: 6,
        labels: &["offset (GB)", "rate (MB/s)", "reads", "median"],
    },
];

impl Case {
    /// The run in a directory of its own, which has a file of six regions for a scan.
    fn run(&self, host: &Host, more: &[&str]) -> Run {
        let dir = host.make_dir("disk");
        let place = if self.of_file { dir.join("f") } else { dir };
        if self.of_file {
            files::make(&place, 1, 5 * MIB as usize + 700);
        }
        host.run(["bench", self.command]).args(self.args).args(more).arg(place)
    }
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn number(event: &Value, name: &str) -> f64 {
    event[name].as_f64().unwrap_or_else(|| panic!("{name} of {event}"))
}

#[test]
fn each_command_prints_a_table_and_draws_a_plot() {
    for case in CASES {
        let host = Host::new();
        let outcome = case.run(&host, &["--plot", "plot.svg"]).succeed();
        let table = outcome.stdout_text();
        assert!(table.lines().count() >= case.rows + 2, "{outcome}");
        assert!(table.lines().all(|line| line.len() <= 110), "{outcome}");
        let plot = fs::read_to_string(host.path("plot.svg")).unwrap();
        assert_well_formed(&plot);
        for label in case.labels {
            assert!(plot.lines().any(|line| line == *label), "{}: {label}: {plot}", case.command);
        }
        let left: &[&str] = if case.of_file { &["f"] } else { &[] };
        assert_eq!(names(&host.path("disk")), left, "{outcome}");
    }
}

#[test]
fn each_command_tells_an_object_a_row_and_the_summary_last() {
    for case in CASES {
        let host = Host::new();
        let outcome = case.run(&host, &["--json"]).succeed();
        let events = outcome.events_of(case.kind);
        assert_eq!(events.len(), case.rows, "{outcome}");
        for event in &events {
            let latency = event.get("latency_us").unwrap_or(&event["read_latency_us"]);
            let times: Vec<f64> = ["p50", "p90", "p99", "max"].iter().map(|name| number(latency, name)).collect();
            assert!(times[0] > 0.0 && times.is_sorted(), "{event}");
            assert!(number(event, "seconds") >= 0.0, "{event}");
        }
        let summary = outcome.summary();
        assert_eq!((&summary["status"], &summary["runs_done"]), (&"complete".into(), &case.rows.into()), "{outcome}");
    }
}

#[test]
fn a_sweep_moves_all_bytes_and_chooses_among_what_it_measured() {
    let host = Host::new();
    let outcome = DISK.run(&host, &["--json", "--time", "1h"]).succeed();
    for event in outcome.events_of("bench_disk") {
        assert_eq!((&event["bytes"], &event["targets"]), (&(4 * MIB).into(), &1.into()), "{event}");
        let (bytes, seconds, rate) =
            (number(&event, "bytes"), number(&event, "seconds"), number(&event, "bytes_per_s"));
        assert!((bytes / rate - seconds).abs() < 0.002, "{event}");
    }
    let summary = outcome.summary();
    let choices = summary["choices"].as_array().unwrap();
    let accesses: Vec<_> = choices.iter().map(|choice| choice["access"].as_str().unwrap()).collect();
    assert_eq!(accesses, ["read", "write"], "{summary}");
    for choice in choices {
        assert_eq!(choice["chunk_bytes"], MIB, "the only chunk size that a transfer may have: {choice}");
        assert!(number(choice, "bytes_per_s") >= 0.97 * number(choice, "best_bytes_per_s") - 1.0, "{choice}");
    }
    let table = DISK.run(&Host::new(), &[]).succeed();
    assert!(
        table.stdout_text().contains("\nto read: --depth ") && table.stdout_text().contains("\nto write: --depth ")
    );
}

#[test]
fn two_targets_are_measured_alone_and_together_and_memory_bounds_the_cells() {
    let host = Host::new();
    let (one, two) = (host.make_dir("one"), host.make_dir("two"));
    let run = host.run(["bench", "disk", "--json", "--bytes", "4MiB", "--chunk-size", "1MiB", "--depth", "1,4"]);
    let outcome = run.args(["--access", "read", "--memory", "4MiB"]).arg(&one).arg(&two).succeed();
    let cell = |event: &Value| (event["targets"].as_u64().unwrap(), event["depth"].as_u64().unwrap());
    let cells: Vec<_> = outcome.events_of("bench_disk").iter().map(cell).collect();
    assert_eq!(cells, [(1, 1), (1, 4), (2, 1)], "{outcome}");
    assert!(outcome.stderr.contains("1 cell left out"), "{outcome}");
    assert!(outcome.stderr.contains("lie on one file system"), "{outcome}");
    let both = outcome.events_of("bench_disk").pop().unwrap();
    assert_eq!(both["bytes"], 8 * MIB, "{both}");
}

#[test]
fn random_requests_are_mixed_as_they_were_asked_for() {
    let host = Host::new();
    let dir = host.make_dir("disk");
    for (share, reads, writes) in [("0%", false, true), ("50%", true, true), ("100%", true, false)] {
        let run = host.run(["bench", "iops", "--json", "--bytes", "4MiB", "--time", "200ms", "--request", "4KiB"]);
        let outcome = run.args(["--workers", "1", "--outstanding", "8", "--reads", share]).arg(&dir).succeed();
        let event = outcome.events_of("bench_iops").remove(0);
        let count = |name: &str| event["requests"][name].as_u64().unwrap() > 0;
        assert_eq!((count("reads"), count("writes")), (reads, writes), "{event}");
        assert_eq!((event["read_latency_us"].is_null(), event["write_latency_us"].is_null()), (!reads, !writes));
    }
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn a_file_that_is_named_is_read_and_never_written() {
    let host = Host::new();
    files::make(host.path("f"), 1, 3 * MIB as usize);
    let before = fs::read(host.path("f")).unwrap();
    let iops = |more: &[&str]| host.run(["bench", "iops", "--time", "100ms", "f"]).args(more);
    iops(&["--reads", "99%"]).fail(2);
    iops(&["--json"]).succeed();
    host.run(["bench", "scan", "f"]).succeed();
    assert!(fs::read(host.path("f")).unwrap() == before);
    // Access to write is not even asked for: the file of a running program takes none.
    let program = host.path("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut running = std::process::Command::new(&program).arg("1000").spawn().unwrap();
    let outcome = host.run(["bench", "scan"]).arg(&program).finish();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(outcome.code, 0, "{outcome}");
}

#[test]
fn an_interrupted_measurement_leaves_nothing_and_draws_what_it_has() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let host = Host::new();
        let dir = host.make_dir("disk");
        let run = host.run(["bench", "pileup", "--json", "--files", "2", "--bytes", "1MiB", "--threads", "1,2,4,8"]);
        let running = run.args(["--time", "1h", "--plot", "plot.svg"]).arg(&dir).start();
        // The files are there once the first threads read: nothing but their number tells.
        let sweep = host.run(["bench", "disk", "--json", "--bytes", "1MiB", "--time", "1h", "--plot", "sweep.html"]);
        let sweeping = sweep.arg(&dir).start();
        sweeping.wait_type("bench_disk");
        sweeping.signal(signal);
        let outcome = sweeping.fail(code);
        assert_eq!(outcome.summary()["exit"], code, "{outcome}");
        assert!(fs::read_to_string(host.path("sweep.html")).unwrap().contains("<svg "));
        running.signal(signal);
        let outcome = running.fail(code);
        assert_eq!(outcome.summary()["runs_done"], 0, "{outcome}");
        assert_eq!(names(&dir), [""; 0], "{outcome}");
    }
}

#[test]
fn a_killed_measurement_leaves_nothing() {
    let host = Host::new();
    let dir = host.make_dir("disk");
    let running = host.run(["bench", "disk", "--json", "--bytes", "4MiB"]).arg(&dir).start();
    running.wait_type("bench_disk");
    running.signal(Signal::KILL);
    drop(running);
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn refusals_say_why_by_their_exit_code_and_make_nothing() {
    let host = Host::new();
    let dir = host.make_dir("disk");
    files::make(host.path("f"), 1, 10);
    files::make(host.path("empty"), 1, 0);
    for (args, code, said) in [
        (&["disk", "no/such"][..], 3, "cannot open 'no/such'"),
        (&["disk", "f"], 2, "not a directory"),
        (&["disk", "--bytes", "1TiB", "disk"], 7, "'disk' has "),
        (&["iops", "no/such"], 3, "cannot open 'no/such'"),
        (&["iops", "f"], 7, "fewer than one request"),
        (&["pileup", "no/such"], 3, "cannot open 'no/such'"),
        (&["pileup", "--files", "128", "--bytes", "1TiB", "disk"], 7, "are needed"),
        (&["fill", "no/such"], 3, "cannot open 'no/such'"),
        (&["scan", "no/such"], 3, "cannot open 'no/such'"),
        (&["scan", "disk"], 7, "is not a regular file"),
        (&["scan", "empty"], 2, "is empty"),
        (&["scan", "f", "--plot", "no/such/plot.svg"], 2, "cannot write no/such/plot.svg"),
        (&["disk", "disk", "--plot", "plot.png"], 2, "ends in .svg or .html"),
    ] {
        let outcome = host.run(["bench"]).args(args).fail(code);
        assert!(outcome.stderr.contains(said), "{args:?}: {outcome}");
        assert_eq!(names(&dir), [""; 0], "{args:?}");
    }
    // A share that is reached already takes nothing.
    let outcome = host.run(["bench", "fill", "--json", "--to", "1%", "disk"]).finish();
    assert_eq!((outcome.code, outcome.events_of("bench_fill").len()), (0, 0), "{outcome}");
}

#[test]
fn a_page_has_the_plot_and_the_table() {
    let host = Host::new();
    let outcome = DISK.run(&host, &["--plot", "plot.html"]).succeed();
    let page = fs::read_to_string(host.path("plot.html")).unwrap();
    let (_, rest) = page.split_once("<svg ").unwrap();
    let (picture, rest) = rest.split_once("</svg>").unwrap();
    assert_well_formed(&format!("<svg {picture}</svg>"));
    for line in outcome.stdout_text().lines() {
        assert!(rest.contains(line), "{line}: {rest}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_fill_ends_at_its_share_or_its_reserve_and_gives_everything_back() {
    let volume = Volume::new(Kind::Ext4, SectorSize::Small);
    let (host, dir) = (Host::new(), volume.path().to_owned());
    let before = names(&dir);
    let available = || {
        let stat = rustix::fs::statvfs(&dir).unwrap();
        (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize)
    };
    let (free, all) = available();
    let fill = |to: &str, reserve: u64| {
        let reserve = reserve.to_string();
        let run = host.run(["bench", "fill", "--json", "--to", to, "--reserve", &reserve, "--plot", "plot.svg"]);
        run.arg(&dir).succeed()
    };
    let outcome = fill("50%", 0);
    assert_eq!(outcome.summary()["ended_by"], "share", "{outcome}");
    let last = outcome.events_of("bench_fill").pop().unwrap();
    assert!((40.0..=51.0).contains(&number(&last, "used_percent")), "{last}");

    let reserve = free / 2;
    let outcome = fill("100%", reserve);
    assert_eq!(outcome.summary()["ended_by"], "reserve", "{outcome}");
    let samples = outcome.events_of("bench_fill");
    assert!(samples.len() > 5, "{outcome}");
    for sample in &samples {
        assert!(number(sample, "available_bytes") >= reserve as f64, "{sample}");
    }
    assert!(number(samples.last().unwrap(), "available_bytes") < (reserve + all / 8) as f64, "{outcome}");
    let plot = fs::read_to_string(host.path("plot.svg")).unwrap();
    assert_well_formed(&plot);
    assert!(plot.lines().any(|line| line == "used (%)"), "{plot}");

    assert_eq!(names(&dir), before);
    assert!(available().0 + MIB >= free, "{} of {free} are free again", available().0);
}

/// Fails unless the text is one SVG element whose tags open and close in order.
#[track_caller]
fn assert_well_formed(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    let mut open: Vec<&str> = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (inner, text) = tag.split_once('>').unwrap_or_else(|| panic!("a tag without an end: {tag}"));
        let name = inner.trim_start_matches('/').split([' ', '/']).next().unwrap();
        match (inner.starts_with('/'), inner.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "{svg}"),
            (false, true) => {}
            (false, false) => open.push(name),
        }
        assert!(inner.matches('"').count() % 2 == 0 && !text.contains('>'), "{tag}");
    }
    assert_eq!(open, [""; 0], "{svg}");
}
