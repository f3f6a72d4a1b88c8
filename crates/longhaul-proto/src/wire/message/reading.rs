//! The messages by which an initiator has an acceptor read files, and tell their digests.
//!
//! Plain data. Their sender and their time are written at [`Message`](super::Message).

use serde::{Deserialize, Serialize};

use longhaul_core::{Fault, Hash32, Mtime, RelPath};

use super::Listing;

/// Bit of [`Hello::caps`](super::Hello::caps), beside a request to list a path: files beneath it
/// are to be read where they lie, and none are listed. An acceptor that knows the bit answers with
/// [`ReadingWord::Opened`], any other with a listing, and the initiator goes away.
pub const CAP_READING: u64 = 1 << 27;

/// A word of a conversation about the content of files that stay where they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadingWord {
    /// Acceptor, first: orders may come.
    Opened,
    /// Initiator: to say what has these names, without reading any. At most
    /// [`READING_NAMES_MAX`](longhaul_core::limits::READING_NAMES_MAX), beneath the path of the
    /// request.
    Look(Vec<RelPath>),
    /// Initiator: to read the files that have these names.
    Read(ReadOrder),
    /// Initiator: to list the names in this directory, of which the root path is that of the
    /// request.
    List(RelPath),
    /// Acceptor, in answer to an order about names, until the one that says it is the last.
    Found(FoundNames),
    /// Acceptor, in answer to an order to list: names in order, each once, until the last. Without
    /// any, it is still at work.
    Names(Listing),
}

/// An order to read files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOrder {
    /// The names, at most [`READING_NAMES_MAX`](longhaul_core::limits::READING_NAMES_MAX), each
    /// once.
    pub names: Vec<RelPath>,
    /// The rate at which they are read at most, bytes/s. 0: as fast as it goes.
    pub rate: u64,
}

/// A part of the answer to an order about names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundNames {
    /// The findings on names of the order, in any order. Without any, the acceptor is still at
    /// work.
    pub names: Vec<FoundName>,
    /// Whether these are the last ones. By then there is one for each name.
    pub last: bool,
}

/// The finding on a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundName {
    /// The place of the name in its order, from 0.
    pub at: u32,
    /// The thing that has the name.
    pub found: FoundThing,
}

/// The thing that has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoundThing {
    /// Nothing has it.
    Absent,
    /// A regular file, which was not read.
    File {
        /// Its length in bytes.
        bytes: u64,
        /// The last change of its content.
        mtime: Mtime,
    },
    /// A regular file, which was read whole while nobody wrote to it.
    Read {
        /// Its length in bytes.
        bytes: u64,
        /// The BLAKE3 digest of its content.
        b3: Hash32,
    },
    /// A symbolic link, which is not followed.
    Link {
        /// Its target.
        target: Vec<u8>,
    },
    /// A directory.
    Dir,
    /// A fifo, a socket or a device.
    Special,
    /// It could not be looked at, or not be read.
    Failed(#[serde(with = "super::fault")] Fault),
}
