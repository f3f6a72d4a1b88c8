//! The manifest of a sender: one [`Entry`] per name, in the order of a depth-first walk.
//!
//! A directory comes before its content and again, as [`EntryKind::DirEnd`], after it: only then
//! can its times and mode be set for good. Neither side ever holds the whole manifest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::checksum::{Algorithms, FileSums};
use crate::extras::Extras;
use crate::fault::FaultCode;
use crate::path::RelPath;
use crate::text::PlainText;

/// One name of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its path beneath the transfer's top.
    pub path: RelPath,
    /// Its kind.
    pub kind: EntryKind,
    /// Permissions, times and extras at the source.
    pub meta: Meta,
}

/// The kind of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its length when it was scanned, in bytes; frozen for this transfer.
        len: u64,
        /// Whether its blocks are fewer than its length: chunks in holes then travel without
        /// payload.
        sparse: bool,
        /// The version of the file, which a receiver compares with the partial that it holds.
        inode: Inode,
    },
    /// A directory, before its content.
    Dir,
    /// The same directory, after its content.
    DirEnd,
    /// A symbolic link, sent as a link.
    Symlink {
        /// Its target, unchanged.
        target: Vec<u8>,
    },
    /// Something that is not sent. It is in the manifest so that the receiver's side hears of it.
    Unsent {
        /// The code of the failure. `None` if it is no failure (a fifo, a socket, a device, a link
        /// that is not wanted).
        failure: Option<FaultCode>,
        /// Its kind or its failure, in words for people.
        why: PlainText,
    },
    /// A stream: a file that is longer than a chunk, and whose length nobody knows before its end.
    Stream {
        /// The version of the stream. No other run of its sender ever has the same.
        inode: Inode,
        /// Bytes that the sender keeps until they are durable at the receiver, at most.
        kept_bytes: u64,
    },
}

/// The identity of a file at its source, beside its length and time. No ordinary user can set it
/// back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inode {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Last change of content or metadata.
    pub ctime: Mtime,
}

impl Inode {
    /// The identity of a stream that is read once, made of 16 random bytes. No file of a system has
    /// it: device numbers do not reach so far.
    pub const fn of_stream(dev: u64, ino: u64, ctime: Mtime) -> Inode {
        Inode { dev: dev | STREAM_DEV_BIT, ino, ctime }
    }

    /// Whether it is the identity of a stream.
    pub const fn is_of_stream(&self) -> bool {
        self.dev & STREAM_DEV_BIT != 0
    }
}

/// The bit that the device number of a stream has.
const STREAM_DEV_BIT: u64 = 1 << 63;

/// Permissions and times, and what else a transfer carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits (`07777`).
    pub mode: u32,
    /// Last change of the content.
    pub mtime: Mtime,
    /// Everything else. `None`: there is none, or the transfer carries none. It is no part of the
    /// entry on the wire, but goes before the page of its entry.
    #[serde(skip)]
    pub extras: Option<Arc<Extras>>,
    /// The names of a file that has several. `None`: it has one, or the transfer makes no hard
    /// links. It travels as extras do.
    #[serde(skip)]
    pub names: Option<Arc<SeveralNames>>,
    /// Checksums of the bytes that were received, to be kept with the file. `None`: there are none.
    /// They are the receiver's own, and no part of the entry on the wire.
    #[serde(skip)]
    pub sums: Option<Arc<FileSums>>,
}

/// The names of a file that has several (hard links), as one of them tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeveralNames {
    /// The path of the name that the manifest has first, as the sender names it. `None`: it is this
    /// one.
    pub first: Option<RelPath>,
    /// How many names the file has at the source, whether they are sent or not.
    pub count: u32,
}

impl SeveralNames {
    /// Its cost: bytes that it takes here, never fewer than on the wire.
    pub fn cost(&self) -> usize {
        NAMES_COST + self.first.as_ref().map_or(0, |first| first.as_bytes().len())
    }
}

/// The cost of the names of a file without the path.
pub const NAMES_COST: usize = 32;

