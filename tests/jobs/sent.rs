//! Campaigns from one daemon to another in which the source dials: the destination may dial nobody.
//!
//! Takes three hosts; gives tests. Must not know the protocol.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use rustix::process::Signal;

use super::{PATIENCE, copied_queue, counts, lapse, leased, left, plant, queue};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Run, files};

const BY_SOURCE: [&str; 2] = ["--dialler", "source"];

/// A host with a queue, a daemon that has files and may dial the other one, and that.
struct Scene {
    mover: Host,
    source: Host,
    target: Host,
    from: Daemon,
    to: Daemon,
}

impl Scene {
    fn new() -> Scene {
        Scene::where_source_dials(|port| format!("['127.0.0.0/8:{port}']"))
    }

    /// A scene in which the source may dial so, given the port of the destination.
    fn where_source_dials(rules: impl FnOnce(&str) -> String) -> Scene {
        let (mover, source, target) = (Host::new(), Host::new(), Host::new());
        let (data, landing) = (source.make_dir("data"), target.make_dir("landing"));
        let config = DaemonConfig::default().line("limits.sync_interval = '50ms'");
        let config = config.watch("audit = 'audit.jsonl'").root("landing", &landing, ALL_RIGHTS);
        let to = config.client("tester", mover.key(), &[("landing", ALL_RIGHTS)]).start(&target);
        let dial = rules(to.addr().rsplit_once(':').unwrap().1);
        let config = DaemonConfig::default().line(&format!("third_party.dial = {dial}"));
        let config = config.watch("audit = 'audit.jsonl'").root("data", &data, ALL_RIGHTS);
        let from = config.client("tester", mover.key(), &[("data", "read")]).start(&source);
        for daemon in [&from, &to] {
            mover.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        Scene { mover, source, target, from, to }
    }

    /// A campaign of `data/ds` into `landing`, planned, with these options.
    fn planned(&self, options: &[&str]) {
        let (from, to) = (self.from.url("data/ds"), self.to.url("landing/in"));
        self.mover.run(["job", "add", "--name", "all", &from, &to]).args(BY_SOURCE).args(options).succeed();
        self.mover.run(["job", "plan", "all"]).succeed();
    }

    fn run(&self) -> Run {
        self.mover.run(["job", "run", "--json", "--drain"])
    }

    fn assert_moved(&self) {
        let (there, here) = (self.source.path("data/ds"), self.target.path("landing/in/ds"));
        tree::assert_same(&Tree::of(there), &Tree::of(here), "what was moved");
    }

    /// Waits until the destination's audit log has a record of such a deed.
    fn wait_for_record(&self, deed: &str) {
        let (until, word) = (Instant::now() + PATIENCE, format!("\"{deed}\""));
        loop {
            let text = fs::read_to_string(self.target.path("audit.jsonl")).unwrap_or_default();
            if text.contains(&word) {
                return;
            }
            assert!(Instant::now() < until, "{deed}: {text}");
            std::thread::yield_now();
        }
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

/// A daemon of the host's configuration at this address, where nobody listens any more.
fn started_at(host: &Host, addr: &str) -> Daemon {
    let path = host.path("serve.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("127.0.0.1:0", addr)).unwrap();
    Daemon::start(host.run(["serve", "--json", "--config"]).arg(path))
}

#[test]
fn a_campaign_whose_destination_dials_nobody_is_sent_by_the_source_by_the_movers_claims() {
    let scene = Scene::new();
    plant(&scene.source.path("data/ds"));
    scene.planned(&["--shard-files", "25"]);
    let ran = scene.run().succeed();
    scene.assert_moved();
    assert_eq!(counts(&left(&scene.mover, "all")), [101, 0, 0]);
    let ends = ran.events_of("job_shard").into_iter().filter(|event| event["state"] == "done");
    let ends: Vec<_> = ends.map(|event| event["unclaimed"].as_bool()).collect();
    assert_eq!(ends, vec![Some(false); 5], "{ran}");
    let line = scene.to.wait_log("a claim is kept for copies by another daemon");
    assert!(line.contains("client=tester"), "{line}");
    scene.wait_for_record("claim_kept");
    let line = scene.to.wait_log("ended: push to landing/in/ds by grant");
    assert!(line.contains("client=tester"), "{line}");
    scene.from.wait_log("ended: copy from data/ds to lh://");
    let shown = scene.mover.run(["job", "show", "--json", "all"]).succeed().events_of("job_campaign");
    assert_eq!((&shown[0]["state"], &shown[0]["done"]["files"]), (&"done".into(), &101.into()));
    assert_eq!(shown[0]["dialler"], "source");
    let shown = scene.mover.run(["job", "show", "all"]).succeed();
    assert!(shown.stdout_text().lines().any(|line| line == "dialler    source"), "{shown}");
}

#[test]
fn digests_are_compared_where_the_source_sends_and_what_is_the_same_stays_as_it_is() {
    let scene = Scene::new();
    let (there, here) = (scene.source.path("data/ds"), scene.target.path("landing/in/ds"));
    let mut names: Vec<String> = (0..20).map(|number| format!("small/{number:02}")).collect();
    names.push("large".to_owned());
    for (seed, name) in names.iter().enumerate() {
        let bytes = if name == "large" { 3 << 20 } else { 2000 };
        [&there, &here].iter().for_each(|top| files::make(top.join(name), seed as u64 + 1, bytes));
    }
    // Neither length nor time tells that these are others.
    for (name, bytes) in [("small/05", 2000), ("large", 3 << 20)] {
        files::make(here.join(name), 99, bytes);
        let is = fs::metadata(there.join(name)).unwrap();
        files::set_mtime(here.join(name), is.mtime(), is.mtime_nsec());
    }
    let inode = || fs::metadata(here.join("small/04")).unwrap().ino();
    let before = inode();
    scene.planned(&["--if-exists", "verify"]);
    let ran = scene.run().succeed();
    let end = ran.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["unclaimed"]), (&"done".into(), &false.into()), "{ran}");
    for name in &names {
        assert!(fs::read(there.join(name)).unwrap() == fs::read(here.join(name)).unwrap(), "{name}: {ran}");
    }
    assert_eq!(inode(), before, "it was not sent: {ran}");
    assert_eq!(counts(&left(&scene.mover, "all")), [21, 0, 0]);
}

#[test]
fn a_file_that_is_gone_or_another_one_by_now_is_not_sent_and_a_fault_of_that_file_alone() {
    let scene = Scene::new();
    plant(&scene.source.path("data/ds"));
    scene.planned(&["--retry-rules", "changed=1", "--shard-files", "60"]);
    let at = |name: &str| scene.source.path("data/ds").join(name);
    fs::remove_file(at("0/07")).unwrap();
    files::make(at("1/01"), 7, 17);
    files::set_mtime(at("2/02"), 1_000_000_000, 0);
    files::make(at("0/late"), 5, 100);
    // A directory stands where a file was.
    fs::remove_file(at("2/09")).unwrap();
    files::make(at("2/09/deep/beneath"), 5, 100);
    let ran = scene.run().finish();
    assert_eq!(ran.code, 23, "{ran}");
    assert_eq!(counts(&left(&scene.mover, "all")), [97, 4, 0], "{ran}");
    let report = scene.mover.run(["job", "report", "--json", "all"]).fail(23);
    let codes = |name: &str| {
        let rows = report.events_of("job_fault");
        let row = rows.iter().find(|row| row["path"].as_str().is_some_and(|path| path.ends_with(name)));
        row.map(|row| row["code"].as_str().unwrap().to_owned())
    };
    let found = ["0/07", "1/01", "2/02", "2/09"].map(|name| codes(name).unwrap_or_default());
    assert_eq!(found, ["not-found", "changed", "changed", "changed"], "{report}");
    for name in ["0/07", "1/01", "2/02", "2/09", "0/late"] {
        assert!(!scene.target.path("landing/in/ds").join(name).exists(), "{name}");
    }
}

#[test]
fn another_mover_has_the_source_go_on_where_one_that_was_killed_ended() {
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
    scene.from.wait_log("ended, its client had left");
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
fn a_mover_that_was_killed_between_its_claim_and_its_order_has_ordered_nothing() {
    let scene = Scene::new();
    plant(&scene.source.path("data/ds"));
    scene.planned(&[]);
    // The source answers nobody, and is asked once the destination keeps the claim.
    scene.from.signal(Signal::STOP);
    let first = scene.run().start();
    scene.wait_for_record("claim_kept");
    first.signal(Signal::KILL);
    first.finish();
    assert_eq!(leased(&scene.mover), 1, "it was killed with the shard in its hand");
    scene.from.signal(Signal::CONT);
    lapse(&scene.mover);
    let second = scene.run().succeed();
    let end = second.events_of("job_shard").pop().unwrap();
    let kept = (&end["state"], &end["fence"], &end["unclaimed"]);
    assert_eq!(kept, (&"done".into(), &2.into(), &false.into()), "{second}");
    scene.assert_moved();
    scene.from.wait_log("ended: copy from data/ds to lh://");
    assert_eq!(scene.from.log().matches("opened: copy from data/ds").count(), 1, "{}", scene.from.log());
    // Neither was an order of the first one refused.
    let records = fs::read_to_string(scene.source.path("audit.jsonl")).unwrap();
    let refused = |line: &str| line.contains("\"refused\"") && line.contains("\"order\"");
    assert!(!records.lines().any(refused), "{records}");
}

#[test]
fn a_daemon_of_another_key_in_the_place_of_the_destination_is_sent_nothing() {
    let scene = Scene::new();
    plant(&scene.source.path("data/ds"));
    scene.planned(&[]);
    let impostor = Host::new();
    let landing = impostor.make_dir("landing");
    let config = DaemonConfig::default().root("landing", &landing, ALL_RIGHTS);
    config.client("tester", scene.mover.key(), &[("landing", ALL_RIGHTS)]).write(&impostor);
    // All that takes time is done before the source is held up: it is waited for some seconds only.
    impostor.key();
    scene.from.signal(Signal::STOP);
    let running = scene.run().start();
    // The destination has kept the claim, and is another one when the source dials.
    scene.wait_for_record("claim_kept");
    scene.to.kill();
    let other = started_at(&impostor, scene.to.addr());
    scene.from.signal(Signal::CONT);
    let ran = running.finish();
    assert_ne!(ran.code, 0, "{ran}");
    let told = ran.events_of("fault");
    assert!(told.iter().any(|fault| fault["message"].as_str().unwrap().contains("has another key")), "{ran}");
    assert_eq!(counts(&left(&scene.mover, "all")), [0, 0, 101]);
    assert!(!landing.join("in").exists() && !other.log().contains("opened: "), "{}", other.log());
}

#[test]
fn a_destination_that_has_forgotten_the_grant_of_a_shard_is_sent_the_rest_by_another_one() {
    let mut scene = Scene::new();
    files::make(scene.source.path("data/ds/large"), 7, 24 << 20);
    scene.planned(&["--rate", "4MB/s"]);
    let running = scene.run().start();
    // Its grant is seconds old by then. What is used up of grants ends with the daemon, and claims
    // lie in its root.
    scene.wait_for_partial(8 << 20);
    scene.to.kill();
    scene.to = started_at(&scene.target, scene.to.addr());
    let ran = running.finish();
    assert_eq!(ran.code, 0, "{ran}");
    scene.to.wait_log("older than this daemon's memory of the grants");
    let end = ran.events_of("job_shard").pop().unwrap();
    assert_eq!((&end["state"], &end["unclaimed"]), (&"done".into(), &false.into()), "{ran}");
    scene.assert_moved();
    assert_eq!(counts(&left(&scene.mover, "all")), [1, 0, 0]);
}

#[test]
fn the_claim_of_a_newer_mover_ends_what_the_source_sends_by_an_older_one_which_publishes_nothing_more() {
    let scene = Scene::new();
    files::make(scene.source.path("data/ds/large"), 7, 24 << 20);
    scene.planned(&["--rate", "4MB/s"]);
    let copy = copied_queue(&scene.mover);
    let mover = |file: &Path| scene.mover.run(["job", "run", "--json", "--drain", "--queue"]).arg(file);
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
    let line = scene.to.wait_log("is kept, with fence 2: this session publishes no more");
    assert!(line.contains("by grant"), "the session of the first one ended so: {line}");
}

#[test]
fn a_source_that_may_not_dial_the_destination_holds_the_shard_and_says_why() {
    let scene = Scene::where_source_dials(|_| "[]".to_owned());
    files::make(scene.source.path("data/ds/f"), 1, 100);
    scene.planned(&[]);
    let ran = scene.run().finish();
    assert_ne!(ran.code, 0, "{ran}");
    let told = ran.events_of("fault");
    assert!(told.iter().any(|fault| fault["message"].as_str().unwrap().contains("may not dial")), "{ran}");
    assert!(!scene.target.path("landing/in/ds/f").exists());
}

#[test]
fn what_a_source_that_dials_cannot_do_is_refused_as_the_campaign_is_added() {
    let scene = Scene::new();
    let ends = [scene.from.url("data/ds"), scene.to.url("landing")];
    for (options, said) in [
        (&["--as-dataset", "run-7"][..], "is not staged by an order from one daemon to another"),
        (&["--dialler", "mover"], "destination or source"),
    ] {
        let add = scene.mover.run(["job", "add", "--name", "x", &ends[0], &ends[1]]).args(BY_SOURCE);
        let refused = add.args(options).fail(2);
        assert!(refused.stderr.contains(said), "{options:?}: {refused}");
    }
    let here = scene.mover.make_dir("here");
    let local = scene.mover.run(["job", "add", "--name", "x", &ends[0]]).arg(here).args(BY_SOURCE).fail(2);
    assert!(local.stderr.contains("movers take part in this one"), "{local}");
}
