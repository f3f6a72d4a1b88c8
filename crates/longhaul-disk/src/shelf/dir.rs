//! [`ShelfDir`]: the directory `.longhaul` at the top of one tree, in which the journals of
//! sessions lie.
//!
//! Takes tags from the shelf; gives journal files, each locked while its session lives, and those
//! that other sessions left. It is made with the first journal and removed with the last. Knows
//! nothing of the content of a journal, and no other targets. Follows no link, and touches no file
//! that another user owns.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_core::SessionTag;
use longhaul_core::limits::RESERVED_PREFIX;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::copy::JournalCopy;
use super::epoch;
use super::locks::Locked;
use crate::error::{DiskError, ErrorKind, PathText};
use crate::kernel::Kernel;
use crate::load::{TargetCondition, TargetLoad};
use crate::names::each_name;
use crate::stat::times;
use crate::stat::{identity_of, meta_of, type_of};
use crate::walk::Dir;

/// The shelf on one target, or of a plain tree. Cheap to make and to clone: nothing is opened
/// before the first call.
#[derive(Clone, Debug)]
pub(crate) struct ShelfDir {
    root: Arc<Dir>,
    /// The name of the directory: [`NAME`], or that of one user's.
    name: Arc<[u8]>,
    /// The directory whose name was synced here (`st_dev` and inode number).
    synced: Arc<Mutex<Option<(u64, u64)>>>,
    /// The target. `None`: a plain tree.
    load: Option<Arc<TargetLoad>>,
}

/// The result of [`ShelfDir::open`].
#[derive(Debug)]
pub(super) enum Opening {
    /// A journal that no session had: it is ours now.
    Free(JournalCopy),
    /// A journal whose session lives.
    Held,
    /// No journal stands there.
    Gone,
}

impl ShelfDir {
    /// The shelf at the top of a tree, which is this target of a set. `None`: of none.
    pub(super) fn of(root: &Arc<Dir>, load: Option<Arc<TargetLoad>>) -> ShelfDir {
        ShelfDir { root: Arc::clone(root), name: NAME.into(), synced: Arc::default(), load }
    }

    /// The same of one user alone, which others cannot use.
    pub(super) fn of_user(root: &Arc<Dir>, uid: u32) -> ShelfDir {
        ShelfDir { name: [NAME, format!("-{uid}").as_bytes()].concat().into(), ..ShelfDir::of(root, None) }
    }

    /// Whether it is that of one user.
    fn is_of_user(&self) -> bool {
        *self.name != *NAME
    }

    /// Its name.
    pub(super) fn bare_name(&self) -> &[u8] {
        &self.name
    }

    /// Its path beneath the root, for messages.
    fn path(&self) -> PathText {
        PathText::from(&*self.name)
    }

    /// The path of a journal beneath the root, for messages.
    pub(super) fn shown(&self, tag: SessionTag) -> PathText {
        PathText::from([&*self.name, b"/", &file_name(tag)].concat().as_slice())
    }

    /// The condition of the target.
    pub(super) fn condition(&self) -> TargetCondition {
        self.load.as_ref().map_or(TargetCondition::Well, |load| load.condition())
    }

    /// Whether it is the shelf of the same target.
    pub(super) fn is(&self, other: &ShelfDir) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// The error of something that can only go to this target, if it failed.
    pub(super) fn down(&self) -> Option<DiskError> {
        self.load.as_ref().and_then(|load| load.down())
    }

    /// The time that a call on the target which has been under way for so long is still given.
    pub(super) fn patience_left(&self, waited: Duration) -> Duration {
        self.load.as_ref().map_or(Duration::MAX, |load| load.patience_left(waited))
    }

    /// Notes that a call on the target has not come back for so long.
    pub(super) fn hangs(&self, waited: Duration) {
        self.load.iter().for_each(|load| load.hangs(waited));
    }

    /// The number of the target, for people.
    pub(super) fn number(&self) -> u32 {
        self.load.as_ref().map_or(0, |load| load.id().0)
    }

