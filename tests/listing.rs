//! `ls`: the output for users and for scripts.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, files};

#[test]
fn the_roots_of_a_daemon_are_those_that_the_key_may_see() {
    let (client, server) = (Host::new(), Host::new());
    let [open, half, hidden] = ["open", "half", "hidden"].map(|name| server.make_dir(name));
    let daemon = DaemonConfig::default()
        .root("open", &open, ALL_RIGHTS)
        .root("half", &half, "read,create")
        .root("hidden", &hidden, ALL_RIGHTS)
        .client("tester", client.key(), &[("open", ALL_RIGHTS), ("half", "create")])
        .client("other", Host::new().key(), &[("hidden", ALL_RIGHTS)])
        .start(&server);
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    for location in [daemon.url(""), format!("lh://{}", daemon.addr())] {
        let outcome = client.run(["ls", &location]).succeed();
        assert_eq!(outcome.stdout_text(), "half/\nopen/\n", "{outcome}");
    }
    let long = client.run(["ls", "-l", &daemon.url("")]).succeed();
    assert_eq!(long.stdout_text(), "half/  create\nopen/  read,create,modify,delete\n", "{long}");
    let outcome = client.run(["ls", &daemon.url("hidden/")]).fail(4);
    let unknown = client.run(["ls", &daemon.url("nothing/")]).fail(4);
    assert!(unknown.stderr.contains("without a root") && !unknown.stderr.contains("HOST"), "{unknown}");
    let words = |text: &str| text.replace("hidden", "ROOT").replace("nothing", "ROOT");
    assert_eq!(words(&outcome.stderr), words(&unknown.stderr), "a hidden root is told from one that is not there");
}

#[test]
fn a_directory_is_listed_by_name_with_what_each_is() {
    let site = Site::new();
    for (host, dir, location) in
        [(&site.client, site.client.path("d"), "d".to_owned()), (&site.client, site.root().join("d"), site.url("d"))]
    {
        lay_out(&dir);
        let outcome = host.run(["ls", &location]).succeed();
        assert_eq!(
            outcome.stdout_text(),
            "esc-\\x1b[2J\nfile\nlink\nnew\\x0aline\nnot-utf8-\\xff\nsub/\n",
            "{outcome}"
        );
        let slash = host.run(["ls", &format!("{location}/")]).succeed();
        assert_eq!(slash.stdout, outcome.stdout, "{slash}");
        let long = host.run(["ls", "-l", &location]).succeed();
        let lines: Vec<&str> = long.stdout_text().lines().collect();
        assert_eq!(lines[1], "-rw-r-----            123 2001-09-09T01:46:40Z file", "{long}");
        assert!(lines[2].starts_with('l') && lines[2].ends_with(" link -> nowhere\\x0a"), "{long}");
        assert!(lines[5].starts_with("drwxr-xr-x") && lines[5].ends_with(" sub/"), "{long}");
        let json = host.run(["ls", "--json", &location]).succeed();
        let entries = json.events_of("entry");
        assert_eq!(entries.len(), 6, "{json}");
        assert_eq!(
            (&entries[1]["path"], &entries[1]["kind"], &entries[1]["bytes"]),
            (&"file".into(), &"file".into(), &123.into())
        );
        assert_eq!(entries[4]["path_b64"], "bm90LXV0Zjgt/w==", "{json}");
        assert_eq!(json.summary()["exit"], 0, "{json}");
    }
}

#[test]
fn a_file_is_listed_itself() {
    let site = Site::new();
    for (dir, location) in [(site.client.path("d"), "d/file".to_owned()), (site.root().join("d"), site.url("d/file"))] {
        lay_out(&dir);
        let outcome = site.client.run(["ls", "-l", &location]).succeed();
        assert_eq!(outcome.stdout_text(), "-rw-r-----            123 2001-09-09T01:46:40Z file\n", "{outcome}");
    }
}

#[test]
fn an_empty_directory_is_listed_as_nothing_and_a_missing_one_is_3() {
    let site = Site::new();
    fs::create_dir(site.root().join("empty")).unwrap();
    let outcome = site.client.run(["ls", &site.url("empty")]).succeed();
    assert!(outcome.stdout.is_empty(), "{outcome}");
    let missing = site.client.run(["ls", &site.url("missing")]).fail(3);
    assert!(missing.stdout.is_empty() && missing.stderr.contains("missing"), "{missing}");
    site.client.run(["ls", "missing"]).fail(3);
}

#[test]
fn names_of_our_own_are_not_listed() {
    let site = Site::new();
    files::make(site.root().join(".longhaul/journal"), 1, 10);
    files::make(site.root().join(".longhaul-00112233445566778899aabbccddeeff"), 1, 10);
    files::make(site.root().join("kept"), 1, 10);
    let outcome = site.client.run(["ls", &site.url("")]).succeed();
    assert_eq!(outcome.stdout_text(), "kept\n", "{outcome}");
    site.client.run(["ls", &site.url(".longhaul/")]).fail(2);
}

#[test]
fn a_directory_of_thousands_of_names_is_listed_whole() {
    let site = Site::new();
    let name = |n: usize| format!("{n:05}-{}", "n".repeat(200));
    (0..4000).for_each(|n| files::write(site.root().join(name(n)), ""));
    let outcome = site.client.run(["ls", &site.url("")]).succeed();
    let names: Vec<&str> = outcome.stdout_text().lines().collect();
    assert!(names.iter().enumerate().all(|(n, listed)| *listed == name(n)), "not in order or not all: {}", names.len());
    assert_eq!(names.len(), 4000);
}

#[test]
fn a_directory_of_more_names_than_are_held_at_a_time_is_listed_whole_and_in_order() {
    const NAMES: usize = (64 << 10) + 1000;
    let site = Site::new();
    let dir = site.root().join("many");
    fs::create_dir(&dir).unwrap();
    files::write(dir.join("n00000"), "");
    // Links to one file: names are what counts, and these cost no inodes.
    let mut sources = (0..).map(|n| site.root().join(format!("source-{n}")));
    let mut source = sources.next().unwrap();
    files::write(&source, "");
    for n in 1..NAMES {
        if fs::hard_link(&source, dir.join(format!("n{n:05}"))).is_err() {
            // No file takes so many links.
            source = sources.next().unwrap();
            files::write(&source, "");
            fs::hard_link(&source, dir.join(format!("n{n:05}"))).unwrap();
        }
    }
    for location in [site.url("many"), dir.to_str().unwrap().to_owned()] {
        let outcome = site.client.run(["ls", &location]).succeed();
        let mut wanted = (0..NAMES).map(|n| format!("n{n:05}"));
        assert!(outcome.stdout_text().lines().eq(wanted.by_ref()), "{location}: not in order or not all");
    }
}

fn lay_out(dir: &std::path::Path) {
    files::make(dir.join("file"), 1, 123);
    files::set_mode(dir.join("file"), 0o640);
    files::set_mtime(dir.join("file"), 1_000_000_000, 0);
    files::make(dir.join("sub/inside"), 1, 10);
    files::set_mode(dir.join("sub"), 0o755);
    files::link("nowhere\n", dir.join("link"));
    for name in [&b"new\nline"[..], b"not-utf8-\xff", b"esc-\x1b[2J"] {
        files::make(dir.join(std::ffi::OsStr::from_bytes(name)), 1, 10);
    }
}
