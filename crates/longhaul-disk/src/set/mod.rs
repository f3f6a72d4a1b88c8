//! A target set: one tree whose files lie in several directories on different disks.
//!
//! In: directories as the operator named them. Out: a [`TargetSet`], which answers what stands at a
//! path of the tree, and from which a source or a destination is opened
//! ([`FsSource`](crate::FsSource), [`SpreadTarget`]). One directory is a set as well, without a
//! mark. Knows nothing of sessions and peers.

mod bodies;
mod carry;
mod change;
mod levels;
mod lister;
mod lock;
mod making;
mod mark;
mod moves;
mod open;
mod pace;
mod probe;
mod rebalance;
mod rebuild;
mod replace;
mod restripe;
mod secret;
mod spread;
mod verify;

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Escaped, RelPath, TargetId, TempName};

use crate::error::{DiskError, ErrorKind, SetError};
use crate::load::{TargetCondition, TargetLoad};
use crate::shelf::{Reach, Shelf, remove_idle};
use crate::stat::Standing;
use crate::stripe::Stripes;
use crate::tree::{Tree, TreeRoom};
use crate::walk::Dir;

pub use bodies::{BodySurvey, Orphan, Orphans};
pub use change::Relocation;
pub use lister::{Listed, Lister};
pub use mark::{SetLayout, SetMark};
pub use open::{Marks, OnMissing, STRIPE_FROM_BYTES, SameDevice, TargetDirs, Writing};
pub use rebalance::{Moved, Moving, Rebalance};
pub use rebuild::{LostFile, Rebuilding};
pub use replace::{CopyKind, OldTarget, ReplaceEnd, Replaced, Replacement};
pub use spread::SpreadTarget;
pub use verify::{Beginning, Verification, Verified, VerifyEnd};

/// A tree over one or more directories.
#[derive(Debug)]
pub struct TargetSet {
    /// The targets that are there, in order.
    targets: Vec<SetTarget>,
    /// The targets that are not.
    missing: Vec<MissingTarget>,
    /// The mark of the first target that is there. `None`: a plain tree, of one directory.
    mark: Option<SetMark>,
    on_missing: OnMissing,
    /// The rule for its striped files. `None`: its layout has none.
    striping: Option<Striping>,
    /// Held while a name is looked for on all targets and then given on one.
    naming: Mutex<()>,
    /// The open files that hold its lock, while it or a copy of it is used.
    locks: Arc<Vec<OwnedFd>>,
}

/// The rule for the striped files of a set.
#[derive(Clone, Debug)]
pub(crate) struct Striping {
    /// The set's striped files.
    pub(crate) stripes: Arc<Stripes>,
    /// Files of so many bytes and more are striped.
    pub(crate) from_bytes: u64,
}

/// A target of a set.
#[derive(Clone, Debug)]
pub(crate) struct SetTarget {
    /// Its number.
    pub(crate) id: TargetId,
    /// Its tree.
    pub(crate) tree: Arc<Tree>,
    /// Its load.
    pub(crate) load: Arc<TargetLoad>,
}

/// A target of a set that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTarget {
    /// Its number.
    pub id: TargetId,
    /// Its directory.
    pub dir: PathBuf,
    /// The reason why it is not used.
    pub why: String,
}

/// The room on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRoom {
    /// Its number.
    pub id: TargetId,
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes free on its file system, as this user may take them. `None`: not known.
    pub free_bytes: Option<u64>,
    /// Bytes that its file system has in all. `None`: not known.
    pub total_bytes: Option<u64>,
    /// Whether nothing can be written there.
    pub read_only: bool,
}

impl TargetSet {
    /// The set of one directory, which has no mark.
    pub fn plain(tree: Arc<Tree>) -> Arc<TargetSet> {
        let load = TargetLoad::of(TargetId::FIRST, tree.named());
        let target = SetTarget { id: TargetId::FIRST, tree, load };
        let (missing, on_missing) = (Vec::new(), OnMissing::Refuse);
        let (targets, naming) = (vec![target], Mutex::default());
        let locks = Arc::default();
        Arc::new(TargetSet { targets, missing, mark: None, on_missing, striping: None, naming, locks })
    }

