//! Names that are moved away, and those that stay.
//!
//! In: trees of a few names. Out: verdicts on `grace`.

mod random;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::testing::{FailingKernel, path};

fn planted() -> (tempfile::TempDir, Arc<Tree>) {
    let top = tempfile::tempdir().expect("scratch");
    fs::create_dir_all(top.path().join("a/b")).expect("a directory");
    fs::write(top.path().join("a/b/f"), "content").expect("a file");
    fs::write(top.path().join("a/g"), "other").expect("a file");
    symlink("nowhere", top.path().join("l")).expect("a link");
    let tree = Tree::open(top.path()).expect("a tree");
    (top, tree)
}

fn facts(tree: &Tree, name: &str) -> NameFacts {
    tree.facts(&path(name)).expect("facts").expect("it stands")
}

fn kept(top: &Path, name: &str) -> std::path::PathBuf {
    top.join(".longhaul/grace/x").join(name)
}

#[test]
fn names_go_with_their_paths_and_directories_once_they_are_empty() {
    let (top, tree) = planted();
    let known: Vec<_> = ["l", "a/g", "a/b/f", "a/b", "a"].map(|name| (name, facts(&tree, name))).into();
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/b"), &known[3].1).expect("no error"), Withdrawn::NotEmpty);
    for (name, facts) in &known {
        assert_eq!(grace.withdraw(&path(*name), facts).expect("no error"), Withdrawn::Moved, "{name}");
    }
    grace.sync().expect("synced");
    assert_eq!(fs::read_to_string(kept(top.path(), "a/b/f")).expect("kept"), "content");
    assert!(kept(top.path(), "l").is_symlink() && !top.path().join("a").exists());
    for (name, facts) in &known {
        assert_eq!(grace.withdraw(&path(*name), facts).expect("no error"), Withdrawn::MovedBefore, "{name}");
    }
}

#[test]
fn what_is_another_file_by_now_stays() {
    let (top, tree) = planted();
    let known = facts(&tree, "a/g");
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    let other = top.path().join("a/g");
    fs::write(&other, "othe2").expect("written");
    assert_eq!(grace.withdraw(&path("a/g"), &known).expect("no error"), Withdrawn::Changed, "its time");
    fs::remove_file(&other).expect("removed");
    assert_eq!(grace.withdraw(&path("a/g"), &known).expect("no error"), Withdrawn::Gone);
    symlink("b/f", &other).expect("a link");
    assert_eq!(grace.withdraw(&path("a/g"), &known).expect("no error"), Withdrawn::Changed, "a link");
    assert!(other.is_symlink() && top.path().join("a/b/f").exists());
}

#[test]
fn no_link_above_a_name_is_followed() {
    let (top, tree) = planted();
    let known = facts(&tree, "a/b/f");
    fs::rename(top.path().join("a/b"), top.path().join("c")).expect("moved");
    symlink("../c", top.path().join("a/b")).expect("a link");
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/b/f"), &known).expect("no error"), Withdrawn::Changed);
    assert!(top.path().join("c/f").exists());
    assert_eq!(tree.facts(&path("a/b/f")).expect_err("a link is above").kind(), ErrorKind::Escape);
}

#[test]
fn a_grace_directory_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (top, tree) = planted();
    let _first = Grace::open(&tree, "x").expect("a grace directory");
    fs::set_permissions(kept(top.path(), ""), fs::Permissions::from_mode(0o777)).expect("a mode");
    assert_eq!(Grace::open(&tree, "x").expect_err("it is open to others").kind(), ErrorKind::Denied);
}

#[test]
fn two_runs_of_one_plan_at_once_move_each_name_once_and_neither_fails() {
    let top = tempfile::tempdir().expect("scratch");
    let names: Vec<_> = (0..6).flat_map(|dir| (0..30).map(move |n| format!("d{dir}/{n}"))).collect();
    (0..6).for_each(|dir| fs::create_dir(top.path().join(format!("d{dir}"))).expect("a directory"));
    names.iter().for_each(|name| fs::write(top.path().join(name), name).expect("a file"));
    let tree = Tree::open(top.path()).expect("a tree");
    let known: Vec<_> = (0..6)
        .flat_map(|dir| (0..30).map(move |n| format!("d{dir}/{n}")).chain([format!("d{dir}")]))
        .map(|name| (path(&*name), facts(&tree, &name)))
        .collect();
    let moves = || {
        let mut grace = Grace::open(&tree, "x").expect("a grace directory");
        let ends: Vec<_> = known.iter().map(|(path, facts)| grace.withdraw(path, facts).expect("no error")).collect();
        grace.sync().expect("synced");
        ends
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(moves);
        let two = scope.spawn(moves);
        (one.join().expect("it ends"), two.join().expect("it ends"))
    });
    for ((one, two), (name, _)) in one.iter().zip(&two).zip(&known) {
        let ends = [one, two].map(|end| matches!(end, Withdrawn::Moved | Withdrawn::MovedBefore));
        assert_eq!(ends, [true; 2], "{}: {one:?}, {two:?}", name.escaped());
    }
    for name in &names {
        assert_eq!(fs::read_to_string(kept(top.path(), name)).expect("kept"), *name);
    }
}

