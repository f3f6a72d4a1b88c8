//! Quantities and positions, each its own type so that an offset is never taken for a count.
//!
//! Owns the conversions between them; everything else in the workspace speaks in these types.
//! Knows nothing of files, peers or devices.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::limits::{CHUNK_LOG2_MAX, CHUNK_LOG2_MIN};
use crate::text::PlainText;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByteCount(pub u64);

/// A position in a file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileOffset(pub u64);

/// The number of a chunk in its file, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkIndex(pub u64);

/// The size of a file's chunks: a power of two from 1 MiB to 64 MiB (default 4 MiB).
///
/// Smaller costs more requests per byte; larger takes more memory per request in flight.
/// (The simulator and tests use smaller ones, down to one BLAKE3 chunk.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct ChunkSize {
    log2: u8,
}

impl ByteCount {
    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl ChunkSize {
    /// 4 MiB: in earlier trials of direct I/O, 1 MiB cost two to three times the CPU per byte and 8
    /// MiB saved nothing.
    pub const DEFAULT: ChunkSize = ChunkSize { log2: 22 };

    /// `2^log2` bytes, if the digest tree allows chunks of that size.
    pub const fn from_log2(log2: u8) -> Option<ChunkSize> {
        if log2 >= CHUNK_LOG2_MIN && log2 <= CHUNK_LOG2_MAX { Some(ChunkSize { log2 }) } else { None }
    }

    /// The size of exactly `bytes`, if that is a power of two in range.
    pub const fn from_bytes(bytes: u64) -> Option<ChunkSize> {
        if bytes.is_power_of_two() { ChunkSize::from_log2(bytes.trailing_zeros() as u8) } else { None }
    }

    /// The exponent.
    pub const fn log2(self) -> u8 {
        self.log2
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.log2
    }
}

impl TryFrom<u8> for ChunkSize {
    type Error = &'static str;
    fn try_from(log2: u8) -> Result<Self, Self::Error> {
        ChunkSize::from_log2(log2).ok_or("chunk size out of range")
    }
}

impl From<ChunkSize> for u8 {
    fn from(size: ChunkSize) -> u8 {
        size.log2
    }
}

impl ChunkIndex {
    /// The position where this chunk starts in a file of chunks of `size`. Saturates beyond any
    /// file.
    pub const fn start(self, size: ChunkSize) -> FileOffset {
        FileOffset(self.0.saturating_mul(size.bytes()))
    }

    /// The chunk behind this one.
    pub const fn next(self) -> ChunkIndex {
        ChunkIndex(self.0 + 1)
    }
}

impl fmt::Display for ByteCount {
    /// Binary units with one decimal, as people read them: `4.0 GiB`, `512 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The reason why a size was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a size: write a number and B, K, KiB, kB, M, MiB, MB, G, GiB, GB, T, TiB or TB")]
pub struct SizeError {
    text: String,
}

/// Reads a size: `MiB` binary, `MB` decimal, bare `K M G T` binary, a bare number is bytes.
///
/// # Errors
/// [`SizeError`] when the text is not such a size or does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<ByteCount, SizeError> {
    let fail = || SizeError { text: text.to_owned() };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(fail()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).map(ByteCount).ok_or_else(fail);
    }
    let value: f64 = number.parse().map_err(|_| fail())?;
    let bytes = value * scale as f64;
    if bytes.is_finite() && (0.0..9e18).contains(&bytes) { Ok(ByteCount(bytes as u64)) } else { Err(fail()) }
}

/// The reason why a rate was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not a number with a unit of rates.
    #[error("'{text}' is not a rate: write a number and its unit, as 9.4Gbit/s, 800Mbit/s, 250MB/s or 1GiB/s")]
    Unknown {
        /// The text, without characters that act on a terminal.
        text: PlainText,
    },
    /// A number and a prefix that leave open whether bits or bytes are meant.
    #[error("'{text}' is not a rate, bits or bytes a second: write {number}{prefix}bit/s or {number}{prefix}B/s")]
    Ambiguous {
        /// The text.
        text: PlainText,
        /// Its number.
        number: PlainText,
        /// `k`, `M`, `G`, `T`, or nothing.
        prefix: &'static str,
    },
}

