//! Manifests that are collected directory by directory: the order makes no difference, and a run
//! that ends in the middle costs only the directories that were not done.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use longhaul_core::{Blame, Fault, FaultCode, Filter, Mtime, RelPath};
use longhaul_manifest::{
    Collecting, Collection, CollectionStart, DirItems, Item, Made, ManifestError, Sealed, Sums, is_unfinished,
};

use super::path;

/// A tree: the names of each directory, those of directories with a slash behind.
fn tree() -> BTreeMap<&'static str, Vec<&'static str>> {
    let dirs = [
        ("", vec!["a/", "a-b", "b/", "c/", "z"]),
        ("a", vec!["deep/", "x"]),
        ("a/deep", vec!["y"]),
        ("b", vec![]),
        ("c", vec!["w"]),
    ];
    dirs.into_iter().collect()
}

fn asked<'a>(out: &'a Path, filter: &'a Filter) -> Collecting<'a> {
    Collecting { out, tree: b"lh://host:1/root/".to_vec(), filter, waiting_bytes_max: 1 << 20 }
}

fn start(out: &Path) -> Collection {
    match Collection::open(&asked(out, &Filter::default()), &mut |_| ()).unwrap() {
        CollectionStart::Goes(collection) => *collection,
        CollectionStart::Made(made) => panic!("{made:?}"),
    }
}

fn item(dir: &RelPath, name: &str) -> Item {
    let path = dir.join(name.trim_end_matches('/').as_bytes()).unwrap();
    if name.ends_with('/') {
        return Item::dir(path);
    }
    let mtime = Some(Mtime { secs: 7, nanos: 9 });
    Item { mtime, ..Item::file(path, Some(name.len() as u64), Sums::default()) }
}

/// Adds all names of a directory.
fn fill(collection: &mut Collection, listed: &mut DirItems) {
    let dir = listed.dir().clone();
    let names = tree()[std::str::from_utf8(dir.as_bytes()).unwrap()].clone();
    names.iter().for_each(|name| collection.add(listed, &item(&dir, name)).unwrap());
}

/// Lists so many directories, and gives their paths.
fn list(collection: &mut Collection, count: usize) -> Vec<RelPath> {
    let mut done = Vec::new();
    while done.len() < count
        && let Some(mut listed) = collection.begin()
    {
        fill(collection, &mut listed);
        done.push(listed.dir().clone());
        collection.done(listed).unwrap();
    }
    done
}

/// Seals all that was listed.
fn seal(collection: Collection, sort_bytes: usize) -> Result<Made, ManifestError> {
    collection.seal(sort_bytes, &|| false)
}

/// The manifest of a run that nothing disturbed.
fn whole(out: &Path) -> Sealed {
    let mut collection = start(out);
    assert_eq!(list(&mut collection, 9).len(), 5);
    seal(collection, 1 << 20).unwrap().sealed
}

#[test]
fn directories_that_are_listed_at_once_and_end_in_any_order_make_one_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let one = whole(&dir.path().join("one"));
    let mut collection = start(&dir.path().join("two"));
    list(&mut collection, 1);
    let mut under_way: Vec<_> = std::iter::from_fn(|| collection.begin()).collect();
    assert_eq!(under_way.len(), 3);
    under_way.iter_mut().for_each(|listed| fill(&mut collection, listed));
    under_way.into_iter().rev().for_each(|listed| collection.done(listed).unwrap());
    assert_eq!(list(&mut collection, 9), [path("a/deep")]);
    let two = seal(collection, 1).unwrap();
    assert_eq!((one.digest(), 0), (two.sealed.digest(), two.items_resumed));
    let names: Vec<_> = two.sealed.items().map(|item| item.unwrap().path).collect();
    assert_eq!(names, ["a", "a-b", "a/deep", "a/deep/y", "a/x", "b", "c", "c/w", "z"].map(path));
    assert_eq!(fs::read_dir(dir.path().join("two")).unwrap().count(), 2, "a segment and the head");
}

