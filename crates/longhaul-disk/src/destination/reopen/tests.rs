//! Tests of partials: they stay, are found again under their names, are continued, swept away, and
//! never trusted blindly.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use longhaul_core::{Meta, Place, Preserve, SessionTag};
use longhaul_sys::Slab;

use super::*;
use crate::destination::DiskBody;
use crate::error::ErrorKind;
use crate::testing::{META, Mounted, TAG, content, map, once_let_go, path, temp, write};
use crate::{ChunkIo, DirectMode, EngineKind, FsTarget, Replace, TargetFile, TargetTree, Tree};

const CHUNK: usize = 64 << 10;
const LEN: u64 = 3 * CHUNK as u64 + 7;

fn target() -> (tempfile::TempDir, FsTarget) {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    (dir, target)
}

/// The path of a temporary.
fn at(dir: &Path, temp: &TempName) -> std::path::PathBuf {
    dir.join(temp.to_string())
}

/// The one body of a file.
fn body(file: &TargetFile) -> &DiskBody {
    file.on_disk().next().expect("a file on the disk")
}

/// Writes these chunks of `bytes`.
fn put(file: &Arc<TargetFile>, bytes: &[u8], chunks: &[usize]) {
    let slab = Slab::new(CHUNK, 1).expect("slab");
    let io = ChunkIo::start(EngineKind::Auto, 1, &slab).expect("engine");
    for chunk in chunks {
        let from = chunk * CHUNK;
        let piece = &bytes[from..bytes.len().min(from + CHUNK)];
        let mut slot = slab.claim().expect("slot");
        slot[..piece.len()].copy_from_slice(piece);
        write(&io, file, from as u64, piece.len(), slot).1.expect("write");
    }
}

fn again(target: &FsTarget, name: &TempName) -> Option<Arc<TargetFile>> {
    let reopen = || target.reopen(&path("f"), map(LEN), true, name, &Journalled::default());
    Some(once_let_go(reopen, is_in_use).expect("reopen")?.file)
}

fn is_in_use<T>(reopened: &Result<T, DiskError>) -> bool {
    reopened.as_ref().is_err_and(|error| error.kind() == ErrorKind::InUse)
}

fn commit(target: &FsTarget, file: Arc<TargetFile>) {
    let staged = target.seal(file, &META, Preserve::default()).expect("seal");
    target.barrier(&[&staged]).expect("barrier");
    target.publish(&staged, Replace::Never).expect("publish");
}

#[test]
fn a_partial_that_was_dropped_is_gone_on_with() {
    let (dir, target) = target();
    let (name, bytes) = (temp(), content(LEN));
    let file = target.create(&path("f"), map(LEN), false, &name).expect("create");
    put(&file, &bytes, &[3, 1]);
    drop((file, target));
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("another session");
    let file = again(&target, &name).expect("it stands");
    put(&file, &bytes, &[0, 2]);
    commit(&target, file);
    assert!(std::fs::read(dir.path().join("f")).expect("content") == bytes);
    assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1);
}

#[test]
fn a_sealed_file_that_is_dropped_stays_and_is_opened_again_whatever_its_mode() {
    let (dir, target) = target();
    let (name, bytes) = (temp(), content(LEN));
    let file = target.create(&path("f"), map(LEN), false, &name).expect("create");
    put(&file, &bytes, &[0, 1, 2, 3]);
    let shut = Meta { mode: 0o444, ..META };
    drop(target.seal(file, &shut, Preserve::default()).expect("seal"));
    let file = again(&target, &name).expect("it stands");
    let stat = std::fs::metadata(at(dir.path(), &name)).expect("stat");
    assert_eq!(stat.mode() & 0o7777, 0o600, "for nobody else as long as it is written");
    commit(&target, file);
    assert!(std::fs::read(dir.path().join("f")).expect("content") == bytes);
}

#[test]
fn zeros_overwrite_what_an_earlier_session_left() {
    let (dir, target) = target();
    let name = temp();
    let file = target.create(&path("f"), map(LEN), true, &name).expect("create");
    put(&file, &[0xff; LEN as usize], &[0, 1, 2, 3]);
    drop(file);
    let file = again(&target, &name).expect("it stands");
    put(&file, &[0; LEN as usize], &[0]);
    target.make_hole(&file, Place::whole(CHUNK as u64), LEN - CHUNK as u64).expect("hole");
    commit(&target, file);
    assert!(std::fs::read(dir.path().join("f")).expect("content") == vec![0; LEN as usize]);
}

#[test]
fn a_hole_is_made_only_where_something_was_written() {
    let (_dir, target) = target();
    let file = target.create(&path("f"), map(LEN), true, &temp()).expect("create");
    assert!(!body(&file).may_hold_data(0..LEN));
    put(&file, &content(LEN), &[1]);
    assert!(!body(&file).may_hold_data(0..CHUNK as u64) && body(&file).may_hold_data(0..CHUNK as u64 + 1));
    target.make_hole(&file, Place::whole(0), LEN).expect("hole");
    file.discard();
}

