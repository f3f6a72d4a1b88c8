//! `job verify --mend`: bad files are copied anew from the source or another replica, each only
//! with the digest that is recorded of it, and nothing that somebody has written is replaced.

mod dataset;
mod rough;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::verify::{bad, damage, delivered, delivered_far, let_cycle_pass, named, verify};
use super::{plant, queue};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Outcome, Site, files};

/// The files that a run has mended, as path and kind, in order.
fn mended(outcome: &Outcome) -> Vec<(String, String)> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    let events = outcome.events_of("job_mended");
    let mut mended: Vec<_> = events.iter().map(|event| (text(event, "path"), text(event, "kind"))).collect();
    mended.sort();
    mended
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(path, kind)| ((*path).to_owned(), (*kind).to_owned())).collect()
}

/// The files whose mending was counted at the end.
fn count(outcome: &Outcome) -> u64 {
    outcome.events_of("job_verify")[0]["mended"]["files"].as_u64().unwrap()
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    assert_eq!(fs::read(one).unwrap(), fs::read(other).unwrap(), "{}", other.display());
    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(time(one), time(other), "{}", other.display());
}

/// The directories for copies that stand in a destination.
fn staged(dest: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dest.join(".longhaul")).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("mend-")).collect()
}

#[test]
fn lost_and_damaged_files_are_copied_anew_from_the_source_and_a_changed_one_never_is() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    damage(&host, "to/1/01");
    let broken = fs::read(host.path("to/1/01")).unwrap();
    fs::remove_dir_all(host.path("to/2")).unwrap();
    files::make(host.path("to/3/03"), 7, 17);
    let_cycle_pass(&host);
    let above = fs::metadata(host.path("to/1")).unwrap();
    let told = host.run(verify(&["--mend"])).fail(23);
    let now = fs::metadata(host.path("to/1")).unwrap();
    assert_eq!((above.mode(), above.mtime(), above.mtime_nsec()), (now.mode(), now.mtime(), now.mtime_nsec()));
    let mut expected: Vec<_> = (2..98).step_by(7).map(|number| (format!("2/{number:02}"), "lost".to_owned())).collect();
    expected.insert(0, ("1/01".to_owned(), "damaged".to_owned()));
    assert_eq!(mended(&told), expected);
    assert_eq!(count(&told), expected.len() as u64);
    assert_eq!(bad(told.events_of("job_bad_file")), named(&[("3/03", "changed", false)]), "that stays");
    assert_eq!(fs::metadata(host.path("to/3/03")).unwrap().len(), 17);
    for (path, _) in &expected {
        assert_same(&host.path("ds").join(path), &host.path("to").join(path));
    }
    let events = told.events_of("job_mended");
    let kept = |path: &str| events.iter().find(|event| event["path"] == path).unwrap()["kept"].clone();
    assert_eq!(fs::read(kept("1/01").as_str().unwrap()).unwrap(), broken, "it is kept");
    assert_eq!(kept("2/02"), Value::Null);
    assert_eq!(staged(&host.path("to")), [] as [PathBuf; 0]);
    let_cycle_pass(&host);
    host.run(verify(&["--ignore-changed"])).succeed();
}