#[test]
fn a_run_that_ends_anywhere_goes_on_with_what_was_not_done() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = whole(&dir.path().join("whole")).digest();
    for count in 0..=5 {
        let out = dir.path().join(count.to_string());
        let mut collection = start(&out);
        collection.need_lister(b"key").unwrap();
        let before = list(&mut collection, count);
        // Another one is under way, and what it has is lost.
        if let Some(mut listed) = collection.begin() {
            fill(&mut collection, &mut listed);
        }
        drop(collection);
        assert_eq!(is_unfinished(&out), count > 0);
        let mut collection = start(&out);
        assert_eq!(collection.need_lister(b"another").is_err(), count > 0);
        drop(collection);
        let mut collection = start(&out);
        assert_eq!((collection.is_resumed(), collection.has_waiting()), (count > 0, count < 5));
        // The key is in the record, or will be.
        collection.need_lister(b"key").unwrap();
        let other = collection.need_lister(b"other");
        assert!(matches!(other, Err(ManifestError::OtherDraft { of: "key of the daemon", .. })), "{other:?}");
        // Done or not, the directories at the top are those by which the tree is known again.
        let had = ["a", "b", "c", "z", "deep", "a/deep", ""].map(|name| collection.had_at_top(name.as_bytes()));
        assert_eq!(had, [count > 0, count > 0, count > 0, false, false, false, false]);
        let after = list(&mut collection, 9);
        assert!(before.len() + after.len() == 5 && !before.iter().any(|dir| after.contains(dir)), "{after:?}");
        let made = seal(collection, 1 << 20).unwrap();
        assert_eq!(made.sealed.digest(), wanted, "{count}");
        assert_eq!(made.items_resumed > 0, count > 0);
    }
}

#[test]
fn a_record_that_is_cut_anywhere_loses_whole_directories_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = whole(&dir.path().join("whole")).digest();
    let out = dir.path().join("cut");
    let mut collection = start(&out);
    collection.need_lister(b"key").unwrap();
    list(&mut collection, 4);
    drop(collection);
    let bytes = fs::read(out.join("progress.lhp")).unwrap();
    for length in (0..bytes.len()).step_by(5) {
        let copy = dir.path().join(format!("at-{length}"));
        fs::create_dir(&copy).unwrap();
        fs::write(copy.join("progress.lhp"), &bytes[..length]).unwrap();
        let mut collection = match Collection::open(&asked(&copy, &Filter::default()), &mut |_| ()) {
            Ok(CollectionStart::Goes(collection)) => *collection,
            // It is cut within the terms, which appear whole with the file.
            Err(ManifestError::OtherDraft { of: "record", .. }) => continue,
            other => panic!("{other:?}"),
        };
        list(&mut collection, 9);
        assert_eq!(seal(collection, 1 << 20).unwrap().sealed.digest(), wanted, "{length}");
    }
}

#[test]
fn another_tree_or_filter_and_a_scan_of_this_host_are_not_mixed_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (out, filter) = (dir.path().join("out"), Filter::default());
    let mut collection = start(&out);
    let busy = Collection::open(&asked(&out, &filter), &mut |_| ());
    assert!(matches!(busy, Err(ManifestError::Busy { .. })), "{busy:?}");
    list(&mut collection, 2);
    drop(collection);
    let other = Collecting { tree: b"lh://host:2/root/".to_vec(), ..asked(&out, &filter) };
    let refused = Collection::open(&other, &mut |_| ());
    assert!(matches!(refused, Err(ManifestError::OtherDraft { of: "tree", .. })), "{refused:?}");
    let rules =
        vec![longhaul_core::filter::Rule { kind: longhaul_core::filter::RuleKind::Exclude, pattern: "x".into() }];
    let filter = Filter::new(rules).unwrap();
    let refused = Collection::open(&asked(&out, &filter), &mut |_| ());
    assert!(matches!(refused, Err(ManifestError::OtherDraft { of: "filter", .. })), "{refused:?}");
    assert!(matches!(longhaul_manifest::Draft::begin(&out), Err(ManifestError::OtherDraft { .. })));
    let mut collection = start(&out);
    list(&mut collection, 9);
    seal(collection, 1 << 20).unwrap();
    let stands = Collection::open(&asked(&out, &Filter::default()), &mut |_| ());
    assert!(matches!(stands, Err(ManifestError::Stands { .. })), "{stands:?}");
}

