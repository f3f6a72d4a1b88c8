//! Looks at the files that stand under the names of a page, and makes directories, one page at a
//! time and in order.
//!
//! In: pages of entries. Out: what stands under each name, and the partial that an earlier session
//! left of it. It removes partials that nobody continues. It knows no messages and no lanes.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use longhaul_core::{Entry, EntryKind, Fault, FileId, RelPath};
use longhaul_disk::{DiskError, ErrorKind, Made, Standing, TargetTree};
use longhaul_proto::receiver::{EntryRef, Seen, Surveyed, is_same};

use super::jobs::Pool;
use super::{DestinationDone, DestinationOptions, DestinationWorkers, begun};
use crate::api::ExpectedFiles;
use crate::journals;
use crate::journals::{PathHistory, SessionJournal};

impl DestinationWorkers {
    /// Looks at the files that stand under the names of a page, and makes its directories.
    /// A file that is not the one that is `expected` fails, and nothing of it is written.
    /// `committed` says which entries an earlier session of this run committed.
    pub(crate) fn survey(
        &self,
        page: Vec<Arc<EntryRef>>,
        expected: Option<Arc<ExpectedFiles>>,
        committed: impl Fn(&Entry) -> bool + Send + 'static,
    ) {
        let (options, dirs) = (self.options, self.dirs.clone());
        let (ledger, bundled_max) = (self.journalling.ledger().cloned(), options.bundled_max);
        let dataset = self.journalling.dataset().cloned();
        self.jobs.report(Pool::Survey, move |tree| {
            let mut dirs = dirs.lock().unwrap_or_else(PoisonError::into_inner);
            let first = page.first().map_or(FileId(0), |held| held.id);
            if let Some(ledger) = ledger.as_deref().filter(|_| first == FileId(0)) {
                ledger.sweep(tree, &RelPath::root());
            }
            let found = page.iter().map(|held| {
                dirs.pass(held)?;
                let asked = expected.as_ref().map_or(Ok(()), |expected| expected.check(&held.entry));
                asked.inspect_err(|fault| dirs.fail(held, fault))?;
                let mut look = || look(tree, held, &options, &mut dirs.fresh, ledger.as_deref());
                let seen = match (look(), &dataset) {
                    // Nobody has seen what an earlier session staged: the newest list wins.
                    (seen, Some(dataset)) if dataset.may_make_way() && is_in_the_way(held, &seen) => {
                        dataset.make_way(&held.placed).and_then(|()| Ok(look()?))
                    }
                    (seen, _) => seen.map_err(Fault::from),
                };
                let seen = seen.inspect_err(|fault| dirs.fail(held, fault))?;
                let coming = match held.entry.kind {
                    EntryKind::File { len, .. } if len > bundled_max => journals::Arriving::InChunks,
                    EntryKind::Stream { .. } => journals::Arriving::InChunks,
                    _ => journals::Arriving::Whole,
                };
                let stands_for_itself = !matches!(held.entry.kind, EntryKind::DirEnd | EntryKind::Unsent { .. });
                let ledger = ledger.as_ref().filter(|_| stands_for_itself);
                let known = ledger.map_or(Ok(PathHistory::default()), |ledger| ledger.claim(tree, held, coming))?;
                let committed = known.committed || committed(&held.entry);
                Ok(Surveyed { found: seen, partial: known.partial, committed, doubtful: known.doubtful })
            });
            let found: Vec<Result<Surveyed, Fault>> = found.collect();
            // Directories in which files will be made are journalled first. It is done here, for
            // all of a page at once, so that files are opened in their order and do not wait for it
            // one by one; should it fail, each of them reports that.
            let leaf = |held: &EntryRef| {
                matches!(held.entry.kind, EntryKind::File { .. } | EntryKind::Stream { .. } | EntryKind::Symlink { .. })
            };
            let new = |(held, found): (&Arc<EntryRef>, &Result<Surveyed, Fault>)| {
                leaf(held) && found.as_ref().is_ok_and(|found| found.found == Seen::Absent)
            };
            let _ = begun(ledger.as_deref(), page.iter().zip(&found).filter(|pair| new(*pair)).map(|(held, _)| held));
            DestinationDone::Survey { first, found }
        });
    }
}

