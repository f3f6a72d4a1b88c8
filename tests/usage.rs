//! The program's texts about itself: help, version, options of other tools, and log lines.

use std::fs;

use crate::fixture::{Host, Site, files};

#[test]
fn every_version_names_the_program_its_commit_and_its_protocol() {
    let host = Host::new();
    let told = host.run(["--version"]).succeed().stdout_text().to_owned();
    assert!(told.starts_with(&format!("longhaul {} (commit ", env!("CARGO_PKG_VERSION"))), "{told}");
    assert!(told.contains(", protocol ") && told.ends_with(")\n") && told.lines().count() == 1, "{told}");
    for args in [&["-V"][..], &["push", "--version"], &["key", "show", "--version"], &["bench", "net", "-V"]] {
        assert_eq!(host.run(args).succeed().stdout_text(), told, "{args:?}");
    }
}

#[test]
fn scripts_are_told_the_version_as_one_object() {
    let host = Host::new();
    for args in [&["--version", "--json"][..], &["-V", "--json"], &["push", "--json", "--version"]] {
        let told = host.run(args).succeed().stdout_text().to_owned();
        assert_eq!(told.lines().count(), 1, "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["v"], &told["type"]), (&1.into(), &"version".into()), "{told}");
        assert_eq!(told["version"], env!("CARGO_PKG_VERSION"), "{told}");
        assert!(told["protocol"].as_u64().is_some_and(|protocol| protocol > 0), "{told}");
        assert!(told["commit"].is_null() || told["commit"].is_string(), "{told}");
        assert!(told["features"].is_array() && told["allocator"].as_str().unwrap().starts_with("system "), "{told}");
        let crypto = told["crypto"].as_str().unwrap();
        assert!(crypto.starts_with("aws-lc-rs ") && crypto.split('.').count() == 3, "{told}");
        assert!(told["target"].as_str().unwrap().contains("-linux-"), "{told}");
    }
}

#[test]
fn short_help_is_short_and_long_help_has_examples_and_everything() {
    let host = Host::new();
    for command in ["push", "pull", "copy"] {
        let short = host.run([command, "-h"]).succeed().stdout_text().to_owned();
        let long = host.run([command, "--help"]).succeed().stdout_text().to_owned();
        assert!(short.lines().count() * 2 < long.lines().count(), "{command}: {short}");
        for everyday in ["--rate", "--exclude", "--dry-run", "--if-exists", "--json", "Exit codes"] {
            assert!(short.contains(everyday), "{command} {everyday}: {short}");
        }
        for rare in ["--engine", "--stall-timeout", "Examples:"] {
            assert!(!short.contains(rare) && long.contains(rare), "{command} {rare}: {short}");
        }
        assert!(long.contains(&format!("longhaul {command} ")), "{command}: {long}");
        let syncs = long.contains("--sync-interval");
        assert_eq!(syncs, command != "push", "where nothing is written, nothing is synced: {command}");
    }
    for args in [&["ls", "--help"][..], &["serve", "--help"], &["bench", "net", "--help"]] {
        let help = host.run(args).succeed();
        assert!(!help.stdout_text().contains("Name each file"), "{help}");
    }
}

#[test]
fn options_of_other_tools_are_2_and_say_what_to_write() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    for (option, want) in [
        ("--delete", "nothing is ever deleted"),
        ("-z", "nothing is compressed"),
        ("--bwlimit=10M", "--rate 80Mbit/s or --rate 10MB/s"),
        ("-P", "run the same command again"),
    ] {
        let outcome = host.run(["push", option, "--json", "f", "g"]).fail(2);
        assert!(outcome.stderr.contains(want), "{outcome}");
        assert!(!outcome.stderr.contains("as a value") && outcome.stderr.lines().count() == 2, "{outcome}");
        assert_eq!(outcome.summary()["exit"], 2, "{outcome}");
    }
    let outcome = host.run(["push", "--rate", "100M", "f", "g"]).fail(2);
    assert!(outcome.stderr.contains("100Mbit/s or 100MB/s"), "{outcome}");
    host.run(["push", "--rate", "1Gbps", "--retry-for", "10m", "f", "g"]).succeed();
    host.run(["push", "--exclude", "-x", "f", "h"]).env("LONGHAUL_RETRY_FOR", "1d").succeed();
}

#[test]
fn a_sync_interval_of_a_push_is_said_to_be_the_daemons() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let outcome = site.client.run(["push", "--sync-interval", "1s", "f"]).arg(site.url("")).succeed();
    assert!(outcome.stderr.contains("sync_interval"), "{outcome}");
    let outcome = site.client.run(["pull", "--sync-interval", "1s"]).args([&site.url("f"), "g"]).succeed();
    assert!(!outcome.stderr.contains("sync_interval"), "{outcome}");
}

#[test]
fn verbose_twice_says_what_happens_inside_in_the_programs_voice() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let outcome = site.client.run(["push", "-vv", "f"]).arg(site.url("")).succeed();
    for said in
        ["debug: dialling (", "debug: connected over TCP", "the daemon agrees to a session (", "a lane joined ("]
    {
        assert!(outcome.stderr.contains(said), "{said}: {outcome}");
    }
    let once = site.client.run(["push", "-v", "f"]).arg(site.url("g")).succeed();
    assert!(!once.stderr.contains("dialling") && once.stderr.contains("done: g"), "{once}");
    for line in outcome.stderr.lines().chain(once.stderr.lines()) {
        assert!(!line.contains("longhaul::") && !line.contains(" DEBUG "), "no raw line of a log: {line}");
    }
}