    /// Judges the result of a call that writes to the target, as that of any other file there.
    pub(super) fn judged<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        match &self.load {
            Some(load) => load.judged(result),
            None => result,
        }
    }

    /// Makes an empty journal, locked by us, with a durable name. If it fails, nothing is left.
    ///
    /// # Errors
    /// The system's error; [`DiskError::Exists`] if this tag has a journal, or something that is no
    /// directory of ours has the shelf's name.
    pub(super) fn create(&self, tag: SessionTag) -> Result<JournalCopy, DiskError> {
        let (name, path) = (file_name(tag), self.shown(tag));
        for _ in 0..TRIES_MAX {
            let made = self.make().inspect_err(|error| {
                if error.kind() == ErrorKind::Alias {
                    self.remove_if_empty();
                }
            });
            let Some(dir) = made? else { continue };
            let fd = match self.kernel().create(&dir, &name, OFlags::RDWR, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => fd,
                // Another session removed the last journal there, and the shelf with it.
                Err(Errno::NOENT) => continue,
                Err(Errno::EXIST) => return Err(DiskError::Exists { path, what: "a session of this tag has left it" }),
                Err(error) => {
                    self.remove_if_empty();
                    return Err(DiskError::call("create", path, error));
                }
            };
            match self.begin(&fd, &dir, &path) {
                Ok(Some(locked)) => return Ok(JournalCopy::new(self.clone(), (tag, fd), 0, locked)),
                Ok(None) => {}
                Err(error) => {
                    // Removed by its name, as long as the tag is ours: no other session makes one
                    // of this tag.
                    let _ = self.unlink(tag);
                    drop(fd);
                    self.remove_if_empty();
                    return Err(error);
                }
            }
        }
        Err(DiskError::call("create", path, Errno::BUSY))
    }

    /// Locks a new journal and makes its name durable. `None` if another session removed it: one
    /// that found it before it was locked takes it for an abandoned one, and removes it. An empty
    /// journal has promised nothing.
    fn begin(&self, fd: &OwnedFd, dir: &OwnedFd, path: &PathText) -> Result<Option<Locked>, DiskError> {
        let locked = self.lock(fd).map_err(|error| DiskError::call("lock", path, error))?;
        if !stands(fd).map_err(|error| DiskError::call("examine", path, error))? {
            return Ok(None);
        }
        self.kernel().write_in_place(fd);
        self.kernel().fsync(dir).map_err(|error| DiskError::call("sync the directory of", path, error))?;
        Ok(Some(locked))
    }

    /// Opens the journal of this tag, and locks it if no other session has.
    ///
    /// # Errors
    /// The system's error; [`DiskError::NotAFile`] for anything but a regular file,
    /// [`DiskError::Foreign`] for one that another user owns or may write to, [`DiskError::Escape`]
    /// for a link.
    pub(super) fn open(&self, tag: SessionTag) -> Result<Opening, DiskError> {
        let path = self.shown(tag);
        let Some(fd) = self.opened(tag)? else { return Ok(Opening::Gone) };
        let Some(locked) = self.try_lock(&fd).map_err(|error| DiskError::call("lock", &path, error))? else {
            return Ok(Opening::Held);
        };
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", &path, error))?;
        // Its last owner may have removed it before releasing the lock.
        if stat.st_nlink == 0 {
            return Ok(Opening::Gone);
        }
        Ok(Opening::Free(JournalCopy::new(self.clone(), (tag, fd), crate::stat::len_of(&stat), locked)))
    }

    /// The tags of all journals, sorted. Empty where there is no shelf.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn list(&self) -> Result<Vec<SessionTag>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(Vec::new()) };
        let mut tags = Vec::new();
        match each_name(&dir, |name| tags.extend(name.strip_suffix(SUFFIX).and_then(SessionTag::parse))) {
            // It was removed while we looked.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(DiskError::call("list", self.path(), error)),
        }
        tags.sort_unstable();
        Ok(tags)
    }

    /// The way to its file system.
    pub(super) fn kernel(&self) -> &Kernel {
        self.root.kernel()
    }

    /// Opens a journal for reading and writing, as long as it is one of ours.
    pub(super) fn opened(&self, tag: SessionTag) -> Result<Option<OwnedFd>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(None) };
        opened_in(&dir, file_name(tag).as_ref(), OFlags::RDWR, self.shown(tag))
    }

    /// The directory. `None` if it does not stand.
    pub(super) fn dir(&self) -> Result<Option<OwnedFd>, DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(&self.root, &*self.name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                // Where every user may make names, another user's file there says no more than that
                // user's directory would.
                let stat = statat(&self.root, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
                ours(&stat.map_err(|error| DiskError::call("examine", self.path(), error))?, self.path())?;
                return Err(DiskError::NotADirectory { path: self.path() });
            }
            Err(error) => return Err(DiskError::call("open", self.path(), error)),
        };
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", self.path(), error))?;
        ours_alone(&stat, self.path())?;
        if self.is_of_user() {
            private(&stat, self.path())?;
        }
        Ok(Some(fd))
    }

    /// The directory, made if it does not stand, with a durable name. `None` if another process
    /// removed it at once.
    pub(super) fn make(&self) -> Result<Option<OwnedFd>, DiskError> {
        if let Some(dir) = self.dir()? {
            // The process that made it may have died before it was durable, or its sync failed.
            if !self.is_synced(&dir)? {
                self.sync_name(&dir)?;
            }
            return Ok(Some(dir));
        }
        match self.kernel().mkdirat(&self.root, &self.name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(DiskError::call("make the directory", self.path(), error)),
        }
        let Some(dir) = self.dir()? else { return Ok(None) };
        self.sync_name(&dir)?;
        Ok(Some(dir))
    }

    /// Makes the directory's name durable, after a check that no other name leads to it.
    fn sync_name(&self, dir: &OwnedFd) -> Result<(), DiskError> {
        self.refuse_aliases(dir)?;
        self.root.sync().map_err(|error| DiskError::call("sync the directory above", self.path(), error))?;
        *self.synced.lock().unwrap_or_else(PoisonError::into_inner) = Some(id_of(dir)?);
        Ok(())
    }

    /// Refuses a file system that takes other spellings for our reserved names, which no rule about
    /// names refuses to a peer: by such a spelling a peer could read and forge the journals here.
    /// It is tried out, once on each shelf.
    fn refuse_aliases(&self, dir: &OwnedFd) -> Result<(), DiskError> {
        let id = id_of(dir)?;
        let rest = &self.name[NAME.len()..];
        for alias in ALIASES {
            let alias = [*alias, rest].concat();
            let found = statat(&self.root, alias.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|stat| crate::stat::place_of(&stat) == id) {
                return Err(DiskError::Alias { path: alias.as_slice().into() });
            }
        }
        Ok(())
    }

    /// Whether the name of this directory was synced here already.
    fn is_synced(&self, dir: &OwnedFd) -> Result<bool, DiskError> {
        Ok(*self.synced.lock().unwrap_or_else(PoisonError::into_inner) == Some(id_of(dir)?))
    }

    /// Makes the names on the shelf durable, and whether the shelf itself stands.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn sync(&self) -> Result<(), DiskError> {
        let synced = |error| DiskError::call("sync the directory", self.path(), error);
        if let Some(dir) = self.dir()? {
            self.kernel().fsync(&dir).map_err(synced)?;
        }
        self.root.sync().map_err(synced)
    }

    /// Fails if the file system of the shelf takes no more changes, though a sync was called good.
    pub(super) fn takes_changes(&self) -> Result<(), Errno> {
        match self.dir() {
            Ok(Some(dir)) => self.kernel().takes_changes(dir),
            // There is no shelf to ask.
            _ => Ok(()),
        }
    }

    /// Removes the name of a journal, and then its epoch.
    pub(super) fn unlink(&self, tag: SessionTag) -> Result<(), DiskError> {
        let Some(dir) = self.dir()? else { return Ok(()) };
        match self.kernel().unlinkat(&dir, &file_name(tag)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(DiskError::call("remove", self.shown(tag), error)),
        }
        if self.load.is_some() {
            epoch::remove(self.kernel(), &dir, tag);
        }
        Ok(())
    }

    /// Removes the shelf if no journal stands on it. Removed journals must be closed first: FUSE
    /// and NFS keep a file that is open under another name in its directory.
    pub(super) fn remove_if_empty(&self) {
        let Ok(Some(dir)) = self.dir() else { return };
        if self.load.is_some() {
            epoch::remove_left(self.kernel(), &dir);
        }
        // Refused as long as there is another one. The tree looks as if there had never been one:
        // its top keeps its time.
        let before = statat(&self.root, c".", AtFlags::SYMLINK_NOFOLLOW);
        if self.kernel().rmdirat(&self.root, &self.name).is_ok()
            && let Ok(before) = before
        {
            let meta = meta_of(&before);
            let _ = self.kernel().utimensat(&self.root, b".", &times(&meta));
        }
    }
}

