//! `sync`: a destination comes to have what its source has; what it alone has is planned and moved
//! away in steps of their own, and nothing else ever is.

mod random;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::fs::FileType;
use rustix::process::Signal;

use crate::fixture::{Host, LoopDisk, Outcome, Run, Site, files};
use crate::jobs::plant_too_deep;

/// A source, and a mirror of it in which `only` stands too.
fn mirrored(only: &[&str]) -> Host {
    let host = Host::new();
    for n in 0..40 {
        files::make(host.path(format!("src/d{}/{n}", n % 4)), n, 100);
    }
    host.run(["sync", "src/", "dst"]).succeed();
    only.iter().for_each(|name| files::make(host.path("dst").join(name), 77, 50));
    host
}

/// The digest of a plan that a run printed.
fn digest(outcome: &Outcome) -> String {
    let last = outcome.stdout_text().lines().last().unwrap_or_default();
    last.strip_prefix("digest: ").unwrap_or_else(|| panic!("no digest: {outcome}")).to_owned()
}

fn plan(host: &Host) -> Outcome {
    host.run(["sync", "src/", "dst", "--delete", "plan"]).succeed()
}

fn apply(host: &Host, digest: &str) -> Run {
    host.run(["sync", "src/", "dst", "--delete", "apply", digest])
}

/// The grace directory of the one plan that was applied.
fn grace(host: &Host) -> PathBuf {
    let mut all = fs::read_dir(host.path("dst/.longhaul/grace")).unwrap();
    let one = all.next().unwrap().unwrap().path();
    assert!(all.next().is_none());
    one
}

#[test]
fn a_sync_says_what_was_new_changed_and_the_same_and_takes_nothing_away() {
    let host = mirrored(&["only"]);
    files::make(host.path("src/d0/0"), 99, 120);
    files::make(host.path("src/new"), 98, 10);
    files::make(host.path("src/left.tmp"), 97, 10);
    let told = host.run(["sync", "--json", "--exclude", "*.tmp", "src/", "dst"]).succeed();
    let sync = &told.events_of("sync")[0];
    let counts = ["new", "changed", "same", "sent"].map(|field| sync[field].as_u64().unwrap());
    assert_eq!(counts, [1, 1, 39, 0], "{told}");
    assert!(host.path("dst/only").exists() && !host.path("dst/left.tmp").exists());
    // Of the same size and time, and other bytes.
    let (from, to) = (host.path("src/new"), host.path("dst/new"));
    let time = fs::metadata(&from).unwrap().modified().unwrap();
    fs::write(&to, "0123456789").unwrap();
    fs::File::options().write(true).open(&to).unwrap().set_modified(time).unwrap();
    let told = host.run(["sync", "src/", "dst", "--exclude", "*.tmp"]).succeed();
    assert!(told.stderr.contains("0 new, 0 changed, 41 the same"), "{told}");
    let told = host.run(["sync", "--compare", "digest", "src/", "dst", "--exclude", "*.tmp"]).succeed();
    assert!(told.stderr.contains("0 new, 1 changed, 40 the same"), "{told}");
    host.run(["sync", "--compare", "digest", "--if-exists", "fail", "src/", "dst"]).fail(2);
    host.run(["sync", "--compare", "size", "src/", "dst"]).fail(2);
}

#[test]
fn a_sync_by_manifests_looks_only_at_names_on_which_they_differ() {
    let host = mirrored(&["only"]);
    let make = |tree: &str, out: &str| host.run(["manifest", "make", "--checksum", "b3", tree, "-o", out]).succeed();
    files::make(host.path("src/d0/0"), 99, 100);
    files::make(host.path("src/new"), 98, 10);
    make("src", "one");
    make("dst", "two");
    // Neither list knows of this one.
    files::make(host.path("src/later"), 96, 10);
    let sync = ["sync", "--compare", "manifest", "src/", "dst", "--json", "--manifests"];
    let told = host.run(sync).args(["one", "two"]).succeed();
    let counts = ["new", "changed", "same", "only_there"].map(|field| told.events_of("sync")[0][field].clone());
    assert_eq!(counts, [1, 1, 39, 1].map(serde_json::Value::from), "{told}");
    assert!(!host.path("dst/later").exists());
    assert_eq!(fs::read(host.path("dst/d0/0")).unwrap(), fs::read(host.path("src/d0/0")).unwrap());
    let told = host.run(sync).args(["one", "one"]).succeed();
    assert_eq!(told.events_of("sync")[0]["same"], 41, "{told}");
    let told = host.run(["sync", "--compare", "manifest", "src/", "dst", "--manifests", "one", "one"]).succeed();
    assert!(told.stderr.contains("41 the same, by the manifests"), "{told}");
    host.run(["sync", "--compare", "manifest", "src", "dst", "--manifests", "one", "two"]).fail(2);
    host.run(["sync", "--compare", "manifest", "src/", "dst"]).fail(2);
}