/// Reads a rate, bytes/s: `kbit/s`, `Mbit/s`, `Gbit/s`, `Tbit/s` or `kbps`, `Mbps`, `Gbps`, `Tbps`;
/// `kB/s`, `MB/s`, `GB/s`, `TB/s` decimal; `KiB/s`, `MiB/s`, `GiB/s`, `TiB/s` binary. The unit must
/// be written and tell bits from bytes: `Gb/s` and `G` mean either, depending on the reader.
///
/// # Errors
/// [`RateError`] when the text is no such rate, or does not fit 64 bits.
pub fn parse_rate(text: &str) -> Result<u64, RateError> {
    let fail = || RateError::Unknown { text: PlainText::from(text) };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let value: f64 = number.parse().map_err(|_| fail())?;
    let scale = match unit.trim() {
        "bit/s" | "bps" => 0.125,
        "kbit/s" | "Kbit/s" | "kbps" | "Kbps" => 125.0,
        "Mbit/s" | "Mbps" | "mbps" => 125e3,
        "Gbit/s" | "Gbps" | "gbps" => 125e6,
        "Tbit/s" | "Tbps" | "tbps" => 125e9,
        "B/s" => 1.0,
        "kB/s" | "KB/s" => 1e3,
        "MB/s" => 1e6,
        "GB/s" => 1e9,
        "TB/s" => 1e12,
        "KiB/s" => 1024.0,
        "MiB/s" => 1_048_576.0,
        "GiB/s" => 1_073_741_824.0,
        "TiB/s" => 1_099_511_627_776.0,
        unit => {
            let prefix = prefix_alone(unit).ok_or_else(fail)?;
            return Err(RateError::Ambiguous { text: PlainText::from(text), number: PlainText::from(number), prefix });
        }
    };
    let bytes = value * scale;
    if bytes.is_finite() && (0.0..9e18).contains(&bytes) { Ok(bytes.round() as u64) } else { Err(fail()) }
}

/// The decimal prefix of a rate that does not tell bits from bytes: `M`, `MB`, `Mb`, `MiB`, `Mb/s`,
/// `MBps`.
fn prefix_alone(unit: &str) -> Option<&'static str> {
    let unit = unit.to_ascii_lowercase();
    let prefix = ["b/s", "ib", "bps", "b", "bit", "bits", "/s"].iter().find_map(|tail| unit.strip_suffix(tail));
    match prefix.unwrap_or(&unit) {
        "" => Some(""),
        "k" => Some("k"),
        "m" => Some("M"),
        "g" => Some("G"),
        "t" => Some("T"),
        _ => None,
    }
}

/// The Gregorian date of a number of days since 1970: eras of 400 years, and years that begin in
/// March, so that the leap day is the last of its year.
pub const fn civil_day(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_FROM_0000_03_01_TO_1970;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / (DAYS_PER_ERA - 1);
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March on always have 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

const DAYS_PER_ERA: i64 = 146_097;
const DAYS_FROM_0000_03_01_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_binary_decimal_and_bare_units() {
        let cases = [
            ("0", 0),
            ("512", 512),
            ("4MiB", 4 << 20),
            ("4M", 4 << 20),
            ("4MB", 4_000_000),
            ("1.5GiB", 3 << 29),
            ("2 G", 2 << 30),
            ("1TB", 1_000_000_000_000),
        ];
        for (text, want) in cases {
            assert_eq!(parse_size(text), Ok(ByteCount(want)), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for text in ["", "MiB", "4 MX", "-1", "99999999999999999999", "1e3", "20000000T", "."] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_read_bits_and_bytes() {
        let cases = [
            ("9.4Gbit/s", 1_175_000_000),
            ("800 Mbit/s", 100_000_000),
            ("64kbit/s", 8_000),
            ("250MB/s", 250_000_000),
            ("1GiB/s", 1 << 30),
            ("0bit/s", 0),
            ("1Gbps", 125_000_000),
            ("100 mbps", 12_500_000),
            ("1TiB/s", 1 << 40),
        ];
        for (text, want) in cases {
            assert_eq!(parse_rate(text), Ok(want), "{text}");
        }
        for text in ["", "Gbit/s", "-1MB/s", "1e3MB/s", "99999999999TB/s", "1 furlong/s", "x\u{1b}[2J"] {
            let refused = parse_rate(text).unwrap_err();
            assert!(matches!(refused, RateError::Unknown { .. }), "{text}");
            assert!(!refused.to_string().contains('\u{1b}'));
        }
    }

    #[test]
    fn a_rate_that_may_be_of_bits_or_bytes_is_refused_with_both_spellings() {
        for (text, both) in [
            ("100M", "write 100Mbit/s or 100MB/s"),
            ("1G", "write 1Gbit/s or 1GB/s"),
            ("1Gb/s", "write 1Gbit/s or 1GB/s"),
            ("1.5GB", "write 1.5Gbit/s or 1.5GB/s"),
            ("10MBps", "write 10Mbit/s or 10MB/s"),
            ("5k", "write 5kbit/s or 5kB/s"),
            ("1MiB", "write 1Mbit/s or 1MB/s"),
            ("100", "write 100bit/s or 100B/s"),
        ] {
            let said = parse_rate(text).unwrap_err().to_string();
            assert!(said.ends_with(both), "{text}: {said}");
        }
    }

    #[test]
    fn chunk_sizes_are_powers_of_two_in_range() {
        assert_eq!(ChunkSize::from_bytes(4 << 20), Some(ChunkSize::DEFAULT));
        assert_eq!(ChunkSize::from_bytes(3 << 20), None);
        assert_eq!(ChunkSize::from_bytes(512), None);
        assert_eq!(ChunkSize::from_bytes(128 << 20), None);
    }

    #[test]
    fn sizes_print_in_binary_units() {
        assert_eq!(ByteCount(1023).to_string(), "1023 B");
        assert_eq!(ByteCount(4 << 30).to_string(), "4.0 GiB");
        assert_eq!(ByteCount(u64::MAX).to_string(), "16.0 EiB");
    }
}
