//! The messages by which an initiator has names moved away at an acceptor.
//!
//! Plain data. Their sender and their time are written at [`Message`](super::Message).

use serde::{Deserialize, Serialize};

use longhaul_core::{Fault, Mtime, PlainText, PlanName, RelPath, Whereabouts};

/// Bit of [`Hello::caps`](super::Hello::caps). Beside a request to list a path: names beneath it
/// are to be looked at and moved away, and none are listed; an acceptor that knows the bit answers
/// with [`RemovalOpened`], any other with a listing, and the initiator goes away. Beside a request
/// to list roots: the initiator knows the right `delete`, which no other is told of.
pub const CAP_REMOVAL: u64 = 1 << 25;
/// Bit of [`Hello::caps`](super::Hello::caps), beside a request to list a path: no names are asked
/// for but where the directory lies. An acceptor that knows the bit answers with
/// [`Whereabouts`](super::Message::Whereabouts), any other with a listing, and the initiator goes
/// away.
pub const CAP_WHEREABOUTS: u64 = 1 << 26;

/// The tree beneath which names may be moved away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalOpened {
    /// The device of the root, on which the grace directory lies. No name on another one goes.
    pub device: u64,
    /// The directory at the top of the root in which grace directories lie, for people.
    pub grace: PlainText,
    /// Where the directory of the request lies.
    pub whereabouts: Whereabouts,
}

/// An order to look at names, or to move them away: at most
/// [`REMOVAL_NAMES_MAX`](longhaul_core::limits::REMOVAL_NAMES_MAX) of them, beneath the path of the
/// request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemovalOrder {
    /// To say what has these names.
    Look(Vec<RelPath>),
    /// To move names away.
    Move(RemovalBatch),
}

/// Names of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalBatch {
    /// The plan. All orders of a conversation have the same.
    pub plan: PlanName,
    /// The names, what lies in a directory before the directory.
    pub names: Vec<KnownName>,
}

/// A name, and the facts by which it is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownName {
    /// Its path.
    pub path: RelPath,
    /// Its facts.
    pub facts: KnownFacts,
}

/// The facts by which a name is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFacts {
    /// Its kind.
    pub kind: KnownKind,
    /// The device that it lies on.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The last change of its content.
    pub mtime: Mtime,
}

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KnownKind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Dir,
    /// A fifo, a socket or a device, which is never moved.
    Special,
}

/// A part of the answer to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalAnswer {
    /// The answers for the next names of the order, in its order. Without any, the acceptor is
    /// still at work.
    pub names: Vec<NameAnswer>,
    /// Whether these are the last ones.
    pub last: bool,
}

/// The answer for one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameAnswer {
    /// Nothing has it, there or in the grace directory.
    Absent,
    /// It stands.
    Found {
        /// Its facts.
        facts: KnownFacts,
        /// The names in it, if it is a directory, whatever they are. `u64::MAX`: more than are
        /// counted.
        within: u64,
    },
    /// It lies in the grace directory now.
    Moved,
    /// It lay there already.
    MovedBefore,
    /// Something else has it, or it was changed: it stays.
    Changed,
    /// It is a directory with something in it: it stays.
    NotEmpty,
    /// It could not be looked at or moved.
    Refused(#[serde(with = "super::fault")] Fault),
}
