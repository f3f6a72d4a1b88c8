//! Looks whether files of this host are what the manifest says: their length and their time.
//!
//! In: a directory and the files of a shard. Out: those that differ, with words. A file that is
//! gone or cannot be looked at is left to the engine, which says so better. Must not know the
//! queue.

#![allow(clippy::disallowed_methods, reason = "only lengths and times are looked at, as the manifest's scan did")]

use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_core::{Mtime, RelPath};

use super::tally::ShardFile;
use crate::jobs::spec::beneath;

/// Files that are looked at, and where.
pub(super) struct Look {
    /// The directory.
    pub(super) top: PathBuf,
    /// The files.
    pub(super) files: Vec<(RelPath, ShardFile)>,
}

/// The files whose length or time differs, with the words of it. It takes a system call for each.
pub(super) fn differing(look: &Look) -> Vec<(RelPath, String)> {
    let differs = |(path, file): &(RelPath, ShardFile)| Some((path.clone(), difference(&look.top, path, file)?));
    look.files.iter().filter_map(differs).collect()
}

fn difference(top: &Path, path: &RelPath, file: &ShardFile) -> Option<String> {
    let found = symlink_metadata(beneath(top, path)).ok()?;
    let is = |what: &str| Some(format!("'{}' {what} since the campaign was planned", path.escaped()));
    if found.is_file() != file.is_regular || found.is_symlink() == file.is_regular {
        return is("has become another kind of file");
    }
    if !file.is_regular {
        return None;
    }
    if found.len() != file.bytes {
        return is(&format!("went from {} to {} bytes", file.bytes, found.len()));
    }
    let mtime = Mtime::said(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default());
    if file.mtime.is_some_and(|known| known != mtime) { is("was written to") } else { None }
}