#[test]
fn what_the_destination_alone_has_is_planned_and_moved_away_and_nothing_else() {
    let host = mirrored(&["gone/a", "gone/b", "kept/x.keep", "kept/y"]);
    files::make(host.path("dst/run7.0123456789abcdef~/old"), 5, 5);
    files::make_special(host.path("dst/fifo"), FileType::Fifo);
    files::make_special(host.path("src/name"), FileType::Fifo);
    files::make(host.path("dst/name"), 5, 5);
    symlink("nowhere", host.path("dst/link")).unwrap();
    let planned =
        host.run(["sync", "src/", "dst", "--exclude", "*.keep", "--delete", "plan", "--max-delete", "4"]).succeed();
    let names: Vec<_> = planned.stdout_text().lines().filter_map(|line| line.strip_prefix("planned: ")).collect();
    assert_eq!(names, ["link", "kept/y", "gone/b", "gone/a", "gone"], "{planned}");
    assert!(host.path("dst/gone/a").exists(), "a plan moves nothing");
    files::make(host.path("dst/late"), 6, 6);
    let moved = apply(&host, &digest(&planned)).succeed();
    assert_eq!(moved.stdout_text().lines().filter(|line| line.starts_with("moved: ")).count(), 5, "{moved}");
    for stays in ["kept/x.keep", "run7.0123456789abcdef~/old", "fifo", "name", "late", "d0/0"] {
        assert!(host.path("dst").join(stays).exists(), "{stays}");
    }
    for gone in ["link", "kept/y", "gone/a", "gone"] {
        assert!(fs::symlink_metadata(host.path("dst").join(gone)).is_err(), "{gone}");
        assert!(fs::symlink_metadata(grace(&host).join(gone)).is_ok(), "{gone}");
    }
    assert_eq!(fs::read(grace(&host).join("gone/a")).unwrap(), files::bytes(77, 50));
    let again = apply(&host, &digest(&planned)).succeed();
    assert_eq!(again.stdout_text().lines().filter(|line| line.starts_with("moved-before: ")).count(), 5, "{again}");
    host.run(["sync", "src/", "dst"]).succeed();
}

#[test]
fn what_is_not_as_it_was_planned_stays_and_is_told() {
    let host = mirrored(&["a", "b", "c", "d/e"]);
    let digest = digest(&plan(&host));
    let at = |name: &str| host.path("dst").join(name);
    fs::write(at("a"), "changed").unwrap();
    files::make(host.path("secret"), 3, 3);
    fs::remove_file(at("b")).unwrap();
    symlink("../secret", at("b")).unwrap();
    files::make(host.path("src/c"), 9, 9);
    fs::rename(at("d"), host.path("aside")).unwrap();
    symlink("../aside", at("d")).unwrap();
    let told = apply(&host, &digest).fail(23);
    let lines: Vec<_> = told.stdout_text().lines().collect();
    assert_eq!(lines, ["changed: d/e", "changed: d", "at-source: c", "changed: b", "changed: a"], "{told}");
    assert_eq!(fs::read_to_string(at("a")).unwrap(), "changed");
    assert!(host.path("secret").exists() && host.path("aside/e").exists() && at("c").exists());
    assert!(at("b").is_symlink() && at("d").is_symlink());
}

