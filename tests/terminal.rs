//! The output on a terminal: the bar at all widths, labels and their colour, and the last lines of
//! a run.

use rustix::process::Signal;

use crate::fixture::{Host, Site, Terminal, Trip, files};

/// Options of a run that is slow enough to be watched on any machine.
const SLOWLY: [&str; 4] = ["--rate", "2MB/s", "--chunk-size", "1MiB"];
const MIB: u64 = 1 << 20;

#[test]
fn the_bar_is_one_line_of_a_terminal_and_nothing_of_it_stays() {
    for columns in [40, 80, 200] {
        let (site, mut terminal) = (Site::new(), Terminal::new(columns));
        files::make(site.client.path("f"), 1, 64 << 20);
        let run = site.client.run(["push"]).args(SLOWLY).args(["f", &site.url("f")]);
        let running = run.terminal(&mut terminal).start();
        // An ETA is there after some seconds, not before.
        let bar = terminal.wait_drawn(|bar| bar.contains(" left") && (columns < 80 || bar.contains("limit")));
        assert!(bar.contains("% ") && bar.contains("bit/s ("), "{bar:?}");
        assert_eq!(columns >= 80, bar.contains(" elapsed") && bar.contains("limit"), "{bar:?}");
        terminal.interrupt();
        running.signal(Signal::INT);
        running.fail(130);
        let drawn = terminal.drawn();
        assert!(drawn.iter().all(|bar| bar.len() < columns.into()), "{columns}: {drawn:?}");
        assert!(!drawn[0].contains(" left"), "{drawn:?}");
        assert_clean(&terminal.text_at_end());
    }
}

#[test]
fn a_terminal_that_is_made_narrower_and_wider_shows_one_bar() {
    let (site, mut terminal) = (Site::new(), Terminal::new(200));
    files::make(site.client.path("f"), 1, 64 << 20);
    let run = site.client.run(["push"]).args(SLOWLY).args(["f", &site.url("f")]);
    let running = run.terminal(&mut terminal).start();
    terminal.wait_drawn(|bar| bar.len() > 100);
    terminal.resize(40);
    terminal.wait_drawn(|bar| bar.len() < 40);
    terminal.resize(100);
    terminal.wait_drawn(|bar| (40..100).contains(&bar.len()));
    running.signal(Signal::TERM);
    running.fail(143);
    assert_clean(&terminal.text_at_end());
}

/// Fails unless the lines are whole lines of the program and nothing else.
#[track_caller]
fn assert_clean(lines: &[String]) {
    const BEGINNINGS: [&str; 7] = ["8 lanes ", "4 lanes ", "error: ", "hint: ", "note: ", "held: ", "0 files done, "];
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!(last, "", "behind the last line: {lines:?}");
    for line in lines {
        assert!(BEGINNINGS.iter().any(|begin| line.starts_with(begin)), "{line:?} of {lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("held: ")), "{lines:?}");
}

#[test]
fn bytes_count_as_they_arrive_at_a_rate_at_which_a_chunk_takes_a_quarter_of_a_minute() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 4 << 20);
        let running = trip.run(&["--rate", "64KiB/s", "--lanes", "4"], &["f"], "f").start();
        for counter in ["bytes_received", "bytes_arrived"] {
            let count = running.wait_event(|event| event[counter].as_u64().filter(|bytes| *bytes > 0));
            assert!(count < MIB, "{trip}: {counter}: {count}");
        }
        let rate = running.wait_event(|event| event["bytes_per_s"].as_u64().filter(|rate| *rate > 0));
        assert!(rate < 512 << 10, "{trip}: {rate}");
    }
}

#[test]
fn a_run_that_was_interrupted_says_what_is_held_and_the_next_one_what_it_moved() {
    for trip in Trip::each_way() {
        const LEN: u64 = 24 * MIB;
        files::make(trip.source().join("f"), 1, LEN as usize);
        let running = trip.run(&["--rate", "8MB/s", "--lanes", "2"], &["f"], "f").start();
        running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes > 4 * MIB));
        running.signal(Signal::INT);
        let outcome = running.fail(130);
        let summary = outcome.summary();
        let number = |name: &str| summary[name].as_u64().unwrap();
        assert!(number("bytes_moved") >= number("bytes_held") && number("bytes_held") > 4 * MIB, "{trip}: {outcome}");
        assert_eq!(number("bytes_wanted"), LEN, "{trip}: {outcome}");
        let held = outcome.stderr.lines().find(|line| line.starts_with("held: "));
        assert!(held.is_some_and(|line| line.contains(" of 24.0 MiB; what is held is not sent again")), "{outcome}");

        let outcome = trip.run(&["--rate", "80MB/s"], &["f"], "f").fail(0);
        let summary = outcome.summary();
        let number = |name: &str| summary[name].as_u64().unwrap();
        assert_eq!(number("bytes_moved") + number("bytes_resumed"), LEN, "{trip}: {outcome}");
        let rate = number("bytes_moved") as f64 / summary["seconds"].as_f64().unwrap();
        assert!((number("bytes_per_s") as f64 - rate).abs() <= rate * 0.01 + 1.0, "{trip}: {rate}: {outcome}");
        assert!(outcome.stderr.contains("1 file done, 24.0 MiB; "), "{trip}: {outcome}");
        assert!(outcome.stderr.contains(" moved in ") && outcome.stderr.contains(" resumed"), "{trip}: {outcome}");
    }
}

