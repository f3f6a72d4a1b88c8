//! `longhaul bench`: figures that add up, for clients that may measure, within the allowed bounds;
//! and no file left behind.

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{DaemonConfig, Host, Run, Site, files, tree};

const MIB: u64 = 1 << 20;

/// A site whose client may measure, at most `most` bytes a run.
fn site(most: &str) -> Site {
    Site::with(DaemonConfig::default().may_bench().line(&format!("[limits]\nbench_bytes = '{most}'")))
}

/// `bench net` of the site's client, in small chunks.
fn net(site: &Site, args: &[&str]) -> Run {
    let run = site.client.run(["bench", "net", "--chunk-size", "1MiB", "--memory", "16MiB"]);
    run.args(args).arg(site.daemon.url(""))
}

fn number(event: &Value, name: &str) -> f64 {
    event[name].as_f64().unwrap_or_else(|| panic!("{name} of {event}"))
}

/// Fails unless the event has these fields, with any values.
#[track_caller]
fn assert_has(event: &Value, names: &[&str]) {
    for name in names {
        assert!(event.get(name).is_some(), "{name} of {event}");
    }
}

#[test]
fn a_client_that_may_measure_gets_figures_that_add_up() {
    let site = site("1GiB");
    let outcome = net(&site, &["--json", "--bytes", "24MiB", "--lanes", "1,3", "--protect", "private,safe"]).succeed();
    let runs = outcome.events_of("bench_net");
    assert_eq!(runs.len(), 8, "{outcome}");
    for run in &runs {
        assert_eq!((&run["bytes"], &run["bytes_allowed"]), (&(24 * MIB).into(), &(24 * MIB).into()), "{run}");
        assert_eq!((&run["lanes"], &run["lanes_asked"]), (&run["lanes_first"], &run["lanes_first"]), "{run}");
        let (bytes, seconds, speed) = (number(run, "bytes"), number(run, "seconds"), number(run, "bytes_per_s"));
        assert!(seconds > 0.0 && (bytes / speed - seconds).abs() < 0.002, "{run}");
        assert_has(run, &["limited_by", "limits", "setup_s", "rate_asked_bytes_per_s", "seconds_asked", "session"]);
        let stages = run["stages"].as_object().unwrap();
        assert!(["hash", "net", "files"].iter().all(|name| stages.contains_key(*name)), "{run}");
        let cpu = &run["cpu_s_per_gb"];
        assert!(number(cpu, "sender") > 0.0 && number(cpu, "receiver") > 0.0, "{run}");
        let lanes = run["per_lane"].as_array().unwrap();
        assert_eq!(lanes.len() as u64, run["lanes"].as_u64().unwrap(), "{run}");
        let wire: f64 = lanes.iter().map(|lane| number(lane, "wire_bytes")).sum();
        assert!(number(run, "rtt_us_min") > 0.0, "{run}");
        match run["direction"].as_str().unwrap() {
            // What was looked at last is all that there is, as the lanes were open still.
            "push" => {
                assert!(wire >= bytes && wire < bytes * 1.1, "{wire}: {run}");
                assert!(number(run, "wire_bytes_sent") >= bytes && (0.0..1.0).contains(&number(run, "loss")), "{run}");
                assert!(number(run, "path_mtu_bytes") > number(run, "segment_bytes"), "{run}");
                let congestion = run["congestion"].as_object().unwrap();
                let lanes: u64 = congestion.values().map(|count| count.as_u64().unwrap()).sum();
                assert_eq!(lanes, run["lanes"], "{run}");
            }
            _ => {
                assert!(wire >= bytes && wire < bytes * 1.1, "{wire}: {run}");
                for unknown in ["wire_bytes_sent", "loss", "rtt_us_mean", "jitter_us", "path_mtu_bytes", "congestion"] {
                    assert!(run[unknown].is_null(), "only the sender knows {unknown}: {run}");
                }
            }
        }
    }
    let summary = outcome.summary();
    assert_eq!((&summary["runs"], &summary["runs_done"]), (&8.into(), &8.into()), "{summary}");
    let best = runs.iter().map(|run| run["bytes_per_s"].as_u64().unwrap()).max().unwrap();
    assert_eq!(summary["best"]["bytes_per_s"], best, "{summary}");
    assert_eq!(tree::leftovers(site.root()), [""; 0]);
    assert_eq!(std::fs::read_dir(site.root()).unwrap().count(), 0, "no root is touched");
}

