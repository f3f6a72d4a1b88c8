//! Makes the marks of a new set, so that the same command goes on wherever it was interrupted.
//!
//! In: directories that were found right. Out: a mark on each. First each target gets the mark that
//! it is to have under another name, the *coming* one, the first target before the others; then the
//! secret; then the marks. The first mark is the commit point: before it there is no set, and the
//! coming marks only tell whose the secrets are; from it on, a coming mark in the same words is as
//! good as a mark, and becomes one when the set is opened next to be written to. Chooses nothing.

use std::path::PathBuf;

use longhaul_core::TargetId;

use crate::error::{DiskError, PathText, SetError};
use crate::set::mark::{SetLayout, SetMark};
use crate::set::open::Looked;
use crate::set::{TargetDirs, lock, secret};
use crate::set_id::SetId;
use crate::walk::Dir;

/// The end of the making of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MakingEnd {
    /// All marks stand.
    Now,
    /// Somebody else has made a set of these directories meanwhile.
    Elsewhere,
}

/// Makes a set of directories of which none has a mark.
pub(super) fn make(found: &[(TargetId, Looked<'_>)], named: &TargetDirs) -> Result<MakingEnd, DiskError> {
    let Some((_, first)) = found.first() else { return Ok(MakingEnd::Elsewhere) };
    let shown = PathText::from(first.dir);
    lock::make(first.tree.root()).map_err(|error| DiskError::call("make the lock of", &shown, error))?;
    // Where there are no locks, two who make one set of the same directories are not told apart.
    let _lock = lock::try_hold(first.tree.root(), &shown)?;
    if SetMark::read(first.tree.root(), &shown)?.is_some() {
        return Ok(MakingEnd::Elsewhere);
    }
    let places: Vec<PathBuf> = named.dirs.iter().map(|dir| std::path::absolute(dir).unwrap_or(dir.clone())).collect();
    let fresh = || SetId::new().map_err(|error| DiskError::call("name a set at", &shown, error));
    let words = |set| SetMark { set, layout: named.layout, generation: 1, number: 0, places: places.clone() };
    let begun = SetMark::read_coming(first.tree.root(), &shown)?.filter(|mark| *mark == words(mark.set));
    let words = words(begun.map_or_else(fresh, |mark| Ok(mark.set))?);
    need_no_secret(found)?;
    for (id, Looked { dir, tree, .. }) in found {
        let (shown, mark) = (PathText::from(*dir), words.of(id.0));
        if SetMark::read_coming(tree.root(), &shown)?.is_some_and(|other| other != mark) {
            give_up(tree.root(), &shown)?;
        }
        mark.write_coming(tree.root(), &shown)?;
    }
    if named.layout == SetLayout::Stripe {
        let known = known_secret(found)?;
        let failed = |error| DiskError::call("write the secret of", &shown, error);
        let secret = known.map_or_else(|| secret::new().map_err(failed), Ok)?;
        found.iter().try_for_each(|(_, looked)| secret::copy(looked.tree.root(), &looked.dir.into(), &secret))?;
    }
    // The marks come last: with the first of them it is a set.
    for (id, looked) in found {
        words.of(id.0).write(looked.tree.root(), &looked.dir.into())?;
    }
    found.iter().try_for_each(|(_, looked)| SetMark::forget_coming(looked.tree.root(), &looked.dir.into()))?;
    tracing::info!(set = %words.set, targets = places.len(), layout = words.layout.name(), "a target set was made");
    Ok(MakingEnd::Now)
}

/// Refuses directories with a secret that no making of a set has left.
fn need_no_secret(found: &[(TargetId, Looked<'_>)]) -> Result<(), DiskError> {
    for (_, Looked { dir, tree, .. }) in found {
        let failed = |error| DiskError::call("look for the secret of", *dir, error);
        let is_coming = SetMark::read_coming(tree.root(), &(*dir).into())?.is_some();
        if !is_coming && secret::stands(tree.root()).map_err(failed)? {
            return Err(SetError::HasSecret { dir: (*dir).into() }.into());
        }
    }
    Ok(())
}

/// The secret that an earlier run has written to a target.
fn known_secret(found: &[(TargetId, Looked<'_>)]) -> Result<Option<secret::Secret>, DiskError> {
    for (_, Looked { dir, tree, .. }) in found {
        let failed = |error| DiskError::call("look for the secret of", *dir, error);
        if secret::stands(tree.root()).map_err(failed)? {
            return secret::read(tree.root(), &(*dir).into()).map(Some);
        }
    }
    Ok(None)
}

/// Removes what the making of another set has left on the target at `root`, which became none: the
/// secret, which no body needs, and then the coming mark.
pub(super) fn give_up(root: &Dir, dir: &PathText) -> Result<(), DiskError> {
    if SetMark::read(root, dir)?.is_some() || SetMark::read_coming(root, dir)?.is_none() {
        return Ok(());
    }
    // It fails where there are bodies.
    secret::remove(root).map_err(|_| DiskError::from(SetError::HasSecret { dir: dir.clone() }))?;
    SetMark::forget_coming(root, dir)
}

/// The coming mark of a target without one, if other targets have marks in its words: it counts as
/// its mark.
pub(super) fn coming(ours: &SetMark, id: TargetId, looked: &Looked<'_>) -> Result<Option<SetMark>, DiskError> {
    let coming = SetMark::read_coming(looked.tree.root(), &looked.dir.into())?;
    Ok(coming.filter(|mark| *mark == ours.of(id.0)))
}

/// Makes the coming mark of a target its mark.
pub(super) fn finish(mark: &SetMark, looked: &Looked<'_>) -> Result<(), DiskError> {
    let (root, shown) = (looked.tree.root(), PathText::from(looked.dir));
    mark.write(root, &shown)?;
    SetMark::forget_coming(root, &shown)
}

#[cfg(test)]
mod tests;
