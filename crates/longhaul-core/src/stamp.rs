//! [`SourceStamp`]: the version of a source file with which a transfer began.
//!
//! Taken by the sending side from the open file, kept in the receiver's journal; equal stamps mean
//! that the chunks received of one are good for the other. Knows nothing of how it is read from a
//! file or sent.

use serde::{Deserialize, Serialize};

use crate::manifest::Mtime;

/// The identity of a source file. Equal in every field: nothing was written to it between. Fields
/// are only ever appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStamp {
    /// Length in bytes.
    pub len: u64,
    /// Last change of the content.
    pub mtime: Mtime,
    /// Last change of content or metadata, which no ordinary user can set back.
    pub ctime: Mtime,
    /// Device (`st_dev`) at the source.
    pub dev: u64,
    /// Inode number at the source.
    pub ino: u64,
}

/// Identity of a file on this host's disks, whatever its name and content. Fields are only ever
/// appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNode {
    /// Device (`st_dev`). The same file system may have another number after it was mounted again.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Birth time. `None` if the system does not say: an inode that was freed and used again looks
    /// the same then.
    pub born: Option<Mtime>,
}
