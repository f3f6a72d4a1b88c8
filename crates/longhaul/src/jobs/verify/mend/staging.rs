//! The directory of this host in which copies lie until they are known to be right, and are under
//! their names.
//!
//! In: a place for it. Out: a directory for each tree that gives copies; all of it goes with the
//! value. It lies in a directory that is this user's alone and has nothing else in it: only there
//! is removed what a killed process of this host has left. Must not know which copies are right.

#![allow(clippy::disallowed_methods, reason = "the directory is this side's own: no peer names anything above it")]

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use longhaul_core::{Blame, Escaped, Fault, FaultCode, Mtime, RelPath};
use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps, UTIME_OMIT, flock, statvfs, utimensat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::system::uname;
use tempfile::TempDir;

use crate::jobs::spec::beneath;

/// A directory for copies.
pub(super) struct Staging {
    dir: TempDir,
    /// Held while the directory is used.
    _lock: File,
}

impl Staging {
    /// A directory in this one, which is made if its parent is there.
    ///
    /// # Errors
    /// The fault of a directory that cannot be made.
    pub(super) fn make(parent: &Path) -> Result<Staging, Fault> {
        Staging::made(parent).map_err(|error| failed(parent, &error))
    }

    /// A directory in that of longhaul at the top of a destination, so that copies are on the disk
    /// of the files.
    ///
    /// # Errors
    /// As [`Staging::make`].
    pub(super) fn make_at(dest: &Path) -> Result<Staging, Fault> {
        let shelf = dest.join(SHELF_NAME);
        // No link is followed there: whoever may write to the destination may have made one.
        match std::fs::symlink_metadata(&shelf) {
            Ok(found) if !found.is_dir() => Err(failed(&shelf, &ErrorKind::NotADirectory.into())),
            _ => Staging::make(&shelf),
        }
    }

    /// Removes what killed processes have left in that of longhaul at the top of a destination.
    pub(super) fn clear_at(dest: &Path) {
        let shelf = dest.join(SHELF_NAME);
        if std::fs::symlink_metadata(&shelf).is_ok_and(|found| found.is_dir()) {
            let home = shelf.join(home_name());
            if is_ours(&home).is_ok() {
                let _ = remove_left(&home);
                let _ = std::fs::remove_dir(&home);
            }
        }
    }

    fn made(parent: &Path) -> io::Result<Staging> {
        let home = parent.join(home_name());
        // Another process may remove what it takes for left, or is empty, at the same moment.
        for _ in 1..MAKE_TRIES {
            match Staging::made_once(parent, &home) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotFound) => {}
                made => return made,
            }
        }
        Staging::made_once(parent, &home)
    }

    fn made_once(parent: &Path, home: &Path) -> io::Result<Staging> {
        for dir in [parent, home] {
            match DirBuilder::new().mode(0o700).create(dir) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        is_ours(home)?;
        remove_left(home)?;
        let dir = tempfile::Builder::new().prefix(&prefix()).tempdir_in(home)?;
        // What lies in it is given the permissions of the tree that it is from.
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700))?;
        let lock = File::open(dir.path())?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error == Errno::WOULDBLOCK => return Err(error.into()),
            // Where there are no locks, nothing that is left is removed either.
            _ => {}
        }
        std::fs::symlink_metadata(dir.path())?;
        Ok(Staging { dir, _lock: lock })
    }

    /// Whether the copy of a file from the tree of a number can be read.
    ///
    /// # Errors
    /// The fault of one that cannot.
    pub(super) fn is_readable(&self, tree: usize, path: &RelPath) -> Result<(), Fault> {
        let copy = beneath(&self.stage(tree)?, path);
        let unread = |error| {
            let message = format_args!("its copy on this host cannot be read: {error}");
            Fault::new(FaultCode::Io, Blame::Local, message)
        };
        File::open(&copy).map(|_| ()).map_err(unread)
    }

    /// The directory for the copies of the tree of a number.
    ///
    /// # Errors
    /// As [`Staging::make`].
    pub(super) fn stage(&self, tree: usize) -> Result<PathBuf, Fault> {
        let stage = self.dir.path().join(tree.to_string());
        match DirBuilder::new().mode(0o700).create(&stage) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(&stage, &error)),
            _ => Ok(stage),
        }
    }

    /// The directory at a path in that, for this user alone.
    ///
    /// # Errors
    /// As [`Staging::make`].
    pub(super) fn stage_in(&self, tree: usize, within: &RelPath) -> Result<PathBuf, Fault> {
        let dir = beneath(&self.stage(tree)?, within);
        match DirBuilder::new().recursive(true).mode(0o700).create(&dir) {
            Err(error) => Err(failed(&dir, &error)),
            Ok(()) => Ok(dir),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = open_up(self.dir.path());
        let _ = std::fs::remove_dir_all(self.dir.path());
        // These stay if anybody else has something there.
        let home = self.dir.path().parent();
        let _ = home.map(std::fs::remove_dir);
        if let Some(shelf) = home.and_then(Path::parent).filter(|parent| parent.ends_with(SHELF_NAME)) {
            let _ = std::fs::remove_dir(shelf);
        }
    }
}

