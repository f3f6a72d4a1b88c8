//! Sequential reads and writes through the disk engine: chunk sizes, depths and numbers of targets.
//!
//! In: a [`SweepRun`], then one [`SweepCell`] after the other. Out: a [`SweepReport`] each. A cell
//! that writes makes a new file, as a transfer does, and its last sync is in its time. It knows no
//! order of cells.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{ByteCount, Fault};
use longhaul_disk::{ChunkIo, IoMode, ScratchDir, ScratchFile};
use longhaul_sys::Slab;

use super::flow::{self, Access, LabFace, LabRequest, LabSource, LabStream};
use super::ground::{self, LabDevices};
use super::latency::LatencyFigures;
use crate::api::Stop;
use crate::cpu;

/// A sweep over directories.
#[derive(Clone, Debug)]
pub struct SweepRun {
    /// The directories: a cell with `n` targets uses the first `n`.
    pub dirs: Vec<PathBuf>,
    /// The bytes that a cell moves on each target at most, which is the length of the files.
    pub bytes: ByteCount,
    /// The time that a cell takes at most, before its last sync.
    pub time: Duration,
    /// The buffers. A cell that needs more does not fit.
    pub memory: ByteCount,
    /// Engine and direct I/O.
    pub devices: LabDevices,
}

/// One setting of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepCell {
    /// Whether it reads or writes.
    pub access: Access,
    /// The number of targets.
    pub targets: usize,
    /// Bytes of a request.
    pub chunk_bytes: u64,
    /// Requests in flight on each target.
    pub depth: usize,
}

/// The results of a cell.
#[derive(Clone, Copy, Debug)]
pub struct SweepReport {
    /// The cell.
    pub cell: SweepCell,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Seconds from the first request to the end of the last, and of the sync after writes.
    pub seconds: f64,
    /// The times of the requests.
    pub latency: LatencyFigures,
    /// CPU seconds of the process meanwhile, the kernel's work for it included.
    pub cpu_seconds: f64,
}

impl SweepReport {
    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// A sweep whose directories are open and whose files to read are made.
pub struct Sweep {
    run: SweepRun,
    targets: Vec<SweepTarget>,
    /// The buffers of the chunk size that was measured last.
    buffers: Option<(u64, Arc<Slab>)>,
}

struct SweepTarget {
    dir: ScratchDir,
    source: ScratchFile,
}

impl Sweep {
    /// Opens the directories and makes a file to read in each.
    ///
    /// # Errors
    /// A [`Fault`] for a directory that does not exist, may not be written to, or has no room.
    pub fn prepare(run: SweepRun, stop: &Stop) -> Result<Sweep, Fault> {
        let bytes = run.bytes.get();
        // A file to read, and one that is written.
        let needed = bytes.saturating_mul(2);
        let opened = run.dirs.iter().map(|dir| ground::open(dir, run.devices, needed));
        let dirs = opened.collect::<Result<Vec<_>, _>>()?;
        for dir in &dirs {
            let sharing = dirs.iter().filter(|other| other.dev() == dir.dev()).count() as u64;
            ground::open(dir.path(), run.devices, needed.saturating_mul(sharing))?;
        }
        let filled = dirs.into_iter().map(|dir| {
            let source = ground::filled(&dir, bytes, run.devices.engine, stop)?;
            Ok(SweepTarget { dir, source })
        });
        let targets = filled.collect::<Result<Vec<_>, Fault>>()?;
        Ok(Sweep { run, targets, buffers: None })
    }

    /// How the files are really read.
    pub fn mode(&self) -> IoMode {
        let direct = self.targets.iter().all(|target| target.source.source().mode() == IoMode::Direct);
        if direct { IoMode::Direct } else { IoMode::Buffered }
    }

    /// Two directories that lie on one file system. `None` if each has its own.
    pub fn shared_file_system(&self) -> Option<(PathBuf, PathBuf)> {
        let dirs: Vec<_> = self.targets.iter().map(|target| &target.dir).collect();
        let same = |(at, dir): (usize, &&ScratchDir)| {
            let other = dirs[..at].iter().find(|other| other.dev() == dir.dev())?;
            Some((other.path().to_owned(), dir.path().to_owned()))
        };
        dirs.iter().enumerate().find_map(same)
    }

