//! The destination of a removal: the tree that still has names which its source has no more.
//!
//! In: a location, and names with the facts by which they are known again. Out: what has these
//! names, and each name where it was or in the grace directory of its plan. Follows no link beneath
//! the tree. At a daemon all that is the daemon's doing; here `disk` does it. Decides nothing.

#![allow(clippy::disallowed_methods, reason = "it looks at the top of a tree that a user named")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_engine::{
    FarName, FarRemoval, Grace, NameFacts, NameKind, PlanName, Remote, RemotePath, Stop, Tree, Whereabouts, Withdrawn,
};
use tokio::runtime::Runtime;

use super::pair::{FarPlace, need_root};
use crate::commands::runtime;
use crate::error::Error;
use crate::location::DaemonPath;
use crate::removal::PlannedName;

/// The destination, wherever it is.
pub(super) enum DestEnd {
    /// On this host.
    Here {
        /// The directory, held.
        tree: Arc<Tree>,
        /// Its path, without links.
        path: PathBuf,
    },
    /// At a daemon.
    There(Box<FarDest>),
}

/// A destination at a daemon.
pub(super) struct FarDest {
    /// The daemon.
    pub(super) remote: Remote,
    /// The directory there.
    pub(super) place: FarPlace,
    removal: FarRemoval,
    /// Where the conversation goes on.
    runtime: Runtime,
    stop: Stop,
}

/// A name as it stands at the destination.
pub(super) struct FoundName {
    /// The facts by which it is known again.
    pub(super) facts: NameFacts,
    /// The names in it, if it is a directory, whatever they are.
    pub(super) within: u64,
}

/// Moves the names of one plan away.
pub(super) enum DestMover<'d> {
    /// On this host, to this grace directory at this path.
    Here(Box<Grace>, PathBuf),
    /// At a daemon.
    There(&'d mut FarDest, PlanName),
}

/// The answer for one name: the fault is of that name alone.
type OfName<T> = Result<T, Fault>;

impl FarDest {
    /// Where the directory lies on the daemon's host.
    pub(super) fn whereabouts(&self) -> &Whereabouts {
        self.removal.whereabouts()
    }
}

impl DestEnd {
    /// Ends what is open at a daemon until it is asked again: something that may take hours comes.
    pub(super) fn rest(&mut self) {
        if let DestEnd::There(dest) = self {
            // The connection is one of this runtime.
            let _guard = dest.runtime.enter();
            dest.removal.rest();
        }
    }

    /// Holds a directory of this host: of this name in it, if one is given.
    ///
    /// # Errors
    /// The error of a directory that cannot be opened.
    pub(super) fn here(dest: &Path, name: Option<&OsStr>) -> Result<DestEnd, Error> {
        let (tree, path) = held(dest, name)?;
        Ok(DestEnd::Here { tree, path })
    }

    /// Asks a daemon for a directory: that of this name in it, if one is given.
    ///
    /// # Errors
    /// The daemon's refusal, and that of a location without a root.
    pub(super) fn there(
        daemon: &DaemonPath,
        (text, name): (&[u8], Option<&OsStr>),
        remote: Remote,
        stop: &Stop,
    ) -> Result<DestEnd, Error> {
        let mut path = need_root(daemon, text)?;
        if let Some(name) = name {
            path.path = path.path.join(name.as_bytes()).map_err(|error| {
                let fault =
                    Fault::new(FaultCode::Usage, Blame::Local, error).about(longhaul_core::Escaped(name.as_bytes()));
                Error::from(
                    fault.hint_in_words("write a slash behind SOURCE, and name as DEST the directory that is meant"),
                )
            })?;
        }
        let runtime = runtime()?;
        let path = RemotePath { slash: true, ..path };
        let removal = runtime.block_on(FarRemoval::open(remote.clone(), path.clone(), stop))?;
        let place = FarPlace::new(daemon, path);
        Ok(DestEnd::There(Box::new(FarDest { remote, place, removal, runtime, stop: stop.clone() })))
    }

    /// Its name in a plan.
    pub(super) fn written(&self) -> Vec<u8> {
        match self {
            DestEnd::Here { path, .. } => path.as_os_str().as_bytes().to_vec(),
            DestEnd::There(dest) => dest.place.shown.clone().into_bytes(),
        }
    }

    /// The device of the file system on which names may go.
    pub(super) fn device(&self) -> u64 {
        match self {
            DestEnd::Here { tree, .. } => tree.device(),
            DestEnd::There(dest) => dest.removal.device(),
        }
    }

