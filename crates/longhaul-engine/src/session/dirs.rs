//! Directories that a sender has offered and whose end has no outcome: another session names them again, as what lies in them follows.
//!
//! In: entries as they are offered and settled, in this session. Out: the directories that are to be offered again. A manifest goes depth first, so
//! that each end belongs to the directory that was begun last; a path may come twice, under two sources.

use std::collections::HashMap;

use longhaul_core::{EntryKind, FileId};

use super::course::Known;

/// See the module.
#[derive(Default)]
pub(super) struct Dirs {
    /// Those whose end was not offered, the innermost last.
    open: Vec<FileId>,
    /// The directory of each end that has no outcome.
    ends: HashMap<FileId, FileId>,
    /// Those that are settled.
    settled: HashMap<FileId, Known>,
}

impl Dirs {
    /// An entry is offered.
    pub(super) fn offered(&mut self, id: FileId, kind: &EntryKind) {
        match kind {
            EntryKind::Dir => self.open.push(id),
            EntryKind::DirEnd => {
                if let Some(dir) = self.open.pop() {
                    self.ends.insert(id, dir);
                }
            }
            EntryKind::File { .. } | EntryKind::Symlink { .. } | EntryKind::Unsent { .. } => {}
        }
    }

    /// A directory came to its outcome, and is needed again until its end has one.
    pub(super) fn settled(&mut self, id: FileId, known: Known) {
        self.settled.insert(id, known);
    }

    /// The end of a directory came to its outcome.
    pub(super) fn ended(&mut self, end: FileId) {
        if let Some(dir) = self.ends.remove(&end) {
            self.settled.remove(&dir);
        }
    }

    /// Those that are settled, in no order.
    pub(super) fn into_settled(self) -> impl Iterator<Item = Known> {
        self.settled.into_values()
    }
}
