//! [`FsSource`]: directories or files of a file system, each held by its directory from the start.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::{Losses, PathError, RelPath, TargetId};
use rustix::io::Errno;

use crate::direct::DirectMode;
use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::names::each_name;
use crate::set::{SetTarget, TargetSet};
use crate::source::bases::{Base, BaseId, Bases, HELD_MAX};
use crate::source::extras::SourceLosses;
use crate::source::names::SourceNames;
use crate::source::read::open_checked;
use crate::source::same_name::{self, HASHES_MAX, SameName};
use crate::source::scan::{Scan, ScanPart};
use crate::source::shape::{self, Shape};
use crate::source::{ScanRequest, Scanned, SmallFile, SourceFile, SourceRef, SourceTree};
use crate::stat::Identity;
use crate::sysfs::Media;
use crate::walk::Walk;

/// A source as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// The path, without trailing slashes.
    pub path: PathBuf,
    /// Whether it was named with a trailing slash: then the content of the directory (followed if
    /// it is a link) is sent, not the directory itself.
    pub contents: bool,
}

/// Sources in a file system. Nothing beneath a source is reached through a symbolic link.
pub struct FsSource {
    pub(super) tops: Vec<Top>,
    bases: Bases,
    direct: DirectMode,
    /// Whether reading without touching access times is still tried: it was never refused yet.
    noatime: AtomicBool,
    /// The kinds of the devices that sources lie on.
    pub(super) media: Media,
    losses: SourceLosses,
}

/// One source: the directory that its paths are resolved beneath, on each target if it lies in a
/// set, and the part of it that is sent.
pub(super) struct Top {
    bases: Vec<(TargetId, BaseId)>,
    /// The number of a target that is missing. `None`: all are there.
    away: Option<u32>,
    kind: What,
}

/// The directory that a source is resolved beneath, on each target.
struct OnTargets {
    on: Vec<(TargetId, Base)>,
    /// The number of a target that is missing. `None`: all are there.
    away: Option<u32>,
}

impl From<Base> for OnTargets {
    fn from(base: Base) -> OnTargets {
        OnTargets { on: vec![(TargetId::FIRST, base)], away: None }
    }
}

/// The part of a directory that is sent.
enum What {
    /// One name in it, or (as the root path) its whole content.
    Path(RelPath),
    /// A reserved name: nothing is sent.
    Reserved(Vec<u8>),
    /// A name that cannot travel.
    Unnameable(PathText, PathError),
}

impl FsSource {
    /// Holds the sources that an operator named, in a bounded number of descriptors. A missing
    /// source turns up as [`Scanned::Failed`].
    pub fn open(sources: Vec<SourceSpec>, direct: DirectMode) -> FsSource {
        FsSource::new(sources.into_iter().map(named), HELD_MAX, direct)
    }

    /// Holds sources beneath served trees. Each has a tree, a path in it, and whether its content
    /// is sent rather than itself.
    pub fn beneath(sources: Vec<(Arc<TargetSet>, RelPath, bool)>, direct: DirectMode) -> FsSource {
        let placed = |(set, path, contents): (Arc<TargetSet>, _, _)| beneath(&set, path, contents);
        FsSource::new(sources.into_iter().map(placed), HELD_MAX, direct)
    }

    fn new(placed: impl Iterator<Item = (OnTargets, What)>, held_max: usize, direct: DirectMode) -> FsSource {
        let mut bases = Bases::holding(held_max);
        let mut top = |(places, kind): (OnTargets, What)| Top {
            bases: places.on.into_iter().map(|(target, base)| (target, bases.add(base))).collect(),
            away: places.away,
            kind,
        };
        let tops = placed.map(&mut top).collect();
        // The scan reports those that cannot be opened now.
        bases.hold();
        let (noatime, media, losses) = (AtomicBool::new(true), Media::default(), SourceLosses::default());
        FsSource { tops, bases, direct, noatime, media, losses }
    }

    /// A top-level name that two sources send, as far as that shows without looking into
    /// subdirectories. `None` if there is none.
    pub fn same_name(&self, what: &ScanRequest<'_>) -> Option<SameName> {
        self.same_name_among(what, HASHES_MAX)
    }

