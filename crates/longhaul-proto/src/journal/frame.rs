//! The frame of a journal: its prelude, and length, kind and check around each record's body.
//! [`Writer`] makes them, [`Head`] and [`Checker`] read them. Knows nothing of the content of a
//! body.

use longhaul_core::Layout;
use longhaul_core::digest::Hash32;

use crate::journal::JournalError;
use crate::journal::record::{Record, Run};

/// Bytes of the prelude.
pub const PRELUDE_BYTES: usize = 32;
/// The newest version that this build reads. It begins a journal in it where a destination has
/// several targets.
pub const VERSION: u16 = 3;
/// The version in which this build begins all other journals: older builds read those.
const VERSION_WHOLE: u16 = 2;
/// The longest record with its frame (JOURNAL-4): a reader holds one at a time.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// The random name that a journal has for itself: its records are valid nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JournalId(pub [u8; 16]);

/// The content of a prelude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The journal's version.
    pub version: u16,
    /// The journal's name for itself.
    pub id: JournalId,
}

impl Head {
    /// The prelude.
    pub fn encode(&self) -> [u8; PRELUDE_BYTES] {
        let mut out = [0; PRELUDE_BYTES];
        out[..6].copy_from_slice(MAGIC);
        out[6..8].copy_from_slice(&self.version.to_le_bytes());
        out[8..24].copy_from_slice(&self.id.0);
        let check = plain_check(&out[..24]);
        out[24..].copy_from_slice(&check);
        out
    }

    /// Reads a prelude.
    ///
    /// # Errors
    /// [`JournalError::NotAJournal`] for a foreign file, [`JournalError::NewerVersion`], and
    /// [`JournalError::Unopened`] for a prelude of ours that was damaged, or of which only the
    /// length arrived on the disk.
    pub fn decode(bytes: &[u8; PRELUDE_BYTES]) -> Result<Head, JournalError> {
        if *bytes == [0; PRELUDE_BYTES] {
            return Err(JournalError::Unopened);
        }
        if bytes[..6] != *MAGIC {
            return Err(JournalError::NotAJournal);
        }
        if plain_check(&bytes[..24]) != bytes[24..] {
            return Err(JournalError::Unopened);
        }
        match u16::from_le_bytes([bytes[6], bytes[7]]) {
            0 => Err(JournalError::NotAJournal),
            version if version > VERSION => Err(JournalError::NewerVersion { version }),
            version => {
                let mut id = [0; 16];
                id.copy_from_slice(&bytes[8..24]);
                Ok(Head { version, id: JournalId(id) })
            }
        }
    }
}

/// The running check of a journal: the check of each record depends on its place and on all records
/// before it.
#[derive(Clone)]
pub(super) struct Checker {
    version: u16,
    key: [u8; 32],
    last: [u8; CHECK_BYTES],
    offset: u64,
}

impl Checker {
    /// A checker at the end of the prelude.
    pub(super) fn new(head: Head) -> Checker {
        let key = blake3::derive_key(KEY_CONTEXT, &head.id.0);
        Checker { version: head.version, key, last: [0; CHECK_BYTES], offset: PRELUDE_BYTES as u64 }
    }

    /// The journal's version.
    pub(super) fn version(&self) -> u16 {
        self.version
    }

    /// Where the next record begins, in bytes from the start of the journal.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The check of a record with this head (length and kind) and body at this place.
    pub(super) fn check(&self, framed: &[u8]) -> [u8; CHECK_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.last);
        hasher.update(&self.offset.to_le_bytes());
        hasher.update(framed);
        truncated(&hasher.finalize())
    }

    /// Moves behind a record.
    pub(super) fn pass(&mut self, framed: &[u8], check: [u8; CHECK_BYTES]) {
        self.last = check;
        self.offset += (framed.len() + CHECK_BYTES) as u64;
    }
}

/// Frames records. It remembers where the journal ends: its bytes must be appended in order, and
/// all of them. After an append that failed, a clone from before takes its place.
#[derive(Clone)]
pub struct Writer {
    checker: Checker,
}

impl Writer {
    /// A writer at the start of an empty journal, for a destination with one target. Puts the
    /// prelude into `out`.
    pub fn begin(id: JournalId, out: &mut Vec<u8>) -> Writer {
        Writer::begin_over(Layout::WHOLE, id, out)
    }

