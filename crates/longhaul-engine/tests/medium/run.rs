//! One run of the real engine and the real disk crate into a directory with a medium beneath it,
//! watched.
//!
//! In: a source, a medium, settings. Out: the report, and every promise that was broken at the time
//! of a report. It knows no faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_disk::{FsSource, FsTarget, SourceSpec};
use longhaul_engine::{DirectMode, Event, FileStatus, Observer, Report, Settings, Stop, run_into};

use super::check::State;
use super::model::Medium;
use super::promise::{Broken, Promise};
use super::source::Source;
use super::state::What;
use super::view::{Kind, text};

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None`: the destination could not be opened.
    pub(crate) report: Option<Report>,
    /// The bytes last reported as durable.
    pub(crate) durable: u64,
    pub(crate) files: Vec<(Vec<u8>, FileStatus)>,
    pub(crate) broken: Vec<Broken>,
}

impl Ran {
    /// Whether the program would exit with 0.
    pub(crate) fn is_success(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.fault.is_none() && report.files_failed == 0)
    }

    /// Its messages for a person.
    pub(crate) fn told(&self) -> String {
        let failed = |(path, status): &(Vec<u8>, FileStatus)| match status {
            FileStatus::Failed(fault) => Some(format!("{}: {fault:?}", text(path))),
            _ => None,
        };
        let failures: Vec<String> = self.files.iter().filter_map(failed).take(4).collect();
        let fault = self.report.as_ref().and_then(|report| report.fault.clone());
        format!("fault {fault:?}, files {failures:?}")
    }
}

/// Looks at the medium at each report of the program.
struct Witness {
    medium: Arc<Medium>,
    source: Arc<Source>,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    durable: u64,
    files: Vec<(Vec<u8>, FileStatus)>,
    broken: Vec<Broken>,
}

impl Witness {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn committed(&self, path: &[u8], b3: Option<[u8; 32]>) -> Result<(), String> {
        self.medium.said(What::Committed, path);
        let state = self.medium.state();
        let medium = State { view: &state.medium, kinds: &state.kinds };
        if let Some(target) = self.source.links.get(path) {
            let right = medium.view.find(path).is_some_and(|node| state.kinds[&node] == Kind::Link(target.clone()));
            return if right { Ok(()) } else { Err(format!("the link {} is not durably there", text(path))) };
        }
        let current = &self.source.current(path).bytes;
        if b3.is_some_and(|b3| b3 != *blake3::hash(current).as_bytes()) {
            return Err(format!("{} is committed with a digest that it does not have", text(path)));
        }
        medium.stands(path, |bytes| bytes == current).map_err(|what| format!("called committed, but durably {what}"))
    }
}

impl Observer for Witness {
    fn event(&self, event: Event) {
        match event {
            Event::File(file) => {
                let path = file.placed.as_bytes();
                if file.status == FileStatus::Committed
                    && let Err(broken) = self.committed(path, file.b3)
                {
                    self.heard().broken.push(Promise::Committed.broken(broken));
                }
                self.heard().files.push((path.to_vec(), file.status));
            }
            Event::Progress(progress) => {
                let state = self.medium.state();
                let now = State { view: state.image.as_ref().unwrap_or(&state.medium), kinds: &state.kinds };
                // Bytes of a file whose name another program took meanwhile are rightly given up.
                let intruded = state.intruded.as_ref().map(|(path, _)| self.source.len_of(path));
                let durable = now.durable(&self.source);
                let mut heard = self.heard();
                heard.durable = heard.durable.max(progress.bytes_durable);
                match durable {
                    Ok(durable) if durable.sum() + intruded.unwrap_or(0) >= progress.bytes_durable => {}
                    Ok(durable) => heard.broken.push(Promise::Durable.broken(format_args!(
                        "{} bytes are called durable, {} are; {}{}",
                        progress.bytes_durable,
                        durable.sum(),
                        durable.missing(&self.source),
                        now.told_journals()
                    ))),
                    Err(broken) => heard.broken.push(broken),
                }
            }
            _ => {}
        }
    }
}

/// Runs a copy to its end.
pub(crate) fn run(medium: &Arc<Medium>, source: &Arc<Source>, settings: Settings) -> Ran {
    let witness = Arc::new(Witness { medium: medium.clone(), source: source.clone(), heard: Mutex::default() });
    let spec = SourceSpec { path: source.dir.clone(), contents: true };
    let tree = Arc::new(FsSource::open(vec![spec], DirectMode::Buffered));
    let target = FsTarget::open_behind(&medium.scratch, settings.io, medium.clone());
    let mut report = None;
    let mut late = None;
    if let Ok(target) = target {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (_trigger, stop) = Stop::new();
        let observers = longhaul_engine::Observers { sender: Arc::new(Silent), receiver: witness.clone() };
        let running = run_into(tree, target, settings, observers, stop);
        match runtime.block_on(async { tokio::time::timeout(PATIENCE, running).await }) {
            Ok(ended) => report = Some(ended),
            Err(_) => late = Some(Promise::Ends.broken(format_args!("the run has not ended after {PATIENCE:?}"))),
        }
        match late {
            Some(_) => runtime.shutdown_background(),
            None => drop(runtime),
        }
    }
    let Heard { durable, files, mut broken } = std::mem::take(&mut *witness.heard());
    broken.extend(late);
    Ran { report, durable, files, broken }
}

/// Ignores the events of the sending half: the receiving half has reported them all.
struct Silent;

impl Observer for Silent {
    fn event(&self, _event: Event) {}
}

/// Longer than any run takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
