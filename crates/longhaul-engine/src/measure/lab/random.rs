//! Small requests at random offsets of one file: pinned workers, each with requests of its own in
//! flight.
//!
//! In: a [`RandomRun`], then one [`RandomCase`] after the other. Out: a [`RandomReport`] each. A
//! file that an operator names is only read; a file of its own is read and written. It knows no
//! order of cases.

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_disk::{ChunkIo, EngineKind, IoMode, ScratchFile, SourceFile, open_for_scan};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::flow::{self, LabFace, LabRequest, LabSource, LabStream, Tally};
use super::ground::{self, LabDevices, LabRandom};
use super::latency::LatencyFigures;
use crate::api::Stop;
use crate::cpu;

/// The place of the random requests.
#[derive(Clone, Debug)]
pub enum RandomPlace {
    /// A directory, in which a file of this many bytes is made.
    Directory(PathBuf, ByteCount),
    /// A file or device, which is read and never written.
    File(PathBuf),
}

/// Random requests at one place.
#[derive(Clone, Debug)]
pub struct RandomRun {
    /// The place.
    pub place: RandomPlace,
    /// Bytes of a request. `None`: the fewest that the place takes with direct I/O, at least 512.
    pub request_bytes: Option<u64>,
    /// The share of reads in percent, 0 to 100; the others write.
    pub reads_percent: u64,
    /// The time that a case takes.
    pub time: Duration,
    /// Engine and direct I/O.
    pub devices: LabDevices,
}

/// One setting of random requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomCase {
    /// Workers, each on a core of its own as far as there are cores.
    pub workers: usize,
    /// Requests that each worker keeps in flight.
    pub outstanding: usize,
}

/// The results of a case.
#[derive(Clone, Copy, Debug)]
pub struct RandomReport {
    /// The case.
    pub case: RandomCase,
    /// Reads that ended.
    pub reads: u64,
    /// Writes that ended.
    pub writes: u64,
    /// Seconds from a worker's first request to the end of its last; of the slowest worker.
    pub seconds: f64,
    /// The times of reads.
    pub read_latency: LatencyFigures,
    /// The times of writes.
    pub write_latency: LatencyFigures,
    /// CPU seconds of the process meanwhile.
    pub cpu_seconds: f64,
}

impl RandomReport {
    /// Requests per second.
    pub fn requests_per_s(&self) -> f64 {
        (self.reads + self.writes) as f64 / self.seconds.max(1e-9)
    }
}

/// A place that is ready for random requests.
pub struct RandomGround {
    source: Arc<SourceFile>,
    /// The file with its other face. `None` for a place that is only read.
    own: Option<ScratchFile>,
    request_bytes: u64,
    run: RandomRun,
}

impl RandomGround {
    /// Opens the place, or makes its file.
    ///
    /// # Errors
    /// A [`Fault`] for a place that does not exist, cannot be used so, or has no room.
    pub fn prepare(run: RandomRun, stop: &Stop) -> Result<RandomGround, Fault> {
        let (source, own) = match &run.place {
            RandomPlace::Directory(dir, bytes) => {
                let dir = ground::open(dir, run.devices, bytes.get())?;
                let file = ground::filled(&dir, bytes.get(), run.devices.engine, stop)?;
                (Arc::clone(file.source()), Some(file))
            }
            RandomPlace::File(_) if run.reads_percent < 100 => {
                let message = "a file or device that is named is only read: random writes would destroy it";
                return Err(Fault::new(FaultCode::Usage, Blame::Local, message));
            }
            RandomPlace::File(path) => (Arc::new(open_for_scan(path, run.devices.direct)?), None),
        };
        let least = (source.align() as u64).max(REQUEST_BYTES_LEAST);
        let request_bytes = run.request_bytes.unwrap_or(least);
        let refused = |message: String| Err(Fault::new(FaultCode::Unsupported, Blame::Local, message));
        if source.mode() == IoMode::Direct && !request_bytes.is_multiple_of(source.align() as u64) {
            let message = format!("direct requests must be multiples of {least} bytes here, and not {request_bytes}");
            return refused(message);
        }
        if source.len() < request_bytes {
            return refused(format!("there are {} bytes, fewer than one request of {request_bytes}", source.len()));
        }
        Ok(RandomGround { source, own, request_bytes, run })
    }

