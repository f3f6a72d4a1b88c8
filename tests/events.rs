//! Output for scripts: the events of `--json`, manifests; and the output for users beside them.

use std::fs;

use serde_json::Value;

use crate::fixture::tree::Tree;
use crate::fixture::{Host, Site, Trip, Way, files};

#[test]
fn events_have_the_fields_of_the_contract_in_its_units() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/small"), 1, 100);
        files::make(trip.source().join("d/large"), 1, 5 << 20);
        let outcome = trip.send(&["--lanes", "2"], &["d"], "");
        let events = outcome.events();
        assert_eq!(events[0]["type"], "start", "{trip}: {outcome}");
        let shapes = [("start", START), ("progress", PROGRESS), ("file", FILE), ("summary", SUMMARY)];
        for (kind, fields) in shapes {
            let found = outcome.events_of(kind);
            assert!(!found.is_empty(), "{trip}: no {kind}: {outcome}");
            found.iter().for_each(|event| assert_shape(event, fields, &trip.to_string()));
        }
        assert_eq!(events[0]["lanes"], 2, "{trip}");
        assert_eq!(events[0]["chunk_bytes"], 1 << 20, "{trip}");
        let progress = outcome.events_of("progress").pop().unwrap();
        for (name, count) in [
            ("files_total", 2),
            ("files_committed", 2),
            ("bytes_total", (5 << 20) + 100),
            ("bytes_durable", (5 << 20) + 100),
            ("bytes_committed", (5 << 20) + 100),
        ] {
            assert_eq!(progress[name], count, "{trip}: {name}: {outcome}");
        }
        let summary = outcome.summary();
        assert_eq!((&summary["status"], &summary["exit"]), (&"complete".into(), &0.into()), "{trip}: {outcome}");
        for half in ["sender", "receiver"] {
            assert!(summary["cpu_s_per_gb"][half].as_f64().is_some_and(|s| s > 0.0), "{trip}: {half}: {outcome}");
        }
    }
}

#[test]
fn the_start_event_says_how_the_lanes_are_protected() {
    for trip in Trip::all() {
        files::make(trip.source().join("f"), 1, 10);
        let outcome = trip.send(&[], &["f"], "");
        let start = &outcome.events()[0];
        assert_eq!(start["protect"], trip.protect(), "{trip}: {outcome}");
        let direction = match trip.way() {
            Way::Copy => "copy",
            Way::Push => "push",
            Way::Pull => "pull",
        };
        assert_eq!(start["direction"], direction, "{trip}: {outcome}");
        let is_said = outcome.stderr.contains("NOT ENCRYPTED");
        assert_eq!(is_said, trip.protect() == "safe" && trip.way() != Way::Copy, "{trip}: {outcome}");
        let io = &outcome.summary()["io"];
        assert_eq!(io["engine"], trip.engine(), "{trip}: {outcome}");
    }
}

#[test]
fn between_two_local_directories_lanes_are_safe_unless_private_is_asked_for() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let protect = |args: &[&str]| {
        host.run(["copy", "--json"]).args(args).args(["f", "g"]).succeed().events()[0]["protect"].clone()
    };
    assert_eq!(protect(&[]), "safe");
    assert_eq!(protect(&["--protect", "private", "--if-exists", "replace"]), "private");
}

#[test]
fn over_a_network_lanes_are_private_unless_safe_is_asked_for() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let outcome = site.client.run(["push", "--json", "f", &site.url("")]).succeed();
    assert_eq!(outcome.events()[0]["protect"], "private", "{outcome}");
}