    /// The same for a destination of this layout.
    pub fn begin_over(layout: Layout, id: JournalId, out: &mut Vec<u8>) -> Writer {
        let head = Head { version: if layout.is_whole() { VERSION_WHOLE } else { VERSION }, id };
        out.extend_from_slice(&head.encode());
        Writer { checker: Checker::new(head) }
    }

    /// A writer behind the last record that was believed.
    pub(super) fn behind(checker: Checker) -> Writer {
        Writer { checker }
    }

    /// Whether records of this layout's places fit the journal's version (JOURNAL-8).
    pub fn takes(&self, layout: Layout) -> bool {
        layout.is_whole() || self.version() >= VERSION
    }

    /// The journal's version, which is the one in which it was begun.
    pub fn version(&self) -> u16 {
        self.checker.version()
    }

    /// The length of the journal with all bytes of this writer.
    pub fn len(&self) -> u64 {
        self.checker.offset()
    }

    /// Whether nothing but the prelude was written.
    pub fn is_empty(&self) -> bool {
        self.len() == PRELUDE_BYTES as u64
    }

    /// Puts a record into `out`, or several if its chunks or paths do not fit one. A kind that is
    /// newer than the journal is left out, as a build that knows only its version would believe
    /// nothing behind it (JOURNAL-8).
    ///
    /// # Panics
    /// If a record of another kind is over [`RECORD_BYTES_MAX`]: texts and single paths of ours
    /// never come near it, and [`Record::held`] keeps to it.
    pub fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        if Record::since(record.kind()) > self.version() {
            return;
        }
        if let Some(parts) = record.parts(BODY_BYTES_MAX) {
            return parts.iter().for_each(|part| self.framed(part.kind(), out, |out| part.put_body(out)));
        }
        match record {
            Record::Chunks { number, runs } => self.chunks(*number, runs, out),
            record => self.framed(record.kind(), out, |out| record.put_body(out)),
        }
    }

    fn chunks(&mut self, number: u32, runs: &[Run], out: &mut Vec<u8>) {
        let runs = runs.iter().rev().filter(|run| !run.digests.is_empty());
        let mut left: Vec<(u64, &[Hash32])> = runs.map(|run| (run.start.0, run.digests.as_slice())).collect();
        while !left.is_empty() {
            self.framed(Record::CHUNKS, out, |out| {
                let end = out.len() + BODY_BYTES_MAX;
                out.extend_from_slice(&number.to_le_bytes());
                while let Some((start, digests)) = left.pop() {
                    let room = end.saturating_sub(out.len() + Run::HEAD_BYTES) / 32;
                    let (now, later) = digests.split_at(digests.len().min(room));
                    Run::put(start, now, out);
                    if !later.is_empty() {
                        left.push((start + now.len() as u64, later));
                        break;
                    }
                    if end - out.len() < Run::HEAD_BYTES + 32 {
                        break;
                    }
                }
            });
        }
    }

    fn framed(&mut self, kind: u8, out: &mut Vec<u8>, put_body: impl FnOnce(&mut Vec<u8>)) {
        let at = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        out.push(kind);
        put_body(out);
        let body = out.len() - at - HEAD_BYTES;
        assert!(body <= BODY_BYTES_MAX, "a record of {body} bytes is longer than any reader takes");
        out[at..at + LENGTH_BYTES].copy_from_slice(&(body as u32).to_le_bytes());
        let check = self.checker.check(&out[at..]);
        self.checker.pass(&out[at..], check);
        out.extend_from_slice(&check);
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer(at {})", self.len())
    }
}

fn plain_check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    truncated(&blake3::hash(bytes))
}

fn truncated(hash: &blake3::Hash) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&hash.as_bytes()[..CHECK_BYTES]);
    check
}

const MAGIC: &[u8; 6] = b"LHjrnl";
const KEY_CONTEXT: &str = "longhaul 1 journal record check";
pub(super) const LENGTH_BYTES: usize = 4;
/// Length and kind.
pub(super) const HEAD_BYTES: usize = LENGTH_BYTES + 1;
pub(super) const CHECK_BYTES: usize = 8;
/// Longest body.
pub(super) const BODY_BYTES_MAX: usize = RECORD_BYTES_MAX - HEAD_BYTES - CHECK_BYTES;