/// Gives a copy its time.
///
/// # Errors
/// The system's.
pub(super) fn give_time(copy: &Path, mtime: Mtime) -> io::Result<()> {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() };
    let times = Timestamps { last_access: omitted, last_modification };
    Ok(utimensat(CWD, copy, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Gives the directories in which copies lie the permissions, times and owners of those in which
/// the files stand: a transfer gives the latter what the former have.
///
/// # Errors
/// The fault of a directory that cannot be given them.
pub(super) fn dress(stage: &Path, dest: &Path, paths: &[RelPath]) -> Result<(), Fault> {
    let mut dressed = BTreeSet::new();
    for path in paths {
        let mut above = path.parent();
        while let Some(dir) = above.filter(|dir| !dressed.contains(dir)) {
            let copy = beneath(stage, &dir);
            dress_one(&beneath(dest, &dir), &copy).map_err(|error| failed(&copy, &error))?;
            above = dir.parent();
            dressed.insert(dir);
        }
    }
    Ok(())
}

fn dress_one(standing: &Path, copy: &Path) -> io::Result<()> {
    let found = match std::fs::metadata(standing) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        found => found?,
    };
    // Only root may, and only for root are owners carried over.
    let _ = lchown(copy, Some(found.uid()), Some(found.gid()));
    std::fs::set_permissions(copy, Permissions::from_mode(found.mode() & 0o7777))?;
    give_time(copy, Mtime::said(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default()))
}

/// The room for this user on the disk of a directory, in bytes.
///
/// # Errors
/// The fault of a directory whose disk does not tell.
pub(super) fn room_at(dir: &Path) -> Result<u64, Fault> {
    let found = statvfs(dir).map_err(|error| {
        let message = format_args!("the room at the destination is not known: {error}");
        Fault::new(FaultCode::Io, Blame::Local, message)
    })?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Refuses a directory that is a link, or of another user, or in which others may write.
fn is_ours(home: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(home)?;
    match found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::PermissionDenied, "it is not this user's alone")),
    }
}

/// The name of the directory with the directories of this user.
fn home_name() -> String {
    format!("{HOME_PREFIX}{}", geteuid().as_raw())
}

/// The beginning of the names of directories of this host. Another host's locks may not be seen.
fn prefix() -> String {
    let host = uname().nodename().to_string_lossy().replace('/', "_");
    format!("{host}@")
}

/// Removes directories of this host that nobody uses any more.
fn remove_left(home: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(home)? {
        let entry = entry?;
        let is_of_host = entry.file_name().as_encoded_bytes().starts_with(prefix().as_bytes());
        if !is_of_host || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let place = entry.path();
        let is_left = File::open(&place).is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_left && open_up(&place).and_then(|()| std::fs::remove_dir_all(&place)).is_err() {
            tracing::debug!(place = %place.display(), "what an earlier run has left cannot be removed");
        }
    }
    Ok(())
}

/// Lets this user remove all that is in a directory: copies of directories have the permissions of
/// the tree that gave them.
fn open_up(dir: &Path) -> io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

