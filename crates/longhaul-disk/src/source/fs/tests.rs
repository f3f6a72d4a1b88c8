//! Tests of scanning and opening sources: order, names, links, filters, selections, and files that
//! changed.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use longhaul_core::filter::{Filter, Rule, RuleKind};
use longhaul_core::{EntryKind, Preserve};

use super::*;
use crate::error::ErrorKind;
use crate::source::FileNames;
use crate::sysfs::Sysfs;
use crate::testing::{content, find, path, scan, source_of};
use crate::tree::Tree;
use crate::{IoMode, VoidSource};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

fn all() -> Filter {
    Filter::new(Vec::new()).expect("no rules")
}

fn excluding(pattern: &str) -> Filter {
    Filter::new(vec![Rule { kind: RuleKind::Exclude, pattern: pattern.into() }]).expect("rule")
}

fn spec(path: PathBuf, contents: bool) -> SourceSpec {
    SourceSpec { path, contents }
}

/// `d/` with a file, a directory with a file, an empty directory, a link and a fifo.
fn sample() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("tempdir");
    let top = dir.path().join("d");
    std::fs::create_dir_all(top.join("sub/empty")).expect("dirs");
    std::fs::write(top.join("f"), content(10)).expect("file");
    std::fs::write(top.join("sub/g"), content(20)).expect("file");
    std::fs::write(top.join(".longhaul-0123456789abcdef0123456789abcdef"), b"ours").expect("file");
    std::fs::create_dir(top.join(".longhaul")).expect("dir");
    symlink("/etc/passwd", top.join("link")).expect("link");
    rustix::fs::mkfifoat(rustix::fs::CWD, top.join("pipe"), rustix::fs::Mode::RUSR).expect("fifo");
    dir
}

/// One line per find, in order; names within a directory come in any order, so siblings are
/// compared sorted.
fn lines(found: &[Scanned]) -> Vec<String> {
    found
        .iter()
        .map(|one| match one {
            Scanned::Entry { entry, .. } => match &entry.kind {
                EntryKind::File { len, .. } => format!("{} {len}", entry.path.escaped()),
                EntryKind::Dir => format!("{} (", entry.path.escaped()),
                EntryKind::DirEnd => format!("{} )", entry.path.escaped()),
                EntryKind::Symlink { target } => format!("{} -> {}", entry.path.escaped(), target.escape_ascii()),
                EntryKind::Stream { .. } | EntryKind::Unsent { .. } => {
                    unreachable!("a scan says what it cannot take in other words")
                }
            },
            Scanned::Skipped { path, why } => format!("{} skipped {why}", path.escaped()),
            Scanned::Reserved { dir, name } => format!("{} reserved {}", dir.escaped(), name.escape_ascii()),
            Scanned::Failed { path, error } => format!("{} failed {:?}", path.escaped(), error.kind()),
        })
        .collect()
}

fn sorted(found: &[Scanned]) -> Vec<String> {
    let mut lines = lines(found);
    lines.sort();
    lines
}

fn assert_nested(found: &[Scanned]) {
    let mut open: Vec<RelPath> = Vec::new();
    for one in found {
        if let Scanned::Entry { entry, .. } = one {
            match entry.kind {
                EntryKind::DirEnd => assert_eq!(open.pop().as_ref(), Some(&entry.path)),
                _ => {
                    assert_eq!(open.last().cloned().or_else(|| entry.path.parent()), entry.path.parent());
                    if entry.kind == EntryKind::Dir {
                        open.push(entry.path.clone());
                    }
                }
            }
        }
    }
    assert!(open.is_empty());
}

#[test]
fn a_directory_is_scanned_with_its_name_or_without() {
    let dir = sample();
    let named = scan(&FsSource::open(vec![spec(dir.path().join("d"), false)], DirectMode::Auto), &all(), None);
    assert_nested(&named);
    assert_eq!(
        sorted(&named),
        [
            "d (",
            "d )",
            "d/f 10",
            "d/link -> /etc/passwd",
            "d/pipe skipped fifo",
            "d/sub (",
            "d/sub )",
            "d/sub/empty (",
            "d/sub/empty )",
            "d/sub/g 20"
        ]
    );
    assert_eq!(lines(&named)[0], "d (");
    let contents = scan(&source_of(&dir.path().join("d"), DirectMode::Auto), &all(), None);
    assert_nested(&contents);
    assert_eq!(lines(&contents)[0], ". (");
    assert_eq!(lines(&contents).last().map(String::as_str), Some(". )"));
    assert_eq!(contents.len(), named.len());
}

