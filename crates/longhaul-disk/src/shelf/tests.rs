//! Tests of the shelf: which session may have a journal, which names stand when, refusals, and the
//! state after a failure.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::copy::JournalCopy;
use super::locks::Locked;
use super::*;
use crate::testing::{FailingKernel, Mounted, once_let_go};
use crate::tree::Tree;
use crate::{DirectMode, FsTarget};

const TAG: SessionTag = SessionTag([0xab; 8]);
const OTHER: SessionTag = SessionTag([0x01; 8]);

fn shelf() -> (tempfile::TempDir, Shelf) {
    let dir = tempfile::tempdir().expect("tempdir");
    let shelf = Tree::open(dir.path()).expect("tree").shelf();
    (dir, shelf)
}

/// Stops the other thread, also when this one fails: a scope waits for it.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn place(dir: &tempfile::TempDir, tag: SessionTag) -> PathBuf {
    dir.path().join(format!(".longhaul/{tag}.journal"))
}

fn content(journal: &Journal) -> Vec<u8> {
    let mut all = Vec::new();
    journal
        .read(&mut |piece| {
            all.extend_from_slice(piece);
            true
        })
        .expect("read");
    all
}

fn free(shelf: &Shelf, tag: SessionTag) -> Journal {
    let open = || shelf.open(tag).expect("open");
    match once_let_go(open, |shelved| matches!(shelved, Shelved::Held(_))) {
        Shelved::Free(journal) => journal,
        other => panic!("not free but {other:?}"),
    }
}

#[test]
fn a_shelf_comes_with_its_first_journal_and_goes_with_its_last() {
    let (dir, shelf) = shelf();
    assert!(shelf.list().expect("list").is_empty());
    assert!(!dir.path().join(".longhaul").exists(), "looking makes nothing");
    let (one, two) = (shelf.create(TAG).expect("one"), shelf.create(OTHER).expect("two"));
    assert_eq!(shelf.list().expect("list"), [OTHER, TAG]);
    let modes =
        [dir.path().join(".longhaul"), place(&dir, TAG)].map(|at| std::fs::metadata(at).expect("stat").mode() & 0o7777);
    assert_eq!(modes, [0o700, 0o600]);
    one.remove().expect("remove");
    assert_eq!(shelf.list().expect("list"), [OTHER]);
    two.remove().expect("remove");
    assert!(!dir.path().join(".longhaul").exists());
    shelf.create(TAG).expect("and again");
}

#[test]
fn a_journal_is_its_sessions_alone_until_that_ends() {
    let (_dir, shelf) = shelf();
    assert!(matches!(shelf.open(TAG).expect("none"), Shelved::Gone));
    assert!(!shelf.is_live(TAG).expect("none"));
    let journal = shelf.create(TAG).expect("create");
    journal.append(b"first ").expect("append");
    assert!(shelf.is_live(TAG).expect("live"));
    assert_eq!(shelf.create(TAG).expect_err("taken").kind(), ErrorKind::Exists);
    let Shelved::Held(reader) = shelf.open(TAG).expect("open") else { panic!("it is held") };
    assert_eq!(reader.tag(), TAG);
    let mut seen = Vec::new();
    let mut sink = |piece: &[u8]| {
        seen.extend_from_slice(piece);
        true
    };
    reader.read(&mut sink).expect("read");
    assert_eq!(seen, b"first ");
    drop(journal);
    assert!(!once_let_go(|| shelf.is_live(TAG).expect("left"), |is_live| *is_live), "a reader holds nothing");
    let journal = free(&shelf, TAG);
    assert_eq!(journal.len(), 6);
    journal.append(b"second").expect("append");
    journal.sync().expect("sync");
    assert_eq!(content(&journal), b"first second");
}

#[test]
fn looking_whether_a_journal_is_live_keeps_nobody_out() {
    let (_dir, shelf) = shelf();
    drop(shelf.create(TAG).expect("create"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = Ended(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = shelf.is_live(TAG).expect("ask");
            }
        });
        for _ in 0..2000 {
            drop(free(&shelf, TAG));
        }
    });
}

#[test]
fn a_journal_is_looked_into_without_being_taken() {
    let (dir, shelf) = shelf();
    assert!(shelf.look(TAG).expect("none").is_none());
    let journal = shelf.create(TAG).expect("create");
    journal.append(b"words").expect("append");
    let reader = shelf.look(TAG).expect("look").expect("it stands");
    assert!(reader.is_live().expect("ask"));
    drop(journal);
    assert!(!once_let_go(|| reader.is_live().expect("ask"), |is_live| *is_live));
    let file = std::fs::File::options().write(true).open(place(&dir, TAG)).expect("open");
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000)).expect("set");
    assert_eq!(reader.written().expect("stat").secs, 1000);
    assert_eq!(free(&shelf, TAG).written().expect("stat").secs, 1000, "a look keeps nobody out");
}