fn failed(place: &Path, error: &io::Error) -> Fault {
    let shown = Escaped(place.as_os_str().as_encoded_bytes()).to_string();
    let code = match error.kind() {
        ErrorKind::PermissionDenied => FaultCode::Denied,
        ErrorKind::NotFound => FaultCode::NotFound,
        _ => FaultCode::Io,
    };
    let message = format_args!("there is no directory for copies in '{shown}': {error}");
    Fault::new(code, Blame::Local, message)
        .about(shown)
        .hint_in_words("let it be a directory of this user alone, and its parent one in which this user may write")
}

/// The beginning of the name of the directory of a user.
const HOME_PREFIX: &str = "mend-";
/// Times that it is made.
const MAKE_TRIES: u32 = 5;
/// The name of the directory that longhaul has at the top of a destination.
const SHELF_NAME: &str = ".longhaul";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_another_one_uses_stays() {
        let top = tempfile::tempdir().unwrap();
        let first = Staging::make_at(top.path()).unwrap();
        let stage = first.stage(0).unwrap();
        assert_eq!(first.stage(0).unwrap(), stage);
        let shelf = top.path().join(SHELF_NAME);
        let home = shelf.join(home_name());
        let left = home.join(format!("{}left", prefix()));
        let others = [home.join("another.example@left"), shelf.join("mend-notes"), top.path().join("mend-notes")];
        for other in &others {
            std::fs::create_dir(other).unwrap();
        }
        std::fs::create_dir_all(left.join("0/closed")).unwrap();
        std::fs::set_permissions(left.join("0/closed"), Permissions::from_mode(0o500)).unwrap();
        let second = Staging::make_at(top.path()).unwrap();
        assert!(stage.exists() && !left.exists());
        assert_eq!(std::fs::metadata(stage.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        drop((first, second));
        Staging::clear_at(top.path());
        for other in others {
            assert!(other.exists(), "{}", other.display());
            std::fs::remove_dir(other).unwrap();
        }
        drop(Staging::make_at(top.path()).unwrap());
        assert!(!shelf.exists(), "nothing is left");
    }

    #[test]
    fn a_directory_of_copies_in_which_others_may_write_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().join(SHELF_NAME).join(home_name());
        std::fs::create_dir_all(&home).unwrap();
        std::fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
        assert!(Staging::make_at(top.path()).is_err());
        std::fs::remove_dir(&home).unwrap();
        std::os::unix::fs::symlink(top.path(), &home).unwrap();
        assert!(Staging::make_at(top.path()).is_err());
    }

    #[test]
    fn directories_of_copies_are_given_what_those_have_that_stand() {
        let top = tempfile::tempdir().unwrap();
        let (stage, dest) = (top.path().join("stage"), top.path().join("dest"));
        std::fs::create_dir_all(stage.join("a/new")).unwrap();
        std::fs::create_dir_all(dest.join("a")).unwrap();
        std::fs::set_permissions(dest.join("a"), Permissions::from_mode(0o750)).unwrap();
        give_time(&dest.join("a"), Mtime { secs: 7, nanos: 1 }).unwrap();
        std::fs::set_permissions(stage.join("a/new"), Permissions::from_mode(0o711)).unwrap();
        dress(&stage, &dest, &[RelPath::new("a/new/f").unwrap(), RelPath::new("a/g").unwrap()]).unwrap();
        let found = |path: &str| std::fs::metadata(stage.join(path)).unwrap();
        assert_eq!((found("a").mode() & 0o777, found("a").mtime()), (0o750, 7));
        assert_eq!(found("a/new").mode() & 0o777, 0o711, "no such directory stands");
    }

    #[test]
    fn a_copy_is_given_its_time_also_if_that_is_before_1970() {
        let top = tempfile::tempdir().unwrap();
        let copy = top.path().join("f");
        std::fs::write(&copy, b"x").unwrap();
        give_time(&copy, Mtime { secs: -7, nanos: 5 }).unwrap();
        let found = std::fs::metadata(&copy).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (-7, 5));
    }

    #[test]
    fn a_link_in_place_of_the_directory_at_the_destination_is_refused() {
        let top = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", top.path().join(SHELF_NAME)).unwrap();
        assert!(Staging::make_at(top.path()).is_err());
        assert!(!top.path().join("elsewhere").exists());
    }
}
