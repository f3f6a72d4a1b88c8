//! The frames of a record of unfinished work: each has its length, its kind, its body, and the
//! first bytes of a digest of these.
//!
//! In: bodies. Out: bytes to append, and the whole frames of a file up to the first torn one. Knows
//! of no record what its frames mean.

use std::io::{self, Read};

use crate::block::{BLOCK_FIELDS_MAX, BLOCK_SUMS_MAX, Block};

/// Frames being read.
pub(crate) struct Frames<R> {
    from: R,
    /// Bytes of the whole frames that were given.
    end: u64,
}

impl<R: Read> Frames<R> {
    /// The frames of a file, from its beginning.
    pub(crate) fn of(from: R) -> Frames<R> {
        Frames { from, end: 0 }
    }

    /// Bytes of the whole frames that were given.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The next whole frame. `None` at the end, or where one is torn.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut head = Vec::new();
        (&mut self.from).take(FRAME_HEAD_BYTES as u64).read_to_end(&mut head)?;
        let Some(([a, b, c, d, kind], _)) = head.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        if length > RECORD_FRAME_BYTES_MAX {
            return Ok(None);
        }
        let mut body = Vec::new();
        (&mut self.from).take((length + CHECK_BYTES) as u64).read_to_end(&mut body)?;
        if body.len() < length + CHECK_BYTES {
            return Ok(None);
        }
        let check = body.split_off(length);
        if check != frame(*kind, &body)[FRAME_HEAD_BYTES + length..] {
            return Ok(None);
        }
        self.end += (FRAME_HEAD_BYTES + length + CHECK_BYTES) as u64;
        Ok(Some((*kind, body)))
    }
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&(body.len() as u32).to_le_bytes()[..], &[kind], body].concat();
    let check = blake3::hash(&bytes);
    bytes.extend_from_slice(&check.as_bytes()[..CHECK_BYTES]);
    bytes
}

/// The body of a frame with the items of a block, behind other bytes.
pub(crate) fn block_body(before: &[u8], block: &Block) -> Vec<u8> {
    let numbers = [block.items, block.fields.len() as u32, block.sums.len() as u32].map(u32::to_le_bytes);
    [before, numbers.as_flattened(), &block.fields, &block.sums].concat()
}

/// The block in a body, behind those bytes. `None` if there is none.
pub(crate) fn block_of(body: &[u8]) -> Option<Block> {
    let (numbers, rest) = body.split_first_chunk::<12>()?;
    let (numbers, _) = numbers.as_chunks::<4>();
    let [items, fields, sums] = [0, 1, 2].map(|at| u32::from_le_bytes(numbers[at]));
    let (fields, sums_bytes) = rest.split_at_checked(fields as usize)?;
    (sums_bytes.len() == sums as usize).then(|| Block { items, fields: fields.to_vec(), sums: sums_bytes.to_vec() })
}

/// Bytes before the body of a frame: its length and its kind.
const FRAME_HEAD_BYTES: usize = 5;
/// Bytes behind the body.
const CHECK_BYTES: usize = 8;
/// Bytes of a body at most: those of a block and its numbers, and of any terms.
const RECORD_FRAME_BYTES_MAX: usize = BLOCK_FIELDS_MAX + BLOCK_SUMS_MAX + (1 << 20);
