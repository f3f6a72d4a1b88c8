//! Owns the directories that a sender has offered and whose end has no outcome: another session
//! names them again, before their content.
//!
//! In: entries as they are offered and settled, in this session. Out: the directories to offer
//! again. A manifest goes depth first, so each end belongs to the directory that was begun last; a
//! path may come twice, under two sources. It knows no disk and no messages.

use std::collections::HashMap;

use longhaul_core::{EntryKind, FileId};

use super::course::UnsettledEntry;

/// The directories of one session. See the module.
#[derive(Default)]
pub(super) struct Dirs {
    /// Directories whose end was not offered, the innermost last.
    open: Vec<FileId>,
    /// The directory of each end that has no outcome.
    ends: HashMap<FileId, FileId>,
    /// Directories that are settled.
    settled: HashMap<FileId, UnsettledEntry>,
}

impl Dirs {
    /// Records that an entry is offered.
    pub(super) fn offered(&mut self, id: FileId, kind: &EntryKind) {
        match kind {
            EntryKind::Dir => self.open.push(id),
            EntryKind::DirEnd => {
                if let Some(dir) = self.open.pop() {
                    self.ends.insert(id, dir);
                }
            }
            EntryKind::File { .. }
            | EntryKind::Stream { .. }
            | EntryKind::Symlink { .. }
            | EntryKind::Unsent { .. } => {}
        }
    }

    /// Records that a directory is settled. It is needed again until its end is.
    pub(super) fn settled(&mut self, id: FileId, known: UnsettledEntry) {
        self.settled.insert(id, known);
    }

    /// Records that the end of a directory is settled.
    pub(super) fn ended(&mut self, end: FileId) {
        if let Some(dir) = self.ends.remove(&end) {
            self.settled.remove(&dir);
        }
    }

    /// The directories that are settled, in no order.
    pub(super) fn into_settled(self) -> impl Iterator<Item = UnsettledEntry> {
        self.settled.into_values()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::{Entry, Meta, RelPath};
    use longhaul_proto::receiver::EntryRef;

    use super::super::course::EntrySource;
    use super::*;

    fn known(id: u64, path: &str) -> UnsettledEntry {
        let path = RelPath::new(path).expect("a path");
        let entry = Entry { path: path.clone(), kind: EntryKind::Dir, meta: Meta::default() };
        let held = Arc::new(EntryRef { id: FileId(id), entry, placed: path });
        UnsettledEntry { held, source: EntrySource::Special, begun: false, is_reported: false }
    }

    #[test]
    fn a_directory_is_named_again_until_its_own_end_is_settled_also_where_two_have_one_path() {
        let mut dirs = Dirs::default();
        // Two sources whose contents are sent, each with one directory in it.
        let begins = [(0, ""), (1, "a"), (4, ""), (5, "b")];
        for (id, kind) in (0..).zip("+ + - - + +".split(' ')) {
            dirs.offered(FileId(id), if kind == "+" { &EntryKind::Dir } else { &EntryKind::DirEnd });
        }
        begins.into_iter().for_each(|(id, path)| dirs.settled(FileId(id), known(id, path)));
        // The ends of the first source are settled after directories of the second.
        [2, 3].into_iter().for_each(|end| dirs.ended(FileId(end)));
        let mut again: Vec<u64> = dirs.into_settled().map(|known| known.held.id.0).collect();
        again.sort_unstable();
        assert_eq!(again, [4, 5]);
    }
}
