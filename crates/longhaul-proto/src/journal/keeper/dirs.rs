//! [`TempDirs`]: the directories in which temporaries of a session may lie, as its journal knows
//! them.
//!
//! In: names that are about to come, temporaries that were removed, directories at their end. Out:
//! the steps by which the session's journal names a directory before the first temporary is made in
//! it, and forgets it only when none can be there any more. It knows no files.

use std::collections::{HashMap, HashSet};

use longhaul_core::{FileId, RelPath, SessionTag};

use super::Book;
use super::step::KeeperStep;
use crate::journal::Record;

/// The directories that the journal of a session names. Whoever finds that journal after a crash
/// looks through them for temporaries that no record speaks of.
///
/// ```text
/// state     event                            next state  steps
/// (none)    a temporary is to be made in it  Named       append its name, sync
/// Named     a temporary of it is removed     Thinned
/// Named     it is at its end                 (none)      append that it was left
/// Named     the same, before such an entry   Named
/// Thinned   it is at its end                 Thinned
/// any       the journal is put away          (none)      sync the names, append that it was left
/// ```
#[derive(Debug, Default)]
pub struct TempDirs {
    /// Each with the last entry whose temporary may lie there. A sender may name entries behind the
    /// end of their directory: two sources may have one of the same name.
    named: HashMap<RelPath, FileId>,
    /// Directories among `named` from which a temporary was removed, or may have been. A power cut
    /// may bring that back until their names are synced, so the journal does not forget them
    /// before.
    thinned: HashSet<RelPath>,
}

impl TempDirs {
    /// The directories among these that the journal does not name yet, each once. It must name them
    /// before a temporary is made there. Each is wanted for the temporary of an entry.
    pub fn unnamed(&mut self, wanted: impl IntoIterator<Item = (RelPath, FileId)>) -> Vec<(RelPath, FileId)> {
        let mut new: Vec<(RelPath, FileId)> = Vec::new();
        for (dir, entry) in wanted {
            let known = self.named.get_mut(&dir);
            match known.or_else(|| new.iter_mut().find(|(name, _)| *name == dir).map(|(_, last)| last)) {
                Some(last) => *last = entry.max(*last),
                None => new.push((dir, entry)),
            }
        }
        new
    }

    /// The steps by which the session's `own` journal names directories, durably.
    pub fn naming(own: SessionTag, dirs: &[(RelPath, FileId)]) -> Vec<KeeperStep> {
        let records = vec![Record::Dirs { paths: dirs.iter().map(|(dir, _)| dir.clone()).collect() }];
        vec![KeeperStep::Append { journal: own, records }, KeeperStep::Sync(own)]
    }

    /// The journal names these directories from now on, or there is no journal that could.
    pub fn named(&mut self, dirs: Vec<(RelPath, FileId)>) {
        for (dir, entry) in dirs {
            let last = self.named.entry(dir).or_insert(entry);
            *last = entry.max(*last);
        }
    }

    /// Whether the session's own journal names a directory, so that whoever finds that journal
    /// looks through it.
    pub fn names(&self, dir: &RelPath) -> bool {
        self.named.contains_key(dir)
    }

    /// A temporary without a record was removed from a directory, or may have been. Where none was
    /// ever made, nothing is remembered: names may fail in millions of directories.
    pub fn thinned(&mut self, dir: RelPath) {
        if self.named.contains_key(&dir) {
            self.thinned.insert(dir);
        }
    }

    /// A directory is at its end, which is this entry: the only temporaries of entries before it
    /// that lie there are those with records. The `own` journal of the session forgets it; `None`
    /// if it must not yet, or never named it.
    pub fn left(&mut self, own: SessionTag, dir: &RelPath, end: FileId) -> Option<KeeperStep> {
        if self.thinned.contains(dir) || self.named.get(dir).is_none_or(|last| *last > end) {
            return None;
        }
        self.named.remove(dir);
        Some(KeeperStep::Append { journal: own, records: vec![Record::Left { path: dir.clone() }] })
    }

    /// Forgets all of them, when the session is over.
    pub fn clear(&mut self) {
        *self = TempDirs::default();
    }
}

/// The steps by which a journal forgets directories that were looked through, with each the name
/// that it has beneath the destination. None while a file of it is left to be continued: the
/// journal stays and names them all the same, and a user who stops a transfer waits for no sync.
///
/// The names are synced first, and so are removals of temporaries that went before: a power cut
/// must not bring a temporary back that no journal knows any more, and file systems need not keep
/// changes of two directories in their order.
pub fn left_behind(journal: SessionTag, book: &Book, looked: Vec<(RelPath, RelPath)>) -> Vec<KeeperStep> {
    if !book.is_finished() || looked.is_empty() {
        return Vec::new();
    }
    let (dirs, placed): (Vec<RelPath>, Vec<RelPath>) = looked.into_iter().unzip();
    let records = dirs.into_iter().map(|path| Record::Left { path }).collect();
    vec![KeeperStep::SyncNames(placed), KeeperStep::Append { journal, records }]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SessionTag = SessionTag([1; 8]);

    fn dir(name: &str) -> RelPath {
        RelPath::new(name).expect("a path")
    }

    /// The directory, wanted for an entry.
    fn wanted(name: &str, entry: u64) -> (RelPath, FileId) {
        (dir(name), FileId(entry))
    }

    #[test]
    fn a_directory_is_named_durably_once_and_before_anything_else() {
        let mut dirs = TempDirs::default();
        let new = dirs.unnamed([wanted("a", 0), wanted("b", 1), wanted("a", 2)]);
        assert_eq!(new, [wanted("a", 2), wanted("b", 1)]);
        let records = vec![Record::Dirs { paths: vec![dir("a"), dir("b")] }];
        let steps = [KeeperStep::Append { journal: OWN, records }, KeeperStep::Sync(OWN)];
        assert_eq!(TempDirs::naming(OWN, &new), steps);
        dirs.named(new);
        assert_eq!(dirs.unnamed([wanted("b", 3), wanted("c", 4)]), [wanted("c", 4)]);
    }

    #[test]
    fn a_directory_from_which_a_temporary_went_is_not_forgotten_before_its_names_are_synced() {
        let mut dirs = TempDirs::default();
        dirs.named(vec![wanted("a", 0), wanted("b", 1)]);
        dirs.thinned(dir("a"));
        dirs.thinned(dir("never named"));
        assert_eq!(dirs.left(OWN, &dir("a"), FileId(2)), None);
        let forgotten = KeeperStep::Append { journal: OWN, records: vec![Record::Left { path: dir("b") }] };
        assert_eq!(dirs.left(OWN, &dir("b"), FileId(2)), Some(forgotten));
        assert_eq!(dirs.left(OWN, &dir("b"), FileId(2)), None, "it is said once");
        assert_eq!(dirs.left(OWN, &dir("never named"), FileId(2)), None);
        assert_eq!(dirs.unnamed([wanted("b", 3)]), [wanted("b", 3)], "a temporary that comes later needs it again");
    }

    #[test]
    fn the_end_of_a_directory_does_not_speak_for_entries_behind_it() {
        let mut dirs = TempDirs::default();
        dirs.named(vec![wanted("again", 1), wanted("new", 6)]);
        assert_eq!(dirs.unnamed([wanted("again", 5)]), []);
        assert_eq!(dirs.unnamed([wanted("again", 3)]), [], "orders come in no order");
        for name in ["again", "new"] {
            assert_eq!(dirs.left(OWN, &dir(name), FileId(2)), None, "{name}");
            assert!(dirs.left(OWN, &dir(name), FileId(7)).is_some(), "{name} ends a second time");
        }
    }
}