#[test]
fn several_sources_and_missing_ones_go_on() {
    let dir = sample();
    let top = dir.path().join("d");
    let sources = vec![
        spec(top.join("f"), false),
        spec(top.join("gone"), false),
        spec(dir.path().join("no/where"), true),
        spec(top.join("sub/g"), false),
    ];
    let found = scan(&FsSource::open(sources, DirectMode::Auto), &all(), None);
    assert_eq!(lines(&found), ["f 10", "gone failed NotFound", ". failed NotFound", "g 20"]);
}

#[test]
fn links_are_sent_as_links_or_skipped_and_followed_only_with_a_slash() {
    let dir = sample();
    symlink("d", dir.path().join("to-d")).expect("link");
    let as_link = FsSource::open(vec![spec(dir.path().join("to-d"), false)], DirectMode::Auto);
    assert_eq!(lines(&scan(&as_link, &all(), None)), ["to-d -> d"]);
    let followed = scan(&source_of(&dir.path().join("to-d"), DirectMode::Auto), &all(), None);
    assert!(lines(&followed).contains(&"f 10".to_owned()));
    let filter = all();
    let what = ScanRequest::of_all(&filter, Preserve { links: false, ..Preserve::default() });
    let mut skipped = Vec::new();
    as_link.scan(&what, &mut |one| {
        skipped.push(one);
        ControlFlow::Continue(())
    });
    assert_eq!(lines(&skipped), ["to-d skipped symbolic link"]);
}

#[test]
fn reserved_names_that_are_not_ours_are_told_unless_they_are_left_out() {
    let dir = sample();
    let top = dir.path().join("d");
    std::fs::write(top.join("sub/.longhaul-notes.txt"), b"a user's").expect("file");
    std::fs::write(top.join("sub/.longhaul"), b"a user's").expect("file");
    std::fs::create_dir(top.join(".longhaul-0123456789abcdef0123456789abcdee")).expect("dir");
    let reserved =
        |found: Vec<Scanned>| sorted(&found).into_iter().filter(|l| l.contains("reserved")).collect::<Vec<_>>();
    let contents = || source_of(&top, DirectMode::Auto);
    assert_eq!(
        reserved(scan(&contents(), &all(), None)),
        [
            ". reserved .longhaul-0123456789abcdef0123456789abcdee",
            "sub reserved .longhaul",
            "sub reserved .longhaul-notes.txt"
        ]
    );
    assert_eq!(
        reserved(scan(&contents(), &excluding("sub/.longhaul-*"), None)),
        [". reserved .longhaul-0123456789abcdef0123456789abcdee", "sub reserved .longhaul"]
    );
    assert!(reserved(scan(&contents(), &excluding(".longhaul*"), None)).is_empty());
    let itself = vec![spec(top.join("sub/.longhaul-notes.txt"), false), spec(top.join(".longhaul-gone"), false)];
    let found = scan(&FsSource::open(itself, DirectMode::Auto), &all(), None);
    assert_eq!(lines(&found), [". reserved .longhaul-notes.txt", ". failed NotFound"]);
}

#[test]
fn an_excluded_directory_is_not_entered() {
    let dir = sample();
    let found = scan(&source_of(&dir.path().join("d"), DirectMode::Auto), &excluding("sub/"), None);
    assert_eq!(sorted(&found), [". (", ". )", "f 10", "link -> /etc/passwd", "pipe skipped fifo"]);
}

#[test]
fn a_selection_brings_its_directories_in_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    for sub in ["a/x", "a-b", "c/d/e"] {
        std::fs::create_dir_all(dir.path().join(sub)).expect("dirs");
    }
    for file in ["a/x/1", "a/x/2", "a/y", "a-b/z", "c/d/e/deep", "c/other"] {
        std::fs::write(dir.path().join(file), b"").expect("file");
    }
    symlink("a", dir.path().join("l")).expect("link");
    let names = ["c/d/e/deep", "a/y", "a-b/z", "a/x", "a/x/1", "a/y", "none/x", "l/y", "c/gone"].map(path).to_vec();
    let found = scan(&source_of(dir.path(), DirectMode::Auto), &all(), Some(names.clone()));
    assert_nested(&found);
    let expected = [
        ". (",
        ". )",
        "a (",
        "a )",
        "a-b (",
        "a-b )",
        "a-b/z 0",
        "a/x (",
        "a/x )",
        "a/x/1 0",
        "a/x/2 0",
        "a/y 0",
        "c (",
        "c )",
        "c/d (",
        "c/d )",
        "c/d/e (",
        "c/d/e )",
        "c/d/e/deep 0",
        "c/gone failed NotFound",
        "l/y failed Escape",
        "none/x failed NotFound",
    ];
    assert_eq!(sorted(&found), expected);
    let filtered = scan(&source_of(dir.path(), DirectMode::Auto), &excluding("c/"), Some(names));
    assert!(!lines(&filtered).iter().any(|line| line.starts_with('c')));
}

