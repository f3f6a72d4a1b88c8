//! [`FsSource`]: one or more directories or files of a file system, each held by its directory from the start.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use longhaul_core::{PathError, RelPath};
use rustix::io::Errno;

use crate::direct::DirectMode;
use crate::error::{DiskError, ErrorKind, PathText};
use crate::names::each_name;
use crate::source::read::open_checked;
use crate::source::same_name::{self, HASHES_MAX, SameName};
use crate::source::scan::Scan;
use crate::source::shape::{self, Shape};
use crate::source::{ScanRequest, Scanned, SmallFile, SourceFile, SourceRef, SourceTree};
use crate::stat::Identity;
use crate::tree::Tree;
use crate::walk::{CACHED_DIRS_MAX, Dir, Walk};

/// A source as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// Without trailing slashes.
    pub path: PathBuf,
    /// Named with a trailing slash: what lies in the directory (followed if it is a link), not the directory itself.
    pub contents: bool,
}

/// Sources in a file system. Nothing beneath a source is reached through a symbolic link.
pub struct FsSource {
    tops: Vec<Top>,
    direct: DirectMode,
    /// Whether reading without touching access times was never refused.
    noatime: AtomicBool,
}

/// One source: the directory that everything is resolved beneath, and what to send of it.
pub(super) struct Top {
    base: Base,
    /// The directory, opened when the source was named (or when it is first scanned, if it was missing then).
    walk: OnceLock<Walk>,
    what: What,
    /// What people call that directory; empty where it goes without saying.
    prefix: Vec<u8>,
}

/// What of a directory is sent.
enum What {
    /// One name in it, or (as the root path) all that lies in it.
    Path(RelPath),
    /// A name that is reserved: nothing.
    Reserved(Vec<u8>),
    /// A name that cannot travel.
    Unnameable(PathText, PathError),
}

enum Base {
    Named(PathBuf),
    Beneath(Arc<Tree>, RelPath),
}

impl FsSource {
    /// Holds the sources that an operator named. One that is missing turns up as [`Scanned::Failed`].
    pub fn open(sources: Vec<SourceSpec>, direct: DirectMode) -> FsSource {
        FsSource::new(sources.into_iter().map(Top::named).collect(), direct)
    }

    /// Holds sources beneath served trees: each a tree, a path in it, and whether its content is meant rather than itself.
    pub fn beneath(sources: Vec<(Arc<Tree>, RelPath, bool)>, direct: DirectMode) -> FsSource {
        let top = |(tree, path, contents)| Top::beneath(tree, path, contents);
        FsSource::new(sources.into_iter().map(top).collect(), direct)
    }

    fn new(tops: Vec<Top>, direct: DirectMode) -> FsSource {
        for top in &tops {
            // What cannot be opened now is said by the scan.
            let _ = top.walk();
        }
        FsSource { tops, direct, noatime: AtomicBool::new(true) }
    }

    /// A top-level name that two sources send, if there is one, as far as that shows without looking into subdirectories.
    pub fn same_name(&self, what: &ScanRequest<'_>) -> Option<SameName> {
        self.same_name_among(what, HASHES_MAX)
    }

    /// What the sources turn out to be, looked at now.
    pub fn shape(&self) -> Shape {
        shape::of(&self.tops)
    }

    /// The same with hashes of so many names at a time.
    pub(super) fn same_name_among(&self, what: &ScanRequest<'_>, hashes_max: usize) -> Option<SameName> {
        same_name::find(&self.tops, what, hashes_max)
    }

    fn top_of(&self, at: &SourceRef) -> Result<(&Top, &Walk), DiskError> {
        let top = self.tops.get(at.source as usize).ok_or_else(|| DiskError::Vanished { path: (&at.path).into() })?;
        Ok((top, top.walk()?))
    }

    /// Sources beneath served trees, the trees under these names in what is said of them: one for each source.
    #[must_use]
    pub fn called<'n>(mut self, trees: impl IntoIterator<Item = &'n str>) -> FsSource {
        for (top, tree) in self.tops.iter_mut().zip(trees) {
            if let Base::Beneath(_, path) = &top.base {
                top.prefix = PathText::from(path).beneath(tree.as_bytes()).as_bytes().to_vec();
            }
        }
        self
    }
}

