//! The blocks of a segment: up to 4096 items, each told by its difference to the one before.
//!
//! In: items in order, or the bytes of a block that anybody may have written. Out: the bytes, or
//! the items. One list of items has one form, so that its digest is its name: numbers are as short
//! as they can be, each path shares as much as it can with the one before, and a block ends only
//! where it must. Knows no files and no packing.

use longhaul_core::limits::LINK_BYTES_MAX;
use longhaul_core::{Mtime, RelPath};

use crate::error::SegmentFlaw;
use crate::item::{Item, ItemKind};
use longhaul_core::checksum::{Algorithms, Sums};

/// Items of a block at most.
pub(crate) const BLOCK_ITEMS_MAX: u32 = 4096;
/// A block ends behind the item with which its fields reach this.
const BLOCK_FIELDS_FULL: usize = 256 << 10;
/// Bytes of a block's fields at most: the last item may be one of the longest, with a path and a
/// link of 4095 bytes and some numbers.
pub(crate) const BLOCK_FIELDS_MAX: usize = BLOCK_FIELDS_FULL + (16 << 10);
/// Bytes of a block's checksums at most: 4096 times all seven.
pub(crate) const BLOCK_SUMS_MAX: usize = BLOCK_ITEMS_MAX as usize * (32 + 32 + 16 + 4 + 4 + 20 + 64);

/// The kinds of items, in the two lowest bits of an item's first byte.
const KIND_FILE: u8 = 0;
const KIND_DIR: u8 = 1;
const KIND_LINK: u8 = 2;
const KIND_BITS: u8 = 3;
/// The item has a length.
const HAS_BYTES: u8 = 1 << 2;
/// The item has a time.
const HAS_TIME: u8 = 1 << 3;
/// The item has checksums: a byte says which.
const HAS_SUMS: u8 = 1 << 4;
const KNOWN_BITS: u8 = KIND_BITS | HAS_BYTES | HAS_TIME | HAS_SUMS;

/// A block: the fields of its items, and the checksums behind them, which do not pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Its items.
    pub(crate) items: u32,
    /// Their fields, without packing.
    pub(crate) fields: Vec<u8>,
    /// Their checksums.
    pub(crate) sums: Vec<u8>,
}

impl Block {
    /// Whether the next item begins another block.
    pub(crate) fn is_full(&self) -> bool {
        self.items >= BLOCK_ITEMS_MAX || self.fields.len() >= BLOCK_FIELDS_FULL
    }
}

/// A block being written.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    block: Block,
    path: Vec<u8>,
    secs: i64,
}

impl BlockBuilder {
    /// Adds an item, whose path follows that of the one before.
    pub(crate) fn push(&mut self, item: &Item) {
        let path = item.path.as_bytes();
        let shared = shared(&self.path, path);
        let fields = &mut self.block.fields;
        put(fields, shared as u64);
        put(fields, (path.len() - shared) as u64);
        fields.extend_from_slice(&path[shared..]);
        self.path.truncate(shared);
        self.path.extend_from_slice(&path[shared..]);
        let (kind, bytes) = match item.kind {
            ItemKind::File { bytes } => (KIND_FILE, bytes),
            ItemKind::Dir => (KIND_DIR, None),
            ItemKind::Link { .. } => (KIND_LINK, None),
        };
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let known = item.sums.known();
        let has_sums = bit(!known.is_empty(), HAS_SUMS);
        fields.push(kind | bit(bytes.is_some(), HAS_BYTES) | bit(item.mtime.is_some(), HAS_TIME) | has_sums);
        if let Some(bytes) = bytes {
            put(fields, bytes);
        }
        if let Some(Mtime { secs, nanos }) = item.mtime {
            put(fields, zigzag(secs.wrapping_sub(self.secs)));
            put(fields, u64::from(nanos));
            self.secs = secs;
        }
        if !known.is_empty() {
            fields.push(known.bits());
            self.block.sums.extend_from_slice(item.sums.bytes());
        }
        if let ItemKind::Link { target } = &item.kind {
            put(fields, target.len() as u64);
            fields.extend_from_slice(target);
        }
        self.block.items += 1;
    }

    /// The block so far.
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Begins the next block.
    pub(crate) fn clear(&mut self) {
        self.block.items = 0;
        self.block.fields.clear();
        self.block.sums.clear();
        self.path.clear();
        self.secs = 0;
    }
}

/// The items of a block, one by one.
#[derive(Debug, Default)]
pub(crate) struct BlockItems {
    block: Block,
    at: usize,
    sums_at: usize,
    path: Vec<u8>,
    secs: i64,
}

impl BlockItems {
    /// The items of a block, whose lengths are within the limits.
    pub(crate) fn new(block: Block) -> BlockItems {
        BlockItems { block, ..BlockItems::default() }
    }

