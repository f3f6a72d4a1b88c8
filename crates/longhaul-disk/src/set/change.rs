//! Changes the targets of a set that stands: a target is added, is mounted elsewhere, or leaves.
//!
//! In: the directories of a set, which nobody else uses meanwhile. Out: marks of the next
//! generation on all targets, each durable before the next one is written. Marks of two generations
//! are a change that was interrupted: it is gone on with when the set is opened for a change again,
//! as the newer marks say all of it. Numbers of targets never change, as striped files tell them.
//! Moves no files, and knows no sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::names::each_name;
use crate::set::mark::{SetLayout, SetMark, give_own_dir};
use crate::set::open::{
    Coming, FoundTargets, Looked, TARGETS_MAX, agrees, look, need_empty, need_writable, opened, refuse_nested,
    refuse_same, with_coming,
};
use crate::set::{MissingTarget, OldTarget, SameDevice, SetTarget, TargetDirs, TargetSet, lock, making, secret};
use crate::tree::Tree;

use longhaul_core::limits::SET_DIR_NAME;
use longhaul_core::{TargetId, TempName};

/// A target that is mounted elsewhere now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The directory that its set knows.
    pub old: PathBuf,
    /// The directory where it is.
    pub new: PathBuf,
}

impl TargetDirs {
    /// The same set with the directories that the newest of its marks names. A directory that was
    /// named and has a mark is where it is, unless another one has taken its place.
    ///
    /// # Errors
    /// [`DiskError::Set`] if none of the directories has a mark that can be read.
    pub fn newest(&self) -> Result<TargetDirs, DiskError> {
        let mut known: Vec<(PathBuf, SetMark)> = Vec::new();
        let mut dirs = self.dirs.clone();
        let (mut unread, mut is_hinted) = (None, false);
        loop {
            for dir in dirs.iter().filter(|dir| known.iter().all(|(seen, _)| seen != *dir)).collect::<Vec<_>>() {
                match mark_at(dir) {
                    Ok(mark) => known.extend(mark.map(|mark| (dir.clone(), mark))),
                    // That of a target is read again; one that was replaced may be spoiled.
                    Err(error) => unread = unread.or(Some(error)),
                }
            }
            let Some((_, first)) = known.first() else {
                // A target that is replaced may have died when the new one has no mark yet.
                let coming = self.dirs.iter().find_map(|dir| coming_at(dir)).filter(|_| !is_hinted);
                if let Some(coming) = coming {
                    (dirs, is_hinted) = (coming.places, true);
                    continue;
                }
                let dir = self.dirs.first().map_or(Path::new(""), PathBuf::as_path).into();
                return Err(unread.unwrap_or_else(|| SetError::NoSet { dir }.into()));
            };
            let own = known.iter().map(|(_, mark)| mark).filter(|mark| mark.set == first.set);
            let newest = own.fold(first, |best, mark| if mark.generation > best.generation { mark } else { best });
            // Marks of a newer generation may lie on targets that an older one does not name.
            if newest.places.iter().all(|place| known.iter().any(|(dir, _)| dir == place) || dirs.contains(place)) {
                return Ok(TargetDirs { dirs: places_of(newest, &known), layout: newest.layout, ..self.clone() });
            }
            dirs = newest.places.clone();
        }
    }
}

/// The mark of a directory. `None` if it has none, or cannot be reached.
fn mark_at(dir: &Path) -> Result<Option<SetMark>, DiskError> {
    let read = Tree::open(dir).and_then(|tree| SetMark::read(tree.root(), &dir.into()));
    match read {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::Io) => {
            Ok(None)
        }
        outcome => outcome,
    }
}

/// The coming mark of a directory, which says where the set is.
fn coming_at(dir: &Path) -> Option<SetMark> {
    SetMark::read_coming(Tree::open(dir).ok()?.root(), &dir.into()).ok()?
}

/// Where the targets of the newest mark are: of the directories that have a mark of the set, and in
/// whose place no other one stands, the one with the newest for each target, else the place in the
/// mark.
fn places_of(newest: &SetMark, known: &[(PathBuf, SetMark)]) -> Vec<PathBuf> {
    let place = |(number, place): (u32, &PathBuf)| {
        let is_own = |dir: &Path, mark: &SetMark| {
            (mark.set, mark.number) == (newest.set, number) && !is_replaced(newest, dir, mark)
        };
        let own = known.iter().filter(|(dir, mark)| is_own(dir, mark));
        // The first of those with the same generation: the operator's own.
        let best = own.reduce(|best, one| if one.1.generation > best.1.generation { one } else { best });
        best.map_or_else(|| place.clone(), |(dir, _)| dir.clone())
    };
    (0..).zip(&newest.places).map(place).collect()
}