#[test]
fn people_get_a_table_with_a_line_for_each_run() {
    let site = site("1GiB");
    let outcome = net(&site, &["--bytes", "8MiB", "--lanes", "2"]).succeed();
    let lines: Vec<&str> = outcome.stdout_text().lines().collect();
    assert_eq!(lines.len(), 3, "{outcome}");
    for (line, start) in lines.iter().zip(["way   kind  protect", "push  tcp   private", "pull  tcp   private"]) {
        assert!(line.starts_with(start), "{outcome}");
    }
    assert!(lines[1].contains("8.0 MiB"), "{outcome}");
    assert!(lines.iter().all(|line| line.len() <= 110), "{outcome}");
    assert!(outcome.stderr.contains("run 2 of 2: pull, tcp, private, lanes 2"), "{outcome}");
}

#[test]
fn what_ends_by_the_clock_is_no_failure_and_counts_what_arrived() {
    let site = site("1GiB");
    let outcome = net(&site, &["--json", "--seconds", "1", "--rate", "16MB/s", "--lanes", "2"]).succeed();
    for run in outcome.events_of("bench_net") {
        let bytes = run["bytes"].as_u64().unwrap();
        assert!(bytes > 0 && bytes.is_multiple_of(MIB), "whole chunks: {run}");
        assert!(bytes <= run["bytes_moved"].as_u64().unwrap() && bytes < 1 << 30, "{run}");
        assert_eq!((&run["seconds_asked"], &run["rate_asked_bytes_per_s"]), (&1.into(), &16_000_000.into()), "{run}");
    }
    assert_eq!(outcome.summary()["runs_done"], 2);
    site.daemon.wait_log("ended: bench push of 1.0 GiB at most: complete");
    assert!(!site.daemon.log().contains("failed=1"), "{}", site.daemon.log());
}

#[test]
fn who_may_not_measure_is_told_the_line_that_would_allow_it() {
    let site = Site::new();
    let outcome = net(&site, &["--json", "--bytes", "1MiB"]).fail(4);
    let fault = outcome.events_of("fault").remove(0);
    assert_eq!(fault["code"], "denied", "{outcome}");
    let hint = fault["hint"].as_str().unwrap();
    assert!(hint.contains("'bench = true' in the [[client]] 'tester' of serve.toml"), "{hint}");
    assert!(outcome.stderr.contains("bench = true"), "{outcome}");
    assert_eq!(outcome.events_of("bench_net").len(), 0);
    assert_eq!(outcome.summary()["runs_done"], 0);
}

#[test]
fn the_daemons_bound_is_what_is_moved() {
    let site = site("3MiB");
    let outcome = net(&site, &["--json", "--bytes", "64MiB"]).succeed();
    for run in outcome.events_of("bench_net") {
        assert_eq!((&run["bytes"], &run["bytes_allowed"]), (&(3 * MIB).into(), &(3 * MIB).into()), "{run}");
    }
}

#[test]
fn a_measurement_that_is_interrupted_says_so_and_ends() {
    let site = site("64GiB");
    let running = net(&site, &["--json", "--seconds", "3600", "--rate", "1MB/s", "--direction", "push"]).start();
    site.daemon.wait_log("opened: bench push");
    running.signal(Signal::INT);
    let outcome = running.fail(130);
    assert_eq!(outcome.summary()["status"], "interrupted");
    site.daemon.wait_log("ended: bench push");
}

#[test]
fn what_cannot_be_measured_is_a_usage_error() {
    let host = Host::new();
    for args in [
        &["net"][..],
        &["net", "/tmp"],
        &["net", "lh://h/root"],
        &["net", "--transport", "sctp", "lh://h"],
        &["net", "--transport", "udp", "--protect", "safe", "lh://h"],
        &["net", "--transport", "quic", "--protect", "safe", "lh://h"],
        &["net", "--lanes", "0", "lh://h"],
        &["net", "--seconds", "0", "lh://h"],
        &["net", "--bytes", "1K", "lh://h"],
        &["matrix", "--bytes", "0"],
        &["matrix", "--rounds", "0"],
        &["matrix", "--memory", "1MiB"],
        &["disk"],
        &["iops"],
        &["scan", "f", "--json", "--depth", "2"],
        &["tape"],
    ] {
        host.run(["bench"]).args(args).fail(2);
    }
}

