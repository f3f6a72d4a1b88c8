//! The shelf: the directory `.longhaul` at the top of a tree, where the journals of sessions lie.
//!
//! Takes tags and bytes from the engine; gives journals, each locked while its session lives, and
//! what stands of others. Made with the first journal, gone with the last. Knows nothing of what a
//! journal says. Follows no link, and touches nothing that another user owns.

mod boot;
mod journal;
mod locks;
mod sweep;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::SessionTag;
use longhaul_core::limits::RESERVED_PREFIX;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{DiskError, ErrorKind, PathText};
use crate::kernel::Kernel;
use crate::names::each_name;
use crate::stat::times;
use crate::stat::{identity_of, meta_of, type_of};
use crate::walk::Dir;

pub use boot::boot_id;
pub use journal::{Journal, JournalReader};
use locks::Locked;
pub(crate) use sweep::sweep;

/// The shelf of a tree. Cheap to make and to clone: nothing is opened until something is asked of
/// it.
#[derive(Clone, Debug)]
pub struct Shelf {
    root: Arc<Dir>,
    /// The directory whose name was synced here (`st_dev` and inode number).
    synced: Arc<Mutex<Option<(u64, u64)>>>,
}

/// What [`Shelf::open`] found.
#[derive(Debug)]
pub enum Shelved {
    /// A journal that nobody had: it is ours now.
    Free(Journal),
    /// One whose session lives. It may be read as far as it goes.
    Held(JournalReader),
    /// Nothing.
    Gone,
}

impl Shelf {
    pub(crate) fn of(root: &Arc<Dir>) -> Shelf {
        Shelf { root: Arc::clone(root), synced: Arc::default() }
    }

    /// Makes a journal, locked by us; its name is durable, it holds nothing yet. What fails leaves
    /// nothing.
    ///
    /// # Errors
    /// What the system says; [`DiskError::Exists`] if this tag has a journal, or something that is
    /// no directory of ours has the shelf's name.
    pub fn create(&self, tag: SessionTag) -> Result<Journal, DiskError> {
        let (name, path) = (file_name(tag), shown(tag));
        for _ in 0..TRIES_MAX {
            let made = self.make().inspect_err(|error| {
                if error.kind() == ErrorKind::Alias {
                    self.remove_if_empty();
                }
            });
            let Some(dir) = made? else { continue };
            let fd = match self.kernel().create(&dir, &name, OFlags::RDWR, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => fd,
                // Another session's journal went, the last one there, and the shelf with it.
                Err(Errno::NOENT) => continue,
                Err(Errno::EXIST) => return Err(DiskError::Exists { path, what: "a session of this tag has left it" }),
                Err(error) => {
                    self.remove_if_empty();
                    return Err(DiskError::call("create", path, error));
                }
            };
            match self.begin(&fd, &dir, &path) {
                Ok(Some(locked)) => return Ok(Journal::new(self.clone(), (tag, fd), 0, locked)),
                Ok(None) => {}
                Err(error) => {
                    // Under its name, as long as that is ours: nobody else makes one of this tag.
                    let _ = self.unlink(tag);
                    drop(fd);
                    self.remove_if_empty();
                    return Err(error);
                }
            }
        }
        Err(DiskError::call("create", path, Errno::BUSY))
    }

    /// Locks a new journal and makes its name durable; none if somebody took it away. Somebody who
    /// came upon it before us takes it for one that was left, and removes it: an empty journal has
    /// promised nothing.
    fn begin(&self, fd: &OwnedFd, dir: &OwnedFd, path: &PathText) -> Result<Option<Locked>, DiskError> {
        let locked = self.lock(fd).map_err(|error| DiskError::call("lock", path, error))?;
        if !stands(fd).map_err(|error| DiskError::call("examine", path, error))? {
            return Ok(None);
        }
        self.kernel().write_in_place(fd);
        self.kernel().fsync(dir).map_err(|error| DiskError::call("sync the directory of", path, error))?;
        Ok(Some(locked))
    }

