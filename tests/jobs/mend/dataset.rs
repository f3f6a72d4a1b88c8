//! `job verify --mend` of a campaign whose files appeared together: they are mended in their
//! dataset by its own sealed list, which is never written anew.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_manifest::{Draft, Sealed};
use rustix::process::Signal;

use super::super::plant;
use super::super::verify::{bad, damage, let_cycle_pass, named, verify};
use super::rough::{SLOWLY, kept, let_leases_pass};
use super::{assert_same, mended, pairs, staged, wait_until};
use crate::fixture::{Host, Outcome, Site, files, tree};

/// A campaign of `ds` that has appeared as the dataset `run-7` at a destination, and was read once.
fn appeared(host: &Host, to: &str) {
    plant(&host.path("ds"));
    let add = ["job", "add", "--name", "all", "--as-dataset", "run-7", "--shard-files", "30", "ds", to];
    host.run(add).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    host.run(verify(&[])).succeed();
}

/// A campaign of two files that has appeared as the dataset `run-7`. One is damaged and some are
/// lost, which is known. At the lowest budget each reading and copying of the damaged one takes
/// seconds.
fn appeared_and_damaged(lost: &[&str]) -> Host {
    let host = Host::new();
    files::make(host.path("ds/large"), 5, 200 << 10);
    files::make(host.path("ds/small"), 6, 100);
    host.run(["job", "add", "--name", "all", "--as-dataset", "run-7", "ds", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    damage(&host, "to/run-7/ds/large");
    lost.iter().for_each(|name| fs::remove_file(host.path("to/run-7/ds").join(name)).unwrap());
    host.run(verify(&[])).fail(6);
    host
}

/// The reasons that a run told of files that stay bad, by their paths.
fn reasons(told: &Outcome) -> Vec<(String, String)> {
    let text = |event: &serde_json::Value, field: &str| event[field].as_str().unwrap().to_owned();
    let events = told.events_of("job_bad_file");
    let mut reasons: Vec<_> = events.iter().map(|event| (text(event, "path"), text(event, "message"))).collect();
    reasons.sort();
    reasons
}

/// The names of longhaul's own in a dataset, in all its directories, beside its sealed list.
fn own_names(dataset: &Path) -> Vec<String> {
    tree::leftovers(dataset).into_iter().filter(|path| !path.starts_with(".longhaul-manifest")).collect()
}

/// The modes and times of the directories of a dataset.
fn dirs(dataset: &Path) -> Vec<(u32, i64, i64)> {
    let found = ["", "ds", "ds/1", "ds/2"].map(|dir| fs::metadata(dataset.join(dir)).unwrap());
    found.iter().map(|found| (found.mode(), found.mtime(), found.mtime_nsec())).collect()
}

/// The files of the sealed list of a dataset, with their content.
fn sealed(dataset: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dataset.join(".longhaul-manifest")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

/// Seals the list of a dataset anew, with so many names in a segment. A list that longhaul makes
/// has a million of them.
fn seal_in_segments(dataset: &Path, items: u64) -> Sealed {
    let dir = dataset.join(".longhaul-manifest");
    let whole = Sealed::open(&dir).unwrap();
    let names: Vec<_> = whole.items().map(Result::unwrap).collect();
    fs::remove_dir_all(&dir).unwrap();
    let mut draft = Draft::begin(&dir).unwrap().with_segments_of(items);
    for name in &names {
        draft.add(name).unwrap();
    }
    draft.seal(whole.head().lists, whole.head().omitted).unwrap()
}

#[test]
fn lost_and_damaged_files_of_a_dataset_are_mended_in_it_and_nothing_else_of_it_changes() {
    let host = Host::new();
    appeared(&host, "to");
    let dataset = host.path("to/run-7");
    damage(&host, "to/run-7/ds/1/01");
    let broken = fs::read(dataset.join("ds/1/01")).unwrap();
    fs::remove_file(dataset.join("ds/2/02")).unwrap();
    let (above, list) = (dirs(&dataset), sealed(&dataset));
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost")]));
    for path in ["1/01", "2/02"] {
        assert_same(&host.path("ds").join(path), &dataset.join("ds").join(path));
    }
    assert_eq!((dirs(&dataset), sealed(&dataset)), (above, list), "{told}");
    assert_eq!(own_names(&dataset), [""; 0]);
    let mut names: Vec<_> = fs::read_dir(&dataset).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".longhaul-manifest", "ds"]);
    let events = told.events_of("job_mended");
    let kept = events.iter().find(|event| event["path"] == "1/01").unwrap()["kept"].as_str().unwrap();
    assert!(kept.starts_with(host.path("to/.longhaul/grace").to_str().unwrap()), "{kept}");
    assert!(kept.ends_with("/run-7/ds/1/01") && fs::read(kept).unwrap() == broken, "{kept}");
    let_cycle_pass(&host);
    host.run(verify(&[])).succeed();
}

#[test]
fn files_of_a_dataset_are_mended_from_a_replica_that_has_its_names() {
    let host = Host::new();
    appeared(&host, "to");
    host.run(["copy", "ds", "replica/"]).succeed();
    let dataset = host.path("to/run-7");
    damage(&host, "to/run-7/ds/1/01");
    fs::remove_file(dataset.join("ds/2/02")).unwrap();
    fs::remove_dir_all(host.path("ds")).unwrap();
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend-from", "to/run-7"])).fail(2);
    assert!(told.stderr.contains("the destination itself"), "{told}");
    let told = host.run(verify(&["--mend-from", "replica"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged"), ("2/02", "lost")]));
    for path in ["ds/1/01", "ds/2/02"] {
        assert_same(&host.path("replica").join(path), &dataset.join(path));
    }
}

#[test]
fn a_dataset_that_has_taken_the_place_of_the_campaign_s_is_given_none_of_its_files() {
    let host = Host::new();
    appeared(&host, "to");
    host.run(["copy", "ds", "newer/"]).succeed();
    fs::remove_file(host.path("newer/ds/2/02")).unwrap();
    host.run(["copy", "newer/ds", "to/", "--as-dataset", "run-7", "--if-exists", "replace"]).succeed();
    let dataset = host.path("to/run-7");
    assert!(dataset.join("ds/1/01").exists() && !dataset.join("ds/2/02").exists());
    let list = sealed(&dataset);
    // It is known from then on which directory has the name: that would not keep the file out.
    let_cycle_pass(&host);
    host.run(verify(&[])).fail(23);
    let told = host.run(verify(&["--mend"])).fail(23);
    assert_eq!(mended(&told), pairs(&[]));
    let found = told.events_of("job_bad_file");
    assert_eq!(bad(found.clone()), named(&[("2/02", "lost", true)]), "{told}");
    assert!(found[0]["message"].as_str().unwrap().contains("no such file in its sealed list"), "{told}");
    assert!(!dataset.join("ds/2/02").exists());
    assert_eq!(sealed(&dataset), list);
}

#[test]
fn a_dataset_that_takes_the_place_while_copies_are_fetched_is_given_none_of_them() {
    let host = appeared_and_damaged(&["small"]);
    files::make(host.path("newer/ds/large"), 9, 200 << 10);
    let dataset = host.path("to/run-7");
    let running = host.run(verify(&[&SLOWLY[..], &["--believe-losses"]].concat())).start();
    wait_until("no copy is made", || !staged(&host.path("to")).is_empty());
    running.signal(Signal::STOP);
    host.run(["copy", "newer/ds", "to/", "--as-dataset", "run-7", "--if-exists", "replace"]).succeed();
    let list = sealed(&dataset);
    running.signal(Signal::CONT);
    let told = running.finish();
    let reasons = reasons(&told);
    let paths: Vec<_> = reasons.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!((paths, mended(&told)), (vec!["large", "small"], pairs(&[])), "{told}");
    for (path, why) in reasons {
        assert!(why.contains("another dataset has taken the name meanwhile"), "{path}: {why}: {told}");
    }
    assert!(!dataset.join("ds/small").exists() && !host.path("to/.longhaul/grace").exists(), "{told}");
    assert_same(&host.path("newer/ds/large"), &dataset.join("ds/large"));
    assert_eq!((sealed(&dataset), own_names(&dataset)), (list, vec![]), "{told}");
}

#[test]
fn a_file_of_a_dataset_that_is_renamed_while_its_copy_is_put_is_not_told_as_mended() {
    let host = appeared_and_damaged(&[]);
    let (dataset, away) = (host.path("to/run-7"), host.path("to/run-7.old"));
    let broken = fs::read(dataset.join("ds/large")).unwrap();
    let running = host.run(verify(&SLOWLY)).start();
    wait_until("it is not moved aside", || !dataset.join("ds/large").exists());
    running.signal(Signal::STOP);
    fs::rename(&dataset, &away).unwrap();
    running.signal(Signal::CONT);
    let told = running.finish();
    let reasons = reasons(&told);
    assert_eq!((reasons.len(), mended(&told)), (1, pairs(&[])), "{told}");
    assert!(reasons[0].1.contains("does not confirm it"), "{told}");
    let kept = kept(&host.path("to"), "run-7/ds/large");
    assert!(kept.len() == 1 && fs::read(&kept[0]).unwrap() == broken, "{kept:?}: {told}");
    assert!(reasons[0].1.contains(kept[0].to_str().unwrap()), "{told}");
    assert_same(&host.path("ds/small"), &away.join("ds/small"));
}

#[test]
fn what_a_verifier_leaves_in_a_dataset_that_was_killed_while_it_put_a_copy_is_removed_by_the_next_one() {
    let host = appeared_and_damaged(&[]);
    let dataset = host.path("to/run-7");
    let broken = fs::read(dataset.join("ds/large")).unwrap();
    let running = host.run(verify(&SLOWLY)).start();
    wait_until("it is not moved aside", || !dataset.join("ds/large").exists());
    running.signal(Signal::KILL);
    running.finish();
    let_leases_pass(&host);
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("large", "lost")]), "{told}");
    assert_same(&host.path("ds/large"), &dataset.join("ds/large"));
    assert_eq!((own_names(&dataset), staged(&host.path("to"))), (vec![], vec![]), "{told}");
    let kept = kept(&host.path("to"), "run-7/ds/large");
    assert!(kept.len() == 1 && fs::read(&kept[0]).unwrap() == broken, "{kept:?}: {told}");
}

#[test]
fn a_link_with_the_name_of_a_dataset_is_told_and_nothing_is_mended_through_it() {
    let host = Host::new();
    appeared(&host, "to");
    damage(&host, "to/run-7/ds/1/01");
    let broken = fs::read(host.path("to/run-7/ds/1/01")).unwrap();
    host.run(verify(&[])).succeed();
    fs::rename(host.path("to/run-7"), host.path("to/run-7.v2")).unwrap();
    files::link("run-7.v2", host.path("to/run-7"));
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).finish();
    assert!(told.code != 0 && mended(&told).is_empty(), "{told}");
    assert!(told.stderr.contains("not the dataset itself"), "{told}");
    assert_eq!(fs::read(host.path("to/run-7.v2/ds/1/01")).unwrap(), broken);
    assert!(!host.path("to/.longhaul/grace").exists(), "{told}");
}

