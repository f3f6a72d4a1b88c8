//! Records of a stripe file: where each chunk lies, with its digest. They are appended in blocks,
//! each with a MAC; a block that is torn proves nothing, and neither does anything behind it.
//!
//! In: records. Out: the bytes of blocks, and the records of bytes that prove them. The format is
//! that of `docs/SETS.md`. Knows no file.

use longhaul_core::digest::Hash32;
use longhaul_core::stripe::{PlacedChunk, Spot};
use longhaul_core::{ChunkIndex, FileNode, Mtime, TargetId, TempName};

use super::keys::{Sealed, SetKey};

/// One fact of a striped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A body was made, and is this file. Its device number is not told: it changes when the disk
    /// is mounted again.
    Body {
        /// Its target.
        target: TargetId,
        /// Its inode number.
        ino: u64,
        /// Its time of birth. `None` where the system does not say.
        born: Option<Mtime>,
    },
    /// A chunk lies here and is durable. A later record of the same chunk is the one that counts.
    Chunk {
        /// The chunk.
        index: ChunkIndex,
        /// Its place. `None`: all of it is zeros, and lies nowhere.
        spot: Option<Spot>,
        /// Its digest.
        digest: Hash32,
    },
}

impl Record {
    /// The record of a body.
    pub(crate) fn of_body(target: TargetId, node: &FileNode) -> Record {
        Record::Body { target, ino: node.ino, born: node.born }
    }

    /// The record of a chunk that is durable.
    pub(crate) fn of_chunk(PlacedChunk { index, spot, digest }: PlacedChunk) -> Record {
        Record::Chunk { index, spot, digest }
    }

    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        match self {
            Record::Body { target, ino, born } => {
                bytes[0] = if born.is_some() { BODY_BORN } else { BODY };
                bytes[2..4].copy_from_slice(&(target.0 as u16).to_le_bytes());
                bytes[8..16].copy_from_slice(&ino.to_le_bytes());
                let born = born.unwrap_or_default();
                bytes[16..24].copy_from_slice(&born.secs.to_le_bytes());
                bytes[24..28].copy_from_slice(&born.nanos.to_le_bytes());
            }
            Record::Chunk { index, spot, digest } => {
                bytes[0] = if spot.is_some() { CHUNK } else { HOLE };
                bytes[4..10].copy_from_slice(&index.0.to_le_bytes()[..6]);
                if let Some(spot) = spot {
                    bytes[2..4].copy_from_slice(&(spot.target.0 as u16).to_le_bytes());
                    bytes[10..16].copy_from_slice(&spot.slot.to_le_bytes()[..6]);
                }
                bytes[16..].copy_from_slice(&digest);
            }
        }
        bytes
    }

    fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        let number = |from: usize, len: usize| {
            let mut number = [0; 8];
            number[..len].copy_from_slice(&bytes[from..from + len]);
            u64::from_le_bytes(number)
        };
        let target = TargetId(number(2, 2) as u32);
        let (index, digest) = (ChunkIndex(number(4, 6)), bytes[16..].try_into().ok()?);
        match bytes[0] {
            BODY => Some(Record::Body { target, ino: number(8, 8), born: None }),
            BODY_BORN => {
                let born = Mtime::said(number(16, 8).cast_signed(), number(24, 4) as u32);
                Some(Record::Body { target, ino: number(8, 8), born: Some(born) })
            }
            CHUNK => Some(Record::Chunk { index, spot: Some(Spot { target, slot: number(10, 6) }), digest }),
            HOLE => Some(Record::Chunk { index, spot: None, digest }),
            _ => None,
        }
    }
}

/// The bytes of a block, the `number`th of the file of this id.
pub(crate) fn block(key: &SetKey, id: &TempName, number: u32, records: &[Record]) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_BYTES];
    bytes.extend(records.iter().flat_map(|record| record.to_bytes()));
    let mac = key.mac(Sealed::Block, &[id.bytes(), &head(number, records.len() as u32), &bytes[RECORD_BYTES..]]);
    bytes[..16].copy_from_slice(&head(number, records.len() as u32));
    bytes[16..RECORD_BYTES].copy_from_slice(&mac);
    bytes
}

/// The number of records in a block that begins so. `None` if that is no block of this number.
pub(crate) fn records_in(first: &[u8; RECORD_BYTES], number: u32) -> Option<usize> {
    let count = u32::from_le_bytes(first[12..16].try_into().ok()?);
    (first[..16] == head(number, count) && count as usize <= BLOCK_RECORDS_MAX).then_some(count as usize)
}

/// Gives the records of a whole block to `take`. Returns false, and gives none, if the bytes do not
/// prove them.
pub(crate) fn unblock(
    key: &SetKey,
    id: &TempName,
    number: u32,
    bytes: &[u8],
    mut take: impl FnMut(Record) -> bool,
) -> bool {
    let Some((first, records)) = bytes.split_first_chunk::<RECORD_BYTES>() else { return false };
    if !key.proves(Sealed::Block, &[id.bytes(), &first[..16], records], &first[16..])
        || records_in(first, number).is_none_or(|count| count * RECORD_BYTES != records.len())
    {
        return false;
    }
    let (records, _) = records.as_chunks::<RECORD_BYTES>();
    records.iter().all(|bytes| Record::parse(bytes).is_some_and(&mut take))
}

fn head(number: u32, count: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&number.to_le_bytes());
    head[12..].copy_from_slice(&count.to_le_bytes());
    head
}

const MAGIC: &[u8; 8] = b"lhblock1";
const BODY: u8 = 1;
const BODY_BORN: u8 = 2;
const CHUNK: u8 = 3;
const HOLE: u8 = 4;
/// Bytes of a record, and of the start of a block.
pub(crate) const RECORD_BYTES: usize = 48;
/// Records of a block at most: 3 MiB.
pub(crate) const BLOCK_RECORDS_MAX: usize = 65_536;
/// Chunks of a striped file at most: their places take about 100 bytes each while it is written.
/// (A field has room for 2^48.)
pub(crate) const CHUNKS_MAX: u64 = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::testing::{ID, key};

    fn records() -> Vec<Record> {
        let spot = Spot { target: TargetId(1023), slot: CHUNKS_MAX - 1 };
        let born = Some(Mtime::said(-5, 7));
        vec![
            Record::Body { target: TargetId(3), ino: u64::MAX, born },
            Record::Body { target: TargetId(0), ino: 1, born: None },
            Record::Chunk { index: ChunkIndex(CHUNKS_MAX - 1), spot: Some(spot), digest: [7; 32] },
            Record::Chunk { index: ChunkIndex(0), spot: None, digest: [8; 32] },
        ]
    }

    fn read(bytes: &[u8], number: u32) -> Option<Vec<Record>> {
        let mut found = Vec::new();
        unblock(&key(), &ID, number, bytes, |record| {
            found.push(record);
            true
        })
        .then_some(found)
    }

    #[test]
    fn a_block_gives_its_records_back_and_only_in_its_place() {
        let bytes = block(&key(), &ID, 5, &records());
        assert_eq!(read(&bytes, 5), Some(records()));
        assert_eq!(read(&bytes, 6), None);
        let other = TempName::of([1; 16]);
        assert!(!unblock(&key(), &other, 5, &bytes, |_| true), "a block of another file");
    }

    #[test]
    fn a_block_that_is_torn_or_changed_proves_nothing() {
        let bytes = block(&key(), &ID, 0, &records());
        for at in 0..bytes.len() {
            assert_eq!(read(&bytes[..at], 0), None, "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_eq!(read(&other, 0), None, "byte {at}");
        }
    }
}
