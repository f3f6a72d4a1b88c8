//! [`FsTarget`]: a destination in a file system, reached from its held directory, never by a link.

mod bodies;
mod home;
mod member;
mod metadata;
mod names;
mod pieces;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{ChunkIndex, ChunkMap, Losses, Meta, Preserve, RelPath, SessionTag, TargetId, TempName};
use rustix::fs::{AtFlags, FileType, Mode, fstatvfs, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::base;
use super::device;
use super::device::{Device, Mark, SyncMethod};
use super::dirs::DirHandle;
use super::meta::{MetaRules, mode};
use super::policy::TreePolicy;
use super::readback;
use super::spelling::Spellings;
use super::staged::{Content, HeldFd, Staged};
use super::standing;
use super::sync::{Noted, OPEN_STAGED_MAX, SyncCounts, Syncer};
use super::temp::{Temp, random, stat_of};
use super::{Journalled, Made, Reopened, Replace, Room, TargetFile, TargetTree};
use crate::direct::DirectMode;
use crate::error::{DiskError, ErrorKind};
use crate::fill::Back;
use crate::kernel::{Interposer, Kernel};
use crate::load::TargetLoad;
use crate::room::{Asker, room_of, total_of};
use crate::shelf::Shelf;
use crate::stat::{Identity, Standing, type_of};
use crate::tree::{Tree, examine};
use crate::walk::{Dir, Walk, cached_dirs_max};

use home::{Home, NameRules};

pub(crate) use home::StagedHome;

pub use bodies::ReopenedBody;
pub use names::{NameBefore, NameMade, NameProof, NamedBytes};
pub(crate) use pieces::ReopenedPart;

/// A destination directory.
pub struct FsTarget {
    walk: Walk,
    shelf: Shelf,
    /// The tag with which the names of its temporaries begin.
    tag: SessionTag,
    direct: DirectMode,
    rules: MetaRules,
    syncer: Syncer,
    /// Descriptors of small files that are held for their sync.
    open_staged: Arc<AtomicUsize>,
    /// Directories that do not have their final mode yet, with the mode they had before; `None` if
    /// this session made them. Like `places` it has at most as many as are open at a time: a
    /// manifest goes depth first, and each is taken out at its end.
    unfinished: Mutex<HashMap<RelPath, Option<u32>>>,
    /// The device and inode of each unfinished directory.
    places: Mutex<HashMap<RelPath, (u64, u64)>>,
    /// Whether directories that stood before keep their mode and times.
    keeps_standing: bool,
    home: Home,
    names: NameRules,
    /// The load of the target that it is.
    load: Arc<TargetLoad>,
}

impl FsTarget {
    /// Opens and holds the directory at `path`. It and the directories above it are made, durably,
    /// where they are missing.
    ///
    /// # Errors
    /// If it cannot be made, entered or read.
    pub fn open(path: &Path, direct: DirectMode) -> Result<FsTarget, DiskError> {
        FsTarget::opened(path, direct, &Kernel::default())
    }

    /// Opens a destination whose system calls go through an [`Interposer`], for tests.
    ///
    /// # Errors
    /// As [`FsTarget::open`].
    pub fn open_behind(
        path: &Path,
        direct: DirectMode,
        interposer: Arc<dyn Interposer>,
    ) -> Result<FsTarget, DiskError> {
        FsTarget::opened(path, direct, &Kernel::behind(interposer))
    }

    fn opened(path: &Path, direct: DirectMode, kernel: &Kernel) -> Result<FsTarget, DiskError> {
        let root = base::named(path, kernel)?;
        let load = TargetLoad::of(TargetId::FIRST, path);
        FsTarget::new((Shelf::of(&root), load), root, direct, (Home::Named(path.to_owned()), TreePolicy::default()))
    }

    /// Opens a directory beneath a served tree as the destination, without following any link on
    /// the way. Its shelf is the tree's, and all entries in it obey the tree's `policy`; the top of
    /// the tree itself keeps its mode and times.
    ///
    /// # Errors
    /// As [`FsTarget::open`]; [`DiskError::Escape`] if a link stands in the way.
    pub fn beneath(
        tree: &Arc<Tree>,
        path: &RelPath,
        direct: DirectMode,
        policy: TreePolicy,
    ) -> Result<FsTarget, DiskError> {
        let home = Home::Beneath(Arc::clone(tree), path.clone());
        let load = TargetLoad::of(TargetId::FIRST, tree.named());
        FsTarget::new((tree.shelf(), load), base::beneath(tree, path, policy.modes)?, direct, (home, policy))
    }

    /// Opens what is staged of a dataset as the destination, under the policy of the tree in which
    /// that shall appear. Its shelf is the holder's.
    pub(crate) fn staged(home: StagedHome, direct: DirectMode, policy: TreePolicy) -> Result<FsTarget, DiskError> {
        let (shelf, load) = (home.tree.shelf(), TargetLoad::of(TargetId::FIRST, home.tree.named()));
        let root = base::beneath(&home.tree, &home.top, policy.modes)?;
        FsTarget::new((shelf, load), root, direct, (Home::Staged(home), policy))
    }

    fn new(
        (shelf, load): (Shelf, Arc<TargetLoad>),
        root: Arc<Dir>,
        direct: DirectMode,
        (home, policy): (Home, TreePolicy),
    ) -> Result<FsTarget, DiskError> {
        let tag = random().map_err(|error| DiskError::call("name a session at", &RelPath::root(), error))?;
        let syncer = Syncer::default();
        syncer.watch(&root, &RelPath::root())?;
        Ok(FsTarget {
            walk: Walk::new(root, cached_dirs_max()),
            shelf,
            tag: SessionTag(tag),
            direct,
            rules: MetaRules::under(policy),
            syncer,
            open_staged: Arc::default(),
            unfinished: Mutex::default(),
            places: Mutex::default(),
            keeps_standing: false,
            home,
            names: NameRules { links: policy.links, spellings: Spellings::default() },
            load,
        })
    }

    /// Makes directories that we did not make keep their mode and times: for clients that may
    /// create, not modify.
    #[must_use]
    pub fn keeping_standing_dirs(self) -> FsTarget {
        FsTarget { keeps_standing: true, ..self }
    }

    /// Makes small files and links under names of this tag instead of a random one.
    #[must_use]
    pub fn tagged(self, tag: SessionTag) -> FsTarget {
        FsTarget { tag, ..self }
    }

    /// The shelf with the journals of sessions that write here: at the top of this destination, or
    /// of the tree that it is beneath.
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    fn places(&self) -> MutexGuard<'_, HashMap<RelPath, (u64, u64)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the directory at `path`: when it is finished, the same one must be found there.
    fn remember_place(&self, path: &RelPath) -> Result<(), DiskError> {
        let place = self.walk.dir(path)?.place();
        self.places().insert(path.clone(), place);
        Ok(())
    }

    /// Checks that a directory is still found under its name in the one above it. That one is
    /// checked when it is finished itself, and the top by [`TargetTree::check_place`]: thus the
    /// whole path is walked afresh, each step once.
    fn check_dir(&self, path: &RelPath) -> Result<(), DiskError> {
        let Some(place) = self.places().remove(path) else { return Ok(()) };
        let (above, name) = self.walk.parent(path)?;
        // Some file systems give a directory another inode number once it is open nowhere.
        let keeps_numbers = self.syncer.watch(&above, path)?.method() == SyncMethod::FileSystem;
        above.check_below(name, keeps_numbers.then_some(place), path)
    }

    fn kernel(&self) -> &Kernel {
        self.walk.root().kernel()
    }

    /// Refuses a link that the policy of the served tree does not let in.
    fn check_link(&self, path: &RelPath, target: &[u8]) -> Result<(), DiskError> {
        self.home.check_link(self.names.links, path, target)
    }

    fn write_all(&self, fd: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match self.kernel().pwrite(fd, &bytes[done..], done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The directory that `path` will be in, ready to be written to, and its file system.
    fn parent(&self, path: &RelPath) -> Result<(Arc<Dir>, Arc<Device>), DiskError> {
        let (dir, _) = self.walk.parent(path)?;
        let device = self.syncer.watch(&dir, path)?;
        Ok((dir, device))
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<RelPath, Option<u32>>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that names in `dir`, in which `path` lies, changed or may not be durable.
    fn changed_in(&self, dir: &Dir, path: &RelPath) -> Result<(), DiskError> {
        let Some(parent) = path.parent() else { return Ok(()) };
        let device = self.syncer.watch(dir, path)?;
        match self.syncer.changed(&device, dir.dev(), &parent) {
            Noted::Yes => Ok(()),
            Noted::Full => {
                let fd = dir.readable().map_err(|error| DiskError::call("open", &parent, error))?;
                self.syncer.open_dir(&device, fd, &parent)
            }
        }
    }

    fn open_dir(&self, path: &RelPath) -> Result<DirHandle, DiskError> {
        let outcome = if path.is_root() {
            DirHandle::open(self.walk.root(), b".")
        } else {
            let (dir, name) = self.walk.parent(path)?;
            DirHandle::open(&dir, name)
        };
        outcome.map_err(|error| match error {
            Errno::NOTDIR => DiskError::NotADirectory { path: path.into() },
            error => DiskError::call("open", path, error),
        })
    }

    /// Notes that the metadata of a directory changed: it is synced later with the others, or now
    /// where its own mode may forbid to open it again.
    fn finished(&self, path: &RelPath, handle: &DirHandle) -> Result<(), DiskError> {
        let dir = self.walk.dir(path)?;
        let device = self.syncer.watch(&dir, path)?;
        match handle.readable() {
            Some(fd) if device.method() == SyncMethod::Each => {
                self.syncer.open_dir(&device, fd, path)?;
                self.syncer.forget(path);
                Ok(())
            }
            _ => match self.syncer.changed(&device, dir.dev(), path) {
                Noted::Yes => Ok(()),
                Noted::Full => Err(DiskError::call("sync the directory", path, Errno::ACCESS)),
            },
        }
    }

    /// Checks a directory that stood before: it must be one, and open to us.
    fn stands(&self, dir: &Dir, name: &[u8], path: &RelPath) -> Result<Made, DiskError> {
        let stat =
            statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| DiskError::call("examine", path, error))?;
        if type_of(&stat) != FileType::Directory {
            return Err(DiskError::Exists { path: path.into(), what: "it is no directory" });
        }
        if stat.st_mode & 0o700 != 0o700 {
            let had = self.open_dir(path)?.let_owner_in();
            let had = had.map_err(|error| DiskError::call("open to its owner", path, error))?;
            if had.is_some() {
                self.unfinished().entry(path.clone()).or_insert(had);
            }
        }
        Ok(Made::Stood)
    }
}

impl TargetTree for FsTarget {
    fn examine(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        let standing = examine(&self.walk, path)?;
        if standing.is_some() {
            // A session that was killed may have given it this name a moment ago: it is not durable
            // for that.
            match self.walk.parent(path) {
                Ok((dir, name)) => {
                    self.changed_in(&dir, path)?;
                    if !matches!(standing, Some(Standing::Dir { .. })) {
                        let device = self.syncer.watch(&dir, path)?;
                        self.names.spellings.check(&dir, name, &device, path)?;
                    }
                }
                // The top itself.
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(standing)
    }

    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError> {
        if path.is_root() {
            return Ok(Made::Stood);
        }
        let (dir, name) = self.walk.parent(path)?;
        self.syncer.watch(&dir, path)?;
        match self.kernel().mkdirat(&dir, name, Mode::RWXU) {
            Ok(()) => {
                self.unfinished().insert(path.clone(), None);
                self.changed_in(&dir, path)?;
                self.remember_place(path)?;
                Ok(Made::Created)
            }
            Err(Errno::EXIST) => {
                self.changed_in(&dir, path)?;
                let made = self.stands(&dir, name, path)?;
                self.remember_place(path)?;
                Ok(made)
            }
            Err(error) => Err(DiskError::call("make the directory", path, error)),
        }
    }

    fn create(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        let body = self.create_body(path, map.len(), sparse.into(), temp)?;
        Ok(Arc::new(TargetFile::new(path, map.len(), vec![body])))
    }

    fn reopen(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        let reopened = self.reopen_body(path, map.len(), sparse.into(), temp, journalled)?;
        Ok(reopened.map(|ReopenedBody { body, differs }| {
            let file = Arc::new(TargetFile::new(path, map.len(), vec![body]));
            Reopened { file, differs }
        }))
    }

    fn remove_temp(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError> {
        let dir = match self.walk.parent(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            outcome => outcome?.0,
        };
        match self.kernel().unlinkat(&dir, &temp.file_name()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(DiskError::call("remove the temporary file of", path, error)),
        }
    }

    fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        Ok(self.swept(path, orphan)?.len())
    }

    fn sync_names(&self, dirs: &[RelPath]) -> Result<(), DiskError> {
        self.syncer.listed(&self.walk, dirs)
    }

    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        let (dir, device) = self.parent(path)?;
        let mark = Mark::now(&device);
        let wanted = self.rules.modes.file(meta, preserve);
        // Its final mode from the start saves a call per file. Its content is verified already, so
        // every user that may read the final name may as well read this one.
        let (made, bits) = self.rules.modes.created(wanted, preserve);
        let (temp, fd) = Temp::create(&dir, self.tag, mode(made))
            .map_err(|error| DiskError::call("create a temporary file for", path, error))?;
        device.made(&fd, b"");
        self.write_all(&fd, bytes).map_err(|error| DiskError::call("write", path, error))?;
        let set = self.set_meta((&fd, path), bits, meta, preserve);
        let sums = set.map_err(|error| DiskError::call("set the metadata of", path, error))?;
        let identity = names::identity_for_names(meta, &fd);
        let content = match device.method() {
            // More than will be synced one by one need no descriptor.
            SyncMethod::FileSystem => {
                HeldFd::hold(fd, &self.open_staged, OPEN_STAGED_MAX).map_or(Content::Closed, Content::Open)
            }
            // Here, beside others: a batch would sync them one behind the other.
            SyncMethod::Each => {
                self.syncer.file(fd, path, &mark)?;
                Content::Synced
            }
        };
        Ok(Staged::small(path, temp, content, (mark, self.load.begin(bytes.len() as u64))).known_as(identity, sums))
    }

    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        self.stage_link(path, target, meta, preserve)
    }

    fn make_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> NameMade {
        self.stage_name(path, first, proof)
    }

    fn sync_data(&self, file: &TargetFile) -> Result<Vec<ChunkIndex>, DiskError> {
        for body in file.on_disk() {
            self.syncer.data(file.path(), body)?;
            // Bytes can be found again only if the name is durable too.
            if !body.is_named() {
                self.syncer.names(&self.walk, file.path(), body.temp().dir())?;
                body.named();
            }
        }
        Ok(Vec::new())
    }

    fn read_staged(&self, staged: &Staged, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        staged.parts().for_each(|part| part.mark.ask());
        match staged.stands_at() {
            Some((dir, name)) => readback::read(dir, name, staged.path(), 0, len, slot),
            None => Err(readback::impossible(staged.path())),
        }
    }

    fn read_standing(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<(Back, Identity), DiskError> {
        standing::read(&self.walk, path, self.direct, (offset, len), slot)
    }

    fn retouch(
        &self,
        path: &RelPath,
        expect: &Identity,
        meta: Option<&Meta>,
        preserve: Preserve,
    ) -> Result<(), DiskError> {
        standing::retouch(&self.walk, path, expect, meta.map(|meta| (meta, &self.rules)), preserve)
    }

    fn fit(&self, path: &RelPath, is: &Meta, wanted: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        self.fit_standing(path, is, (wanted, preserve))
    }

    fn losses(&self) -> Losses {
        self.rules.extras.losses()
    }

    fn seal(&self, file: Arc<TargetFile>, meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        let mut sums = None;
        for (body, len) in file.bodies().iter().filter_map(|body| Some((body.on_disk()?, body.len()))) {
            sums = self.seal_body((body, file.path()), len, meta, preserve)?.or(sums);
        }
        Ok(Staged::large(Arc::clone(&file)).known_as(names::identity_of_large(&file, meta), sums))
    }

    fn barrier_of_all(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        self.syncer.files(staged)
    }

    fn believe(&self, staged: &Staged) {
        staged.parts().for_each(|part| part.mark.begin_anew());
    }

    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError> {
        staged.publish(replace)
    }

    fn sync_dirs(&self, staged: &[Staged]) -> Result<(), DiskError> {
        self.sync_dirs_of(&staged.iter().collect::<Vec<_>>())
    }

    fn loads(&self) -> Vec<Arc<TargetLoad>> {
        vec![Arc::clone(&self.load)]
    }

    fn finish_dir(&self, path: &RelPath, meta: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        self.finish(path, (meta, preserve))
    }

    fn check_place(&self) -> Result<(), DiskError> {
        self.home.check_place(self.walk.root())
    }

    fn room(&self, path: &RelPath) -> Option<Room> {
        let dir = match self.walk.parent(path) {
            Ok((dir, _)) => dir,
            Err(_) => Arc::clone(self.walk.root()),
        };
        let stat = fstatvfs(&*dir).ok()?;
        let asker = if geteuid().is_root() { Asker::Root } else { Asker::Others };
        let (total, is_firm) = (total_of(&stat), device::stores_all(self.kernel().file_system_type(&*dir).ok()?));
        room_of(&stat, asker).map(|(bytes, inodes)| Room { device: dir.dev(), bytes, total, inodes, is_firm })
    }

    fn has_temp(&self, path: &RelPath, temp: &TempName) -> Result<bool, DiskError> {
        stat_of(&self.walk, path, temp).map(|stat| stat.is_some())
    }

    fn occupied(&self, path: &RelPath, temp: &TempName) -> Option<u64> {
        let stat = stat_of(&self.walk, path, temp).ok()??;
        u64::try_from(stat.st_blocks).ok()?.checked_mul(512)
    }

    fn sync_counts(&self) -> SyncCounts {
        self.syncer.counts()
    }

    fn sync_method(&self) -> Option<SyncMethod> {
        self.syncer.watch(self.walk.root(), &RelPath::root()).ok().map(|device| device.method())
    }
}

#[cfg(test)]
mod tests;