#[test]
fn a_run_that_moves_nothing_leaves_no_directories_and_one_that_moves_some_leaves_none_that_are_empty() {
    let (top, tree) = planted();
    let known = ["a/b", "a/g"].map(|name| facts(&tree, name));
    fs::write(top.path().join("a/g"), "it has another length").expect("written");
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/b"), &known[0]).expect("no error"), Withdrawn::NotEmpty);
    assert_eq!(grace.withdraw(&path("a/g"), &known[1]).expect("no error"), Withdrawn::Changed);
    assert!(kept(top.path(), "a/b").exists());
    drop(grace);
    assert!(!top.path().join(".longhaul").exists(), "nothing came into any of them");

    fs::create_dir(top.path().join("empty")).expect("a directory");
    let (link, empty) = (facts(&tree, "l"), facts(&tree, "empty"));
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/b"), &known[0]).expect("no error"), Withdrawn::NotEmpty);
    assert_eq!(grace.withdraw(&path("l"), &link).expect("no error"), Withdrawn::Moved);
    assert_eq!(grace.withdraw(&path("empty"), &empty).expect("no error"), Withdrawn::Moved);
    drop(grace);
    assert!(kept(top.path(), "l").is_symlink() && kept(top.path(), "empty").is_dir());
    assert!(!kept(top.path(), "a").exists());
}

#[test]
fn a_directory_that_goes_once_it_is_empty_stays_where_it_was_moved_to() {
    let (top, tree) = planted();
    let (dir, file) = (facts(&tree, "a/b"), top.path().join("a/b/f"));
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/b"), &dir).expect("no error"), Withdrawn::NotEmpty);
    fs::remove_file(file).expect("somebody else removes it");
    let dir = facts(&tree, "a/b");
    assert_eq!(grace.withdraw(&path("a/b"), &dir).expect("no error"), Withdrawn::Moved);
    drop(grace);
    assert!(kept(top.path(), "a/b").is_dir());
}

#[test]
fn a_run_that_moves_nothing_leaves_what_another_one_of_the_plan_has_open_and_the_last_one_removes_it() {
    let (top, tree) = planted();
    let (link, dir) = (facts(&tree, "l"), facts(&tree, "a/b"));
    let [first, mut second, mut third] = [(); 3].map(|()| Grace::open(&tree, "x").expect("a grace directory"));
    drop(first);
    assert_eq!(second.withdraw(&path("a/b"), &dir).expect("no error"), Withdrawn::NotEmpty);
    drop(second);
    assert!(kept(top.path(), "a/b").is_dir(), "the third run may be about to use it");
    assert_eq!(third.withdraw(&path("l"), &link).expect("no error"), Withdrawn::Moved);
    assert!(kept(top.path(), "l").is_symlink());
    drop(third);
    assert!(kept(top.path(), "l").is_symlink());

    let runs = [(); 2].map(|()| Grace::open(&tree, "y").expect("a grace directory"));
    drop(runs);
    assert!(!top.path().join(".longhaul/grace/y").exists(), "the last one was alone");
}

#[test]
fn an_empty_directory_that_one_run_has_moved_is_not_removed_by_another_one_that_could_not_before() {
    let (top, tree) = planted();
    let dir = facts(&tree, "a/b");
    let [mut other, mut third] = [(); 2].map(|()| {
        let mut run = Grace::open(&tree, "x").expect("a grace directory");
        assert_eq!(run.withdraw(&path("a/b"), &dir).expect("no error"), Withdrawn::NotEmpty);
        run
    });
    fs::remove_file(top.path().join("a/b/f")).expect("somebody else removes it");
    let dir = facts(&tree, "a/b");
    let mut run = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(run.withdraw(&path("a/b"), &dir).expect("no error"), Withdrawn::Moved);
    drop(run);
    assert_eq!(third.withdraw(&path("a/b"), &dir).expect("no error"), Withdrawn::MovedBefore);
    drop(third);
    other.sync().expect("synced");
    drop(other);
    assert!(kept(top.path(), "a/b").is_dir() && !top.path().join("a/b").exists());
}