    /// The target on which an entry that was found lies.
    pub fn target_of(&self, at: &SourceRef) -> TargetId {
        let mut bases = self.tops.iter().flat_map(|top| &top.bases);
        bases.find(|(_, base)| *base == at.source).map_or(TargetId::FIRST, |(target, _)| *target)
    }

    /// The shape of the sources, as they are now.
    pub fn shape(&self) -> Shape {
        shape::of(self)
    }

    /// Names the trees of sources beneath served trees, one name for each source, as errors and
    /// messages show them.
    #[must_use]
    pub fn called<'n>(mut self, trees: impl IntoIterator<Item = &'n str>) -> FsSource {
        for (top, tree) in self.tops.iter().zip(trees) {
            top.bases.iter().for_each(|(_, base)| self.bases.call(*base, tree));
        }
        self
    }

    /// Like [`FsSource::same_name`], with hashes of `hashes_max` names at a time.
    pub(super) fn same_name_among(&self, what: &ScanRequest<'_>, hashes_max: usize) -> Option<SameName> {
        same_name::find(self, what, hashes_max)
    }

    /// The parts of a source: the directory that it is resolved beneath, on each target where it
    /// stands.
    ///
    /// # Errors
    /// As [`Bases::walk`]: if it stands on no target, or cannot be opened where it does.
    pub(super) fn parts(&self, top: &Top) -> Result<Vec<ScanPart>, DiskError> {
        let mut parts = Vec::new();
        let mut absent = None;
        for &(target, base) in &top.bases {
            match self.bases.walk(base) {
                Ok(walk) => parts.push(ScanPart { base, target, walk }),
                Err(error) if error.kind() == ErrorKind::NotFound => drop(absent.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        match (absent, top.away) {
            (Some(_), Some(number)) if parts.is_empty() => Err(SetError::Away { number }.into()),
            (Some(error), _) if parts.is_empty() => Err(error),
            _ => Ok(parts),
        }
    }

    fn prefix(&self, top: &Top) -> &[u8] {
        top.bases.first().map_or(b"", |(_, base)| self.bases.prefix(*base))
    }

    /// Gives each top-level name of a source to `sink`: its own, or those in its content. A source
    /// that cannot be read has none; the scan says why.
    pub(super) fn each_name(&self, top: &Top, sink: &mut dyn FnMut(&[u8])) {
        match &top.kind {
            What::Path(path) if path.is_root() => {
                for part in self.parts(top).unwrap_or_default() {
                    if let Ok(dir) = part.walk.root().readable() {
                        let _ = each_name(dir, &mut *sink);
                    }
                }
            }
            What::Path(path) => sink(path.as_bytes()),
            What::Reserved(_) | What::Unnameable(..) => {}
        }
    }

    /// An error beneath the directory of a source, with the path that users know.
    pub(super) fn whole(&self, top: &Top, error: DiskError) -> DiskError {
        error.beneath(self.prefix(top))
    }

    /// The error of a directory that cannot be held. If the directory is missing, so is the source,
    /// and the error names the source, which the user knows better.
    pub(super) fn out_of_reach(&self, top: &Top, error: DiskError) -> DiskError {
        match top.own_name() {
            (_, Some(name)) if error.kind() == ErrorKind::NotFound => {
                self.whole(top, DiskError::call("examine", name, Errno::NOENT))
            }
            _ => error.at_source(),
        }
    }

    fn walk_of(&self, at: &SourceRef) -> Result<(Arc<Walk>, &[u8]), DiskError> {
        match self.bases.has(at.source) {
            true => Ok((self.bases.walk(at.source)?, self.bases.prefix(at.source))),
            false => Err(DiskError::Vanished { path: (&at.path).into() }),
        }
    }
}

impl SourceTree for FsSource {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        let mut names = SourceNames::new(&what.names, &self.losses);
        let sink: &mut dyn FnMut(Scanned) -> ControlFlow<()> = &mut |scanned| sink(names.named(scanned));
        for top in &self.tops {
            let flow = match (self.parts(top), &top.kind) {
                (_, What::Unnameable(path, source)) => {
                    let error = DiskError::Name { path: path.clone(), source: *source };
                    sink(Scanned::Failed { path: RelPath::root(), error })
                }
                (Ok(parts), What::Path(path)) => {
                    Scan::new((&parts, &self.media, &self.losses), what, &mut self.naming(top, sink)).run(path)
                }
                (Ok(parts), What::Reserved(name)) => {
                    Scan::new((&parts, &self.media, &self.losses), what, &mut self.naming(top, sink)).reserved_top(name)
                }
                (Err(error), What::Path(path)) => {
                    sink(Scanned::Failed { path: path.clone(), error: self.out_of_reach(top, error) })
                }
                (Err(error), What::Reserved(_)) => {
                    sink(Scanned::Failed { path: RelPath::root(), error: self.out_of_reach(top, error) })
                }
            };
            let flow = match (flow, top.away) {
                (ControlFlow::Continue(()), Some(number)) => {
                    let (path, _) = top.own_name();
                    sink(Scanned::Failed { path, error: SetError::Away { number }.into() })
                }
                (flow, _) => flow,
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let (walk, prefix) = self.walk_of(at)?;
        open_checked(&walk, (&at.path, prefix), expect, self.direct, &self.noatime).map(Arc::new)
    }

    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        let (walk, prefix) = self.walk_of(at)?;
        SmallFile::open(&walk, (&at.path, prefix), expect, &self.noatime)
    }

    fn losses(&self) -> Losses {
        self.losses.so_far()
    }

    fn shown(&self, at: &SourceRef) -> Vec<u8> {
        let prefix = if self.bases.has(at.source) { self.bases.prefix(at.source) } else { b"" };
        PathText::from(&at.path).beneath(prefix).as_bytes().to_vec()
    }
}

impl FsSource {
    /// Gives the finds of a scan to the sink, failures with the paths that users know.
    fn naming<'s>(
        &'s self,
        top: &'s Top,
        sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
    ) -> impl FnMut(Scanned) -> ControlFlow<()> + use<'s> {
        move |scanned| {
            sink(match scanned {
                Scanned::Failed { path, error } => Scanned::Failed { path, error: self.whole(top, error) },
                other => other,
            })
        }
    }
}

