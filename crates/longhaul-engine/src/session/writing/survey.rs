//! Looks at what stands under the names that are coming, and makes directories, one page at a time and in order.
//!
//! In: pages of entries. Out: what stands there and what an earlier session left of it. Removes what nobody goes on with.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use longhaul_core::{Entry, EntryKind, Fault, FileId, RelPath};
use longhaul_disk::{DiskError, Made, Standing, TargetTree};
use longhaul_proto::receiver::{Held, Seen, Surveyed};

use super::{Report, Writing, begun};
use crate::partials::{Known, Ledger};

impl Writing {
    /// Looks at what stands under the names of a page, making its directories.
    /// `committed` knows what an earlier session of this run did.
    pub(crate) fn survey(&self, page: Vec<Arc<Held>>, committed: impl Fn(&Entry) -> bool + Send + 'static) {
        let (dry_run, fresh) = (self.options.dry_run, self.fresh.clone());
        let (ledger, bundled_max) = (self.ledger.clone(), self.options.bundled_max);
        self.report(&self.survey, move |tree| {
            let mut fresh = fresh.lock().unwrap_or_else(PoisonError::into_inner);
            let first = page.first().map_or(FileId(0), |held| held.id);
            if let Some(ledger) = ledger.as_deref().filter(|_| first == FileId(0)) {
                sweep(tree, &RelPath::root(), ledger);
            }
            let found = page.iter().map(|held| {
                let seen = look(tree, held, dry_run, &mut fresh, ledger.as_deref()).map_err(|e| e.fault())?;
                let large = matches!(held.entry.kind, EntryKind::File { len, .. } if len > bundled_max);
                let known = ledger.as_ref().filter(|_| large).map_or(Ok(Known::default()), |l| l.claim(held))?;
                let committed = known.committed || committed(&held.entry);
                Ok(Surveyed { seen, partial: known.partial, committed })
            });
            let found: Vec<Result<Surveyed, Fault>> = found.collect();
            // What will be made needs a journal. It is begun here, so that files are opened in their order and do not wait for it
            // all at once; should it fail, each of them says so.
            let leaf = |held: &Held| matches!(held.entry.kind, EntryKind::File { .. } | EntryKind::Symlink { .. });
            let new = |(held, found): (&Arc<Held>, &Result<Surveyed, Fault>)| {
                leaf(held) && found.as_ref().is_ok_and(|found| found.seen == Seen::Absent)
            };
            if page.iter().zip(&found).any(new) {
                let _ = begun(ledger.as_deref());
            }
            Report::Surveyed { first, found }
        });
    }
}

/// Removes what sessions that are over left in a directory that stood before, and that nobody will go on with.
fn sweep(tree: &dyn TargetTree, path: &RelPath, ledger: &Ledger) {
    match tree.sweep(path, &|temp| ledger.is_orphan(temp)) {
        Ok(0) => {}
        Ok(removed) => {
            tracing::info!(target: "longhaul::journal", path = %path.escaped(), removed, "old temporary files are removed")
        }
        Err(error) => {
            tracing::warn!(target: "longhaul::journal", path = %path.escaped(), %error, "old temporary files stay")
        }
    }
}

/// What stands under a name; directories are made.
fn look(
    tree: &dyn TargetTree,
    held: &Held,
    dry_run: bool,
    fresh: &mut HashSet<RelPath>,
    ledger: Option<&Ledger>,
) -> Result<Seen, DiskError> {
    match held.entry.kind {
        EntryKind::DirEnd => {
            fresh.remove(&held.placed);
            Ok(Seen::Absent)
        }
        EntryKind::Unsent { .. } => Ok(Seen::Absent),
        EntryKind::Dir if !dry_run => {
            match tree.make_dir(&held.placed)? {
                Made::Created => drop(fresh.insert(held.placed.clone())),
                Made::Stood => ledger.into_iter().for_each(|ledger| sweep(tree, &held.placed, ledger)),
            }
            Ok(Seen::Dir)
        }
        // Nothing stands in a directory that was made a moment ago: a look at each name there would cost as much as
        // making it. Whoever puts something there meanwhile is met by the rename, which never replaces what was not seen.
        _ if held.placed.parent().is_some_and(|parent| fresh.contains(&parent)) => Ok(Seen::Absent),
        _ => Ok(match tree.examine(&held.placed)? {
            None => Seen::Absent,
            Some(Standing::File { len, meta, clock }) => Seen::File { len, mtime: meta.mtime, clock },
            Some(Standing::Dir { .. }) => Seen::Dir,
            Some(Standing::Symlink { target, .. }) => Seen::Symlink { target },
            Some(Standing::Special { .. }) => Seen::Special,
        }),
    }
}
