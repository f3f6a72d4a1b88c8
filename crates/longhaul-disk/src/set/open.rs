//! Opens the directories of a set, and makes sure that they are the set: the right disks, in their
//! places, each there once.
//!
//! In: [`TargetDirs`]. Out: a [`TargetSet`]; nothing is written unless marks
//! are to be made, and then only once everything else was found right. Knows nothing of the files.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use longhaul_core::TargetId;
use longhaul_core::limits::SET_DIR_NAME;
use rustix::fs::{Access, AtFlags, StatVfsMountFlags, accessat, fstatvfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::load::{Membership, SetHealth, TargetCondition, TargetLoad};
use crate::names::each_name;
use crate::set::lock::LockFile;
use crate::set::making::MakingEnd;
use crate::set::mark::{SetLayout, SetMark};
use crate::set::moves::is_moving;
use crate::set::{MissingTarget, SetTarget, Striping, TargetSet, lock, making, probe, secret};
use crate::set_id::SetId;
use crate::stripe::{BodyDir, SetKey, Stripes};
use crate::tree::Tree;

/// The use of a set of which a target is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnMissing {
    /// It is not used.
    Refuse,
    /// The names on the other targets are read, and unfinished files there may be finished. No new
    /// name is given.
    #[default]
    ReadOnly,
    /// It is used as if the missing target held nothing.
    Continue,
}

/// Whether targets may lie on one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SameDevice {
    /// They may not.
    #[default]
    Refused,
    /// They may.
    Allowed,
}

/// Whether directories without marks become a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marks {
    /// They do, if none of them has a mark: the marks are written.
    Made,
    /// They would, and nothing is written: for a look at what would happen.
    Imagined,
    /// They do not.
    Needed,
}

/// Whether a set is going to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writing {
    /// It is: a target that cannot be written to is refused.
    Wanted,
    /// It is only read.
    Never,
}

/// The directories of a destination or of a served root, and the operator's rules for them if they
/// are several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetDirs {
    /// The directories, in the order of their numbers: one, or 2 to 1024 that are a set.
    pub dirs: Vec<PathBuf>,
    /// The layout of a new set. A set that stands must have the same.
    #[serde(default)]
    pub layout: SetLayout,
    /// Its use while a target is missing.
    #[serde(default)]
    pub on_missing: OnMissing,
    /// Whether targets may lie on one file system.
    #[serde(default)]
    pub same_device: SameDevice,
    /// Files of so many bytes and more are striped, where the layout is [`SetLayout::Stripe`].
    #[serde(default = "stripe_from_bytes")]
    pub stripe_from: u64,
}

fn stripe_from_bytes() -> u64 {
    STRIPE_FROM_BYTES
}

impl TargetDirs {
    /// One directory.
    pub fn one(dir: impl Into<PathBuf>) -> TargetDirs {
        TargetDirs::set(vec![dir.into()])
    }

    /// Several directories, under the default rules.
    pub fn set(dirs: Vec<PathBuf>) -> TargetDirs {
        let (layout, on_missing) = (SetLayout::default(), OnMissing::default());
        TargetDirs { dirs, layout, on_missing, same_device: SameDevice::default(), stripe_from: STRIPE_FROM_BYTES }
    }
}

/// A directory that was named, looked at.
pub(super) struct Looked<'d> {
    /// It, as the operator named it.
    pub(super) dir: &'d Path,
    /// Its tree.
    pub(super) tree: Arc<Tree>,
    /// Its mark. `None`: it has none.
    pub(super) mark: Option<SetMark>,
}

/// The directories that can be reached, in order, with their numbers.
pub(super) type FoundTargets<'d> = Vec<(TargetId, Looked<'d>)>;