    /// The most names that are asked about or moved at a time.
    pub(super) fn names_max(&self) -> usize {
        match self {
            DestEnd::Here { .. } => 1,
            DestEnd::There(_) => FarRemoval::NAMES_AT_A_TIME,
        }
    }

    /// Says what has these names. `None` for one that nothing has.
    ///
    /// # Errors
    /// The fault by which none can be looked at. That of one name stands in its place.
    pub(super) fn look(&mut self, paths: &[RelPath]) -> Result<Vec<OfName<Option<FoundName>>>, Fault> {
        match self {
            DestEnd::Here { tree, .. } => Ok(paths.iter().map(|path| looked(tree, path)).collect()),
            DestEnd::There(dest) => {
                let found = |FarName { facts, within }| FoundName { facts, within };
                let answers = dest.runtime.block_on(dest.removal.look(paths, &dest.stop))?;
                Ok(answers.into_iter().map(|answer| Ok(answer?.map(found))).collect())
            }
        }
    }

    /// Begins to move the names of a plan.
    ///
    /// # Errors
    /// The fault of a grace directory that cannot be had.
    pub(super) fn mover(&mut self, plan: PlanName) -> Result<DestMover<'_>, Fault> {
        Ok(match self {
            DestEnd::Here { tree, path } => {
                let label = plan.label();
                let place = path.join(Grace::place(tree)).join(&label);
                DestMover::Here(Box::new(Grace::open(tree, &label)?), place)
            }
            DestEnd::There(dest) => DestMover::There(dest, plan),
        })
    }
}

impl DestMover<'_> {
    /// Moves names away, each if it is still what was planned.
    ///
    /// # Errors
    /// The fault by which none can be moved any more. That of one name stands in its place.
    pub(super) fn withdraw(&mut self, names: &[&PlannedName]) -> Result<Vec<OfName<Withdrawn>>, Fault> {
        match self {
            DestMover::Here(grace, _) => {
                let moved = |name: &&PlannedName| Ok(grace.withdraw(&name.path, &name.facts)?);
                let ends = names.iter().map(moved).collect();
                // Behind a sync that failed nothing more goes.
                grace.need_sure()?;
                Ok(ends)
            }
            DestMover::There(dest, plan) => {
                let names: Vec<_> = names.iter().map(|name| (name.path.clone(), name.facts)).collect();
                dest.runtime.block_on(dest.removal.withdraw(*plan, &names, &dest.stop))
            }
        }
    }

    /// Makes all moves durable. A daemon has done so before it answered.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn sync(&mut self) -> Result<(), Fault> {
        match self {
            DestMover::Here(grace, _) => Ok(grace.sync()?),
            DestMover::There(..) => Ok(()),
        }
    }

    /// Where the names lie that went, for people.
    pub(super) fn kept_in(&self) -> String {
        match self {
            DestMover::Here(_, place) => place.to_string_lossy().into_owned(),
            DestMover::There(dest, plan) => {
                format!("{}/{}/{}", dest.place.shown_root, dest.removal.grace(), plan.label())
            }
        }
    }
}

fn looked(tree: &Tree, path: &RelPath) -> OfName<Option<FoundName>> {
    let Some(facts) = tree.facts(path)? else { return Ok(None) };
    let within = if facts.kind == NameKind::Dir { tree.names_in(path, |_| true)?.unwrap_or(u64::MAX) } else { 0 };
    Ok(Some(FoundName { facts, within }))
}

/// Holds the destination, and gives its path without links. A link that has the name of the source
/// there is not followed: names behind it are not of this tree.
fn held(dest: &Path, name: Option<&OsStr>) -> Result<(Arc<Tree>, PathBuf), Error> {
    let whole = || std::fs::canonicalize(dest).map_err(Error::file("examine", dest));
    let Some(name) = name else {
        let tree = Tree::open(dest).map_err(|error| Error::from(Fault::from(error)))?;
        return Ok((tree, whole()?));
    };
    let named = dest.join(name);
    let refused = |why: &str| {
        let fault = Fault::new(FaultCode::Usage, Blame::Local, why);
        let fault = fault.about(longhaul_core::Escaped(named.as_os_str().as_bytes()));
        fault.hint_in_words("write a slash behind SOURCE, and name as DEST the directory that is meant")
    };
    let own = RelPath::new(name.as_bytes()).map_err(|_| refused("no tree of a transfer can have this name"))?;
    let tree = Tree::open_beneath(dest, &own).map_err(Fault::from).map_err(|fault| match fault.code {
        FaultCode::InTheWay => refused("what has the name of SOURCE in DEST is a link, or no directory"),
        _ => fault,
    })?;
    Ok((tree, whole()?.join(name)))
}
