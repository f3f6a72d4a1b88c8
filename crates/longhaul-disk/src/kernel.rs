//! The system calls by which this crate changes a target's file system and makes it durable. All of
//! them are here; no other module makes one of its own.
//!
//! Takes descriptors and names from the target and the shelf; gives the system's answers. An
//! [`Interposer`] may stand between the two: it sees each call before and after, may refuse it, and
//! may answer a sync in the system's place. With it a test simulates a medium that loses, tears and
//! fails beneath the real code. Without one a call costs a comparison more than the bare call.
//! Knows nothing of temporaries, journals or their order.

#![allow(clippy::disallowed_methods, reason = "this is the one place for these calls")]

mod moves;

use std::fmt::Debug;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use longhaul_core::Mtime;
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Stat, StatFs, StatVfsMountFlags, Timestamps,
    fstatfs, fstatvfs,
};
use rustix::io::{self, Errno};

/// Stands between this crate and the system. For tests.
pub trait Interposer: Debug + Send + Sync {
    /// Called before a call is made; decides whether it is made.
    fn begin(&self, call: &Call<'_>) -> Passage;

    /// Called after a call that was made: with the file that it made, if it makes one, or with the
    /// system's error.
    fn end(&self, token: u64, outcome: Result<Option<InodeId>, Errno>);

    /// Reads a file's bytes from the medium, for reads past the page cache. `None`: the file itself
    /// is read.
    fn read_medium(&self, file: InodeId, offset: u64, into: &mut [u8]) -> Option<usize>;

    /// The type of the file system as `statfs` gives it (`f_type`). `None`: the system is asked.
    fn file_system_type(&self) -> Option<u64>;

    /// The error of a lock call, where the file system is to have no locks. `None`: the system is
    /// asked.
    fn refuses_locks(&self) -> Option<Errno> {
        None
    }
}

/// The passage that a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The call is made; its end is told with this token.
    Made(u64),
    /// The call is a write, and only this many of its bytes are written; its end is told with this
    /// token.
    Short(u64, usize),
    /// The call is not made: this is its answer.
    Answered(Result<(), Errno>),
}

/// A file or directory of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// An open descriptor: its number, and the file that it is open on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Descriptor {
    /// The file or directory that is open.
    pub inode: InodeId,
    /// The number. The system uses it again once it is closed.
    pub number: i32,
}

/// Whether a final name that is taken may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replace {
    /// It may be replaced, atomically; a directory never is.
    Allowed,
    /// It may not be replaced: that is an error.
    Never,
}

/// A call that changes a file system or syncs it.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is the system call of that name, and its arguments")]
pub enum Call<'a> {
    MakeDir {
        dir: InodeId,
        name: &'a [u8],
    },
    Create {
        dir: InodeId,
        name: &'a [u8],
    },
    Symlink {
        dir: InodeId,
        name: &'a [u8],
        target: &'a [u8],
    },
    Link {
        dir: InodeId,
        from: &'a [u8],
        to: &'a [u8],
    },
    Rename {
        dir: InodeId,
        from: &'a [u8],
        to: &'a [u8],
        replace: Replace,
    },
    Remove {
        dir: InodeId,
        name: &'a [u8],
    },
    RemoveDir {
        dir: InodeId,
        name: &'a [u8],
    },
    Write {
        file: InodeId,
        offset: u64,
        bytes: &'a [u8],
    },
    SetLen {
        file: InodeId,
        len: u64,
    },
    Reserve {
        file: InodeId,
        offset: u64,
        len: u64,
    },
    MakeHole {
        file: InodeId,
        offset: u64,
        len: u64,
    },
    SetMode {
        file: InodeId,
        bits: u32,
    },
    SetTime {
        file: InodeId,
        mtime: Mtime,
    },
    SyncData {
        of: Descriptor,
    },
    Sync {
        of: Descriptor,
    },
    /// A descriptor that is kept to sync its whole file system is open now.
    Watch {
        of: Descriptor,
    },
    SyncFileSystem {
        of: Descriptor,
    },
}

/// The system, or the interposer before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    interposer: Option<Arc<dyn Interposer>>,
}

impl Kernel {
    /// The system behind `interposer`.
    pub(crate) fn behind(interposer: Arc<dyn Interposer>) -> Kernel {
        Kernel { interposer: Some(interposer) }
    }

    /// Whether an interposer stands before the system: then no other way to the system may be
    /// taken.
    pub(crate) fn is_interposed(&self) -> bool {
        self.interposer.is_some()
    }