impl TargetDirs {
    /// The directories of the set that `dir` is a target of, as its mark says.
    ///
    /// # Errors
    /// [`DiskError::Set`] if it has no mark, or one that cannot be read.
    pub fn of_target(dir: &Path) -> Result<TargetDirs, DiskError> {
        let shown = PathText::from(dir);
        let mark = SetMark::read(Tree::open(dir)?.root(), &shown)?.ok_or(SetError::NoSet { dir: shown })?;
        let mut dirs = mark.places;
        // It is where it is, wherever it was when the set was made.
        dirs[mark.number as usize] = dir.to_owned();
        Ok(TargetDirs { layout: mark.layout, ..TargetDirs::set(dirs) })
    }
}

impl TargetSet {
    /// Opens the set of these directories, in the order of their numbers. One directory is a plain
    /// tree.
    ///
    /// # Errors
    /// [`DiskError::Set`] with the reason why they are not a set, or may not be used as one; the
    /// system's error.
    pub fn open(named: &TargetDirs, marks: Marks, writing: Writing) -> Result<Arc<TargetSet>, DiskError> {
        let dirs = &named.dirs;
        if let [dir] = dirs.as_slice() {
            return Tree::open(dir).map(TargetSet::plain);
        }
        if !(2..=TARGETS_MAX).contains(&dirs.len()) {
            return Err(SetError::Count { count: dirs.len(), max: TARGETS_MAX }.into());
        }
        refuse_nested(dirs)?;
        let (found, mut missing) = look(dirs)?;
        let Some(ours) = found.iter().find_map(|(_, looked)| looked.mark.clone()) else {
            return begin(&found, &missing, (named, marks, writing));
        };
        let is_made = (marks, writing) == (Marks::Made, Writing::Wanted);
        let found = with_coming(found, &ours, if is_made { Coming::Made } else { Coming::Seen })?;
        // A directory without a mark where others have one: no disk is mounted there, or a new one.
        let (found, bare): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, looked)| looked.mark.is_some());
        missing.extend(bare.into_iter().map(|(id, looked)| {
            let why = "it has no mark: its disk is not mounted, or another one is mounted in its place".to_owned();
            MissingTarget { id, dir: looked.dir.to_owned(), why }
        }));
        missing.sort_by_key(|target| target.id);
        found.iter().try_for_each(|(id, looked)| agrees(&ours, *id, looked))?;
        one_generation(&found)?;
        found.iter().try_for_each(|(_, looked)| has_count(looked, dirs.len()))?;
        refuse_same(&found, named.same_device)?;
        if writing == Writing::Wanted && marks != Marks::Imagined && missing.is_empty() {
            end_moves(&found, named);
        }
        let file = if is_made { LockFile::Made } else { LockFile::Found };
        let mut locks = Vec::new();
        for (_, looked) in &found {
            locks.extend(lock::share(looked.tree.root(), &looked.dir.into(), file)?);
        }
        // Only now do they stay as they are.
        found.iter().try_for_each(|(id, looked)| unchanged(*id, looked, &ours))?;
        if is_made {
            // What an interruption has left beside the mark says nothing any more.
            let forget = |looked: &Looked<'_>| SetMark::forget_coming(looked.tree.root(), &looked.dir.into());
            found.iter().for_each(|(_, looked)| _ = forget(looked));
        }
        if let (OnMissing::Refuse, Some(MissingTarget { dir, why, .. })) = (named.on_missing, missing.first()) {
            return Err(SetError::Missing { dir: dir.as_path().into(), why: why.clone() }.into());
        }
        if writing == Writing::Wanted {
            let health = SetHealth::of(ours.set);
            let is_well = |id: &TargetId| health.condition(*id, Instant::now()) != TargetCondition::Failed;
            // One that failed while this process used it takes nothing, and keeps no other from it.
            found.iter().filter(|(id, _)| is_well(id)).try_for_each(|(_, looked)| need_writable(looked))?;
        }
        opened((found, missing), Some(ours), named, locks)
    }
}

