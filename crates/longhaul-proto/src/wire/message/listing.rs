//! What is said in answer to a request to list.
//!
//! Plain data.

use serde::{Deserialize, Serialize};

use longhaul_core::Meta;

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
    /// The name, one component.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: ListedKind,
    /// Length of a file in bytes.
    pub len: u64,
    /// Permissions and times.
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
        /// `read`, `create`, `modify`.
        rights: Vec<String>,
    },
}