#[test]
fn a_clients_warning_is_in_its_own_voice() {
    let host = Host::new();
    files::make(host.path("d/f"), 1, 10);
    // A file that has the name of a journal but is not one is worth a warning, and stays.
    files::write(host.make_dir("new/.longhaul").join("0123456789abcdef.journal"), [7; 9000]);
    files::set_mode(host.path("new/.longhaul"), 0o700);
    let outcome = host.run(["copy", "d", "new/"]).succeed();
    let said = "warning: a journal is left alone (tag 0123456789abcdef): not a journal of longhaul\n";
    assert!(outcome.stderr.contains(said) && !outcome.stderr.contains(" WARN "), "{outcome}");
}

#[test]
fn a_listing_takes_several_locations_goes_down_and_shows_sizes_for_people() {
    let site = Site::new();
    for dir in [site.client.path("here"), site.root()] {
        files::make(dir.join("a"), 1, 5000);
        files::make(dir.join("sub/deep/x"), 2, 10);
        files::make(dir.join("sub/y"), 3, 10);
    }
    let here = site.client.path("here");
    let whole = "a\nsub/\nsub/deep/\nsub/y\nsub/deep/x\n";
    for location in [here.to_str().unwrap().to_owned(), site.url("")] {
        let outcome = site.client.run(["ls", "-R", &location]).succeed();
        assert_eq!(outcome.stdout_text(), whole, "{outcome}");
        let outcome = site.client.run(["ls", "-l", "--human", &location]).succeed();
        assert!(outcome.stdout_text().contains("   4.9 KiB "), "{outcome}");
    }
    let both = site.client.run(["ls", "here/sub", &site.url("sub")]).succeed();
    let remote = site.url("sub");
    assert_eq!(both.stdout_text(), format!("here/sub:\ndeep/\ny\n\n{remote}:\ndeep/\ny\n"), "{both}");
    let roots = site.client.run(["ls", "-R", "--json"]).arg(site.daemon.url("")).succeed();
    let paths: Vec<_> = roots.events_of("entry").iter().map(|e| e["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(paths, ["data", "data/a", "data/sub", "data/sub/deep", "data/sub/y", "data/sub/deep/x"], "{roots}");
    let root = &roots.events_of("entry")[0];
    assert!(root["mode"].is_null() && root["mtime"].is_null() && root["rights"].is_array(), "{roots}");
    let mixed = site.client.run(["ls", "--json", "here", "missing", "here/sub"]).fail(3);
    assert_eq!((mixed.events_of("entry").len(), mixed.events_of("fault").len()), (4, 1), "{mixed}");
    assert_eq!(mixed.summary()["exit"], 3, "{mixed}");
    let help = site.client.run(["ls", "-lh", "here"]).succeed();
    assert!(help.stdout_text().contains("Usage:"), "{help}");
    fs::write(site.root().join("sub/\u{1b}[2J"), "x").unwrap();
    let clean = site.client.run(["ls", "-R", &site.url("")]).succeed();
    assert!(clean.stdout_text().contains("sub/\\x1b[2J\n"), "{clean}");
}

#[test]
fn every_command_has_a_manual_page_and_the_completions_are_scripts() {
    let host = Host::new();
    let page = host.run(["man"]).succeed().stdout_text().to_owned();
    assert!(page.contains(".TH longhaul 1") && page.contains("longhaul\\-push(1)"), "{page}");
    host.make_dir("pages");
    host.run(["man", "pages"]).succeed();
    for name in ["longhaul", "longhaul-push", "longhaul-serve", "longhaul-set-export", "longhaul-bench-disk"] {
        let page = std::fs::read_to_string(host.path(format!("pages/{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
    }
    let push = std::fs::read_to_string(host.path("pages/longhaul-push.1")).unwrap();
    let sections: Vec<_> = push.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    let in_order = ["NAME", "SYNOPSIS", "ARGUMENTS", "NETWORK", "EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""];
    let found: Vec<_> = sections.iter().filter(|section| in_order.contains(section)).copied().collect();
    assert_eq!(found, in_order, "{sections:?}");
    assert!(push.contains("\\-\\-protect"), "{push}");
    for name in std::fs::read_dir(host.path("pages")).unwrap().map(|entry| entry.unwrap().path()) {
        let page = std::fs::read_to_string(&name).unwrap();
        let mut lines = page.lines();
        while lines.by_ref().any(|line| line == ".TP") {
            let (option, text) = (lines.next().unwrap(), lines.next().unwrap_or_default());
            assert!(!text.is_empty() && !text.starts_with('.'), "{}: {option} is not explained", name.display());
        }
    }
    let outcome = host.run(["man", "nowhere"]).fail(2);
    assert!(outcome.stderr.contains("nowhere"), "{outcome}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = host.run(["completions", shell]).succeed().stdout_text().to_owned();
        assert!(script.contains("longhaul") && script.contains("protect"), "{shell}");
        let hidden = ["archive", "recursive"].map(|option| {
            let spelled = [format!("--{option}"), format!("-l {option}")];
            spelled.iter().any(|spelled| script.contains(spelled)) || push.contains(&format!("\\-\\-{option}"))
        });
        assert_eq!(hidden, [false; 2], "{shell}: options that are refused are shown nowhere");
    }
    std::fs::write(host.path("script"), host.run(["completions", "bash"]).succeed().stdout).unwrap();
    let checked = std::process::Command::new("bash").arg("-n").arg(host.path("script")).status().unwrap();
    assert!(checked.success());
    let outcome = host.run(["completions", "tcsh"]).fail(2);
    assert!(outcome.stderr.contains("tcsh"), "{outcome}");
}
