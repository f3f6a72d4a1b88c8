//! Names that are ours on a disk: [`SessionTag`], by which a session's journal and temporaries know
//! each other, and [`TempName`], the name of a file until it is committed.
//!
//! Pure: randomness is an argument. `disk` lists, opens and removes such names.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::limits::RESERVED_PREFIX;

/// Eight random bytes that all temporaries of a session share with its journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionTag(pub [u8; 8]);

/// The name of a temporary: `.longhaul-` and 32 hex digits, the first 16 of them its session's tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TempName([u8; 16]);

/// Bytes of a temporary name. They do not depend on the final name, which may have 255 already.
pub const TEMP_NAME_BYTES: usize = RESERVED_PREFIX.len() + 1 + 32;

impl SessionTag {
    /// Reads 16 digits of lower case hex, as [`fmt::Display`] writes them. `None` for anything
    /// else.
    pub fn parse(text: &[u8]) -> Option<SessionTag> {
        from_hex(text).map(SessionTag)
    }
}

impl TempName {
    /// The name with these random bytes in the session of this tag.
    pub fn new(tag: SessionTag, random: [u8; 8]) -> TempName {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&tag.0);
        bytes[8..].copy_from_slice(&random);
        TempName(bytes)
    }

    /// The name of these bytes.
    pub const fn of(bytes: [u8; 16]) -> TempName {
        TempName(bytes)
    }

    /// Its bytes: the tag of its session, and eight of its own.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The bare name in its directory.
    pub fn file_name(&self) -> [u8; TEMP_NAME_BYTES] {
        let mut name = [b'-'; TEMP_NAME_BYTES];
        name[..RESERVED_PREFIX.len()].copy_from_slice(RESERVED_PREFIX);
        for (hex, byte) in name[RESERVED_PREFIX.len() + 1..].chunks_exact_mut(2).zip(self.0) {
            hex[0] = HEX[usize::from(byte >> 4)];
            hex[1] = HEX[usize::from(byte & 15)];
        }
        name
    }

    /// Reads a bare name. `None` if it is not exactly as [`TempName::file_name`] writes it.
    pub fn parse(name: &[u8]) -> Option<TempName> {
        let hex = name.strip_prefix(RESERVED_PREFIX)?.strip_prefix(b"-")?;
        from_hex(hex).map(TempName)
    }

    /// The session that made it.
    pub fn tag(&self) -> SessionTag {
        let mut tag = [0; 8];
        tag.copy_from_slice(&self.0[..8]);
        SessionTag(tag)
    }
}

/// 16 digits of lower case hex.
impl fmt::Display for SessionTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionTag({self})")
    }
}

/// The bare name.
impl fmt::Display for TempName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file_name().iter().try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

impl fmt::Debug for TempName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TempName({self})")
    }
}

/// Exactly `N` bytes from lower case hex: one name has one spelling.
fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |hex: u8| HEX.iter().position(|known| *known == hex).map(|value| value as u8);
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_is_reserved_short_and_tells_its_session() {
        let tag = SessionTag([0x0f, 1, 2, 3, 4, 5, 6, 0xa7]);
        let temp = TempName::new(tag, [0xff, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(&temp.file_name(), b".longhaul-0f010203040506a7ff00000000000009");
        assert_eq!(temp.to_string().as_bytes(), temp.file_name());
        assert_eq!(temp.tag(), tag);
        assert_eq!(TempName::parse(&temp.file_name()), Some(temp));
        assert_eq!(SessionTag::parse(tag.to_string().as_bytes()), Some(tag));
    }

    #[test]
    fn anything_but_the_one_spelling_is_no_name_of_ours() {
        let good = TempName::new(SessionTag([0xab; 8]), [0xcd; 8]).file_name();
        for at in 0..good.len() {
            assert_eq!(TempName::parse(&good[..at]), None);
            for other in [b'A', b'G', b'/', b' ', 0] {
                let mut bad = good;
                bad[at] = other;
                assert_eq!(TempName::parse(&bad), None, "{at} {other}");
            }
        }
        assert_eq!(TempName::parse(&[&good[..], b"0"].concat()), None);
        assert_eq!(SessionTag::parse(b"0123456789ABCDEF"), None);
        assert_eq!(SessionTag::parse(b"0123456789abcde"), None);
    }
}
