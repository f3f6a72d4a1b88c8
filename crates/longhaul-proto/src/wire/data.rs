//! The header before payload on a lane: 64 bytes, little endian, laid out by hand.
//!
//! It names a piece (unit, attempt, offset in the unit, length). A byte-stream lane sends each unit
//! as one piece. On a `safe` lane headers are hints: the receiver's machine believes none of them
//! without the control channel. A header that [`Header::decode`] accepts can be hashed without a
//! panic, whoever wrote it. Whether its unit is wanted is not known here.

use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkSize, DigestKind, FileId, Unit};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a digest behind a unit, on lanes that carry it ([`Piece::trailer`]).
pub const TRAILER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"LHd1";
const KIND_CHUNK: u8 = 1;
const KIND_BUNDLE: u8 = 2;
const KIND_END: u8 = 3;
const FLAG_HOLE: u8 = 1;
const FLAG_CV: u8 = 2;
const FLAG_TRAILER: u8 = 4;
const FLAG_SAME: u8 = 8;

/// The header before payload on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A piece of a unit follows.
    Piece(Piece),
    /// The sender is done with this lane.
    End,
}

/// A piece of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The unit.
    pub unit: Unit,
    /// The number of this sending.
    pub attempt: Attempt,
    /// Where the piece begins in the unit, in bytes.
    pub offset: u64,
    /// Payload bytes that follow; 0 for a hole or an empty file, at least 1 otherwise.
    pub len: u64,
    /// Bytes of the whole unit.
    pub unit_len: u64,
    /// The chunk size of the file, which with the index gives the place in the digest tree.
    pub chunk: ChunkSize,
    /// The kind of the unit's digest.
    pub digest: DigestKind,
    /// Whether the unit lies in a hole: `unit_len` zeros, no payload.
    pub hole: bool,
    /// Whether the receiver has the chunk already, as its digest shows: no payload.
    pub same: bool,
    /// Whether the unit's digest follows the payload.
    pub trailer: bool,
}

/// The reason why bytes are not a lane header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes do not begin with the magic.
    #[error("lane frame without its magic")]
    Magic,
    /// An unknown kind, flag or a reserved field that is set.
    #[error("lane frame of unknown kind or flags")]
    Unknown,
    /// Lengths that contradict each other or exceed the largest unit.
    #[error("lane frame with impossible lengths")]
    Lengths,
    /// A unit that lies nowhere in any file, or whose digest is of the wrong kind for its place.
    #[error("lane frame with an impossible place")]
    Place,
}

impl Piece {
    /// Whether no payload follows, whatever the unit's length: the unit is a hole, or the receiver
    /// has it.
    pub const fn is_bare(&self) -> bool {
        self.hole || self.same
    }
}

impl Header {
    /// The 64 bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        let Header::Piece(piece) = self else {
            out[4] = KIND_END;
            return out;
        };
        let (kind, id, index) = match piece.unit {
            Unit::Chunk { file, index } => (KIND_CHUNK, file.0, index.0),
            Unit::Bundle(id) => (KIND_BUNDLE, id.0, 0),
        };
        out[4] = kind;
        out[5] = flag(piece.hole, FLAG_HOLE)
            | flag(piece.digest == DigestKind::Cv, FLAG_CV)
            | flag(piece.trailer, FLAG_TRAILER)
            | flag(piece.same, FLAG_SAME);
        out[6] = piece.chunk.log2();
        out[8..16].copy_from_slice(&id.to_le_bytes());
        out[16..24].copy_from_slice(&index.to_le_bytes());
        out[24..28].copy_from_slice(&piece.attempt.0.to_le_bytes());
        out[32..40].copy_from_slice(&piece.offset.to_le_bytes());
        out[40..48].copy_from_slice(&piece.len.to_le_bytes());
        out[48..56].copy_from_slice(&piece.unit_len.to_le_bytes());
        out
    }

    /// Reads 64 bytes. An accepted header encodes to the same bytes again.
    ///
    /// # Errors
    /// [`HeaderError`] for anything that no sender writes.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        if bytes[..4] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let header = match bytes[4] {
            KIND_END => Header::End,
            _ => Header::Piece(decode_piece(bytes)?),
        };
        if header.encode() == *bytes { Ok(header) } else { Err(HeaderError::Unknown) }
    }
}

fn decode_piece(bytes: &[u8; HEADER_BYTES]) -> Result<Piece, HeaderError> {
    let chunk = ChunkSize::from_log2(bytes[6]).ok_or(HeaderError::Unknown)?;
    let unit = match bytes[4] {
        KIND_CHUNK => Unit::Chunk { file: FileId(u64_at(bytes, 8)), index: ChunkIndex(u64_at(bytes, 16)) },
        KIND_BUNDLE => Unit::Bundle(BundleId(u64_at(bytes, 8))),
        _ => return Err(HeaderError::Unknown),
    };
    let piece = Piece {
        unit,
        attempt: Attempt(u64_at(bytes, 24) as u32),
        offset: u64_at(bytes, 32),
        len: u64_at(bytes, 40),
        unit_len: u64_at(bytes, 48),
        chunk,
        digest: if bytes[5] & FLAG_CV != 0 { DigestKind::Cv } else { DigestKind::Root },
        hole: bytes[5] & FLAG_HOLE != 0,
        same: bytes[5] & FLAG_SAME != 0,
        trailer: bytes[5] & FLAG_TRAILER != 0,
    };
    check_lengths(&piece)?;
    check_place(&piece)?;
    Ok(piece)
}

