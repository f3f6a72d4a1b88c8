//! `check`: reads the files that a manifest names, and tells which of them are something else, are
//! missing, or are not in it.
//!
//! In: a manifest, and a directory. Out: findings, to `output`. The engine reads and hashes, as
//! fast as for a transfer; this file compares. `far` has the directories at daemons.

#![allow(clippy::disallowed_methods, reason = "it looks at the names that a user gave, and writes nothing")]

mod far;

use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use longhaul_core::{Blame, Escaped, Fault, FaultCode, RelPath};
use longhaul_engine::{
    Event, FileEvent, FileStatus, ListedKind, LocalSource, Observer, Report, Settings, Stop, StopTrigger,
    digest_sources, list_local,
};

use super::Context;
use crate::cli::CheckArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::location::{DaemonPath, Location};
use crate::manifest::{Expected, Finding};
use crate::output::{self, CheckTelling, Checked};
use crate::settings::{self, Layers};
use crate::signals::{self, Asking, Hangup};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &CheckArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.talk, &layers)?;
    context.talk(talk);
    let out = || CheckTelling::new(BufWriter::new(io::stdout()), talk);
    let ended = place(args).and_then(|place| match place {
        CheckPlace::Here(dir) => prepare(args, dir, &layers)?.run(out()),
        CheckPlace::There(daemon, text) => {
            need_no_reading(args)?;
            let keys = settings::keys(&args.keys, &layers)?;
            let manifest = Path::new(&args.manifest);
            far::FarCheck::prepare(manifest, (&daemon, text), &keys, (talk, context))?.run(out())
        }
    });
    // Behind the first finding nothing is an error of this kind.
    ended.or_else(|error| Ok(output::refuse(talk.json, error)))
}

/// The directory that is checked.
enum CheckPlace<'a> {
    /// A directory of this host. `None`: the current one.
    Here(Option<PathBuf>),
    /// At a daemon, with the location as it was written.
    There(DaemonPath, &'a OsStr),
}

fn place(args: &CheckArgs) -> Result<CheckPlace<'_>, Error> {
    let Some(text) = args.dir.as_deref() else { return Ok(CheckPlace::Here(None)) };
    match Location::parse(text)? {
        Location::Local(local) => Ok(CheckPlace::Here(Some(local.path))),
        Location::Daemon(daemon) => Ok(CheckPlace::There(daemon, text)),
        Location::Ssh(_) => {
            let why = "check reads files of this host, or has a daemon read them, and ssh leads to transfers";
            let hint = "run it on the host that has the files, or serve them, and name them as lh://HOST/ROOT/PATH";
            Err(Error::Combination { why, hint })
        }
    }
}

/// Refuses options of how this host reads: a daemon reads as its own configuration says.
fn need_no_reading(args: &CheckArgs) -> Result<(), Error> {
    let (devices, buffers) = (&args.devices, &args.buffers);
    let given = [&devices.depth, &devices.io, &devices.engine, &devices.pin, &buffers.chunk_size, &buffers.memory];
    match given.into_iter().any(Option::is_some) {
        true => Err(Error::Combination {
            why: "options of memory and disks are for files of this host, and a daemon reads with its own",
            hint: "leave them out, or set them in the configuration of the daemon",
        }),
        false => Ok(()),
    }
}

fn prepare(args: &CheckArgs, dir: Option<PathBuf>, layers: &Layers) -> Result<Check, Error> {
    let settings = settings::reading(&args.devices, &args.buffers, layers)?;
    let at = dir.clone().unwrap_or_else(|| PathBuf::from("."));
    // A directory that is none would make every name a missing one.
    list_local(&at, |_| ControlFlow::Break(()))?;
    if std::fs::metadata(&at).is_ok_and(|found| !found.is_dir()) {
        return Err(NO_DIRECTORY);
    }
    let manifest = PathBuf::from(&args.manifest);
    Ok(Check { expected: Expected::read(&manifest)?, manifest, at, finds_extra: dir.is_some(), settings })
}

/// The error of a DIR that is something else.
const NO_DIRECTORY: Error = Error::Combination {
    why: "the names of a manifest lie in a directory, and DIR is none",
    hint: "give the directory that was the destination",
};

/// A manifest, and the directory in which its names lie.
struct Check {
    expected: Expected,
    manifest: PathBuf,
    at: PathBuf,
    finds_extra: bool,
    settings: Settings,
}

/// Hands the engine's files over to the thread that compares.
struct FileSink(mpsc::SyncSender<FileEvent>);

impl Observer for FileSink {
    fn event(&self, event: Event) {
        if let Event::File(file) = event {
            // It is gone when nobody reads what is told.
            let _ = self.0.send(file);
        }
    }
}