#[test]
fn every_failure_ends_in_a_fault_and_a_summary() {
    let host = Host::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["copy", "--json", "missing", "new"], 3, "not-found"),
        (&["copy", "--json", "--chunk-size", "3MiB", "a", "b"], 2, "usage"),
        (&["copy", "--json", "--no-such-option", "a", "b"], 2, "usage"),
        (&["copy", "--json", "only-one"], 2, "usage"),
        (&["push", "--json", "a", "host::b"], 2, "usage"),
        (&["pull", "--json", "lh://h/../x", "b"], 2, "usage"),
        (&["ls", "--json", "missing"], 3, "not-found"),
    ];
    for (args, code, name) in cases {
        let outcome = host.run(*args).fail(*code);
        assert_eq!(outcome.summary()["exit"], *code, "{outcome}");
        let faults = outcome.events_of("fault");
        assert_eq!(faults.len(), 1, "{outcome}");
        assert_shape(&faults[0], FAULT, &outcome.to_string());
        assert_eq!(faults[0]["code"], *name, "{outcome}");
        assert!(outcome.stderr.starts_with("error: ") || outcome.stderr.contains("\nerror: "), "{outcome}");
    }
}

#[test]
fn the_environment_may_ask_for_events() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["copy", "f", "g"]).env("LONGHAUL_JSON", "true").succeed();
    assert_eq!(outcome.counts(), (1, 0, 0), "{outcome}");
}

#[test]
fn standard_output_is_data_and_quiet_is_silent() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["copy", "f", "g"]).succeed();
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("1 file"), "{outcome}");
    let quiet = host.run(["copy", "-q", "--if-exists", "replace", "f", "g"]).succeed();
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet}");
    let failed = host.run(["copy", "-q", "missing", "g"]).fail(3);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("missing"), "{failed}");
    assert!(!failed.stderr.contains('\x1b'), "{failed}");
}

#[test]
fn a_manifest_names_every_file_that_stands_and_b3sum_agrees() {
    for trip in Trip::each_way() {
        lay_out_manifest(&trip);
        // One stands already: it is not sent, yet it is among the files that stand afterwards.
        trip.send(&[], &["d/skipped"], "d/");
        let outcome = trip.send(&["--manifest", "list"], &["d"], "");
        let list = trip.host().path("list");
        let text = fs::read_to_string(&list).unwrap();
        assert_eq!(text.lines().count(), 6, "{trip}: {text}: {outcome}");
        assert!(text.contains("skipped"), "{trip}: {text}");
        let checked = files::b3sum_check(&list, &trip.dest());
        assert_eq!(checked, Ok(()), "{trip}: {text}");
        files::make(trip.dest().join("d/small"), 99, 100);
        assert!(files::b3sum_check(&list, &trip.dest()).is_err(), "{trip}: a manifest that accepts anything");
    }
}

#[test]
fn a_manifest_of_a_renamed_file_names_it_as_it_stands() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 100);
        trip.send(&["--manifest", "list"], &["f"], "g");
        let text = fs::read_to_string(trip.host().path("list")).unwrap();
        assert_eq!(text, format!("{}  g\n", files::b3sum(trip.source().join("f"))), "{trip}");
    }
}

#[test]
fn a_failed_file_has_no_line_in_the_manifest() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/good"), 1, 100);
        files::make(trip.source().join("d/taken"), 1, 100);
        files::make(trip.dest().join("d/taken"), 2, 50);
        trip.run(&["--if-exists", "fail", "--manifest", "list"], &["d"], "").fail(23);
        let text = fs::read_to_string(trip.host().path("list")).unwrap();
        assert_eq!(text, format!("{}  d/good\n", files::b3sum(trip.source().join("d/good"))), "{trip}");
    }
}

#[test]
fn a_manifest_that_cannot_be_written_is_said_before_anything_is_moved() {
    let host = Host::new();
    files::make(host.path("f"), 1, 100);
    let outcome = host.run(["copy", "--json", "--manifest", "no/such/dir/list", "f", "g"]).fail(2);
    assert!(!host.path("g").exists(), "{outcome}");
}

