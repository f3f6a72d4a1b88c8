//! Walks a whole target set: each file with its target, and what is wrong with a name.
//!
//! In: a set. Out: findings to a sink that may break off, in memory that does not depend on the
//! number of names. It changes nothing, and knows no sessions.

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{Blame, EntryKind, Fault, FaultCode, Mtime, Preserve, RelPath, hint};
use longhaul_disk::{
    Beginning, CopyKind, DirectMode, FsSource, LostFile, Moved, Moving, Orphan, Orphans, Rebalance, Rebuilding,
    ReplaceEnd, Replaced, Replacement, ScanRequest, Scanned, SourceTree, TargetSet, Verification, Verified, VerifyEnd,
};

use crate::api::Stop;

/// A find in a set.
#[derive(Clone, Debug)]
pub enum SetFind {
    /// A file or a link.
    File {
        /// Its path beneath the set.
        path: RelPath,
        /// The number of its target.
        target: u32,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A name that stands on two targets, that cannot be looked at, or of which a part is missing.
    Wrong(Fault),
    /// A body of a striped file that no name needs.
    Orphan(Orphan),
    /// A file, or chunks of a striped one, went to another target, or is to.
    Moved {
        /// Its path beneath the set.
        path: RelPath,
        /// The numbers of the target that it lay on, and of the one that it went to.
        between: (u32, u32),
        /// The bytes that moved.
        bytes: u64,
    },
    /// A file, a link or a body of a target that is replaced was copied, or is to be.
    Copied {
        /// Its path beneath the target; of the set's own files, a path to tell them by.
        path: RelPath,
        /// The kind of the thing.
        kind: CopyKind,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A verification that was stopped is gone on with.
    Continued {
        /// When it began.
        began: Mtime,
        /// The number of files that were read whole by then and are right.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// This verification cannot be gone on with when it is stopped.
    NoRecord(Fault),
}

/// Gives each file beneath a path of a set to `sink`, and each name that is wrong.
///
/// # Errors
/// A [`Fault`] if nothing stands at the path.
pub fn walk_set(
    set: &Arc<TargetSet>,
    path: &RelPath,
    mut sink: impl FnMut(SetFind) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let source = FsSource::beneath(vec![(set.clone(), path.clone(), true)], DirectMode::Buffered);
    let filter = Filter::default();
    let preserve = Preserve { links: true, ..Preserve::default() };
    source.scan(&ScanRequest::of_all(&filter, preserve), &mut |scanned| match scanned {
        Scanned::Entry { entry, source: at, .. } => {
            let bytes = match &entry.kind {
                EntryKind::File { len, .. } => *len,
                EntryKind::Symlink { target } => target.len() as u64,
                _ => return ControlFlow::Continue(()),
            };
            let Ok(path) = path.concat(&entry.path) else { return ControlFlow::Continue(()) };
            sink(SetFind::File { path, target: source.target_of(&at).0, bytes })
        }
        Scanned::Failed { error, .. } => sink(SetFind::Wrong(error.fault())),
        Scanned::Skipped { .. } | Scanned::Reserved { .. } => ControlFlow::Continue(()),
    });
    Ok(())
}

/// Gives the bodies of a set that no name needs to `sink`, and the striped files of which a part is
/// missing. Orphans are removed if that is asked for.
///
/// # Errors
/// A [`Fault`] if the bodies of a target cannot be listed, or if orphans are to be removed and
/// something speaks against it: a target is missing, or a name cannot be looked at.
pub fn survey_bodies(set: &TargetSet, orphans: Orphans, mut sink: impl FnMut(SetFind)) -> Result<(), Fault> {
    let survey = set.survey_bodies(orphans)?;
    survey.wrong.into_iter().for_each(|error| sink(SetFind::Wrong(error.fault())));
    let found = !survey.orphans.is_empty();
    survey.orphans.into_iter().for_each(|orphan| sink(SetFind::Orphan(orphan)));
    match survey.doubt.filter(|_| found && orphans == Orphans::Removed) {
        None => Ok(()),
        Some(why) => {
            let message = format!("no orphan is removed: {why}");
            Err(Fault::new(FaultCode::Unsupported, Blame::Local, message))
        }
    }
}

/// Reads every chunk of the striped files of a set, at most `rate` bytes per second, and compares
/// it with its digest: each file that is right goes to `sink`, and each that is not. If `sink`
/// breaks off or the verification is stopped, the next one goes on with it.
///
/// # Errors
/// A [`Fault`] with the code of `stop`, if that was pulled.
pub fn verify_set(
    set: &TargetSet,
    (rate, beginning): (Option<u64>, Beginning),
    stop: &Stop,
    mut sink: impl FnMut(SetFind) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut told = |verified| match verified {
        Verified::Right { path, target, bytes } => sink(SetFind::File { path, target, bytes }),
        Verified::Wrong { error, .. } | Verified::Unseen(error) => sink(SetFind::Wrong(error.fault())),
        Verified::Continued { began, files, bytes } => sink(SetFind::Continued { began, files, bytes }),
        Verified::NoRecord(error) => sink(SetFind::NoRecord(error.fault())),
    };
    let is_stopped = || stop.pulled().is_some();
    let end = set.verify(&Verification { rate, beginning, is_stopped: &is_stopped }, &mut told);
    let Some(code) = stop.pulled().filter(|_| end != VerifyEnd::Through) else { return Ok(()) };
    let how = if code == FaultCode::Interrupted { "the verification was interrupted" } else { "it was terminated" };
    let fault = Fault::new(code, Blame::Local, how);
    Err(match end {
        VerifyEnd::Stopped => fault.hint(hint::Again::WhereItEnded),
        _ => fault.hint(hint::Again::Now),
    })
}

/// Moves what a rebalancing wants moved, or tells it; gives each move to `sink`, and each file that
/// stays.
///
/// # Errors
/// A [`Fault`] if the set cannot be looked at, or the target to drain is none of it.
pub fn rebalance_set(
    set: &TargetSet,
    wanted: &Rebalance,
    moving: Moving,
    mut sink: impl FnMut(SetFind) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut told = |moved| match moved {
        Moved::Moved { path, from, to, bytes } => sink(SetFind::Moved { path, between: (from, to), bytes }),
        Moved::Left(error) => sink(SetFind::Wrong(error.fault())),
    };
    Ok(set.rebalance(wanted, moving, &mut told)?)
}

/// Puts a directory in the place of a target, or tells what would be copied to it; gives each copy
/// to `sink`, and each file that cannot be copied or is lost.
///
/// # Errors
/// A [`Fault`] if it cannot be done.
pub fn replace_target(
    set: &TargetSet,
    wanted: &Replacement,
    moving: Moving,
    mut sink: impl FnMut(SetFind) -> ControlFlow<()>,
) -> Result<ReplaceEnd, Fault> {
    let mut told = |found| match found {
        Replaced::Copied { path, kind, bytes } => sink(SetFind::Copied { path, kind, bytes }),
        Replaced::Left(error) => sink(SetFind::Wrong(error.fault())),
    };
    Ok(set.replace_target(wanted, moving, &mut told)?)
}

/// The striped files of a set whose stripe files were lost; those that can be are made again, if
/// that is asked for.
///
/// # Errors
/// A [`Fault`] if the bodies of a target cannot be listed.
pub fn rebuild_set(set: &TargetSet, rebuilding: Rebuilding) -> Result<Vec<LostFile>, Fault> {
    Ok(set.rebuild(rebuilding)?)
}
