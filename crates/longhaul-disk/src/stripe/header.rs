//! The header of a stripe file: a readable text that says what the file is, with a MAC.
//!
//! In: what it says. Out: its bytes, and the header of bytes that prove it. The format is that of
//! `docs/SETS.md`. Knows no file.

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkMap, ChunkSize, TempName};

use super::keys::{Sealed, SetKey};
use crate::lines::{from_hex, hex, path_of, push_path};
use crate::set_id::SetId;

/// The facts of a striped file, as its header tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its id, which is the name of its bodies.
    pub(crate) id: TempName,
    /// Its path beneath the top of the set.
    pub(crate) path: Vec<u8>,
    /// Its length and the size of its chunks.
    pub(crate) map: ChunkMap,
    /// The facts that are told once it is whole. `None`: it is not.
    pub(crate) whole: Option<Whole>,
}

/// The facts of a striped file that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    /// The BLAKE3 of its content.
    pub(crate) root: Hash32,
    /// The number of blocks of records.
    pub(crate) blocks: u32,
    /// The end of the last block in the stripe file, in bytes.
    pub(crate) end: u64,
}

impl Header {
    /// Its bytes: text, then zeros.
    pub(crate) fn to_bytes(&self, key: &SetKey) -> Vec<u8> {
        let mut text = match self.whole {
            Some(_) => WHOLE.to_vec(),
            None => UNFINISHED.to_vec(),
        };
        text.extend_from_slice(format!("set {}\nfile {}\npath ", key.set(), hex(self.id.bytes())).as_bytes());
        push_path(&mut text, &self.path);
        text.extend_from_slice(format!("\nlength {}\nchunk {}\n", self.map.len(), self.map.size().bytes()).as_bytes());
        if let Some(Whole { root, blocks, end }) = &self.whole {
            text.extend_from_slice(format!("root {}\nblocks {blocks} to {end}\n", hex(root)).as_bytes());
        }
        let mac = key.mac(Sealed::Header, &[&text]);
        text.extend_from_slice(format!("mac {}\n", hex(&mac)).as_bytes());
        text.resize(HEADER_BYTES.max(text.len()), 0);
        text
    }

    /// The header at the start of a file. `None` if the bytes are none, or not proven.
    pub(crate) fn parse(bytes: &[u8], key: &SetKey) -> Option<Header> {
        let (text, is_whole) = match (bytes.strip_prefix(WHOLE), bytes.strip_prefix(UNFINISHED)) {
            (Some(text), _) => (text, true),
            (None, text) => (text?, false),
        };
        let start = bytes.len() - text.len();
        let len = text.iter().position(|byte| *byte == 0)?;
        let lines = text[..len].strip_suffix(b"\n")?;
        let mac_at = lines.iter().rposition(|byte| *byte == b'\n')? + 1;
        let mac: Hash32 = from_hex(lines[mac_at..].strip_prefix(b"mac ")?)?;
        if !key.proves(Sealed::Header, &[&bytes[..start + mac_at]], &mac) {
            return None;
        }
        let mut lines = lines[..mac_at - 1].split(|byte| *byte == b'\n');
        let mut field = |name: &str| lines.next()?.strip_prefix(name.as_bytes())?.strip_prefix(b" ");
        let set = field("set").and_then(|text| SetId::parse(str::from_utf8(text).ok()?))?;
        let id = TempName::of(from_hex(field("file")?)?);
        let path = path_of(field("path")?)?;
        let (len, chunk) = (number(field("length")?)?, number(field("chunk")?)?);
        let size = ChunkSize::from_log2(chunk.is_power_of_two().then(|| chunk.ilog2() as u8)?)?;
        let whole = match is_whole {
            false => None,
            true => {
                let root = from_hex(field("root")?)?;
                let (blocks, end) = str::from_utf8(field("blocks")?).ok()?.split_once(" to ")?;
                Some(Whole { root, blocks: blocks.parse().ok()?, end: end.parse().ok()? })
            }
        };
        (set == key.set()).then_some(Header { id, path, map: ChunkMap::new(len, size), whole })
    }
}

impl Header {
    /// Whether a file begins as a stripe file does.
    pub(crate) fn begins(start: &[u8]) -> bool {
        start.starts_with(WHOLE) || start.starts_with(UNFINISHED)
    }

    /// The id that the start of a file claims to have, proven or not: its bodies are not to be
    /// taken for orphans.
    pub(crate) fn claimed_id(start: &[u8]) -> Option<TempName> {
        let mut lines = start.split(|byte| *byte == b'\n');
        lines.find_map(|line| from_hex(line.strip_prefix(b"file ")?)).map(TempName::of)
    }
}

/// The decimal number of a field.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    str::from_utf8(field).ok()?.parse().ok()
}

/// The first line of a stripe file.
const WHOLE: &[u8] = b"a longhaul striped file, version 1; read it with `longhaul set export`\n";
/// The first line of one that is not whole yet.
const UNFINISHED: &[u8] = b"an unfinished longhaul striped file, version 1\n";
/// Bytes of a header: a path of 4095 bytes that are all backslashes, and the rest.
pub(crate) const HEADER_BYTES: usize = 12 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::testing::{ID, key};

    fn header() -> Header {
        let map = ChunkMap::new((9 << 20) + 1, ChunkSize::from_log2(22).expect("a size"));
        let whole = Some(Whole { root: [0xb3; 32], blocks: 2, end: 12_528 });
        Header { id: ID, path: b"d\\ir/a\nb".to_vec(), map, whole }
    }

    #[test]
    fn a_header_is_the_golden_text_and_is_read_from_it() {
        let bytes = header().to_bytes(&key());
        let golden = include_bytes!("golden-header.txt");
        assert_eq!(String::from_utf8_lossy(&bytes[..golden.len()]), String::from_utf8_lossy(golden));
        assert!(bytes[golden.len()..].iter().all(|byte| *byte == 0) && bytes.len() == HEADER_BYTES);
        assert_eq!(Header::parse(&bytes, &key()), Some(header()));
        let unfinished = Header { whole: None, ..header() };
        assert_eq!(Header::parse(&unfinished.to_bytes(&key()), &key()), Some(unfinished));
        let longest = Header { path: vec![b'\\'; 4095], ..header() };
        assert_eq!(Header::parse(&longest.to_bytes(&key()), &key()), Some(longest));
    }

    #[test]
    fn a_header_is_believed_only_unchanged_and_under_the_key_of_its_set() {
        let bytes = header().to_bytes(&key());
        let len = bytes.iter().position(|byte| *byte == 0).expect("an end");
        for at in 0..len {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Header::parse(&other, &key()), None, "byte {at}");
            assert_eq!(Header::parse(&bytes[..at], &key()), None, "cut at {at}");
        }
        assert_eq!(Header::parse(&bytes, &SetKey::new(key().set(), [1; 32])), None);
        assert_eq!(Header::parse(&bytes, &SetKey::new(SetId([9; 16]), [7; 32])), None);
    }
}