#[test]
fn a_plan_is_refused_where_the_source_is_doubtful() {
    let host = mirrored(&["only"]);
    let refused = |why: &str| {
        let outcome = host.run(["sync", "src/", "dst", "--delete", "plan"]).fail(2);
        assert!(outcome.stderr.contains(why), "{outcome}");
    };
    let digest = digest(&plan(&host));
    // Half of the tree.
    fs::rename(host.path("src/d0"), host.path("d0")).unwrap();
    fs::rename(host.path("src/d1"), host.path("d1")).unwrap();
    refused("21 of the 41 files at the destination are not at the source, and 4 may go");
    host.run(["sync", "src/", "dst", "--delete", "plan", "--max-delete", "21"]).succeed();
    fs::rename(host.path("src"), host.path("away")).unwrap();
    fs::create_dir(host.path("src")).unwrap();
    refused("the source has no files");
    let outcome = apply(&host, &digest).fail(2);
    assert!(outcome.stderr.contains("the source is empty"), "{outcome}");
    assert!(host.path("dst/only").exists());
    fs::remove_dir(host.path("src")).unwrap();
    fs::rename(host.path("away"), host.path("src")).unwrap();
    // The last plan saw another device.
    let known = fs::read_dir(host.path(".local/state/longhaul/sync")).unwrap().map(|name| name.unwrap().path());
    let known = known.filter(|path| path.extension().is_some_and(|end| end == "device")).collect::<Vec<_>>();
    fs::write(&known[0], "12345\n").unwrap();
    refused("on another device than at the plan before");
    fs::write(&known[0], "none\n").unwrap();
    refused("it has no number of a device");
    host.run(["sync", "dst/d2/", "dst", "--delete", "plan"]).fail(2);
    host.run(["sync", "src/", "dst", "--delete", "apply", &"0".repeat(64)]).fail(2);
    host.run(["sync", "src/", "dst", "--delete", "now"]).fail(2);
    host.run(["sync", "src/", "host:data", "--delete", "plan"]).fail(2);
}

#[test]
fn no_plan_is_made_of_a_list_with_gaps_at_either_end() {
    let refused = |host: &Host, source: &str, of: &str| {
        let plan = |rules: &[&str]| host.run(["sync", source, "dst", "--delete", "plan"]).args(rules);
        let outcome = plan(&[]).fail(2);
        assert!(
            outcome.stderr.contains("1 name could not be read: no plan is made of a list with gaps"),
            "{of}: {outcome}"
        );
        assert!(host.path("dst/only").exists());
        // What is left out at both ends need not be read.
        let planned = plan(&["--exclude", "/ddd*"]).succeed();
        assert!(planned.stdout_text().contains("planned: only"), "{of}: {planned}");
    };
    for end in ["src", "dst"] {
        let host = mirrored(&["only"]);
        plant_too_deep(&host.path(end));
        refused(&host, "src/", end);
    }
    let site = Site::new();
    (0..20).for_each(|n| files::make(site.root().join(format!("ds/{n}")), n, 30));
    site.client.run(["sync", &site.url("ds/"), "dst"]).succeed();
    files::make(site.client.path("dst/only"), 1, 1);
    plant_too_deep(&site.root().join("ds"));
    refused(&site.client, &site.url("ds/"), "a daemon");
}

#[test]
fn a_dry_run_tells_what_would_be_sent_and_keeps_names_from_being_moved_wherever_it_is_said() {
    let host = mirrored(&["only"]);
    let digest = digest(&plan(&host));
    apply(&host, &digest).arg("-n").fail(2);
    apply(&host, &digest).env("LONGHAUL_DRY_RUN", "1").fail(2);
    files::write(host.config("config.toml"), "dry-run = true\n");
    let told = apply(&host, &digest).fail(2);
    assert!(told.stderr.contains("dry run") && host.path("dst/only").exists(), "{told}");
    fs::remove_file(host.config("config.toml")).unwrap();
    files::make(host.path("src/d0/0"), 99, 120);
    files::make(host.path("src/new"), 98, 10);
    let told = host.run(["sync", "-n", "src/", "dst"]).succeed();
    assert!(told.stderr.contains("2 new or changed, 39 the same"), "{told}");
    assert!(!host.path("dst/new").exists());
    apply(&host, &digest).succeed();
    assert!(!host.path("dst/only").exists());
}

#[test]
fn a_link_that_has_the_name_of_the_source_is_not_followed_and_a_plan_says_where_it_is() {
    let host = mirrored(&[]);
    files::make(host.path("real/only"), 7, 7);
    let made = |step: &[&str]| host.run(["sync", "--json", "--max-delete", "9", "src", "in", "--delete"]).args(step);
    fs::create_dir(host.path("in")).unwrap();
    symlink("../real", host.path("in/src")).unwrap();
    let told = made(&["plan"]).fail(2);
    assert!(told.stderr.contains("is a link"), "{told}");
    fs::remove_file(host.path("in/src")).unwrap();
    fs::rename(host.path("real"), host.path("in/src")).unwrap();
    let told = made(&["plan"]).succeed();
    let dest = fs::canonicalize(host.path("in/src")).unwrap();
    let plan = &told.events_of("removal_plan")[0];
    assert_eq!(plan["destination"], dest.to_str().unwrap(), "{told}");
    // It is a link by the time at which it is applied.
    fs::rename(host.path("in/src"), host.path("real")).unwrap();
    symlink("../real", host.path("in/src")).unwrap();
    host.run(["sync", "src", "in", "--delete", "apply", plan["digest"].as_str().unwrap()]).fail(2);
    assert!(host.path("real/only").exists());
}

