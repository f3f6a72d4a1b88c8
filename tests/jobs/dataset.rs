//! `job add --as-dataset`: all files of a campaign appear together, behind its last shard, or none.
//!
//! Takes the datasets of `jobs`, and daemons; gives tests. Must not know the rules of the queue.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::Signal;

use super::{counts, lapse, left, plant, queue, wait_for_more_than};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Outcome, Site, files};

/// Adds and plans the campaign `all` of the source `ds`, in shards of 20 files.
fn add(host: &Host, to: &str, more: &[&str]) {
    let add = ["job", "add", "--name", "all", "--as-dataset", "run-7", "--shard-files", "20", "ds", to];
    host.run(add).args(more).succeed();
    host.run(["job", "plan", "all"]).succeed();
}

fn run(host: &Host) -> crate::fixture::Run {
    host.run(["job", "run", "--json", "--drain", "all"])
}

/// The names in a directory that somebody can see, in order.
fn seen(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with(".longhaul"));
    names.sort();
    names
}

/// The tree in which a campaign's files are staged.
fn staged(dir: &Path) -> PathBuf {
    let mut holders = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let is_holder = |name: &[u8]| name.starts_with(b".longhaul-dataset-") && !name.ends_with(b".ready");
    let holder = holders.find(|entry| is_holder(entry.file_name().as_encoded_bytes())).expect("something is staged");
    holder.path().join("tree/ds")
}

/// Fails unless the dataset of a campaign is its source, with a list of it, and nothing lies
/// beside.
#[track_caller]
fn assert_whole(source: &Path, dest: &Path, others: &[String], context: impl std::fmt::Display) {
    tree::assert_same(&Tree::of(source), &Tree::of(dest.join("run-7/ds")), context.to_string());
    assert!(dest.join("run-7/.longhaul-manifest/head.lhm").exists(), "{context}");
    let mut beside: Vec<_> = fs::read_dir(dest).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    beside.retain(|name| name != "run-7" && name != ".longhaul" && !others.iter().any(|other| name == other.as_str()));
    assert!(beside.is_empty(), "{context}: {beside:?}");
}

/// The outcomes of a mover's shards, commits too.
fn ends(outcome: &Outcome) -> Vec<String> {
    let shards = outcome.events_of("job_shard");
    let states = shards.iter().map(|shard| shard["state"].as_str().unwrap().to_owned());
    states.filter(|state| state != "claimed").collect()
}

/// Ends a reader, whatever becomes of the work beside it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has a reader look at a dataset again and again while `work` is done. Fails if it ever sees a
/// part of it.
fn with_reader<T>(dataset: &Path, files: usize, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut sights = 0;
            while !is_over.load(Ordering::Relaxed) {
                if dataset.exists() {
                    let tree = Tree::of(dataset.join("ds"));
                    let found = tree.0.keys().filter(|path| !path.is_empty()).count();
                    assert_eq!(found, files, "a reader saw a part");
                    sights += 1;
                }
                std::thread::yield_now();
            }
            sights
        });
        // Also if the work fails, or the reader would go on for ever.
        let over = Over(&is_over);
        let done = work();
        drop(over);
        reader.join().unwrap();
        done
    })
}

#[test]
fn a_campaign_of_several_shards_appears_at_once_at_a_daemon_and_on_this_host() {
    for to_daemon in [true, false] {
        let site = Site::new();
        let host = &site.client;
        plant(&host.path("ds"));
        let (to, dest) = match to_daemon {
            true => (site.url("in"), site.root().join("in")),
            false => ("to".to_owned(), host.path("to")),
        };
        add(host, &to, &[]);
        assert_eq!(left(host, "all")["commit"], "waiting");
        let entries = Tree::of(host.path("ds")).0.keys().filter(|path| !path.is_empty()).count();
        let outcome = with_reader(&dest.join("run-7"), entries, || run(host).args(["--movers", "3"]).succeed());
        assert_eq!(ends(&outcome).len(), 7, "six shards and a commit: {outcome}");
        let figures = left(host, "all");
        assert_eq!((counts(&figures), &figures["commit"]), ([101, 0, 0], &"done".into()), "{figures}");
        assert_whole(&host.path("ds"), &dest, &[], &outcome);
        let shown = host.run(["job", "show", "all"]).succeed();
        assert!(shown.stdout_text().contains("run-7") && shown.stdout_text().contains("have appeared"), "{shown}");
        host.run(["job", "wait", "all"]).succeed();
        host.run(["job", "verify", "all", "--once", "--at"]).arg(&dest).succeed();
    }
}

