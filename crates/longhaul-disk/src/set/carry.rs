//! Carries one file or link from a target of a set to another one.
//!
//! In: a set that nobody else uses, a path, and two targets. Out: the name stands on the other
//! target, with the same bytes, permissions and time, and no more on the first. In this order: an
//! empty copy under a temporary name; the record of the move; the bytes, synced, read back from the
//! medium and compared; the name; the removal of the original. A file that would not be the same
//! there stays where it is. Chooses nothing, and knows no sessions.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_core::{Preserve, RelPath, SessionTag, TempName};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timestamps, flistxattr, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::destination::{DirHandle, Replace, random};
use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, SetError};
use crate::fill::{Cached, fill, read_up_to};
use crate::kernel::XATTR_BYTES_MAX;
use crate::set::moves::{FileVersion, Move, MoveKind, gone};
use crate::set::pace::Pace;
use crate::set::{SetTarget, TargetSet};
use crate::stat::{len_of, meta_of, times, type_of};
use crate::walk::Dir;

/// A file under way.
struct Carried<'s> {
    set: &'s TargetSet,
    path: &'s RelPath,
    name: &'s [u8],
    from: &'s SetTarget,
    to: &'s SetTarget,
    here: Arc<Dir>,
    there: Arc<Dir>,
    stat: Stat,
}

/// The extended attributes of a file, access lists among them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Xattrs {
    /// The copy gets them.
    Copied,
    /// A file that has some is not copied.
    Refused,
}

impl TargetSet {
    /// Carries the file or link at `path` from a target to another one. If it fails, the name
    /// stands as before, and nothing is left of the copy.
    ///
    /// # Errors
    /// [`SetError::Stays`] if it would not be the same there; the system's error.
    pub(super) fn carry(
        &self,
        path: &RelPath,
        (from, to): (&SetTarget, &SetTarget),
        pace: &Pace,
    ) -> Result<(), DiskError> {
        let (Some(above), Some(name)) = (path.parent(), path.name()) else { return Err(stays(path, "it has no name")) };
        let failed = |error| DiskError::call("examine", path, error);
        let here = from.tree.dir(&above)?;
        let stat = statat(&here, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if !matches!(type_of(&stat), FileType::RegularFile | FileType::Symlink) {
            return Err(stays(path, "it is neither a file nor a link"));
        }
        if stat.st_nlink != 1 {
            return Err(stays(path, "it has several names"));
        }
        // One that stands on two targets is refused here.
        self.stat(path)?;
        make_dirs_like(from, to, &above)?;
        let there = to.tree.dir(&above)?;
        let _times = KeptTimes::of(&[&here, &there]);
        Carried { set: self, path, name, from, to, here, there, stat }.carry(pace)
    }
}

impl TargetSet {
    /// Copies the file or link `name` with this `stat` to the directory `there`, in the place of
    /// what stands under its name, with its attributes. The original stays. `path` is for messages.
    ///
    /// # Errors
    /// [`SetError::Stays`] if the copy would not be the same; the system's error.
    pub(super) fn replicate(
        &self,
        (path, name, stat): (&RelPath, &[u8], &Stat),
        (from, to): (&SetTarget, &SetTarget),
        (here, there): (&Arc<Dir>, &Arc<Dir>),
        pace: &Pace,
    ) -> Result<(), DiskError> {
        if !matches!(type_of(stat), FileType::RegularFile | FileType::Symlink) {
            return Err(stays(path, "it is neither a file nor a link"));
        }
        let (here, there) = (Arc::clone(here), Arc::clone(there));
        let carried = Carried { set: self, path, name, from, to, here, there, stat: *stat };
        let random = || random().map_err(|error| carried.failed("name a copy of", error));
        let temp = TempName::new(SessionTag(random()?), random()?);
        let (_, fd) = carried.make(&temp)?;
        let copied = fd.map_or(Ok(()), |fd| carried.copy(&fd, (&temp, Xattrs::Copied), pace));
        let (kernel, there) = (carried.there.kernel(), &carried.there);
        let published = copied.and_then(|()| {
            let renamed = kernel.renameat(there, &temp.file_name(), name, Replace::Allowed);
            renamed.map_err(|error| carried.failed("publish the copy of", error))
        });
        published.inspect_err(|_| _ = kernel.unlinkat(there, &temp.file_name()))
    }
}

/// Directories that get the times back that they had, when this is dropped: names come and go in
/// them, and nothing of that is news. Best effort.
struct KeptTimes(Vec<(Arc<Dir>, Stat)>);

impl KeptTimes {
    fn of(dirs: &[&Arc<Dir>]) -> KeptTimes {
        let known = |dir: &&Arc<Dir>| Some((Arc::clone(dir), statat(*dir, c".", AtFlags::empty()).ok()?));
        KeptTimes(dirs.iter().filter_map(known).collect())
    }
}

impl Drop for KeptTimes {
    fn drop(&mut self) {
        for (dir, stat) in &self.0 {
            let _ = dir.kernel().set_times_of_place(dir, &times(&meta_of(stat)));
        }
    }
}

impl Carried<'_> {
    fn carry(&self, pace: &Pace) -> Result<(), DiskError> {
        let random = || random().map_err(|error| self.failed("name a copy of", error));
        let temp = TempName::new(SessionTag(random()?), random()?);
        let (copy, fd) = self.make(&temp)?;
        let kind = MoveKind::Name { to: self.to.id, copy, from: FileVersion::of(&self.stat) };
        let known = Move { path: self.path.clone(), temp, kind };
        let written = known.record(self.from, self.set).and_then(|()| match &fd {
            Some(fd) => self.copy(fd, (&temp, Xattrs::Refused), pace),
            None => Ok(()),
        });
        let published = written.and_then(|()| self.publish(&temp));
        // Forward or back: what has to be done is the same as after a crash.
        let settled = self.set.settle(self.from, &known);
        published.and(settled)
    }