#[test]
fn where_no_holes_can_be_made_zeros_are_written() {
    let Some(ramfs) = Mounted::new(&["-t", "ramfs", "ramfs"]) else { return };
    let target = FsTarget::open(&ramfs.path, DirectMode::Auto).expect("target");
    let name = temp();
    let file = target.create(&path("f"), map(LEN), true, &name).expect("create");
    put(&file, &[0xff; LEN as usize], &[0, 1, 2, 3]);
    drop(file);
    let file = again(&target, &name).expect("it stands");
    target.make_hole(&file, Place::whole(5), LEN - 8).expect("zeros");
    commit(&target, file);
    let mut wanted = vec![0; LEN as usize];
    wanted[..5].fill(0xff);
    wanted[LEN as usize - 3..].fill(0xff);
    assert!(std::fs::read(ramfs.path.join("f")).expect("content") == wanted);
}

#[test]
fn a_partial_in_use_is_not_opened_twice() {
    let (_dir, target) = target();
    let name = temp();
    let file = target.create(&path("f"), map(LEN), false, &name).expect("create");
    assert_eq!(
        target.reopen(&path("f"), map(LEN), false, &name, &Journalled::default()).expect_err("in use").kind(),
        ErrorKind::InUse
    );
    drop(file);
    let file = again(&target, &name).expect("free");
    assert_eq!(
        target.reopen(&path("f"), map(LEN), false, &name, &Journalled::default()).expect_err("in use").kind(),
        ErrorKind::InUse
    );
    file.discard();
    assert!(again(&target, &name).is_none());
}

#[test]
fn nothing_is_gone_on_with_that_is_not_a_file_of_ours_alone() {
    let (dir, target) = target();
    let name = temp();
    let at = at(dir.path(), &name);
    assert!(again(&target, &name).is_none(), "absent");
    assert!(
        target.reopen(&path("no/f"), map(LEN), false, &name, &Journalled::default()).expect("no directory").is_none()
    );
    let other = dir.path().join("other");
    std::fs::write(&other, b"safe").expect("file");
    symlink(&other, &at).expect("link");
    assert!(again(&target, &name).is_none(), "symbolic link");
    std::fs::remove_file(&at).expect("remove");
    std::fs::hard_link(&other, &at).expect("link");
    assert!(again(&target, &name).is_none(), "hard link");
    std::fs::remove_file(&at).expect("remove");
    std::fs::create_dir(&at).expect("directory");
    assert!(again(&target, &name).is_none(), "directory");
    std::fs::remove_dir(&at).expect("remove");
    rustix::fs::mknodat(rustix::fs::CWD, &at, FileType::Fifo, Mode::RWXU, 0).expect("fifo");
    assert!(again(&target, &name).is_none(), "fifo");
    std::fs::remove_file(&at).expect("remove");
    assert_eq!(std::fs::read(&other).expect("content"), b"safe");
    if geteuid().is_root() {
        std::fs::write(&at, b"").expect("file");
        std::os::unix::fs::chown(&at, Some(12345), None).expect("chown");
        assert!(again(&target, &name).is_none(), "another user's");
    }
}

#[test]
fn a_temporary_is_removed_by_its_name_or_was_gone_before() {
    let (dir, target) = target();
    let name = temp();
    drop(target.create(&path("f"), map(LEN), false, &name).expect("create"));
    for _ in 0..2 {
        target.remove_temp(&path("f"), &name).expect("remove");
        assert!(!at(dir.path(), &name).exists());
    }
    target.remove_temp(&path("no/f"), &name).expect("no directory");
}

#[test]
fn a_taken_temporary_name_is_refused() {
    let (dir, target) = target();
    let name = temp();
    std::fs::write(at(dir.path(), &name), b"safe").expect("file");
    assert_eq!(target.create(&path("f"), map(LEN), false, &name).expect_err("taken").kind(), ErrorKind::Exists);
    assert_eq!(std::fs::read(at(dir.path(), &name)).expect("content"), b"safe");
}

#[test]
fn a_sync_of_data_makes_the_name_durable_once_with_all_new_directories_above() {
    let (_dir, target) = target();
    for made in ["a", "a/b", "x"] {
        target.make_dir(&path(made)).expect("make");
    }
    let file = target.create(&path("a/b/f"), map(LEN), false, &temp()).expect("create");
    target.sync_data(&file).expect("sync");
    let counts = target.sync_counts();
    assert_eq!((counts.fdatasync, counts.dirsync), (1, 3), "a/b for the name, a for b, the top for a");
    target.sync_data(&file).expect("sync");
    assert_eq!((target.sync_counts().fdatasync, target.sync_counts().dirsync), (2, 3));
    let beside = target.create(&path("a/b/g"), map(LEN), false, &temp()).expect("create");
    target.sync_data(&beside).expect("sync");
    assert_eq!(target.sync_counts().dirsync, 4, "what lies above is durable already");
    target.sync_dirs(&[]).expect("sync");
    assert_eq!(target.sync_counts().dirsync, 4);
    file.discard();
    beside.discard();
}