fn check_lengths(piece: &Piece) -> Result<(), HeaderError> {
    let payload = if piece.is_bare() { 0 } else { piece.unit_len };
    let within = piece.offset.checked_add(piece.len).is_some_and(|end| end <= payload);
    let goes_on = piece.len > 0 || (payload == 0 && piece.offset == 0);
    if piece.unit_len <= piece.chunk.bytes() && within && goes_on { Ok(()) } else { Err(HeaderError::Lengths) }
}

/// A root covers its file from the first byte, and only an empty file has an empty chunk; a bundle
/// is a file of its own, never empty, never a hole.
fn check_place(piece: &Piece) -> Result<(), HeaderError> {
    let sound = match (piece.unit, piece.digest) {
        (Unit::Chunk { index, .. }, DigestKind::Root) => index.0 == 0,
        (Unit::Chunk { index, .. }, DigestKind::Cv) => {
            let start = index.0.checked_mul(piece.chunk.bytes());
            piece.unit_len > 0 && start.is_some_and(|start| start.checked_add(piece.unit_len).is_some())
        }
        (Unit::Bundle(_), kind) => kind == DigestKind::Root && piece.unit_len > 0 && !piece.is_bare(),
    };
    let sound = sound && !(piece.hole && piece.same);
    if sound && piece.attempt >= Attempt::FIRST { Ok(()) } else { Err(HeaderError::Place) }
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece() -> Piece {
        Piece {
            unit: Unit::Chunk { file: FileId(7), index: ChunkIndex(3) },
            attempt: Attempt(2),
            offset: 0,
            len: 4 << 20,
            unit_len: 4 << 20,
            chunk: ChunkSize::DEFAULT,
            digest: DigestKind::Cv,
            hole: false,
            same: false,
            trailer: true,
        }
    }

    #[test]
    fn headers_read_back() {
        let bundle = Piece { unit: Unit::Bundle(BundleId(9)), digest: DigestKind::Root, trailer: false, ..piece() };
        let hole = Piece { len: 0, hole: true, ..piece() };
        for header in [Header::Piece(piece()), Header::Piece(bundle), Header::Piece(hole), Header::End] {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn lengths_that_leave_the_unit_are_refused() {
        for bad in [
            Piece { len: (4 << 20) + 1, ..piece() },
            Piece { offset: 1, ..piece() },
            Piece { offset: u64::MAX, len: 2, ..piece() },
            Piece { unit_len: (4 << 20) + 1, ..piece() },
            Piece { hole: true, ..piece() },
            Piece { len: 0, ..piece() },
        ] {
            assert_eq!(Header::decode(&Header::Piece(bad).encode()), Err(HeaderError::Lengths), "{bad:?}");
        }
    }

    #[test]
    fn places_that_no_file_has_are_refused() {
        let chunk = |index| Unit::Chunk { file: FileId(7), index: ChunkIndex(index) };
        let bundle = Piece { unit: Unit::Bundle(BundleId(9)), digest: DigestKind::Root, ..piece() };
        for bad in [
            Piece { digest: DigestKind::Root, ..piece() },
            Piece { unit: chunk(u64::MAX), ..piece() },
            Piece { unit: chunk((1 << 42) - 1), ..piece() },
            Piece { unit_len: 0, len: 0, ..piece() },
            Piece { attempt: Attempt(0), ..piece() },
            Piece { digest: DigestKind::Cv, ..bundle },
            Piece { len: 0, hole: true, ..bundle },
            Piece { len: 0, unit_len: 0, ..bundle },
        ] {
            assert_eq!(Header::decode(&Header::Piece(bad).encode()), Err(HeaderError::Place), "{bad:?}");
        }
        let empty = Piece { unit: chunk(0), unit_len: 0, len: 0, digest: DigestKind::Root, ..piece() };
        let last = Piece { unit: chunk((1 << 42) - 2), ..piece() };
        for good in [empty, last] {
            assert_eq!(Header::decode(&Header::Piece(good).encode()), Ok(Header::Piece(good)));
        }
    }

    #[test]
    fn unknown_kinds_flags_and_reserved_bytes_are_refused() {
        let good = Header::Piece(piece()).encode();
        for (at, value, want) in [
            (0, 0x16, HeaderError::Magic),
            (4, 9, HeaderError::Unknown),
            (5, 0x80 | good[5], HeaderError::Unknown),
            (6, 40, HeaderError::Unknown),
            (7, 1, HeaderError::Unknown),
            (28, 1, HeaderError::Unknown),
            (63, 1, HeaderError::Unknown),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Header::decode(&bytes), Err(want), "byte {at}");
        }
    }
}
