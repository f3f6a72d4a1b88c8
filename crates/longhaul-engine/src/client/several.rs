//! One source for several destinations: each is a run of its own, and all read the source together.
//!
//! In: the settings of all, and one job after the other. Out: the report of each. The memory of the
//! settings is divided: up to a half is for the place that all read through, the rest is shared out
//! equally. What the destinations share lies in `longhaul_disk::SharedReading`; sessions know
//! nothing of it.

use std::sync::Arc;
use std::time::Instant;

use longhaul_core::limits::{DISK_DEPTH_MAX, MEMORY_CHUNKS_MIN};
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, hint};
use longhaul_disk::{Depth, ReadingFigures, ReadingMeans, SharedReading};

use super::{AskedJob, affinity, conclude, run_reading};
use crate::api::{Credentials, Job, Observer, Report, Settings, Stop};

/// One reading of a source that goes to several destinations.
#[derive(Clone)]
pub struct Deliveries {
    reading: SharedReading,
    /// The settings of each destination.
    settings: Settings,
}

impl Deliveries {
    /// The most destinations of one reading.
    pub const MOST: usize = 16;

    /// Begins to read for so many destinations, 1 to [`Deliveries::MOST`]. The memory of `settings`
    /// is that of all of them together.
    ///
    /// # Errors
    /// [`FaultCode::Usage`] for more destinations, or a memory that is too small for them.
    pub fn begin(settings: Settings, destinations: usize) -> Result<Deliveries, Fault> {
        let usage = |message: std::fmt::Arguments<'_>| Fault::new(FaultCode::Usage, Blame::Local, message);
        if destinations == 0 || destinations > Deliveries::MOST {
            let most = Deliveries::MOST;
            return Err(usage(format_args!("{destinations} destinations are given, and 1 to {most} can be")));
        }
        let chunk = settings.chunk_size();
        let memory = settings.memory.get();
        let MemoryShares { blocks, each } = MemoryShares::of(memory / chunk.bytes(), destinations).map_err(|least| {
            let (least, chunk) = (ByteCount(least * chunk.bytes()), ByteCount(chunk.bytes()));
            let memory = settings.memory;
            let message = format_args!(
                "a memory of {memory} is too small for {destinations} destinations with chunks of {chunk}: they take {least}"
            );
            usage(message).hint(hint::Memory::RaiseOrSmallerChunks)
        })?;
        let means = ReadingMeans {
            block_bytes: usize::try_from(chunk.bytes()).unwrap_or(usize::MAX),
            blocks,
            depth: depth(&settings, blocks),
            engine: settings.engine,
            affinity: affinity(&settings)?,
        };
        let reading = SharedReading::start(means, destinations).map_err(|error| error.fault())?;
        let settings = Settings { memory: ByteCount(each * chunk.bytes()), ..settings };
        Ok(Deliveries { reading, settings })
    }

    /// Runs the job of the destination of this number, from 0, to its end. To be called once for
    /// each number, and for all at the same time: they wait for each other as they read. Sources
    /// must be files of this host, the same for all.
    pub async fn deliver(
        &self,
        number: usize,
        job: Job,
        credentials: Option<Credentials>,
        observer: Arc<dyn Observer>,
        stop: Stop,
    ) -> Report {
        let (begun, reader) = (Instant::now(), Some(self.reading.reader(number)));
        let asked = AskedJob { job, credentials, reader };
        reported(run_reading(asked, self.settings.clone(), observer.clone(), stop), &*observer, begun).await
    }

    /// The bytes that were read from the source so far, and those that all destinations together
    /// have taken of them.
    pub fn figures(&self) -> ReadingFigures {
        self.reading.figures()
    }
}

/// The report of a run, even of one that breaks: the others go on, and each has its summary.
async fn reported(
    run: impl Future<Output = Report> + Send + 'static,
    observer: &dyn Observer,
    begun: Instant,
) -> Report {
    tokio::spawn(run).await.unwrap_or_else(|error| {
        let fault = Fault::new(FaultCode::Internal, Blame::Bug, format_args!("the run broke: {error}"));
        conclude(Err(fault), observer, begun)
    })
}

/// The parts of a memory, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryShares {
    /// Blocks of the place that all read through.
    blocks: usize,
    /// The memory of each destination.
    each: u64,
}

