//! Tests of receiving into a directory: publishing, replacing, metadata, links in the way,
//! durability, leftovers.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use longhaul_core::Mtime;
use rustix::fs::StatVfs;

use super::*;
use crate::error::ErrorKind;
use crate::testing::{META, Mounted, all, map, path, temp};

const KEEP: Preserve = Preserve::EVERYTHING.without_extras();
const DROP: Preserve = Preserve { mode: false, times: false, ..KEEP };

fn target() -> (tempfile::TempDir, FsTarget) {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    (dir, target)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("dir")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn put(target: &FsTarget, at: &str, bytes: &[u8], replace: Replace) -> Result<(), DiskError> {
    let staged = target.write_small(&path(at), bytes, &META, KEEP)?;
    target.barrier(&[&staged])?;
    target.publish(&staged, replace)?;
    target.sync_dirs(&[staged])
}

#[test]
fn a_final_name_appears_only_at_publication_with_all_its_metadata() {
    let (dir, target) = target();
    let staged = target.write_small(&path("f"), b"hello", &META, KEEP).expect("write");
    let before = names(dir.path());
    assert!(before.len() == 1 && before[0].starts_with(".longhaul-") && before[0].len() == 42, "{before:?}");
    target.barrier(&[&staged]).expect("barrier");
    target.publish(&staged, Replace::Never).expect("publish");
    drop(staged);
    assert_eq!(names(dir.path()), ["f"]);
    let stat = std::fs::metadata(dir.path().join("f")).expect("stat");
    assert_eq!((stat.mode() & 0o7777, stat.mtime(), stat.mtime_nsec()), (0o640, META.mtime.secs, 123_456_789));
    assert_eq!(std::fs::read(dir.path().join("f")).expect("content"), b"hello");
}

#[test]
fn large_files_get_their_length_mode_and_times_when_sealed() {
    let (dir, target) = target();
    let file = target.create(&path("big"), map(1_000_001), false, &temp()).expect("create");
    let temp = names(dir.path()).remove(0);
    assert_eq!(std::fs::metadata(dir.path().join(&temp)).expect("stat").mode() & 0o7777, 0o600);
    target.sync_data(&file).expect("sync");
    let setuid = Meta { mode: 0o4755, ..META };
    let staged = target.seal(file, &setuid, KEEP).expect("seal");
    target.barrier(&[&staged]).expect("barrier");
    target.publish(&staged, Replace::Allowed).expect("publish");
    let stat = std::fs::metadata(dir.path().join("big")).expect("stat");
    assert_eq!((stat.len(), stat.mode() & 0o7777, stat.mtime()), (1_000_001, 0o755, META.mtime.secs));
    assert_eq!(target.sync_counts(), SyncCounts { fsync: 1, fdatasync: 1, dirsync: 1, ..SyncCounts::default() });
}

#[test]
fn what_is_not_preserved_follows_the_mask_and_the_clock() {
    let (dir, target) = target();
    let staged = target.write_small(&path("f"), b"", &META, DROP).expect("write");
    target.publish(&staged, Replace::Never).expect("publish");
    let file = target.create(&path("g"), map(10), false, &temp()).expect("create");
    let staged = target.seal(file, &META, DROP).expect("seal");
    target.publish(&staged, Replace::Never).expect("publish");
    let ordinary = std::fs::File::create(dir.path().join("ordinary")).expect("file").metadata().expect("stat");
    for name in ["f", "g"] {
        let stat = std::fs::metadata(dir.path().join(name)).expect("stat");
        assert_eq!(stat.mode(), ordinary.mode(), "{name}");
        assert!(stat.mtime() > META.mtime.secs);
    }
}

#[test]
fn what_is_discarded_or_small_and_dropped_leaves_nothing() {
    let (dir, target) = target();
    let file = target.create(&path("a"), map(100), false, &temp()).expect("create");
    let other = target.create(&path("b"), map(100), false, &temp()).expect("create");
    let staged = target.seal(Arc::clone(&other), &META, KEEP).expect("seal");
    let small = target.write_small(&path("c"), b"c", &META, KEEP).expect("write");
    let link = target.make_link(&path("d"), b"x", &META, KEEP).expect("link");
    assert_eq!(names(dir.path()).len(), 4);
    staged.discard();
    assert_eq!(names(dir.path()).len(), 3, "at once, though the file is still open");
    file.discard();
    drop((file, other, staged, small, link));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_taken_name_is_replaced_or_refused_and_a_directory_never_replaced() {
    let (dir, target) = target();
    put(&target, "f", b"one", Replace::Never).expect("free");
    assert_eq!(put(&target, "f", b"two", Replace::Never).expect_err("taken").kind(), ErrorKind::Exists);
    assert_eq!(std::fs::read(dir.path().join("f")).expect("content"), b"one");
    put(&target, "f", b"three", Replace::Allowed).expect("replaced");
    assert_eq!(std::fs::read(dir.path().join("f")).expect("content"), b"three");
    std::fs::create_dir(dir.path().join("d")).expect("dir");
    for replace in [Replace::Allowed, Replace::Never] {
        assert_eq!(put(&target, "d", b"x", replace).expect_err("directory").kind(), ErrorKind::Exists);
    }
    assert_eq!(names(dir.path()), ["d", "f"]);
}

#[test]
fn a_link_at_the_final_name_is_replaced_itself() {
    let (dir, target) = target();
    std::fs::write(dir.path().join("victim"), b"safe").expect("file");
    symlink("victim", dir.path().join("f")).expect("link");
    assert_eq!(put(&target, "f", b"new", Replace::Never).expect_err("taken").kind(), ErrorKind::Exists);
    put(&target, "f", b"new", Replace::Allowed).expect("replaced");
    assert_eq!(std::fs::read(dir.path().join("victim")).expect("content"), b"safe");
    assert!(std::fs::symlink_metadata(dir.path().join("f")).expect("stat").is_file());
}

#[test]
fn a_link_above_is_refused_by_every_operation() {
    let outside = tempfile::tempdir().expect("tempdir");
    std::fs::write(outside.path().join("f"), b"safe").expect("file");
    std::fs::create_dir(outside.path().join("sub")).expect("dir");
    let (dir, target) = target();
    symlink(outside.path(), dir.path().join("out")).expect("link");
    let escape = |outcome: Result<(), DiskError>, what: &str| {
        assert_eq!(outcome.expect_err(what).kind(), ErrorKind::Escape, "{what}");
    };
    let at = path("out/f");
    escape(target.examine(&at).map(drop), "examine");
    escape(target.make_dir(&path("out/new")).map(drop), "make_dir");
    escape(target.create(&at, map(1), false, &temp()).map(drop), "create");
    escape(target.write_small(&at, b"x", &META, KEEP).map(drop), "write_small");
    escape(target.make_link(&at, b"x", &META, KEEP).map(drop), "make_link");
    escape(target.finish_dir(&path("out/sub"), &META, KEEP), "finish_dir");
    let leaf = target.make_dir(&path("out")).expect_err("a link is no directory");
    assert_eq!(leaf.kind(), ErrorKind::Exists);
    assert_eq!(target.finish_dir(&path("out"), &META, KEEP).expect_err("leaf").kind(), ErrorKind::NotADirectory);
    let tree = Tree::open(dir.path()).expect("tree");
    for at in ["out", "out/new", "out/sub"] {
        escape(FsTarget::beneath(&tree, &path(at), DirectMode::Auto, TreePolicy::default()).map(drop), "beneath");
    }
    assert_eq!(names(outside.path()), ["f", "sub"]);
    assert_eq!(std::fs::read(outside.path().join("f")).expect("content"), b"safe");
}

#[test]
fn names_flipping_between_directory_and_link_never_let_a_write_out() {
    let outside = tempfile::tempdir().expect("tempdir");
    let (dir, _) = target();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::fs::create_dir(dir.path().join("flip")).expect("dir");
    symlink(outside.path(), dir.path().join("spare")).expect("link");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (dir.path().join("flip"), dir.path().join("spare"));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags).expect("exchange");
            }
        });
        for n in 0..2000 {
            let fresh = FsTarget::open(dir.path(), DirectMode::Buffered).expect("target");
            // Fails or succeeds with the race; what counts is where it lands.
            let _ = put(&fresh, &format!("flip/f{n}"), b"x", Replace::Never);
            let _ = fresh.make_dir(&path(format!("flip/d{n}")));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(names(outside.path()).is_empty());
}

