//! Fills a file system up to a share, and tells the rate along the way.
//!
//! In: a [`FillRun`]. Out: a [`FillSample`] now and then, and a [`FillReport`]. It never takes what
//! is to stay free: each file is as long as the room that there is for it, and writing ends as soon
//! as others have taken more. It knows no other measurement.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::{ByteCount, Fault};
use longhaul_disk::{ChunkIo, Fullness, IoMode, ScratchDir, ScratchFile};
use longhaul_sys::Slab;

use super::flow::{self, LabStream, Tally};
use super::ground::{self, LabDevices, PREPARE_BYTES, PREPARE_DEPTH};
use super::latency::{LatencyFigures, LatencyHistogram};
use crate::api::Stop;

/// How far a file system is filled.
#[derive(Clone, Debug)]
pub struct FillRun {
    /// A directory of the file system.
    pub dir: PathBuf,
    /// The used share to reach, 0 to 1, as `df` counts it.
    pub to: f64,
    /// Bytes that stay free in any case.
    pub reserve: ByteCount,
    /// Engine and direct I/O.
    pub devices: LabDevices,
}

/// The rate on one step of the way.
#[derive(Clone, Copy, Debug)]
pub struct FillSample {
    /// Seconds since the first write.
    pub seconds: f64,
    /// The used share at the end of the step, 0 to 1.
    pub share: f64,
    /// Bytes that are free still.
    pub available: u64,
    /// Bytes that were written in this step.
    pub bytes: u64,
    /// Bytes per second of this step, its sync included.
    pub bytes_per_s: f64,
    /// The times of the writes of this step.
    pub latency: LatencyFigures,
}

/// The reason why a fill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillEnd {
    /// The share was reached.
    Share,
    /// More would have taken what is to stay free.
    Reserve,
}

/// The results of a fill.
#[derive(Clone, Copy, Debug)]
pub struct FillReport {
    /// Why it ended.
    pub end: FillEnd,
    /// Bytes that were written.
    pub bytes: u64,
    /// Seconds from the first write to the last sync.
    pub seconds: f64,
    /// How the files were really written.
    pub mode: IoMode,
    /// The times of all writes.
    pub latency: LatencyFigures,
    /// CPU seconds of the process in all steps together.
    pub cpu_seconds: f64,
}

/// Fills until the share or the reserve is reached. All files are gone when it returns.
///
/// # Errors
/// A [`Fault`] for a directory that cannot be used, of a write, or of being stopped.
pub fn bench_fill(
    run: &FillRun,
    stop: &Stop,
    tell: &mut dyn FnMut(&FillSample) -> ControlFlow<()>,
) -> Result<FillReport, Fault> {
    let dir = ground::open(&run.dir, run.devices, 0)?;
    let slab = ground::buffers(PREPARE_BYTES, PREPARE_DEPTH)?;
    let io = ChunkIo::start(run.devices.engine, PREPARE_DEPTH, &slab)?;
    let dir = Arc::new(dir);
    let mut filling = Filling { run, dir, io, slab, files: Vec::new(), sum: LatencyHistogram::new(), cpu_seconds: 0.0 };
    let (began, mut bytes) = (Instant::now(), 0);
    let step = step_bytes(wanted(run, filling.dir.fullness()?).0);
    let end = loop {
        let (room, end) = wanted(run, filling.dir.fullness()?);
        let len = room.min(step) / FILL_UNIT * FILL_UNIT;
        if len == 0 {
            break end;
        }
        let (tally, seconds) = filling.step(len, stop)?;
        bytes += tally.bytes;
        let fullness = filling.dir.fullness()?;
        let sample = FillSample {
            seconds: began.elapsed().as_secs_f64(),
            share: fullness.share(),
            available: fullness.available,
            bytes: tally.bytes,
            bytes_per_s: tally.bytes as f64 / seconds.max(1e-9),
            latency: tally.writes.figures(),
        };
        if tell(&sample).is_break() {
            break end;
        }
    };
    Ok(FillReport {
        end,
        bytes,
        seconds: began.elapsed().as_secs_f64(),
        mode: filling.files.first().map_or(IoMode::Buffered, |file| file.target().mode()),
        latency: filling.sum.figures(),
        cpu_seconds: filling.cpu_seconds,
    })
}