impl Top {
    /// Its name beneath the destination, for users, and its own name in the directory that it is
    /// resolved beneath. `None` if the content of that directory is sent.
    pub(super) fn own_name(&self) -> (RelPath, Option<&[u8]>) {
        match &self.kind {
            What::Path(path) => (path.clone(), path.name()),
            What::Reserved(name) => (RelPath::root(), Some(name)),
            What::Unnameable(..) => (RelPath::root(), None),
        }
    }
}

/// The directory of a source that an operator named, and the part of it that is sent.
fn named(spec: SourceSpec) -> (OnTargets, What) {
    let name = if spec.contents { None } else { spec.path.file_name() };
    // `/`, `..` and the like have no name of their own: their content is meant.
    let Some(name) = name.map(|name| name.as_encoded_bytes().to_vec()) else {
        return (Base::Named(spec.path).into(), What::Path(RelPath::root()));
    };
    let above = spec.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let what = What::named(name, || spec.path.as_path().into());
    (Base::Named(above.to_owned()).into(), what)
}

/// The same for a source beneath a served tree.
fn beneath(set: &TargetSet, path: RelPath, contents: bool) -> (OnTargets, What) {
    let on_targets = |path: &RelPath| {
        let beneath = |target: &SetTarget| (target.id, Base::Beneath(target.tree.clone(), path.clone()));
        let away = set.missing().first().map(|missing| missing.id.0);
        OnTargets { on: set.targets().iter().map(beneath).collect(), away }
    };
    let name = if contents { None } else { path.name().map(<[u8]>::to_vec) };
    match (name, path.parent()) {
        (Some(name), Some(above)) => {
            let what = What::named(name, || (&path).into());
            (on_targets(&above), what)
        }
        _ => (on_targets(&path), What::Path(RelPath::root())),
    }
}

impl What {
    /// The part that is one name; `path` is the whole path, as the operator gave it.
    fn named(name: Vec<u8>, path: impl FnOnce() -> PathText) -> What {
        match RelPath::new(name.as_slice()) {
            Ok(top) => What::Path(top),
            Err(PathError::Reserved) => What::Reserved(name),
            Err(error) => What::Unnameable(path(), error),
        }
    }
}

#[cfg(test)]
mod tests;