#[test]
fn directories_are_private_until_finished() {
    let (dir, target) = target();
    assert_eq!(target.make_dir(&path("d")).expect("make"), Made::Created);
    assert_eq!(target.make_dir(&path("d")).expect("again"), Made::Stood);
    assert_eq!(target.make_dir(&RelPath::root()).expect("root"), Made::Stood);
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).expect("stat").mode() & 0o7777;
    assert_eq!(mode("d"), 0o700);
    put(&target, "d/f", b"", Replace::Never).expect("file");
    target.finish_dir(&path("d"), &Meta { mode: 0o2550, ..META }, KEEP).expect("finish");
    assert_eq!(mode("d"), 0o550);
    assert_eq!(std::fs::metadata(dir.path().join("d")).expect("stat").mtime(), META.mtime.secs);
    std::fs::create_dir(dir.path().join("ordinary")).expect("dir");
    target.make_dir(&path("e")).expect("make");
    target.finish_dir(&path("e"), &META, DROP).expect("finish");
    assert_eq!(mode("e"), mode("ordinary"));
    std::fs::set_permissions(dir.path().join("e"), std::fs::Permissions::from_mode(0o2711)).expect("chmod");
    target.finish_dir(&path("e"), &META, DROP).expect("finish");
    assert_eq!(mode("e"), 0o2711, "a directory that stood keeps its mode");
    target.finish_dir(&path("e"), &META, KEEP).expect("finish");
    assert_eq!(mode("e"), 0o2640, "and its set-group-id bit in any case");
    assert_eq!(target.make_dir(&path("no/where")).expect_err("parent").kind(), ErrorKind::NotFound);
    std::fs::write(dir.path().join("f"), b"").expect("file");
    assert_eq!(target.make_dir(&path("f")).expect_err("file").kind(), ErrorKind::Exists);
}

