//! [`NameFacts`]: by what a name of a tree is known again, and the looks at a tree that need it.
//!
//! In: a tree and paths beneath it. Out: facts, to whoever plans to move names away and does so
//! later. Follows no link, and changes nothing.

use longhaul_core::Mtime;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use crate::stat::{identity_of, type_of};
use crate::walk::Dir;

/// The kind of a name, as far as it matters to whoever moves names away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Dir,
    /// A fifo, a socket or a device, which is never moved.
    Special,
}

/// The facts by which a name is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFacts {
    /// Its kind.
    pub kind: NameKind,
    /// The device that it lies on.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The last change of its content.
    pub mtime: Mtime,
}

impl NameFacts {
    /// The facts of a `stat`.
    pub(crate) fn of(stat: &Stat) -> NameFacts {
        let kind = match type_of(stat) {
            FileType::RegularFile => NameKind::File,
            FileType::Symlink => NameKind::Link,
            FileType::Directory => NameKind::Dir,
            _ => NameKind::Special,
        };
        let found = identity_of(stat);
        NameFacts { kind, dev: found.dev, ino: found.ino, bytes: found.len, mtime: found.mtime }
    }

    /// Whether what has the facts `now` is what had these. The length and time of a directory
    /// change with the names in it, and do not count.
    pub fn is_still(&self, now: &NameFacts) -> bool {
        let is_same = (self.kind, self.dev, self.ino) == (now.kind, now.dev, now.ino);
        is_same && (self.kind == NameKind::Dir || (self.bytes, self.mtime) == (now.bytes, now.mtime))
    }
}

/// The facts of a name in a directory. `None` if nothing has it.
pub(crate) fn facts_in(dir: &Dir, name: &[u8]) -> Result<Option<NameFacts>, Errno> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(NameFacts::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