struct Filling<'r> {
    run: &'r FillRun,
    dir: Arc<ScratchDir>,
    io: ChunkIo,
    slab: Arc<Slab>,
    /// Every file that was written. Their blocks are freed when they are closed.
    files: Vec<ScratchFile>,
    sum: LatencyHistogram,
    cpu_seconds: f64,
}

impl Filling<'_> {
    /// Writes a file of `len` bytes and syncs it. Gives the seconds of both together.
    fn step(&mut self, len: u64, stop: &Stop) -> Result<(Tally, f64), Fault> {
        let file = self.dir.create(len)?;
        let mut next = ground::sequence(&file, len, PREPARE_BYTES);
        let (reserve, dir) = (self.run.reserve.get(), Arc::clone(&self.dir));
        let next = Box::new(move || {
            // What others take meanwhile is not ours to give.
            let is_free = dir.fullness().is_ok_and(|fullness| fullness.available >= reserve);
            if is_free { next() } else { None }
        });
        let began = Instant::now();
        let stream = LabStream { next, in_flight: PREPARE_DEPTH };
        let tally = flow::run(&self.io, &self.slab, vec![stream], stop).checked()?;
        file.sync()?;
        self.files.push(file);
        self.sum.merge(&tally.writes);
        self.cpu_seconds += tally.cpu_seconds;
        Ok((tally, began.elapsed().as_secs_f64()))
    }
}

/// The bytes that may be written still, and what ends the fill when there are none.
fn wanted(run: &FillRun, fullness: Fullness) -> (u64, FillEnd) {
    let to_share = (fullness.size() as f64 * run.to.clamp(0.0, 1.0)) as u64;
    let to_share = to_share.saturating_sub(fullness.used);
    // A file system takes blocks of its own for each file: its extents, its journal.
    let kept = run.reserve.get().saturating_add(OWN_BLOCKS).saturating_add(fullness.available / OWN_BLOCKS_PART);
    let to_reserve = fullness.available.saturating_sub(kept);
    if to_share <= to_reserve { (to_share, FillEnd::Share) } else { (to_reserve, FillEnd::Reserve) }
}

/// The length of a file: a fiftieth of the way, in whole units.
fn step_bytes(way: u64) -> u64 {
    (way / STEPS_OF_A_FILL).next_multiple_of(FILL_UNIT).max(FILL_UNIT)
}

/// Samples of a fill, and its files.
const STEPS_OF_A_FILL: u64 = 50;
/// Files are multiples of this.
const FILL_UNIT: u64 = 1 << 20;
/// Bytes that are kept for the file system's own blocks, beside the reserve, and a part of what is
/// free for the same. ext4 and XFS took less than half of that in tests with files of 1 MiB.
const OWN_BLOCKS: u64 = 1 << 20;
const OWN_BLOCKS_PART: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn left(to: f64, reserve: u64, (used, available): (u64, u64)) -> (u64, FillEnd) {
        let dir = PathBuf::from(".");
        let run = FillRun { dir, to, reserve: ByteCount(reserve), devices: LabDevices::default() };
        wanted(&run, Fullness { used, available })
    }

    #[test]
    fn the_reserve_ends_a_fill_before_its_share() {
        assert_eq!(left(0.9, GIB, (0, 100 * GIB)), (90 * GIB, FillEnd::Share));
        let (bytes, end) = left(0.9, 20 * GIB, (0, 100 * GIB));
        assert_eq!(end, FillEnd::Reserve);
        assert!(bytes < 80 * GIB && bytes > 79 * GIB, "{bytes}");
    }

    #[test]
    fn a_disk_that_is_full_enough_is_left_alone() {
        assert_eq!(left(0.5, 0, (60 * GIB, 40 * GIB)), (0, FillEnd::Share));
        assert_eq!(left(1.0, 41 * GIB, (60 * GIB, 40 * GIB)), (0, FillEnd::Reserve));
    }

    #[test]
    fn a_fill_has_about_fifty_steps_of_whole_units() {
        assert_eq!(step_bytes(50 * GIB), GIB);
        assert_eq!(step_bytes(3), FILL_UNIT);
    }
}