#[test]
fn a_directory_that_shuts_its_owner_out_is_opened_until_it_is_finished() {
    let (dir, target) = target();
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).expect("stat").mode() & 0o7777;
    for (name, bits) in [("read-only", 0o555), ("drop-box", 0o311), ("shut", 0)] {
        std::fs::create_dir(dir.path().join(name)).expect("dir");
        std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(bits)).expect("chmod");
        for keep in [DROP, KEEP] {
            assert_eq!(target.make_dir(&path(name)).expect("stands"), Made::Stood);
            put(&target, &format!("{name}/f"), b"x", Replace::Allowed).expect("writable for us");
            target.finish_dir(&path(name), &Meta { mode: bits, ..META }, keep).expect("finish");
            assert_eq!(mode(name), bits);
            target.sync_dirs(&[]).expect("durable though it may not be opened");
        }
        std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(0o700)).expect("chmod");
    }
}

#[test]
fn links_are_made_as_they_are_with_their_times() {
    let (dir, target) = target();
    let to = b"../\xff/any\nwhere";
    let staged = target.make_link(&path("l"), to, &META, KEEP).expect("link");
    target.barrier(&[&staged]).expect("barrier");
    target.publish(&staged, Replace::Never).expect("publish");
    target.sync_dirs(std::slice::from_ref(&staged)).expect("sync");
    let link = dir.path().join("l");
    assert_eq!(std::fs::read_link(&link).expect("link").as_os_str().as_bytes(), to);
    assert_eq!(std::fs::symlink_metadata(&link).expect("stat").mtime(), META.mtime.secs);
    assert_eq!(target.sync_counts(), SyncCounts { dirsync: 1, ..SyncCounts::default() });
    let bad = target.make_link(&path("m"), b"a\0b", &META, KEEP).expect_err("nul");
    assert_eq!(bad.kind(), ErrorKind::Unsupported);
}

