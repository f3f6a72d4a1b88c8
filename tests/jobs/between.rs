//! Campaigns from one daemon to another: a mover on a third host orders each shard, and no byte
//! passes it.
//!
//! Takes three hosts; gives tests. Must not know the protocol.

use std::fs;
use std::time::Instant;

use rustix::process::Signal;

use super::{PATIENCE, copied_queue, counts, lapse, leased, left, plant, queue};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Run, files};

/// A host with a queue, a daemon that has files, and one that may fetch them.
struct Scene {
    mover: Host,
    source: Host,
    target: Host,
    from: Daemon,
    to: Daemon,
}

impl Scene {
    fn new() -> Scene {
        Scene::allowing("read")
    }

    /// A scene with this right at the source.
    fn allowing(read: &str) -> Scene {
        let (mover, source, target) = (Host::new(), Host::new(), Host::new());
        let (data, landing) = (source.make_dir("data"), target.make_dir("landing"));
        let config = DaemonConfig::default().root("data", &data, ALL_RIGHTS);
        let from = config.client("tester", mover.key(), &[("data", read)]).start(&source);
        let dial = format!("third_party.dial = ['127.0.0.0/8:{}']", from.addr().rsplit_once(':').unwrap().1);
        let config = DaemonConfig::default().line(&dial).line("limits.sync_interval = '50ms'");
        let config = config.root("landing", &landing, ALL_RIGHTS);
        let to = config.client("tester", mover.key(), &[("landing", ALL_RIGHTS)]).start(&target);
        for daemon in [&from, &to] {
            mover.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        Scene { mover, source, target, from, to }
    }

    /// A campaign of `data/ds` into `landing`, planned, with these options.
    fn planned(&self, options: &[&str]) {
        let (from, to) = (self.from.url("data/ds"), self.to.url("landing/in"));
        self.mover.run(["job", "add", "--name", "all", &from, &to]).args(options).succeed();
        self.mover.run(["job", "plan", "all"]).succeed();
    }

    fn run(&self) -> Run {
        self.mover.run(["job", "run", "--json", "--drain"])
    }

    fn assert_moved(&self) {
        let (there, here) = (self.source.path("data/ds"), self.target.path("landing/in/ds"));
        tree::assert_same(&Tree::of(there), &Tree::of(here), "what was moved");
    }

    /// Waits until the destination holds so many bytes of an unfinished file.
    fn wait_for_partial(&self, bytes: u64) {
        let until = Instant::now() + PATIENCE;
        loop {
            let listed = self.mover.run(["ls", "--partials", "--json", &self.to.url("landing/in")]).finish();
            let held: u64 = listed.events_of("entry").iter().filter_map(|entry| entry["bytes_held"].as_u64()).sum();
            if held >= bytes {
                return;
            }
            assert!(Instant::now() < until, "only {held} bytes: {listed}");
        }
    }
}

#[test]
fn a_campaign_between_two_daemons_moves_each_shard_by_a_grant_for_its_names_alone() {
    let scene = Scene::new();
    plant(&scene.source.path("data/ds"));
    scene.planned(&["--shard-files", "25"]);
    let ran = scene.run().succeed();
    scene.assert_moved();
    assert_eq!(counts(&left(&scene.mover, "all")), [101, 0, 0]);
    let ends = ran.events_of("job_shard").into_iter().filter(|event| event["state"] == "done");
    let ends: Vec<_> = ends.map(|event| event["unclaimed"].as_bool()).collect();
    assert_eq!(ends, vec![Some(false); 5], "{ran}");
    // At the source the destination's daemon has what the mover lends it, shard by shard.
    let line = scene.from.wait_log("ended: pull from data/ds by grant");
    assert!(line.contains("client=tester"), "{line}");
    scene.to.wait_log("ended: copy from lh://");
    let shown = scene.mover.run(["job", "show", "--json", "all"]).succeed().events_of("job_campaign");
    assert_eq!((&shown[0]["state"], &shown[0]["done"]["files"]), (&"done".into(), &101.into()));
    assert_eq!(shown[0]["dialler"], "destination");
}

#[test]
fn the_end_of_a_copy_that_was_left_is_told_though_a_campaign_of_the_same_key_moved_many_shards_since() {
    let scene = Scene::new();
    files::make(scene.source.path("data/f"), 7, 3 << 20);
    let ends = [scene.from.url("data/f"), scene.to.url("landing/")];
    let copy = || scene.mover.run(["copy", "--json", &ends[0], &ends[1]]);
    let left = copy().args(["--detach", "--rate", "1MB/s"]).succeed();
    let order = left.events_of("left")[0]["order"].as_str().unwrap().to_owned();
    scene.to.wait_log(&format!("order {order} ended, its client had left: complete"));
    (0..20).for_each(|number| files::make(scene.source.path(format!("data/ds/{number}")), number, 100));
    scene.planned(&["--shard-files", "1"]);
    let ran = scene.run().args(["--movers", "4"]).succeed();
    assert_eq!(ran.events_of("job_shard").iter().filter(|event| event["state"] == "done").count(), 20, "{ran}");
    let ended = copy().args(["--attach", &order]).succeed();
    assert_eq!(ended.summary()["files_committed"], 1, "{ended}");
}

#[test]
fn a_file_that_is_gone_or_another_one_by_now_is_a_fault_of_that_file_alone() {
    let scene = Scene::new();
    plant(&scene.source.path("data/ds"));
    scene.planned(&["--retry-rules", "changed=1", "--shard-files", "60"]);
    let at = |name: &str| scene.source.path("data/ds").join(name);
    fs::remove_file(at("0/07")).unwrap();
    files::make(at("1/01"), 7, 17);
    files::set_mtime(at("2/02"), 1_000_000_000, 0);
    files::make(at("0/late"), 5, 100);
    let ran = scene.run().finish();
    assert_eq!(ran.code, 23, "{ran}");
    assert_eq!(counts(&left(&scene.mover, "all")), [98, 3, 0], "{ran}");
    let report = scene.mover.run(["job", "report", "--json", "all"]).fail(23);
    let codes = |name: &str| {
        let rows = report.events_of("job_fault");
        let row = rows.iter().find(|row| row["path"].as_str().is_some_and(|path| path.ends_with(name)));
        row.map(|row| row["code"].as_str().unwrap().to_owned())
    };
    let found = [codes("0/07"), codes("1/01"), codes("2/02")].map(Option::unwrap_or_default);
    assert_eq!(found, ["not-found", "changed", "changed"], "{report}");
    for name in ["0/07", "1/01", "2/02", "0/late"] {
        assert!(!scene.target.path("landing/in/ds").join(name).exists(), "{name}");
    }
}

#[test]
fn another_mover_continues_the_partials_of_one_that_was_killed() {
    let scene = Scene::new();
    files::make(scene.source.path("data/ds/large"), 7, 48 << 20);
    files::make(scene.source.path("data/ds/small"), 8, 100);
    scene.planned(&["--rate", "16MB/s"]);
    let first = scene.run().start();
    scene.wait_for_partial(12 << 20);
    first.signal(Signal::KILL);
    first.finish();
    assert_eq!(leased(&scene.mover), 1, "it was killed in the middle of the shard");
    // Nobody follows the order any more.
    scene.to.wait_log("ended, its client had left");
    lapse(&scene.mover);
    let second = scene.run().succeed();
    let end = second.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["fence"]), (&"done".into(), &2.into()), "{second}");
    let moved = end["bytes_moved"].as_u64().unwrap();
    assert!(moved <= 40 << 20, "of 48 MiB 12 were there: {end}");
    scene.assert_moved();
    assert_eq!(counts(&left(&scene.mover, "all")), [2, 0, 0]);
}

