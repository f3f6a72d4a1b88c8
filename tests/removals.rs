//! Names that a daemon alone has: `sync --delete plan|apply` with DEST at a daemon. What its plan
//! lists goes to the grace directory of its root, and nothing else ever does.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Outcome, Run, Site, files};

/// A daemon with a mirror `ds` of `src`, in which `only` stands too.
fn mirrored(only: &[&str]) -> Site {
    let config = DaemonConfig::default().line("state = 'state'").watch("audit = 'audit.jsonl'");
    let site = Site::with(config);
    for n in 0..40 {
        files::make(site.client.path(format!("src/d{}/{n}", n % 4)), n, 100);
    }
    site.client.run(["sync", "src/", &site.url("ds/")]).succeed();
    only.iter().for_each(|name| files::make(at(&site, name), 77, 50));
    site
}

/// The path of a name of the mirror.
fn at(site: &Site, name: &str) -> PathBuf {
    site.root().join("ds").join(name)
}

fn step<'a>(site: &Site, words: impl IntoIterator<Item = &'a str>) -> Run {
    site.client.run(["sync", "src/", &site.url("ds/")]).args(words)
}

fn apply(site: &Site, digest: &str) -> Run {
    step(site, ["--delete", "apply"]).arg(digest)
}

/// The digest of a plan that a run printed.
fn digest(outcome: &Outcome) -> String {
    let last = outcome.stdout_text().lines().last().unwrap_or_default();
    last.strip_prefix("digest: ").unwrap_or_else(|| panic!("no digest: {outcome}")).to_owned()
}

/// The grace directory of the one plan that was applied, as far as it is of the mirror.
fn grace(site: &Site) -> PathBuf {
    let mut all = fs::read_dir(site.root().join(".longhaul/grace")).unwrap();
    let one = all.next().unwrap().unwrap().path();
    assert!(all.next().is_none());
    one.join("ds")
}