    /// Whether the buffers of a cell fit the memory.
    pub fn fits(&self, cell: SweepCell) -> bool {
        let slots = (cell.depth * cell.targets) as u64;
        cell.chunk_bytes.saturating_mul(slots) <= self.run.memory.get()
    }

    /// Measures a cell.
    ///
    /// # Errors
    /// The fault of a request, or of being stopped.
    pub fn measure(&mut self, cell: SweepCell, stop: &Stop) -> Result<SweepReport, Fault> {
        flow::stopped(stop)?;
        let slab = self.buffers(cell.chunk_bytes)?;
        let io = ChunkIo::start(self.run.devices.engine, cell.depth, &slab)?;
        let targets = &self.targets[..cell.targets.min(self.targets.len())];
        match cell.access {
            Access::Read => {
                targets.iter().for_each(|target| target.source.forget_pages());
                let until = Instant::now() + self.run.time;
                let streams = targets.iter().map(|target| self.stream(&target.source, cell, until));
                let tally = flow::run(&io, &slab, streams.collect(), stop).checked()?;
                let latency = tally.reads.figures();
                let (bytes, seconds, cpu_seconds) = (tally.bytes, tally.seconds, tally.cpu_seconds);
                Ok(SweepReport { cell, bytes, seconds, latency, cpu_seconds })
            }
            Access::Write => {
                let made = targets.iter().map(|target| target.dir.create(self.run.bytes.get()));
                let files = made.collect::<Result<Vec<_>, _>>()?;
                let until = Instant::now() + self.run.time;
                let streams = files.iter().map(|file| self.stream(file, cell, until));
                let tally = flow::run(&io, &slab, streams.collect(), stop).checked()?;
                let (began, cpu_before) = (Instant::now(), cpu::process_micros());
                files.iter().try_for_each(ScratchFile::sync)?;
                Ok(SweepReport {
                    cell,
                    bytes: tally.bytes,
                    seconds: tally.seconds + began.elapsed().as_secs_f64(),
                    latency: tally.writes.figures(),
                    cpu_seconds: tally.cpu_seconds + cpu::process_micros().saturating_sub(cpu_before) as f64 / 1e6,
                })
            }
        }
    }

    /// The buffers of a chunk size, as many as the memory holds and the deepest cell may need.
    fn buffers(&mut self, chunk_bytes: u64) -> Result<Arc<Slab>, Fault> {
        if let Some((bytes, slab)) = &self.buffers
            && *bytes == chunk_bytes
        {
            return Ok(Arc::clone(slab));
        }
        // The old ones go first: both together may not fit.
        self.buffers = None;
        let most = SWEEP_DEPTH_MAX * self.targets.len().max(1);
        let slots = (self.run.memory.get() / chunk_bytes.max(1)).clamp(1, most as u64) as usize;
        let slab = ground::buffers(chunk_bytes, slots)?;
        self.buffers = Some((chunk_bytes, Arc::clone(&slab)));
        Ok(slab)
    }

    fn stream(&self, file: &ScratchFile, cell: SweepCell, until: Instant) -> LabStream {
        let mut next: LabSource = match cell.access {
            Access::Write => ground::sequence(file, self.run.bytes.get(), cell.chunk_bytes),
            Access::Read => reads(file, cell.chunk_bytes),
        };
        let next = Box::new(move || if Instant::now() < until { next() } else { None });
        LabStream { next, in_flight: cell.depth }
    }
}

/// Reads of a file from its start to its end.
fn reads(file: &ScratchFile, request_bytes: u64) -> LabSource {
    let (source, mut at) = (Arc::clone(file.source()), 0);
    Box::new(move || {
        let bytes = request_bytes.min(source.len() - at);
        let offset = at;
        at += bytes;
        let file = LabFace::Read(Arc::clone(&source));
        (bytes > 0).then_some(LabRequest { file, offset, len: bytes as usize })
    })
}

/// The deepest cell of a sweep, on each target.
pub const SWEEP_DEPTH_MAX: usize = 64;
