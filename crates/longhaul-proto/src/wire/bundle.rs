//! A bundle: many small files in one unit. A table, then the files' bytes one behind the other.
//!
//! ```text
//! u32 count · u32 payload_at · count x { u64 file, u32 len, u32 same, [u8; 32] root } · (unused up to payload_at) · bytes
//! ```
//! `same` is 1 for a file without bytes here, as the receiver has a file with its root; else 0.
//! Little endian. The unit's digest is the BLAKE3 root of all of it, table included; each file's
//! root is checked again. Made by the packing threads of a sender, read by the lanes of a receiver;
//! the machines decide which files belong in it.

use std::ops::Range;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{BUNDLE_FILES_MAX, BUNDLED_FILE_BYTES_MAX};
use longhaul_core::{ChunkSize, FileId};

const HEAD_BYTES: usize = 8;
const ROW_BYTES: usize = 48;

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The file.
    pub file: FileId,
    /// Its root, declared by the sender.
    pub root: Hash32,
    /// Its length.
    pub len: u64,
    /// Whether the receiver has the file, so that no bytes of it are here.
    pub same: bool,
    /// Where its bytes lie in the unit.
    pub bytes: Range<usize>,
}

/// The reason why bytes are not a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Shorter than its table.
    #[error("bundle shorter than its table")]
    Short,
    /// More files than a bundle may have.
    #[error("bundle of more than {BUNDLE_FILES_MAX} files")]
    Count,
    /// Lengths that do not add up to the unit, or a reserved field that is set.
    #[error("bundle whose lengths do not fit")]
    Lengths,
}

/// Bytes of the head and table for `files` files; payload begins there.
pub const fn table_bytes(files: usize) -> usize {
    HEAD_BYTES + files * ROW_BYTES
}

/// The longest file that travels in a bundle if `asked` was agreed: a file that fits a unit with
/// its table. Both machines compute this, whatever a peer claimed.
pub fn bundled_max(chunk: ChunkSize, asked: u64) -> u64 {
    asked.min(BUNDLED_FILE_BYTES_MAX).min(chunk.bytes() - table_bytes(1) as u64)
}

/// Builds a bundle in place: payload is put behind the space reserved for the table, which is
/// written last, as files may drop out while they are read.
pub struct Packer<'a> {
    unit: &'a mut [u8],
    payload_at: usize,
    end: usize,
    rows: Vec<PackedRow>,
}

/// A row of the table to be.
struct PackedRow {
    file: FileId,
    root: Hash32,
    len: u32,
    same: bool,
}

