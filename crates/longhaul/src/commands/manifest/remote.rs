//! `manifest make` of a directory at a daemon: names, lengths and times, as the daemon lists them.
//!
//! In: a location. Out: a sealed manifest. Directories are listed one after the other and sorted
//! here; a run that is stopped begins anew. Files are not read. A daemon may be a stranger: what it
//! lists takes bounded memory.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, Filter, RelPath};
use longhaul_engine::{Listed, ListedKind, Remote, RemotePath, Stop, list};
use longhaul_manifest::{Draft, Item, ItemKind, Lists, ManifestError, Sealed, Sorter, Sums};

use super::{Output, SORT_BYTES, computed, fault, filter, sealed_of};
use crate::cli::ManifestMakeArgs;
use crate::commands::{Context, block_on};
use crate::error::Error;
use crate::exit::Exit;
use crate::keys;
use crate::location::DaemonPath;
use crate::output::Talker;
use crate::settings::{self, Layers, Talk};
use crate::signals::{self, Asking, Hangup};

/// Makes the manifest.
///
/// # Errors
/// A value that cannot be used, or a daemon that is not known.
pub(super) fn make(
    daemon: &DaemonPath,
    args: &ManifestMakeArgs,
    layers: &Layers,
    talk: Talk,
    context: Context,
    mut telling: Output,
) -> Result<Exit, Error> {
    if !computed(args.checksum.as_ref())?.is_empty() || args.kept_checksums {
        let why = "a daemon lists names, lengths and times, and no checksums";
        return Err(Error::Combination { why, hint: "run 'longhaul manifest make --checksum' on the daemon's host" });
    }
    let Some(path) = daemon.path.clone() else {
        let why = "a manifest is of one tree, and the location names a daemon alone";
        return Err(Error::Combination { why, hint: "name a root of it: lh://HOST/ROOT/" });
    };
    let (out, filter) = (PathBuf::from(&args.out), filter(&args.filters.rules)?);
    let asking = Asking::default();
    let keys = settings::keys(&args.keys, layers)?;
    let remote = keys::remote(daemon, &keys, &context.places(), Talker::new(talk), &asking)?;
    let (trigger, stop) = Stop::new();
    signals::watch(asking.clone(), Hangup::Stops, move |code| trigger.stop(code))
        .map_err(Error::file("watch the signals of", "this process"))?;
    let sealed = block_on(gather((&remote, path), filter, &out, &stop, &mut telling))?;
    asking.end();
    match sealed {
        Ok(sealed) => telling.made(&out, &sealed),
        Err(fault) => telling.failed(&fault),
    }
    Ok(telling.end())
}

/// Lists a tree at a daemon as a manifest in `out`, and tells what could not be read.
///
/// # Errors
/// The fault that ended it.
pub(in crate::commands) async fn gather(
    (remote, path): (&Remote, RemotePath),
    filter: Filter,
    out: &Path,
    stop: &Stop,
    telling: &mut Output,
) -> Result<Sealed, Fault> {
    let draft = Draft::begin(out).map_err(|error| fault(&error))?;
    let (sorter, waiting) = (Sorter::new(out, SORT_BYTES), Waiting::new(WAITING_BYTES_MAX));
    let mut gathering = Gathering { filter, sorter, telling, waiting, omitted: 0, failed: None };
    gathering.tree(remote, path, stop).await?;
    let Gathering { sorter, omitted, failed, .. } = gathering;
    failed.map_or(Ok(()), Err)?;
    sealed(draft, sorter, omitted).map_err(|error| fault(&error))
}

fn sealed(draft: Draft, sorter: Sorter, omitted: u64) -> Result<Sealed, ManifestError> {
    sealed_of(draft, sorter.finish()?, Lists::ALL, omitted)
}

/// Names being gathered.
struct Gathering<'t> {
    filter: Filter,
    sorter: Sorter,
    telling: &'t mut Output,
    waiting: Waiting,
    omitted: u64,
    /// The failure after which nothing is gathered.
    failed: Option<Fault>,
}