#[test]
fn what_was_known_to_be_bad_is_mended_from_another_replica_though_nothing_is_due() {
    let host = Host::new();
    delivered(&host);
    host.run(["copy", "ds/", "replica"]).succeed();
    damage(&host, "to/1/01");
    fs::remove_file(host.path("to/2/02")).unwrap();
    host.run(verify(&[])).fail(6);
    fs::remove_dir_all(host.path("ds")).unwrap();
    let told = host.run(verify(&["--mend"])).fail(6);
    assert_eq!((mended(&told).len(), count(&told)), (0, 0), "the source is gone");
    let told = host.run(verify(&["--mend-from", "replica"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost")]));
    let from = told.events_of("job_mended")[0]["from"].clone();
    assert!(from.as_str().unwrap().ends_with("/replica"), "{from}");
    let ends = told.events_of("job_verified");
    assert!(ends.iter().all(|event| event["state"] == "mended"), "nothing else is read: {ends:?}");
    for path in ["1/01", "2/02"] {
        assert_same(&host.path("replica").join(path), &host.path("to").join(path));
    }
    let_cycle_pass(&host);
    host.run(verify(&[])).succeed();
}

#[test]
fn a_replica_with_other_content_is_refused_and_the_next_one_is_asked() {
    let host = Host::new();
    delivered(&host);
    for replica in ["wrong", "right"] {
        host.run(["copy", "ds/", replica]).succeed();
    }
    damage(&host, "wrong/1/01");
    damage(&host, "wrong/2/02");
    damage(&host, "to/1/01");
    fs::remove_file(host.path("to/2/02")).unwrap();
    let before = fs::metadata(host.path("to/1/01")).unwrap();
    let told = host.run(verify(&["--mend-from", "wrong"])).fail(6);
    assert_eq!(mended(&told), pairs(&[]));
    let refused = told.events_of("job_bad_file");
    assert_eq!(bad(refused.clone()), named(&[("1/01", "damaged", false), ("2/02", "lost", false)]));
    for event in refused {
        assert!(event["message"].as_str().unwrap().contains("other content"), "{event}");
    }
    let after = fs::metadata(host.path("to/1/01")).unwrap();
    assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()), "nothing has changed");
    assert!(!host.path("to/2/02").exists() && !host.path("to/.longhaul/grace").exists());
    let told = host.run(verify(&["--mend-from", "wrong", "--mend-from", "right"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost")]));
    assert_same(&host.path("ds/1/01"), &host.path("to/1/01"));
}

#[test]
fn a_file_without_a_recorded_digest_is_not_mended_and_kinds_are_chosen() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["copy", "ds/", "to"]).succeed();
    host.run(["job", "add", "--name", "all", "ds/", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    fs::remove_file(host.path("to/5/05")).unwrap();
    let told = host.run(verify(&["--mend"])).fail(23);
    let events = told.events_of("job_bad_file");
    assert!(events[0]["message"].as_str().unwrap().contains("no digest"), "{events:?}");
    assert!(!host.path("to/5/05").exists());
    // All others were read by now.
    damage(&host, "to/1/01");
    fs::remove_file(host.path("to/2/02")).unwrap();
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend-kinds", "damaged"])).fail(23);
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged")]));
    let told = host.run(verify(&["--mend-kinds", "lost"])).fail(23);
    assert_eq!(mended(&told), pairs(&[("2/02", "lost")]));
}

/// A host with a campaign of one file, which is damaged and known to be. At the lowest budget each
/// reading and copying of it takes two seconds.
fn one_damaged() -> Host {
    let host = one_damaged_unseen();
    host.run(verify(&[])).fail(6);
    host
}

/// The same, of which no reading has found the file yet.
fn one_damaged_unseen() -> Host {
    let host = Host::new();
    files::make(host.path("ds/large"), 5, 200 << 10);
    files::make(host.path("ds/small"), 6, 100);
    host.run(["job", "add", "--name", "all", "ds/", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    damage(&host, "to/large");
    host
}

/// The files that the queue of a host knows to be bad.
fn known_bad(host: &Host) -> i64 {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    rows.query_row("SELECT count(*) FROM bad_file", [], |row| row.get(0)).unwrap()
}

/// Asserts that a run has told and recorded the damaged file, and changed nothing.
#[track_caller]
fn assert_only_told((host, outcome): (&Host, &Outcome), why: &str) {
    let told = outcome.events_of("job_bad_file");
    assert_eq!(bad(told.clone()), named(&[("large", "damaged", false)]), "{outcome}");
    assert!(told[0]["message"].as_str().unwrap().contains(why), "{outcome}");
    assert_eq!((known_bad(host), mended(outcome)), (1, pairs(&[])), "{outcome}");
    assert!(host.path("to/large").exists() && !host.path("to/.longhaul/grace").exists());
}

#[test]
fn a_verifier_that_is_stopped_while_it_mends_records_and_tells_what_it_has_found() {
    let host = one_damaged_unseen();
    let running = host.run(verify(&["--mend", "--budget", "64KiB/s"])).start();
    wait_until("no copy is made", || !staged(&host.path("to")).is_empty());
    running.signal(Signal::TERM);
    assert_only_told((&host, &running.finish()), "was to stop");
}

#[test]
fn a_file_whose_mending_takes_longer_than_the_time_that_is_left_is_recorded_and_told() {
    let host = one_damaged_unseen();
    let outcome = host.run(verify(&["--mend", "--budget", "64KiB/s", "--max-time", "12s"])).fail(6);
    assert_only_told((&host, &outcome), "--max-time");
}

#[test]
fn a_directory_with_a_name_like_that_of_copies_stays() {
    let host = one_damaged();
    let notes = ["to/mend-notes", "to/.longhaul/mend-notes"].map(|path| host.path(path).join("note"));
    notes.iter().for_each(|note| files::make(note, 3, 10));
    // As longhaul makes it: what others can look into is not used to keep files.
    fs::set_permissions(host.path("to/.longhaul"), fs::Permissions::from_mode(0o700)).unwrap();
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("large", "damaged")]));
    for note in notes {
        assert!(note.exists(), "{}", note.display());
    }
}

/// Waits for something that a running program does.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_file_that_somebody_restored_or_rewrote_meanwhile_is_not_touched() {
    for restores in [true, false] {
        let host = one_damaged();
        let to = host.path("to/large");
        let running = host.run(verify(&["--mend", "--budget", "64KiB/s"])).start();
        wait_until("no copy is made", || !staged(&host.path("to")).is_empty());
        match restores {
            true => {
                fs::copy(host.path("ds/large"), host.path("to/new")).unwrap();
                let time = fs::metadata(&to).unwrap().modified().unwrap();
                fs::File::options().write(true).open(host.path("to/new")).unwrap().set_modified(time).unwrap();
                fs::rename(host.path("to/new"), &to).unwrap();
            }
            false => files::make(&to, 9, 200 << 10),
        }
        let written = fs::metadata(&to).unwrap();
        let outcome = running.finish();
        assert_eq!(outcome.code, if restores { 0 } else { 23 }, "{outcome}");
        assert_eq!(mended(&outcome), pairs(&[]));
        let now = fs::metadata(&to).unwrap();
        assert_eq!((now.ino(), now.mtime(), now.len()), (written.ino(), written.mtime(), written.len()), "{outcome}");
        let found = bad(outcome.events_of("job_bad_file"));
        assert_eq!(
            found.iter().map(|(_, kind, _)| kind.as_str()).collect::<Vec<_>>(),
            match restores {
                true => vec![],
                false => vec!["changed"],
            }
        );
    }
}

#[test]
fn a_verifier_that_is_killed_behind_the_copy_has_mended_and_the_next_reading_finds_that() {
    let host = one_damaged();
    let (from, to) = (fs::read(host.path("ds/large")).unwrap(), host.path("to/large"));
    let running = host.run(verify(&["--mend", "--budget", "64KiB/s"])).start();
    wait_until("it is not mended", || fs::read(&to).is_ok_and(|content| content == from));
    running.signal(Signal::KILL);
    running.finish();
    assert_eq!(staged(&host.path("to")).len(), 1, "its copies are left");
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    let known = || rows.query_row("SELECT count(*) FROM bad_file", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(known(), 1, "nobody has read it back");
    rows.execute("UPDATE verification SET until = 0", []).unwrap();
    let inode = fs::metadata(&to).unwrap().ino();
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!((mended(&told).len(), known(), staged(&host.path("to")).len()), (0, 0, 0), "{told}");
    assert_eq!(fs::metadata(&to).unwrap().ino(), inode, "it was well");
}

#[test]
fn files_at_a_daemon_are_mended_by_a_push_and_the_daemon_keeps_what_was_damaged() {
    let site = Site::new();
    let host = &site.client;
    delivered_far(&site);
    host.run(verify(&[])).succeed();
    let root = site.root();
    damage(&site.server, "data/in/1/01");
    let broken = fs::read(root.join("in/1/01")).unwrap();
    fs::remove_file(root.join("in/2/02")).unwrap();
    let_cycle_pass(host);
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost")]));
    for path in ["1/01", "2/02"] {
        assert_same(&host.path("ds").join(path), &root.join("in").join(path));
    }
    let graces: Vec<_> = fs::read_dir(root.join(".longhaul/grace")).unwrap().collect();
    assert_eq!(graces.len(), 1);
    let kept = graces.into_iter().next().unwrap().unwrap().path().join("in/1/01");
    assert_eq!(fs::read(kept).unwrap(), broken);
    let told = told.events_of("job_mended").into_iter().find(|event| event["path"] == "1/01").unwrap();
    let place = told["kept"].as_str().unwrap();
    assert!(place.starts_with("lh://") && place.contains("/data/.longhaul/grace/"), "{place}");
    let_cycle_pass(host);
    host.run(verify(&[])).succeed();
}

#[test]
fn a_daemon_that_lets_nothing_be_moved_away_has_lost_files_copied_anew_and_no_damaged_ones() {
    let site = Site::granting(DaemonConfig::default(), "read,create", ALL_RIGHTS);
    let host = &site.client;
    delivered_far(&site);
    host.run(verify(&[])).succeed();
    damage(&site.server, "data/in/1/01");
    fs::remove_file(site.root().join("in/2/02")).unwrap();
    let_cycle_pass(host);
    let told = host.run(verify(&["--mend"])).fail(6);
    assert_eq!(mended(&told), pairs(&[("2/02", "lost")]));
    assert_eq!(bad(told.events_of("job_bad_file")), named(&[("1/01", "damaged", false)]));
    assert!(!site.root().join(".longhaul/grace").exists());
    assert_same(&host.path("ds/2/02"), &site.root().join("in/2/02"));
}

#[test]
fn what_cannot_be_mended_cleanly_is_refused_before_anything_is_read() {
    let host = Host::new();
    delivered(&host);
    let refused = |options: &[&str], words: &str| {
        let told = host.run(verify(options)).fail(2);
        assert!(told.stderr.contains(words), "{told}");
        assert_eq!(told.events_of("job_verified"), [] as [Value; 0]);
    };
    refused(&["--mend-kinds", "changed"], "lost and damaged");
    refused(&["--mend-kinds", "unread"], "lost and damaged");
    refused(&["--mend-from", "to"], "the destination itself");
    host.run(verify(&["--mend-from", "none"])).fail(3);
    host.run(["job", "add", "--name", "later", "ds/", "others"]).succeed();
    let told = host.run(["job", "verify", "later", "--once", "--mend"]).fail(2);
    assert!(told.stderr.contains("is not planned yet"), "{told}");
}