impl<'a> Packer<'a> {
    /// Starts a bundle for at most `files` files in `unit`.
    ///
    /// # Panics
    /// When the table alone does not fit: a machine never asks for such a bundle.
    pub fn new(unit: &'a mut [u8], files: usize) -> Packer<'a> {
        let payload_at = table_bytes(files);
        assert!(payload_at <= unit.len(), "a unit of {} bytes has no room for a table of {files} files", unit.len());
        Packer { unit, payload_at, end: payload_at, rows: Vec::with_capacity(files) }
    }

    /// The place for the next `len` bytes; they count only after [`Packer::keep`]. `None` when the
    /// unit is full.
    pub fn space(&mut self, len: usize) -> Option<&mut [u8]> {
        self.unit.get_mut(self.end..self.end.checked_add(len)?)
    }

    /// Keeps the bytes in the last [`Packer::space`] of `len` bytes as `file` with its root.
    pub fn keep(&mut self, file: FileId, len: usize, root: Hash32) {
        self.end += len;
        self.rows.push(PackedRow { file, root, len: len as u32, same: false });
    }

    /// Names `file` without its bytes, as the receiver has a file with its root. The bytes in the
    /// last [`Packer::space`] do not count.
    pub fn keep_same(&mut self, file: FileId, len: usize, root: Hash32) {
        self.rows.push(PackedRow { file, root, len: len as u32, same: true });
    }

    /// Writes the table and gives the unit's length and the number of files in it.
    pub fn finish(self) -> (usize, usize) {
        self.unit[..4].copy_from_slice(&(self.rows.len() as u32).to_le_bytes());
        self.unit[4..8].copy_from_slice(&(self.payload_at as u32).to_le_bytes());
        let table_end = table_bytes(self.rows.len());
        let table = self.unit[HEAD_BYTES..table_end].chunks_exact_mut(ROW_BYTES);
        for (PackedRow { file, root, len, same }, row) in self.rows.iter().zip(table) {
            row[..8].copy_from_slice(&file.0.to_le_bytes());
            row[8..12].copy_from_slice(&len.to_le_bytes());
            row[12..16].copy_from_slice(&u32::from(*same).to_le_bytes());
            row[16..].copy_from_slice(root);
        }
        self.unit[table_end..self.payload_at].fill(0);
        (self.end, self.rows.len())
    }
}

/// Reads the table of a bundle. Accepted rows cover the unit exactly, in order, without overlap.
/// (The receiver's machine finds a file that is named twice or not wanted.)
///
/// # Errors
/// [`BundleError`] for anything that no [`Packer`] makes.
pub fn parse(unit: &[u8]) -> Result<Vec<Row>, BundleError> {
    let count = u32_at(unit, 0)? as usize;
    let payload_at = u32_at(unit, 4)? as usize;
    if count > BUNDLE_FILES_MAX {
        return Err(BundleError::Count);
    }
    if payload_at > unit.len() || table_bytes(count) > payload_at || payload_at > table_bytes(BUNDLE_FILES_MAX) {
        return Err(BundleError::Lengths);
    }
    let mut at = payload_at;
    let mut rows = Vec::with_capacity(count);
    for row in unit[HEAD_BYTES..table_bytes(count)].chunks_exact(ROW_BYTES) {
        let (len, same) = (u32_at(row, 8)?, u32_at(row, 12)?);
        let bytes = if same == 0 { len as usize } else { 0 };
        let end = at.checked_add(bytes).filter(|end| *end <= unit.len()).ok_or(BundleError::Lengths)?;
        if u64::from(len) > BUNDLED_FILE_BYTES_MAX || same > 1 {
            return Err(BundleError::Lengths);
        }
        let (mut id, mut root) = ([0; 8], [0; 32]);
        id.copy_from_slice(&row[..8]);
        root.copy_from_slice(&row[16..]);
        rows.push(Row { file: FileId(u64::from_le_bytes(id)), root, len: len.into(), same: same == 1, bytes: at..end });
        at = end;
    }
    if at == unit.len() { Ok(rows) } else { Err(BundleError::Lengths) }
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BundleError> {
    let mut word = [0; 4];
    word.copy_from_slice(bytes.get(at..at + 4).ok_or(BundleError::Short)?);
    Ok(u32::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_with_a_file_that_dropped_out_reads_back() {
        let mut unit = vec![0xee; 4096];
        let mut packer = Packer::new(&mut unit, 3);
        packer.space(5).expect("room").copy_from_slice(b"first");
        packer.keep(FileId(4), 5, [1; 32]);
        packer.space(100).expect("room").fill(9); // read, then found changed: not kept
        packer.space(0).expect("room");
        packer.keep(FileId(6), 0, [2; 32]);
        let (len, files) = packer.finish();
        assert_eq!(files, 2);
        let rows = parse(&unit[..len]).expect("parses");
        let bytes = table_bytes(3)..table_bytes(3) + 5;
        assert_eq!(rows[0], Row { file: FileId(4), root: [1; 32], len: 5, same: false, bytes });
        assert_eq!(&unit[rows[0].bytes.clone()], b"first");
        assert_eq!(rows[1].bytes.len(), 0);
        assert_eq!(parse(&unit[..len - 1]), Err(BundleError::Lengths));
        assert_eq!(parse(&unit[..len + 1]), Err(BundleError::Lengths));
    }

    #[test]
    fn a_file_that_the_receiver_has_is_named_without_its_bytes() {
        let mut unit = vec![0xee; 4096];
        let mut packer = Packer::new(&mut unit, 2);
        packer.space(700).expect("room").fill(9); // read, and the same as there
        packer.keep_same(FileId(4), 700, [1; 32]);
        packer.space(5).expect("room").copy_from_slice(b"other");
        packer.keep(FileId(5), 5, [2; 32]);
        let (len, files) = packer.finish();
        assert_eq!((len, files), (table_bytes(2) + 5, 2));
        let rows = parse(&unit[..len]).expect("parses");
        let told: Vec<_> = rows.iter().map(|row| (row.file.0, row.len, row.same, row.bytes.len())).collect();
        assert_eq!(told, [(4, 700, true, 0), (5, 5, false, 5)]);
        unit[HEAD_BYTES + 12] = 2;
        assert_eq!(parse(&unit[..len]), Err(BundleError::Lengths), "a flag that means nothing");
    }

    #[test]
    fn counts_and_offsets_that_lie_are_refused() {
        assert_eq!(parse(&[]), Err(BundleError::Short));
        assert_eq!(parse(&[0; 7]), Err(BundleError::Short));
        let lie = |count: u32, at: u32| [count.to_le_bytes(), at.to_le_bytes()].concat();
        assert_eq!(parse(&lie(u32::MAX, 8)), Err(BundleError::Count));
        assert_eq!(parse(&lie(1, 8)), Err(BundleError::Lengths));
        assert_eq!(parse(&lie(0, u32::MAX)), Err(BundleError::Lengths));
        assert_eq!(parse(&lie(0, 8)), Ok(vec![]));
    }

    #[test]
    fn a_full_unit_has_no_more_space() {
        let mut unit = vec![0; table_bytes(1) + 4];
        let mut packer = Packer::new(&mut unit, 1);
        assert!(packer.space(4).is_some());
        assert!(packer.space(5).is_none());
        assert!(packer.space(usize::MAX).is_none());
    }
}
