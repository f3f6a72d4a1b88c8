//! `manifest make` of a directory at a daemon: names, lengths and times, as the daemon lists them.
//!
//! In: a location. Out: a sealed manifest. Directories are listed one after the other and sorted
//! here; a run that is stopped begins anew. Files are not read.

use std::path::PathBuf;

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
    if !computed(args.checksum.as_ref())?.is_empty() {
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
    let gathered = Draft::begin(&out).map(|draft| (draft, Sorter::new(&out, SORT_BYTES)));
    let (draft, sorter) = match gathered {
        Ok(begun) => begun,
        Err(error) => return Err(fault(&error).into()),
    };
    let mut gathering = Gathering { filter, sorter, telling: &mut telling, omitted: 0, failed: None };
    let listed = block_on(gathering.tree(&remote, path, &stop))?;
    asking.end();
    let Gathering { sorter, omitted, failed, .. } = gathering;
    let sealed = match (listed, failed) {
        (Err(fault), _) => Err(fault),
        (Ok(()), Some(error)) => Err(fault(&error)),
        (Ok(()), None) => sealed(draft, sorter, omitted).map_err(|error| fault(&error)),
    };
    match sealed {
        Ok(sealed) => telling.made(&out, &sealed),
        Err(fault) => telling.failed(&fault),
    }
    Ok(telling.end())
}

fn sealed(draft: Draft, sorter: Sorter, omitted: u64) -> Result<Sealed, ManifestError> {
    sealed_of(draft, sorter.finish()?, Lists::ALL, omitted)
}

/// Names being gathered.
struct Gathering<'t> {
    filter: Filter,
    sorter: Sorter,
    telling: &'t mut Output,
    omitted: u64,
    /// The error of the sort, after which nothing is gathered.
    failed: Option<ManifestError>,
}

impl Gathering<'_> {
    /// Lists a tree, directory by directory.
    async fn tree(&mut self, remote: &Remote, top: RemotePath, stop: &Stop) -> Result<(), Fault> {
        let mut waiting = vec![RelPath::root()];
        while let Some(dir) = waiting.pop() {
            let Ok(at) = top.path.concat(&dir) else {
                let why = "the path is longer than one may be";
                self.omit(&Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(dir.escaped()));
                continue;
            };
            let path = RemotePath { root: top.root.clone(), path: at, slash: true };
            let sink = |names: Vec<Listed>| {
                names.into_iter().for_each(|listed| self.take(&dir, listed, &mut waiting));
                match self.failed {
                    Some(_) => std::ops::ControlFlow::Break(()),
                    None => std::ops::ControlFlow::Continue(()),
                }
            };
            match list(remote.clone(), Some(path), stop.clone(), sink).await {
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

    fn omit(&mut self, fault: &Fault) {
        self.omitted += 1;
        self.telling.omitted(fault);
    }

    /// Takes a name that was listed in a directory.
    fn take(&mut self, dir: &RelPath, listed: Listed, waiting: &mut Vec<RelPath>) {
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
            ListedKind::Dir => {
                waiting.push(path.clone());
                ItemKind::Dir
            }
            ListedKind::Symlink { target } => ItemKind::Link { target },
            _ => return self.telling.skipped(path.as_bytes(), "fifo, socket or device"),
        };
        let mtime = if is_dir { None } else { Some(listed.meta.mtime) };
        self.failed = self.sorter.add(Item { path, kind, mtime, sums: Sums::default() }).err();
    }
}

/// Whether a failure is that of one directory alone.
fn is_of_one(code: FaultCode) -> bool {
    matches!(code, FaultCode::Denied | FaultCode::NotFound | FaultCode::InTheWay)
}
