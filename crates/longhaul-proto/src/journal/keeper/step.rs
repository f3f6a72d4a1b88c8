//! [`KeeperStep`]: what is done to journals and to names on the way from one safe state to the
//! next.
//!
//! Made by the machines of this folder; carried out, one after the other, by whoever has the disk.

use std::collections::BTreeMap;

use longhaul_core::{RelPath, SessionTag, TempName};

use crate::journal::Record;

/// A step of a session on journals and names. Each is taken when the one before has ended well; if
/// one fails, those behind it are not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperStep {
    /// Takes a journal over, unless it is ours.
    TakeOver(SessionTag),
    /// Appends records to a journal. They are durable after its next sync.
    Append {
        /// The journal.
        journal: SessionTag,
        /// The records, in order.
        records: Vec<Record>,
    },
    /// Makes durable all that was appended to a journal before.
    Sync(SessionTag),
    /// Removes the temporary of this name, if it stands, from the directory of the final name that
    /// the steps are about.
    RemoveTemp(TempName),
    /// Makes the names in these directories durable, and with them that others are gone.
    SyncNames(Vec<RelPath>),
}

/// Records for several journals, gathered until they are written together.
#[derive(Debug, Default)]
pub struct JournalWrites {
    of: BTreeMap<SessionTag, Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    records: Vec<Record>,
    is_synced: bool,
}

impl JournalWrites {
    /// Adds records that need not be durable: what they say is found out anew if they are lost.
    pub(super) fn append(&mut self, journal: SessionTag, records: impl IntoIterator<Item = Record>) {
        self.of.entry(journal).or_default().records.extend(records);
    }

    /// Adds records that are durable when the steps have ended.
    pub(super) fn append_durably(&mut self, journal: SessionTag, records: impl IntoIterator<Item = Record>) {
        let writes = self.of.entry(journal).or_default();
        writes.records.extend(records);
        writes.is_synced = true;
    }

    /// The steps that write all of it: each journal is written once, and synced once if any of its
    /// records is to be durable.
    pub fn into_steps(self) -> Vec<KeeperStep> {
        let steps = self.of.into_iter().flat_map(|(journal, Writes { records, is_synced })| {
            let sync = is_synced.then_some(KeeperStep::Sync(journal));
            std::iter::once(KeeperStep::Append { journal, records }).chain(sync)
        });
        steps.collect()
    }
}