/// Whether an open file still has its name.
fn stands(fd: &OwnedFd) -> Result<bool, Errno> {
    fstat(fd).map(|stat| stat.st_nlink > 0)
}

/// The device and inode of a directory.
fn id_of(dir: &OwnedFd) -> Result<(u64, u64), DiskError> {
    let stat = fstat(dir).map_err(|error| DiskError::call("examine", NAME, error))?;
    let identity = identity_of(&stat);
    Ok((identity.dev, identity.ino))
}

/// Refuses a file that another user owns: its content is the choice of that user.
fn ours(stat: &Stat, path: PathText) -> Result<(), DiskError> {
    if stat.st_uid == geteuid().as_raw() { Ok(()) } else { Err(DiskError::Foreign { path }) }
}

/// Refuses a directory into which others may look. One that somebody made for the user may be so.
fn private(stat: &Stat, path: PathText) -> Result<(), DiskError> {
    if stat.st_mode & 0o077 == 0 { Ok(()) } else { Err(DiskError::Foreign { path }) }
}

/// Opens a file of ours, and of nobody else, in the shelf's directory. `None` if it does not stand.
/// Faults name it by `path`.
pub(super) fn opened_in(
    dir: &OwnedFd,
    name: &[u8],
    flags: OFlags,
    path: PathText,
) -> Result<Option<OwnedFd>, DiskError> {
    // A fifo in its place must not make us wait.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(DiskError::Escape { path }),
        Err(Errno::ISDIR | Errno::NXIO) => return Err(DiskError::NotAFile { path }),
        Err(error) => return Err(DiskError::call("open", path, error)),
    };
    let stat = fstat(&file).map_err(|error| DiskError::call("examine", &path, error))?;
    if type_of(&stat) != FileType::RegularFile {
        return Err(DiskError::NotAFile { path });
    }
    ours_alone(&stat, path)?;
    Ok(Some(file))
}