impl SourceTree for FsSource {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        for (source, top) in self.tops.iter().enumerate() {
            let flow = match (top.walk(), &top.what) {
                (_, What::Unnameable(path, source)) => {
                    let error = DiskError::Name { path: path.clone(), source: *source };
                    sink(Scanned::Failed { path: RelPath::root(), error })
                }
                (Ok(walk), What::Path(path)) => Scan::new(source as u32, walk, what, &mut named(top, sink)).run(path),
                (Ok(walk), What::Reserved(name)) => {
                    Scan::new(source as u32, walk, what, &mut named(top, sink)).reserved_top(name)
                }
                (Err(error), What::Path(path)) => {
                    sink(Scanned::Failed { path: path.clone(), error: top.out_of_reach(error) })
                }
                (Err(error), What::Reserved(_)) => {
                    sink(Scanned::Failed { path: RelPath::root(), error: top.out_of_reach(error) })
                }
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let (top, walk) = self.top_of(at)?;
        open_checked(walk, (&at.path, &top.prefix), expect, self.direct, &self.noatime).map(Arc::new)
    }

    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        let (top, walk) = self.top_of(at)?;
        SmallFile::open(walk, (&at.path, &top.prefix), expect, &self.noatime)
    }
}

/// Gives what a scan of `top` finds to the sink, failures with the paths that people know.
fn named<'s>(
    top: &'s Top,
    sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
) -> impl FnMut(Scanned) -> ControlFlow<()> + use<'s> {
    move |scanned| {
        sink(match scanned {
            Scanned::Failed { path, error } => Scanned::Failed { path, error: top.whole(error) },
            other => other,
        })
    }
}

impl Top {
    fn named(spec: SourceSpec) -> Top {
        let name = if spec.contents { None } else { spec.path.file_name() };
        // `/`, `..` and the like have no name of their own: their content is meant.
        let Some(name) = name.map(|name| name.as_encoded_bytes().to_vec()) else {
            return Top::new(Base::Named(spec.path), What::Path(RelPath::root()));
        };
        let above = spec.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let what = What::named(name, || spec.path.as_path().into());
        Top::new(Base::Named(above.to_owned()), what)
    }

    fn beneath(tree: Arc<Tree>, path: RelPath, contents: bool) -> Top {
        let name = if contents { None } else { path.name().map(<[u8]>::to_vec) };
        match (name, path.parent()) {
            (Some(name), Some(above)) => {
                let what = What::named(name, || (&path).into());
                Top::new(Base::Beneath(tree, above), what)
            }
            _ => Top::new(Base::Beneath(tree, path), What::Path(RelPath::root())),
        }
    }

    fn new(base: Base, what: What) -> Top {
        let prefix = match &base {
            Base::Named(path) if path == Path::new(".") => Vec::new(),
            Base::Named(path) => path.as_os_str().as_encoded_bytes().to_vec(),
            Base::Beneath(..) => Vec::new(),
        };
        Top { base, walk: OnceLock::new(), what, prefix }
    }

    /// Gives each top-level name of it to `sink`: its own, or those that lie in it. What cannot be read has none; the scan says why.
    pub(super) fn each_name(&self, sink: &mut dyn FnMut(&[u8])) {
        match (&self.what, self.walk()) {
            (What::Path(path), Ok(walk)) if path.is_root() => {
                if let Ok(dir) = walk.root().readable() {
                    let _ = each_name(dir, sink);
                }
            }
            (What::Path(path), _) => sink(path.as_bytes()),
            _ => {}
        }
    }

    /// Its name beneath the destination, for people, and the name of its own in the directory that it is resolved beneath; none
    /// where what lies in that is meant.
    pub(super) fn own_name(&self) -> (RelPath, Option<&[u8]>) {
        match &self.what {
            What::Path(path) => (path.clone(), path.name()),
            What::Reserved(name) => (RelPath::root(), Some(name)),
            What::Unnameable(..) => (RelPath::root(), None),
        }
    }

    /// The same error as people know its path.
    pub(super) fn whole(&self, error: DiskError) -> DiskError {
        error.beneath(&self.prefix)
    }

    /// The error of a directory that cannot be held. Where that is missing, so is the source, which the user knows better.
    pub(super) fn out_of_reach(&self, error: DiskError) -> DiskError {
        match self.own_name() {
            (_, Some(name)) if error.kind() == ErrorKind::NotFound => {
                self.whole(DiskError::call("examine", name, Errno::NOENT))
            }
            _ => error.at_source(),
        }
    }

    /// An error of the way down to `path` in a served tree: its path begins where the tree does.
    fn below_tree(&self, error: DiskError, path: &RelPath) -> DiskError {
        let above = self.prefix.strip_suffix(path.as_bytes()).unwrap_or_default();
        error.beneath(above.strip_suffix(b"/").unwrap_or(above))
    }

    /// The directory that it is resolved beneath.
    pub(super) fn walk(&self) -> Result<&Walk, DiskError> {
        if let Some(walk) = self.walk.get() {
            return Ok(walk);
        }
        let root = match &self.base {
            Base::Named(path) => Arc::new(Dir::open_named(path)?),
            Base::Beneath(tree, path) => tree.dir(path).map_err(|error| self.below_tree(error, path))?,
        };
        Ok(self.walk.get_or_init(|| Walk::new(root, CACHED_DIRS_MAX)))
    }
}

impl What {
    /// One name; `path` is all of it, as the operator gave it.
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
