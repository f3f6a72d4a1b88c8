//! The messages that answer a request to list.
//!
//! Plain data.

use serde::{Deserialize, Serialize};

use longhaul_core::{Meta, PlainText, Rights, TempName};

/// A part of a list of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The names.
    pub names: Vec<Listed>,
    /// Whether no names follow.
    pub last: bool,
}

/// One listed name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The name: one component, or for a partial the path beneath the requested one.
    pub name: Vec<u8>,
    /// The kind of file.
    pub kind: ListedKind,
    /// The length of a file in bytes; for a partial the length of the whole file.
    pub len: u64,
    /// Permissions and times; for a partial those of its journal, whose time is its last write.
    pub meta: Meta,
}

/// The kind of a listed name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
    },
    /// A fifo, socket or device.
    Special,
    /// A root, with the rights that the asking key has.
    Root {
        /// The rights of the key at this root.
        rights: Rights,
    },
    /// An unfinished file: left by an earlier session, or arriving now.
    Partial(Box<ListedPartial>),
}

/// An unfinished file, which a later session can continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPartial {
    /// Bytes of it that are verified and durable.
    pub held: u64,
    /// The start of the session that wrote it last, in seconds since 1970.
    pub since_unix: u64,
    /// The principal that owns it: `key:FINGERPRINT` or `uid:N`.
    pub principal: PlainText,
    /// The principal's name, for people.
    pub owner: PlainText,
    /// The name of its temporary, in the directory of its final name.
    pub temp: TempName,
    /// The user who is writing it now, for people. `None` if nobody is.
    pub user: Option<PlainText>,
}
