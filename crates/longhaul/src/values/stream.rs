//! The texts of options of a stream.
//!
//! In: one text. Out: a value of the engine's type, or a [`Flaw`]. Knows neither the place of the
//! text nor any default.

use longhaul_core::ByteCount;
use longhaul_core::digest::Hash32;
use longhaul_engine::{Prefill, StreamShape};

use super::size;
use crate::error::Flaw;

/// Reads the bytes of a block.
pub(crate) fn block_size(text: &str) -> Result<usize, Flaw> {
    let ByteCount(given) = size(text)?;
    let form = "a size from 64KiB to 16MiB";
    usize::try_from(given)
        .ok()
        .filter(|bytes| BLOCK_BYTES.contains(bytes))
        .ok_or(Flaw::Form { given: text.to_owned(), form })
}

/// Reads the filling of buffers: a size that is not 0, or a percentage.
pub(crate) fn prefill(text: &str) -> Result<Prefill, Flaw> {
    let form = "a size, or a percentage from 1% to 100%";
    let flawed = || Flaw::Form { given: text.to_owned(), form };
    match text.strip_suffix('%') {
        Some(number) => {
            let percent = number.trim_end().parse().ok().filter(|percent| (1..=100).contains(percent));
            percent.map(Prefill::Percent).ok_or_else(flawed)
        }
        None => match size(text)? {
            ByteCount(0) => Err(flawed()),
            ByteCount(bytes) => Ok(Prefill::Bytes(bytes)),
        },
    }
}

/// Reads the root of a stream: 64 hex digits.
pub(crate) fn root(text: &str) -> Result<Hash32, Flaw> {
    let form = "the BLAKE3 digest as 64 hex digits";
    let read = blake3::Hash::from_hex(text).map(|hash| *hash.as_bytes());
    read.map_err(|_| Flaw::Form { given: text.to_owned(), form })
}

/// The sizes that a block may have.
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = StreamShape::BLOCK_BYTES_LEAST..=StreamShape::BLOCK_BYTES_MOST;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_64_kib_to_16_mib() {
        assert_eq!((block_size("64KiB"), block_size("16MiB")), (Ok(64 << 10), Ok(16 << 20)));
        assert_eq!(block_size("256K"), Ok(256 << 10));
        for text in ["65535", "16777217", "0", "many", ""] {
            assert!(block_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_root_has_64_hex_digits() {
        assert_eq!(root(&"0a".repeat(32)), Ok([10; 32]));
        for text in [&"0a".repeat(31), &"0a".repeat(33), &"0g".repeat(32), ""] {
            assert!(root(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefill_is_a_size_or_a_share_of_the_buffers() {
        assert_eq!(prefill("64MiB"), Ok(Prefill::Bytes(64 << 20)));
        assert_eq!((prefill("1%"), prefill("100 %")), (Ok(Prefill::Percent(1)), Ok(Prefill::Percent(100))));
        for text in ["0", "0%", "101%", "%", "-1%", "half"] {
            assert!(prefill(text).is_err(), "{text}");
        }
    }
}
