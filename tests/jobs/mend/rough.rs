//! `job verify --mend` where others are at work too: two verifiers at once, one that is killed
//! halfway, a campaign that is changed, a daemon that goes away, and what people put in the place
//! of files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::process::Signal;
use serde_json::Value;

use super::super::queue;
use super::super::verify::{bad, damage, delivered, delivered_far, let_cycle_pass, named, verify};
use super::{
    assert_only_told, assert_same, count, known_bad, mended, one_damaged, one_damaged_unseen, pairs, staged, wait_until,
};
use crate::fixture::{Host, Site, files};

/// The lowest budget: each reading and copying of a file of `one_damaged` takes seconds.
pub(super) const SLOWLY: [&str; 3] = ["--mend", "--budget", "64KiB/s"];

/// The files that were moved aside under a path, in a directory with longhaul's own.
pub(super) fn kept(top: &Path, path: &str) -> Vec<PathBuf> {
    let labels = fs::read_dir(top.join(".longhaul/grace")).into_iter().flatten();
    let all = labels.map(|label| label.unwrap().path().join(path));
    all.filter(|path| path.exists()).collect()
}

/// Lets the leases of verifiers pass that are gone or stand still.
pub(super) fn let_leases_pass(host: &Host) {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    rows.execute("UPDATE verification SET until = 0", []).unwrap();
}

#[test]
fn two_verifiers_at_once_mend_each_file_once() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    let damaged = ["0/07", "1/01", "2/16", "3/24", "5/33", "6/41"];
    let lost = ["0/14", "1/22", "2/30", "4/39", "5/47", "6/55"];
    damaged.iter().for_each(|path| damage(&host, &format!("to/{path}")));
    lost.iter().for_each(|path| fs::remove_file(host.path("to").join(path)).unwrap());
    let_cycle_pass(&host);
    host.run(verify(&[])).fail(6);
    // One holds a shard while the other one mends the rest.
    let held = host.run(verify(&SLOWLY)).start();
    wait_until("no copy is made", || !staged(&host.path("to")).is_empty());
    held.signal(Signal::STOP);
    let other = host.run(verify(&["--mend"])).finish();
    held.signal(Signal::CONT);
    let outcomes = [held.finish(), other];
    assert_eq!(outcomes[0].code, 0, "nothing is left: {}{}", outcomes[0], outcomes[1]);
    assert!(outcomes.iter().all(|outcome| !mended(outcome).is_empty()), "{}{}", outcomes[0], outcomes[1]);
    let mut all: Vec<_> = outcomes.iter().flat_map(mended).collect();
    all.sort();
    let mut expected: Vec<_> = damaged.iter().map(|path| (path.to_string(), "damaged".to_owned())).collect();
    expected.extend(lost.iter().map(|path| (path.to_string(), "lost".to_owned())));
    expected.sort();
    assert_eq!(all, expected, "{}{}", outcomes[0], outcomes[1]);
    for path in damaged.iter().chain(&lost) {
        assert_same(&host.path("ds").join(path), &host.path("to").join(path));
    }
    for path in damaged {
        assert_eq!(kept(&host.path("to"), path).len(), 1, "{path}");
    }
    assert_eq!((known_bad(&host), staged(&host.path("to"))), (0, vec![]));
    let_cycle_pass(&host);
    host.run(verify(&[])).succeed();
}

#[test]
fn a_verifier_whose_lease_has_passed_does_not_move_aside_what_another_one_has_mended() {
    let host = one_damaged();
    let (to, broken) = (host.path("to/large"), fs::read(host.path("to/large")).unwrap());
    let running = host.run(verify(&SLOWLY)).start();
    wait_until("no copy is made", || !staged(&host.path("to")).is_empty());
    running.signal(Signal::STOP);
    let_leases_pass(&host);
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told).len(), 1, "{told}");
    let inode = fs::metadata(&to).unwrap().ino();
    running.signal(Signal::CONT);
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(fs::metadata(&to).unwrap().ino(), inode, "{outcome}");
    assert_same(&host.path("ds/large"), &to);
    let kept = kept(&host.path("to"), "large");
    assert!(kept.len() == 1 && fs::read(&kept[0]).unwrap() == broken, "{kept:?}: {outcome}");
    assert_eq!((known_bad(&host), staged(&host.path("to"))), (0, vec![]));
}