/// The records of this deed, once there are so many.
fn audited(site: &Site, deed: &str, count: usize) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(site.server.path("audit.jsonl")).unwrap();
        let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found: Vec<_> = all.filter(|record| record["deed"] == deed).collect();
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_daemon_alone_has_is_planned_and_moved_away_by_it_and_nothing_else() {
    let site = mirrored(&["gone/a", "gone/b", "kept/x.keep", "kept/y"]);
    files::make(at(&site, "run7.0123456789abcdef~/old"), 5, 5);
    files::make_special(at(&site, "fifo"), FileType::Fifo);
    files::make_special(site.client.path("src/name"), FileType::Fifo);
    files::make(at(&site, "name"), 5, 5);
    files::make(site.root().join("beside"), 5, 5);
    symlink("nowhere", at(&site, "link")).unwrap();
    let planned = step(&site, ["--exclude", "*.keep", "--delete", "plan", "--max-delete", "4"]).succeed();
    let names: Vec<_> = planned.stdout_text().lines().filter_map(|line| line.strip_prefix("planned: ")).collect();
    assert_eq!(names, ["link", "kept/y", "gone/b", "gone/a", "gone"], "{planned}");
    assert!(at(&site, "gone/a").exists(), "a plan moves nothing");
    files::make(at(&site, "late"), 6, 6);
    let moved = apply(&site, &digest(&planned)).succeed();
    assert_eq!(moved.stdout_text().lines().filter(|line| line.starts_with("moved: ")).count(), 5, "{moved}");
    assert!(moved.stderr.contains("/data/.longhaul/grace/"), "{moved}");
    for stays in ["kept/x.keep", "run7.0123456789abcdef~/old", "fifo", "name", "late", "d0/0", "../beside"] {
        assert!(at(&site, stays).exists(), "{stays}");
    }
    for gone in ["link", "kept/y", "gone/a", "gone"] {
        assert!(fs::symlink_metadata(at(&site, gone)).is_err(), "{gone}");
        assert!(fs::symlink_metadata(grace(&site).join(gone)).is_ok(), "{gone}");
    }
    assert_eq!(fs::read(grace(&site).join("gone/a")).unwrap(), files::bytes(77, 50));
    site.daemon.wait_log("moved_away=5");
    let recorded = audited(&site, "moved_away", 5);
    let paths: Vec<_> = recorded.iter().map(|record| record["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["ds/link", "ds/kept/y", "ds/gone/b", "ds/gone/a", "ds/gone"], "{recorded:?}");
    assert!(recorded[1]["root"] == "data" && recorded[1]["client"] == "tester" && recorded[1]["bytes"] == 50);
    let again = apply(&site, &digest(&planned)).succeed();
    assert_eq!(again.stdout_text().lines().filter(|line| line.starts_with("moved-before: ")).count(), 5, "{again}");
    site.client.run(["sync", "src/", &site.url("ds/")]).succeed();
}

#[test]
fn what_is_not_as_it_was_planned_stays_at_the_daemon_and_is_told() {
    let site = mirrored(&["a", "b", "c", "d/e"]);
    let planned = step(&site, ["--delete", "plan"]).succeed();
    fs::write(at(&site, "a"), "changed").unwrap();
    files::make(site.server.path("secret"), 3, 3);
    fs::remove_file(at(&site, "b")).unwrap();
    symlink("../../secret", at(&site, "b")).unwrap();
    files::make(site.client.path("src/c"), 9, 9);
    fs::rename(at(&site, "d"), site.server.path("aside")).unwrap();
    symlink("../../aside", at(&site, "d")).unwrap();
    let told = apply(&site, &digest(&planned)).fail(23);
    let lines: Vec<_> = told.stdout_text().lines().collect();
    assert_eq!(lines, ["changed: d/e", "changed: d", "at-source: c", "changed: b", "changed: a"], "{told}");
    assert_eq!(fs::read_to_string(at(&site, "a")).unwrap(), "changed");
    assert!(site.server.path("secret").exists() && site.server.path("aside/e").exists() && at(&site, "c").exists());
    assert!(at(&site, "b").is_symlink() && at(&site, "d").is_symlink());
    let (grace, until) = (site.root().join(".longhaul/grace"), Instant::now() + Duration::from_secs(60));
    while grace.exists() {
        assert!(Instant::now() < until, "nothing was moved, and a directory is left for it");
        std::thread::yield_now();
    }
}

#[test]
fn a_removal_on_this_host_that_moves_nothing_leaves_no_directory_for_it() {
    let host = Host::new();
    (0..20).for_each(|n| files::make(host.path(format!("src/{n}")), n, 10));
    host.run(["sync", "src/", "mirror/"]).succeed();
    files::make(host.path("mirror/deep/only"), 2, 10);
    let step = |words: &[&str]| host.run(["sync", "src/", "mirror/"]).args(words);
    let planned = step(&["--delete", "plan"]).succeed();
    fs::write(host.path("mirror/deep/only"), "changed").unwrap();
    let told = step(&["--delete", "apply", &digest(&planned)]).fail(23);
    assert!(told.stdout_text().contains("changed: deep/only"), "{told}");
    assert_eq!(fs::read_to_string(host.path("mirror/deep/only")).unwrap(), "changed");
    assert!(!host.path("mirror/.longhaul").exists(), "{told}");
}

#[test]
fn without_the_right_nothing_is_planned_and_the_refusal_says_what_to_change() {
    let old = "read,create,modify";
    for (client, root) in [(old, ALL_RIGHTS), (old, old), ("create,delete", ALL_RIGHTS)] {
        let site = Site::granting(DaemonConfig::default(), client, root);
        files::make(site.client.path("src/a"), 1, 10);
        (0..20).for_each(|n| files::make(at(&site, &format!("{n}")), n, 10));
        let refused = step(&site, ["--delete", "plan"]).fail(4);
        let right = if client == old { "right 'delete' on root 'data'" } else { "right 'read' on root 'data'" };
        assert!(refused.stderr.contains(right), "{refused}");
        assert_eq!(client == old, refused.stderr.contains("'allow' of this root"), "{refused}");
        assert!(at(&site, "0").exists() && !site.root().join(".longhaul/grace").exists());
    }
    let site = Site::new();
    let listed = site.client.run(["ls", "-l", &site.daemon.url("")]).succeed();
    assert_eq!(listed.stdout_text(), "data/  read,create,modify,delete\n");
}

#[test]
fn a_right_that_is_taken_away_between_plan_and_apply_keeps_all_names_where_they_are() {
    let site = mirrored(&["only"]);
    let planned = step(&site, ["--delete", "plan"]).succeed();
    let path = site.server.path("serve.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace(", 'delete'", "")).unwrap();
    site.daemon.signal(Signal::HUP);
    site.daemon.wait_log("SIGHUP: ");
    let refused = apply(&site, &digest(&planned)).fail(4);
    assert!(refused.stderr.contains("right 'delete'") && at(&site, "only").exists(), "{refused}");
}

#[test]
fn a_daemon_that_is_killed_in_an_apply_loses_no_name_and_the_same_command_goes_on() {
    const NAMES: u64 = 3000;
    let site = mirrored(&[]);
    let name = |n: u64| format!("x{}/{n}", n % 7);
    (0..NAMES).for_each(|n| files::make(at(&site, &name(n)), n, 20));
    let planned = step(&site, ["--delete", "plan", "--max-delete", "3000"]).succeed();
    let digest = digest(&planned);
    let running = step(&site, ["--json", "--delete", "apply", &digest]).start();
    running.wait_type("removal");
    site.daemon.kill();
    let broken = running.finish();
    let is_moved = |n: &u64| grace(&site).join(name(*n)).exists();
    for n in 0..NAMES {
        let places = [at(&site, &name(n)), grace(&site).join(name(n))].map(|path| fs::read(path).ok());
        let found: Vec<_> = places.into_iter().flatten().collect();
        assert_eq!(found, [files::bytes(n, 20)], "{}", name(n));
    }
    // The daemon may have been done by then, on a machine that is fast enough.
    assert!(broken.code != 0 || (0..NAMES).all(|n| is_moved(&n)), "{broken}");
    let _daemon = site.restarted();
    apply(&site, &digest).succeed();
    assert!((0..7).all(|n| !at(&site, &format!("x{n}")).exists()) && (0..NAMES).all(|n| is_moved(&n)));
}

#[test]
fn two_applies_at_once_move_each_name_once_and_neither_fails() {
    const NAMES: u64 = 1500;
    let site = mirrored(&[]);
    let name = |n: u64| format!("x{}/{n}", n % 5);
    (0..NAMES).for_each(|n| files::make(at(&site, &name(n)), n, 20));
    let planned = step(&site, ["--delete", "plan", "--max-delete", "1500"]).succeed();
    let runs = [(); 2].map(|()| apply(&site, &digest(&planned)).start());
    for told in runs.map(crate::fixture::Running::finish) {
        assert_eq!(told.code, 0, "{told}");
        let lines = told.stdout_text().lines();
        assert_eq!(lines.filter(|line| line.starts_with("moved")).count(), NAMES as usize + 5, "{told}");
    }
    site.daemon.wait_log("moved_away=");
    for n in 0..NAMES {
        assert_eq!(fs::read(grace(&site).join(name(n))).unwrap(), files::bytes(n, 20));
        assert!(!at(&site, &name(n)).exists());
    }
}

#[test]
fn a_plan_of_another_tree_or_without_a_root_is_refused_and_both_ends_may_be_at_daemons() {
    let site = mirrored(&["only"]);
    let planned = step(&site, ["--delete", "plan"]).succeed();
    let digest = digest(&planned);
    files::make(site.root().join("other/only"), 77, 50);
    files::make(site.root().join("other/d0/0"), 0, 100);
    let other = site.url("other/");
    site.client.run(["sync", "src/", &other, "--delete", "apply", &digest]).fail(2);
    site.client.run(["sync", "src/", &site.daemon.url(""), "--delete", "plan"]).fail(2);
    site.client.run(["sync", "src/", &site.url("none/"), "--delete", "plan"]).fail(3);
    site.client.run(["sync", "src/", "host:data", "--delete", "plan"]).fail(2);
    assert!(site.root().join("other/only").exists());
    // From one directory of a daemon to another one.
    let inside = site.client.run(["sync", &site.url("ds/d0/"), &site.url("ds/"), "--delete", "plan"]).fail(2);
    assert!(inside.stderr.contains("lie in each other"), "{inside}");
    fs::create_dir(site.root().join("source")).unwrap();
    for n in 0..20 {
        files::make(site.root().join(format!("source/{n}")), n, 10);
        files::make(site.root().join(format!("copy/{n}")), n, 10);
    }
    files::make(site.root().join("copy/only"), 1, 1);
    let (from, to) = (site.url("source/"), site.url("copy/"));
    let planned = site.client.run(["sync", &from, &to, "--delete", "plan"]).succeed();
    site.client.run(["sync", &from, &to, "--delete", "apply", &self::digest(&planned)]).succeed();
    assert!(!site.root().join("copy/only").exists() && site.root().join("copy/0").exists());
}

#[test]
fn trees_that_lie_in_each_other_are_refused_whatever_names_lead_to_them() {
    let host = Host::new();
    let data = host.make_dir("srv/data");
    (0..20).for_each(|n| files::make(data.join(format!("ds/low/{n}")), n, 10));
    let low = data.join("ds/low");
    symlink(&data, host.path("way")).unwrap();
    let config = |name: &str, dir: &Path| {
        let config = DaemonConfig::default().root(name, dir, ALL_RIGHTS);
        config.client("tester", host.key(), &[(name, ALL_RIGHTS)])
    };
    // Each has a key of its own.
    let others = [Host::new(), Host::new()];
    let one = config("data", &data).start(&host);
    let two = config("low", &low).start(&others[0]);
    let three = config("all", &host.path("srv")).start(&others[1]);
    for daemon in [&one, &two, &three] {
        host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    }
    let local = |path: &str| format!("{}/", host.path(path).display());
    let refused = [
        // A daemon of this host has what is named as a path, in either way.
        (local("srv/data/ds/low"), one.url("data/ds/")),
        (local("way/ds"), one.url("data/ds/low/")),
        (local("srv/data/ds"), one.url("data/ds/")),
        (one.url("data/ds/low/"), local("srv")),
        (three.url("all/data/"), local("way/ds/low")),
        // Another root of another daemon.
        (three.url("all/data/ds/low/"), one.url("data/ds/")),
        (three.url("all/"), one.url("data/ds/")),
        (two.url("low/"), one.url("data/ds/")),
        (one.url("data/"), two.url("low/")),
    ];
    for (source, dest) in refused {
        let told = host.run(["sync", &source, &dest, "--delete", "plan", "--max-delete", "99"]).fail(2);
        assert!(told.stderr.contains("lie in each other"), "{source} {dest}: {told}");
    }
    (0..20).for_each(|n| files::make(data.join(format!("copy/{n}")), n, 10));
    files::make(data.join("copy/only"), 1, 1);
    let apart = host.run(["sync", &two.url("low/"), &one.url("data/copy/"), "--delete", "plan"]).succeed();
    assert!(apart.stdout_text().contains("planned: only"), "{apart}");
}