/// Refuses also one of ours to which others may write: who is let into the directory can give a
/// file that a client has sent the name of a journal.
pub(crate) fn ours_alone(stat: &Stat, path: PathText) -> Result<(), DiskError> {
    ours(stat, path.clone())?;
    if stat.st_mode & OTHERS_WRITE == 0 { Ok(()) } else { Err(DiskError::Foreign { path }) }
}

/// The name of a journal on the shelf.
pub(super) fn file_name(tag: SessionTag) -> Vec<u8> {
    [tag.to_string().as_bytes(), SUFFIX].concat()
}

/// The path of a journal beneath the root, for messages.
pub(super) fn shown(tag: SessionTag) -> PathText {
    PathText::from([NAME, b"/", &file_name(tag)].concat().as_slice())
}

/// The name of the directory.
pub(crate) const NAME: &[u8] = RESERVED_PREFIX;
/// Spellings of the shelf's name that some file system might take for it and that
/// [`longhaul_core::is_reserved`] does not know: a short name without a number (vfat with
/// `nonumtail`), marks on letters that are not compared, blanks that are cut off.
pub(crate) const ALIASES: &[&[u8]] = &[
    b"longhaul",
    b"LONGHAUL",
    ".l\u{f3}nghaul".as_bytes(),
    ".lo\u{301}nghaul".as_bytes(),
    b" .longhaul",
    b"..longhaul",
];
/// The bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// The end of the name of a journal.
pub(super) const SUFFIX: &[u8] = b".journal";
/// The number of times that a shelf or journal is made again after another process removed it. A
/// process that does nothing but remove wins about two times in three (measured); no real process
/// does only that.
pub(super) const TRIES_MAX: usize = 128;
