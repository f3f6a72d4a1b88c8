//! Owns the notation of quantities: rates, times, sizes, shares. Takes text from the code that sets
//! a path up, gives numbers with their unit in the type or the name. Must not know what they are
//! for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Error;

/// A rate of a link, in bits per second; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `per_second` bits per second; 0 counts as 1, as a link that carries nothing is a
    /// link that is down.
    #[must_use]
    pub fn bits(per_second: u64) -> Rate {
        Rate(per_second.clamp(1, RATE_BITS_MAX))
    }

    /// A rate of `per_second` megabits (10^6 bits) per second.
    #[must_use]
    pub fn mbit(per_second: u64) -> Rate {
        Rate::bits(per_second.saturating_mul(1_000_000))
    }

    /// The rate in bits per second.
    #[must_use]
    pub fn as_bits(self) -> u64 {
        self.0
    }

    /// Nanoseconds that `bytes` take, rounded up: a rate is never exceeded.
    pub(crate) fn nanos_for(self, bytes: u64) -> u64 {
        let bits = u128::from(bytes) * 8 * 1_000_000_000;
        u64::try_from(bits.div_ceil(u128::from(self.0))).unwrap_or(u64::MAX)
    }

    /// Bytes that pass in `nanos` nanoseconds, rounded down.
    pub(crate) fn bytes_in(self, nanos: u64) -> u64 {
        u64::try_from(u128::from(self.0) * u128::from(nanos) / 8_000_000_000).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = RATES.iter().rev().find(|(_, size)| self.0 as f64 >= *size).unwrap_or(&RATES[0]);
        write!(f, "{}{unit}", self.0 as f64 / size)
    }
}

impl FromStr for Rate {
    type Err = Error;

    /// `1Gbit/s`, `2.5Mbit/s`, `125MB/s`: the unit is needed, as bits and bytes are too easily
    /// taken for one another.
    fn from_str(text: &str) -> Result<Rate, Error> {
        let bits = scaled(text, RATES).filter(|bits| (1.0..=RATE_BITS_MAX as f64).contains(bits));
        bits.map(|bits| Rate(bits as u64)).ok_or_else(|| wrong("rate", text, "like 1Gbit/s or 125MB/s"))
    }
}

/// A time: `100ms`, `1.5s`, `250us`, `2min`, or `0`.
///
/// # Errors
/// If it is no time, or longer than an hour.
pub fn time(text: &str) -> Result<Duration, Error> {
    let nanos = if text == "0" { Some(0.0) } else { scaled(text, TIMES) };
    let nanos = nanos.filter(|nanos| *nanos <= TIME_NANOS_MAX);
    nanos.map(|nanos| Duration::from_nanos(nanos as u64)).ok_or_else(|| wrong("time", text, "like 100ms or 1.5s"))
}

/// A number of bytes: `9000`, `64KiB`, `1.5MB`.
///
/// # Errors
/// If it is no size, or above 1 TiB.
pub fn bytes(text: &str) -> Result<u64, Error> {
    let bytes = scaled(text, BYTES).filter(|bytes| *bytes <= BYTES_MAX);
    bytes.map(|bytes| bytes as u64).ok_or_else(|| wrong("size", text, "like 9000 or 64KiB"))
}

/// A share of packets, from 0 to 1: `1e-3`, `0.001`, `0.1%`.
///
/// # Errors
/// If it is no share.
pub fn share(text: &str) -> Result<f64, Error> {
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share.filter(|share| *share <= 1.0).ok_or_else(|| wrong("share", text, "like 1e-3 or 0.1%"))
}

/// A plain number that is not negative.
pub(crate) fn number(text: &str) -> Option<f64> {
    let digits = text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    text.parse().ok().filter(|number: &f64| digits && number.is_finite())
}

/// The error for a text that is not the expected value.
pub(crate) fn wrong(what: &'static str, text: &str, wanted: &'static str) -> Error {
    Error::Setting { what, text: text.to_owned(), wanted }
}

/// A number with one of these units after it, in the smallest of them.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    // The longest unit that fits is meant: `s` ends `ms` too.
    let (unit, size) = units.iter().filter(|(unit, _)| text.ends_with(unit)).max_by_key(|(unit, _)| unit.len())?;
    number(&text[..text.len() - unit.len()]).map(|number| (number * size).round())
}

/// Smallest first among the bits: a rate is printed by the largest that fits.
const RATES: &[(&str, f64)] = &[
    ("B/s", 8.0),
    ("kB/s", 8e3),
    ("MB/s", 8e6),
    ("GB/s", 8e9),
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
];
const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9)];
const BYTES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
/// 1 Tbit/s: beyond any machine, and far from overflows.
const RATE_BITS_MAX: u64 = 1_000_000_000_000;
const TIME_NANOS_MAX: f64 = 3600e9;
const BYTES_MAX: f64 = 1_099_511_627_776.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_their_unit_and_printed_by_the_largest_that_fits() {
        for (text, bits, printed) in [
            ("1Gbit/s", 1_000_000_000, "1Gbit/s"),
            ("2.5Gbit/s", 2_500_000_000, "2.5Gbit/s"),
            ("100Mbit/s", 100_000_000, "100Mbit/s"),
            ("64kbit/s", 64_000, "64kbit/s"),
            ("1bit/s", 1, "1bit/s"),
            ("125MB/s", 1_000_000_000, "1Gbit/s"),
            ("8B/s", 64, "64bit/s"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.as_bits(), rate.to_string().as_str()), (bits, printed), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "1", "1G", "Gbit/s", "-1Gbit/s", "0bit/s", "1e99Gbit/s", "inf bit/s", "1 Gbit/s", "infbit/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_sizes_and_shares_are_read() {
        assert_eq!(time("100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(time("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(time("250us").unwrap(), Duration::from_micros(250));
        assert_eq!(time("2min").unwrap(), Duration::from_secs(120));
        assert_eq!(time("0").unwrap(), Duration::ZERO);
        assert_eq!(bytes("9000").unwrap(), 9000);
        assert_eq!(bytes("64KiB").unwrap(), 65_536);
        assert_eq!(bytes("1.5MB").unwrap(), 1_500_000);
        assert_eq!(share("1e-3").unwrap(), 0.001);
        assert_eq!(share("0.1%").unwrap(), 0.001);
        assert_eq!(share("1").unwrap(), 1.0);
    }

    #[test]
    fn what_is_no_time_size_or_share_is_refused() {
        for text in ["", "5", "ms", "-1ms", "2h", "NaNs", "999999s"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["", "KiB", "-1", "1e40", "12x"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for text in ["", "1.1", "101%", "-0.1", "NaN", "%", "inf"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn serialisation_times_are_never_rounded_in_favour_of_the_link() {
        assert_eq!(Rate::mbit(1000).nanos_for(1500), 12_000);
        assert_eq!(Rate::bits(3).nanos_for(1), 2_666_666_667);
        assert_eq!(Rate::mbit(8).bytes_in(1_500), 1);
        assert_eq!(Rate::bits(RATE_BITS_MAX).nanos_for(u64::MAX), u64::MAX.div_ceil(125));
    }
}
