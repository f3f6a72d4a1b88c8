//! The system's facts about a file as types of ours: [`Identity`], [`Standing`], times. Pure
//! conversions.

use longhaul_core::{Clock, FileNode, Inode, Meta, Mtime};
use rustix::fs::{FileType, Stat, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT};

/// The identity of a file and its version: equal before and after a read, it means that nothing was
/// written between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub len: u64,
    /// Last change of the content.
    pub mtime: Mtime,
    /// Last change of content or metadata, which no ordinary user can set back.
    pub ctime: Mtime,
}

/// The kind and facts of an entry at a name. Links are reported, never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A regular file.
    File {
        /// Length in bytes.
        len: u64,
        /// Permissions and times.
        meta: Meta,
        /// The precision of times on its file system.
        clock: Clock,
    },
    /// A directory.
    Dir {
        /// Permissions and times.
        meta: Meta,
    },
    /// A symbolic link.
    Symlink {
        /// Its target, as it is.
        target: Vec<u8>,
        /// Permissions (meaningless) and times of the link itself.
        meta: Meta,
    },
    /// Anything else.
    Special {
        /// `fifo`, `socket`, `device`, `unknown`, or `on two targets` of a set.
        what: &'static str,
        /// Permissions and times.
        meta: Meta,
    },
}

impl Standing {
    /// Permissions and times of any kind of entry.
    pub fn meta(&self) -> Meta {
        match self {
            Standing::File { meta, .. }
            | Standing::Dir { meta }
            | Standing::Symlink { meta, .. }
            | Standing::Special { meta, .. } => meta.clone(),
        }
    }
}

/// The file type in a mode.
pub(crate) fn type_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The name of a special file's kind.
pub(crate) fn special_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        _ => "unknown",
    }
}

/// Permissions and modification time.
#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
pub(crate) fn meta_of(stat: &Stat) -> Meta {
    Meta::new(stat.st_mode & 0o7777, Mtime::said(stat.st_mtime as i64, stat.st_mtime_nsec as u32))
}

/// The device number.
#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
pub(crate) fn dev_of(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

/// The device and inode of a file or directory.
#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
pub(crate) fn place_of(stat: &Stat) -> (u64, u64) {
    (dev_of(stat), stat.st_ino as u64)
}

/// The length in bytes.
pub(crate) fn len_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Whether fewer blocks are allocated than the length needs.
#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
pub(crate) fn is_sparse(stat: &Stat) -> bool {
    (stat.st_blocks as u64).saturating_mul(512) < len_of(stat)
}

/// The identity of a file from `stat`.
#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
pub(crate) fn identity_of(stat: &Stat) -> Identity {
    Identity {
        dev: dev_of(stat),
        ino: stat.st_ino as u64,
        len: len_of(stat),
        mtime: Mtime::said(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        ctime: Mtime::said(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
    }
}

/// The identity of a file without its version, from `statx`.
pub(crate) fn node_of_statx(stat: &Statx) -> FileNode {
    let born = Mtime::said(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
    let said = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let Identity { dev, ino, .. } = identity_of_statx(stat);
    FileNode { dev, ino, born: said.then_some(born) }
}

/// The part of the identity that travels with the entry.
pub(crate) fn inode_of(stat: &Stat) -> Inode {
    let Identity { dev, ino, ctime, .. } = identity_of(stat);
    Inode { dev, ino, ctime }
}

/// The identity of a file from `statx`.
pub(crate) fn identity_of_statx(stat: &Statx) -> Identity {
    Identity {
        dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        len: stat.stx_size,
        mtime: Mtime::said(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        ctime: Mtime::said(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
    }
}

/// The modification time to set; the access time stays.
pub(crate) fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime.secs, tv_nsec: i64::from(meta.mtime.nanos) as _ },
    }
}