#[test]
fn names_of_255_odd_bytes_are_published() {
    let (dir, target) = target();
    for name in [vec![b'n'; 255], vec![0xff; 255], b"a\nb".to_vec()] {
        let staged = target.write_small(&path(name.clone()), b"x", &META, KEEP).expect("write");
        target.publish(&staged, Replace::Never).expect("publish");
        assert!(dir.path().join(std::ffi::OsStr::from_bytes(&name)).exists());
    }
}

#[test]
fn times_before_1970_are_kept() {
    let (dir, target) = target();
    let old = Meta::new(0o600, Mtime { secs: -1000, nanos: 5 });
    let staged = target.write_small(&path("f"), b"", &old, KEEP).expect("write");
    target.publish(&staged, Replace::Never).expect("publish");
    let stat = std::fs::metadata(dir.path().join("f")).expect("stat");
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (-1000, 5));
}

#[test]
fn few_files_are_synced_alone_and_many_with_their_file_system() {
    let (_dir, target) = target();
    let stage = |from: usize, count: usize| -> Vec<Staged> {
        (from..from + count)
            .map(|n| target.write_small(&path(format!("f{n}")), b"x", &META, KEEP).expect("write"))
            .collect()
    };
    let few = stage(0, 4);
    target.barrier(&all(&few)).expect("barrier");
    assert_eq!(target.sync_counts(), SyncCounts { fsync: 4, ..SyncCounts::default() });
    let many = stage(100, OPEN_STAGED_MAX + 1);
    target.barrier(&all(&many)).expect("barrier");
    assert_eq!(target.sync_counts(), SyncCounts { fsync: 4, syncfs: 1, ..SyncCounts::default() });
    // This one finds no descriptor free, alone as it is.
    target.barrier(&all(&stage(200, 1))).expect("barrier");
    assert_eq!(target.sync_counts().syncfs, 2);
    drop((few, many));
    target.barrier(&all(&stage(300, 1))).expect("barrier");
    assert_eq!(target.sync_counts(), SyncCounts { fsync: 5, syncfs: 2, ..SyncCounts::default() });
}

#[test]
fn every_directory_with_a_new_name_is_synced_once() {
    let (_dir, target) = target();
    for at in ["a", "a/b", "a/b/c"] {
        target.make_dir(&path(at)).expect("make");
    }
    let staged = target.write_small(&path("a/b/c/f"), b"x", &META, KEEP).expect("write");
    target.publish(&staged, Replace::Never).expect("publish");
    target.sync_dirs(std::slice::from_ref(&staged)).expect("sync");
    assert_eq!(target.sync_counts().dirsync, 4, "the root, a, a/b and a/b/c");
    target.sync_dirs(&[]).expect("nothing left");
    assert_eq!(target.sync_counts().dirsync, 4);
    // One that its owner may not enter is synced with its file system.
    let open = Meta { mode: 0o750, ..META };
    target.finish_dir(&path("a/b/c"), &open, KEEP).expect("finish");
    target.sync_dirs(&[]).expect("its times");
    assert_eq!(target.sync_counts().dirsync, 5);
}

#[test]
fn very_many_new_directories_are_synced_with_their_file_system() {
    let (_dir, target) = target();
    for n in 0..1100 {
        target.make_dir(&path(format!("d{n}"))).expect("make");
        target.make_dir(&path(format!("d{n}/e"))).expect("make");
    }
    target.sync_dirs(&[]).expect("sync");
    assert_eq!(target.sync_counts(), SyncCounts { syncfs: 1, ..SyncCounts::default() });
    target.sync_dirs(&[]).expect("nothing left");
    assert_eq!(target.sync_counts().syncfs, 1);
}

