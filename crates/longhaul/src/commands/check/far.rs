//! `check` of a directory at a daemon, which reads its files there: digests travel, and no bytes of
//! files.
//!
//! In: a manifest, and a location. Out: findings, to `output`, as of a directory of this host. It
//! believes what the daemon says of its files, and nothing of names that were not asked about. Must
//! not know how a daemon is asked.

use std::ffi::OsStr;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use longhaul_core::limits::READING_NAMES_MAX;
use longhaul_core::{Blame, Escaped, Fault, FaultCode, RelPath};
use longhaul_engine::{FarReading, FoundThing, Listed, ListedKind, RemotePath, Stop, StopTrigger};
use tokio::runtime::Runtime;

use super::{LOST_BYTES, NO_DIRECTORY, is_lossy};
use crate::commands::{Context, runtime};
use crate::error::{Error, LocationFlaw};
use crate::exit::Exit;
use crate::keys;
use crate::location::DaemonPath;
use crate::manifest::{Expected, Finding};
use crate::output::{CheckTelling, Checked, Talker};
use crate::settings::{Keys, Talk};
use crate::signals::{self, Asking, Hangup};

/// A manifest, and the directory at a daemon in which its names lie.
pub(super) struct FarCheck {
    expected: Expected,
    reading: FarReading,
    /// Where the conversation goes on.
    runtime: Runtime,
    stop: Stop,
    trigger: StopTrigger,
    asking: Asking,
}

impl FarCheck {
    /// Reads the manifest, and asks the daemon for the directory, which `text` names.
    ///
    /// # Errors
    /// The flaw of the manifest or the location, and the daemon's refusal.
    pub(super) fn prepare(
        manifest: &Path,
        (daemon, text): (&DaemonPath, &OsStr),
        keys: &Keys,
        (talk, context): (Talk, Context),
    ) -> Result<FarCheck, Error> {
        let path = daemon.path.clone().ok_or_else(|| {
            let location = Escaped(text.as_bytes()).to_string();
            Error::Location { location, flaw: LocationFlaw::NoRoot }
        })?;
        let expected = Expected::read(manifest)?;
        let asking = Asking::default();
        let (trigger, stop) = Stop::new();
        let on_signal = trigger.clone();
        signals::watch(asking.clone(), Hangup::Stops, move |code| on_signal.stop(code))
            .map_err(Error::file("watch the signals of", "this process"))?;
        let remote = keys::remote(daemon, keys, &context.places(), Talker::new(talk), &asking)?;
        let runtime = runtime()?;
        let path = RemotePath { slash: true, ..path };
        let opened = runtime.block_on(FarReading::open(remote, path, &stop));
        let reading = opened.map_err(|fault| match fault.code {
            FaultCode::InTheWay => NO_DIRECTORY,
            _ => fault.into(),
        })?;
        Ok(FarCheck { expected, reading, runtime, stop, trigger, asking })
    }

    /// Has the daemon read what the manifest names, and tells the findings.
    ///
    /// # Errors
    /// None: what fails is told.
    pub(super) fn run<W: Write>(self, mut telling: CheckTelling<W>) -> Result<Exit, Error> {
        let FarCheck { mut expected, mut reading, runtime, stop, trigger, asking } = self;
        let begun = Instant::now();
        let ended = runtime.block_on(async {
            compare_all(&mut reading, &mut expected, (&stop, &trigger), &mut telling).await?;
            find_extra(&mut reading, &expected, &stop, &mut telling).await
        });
        asking.end();
        // The connection is one of this runtime, and a blocked call must not keep it alive.
        let guard = runtime.enter();
        drop(reading);
        drop(guard);
        runtime.shutdown_background();
        let fault = ended.err();
        if let Some(fault) = &fault
            && !telling.is_deaf()
        {
            telling.fault(fault);
        }
        Ok(telling.end(fault.as_ref(), begun.elapsed().as_secs_f64()))
    }
}

/// Has the files of the manifest read, and tells the finding on each.
async fn compare_all<W: Write>(
    reading: &mut FarReading,
    expected: &mut Expected,
    (stop, trigger): (&Stop, &StopTrigger),
    telling: &mut CheckTelling<W>,
) -> Result<(), Fault> {
    let list = expected.names();
    let mut names = list.iter();
    loop {
        let some: Vec<RelPath> = names.by_ref().take(READING_NAMES_MAX).collect();
        if some.is_empty() {
            return Ok(());
        }
        let sink = |at: usize, found| {
            if let Some(name) = some.get(at) {
                tell(name, found, expected, telling);
            }
            if telling.is_deaf() {
                trigger.stop(FaultCode::Terminated);
            }
        };
        reading.read((&some, None), stop, sink).await?;
    }
}

/// Tells a finding of the daemon on a name of the manifest.
fn tell<W: Write>(name: &RelPath, found: FoundThing, expected: &mut Expected, telling: &mut CheckTelling<W>) {
    match found {
        FoundThing::Read { bytes, b3 } => match expected.find(name, Some(&b3)) {
            Finding::Same => telling.found(name, Checked::Ok, bytes, Some(b3)),
            Finding::Changed | Finding::Unknown => telling.found(name, Checked::Changed, bytes, Some(b3)),
        },
        FoundThing::Absent if is_lossy(name) => {
            let why = format_args!("'{}' was not read: {LOST_BYTES}", name.escaped());
            telling.fault(&Fault::new(FaultCode::Unsupported, Blame::Local, why).about(name.escaped()));
            telling.found(name, Checked::Unread, 0, None);
        }
        FoundThing::Absent => telling.found(name, Checked::Missing, 0, None),
        FoundThing::Failed(fault) => {
            telling.fault(&fault);
            telling.found(name, Checked::Unread, 0, None);
        }
        FoundThing::File { .. } | FoundThing::Link { .. } | FoundThing::Dir | FoundThing::Special => {
            telling.found(name, Checked::Changed, 0, None);
        }
    }
}

/// Tells the regular files beneath the directory that the manifest does not have.
async fn find_extra<W: Write>(
    reading: &mut FarReading,
    expected: &Expected,
    stop: &Stop,
    telling: &mut CheckTelling<W>,
) -> Result<(), Fault> {
    let (mut waiting, mut waiting_bytes) = (vec![RelPath::root()], 0);
    while let Some(dir) = waiting.pop() {
        waiting_bytes -= dir.as_bytes().len();
        let sink = |names: Vec<Listed>| {
            for listed in names {
                let path = match dir.join(&listed.name) {
                    Ok(path) => path,
                    Err(why) => {
                        let name = Escaped(&listed.name).to_string();
                        telling.fault(&Fault::new(FaultCode::Unsupported, Blame::Local, why).about(name));
                        continue;
                    }
                };
                match listed.kind {
                    ListedKind::Dir => {
                        waiting_bytes += path.as_bytes().len();
                        waiting.push(path);
                    }
                    ListedKind::File if !expected.has(&path) => telling.found(&path, Checked::Extra, 0, None),
                    _ => {}
                }
            }
            let goes_on = !telling.is_deaf() && waiting_bytes <= DIRS_WAITING_BYTES_MAX;
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if let Err(fault) = reading.list(&dir, stop, sink).await? {
            telling.fault(&fault);
        }
        if telling.is_deaf() {
            return Ok(());
        }
        if waiting_bytes > DIRS_WAITING_BYTES_MAX {
            let why = "the daemon names more directories than are looked through; its other files were compared";
            return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why));
        }
    }
    Ok(())
}

/// Bytes of the paths of directories that wait to be listed: millions of them.
const DIRS_WAITING_BYTES_MAX: usize = 256 << 20;