#[test]
fn small_files_and_links_bear_the_tag_of_their_session() {
    let (dir, target) = target();
    let target = target.tagged(TAG);
    let small = target.write_small(&path("f"), b"x", &META, Preserve::default()).expect("write");
    let link = target.make_link(&path("l"), b"x", &META, Preserve::default()).expect("link");
    for entry in std::fs::read_dir(dir.path()).expect("dir") {
        let name = entry.expect("entry").file_name();
        assert_eq!(TempName::parse(name.as_encoded_bytes()).expect("a temporary").tag(), TAG);
    }
    drop((small, link));
    assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0);
}

#[test]
fn orphans_are_swept_and_nothing_else() {
    let (dir, target) = target();
    let named = |tag: u8, n: u8| TempName::new(SessionTag([tag; 8]), [n; 8]);
    let file = |name: &TempName| std::fs::write(at(dir.path(), name), b"").expect("file");
    let (dead, living) = (1, 2);
    file(&named(dead, 1));
    symlink("nowhere", at(dir.path(), &named(dead, 2))).expect("link");
    std::fs::create_dir(at(dir.path(), &named(dead, 3))).expect("directory");
    let open = target.create(&path("f"), map(LEN), false, &named(dead, 4)).expect("create");
    file(&named(living, 1));
    std::fs::write(dir.path().join(".longhaul-note"), b"").expect("file");
    std::fs::write(dir.path().join("kept"), b"").expect("file");
    let orphan = |temp: &TempName| temp.tag() == SessionTag([dead; 8]);
    assert_eq!(target.sweep(&path("no"), &orphan).expect("no directory"), 0);
    assert_eq!(target.sweep(&path(""), &orphan).expect("sweep"), 2);
    for left in [named(dead, 3), named(dead, 4), named(living, 1)] {
        assert!(at(dir.path(), &left).exists(), "{left}");
    }
    drop(open);
    let tree = Tree::open(dir.path()).expect("tree");
    assert_eq!(tree.sweep(&path(""), &orphan).expect("sweep"), 1, "free now");
    if geteuid().is_root() {
        file(&named(dead, 5));
        std::os::unix::fs::chown(at(dir.path(), &named(dead, 5)), Some(12345), None).expect("chown");
        assert_eq!(tree.sweep(&path(""), &orphan).expect("sweep"), 1, "it was given to its owner before its name");
    }
    assert!(dir.path().join(".longhaul-note").exists() && dir.path().join("kept").exists());
}

#[test]
fn the_shelf_of_a_destination_beneath_a_tree_is_the_trees() {
    let dir = tempfile::tempdir().expect("tempdir");
    let tree = Tree::open(dir.path()).expect("tree");
    let below = FsTarget::beneath(&tree, &path("a/b"), DirectMode::Auto, crate::destination::TreePolicy::default())
        .expect("beneath");
    let journal = below.shelf().create(TAG).expect("create");
    assert!(tree.shelf().is_live(TAG).expect("ask"));
    assert!(dir.path().join(".longhaul").exists() && !dir.path().join("a/b/.longhaul").exists());
    journal.remove().expect("remove");
    let named = FsTarget::open(&dir.path().join("a"), DirectMode::Auto).expect("named");
    drop(named.shelf().create(TAG).expect("create"));
    assert!(dir.path().join("a/.longhaul").exists());
}

#[test]
fn a_temporary_is_the_file_that_was_written_or_differs() {
    let (dir, target) = target();
    let name = temp();
    let file = target.create(&path("f"), map(LEN), false, &name).expect("create");
    put(&file, &content(LEN), &[0, 1, 2, 3]);
    target.sync_data(&file).expect("sync");
    let written = Journalled { node: file.node(), bytes: LEN };
    assert!(written.node.is_some());
    drop(file);
    let at = at(dir.path(), &name);
    let difference = |journalled: &Journalled, sparse| {
        let reopen = || target.reopen(&path("f"), map(LEN), sparse, &name, journalled);
        once_let_go(reopen, is_in_use).expect("reopen").expect("it stands").differs
    };
    assert_eq!(difference(&written, false), None);
    assert_eq!(difference(&written, false), None, "and as it was padded again");
    assert!(difference(&Journalled { node: None, ..written }, false).is_some(), "it was never said which it is");
    let more = Journalled { bytes: 1 << 40, ..written };
    assert!(
        difference(&more, false).is_some() && difference(&more, true).is_none(),
        "blocks count where none are left out"
    );
    for len in [0, LEN - 1, LEN + (2 << 20)] {
        std::fs::File::options().write(true).open(&at).expect("open").set_len(len).expect("cut");
        assert!(difference(&written, true).is_some(), "{len} bytes");
        assert!(difference(&written, true).is_none(), "its length is set again");
    }
    // Both stand at once, so that no inode is used again.
    let other = dir.path().join("other");
    std::fs::copy(&at, &other).expect("copy");
    std::fs::rename(&other, &at).expect("rename");
    assert!(difference(&written, false).is_some(), "another file");
}