#[test]
fn nothing_appears_without_a_file_that_was_given_up_until_that_was_tried_again() {
    let host = Host::new();
    plant(&host.path("ds"));
    add(&host, "to", &[]);
    fs::rename(host.path("ds/3/03"), host.path("away")).unwrap();
    run(&host).fail(23);
    let figures = left(&host, "all");
    assert_eq!((counts(&figures), &figures["commit"]), ([100, 1, 0], &"waiting".into()), "{figures}");
    assert!(seen(&host.path("to")).is_empty());
    let stood: Vec<_> = wait_for_more_than(90, &staged(&host.path("to")));
    let told = host.run(["job", "left", "all"]).succeed();
    assert!(told.stdout_text().contains("1 file given up, which waits for 'longhaul job retry'"), "{told}");
    let waited = host.run(["job", "wait", "all", "--max-time", "60s"]).fail(23);
    assert!(waited.stdout_text().contains("job retry"), "{waited}");
    host.run(["job", "release", "all"]).succeed();
    run(&host).fail(23);
    assert!(seen(&host.path("to")).is_empty(), "no release lets it appear without the file");

    fs::rename(host.path("away"), host.path("ds/3/03")).unwrap();
    host.run(["job", "retry", "all"]).succeed();
    let outcome = run(&host).succeed();
    assert_whole(&host.path("ds"), &host.path("to"), &[], &outcome);
    for (path, inode) in stood {
        let path = host.path("to/run-7/ds").join(path.strip_prefix(path.ancestors().nth(2).unwrap()).unwrap());
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), inode, "{} was sent again", path.display());
    }
}

#[test]
fn a_file_that_is_lost_where_it_is_staged_holds_the_commit_until_a_retry_has_brought_it_again() {
    let host = Host::new();
    plant(&host.path("ds"));
    add(&host, "to", &[]);
    fs::rename(host.path("ds/3/03"), host.path("away")).unwrap();
    run(&host).fail(23);
    fs::remove_file(staged(&host.path("to")).join("2/02")).unwrap();
    fs::rename(host.path("away"), host.path("ds/3/03")).unwrap();
    host.run(["job", "retry", "all"]).succeed();
    let outcome = run(&host).fail(23);
    assert_eq!(left(&host, "all")["commit"], "held", "{outcome}");
    assert!(seen(&host.path("to")).is_empty(), "{outcome}");
    let told = host.run(["job", "left", "all"]).succeed();
    assert!(told.stdout_text().contains("'longhaul job retry' has them moved again"), "{told}");
    host.run(["job", "release", "all"]).succeed();
    run(&host).fail(23);
    let told = host.run(["job", "retry", "all"]).succeed();
    assert!(told.stdout_text().ends_with("the commit waits until all files are there\n"), "{told}");
    let outcome = run(&host).succeed();
    assert_whole(&host.path("ds"), &host.path("to"), &[], &outcome);
}

#[test]
fn a_queue_that_forgot_its_shards_ends_a_campaign_whose_dataset_has_appeared() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    add(host, &site.url("in"), &[]);
    run(host).succeed();
    let inode = fs::metadata(site.root().join("in/run-7")).unwrap().ino();
    // As of a backup from before the first claim, but for the fences.
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    let forgotten = "UPDATE shard SET state = 0, done_files = 0, done_bytes = 0; UPDATE campaign SET state = 1";
    rows.execute_batch(forgotten).unwrap();
    let outcome = run(host).succeed();
    assert_eq!(ends(&outcome), vec!["done"; 7], "{outcome}");
    assert_eq!(counts(&left(host, "all")), [101, 0, 0]);
    assert_eq!(fs::metadata(site.root().join("in/run-7")).unwrap().ino(), inode);
    assert_whole(&host.path("ds"), &site.root().join("in"), &[], &outcome);
}

#[test]
fn a_mover_that_is_killed_behind_the_last_shard_leaves_the_commit_to_the_next_one() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    add(host, &site.url("in"), &[]);
    let running = run(host).start();
    let done = AtomicU32::new(0);
    running.wait_event(|event| {
        let is_one = event["type"] == "job_shard" && event["state"] == "done";
        (done.fetch_add(u32::from(is_one), Ordering::Relaxed) + u32::from(is_one) == 6).then_some(())
    });
    running.signal(Signal::KILL);
    running.finish();
    lapse(host);
    let dest = site.root().join("in");
    assert!(matches!(seen(&dest)[..], [] | [_]), "{:?}", seen(&dest));
    let outcome = run(host).succeed();
    assert_eq!(left(host, "all")["commit"], "done", "{outcome}");
    assert_whole(&host.path("ds"), &dest, &[], &outcome);
}

