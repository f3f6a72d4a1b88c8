//! Tests of how many slots a ring registers: those in use, and no more than may be locked.

use std::os::unix::fs::FileExt;

use longhaul_core::Preserve;

use super::*;
use crate::testing::{byte_at, map, temp};

#[test]
fn slots_are_registered_only_as_far_as_they_are_used() {
    if uring::probe().is_err() {
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("f"), content(CHUNK as u64)).expect("file");
    let source = source_of(dir.path(), DirectMode::Auto);
    let (at, identity) = find(&source, &path("f"));
    let file = source.open(&at, &identity).expect("open");
    let (io, slab) = start(EngineKind::Uring, 64);
    for n in 0..40 {
        let (slot, result) = read(&io, &file, 0, CHUNK, slab.claim().expect("slot"));
        result.expect("read");
        assert_eq!(slot[CHUNK - 1], byte_at(CHUNK as u64 - 1));
        if n == 0 {
            assert_eq!(io.report().slots_registered, 0);
        }
    }
    assert_eq!(io.report().slots_registered, 8);
    let held: Vec<Slot> = (0..20).filter_map(|_| slab.claim()).collect();
    read(&io, &file, 0, CHUNK, slab.claim().expect("slot")).1.expect("read");
    assert_eq!(io.report().slots_registered, 32);
    drop(held);
}

#[test]
fn little_lockable_memory_registers_what_fits_and_serves_the_rest() {
    if uring::probe().is_err() {
        return;
    }
    // Privileges belong to the thread, and the ring's thread inherits them: give the one that
    // matters up in a new one.
    let limited = thread::spawn(|| {
        give_up_locking();
        let dir = tempfile::tempdir().expect("tempdir");
        let slab = Slab::new(4 << 20, 16).expect("slab");
        let io = ChunkIo::start(EngineKind::Uring, 4, &slab).expect("engine");
        let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
        let file = target.create(&path("f"), map(48 << 20), false, &temp()).expect("create");
        let mut slots: Vec<Slot> = (0..12).filter_map(|_| slab.claim()).collect();
        for round in 0..3 {
            for n in 0..12 {
                let mut slot = slots.remove(0);
                slot.fill(n + round);
                let (slot, result) = write(&io, &file, u64::from(n) << 22, 4 << 20, slot);
                result.expect("write");
                slots.extend(slot);
            }
        }
        let report = io.report();
        target.sync_data(&file).expect("sync");
        let staged = target.seal(file, &META, Preserve::default()).expect("seal");
        target.publish(&staged, Replace::Never).expect("publish");
        let written = std::fs::File::open(dir.path().join("f")).expect("open");
        let mut byte = [0];
        for n in 0..12 {
            written.read_exact_at(&mut byte, u64::from(n) << 22).expect("read");
            assert_eq!(byte[0], n + 2);
        }
        report.slots_registered
    });
    let registered = limited.join().expect("limited thread");
    match longhaul_sys::memlock_limit() {
        Some(limit) => assert!((registered as u64) << 22 <= limit, "{registered} slots within {limit} bytes"),
        None => eprintln!("SKIPPED: locked memory is not limited here"),
    }
}

/// Drops the privilege to lock any amount of memory, in this thread.
fn give_up_locking() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).expect("capabilities");
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).expect("fewer capabilities");
}