#[test]
fn a_run_that_is_stopped_while_it_seals_goes_on_with_that() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    // At the first frame of ten, at the second one, and when all are sorted.
    for stopped_at in [0, 1, 10] {
        let mut collection = start(&out);
        list(&mut collection, 9);
        let looks = std::cell::Cell::new(0);
        let stopped = collection.seal(1 << 20, &|| looks.replace(looks.get() + 1) >= stopped_at);
        assert!(matches!(stopped, Err(ManifestError::Stopped)), "{stopped:?}");
    }
    let collection = start(&out);
    assert!(!collection.has_waiting());
    assert_eq!(seal(collection, 1 << 20).unwrap().sealed.digest(), whole(&dir.path().join("whole")).digest());
    assert_eq!(fs::read_dir(out).unwrap().count(), 2, "a segment and the head");
}

#[test]
fn a_run_that_was_killed_behind_the_head_left_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut collection = start(&out);
    list(&mut collection, 9);
    let record = fs::read(out.join("progress.lhp")).unwrap();
    let sealed = seal(collection, 1 << 20).unwrap().sealed;
    fs::write(out.join("progress.lhp"), record).unwrap();
    match Collection::open(&asked(&out, &Filter::default()), &mut |_| ()).unwrap() {
        CollectionStart::Made(made) => assert_eq!((made.sealed.digest(), made.items_resumed), (sealed.digest(), 9)),
        goes => panic!("{goes:?}"),
    }
    assert!(!out.join("progress.lhp").exists());
}

#[test]
fn what_was_listed_twice_has_only_the_second_listing_and_omissions_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut collection = start(&out);
    let mut listed = collection.begin().unwrap();
    collection.add(&mut listed, &item(&RelPath::root(), "gone/")).unwrap();
    collection.begin_again(&mut listed);
    collection.add(&mut listed, &item(&RelPath::root(), "denied/")).unwrap();
    collection.add(&mut listed, &item(&RelPath::root(), "file")).unwrap();
    let twice = collection.add(&mut listed, &item(&RelPath::root(), "file"));
    assert!(matches!(twice, Err(ManifestError::Order { .. })), "{twice:?}");
    let omitted = Fault::new(FaultCode::Unsupported, Blame::Peer, "a name that cannot be listed").about("..");
    collection.omit(&mut listed, &omitted).unwrap();
    collection.done(listed).unwrap();
    let denied = collection.begin().unwrap();
    assert_eq!(denied.dir(), &path("denied"));
    collection.leave_out(denied);
    drop(collection);
    let mut told = Vec::new();
    let started = Collection::open(&asked(&out, &Filter::default()), &mut |fault| told.push(fault.clone())).unwrap();
    assert_eq!(told, [omitted]);
    let CollectionStart::Goes(mut collection) = started else { panic!("{started:?}") };
    // It was not done, and may be listed by now.
    let denied = collection.begin().unwrap();
    assert_eq!(denied.dir(), &path("denied"));
    collection.leave_out(denied);
    let made = seal(*collection, 1 << 20).unwrap();
    assert_eq!((made.sealed.head().items(), made.sealed.head().omitted), (2, 2));
}

#[test]
fn a_directory_of_many_names_and_a_tree_of_too_many_directories() {
    let dir = tempfile::tempdir().unwrap();
    let mut collection = start(&dir.path().join("many"));
    let mut listed = collection.begin().unwrap();
    for n in 0..100_000 {
        let name = format!("{n:06}-with-a-name-that-is-not-short");
        collection.add(&mut listed, &item(&RelPath::root(), &name)).unwrap();
    }
    collection.done(listed).unwrap();
    assert_eq!(seal(collection, 1 << 20).unwrap().sealed.head().items(), 100_000);
    let mut collection = start(&dir.path().join("dirs"));
    let mut listed = collection.begin().unwrap();
    let refused =
        (0..100_000).find_map(|n| collection.add(&mut listed, &item(&RelPath::root(), &format!("{n:06}/"))).err());
    assert!(matches!(refused, Some(ManifestError::TooManyDirs { .. })), "{refused:?}");
}
