//! The records of a journal: their kinds and the bytes of their bodies. Kinds are only ever
//! appended (JOURNAL-8); `tests/journal` holds the bytes fast.
//!
//! Chunk digests are laid out by hand, as they are nearly all bytes of a journal; everything else
//! is postcard.

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::{ChunkIndex, ChunkMap, FileNode, Layout, Place, RelPath, SourceStamp, TargetId, TempName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// 1: a session begins, or takes over from the one before.
    Opened(Opened),
    /// 2: a file begins; appended before its temporary is made.
    File(FileRecord),
    /// 3: these chunks of a file are in its temporary, verified; appended after a sync of their
    /// data.
    Chunks {
        /// The file.
        number: u32,
        /// The verified chunks.
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
    /// 6: the partial goes on from another version of its source, or without chunks that proved
    /// bad; synced before any of these chunks is written again.
    Revised {
        /// The file.
        number: u32,
        /// The source as it is now.
        source: SourceStamp,
        /// Chunks that are not held any more.
        lost: Vec<Stretch>,
    },
    /// 7: the boot and the run from which the records behind an `Opened` come; appended with it
    /// (version 2).
    Origin(Origin),
    /// 8: the identity of a temporary; appended at the latest with its first chunks, and again when
    /// another session has read all held chunks back from the medium (version 2).
    Placed {
        /// The file.
        number: u32,
        /// The temporary, whatever its name.
        node: FileNode,
    },
    /// 9: directories in which this session makes temporaries; synced before the first of these
    /// exists (version 2).
    Dirs {
        /// The directories, beneath the one that the journal's directory lies in. If they do not
        /// fit one record, there are several.
        paths: Vec<RelPath>,
    },
    /// 10: a directory in which no temporary of this session lies any more, except those of open
    /// files (version 2).
    Left {
        /// The directory.
        path: RelPath,
    },
    /// 11: final names that a failed sync left in doubt, or their content: the medium may lack them
    /// or have other content than the system shows (version 2).
    Doubtful {
        /// The names. More than fit one record become several.
        paths: Vec<RelPath>,
    },
    /// 12: the end of doubts: the names were committed anew, or read back from the medium (version
    /// 2).
    Certain {
        /// The names. More than fit one record become several.
        paths: Vec<RelPath>,
    },
    /// 13: the same as `Chunks` at a destination with several targets: where on these they lie
    /// (version 3).
    ChunksAt {
        /// The file.
        number: u32,
        /// The place of the first chunk. The others follow it in the same body, in the order of
        /// the runs, each a chunk size behind the one before.
        place: Place,
        /// The verified chunks.
        runs: Vec<Run>,
    },
}

/// The boot and the run that records come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The boot id of the host, from the kernel. Zeros if it is unknown.
    pub boot: [u8; 16],
    /// The run of the command that the session belongs to: all sessions of one command have the
    /// same. Zeros if it is unknown.
    pub run: [u8; 16],
}

/// The writer of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The principal that owns the partials: `key:FINGERPRINT` or `uid:N`.
    pub principal: String,
    /// The principal's name, for people.
    pub owner: String,
    /// The process id of the writer.
    pub pid: u32,
    /// The time of opening, in seconds since 1970.
    pub at_unix: u64,
    /// The generation, which each takeover raises.
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
    /// Its temporary's name in the directory of its final name, until it is committed.
    pub temp: TempName,
}

/// Digests of chunks in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first chunk.
    pub start: ChunkIndex,
    /// The digests of this chunk and the following ones: chaining values, or the root of a file of
    /// one chunk.
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

impl Origin {
    /// Whether records of this origin are of the boot `boot`. An unknown boot matches none
    /// (JOURNAL-9).
    pub fn is_of_boot(&self, boot: [u8; 16]) -> bool {
        self.boot == boot && boot != UNKNOWN
    }

    /// Whether records of this origin are of the run `run`. An unknown run matches none
    /// (JOURNAL-9).
    pub fn is_of_run(&self, run: [u8; 16]) -> bool {
        self.run == run && run != UNKNOWN
    }
}

const UNKNOWN: [u8; 16] = [0; 16];

#[derive(Serialize, Deserialize)]
struct PlacedBody {
    number: u32,
    node: FileNode,
}

#[derive(Serialize, Deserialize)]
struct RevisedBody {
    number: u32,
    source: SourceStamp,
    lost: Vec<Stretch>,
}

impl Record {
    pub(super) const CHUNKS: u8 = 3;

    /// The records that say that these chunks of a file are held, at the places that the layout of
    /// the destination gives them. Chunks are in order.
    pub fn held(number: u32, layout: Layout, map: ChunkMap, chunks: &[(ChunkIndex, Digest)]) -> Vec<Record> {
        if layout.is_whole() {
            return vec![Record::Chunks { number, runs: Run::of(chunks) }];
        }
        let mut records = Vec::new();
        for target in layout.targets() {
            let placed = |chunk: &(ChunkIndex, Digest)| (layout.place_of(map, chunk.0), *chunk);
            let of_target: Vec<_> = chunks.iter().map(placed).filter(|(place, _)| place.target == target).collect();
            let follows = |a: &(Place, _), b: &(Place, _)| a.0.offset + map.size().bytes() == b.0.offset;
            for row in of_target.chunk_by(follows).flat_map(|row| row.chunks(ROW_CHUNKS_MAX)) {
                let chunks: Vec<_> = row.iter().map(|(_, chunk)| *chunk).collect();
                records.push(Record::ChunksAt { number, place: row[0].0, runs: Run::of(&chunks) });
            }
        }
        records
    }