#[test]
fn a_run_with_mend_fails_for_a_lost_list_alone_and_says_what_to_do() {
    let host = Host::new();
    appeared(&host, "to");
    host.run(verify(&["--mend"])).succeed();
    fs::remove_dir_all(host.path("to/run-7/.longhaul-manifest")).unwrap();
    let told = host.run(verify(&["--mend"])).fail(3);
    assert!(told.stderr.contains("never written anew") && told.stderr.contains("restore it from a backup"), "{told}");
    assert!(reasons(&told).is_empty(), "{told}");
    host.run(verify(&[])).succeed();
}

#[test]
fn a_sealed_list_that_is_lost_or_damaged_is_told_and_not_made_anew_and_nothing_is_mended_without_it() {
    let host = Host::new();
    appeared(&host, "to");
    let dataset = host.path("to/run-7");
    damage(&host, "to/run-7/ds/1/01");
    host.run(verify(&[])).succeed();
    let_cycle_pass(&host);
    let (dir, away) = (dataset.join(".longhaul-manifest"), host.path("away"));
    let refused = |why: &str| {
        let told = host.run(verify(&["--mend"])).finish();
        assert_eq!(told.code, 6, "a file is damaged: {why}: {told}");
        assert!(told.stderr.contains("never written anew"), "{why}: {told}");
        let found = told.events_of("job_bad_file");
        let found: Vec<_> = found.iter().filter(|event| event["path"] == "1/01").collect();
        assert!(!found.is_empty() && mended(&told).is_empty(), "{why}: {told}");
        assert!(found[0]["message"].as_str().unwrap().contains("does not confirm it"), "{why}: {told}");
        assert!(!host.path("to/.longhaul/grace").exists(), "{why}");
    };
    fs::rename(&dir, &away).unwrap();
    refused("it is lost");
    assert!(!dir.exists());
    fs::rename(&away, &dir).unwrap();
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "lhs");
    let segment = sealed(&dataset).into_iter().find(|(path, _)| is_segment(path)).expect("a segment");
    files::write(&segment.0, &segment.1[..segment.1.len() - 1]);
    let list = sealed(&dataset);
    refused("it is damaged");
    assert_eq!(sealed(&dataset), list);
    files::write(&segment.0, &segment.1);
    let told = host.run(verify(&["--mend"])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged")]));
}

