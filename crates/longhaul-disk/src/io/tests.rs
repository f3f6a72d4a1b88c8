//! Tests of both engines on real files: every edge length, direct and buffered, fallback, holes,
//! failures, limits, shutdown.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;

use longhaul_core::Preserve;

use super::*;
use crate::error::ErrorKind;
use crate::testing::{META, Mounted, content, find, map, path, read, source_of, temp, write};
use crate::{DirectMode, FsTarget, IoMode, Replace, SourceTree, TargetTree, TimedVoid};

mod registration;
mod spread;

const CHUNK: usize = 64 << 10;
const ALIGN: u64 = 4096;
const LENGTHS: &[u64] = &[
    0,
    1,
    511,
    512,
    513,
    ALIGN - 1,
    ALIGN,
    ALIGN + 1,
    CHUNK as u64 - 1,
    CHUNK as u64,
    CHUNK as u64 + 1,
    3 * CHUNK as u64 + 7,
];

fn engines() -> Vec<EngineKind> {
    match uring::probe() {
        Ok(()) => vec![EngineKind::Uring, EngineKind::Threads],
        Err(error) => {
            eprintln!("SKIPPED: io_uring: {error}");
            vec![EngineKind::Threads]
        }
    }
}

fn start(kind: EngineKind, slots: usize) -> (ChunkIo, Arc<Slab>) {
    let slab = Slab::new(CHUNK, slots).expect("slab");
    (ChunkIo::start(kind, 4, &slab).expect("engine"), slab)
}

/// Writes a file in chunks, last chunk first, and publishes it.
fn put(io: &ChunkIo, slab: &Arc<Slab>, target: &FsTarget, name: &str, bytes: &[u8], sparse: bool) -> IoMode {
    let file = target.create(&path(name), map(bytes.len() as u64), sparse, &temp()).expect("create");
    for (n, chunk) in bytes.chunks(CHUNK).enumerate().rev() {
        let mut slot = slab.claim().expect("slot");
        slot.fill(0xee);
        slot[..chunk.len()].copy_from_slice(chunk);
        let (_, result) = write(io, &file, (n * CHUNK) as u64, chunk.len(), slot);
        result.expect("write");
    }
    let mode = file.mode();
    let staged = target.seal(file, &META, Preserve::default()).expect("seal");
    target.publish(&staged, Replace::Never).expect("publish");
    mode
}

/// Reads a file in chunks.
fn get(io: &ChunkIo, slab: &Arc<Slab>, dir: &Path, name: &str, direct: DirectMode) -> (Vec<u8>, IoMode) {
    let source = source_of(dir, direct);
    let (at, identity) = find(&source, &path(name));
    let file = source.open(&at, &identity).expect("open");
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < file.len() {
        let len = CHUNK.min((file.len() - bytes.len() as u64) as usize);
        let (slot, result) = read(io, &file, bytes.len() as u64, len, slab.claim().expect("slot"));
        result.expect("read");
        bytes.extend_from_slice(&slot[..len]);
    }
    assert!(file.unchanged().expect("identity"));
    (bytes, file.mode())
}

fn round_trip(dir: &Path, direct: DirectMode) -> Vec<IoMode> {
    let mut modes = Vec::new();
    for kind in engines() {
        let (io, slab) = start(kind, 4);
        let target = FsTarget::open(&dir.join(format!("{kind:?}-{direct:?}")), direct).expect("target");
        for &len in LENGTHS {
            let name = format!("f{len}");
            let wanted = content(len);
            modes.push(put(&io, &slab, &target, &name, &wanted, false));
            let below = dir.join(format!("{kind:?}-{direct:?}"));
            assert!(std::fs::read(below.join(&name)).expect("content") == wanted, "{kind:?} wrote {len}");
            let (bytes, mode) = get(&io, &slab, &below, &name, direct);
            assert!(bytes == wanted, "{kind:?} read {len}");
            modes.push(mode);
        }
        assert_eq!(io.report().engine, kind);
        drop(io);
        assert_eq!(slab.free(), 4);
    }
    modes
}

