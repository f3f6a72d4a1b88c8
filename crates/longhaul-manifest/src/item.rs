//! An item of a sealed manifest: one name of a dataset, and what is known of it.
//!
//! In: a scan, or a list. Out: [`Item`] to all of this crate. Knows no bytes of a file and no
//! format.

use longhaul_core::limits::LINK_BYTES_MAX;
use longhaul_core::{Mtime, RelPath};

use longhaul_core::checksum::Sums;

/// One name of a dataset. Items stand in the order of the bytes of their paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The path beneath the top of the dataset, which itself is no item.
    pub path: RelPath,
    /// Its kind.
    pub kind: ItemKind,
    /// The last change of its content. `None`: not known, as of directories, whose times change
    /// with every name in them.
    pub mtime: Option<Mtime>,
    /// The checksums of its content. Only files have some.
    pub sums: Sums,
}

/// The kind of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A regular file.
    File {
        /// Its length in bytes. `None`: not known, as from a list of checksums.
        bytes: Option<u64>,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Link {
        /// The text of the link: 1 to 4095 bytes without a NUL.
        target: Vec<u8>,
    },
}

impl Item {
    /// A file of which nothing is known but its checksums.
    pub fn file(path: RelPath, bytes: Option<u64>, sums: Sums) -> Item {
        Item { path, kind: ItemKind::File { bytes }, mtime: None, sums }
    }

    /// A directory.
    pub fn dir(path: RelPath) -> Item {
        Item { path, kind: ItemKind::Dir, mtime: None, sums: Sums::default() }
    }

    /// Whether it is a file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, ItemKind::File { .. })
    }

    /// The flaw for which no reader would take it. `None`: it may be sealed.
    pub fn flaw(&self) -> Option<&'static str> {
        let is_link = |target: &[u8]| (1..=LINK_BYTES_MAX).contains(&target.len()) && !target.contains(&0);
        match &self.kind {
            _ if self.path.is_root() => Some("it has no name"),
            _ if self.mtime.is_some_and(|mtime| mtime != Mtime::said(mtime.secs, mtime.nanos)) => {
                Some("its time is none")
            }
            ItemKind::File { .. } => None,
            _ if !self.sums.known().is_empty() => Some("it is no file and has a checksum"),
            ItemKind::Link { target } if !is_link(target) => {
                Some("its target is empty, longer than 4095 bytes, or has a NUL in it")
            }
            ItemKind::Dir | ItemKind::Link { .. } => None,
        }
    }

    /// Its length in bytes, as far as it is a file and its length is known; else 0.
    pub const fn bytes(&self) -> u64 {
        match self.kind {
            ItemKind::File { bytes: Some(bytes) } => bytes,
            ItemKind::File { bytes: None } | ItemKind::Dir | ItemKind::Link { .. } => 0,
        }
    }
}
