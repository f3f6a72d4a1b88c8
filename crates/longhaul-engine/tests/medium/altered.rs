//! A source that changes while it is sent, with its length and time put back: it fails as changed,
//! and nothing is committed.

use std::sync::Arc;

use longhaul_core::FaultCode;
use longhaul_engine::FileStatus;

use super::faults::{Alteration, Faults, Nature};
use super::rng::Rng;
use super::source::{Source, Version};
use super::world::{World, plain_settings, scratch};

const CHUNK: u64 = 4096;
/// Many times the number that the buffers of both halves hold.
const CHUNKS: u64 = 300;

/// Changes a byte of a large file when a few of its chunks are written.
fn is_noticed(offset: u64) {
    let scratch = scratch();
    let mut source = Source::empty(&scratch.path().join("source"));
    let mut rng = Rng::new(0, 4);
    source.put("large", rng.bytes((CHUNKS * CHUNK) as usize), &mut rng);
    let file = source.dir.join("large");
    let mut world = World::new(scratch, source, Nature::default(), plain_settings(CHUNK), rng);
    let alteration = Some(Alteration { at_write: 5, file: file.clone(), offset });
    let ran = world.faulty(Faults { alteration, ..Faults::default() }).expect("every promise is kept");
    let is_changed = |status: &FileStatus| matches!(status, FileStatus::Failed(f) if f.code == FaultCode::Changed);
    assert!(matches!(&ran.files[..], [(_, status)] if is_changed(status)), "{}", ran.told());
    let report = ran.report.expect("the destination was opened");
    assert_eq!((report.files_committed, report.files_changed), (0, 1));
    assert!(!world.medium.scratch.join("large").exists());
    // The next run sends the file as it is now.
    let bytes = std::fs::read(&file).expect("read");
    let source = Arc::get_mut(&mut world.source).expect("nobody else has it");
    let mtime = source.current(b"large").mtime;
    source.files.get_mut(&b"large"[..]).expect("offered").push(Version { bytes, mtime });
    world.has_changed = true;
    world.converge().expect("every promise is kept");
}

#[test]
fn a_change_of_a_chunk_that_was_sent_fails_the_file() {
    is_noticed(17);
}

#[test]
fn a_change_of_a_chunk_that_was_not_yet_sent_fails_the_file() {
    is_noticed((CHUNKS - 1) * CHUNK + 17);
}