    /// The type of the file system that `fd` lies on, as `statfs` says it.
    pub(crate) fn file_system_type(&self, fd: impl AsFd) -> Result<u64, Errno> {
        match self.interposer.as_ref().and_then(|interposer| interposer.file_system_type()) {
            Some(said) => Ok(said),
            None => fstatfs(fd).map(|stat| type_number(&stat)),
        }
    }

    /// Fails with `ROFS` if the file system of `dir` takes no more changes: it is mounted
    /// read-only, or has given up its journal.
    ///
    /// ext4 notices that its journal was aborted, by whoever's sync, only when the next change
    /// begins. Until then it calls every sync good that has nothing of its own to wait for: seen on
    /// Linux 6.18, where since 6.12 `statfs` does not say read-only either. A file without a name
    /// is such a change, and leaves nothing. Other errors say nothing of the journal: no rights, no
    /// room, no descriptors, no such files, or a directory that another host has removed.
    pub(crate) fn takes_changes(&self, dir: impl AsFd) -> Result<(), Errno> {
        if fstatvfs(&dir).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            return Err(Errno::ROFS);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::ROFS) => Err(Errno::ROFS),
            _ => Ok(()),
        }
    }

    /// Reads a file's bytes from the interposer's medium. `None` without one.
    pub(crate) fn read_medium(&self, fd: impl AsFd, offset: u64, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        let Some(interposer) = &self.interposer else { return Ok(None) };
        Ok(interposer.read_medium(inode_of(fd)?, offset, into))
    }

    /// The error of lock calls that the interposer gives. `None`: the system is asked.
    pub(crate) fn refuses_locks(&self) -> Option<Errno> {
        self.interposer.as_ref().and_then(|interposer| interposer.refuses_locks())
    }

    /// Has an empty file written in place on a file system that copies on write, so that room
    /// reserved for it is used. Does nothing where that is not possible or not needed.
    pub(crate) fn write_in_place(&self, fd: impl AsFd) {
        if self.interposer.is_none() && fs::fstatfs(&fd).is_ok_and(|stat| stat.f_type == BTRFS) {
            let flags = fs::ioctl_getflags(&fd).unwrap_or(fs::IFlags::empty());
            let _ = fs::ioctl_setflags(&fd, flags | fs::IFlags::NOCOW);
        }
    }

    /// Makes a directory in `dir`.
    pub(crate) fn mkdirat(&self, dir: impl AsFd, name: &[u8], mode: Mode) -> Result<(), Errno> {
        let call = || Ok(Call::MakeDir { dir: inode_of(&dir)?, name });
        self.pass(call, || fs::mkdirat(&dir, name, mode), |()| named(&dir, name))
    }

    /// Makes a directory that the operator named.
    pub(crate) fn mkdir_named(&self, path: &Path, above: impl AsFd, mode: Mode) -> Result<(), Errno> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let call = || Ok(Call::MakeDir { dir: inode_of(&above)?, name });
        self.pass(call, || fs::mkdirat(CWD, path, mode), |()| named(&above, name))
    }

    /// Creates a file that must not stand yet, and opens it with `flags`.
    pub(crate) fn create(&self, dir: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let call = || Ok(Call::Create { dir: inode_of(&dir)?, name });
        self.pass(call, || fs::openat(&dir, name, flags, mode), |fd| inode_of(fd).map(Some))
    }

    /// Makes a symbolic link.
    pub(crate) fn symlinkat(&self, target: &[u8], dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        let call = || Ok(Call::Symlink { dir: inode_of(&dir)?, name, target });
        self.pass(call, || fs::symlinkat(target, &dir, name), |()| named(&dir, name))
    }

    /// Gives a file a second name in its directory.
    pub(crate) fn linkat(&self, dir: impl AsFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let call = || Ok(Call::Link { dir: inode_of(&dir)?, from, to });
        self.pass(call, || fs::linkat(&dir, from, &dir, to, AtFlags::empty()), unmade)
    }

    /// Gives a file a second name in another directory of its file system.
    pub(crate) fn link_between(
        &self,
        (from_dir, from): (impl AsFd, &[u8]),
        (dir, to): (impl AsFd, &[u8]),
    ) -> Result<(), Errno> {
        let call = || Ok(Call::Link { dir: inode_of(&dir)?, from, to });
        self.pass(call, || fs::linkat(&from_dir, from, &dir, to, AtFlags::empty()), unmade)
    }

    /// Gives a file or directory the extended attributes of another one, access lists among them.
    pub(crate) fn copy_xattrs(&self, from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let len = match fs::flistxattr(&from, &mut names[..]) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            outcome => outcome?,
        };
        let mut value = vec![0; XATTR_BYTES_MAX];
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let len = fs::fgetxattr(&from, name, &mut value[..])?;
            fs::fsetxattr(&to, name, &value[..len], fs::XattrFlags::empty())?;
        }
        Ok(())
    }

    /// Renames within a directory.
    pub(crate) fn renameat(&self, dir: impl AsFd, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Errno> {
        let call = || Ok(Call::Rename { dir: inode_of(&dir)?, from, to, replace });
        let rename = || match replace {
            Replace::Allowed => fs::renameat(&dir, from, &dir, to),
            Replace::Never => fs::renameat_with(&dir, from, &dir, to, RenameFlags::NOREPLACE),
        };
        self.pass(call, rename, unmade)
    }

    /// Removes a name of a file.
    pub(crate) fn unlinkat(&self, dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        let call = || Ok(Call::Remove { dir: inode_of(&dir)?, name });
        self.pass(call, || fs::unlinkat(&dir, name, AtFlags::empty()), unmade)
    }

    /// Removes an empty directory.
    pub(crate) fn rmdirat(&self, dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        let call = || Ok(Call::RemoveDir { dir: inode_of(&dir)?, name });
        self.pass(call, || fs::unlinkat(&dir, name, AtFlags::REMOVEDIR), unmade)
    }

    /// Writes bytes at an offset. Returns how many.
    pub(crate) fn pwrite(&self, fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let Some(interposer) = &self.interposer else { return io::pwrite(fd, bytes, offset) };
        let (token, most) = match interposer.begin(&Call::Write { file: inode_of(&fd)?, offset, bytes }) {
            Passage::Made(token) => (token, bytes.len()),
            Passage::Short(token, most) => (token, most.min(bytes.len())),
            Passage::Answered(answer) => return answer.map(|()| bytes.len()),
        };
        let outcome = io::pwrite(fd, &bytes[..most], offset);
        interposer.end(token, outcome.map(|_| None));
        outcome
    }

    /// Sets a file's length.
    pub(crate) fn ftruncate(&self, fd: impl AsFd, len: u64) -> Result<(), Errno> {
        let call = || Ok(Call::SetLen { file: inode_of(&fd)?, len });
        self.pass(call, || fs::ftruncate(&fd, len), unmade)
    }

    /// Reserves blocks, leaving the file's length alone.
    pub(crate) fn reserve(&self, fd: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
        let call = || Ok(Call::Reserve { file: inode_of(&fd)?, offset, len });
        self.pass(call, || fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, offset, len), unmade)
    }

    /// Makes a hole, leaving the file's length alone.
    pub(crate) fn punch_hole(&self, fd: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
        let call = || Ok(Call::MakeHole { file: inode_of(&fd)?, offset, len });
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.pass(call, || fs::fallocate(&fd, flags, offset, len), unmade)
    }

    /// Sets permission bits.
    pub(crate) fn fchmod(&self, fd: impl AsFd, mode: Mode) -> Result<(), Errno> {
        let call = || Ok(Call::SetMode { file: inode_of(&fd)?, bits: mode.as_raw_mode() });
        self.pass(call, || fs::fchmod(&fd, mode), unmade)
    }

    /// Sets permission bits through a descriptor that was opened as a mere place: by way of the
    /// kernel's link to it, which leads nowhere else.
    pub(crate) fn chmod_place(&self, fd: impl AsFd, mode: Mode) -> Result<(), Errno> {
        let call = || Ok(Call::SetMode { file: inode_of(&fd)?, bits: mode.as_raw_mode() });
        self.pass(call, || fs::chmodat(CWD, by_number(&fd), mode, AtFlags::empty()), unmade)
    }

    /// Gives the file or link under a name to the owner and group of another one, which only root
    /// may do.
    pub(crate) fn give_to_owner_of(&self, like: &Stat, dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        let (user, group) = (fs::Uid::from_raw(like.st_uid), fs::Gid::from_raw(like.st_gid));
        fs::chownat(dir, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Sets times.
    pub(crate) fn futimens(&self, fd: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
        let call = || Ok(Call::SetTime { file: inode_of(&fd)?, mtime: mtime_of(times) });
        self.pass(call, || fs::futimens(&fd, times), unmade)
    }

    /// Sets times through a mere place in the same way.
    pub(crate) fn set_times_of_place(&self, fd: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
        let call = || Ok(Call::SetTime { file: inode_of(&fd)?, mtime: mtime_of(times) });
        self.pass(call, || fs::utimensat(CWD, by_number(&fd), times, AtFlags::empty()), unmade)
    }

    /// Sets times of the file under a name; of a link itself, never of its target.
    pub(crate) fn utimensat(&self, dir: impl AsFd, name: &[u8], times: &Timestamps) -> Result<(), Errno> {
        let file = || named(&dir, name)?.ok_or(Errno::NOENT);
        let call = || Ok(Call::SetTime { file: file()?, mtime: mtime_of(times) });
        self.pass(call, || fs::utimensat(&dir, name, times, AtFlags::SYMLINK_NOFOLLOW), unmade)
    }

    /// Syncs the data of a file.
    pub(crate) fn fdatasync(&self, fd: impl AsFd) -> Result<(), Errno> {
        let call = || Ok(Call::SyncData { of: descriptor(&fd)? });
        self.pass(call, || fs::fdatasync(&fd), unmade)
    }

    /// Syncs a file or directory.
    pub(crate) fn fsync(&self, fd: impl AsFd) -> Result<(), Errno> {
        let call = || Ok(Call::Sync { of: descriptor(&fd)? });
        self.pass(call, || fs::fsync(&fd), unmade)
    }

    /// Announces a descriptor that is kept for [`Kernel::syncfs`] from now on.
    pub(crate) fn watch(&self, fd: impl AsFd) -> Result<(), Errno> {
        self.pass(|| Ok(Call::Watch { of: descriptor(&fd)? }), || Ok(()), unmade)
    }

    /// Syncs a whole file system.
    pub(crate) fn syncfs(&self, fd: impl AsFd) -> Result<(), Errno> {
        let call = || Ok(Call::SyncFileSystem { of: descriptor(&fd)? });
        self.pass(call, || fs::syncfs(&fd), unmade)
    }

    /// Makes a call, if it is let through. `made` tells which file it made, if it makes one.
    fn pass<'a, T: Answer>(
        &self,
        call: impl FnOnce() -> Result<Call<'a>, Errno>,
        make: impl FnOnce() -> Result<T, Errno>,
        made: impl FnOnce(&T) -> Result<Option<InodeId>, Errno>,
    ) -> Result<T, Errno> {
        let Some(interposer) = &self.interposer else { return make() };
        let token = match interposer.begin(&call()?) {
            Passage::Made(token) | Passage::Short(token, _) => token,
            Passage::Answered(answer) => return answer.and_then(|()| T::answer()),
        };
        let outcome = make();
        let seen = outcome.as_ref().map_err(|error| *error).and_then(made);
        interposer.end(token, seen);
        outcome
    }
}

