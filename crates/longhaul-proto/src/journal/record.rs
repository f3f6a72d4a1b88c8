//! What a journal says: the kinds of record and the bytes of their bodies. Numbers are only ever appended (JOURNAL-8);
//! `tests/journal` holds the bytes fast.
//!
//! Chunk digests are laid out by hand, for they are nearly all of a journal; everything else is postcard.

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkIndex, ChunkMap, RelPath, SourceStamp, TempName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// 1: a session begins, or takes over from the one before.
    Opened(Opened),
    /// 2: a file begins; appended before its temporary is made.
    File(FileRecord),
    /// 3: these chunks of a file are in its temporary, verified; appended after a sync of their data.
    Chunks {
        /// The file.
        number: u32,
        /// What was verified.
        runs: Vec<Run>,
    },
    /// 4: the file is committed under its final name.
    Done {
        /// The file.
        number: u32,
    },
    /// 5: the file is given up; its temporary is removed, or about to be.
    Dropped {
        /// The file.
        number: u32,
    },
    /// 6: the partial goes on from another version of its source, or without chunks that proved bad: synced before any of
    /// those is written anew.
    Revised {
        /// The file.
        number: u32,
        /// The source as it is now.
        source: SourceStamp,
        /// Chunks that are held no more.
        lost: Vec<Stretch>,
    },
}

/// Who writes the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Whose partials these are: `key:FINGERPRINT` or `uid:N`.
    pub principal: String,
    /// Who that is, for people.
    pub owner: String,
    /// The writing process.
    pub pid: u32,
    /// When, in seconds since 1970.
    pub at_unix: u64,
    /// Raised by each takeover.
    pub generation: u64,
    /// The session.
    pub session: [u8; 16],
}

/// A file that is being received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its number in this journal; they only ever rise (JOURNAL-5).
    pub number: u32,
    /// Its final name, beneath the directory that the journal's own lies in.
    pub path: RelPath,
    /// Its length and chunk size.
    pub map: ChunkMap,
    /// The source that it is received from.
    pub source: SourceStamp,
    /// Whether blocks of zeros are left as holes.
    pub sparse: bool,
    /// What it is called until it is committed, in the directory of its final name.
    pub temp: TempName,
}

/// Digests of chunks in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first chunk.
    pub start: ChunkIndex,
    /// Of it and those behind it: chaining values, or the root of a file of one chunk.
    pub digests: Vec<Hash32>,
}

/// Chunks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The first.
    pub start: ChunkIndex,
    /// How many.
    pub count: u64,
}

#[derive(Serialize, Deserialize)]
struct RevisedBody {
    number: u32,
    source: SourceStamp,
    lost: Vec<Stretch>,
}

impl Record {
    pub(super) const CHUNKS: u8 = 3;

    /// The number of its kind.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Record::Opened(_) => 1,
            Record::File(_) => 2,
            Record::Chunks { .. } => Record::CHUNKS,
            Record::Done { .. } => 4,
            Record::Dropped { .. } => 5,
            Record::Revised { .. } => 6,
        }
    }

    /// Appends its body.
    pub(super) fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Record::Opened(opened) => put(opened, out),
            Record::File(file) => put(file, out),
            Record::Chunks { number, runs } => {
                out.extend_from_slice(&number.to_le_bytes());
                runs.iter().for_each(|run| Run::put(run.start.0, &run.digests, out));
            }
            Record::Done { number } | Record::Dropped { number } => put(number, out),
            Record::Revised { number, source, lost } => {
                put(&RevisedBody { number: *number, source: *source, lost: lost.clone() }, out);
            }
        }
    }

    /// Reads a body, to its last byte; none for what no build of this version writes.
    pub(super) fn take(kind: u8, body: &[u8]) -> Option<Record> {
        match kind {
            1 => take(body).map(Record::Opened),
            2 => take(body).map(Record::File),
            Record::CHUNKS => {
                let (number, runs) = body.split_first_chunk()?;
                Some(Record::Chunks { number: u32::from_le_bytes(*number), runs: Run::take_all(runs)? })
            }
            4 => take(body).map(|number| Record::Done { number }),
            5 => take(body).map(|number| Record::Dropped { number }),
            6 => {
                let RevisedBody { number, source, lost } = take(body)?;
                Some(Record::Revised { number, source, lost })
            }
            _ => None,
        }
    }
}

impl Run {
    /// Start (u64) and count (u32) before the digests.
    pub(super) const HEAD_BYTES: usize = 12;

    pub(super) fn put(start: u64, digests: &[Hash32], out: &mut Vec<u8>) {
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&(digests.len() as u32).to_le_bytes());
        out.extend_from_slice(digests.as_flattened());
    }

    /// All runs of a body, at least one, none of them empty.
    fn take_all(mut bytes: &[u8]) -> Option<Vec<Run>> {
        let mut runs = Vec::new();
        while runs.is_empty() || !bytes.is_empty() {
            let (start, rest) = bytes.split_first_chunk()?;
            let (count, rest) = rest.split_first_chunk()?;
            let count = u32::from_le_bytes(*count) as usize;
            let (digests, rest) = rest.split_at_checked(count.checked_mul(32).filter(|bytes| *bytes > 0)?)?;
            let (digests, _) = digests.as_chunks();
            runs.push(Run { start: ChunkIndex(u64::from_le_bytes(*start)), digests: digests.to_vec() });
            bytes = rest;
        }
        Some(runs)
    }
}

fn put<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    match postcard::to_extend(value, std::mem::take(out)) {
        Ok(longer) => *out = longer,
        // Serialising into a growing vector fails only for types that postcard cannot express, and ours all can.
        Err(error) => unreachable!("a record body that postcard cannot express: {error}"),
    }
}

fn take<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}
