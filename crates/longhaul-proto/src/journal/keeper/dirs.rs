//! [`TempDirs`]: the directories in which temporaries of a session may lie, as its journal knows
//! them.
//!
//! In: names that are about to come, temporaries that were removed, directories at their end. Out:
//! the steps by which the session's journal names a directory before the first temporary is made in
//! it, and forgets it only when none can be there any more. It knows no files.

use std::collections::HashSet;

use longhaul_core::{RelPath, SessionTag};

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
/// Thinned   it is at its end                 Thinned
/// any       the journal is put away          (none)      sync the names, append that it was left
/// ```
#[derive(Debug, Default)]
pub struct TempDirs {
    named: HashSet<RelPath>,
    /// Directories among `named` from which a temporary was removed, or may have been. A power cut
    /// may bring that back until their names are synced, so the journal does not forget them
    /// before.
    thinned: HashSet<RelPath>,
}

impl TempDirs {
    /// The directories among these that the journal does not name yet, each once. It must name them
    /// before a temporary is made there.
    pub fn unnamed(&self, wanted: impl IntoIterator<Item = RelPath>) -> Vec<RelPath> {
        let mut new: Vec<RelPath> = Vec::new();
        for dir in wanted {
            if !self.named.contains(&dir) && !new.contains(&dir) {
                new.push(dir);
            }
        }
        new
    }

    /// The steps by which the session's `own` journal names directories, durably.
    pub fn naming(own: SessionTag, dirs: &[RelPath]) -> Vec<KeeperStep> {
        let records = vec![Record::Dirs { paths: dirs.to_vec() }];
        vec![KeeperStep::Append { journal: own, records }, KeeperStep::Sync(own)]
    }

    /// The journal names these directories from now on, or there is no journal that could.
    pub fn named(&mut self, dirs: Vec<RelPath>) {
        self.named.extend(dirs);
    }

    /// A temporary without a record was removed from a directory, or may have been. Where none was
    /// ever made, nothing is remembered: names may fail in millions of directories.
    pub fn thinned(&mut self, dir: RelPath) {
        if self.named.contains(&dir) {
            self.thinned.insert(dir);
        }
    }

    /// A directory is at its end: the only temporaries of the session that lie there are those with
    /// records. Its `own` journal forgets it; `None` if it must not yet, or never named it.
    pub fn left(&mut self, own: SessionTag, dir: &RelPath) -> Option<KeeperStep> {
        if self.thinned.contains(dir) || !self.named.remove(dir) {
            return None;
        }
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

    #[test]
    fn a_directory_is_named_durably_once_and_before_anything_else() {
        let mut dirs = TempDirs::default();
        let new = dirs.unnamed([dir("a"), dir("b"), dir("a")]);
        assert_eq!(new, [dir("a"), dir("b")]);
        let records = vec![Record::Dirs { paths: new.clone() }];
        let steps = [KeeperStep::Append { journal: OWN, records }, KeeperStep::Sync(OWN)];
        assert_eq!(TempDirs::naming(OWN, &new), steps);
        dirs.named(new);
        assert_eq!(dirs.unnamed([dir("b"), dir("c")]), [dir("c")]);
    }

    #[test]
    fn a_directory_from_which_a_temporary_went_is_not_forgotten_before_its_names_are_synced() {
        let mut dirs = TempDirs::default();
        dirs.named(vec![dir("a"), dir("b")]);
        dirs.thinned(dir("a"));
        dirs.thinned(dir("never named"));
        assert_eq!(dirs.left(OWN, &dir("a")), None);
        let forgotten = KeeperStep::Append { journal: OWN, records: vec![Record::Left { path: dir("b") }] };
        assert_eq!(dirs.left(OWN, &dir("b")), Some(forgotten));
        assert_eq!(dirs.left(OWN, &dir("b")), None, "it is said once");
        assert_eq!(dirs.left(OWN, &dir("never named")), None);
        assert_eq!(dirs.unnamed([dir("b")]), [dir("b")], "a temporary that comes later needs it again");
    }
}