#[test]
fn a_mover_that_was_overtaken_is_refused_by_the_destination_and_fails_no_file() {
    let scene = Scene::new();
    files::make(scene.source.path("data/ds/large"), 7, 24 << 20);
    scene.planned(&["--rate", "4MB/s"]);
    let copy = copied_queue(&scene.mover);
    let mover = |file: &std::path::Path| scene.mover.run(["job", "run", "--json", "--drain", "--queue"]).arg(file);
    let first = mover(&queue(&scene.mover)).start();
    scene.wait_for_partial(1 << 20);
    // It is given the same fence by its own queue, and goes beyond what the destination keeps.
    let second = mover(&copy).start();
    let first = first.fail(23);
    let end = first.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["files_failed"], &end["fence"]), (&"held".into(), &0.into(), &1.into()), "{first}");
    assert_eq!(first.events_of("fault").last().unwrap()["code"], "superseded", "{first}");
    let second = second.finish();
    assert_eq!(second.code, 0, "{second}");
    let end = second.events_of("job_shard").pop().unwrap();
    let kept = (&end["state"], &end["fence"], &end["unclaimed"]);
    assert_eq!(kept, (&"done".into(), &2.into(), &false.into()), "{second}");
    scene.assert_moved();
}

#[test]
fn a_source_that_may_not_be_read_is_not_planned_and_one_that_may_not_be_dialled_holds_the_shard() {
    let scene = Scene::allowing("create");
    let ends = [scene.from.url("data/ds"), scene.to.url("landing")];
    scene.mover.run(["job", "add", "--name", "no", &ends[0], &ends[1]]).succeed();
    scene.mover.run(["job", "plan", "no"]).fail(4);
    // The other way round the destination may dial nobody.
    let scene = Scene::allowing(ALL_RIGHTS);
    files::make(scene.target.path("landing/ds/f"), 1, 100);
    let ends = [scene.to.url("landing/ds"), scene.from.url("data/back")];
    scene.mover.run(["job", "add", "--name", "back", &ends[0], &ends[1]]).succeed();
    scene.mover.run(["job", "plan", "back"]).succeed();
    let ran = scene.run().finish();
    assert_ne!(ran.code, 0, "{ran}");
    let told = ran.events_of("fault");
    assert!(told.iter().any(|fault| fault["message"].as_str().unwrap().contains("may not dial")), "{ran}");
    assert!(!scene.source.path("data/back/ds/f").exists());
}

#[test]
fn options_of_one_end_are_refused_where_this_host_is_none() {
    let scene = Scene::new();
    let ends = [scene.from.url("data/ds"), scene.to.url("landing")];
    for (options, said) in [
        (&["--peer-key", scene.from.key()][..], "the key of one daemon"),
        (&["--detach"], "movers follow what they move"),
        (&["--as-dataset", "run-7"], "is not staged by an order from one daemon to another"),
    ] {
        let refused = scene.mover.run(["job", "add", "--name", "x", &ends[0], &ends[1]]).args(options).fail(2);
        assert!(refused.stderr.contains(said), "{options:?}: {refused}");
    }
}