#[test]
fn one_of_many_gets_a_journal_that_was_left() {
    let (_dir, shelf) = shelf();
    for _ in 0..50 {
        drop(shelf.create(TAG).expect("create"));
        let barrier = std::sync::Barrier::new(4);
        let got: usize = std::thread::scope(|scope| {
            let open = || {
                let found = shelf.open(TAG).expect("open");
                barrier.wait();
                usize::from(matches!(found, Shelved::Free(_)))
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            all.into_iter().map(|one| one.join().expect("thread")).sum()
        });
        assert_eq!(got, 1);
        free(&shelf, TAG).remove().expect("remove");
    }
}

#[test]
fn those_who_make_and_those_who_clear_away_do_not_lose_a_journal_to_each_other() {
    let (_dir, shelf) = shelf();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = Ended(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for tag in shelf.list().expect("list") {
                    if let Shelved::Free(left) = shelf.open(tag).expect("open") {
                        assert!(left.is_empty(), "only what has promised nothing is free here");
                        left.remove().expect("remove");
                    }
                }
            }
        });
        for _ in 0..500 {
            let journal = shelf.create(TAG).expect("create");
            journal.append(b"x").expect("append");
            assert_eq!(shelf.list().expect("list"), [TAG]);
            journal.remove().expect("remove");
        }
    });
}

#[test]
fn a_cut_journal_goes_on_where_it_was_cut() {
    let (_dir, shelf) = shelf();
    let journal = shelf.create(TAG).expect("create");
    journal.append(b"good and torn").expect("append");
    journal.truncate(4).expect("cut");
    journal.append(b"!").expect("append");
    assert_eq!((content(&journal), journal.len()), (b"good!".to_vec(), 5));
    assert_eq!(journal.truncate(6).expect_err("longer than it is").kind(), ErrorKind::Bounds);
}

#[test]
fn reading_stops_when_enough_was_heard() {
    let (_dir, shelf) = shelf();
    let journal = shelf.create(TAG).expect("create");
    journal.append(&vec![7; 3 << 20]).expect("append");
    let mut heard = 0;
    let mut sink = |piece: &[u8]| {
        heard += piece.len();
        false
    };
    journal.read(&mut sink).expect("read");
    assert_eq!(heard, 4 << 10, "the beginning says whose it is");
    assert_eq!(content(&journal).len(), 3 << 20);
}