#[test]
fn a_file_whose_verifier_was_killed_behind_moving_it_aside_is_mended_as_a_lost_one_and_what_it_was_is_kept() {
    let host = one_damaged();
    let (to, broken) = (host.path("to/large"), fs::read(host.path("to/large")).unwrap());
    let running = host.run(verify(&SLOWLY)).start();
    wait_until("it is not moved aside", || !to.exists());
    running.signal(Signal::KILL);
    running.finish();
    assert!(!to.exists(), "its copy takes seconds");
    let before = kept(&host.path("to"), "large");
    assert!(before.len() == 1 && fs::read(&before[0]).unwrap() == broken);
    assert_eq!(known_bad(&host), 1, "nothing is forgotten");
    let_leases_pass(&host);
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("large", "lost")]), "{told}");
    assert_same(&host.path("ds/large"), &to);
    assert_eq!(kept(&host.path("to"), "large"), before);
    assert_eq!(fs::read(&before[0]).unwrap(), broken);
    assert_eq!((known_bad(&host), staged(&host.path("to"))), (0, vec![]));
}

#[test]
fn nothing_is_mended_of_a_campaign_that_was_changed_or_cancelled_while_copies_were_made() {
    let changes = [
        ("UPDATE campaign SET spec = CAST(CAST(spec AS TEXT) || ' ' AS BLOB)", "the queue says something else"),
        ("UPDATE campaign SET state = 4", "was cancelled"),
    ];
    for (change, why) in changes {
        let host = one_damaged_unseen();
        let running = host.run(verify(&SLOWLY)).start();
        wait_until("no copy is made", || !staged(&host.path("to")).is_empty());
        let rows = rusqlite::Connection::open(queue(&host)).unwrap();
        assert_eq!(rows.execute(change, []).unwrap(), 1);
        assert_only_told((&host, &running.finish()), why);
    }
}

#[test]
fn a_daemon_that_is_away_as_known_files_are_to_be_mended_is_told_and_the_next_run_mends_them() {
    let site = Site::new();
    let host = &site.client;
    delivered_far(&site);
    host.run(verify(&[])).succeed();
    damage(&site.server, "data/in/1/01");
    fs::remove_file(site.root().join("in/2/02")).unwrap();
    let_cycle_pass(host);
    host.run(verify(&[])).fail(6);
    site.daemon.kill();
    let told = host.run(verify(&["--mend"])).fail(6);
    let faults = told.events_of("fault");
    assert!(faults.iter().any(|fault| fault["code"] == "unreachable"), "{told}");
    assert_eq!((mended(&told), known_bad(host)), (vec![], 2), "{told}");
    let _again = site.restarted();
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost")]));
    assert_eq!(known_bad(host), 0);
}

/// The directories for copies beside the manifests of a host's queue.
fn staged_far(host: &Host) -> Vec<PathBuf> {
    let campaigns = fs::read_dir(queue(host).with_extension("db.manifests")).unwrap();
    let dirs = campaigns.flat_map(|campaign| fs::read_dir(campaign.unwrap().path()).into_iter().flatten());
    let paths = dirs.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().as_bytes().starts_with(b"mend-")).collect()
}

#[test]
fn a_daemon_that_goes_away_while_a_copy_is_made_leaves_the_file_as_it_was_and_the_next_run_mends_it() {
    let site = Site::new();
    let host = &site.client;
    files::make(host.path("ds/large"), 5, 200 << 10);
    files::make(host.path("ds/small"), 6, 100);
    host.run(["job", "add", "--name", "all", "ds/", &site.url("in")]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    damage(&site.server, "data/in/large");
    let broken = fs::read(site.root().join("in/large")).unwrap();
    host.run(verify(&[])).fail(6);
    let running = host.run(verify(&SLOWLY)).start();
    wait_until("no copy is made", || !staged_far(host).is_empty());
    site.daemon.kill();
    let outcome = running.finish();
    let told = outcome.events_of("job_bad_file");
    assert_eq!(bad(told.clone()), named(&[("large", "damaged", true)]), "{outcome}");
    assert!(told[0]["message"].as_str().unwrap().contains("it was not mended"), "{outcome}");
    assert_eq!((outcome.code, mended(&outcome), known_bad(host)), (6, vec![], 1), "{outcome}");
    assert_eq!(fs::read(site.root().join("in/large")).unwrap(), broken);
    let _again = site.restarted();
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("large", "damaged")]));
    assert_same(&host.path("ds/large"), &site.root().join("in/large"));
    let kept = kept(&site.root(), "in/large");
    assert!(kept.len() == 1 && fs::read(&kept[0]).unwrap() == broken, "{kept:?}");
    assert_eq!((known_bad(host), staged_far(host)), (0, vec![]));
}