#[test]
fn datasets_that_were_replaced_are_not_counted_among_the_files_of_which_some_may_go() {
    let host = mirrored(&["a", "b", "c", "d", "e"]);
    for n in 0..40 {
        files::make(host.path(format!("dst/run7.0123456789abcdef~/{n}")), n, 5);
    }
    let told = host.run(["sync", "src/", "dst", "--delete", "plan"]).fail(2);
    assert!(told.stderr.contains("5 of the 45 files at the destination"), "{told}");
}

#[test]
fn a_name_behind_a_link_at_the_source_is_in_no_plan_and_one_that_is_excluded_now_stays() {
    let host = mirrored(&["l/x", "a", "b"]);
    symlink("d0", host.path("src/l")).unwrap();
    let planned = plan(&host);
    let lines: Vec<_> = planned.stdout_text().lines().take(3).collect();
    assert_eq!(lines, ["in-the-way: l/x", "planned: b", "planned: a"], "{planned}");
    let told = apply(&host, &digest(&planned)).arg("--exclude").arg("a").fail(23);
    assert_eq!(told.stdout_text().lines().collect::<Vec<_>>(), ["moved: b", "excluded: a"], "{told}");
    assert!(host.path("dst/l/x").exists() && host.path("dst/a").exists());
}

#[test]
fn a_plan_moves_nothing_once_the_source_is_on_another_device() {
    let host = mirrored(&["only"]);
    host.run(["sync", "src/", "dst", "--delete", "plan", "--plan", "kept.plan"]).succeed();
    let text = fs::read_to_string(host.path("kept.plan")).unwrap();
    let device = text.lines().find(|line| line.starts_with("source-device ")).unwrap();
    let other = text.replacen(device, "source-device 12345", 1);
    fs::write(host.path("kept.plan"), &other).unwrap();
    let digest = blake3::hash(other.as_bytes()).to_hex().to_string();
    let told = apply(&host, &digest).arg("--plan").arg("kept.plan").fail(2);
    assert!(told.stderr.contains("on another device"), "{told}");
    assert!(host.path("dst/only").exists());
}

