//! Tests of looking into a served tree: its entries, links as leaves and as parents.

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
fn the_root_itself_may_be_a_link_and_must_be_a_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("real")).expect("dir");
    std::fs::write(dir.path().join("file"), b"").expect("file");
    symlink("real", dir.path().join("named")).expect("link");
    assert!(Tree::open(&dir.path().join("named")).is_ok());
    assert_eq!(Tree::open(&dir.path().join("file")).expect_err("file").kind(), ErrorKind::NotADirectory);
    assert_eq!(Tree::open(&dir.path().join("gone")).expect_err("gone").kind(), ErrorKind::NotFound);
}