/// Whether a directory stands where a file or link goes, or the other way round.
fn is_in_the_way(held: &EntryRef, seen: &Result<Seen, DiskError>) -> bool {
    match (&held.entry.kind, seen) {
        (EntryKind::Dir, Err(error)) => error.kind() == ErrorKind::Exists,
        (EntryKind::File { .. } | EntryKind::Symlink { .. }, Ok(seen)) => matches!(seen, Seen::Dir | Seen::Special),
        _ => false,
    }
}

/// Directories whose content is still coming: no more than a path has levels.
#[derive(Debug, Default)]
pub(super) struct OpenDirectories {
    /// Directories that this session made.
    fresh: HashSet<RelPath>,
    /// The outermost directory that could not be made or entered, and why. Everything beneath it
    /// fails too.
    failed: Option<(RelPath, Fault)>,
}

impl OpenDirectories {
    /// Fails an entry beneath a directory that failed, with the same reason.
    fn pass(&mut self, held: &EntryRef) -> Result<(), Fault> {
        let Some((dir, fault)) = &self.failed else { return Ok(()) };
        if held.placed == *dir {
            self.failed.take_if(|_| held.entry.kind == EntryKind::DirEnd);
            return Ok(());
        }
        let is_beneath = held.placed.as_bytes().strip_prefix(dir.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
        if (is_beneath || dir.is_root()) && held.entry.kind != EntryKind::DirEnd { Err(fault.clone()) } else { Ok(()) }
    }

    fn fail(&mut self, held: &EntryRef, fault: &Fault) {
        if held.entry.kind == EntryKind::Dir {
            self.failed.get_or_insert_with(|| (held.placed.clone(), fault.clone()));
        }
    }
}

/// Looks at a name: returns what stands there, and makes a directory. A standing file that is the
/// same gets the mode and the extras of the entry.
fn look(
    tree: &dyn TargetTree,
    held: &EntryRef,
    options: &DestinationOptions,
    fresh: &mut HashSet<RelPath>,
    ledger: Option<&SessionJournal>,
) -> Result<Seen, DiskError> {
    match held.entry.kind {
        EntryKind::DirEnd => {
            fresh.remove(&held.placed);
            Ok(Seen::Absent)
        }
        EntryKind::Unsent { .. } => Ok(Seen::Absent),
        EntryKind::Dir if !options.dry_run => {
            match tree.make_dir(&held.placed)? {
                Made::Created => drop(fresh.insert(held.placed.clone())),
                Made::Stood => ledger.into_iter().for_each(|ledger| ledger.sweep(tree, &held.placed)),
            }
            Ok(Seen::Dir)
        }
        // Nothing stands in a directory that was made a moment ago, and a look at each name there
        // would cost as much as making it. A file that somebody else puts there meanwhile is met by
        // the rename, which never replaces a name that was not seen.
        _ if held.placed.parent().is_some_and(|parent| fresh.contains(&parent)) => Ok(Seen::Absent),
        _ => Ok(match tree.examine(&held.placed)? {
            None => Seen::Absent,
            Some(Standing::File { .. } | Standing::Special { .. }) if held.entry.kind == EntryKind::Dir => {
                return Err(DiskError::Exists { path: (&held.placed).into(), what: "it is no directory" });
            }
            Some(Standing::File { len, meta, clock }) => {
                let seen = Seen::File { len, mtime: meta.mtime, clock };
                let fits = options.fitted.mode || options.fitted.has_extras();
                if options.may_replace && fits && !options.dry_run && is_same(&held.entry, &seen) {
                    tree.fit(&held.placed, &meta, &held.entry.meta, options.fitted)?;
                }
                seen
            }
            Some(Standing::Dir { .. }) => Seen::Dir,
            Some(Standing::Symlink { target, .. }) => Seen::Symlink { target },
            Some(Standing::Special { .. }) => Seen::Special,
        }),
    }
}