/// Another disk that is mounted over a directory of a host, and in which the same names stand as
/// beneath it.
fn mounted_over(host: &Host, name: &str, tops: &[&str]) -> LoopDisk {
    let names: Vec<_> = (0..40).map(|n| (format!("d{}/{n}", n % 4), n)).collect();
    let disk = LoopDisk::new(host, name, 64 << 20);
    names.iter().for_each(|(path, n)| files::make(disk.path().join(path), *n, 100));
    tops.iter().for_each(|name| files::make(disk.path().join(name), 77, 50));
    disk
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn nothing_is_planned_or_moved_while_another_disk_is_mounted_over_the_source() {
    let host = mirrored(&["only"]);
    let digest = digest(&plan(&host));
    let disk = mounted_over(&host, "src", &[]);
    let planned = host.run(["sync", "src/", "dst", "--delete", "plan"]).fail(2);
    assert!(planned.stderr.contains("on another device than at the plan before"), "{planned}");
    let told = apply(&host, &digest).fail(2);
    assert!(told.stderr.contains("the source is on another device than when it was planned"), "{told}");
    assert!(host.path("dst/only").exists() && !host.path("dst/.longhaul/grace").exists());
    disk.unmount();
    apply(&host, &digest).succeed();
    assert!(!host.path("dst/only").exists() && grace(&host).join("only").exists());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn nothing_is_moved_while_another_disk_is_mounted_over_the_destination_or_a_directory_of_it() {
    let host = mirrored(&["only", "part/one"]);
    let digest = digest(&plan(&host));
    let disk = mounted_over(&host, "dst", &["only", "part/one"]);
    let told = apply(&host, &digest).fail(2);
    assert!(told.stderr.contains("the destination is on another device than when it was planned"), "{told}");
    assert!(disk.path().join("only").exists() && !disk.path().join(".longhaul").exists());
    drop(disk);
    // A file of the same name and bytes beneath it is another one.
    let disk = LoopDisk::new(&host, "dst/part", 64 << 20);
    files::make(disk.path().join("one"), 77, 50);
    let told = apply(&host, &digest).fail(23);
    let lines: Vec<_> = told.stdout_text().lines().collect();
    assert_eq!(lines, ["changed: part/one", "changed: part", "moved: only"], "{told}");
    assert!(disk.path().join("one").exists());
    drop(disk);
    assert!(host.path("dst/part/one").exists(), "it stands beneath the disk");
    apply(&host, &digest).succeed();
    assert!(grace(&host).join("part/one").exists());
}

#[test]
fn a_plan_that_was_altered_or_is_of_other_trees_moves_nothing() {
    let host = mirrored(&["only"]);
    let planned = host.run(["sync", "src/", "dst", "--delete", "plan", "--plan", "kept.plan"]).succeed();
    let digest = digest(&planned);
    host.run(["copy", "src/", "other"]).succeed();
    files::make(host.path("other/only"), 77, 50);
    let applied = |dest: &str| host.run(["sync", "src/", dest, "--delete", "apply", &digest, "--plan", "kept.plan"]);
    applied("other").fail(2);
    let text = fs::read_to_string(host.path("kept.plan")).unwrap();
    fs::write(host.path("kept.plan"), text.replace(" only\n", " d0/0\n")).unwrap();
    applied("dst").fail(2);
    assert!(host.path("dst/d0/0").exists() && host.path("dst/only").exists());
    fs::write(host.path("kept.plan"), text).unwrap();
    applied("dst").succeed();
    assert!(!host.path("dst/only").exists());
}

#[test]
fn an_apply_that_is_killed_leaves_each_name_in_one_place_and_goes_on() {
    let host = mirrored(&[]);
    const NAMES: u64 = 3000;
    (0..NAMES).for_each(|n| files::make(host.path(format!("dst/x{}/{n}", n % 7)), n, 20));
    let planned = host.run(["sync", "src/", "dst", "--delete", "plan", "--max-delete", "3000"]).succeed();
    let digest = digest(&planned);
    let running = host.run(["sync", "--json", "src/", "dst", "--delete", "apply", &digest]).start();
    running.wait_type("removal");
    running.signal(Signal::KILL);
    running.finish();
    for n in 0..NAMES {
        let name = format!("x{}/{n}", n % 7);
        let places = [host.path("dst").join(&name), grace(&host).join(&name)].map(|path| fs::read(path).ok());
        let found: Vec<_> = places.into_iter().flatten().collect();
        assert_eq!(found, [files::bytes(n, 20)], "{name}");
    }
    apply(&host, &digest).succeed();
    assert!((0..7).all(|n| !host.path(format!("dst/x{n}")).exists()));
    assert_eq!(fs::read(grace(&host).join("x3/10")).unwrap(), files::bytes(10, 20));
}

#[test]
fn a_source_at_a_daemon_is_asked_for_each_name_when_it_is_planned_and_when_it_goes() {
    let site = Site::new();
    let (host, url) = (&site.client, site.url("ds/"));
    (0..20).for_each(|n| files::make(site.root().join(format!("ds/a/{n}")), n, 30));
    let told = host.run(["sync", "--json", &url, "dst"]).succeed();
    assert_eq!(told.events_of("sync")[0]["new"], 20, "{told}");
    files::make(host.path("dst/a/x"), 1, 1);
    files::make(host.path("dst/b/y"), 1, 1);
    let planned = host.run(["sync", &url, "dst", "--delete", "plan"]).succeed();
    files::make(site.root().join("ds/b/y"), 1, 1);
    let told = host.run(["sync", &url, "dst", "--delete", "apply", &digest(&planned)]).fail(23);
    let lines: Vec<_> = told.stdout_text().lines().collect();
    assert_eq!(lines, ["at-source: b/y", "at-source: b", "moved: a/x"], "{told}");
    assert!(host.path("dst/b/y").exists() && !host.path("dst/a/x").exists());
    // A daemon that receives says what stood there.
    files::make(host.path("dst/new"), 1, 1);
    files::make(host.path("dst/a/1"), 7, 31);
    let told = host.run(["sync", "--json", "dst/", &url]).succeed();
    let counts = ["new", "changed", "same", "sent"].map(|field| told.events_of("sync")[0][field].as_u64().unwrap());
    assert_eq!(counts, [1, 2, 19, 0], "{told}");
}