#[test]
fn a_selection_beneath_a_named_directory_keeps_its_name() {
    let dir = sample();
    let source = FsSource::open(vec![spec(dir.path().join("d"), false)], DirectMode::Auto);
    let found = scan(&source, &all(), Some(vec![path("sub/g")]));
    assert_eq!(lines(&found), ["d (", "d/sub (", "d/sub/g 20", "d/sub )", "d )"]);
}

#[test]
fn a_scan_breaks_off_where_its_sink_does() {
    let dir = sample();
    let mut seen = 0;
    let filter = all();
    let what = ScanRequest::of_all(&filter, Preserve::default());
    source_of(dir.path(), DirectMode::Auto).scan(&what, &mut |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(seen, 3);
}

#[test]
fn a_directory_under_the_name_of_a_file_is_told_and_not_read() {
    #[derive(Debug)]
    struct One(RelPath);

    impl FileNames for One {
        fn has(&self, at: &RelPath) -> bool {
            *at == self.0
        }
    }

    let (dir, other) = (sample(), tempfile::tempdir().expect("tempdir"));
    std::fs::create_dir_all(other.path().join("d/sub")).expect("dirs");
    std::fs::write(other.path().join("d/sub/h"), b"").expect("file");
    let trees = [&dir, &other].map(|dir| Tree::open(&dir.path().join("d")).expect("tree"));
    let set = TargetSet::together(trees.into_iter());
    let set = FsSource::beneath(vec![(set, RelPath::root(), true)], DirectMode::Auto);
    for source in [source_of(&dir.path().join("d"), DirectMode::Auto), set] {
        let (filter, file) = (all(), One(path("sub")));
        let what = ScanRequest { files: Some(&file), ..ScanRequest::of_all(&filter, Preserve::default()) };
        let mut found = Vec::new();
        source.scan(&what, &mut |one| {
            found.push(one);
            ControlFlow::Continue(())
        });
        assert_nested(&found);
        assert_eq!(
            sorted(&found),
            [". (", ". )", "f 10", "link -> /etc/passwd", "pipe skipped fifo", "sub (", "sub )"]
        );
    }
}

#[test]
fn large_directories_and_odd_names_come_whole() {
    let dir = tempfile::tempdir().expect("tempdir");
    for n in 0..3000 {
        std::fs::write(dir.path().join(format!("a-rather-long-name-to-need-many-listings-{n}")), b"").expect("file");
    }
    for name in [&b"\xff\xfe\n"[..], b"\\", &[b'n'; 255]] {
        std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), b"").expect("file");
    }
    let found = scan(&source_of(dir.path(), DirectMode::Auto), &all(), None);
    assert_eq!(found.len(), 3000 + 3 + 2);
    assert_nested(&found);
}

#[test]
fn a_tree_deeper_than_paths_can_be_fails_there_and_goes_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("beside"), b"").expect("file");
    let mut at = rustix::fs::openat(rustix::fs::CWD, dir.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
        .expect("top");
    let name = [b'd'; 200];
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &name[..], rustix::fs::Mode::RWXU).expect("mkdir");
        at = rustix::fs::openat(&at, &name[..], rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).expect("enter");
    }
    let found = scan(&source_of(dir.path(), DirectMode::Auto), &all(), None);
    assert_nested(&found);
    let failed: Vec<ErrorKind> = found
        .iter()
        .filter_map(|one| match one {
            Scanned::Failed { error, .. } => Some(error.kind()),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [ErrorKind::TooLong]);
    assert!(lines(&found).contains(&"beside 0".to_owned()));
}