#[test]
fn progress_is_told_while_a_long_transfer_runs() {
    let trip = Trip::each_way().nth(1).unwrap();
    // A hole is hashed and not sent: long enough for a second without writing anything. The run
    // need not end.
    files::make_sparse(trip.source().join("f"), 1 << 40, &[]);
    let running = trip.run(&[], &["f"], "g").start();
    let progress = running.wait_event(|event| {
        let moved = event["type"] == "progress" && event["bytes_durable"].as_u64()? > 0;
        moved.then(|| event.clone())
    });
    assert_shape(&progress, PROGRESS, &trip.to_string());
    assert!(progress["bytes_durable"].as_u64() < progress["bytes_total"].as_u64(), "{trip}: {progress}");
    assert!(!trip.dest().join("g").exists(), "{trip}: a final name before the end");
}

fn lay_out_manifest(trip: &Trip) {
    for (n, name) in ["small", "back\\slash", "new\nline", " space ", "skipped"].iter().enumerate() {
        files::make(trip.source().join("d").join(name), n as u64, 100);
    }
    files::make(trip.source().join("d/sub/large"), 7, (2 << 20) + 1);
    files::link("small", trip.source().join("d/link"));
    assert_eq!(Tree::of(trip.source()).0.len(), 10);
}

/// A field and whether it has the right form.
type Field = (&'static str, fn(&Value) -> bool);

const START: &[Field] = &[
    ("session", is_text),
    ("direction", is_text),
    ("transport", is_text),
    ("protect", is_text),
    ("lanes", Value::is_u64),
    ("chunk_bytes", Value::is_u64),
];
const PROGRESS: &[Field] = &[
    ("t_s", is_number),
    ("files_total", Value::is_u64),
    ("files_committed", Value::is_u64),
    ("bytes_total", Value::is_u64),
    ("bytes_sent", Value::is_u64),
    ("bytes_received", Value::is_u64),
    ("bytes_durable", Value::is_u64),
    ("bytes_committed", Value::is_u64),
    ("bytes_digested", Value::is_u64),
    ("bytes_per_s", is_number),
    ("eta_s", |value| value.is_null() || is_number(value)),
    ("limited_by", is_limit),
    ("limited_share", |value| value.is_null() || is_number(value)),
];
const FILE: &[Field] = &[
    ("path", Value::is_string),
    ("status", |value| ["committed", "skipped", "failed"].contains(&value.as_str().unwrap_or_default())),
    ("bytes", Value::is_u64),
    ("b3", |value| value.is_null() || value.as_str().is_some_and(|hex| hex.len() == 64)),
    ("target", Value::is_string),
];
const FAULT: &[Field] = &[
    ("code", is_text),
    ("blame", |value| ["local", "peer", "path", "bug"].contains(&value.as_str().unwrap_or_default())),
    ("retry", Value::is_boolean),
    ("object", Value::is_string),
    ("message", is_text),
    ("hint", Value::is_string),
];
const SUMMARY: &[Field] = &[
    ("status", is_text),
    ("exit", Value::is_u64),
    ("files_committed", Value::is_u64),
    ("files_skipped", Value::is_u64),
    ("files_failed", Value::is_u64),
    ("bytes_committed", Value::is_u64),
    ("bytes_resumed", Value::is_u64),
    ("bytes_resent", Value::is_u64),
    ("bytes_read_back", Value::is_u64),
    ("bytes_misread", Value::is_u64),
    ("bytes_digested", Value::is_u64),
    ("seconds", is_number),
    ("bytes_per_s", is_number),
    ("cpu_s_per_gb", Value::is_object),
    ("limited_by", is_limit),
    ("limited_share", |value| value.is_null() || is_number(value)),
    ("limits", Value::is_object),
    ("stages", Value::is_object),
    ("files_at_risk", Value::is_u64),
];

fn is_limit(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|name| LIMITS.contains(&name))
}

const LIMITS: [&str; 10] = [
    "source",
    "hash",
    "cpu",
    "network:loss",
    "network:window",
    "network:rate",
    "receiver",
    "target",
    "memory",
    "network:shared",
];

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn is_number(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number >= 0.0)
}

fn assert_shape(event: &Value, fields: &[Field], context: &str) {
    for (name, has_form) in fields {
        assert!(event.get(name).is_some_and(has_form), "{context}: {name} of {event}");
    }
}
