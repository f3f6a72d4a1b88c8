//! The directories that sources lie in: each is opened once, however many sources lie in it, and a
//! bounded number is held at a time.
//!
//! In: the place of each source. Out: the walk beneath its directory. If there are no more
//! directories than may be held, each is held from the moment its source was named. If there are
//! more, one is opened when it is needed, and must still be the same directory. Knows nothing of
//! the entries that are sent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longhaul_core::RelPath;

use crate::error::{DiskError, PathText};
use crate::tree::Tree;
use crate::walk::{Dir, Walk, cached_dirs_max};

/// A directory that sources lie in.
pub(super) enum Base {
    /// A directory as the operator named it.
    Named(PathBuf),
    /// A directory beneath a served tree.
    Beneath(Arc<Tree>, RelPath),
}

/// Its number among the [`Bases`].
pub(super) type BaseId = u32;

/// The directories of all sources.
#[derive(Default)]
pub(super) struct Bases {
    bases: Vec<KnownBase>,
    named: HashMap<PathBuf, BaseId>,
    beneath: HashMap<(usize, RelPath), BaseId>,
    held_max: usize,
    /// The walks that were used last, if there are more than may be held.
    recent: Mutex<Recent>,
}

struct KnownBase {
    base: Base,
    /// The name that users have for it; empty if paths are shown without one.
    prefix: Vec<u8>,
    /// Held from the first use on, if there are few.
    walk: OnceLock<Arc<Walk>>,
    /// The device and inode that it had when it was first opened.
    place: OnceLock<(u64, u64)>,
}

#[derive(Default)]
struct Recent {
    walks: HashMap<BaseId, (Arc<Walk>, u64)>,
    uses: u64,
}

impl Bases {
    /// No directories yet. At most `held_max` of them are held at a time.
    pub(super) fn holding(held_max: usize) -> Bases {
        Bases { held_max, ..Bases::default() }
    }

    /// The number of a directory; the same for the same path.
    pub(super) fn add(&mut self, base: Base) -> BaseId {
        let next = self.bases.len() as BaseId;
        let id = match &base {
            Base::Named(path) => *self.named.entry(path.clone()).or_insert(next),
            Base::Beneath(tree, path) => {
                *self.beneath.entry((Arc::as_ptr(tree) as usize, path.clone())).or_insert(next)
            }
        };
        if id == next {
            let prefix = match &base {
                Base::Named(path) if path == Path::new(".") => Vec::new(),
                Base::Named(path) => path.as_os_str().as_encoded_bytes().to_vec(),
                Base::Beneath(_, path) => path.as_bytes().to_vec(),
            };
            self.bases.push(KnownBase { base, prefix, walk: OnceLock::new(), place: OnceLock::new() });
        }
        id
    }

    /// Whether a directory has this number.
    pub(super) fn has(&self, id: BaseId) -> bool {
        (id as usize) < self.bases.len()
    }

    /// Gives a name for users to the tree that a directory lies in.
    pub(super) fn call(&mut self, id: BaseId, tree: &str) {
        let known = &mut self.bases[id as usize];
        if let Base::Beneath(_, path) = &known.base {
            known.prefix = PathText::from(path).beneath(tree.as_bytes()).as_bytes().to_vec();
        }
    }

    /// The name that users have for a directory: paths in it are shown behind that name.
    pub(super) fn prefix(&self, id: BaseId) -> &[u8] {
        &self.bases[id as usize].prefix
    }

    /// Opens all of them, if they are few enough to be held. One that cannot be opened now is
    /// reported when it is used.
    pub(super) fn hold(&mut self) {
        (self.named, self.beneath) = (HashMap::new(), HashMap::new());
        if self.bases.len() <= self.held_max {
            (0..self.bases.len() as BaseId).for_each(|id| drop(self.walk(id)));
        }
    }

