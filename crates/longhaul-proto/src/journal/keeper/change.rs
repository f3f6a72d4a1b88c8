//! The changes of one journal: operations that are carried out in order, and what the book knows
//! when the last of them has ended.
//!
//! Made by the book, carried out by whoever has the file, and given back to the book.

use longhaul_core::Layout;

use crate::journal::{Opened, Origin, Record, Writer};

/// An operation on a journal file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalOp {
    /// Cuts it to its first bytes, durably.
    Cut {
        /// The bytes that stay.
        len: u64,
    },
    /// Writes all that it holds once more, as it was read, and makes that and its name durable: the
    /// session before may have died before it synced them, or after a sync that failed. The system
    /// then shows bytes that the medium does not have, and no later sync would write them.
    Rewrite,
    /// Writes these bytes behind its last.
    Append(Vec<u8>),
    /// Makes durable all that was written before.
    Sync,
}

/// A change of a journal. Its operations are carried out one after the other, each when the one
/// before has ended well; then it goes back to [`super::Book::done`]. If one of them fails, the
/// rest is not begun, and [`super::Book::failed`] is told instead. No other append or cut of the
/// journal is under way meanwhile.
#[derive(Debug)]
#[must_use = "it is carried out, and its end is told to the book"]
pub struct JournalChange {
    /// The operations, in order.
    pub(super) ops: Vec<JournalOp>,
    /// The news that the book learns when they have ended.
    pub(super) effect: Effect,
}

/// The news of a change that has ended well.
#[derive(Debug)]
pub(super) enum Effect {
    /// Nothing new.
    Durable,
    /// These records stand in it.
    Appended { writer: Writer, records: Vec<Record> },
    /// It is ours, with this opening.
    TakenOver { writer: Writer, opened: Opened },
}

/// The way in which an operation on a journal failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Nothing of it was done: the journal is what it was before.
    Undone,
    /// A sync failed, or the remains of an append could not be cut off: what stands in the journal
    /// is not what the system shows of it.
    Broken,
}

/// Nothing may be written to a journal any more: an operation on it failed before. The system may
/// have dropped what it could not write, and report the next sync as good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a journal was given up after an error")]
pub struct Abandoned;

/// The records with which a session begins a journal, or takes one over.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The session. Its generation is that of a journal that it begins.
    pub opened: Opened,
    /// The boot and the run of the session.
    pub origin: Origin,
    /// The layout of the destination.
    pub layout: Layout,
}

impl Beginning {
    /// The records, for a journal of this generation.
    pub(super) fn records(&self, generation: u64) -> [Record; 2] {
        [Record::Opened(Opened { generation, ..self.opened.clone() }), Record::Origin(self.origin)]
    }
}

impl JournalChange {
    /// The operations, in order.
    pub fn ops(&self) -> &[JournalOp] {
        &self.ops
    }
}
