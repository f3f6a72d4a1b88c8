//! Tests of listings: order, pages, memory, odd names, and names on several targets.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;
use crate::testing::path;
use crate::tree::Tree;

fn tree() -> (tempfile::TempDir, Arc<Tree>) {
    let dir = tempfile::tempdir().expect("tempdir");
    let top = dir.path();
    std::fs::create_dir_all(top.join("d/e")).expect("dirs");
    std::fs::write(top.join("d/file"), b"12345").expect("file");
    std::fs::write(top.join("d/.longhaul-0123"), b"ours").expect("file");
    std::fs::create_dir(top.join("d/.longhaul")).expect("dir");
    symlink("../..", top.join("d/up")).expect("link");
    rustix::fs::mkfifoat(rustix::fs::CWD, top.join("d/fifo"), rustix::fs::Mode::RUSR).expect("fifo");
    let tree = Tree::open(top).expect("tree");
    (dir, tree)
}

#[test]
fn listings_are_sorted_without_what_is_ours() {
    let (_dir, tree) = tree();
    assert_eq!(listed(&tree, "d", 1 << 20), ["e", "fifo", "file", "up"]);
    assert_eq!(listed(&tree, "d/file", 1 << 20), ["file"]);
    assert_eq!(
        Lister::new(&TargetSet::plain(tree.clone()), &path("gone")).expect_err("gone").kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        Lister::new(&TargetSet::plain(tree.clone()), &path("d/up/d")).expect_err("link").kind(),
        ErrorKind::Escape
    );
}

/// All that is listed in pages of seven.
fn listed(tree: &Arc<Tree>, at: &str, memory: usize) -> Vec<String> {
    let at = if at.is_empty() { RelPath::root() } else { path(at) };
    let mut lister = Lister::new(&TargetSet::plain(tree.clone()), &at).expect("list");
    let mut all = Vec::new();
    while !lister.is_over() {
        let page = lister.next_page(7, usize::MAX, memory).expect("page");
        assert!(page.len() <= 7);
        all.extend(page.into_iter().map(|one| String::from_utf8(one.name).expect("text")));
    }
    all
}

#[test]
fn pages_of_any_size_give_each_name_once_and_in_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut wanted: Vec<String> = (0..100).map(|n| format!("{}", n * 7919 % 100)).collect();
    wanted.iter().for_each(|name| std::fs::write(dir.path().join(name), b"").expect("file"));
    wanted.sort();
    let tree = Tree::open(dir.path()).expect("tree");
    for names_held in [1, 2, 7, 50, 99, 100, 101] {
        assert_eq!(listed(&tree, "", names_held * 50), wanted, "{names_held} names held at a time");
    }
}

#[test]
fn a_page_ends_at_its_bytes_and_its_names() {
    let dir = tempfile::tempdir().expect("tempdir");
    for n in 0..10 {
        symlink("t".repeat(1000), dir.path().join(format!("link-{n}"))).expect("link");
    }
    let tree = Tree::open(dir.path()).expect("tree");
    let mut lister = Lister::new(&TargetSet::plain(tree.clone()), &RelPath::root()).expect("list");
    assert_eq!(lister.next_page(100, 3000, 1 << 20).expect("page").len(), 3);
    assert_eq!(lister.next_page(5, usize::MAX, 1 << 20).expect("page").len(), 5);
    assert_eq!(lister.next_page(100, usize::MAX, 1 << 20).expect("page").len(), 2);
    assert!(lister.is_over());
}

#[test]
fn names_that_are_held_go_by_the_memory_and_not_by_the_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    (0..2000).for_each(|n| std::fs::write(dir.path().join(format!("{n:0200}")), b"").expect("file"));
    let tree = Tree::open(dir.path()).expect("tree");
    let mut lister = Lister::new(&TargetSet::plain(tree.clone()), &RelPath::root()).expect("list");
    let mut all = 0;
    while !lister.is_over() {
        assert!(lister.held() * 248 <= 50_000, "{} names are held", lister.held());
        all += lister.next_page(100, usize::MAX, 50_000).expect("page").len();
    }
    assert_eq!(all, 2000);
}

#[test]
fn a_listing_that_nobody_wants_is_broken_off() {
    let dir = tempfile::tempdir().expect("tempdir");
    (0..20).for_each(|n| std::fs::write(dir.path().join(format!("{n}")), b"").expect("file"));
    let tree = Tree::open(dir.path()).expect("tree");
    let mut unread = Lister::new(&TargetSet::plain(tree.clone()), &RelPath::root()).expect("list");
    let mut begun = Lister::new(&TargetSet::plain(tree.clone()), &RelPath::root()).expect("list");
    assert_eq!(begun.next_page(5, usize::MAX, 1 << 20).expect("page").len(), 5);
    for lister in [&mut unread, &mut begun] {
        lister.unwanted().store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(lister.next_page(5, usize::MAX, 1 << 20).is_err());
    }
    assert_eq!(unread.held(), 0, "not even the directory is read");
}

#[test]
fn names_of_any_bytes_are_listed_as_they_are() {
    let dir = tempfile::tempdir().expect("tempdir");
    let odd: [&[u8]; 4] = [b"\x1b[31m\nred", b"\xff\xfe", b"...", &[b'n'; 255]];
    for name in odd {
        std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), b"").expect("file");
    }
    let tree = Tree::open(dir.path()).expect("tree");
    let mut lister = Lister::new(&TargetSet::plain(tree.clone()), &RelPath::root()).expect("list");
    let page = lister.next_page(100, usize::MAX, 1 << 20).expect("page");
    let mut wanted = odd.map(<[u8]>::to_vec);
    wanted.sort();
    assert_eq!(page.into_iter().map(|one| one.name).collect::<Vec<_>>(), wanted);
}

#[test]
fn a_listing_of_a_set_has_each_name_once_and_tells_a_file_that_stands_twice() {
    let top = tempfile::tempdir().expect("tempdir");
    let dirs: Vec<_> = (0..3).map(|n| top.path().join(n.to_string())).collect();
    for (dir, names) in dirs.iter().zip([&["d/a", "x"][..], &["d/b"], &["d/a", "y"]]) {
        std::fs::create_dir_all(dir.join("d")).expect("dirs");
        names.iter().for_each(|name| std::fs::write(dir.join(name), b"1").expect("file"));
    }
    let trees = dirs.iter().map(|dir| Tree::open(dir).expect("tree"));
    let set = TargetSet::together(trees);
    let listed = |at: &str, memory: usize| {
        let mut lister = Lister::new(&set, &RelPath::new(at).expect("a path")).expect("list");
        let mut all = Vec::new();
        while !lister.is_over() {
            let page = lister.next_page(7, usize::MAX, memory).expect("page");
            all.extend(page.into_iter().map(|one| (String::from_utf8(one.name).expect("text"), one.standing)));
        }
        all
    };
    for memory in [1 << 20, 50] {
        let names = |at: &str| listed(at, memory).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(""), ["d", "x", "y"], "{memory}");
        assert_eq!(names("d"), ["a", "b"], "{memory}");
        assert!(matches!(listed("d", memory)[0].1, Standing::Special { what: "on two targets", .. }));
    }
}