    /// The walk beneath a directory.
    ///
    /// # Errors
    /// The system's error when it is opened; [`DiskError::Vanished`] if another directory stands
    /// there by now.
    pub(super) fn walk(&self, id: BaseId) -> Result<Arc<Walk>, DiskError> {
        let known = &self.bases[id as usize];
        if let Some(walk) = known.walk.get() {
            return Ok(walk.clone());
        }
        if self.bases.len() <= self.held_max {
            let root = known.open()?;
            return Ok(known.walk.get_or_init(|| Arc::new(Walk::new(root, cached_by(self.bases.len())))).clone());
        }
        if let Some(walk) = self.recent().used(id) {
            return Ok(walk);
        }
        let walk = Arc::new(Walk::new(known.open()?, cached_by(self.held_max)));
        self.recent().keep(id, walk.clone(), self.held_max);
        Ok(walk)
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownBase {
    fn open(&self) -> Result<Arc<Dir>, DiskError> {
        let root = match &self.base {
            Base::Named(path) => Arc::new(Dir::open_named(path)?),
            Base::Beneath(tree, path) => tree.dir(path).map_err(|error| error.beneath(self.tree_name(path)))?,
        };
        if *self.place.get_or_init(|| root.place()) == root.place() {
            return Ok(root);
        }
        let path = match &self.base {
            Base::Named(path) => path.as_path().into(),
            Base::Beneath(_, path) => PathText::from(path).beneath(self.tree_name(path)),
        };
        Err(DiskError::Vanished { path })
    }

    /// The name of the tree that `path` lies in: paths of errors on the way down begin there.
    fn tree_name(&self, path: &RelPath) -> &[u8] {
        let above = self.prefix.strip_suffix(path.as_bytes()).unwrap_or_default();
        above.strip_suffix(b"/").unwrap_or(above)
    }
}

impl Recent {
    fn used(&mut self, id: BaseId) -> Option<Arc<Walk>> {
        self.uses += 1;
        let (walk, use_) = self.walks.get_mut(&id)?;
        *use_ = self.uses;
        Some(walk.clone())
    }

    fn keep(&mut self, id: BaseId, walk: Arc<Walk>, most: usize) {
        while self.walks.len() >= most
            && let Some(oldest) = self.walks.iter().min_by_key(|(_, (_, use_))| *use_).map(|(id, _)| *id)
        {
            self.walks.remove(&oldest);
        }
        self.uses += 1;
        self.walks.insert(id, (walk, self.uses));
    }
}

/// Directories that each of `walks` walks may keep open beneath it.
fn cached_by(walks: usize) -> usize {
    (cached_dirs_max() / walks).max(CACHED_EACH_MIN)
}

/// The least that each keeps: a few levels of a path.
const CACHED_EACH_MIN: usize = 4;
/// Directories held at a time. Those that they keep open beneath them are together no more than one
/// source has.
pub(super) const HELD_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn dirs(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
        let top = tempfile::tempdir().expect("tempdir");
        let dirs: Vec<_> = (0..count).map(|n| top.path().join(n.to_string())).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("dir"));
        (top, dirs)
    }

    fn bases(held_max: usize, dirs: &[PathBuf]) -> Bases {
        let mut bases = Bases::holding(held_max);
        for dir in dirs {
            bases.add(Base::Named(dir.clone()));
        }
        bases.hold();
        bases
    }

    #[test]
    fn sources_of_one_directory_share_one_descriptor() {
        let (_top, dirs) = dirs(2);
        let mut bases = Bases::holding(3);
        let ids: Vec<_> = (0..100).map(|n| bases.add(Base::Named(dirs[n % 2].clone()))).collect();
        assert_eq!((bases.bases.len(), ids[0], ids[99]), (2, 0, 1));
        let tree = Tree::open(&dirs[0]).expect("tree");
        let beneath = || Base::Beneath(tree.clone(), RelPath::root());
        assert_eq!((bases.add(beneath()), bases.add(beneath())), (2, 2));
    }

    #[test]
    fn of_more_directories_than_may_be_held_those_used_last_are() {
        let (_top, dirs) = dirs(10);
        let bases = bases(3, &dirs);
        assert!(bases.bases.iter().all(|known| known.walk.get().is_none()));
        for id in (0..10).chain([9, 0, 5]) {
            let walk = bases.walk(id).expect("it stands");
            assert!(walk.root().check_named(&dirs[id as usize]).is_ok());
            assert!(bases.recent().walks.len() <= 3);
        }
        let held = bases.walk(5).expect("held");
        std::fs::rename(&dirs[5], dirs[5].with_extension("moved")).expect("move");
        assert_eq!(bases.walk(5).expect("held still").root().place(), held.root().place());
    }

    #[test]
    fn a_directory_that_was_put_in_the_place_of_another_is_not_taken_for_it() {
        let (_top, dirs) = dirs(3);
        let bases = bases(1, &dirs);
        assert!(bases.walk(0).is_ok() && bases.walk(1).is_ok());
        std::fs::rename(&dirs[0], dirs[0].with_extension("moved")).expect("move");
        std::fs::create_dir(&dirs[0]).expect("another");
        assert_eq!(bases.walk(0).expect_err("another").kind(), ErrorKind::Vanished);
        std::fs::remove_dir(&dirs[2]).expect("gone before it was used");
        assert_eq!(bases.walk(2).expect_err("missing").kind(), ErrorKind::NotFound);
    }
}