    /// Trees as targets of a set, without marks.
    #[cfg(test)]
    pub(crate) fn together(trees: impl Iterator<Item = Arc<Tree>>) -> Arc<TargetSet> {
        let target = |(number, tree): (u32, Arc<Tree>)| {
            let id = TargetId(number);
            SetTarget { id, load: TargetLoad::of(id, tree.named()), tree }
        };
        let targets = (0..).zip(trees).map(target).collect();
        let (missing, on_missing) = (Vec::new(), OnMissing::Refuse);
        let (naming, locks) = (Mutex::default(), Arc::default());
        Arc::new(TargetSet { targets, missing, mark: None, on_missing, striping: None, naming, locks })
    }

    /// The same set with its targets behind an interposer.
    #[cfg(test)]
    pub(crate) fn behind(&self, kernel: &crate::kernel::Kernel) -> Arc<TargetSet> {
        let behind = |target: &SetTarget| {
            let tree = target.tree.behind(kernel);
            SetTarget {
                tree: self.striping.as_ref().map_or(tree.clone(), |it| tree.knowing(&it.stripes).expect("open")),
                ..target.clone()
            }
        };
        let (targets, striping, naming) =
            (self.targets.iter().map(behind).collect(), self.striping.clone(), Mutex::default());
        let (missing, mark, locks) = (self.missing.clone(), self.mark.clone(), Arc::clone(&self.locks));
        Arc::new(TargetSet { targets, missing, mark, on_missing: self.on_missing, striping, naming, locks })
    }

    /// Whether it is a set of several targets.
    pub fn is_set(&self) -> bool {
        self.mark.is_some()
    }

    /// Its mark, as its first target has it. `None` for a plain tree.
    pub fn mark(&self) -> Option<&SetMark> {
        self.mark.as_ref()
    }