#[test]
fn sparse_files_are_seen_as_such_and_their_holes_found() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = std::fs::File::create(dir.path().join("s")).expect("file");
    file.set_len(4 << 20).expect("length");
    std::os::unix::fs::FileExt::write_at(&file, b"x", 2 << 20).expect("data");
    file.sync_all().expect("sync");
    let source = source_of(dir.path(), DirectMode::Auto);
    let found = scan(&source, &all(), None);
    assert!(found.iter().any(|one| matches!(one, Scanned::Entry { entry, .. } if matches!(entry.kind, EntryKind::File { len, sparse: true, .. } if len == 4 << 20))));
    let (at, identity) = find(&source, &path("s"));
    let file = source.open(&at, &identity).expect("open");
    for (offset, data) in [(0, false), (1 << 20, false), (2 << 20, true), (3 << 20, false)] {
        assert_eq!(file.data_in(offset, 1 << 20).expect("seek"), data, "{offset}");
    }
}

#[test]
fn small_files_are_read_whole() {
    let dir = sample();
    let source = FsSource::open(vec![spec(dir.path().join("d"), false)], DirectMode::Auto);
    let (at, identity) = find(&source, &path("d/sub/g"));
    let mut buf = [0; 20];
    let open = || source.open_small(&at, &identity).expect("open");
    open().read(&mut buf).expect("read");
    assert_eq!(buf[..], content(20));
    assert_eq!(open().read(&mut [0; 21]).expect_err("longer").kind(), ErrorKind::Bounds);
    assert_eq!(open().read(&mut buf[..19]).expect_err("shorter").kind(), ErrorKind::Bounds);
}

#[test]
fn a_small_file_that_is_written_to_after_it_was_opened_is_not_taken() {
    let dir = sample();
    let name = dir.path().join("d/f");
    let source = FsSource::open(vec![spec(dir.path().join("d"), false)], DirectMode::Auto);
    let write = |bytes: &[u8], secs: i64| {
        std::fs::write(&name, bytes).expect("write");
        let time = Timespec { tv_sec: secs, tv_nsec: 0 };
        utimensat(CWD, &name, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())
            .expect("times");
    };
    for bytes in [content(9), content(11), b"0123456789".to_vec()] {
        write(&content(10), 1);
        let (at, identity) = find(&source, &path("d/f"));
        let opened = source.open_small(&at, &identity).expect("open");
        write(&bytes, 2);
        assert_eq!(opened.read(&mut [0; 10]).expect_err("changed").kind(), ErrorKind::Changed);
    }
}

#[test]
fn a_file_that_is_not_what_was_scanned_is_not_opened() {
    let dir = sample();
    let top = dir.path().join("d");
    let source = FsSource::open(vec![spec(top.clone(), false)], DirectMode::Auto);
    let (at, identity) = find(&source, &path("d/f"));
    let check = |kind: ErrorKind| {
        assert_eq!(source.open(&at, &identity).expect_err("open").kind(), kind);
        assert_eq!(source.open_small(&at, &identity).expect_err("open").kind(), kind);
    };
    std::fs::write(top.join("f"), content(11)).expect("longer");
    check(ErrorKind::Changed);
    std::fs::remove_file(top.join("f")).expect("remove");
    check(ErrorKind::Vanished);
    symlink("sub/g", top.join("f")).expect("link");
    check(ErrorKind::Escape);
    std::fs::remove_file(top.join("f")).expect("remove");
    rustix::fs::mkfifoat(rustix::fs::CWD, top.join("f"), rustix::fs::Mode::RUSR).expect("fifo");
    check(ErrorKind::Changed);
    std::fs::rename(&top, dir.path().join("moved")).expect("move");
    symlink("moved", &top).expect("link");
    let fresh = FsSource::open(vec![spec(top, false)], DirectMode::Auto);
    assert_eq!(fresh.open(&at, &identity).expect_err("parent").kind(), ErrorKind::Escape);
}

#[test]
fn a_write_while_it_is_open_shows() {
    let dir = sample();
    let source = source_of(&dir.path().join("d"), DirectMode::Buffered);
    let (at, identity) = find(&source, &path("f"));
    let file = source.open(&at, &identity).expect("open");
    assert_eq!((file.len(), file.mode(), file.identity()), (10, IoMode::Buffered, identity));
    assert!(file.unchanged().expect("identity"));
    std::fs::write(dir.path().join("d/f"), content(12)).expect("write");
    assert!(!file.unchanged().expect("identity"));
}

