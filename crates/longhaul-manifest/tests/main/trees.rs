//! Manifests of trees: what is in them, how they come about, and what a stop leaves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::{Fault, FaultCode, Filter, Mtime, RelPath, Rule, RuleKind};
use longhaul_manifest::{
    Algorithm, Algorithms, Draft, Item, ItemKind, KeptUse, Lists, Made, Make, ManifestError, Sealed, SegmentFlaw,
    Sorter, Watcher, make,
};
use proptest::prelude::*;

/// Watches, and stops behind so many items.
struct Ear {
    items_max: u64,
    items: AtomicU64,
    faults: Mutex<Vec<Fault>>,
    skipped: Mutex<Vec<&'static str>>,
}

impl Ear {
    fn new(items_max: u64) -> Ear {
        Ear { items_max, items: AtomicU64::new(0), faults: Mutex::default(), skipped: Mutex::default() }
    }

    fn codes(&self) -> Vec<FaultCode> {
        self.faults.lock().unwrap().iter().map(|fault| fault.code).collect()
    }
}

impl Watcher for Ear {
    fn fault(&self, fault: &Fault) {
        self.faults.lock().unwrap().push(fault.clone());
    }

    fn skipped(&self, _: &RelPath, what: &'static str) {
        self.skipped.lock().unwrap().push(what);
    }

    fn added(&self, _: &Item) {
        self.items.fetch_add(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.items.load(Ordering::Relaxed) >= self.items_max
    }
}

fn asked(top: &Path) -> Make {
    let sums = Algorithms::default().with(Algorithm::Blake3).with(Algorithm::Adler32);
    Make { sums, threads: 3, segment_items: 7, ..Make::new(top.join("tree"), top.join("out")) }
}

fn made(asked: &Make) -> (Made, Ear) {
    let ear = Ear::new(u64::MAX);
    let made = make(asked, &ear).unwrap();
    (made, ear)
}

fn all(sealed: &Sealed) -> Vec<Item> {
    sealed.items().map(Result::unwrap).collect()
}

/// A tree of `files`, by their paths.
fn plant<'a>(top: &Path, files: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, content) in files {
        let path = top.join("tree").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn a_manifest_has_all_files_links_and_directories_in_the_order_of_their_bytes() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a/x", "1"), ("a-b", "22"), ("a.b/y", "333"), ("a0", ""), ("z", "4")]);
    symlink("a/x", top.path().join("tree/link")).unwrap();
    fs::create_dir(top.path().join("tree/empty")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, top.path().join("tree/pipe"), rustix::fs::Mode::RWXU).unwrap();
    let (made, ear) = made(&asked(top.path()));
    let names: Vec<_> = all(&made.sealed).iter().map(|item| item.path.escaped().to_string()).collect();
    assert_eq!(names, ["a", "a-b", "a.b", "a.b/y", "a/x", "a0", "empty", "link", "z"]);
    assert_eq!(*ear.skipped.lock().unwrap(), ["fifo"]);
    let head = made.sealed.head();
    assert_eq!((head.items(), head.files(), head.bytes(), head.omitted), (9, 5, 7, 0));
    assert_eq!((head.segments.len(), head.lists), (2, Lists::ALL));
    let x = all(&made.sealed).into_iter().find(|item| item.path.as_bytes() == b"a/x").unwrap();
    assert_eq!(x.sums.hex(Algorithm::Blake3), Some(blake3::hash(b"1").to_hex().to_string()));
    assert_eq!(x.sums.hex(Algorithm::Adler32).as_deref(), Some("00320032"));
    let link = all(&made.sealed).into_iter().find(|item| item.path.as_bytes() == b"link").unwrap();
    assert_eq!(link.kind, ItemKind::Link { target: b"a/x".to_vec() });
}

/// Keeps a line of checksums with a file. False: this file system keeps none.
fn keep(top: &Path, name: &str, line: impl Fn(u64, Mtime) -> String) -> bool {
    let path = top.join("tree").join(name);
    let stat = fs::metadata(&path).unwrap();
    let line = line(stat.len(), Mtime::said(stat.mtime(), stat.mtime_nsec() as u32));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.longhaul.checksum", line.as_bytes(), flags).is_ok()
}