    /// The number of the record's kind.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Record::Opened(_) => 1,
            Record::File(_) => 2,
            Record::Chunks { .. } => Record::CHUNKS,
            Record::Done { .. } => 4,
            Record::Dropped { .. } => 5,
            Record::Revised { .. } => 6,
            Record::Origin(_) => 7,
            Record::Placed { .. } => 8,
            Record::Dirs { .. } => 9,
            Record::Left { .. } => 10,
            Record::Doubtful { .. } => 11,
            Record::Certain { .. } => 12,
            Record::ChunksAt { .. } => 13,
        }
    }

    /// The first version that has records of this kind (JOURNAL-8).
    pub(super) const fn since(kind: u8) -> u16 {
        if kind <= KIND_MAX_OF_VERSION_1 {
            1
        } else if kind <= KIND_MAX_OF_VERSION_2 {
            2
        } else {
            3
        }
    }

    /// Gives a record of many paths as several, each of which fits a body of `bytes_max`.
    pub(super) fn parts(&self, bytes_max: usize) -> Option<Vec<Record>> {
        let (paths, part): (_, fn(Vec<RelPath>) -> Record) = match self {
            Record::Dirs { paths } => (paths, |paths| Record::Dirs { paths }),
            Record::Doubtful { paths } => (paths, |paths| Record::Doubtful { paths }),
            Record::Certain { paths } => (paths, |paths| Record::Certain { paths }),
            _ => return None,
        };
        let (mut parts, mut bytes) = (Vec::<Vec<RelPath>>::new(), usize::MAX);
        for path in paths {
            let costs = path.as_bytes().len() + LENGTH_BYTES_MAX;
            bytes = bytes.saturating_add(costs);
            match parts.last_mut().filter(|_| bytes <= bytes_max) {
                Some(last) => last.push(path.clone()),
                None => {
                    parts.push(vec![path.clone()]);
                    // The count of paths stands before them.
                    bytes = LENGTH_BYTES_MAX + costs;
                }
            }
        }
        Some(parts.into_iter().map(part).collect())
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
            Record::Origin(origin) => put(origin, out),
            Record::Placed { number, node } => put(&PlacedBody { number: *number, node: *node }, out),
            Record::Dirs { paths } | Record::Doubtful { paths } | Record::Certain { paths } => put(paths, out),
            Record::Left { path } => put(path, out),
            Record::ChunksAt { number, place, runs } => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&place.target.0.to_le_bytes());
                out.extend_from_slice(&place.offset.to_le_bytes());
                runs.iter().for_each(|run| Run::put(run.start.0, &run.digests, out));
            }
        }
    }

    /// Reads a body to its last byte. `None` for bytes that no build of this version writes.
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
            7 => take(body).map(Record::Origin),
            8 => {
                let PlacedBody { number, node } = take(body)?;
                Some(Record::Placed { number, node })
            }
            9 => take(body).map(|paths| Record::Dirs { paths }),
            10 => take(body).map(|path| Record::Left { path }),
            11 => take(body).map(|paths| Record::Doubtful { paths }),
            12 => take(body).map(|paths| Record::Certain { paths }),
            13 => {
                let (number, rest) = body.split_first_chunk()?;
                let (target, rest) = rest.split_first_chunk()?;
                let (offset, rest) = rest.split_first_chunk()?;
                let place =
                    Place { target: TargetId(u32::from_le_bytes(*target)), offset: u64::from_le_bytes(*offset) };
                Some(Record::ChunksAt { number: u32::from_le_bytes(*number), place, runs: Run::take_all(rest)? })
            }
            _ => None,
        }
    }
}

impl Run {
    /// Chunks in order, as runs of neighbours.
    pub fn of(chunks: &[(ChunkIndex, Digest)]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (index, digest) in chunks {
            match runs.last_mut() {
                Some(run) if run.start.0 + run.digests.len() as u64 == index.0 => run.digests.push(*digest.bytes()),
                _ => runs.push(Run { start: *index, digests: vec![*digest.bytes()] }),
            }
        }
        runs
    }

    /// Start (u64) and count (u32) before the digests.
    pub(super) const HEAD_BYTES: usize = 12;

    pub(super) fn put(start: u64, digests: &[Hash32], out: &mut Vec<u8>) {
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&(digests.len() as u32).to_le_bytes());
        out.extend_from_slice(digests.as_flattened());
    }

    /// Reads all runs of a body. `None` if there is no run, or an empty one.
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
        // Serialising into a growing vector fails only for types that postcard cannot express, and
        // ours all can.
        Err(error) => unreachable!("a record body that postcard cannot express: {error}"),
    }
}

fn take<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// Version 1 has the kinds up to this one.
const KIND_MAX_OF_VERSION_1: u8 = 6;
/// Version 2 has the kinds up to this one.
const KIND_MAX_OF_VERSION_2: u8 = 12;
/// Chunks that one `ChunksAt` names at most: so many fit a record if each of them is a run.
const ROW_CHUNKS_MAX: usize = 16 << 10;
/// The most bytes that a length or a count takes.
const LENGTH_BYTES_MAX: usize = 10;
