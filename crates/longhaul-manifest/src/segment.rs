//! A segment: up to a million items in order, in packed blocks, named by the digest of its content.
//!
//! In: items in order, or the bytes of a file that anybody may have written. Out: the bytes and the
//! name, or the items. The digest is that of the unpacked content, so that another packing of the
//! same items has the same name. Memory is bounded by that of one block. Knows no names of files.

use std::io::{self, Read, Write};

use blake3::Hasher;
use longhaul_core::Hash32;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::block::{BLOCK_FIELDS_MAX, BLOCK_ITEMS_MAX, BLOCK_SUMS_MAX, Block, BlockBuilder, BlockItems};
use crate::error::SegmentFlaw;
use crate::head::Segment;
use crate::item::Item;
use longhaul_core::checksum::Algorithms;

/// The first bytes of a segment; the last of them is the version.
pub(crate) const MAGIC: [u8; 8] = *b"LHseg\0\0\x01";
/// The context of a segment's digest, which is no digest of a file.
const CONTEXT: &str = "longhaul sealed manifest, segment, version 1";
/// Bytes before a block: items, bytes of its fields, of these packed, and of its checksums.
const HEADER_BYTES: usize = 16;

/// A segment being written.
pub struct SegmentWriter<W: Write> {
    out: W,
    builder: BlockBuilder,
    hasher: Hasher,
    packed: Vec<u8>,
    items: u64,
    files: u64,
    bytes: u64,
    known: Algorithms,
}

impl<W: Write> SegmentWriter<W> {
    /// Begins a segment.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn new(mut out: W) -> io::Result<SegmentWriter<W>> {
        out.write_all(&MAGIC)?;
        let (builder, hasher) = (BlockBuilder::default(), Hasher::new_derive_key(CONTEXT));
        let known = Algorithms::default();
        Ok(SegmentWriter { out, builder, hasher, packed: Vec::new(), items: 0, files: 0, bytes: 0, known })
    }

    /// Adds the next item. The caller knows that its path follows that of the one before.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn add(&mut self, item: &Item) -> io::Result<()> {
        if self.builder.block().is_full() {
            self.flush_block()?;
        }
        self.builder.push(item);
        self.items += 1;
        self.files += u64::from(item.is_file());
        self.bytes = self.bytes.saturating_add(item.bytes());
        self.known = self.known.and(item.sums.known());
        Ok(())
    }

    /// Items so far.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Ends the segment: gives the output back, and the line of the head.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn finish(mut self) -> io::Result<(W, Segment)> {
        if self.builder.block().items > 0 {
            self.flush_block()?;
        }
        self.out.write_all(&[0; HEADER_BYTES])?;
        let digest = *self.hasher.finalize().as_bytes();
        let SegmentWriter { out, items, files, bytes, known, .. } = self;
        Ok((out, Segment { digest, items, files, bytes, known }))
    }

    fn flush_block(&mut self) -> io::Result<()> {
        let Block { items, fields, sums } = self.builder.block();
        self.packed.resize(get_maximum_output_size(fields.len()), 0);
        let packed = match compress_into(fields, &mut self.packed) {
            Ok(bytes) if bytes < fields.len() => &self.packed[..bytes],
            _ => fields.as_slice(),
        };
        digest_block(&mut self.hasher, self.builder.block());
        for number in [*items as usize, fields.len(), packed.len(), sums.len()] {
            self.out.write_all(&(number as u32).to_le_bytes())?;
        }
        self.out.write_all(packed)?;
        self.out.write_all(sums)?;
        self.builder.clear();
        Ok(())
    }
}

/// A failure to read a segment.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    Flaw(SegmentFlaw),
}

impl From<SegmentFlaw> for ReadError {
    fn from(flaw: SegmentFlaw) -> ReadError {
        ReadError::Flaw(flaw)
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Flaw(SegmentFlaw::Cut),
            _ => ReadError::Io(error),
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Io(error) => error,
            ReadError::Flaw(flaw) => io::Error::new(io::ErrorKind::InvalidData, flaw),
        }
    }
}

/// A segment being read.
pub struct SegmentReader<R: Read> {
    blocks: Blocks<R>,
    items: BlockItems,
    last: Vec<u8>,
}