impl MemoryShares {
    /// Divides a memory of so many chunks, so that each destination has enough of them. The error
    /// is the least memory for so many destinations.
    fn of(memory: u64, destinations: usize) -> Result<MemoryShares, u64> {
        let blocks_min = SharedReading::blocks_min(destinations);
        let needed = destinations as u64 * MEMORY_CHUNKS_MIN;
        let least = PLACES * blocks_min as u64 + needed;
        if memory < least {
            return Err(least);
        }
        let most = (memory / PLACE_PART).min((memory - needed) / PLACES);
        let blocks = usize::try_from(most).unwrap_or(usize::MAX).clamp(blocks_min, BLOCKS_MAX);
        let rest = memory.saturating_sub(PLACES * blocks as u64);
        Ok(MemoryShares { blocks, each: rest / destinations as u64 })
    }
}

/// The requests in flight per disk. No more than half of the blocks are being read at a time.
fn depth(settings: &Settings, blocks: usize) -> Depth {
    let half = (blocks / 2).max(1);
    let found = Depth::Found { start: half.min(DEPTH_FIRST), most: half.min(DISK_DEPTH_MAX as usize) };
    settings.depth.map_or(found, Depth::Fixed)
}

/// The part of the memory that is the place which all read through: a quarter.
const PLACE_PART: u64 = 4;
/// The memory of the place, in places: its buffers, and as much for small files, which it keeps
/// beside them.
const PLACES: u64 = 2;
/// The most blocks of that place: further ones would only let destinations drift apart.
const BLOCKS_MAX: usize = 4096;
/// Requests in flight per disk at first: 8 fill most disks.
const DEPTH_FIRST: usize = 8;

#[cfg(test)]
mod tests {
    use longhaul_disk::EngineKind;

    use super::*;
    use crate::api::Event;

    fn begin(memory: u64, destinations: usize) -> Result<Deliveries, Fault> {
        let settings = Settings { memory: ByteCount(memory), engine: EngineKind::Threads, ..Settings::default() };
        Deliveries::begin(settings, destinations)
    }

    #[test]
    fn the_memory_is_that_of_all_together() {
        for (memory, destinations) in [(256 << 20, 3), (256 << 20, 1), (112 << 20, 3), (1 << 30, 16)] {
            let deliveries = begin(memory, destinations).expect("it begins");
            let each = deliveries.settings.memory.get();
            assert!(each >= 4 * (4 << 20), "{destinations}: {each}");
            assert!(each * destinations as u64 <= memory / 2, "{destinations}: {each}");
        }
    }

    #[test]
    fn each_destination_has_enough_of_every_memory_that_is_taken() {
        for destinations in 1..=Deliveries::MOST {
            let least = MemoryShares::of(0, destinations).expect_err("it is too small");
            assert!(MemoryShares::of(least - 1, destinations).is_err());
            for memory in (least..least + 200).chain([1 << 14, 1 << 20]) {
                let MemoryShares { blocks, each } = MemoryShares::of(memory, destinations).expect("it is enough");
                let context = format!("{memory} chunks for {destinations}");
                assert!(each >= MEMORY_CHUNKS_MIN && blocks >= SharedReading::blocks_min(destinations), "{context}");
                assert!(PLACES * blocks as u64 + each * destinations as u64 <= memory, "{context}");
            }
        }
        let default = MemoryShares::of(64, 9).expect("the usual memory is enough for 9");
        assert_eq!(default, MemoryShares { blocks: 14, each: MEMORY_CHUNKS_MIN });
    }

    #[tokio::test]
    async fn a_run_that_breaks_has_a_report() {
        struct HearsNothing;
        impl Observer for HearsNothing {
            fn event(&self, _: Event) {}
        }
        let report = reported(async { panic!("a bug") }, &HearsNothing, Instant::now()).await;
        assert_eq!(report.fault.map(|fault| fault.code), Some(FaultCode::Internal));
    }

    #[test]
    fn a_memory_that_is_too_small_and_too_many_destinations_are_usage_faults() {
        for (memory, destinations) in [(16 << 20, 2), (111 << 20, 3), (256 << 20, 16), (8 << 30, 17), (256 << 20, 0)] {
            let code = begin(memory, destinations).map(drop).map_err(|fault| fault.code);
            assert_eq!(code, Err(FaultCode::Usage), "{memory} {destinations}");
        }
    }
}