/// Whether another directory has the place of the target at `dir` by the newest mark: a replacement
/// is past its commit point. The older mark that is left at `dir` must never become a newer one, as
/// what lies there may be spoiled by now, and the other directory has all of it.
fn is_replaced(newest: &SetMark, dir: &Path, mark: &SetMark) -> bool {
    let (Some(known), Some(place)) = (mark.places.get(mark.number as usize), newest.places.get(mark.number as usize))
    else {
        return false;
    };
    if mark.generation >= newest.generation || is_same_dir(dir, place) {
        return false;
    }
    // Without either it was mounted elsewhere while another change was interrupted.
    known != place || is_to_be(place, &newest.of(mark.number))
}

/// Whether two paths lead to one directory.
fn is_same_dir(first: &Path, second: &Path) -> bool {
    let place = |dir: &Path| Tree::open(dir).ok().map(|tree| tree.root().place());
    let whole = |dir: &Path| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    whole(first) == whole(second) || place(first).is_some_and(|first| Some(first) == place(second))
}

/// Whether the directory at `place` has this mark, or is to have it.
fn is_to_be(place: &Path, mark: &SetMark) -> bool {
    [mark_at(place).ok().flatten(), coming_at(place)].iter().flatten().any(|found| found == mark)
}

impl TargetSet {
    /// Opens a set that nobody else uses, to change its targets or to move its files. A change or a
    /// move that was interrupted is finished before that.
    ///
    /// # Errors
    /// As [`TargetSet::open`]; [`DiskError::Set`] if a target is missing or the set is in use.
    pub fn open_alone(named: &TargetDirs) -> Result<Arc<TargetSet>, DiskError> {
        TargetSet::open_alone_but(named, None)
    }

    /// The same for a target that is to be replaced: it need not be writable, and if it is lost, it
    /// need not be there.
    ///
    /// # Errors
    /// As [`TargetSet::open_alone`]; [`SetError::Present`] if it is there and should be lost.
    pub fn open_to_replace(named: &TargetDirs, (old, state): (&Path, OldTarget)) -> Result<Arc<TargetSet>, DiskError> {
        TargetSet::open_alone_but(named, Some((old, state)))
    }