impl<R: Read> SegmentReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// The errors of `from`; `InvalidData` with a [`SegmentFlaw`] if it is no segment.
    pub fn new(from: R) -> io::Result<SegmentReader<R>> {
        Ok(SegmentReader::open(from)?)
    }

    /// The same, with an error that keeps the flaw.
    pub(crate) fn open(from: R) -> Result<SegmentReader<R>, ReadError> {
        Ok(SegmentReader { blocks: Blocks::open(from)?, items: BlockItems::default(), last: Vec::new() })
    }

    /// The next item. `None` behind the last one.
    ///
    /// # Errors
    /// As [`SegmentReader::new`].
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        Ok(self.read_item()?)
    }

    /// The same, with an error that keeps the flaw.
    pub(crate) fn read_item(&mut self) -> Result<Option<Item>, ReadError> {
        loop {
            if let Some(item) = self.items.next_item()? {
                if item.path.as_bytes() <= self.last.as_slice() {
                    return Err(SegmentFlaw::Order.into());
                }
                self.last.clear();
                self.last.extend_from_slice(item.path.as_bytes());
                return Ok(Some(item));
            }
            match self.blocks.next_block()? {
                Some(block) => self.items = BlockItems::new(block),
                None => return Ok(None),
            }
        }
    }

    /// The digest of the content, once the last item was read.
    pub fn digest(&self) -> Hash32 {
        *self.blocks.hasher.finalize().as_bytes()
    }
}

/// Reads a segment and gives the digest of its content, by which it is named. Of the items it
/// checks nothing.
///
/// # Errors
/// As [`SegmentReader::new`].
pub fn check_segment(from: impl Read) -> io::Result<Hash32> {
    Ok(digest_of(from)?)
}

/// The same, with an error that keeps the flaw.
pub(crate) fn digest_of(from: impl Read) -> Result<Hash32, ReadError> {
    let mut blocks = Blocks::open(from)?;
    while blocks.next_block()?.is_some() {}
    Ok(*blocks.hasher.finalize().as_bytes())
}

/// The blocks of a segment.
struct Blocks<R> {
    from: R,
    hasher: Hasher,
    /// Whether the last block ended where it had to: only then may another follow.
    was_full: bool,
    has_ended: bool,
    packed: Vec<u8>,
}

impl<R: Read> Blocks<R> {
    fn open(mut from: R) -> Result<Blocks<R>, ReadError> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(SegmentFlaw::Magic.into());
        }
        let hasher = Hasher::new_derive_key(CONTEXT);
        Ok(Blocks { from, hasher, was_full: true, has_ended: false, packed: Vec::new() })
    }

    fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        if self.has_ended {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        self.from.read_exact(&mut header)?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (items, [fields, packed, sums]) = (number(0), [4, 8, 12].map(|at| number(at) as usize));
        if header == [0; HEADER_BYTES] {
            self.has_ended = true;
            return match self.from.read(&mut [0])? {
                0 => Ok(None),
                _ => Err(SegmentFlaw::Trailing.into()),
            };
        }
        let is_short = items <= BLOCK_ITEMS_MAX && fields <= BLOCK_FIELDS_MAX && sums <= BLOCK_SUMS_MAX;
        if !is_short || packed > fields {
            return Err(SegmentFlaw::Long.into());
        }
        if items == 0 || !self.was_full {
            return Err(SegmentFlaw::Item.into());
        }
        let mut block = Block { items, fields: vec![0; fields], sums: vec![0; sums] };
        if packed == fields {
            self.from.read_exact(&mut block.fields)?;
        } else {
            self.packed.resize(packed, 0);
            self.from.read_exact(&mut self.packed)?;
            let unpacked = decompress_into(&self.packed, &mut block.fields).map_err(|_| SegmentFlaw::Packing)?;
            if unpacked != fields {
                return Err(SegmentFlaw::Packing.into());
            }
        }
        self.from.read_exact(&mut block.sums)?;
        digest_block(&mut self.hasher, &block);
        self.was_full = block.is_full();
        Ok(Some(block))
    }
}

fn digest_block(hasher: &mut Hasher, block: &Block) {
    for number in [block.items, block.fields.len() as u32, block.sums.len() as u32] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&block.fields);
    hasher.update(&block.sums);
}