#[test]
fn a_commit_whose_answer_was_lost_is_told_as_done_and_replaces_nothing_a_second_time() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    let dest = site.root().join("in");
    files::make(dest.join("run-7/old"), 1, 100);
    add(host, &site.url("in"), &["--if-exists", "replace"]);
    run(host).succeed();
    let beside: Vec<String> = seen(&dest).into_iter().filter(|name| name != "run-7").collect();
    assert!(beside.len() == 1 && beside[0].starts_with("run-7.") && beside[0].ends_with('~'), "{beside:?}");
    assert!(dest.join(&beside[0]).join("old").exists(), "the old one is kept");
    let inode = fs::metadata(dest.join("run-7")).unwrap().ino();
    // The queue has not heard of the end.
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    let lost = "UPDATE shard SET state = 0 WHERE segment = 9223372036854775807; UPDATE campaign SET state = 1";
    rows.execute_batch(lost).unwrap();
    let outcome = run(host).succeed();
    assert_eq!(ends(&outcome), ["done"], "{outcome}");
    assert_eq!(fs::metadata(dest.join("run-7")).unwrap().ino(), inode);
    assert_whole(&host.path("ds"), &dest, &beside, &outcome);
}

#[test]
fn a_name_that_is_taken_is_refused_before_anything_moves_and_goes_on_once_it_is_free() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.make_dir("to/run-7");
    let refused = host.run(["job", "add", "--as-dataset", "run-7", "ds", "to"]).fail(23);
    assert!(refused.stderr.contains("stands already"), "{refused}");
    fs::remove_dir(host.path("to/run-7")).unwrap();
    add(&host, "to", &[]);
    host.make_dir("to/run-7");
    let outcome = run(&host).fail(23);
    assert!(ends(&outcome).iter().all(|state| state == "held"), "{outcome}");
    assert_eq!(counts(&left(&host, "all"))[0], 0);
    fs::remove_dir(host.path("to/run-7")).unwrap();
    host.run(["job", "release", "all"]).succeed();
    let outcome = run(&host).succeed();
    assert_whole(&host.path("ds"), &host.path("to"), &[], &outcome);
}

#[test]
fn of_two_movers_one_has_the_commit_and_the_dataset_appears_once() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    add(host, &site.url("in"), &["--if-exists", "replace"]);
    let movers = [run(host).start(), run(host).start()];
    let outcomes = movers.map(|mover| mover.finish());
    assert!(outcomes.iter().all(|outcome| outcome.code == 0), "{}{}", outcomes[0], outcomes[1]);
    let done: usize = outcomes.iter().map(|outcome| ends(outcome).len()).sum();
    assert_eq!(done, 7, "{}{}", outcomes[0], outcomes[1]);
    assert_whole(&host.path("ds"), &site.root().join("in"), &[], &outcomes[0]);
}

#[test]
fn what_is_staged_of_a_campaign_is_seen_by_nobody_and_its_cancellation_leaves_nothing() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    add(host, &site.url("in"), &[]);
    fs::rename(host.path("ds/3/03"), host.path("away")).unwrap();
    run(host).fail(23);
    let listed = host.run(["ls", &site.url("in")]).succeed();
    assert!(!listed.stdout_text().contains("run-7") && !listed.stdout_text().contains("longhaul"), "{listed}");
    let partials = host.run(["ls", "--partials", &site.url("")]).succeed();
    assert!(partials.stdout_text().contains("run-7"), "what is staged is told to its client: {partials}");
    host.run(["job", "cancel", "all"]).succeed();
    let told = host.run(["job", "left", "all"]).succeed();
    assert!(told.stdout_text().contains("nothing appears"), "{told}");
    run(host).fail(23);
    assert!(seen(&site.root().join("in")).is_empty());
}

/// The directories in which campaigns stage in a directory.
fn holders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_holder = |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b".longhaul-dataset-");
    entries.filter(is_holder).collect()
}

/// A host on which the campaigns `all` and `other` have staged all but one file each.
fn two_staged() -> Host {
    let host = Host::new();
    plant(&host.path("ds"));
    add(&host, "to", &[]);
    host.run(["job", "add", "--name", "other", "--as-dataset", "run-8", "ds", "to"]).succeed();
    host.run(["job", "plan", "other"]).succeed();
    fs::rename(host.path("ds/3/03"), host.path("away")).unwrap();
    for name in ["all", "other"] {
        host.run(["job", "run", "--drain", name]).fail(23);
    }
    assert_eq!(holders(&host.path("to")).len(), 2);
    host
}