#[test]
fn every_edge_length_comes_back_direct_and_buffered() {
    let dir = tempfile::tempdir().expect("tempdir");
    round_trip(dir.path(), DirectMode::Auto);
    let buffered = round_trip(dir.path(), DirectMode::Buffered);
    assert!(buffered.iter().all(|mode| *mode == IoMode::Buffered));
}

#[test]
fn ext4_is_read_and_written_directly() {
    let Some((ext4, _image)) = Mounted::ext4(64 << 20) else { return };
    let modes = round_trip(&ext4.path, DirectMode::Direct);
    assert!(modes.iter().all(|mode| *mode == IoMode::Direct));
}

#[test]
fn tmpfs_works_whatever_it_says_of_direct_io() {
    let Some(tmpfs) = Mounted::new(&["-t", "tmpfs", "-o", "size=32m", "tmpfs"]) else { return };
    round_trip(&tmpfs.path, DirectMode::Auto);
}

#[test]
fn ramfs_falls_back_to_buffered_or_fails_where_direct_is_required() {
    let Some(ramfs) = Mounted::new(&["-t", "ramfs", "ramfs"]) else { return };
    let modes = round_trip(&ramfs.path, DirectMode::Auto);
    assert!(modes.iter().all(|mode| *mode == IoMode::Buffered));
    let target = FsTarget::open(&ramfs.path, DirectMode::Direct).expect("target");
    let refused = target.create(&path("f"), map(5000), false, &temp()).expect_err("no direct I/O here");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let left = std::fs::read_dir(&ramfs.path).expect("dir").filter_map(Result::ok);
    assert!(left.into_iter().all(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".longhaul")));
}

#[test]
fn unaligned_requests_leave_direct_io_or_fail_where_it_is_required() {
    let dir = tempfile::tempdir().expect("tempdir");
    for kind in engines() {
        let (io, slab) = start(kind, 2);
        for direct in [DirectMode::Auto, DirectMode::Direct] {
            let target = FsTarget::open(dir.path(), direct).expect("target");
            let file = match target.create(&path("odd"), map(10_000), false, &temp()) {
                Ok(file) => file,
                Err(error) => {
                    eprintln!("SKIPPED: no direct I/O on the scratch directory: {error}");
                    return;
                }
            };
            let was_direct = file.mode() == IoMode::Direct;
            let (_, result) = write(&io, &file, 100, 1000, slab.claim().expect("slot"));
            match direct {
                DirectMode::Direct => assert_eq!(result.expect_err("refused").kind(), ErrorKind::Unsupported),
                _ => result.expect("buffered"),
            }
            assert_eq!(
                file.mode(),
                if direct == DirectMode::Auto || !was_direct { IoMode::Buffered } else { IoMode::Direct }
            );
        }
    }
}

#[test]
fn a_source_that_shrinks_is_changed_not_short() {
    let dir = tempfile::tempdir().expect("tempdir");
    for kind in engines() {
        for (direct, left) in [DirectMode::Auto, DirectMode::Buffered].into_iter().flat_map(|d| [(d, 0), (d, 5000)]) {
            let (io, slab) = start(kind, 1);
            std::fs::write(dir.path().join("f"), content(20_000)).expect("file");
            let source = source_of(dir.path(), direct);
            let (at, identity) = find(&source, &path("f"));
            let file = source.open(&at, &identity).expect("open");
            let shorter = std::fs::OpenOptions::new().write(true).open(dir.path().join("f")).expect("open");
            shorter.set_len(left).expect("shrink");
            let (slot, result) = read(&io, &file, 0, 20_000, slab.claim().expect("slot"));
            assert_eq!(result.expect_err("shrank").kind(), ErrorKind::Changed, "{kind:?} {direct:?} {left}");
            assert!(!file.unchanged().expect("identity"));
            drop(slot);
        }
    }
}

#[test]
fn requests_beyond_the_file_or_the_slot_give_the_slot_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    for kind in engines() {
        let (io, slab) = start(kind, 1);
        let file = target.create(&path("f"), map(10 * CHUNK as u64), false, &temp()).expect("create");
        for (offset, len) in [(0, CHUNK + 1), (10 * CHUNK as u64, 1), (u64::MAX, 2)] {
            let (slot, result) = write(&io, &file, offset, len, slab.claim().expect("slot"));
            assert_eq!(result.expect_err("out of bounds").kind(), ErrorKind::Bounds);
            drop(slot);
        }
        assert_eq!(slab.free(), 1);
    }
}