#[test]
fn files_are_mended_by_a_list_of_many_segments_as_far_as_it_is_whole() {
    let host = Host::new();
    appeared(&host, "to");
    let dataset = host.path("to/run-7");
    let list = seal_in_segments(&dataset, 10);
    damage(&host, "to/run-7/ds/1/01");
    let lost = ["2/02", "3/03", "6/97"];
    lost.iter().for_each(|name| fs::remove_file(dataset.join("ds").join(name)).unwrap());
    let files = sealed(&dataset);
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).succeed();
    let expected = pairs(&[("1/01", "damaged"), ("2/02", "lost"), ("3/03", "lost"), ("6/97", "lost")]);
    assert_eq!(mended(&told), expected);
    for (path, _) in expected {
        assert_same(&host.path("ds").join(&path), &dataset.join("ds").join(&path));
    }
    assert_eq!(sealed(&dataset), files);
    // The first of them lies in front of the middle of the list, and the last one behind it.
    let middle = list.file(&list.head().segments[list.head().segments.len() / 2]);
    files::write(&middle, &fs::read(&middle).unwrap()[1..]);
    damage(&host, "to/run-7/ds/1/01");
    fs::remove_file(dataset.join("ds/6/97")).unwrap();
    let files = sealed(&dataset);
    let_cycle_pass(&host);
    let told = host.run(verify(&["--mend"])).finish();
    assert!(told.code != 0 && told.stderr.contains("never written anew"), "{told}");
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged")]), "{told}");
    let reasons = reasons(&told);
    assert!(reasons.len() == 1 && reasons[0].0 == "6/97", "{told}");
    assert!(reasons[0].1.contains("does not confirm it"), "{told}");
    assert!(!dataset.join("ds/6/97").exists());
    assert_eq!(sealed(&dataset), files);
}

#[test]
fn a_dataset_that_has_not_appeared_yet_has_no_list_to_be_missed() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "--as-dataset", "run-7", "ds", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    let told = host.run(verify(&["--mend"])).succeed();
    assert!(!told.stderr.contains("sealed list"), "{told}");
}

#[test]
fn a_dataset_at_a_daemon_is_mended_on_the_daemon_s_host_alone() {
    let site = Site::new();
    let host = &site.client;
    appeared(host, &site.url("in"));
    damage(&site.server, "data/in/run-7/ds/1/01");
    let_cycle_pass(host);
    let told = host.run(verify(&["--mend"])).fail(2);
    assert!(told.stderr.contains("does not serve the sealed list") && told.stderr.contains("--at"), "{told}");
    let at = site.root().join("in");
    let told = host.run(verify(&["--mend", "--at", at.to_str().unwrap()])).succeed();
    assert_eq!(mended(&told), pairs(&[("1/01", "damaged")]));
    assert_same(&host.path("ds/1/01"), &at.join("run-7/ds/1/01"));
    let_cycle_pass(host);
    host.run(verify(&[])).succeed();
}