    /// Its directories, as the operator named them, for people.
    pub fn shown(&self) -> String {
        let shown = |target: &SetTarget| Escaped(target.tree.named().as_os_str().as_encoded_bytes()).to_string();
        self.targets.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// Says in the log which targets are missing, if any are.
    pub fn log_missing(&self) {
        for MissingTarget { id, dir, why } in &self.missing {
            tracing::warn!(
                target: "longhaul::disk",
                number = id.0,
                dir = %dir.display(),
                why,
                "a target of the set is missing"
            );
        }
    }

    /// The error of something that may lie on a missing target. `None`: no target is missing.
    pub fn away(&self) -> Option<DiskError> {
        self.missing.first().map(|missing| SetError::Away { number: missing.id.0 }.into())
    }

    /// The targets that are missing.
    pub fn missing(&self) -> &[MissingTarget] {
        &self.missing
    }

    /// The room on each target that is there.
    pub fn rooms(&self) -> impl Iterator<Item = TargetRoom> {
        self.targets.iter().map(|target| {
            let TreeRoom { free_bytes, total_bytes, read_only } = target.tree.room();
            TargetRoom { id: target.id, dir: target.tree.named().to_owned(), free_bytes, total_bytes, read_only }
        })
    }

    /// The loads of its targets.
    pub fn loads(&self) -> impl Iterator<Item = &Arc<TargetLoad>> {
        self.targets.iter().map(|target| &target.load)
    }

    /// The targets that are there.
    pub(crate) fn targets(&self) -> &[SetTarget] {
        &self.targets
    }

    /// The tree of the first target that is there: directories of which none stands yet are made
    /// there.
    pub fn first(&self) -> &Arc<Tree> {
        &self.targets[0].tree
    }

    /// The shelf with the journals of sessions that write beneath this tree.
    pub fn shelf(&self) -> Shelf {
        let targets = || self.targets.iter().map(|target| (target.tree.root(), &target.load));
        match self.is_set() {
            true => Shelf::over(targets(), if self.missing.is_empty() { Reach::All } else { Reach::Some }),
            false => self.first().shelf(),
        }
    }

    /// The same set as far as the directory at `path` stands on a target: for a look that makes
    /// nothing.
    ///
    /// # Errors
    /// As [`Tree::stat`].
    pub fn standing_at(&self, path: &RelPath) -> Result<Arc<TargetSet>, DiskError> {
        let mut targets = Vec::new();
        for target in &self.targets {
            if matches!(stat_below(&target.tree, path)?, Some(Standing::Dir { .. })) {
                targets.push(target.clone());
            }
        }
        let (missing, mark) = (self.missing.clone(), self.mark.clone());
        let (on_missing, striping, naming) = (self.on_missing, self.striping.clone(), Mutex::default());
        let locks = Arc::clone(&self.locks);
        Ok(Arc::new(TargetSet { targets, missing, mark, on_missing, striping, naming, locks }))
    }

    /// Checks that the held directories are still the ones at their paths.
    ///
    /// # Errors
    /// [`DiskError::Moved`] if something was mounted over one, or another directory took its place.
    pub fn check_place(&self) -> Result<(), DiskError> {
        self.targets.iter().try_for_each(|target| target.tree.check_place())
    }

    /// The entry that stands at `path`. `None` if nothing does.
    ///
    /// # Errors
    /// [`DiskError::TwoTargets`] if it stands on two targets and is no directory on both; otherwise
    /// as [`Tree::stat`].
    pub fn stat(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        let found = one_of(&self.targets, path, |_, target| stat_below(&target.tree, path))?;
        Ok(found.map(|(_, standing)| standing))
    }

    /// Removes from the directory at `path` the temporaries that are orphans, on all targets: see
    /// [`Tree::sweep`].
    ///
    /// # Errors
    /// As [`Tree::stat`]; [`ErrorKind::NotFound`] if the directory stands on no target;
    /// [`DiskError::Set`] if a target is missing, where some may be left.
    pub fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        let mut swept = None;
        let mut absent = None;
        for target in &self.targets {
            match self.sweep_target(target, path, orphan) {
                Ok(count) => swept = Some(swept.unwrap_or(0) + count),
                Err(error) if error.kind() == ErrorKind::NotFound => absent = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (swept, absent) {
            _ if !self.missing.is_empty() => self.away().map_or(Ok(0), Err),
            (None, Some(error)) => Err(error),
            (swept, _) => Ok(swept.unwrap_or(0)),
        }
    }

    /// Removes orphans from the directory at `path` of one target, and the bodies of those that are
    /// striped files.
    fn sweep_target(
        &self,
        target: &SetTarget,
        path: &RelPath,
        orphan: &dyn Fn(&TempName) -> bool,
    ) -> Result<usize, DiskError> {
        let Some(striping) = &self.striping else { return target.tree.sweep(path, orphan) };
        let dir = target.tree.dir(path)?;
        let drafts = Drafts { set: self, stripes: &striping.stripes, found: RefCell::default() };
        let removed = target.tree.swept(path, &|temp| drafts.may_go(&dir, temp, orphan))?;
        drafts.remove(&removed);
        Ok(removed.len())
    }

    /// Each target that is there, with its directory of bodies. None for a set without striped
    /// files.
    pub(crate) fn bodies_there(&self) -> impl Iterator<Item = (&SetTarget, BorrowedFd<'_>)> {
        let there = self.striping.iter().flat_map(|striping| striping.stripes.there());
        there.filter_map(|(id, dir)| Some((self.targets.iter().find(|target| target.id == id)?, dir)))
    }

    /// The rule for its striped files. `None`: its layout has none.
    pub(crate) fn striping(&self) -> Option<&Striping> {
        self.striping.as_ref()
    }

    /// The lock under which a name is looked for on all targets and then given on one.
    pub(crate) fn naming(&self) -> MutexGuard<'_, ()> {
        self.naming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what a target that is not there may hold counts as nothing.
    pub(crate) fn goes_on_without(&self) -> bool {
        self.on_missing == OnMissing::Continue
    }

    /// Refuses a new name while a target is missing, unless new names may come all the same.
    pub(crate) fn need_all_for_new_names(&self) -> Result<(), DiskError> {
        match self.missing.first() {
            Some(missing) if self.on_missing != OnMissing::Continue => {
                Err(SetError::ReadOnly { number: missing.id.0 }.into())
            }
            _ => Ok(()),
        }
    }
}

/// The striped files among the temporaries of a directory that is being swept.
pub(crate) struct Drafts<'s> {
    set: &'s TargetSet,
    stripes: &'s Stripes,
    found: RefCell<Vec<TempName>>,
}

impl<'s> Drafts<'s> {
    /// The striped files of a set. `None`: its layout has none.
    pub(crate) fn of(set: &'s TargetSet) -> Option<Drafts<'s>> {
        Some(Drafts { set, stripes: &set.striping()?.stripes, found: RefCell::default() })
    }

    /// Whether a temporary may be removed. That of a striped file stays while a target is missing,
    /// which may hold a body, and where it cannot be read.
    pub(crate) fn may_go(&self, dir: &Dir, temp: &TempName, orphan: &dyn Fn(&TempName) -> bool) -> bool {
        orphan(temp)
            && match self.stripes.draft_at(dir, temp) {
                Ok(None) => true,
                Ok(Some(_)) => {
                    self.found.borrow_mut().push(*temp);
                    self.set.missing.is_empty()
                }
                Err(_) => false,
            }
    }

    /// Removes the bodies of those that were removed.
    pub(crate) fn remove(self, removed: &[TempName]) {
        self.found.into_inner().iter().filter(|id| removed.contains(id)).for_each(|id| remove_bodies(self.set, id));
    }
}

/// Removes the bodies of this id from all targets; none while a target is missing, and none that a
/// process is writing. One that stays is an orphan, which does no harm.
pub(crate) fn remove_bodies(set: &TargetSet, id: &TempName) {
    let Some(striping) = set.striping().filter(|_| set.missing.is_empty()) else { return };
    striping.stripes.forget(id);
    for (target, dir) in set.bodies_there() {
        // The removal would hang whoever commits.
        if target.load.condition() == TargetCondition::Hung {
            tracing::warn!(target: "longhaul::disk", number = target.id.0, %id, "a body that is not needed any more is left on a target that hangs");
            continue;
        }
        if let Err(error) = remove_idle(dir, target.tree.root().kernel(), id) {
            tracing::warn!(target: "longhaul::disk", %id, %error, "cannot remove a body of a striped file");
        }
    }
}

/// The entry at a path of one target. A link above it on this target is an error as everywhere; a
/// file above it means that nothing stands there.
pub(crate) fn stat_below(tree: &Tree, path: &RelPath) -> Result<Option<Standing>, DiskError> {
    match tree.stat(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
        outcome => outcome,
    }
}

/// The one entry among those that `look` finds at `path` on the targets, and the place of its
/// target among them: a directory may stand on several, anything else on one.
pub(crate) fn one_of(
    targets: &[SetTarget],
    path: &RelPath,
    look: impl Fn(usize, &SetTarget) -> Result<Option<Standing>, DiskError>,
) -> Result<Option<(usize, Standing)>, DiskError> {
    let mut first: Option<(usize, Standing)> = None;
    for (at, target) in targets.iter().enumerate() {
        let Some(standing) = look(at, target)? else { continue };
        match &first {
            None => first = Some((at, standing)),
            Some((_, before)) if is_dir(before) && is_dir(&standing) => {}
            Some((other, before)) => {
                let dirs = [before, &standing].into_iter().filter(|standing| is_dir(standing)).count();
                return Err(two_targets(path, (targets[*other].id, target.id), dirs));
            }
        }
    }
    Ok(first)
}

/// The error of a name that stands on two targets, on `dirs` of them as a directory.
pub(crate) fn two_targets(path: &RelPath, (first, second): (TargetId, TargetId), dirs: usize) -> DiskError {
    let what =
        if dirs > 0 { "a directory on one and something else on the other" } else { "either may be the right one" };
    DiskError::TwoTargets { path: path.into(), first: first.0, second: second.0, what }
}

fn is_dir(standing: &Standing) -> bool {
    matches!(standing, Standing::Dir { .. })
}
