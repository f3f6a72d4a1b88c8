//! Sources on several disks, and the CPUs that threads run on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::fixture::device::{Kind, SectorSize, Throttle, Volume};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, files};

/// Files of one length on a disk that is slow, and on one that is not.
struct Case {
    name: &'static str,
    len: usize,
    slow: usize,
    fast: usize,
}

/// The place of the event that tells of each file's commit, of the files beneath `top`.
fn commits(outcome: &Outcome, top: &str) -> Vec<usize> {
    let files = outcome.events_of("file").into_iter().filter(|event| event["status"] == "committed").enumerate();
    let beneath = files.filter(|(_, event)| event["path"].as_str().is_some_and(|path| path.starts_with(top)));
    beneath.map(|(place, _)| place).collect()
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn files_of_a_fast_disk_are_committed_while_those_of_a_slow_one_are_read() {
    if !Kind::Ext4.is_there() {
        return;
    }
    let disks = [(); 2].map(|()| Volume::new(Kind::Ext4, SectorSize::Small));
    let [slow, fast] = &disks;
    for case in [
        Case { name: "chunks", len: 1 << 20, slow: 48, fast: 24 },
        Case { name: "bundles", len: 100 << 10, slow: 400, fast: 100 },
    ] {
        let host = Host::new();
        let top = |disk: &Volume, kind: &str| disk.path().join(format!("{kind}-{}", case.name));
        let (slow_top, fast_top) = (top(slow, "slow"), top(fast, "fast"));
        for (top, count) in [(&slow_top, case.slow), (&fast_top, case.fast)] {
            fs::create_dir(top).unwrap();
            (0..count).for_each(|n| files::make(top.join(n.to_string()), n as u64, case.len));
        }
        disks.iter().for_each(Volume::reopen);
        let throttle = Throttle::reads(slow.path(), 3 << 20);
        // The slow disk comes first, with more chunks than there are buffers.
        let run = host.run(["copy", "--json", "--chunk-size", "1MiB"]).args([&slow_top, &fast_top]);
        let outcome = run.arg("dst/").beneath(throttle.words()).succeed();
        let context = format!("{}: {outcome}", case.name);
        let (of_slow, of_fast) = (commits(&outcome, "slow"), commits(&outcome, "fast"));
        assert_eq!((of_slow.len(), of_fast.len()), (case.slow, case.fast), "{context}");
        let last_fast = of_fast.last().copied().unwrap();
        let before = of_slow.iter().filter(|place| **place < last_fast).count();
        assert!(before < case.slow / 2, "{before} of {} slow files came before: {context}", case.slow);
        for (top, name) in [(&slow_top, "slow"), (&fast_top, "fast")] {
            let copied = host.path("dst").join(format!("{name}-{}", case.name));
            tree::assert_same(&Tree::of(top), &Tree::of(&copied), &context);
        }
    }
}

/// The names of a process's threads, with the CPUs that each may run on.
fn threads(process: impl std::fmt::Display) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // A thread may end while it is looked at.
    let each = tasks.filter_map(|task| cpus(&task.ok()?.path().join("status")));
    each.collect()
}

/// The name of a thread, and its CPUs.
fn cpus(status: &Path) -> Option<(String, String)> {
    let status = fs::read_to_string(status).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
    Some((field("Name:")?, field("Cpus_allowed_list:")?))
}

#[test]
fn io_threads_and_lanes_run_on_the_cpus_that_are_named_and_on_no_others() {
    let host = Host::new();
    files::make(host.path("f"), 1, 20 << 20);
    let (_, all) = cpus(Path::new("/proc/self/status")).unwrap();
    let first = all.split(['-', ',']).next().unwrap();
    for engine in ["uring", "threads"] {
        let run = host.run(["copy", "--json", "--chunk-size", "1MiB", "--engine", engine, "--rate", "1MB/s"]);
        let run = run.args(["f", "g"]).env("LONGHAUL_PIN", first).start();
        run.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > 0));
        let threads = threads(run.pid().as_raw_nonzero());
        for work in ["disk-", "lane-", "feed", "pack-", "stage-"] {
            let mut of_work = threads.iter().filter(|(name, _)| name.starts_with(work)).peekable();
            assert!(of_work.peek().is_some(), "{work}: {threads:?}");
            assert!(of_work.all(|(_, cpus)| cpus == first), "{work} on {first}: {threads:?}");
        }
        assert_eq!(threads.get("longhaul"), Some(&all), "other threads run anywhere: {threads:?}");
        run.signal(Signal::INT);
        let bound = run.finish().summary()["io"]["bound"].clone();
        let groups: Vec<_> = bound.as_array().unwrap().iter().map(|group| group["threads"].as_str().unwrap()).collect();
        assert!(groups.contains(&"lanes") && groups.iter().any(|name| name.starts_with("disk ")), "{bound}");
        assert!(bound.as_array().unwrap().iter().all(|group| group["cpus"] == first), "{bound}");
    }
}

#[test]
fn threads_that_are_bound_to_cpus_are_named_to_people_and_others_are_not() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let (_, all) = cpus(Path::new("/proc/self/status")).unwrap();
    let first = all.split(['-', ',']).next().unwrap();
    let bound = host.run(["copy", "-v", "--pin", first, "f", "g"]).succeed();
    assert!(bound.stderr.contains("threads bound to CPUs: "), "{bound}");
    assert!(bound.stderr.contains(&format!("lanes to {first}")), "{bound}");
    let free = host.run(["copy", "-v", "--pin", "none", "f", "h"]).succeed();
    assert!(!free.stderr.contains("threads bound"), "{free}");
}

#[test]
fn cpus_that_this_process_may_not_use_are_refused_before_anything_is_done() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["copy", "--pin", "0,1023", "f", "g"]).fail(2);
    assert!(outcome.stderr.contains("cannot bind threads to the CPUs 0,1023"), "{outcome}");
    assert!(!host.path("g").exists());
}