/// The kernel's own limit of a list of names, and of a value.
pub(crate) const XATTR_BYTES_MAX: usize = 64 << 10;
/// `f_type` of btrfs.
const BTRFS: fs::FsWord = 0x9123_683e;

/// A result that may be given without making the call.
trait Answer: Sized {
    fn answer() -> Result<Self, Errno>;
}

impl Answer for () {
    fn answer() -> Result<(), Errno> {
        Ok(())
    }
}

impl Answer for OwnedFd {
    /// A descriptor cannot be made up.
    fn answer() -> Result<OwnedFd, Errno> {
        Err(Errno::IO)
    }
}

/// The answer of calls that make nothing.
fn unmade<T>(_: &T) -> Result<Option<InodeId>, Errno> {
    Ok(None)
}

fn inode_of(fd: impl AsFd) -> Result<InodeId, Errno> {
    fs::fstat(fd).map(|stat| id_of(&stat))
}

fn named(dir: impl AsFd, name: &[u8]) -> Result<Option<InodeId>, Errno> {
    fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Some(id_of(&stat)))
}

#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
fn id_of(stat: &Stat) -> InodeId {
    InodeId { dev: stat.st_dev as u64, ino: stat.st_ino as u64 }
}

fn descriptor(fd: impl AsFd) -> Result<Descriptor, Errno> {
    Ok(Descriptor { inode: inode_of(&fd)?, number: fd.as_fd().as_raw_fd() })
}

fn by_number(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
fn mtime_of(times: &Timestamps) -> Mtime {
    Mtime { secs: times.last_modification.tv_sec as i64, nanos: times.last_modification.tv_nsec as u32 }
}

#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
fn type_number(stat: &StatFs) -> u64 {
    stat.f_type as u32 as u64
}
