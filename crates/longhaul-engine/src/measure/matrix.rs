//! Measures the stages of a transfer within this process: from memory or disk to memory or disk,
//! through the real pipeline of both halves.
//!
//! In: a [`CellRun`] and [`Settings`]. Out: a [`CellReport`]. The cost of a disk is the difference
//! between two cells; the cost of a half is counted by stage. It removes nothing, as the files are
//! the caller's, and knows no network.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::filter::Filter;
use longhaul_core::{Blame, Fault, FaultCode, Preserve};
use longhaul_disk::{DirectMode, EngineKind, IoMode, ScanRequest, Scanned, SourceTree, VoidSource, VoidTarget};
use longhaul_proto::receiver::Landing;
use longhaul_proto::wire::message::Placing;

use crate::api::{Event, FileEvent, FileStatus, Limited, LocalDest, LocalSource, Observer, Settings, Stop};
use crate::client::Run;
use crate::client::local_copy::{Engines, Nobody, merge_halves};
use crate::cpu::Stage;
use crate::place::{self, LocalSite, Opening};
use crate::session::opened::Destination;
use crate::session::totals::Totals;

/// The name of the one file, which consists of noise.
pub const NOISE_NAME: &str = "void-0000000000";

/// One cell of the matrix.
#[derive(Clone, Debug)]
pub struct CellRun {
    /// The file to read. `None`: `bytes` bytes of noise.
    pub from: Option<PathBuf>,
    /// The directory to write to. `None`: nothing is kept.
    pub to: Option<PathBuf>,
    /// The file's length, bytes.
    pub bytes: u64,
}

/// The CPU time of one half of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HalfReport {
    /// CPU seconds by stage: `read` or `write` of the I/O threads, `hash` and `net` of the lanes,
    /// `files` of work that is done by name.
    pub stages: Vec<(Stage, f64)>,
}

/// The results of a cell.
#[derive(Clone, Debug)]
pub struct CellReport {
    /// The fault that ended it early. `None` if it came to its end.
    pub fault: Option<Fault>,
    /// Bytes that were committed.
    pub bytes: u64,
    /// Seconds from the start of the halves until both had ended, including the last sync.
    pub seconds: f64,
    /// The sending half.
    pub sender: HalfReport,
    /// The receiving half.
    pub receiver: HalfReport,
    /// CPU seconds of this process that no stage counted: session loops, journals, the kernel's own
    /// I/O threads.
    pub rest_cpu: f64,
    /// The parts that limited it, each with its share of the time in which the limit is known, the
    /// largest first.
    pub limits: Vec<Limited>,
}

/// Measures one cell.
pub async fn bench_cell(cell: CellRun, settings: Settings, stop: Stop) -> CellReport {
    let ear = Arc::new(FailureListener::default());
    let measured = match Run::within_process(settings, ear.clone(), stop) {
        Ok(run) => run.cell(&cell).await,
        Err(fault) => Err(fault),
    };
    let (sent, received) = measured.unwrap_or_else(|fault| (Totals::ended_by(fault), Totals::default()));
    let failed = ear.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    report(sent, received, failed)
}

/// How a file of this host is read when direct I/O is asked for.
///
/// # Errors
/// A [`Fault`] when it cannot be opened.
pub fn io_mode(path: &Path, direct: DirectMode) -> Result<IoMode, Fault> {
    let tree = place::local_source(&[LocalSource::named(path)], direct)?;
    let mut mode = None;
    let filter = Filter::default();
    let request = ScanRequest::of_all(&filter, Preserve::default());
    tree.scan(&request, &mut |scanned| {
        mode = Some(match scanned {
            Scanned::Entry { source, identity, .. } => {
                tree.open(&source, &identity).map(|file| file.mode()).map_err(Fault::from)
            }
            Scanned::Failed { error, .. } => Err(error.into()),
            Scanned::Skipped { .. } | Scanned::Reserved { .. } => Ok(IoMode::Buffered),
        });
        std::ops::ControlFlow::Break(())
    });
    mode.unwrap_or_else(|| Err(Fault::new(FaultCode::NotFound, Blame::Local, "there is no such file")))
}

impl Run {
    async fn cell(self, cell: &CellRun) -> Result<(Totals, Totals), Fault> {
        let engine = |disk: &Option<PathBuf>| if disk.is_some() { self.settings.engine } else { EngineKind::Void };
        let engines = Engines { sender: engine(&cell.from), receiver: engine(&cell.to), noise: cell.from.is_none() };
        let source: Arc<dyn SourceTree> = match &cell.from {
            Some(path) => place::local_source(&[LocalSource::named(path)], self.settings.io)?,
            None => Arc::new(VoidSource { len: cell.bytes, files: 1 }),
        };
        let destination = match &cell.to {
            Some(dir) => {
                let opening = Opening {
                    dry_run: false,
                    placing: Placing::Beneath,
                    may_modify: true,
                    direct: self.settings.io,
                    claim: None,
                    catalogue: None,
                };
                LocalSite::new(&LocalDest::directory(dir.clone()), opening)?.open()?
            }
            None => Destination::fleeting(Arc::new(VoidTarget), Landing::beneath(), "memory".to_owned()),
        };
        self.halves(source, destination, engines, Arc::new(Nobody)).await
    }
}

fn report(mut sent: Totals, mut received: Totals, failed: Option<Fault>) -> CellReport {
    let whole = sent.costs.sender().unwrap_or(0.0);
    let (sender, receiver) = (half(&sent, Stage::Read), half(&received, Stage::Write));
    let seconds = sent.seconds();
    merge_halves(&mut sent, &mut received);
    let report = sent.into_report(seconds);
    let counted: f64 = sender.stages.iter().chain(&receiver.stages).map(|(_, seconds)| seconds).sum();
    CellReport {
        fault: report.fault.or(failed),
        bytes: report.bytes_committed,
        seconds,
        sender,
        receiver,
        rest_cpu: (whole - counted).max(0.0),
        limits: report.limits,
    }
}

/// The CPU time of a half, with that of its disk's threads as the stage `disk`.
fn half(totals: &Totals, disk: Stage) -> HalfReport {
    let io = totals.costs.io().map_or(0.0, |io| io.cpu_nanos as f64 / 1e9);
    HalfReport { stages: std::iter::once((disk, io)).chain(totals.costs.stages().iter().copied()).collect() }
}

/// Keeps the fault of the one file.
#[derive(Default)]
struct FailureListener(Mutex<Option<Fault>>);

impl Observer for FailureListener {
    fn event(&self, event: Event) {
        if let Event::File(FileEvent { status: FileStatus::Failed(fault), .. }) = event {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        }
    }
}