#[test]
fn a_destination_is_made_with_those_above_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let deep = dir.path().join("x/y/z");
    let target = FsTarget::open(&deep, DirectMode::Auto).expect("named");
    put(&target, "f", b"1", Replace::Never).expect("file");
    assert!(deep.join("f").exists());
    let tree = Tree::open(dir.path()).expect("tree");
    let below = FsTarget::beneath(&tree, &path("p/q"), DirectMode::Auto, TreePolicy::default()).expect("beneath");
    put(&below, "f", b"1", Replace::Never).expect("file");
    assert!(dir.path().join("p/q/f").exists());
    std::fs::write(dir.path().join("file"), b"").expect("file");
    let in_the_way = FsTarget::open(&dir.path().join("file/x"), DirectMode::Auto).err().expect("a file");
    assert_eq!(in_the_way.kind(), ErrorKind::NotADirectory);
}

#[test]
fn a_full_file_system_is_no_space_and_keeps_no_temporary() {
    let Some(tmpfs) = Mounted::new(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"]) else { return };
    let target = FsTarget::open(&tmpfs.path, DirectMode::Auto).expect("target");
    let error = target.write_small(&path("f"), &[1; 200_000], &META, KEEP).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(names(&tmpfs.path).is_empty());
}

#[test]
fn room_counts_what_is_kept_for_root_for_root_alone_and_is_unknown_where_no_size_is_said() {
    let dir = tempfile::tempdir().expect("tempdir");
    let opened = std::fs::File::open(dir.path()).expect("opened");
    let said = fstatvfs(&opened).expect("statfs");
    let stat = |f_blocks, f_files| StatVfs {
        f_blocks,
        f_frsize: 4096,
        f_bfree: 7,
        f_bavail: 5,
        f_files,
        f_ffree: 3,
        f_favail: 2,
        ..said
    };
    assert_eq!(room_of(&stat(10, 9), Asker::Others), Some((5 * 4096, Some(2))));
    assert_eq!(room_of(&stat(10, 9), Asker::Root), Some((7 * 4096, Some(3))));
    assert_eq!(room_of(&stat(10, 0), Asker::Others), Some((5 * 4096, None)));
    assert_eq!(room_of(&stat(0, 9), Asker::Root), None);
}

#[test]
fn what_a_temporary_occupies_counts_what_was_written_and_not_its_length() {
    let (_dir, target) = target();
    let name = temp();
    assert_eq!(target.occupied(&path("f"), &name), None);
    assert!(!target.has_temp(&path("f"), &name).expect("it is looked for"));
    assert!(!target.has_temp(&path("none/f"), &name).expect("a directory that is not there holds none"));
    let file = target.create(&path("f"), map(1 << 30), true, &name).expect("created");
    let occupied = target.occupied(&path("f"), &name).expect("it stands");
    assert!(target.has_temp(&path("f"), &name).expect("it is looked for"));
    assert!(occupied < 1 << 20, "{occupied}");
    drop(file);
}

#[test]
fn nothing_is_known_of_the_room_of_a_file_system_without_a_size() {
    let Some(ramfs) = Mounted::new(&["-t", "ramfs", "ramfs"]) else { return };
    let target = FsTarget::open(&ramfs.path, DirectMode::Auto).expect("target");
    let room = target.room(&path("f"));
    drop(target);
    assert_eq!(room, None);
}

#[test]
fn file_systems_mounted_below_are_synced_as_well() {
    let (dir, target) = target();
    let Some(tmpfs) = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"]) else { return };
    let below = dir.path().join("m");
    std::fs::create_dir(&below).expect("dir");
    let bound = std::process::Command::new("mount").arg("--bind").arg(&tmpfs.path).arg(&below).status();
    if !bound.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: cannot bind-mount here");
        return;
    }
    let staged: Vec<Staged> = (0..4 * OPEN_STAGED_MAX)
        .map(|n| {
            let at = if n % 2 == 0 { format!("m/f{n}") } else { format!("f{n}") };
            target.write_small(&path(at), b"x", &META, KEEP).expect("write")
        })
        .collect();
    let outcome = target.barrier(&all(&staged));
    let counts = target.sync_counts();
    drop((staged, target));
    let _ = std::process::Command::new("umount").arg("-l").arg(&below).status();
    outcome.expect("barrier");
    assert_eq!(counts.syncfs, 2);
}

mod place;