    /// Opens the journal of this tag, and locks it if nobody else has.
    ///
    /// # Errors
    /// What the system says; [`DiskError::NotAFile`] for anything but a regular file,
    /// [`DiskError::Foreign`] for one that another user owns, [`DiskError::Escape`] for a link.
    pub fn open(&self, tag: SessionTag) -> Result<Shelved, DiskError> {
        let path = shown(tag);
        let Some(fd) = self.opened(tag)? else { return Ok(Shelved::Gone) };
        let Some(locked) = self.try_lock(&fd).map_err(|error| DiskError::call("lock", &path, error))? else {
            return Ok(Shelved::Held(JournalReader::new(tag, fd)));
        };
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", &path, error))?;
        // Whoever had it may have removed it before letting go of the lock.
        if stat.st_nlink == 0 {
            return Ok(Shelved::Gone);
        }
        Ok(Shelved::Free(Journal::new(self.clone(), (tag, fd), crate::stat::len_of(&stat), locked)))
    }

    /// Opens the journal of this tag to look into, whoever has it; none if it does not stand. Locks
    /// nothing.
    ///
    /// # Errors
    /// As [`Shelf::open`].
    pub fn look(&self, tag: SessionTag) -> Result<Option<JournalReader>, DiskError> {
        Ok(self.opened(tag)?.map(|fd| JournalReader::new(tag, fd)))
    }

    /// Whether a session of this tag lives: its journal stands and is locked, be it by this
    /// process. Locks nothing itself.
    ///
    /// # Errors
    /// As [`Shelf::open`].
    pub fn is_live(&self, tag: SessionTag) -> Result<bool, DiskError> {
        self.look(tag)?.map_or(Ok(false), |reader| reader.is_live())
    }