/// Ends a move of a file that was interrupted, so that its name does not stand twice. If somebody
/// else uses the set, that is not possible: such a name is refused as any that stands twice.
fn end_moves(found: &FoundTargets<'_>, named: &TargetDirs) {
    if found.iter().any(|(_, looked)| is_moving(looked.tree.root()))
        && let Err(error) = TargetSet::open_alone(named)
    {
        tracing::warn!(target: "longhaul::disk", %error, "a move between targets was interrupted and cannot be ended now");
    }
}

/// The use of a coming mark that counts as a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    /// It becomes one.
    Made,
    /// It is taken for one.
    Seen,
}

/// The same targets, with the marks of those that have only a coming one in the words of the
/// others: the making or changing of the set was interrupted.
pub(super) fn with_coming<'d>(
    found: FoundTargets<'d>,
    ours: &SetMark,
    coming: Coming,
) -> Result<FoundTargets<'d>, DiskError> {
    let known = |(id, looked): (TargetId, Looked<'d>)| {
        if looked.mark.is_some() {
            return Ok((id, looked));
        }
        let mark = making::coming(ours, id, &looked)?;
        if let (Some(mark), Coming::Made) = (&mark, coming) {
            making::finish(mark, &looked)?;
        }
        Ok((id, Looked { mark, ..looked }))
    };
    found.into_iter().map(known).collect()
}

/// Checks that the mark of a target is still the one that was read before it was locked.
fn unchanged(id: TargetId, looked: &Looked<'_>, ours: &SetMark) -> Result<(), DiskError> {
    let dir = PathText::from(looked.dir);
    let mark = SetMark::read(looked.tree.root(), &dir)?;
    if mark == looked.mark || (mark.is_none() && making::coming(ours, id, looked)? == looked.mark) {
        return Ok(());
    }
    Err(SetError::Changing { dir }.into())
}