impl Check {
    fn run<W: Write + Send>(self, mut telling: CheckTelling<W>) -> Result<Exit, Error> {
        let Check { mut expected, manifest, at, finds_extra, settings } = self;
        let (trigger, stop) = Stop::new();
        let on_signal = trigger.clone();
        let asking = Asking::default();
        signals::watch(asking.clone(), Hangup::Stops, move |code| on_signal.stop(code))
            .map_err(Error::file("watch the signals of", "this process"))?;
        let names = expected.names();
        let (sink, files) = mpsc::sync_channel(FILES_WAITING_MAX);
        let report = std::thread::scope(|scope| {
            let (expected, telling) = (&mut expected, &mut telling);
            scope.spawn(move || compare(files, expected, telling, &trigger));
            // Without a name there is nothing to read, and no list would mean everything.
            match names.is_empty() {
                true => Ok(None),
                false => {
                    let settings = Settings { files_from: Some(names), ..settings };
                    let sources = vec![LocalSource::contents(&at)];
                    super::block_on(digest_sources(sources, settings, Arc::new(FileSink(sink)), stop)).map(Some)
                }
            }
        })?;
        // What follows has nothing to stop in order.
        asking.end();
        let is_over = report.as_ref().is_none_or(|report: &Report| report.fault.is_none());
        if let Some(fault) = report.as_ref().and_then(|report| report.fault.as_ref())
            && !telling.is_deaf()
        {
            telling.fault(fault);
        }
        if is_over {
            for name in expected.missing() {
                tell_unseen(&at, &name, &mut telling);
            }
            if finds_extra {
                tell_extra(&at, &manifest, &expected, &mut telling);
            }
        }
        let fault = report.as_ref().and_then(|report| report.fault.as_ref());
        Ok(telling.end(fault, report.as_ref().map_or(0.0, |report| report.seconds)))
    }
}

/// Compares files with the manifest as they come.
fn compare<W: Write>(
    files: mpsc::Receiver<FileEvent>,
    expected: &mut Expected,
    telling: &mut CheckTelling<W>,
    trigger: &StopTrigger,
) {
    for FileEvent { path, status, bytes, b3, .. } in files {
        match status {
            // It is told with those that were never seen.
            FileStatus::Failed(fault) if is_absence(fault.code) => {}
            FileStatus::Failed(fault) => {
                if expected.find(&path, None) != Finding::Unknown {
                    telling.found(&path, Checked::Unread, 0, None);
                }
                telling.fault(&fault);
            }
            _ => match expected.find(&path, b3.as_ref()) {
                Finding::Same => telling.found(&path, Checked::Ok, bytes, b3),
                Finding::Changed => telling.found(&path, Checked::Changed, bytes, b3),
                // It lies beneath a name that is a directory now.
                Finding::Unknown => {}
            },
        }
        if telling.is_deaf() {
            return trigger.stop(FaultCode::Terminated);
        }
    }
}

/// Whether a name failed because nothing stands there, or no file does.
fn is_absence(code: FaultCode) -> bool {
    matches!(code, FaultCode::NotFound | FaultCode::Vanished | FaultCode::InTheWay)
}

/// Tells a name of the manifest for which no file came.
fn tell_unseen<W: Write>(at: &Path, name: &RelPath, telling: &mut CheckTelling<W>) {
    let unread = |code, why: &dyn std::fmt::Display| {
        let why = format_args!("'{}' was not read: {why}", name.escaped());
        Some(Fault::new(code, Blame::Local, why).about(name.escaped()))
    };
    let (checked, fault) = match std::fs::symlink_metadata(place_of(at, name)) {
        Ok(found) if found.is_file() => {
            (Checked::Unread, unread(FaultCode::Changed, &"it came to stand there meanwhile; check once more"))
        }
        Ok(_) => (Checked::Changed, None),
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            (Checked::Unread, unread(FaultCode::Denied, &error))
        }
        Err(_) if is_lossy(name) => (Checked::Unread, unread(FaultCode::Unsupported, &LOST_BYTES)),
        Err(_) => (Checked::Missing, None),
    };
    if let Some(fault) = fault {
        telling.fault(&fault);
    }
    telling.found(name, checked, 0, None);
}

/// Whether bytes of a name may be lost in the manifest.
fn is_lossy(name: &RelPath) -> bool {
    String::from_utf8_lossy(name.as_bytes()).contains(char::REPLACEMENT_CHARACTER)
}

/// The reason why a name with a replacement character may be that of a file under another name.
const LOST_BYTES: &str =
    "the manifest has lost bytes of its name, which is not UTF-8; the file stands under another one";

/// Tells the regular files beneath a directory that the manifest does not have; itself is none.
fn tell_extra<W: Write>(at: &Path, manifest: &Path, expected: &Expected, telling: &mut CheckTelling<W>) {
    let own = if manifest == Path::new("-") { None } else { whole(manifest) };
    let is_manifest = |path: &RelPath| own.is_some() && whole(&place_of(at, path)) == own;
    let mut waiting = vec![RelPath::root()];
    while let Some(dir) = waiting.pop() {
        let listed = list_local(&place_of(at, &dir), |names| {
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
                    ListedKind::Dir => waiting.push(path),
                    ListedKind::File if !expected.has(&path) && !is_manifest(&path) => {
                        telling.found(&path, Checked::Extra, 0, None);
                    }
                    _ => {}
                }
            }
            if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Err(fault) = listed {
            telling.fault(&fault);
        }
        if telling.is_deaf() {
            return;
        }
    }
}

/// Files that wait to be compared while what is told waits for its reader.
const FILES_WAITING_MAX: usize = 64 << 10;

fn place_of(at: &Path, path: &RelPath) -> PathBuf {
    at.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// A path without links.
fn whole(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}
