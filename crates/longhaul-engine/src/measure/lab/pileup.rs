//! Many threads that read at random from many files: a rate for each number of threads.
//!
//! In: a [`PileupRun`], then one number of threads after the other. Out: a [`PileupReport`] each.
//! The threads are those of the product's portable engine, one request each. It knows no order of
//! numbers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{ByteCount, Fault};
use longhaul_disk::{ChunkIo, EngineKind, IoMode, ScratchFile, SourceFile};

use super::flow::{self, LabFace, LabRequest, LabSource, LabStream};
use super::ground::{self, LabDevices, LabRandom};
use super::latency::LatencyFigures;
use crate::api::Stop;

/// Files to be read at random.
#[derive(Clone, Debug)]
pub struct PileupRun {
    /// The directory in which files are made.
    pub dir: PathBuf,
    /// The number of files.
    pub files: usize,
    /// The length of each file.
    pub bytes: ByteCount,
    /// Bytes of a request, at most the length of a file.
    pub request_bytes: u64,
    /// The time that a number of threads takes.
    pub time: Duration,
    /// Engine of the files' making, and direct I/O.
    pub devices: LabDevices,
}

/// The results of a number of threads.
#[derive(Clone, Copy, Debug)]
pub struct PileupReport {
    /// Threads that read.
    pub threads: usize,
    /// Requests that ended.
    pub requests: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Seconds from the first request to the end of the last.
    pub seconds: f64,
    /// The times of the requests.
    pub latency: LatencyFigures,
    /// CPU seconds of the process meanwhile.
    pub cpu_seconds: f64,
}

impl PileupReport {
    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// Files that are made.
pub struct Pileup {
    run: PileupRun,
    files: Vec<ScratchFile>,
}

impl Pileup {
    /// Makes the files.
    ///
    /// # Errors
    /// A [`Fault`] for a directory that does not exist, may not be written to, or has no room.
    pub fn prepare(run: PileupRun, stop: &Stop) -> Result<Pileup, Fault> {
        let bytes = run.bytes.get();
        let dir = ground::open(&run.dir, run.devices, bytes.saturating_mul(run.files as u64))?;
        let made = (0..run.files.max(1)).map(|_| ground::filled(&dir, bytes, run.devices.engine, stop));
        let files = made.collect::<Result<Vec<_>, _>>()?;
        Ok(Pileup { run, files })
    }

    /// How the files are really read.
    pub fn mode(&self) -> IoMode {
        self.files.first().map_or(IoMode::Buffered, |file| file.source().mode())
    }

    /// Measures a number of threads.
    ///
    /// # Errors
    /// The fault of a request, or of being stopped.
    pub fn measure(&self, threads: usize, stop: &Stop) -> Result<PileupReport, Fault> {
        flow::stopped(stop)?;
        self.files.iter().for_each(ScratchFile::forget_pages);
        let slab = ground::buffers(self.run.request_bytes, threads)?;
        let io = ChunkIo::start(EngineKind::Threads, threads, &slab)?;
        let stream = LabStream { next: self.source(), in_flight: threads };
        let tally = flow::run(&io, &slab, vec![stream], stop).checked()?;
        Ok(PileupReport {
            threads,
            requests: tally.requests(),
            bytes: tally.bytes,
            seconds: tally.seconds,
            latency: tally.both().figures(),
            cpu_seconds: tally.cpu_seconds,
        })
    }

    fn source(&self) -> LabSource {
        let mut random = LabRandom::new(0);
        let sources: Vec<Arc<SourceFile>> = self.files.iter().map(|file| Arc::clone(file.source())).collect();
        let (len, until) = (self.run.request_bytes, Instant::now() + self.run.time);
        let places = self.run.bytes.get() / len.max(1);
        Box::new(move || {
            let file = sources.get(random.below(sources.len() as u64) as usize)?;
            let file = LabFace::Read(Arc::clone(file));
            let offset = random.below(places) * len;
            (Instant::now() < until).then_some(LabRequest { file, offset, len: len as usize })
        })
    }
}