    /// The next item. `None` behind the last one.
    pub(crate) fn next_item(&mut self) -> Result<Option<Item>, SegmentFlaw> {
        if self.block.items == 0 {
            let is_used_up = self.at == self.block.fields.len() && self.sums_at == self.block.sums.len();
            return if is_used_up { Ok(None) } else { Err(SegmentFlaw::Item) };
        }
        // A block that goes on where it had to end would be a second form of the same items.
        if self.at >= BLOCK_FIELDS_FULL {
            return Err(SegmentFlaw::Item);
        }
        let path = self.path()?;
        let flags = self.byte()?;
        if flags & !KNOWN_BITS != 0 {
            return Err(SegmentFlaw::Item);
        }
        let bytes = if flags & HAS_BYTES != 0 { Some(self.number()?) } else { None };
        let mtime = if flags & HAS_TIME != 0 { Some(self.time()?) } else { None };
        let sums = if flags & HAS_SUMS != 0 { self.sums()? } else { Sums::default() };
        let kind = match flags & KIND_BITS {
            KIND_FILE => ItemKind::File { bytes },
            _ if bytes.is_some() || flags & HAS_SUMS != 0 => return Err(SegmentFlaw::Item),
            KIND_DIR => ItemKind::Dir,
            KIND_LINK => ItemKind::Link { target: self.target()? },
            _ => return Err(SegmentFlaw::Item),
        };
        self.block.items -= 1;
        Ok(Some(Item { path, kind, mtime, sums }))
    }

    fn path(&mut self) -> Result<RelPath, SegmentFlaw> {
        let (shared_bytes, rest) = (self.length()?, self.length()?);
        let before = self.path.clone();
        if shared_bytes > before.len() {
            return Err(SegmentFlaw::Item);
        }
        let rest = take(&self.block.fields, &mut self.at, rest)?;
        self.path.truncate(shared_bytes);
        self.path.extend_from_slice(rest);
        if self.path.is_empty() || shared(&before, &self.path) != shared_bytes {
            return Err(SegmentFlaw::Item);
        }
        Ok(RelPath::new(self.path.as_slice())?)
    }

    fn time(&mut self) -> Result<Mtime, SegmentFlaw> {
        self.secs = self.secs.wrapping_add(unzigzag(self.number()?));
        let nanos = u32::try_from(self.number()?).map_err(|_| SegmentFlaw::Item)?;
        let mtime = Mtime::said(self.secs, nanos);
        if mtime.nanos == nanos { Ok(mtime) } else { Err(SegmentFlaw::Item) }
    }

    fn sums(&mut self) -> Result<Sums, SegmentFlaw> {
        let known = Algorithms::of_bits(self.byte()?).filter(|known| !known.is_empty()).ok_or(SegmentFlaw::Item)?;
        let bytes = take(&self.block.sums, &mut self.sums_at, known.bytes())?;
        Sums::of_bytes(known, bytes).ok_or(SegmentFlaw::Item)
    }

    fn target(&mut self) -> Result<Vec<u8>, SegmentFlaw> {
        let length = self.length()?;
        let target = take(&self.block.fields, &mut self.at, length)?;
        let is_one = (1..=LINK_BYTES_MAX).contains(&length) && !target.contains(&0);
        if is_one { Ok(target.to_vec()) } else { Err(SegmentFlaw::Item) }
    }

    fn byte(&mut self) -> Result<u8, SegmentFlaw> {
        Ok(take(&self.block.fields, &mut self.at, 1)?[0])
    }

    fn length(&mut self) -> Result<usize, SegmentFlaw> {
        usize::try_from(self.number()?).map_err(|_| SegmentFlaw::Item)
    }

    /// A number, seven bits a byte, the lowest first.
    fn number(&mut self) -> Result<u64, SegmentFlaw> {
        let mut number = 0u64;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || shift == 63 && bits > 1 || shift > 0 && byte == 0 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(SegmentFlaw::Item)
    }
}

fn take<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> Result<&'a [u8], SegmentFlaw> {
    let end = at.checked_add(length).ok_or(SegmentFlaw::Item)?;
    let taken = bytes.get(*at..end).ok_or(SegmentFlaw::Item)?;
    *at = end;
    Ok(taken)
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Bytes that two paths have in common at their beginning.
fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

const fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_goes_on_where_it_had_to_end_is_refused() {
        let mut builder = BlockBuilder::default();
        let mut push = |n: usize| {
            let path = RelPath::new(format!("{n:02}")).unwrap();
            builder.push(&Item { kind: ItemKind::Link { target: vec![b'x'; 4095] }, ..Item::dir(path) });
            builder.block().clone()
        };
        let full = (0..).map(&mut push).find(Block::is_full).unwrap();
        let longer = push(full.items as usize);
        let read = |block: Block| {
            let (items, mut reader) = (block.items, BlockItems::new(block));
            (0..=items).map(|_| reader.next_item()).collect::<Result<Vec<_>, _>>().map(drop)
        };
        assert_eq!(read(full), Ok(()));
        assert!(longer.fields.len() <= BLOCK_FIELDS_MAX);
        assert_eq!(read(longer), Err(SegmentFlaw::Item));
    }
}