impl Meta {
    /// Permissions and time without extras.
    pub const fn new(mode: u32, mtime: Mtime) -> Meta {
        Meta { mode, mtime, extras: None, names: None, sums: None }
    }
}

/// A point in time as file systems keep it: seconds since 1970 (may be negative) and nanoseconds. A
/// value with a second of nanoseconds or more does not parse: some such numbers are orders to the
/// system (`UTIME_NOW`, `UTIME_OMIT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "MtimeRead")]
pub struct Mtime {
    /// Whole seconds.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// A time as it is read, before it is checked.
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
    /// The time of a file as a system says it. Nanoseconds of a second or more, which a file server
    /// may send, are cut to 999,999,999.
    pub fn said(secs: i64, nanos: u32) -> Mtime {
        Mtime { secs, nanos: nanos.min(NANOS_PER_SECOND - 1) }
    }
}

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// The metadata of files that a transfer carries over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification times.
    pub times: bool,
    /// Symbolic links as links (if not, they are skipped and named).
    pub links: bool,
    /// Holes as holes.
    pub sparse: bool,
    /// Extended attributes of users. Both sides of a transfer agree on this and what follows by
    /// bits of their capabilities.
    #[serde(default)]
    pub xattrs: bool,
    /// Owners and groups, and with them set-id bits.
    #[serde(default)]
    pub owner: bool,
    /// Access lists.
    #[serde(default)]
    pub acls: bool,
    /// Several names of one file as names of one file (hard links).
    #[serde(default)]
    pub hardlinks: bool,
    /// Further checksums that the receiver computes, tells and keeps with each file that it
    /// commits.
    #[serde(default)]
    pub sums: Algorithms,
}

impl Default for Preserve {
    fn default() -> Self {
        Preserve { mode: true, times: true, links: true, sparse: true, ..Preserve::NOTHING }
    }
}

impl Preserve {
    /// Nothing but names and content.
    pub const NOTHING: Preserve = Preserve {
        mode: false,
        times: false,
        links: false,
        sparse: false,
        xattrs: false,
        owner: false,
        acls: false,
        hardlinks: false,
        sums: Algorithms::NONE,
    };

    /// Everything that can be carried over.
    pub const EVERYTHING: Preserve = Preserve {
        mode: true,
        times: true,
        links: true,
        sparse: true,
        xattrs: true,
        owner: true,
        acls: true,
        hardlinks: true,
        sums: Algorithms::NONE,
    };

    /// Whether entries have [`Extras`].
    pub const fn has_extras(&self) -> bool {
        self.xattrs || self.owner || self.acls
    }

    /// Whether anything can be lost that is told as a loss: [`Extras`], hard links, and checksums
    /// that cannot be kept.
    pub const fn may_lose(&self) -> bool {
        self.has_extras() || self.hardlinks || !self.sums.is_empty()
    }

    /// The kinds that both sides must know, by their names: those of [`Extras`], and hard links.
    pub fn agreed_names(&self) -> Vec<&'static str> {
        let kinds =
            [("xattrs", self.xattrs), ("owner", self.owner), ("acls", self.acls), ("hardlinks", self.hardlinks)];
        kinds.into_iter().filter(|(_, is_kept)| *is_kept).map(|(name, _)| name).collect()
    }

    /// The same without the kinds that both sides must know.
    #[must_use]
    pub const fn without_extras(self) -> Preserve {
        Preserve { xattrs: false, owner: false, acls: false, hardlinks: false, ..self }
    }
}

/// The rule for a name that stands at the destination already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum IfExists {
    /// Skip a file of the same size and time without comparing its content; replace any other.
    #[default]
    SkipSame,
    /// Replace any file or link that stands there.
    Replace,
    /// Fail that file.
    Fail,
    /// Compare the digests of a file of the same size on both sides, and send the chunks that
    /// differ into a new file that replaces it; skip it if no chunk differs. Replace a file of
    /// another size.
    Verify,
}