    /// The tags of all journals, sorted. None where there is no shelf.
    ///
    /// # Errors
    /// What the system says.
    pub fn list(&self) -> Result<Vec<SessionTag>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(Vec::new()) };
        let mut tags = Vec::new();
        match each_name(&dir, |name| tags.extend(name.strip_suffix(SUFFIX).and_then(SessionTag::parse))) {
            // It went while we looked.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(DiskError::call("list", NAME, error)),
        }
        tags.sort_unstable();
        Ok(tags)
    }

    fn kernel(&self) -> &Kernel {
        self.root.kernel()
    }

    /// Opens a journal for reading and writing, as long as it is one of ours.
    fn opened(&self, tag: SessionTag) -> Result<Option<OwnedFd>, DiskError> {
        let path = shown(tag);
        let Some(dir) = self.dir()? else { return Ok(None) };
        // A fifo in its place must not make us wait.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(&dir, file_name(tag), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(DiskError::Escape { path }),
            Err(Errno::ISDIR | Errno::NXIO) => return Err(DiskError::NotAFile { path }),
            Err(error) => return Err(DiskError::call("open", path, error)),
        };
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", &path, error))?;
        if type_of(&stat) != FileType::RegularFile {
            return Err(DiskError::NotAFile { path });
        }
        ours(&stat, path)?;
        Ok(Some(fd))
    }

    /// The directory; none if there is none.
    fn dir(&self) -> Result<Option<OwnedFd>, DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(&self.root, NAME, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                // What another user put there, where everybody may make names, says no more than
                // that user's directory would.
                let stat = statat(&self.root, NAME, AtFlags::SYMLINK_NOFOLLOW);
                ours(&stat.map_err(|error| DiskError::call("examine", NAME, error))?, NAME.into())?;
                return Err(DiskError::NotADirectory { path: NAME.into() });
            }
            Err(error) => return Err(DiskError::call("open", NAME, error)),
        };
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", NAME, error))?;
        ours(&stat, NAME.into())?;
        Ok(Some(fd))
    }

    /// The directory, made if there is none, its name durable; none if somebody removed it at once.
    fn make(&self) -> Result<Option<OwnedFd>, DiskError> {
        if let Some(dir) = self.dir()? {
            // Whoever made it may have died before it was durable, or its sync failed.
            if !self.is_synced(&dir)? {
                self.sync_name(&dir)?;
            }
            return Ok(Some(dir));
        }
        match self.kernel().mkdirat(&self.root, NAME, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(DiskError::call("make the directory", NAME, error)),
        }
        let Some(dir) = self.dir()? else { return Ok(None) };
        self.sync_name(&dir)?;
        Ok(Some(dir))
    }

    /// Makes it durable that the directory stands, where its name is its only one.
    fn sync_name(&self, dir: &OwnedFd) -> Result<(), DiskError> {
        self.refuse_aliases(dir)?;
        self.root.sync().map_err(|error| DiskError::call("sync the directory above", NAME, error))?;
        *self.synced.lock().unwrap_or_else(PoisonError::into_inner) = Some(id_of(dir)?);
        Ok(())
    }

    /// Refuses a file system that takes for our names what no rule about names refuses to a peer:
    /// by such a spelling anybody could read and forge what is journalled here. It is tried out, on
    /// each shelf once.
    fn refuse_aliases(&self, dir: &OwnedFd) -> Result<(), DiskError> {
        let id = id_of(dir)?;
        for alias in ALIASES {
            let found = statat(&self.root, *alias, AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|stat| crate::stat::place_of(&stat) == id) {
                return Err(DiskError::Alias { path: (*alias).into() });
            }
        }
        Ok(())
    }

    /// Whether that was done here.
    fn is_synced(&self, dir: &OwnedFd) -> Result<bool, DiskError> {
        Ok(*self.synced.lock().unwrap_or_else(PoisonError::into_inner) == Some(id_of(dir)?))
    }

    /// Makes durable which names stand on it, and whether it stands itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> Result<(), DiskError> {
        let synced = |error| DiskError::call("sync the directory", NAME, error);
        if let Some(dir) = self.dir()? {
            self.kernel().fsync(&dir).map_err(synced)?;
        }
        self.root.sync().map_err(synced)
    }

    /// Takes the name of a journal away.
    fn unlink(&self, tag: SessionTag) -> Result<(), DiskError> {
        let Some(dir) = self.dir()? else { return Ok(()) };
        match self.kernel().unlinkat(&dir, &file_name(tag)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(DiskError::call("remove", shown(tag), error)),
        }
    }

    /// Takes the shelf away if no journal stands on it. Those that were removed must be closed:
    /// FUSE and NFS keep a file that is open under another name in its directory.
    pub fn remove_if_empty(&self) {
        if !matches!(self.dir(), Ok(Some(_))) {
            return;
        }
        // Refused as long as there is another one. The tree looks as if there had never been one:
        // its top keeps its time.
        let before = statat(&self.root, c".", AtFlags::SYMLINK_NOFOLLOW);
        if self.kernel().rmdirat(&self.root, NAME).is_ok()
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

/// Which directory it is.
fn id_of(dir: &OwnedFd) -> Result<(u64, u64), DiskError> {
    let stat = fstat(dir).map_err(|error| DiskError::call("examine", NAME, error))?;
    let identity = identity_of(&stat);
    Ok((identity.dev, identity.ino))
}

/// Refuses what another user owns: it says what that user wants us to believe.
fn ours(stat: &Stat, path: PathText) -> Result<(), DiskError> {
    if stat.st_uid == geteuid().as_raw() { Ok(()) } else { Err(DiskError::Foreign { path }) }
}

/// The name of a journal on the shelf.
fn file_name(tag: SessionTag) -> Vec<u8> {
    [tag.to_string().as_bytes(), SUFFIX].concat()
}

/// The same beneath the root, for messages.
fn shown(tag: SessionTag) -> PathText {
    PathText::from([NAME, b"/", &file_name(tag)].concat().as_slice())
}

const NAME: &[u8] = RESERVED_PREFIX;
/// Spellings of the shelf's name that some file system might take for it and
/// [`longhaul_core::is_reserved`] knows nothing of: a short name without a number (vfat with
/// `nonumtail`), marks on letters that are not compared, blanks that are cut off.
pub(crate) const ALIASES: &[&[u8]] = &[
    b"longhaul",
    b"LONGHAUL",
    ".l\u{f3}nghaul".as_bytes(),
    ".lo\u{301}nghaul".as_bytes(),
    b" .longhaul",
    b"..longhaul",
];
const SUFFIX: &[u8] = b".journal";
/// How often a shelf or journal that somebody removed under our hands is made again. One who does
/// nothing but clear away wins about two times in three (measured); nobody does nothing else.
const TRIES_MAX: usize = 128;

#[cfg(test)]
mod tests;