#[test]
fn kept_checksums_are_believed_where_that_is_asked_for_and_length_and_time_are_those_of_then() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("good", "1"), ("late", "2"), ("long", "3"), ("none", "4")]);
    let line = |len: u64, at: Mtime| format!("1 len={len} mtime={}.{:09} md5={}", at.secs, at.nanos, "ab".repeat(16));
    let is_kept = keep(top.path(), "good", line)
        && keep(top.path(), "late", |len, at| line(len, Mtime::said(at.secs - 1, at.nanos)))
        && keep(top.path(), "long", |len, at| line(len + 1, at));
    if !is_kept {
        return;
    }
    let md5 = |kept, sums, out: &str| {
        let made = made(&Make { kept, sums, out: top.path().join(out), ..asked(top.path()) }).0;
        let md5 = |item: Item| item.sums.hex(Algorithm::Md5).map(|hex| hex.starts_with("abab"));
        all(&made.sealed).into_iter().map(md5).collect::<Vec<_>>()
    };
    let (none, one) = (Algorithms::NONE, Algorithms::NONE.with(Algorithm::Md5));
    assert_eq!(md5(KeptUse::Ignored, none, "a"), [None; 4]);
    assert_eq!(md5(KeptUse::Believed, none, "b"), [Some(true), None, None, None]);
    assert_eq!(md5(KeptUse::Ignored, one, "c"), [Some(false); 4]);
    assert_eq!(md5(KeptUse::Believed, one, "d"), [Some(true), Some(false), Some(false), Some(false)]);
    let both = made(&Make { kept: KeptUse::Believed, out: top.path().join("e"), ..asked(top.path()) }).0;
    let known: Vec<_> = all(&both.sealed).iter().map(|item| item.sums.known().to_string()).collect();
    assert_eq!(known, ["b3 md5 adler32", "b3 adler32", "b3 adler32", "b3 adler32"], "what is lacking is computed");
}

#[test]
fn a_scan_that_believes_goes_on_only_with_one_that_did() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1"), ("b", "2")]);
    assert!(matches!(make(&asked(top.path()), &Ear::new(0)), Err(ManifestError::Stopped)));
    let believing = Make { kept: KeptUse::Believed, ..asked(top.path()) };
    assert!(matches!(make(&believing, &Ear::new(9)), Err(ManifestError::OtherDraft { of: "checksums", .. })));
    made(&asked(top.path()));
}

#[test]
fn the_same_tree_has_the_same_digest_and_a_manifest_is_written_once() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a/x", "1"), ("b", "22")]);
    let one = made(&asked(top.path())).0.sealed;
    let other = made(&Make { out: top.path().join("other"), threads: 1, ..asked(top.path()) }).0.sealed;
    assert_eq!(one.digest(), other.digest());
    assert!(matches!(make(&asked(top.path()), &Ear::new(u64::MAX)), Err(ManifestError::Stands { .. })));
    let left: Vec<_> = fs::read_dir(top.path().join("out")).unwrap().map(|name| name.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "a segment and the head: {left:?}");
}

#[test]
fn what_is_excluded_is_not_entered_and_the_manifest_does_not_list_itself() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a/x", "1"), ("cache/y", "2"), (".longhaul/z", "3")]);
    let filter = Filter::new(vec![Rule { kind: RuleKind::Exclude, pattern: "cache/".into() }]).unwrap();
    let (made, ear) = made(&Make { filter, out: top.path().join("tree/list"), ..asked(top.path()) });
    let names: Vec<_> = all(&made.sealed).iter().map(|item| item.path.escaped().to_string()).collect();
    assert_eq!((names, ear.codes()), (vec!["a".to_owned(), "a/x".to_owned()], vec![]));
}

#[test]
fn a_damaged_segment_is_named_and_none_of_it_is_given() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1"), ("b", "2")]);
    let sealed = made(&asked(top.path())).0.sealed;
    let path = sealed.file(&sealed.head().segments[0]);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found: Vec<_> = sealed.items().collect();
    assert_eq!(found.len(), 1);
    assert!(matches!(found[0], Err(ManifestError::Segment { flaw: SegmentFlaw::Digest, .. })), "{found:?}");
}

#[test]
fn an_unfinished_manifest_is_gone_on_with_under_the_same_terms_only() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1"), ("b", "2"), ("c", "3")]);
    let stopped = make(&asked(top.path()), &Ear::new(0));
    assert!(matches!(stopped, Err(ManifestError::Stopped)));
    let other = Make { sums: Algorithms::default(), ..asked(top.path()) };
    assert!(matches!(make(&other, &Ear::new(9)), Err(ManifestError::OtherDraft { of: "checksums", .. })));
    fs::create_dir(top.path().join("elsewhere")).unwrap();
    let other = Make { tree: top.path().join("elsewhere"), ..asked(top.path()) };
    assert!(matches!(make(&other, &Ear::new(9)), Err(ManifestError::OtherDraft { of: "tree", .. })));
    assert_eq!(all(&made(&asked(top.path())).0.sealed).len(), 3);
}