#[test]
fn sources_beneath_a_served_tree_never_leave_it() {
    let dir = sample();
    symlink("/etc", dir.path().join("d/sub/out")).expect("link");
    let tree = Tree::open(dir.path()).expect("tree");
    let found = scan(
        &FsSource::beneath(vec![(TargetSet::plain(tree.clone()), path("d/sub"), false)], DirectMode::Auto),
        &all(),
        None,
    );
    assert_eq!(sorted(&found), ["sub (", "sub )", "sub/empty (", "sub/empty )", "sub/g 20", "sub/out -> /etc"]);
    let contents = FsSource::beneath(vec![(TargetSet::plain(tree.clone()), path("d/sub"), true)], DirectMode::Auto);
    let (at, identity) = find(&contents, &path("g"));
    assert_eq!(contents.open(&at, &identity).expect("open").len(), 20);
    for (at, trailing) in [("d/sub/out", true), ("d/sub/out/passwd", false)] {
        let found = scan(
            &FsSource::beneath(vec![(TargetSet::plain(tree.clone()), path(at), trailing)], DirectMode::Auto),
            &all(),
            None,
        );
        assert!(matches!(&found[..], [Scanned::Failed { error, .. }] if error.kind() == ErrorKind::Escape), "{at}");
    }
}

#[test]
fn a_void_source_has_files_of_no_disk() {
    let source = VoidSource { len: 1 << 40, files: 3 };
    let found = scan(&source, &all(), None);
    assert_eq!(found.len(), 3);
    let (at, identity) = find(&source, &path("void-0000000002"));
    let file = source.open(&at, &identity).expect("open");
    assert!(file.len() == 1 << 40 && file.unchanged().expect("identity") && file.data_in(0, 1).expect("data"));
}

#[test]
fn names_on_a_rotating_disk_are_visited_in_the_order_of_their_inodes() {
    let (dir, made_up) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
    // Made in an order that is neither that of their names nor that of a hash of them.
    let files = 200;
    (0..files).for_each(|n| std::fs::write(dir.path().join(format!("{}", n * 7919 % 1009)), b"").expect("file"));
    let dev = rustix::fs::stat(dir.path()).expect("examined").st_dev;
    let queue = format!("dev/block/{}:{}/queue", rustix::fs::major(dev), rustix::fs::minor(dev));
    std::fs::create_dir_all(made_up.path().join(&queue)).expect("dirs");
    let inodes = |rotational: &str| {
        std::fs::write(made_up.path().join(&queue).join("rotational"), rotational).expect("file");
        let source = FsSource::open(vec![spec(dir.path().to_owned(), true)], DirectMode::Auto);
        let source = FsSource { media: Media::of(Sysfs::at(made_up.path())), ..source };
        let files = scan(&source, &all(), None).into_iter().filter_map(|found| match found {
            Scanned::Entry { entry, identity, .. } if entry.kind != EntryKind::Dir => Some((entry.kind, identity.ino)),
            _ => None,
        });
        files.filter(|(kind, _)| matches!(kind, EntryKind::File { .. })).map(|(_, ino)| ino).collect::<Vec<_>>()
    };
    let by_place = inodes("1");
    assert_eq!(by_place.len(), files);
    assert!(by_place.is_sorted(), "{by_place:?}");
    let mut listed = inodes("0");
    listed.sort_unstable();
    assert_eq!(listed, by_place, "the same files, in any order");
}

#[test]
fn a_directory_that_is_made_on_another_target_in_mid_scan_is_sent_all_the_same() {
    let dir = tempfile::tempdir().expect("tempdir");
    let tops = [dir.path().join("0"), dir.path().join("1")];
    for (top, file) in tops.iter().zip(["first", "late/file"]) {
        let file = top.join(file);
        std::fs::create_dir_all(file.parent().expect("above")).expect("dirs");
        std::fs::write(file, b"1").expect("file");
    }
    let trees = tops.iter().map(|top| Tree::open(top).expect("tree"));
    let source = FsSource::beneath(vec![(TargetSet::together(trees), RelPath::root(), true)], DirectMode::Auto);
    let filter = all();
    let what = ScanRequest::of_all(&filter, Preserve::default());
    let mut found = Vec::new();
    source.scan(&what, &mut |scanned| {
        let Scanned::Entry { entry, .. } = scanned else { panic!("{scanned:?}") };
        if entry.path == path("first") {
            // The first target was listed by now.
            std::fs::create_dir(tops[0].join("late")).expect("made");
        }
        found.push(String::from_utf8_lossy(entry.path.as_bytes()).into_owned());
        ControlFlow::Continue(())
    });
    assert_eq!(found.iter().filter(|name| *name == "late/file").count(), 1, "{found:?}");
}
