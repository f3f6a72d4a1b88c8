//! What a sender says it has: one [`Entry`] per name, in the order of a depth-first walk.
//!
//! A directory comes before what lies in it and again, as [`EntryKind::DirEnd`], after all of it:
//! only then can its times and mode be set for good. Neither side ever holds the whole manifest.

use serde::{Deserialize, Serialize};

use crate::fault::FaultCode;
use crate::path::RelPath;
use crate::text::PlainText;

/// One name of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it goes, beneath the transfer's top.
    pub path: RelPath,
    /// What it is.
    pub kind: EntryKind,
    /// Permissions and times at the source.
    pub meta: Meta,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its length when it was scanned, in bytes; frozen for this transfer.
        len: u64,
        /// Whether its blocks are fewer than its length: chunks in holes then travel without
        /// payload.
        sparse: bool,
        /// Which version of it this is: a receiver that holds part of it compares.
        inode: Inode,
    },
    /// A directory, before its content.
    Dir,
    /// The same directory, after its content.
    DirEnd,
    /// A symbolic link, sent as a link.
    Symlink {
        /// What it points to, as it is.
        target: Vec<u8>,
    },
    /// Something that is not sent: it stands in the manifest so that the receiver's side hears of
    /// it.
    Unsent {
        /// The code of the failure; none where it is no failure (a fifo, a socket, a device, a link
        /// that is not wanted).
        failure: Option<FaultCode>,
        /// What it is, or what went wrong with it, for people.
        why: PlainText,
    },
}

/// Which file it was at its source, beside its length and time: what no ordinary user can set back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inode {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Last change of content or metadata.
    pub ctime: Mtime,
}

/// Permissions and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits (`07777`).
    pub mode: u32,
    /// Last change of the content.
    pub mtime: Mtime,
}

/// A point in time as file systems keep it: seconds since 1970 (may be negative) and nanoseconds.
/// One with a whole second of nanoseconds or more is none, and is not read: some such numbers are
/// orders to the system (`UTIME_NOW`, `UTIME_OMIT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "MtimeRead")]
pub struct Mtime {
    /// Whole seconds.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// A time as it is read, before it is known to be one.
#[derive(Deserialize)]
struct MtimeRead {
    secs: i64,
    nanos: u32,
}

/// A time whose nanoseconds make a second or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} nanoseconds are no part of a second")]
struct NoTime(u32);

impl TryFrom<MtimeRead> for Mtime {
    type Error = NoTime;
    fn try_from(MtimeRead { secs, nanos }: MtimeRead) -> Result<Mtime, NoTime> {
        if nanos < NANOS_PER_SECOND { Ok(Mtime { secs, nanos }) } else { Err(NoTime(nanos)) }
    }
}

impl Mtime {
    /// What a system says of a file. Nanoseconds that make a second or more, as a server of files
    /// may send them, are cut to the last one of it.
    pub fn said(secs: i64, nanos: u32) -> Mtime {
        Mtime { secs, nanos: nanos.min(NANOS_PER_SECOND - 1) }
    }
}

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// What of a file's metadata a transfer carries over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification times.
    pub times: bool,
    /// Symbolic links as links (else they are skipped and named).
    pub links: bool,
    /// Holes as holes.
    pub sparse: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Preserve { mode: true, times: true, links: true, sparse: true }
    }
}

/// What to do with a name that stands at the destination already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IfExists {
    /// Same size and time: skip, content not compared; else replace.
    #[default]
    SkipSame,
    /// Replace whatever stands there.
    Replace,
    /// That file fails.
    Fail,
    /// Same size: digests are compared on both sides, and chunks that differ are sent into a new
    /// file that replaces it; where none does: skip. Another size: replace.
    Verify,
}