#[test]
fn a_directory_that_cannot_be_entered_is_omitted_and_counted() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a/x", "1"), ("b", "2")]);
    let closed = top.path().join("tree/a");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    let (made, ear) = made(&asked(top.path()));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    // The superuser enters everything.
    let (codes, names) = if rustix::process::geteuid().is_root() {
        (vec![], vec!["a", "a/x", "b"])
    } else {
        (vec![FaultCode::Denied], vec!["a", "b"])
    };
    let found = all(&made.sealed).into_iter().map(|item| item.path.escaped().to_string());
    assert_eq!(
        (found.collect::<Vec<_>>(), made.sealed.head().omitted),
        (names.into_iter().map(str::to_owned).collect(), codes.len() as u64)
    );
    assert_eq!(ear.codes(), codes);
}

#[test]
fn a_path_that_is_too_long_is_omitted_and_counted() {
    let top = tempfile::tempdir().unwrap();
    let deep = top.path().join("tree");
    fs::create_dir(&deep).unwrap();
    let mut dir = fs::File::open(&deep).unwrap();
    for _ in 0..17 {
        let name = "d".repeat(250);
        rustix::fs::mkdirat(&dir, &name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        dir = rustix::fs::openat(&dir, &name, flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let (made, ear) = made(&asked(top.path()));
    assert_eq!((ear.codes(), made.sealed.head().omitted), (vec![FaultCode::Unsupported], 1));
}

#[test]
fn a_tree_whose_top_is_another_directory_is_not_gone_on_with() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1"), ("b", "2")]);
    assert!(matches!(make(&asked(top.path()), &Ear::new(0)), Err(ManifestError::Stopped)));
    // As a mount point is empty when nothing is mounted there.
    fs::rename(top.path().join("tree"), top.path().join("unmounted")).unwrap();
    fs::create_dir(top.path().join("tree")).unwrap();
    let resumed = make(&asked(top.path()), &Ear::new(9));
    assert!(matches!(resumed, Err(ManifestError::OtherDraft { of: "tree", .. })), "{resumed:?}");
    fs::remove_dir(top.path().join("tree")).unwrap();
    fs::rename(top.path().join("unmounted"), top.path().join("tree")).unwrap();
    assert_eq!(all(&made(&asked(top.path())).0.sealed).len(), 2);
}

#[test]
fn a_kill_behind_the_head_leaves_nothing_that_the_same_command_does_not_mend() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1"), ("b", "2")]);
    assert!(matches!(make(&asked(top.path()), &Ear::new(0)), Err(ManifestError::Stopped)));
    let out = top.path().join("out");
    let record = fs::read(out.join("progress.lhp")).unwrap();
    let sealed = made(&asked(top.path())).0.sealed;
    for left in ["progress.lhp", "lock.lhp", "segment.x.lhd", "file.x.lhd"] {
        fs::write(out.join(left), &record).unwrap();
    }
    let other = Make { sums: Algorithms::default(), ..asked(top.path()) };
    assert!(matches!(make(&other, &Ear::new(9)), Err(ManifestError::Stands { .. })));
    let again = made(&asked(top.path())).0;
    assert_eq!((again.sealed.digest(), again.items_resumed), (sealed.digest(), 2));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2, "a segment and the head");
    fs::write(out.join("lock.lhp"), "").unwrap();
    assert!(matches!(make(&asked(top.path()), &Ear::new(9)), Err(ManifestError::Stands { .. })));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2, "a segment and the head");
}

#[test]
fn one_process_writes_at_a_time_and_none_over_an_unfinished_scan() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1")]);
    let out = top.path().join("out");
    let draft = Draft::begin(&out).unwrap();
    assert!(matches!(Draft::begin(&out), Err(ManifestError::Busy { .. })));
    assert!(matches!(make(&asked(top.path()), &Ear::new(9)), Err(ManifestError::Busy { .. })));
    drop(draft);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    assert!(matches!(make(&asked(top.path()), &Ear::new(0)), Err(ManifestError::Stopped)));
    assert!(matches!(Draft::begin(&out), Err(ManifestError::OtherDraft { of: "command", .. })));
    made(&asked(top.path()));
}

#[test]
fn a_manifest_does_not_lie_in_the_top_that_it_lists() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a", "1")]);
    let asked = Make { out: top.path().join("tree/."), ..asked(top.path()) };
    assert!(matches!(make(&asked, &Ear::new(9)), Err(ManifestError::OutIsTree { .. })));
    assert_eq!(fs::read_dir(top.path().join("tree")).unwrap().count(), 1);
}