#[test]
fn a_full_disk_leaves_the_journal_as_it_was_and_usable() {
    let Some(tmpfs) = Mounted::new(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"]) else { return };
    let shelf = Tree::open(&tmpfs.path).expect("tree").shelf();
    let journal = shelf.create(TAG).expect("create");
    journal.append(b"before").expect("append");
    let error = journal.append(&[1; 200_000]).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(error.path().map(ToString::to_string), Some(format!(".longhaul/{TAG}.journal")));
    assert_eq!((content(&journal), journal.len()), (b"before".to_vec(), 6));
    journal.append(b" after").expect("there is room for this");
    assert_eq!(content(&journal), b"before after");
}

#[test]
fn a_journal_has_room_for_what_a_full_disk_took() {
    let Some((ext4, _image)) = Mounted::ext4(16 << 20) else { return };
    let shelf = Tree::open(&ext4.path).expect("tree").shelf();
    let journal = shelf.create(TAG).expect("a journal");
    journal.append(&[1; 100]).expect("appended");
    let mut ballast = std::fs::File::create(ext4.path.join("ballast")).expect("made");
    while std::io::Write::write(&mut ballast, &[7; 4096]).is_ok_and(|written| written > 0) {}
    ballast.sync_all().expect("synced");
    (0..60).for_each(|_| journal.append(&[2; 1000]).expect("room was kept"));
    journal.sync().expect("synced");
}

#[test]
fn nothing_follows_a_failed_sync() {
    let (_dir, shelf) = shelf();
    let journal = shelf.create(TAG).expect("create");
    // A descriptor that the system does not sync looks the same from here as a failure of the
    // device.
    let (_reader, writer) = std::io::pipe().expect("pipe");
    let broken = JournalCopy::new(shelf.dirs[0].clone(), (TAG, writer.into()), 0, Locked::Yes);
    broken.sync().expect_err("a pipe is not synced");
    for outcome in [broken.append(b"x"), broken.sync(), broken.truncate(0)] {
        let error = outcome.expect_err("abandoned");
        assert!(matches!(error, DiskError::Abandoned { .. }) && error.kind() == ErrorKind::Io, "{error}");
    }
    journal.sync().expect("another one is none the worse");
}

#[test]
fn an_append_that_cannot_be_taken_back_abandons_the_journal() {
    let (_dir, shelf) = shelf();
    let (reader, _writer) = std::io::pipe().expect("pipe");
    let broken = JournalCopy::new(shelf.dirs[0].clone(), (TAG, reader.into()), 0, Locked::Yes);
    assert!(matches!(broken.append(b"x").expect_err("not written"), DiskError::Call { .. }));
    assert!(matches!(broken.append(b"x").expect_err("nor cut"), DiskError::Abandoned { .. }));
}

#[test]
fn what_is_no_journal_of_ours_is_refused() {
    let (dir, shelf) = shelf();
    drop(shelf.create(OTHER).expect("a shelf"));
    let at = place(&dir, TAG);
    let victim = dir.path().join("victim");
    std::fs::write(&victim, b"safe").expect("file");
    symlink(&victim, &at).expect("link");
    assert_eq!(shelf.open(TAG).expect_err("link").kind(), ErrorKind::Escape);
    assert_eq!(shelf.is_live(TAG).expect_err("link").kind(), ErrorKind::Escape);
    assert_eq!(shelf.create(TAG).expect_err("link").kind(), ErrorKind::Exists);
    std::fs::remove_file(&at).expect("remove");
    rustix::fs::mknodat(rustix::fs::CWD, &at, FileType::Fifo, Mode::RWXU, 0).expect("fifo");
    assert!(matches!(shelf.open(TAG).expect_err("fifo"), DiskError::NotAFile { .. }));
    std::fs::remove_file(&at).expect("remove");
    std::fs::create_dir(&at).expect("directory");
    assert!(matches!(shelf.open(TAG).expect_err("directory"), DiskError::NotAFile { .. }));
    assert_eq!(std::fs::read(&victim).expect("content"), b"safe");
    std::fs::write(dir.path().join(".longhaul/note"), b"").expect("file");
    std::fs::write(dir.path().join(".longhaul/ABABABABABABABAB.journal"), b"").expect("file");
    assert_eq!(shelf.list().expect("list"), [OTHER, TAG], "other names are no journals");
}

#[test]
fn another_users_shelf_or_journal_is_refused() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: cannot give files away (needs root)");
        return;
    }
    let (dir, shelf) = shelf();
    drop(shelf.create(TAG).expect("create"));
    std::os::unix::fs::chown(place(&dir, TAG), Some(12345), None).expect("chown");
    assert!(matches!(shelf.open(TAG).expect_err("a journal"), DiskError::Foreign { .. }));
    std::os::unix::fs::chown(dir.path().join(".longhaul"), Some(12345), None).expect("chown");
    let error = shelf.create(OTHER).expect_err("a shelf");
    assert_eq!((error.kind(), error.path().map(ToString::to_string)), (ErrorKind::Denied, Some(".longhaul".into())));
}

#[test]
fn a_shelf_or_journal_that_others_may_write_to_is_not_believed() {
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    for open in [0o620, 0o602] {
        let (dir, shelf) = shelf();
        drop(shelf.create(TAG).expect("create"));
        let at = place(&dir, TAG);
        mode(&at, open);
        assert!(matches!(shelf.open(TAG).expect_err("a journal"), DiskError::Foreign { .. }), "{open:o}");
        mode(&at, 0o644);
        assert!(matches!(shelf.open(TAG), Ok(Shelved::Free(_))), "others may read");
        mode(&dir.path().join(".longhaul"), 0o100 | open);
        for error in [shelf.open(TAG).expect_err("a shelf"), shelf.create(OTHER).expect_err("a shelf")] {
            assert_eq!(
                (error.kind(), error.path().map(ToString::to_string)),
                (ErrorKind::Denied, Some(".longhaul".into()))
            );
        }
        mode(&dir.path().join(".longhaul"), 0o755);
        assert!(matches!(shelf.open(TAG), Ok(Shelved::Free(_))), "others may enter");
    }
}

/// Where every user may make names, a thing that another user has planted costs the continuation of
/// what is cut off, and nothing else.
#[test]
fn whatever_another_user_has_planted_in_place_of_the_shelf_is_denied_and_not_in_the_way() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: cannot give files away (needs root)");
        return;
    }
    for kind in [FileType::RegularFile, FileType::Fifo, FileType::Socket, FileType::Symlink, FileType::Directory] {
        let (dir, shelf) = shelf();
        let at = dir.path().join(".longhaul");
        match kind {
            FileType::Symlink => symlink("/", &at).expect("link"),
            FileType::Directory => std::fs::create_dir(&at).expect("directory"),
            kind => rustix::fs::mknodat(rustix::fs::CWD, &at, kind, Mode::RWXU, 0).expect("node"),
        }
        std::os::unix::fs::lchown(&at, Some(12345), None).expect("chown");
        for error in [shelf.create(TAG).expect_err("planted"), shelf.list().expect_err("planted")] {
            assert!(matches!(error, DiskError::Foreign { .. }), "{kind:?}: {error}");
            assert_eq!(error.kind(), ErrorKind::Denied, "{kind:?}");
        }
    }
}

