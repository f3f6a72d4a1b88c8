//! Reads a file or a device region by region, to find slow and unreadable spots.
//!
//! In: a [`ScanRun`], then one number of a region after the other. Out: a [`RegionReport`] each.
//! What it reads is opened for reading alone. It judges no region.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_disk::{ChunkIo, IoMode, SourceFile, open_for_scan};
use longhaul_sys::Slab;

use super::flow::{self, LabFace, LabRequest, LabSource, LabStream};
use super::ground::{self, LabDevices, PREPARE_BYTES};
use super::latency::LatencyFigures;
use crate::api::Stop;

/// A file or device to read.
#[derive(Clone, Debug)]
pub struct ScanRun {
    /// Its path.
    pub path: PathBuf,
    /// The bytes of a region. `None`: a hundredth of all, in whole MiB.
    pub region: Option<ByteCount>,
    /// The bytes that are read at the start of each region. `None`: all of it.
    pub sample: Option<ByteCount>,
    /// Engine and direct I/O.
    pub devices: LabDevices,
}

/// The results of a region.
#[derive(Clone, Debug)]
pub struct RegionReport {
    /// Its number, from 0.
    pub region: usize,
    /// Its offset, in bytes.
    pub offset: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Seconds from the first request to the end of the last.
    pub seconds: f64,
    /// The times of the requests.
    pub latency: LatencyFigures,
    /// The failure of a request. `None` if all of it could be read.
    pub fault: Option<Fault>,
}

impl RegionReport {
    /// Bytes per second. `None` for a region that could not be read.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.fault.is_none().then(|| self.bytes as f64 / self.seconds.max(1e-9))
    }
}

/// A file or device that is open.
pub struct SpotScan {
    source: Arc<SourceFile>,
    io: ChunkIo,
    slab: Arc<Slab>,
    region_bytes: u64,
    sample: u64,
}

impl SpotScan {
    /// Opens it.
    ///
    /// # Errors
    /// A [`Fault`] if it cannot be opened, is neither file nor device, or is empty.
    pub fn open(run: &ScanRun) -> Result<SpotScan, Fault> {
        let source = Arc::new(open_for_scan(&run.path, run.devices.direct)?);
        if source.is_empty() {
            let message = format!("'{}' is empty: there is nothing to read", run.path.display());
            return Err(Fault::new(FaultCode::Usage, Blame::Local, message).about(run.path.display()));
        }
        let region = run.region.map_or(source.len() / REGIONS_DEFAULT, ByteCount::get);
        let region_bytes = region.max(1).next_multiple_of(REGION_UNIT);
        let sample = run.sample.map_or(region_bytes, ByteCount::get).next_multiple_of(REGION_UNIT).min(region_bytes);
        let slab = ground::buffers(PREPARE_BYTES, SCAN_DEPTH)?;
        let io = ChunkIo::start(run.devices.engine, SCAN_DEPTH, &slab)?;
        Ok(SpotScan { source, io, slab, region_bytes, sample })
    }

    /// The length of what is read, in bytes.
    pub fn bytes(&self) -> u64 {
        self.source.len()
    }

    /// The number of regions.
    pub fn regions(&self) -> usize {
        self.source.len().div_ceil(self.region_bytes) as usize
    }

    /// How it is really read.
    pub fn mode(&self) -> IoMode {
        self.source.mode()
    }

    /// Reads a region. A region that cannot be read is a result, too.
    ///
    /// # Errors
    /// The fault of being stopped.
    pub fn measure(&self, region: usize, stop: &Stop) -> Result<RegionReport, Fault> {
        let offset = (region as u64).saturating_mul(self.region_bytes);
        let end = offset.saturating_add(self.sample).min(self.source.len());
        let stream = LabStream { next: reads(&self.source, offset, end), in_flight: SCAN_DEPTH };
        let tally = flow::run(&self.io, &self.slab, vec![stream], stop);
        flow::stopped(stop)?;
        let (bytes, seconds, latency) = (tally.bytes, tally.seconds, tally.reads.figures());
        Ok(RegionReport { region, offset, bytes, seconds, latency, fault: tally.fault })
    }
}

fn reads(source: &Arc<SourceFile>, from: u64, end: u64) -> LabSource {
    let (source, mut at) = (Arc::clone(source), from);
    Box::new(move || {
        let bytes = PREPARE_BYTES.min(end.saturating_sub(at));
        let offset = at;
        at += bytes;
        let file = LabFace::Read(Arc::clone(&source));
        (bytes > 0).then_some(LabRequest { file, offset, len: bytes as usize })
    })
}

/// Regions of a scan: a hundred lines are read at one go.
const REGIONS_DEFAULT: u64 = 100;
/// Regions are multiples of this.
const REGION_UNIT: u64 = 1 << 20;
/// Requests in flight: enough to keep a disk busy, few enough that a slow one shows.
const SCAN_DEPTH: usize = 4;
