//! The footer of a body: what the body holds, so that a stripe file that was lost can be made again
//! from the bodies alone.
//!
//! In: what it says. Out: its bytes, and the footer of bytes that prove it. The format is that of
//! `docs/SETS.md`. Knows no file.

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Meta, Mtime, TargetId, TempName};

use super::header::number;
use super::keys::{Sealed, SetKey};
use crate::lines::{from_hex, hex, path_of, push_path};
use crate::set_id::SetId;

/// The facts of a body, and of the file that it is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The file's id.
    pub(crate) id: TempName,
    /// The target that the body lies on.
    pub(crate) target: TargetId,
    /// The file's path beneath the top of the set.
    pub(crate) path: Vec<u8>,
    /// The file's length and the size of its chunks.
    pub(crate) map: ChunkMap,
    /// The BLAKE3 of the file's content.
    pub(crate) root: Hash32,
    /// The file's permissions and time.
    pub(crate) meta: Meta,
    /// The chunks in the body, each with its digest. One that is `None` lies in a slot that is not
    /// used.
    pub(crate) slots: Vec<Option<(ChunkIndex, Hash32)>>,
    /// The holes of the file, each with its digest, in the first of its bodies.
    pub(crate) holes: Vec<(ChunkIndex, Hash32)>,
}

impl Footer {
    /// Its bytes: a text, records of 40 bytes, and a trailer at the body's end.
    pub(crate) fn to_bytes(&self, key: &SetKey) -> Vec<u8> {
        let Meta { mode, mtime, .. } = self.meta;
        let mut bytes = FIRST_LINE.to_vec();
        let lines = format!("set {}\nfile {}\ntarget {}\npath ", key.set(), hex(self.id.bytes()), self.target.0);
        bytes.extend_from_slice(lines.as_bytes());
        push_path(&mut bytes, &self.path);
        let (len, chunk, root) = (self.map.len(), self.map.size().bytes(), hex(&self.root));
        let counts = format!("slots {}\nholes {}\nend\n", self.slots.len(), self.holes.len());
        let facts = format!("\nlength {len}\nchunk {chunk}\nroot {root}\nmode {mode:o}\n");
        let time = format!("mtime {} {}\n", mtime.secs, mtime.nanos);
        bytes.extend_from_slice([facts, time, counts].concat().as_bytes());
        let unused = (ChunkIndex(u64::MAX), [0; 32]);
        let slots = self.slots.iter().map(|slot| slot.unwrap_or(unused));
        for (index, digest) in slots.chain(self.holes.iter().copied()) {
            bytes.extend_from_slice(&index.0.to_le_bytes());
            bytes.extend_from_slice(&digest);
        }
        let len = (bytes.len() + TRAILER_BYTES) as u64;
        let mac = key.mac(Sealed::Footer, &[&bytes, &len.to_le_bytes()]);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&mac);
        bytes
    }

    /// The length of a footer, from the last bytes of a body. `None` if they are no trailer.
    pub(crate) fn len_in(trailer: &[u8]) -> Option<u64> {
        let rest = trailer.strip_prefix(MAGIC)?;
        let (len, mac) = rest.split_first_chunk::<8>()?;
        let len = u64::from_le_bytes(*len);
        (mac.len() == 32 && (TRAILER_BYTES as u64..=FOOTER_BYTES_MAX).contains(&len)).then_some(len)
    }

    /// The footer of bytes that prove it.
    pub(crate) fn parse(bytes: &[u8], key: &SetKey) -> Option<Footer> {
        let (content, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER_BYTES)?)?;
        let len = Footer::len_in(trailer).filter(|len| *len == bytes.len() as u64)?;
        if !key.proves(Sealed::Footer, &[content, &len.to_le_bytes()], &trailer[16..]) {
            return None;
        }
        let mut rest = content.strip_prefix(FIRST_LINE)?;
        let mut field = |name: &str| {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let (line, behind) = rest.split_at(end);
            rest = &behind[1..];
            line.strip_prefix(name.as_bytes())
        };
        let set = field("set ").and_then(|text| SetId::parse(str::from_utf8(text).ok()?))?;
        let id = TempName::of(from_hex(field("file ")?)?);
        let target = TargetId(u32::try_from(number(field("target ")?)?).ok()?);
        let path = path_of(field("path ")?)?;
        let (len, chunk) = (number(field("length ")?)?, number(field("chunk ")?)?);
        let size = ChunkSize::from_log2(chunk.is_power_of_two().then(|| chunk.ilog2() as u8)?)?;
        let root = from_hex(field("root ")?)?;
        let mode = u32::from_str_radix(str::from_utf8(field("mode ")?).ok()?, 8).ok()?;
        let (secs, nanos) = str::from_utf8(field("mtime ")?).ok()?.split_once(' ')?;
        let mtime = Mtime::said(secs.parse().ok()?, nanos.parse().ok()?);
        let (slots, holes) = (number(field("slots ")?)?, number(field("holes ")?)?);
        field("end")?;
        let (records, []) = rest.as_chunks::<SLOT_BYTES>() else { return None };
        if records.len() as u64 != slots.checked_add(holes)? || set != key.set() {
            return None;
        }
        let record = |bytes: &[u8; SLOT_BYTES]| {
            let (index, digest) = bytes.split_first_chunk::<8>()?;
            Some((ChunkIndex(u64::from_le_bytes(*index)), digest.try_into().ok()?))
        };
        let (slots, holes) = records.split_at(slots as usize);
        let slots = slots.iter().map(|bytes| record(bytes).filter(|(index, _)| index.0 != u64::MAX)).collect();
        let holes = holes.iter().map(record).collect::<Option<_>>()?;
        let (map, meta) = (ChunkMap::new(len, size), Meta::new(mode, mtime));
        Some(Footer { id, target, path, map, root, meta, slots, holes })
    }
}

const FIRST_LINE: &[u8] = b"a part of a longhaul striped file, version 1\n";
const MAGIC: &[u8; 8] = b"lhfoot01";
/// Bytes of a record of a slot.
const SLOT_BYTES: usize = 40;
/// Bytes of the trailer, which ends a body.
pub(crate) const TRAILER_BYTES: usize = 48;
/// A longer footer is none: that of 100 TB in chunks of 1 MiB on one target has 4 GB.
const FOOTER_BYTES_MAX: u64 = 8 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::testing::{ID, key};

    #[test]
    fn a_footer_is_read_back_and_believed_only_whole_and_unchanged() {
        let footer = Footer {
            id: ID,
            target: TargetId(2),
            path: b"a\nb".to_vec(),
            map: ChunkMap::new(10 << 20, ChunkSize::from_log2(20).expect("a size")),
            root: [3; 32],
            meta: Meta::new(0o640, Mtime::said(-1, 5)),
            slots: vec![Some((ChunkIndex(7), [1; 32])), None, Some((ChunkIndex(0), [2; 32]))],
            holes: vec![(ChunkIndex(3), [4; 32])],
        };
        let bytes = footer.to_bytes(&key());
        assert_eq!(Footer::len_in(&bytes[bytes.len() - TRAILER_BYTES..]), Some(bytes.len() as u64));
        assert_eq!(Footer::parse(&bytes, &key()), Some(footer));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Footer::parse(&other, &key()), None, "byte {at}");
            assert_eq!(Footer::parse(&bytes[at + 1..], &key()), None, "from {at}");
        }
    }
}
