//! The directories of a receiving session: those that it made or synced, and the one that failed.
//!
//! Takes entries and the results of their surveys; says which entries fail with their directory.
//! Does nothing on the disk.

use std::collections::BTreeSet;

use longhaul_core::{EntryKind, Fault};
use longhaul_proto::receiver::EntryRef;

use super::book::text;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// Names that did not stand when this session first looked.
    pub(super) made: BTreeSet<String>,
    /// Directories that were synced for their standing files.
    pub(super) synced: BTreeSet<String>,
    /// The outermost directory that could not be made or looked at, until its end. Everything
    /// beneath it fails too.
    failed: Option<(String, Fault)>,
}

impl Directories {
    /// Fails an entry beneath a directory that failed, with the same reason.
    pub(super) fn pass(&mut self, held: &EntryRef) -> Result<(), Fault> {
        let Some((dir, fault)) = &self.failed else { return Ok(()) };
        let (path, is_end) = (text(&held.placed), held.entry.kind == EntryKind::DirEnd);
        if path == *dir {
            self.failed.take_if(|_| is_end);
            return Ok(());
        }
        let is_beneath = dir.is_empty() || path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.starts_with('/'));
        if is_beneath && !is_end { Err(fault.clone()) } else { Ok(()) }
    }

    /// Notes that an entry failed.
    pub(super) fn fail(&mut self, held: &EntryRef, fault: &Fault) {
        if held.entry.kind == EntryKind::Dir {
            self.failed.get_or_insert_with(|| (text(&held.placed), fault.clone()));
        }
    }
}