#[test]
fn another_kind_of_file_in_the_place_of_one_is_no_damage_and_stays() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    for path in ["1/01", "2/02", "3/03"] {
        fs::remove_file(host.path("to").join(path)).unwrap();
    }
    files::link(host.path("ds/1/01"), host.path("to/1/01"));
    files::make(host.path("to/2/02/theirs"), 3, 10);
    files::make_special(host.path("to/3/03"), FileType::Fifo);
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).fail(23);
    let found = [("1/01", "changed", false), ("2/02", "changed", false), ("3/03", "changed", false)];
    assert_eq!(bad(told.events_of("job_bad_file")), named(&found));
    assert_eq!(mended(&told), pairs(&[]));
    assert!(fs::symlink_metadata(host.path("to/1/01")).unwrap().is_symlink());
    assert!(host.path("to/2/02/theirs").exists() && !host.path("to/.longhaul/grace").exists());
}

#[test]
fn a_directory_that_has_become_a_link_gets_no_copies_beneath_what_it_leads_to() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    host.make_dir("elsewhere");
    fs::remove_dir_all(host.path("to/2")).unwrap();
    files::link("../elsewhere", host.path("to/2"));
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).finish();
    assert!(told.code != 0 && mended(&told).is_empty(), "{told}");
    assert!(fs::symlink_metadata(host.path("to/2")).unwrap().is_symlink(), "{told}");
    assert_eq!(fs::read_dir(host.path("elsewhere")).unwrap().count(), 0, "{told}");
}

#[test]
fn empty_files_files_that_were_cut_to_nothing_and_names_of_any_bytes_are_mended() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    let empty = OsStr::from_bytes(b"not-utf8-\xff");
    fs::remove_file(host.path("to").join(empty)).unwrap();
    damage(&host, "to/line\nbreak");
    let broken = fs::read(host.path("to/line\nbreak")).unwrap();
    let cut = fs::File::options().write(true).open(host.path("to/4/04")).unwrap();
    let time = cut.metadata().unwrap().modified().unwrap();
    cut.set_len(0).unwrap();
    cut.set_modified(time).unwrap();
    drop(cut);
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).succeed();
    let kinds = |wanted: &str| told.events_of("job_mended").iter().filter(|event| event["kind"] == wanted).count();
    assert_eq!((count(&told), kinds("damaged"), kinds("lost")), (3, 2, 1), "{told}");
    for path in [empty, OsStr::new("line\nbreak"), OsStr::new("4/04")] {
        assert_same(&host.path("ds").join(path), &host.path("to").join(path));
    }
    let kept = kept(&host.path("to"), "line\nbreak");
    assert!(kept.len() == 1 && fs::read(&kept[0]).unwrap() == broken, "{kept:?}");
    let_cycle_pass(&host);
    host.run(verify(&[])).succeed();
}

#[test]
fn a_replica_with_other_things_in_the_place_of_files_gives_nothing_and_they_do_not_come() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    host.run(["copy", "ds/", "replica"]).succeed();
    damage(&host, "to/1/01");
    for path in ["2/02", "3/03", "4/04"] {
        fs::remove_file(host.path("to").join(path)).unwrap();
    }
    for path in ["1/01", "2/02", "3/03"] {
        fs::remove_file(host.path("replica").join(path)).unwrap();
    }
    files::link(host.path("ds/1/01"), host.path("replica/1/01"));
    // At the budget it takes longer than there is time.
    files::make(host.path("replica/2/02/more"), 3, 4 << 20);
    let_cycle_pass(&host);
    host.run(verify(&[])).fail(6);
    let slowly = ["--mend-from", "replica", "--budget", "64KiB/s", "--max-time", "30s"];
    let told = host.run(verify(&slowly)).fail(6);
    assert_eq!(mended(&told), pairs(&[("4/04", "lost")]), "what is right beside them comes: {told}");
    let found = [("1/01", "damaged", true), ("2/02", "lost", true), ("3/03", "lost", true)];
    assert_eq!(bad(told.events_of("job_bad_file")), named(&found), "{told}");
    for event in told.events_of("job_bad_file") {
        assert!(!event["message"].as_str().unwrap().contains("was to stop"), "{event}: {told}");
    }
    assert!(!host.path("to/2/02").exists() && !host.path("to/.longhaul/grace").exists());
    let told = host.run(verify(&["--mend-from", "replica", "--mend-from", "ds"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost"), ("3/03", "lost")]));
    let events: Vec<Value> = told.events_of("job_mended");
    assert!(events.iter().all(|event| event["from"].as_str().unwrap().ends_with("/ds")), "{told}");
}
