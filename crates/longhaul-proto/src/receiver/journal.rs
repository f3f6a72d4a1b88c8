//! The records to be journalled: they gather while the journal is being synced, and leave together
//! when it is free.
//!
//! In: synced chunks, committed files. Out: [`ReceiverAction::Journal`], one at a time; a chunk is
//! durable when the answer is good. Knows nothing of the format of a record.

use std::sync::Arc;

use longhaul_core::digest::Digest;
use longhaul_core::{ChunkIndex, Fault, FileId};

use super::{EntryRef, Receiver, ReceiverAction};
use crate::time::Timestamp;

/// A fact that the journal is to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// These chunks of a file are synced under its temporary name.
    Chunks {
        /// The file.
        file: FileId,
        /// The chunks, in order, and their verified digests.
        chunks: Vec<(ChunkIndex, Digest)>,
    },
    /// The file stands under its final name for good. It need not be synced: a lost record costs
    /// nothing, as the file is found standing.
    Done(FileId),
    /// These names stand, and a failed sync left them or their content in doubt, so that no session
    /// skips them unread. It is synced.
    Doubtful(Vec<Arc<EntryRef>>),
}

/// Records on their way.
#[derive(Debug, Default)]
pub(super) struct JournalFlow {
    pending: Vec<JournalEntry>,
    under_way: Option<Vec<JournalEntry>>,
}

impl JournalFlow {
    pub(super) fn add(&mut self, record: JournalEntry) {
        self.pending.push(record);
    }

    /// Drops the waiting records of a file that no session continues.
    pub(super) fn forget(&mut self, id: FileId) {
        self.pending.retain(|record| !matches!(record, JournalEntry::Chunks { file, .. } if *file == id));
    }

    /// Whether chunks of a file are on their way into the journal.
    pub(super) fn speaks_of(&self, id: FileId) -> bool {
        let of_it = |record: &JournalEntry| matches!(record, JournalEntry::Chunks { file, .. } if *file == id);
        self.pending.iter().chain(self.under_way.iter().flatten()).any(of_it)
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.under_way.is_none()
    }
}

impl Receiver {
    /// Writes the records that gathered, if the journal is free.
    pub(super) fn write_journal(&mut self) {
        if self.journal.under_way.is_none() && !self.journal.pending.is_empty() {
            let records = std::mem::take(&mut self.journal.pending);
            self.journal.under_way = Some(records.clone());
            self.actions.push(ReceiverAction::Journal(records));
        }
    }

    /// The records are appended and, if chunks are among them, durable. Or that failed: then no
    /// record is to be believed, and the session ends.
    pub fn handle_journal(&mut self, now: Timestamp, result: Result<(), Fault>) {
        let Some(records) = self.journal.under_way.take().filter(|_| !self.is_over()) else { return };
        match result {
            Ok(()) => records.into_iter().for_each(|record| self.journalled(record)),
            // Without its record, a committed file is found standing.
            Err(_) if records.iter().all(|record| matches!(record, JournalEntry::Done(_))) => {}
            Err(fault) => {
                let lost = std::mem::take(&mut self.journal.pending);
                records.iter().chain(&lost).for_each(|record| self.unjournalled(record));
                // Doubts are written to a journal of their own: these were not tried here.
                self.journal.pending =
                    lost.into_iter().filter(|record| matches!(record, JournalEntry::Doubtful(_))).collect();
                self.abort(fault);
            }
        }
        self.settle_down(now);
    }

    /// Takes a record as lost: the bytes of its file cannot be saved any more, and a failed file
    /// that waited only for it ends.
    fn unjournalled(&mut self, record: &JournalEntry) {
        let (JournalEntry::Chunks { file, .. } | JournalEntry::Done(file)) = record else { return };
        if let Some(large) = self.large(*file) {
            large.unsavable = true;
        }
        self.end_if_failed(*file);
    }

    fn journalled(&mut self, record: JournalEntry) {
        let JournalEntry::Chunks { file, chunks } = record else { return };
        // A file that ended meanwhile was counted when it did.
        let Some(large) = self.large(file) else { return };
        let bytes = large.journalled(&chunks);
        let is_stream = large.is_stream();
        self.unsynced.count_no_more(bytes);
        self.tally.durable += bytes;
        if is_stream {
            self.tell_durable(file, &chunks);
        }
        self.end_if_failed(file);
    }
}