    fn open_alone_but(named: &TargetDirs, spared: Option<(&Path, OldTarget)>) -> Result<Arc<TargetSet>, DiskError> {
        let named = named.newest()?;
        let whole = |dir: &Path| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let is_spared = |dir: &Path| spared.is_some_and(|(old, _)| whole(old) == whole(dir));
        let is_lost = spared.is_some_and(|(_, state)| state == OldTarget::Lost);
        refuse_nested(&named.dirs)?;
        let (found, mut missing) = look(&named.dirs)?;
        let found = with_newest_coming(found)?;
        let (found, bare): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, looked)| looked.mark.is_some());
        missing.extend(bare.into_iter().map(|(id, looked)| MissingTarget {
            id,
            dir: looked.dir.to_owned(),
            why: "it has no mark".to_owned(),
        }));
        if let Some(MissingTarget { dir, why, .. }) = missing.iter().find(|one| !is_lost || !is_spared(&one.dir)) {
            return Err(SetError::Absent { dir: dir.as_path().into(), why: why.clone() }.into());
        }
        if let Some((_, Looked { dir, .. })) = found.iter().find(|(_, looked)| is_lost && is_spared(looked.dir)) {
            return Err(SetError::Present { dir: (*dir).into() }.into());
        }
        refuse_same(&found, SameDevice::Allowed)?;
        let mut locks = Vec::new();
        for (_, looked) in &found {
            let held = need_writable(looked).and_then(|()| lock::hold(looked.tree.root(), &looked.dir.into()));
            match held {
                Ok(lock) => locks.push(lock),
                // Whoever uses the set holds the locks of all other targets as well.
                Err(DiskError::Set(SetError::NotWritable { .. })) if is_spared(looked.dir) => {}
                Err(error) => return Err(error),
            }
        }
        // Only now do they stay as they are.
        let found = found.into_iter().map(read_again).collect::<Result<FoundTargets<'_>, _>>()?;
        let found = with_newest_coming(found)?;
        let mark = finish_marks(&found)?;
        let set = opened((found, missing), Some(mark), &named, locks)?;
        set.settle_moves()?;
        Ok(set)
    }

    /// Adds an empty directory as the last target. If that was interrupted before, it is gone on
    /// with.
    ///
    /// # Errors
    /// [`DiskError::Set`] with the reason why it cannot be a target; the system's error.
    pub fn add_target(&self, new: &Path, same_device: SameDevice) -> Result<(), DiskError> {
        let (mark, shown) = (self.known_mark()?, PathText::from(new));
        let place = std::path::absolute(new).unwrap_or_else(|_| new.to_owned());
        let tree = Tree::open_like(new, self.first())?;
        let next = mark.next([&mark.places[..], &[place]].concat());
        let number = mark.count();
        match SetMark::read(tree.root(), &shown)? {
            None => {}
            Some(theirs) if theirs.set != mark.set => {
                let (theirs, ours) = (theirs.set.to_string(), mark.set.to_string());
                return Err(SetError::OtherSet { dir: shown, theirs, ours }.into());
            }
            // It was finished when the set was opened, or before.
            Some(theirs) if theirs.generation == mark.generation && self.has_top(&tree) => return Ok(()),
            Some(theirs) if theirs == next.of(number) => {}
            Some(_) => return Err(SetError::Former { dir: shown }.into()),
        }
        if next.places.len() > TARGETS_MAX {
            return Err(SetError::Count { count: next.places.len(), max: TARGETS_MAX }.into());
        }
        let mut all: Vec<PathBuf> = self.targets.iter().map(|target| target.tree.named().to_owned()).collect();
        all.push(new.to_owned());
        refuse_nested(&all)?;
        let looked = |(id, dir, tree)| (id, Looked { dir, tree, mark: None });
        let standing = self.targets.iter().map(|target| (target.id, target.tree.named(), target.tree.clone()));
        let mut found: FoundTargets<'_> = standing.map(looked).collect();
        found.push(looked((TargetId(number), new, tree.clone())));
        refuse_same(&found, same_device)?;
        found.iter().try_for_each(|(_, looked)| need_writable(looked))?;
        found.last().map_or(Ok(()), |(_, looked)| need_empty(looked))?;
        // What is left of a set that was not made in the end.
        making::give_up(tree.root(), &shown)?;
        if mark.layout == SetLayout::Stripe {
            let first = self.first();
            secret::copy(tree.root(), &shown, &secret::read(first.root(), &first.named().into())?)?;
        }
        // The new one first: as long as no other has the new mark, the set is what it was.
        next.of(number).write(tree.root(), &shown)?;
        let given = give_own_dir(tree.root(), self.first().root());
        given.map_err(|error| DiskError::call("give the set's own files to the owner of the set at", &shown, error))?;
        self.write_marks(&next)
    }

    /// Writes down where targets are mounted now.
    ///
    /// # Errors
    /// [`DiskError::Set`] if a target is not the one that stood at its old place; the system's
    /// error.
    pub fn relocate_targets(&self, moved: &[Relocation]) -> Result<(), DiskError> {
        let mark = self.known_mark()?;
        let mut places = mark.places.clone();
        for Relocation { old, new } in moved {
            let target = self.targets.iter().find(|target| target.tree.named() == new);
            let target = target.ok_or_else(|| SetError::NoTarget { dir: new.as_path().into() })?;
            let [old, place] = [old, new].map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone()));
            let known = &mark.places[target.id.0 as usize];
            // One that is there already was written down before, unless another one stands at the
            // old place and stays there.
            let is_done = *known == place
                && (!mark.places.contains(&old)
                    || moved.iter().any(|one| std::path::absolute(&one.new).is_ok_and(|new| new == old)));
            if *known != old && !is_done {
                let (dir, named) = (new.as_path().into(), old.as_path().into());
                return Err(SetError::OtherTarget { dir, place: known.as_path().into(), named }.into());
            }
            places[target.id.0 as usize] = place;
        }
        if places == mark.places { Ok(()) } else { self.write_marks(&mark.next(places)) }
    }

    /// Takes the last target from the set, which has to be empty.
    ///
    /// # Errors
    /// [`DiskError::Set`] if it is not the last one, or holds anything; the system's error.
    pub fn retire_target(&self, dir: &Path) -> Result<(), DiskError> {
        let (mark, shown) = (self.known_mark()?, PathText::from(dir));
        let tree = Tree::open_like(dir, self.first())?;
        let Some(target) = self.targets.iter().find(|target| target.tree.root().place() == tree.root().place()) else {
            return match SetMark::read(tree.root(), &shown)? {
                // The others have their new marks since an earlier call.
                Some(left) if left.set == mark.set && left.number >= mark.count() => {
                    need_nothing(&tree, &shown)?;
                    SetMark::remove(tree.root(), &shown)
                }
                _ => Err(SetError::NoTarget { dir: shown }.into()),
            };
        };
        let (number, count) = (target.id.0, mark.count());
        if number + 1 != count {
            return Err(SetError::NotLast { dir: shown, number, count }.into());
        }
        if count <= 2 {
            return Err(SetError::Count { count: 1, max: TARGETS_MAX }.into());
        }
        need_nothing(&target.tree, &shown)?;
        let next = mark.next(mark.places[..number as usize].to_vec());
        self.write_marks(&next)?;
        SetMark::remove(target.tree.root(), &shown)
    }

    /// Writes the next marks to the targets that they name, one after the other.
    fn write_marks(&self, next: &SetMark) -> Result<(), DiskError> {
        for SetTarget { id, tree, .. } in self.targets.iter().filter(|target| target.id.0 < next.count()) {
            next.of(id.0).write(tree.root(), &tree.named().into())?;
        }
        tracing::info!(set = %next.set, targets = next.count(), generation = next.generation, "a target set was changed");
        Ok(())
    }

    /// Its mark. A plain tree has none.
    pub(super) fn known_mark(&self) -> Result<&SetMark, DiskError> {
        self.mark.as_ref().ok_or_else(|| SetError::NoSet { dir: self.first().named().into() }.into())
    }

    fn has_top(&self, tree: &Tree) -> bool {
        self.targets.iter().any(|target| target.tree.root().place() == tree.root().place())
    }
}

