//! The ground of a measurement at a disk: its buffers, its engine, and the files that it makes.
//!
//! In: a directory and [`LabDevices`]. Out: open directories, buffers and files full of noise, to
//! the measurements of this folder. Files have no name, so that nothing is left of them whatever
//! ends the process. It knows no figures.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_disk::{ChunkIo, DirectMode, EngineKind, ErrorKind, ScratchDir, ScratchFile};
use longhaul_sys::Slab;

use super::flow::{self, LabFace, LabRequest, LabStream};
use crate::api::Stop;
use crate::budget::fill_with_noise;

/// How a measurement reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabDevices {
    /// Direct I/O, or the page cache.
    pub direct: DirectMode,
    /// The engine.
    pub engine: EngineKind,
}

/// Opens a directory on whose file system `needed` bytes must be free, with some to spare.
pub(super) fn open(dir: &Path, devices: LabDevices, needed: u64) -> Result<ScratchDir, Fault> {
    let scratch = ScratchDir::open(dir, devices.direct).map_err(|error| {
        match error.kind() {
            // The user named it: a wrong command, and nothing that stands in the way.
            ErrorKind::NotADirectory => {
                let message = format!("'{}' is not a directory", dir.display());
                Fault::new(FaultCode::Usage, Blame::Local, message).about(dir.display())
            }
            _ => error.fault(),
        }
    })?;
    let (free, needed) = (ByteCount(scratch.fullness()?.available), ByteCount(needed.saturating_add(SPARE)));
    if free < needed {
        let message = format!("'{}' has {free} free, and {needed} are needed", dir.display());
        return Err(Fault::new(FaultCode::NoSpace, Blame::Local, message).about(dir.display()));
    }
    Ok(scratch)
}

/// Buffers with this many slots, each large enough for `request_bytes`, full of noise.
pub(super) fn buffers(request_bytes: u64, slots: usize) -> Result<Arc<Slab>, Fault> {
    let slot_bytes = request_bytes.next_multiple_of(SLOT_BYTES_UNIT) as usize;
    let slab = Slab::new(slot_bytes, slots).map_err(|error| {
        let message = format!("cannot get {slots} buffers of {}: {error}", ByteCount(slot_bytes as u64));
        Fault::new(FaultCode::Exhausted, Blame::Local, message)
    })?;
    fill_with_noise(&slab);
    Ok(slab)
}

/// Makes a file of `len` bytes of noise, durable, and not in the page cache.
pub(super) fn filled(dir: &ScratchDir, len: u64, engine: EngineKind, stop: &Stop) -> Result<ScratchFile, Fault> {
    let file = dir.create(len)?;
    let slab = buffers(PREPARE_BYTES, PREPARE_DEPTH)?;
    let io = ChunkIo::start(engine, PREPARE_DEPTH, &slab)?;
    let next = sequence(&file, len, PREPARE_BYTES);
    flow::run(&io, &slab, vec![LabStream { next, in_flight: PREPARE_DEPTH }], stop).checked()?;
    file.sync()?;
    file.forget_pages();
    Ok(file)
}

/// Writes of `len` bytes from the start of a file to its end, the last one shorter.
pub(super) fn sequence(file: &ScratchFile, len: u64, request_bytes: u64) -> flow::LabSource {
    let (target, mut at) = (Arc::clone(file.target()), 0);
    Box::new(move || {
        let bytes = request_bytes.min(len.checked_sub(at)?);
        let offset = at;
        at += bytes;
        let file = LabFace::Write(Arc::clone(&target));
        (bytes > 0).then_some(LabRequest { file, offset, len: bytes as usize })
    })
}

/// Numbers that look random and are the same in each run (xorshift64*).
#[derive(Clone, Debug)]
pub(super) struct LabRandom(u64);

impl LabRandom {
    /// The series of a worker.
    pub(super) fn new(worker: usize) -> LabRandom {
        LabRandom(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(worker as u64 + 1) | 1)
    }

    /// A number below `end`; 0 if that is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(number) * u128::from(end)) >> 64) as u64
    }
}

/// Bytes that must be free besides, for other programs on the disk.
const SPARE: u64 = 16 << 20;
/// Slots are multiples of a page.
const SLOT_BYTES_UNIT: u64 = 4096;
/// The requests with which files are made: chunks of the default size, as deep as a transfer.
pub(super) const PREPARE_BYTES: u64 = 4 << 20;
/// The requests in flight while files are made.
pub(super) const PREPARE_DEPTH: usize = 8;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests put files in the way")]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_stay_below_their_end_and_reach_all_of_it() {
        let mut random = LabRandom::new(3);
        let mut seen = [0; 8];
        (0..1000).for_each(|_| seen[random.below(8) as usize] += 1);
        assert!(seen.iter().all(|count| (60..200).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_disk_without_room_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let code = |path: &Path, needed| open(path, LabDevices::default(), needed).map(|_| ()).unwrap_err().code;
        assert_eq!(code(dir.path(), 1 << 60), FaultCode::NoSpace);
        assert_eq!(code(&dir.path().join("no"), 0), FaultCode::NotFound);
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(code(&dir.path().join("file"), 0), FaultCode::Usage);
    }
}
