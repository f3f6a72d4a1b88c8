//! The journal: an append-only log in which a receiving session notes what it has made durable.
//! This module has its bytes, their writer, and the rules by which they are believed when they are
//! read again.
//!
//! Takes records from the owner of the receiver and gives bytes to append. Takes such bytes and
//! gives the state from which a later session goes on. Owns the format, and in [`keeper`] the
//! decisions about what is written when (`docs/JOURNAL.md`); files and locks belong to `disk`. No
//! I/O, clock or randomness here.
//!
//! # The bytes
//!
//! ```text
//! prelude  magic "LHjrnl" · version u16 · id [u8; 16] · check [u8; 8]                            32 bytes
//! record   length u32 · kind u8 · body (length bytes) · check [u8; 8]                13 bytes and the body
//! ```
//!
//! Little endian. The prelude's check is the beginning of the BLAKE3 digest of the 24 bytes before
//! it. A record's check is the beginning of a BLAKE3 digest under a key derived from the id, of:
//! the check before this one, the record's offset in the journal (u64), length, kind, body.
//!
//! # The rules
//!
//! - **JOURNAL-1**: every version begins with this prelude. Another magic is no journal of ours; an
//!   older build neither reads nor touches a higher version.
//! - **JOURNAL-2**: the first record is `Opened`, and a later one raises its generation. A journal
//!   without its first record has promised nothing yet.
//! - **JOURNAL-3**: a record is believed if it is whole, if its check is right in its place behind
//!   all those before, if its body is read to the last byte, and if it makes sense (the rules
//!   below). The first record that is not believed ends the replay: everything before it is
//!   believed, nothing behind it.
//! - **JOURNAL-4**: no record is longer than [`RECORD_BYTES_MAX`].
//! - **JOURNAL-5**: file numbers only ever rise, and every other record with a number names a file
//!   that is open: announced, and neither done nor dropped.
//! - **JOURNAL-6**: every chunk that is named lies in its file's map.
//! - **JOURNAL-7**: of two digests of one chunk the later counts; a chunk that was revised away is
//!   not held.
//! - **JOURNAL-8**: kinds, and the fields of a body, are never changed; a new kind or field makes a
//!   new version. A journal holds no kind that is newer than its own version, and keeps its version
//!   when it is taken over.
//! - **JOURNAL-9**: an `Origin` speaks of the `Opened` before it and for all records up to the next
//!   `Opened`. Without one, boot and run are unknown, and an unknown value equals nothing.
//! - **JOURNAL-10**: a journal is one of files or one of doubts: behind the first `Doubtful` stands
//!   no `File` and no `Dirs`, and behind the first of these no `Doubtful`.
//! - **JOURNAL-11**: where the destination has several targets, chunks are held at the places that
//!   its layout gives them: a `ChunksAt` that names another place is not believed, nor is a
//!   `Chunks`, which means a file that lies whole on one target.

mod frame;
mod held;
pub mod keeper;
mod record;
mod replay;

pub use frame::{Head, JournalId, PRELUDE_BYTES, RECORD_BYTES_MAX, VERSION, Writer};
pub use held::HeldChunks;
pub use record::{FileRecord, Opened, Origin, Record, Run, Stretch};
pub use replay::{End, Finished, JournalledPartial, Placement, Replay, Replayed, replay};

/// The reason why a file cannot be continued as a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It does not begin as a journal of ours (JOURNAL-1).
    #[error("not a journal of longhaul")]
    NotAJournal,
    /// A newer build wrote it (JOURNAL-1).
    #[error("journal of version {version}, written by a newer longhaul")]
    NewerVersion {
        /// Its version.
        version: u16,
    },
    /// It ends before its first record does, or that one is damaged: it promised nothing yet, or
    /// nothing of its promises can be read any more (JOURNAL-2).
    #[error("journal without a readable beginning")]
    Unopened,
    /// Its first record is sound but of another kind than `Opened` (JOURNAL-2).
    #[error("journal that does not begin with its opening")]
    NotOpened,
}
