//! What is said in answer to a request to list.
//!
//! Plain data.

use serde::{Deserialize, Serialize};

use longhaul_core::{Meta, PlainText, Rights, TempName};

/// Names in answer to a list request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Names.
    pub names: Vec<Listed>,
    /// Whether none follow.
    pub last: bool,
}

/// One listed name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The name: one component; of a partial its path beneath what was asked for.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: ListedKind,
    /// Length of a file in bytes; of a partial what the whole file will have.
    pub len: u64,
    /// Permissions and times; of a partial those of its journal, which was written last then.
    pub meta: Meta,
}

/// What a listed name is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink {
        /// What it points to.
        target: Vec<u8>,
    },
    /// A fifo, socket or device.
    Special,
    /// A root, with the rights that the asking key has.
    Root {
        /// What it may do there.
        rights: Rights,
    },
    /// What is left of an unfinished file, or arrives of one at this moment.
    Partial(Box<ListedPartial>),
}

/// An unfinished file, of which a later session can go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPartial {
    /// Bytes of it that are verified and durable.
    pub held: u64,
    /// When the session began that wrote it last, in seconds since 1970.
    pub since_unix: u64,
    /// Whose it is: `key:FINGERPRINT` or `uid:N`.
    pub principal: PlainText,
    /// Who that is, for people.
    pub owner: PlainText,
    /// What it is called in the directory of its final name.
    pub temp: TempName,
    /// Who is writing it now, for people; none if nobody is.
    pub user: Option<PlainText>,
}