impl Gathering<'_> {
    /// Lists a tree, directory by directory.
    async fn tree(&mut self, remote: &Remote, top: RemotePath, stop: &Stop) -> Result<(), Fault> {
        // The limit is not that short.
        let _ = self.waiting.push(RelPath::root());
        while let Some(dir) = self.waiting.pop() {
            let Ok(at) = top.path.concat(&dir) else {
                let why = "the path is longer than one may be";
                self.omit(&Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(dir.escaped()));
                continue;
            };
            let path = RemotePath { root: top.root.clone(), path: at, slash: true };
            match self.directory(remote, path, &dir, stop).await {
                Ok(()) => {}
                // One directory of many: it is told, and the rest is listed.
                Err(fault) if !dir.is_root() && is_of_one(fault.code) => self.omit(&fault),
                Err(fault) => return Err(fault),
            }
            if self.failed.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Lists a directory. A daemon that has answered before is asked some times more.
    async fn directory(&mut self, remote: &Remote, path: RemotePath, dir: &RelPath, stop: &Stop) -> Result<(), Fault> {
        let (before, omitted) = (self.waiting.dirs.len(), self.omitted);
        let mut pauses = if dir.is_root() { &[][..] } else { &PAUSES }.iter();
        loop {
            let sink = |names: Vec<Listed>| {
                names.into_iter().for_each(|listed| self.take(dir, listed));
                if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let fault = match list(remote.clone(), Some(path.clone()), stop.clone(), sink).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            let Some(pause) = pauses.next().filter(|_| may_pass(fault.code)) else { return Err(fault) };
            // Names that were given already come again; the sort gives each of them once.
            self.waiting.truncate(before);
            self.omitted = omitted;
            // If it is stopped meanwhile, the next listing says so.
            let _ = tokio::time::timeout(*pause, stop.clone().stopped()).await;
        }
    }

    fn omit(&mut self, fault: &Fault) {
        self.omitted += 1;
        self.telling.omitted(fault);
    }

    /// Takes a name that was listed in a directory.
    fn take(&mut self, dir: &RelPath, listed: Listed) {
        let path = match dir.join(&listed.name) {
            Ok(path) => path,
            Err(why) => return self.omit(&Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(dir.escaped())),
        };
        let is_dir = matches!(listed.kind, ListedKind::Dir);
        if self.failed.is_some() || !self.filter.verdict(&path, is_dir) {
            return;
        }
        let kind = match listed.kind {
            ListedKind::File => ItemKind::File { bytes: Some(listed.len) },
            ListedKind::Dir => ItemKind::Dir,
            ListedKind::Symlink { target } => ItemKind::Link { target },
            _ => return self.telling.skipped(path.as_bytes(), "fifo, socket or device"),
        };
        let mtime = if is_dir { None } else { Some(listed.meta.mtime) };
        let item = Item { path, kind, mtime, sums: Sums::default() };
        if let Some(why) = item.flaw() {
            let message = format!("'{}' cannot be listed: {why}", item.path.escaped());
            return self.omit(&Fault::new(FaultCode::Unsupported, Blame::Peer, message).about(item.path.escaped()));
        }
        if is_dir && !self.waiting.push(item.path.clone()) {
            self.failed = Some(too_many());
            return;
        }
        self.failed = self.sorter.add(item).err().map(|error| fault(&error));
    }
}

/// Directories that are to be listed, the last one first.
struct Waiting {
    dirs: Vec<RelPath>,
    bytes: usize,
    bytes_max: usize,
}

impl Waiting {
    fn new(bytes_max: usize) -> Waiting {
        Waiting { dirs: Vec::new(), bytes: 0, bytes_max }
    }

    /// Has a directory wait. Gives whether there was room.
    #[must_use]
    fn push(&mut self, dir: RelPath) -> bool {
        let bytes = self.bytes + memory_of(&dir);
        if bytes > self.bytes_max {
            return false;
        }
        self.bytes = bytes;
        self.dirs.push(dir);
        true
    }

    fn pop(&mut self) -> Option<RelPath> {
        let dir = self.dirs.pop()?;
        self.bytes -= memory_of(&dir);
        Some(dir)
    }

    /// Forgets all but the first `length`.
    fn truncate(&mut self, length: usize) {
        while self.dirs.len() > length {
            drop(self.pop());
        }
    }
}

/// The memory of a directory that waits.
fn memory_of(dir: &RelPath) -> usize {
    size_of::<RelPath>() + 32 + dir.as_bytes().len()
}

fn too_many() -> Fault {
    let max = WAITING_BYTES_MAX >> 20;
    let message = format!("the daemon lists too many directories: the names of those to come take over {max} MiB");
    let hint = "run 'longhaul manifest make' on the daemon's host, or list a directory beneath that one";
    Fault::new(FaultCode::Unsupported, Blame::Peer, message).hint_in_words(hint)
}

/// Whether a failure is that of one directory alone.
fn is_of_one(code: FaultCode) -> bool {
    matches!(code, FaultCode::Denied | FaultCode::NotFound | FaultCode::InTheWay)
}

/// Whether a failure may be over soon.
fn may_pass(code: FaultCode) -> bool {
    matches!(code, FaultCode::Busy | FaultCode::Lost | FaultCode::TimedOut | FaultCode::Unreachable)
}

/// Memory of the directories that wait: a million or two.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// The pauses before a directory is asked for once more.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(10)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_wait_take_bounded_memory() {
        let mut waiting = Waiting::new(10_000);
        let name = |n: usize| RelPath::new(format!("{n:0100}")).unwrap();
        let room = (0..1000).find(|n| !waiting.push(name(*n))).unwrap();
        assert!((10..100).contains(&room), "{room}");
        waiting.truncate(room - 1);
        assert!(waiting.push(name(7)) && !waiting.push(name(8)));
        assert_eq!(waiting.pop(), Some(name(7)));
        waiting.truncate(0);
        assert_eq!((waiting.bytes, waiting.pop()), (0, None));
    }
}
