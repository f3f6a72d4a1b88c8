//! Roots that lie within each other: what one of them allows would hold in the other one too, with
//! its protection and its policies, so that none of the rules is sure to hold.
//!
//! In: the roots of a [`Daemon`], and the places of those of its file. Out: an error at the later
//! one of two such roots. Directories that do not exist yet, as targets of a set may, are compared
//! by their paths alone. Knows no rights.

use std::collections::HashMap;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_engine::RootConfig;

use super::Daemon;
use crate::error::Error;

/// A directory of a root.
struct Place<'a> {
    /// The number of the root.
    root: usize,
    config: &'a RootConfig,
    /// Its path without links, as far as it exists.
    path: PathBuf,
    /// Device and inode. `None` if it does not exist.
    id: Option<(u64, u64)>,
    /// The same of the directories above it.
    above: Vec<(u64, u64)>,
}

impl Daemon {
    /// Refuses roots that are one directory, or of which one lies beneath the other.
    pub(super) fn refuse_nested(&self, path: Option<&Path>) -> Result<(), Error> {
        let roots = self.config.roots.iter().enumerate();
        let places: Vec<Place> =
            roots.flat_map(|(n, root)| root.targets.dirs.iter().map(move |dir| Place::of(n, root, dir))).collect();
        let (mut paths, mut ids) = (HashMap::new(), HashMap::new());
        for place in &places {
            paths.entry(place.path.as_path()).or_insert(place);
            place.id.map(|id| ids.entry(id).or_insert(place));
        }
        for inner in &places {
            let by_path = inner.path.ancestors().filter_map(|path| paths.get(path));
            let by_id = inner.id.iter().chain(&inner.above).filter_map(|id| ids.get(id));
            let Some(outer) = by_path.chain(by_id).find(|outer| outer.root != inner.root) else { continue };
            let message = overlap(inner, outer);
            return Err(match (path, self.root_places.get(inner.root.max(outer.root))) {
                (Some(path), Some(&(line, column))) => Error::Config { path: path.to_owned(), line, column, message },
                _ => Error::RootsOverlap { message },
            });
        }
        Ok(())
    }
}

impl Place<'_> {
    fn of<'a>(root: usize, config: &'a RootConfig, dir: &Path) -> Place<'a> {
        let id = |path: &Path| metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let path = real(dir);
        let above = path.ancestors().skip(1).filter_map(id).collect();
        Place { root, config, id: id(&path), above, path }
    }

    /// Whether it is the same directory, be it mounted at two places.
    fn is(&self, other: &Place<'_>) -> bool {
        self.path == other.path || self.id.is_some() && self.id == other.id
    }
}

/// The sentence about two roots that overlap.
fn overlap(inner: &Place<'_>, outer: &Place<'_>) -> String {
    let (inner_name, outer_name) = (&inner.config.name, &outer.config.name);
    let what = if inner.is(outer) {
        format!("roots '{outer_name}' and '{inner_name}' are one directory ({})", inner.path.display())
    } else {
        let (inner_path, outer_path) = (inner.path.display(), outer.path.display());
        format!("root '{inner_name}' ({inner_path}) lies in root '{outer_name}' ({outer_path})")
    };
    format!("{what}, so that the rules of one would hold for the other: give each a directory of its own")
}

/// The real path of a directory, or the absolute one if it does not exist.
pub(super) fn real(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or_else(|_| absolute())
}