#[test]
fn a_matrix_measures_all_cells_and_leaves_nothing_behind() {
    let host = Host::new();
    let dir = host.make_dir("disk");
    files::make(dir.join("mine"), 1, 100);
    let matrix = |more: &[&str]| {
        let run = host.run(["bench", "matrix", "--bytes", "8MiB", "--chunk-size", "1MiB", "--memory", "8MiB", "--dir"]);
        run.arg(&dir).args(more)
    };
    let outcome = matrix(&["--json", "--rounds", "2"]).succeed();
    let runs = outcome.events_of("bench_matrix");
    assert_eq!(runs.len(), 16, "{outcome}");
    for run in &runs {
        assert_eq!(run["bytes"], 8 * MIB, "{run}");
        assert!(number(run, "seconds") > 0.0 && number(run, "ratio") > 0.0, "{run}");
        assert_has(run, &["direct", "limited_by", "limits", "round"]);
        let (sender, receiver) = (&run["stages"]["sender"], &run["stages"]["receiver"]);
        assert_has(sender, &["read", "hash", "net", "files"]);
        assert_has(receiver, &["write", "hash", "net", "files"]);
        let cpu = &run["cpu_s_per_gb"];
        assert!(number(cpu, "sender") > 0.0 && number(cpu, "receiver") > 0.0 && number(cpu, "rest") >= 0.0, "{run}");
        assert!(run["from"] == "disk" || number(sender, "read") == 0.0, "{run}");
    }
    // One run of 8 MiB may take less than the half millisecond that is told as none.
    assert!(runs.iter().any(|run| number(&run["stages"]["sender"], "read") > 0.0), "{outcome}");
    let summary = outcome.summary();
    let cells = summary["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 8, "{summary}");
    for protect in ["private", "safe"] {
        let same = cells.iter().filter(|cell| cell["protect"] == protect);
        let ends: Vec<_> = same.map(|cell| (cell["from"].as_str().unwrap(), cell["to"].as_str().unwrap())).collect();
        assert_eq!(ends, [("memory", "memory"), ("disk", "memory"), ("memory", "disk"), ("disk", "disk")]);
        let base = cells.iter().find(|cell| cell["protect"] == protect).unwrap();
        assert_eq!(base["ratio"], 1.0, "{base}");
    }
    assert_eq!(names(&dir), ["mine"]);

    let table = matrix(&["--rounds", "1"]).succeed();
    assert_eq!(table.stdout_text().lines().count(), 10, "{table}");
    assert!(table.stdout_text().lines().all(|line| line.len() <= 110), "{table}");
    assert_eq!(names(&dir), ["mine"]);
}

#[test]
fn a_matrix_that_is_interrupted_leaves_nothing_behind() {
    let host = Host::new();
    let dir = host.make_dir("disk");
    for signal in [Signal::INT, Signal::TERM] {
        let run = host.run(["bench", "matrix", "--json", "--rounds", "100", "--bytes", "64MiB", "--dir"]).arg(&dir);
        let running = run.start();
        running.wait_event(|event| (event["to"] == "disk").then_some(()));
        assert_eq!(names(&dir).len(), 1, "its directory");
        running.signal(signal);
        let outcome = running.fail(if signal == Signal::INT { 130 } else { 143 });
        outcome.summary();
        assert_eq!(names(&dir), [""; 0], "{outcome}");
    }
}

#[test]
fn a_matrix_that_does_not_fit_makes_nothing() {
    let host = Host::new();
    let dir = host.make_dir("disk");
    // This machine has no disk of two of them, and if it has, no time.
    let outcome = host.run(["bench", "matrix", "--json", "--bytes", "1TiB", "--dir"]).arg(&dir).fail(7);
    assert_eq!(outcome.events_of("fault")[0]["code"], "no-space", "{outcome}");
    assert_eq!(names(&dir), [""; 0]);
    host.run(["bench", "matrix", "--dir", "no/such/dir"]).fail(3);
}

fn names(dir: &std::path::Path) -> Vec<String> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
