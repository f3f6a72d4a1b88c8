//! A lane header. A header that decodes encodes to the same bytes, and can be hashed as a lane does
//! before it is judged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::{ChunkHasher, FileOffset, Unit};
use longhaul_proto::wire::data::{HEADER_BYTES, Header};

/// The longest hole that is hashed. Longer ones find nothing more and take their time.
const HASHED_MAX: u64 = 1 << 16;

fuzz_target!(|bytes: [u8; HEADER_BYTES]| {
    let Ok(header) = Header::decode(&bytes) else { return };
    assert_eq!(header.encode(), bytes);
    let Header::Piece(piece) = header else { return };
    assert!(piece.unit_len <= piece.chunk.bytes() && piece.len <= piece.unit_len - piece.offset);
    let start = match piece.unit {
        Unit::Chunk { index, .. } => index.start(piece.chunk),
        Unit::Bundle(_) => FileOffset(0),
    };
    let mut hasher = ChunkHasher::new(piece.digest, start);
    hasher.update_zeros(piece.unit_len.min(HASHED_MAX));
    hasher.finish();
});
