//! The content of the blocks of virtual targets: halves of chunks, of stripe files and of footers.
//!
//! In: contents. Out: blocks that stand for them, and what two blocks prove, as a MAC or a digest
//! would: both halves of one text, or nothing. Knows no target and no order of events.

use longhaul_core::digest::Hash32;
use longhaul_core::stripe::PlacedChunk;

use super::disk::NodeId;

/// The number of a striped file: its id. Each beginning of a version has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileNo(pub(crate) u32);

/// The number of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PathNo(pub(crate) u32);

/// The number of a version of a file, over all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VersionNo(pub(crate) u32);

/// A block of a medium: zeros, or a half of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block(u32);

/// The number of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TextNo(u32);

/// A text that takes two blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetText {
    /// A chunk of a version.
    Chunk(VersionNo, u64),
    /// The header of a stripe file.
    Header(StripeHeader),
    /// A block of records of a stripe file.
    Records(RecordBlock),
    /// The footer of a body.
    Footer(BodyFooter),
}

/// The header of a stripe file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StripeHeader {
    pub(crate) file: FileNo,
    pub(crate) path: PathNo,
    pub(crate) chunks: u64,
    /// The root of its content and its number of blocks. `None`: it is not whole.
    pub(crate) whole: Option<(Hash32, u32)>,
}

/// Records of a stripe file that were appended at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordBlock {
    pub(crate) file: FileNo,
    pub(crate) number: u32,
    pub(crate) bodies: Vec<(usize, NodeId)>,
    pub(crate) chunks: Vec<PlacedChunk>,
}

/// The footer of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodyFooter {
    pub(crate) file: FileNo,
    pub(crate) path: PathNo,
    pub(crate) target: usize,
    pub(crate) chunks: u64,
    pub(crate) root: Hash32,
    /// The chunks in this body and, in one of the bodies, the holes.
    pub(crate) placed: Vec<PlacedChunk>,
}

/// All texts of a world.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    texts: Vec<SetText>,
}

impl Texts {
    pub(crate) fn add(&mut self, text: SetText) -> TextNo {
        self.texts.push(text);
        TextNo(self.texts.len() as u32 - 1)
    }

    fn proven(&self, blocks: [Block; 2]) -> Option<&SetText> {
        let text = blocks[0].0.checked_sub(1).filter(|text| text.is_multiple_of(2))?;
        if blocks[1].0 == blocks[0].0 + 1 { self.texts.get(text as usize / 2) } else { None }
    }

    pub(crate) fn chunk(&self, blocks: [Block; 2]) -> Option<(VersionNo, u64)> {
        match self.proven(blocks)? {
            SetText::Chunk(version, index) => Some((*version, *index)),
            _ => None,
        }
    }

    /// The header in a block. It is short enough for one sector, and no power cut tears it. (One of
    /// a long path is not: if that is torn, its file is begun anew.)
    pub(crate) fn header(&self, block: Block) -> Option<&StripeHeader> {
        match self.proven([block, Block(block.0.wrapping_add(1))])? {
            SetText::Header(header) => Some(header),
            _ => None,
        }
    }

    pub(crate) fn records(&self, blocks: [Block; 2]) -> Option<&RecordBlock> {
        match self.proven(blocks)? {
            SetText::Records(records) => Some(records),
            _ => None,
        }
    }

    pub(crate) fn footer(&self, blocks: [Block; 2]) -> Option<&BodyFooter> {
        match self.proven(blocks)? {
            SetText::Footer(footer) => Some(footer),
            _ => None,
        }
    }
}

impl TextNo {
    /// Its two blocks.
    pub(crate) fn blocks(self) -> [Block; 2] {
        [Block(1 + 2 * self.0), Block(2 + 2 * self.0)]
    }
}

impl Block {
    pub(crate) const ZEROS: Block = Block(0);
}

/// The digest of a chunk of a version.
pub(crate) fn digest_of_chunk(version: VersionNo, index: u64) -> Hash32 {
    let mut digest = [0x5a; 32];
    digest[..4].copy_from_slice(&version.0.to_le_bytes());
    digest[4..12].copy_from_slice(&index.to_le_bytes());
    digest
}

/// Blocks of a text.
pub(crate) const TEXT_BLOCKS: usize = 2;
