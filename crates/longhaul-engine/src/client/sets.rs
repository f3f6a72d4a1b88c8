//! Walks a whole target set: each file with its target, and what is wrong with a name.
//!
//! In: a set. Out: findings to a sink that may break off, in memory that does not depend on the
//! number of names. It changes nothing, and knows no sessions.

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{EntryKind, Fault, Preserve, RelPath};
use longhaul_disk::{DirectMode, FsSource, ScanRequest, Scanned, SourceTree, TargetSet};

/// A find in a set.
#[derive(Clone, Debug)]
pub enum SetFind {
    /// A file or a link.
    File {
        /// Its path beneath the set.
        path: RelPath,
        /// The number of its target.
        target: u32,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A name that stands on two targets, or that cannot be looked at.
    Wrong(Fault),
}

/// Gives each file beneath a path of a set to `sink`, and each name that is wrong.
///
/// # Errors
/// A [`Fault`] if nothing stands at the path.
pub fn walk_set(
    set: &Arc<TargetSet>,
    path: &RelPath,
    mut sink: impl FnMut(SetFind) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let source = FsSource::beneath(vec![(set.clone(), path.clone(), true)], DirectMode::Buffered);
    let filter = Filter::default();
    let preserve = Preserve { links: true, ..Preserve::default() };
    source.scan(&ScanRequest { filter: &filter, preserve, files_from: None }, &mut |scanned| match scanned {
        Scanned::Entry { entry, source: at, .. } => {
            let bytes = match &entry.kind {
                EntryKind::File { len, .. } => *len,
                EntryKind::Symlink { target } => target.len() as u64,
                _ => return ControlFlow::Continue(()),
            };
            let Ok(path) = path.concat(&entry.path) else { return ControlFlow::Continue(()) };
            sink(SetFind::File { path, target: source.target_of(&at).0, bytes })
        }
        Scanned::Failed { error, .. } => sink(SetFind::Wrong(error.fault())),
        Scanned::Skipped { .. } | Scanned::Reserved { .. } => ControlFlow::Continue(()),
    });
    Ok(())
}