#[test]
fn an_outage_is_no_answer_and_no_slow_network() {
    for verb in ["push", "pull"] {
        let (site, mut terminal) = (Site::new(), Terminal::new(80));
        let source = if verb == "push" { site.client.path("f") } else { site.root().join("f") };
        files::make(source, 1, 64 << 20);
        let url = site.url("f");
        let ends = if verb == "push" { ["f", &url] } else { [&url, "f"] };
        let run = site.client.run([verb, "--json"]).args(SLOWLY).args(ends);
        let running = run.terminal(&mut terminal).start();
        running.wait_event(|event| event["limited_by"].as_str().map(str::to_owned));
        site.daemon.signal(Signal::STOP);
        let seconds = |bar: &str| bar.split_once("no answer for ")?.1.split(' ').next()?.parse::<u64>().ok();
        terminal.wait_drawn(|bar| seconds(bar).is_some_and(|seconds| seconds >= 4));
        let silent = |event: &serde_json::Value| event["silent_s"].as_f64().filter(|seconds| *seconds >= 4.0);
        let limit = running.wait_event(|event| silent(event).map(|_| event["limited_by"].clone()));
        assert!(limit.is_null(), "{verb}: {limit}");
        let received = running.last_so_far("bytes_received").unwrap_or(0);
        site.daemon.signal(Signal::CONT);
        running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > received + MIB));
    }
}

#[test]
fn holes_did_not_move() {
    for trip in Trip::each_way() {
        files::make_sparse(trip.source().join("f"), 1 << 30, &[]);
        let outcome = trip.send(&[], &["f"], "f");
        let summary = outcome.summary();
        let got = ["bytes_committed", "bytes_moved", "bytes_holes", "bytes_per_s"].map(|name| summary[name].as_u64());
        assert_eq!(got, [Some(1 << 30), Some(0), Some(1 << 30), Some(0)], "{trip}: {outcome}");
        assert!(outcome.stderr.contains("1 file done, 1.0 GiB; 0 B moved in "), "{trip}: {outcome}");
    }
}

#[test]
fn a_run_with_nothing_to_do_says_so() {
    for trip in Trip::each_way() {
        ["a", "b", "c"].iter().for_each(|name| files::make(trip.source().join(name), 1, 10));
        trip.send(&[], &["a", "b", "c"], "");
        let outcome = trip.send(&[], &["a", "b", "c"], "");
        assert!(outcome.stderr.ends_with("\nnothing to do: 3 files are there already\n"), "{trip}: {outcome}");
    }
}

#[test]
fn names_that_failed_are_listed_at_the_end() {
    let host = Host::new();
    for n in 0..12 {
        files::make(host.path(format!("d/f{n:02}")), 1, 10);
        files::make(host.path(format!("to/d/f{n:02}")), 2, 20);
    }
    files::make(host.path("d/good"), 1, 10);
    let outcome = host.run(["copy", "--if-exists", "fail", "d", "to/"]).fail(23);
    let lines: Vec<_> = outcome.stderr.lines().skip_while(|line| *line != "12 names failed:").collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("  d/f")).count(), 10, "{outcome}");
    assert!(lines[11].starts_with("  and 2 more: "), "{outcome}");
    assert!(lines[12].starts_with("1 file done, 10 B in ") && lines[12].contains(", 12 failed"), "{outcome}");
}

#[test]
fn local_lanes_are_called_unencrypted_only_where_they_are() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let said = |args: &[&str]| host.run(["copy"]).args(args).succeed().stderr.contains("not encrypted");
    assert!(said(&["f", "g"]));
    assert!(!said(&["--protect", "private", "f", "h"]));
}

#[test]
fn labels_are_coloured_where_that_is_asked_for_or_a_terminal_shows_it() {
    let host = Host::new();
    let red = "\x1b[1;31merror:\x1b[0m ";
    let said = |args: &[&str], variables: &[(&str, &str)]| {
        let run = host.run(["copy"]).args(args).args(["missing", "x"]);
        variables.iter().fold(run, |run, (name, value)| run.env(name, value)).fail(3).stderr
    };
    let (plain, colored) = (|text: &str| format!("\n{text}").contains("\nerror: "), |text: &str| text.contains(red));
    assert!(plain(&said(&[], &[])), "it goes into a pipe");
    assert!(colored(&said(&["--color", "always"], &[("NO_COLOR", "1")])));
    assert!(colored(&said(&[], &[("LONGHAUL_COLOR", "always")])));
    assert!(plain(&said(&["--color=never"], &[("LONGHAUL_COLOR", "always")])));
    assert!(colored(&said(&[], &[("CLICOLOR_FORCE", "1")])));
    let config = host.config("config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    files::write(&config, "color = 'always'\n");
    assert!(colored(&said(&[], &[])));
    files::write(&config, "color = 'pink'\n");
    let outcome = host.run(["copy", "missing", "x"]).fail(2);
    assert!(outcome.stderr.contains("'pink' is not one of auto, always, never"), "{outcome}");
    let outcome = host.run(["copy", "--color", "always", "--no-such-option", "a", "b"]).fail(2);
    assert!(outcome.stderr.starts_with(red), "{outcome}");
}

#[test]
fn what_a_client_logs_has_the_labels_of_its_other_lines() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["copy", "f", "g"]).env("LONGHAUL_LOG", "longhaul=debug").succeed();
    let logged = |line: &str| line.starts_with("debug: ") || line.starts_with("info: ");
    assert!(outcome.stderr.lines().any(logged), "{outcome}");
    let levels = [" DEBUG ", " INFO ", " WARN "];
    assert!(!levels.iter().any(|level| outcome.stderr.contains(level)), "as a daemon logs: {outcome}");
}

#[test]
fn numbers_of_the_system_are_not_shown() {
    let host = Host::new();
    for args in [&["copy", "missing", "x"][..], &["ls", "missing"], &["serve", "--config", "missing"]] {
        let outcome = host.run(args).finish();
        assert!(outcome.code > 0 && !outcome.stderr.contains("os error"), "{outcome}");
    }
}
