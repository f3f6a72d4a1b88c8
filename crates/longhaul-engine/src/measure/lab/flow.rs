//! Keeps a number of requests in flight through the disk engine and counts how long each takes.
//!
//! In: streams, each a source of requests with its own number in flight, from the measurements of
//! this folder. Out: a [`Tally`]. A request that ends submits the next one of its stream from the
//! engine's own thread, so that nothing is handed between threads. It knows no figures of merit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::{Blame, Fault, FaultCode, Place};
use longhaul_disk::{ChunkIo, SourceFile, TargetFile};
use longhaul_sys::{Slab, Slot};

use super::latency::LatencyHistogram;
use crate::api::Stop;
use crate::cpu;

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

impl Access {
    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// A request of a measurement.
pub(super) struct LabRequest {
    /// The file, by the face that it needs.
    pub(super) file: LabFace,
    /// The offset in the file, in bytes.
    pub(super) offset: u64,
    /// The bytes to move.
    pub(super) len: usize,
}

/// The face of a file that a request needs.
pub(super) enum LabFace {
    /// It is read.
    Read(Arc<SourceFile>),
    /// It is written.
    Write(Arc<TargetFile>),
}

/// A source of requests. `None` ends it.
pub(super) type LabSource = Box<dyn FnMut() -> Option<LabRequest> + Send>;

/// Requests that follow each other.
pub(super) struct LabStream {
    /// The requests.
    pub(super) next: LabSource,
    /// Requests in flight at a time.
    pub(super) in_flight: usize,
}

/// The count of a flow.
#[derive(Debug)]
pub(super) struct Tally {
    /// Times of reads.
    pub(super) reads: LatencyHistogram,
    /// Times of writes.
    pub(super) writes: LatencyHistogram,
    /// Bytes that were moved.
    pub(super) bytes: u64,
    /// Seconds from the first request to the end of the last.
    pub(super) seconds: f64,
    /// CPU seconds of the process meanwhile.
    pub(super) cpu_seconds: f64,
    /// The first failure.
    pub(super) fault: Option<Fault>,
}

impl Tally {
    fn new() -> Tally {
        let (reads, writes) = (LatencyHistogram::new(), LatencyHistogram::new());
        Tally { reads, writes, bytes: 0, seconds: 0.0, cpu_seconds: 0.0, fault: None }
    }

    /// Requests that ended well.
    pub(super) fn requests(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    /// Times of reads and writes together.
    pub(super) fn both(&self) -> LatencyHistogram {
        let mut both = self.reads.clone();
        both.merge(&self.writes);
        both
    }

    /// Adds the count of a stream that ran at the same time: the longer time counts.
    pub(super) fn merge(&mut self, other: Tally) {
        self.seconds = self.seconds.max(other.seconds);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.bytes += other.bytes;
        self.fault = self.fault.take().or(other.fault);
    }

    /// Itself, or the fault.
    pub(super) fn checked(mut self) -> Result<Tally, Fault> {
        self.fault.take().map_or(Ok(self), Err)
    }
}

/// Runs streams side by side until each has ended, was stopped, or failed. `slab` must have a slot
/// for each request in flight.
pub(super) fn run(io: &ChunkIo, slab: &Arc<Slab>, streams: Vec<LabStream>, stop: &Stop) -> Tally {
    let (over, ended) = channel();
    let running: Vec<usize> = streams.iter().map(|stream| stream.in_flight.max(1)).collect();
    let flow = Arc::new(Flow {
        io: io.clone(),
        streams: streams.into_iter().map(|LabStream { next, .. }| Mutex::new((next, Tally::new()))).collect(),
        left: AtomicUsize::new(running.iter().sum()),
        over: Mutex::new(over),
        stop: stop.clone(),
    });
    let (began, cpu_before) = (Instant::now(), cpu::process_micros());
    for (at, in_flight) in running.into_iter().enumerate() {
        for _ in 0..in_flight {
            match slab.claim() {
                Some(slot) => flow.go_on(at, slot),
                None => flow.end_one(),
            }
        }
    }
    // The sender lives in the flow: it cannot be gone.
    let _ = ended.recv();
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = cpu::process_micros().saturating_sub(cpu_before) as f64 / 1e6;
    let mut sum = Tally { seconds, cpu_seconds, ..Tally::new() };
    for stream in &flow.streams {
        sum.merge(std::mem::replace(&mut lock(stream).1, Tally::new()));
    }
    sum.fault = sum.fault.or_else(|| stopped(stop).err());
    sum
}

/// Fails if the run must stop.
pub(super) fn stopped(stop: &Stop) -> Result<(), Fault> {
    stop.pulled().map_or(Ok(()), |code| {
        let how = if code == FaultCode::Interrupted { "the measurement was interrupted" } else { "it was terminated" };
        Err(Fault::new(code, Blame::Local, how))
    })
}

struct Flow {
    io: ChunkIo,
    streams: Vec<Mutex<(LabSource, Tally)>>,
    /// Requests in flight that are not at their end.
    left: AtomicUsize,
    /// Told once, when none is left.
    over: Mutex<Sender<()>>,
    stop: Stop,
}

impl Flow {
    /// Submits the next request of a stream on this slot, or gives the slot back.
    fn go_on(self: &Arc<Self>, at: usize, slot: Slot) {
        let request = {
            let (next, tally) = &mut *lock(&self.streams[at]);
            if tally.fault.is_some() || self.stop.pulled().is_some() { None } else { next() }
        };
        let Some(LabRequest { file, offset, len }) = request else {
            drop(slot);
            return self.end_one();
        };
        let access = if matches!(file, LabFace::Read(_)) { Access::Read } else { Access::Write };
        let (flow, began) = (Arc::clone(self), Instant::now());
        let done = move |slot: Option<Slot>, result: Result<(), longhaul_disk::DiskError>| {
            let took = began.elapsed();
            {
                let (_, tally) = &mut *lock(&flow.streams[at]);
                match (result, access) {
                    (Ok(()), Access::Read) => tally.reads.add(took),
                    (Ok(()), Access::Write) => tally.writes.add(took),
                    (Err(ref error), _) => tally.fault = tally.fault.take().or_else(|| Some(error.fault())),
                }
                tally.bytes += if tally.fault.is_none() { len as u64 } else { 0 };
            }
            match slot {
                Some(slot) => flow.go_on(at, slot),
                None => flow.end_one(),
            }
        };
        match file {
            LabFace::Read(file) => {
                self.io.read(file, offset, len, slot, Box::new(move |slot, result| done(Some(slot), result)))
            }
            LabFace::Write(file) => self.io.write(file, Place::whole(offset), len, slot, Box::new(done)),
        }
    }

    fn end_one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody waits where the caller panicked.
            let _ = over.send(());
        }
    }
}

fn lock(stream: &Mutex<(LabSource, Tally)>) -> MutexGuard<'_, (LabSource, Tally)> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}