    /// How the file is really read.
    pub fn mode(&self) -> IoMode {
        self.source.mode()
    }

    /// Bytes of a request.
    pub fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// Measures a case.
    ///
    /// # Errors
    /// The fault of a request, or of being stopped.
    pub fn measure(&self, case: RandomCase, stop: &Stop) -> Result<RandomReport, Fault> {
        flow::stopped(stop)?;
        if let Some(own) = &self.own {
            own.forget_pages();
        }
        let cores = cores();
        let start = Barrier::new(case.workers + 1);
        let (tally, cpu_seconds) = thread::scope(|scope| {
            let workers: Vec<_> = (0..case.workers)
                .map(|worker| {
                    let core = cores.get(worker % cores.len().max(1)).copied();
                    let (start, source) = (&start, self.source(worker));
                    let work = Worker { core, engine: self.run.devices.engine, case, source };
                    scope.spawn(move || work.run(self.request_bytes, start, stop))
                })
                .collect();
            start.wait();
            let cpu_before = cpu::process_micros();
            let mut sum: Option<Tally> = None;
            let mut failed = None;
            for worker in workers {
                match worker.join() {
                    Ok(Ok(tally)) => match &mut sum {
                        Some(sum) => sum.merge(tally),
                        None => sum = Some(tally),
                    },
                    Ok(Err(fault)) => failed = failed.or(Some(fault)),
                    Err(_) => failed = Some(Fault::new(FaultCode::Internal, Blame::Bug, "a worker panicked")),
                }
            }
            let cpu_seconds = cpu::process_micros().saturating_sub(cpu_before) as f64 / 1e6;
            failed.map_or(Ok((sum, cpu_seconds)), Err)
        })?;
        let Some(tally) = tally else {
            return Err(Fault::new(FaultCode::Usage, Blame::Local, "there must be at least one worker"));
        };
        let tally = tally.checked()?;
        Ok(RandomReport {
            case,
            reads: tally.reads.count(),
            writes: tally.writes.count(),
            seconds: tally.seconds,
            read_latency: tally.reads.figures(),
            write_latency: tally.writes.figures(),
            cpu_seconds,
        })
    }

    /// The requests of a worker, until its time is over. The time begins with the first one.
    fn source(&self, worker: usize) -> LabSource {
        let mut random = LabRandom::new(worker);
        let (source, time) = (Arc::clone(&self.source), self.run.time);
        let target = self.own.as_ref().map(|own| Arc::clone(own.target()));
        let (len, reads_percent) = (self.request_bytes, self.run.reads_percent);
        let places = source.len() / len;
        let mut until = None;
        Box::new(move || {
            let now = Instant::now();
            if now >= *until.get_or_insert(now + time) {
                return None;
            }
            let offset = random.below(places) * len;
            let file = match &target {
                Some(target) if random.below(100) >= reads_percent => LabFace::Write(Arc::clone(target)),
                _ => LabFace::Read(Arc::clone(&source)),
            };
            Some(LabRequest { file, offset, len: len as usize })
        })
    }
}

/// One worker of a case.
struct Worker {
    /// The core that it stays on. `None`: any.
    core: Option<usize>,
    engine: EngineKind,
    case: RandomCase,
    source: LabSource,
}

impl Worker {
    /// Starts an engine of its own and runs it. The engine's threads are children of this one and
    /// inherit its core.
    fn run(self, request_bytes: u64, start: &Barrier, stop: &Stop) -> Result<Tally, Fault> {
        if let Some(core) = self.core {
            let mut set = CpuSet::new();
            set.set(core);
            if let Err(error) = sched_setaffinity(None, &set) {
                tracing::debug!(core, %error, "the worker stays on no core");
            }
        }
        let in_flight = self.case.outstanding;
        let ready = ground::buffers(request_bytes, in_flight)
            .and_then(|slab| Ok((ChunkIo::start(self.engine, in_flight, &slab)?, slab)));
        // Every worker comes here, also one that failed: the others wait for it.
        start.wait();
        let (io, slab) = ready?;
        Ok(flow::run(&io, &slab, vec![LabStream { next: self.source, in_flight }], stop))
    }
}

/// The cores that this process may use.
fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Fewer bytes no device takes.
const REQUEST_BYTES_LEAST: u64 = 512;