#[test]
fn zero_blocks_of_sparse_files_stay_holes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    let hole = 16 << 10;
    let mut bytes = vec![0; 10 * CHUNK + 100];
    for at in [3 * hole, 3 * hole + 1, 7 * hole - 1, 9 * CHUNK + 5] {
        bytes[at] = 1;
    }
    for kind in engines() {
        let (io, slab) = start(kind, 2);
        let name = format!("{kind:?}");
        put(&io, &slab, &target, &name, &bytes, true);
        assert!(std::fs::read(dir.path().join(&name)).expect("content") == bytes);
        let kept = std::fs::metadata(dir.path().join(&name)).expect("stat").blocks() * 512;
        assert!(kept <= 3 * hole as u64, "{kept} bytes allocated for three blocks");
    }
}

#[test]
fn a_chunk_of_a_sparse_file_that_is_written_again_leaves_nothing_of_the_first_try() {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    for kind in engines() {
        let (io, slab) = start(kind, 1);
        let file = target.create(&path(format!("{kind:?}")), map(CHUNK as u64), true, &temp()).expect("create");
        for fill in [0xff, 0] {
            let mut slot = slab.claim().expect("slot");
            slot.fill(fill);
            write(&io, &file, 0, CHUNK, slot).1.expect("write");
        }
        let staged = target.seal(file, &META, Preserve::default()).expect("seal");
        target.publish(&staged, Replace::Never).expect("publish");
        let bytes = std::fs::read(dir.path().join(format!("{kind:?}"))).expect("content");
        assert!(bytes == vec![0; CHUNK]);
    }
}

#[test]
fn blocks_are_reserved_ahead_but_never_for_the_whole_of_a_huge_file() {
    let Some((ext4, _image)) = Mounted::ext4(1 << 30) else { return };
    for kind in engines() {
        let (io, slab) = start(kind, 1);
        let target = FsTarget::open(&ext4.path, DirectMode::Auto).expect("target");
        let file = target.create(&path("huge"), map(1 << 40), false, &temp()).expect("more than there is room for");
        write(&io, &file, 0, CHUNK, slab.claim().expect("slot")).1.expect("write");
        let temp = std::fs::read_dir(&ext4.path).expect("dir").filter_map(Result::ok);
        let temp = temp.into_iter().find(|entry| entry.file_name().as_encoded_bytes().starts_with(b".longhaul"));
        let kept = temp.expect("temporary").metadata().expect("stat").blocks() * 512;
        assert!((CHUNK as u64..=(257 << 20)).contains(&kept), "{kept} bytes reserved");
    }
}