/// Looks at each directory. One that cannot be reached is missing.
pub(super) fn look(dirs: &[PathBuf]) -> Result<(FoundTargets<'_>, Vec<MissingTarget>), DiskError> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (id, dir) in (0..).map(TargetId).zip(dirs) {
        match Tree::open(dir) {
            Ok(tree) => {
                match SetMark::read(tree.root(), &dir.as_path().into()) {
                    Ok(mark) => found.push((id, Looked { dir, tree, mark })),
                    // A disk that has died may still be mounted.
                    Err(error) if error.kind() == ErrorKind::Io => {
                        missing.push(MissingTarget { id, dir: dir.clone(), why: error.fault().message.to_string() });
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::Io) => {
                missing.push(MissingTarget { id, dir: dir.clone(), why: error.fault().message.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    Ok((found, missing))
}

/// Refuses a directory that is named twice, and two on one file system unless that is allowed.
pub(super) fn refuse_same(found: &[(TargetId, Looked<'_>)], same_device: SameDevice) -> Result<(), DiskError> {
    let mut by_device: HashMap<u64, &Looked<'_>> = HashMap::new();
    let mut by_place: HashMap<(u64, u64), ()> = HashMap::new();
    for (_, looked) in found {
        let root = looked.tree.root();
        if by_place.insert(root.place(), ()).is_some() {
            return Err(SetError::NamedTwice { dir: looked.dir.into() }.into());
        }
        if let Some(other) = by_device.insert(root.dev(), looked)
            && same_device == SameDevice::Refused
        {
            return Err(SetError::SameDevice { first: other.dir.into(), second: looked.dir.into() }.into());
        }
    }
    Ok(())
}

/// Refuses a target that lies in another one.
pub(super) fn refuse_nested(dirs: &[PathBuf]) -> Result<(), DiskError> {
    let whole = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    let whole: Vec<PathBuf> = dirs.iter().map(whole).collect();
    for inner in &whole {
        if let Some(outer) = whole.iter().find(|outer| *outer != inner && inner.starts_with(outer)) {
            return Err(SetError::Nested { inner: inner.as_path().into(), outer: outer.as_path().into() }.into());
        }
    }
    Ok(())
}

/// Makes a set of directories of which none has a mark.
fn begin(
    found: &[(TargetId, Looked<'_>)],
    missing: &[MissingTarget],
    (named, marks, writing): (&TargetDirs, Marks, Writing),
) -> Result<Arc<TargetSet>, DiskError> {
    refuse_same(found, named.same_device)?;
    if let Some(MissingTarget { dir, why, .. }) = missing.first() {
        return Err(SetError::Missing { dir: dir.as_path().into(), why: why.clone() }.into());
    }
    if let (Marks::Needed, Some((_, looked))) = (marks, found.first()) {
        return Err(SetError::NoSet { dir: looked.dir.into() }.into());
    }
    for (id, looked) in found {
        need_writable(looked)?;
        if *id != TargetId::FIRST {
            need_empty(looked)?;
        }
    }
    if marks == Marks::Made {
        // Whoever made it: it is opened as any other.
        return match making::make(found, named)? {
            MakingEnd::Now => TargetSet::open(named, Marks::Needed, writing),
            MakingEnd::Elsewhere => TargetSet::open(named, marks, writing),
        };
    }
    let set = SetId::new().map_err(|error| DiskError::call("name a set at", found[0].1.dir, error))?;
    let places: Vec<PathBuf> = named.dirs.iter().map(|dir| std::path::absolute(dir).unwrap_or(dir.clone())).collect();
    // What it would be has no striped files yet.
    let mark = SetMark { set, layout: SetLayout::Spread, generation: 1, number: 0, places };
    let found = found.iter().map(|(id, looked)| (*id, Looked { tree: looked.tree.clone(), mark: None, ..*looked }));
    opened((found.collect(), Vec::new()), Some(mark), named, Vec::new())
}

/// Checks that a target is the one of the set that its place says.
pub(super) fn agrees(ours: &SetMark, id: TargetId, looked: &Looked<'_>) -> Result<(), DiskError> {
    let (dir, Some(mark)) = (|| PathText::from(looked.dir), &looked.mark) else { return Ok(()) };
    if mark.set != ours.set {
        return Err(SetError::OtherSet { dir: dir(), theirs: mark.set.to_string(), ours: ours.set.to_string() }.into());
    }
    if mark.number != id.0 {
        return Err(SetError::OtherPlace { dir: dir(), number: mark.number, place: id.0 }.into());
    }
    Ok(())
}

/// Checks that all targets were named.
fn has_count(looked: &Looked<'_>, named: usize) -> Result<(), DiskError> {
    match looked.mark.as_ref().map(SetMark::count).filter(|count| *count as usize != named) {
        Some(count) => Err(SetError::OtherCount { dir: looked.dir.into(), count, named: named as u32 }.into()),
        None => Ok(()),
    }
}

fn one_generation(found: &[(TargetId, Looked<'_>)]) -> Result<(), DiskError> {
    let marked = || found.iter().filter_map(|(_, looked)| Some((looked, looked.mark.as_ref()?)));
    let Some((first, mark)) = marked().next() else { return Ok(()) };
    let says = |mark: &SetMark| (mark.generation, mark.layout, mark.places.clone());
    match marked().find(|(_, other)| says(other) != says(mark)) {
        None => Ok(()),
        Some((second, other)) => Err(SetError::Generations {
            first: first.dir.into(),
            second: second.dir.into(),
            one: mark.generation,
            other: other.generation,
        }
        .into()),
    }
}

/// Refuses a target that cannot be written to.
pub(super) fn need_writable(looked: &Looked<'_>) -> Result<(), DiskError> {
    let root = looked.tree.root();
    let read_only = fstatvfs(root.as_ref()).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY));
    let access = match read_only {
        true => Err(Errno::ROFS),
        false => accessat(root.as_ref(), ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS),
    };
    let why =
        |error: Errno| SetError::NotWritable { dir: looked.dir.into(), why: std::io::Error::from(error).to_string() };
    access.map_err(|error| why(error).into())
}

/// Refuses a directory in which names stand already, or journals and temporaries of transfers that
/// are no part of the set.
pub(super) fn need_empty(looked: &Looked<'_>) -> Result<(), DiskError> {
    let failed = |error| DiskError::call("list", looked.dir, error);
    let mut standing = None;
    let names = looked.tree.root().readable().map_err(failed)?;
    each_name(names, |name| {
        // A new ext4 has the first of these.
        if standing.is_none() && name != b"lost+found" && name != SET_DIR_NAME {
            standing = Some(PathText::from(name));
        }
    })
    .map_err(failed)?;
    standing.map_or(Ok(()), |name| Err(SetError::NotEmpty { dir: looked.dir.into(), name }.into()))
}

/// The set of these targets, which holds `locks` as long as it is open.
pub(super) fn opened(
    (found, missing): (FoundTargets<'_>, Vec<MissingTarget>),
    mark: Option<SetMark>,
    named: &TargetDirs,
    locks: Vec<OwnedFd>,
) -> Result<Arc<TargetSet>, DiskError> {
    let striping = match &mark {
        Some(mark) if mark.layout == SetLayout::Stripe => {
            let stripes = Arc::new(stripes_of(mark, &found, &missing)?);
            Some(Striping { stripes, from_bytes: named.stripe_from })
        }
        _ => None,
    };
    let (there, set) = (found.len(), mark.as_ref().map(|mark| mark.set));
    let target = |(id, Looked { dir, tree, .. }): (TargetId, Looked<'_>)| {
        let load = match set {
            Some(set) => TargetLoad::in_set(id, dir, Membership::new(set, there, probe::of(&tree, set, id))),
            None => TargetLoad::of(id, dir),
        };
        let tree = striping.as_ref().map_or(Ok(Arc::clone(&tree)), |known| tree.knowing(&known.stripes))?;
        Ok(SetTarget { id, tree, load })
    };
    let targets = found.into_iter().map(target).collect::<Result<_, DiskError>>()?;
    let (on_missing, naming, locks) = (named.on_missing, Mutex::default(), Arc::new(locks));
    Ok(Arc::new(TargetSet { targets, missing, mark, on_missing, striping, naming, locks }))
}

/// The striped files of a set: its secret, which is the same on all targets, and the directories of
/// bodies.
fn stripes_of(
    mark: &SetMark,
    found: &[(TargetId, Looked<'_>)],
    missing: &[MissingTarget],
) -> Result<Stripes, DiskError> {
    let mut known = None;
    let mut dirs = Vec::new();
    for (id, looked) in found {
        let shown = PathText::from(looked.dir);
        let secret = secret::read(looked.tree.root(), &shown)?;
        if *known.get_or_insert(secret) != secret {
            let why = "it is another than that of the first target".to_owned();
            return Err(SetError::BadSecret { dir: shown, why }.into());
        }
        let dir = secret::open_bodies(looked.tree.root());
        let dir = Some(dir.map_err(|error| DiskError::call("open the bodies of", looked.dir, error))?);
        dirs.push(BodyDir { target: *id, named: looked.dir.to_owned(), dir });
    }
    let away = missing.iter().map(|target| BodyDir { target: target.id, named: target.dir.clone(), dir: None });
    dirs.extend(away);
    let secret = known.ok_or_else(|| DiskError::call("find", mark.places[0].as_path(), Errno::NOENT))?;
    Ok(Stripes::new(SetKey::new(mark.set, secret), dirs))
}

/// Targets of a set at most. Each is a disk; the largest shelves have some hundred.
pub(super) const TARGETS_MAX: usize = 1024;
/// The length from which files are striped, unless the operator says another: 64 MiB. A shorter one
/// is written by one disk before several would have begun.
pub const STRIPE_FROM_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests;
