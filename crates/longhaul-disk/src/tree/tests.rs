//! Looking into a served tree: what stands where, listings, links as leaves and as parents.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;
use crate::testing::path;

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
fn what_stands_is_told_without_following() {
    let (_dir, tree) = tree();
    assert!(matches!(tree.stat(&RelPath::root()), Ok(Some(Standing::Dir { .. }))));
    assert!(matches!(tree.stat(&path("d/file")), Ok(Some(Standing::File { len: 5, .. }))));
    assert!(matches!(tree.stat(&path("d/fifo")), Ok(Some(Standing::Special { what: "fifo", .. }))));
    assert!(matches!(tree.stat(&path("d/up")), Ok(Some(Standing::Symlink { target, .. })) if target == b"../.."));
    assert!(matches!(tree.stat(&path("gone")), Ok(None)));
    assert!(matches!(tree.stat(&path("gone/too")), Ok(None)));
    assert!(matches!(tree.stat(&path("d/up/etc")), Err(DiskError::Escape { .. })));
    assert!(matches!(tree.stat(&path("d/file/x")), Err(DiskError::NotADirectory { .. })));
}

#[test]
fn listings_are_sorted_without_what_is_ours() {
    let (_dir, tree) = tree();
    let all = tree.list(&path("d"), None, 100).expect("list");
    assert_eq!((names(&all), &all.next), (vec!["e", "fifo", "file", "up"], &None));
    let itself = tree.list(&path("d/file"), None, 1).expect("list");
    assert_eq!((names(&itself), &itself.next), (vec!["file"], &None));
    assert_eq!(tree.list(&path("gone"), None, 100).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(tree.list(&path("d/up/d"), None, 100).expect_err("link").kind(), ErrorKind::Escape);
}

fn names(page: &ListedPage) -> Vec<&str> {
    page.names.iter().map(|one| std::str::from_utf8(&one.name).expect("text")).collect()
}

#[test]
fn pages_of_any_size_give_each_name_once_and_in_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut wanted: Vec<String> = (0..100).map(|n| format!("{}", n * 7919 % 100)).collect();
    wanted.iter().for_each(|name| std::fs::write(dir.path().join(name), b"").expect("file"));
    wanted.sort();
    let tree = Tree::open(dir.path()).expect("tree");
    for max in [1, 2, 7, 50, 99, 100, 101] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = tree.list(&RelPath::root(), after.as_deref(), max).expect("list");
            assert!(page.names.len() <= max, "{max}");
            listed.extend(names(&page).into_iter().map(str::to_owned));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, wanted, "in pages of {max}");
    }
}

#[test]
fn names_of_any_bytes_are_listed_as_they_are() {
    let dir = tempfile::tempdir().expect("tempdir");
    let odd: [&[u8]; 4] = [b"\x1b[31m\nred", b"\xff\xfe", b"...", &[b'n'; 255]];
    for name in odd {
        std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(name)), b"").expect("file");
    }
    let listed = Tree::open(dir.path()).expect("tree").list(&RelPath::root(), None, 100).expect("list");
    let mut wanted = odd.map(<[u8]>::to_vec);
    wanted.sort();
    assert_eq!(listed.names.into_iter().map(|one| one.name).collect::<Vec<_>>(), wanted);
}

#[test]
fn the_root_itself_may_be_a_link_and_must_be_a_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("real")).expect("dir");
    std::fs::write(dir.path().join("file"), b"").expect("file");
    symlink("real", dir.path().join("named")).expect("link");
    assert!(Tree::open(&dir.path().join("named")).is_ok());
    assert_eq!(Tree::open(&dir.path().join("file")).expect_err("file").kind(), ErrorKind::NotADirectory);
    assert_eq!(Tree::open(&dir.path().join("gone")).expect_err("gone").kind(), ErrorKind::NotFound);
}