    /// Makes the copy: a file without content, or the link. Returns its inode number.
    fn make(&self, temp: &TempName) -> Result<(u64, Option<OwnedFd>), DiskError> {
        let (kernel, name) = (self.there.kernel(), temp.file_name());
        let failed = |error| self.failed("make a copy of", error);
        let fd = if type_of(&self.stat) == FileType::Symlink {
            let target = readlinkat(&self.here, self.name, Vec::new()).map_err(failed)?;
            kernel.symlinkat(target.as_bytes(), &self.there, &name).map_err(failed)?;
            let set = kernel.utimensat(&self.there, &name, &times(&meta_of(&self.stat)));
            set.inspect_err(|_| _ = kernel.unlinkat(&self.there, &name)).map_err(failed)?;
            None
        } else {
            Some(kernel.create(&self.there, &name, OFlags::RDWR, Mode::RUSR | Mode::WUSR).map_err(failed)?)
        };
        let fits = || {
            let made = statat(&self.there, &name[..], AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            if (made.st_uid, made.st_gid) != (self.stat.st_uid, self.stat.st_gid) {
                let given = kernel.give_to_owner_of(&self.stat, &self.there, &name);
                given.map_err(|_| stays(self.path, "the copy would belong to another user or group"))?;
            }
            Ok(FileVersion::of(&made).ino())
        };
        fits().inspect_err(|_| _ = kernel.unlinkat(&self.there, &name)).map(|ino| (ino, fd))
    }

    /// Copies the content, makes it durable, and compares what lies there with what was read.
    fn copy(&self, to: &OwnedFd, (temp, xattrs): (&TempName, Xattrs), pace: &Pace) -> Result<(), DiskError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = openat(&self.here, self.name, flags, Mode::empty()).map_err(|error| self.failed("open", error))?;
        if xattrs == Xattrs::Refused {
            self.need_same_xattrs(&from, to)?;
        }
        let (kernel, len) = (self.there.kernel(), len_of(&self.stat));
        let failed = |error| self.failed("write a copy of", error);
        let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; PIECE_BYTES], 0);
        kernel.ftruncate(to, len).map_err(failed)?;
        while at < len {
            let wanted = usize::try_from(len - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let read = read_up_to(&from, &mut buffer[..wanted], at).map_err(|error| self.failed("read", error))?;
            if read < wanted {
                return Err(self.changed());
            }
            hasher.update(&buffer[..read]);
            // What is zeros stays a hole.
            let mut done = if buffer[..read].iter().all(|byte| *byte == 0) { read } else { 0 };
            while done < read {
                match kernel.pwrite(to, &buffer[done..read], at + done as u64) {
                    Ok(0) => return Err(failed(Errno::NOSPC)),
                    Ok(written) => done += written,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            at += read as u64;
            pace.wait(read as u64);
        }
        if xattrs == Xattrs::Copied {
            // A write would take the capabilities of a program from it again.
            let copied = kernel.copy_xattrs(&from, to);
            copied.map_err(|error| self.failed("copy the attributes of", error))?;
            self.need_same_xattrs(&from, to)?;
        }
        let mode = Mode::from_raw_mode(self.stat.st_mode & 0o7777);
        kernel.fchmod(to, mode).map_err(failed)?;
        kernel.futimens(to, &self.times()).map_err(failed)?;
        kernel.fsync(to).map_err(failed)?;
        if self.read_back(temp, len)? != hasher.finalize() {
            return Err(DiskError::from(SetError::Differs { path: self.path.into(), target: self.to.id.0 }));
        }
        let still = fstat(&from).map_err(|error| self.failed("examine", error))?;
        if FileVersion::of(&still) == FileVersion::of(&self.stat) { Ok(()) } else { Err(self.changed()) }
    }

    fn times(&self) -> Timestamps {
        times(&meta_of(&self.stat))
    }

    /// The digest of the copy as it lies on the medium.
    fn read_back(&self, temp: &TempName, len: u64) -> Result<blake3::Hash, DiskError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.there, &temp.file_name()[..], flags, Mode::empty());
        let fd = fd.map_err(|error| self.failed("read back", error))?;
        let (handle, _) = Handle::adopt(fd, self.path.into(), DirectMode::Auto, OFlags::NONBLOCK)?;
        let handle = handle.written_by(self.there.kernel());
        let mut buffer = vec![0; PIECE_BYTES + ALIGN];
        let aligned = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        while at < len {
            let wanted = usize::try_from(len - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let back = fill(&handle, at, wanted, &mut buffer[aligned..], Cached::Dropped)?;
            if back.len < wanted {
                return Err(self.changed());
            }
            hasher.update(&buffer[aligned..aligned + wanted]);
            at += wanted as u64;
        }
        Ok(hasher.finalize())
    }

    /// Refuses a file with attributes or access lists of which the copy has not the same names.
    fn need_same_xattrs(&self, from: &OwnedFd, to: &OwnedFd) -> Result<(), DiskError> {
        let names = |fd: &OwnedFd| {
            let mut names = vec![0; XATTR_BYTES_MAX];
            match flistxattr(fd, &mut names[..]) {
                Ok(len) => Ok(names[..len].to_vec()),
                Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        };
        let failed = |error| self.failed("examine the attributes of", error);
        let (from, to) = (names(from).map_err(failed)?, names(to).map_err(failed)?);
        let has = |name: &[u8]| to.split(|byte| *byte == 0).any(|known| known == name);
        match from.split(|byte| *byte == 0).all(has) || from.is_empty() {
            true => Ok(()),
            false => Err(stays(self.path, "it has extended attributes or an access list")),
        }
    }

    /// Gives the copy its name: the commit point.
    fn publish(&self, temp: &TempName) -> Result<(), DiskError> {
        let stat = statat(&self.here, self.name, AtFlags::SYMLINK_NOFOLLOW);
        if FileVersion::of(&stat.map_err(|error| self.failed("examine", error))?) != FileVersion::of(&self.stat) {
            return Err(self.changed());
        }
        let renamed = self.there.kernel().renameat(&self.there, &temp.file_name(), self.name, Replace::Never);
        renamed.map_err(|error| self.failed("publish the copy of", error))
    }

    fn changed(&self) -> DiskError {
        DiskError::Changed { path: self.path.into(), how: "it was written to while it was copied" }
    }

    fn failed(&self, call: &'static str, error: Errno) -> DiskError {
        DiskError::call(call, self.path, error)
    }
}

/// Makes the directories down to `path` on another target as they are on this one.
pub(super) fn make_dirs_like(from: &SetTarget, to: &SetTarget, path: &RelPath) -> Result<(), DiskError> {
    let mut levels: Vec<RelPath> = std::iter::successors(Some(path.clone()), RelPath::parent).collect();
    levels.retain(|level| !level.is_root());
    for level in levels.iter().rev() {
        let (Some(above), Some(name)) = (level.parent(), level.name()) else { continue };
        let failed = |error| DiskError::call("make the directory", level, error);
        let (like, parent) = (from.tree.dir(level)?, to.tree.dir(&above)?);
        let _times = KeptTimes::of(&[&parent]);
        match parent.kernel().mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => continue,
            Err(error) => return Err(failed(error)),
        }
        let stat = statat(&like, c".", AtFlags::empty()).map_err(failed)?;
        let made = DirHandle::open(&parent, name).map_err(failed)?;
        made.set_meta(Some(stat.st_mode & 0o777), &meta_of(&stat), Preserve::default()).map_err(failed)?;
        parent.sync().map_err(|error| DiskError::call("sync the directory", &above, error))?;
    }
    Ok(())
}

/// Removes the directory at `path` of a target, once it stands on another one. Returns whether it
/// is gone: one that holds anything stays.
pub(super) fn leave_dir(from: &SetTarget, to: &SetTarget, path: &RelPath) -> Result<bool, DiskError> {
    let (Some(above), Some(name)) = (path.parent(), path.name()) else { return Ok(false) };
    make_dirs_like(from, to, path)?;
    let dir = from.tree.dir(&above)?;
    let _times = KeptTimes::of(&[&dir]);
    match gone(dir.kernel().rmdirat(&dir, name)) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(DiskError::call("remove the directory", path, error)),
    }
}

fn stays(path: &RelPath, why: &'static str) -> DiskError {
    SetError::Stays { path: path.into(), why }.into()
}

/// Bytes that are copied at a time: as few requests as count for nothing beside the disk's work.
const PIECE_BYTES: usize = 1 << 20;
const ALIGN: usize = 4096;