#[test]
fn a_link_or_file_in_place_of_the_shelf_is_not_entered() {
    let outside = tempfile::tempdir().expect("tempdir");
    let (dir, shelf) = shelf();
    symlink(outside.path(), dir.path().join(".longhaul")).expect("link");
    for error in [shelf.create(TAG).expect_err("link"), shelf.list().expect_err("link")] {
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
    }
    std::fs::remove_file(dir.path().join(".longhaul")).expect("remove");
    std::fs::write(dir.path().join(".longhaul"), b"").expect("file");
    assert_eq!(shelf.create(TAG).expect_err("file").kind(), ErrorKind::NotADirectory);
    assert_eq!(std::fs::read_dir(outside.path()).expect("dir").count(), 0);
}

#[test]
fn a_directory_that_may_not_be_written_to_says_so() {
    if geteuid().is_root() {
        eprintln!("SKIPPED: root may write everywhere");
        return;
    }
    let (dir, shelf) = shelf();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o500)).expect("chmod");
    assert_eq!(shelf.create(TAG).expect_err("read-only").kind(), ErrorKind::Denied);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).expect("chmod");
}

fn failing(dir: &tempfile::TempDir, failing: FailingKernel) -> (Shelf, Arc<FailingKernel>) {
    let failing = Arc::new(failing);
    let target = FsTarget::open_behind(dir.path(), DirectMode::Auto, failing.clone()).expect("target");
    (target.shelf().clone(), failing)
}

#[test]
fn what_fails_leaves_no_journal_and_says_what_the_system_said() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (shelf, kernel) = failing(&dir, FailingKernel::default());
    drop(shelf.create(OTHER).expect("the shelf stands"));
    *kernel.sync.lock().expect("no panic") = Some(Errno::IO);
    let error = shelf.create(TAG).expect_err("its name cannot be made durable");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(!place(&dir, TAG).exists());
    shelf.create(TAG).expect("nothing is in its way");
}

#[test]
fn a_shelf_that_stands_is_synced_once_by_each_process() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join(".longhaul")).expect("by one that died before its sync");
    let (shelf, kernel) = failing(&dir, FailingKernel::default());
    let syncs = || kernel.syncs.swap(0, Ordering::Relaxed);
    syncs();
    let first = shelf.create(TAG).expect("create");
    assert_eq!(syncs(), 2, "the directory above, and the shelf");
    drop(shelf.clone().create(OTHER).expect("create"));
    assert_eq!(syncs(), 1);
    first.remove().expect("remove");
    *kernel.sync.lock().expect("no panic") = Some(Errno::IO);
    let (shelf, kernel) =
        failing(&dir, FailingKernel { sync: std::sync::Mutex::new(None), ..FailingKernel::default() });
    *kernel.sync.lock().expect("no panic") = Some(Errno::IO);
    shelf.create(TAG).expect_err("another process, whose sync of the directory above fails");
    drop(shelf.create(TAG).expect("and that is made up for"));
    assert_eq!(kernel.syncs.load(Ordering::Relaxed), 3);
}

#[test]
fn where_there_are_no_locks_a_journal_is_had_without_one() {
    for none in [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL] {
        let dir = tempfile::tempdir().expect("tempdir");
        let (shelf, _) = failing(&dir, FailingKernel { locks: Some(none), ..FailingKernel::default() });
        let journal = shelf.create(TAG).expect("create");
        assert!(!journal.is_locked());
        journal.append(b"x").expect("append");
        drop(journal);
        assert!(!free(&shelf, TAG).is_locked(), "{none}");
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let (shelf, _) = failing(&dir, FailingKernel { locks: Some(Errno::IO), ..FailingKernel::default() });
    assert_eq!(shelf.create(TAG).expect_err("another error is one").kind(), ErrorKind::Io);
    assert!(!dir.path().join(".longhaul").exists());
}

#[test]
fn on_btrfs_a_journal_is_written_in_place() {
    let dir = tempfile::tempdir().expect("tempdir");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    let made = std::process::Command::new("mkfs.btrfs").arg("-q").arg(&image).status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    let Some(btrfs) = Mounted::new(&["-o", "loop", image.to_str().expect("text")]) else { return };
    let shelf = Tree::open(&btrfs.path).expect("tree").shelf();
    let _journal = shelf.create(TAG).expect("create");
    let at = std::fs::File::open(btrfs.path.join(format!(".longhaul/{TAG}.journal"))).expect("open");
    let flags = rustix::fs::ioctl_getflags(&at).expect("flags");
    assert!(flags.contains(rustix::fs::IFlags::NOCOW), "{flags:?}");
}