#[test]
fn no_item_is_sealed_that_no_reader_takes() {
    let top = tempfile::tempdir().unwrap();
    let mut draft = Draft::begin(&top.path().join("out")).unwrap();
    let mut sorter = Sorter::new(top.path(), 1);
    for (target, is_one) in [(&b""[..], false), (b"a\0", false), (&[b'x'; 4096], false), (&[b'x'; 4095], true)] {
        let link = Item { kind: ItemKind::Link { target: target.to_vec() }, ..Item::dir(crate::path("l")) };
        for added in [draft.add(&link).map(drop), sorter.add(link.clone())] {
            assert_eq!(matches!(added, Err(ManifestError::Unlistable { .. })), !is_one, "{added:?}");
        }
    }
    assert_eq!(all(&draft.seal(Lists::ALL, 0).unwrap()).len(), 1);
}

#[test]
fn the_record_keeps_long_items_as_well() {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("tree")).unwrap();
    for n in 0..512 {
        symlink("x".repeat(4090), top.path().join(format!("tree/{n:04}"))).unwrap();
    }
    plant(top.path(), [("z", "1")]);
    let asked = Make { segment_items: 100_000, ..asked(top.path()) };
    assert!(matches!(make(&asked, &Ear::new(512)), Err(ManifestError::Stopped)));
    let made = made(&asked).0;
    assert_eq!((made.items_resumed >= 512, all(&made.sealed).len()), (true, 513));
}

/// Watches, and panics in every thread but its own.
struct Panicking(std::thread::ThreadId);

impl Watcher for Panicking {
    fn fault(&self, _: &Fault) {}

    fn skipped(&self, _: &RelPath, _: &'static str) {}

    fn added(&self, _: &Item) {}

    fn is_stopped(&self) -> bool {
        assert_eq!(std::thread::current().id(), self.0, "a bug that the test plants");
        false
    }
}

#[test]
fn a_scan_whose_threads_have_panicked_ends_with_an_error() {
    let top = tempfile::tempdir().unwrap();
    plant(top.path(), [("a/x", "1"), ("b/y", "2"), ("c/z", "3"), ("d", "4")]);
    for threads in [1, 9] {
        let ended = make(&Make { threads, ..asked(top.path()) }, &Panicking(std::thread::current().id()));
        assert!(matches!(ended, Err(ManifestError::Thread)), "{ended:?}");
        assert!(!top.path().join("out/head.lhm").exists());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_scan_that_is_stopped_anywhere_and_again_ends_as_one_that_is_not(
        names in proptest::collection::btree_map("[a-c.-]{1,2}(/[a-c.-]{1,3}){0,3}", "[a-z]{0,9}", 1..60),
        steps in proptest::collection::vec(0..12u64, 1..6),
    ) {
        let top = tempfile::tempdir().unwrap();
        let mut planted = BTreeMap::new();
        fs::create_dir(top.path().join("tree")).unwrap();
        for (name, content) in &names {
            let path = top.path().join("tree").join(name);
            if RelPath::new(name.as_bytes()).is_ok()
                && fs::create_dir_all(path.parent().unwrap()).is_ok() && fs::write(path, content).is_ok() {
                planted.insert(name.as_bytes().to_vec(), content.clone());
            }
        }
        let whole = made(&Make { out: top.path().join("whole"), ..asked(top.path()) }).0.sealed;
        let mut resumed = 0;
        for step in steps {
            match make(&asked(top.path()), &Ear::new(step)) {
                Ok(_) | Err(ManifestError::Stands { .. }) => {}
                Err(ManifestError::Stopped) => resumed += step,
                Err(other) => panic!("{other:?}"),
            }
            // A frame that is torn at the end is cut off.
            let record = top.path().join("out/progress.lhp");
            if let Ok(bytes) = fs::read(&record) {
                fs::write(&record, [bytes.as_slice(), b"\x09\0\0\0I\x01"].concat()).unwrap();
            }
        }
        let end = match make(&asked(top.path()), &Ear::new(u64::MAX)) {
            Ok(made) => { prop_assert!(made.items_resumed >= resumed); made.sealed }
            Err(_) => Sealed::open(&top.path().join("out")).unwrap(),
        };
        prop_assert_eq!(end.digest(), whole.digest());
        let files = all(&end).into_iter().filter(Item::is_file);
        let found: Vec<_> = files.map(|item| item.path.as_bytes().to_vec()).collect();
        prop_assert_eq!(found, planted.into_keys().collect::<Vec<_>>());
    }
}
