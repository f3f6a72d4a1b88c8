//! Quantities as users read them: rates in both units, spans and points of time.
//!
//! In: plain numbers. Out: text. Looks at no clock.

use std::fmt::Write;

use longhaul_core::Mtime;
use longhaul_core::units::civil_day;

/// A rate as `9.41 Gbit/s (1.18 GB/s)`: decimal units, by which links and disks are sold.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{}bit/s ({}B/s)", decimal(bytes_per_s * 8.0), decimal(bytes_per_s))
}

/// A rate as `1.18 GB/s`, where there is no room for both units.
pub(crate) fn bytes_rate(bytes_per_s: f64) -> String {
    format!("{}B/s", decimal(bytes_per_s))
}

/// A rate as `9.41 Gbit/s`, where a table has no room for both units.
pub(crate) fn bits(bytes_per_s: f64) -> String {
    format!("{}bit/s", decimal(bytes_per_s * 8.0))
}

/// `1 file`, `2 files`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Three digits and a decimal prefix.
fn decimal(value: f64) -> String {
    let mut value = if value.is_finite() { value.clamp(0.0, LARGEST) } else { 0.0 };
    let mut prefixes = ["", "k", "M", "G", "T", "P"].iter().peekable();
    let mut prefix = "";
    while let Some(next) = prefixes.next() {
        prefix = next;
        // 999.5 would be printed as 1000.
        if value < 999.5 || prefixes.peek().is_none() {
            break;
        }
        value /= 1000.0;
    }
    let decimals = if prefix.is_empty() || value >= 99.95 { 0 } else { if value >= 9.995 { 1 } else { 2 } };
    format!("{value:.decimals$} {prefix}")
}

/// `0:42`, `1:02:03`, `3d 04:05:06`.
pub(crate) fn span(seconds: f64) -> String {
    let total = if seconds.is_finite() && seconds > 0.0 { seconds.min(1e15) as u64 } else { 0 };
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3600 % 24, total / 60 % 60, total % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// `2026-11-20T13:42:25Z`; years beyond four digits are printed as they are.
pub fn time(at: Mtime) -> String {
    let days = at.secs.div_euclid(86_400);
    let second = at.secs.rem_euclid(86_400);
    let (year, month, day) = civil_day(days);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(text, "{year:04}-{month:02}-{day:02}T");
    let _ = write!(text, "{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
    text
}

/// The largest number that three digits and the last prefix can show.
const LARGEST: f64 = 999e15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_said_in_both_units_with_three_digits() {
        for (bytes, want) in [
            (0.0, "0 bit/s (0 B/s)"),
            (100.0, "800 bit/s (100 B/s)"),
            (1.176e9, "9.41 Gbit/s (1.18 GB/s)"),
            (125e6, "1.00 Gbit/s (125 MB/s)"),
            (12.34e6, "98.7 Mbit/s (12.3 MB/s)"),
            (999.6e3, "8.00 Mbit/s (1.00 MB/s)"),
            (f64::NAN, "0 bit/s (0 B/s)"),
        ] {
            assert_eq!(rate(bytes), want, "{bytes}");
        }
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|n| count(n, "file")), ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn spans_grow_from_minutes_to_days() {
        for (seconds, want) in [
            (0.0, "0:00"),
            (42.9, "0:42"),
            (3723.0, "1:02:03"),
            (3.0 * 86_400.0 + 14_706.0, "3d 04:05:06"),
            (f64::INFINITY, "0:00"),
        ] {
            assert_eq!(span(seconds), want);
        }
    }

    #[test]
    fn times_are_utc_dates() {
        for (secs, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_182_145, "2026-11-20T13:42:25Z"),
            (-62_135_596_800, "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(time(Mtime { secs, nanos: 0 }), want);
        }
    }
}