#[test]
fn what_a_cancelled_campaign_staged_on_this_host_goes_with_it_and_what_another_one_did_stays() {
    let host = two_staged();
    let cancelled = host.run(["job", "cancel", "all"]).succeed();
    let told = "what the campaign had staged on this host is removed: 100 files";
    assert!(cancelled.stderr.contains(told), "{cancelled}");
    let left = holders(&host.path("to"));
    assert_eq!(left.len(), 1);
    assert!(fs::read_to_string(left[0].join("name")).unwrap().starts_with("run-8\n"));
    let again = host.run(["job", "cancel", "all"]).succeed();
    assert!(!again.stderr.contains("removed"), "{again}");
    fs::rename(host.path("away"), host.path("ds/3/03")).unwrap();
    host.run(["job", "retry", "other"]).succeed();
    host.run(["job", "run", "--drain", "other"]).succeed();
    assert_eq!(seen(&host.path("to")), ["run-8"]);
    assert!(holders(&host.path("to")).is_empty());
}

#[test]
fn a_mover_removes_what_a_campaign_staged_that_was_cancelled_without_its_command() {
    let host = two_staged();
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    // As of a command on another host, or of one that was killed.
    rows.execute_batch("UPDATE campaign SET state = 4 WHERE name = 'all'").unwrap();
    host.run(["job", "run", "--drain", "other"]).fail(23);
    assert_eq!(holders(&host.path("to")).len(), 2, "it serves another campaign alone");
    host.run(["job", "run", "--drain"]).finish();
    let left = holders(&host.path("to"));
    assert!(left.len() == 1 && fs::read_to_string(left[0].join("name")).unwrap().starts_with("run-8\n"), "{left:?}");
}

#[test]
fn what_is_staged_stays_while_a_mover_has_a_shard_and_that_mover_removes_it_in_the_end() {
    let host = Host::new();
    files::make(host.path("ds/large"), 7, 8 << 20);
    add(&host, "to", &["--rate", "256KiB/s"]);
    let running = run(&host).start();
    running.wait_event(|event| (event["type"] == "job_shard" && event["state"] == "claimed").then_some(()));
    let cancelled = host.run(["job", "cancel", "all"]).succeed();
    assert!(cancelled.stderr.contains("a mover has shards of the campaign still"), "{cancelled}");
    running.wait_event(|event| (event["type"] == "job_shard" && event["state"] == "cancelled").then_some(()));
    let outcome = running.finish();
    assert!(holders(&host.path("to")).is_empty() && seen(&host.path("to")).is_empty(), "{outcome}");
}

#[test]
fn what_another_queue_goes_on_with_is_not_removed_and_the_refusal_says_what_to_do() {
    let host = two_staged();
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    // As of a backup from before the shards were claimed: the destination keeps higher fences.
    rows.execute_batch("UPDATE shard SET fence = 0").unwrap();
    let refused = host.run(["job", "cancel", "all"]).finish();
    assert!(refused.code != 0 && refused.stderr.contains("another queue has the campaign too"), "{refused}");
    assert!(refused.stderr.contains("by hand"), "{refused}");
    assert_eq!(holders(&host.path("to")).len(), 2);
    assert_eq!(left(&host, "all")["state"], "cancelled", "{refused}");
}

#[test]
fn a_copy_of_the_queue_from_before_it_knew_all_shards_does_not_remove_what_the_queue_has_staged() {
    let host = two_staged();
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    // As of copies from amid the planning of the one campaign, and from before that of the other.
    let shards = |name: &str| format!("FROM shard WHERE campaign = (SELECT id FROM campaign WHERE name = '{name}')");
    let (all, other) = (shards("all"), shards("other"));
    rows.execute_batch(&format!("DELETE {all} AND id = (SELECT min(id) {all}); DELETE {other}")).unwrap();
    for name in ["all", "other"] {
        let refused = host.run(["job", "cancel", name]).finish();
        assert!(refused.code != 0 && refused.stderr.contains("another queue has the campaign too"), "{refused}");
    }
    host.run(["job", "run", "--drain"]).finish();
    assert_eq!(holders(&host.path("to")).len(), 2, "a mover does not remove it either");
}

#[test]
fn a_target_set_cannot_have_a_campaign_appear_and_says_so_before_bytes_move() {
    let host = Host::new();
    plant(&host.path("ds"));
    let dirs = ["one", "two"].map(|name| host.make_dir(name));
    let config = DaemonConfig::default().set("data", &dirs, "");
    let daemon = config.client("me", host.key(), &[("data", ALL_RIGHTS)]).start(&host);
    host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    add(&host, &daemon.url("data/in"), &[]);
    let outcome = run(&host).fail(23);
    let faults = outcome.events_of("fault");
    assert!(faults.iter().all(|fault| fault["code"] == "usage"), "{outcome}");
    assert!(faults[0]["message"].as_str().unwrap().contains("target set"), "{outcome}");
    assert!(ends(&outcome).iter().all(|state| state == "held"), "{outcome}");
    assert_eq!(counts(&left(&host, "all"))[0], 0);
}