impl SetMark {
    /// The mark of the next generation, with these places.
    pub(super) fn next(&self, places: Vec<PathBuf>) -> SetMark {
        SetMark { generation: self.generation.saturating_add(1), places, ..self.clone() }
    }

    /// The mark of another target in the same words.
    pub(super) fn of(&self, number: u32) -> SetMark {
        SetMark { number, ..self.clone() }
    }
}

/// The same directory with its mark as it is now.
fn read_again((id, looked): (TargetId, Looked<'_>)) -> Result<(TargetId, Looked<'_>), DiskError> {
    let mark = SetMark::read(looked.tree.root(), &looked.dir.into())?;
    Ok((id, Looked { mark, ..looked }))
}

/// The same directories, with the coming marks of those without one that are in the words of the
/// newest mark.
fn with_newest_coming(found: FoundTargets<'_>) -> Result<FoundTargets<'_>, DiskError> {
    let newest = found.iter().filter_map(|(_, looked)| looked.mark.clone()).max_by_key(|mark| mark.generation);
    match newest {
        Some(newest) => with_coming(found, &newest, Coming::Seen),
        None => Ok(found),
    }
}

/// Brings the marks of all targets to the newest generation, if they are not. Returns the first.
fn finish_marks(found: &FoundTargets<'_>) -> Result<SetMark, DiskError> {
    let marked = || found.iter().filter_map(|(id, looked)| Some((id, looked, looked.mark.as_ref()?)));
    let best = marked().max_by_key(|(_, _, mark)| mark.generation);
    let Some((_, first, best)) = best.filter(|_| marked().count() == found.len()) else {
        let dir = found.iter().find(|(_, looked)| looked.mark.is_none()).map(|(_, looked)| looked.dir);
        return Err(SetError::NoSet { dir: dir.unwrap_or(Path::new("")).into() }.into());
    };
    let fits = |mark: &SetMark| match mark.generation == best.generation {
        true => (mark.layout, &mark.places) == (best.layout, &best.places),
        false => mark.generation.checked_add(1) == Some(best.generation) && mark.layout == best.layout,
    };
    for (id, looked, mark) in marked() {
        agrees(best, *id, looked)?;
        // It was a target when its directory was looked for, before the locks were held.
        if is_replaced(best, looked.dir, mark) {
            return Err(SetError::Changing { dir: looked.dir.into() }.into());
        }
        if !fits(mark) {
            let (first, second) = (first.dir.into(), looked.dir.into());
            return Err(SetError::Generations { first, second, one: best.generation, other: mark.generation }.into());
        }
    }
    for (id, looked, mark) in marked() {
        if mark.generation != best.generation {
            best.of(id.0).write(looked.tree.root(), &looked.dir.into())?;
        }
        // What was seen is only a coming one.
        if SetMark::read(looked.tree.root(), &looked.dir.into())?.is_none() {
            making::finish(&best.of(id.0), looked)?;
        }
    }
    Ok(best.of(0))
}

/// Refuses a target that holds any name, journal or body.
fn need_nothing(tree: &Tree, shown: &PathText) -> Result<(), DiskError> {
    let failed = |error| DiskError::call("list", shown, error);
    let mut standing = None;
    each_name(tree.root().readable().map_err(failed)?, |name| {
        // A new ext4 has the first of these.
        if standing.is_none() && name != b"lost+found" && name != SET_DIR_NAME {
            standing = Some(PathText::from(name));
        }
    })
    .map_err(failed)?;
    if let Some(bodies) = secret::listed_bodies(tree.root()).map_err(failed)? {
        each_name(bodies, |name| {
            if standing.is_none() && TempName::parse(name).is_some() {
                standing = Some(PathText::from(name));
            }
        })
        .map_err(failed)?;
    }
    standing.map_or(Ok(()), |name| Err(SetError::Holds { dir: shown.clone(), name }.into()))
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