#[test]
fn a_run_makes_a_directory_once_more_that_another_one_has_removed_as_it_was_empty() {
    let (top, tree) = planted();
    fs::write(top.path().join("a/h"), "a third").expect("a file");
    let known = ["a/g", "a/h", "a/b/f"].map(|name| (name, facts(&tree, name)));
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    for (name, facts) in known {
        assert_eq!(grace.withdraw(&path(name), &facts).expect("no error"), Withdrawn::Moved, "{name}");
        assert!(kept(top.path(), name).exists());
        fs::remove_dir_all(kept(top.path(), "a")).expect("removed");
    }
}

#[test]
fn a_user_with_a_shelf_of_its_own_has_its_grace_directories_there() {
    let (top, _) = planted();
    let uid = rustix::process::geteuid().as_raw();
    let tree = Tree::open_for_user(top.path(), uid).expect("a tree");
    assert_eq!(Grace::place(&tree), format!(".longhaul-{uid}/grace"));
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/g"), &facts(&tree, "a/g")).expect("no error"), Withdrawn::Moved);
    assert!(top.path().join(Grace::place(&tree)).join("x/a/g").exists());
}

#[test]
fn behind_a_sync_that_failed_no_name_goes_and_the_fault_stays() {
    let (top, tree) = planted();
    let failing = Arc::new(FailingKernel::default());
    let tree = tree.behind(&Kernel::behind(failing.clone()));
    let known = ["a/g", "a/b/f", "l"].map(|name| (name, facts(&tree, name)));
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/g"), &known[0].1).expect("no error"), Withdrawn::Moved);
    let synced = failing.syncs.load(std::sync::atomic::Ordering::Relaxed);
    grace.sync().expect("synced");
    assert!(failing.syncs.load(std::sync::atomic::Ordering::Relaxed) >= synced + 2, "both directories");
    assert_eq!(grace.withdraw(&path("l"), &known[2].1).expect("no error"), Withdrawn::Moved);
    *failing.sync.lock().expect("no panic") = Some(Errno::IO);
    grace.withdraw(&path("a/b/f"), &known[1].1).expect_err("a sync failed");
    for _ in 0..2 {
        grace.withdraw(&path("a/b/f"), &known[1].1).expect_err("it failed before");
        grace.sync().expect_err("it failed before");
    }
    assert!(top.path().join("a/b/f").exists() && kept(top.path(), "l").is_symlink());
    let mut again = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(again.withdraw(&path("a/b/f"), &known[1].1).expect("no error"), Withdrawn::Moved);
}

#[test]
fn something_else_that_a_killed_run_left_in_the_grace_directory_goes_back_or_is_named() {
    let (top, tree) = planted();
    let [g, f] = ["a/g", "a/b/f"].map(|name| facts(&tree, name));
    let first = Grace::open(&tree, "x").expect("a grace directory");
    fs::create_dir_all(kept(top.path(), "a/b")).expect("a directory");
    drop(first);
    fs::remove_file(top.path().join("a/g")).expect("removed");
    fs::write(kept(top.path(), "a/g"), "unplanned").expect("a file");
    fs::remove_dir_all(top.path().join("a/b")).expect("removed");
    fs::write(kept(top.path(), "a/b/f"), "unplanned").expect("a file");
    let mut grace = Grace::open(&tree, "x").expect("a grace directory");
    assert_eq!(grace.withdraw(&path("a/g"), &g).expect("no error"), Withdrawn::Changed);
    assert_eq!(fs::read_to_string(top.path().join("a/g")).expect("back"), "unplanned");
    assert!(!kept(top.path(), "a/g").exists());
    let error = grace.withdraw(&path("a/b/f"), &f).expect_err("it cannot go back").to_string();
    assert!(error.contains(".longhaul/grace/x/a/b/f"), "{error}");
}

#[test]
fn without_renames_that_replace_nothing_what_goes_back_replaces_nothing() {
    let (top, tree) = planted();
    let dir = |name: &str| tree.dir(&path(name)).expect("a directory");
    fs::write(top.path().join("a/b/g"), "later").expect("a file");
    assert_eq!(linked_back((&dir("a"), &dir("a/b")), b"g"), Err(Errno::EXIST));
    assert_eq!(fs::read_to_string(top.path().join("a/b/g")).expect("there"), "later");
    fs::remove_file(top.path().join("a/b/g")).expect("removed");
    linked_back((&dir("a"), &dir("a/b")), b"g").expect("moved");
    assert!(!top.path().join("a/g").exists() && top.path().join("a/b/g").exists());
}