#[test]
fn a_full_disk_is_no_space_and_its_temporary_can_be_discarded() {
    let Some((ext4, _image)) = Mounted::ext4(16 << 20) else { return };
    for kind in engines() {
        let (io, slab) = start(kind, 1);
        let target = FsTarget::open(&ext4.path, DirectMode::Auto).expect("target");
        let file = target.create(&path("big"), map(64 << 20), false, &temp()).expect("create");
        let mut slot = slab.claim().expect("slot");
        let mut offset = 0;
        let error = loop {
            let (back, result) = write(&io, &file, offset, CHUNK, slot);
            slot = back.expect("the slot");
            offset += CHUNK as u64;
            if let Err(error) = result {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        file.discard();
        drop(file);
        let left = std::fs::read_dir(&ext4.path).expect("dir").filter_map(Result::ok);
        assert!(left.into_iter().all(|entry| entry.file_name() == "lost+found"));
    }
}

#[test]
fn dropping_the_engine_waits_for_every_request() {
    let dir = tempfile::tempdir().expect("tempdir");
    for kind in engines() {
        let (io, slab) = start(kind, 32);
        let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
        let file = target.create(&path("f"), map(32 * CHUNK as u64), false, &temp()).expect("create");
        let (tx, rx) = mpsc::channel();
        for n in 0..32 {
            let mut slot = slab.claim().expect("slot");
            slot.fill(n + 1);
            let tx = tx.clone();
            let done = move |slot: Option<Slot>, result: Result<(), DiskError>| {
                result.expect("write");
                tx.send(slot.map(|slot| slot.index())).expect("the test waits");
            };
            io.write(Arc::clone(&file), Place::whole(u64::from(n) * CHUNK as u64), CHUNK, slot, Box::new(done));
        }
        drop((io, tx));
        assert_eq!(rx.try_iter().count(), 32);
        assert_eq!(slab.free(), 32);
    }
}

#[test]
fn the_last_handle_may_be_dropped_inside_of_a_callback() {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    for kind in engines() {
        let (io, slab) = start(kind, 1);
        let file = target.create(&path("f"), map(CHUNK as u64), false, &temp()).expect("create");
        let (tx, rx) = mpsc::channel();
        let last = io.clone();
        let done = move |_, result: Result<(), DiskError>| {
            drop(last);
            tx.send(result.is_ok()).expect("the test waits");
        };
        io.write(Arc::clone(&file), Place::whole(0), CHUNK, slab.claim().expect("slot"), Box::new(done));
        drop(io);
        assert_eq!(rx.recv(), Ok(true));
    }
}

#[test]
fn a_panicking_callback_stops_nothing_else() {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    for kind in engines() {
        let slab = Slab::new(CHUNK, 1).expect("slab");
        let io = ChunkIo::start(kind, 1, &slab).expect("engine");
        let file = target.create(&path("f"), map(CHUNK as u64), false, &temp()).expect("create");
        let slot = slab.claim().expect("slot");
        io.write(Arc::clone(&file), Place::whole(0), 1, slot, Box::new(|_, _| panic!("as the test wants")));
        write(&io, &file, 0, CHUNK, slab.claim().expect("slot")).1.expect("write");
    }
}

#[test]
fn auto_takes_threads_where_rings_are_forbidden_and_uring_fails_there() {
    for errno in [rustix::io::Errno::PERM, rustix::io::Errno::NOSYS, rustix::io::Errno::MFILE] {
        let refuse = || Err(io::Error::from(errno));
        assert_eq!(choose(EngineKind::Auto, refuse).expect("auto"), EngineKind::Threads);
        assert!(matches!(choose(EngineKind::Uring, refuse), Err(DiskError::Engine { engine: "uring", .. })));
        assert_eq!(choose(EngineKind::Threads, refuse).expect("threads"), EngineKind::Threads);
    }
    assert_eq!(choose(EngineKind::Auto, || Ok(())).expect("auto"), EngineKind::Uring);
}

#[test]
fn the_void_engine_touches_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (io, slab) = start(EngineKind::Void, 1);
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    let file = target.create(&path("f"), map(CHUNK as u64), false, &temp()).expect("create");
    let mut slot = slab.claim().expect("slot");
    slot.fill(9);
    write(&io, &file, 0, CHUNK, slot).1.expect("nothing to fail");
    let staged = target.seal(file, &META, Preserve::default()).expect("seal");
    target.publish(&staged, Replace::Never).expect("publish");
    assert!(std::fs::read(dir.path().join("f")).expect("content") == vec![0; CHUNK]);
}

#[test]
fn of_a_timed_file_nothing_is_read_when_its_time_is_over() {
    let (io, slab) = start(EngineKind::Void, 1);
    for (seconds, fine) in [(0, false), (3600, true)] {
        let source = TimedVoid::new(CHUNK as u64, std::time::Duration::from_secs(seconds));
        let (at, identity) = find(&source, &path("void-0000000000"));
        let file = source.open(&at, &identity).expect("open");
        let (_, result) = read(&io, &file, 0, CHUNK, slab.claim().expect("slot"));
        assert_eq!(result.map_err(|error| error.kind()), if fine { Ok(()) } else { Err(ErrorKind::Changed) });
    }
}

#[test]
fn what_io_costs_is_counted_by_either_engine() {
    for kind in engines() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (io, slab) = start(kind, 2);
        let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
        assert_eq!(io.report().cpu_nanos, 0, "{kind:?}");
        put(&io, &slab, &target, "f", &[7; 8 * CHUNK], false);
        let spent = io.report().cpu_nanos;
        assert!((1..60_000_000_000).contains(&spent), "{kind:?}: {spent}");
    }
}
