//! The texts that options take.
//!
//! In: one text. Out: a value of the engine's type, or a [`Flaw`]. Knows neither the place of the
//! text nor any default.

mod accounts;
mod given;
mod plot;
mod preserve;
mod stream;

use std::ops::RangeInclusive;
use std::time::Duration;

use longhaul_core::limits::{
    CHUNK_BYTES_USER_MAX, CHUNK_BYTES_USER_MIN, CONGESTION_NAME_BYTES_MAX, DISK_DEPTH_MAX, LANES_MAX,
    MEASURE_SECONDS_MAX,
};
use longhaul_core::units::{parse_rate, parse_size};
use longhaul_core::{ByteCount, ChunkSize, IfExists, PathShare};
use longhaul_engine::{
    Congestion, DirectMode, EngineKind, NetPath, OnMissing, Pin, Protection, RATE_MIN, SetLayout, Transport, Verify,
};
use longhaul_net::PublicKey;

use crate::error::Flaw;

pub(crate) use accounts::account_rule;
pub use given::{Environment, Given, variable};
pub(crate) use plot::plot;
pub use plot::{PlotForm, PlotPlace};
pub(crate) use preserve::{preserve, sums};
pub(crate) use stream::{block_size, prefill, root};

/// The rule when labels on standard error are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorWhen {
    /// On a terminal that can, unless a variable says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The form of progress on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressForm {
    /// A bar on a terminal, else lines.
    #[default]
    Auto,
    /// A bar, where standard error is a terminal at all.
    Bar,
    /// Lines now and then.
    Plain,
    /// Nothing.
    None,
}

/// Reads a switch: on or off.
pub(crate) fn switch(text: &str) -> Result<bool, Flaw> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(unknown(text, "true, false")),
    }
}

/// Reads a level of detail: the number of `-v` that it stands for.
pub(crate) fn verbosity(text: &str) -> Result<u8, Flaw> {
    match text {
        "2" => Ok(2),
        _ => switch(text).map(u8::from).map_err(|_| unknown(text, "0, 1, 2, true, false")),
    }
}

/// Reads a number or `auto`, which is `None`.
pub(crate) fn lanes(text: &str) -> Result<Option<u32>, Flaw> {
    auto_or_number(text, LANES_MAX)
}

/// Reads a number or `auto`, which is `None`.
pub(crate) fn depth(text: &str) -> Result<Option<usize>, Flaw> {
    Ok(auto_or_number(text, DISK_DEPTH_MAX)?.map(|depth| depth as usize))
}

/// Reads where threads run: `auto`, `none`, or a list of CPUs.
pub(crate) fn pin(text: &str) -> Result<Pin, Flaw> {
    let form = || Flaw::Form { given: text.to_owned(), form: "auto, none, or a list of CPUs such as 0-3,8" };
    match text {
        "auto" => Ok(Pin::Auto),
        "none" => Ok(Pin::None),
        "" => Err(form()),
        list => list.parse().map(Pin::Cpus).map_err(|_| form()),
    }
}

/// Reads a size in bytes, with a unit or without.
pub(crate) fn size(text: &str) -> Result<ByteCount, Flaw> {
    Ok(parse_size(text)?)
}

/// A pair of addresses.
pub(crate) fn path(text: &str) -> Result<NetPath, Flaw> {
    text.parse()
        .map_err(|_| Flaw::Form { given: text.to_owned(), form: "LOCAL or LOCAL=REMOTE, IP addresses of one family" })
}

/// Reads a rate; the result is in bytes/s.
pub(crate) fn rate(text: &str) -> Result<u64, Flaw> {
    match parse_rate(text)? {
        given if given < RATE_MIN => Err(Flaw::RateTooLow { given }),
        rate => Ok(rate),
    }
}

/// Reads the bytes of a chunk, a power of two within the bounds for users, or `auto`, which is
/// `None`.
pub(crate) fn chunk_size(text: &str) -> Result<Option<ChunkSize>, Flaw> {
    if text == "auto" {
        return Ok(None);
    }
    let given = size(text)?;
    let allowed = (CHUNK_BYTES_USER_MIN..=CHUNK_BYTES_USER_MAX).contains(&given.0);
    ChunkSize::from_bytes(given.0).filter(|_| allowed).map(Some).ok_or(Flaw::ChunkSize { given })
}

/// Reads the protocol of the lanes.
pub(crate) fn transport(text: &str) -> Result<Transport, Flaw> {
    match text {
        "auto" => Ok(Transport::Auto),
        "tcp" => Ok(Transport::Tcp),
        "quic" => Ok(Transport::Quic),
        "udp" => Ok(Transport::Udp),
        _ => Err(unknown(text, "auto, tcp, quic, udp")),
    }
}

/// Reads the name of a congestion control. Any name is one: the kernel says which it offers.
pub(crate) fn congestion(text: &str) -> Result<Congestion, Flaw> {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match text {
        "auto" => Ok(Congestion::Auto),
        _ if (1..=CONGESTION_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(name) => {
            Ok(Congestion::Named(text.to_owned()))
        }
        _ => Err(unknown(text, "auto and the kernel's names, as cubic or bbr")),
    }
}

/// Reads the share of the path.
pub(crate) fn share(text: &str) -> Result<PathShare, Flaw> {
    PathShare::ALL.into_iter().find(|share| share.name() == text).ok_or_else(|| unknown(text, "fair, polite, all"))
}

/// Reads the protection of the payload.
pub(crate) fn protect(text: &str) -> Result<Protection, Flaw> {
    match text {
        "private" => Ok(Protection::Private),
        "safe" => Ok(Protection::Safe),
        _ => Err(unknown(text, "private, safe")),
    }
}

/// Reads the time of redialling. Zero needs no unit.
pub(crate) fn retry_for(text: &str) -> Result<Duration, Flaw> {
    if text == "0" { Ok(Duration::ZERO) } else { time(text) }
}

/// Reads the time without data after which a connection is lost: 1 s to 1 h.
pub(crate) fn stall_timeout(text: &str) -> Result<Duration, Flaw> {
    let form = "a time from 1s to 1h, as 20s or 5min";
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    time(text).ok().filter(|time| allowed.contains(time)).ok_or(Flaw::Form { given: text.to_owned(), form })
}

/// Reads a time within bounds, which `form` says in words.
pub(crate) fn time_between(
    text: &str,
    allowed: RangeInclusive<Duration>,
    form: &'static str,
) -> Result<Duration, Flaw> {
    time(text).ok().filter(|time| allowed.contains(time)).ok_or(Flaw::Form { given: text.to_owned(), form })
}

/// Reads the time that written bytes may wait for their sync. Longer than a minute serves no user;
/// below the shortest, a disk does little else.
pub(crate) fn sync_interval(text: &str) -> Result<Duration, Flaw> {
    let form = "a time from 50ms to 1min, as 500ms or 5s";
    let interval = time(text).ok();
    let allowed = Duration::from_millis(50)..=Duration::from_secs(60);
    interval.filter(|interval| allowed.contains(interval)).ok_or(Flaw::Form { given: text.to_owned(), form })
}

/// Reads the number of written bytes that may wait for their sync. The receiver holds some hundred
/// bytes for each chunk that waits.
pub(crate) fn sync_bytes(text: &str) -> Result<u64, Flaw> {
    let form = "a size from 1MiB to 64GiB";
    let allowed = 1 << 20..=64 << 30;
    let given = size(text)?.0;
    if allowed.contains(&given) { Ok(given) } else { Err(Flaw::Form { given: text.to_owned(), form }) }
}

/// Reads the largest age. `None`: there is no limit.
pub(crate) fn age(text: &str) -> Result<Option<Duration>, Flaw> {
    if text == "0" {
        return Ok(None);
    }
    let age = time(text).ok();
    let form = "a time, as 12h or 14d, or 0 for never";
    age.filter(|age| !age.is_zero()).map(Some).ok_or_else(|| Flaw::Form { given: text.to_owned(), form })
}

/// Reads a whole number and its unit: ms, s, m, h, d, and their longer forms. `m` is a minute, as
/// for `sleep` and `timeout`.
fn time(text: &str) -> Result<Duration, Flaw> {
    let flawed = || Flaw::Form { given: text.to_owned(), form: "a time, as 90s, 10m, 2h or 14d" };
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(flawed)?;
    let millis: u64 = match text[unit..].trim_start() {
        "ms" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hr" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return Err(flawed()),
    };
    let number: u32 = text[..unit].parse().map_err(|_| flawed())?;
    Ok(Duration::from_millis(u64::from(number) * millis))
}

/// Reads the way past or through the page cache.
pub(crate) fn io(text: &str) -> Result<DirectMode, Flaw> {
    match text {
        "auto" => Ok(DirectMode::Auto),
        "direct" => Ok(DirectMode::Direct),
        "buffered" => Ok(DirectMode::Buffered),
        _ => Err(unknown(text, "auto, direct, buffered")),
    }
}

/// Reads the layout of a set.
pub(crate) fn set_layout(text: &str) -> Result<SetLayout, Flaw> {
    SetLayout::parse(text).ok_or_else(|| unknown(text, "spread, stripe"))
}

/// Reads the length from which files are striped.
pub(crate) fn stripe_from(text: &str) -> Result<u64, Flaw> {
    let given = size(text)?.0;
    let form = "a size of at least 1MiB";
    if given >= 1 << 20 { Ok(given) } else { Err(Flaw::Form { given: text.to_owned(), form }) }
}

/// Reads the rule for a set of which a target is missing.
pub(crate) fn on_missing(text: &str) -> Result<OnMissing, Flaw> {
    match text {
        "refuse" => Ok(OnMissing::Refuse),
        "readonly" => Ok(OnMissing::ReadOnly),
        "continue" => Ok(OnMissing::Continue),
        _ => Err(unknown(text, "refuse, readonly, continue")),
    }
}

/// Reads the kind of the disk engine.
pub(crate) fn engine(text: &str) -> Result<EngineKind, Flaw> {
    match text {
        "auto" => Ok(EngineKind::Auto),
        "uring" => Ok(EngineKind::Uring),
        "threads" => Ok(EngineKind::Threads),
        _ => Err(unknown(text, "auto, uring, threads")),
    }
}

/// Reads the extent of the proof.
pub(crate) fn verify(text: &str) -> Result<Verify, Flaw> {
    match text {
        "wire" => Ok(Verify::Wire),
        "disk" => Ok(Verify::Disk),
        _ => Err(unknown(text, "wire, disk")),
    }
}

/// Reads the rule for files that stand at the destination.
pub(crate) fn if_exists(text: &str) -> Result<IfExists, Flaw> {
    match text {
        "skip-same" => Ok(IfExists::SkipSame),
        "replace" => Ok(IfExists::Replace),
        "fail" => Ok(IfExists::Fail),
        "verify" => Ok(IfExists::Verify),
        _ => Err(unknown(text, "skip-same, verify, replace, fail")),
    }
}

/// Reads the form of progress.
pub(crate) fn progress(text: &str) -> Result<ProgressForm, Flaw> {
    match text {
        "auto" => Ok(ProgressForm::Auto),
        "bar" => Ok(ProgressForm::Bar),
        "plain" => Ok(ProgressForm::Plain),
        "none" => Ok(ProgressForm::None),
        _ => Err(unknown(text, "auto, bar, plain, none")),
    }
}

/// Reads the rule when labels are coloured.
pub(crate) fn color(text: &str) -> Result<ColorWhen, Flaw> {
    match text {
        "auto" => Ok(ColorWhen::Auto),
        "always" => Ok(ColorWhen::Always),
        "never" => Ok(ColorWhen::Never),
        _ => Err(unknown(text, "auto, always, never")),
    }
}

/// Reads a public key, `lhk1:...`.
pub(crate) fn key(text: &str) -> Result<PublicKey, Flaw> {
    text.parse().map_err(|_| Flaw::Key { given: text.to_owned() })
}

/// Reads values separated by commas, each of which `parse` takes.
pub(crate) fn list<T>(text: &str, parse: fn(&str) -> Result<T, Flaw>) -> Result<Vec<T>, Flaw> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.len() > LIST_MAX {
        return Err(Flaw::Form { given: text.to_owned(), form: "a list of 16 values at most" });
    }
    items.into_iter().map(parse).collect()
}

/// Reads the whole seconds of a measurement.
pub(crate) fn seconds(text: &str) -> Result<Duration, Flaw> {
    let most = MEASURE_SECONDS_MAX as u32;
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.map(|n| Duration::from_secs(u64::from(n))).ok_or_else(|| Flaw::Number {
        given: text.to_owned(),
        least: 1,
        most,
    })
}

/// Reads the bytes of a measurement: at least the smallest chunk.
pub(crate) fn amount(text: &str) -> Result<ByteCount, Flaw> {
    let flawed = || Flaw::Form { given: text.to_owned(), form: "a size of at least 1MiB" };
    Some(size(text)?).filter(|size| size.get() >= CHUNK_BYTES_USER_MIN).ok_or_else(flawed)
}

/// Reads the number of rounds of a matrix.
pub(crate) fn rounds(text: &str) -> Result<u32, Flaw> {
    let number = text.parse().ok().filter(|n| (1..=ROUNDS_MAX).contains(n));
    number.ok_or_else(|| Flaw::Number { given: text.to_owned(), least: 1, most: ROUNDS_MAX })
}

/// Reads the length of a file of a measurement on disk.
pub(crate) fn file_size(text: &str) -> Result<ByteCount, Flaw> {
    let flawed = || Flaw::Form { given: text.to_owned(), form: "a size from 1MiB to 1TiB" };
    Some(size(text)?).filter(|size| (CHUNK_BYTES_USER_MIN..=FILE_MAX).contains(&size.get())).ok_or_else(flawed)
}

fn auto_or_number(text: &str, most: u32) -> Result<Option<u32>, Flaw> {
    if text == "auto" {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.map(Some).ok_or_else(|| Flaw::Number { given: text.to_owned(), least: 1, most })
}

/// The flaw of a word that is none of the allowed ones.
pub(crate) fn unknown(given: &str, allowed: &'static str) -> Flaw {
    Flaw::Unknown { given: given.to_owned(), allowed }
}

/// The most runs of one cell.
const ROUNDS_MAX: u32 = 100;
/// The largest file of a measurement. A larger one takes too long for any use.
const FILE_MAX: u64 = 1 << 40;
/// The most values of one list.
const LIST_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds_and_auto_is_none() {
        assert_eq!(lanes("auto"), Ok(None));
        assert_eq!(lanes("128"), Ok(Some(128)));
        for bad in ["0", "129", "-1", "two", "", "1.5"] {
            assert!(matches!(lanes(bad), Err(Flaw::Number { most: 128, .. })), "{bad}");
        }
        assert_eq!(depth("256"), Ok(Some(256)));
        assert!(depth("257").is_err());
        assert_eq!((pin("auto"), pin("none")), (Ok(Pin::Auto), Ok(Pin::None)));
        assert_eq!(pin("0-3,8"), Ok(Pin::Cpus([0, 1, 2, 3, 8].into_iter().collect())));
        for bad in ["", "all", "1-", "2-1", "1024", " 1"] {
            assert!(pin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn chunks_are_powers_of_two_in_the_users_range() {
        let bytes = |text| chunk_size(text).map(|chunk| chunk.map(ChunkSize::bytes));
        assert_eq!(bytes("1MiB"), Ok(Some(1 << 20)));
        assert_eq!(bytes("64M"), Ok(Some(64 << 20)));
        assert_eq!(bytes("auto"), Ok(None));
        for bad in ["512KiB", "3MiB", "128MiB", "4MB", "0"] {
            assert!(matches!(chunk_size(bad), Err(Flaw::ChunkSize { .. })), "{bad}");
        }
        assert!(matches!(chunk_size("big"), Err(Flaw::Size(_))));
    }

    #[test]
    fn words_that_are_not_known_are_refused() {
        assert!(matches!(preserve("colour"), Err(Flaw::Unknown { .. })));
        assert_eq!((transport("quic"), transport("udp")), (Ok(Transport::Quic), Ok(Transport::Udp)));
        assert!(matches!(transport("carrier-pigeon"), Err(Flaw::Unknown { .. })));
    }

    #[test]
    fn times_are_whole_numbers_with_a_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90),
            ("10min", 600),
            ("10m", 600),
            ("10 min", 600),
            ("2h", 7200),
            ("1d", 86_400),
            ("2days", 172_800),
            ("4294967295h", 15461882262000),
        ] {
            assert_eq!(retry_for(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "10", "1", "s", "min", "1.5s", "-1s", "10 M", "10M", "1w", "4294967296s", "00"] {
            assert!(matches!(retry_for(bad), Err(Flaw::Form { .. })), "{bad}");
        }
        assert_eq!(stall_timeout("1h"), Ok(Duration::from_secs(3600)));
        for bad in ["0s", "3601s", "0"] {
            assert!(stall_timeout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn syncs_may_be_as_rare_as_a_minute_and_as_large_as_a_disk_writes_in_one() {
        for (text, ms) in [("50ms", 50), ("500ms", 500), ("5s", 5000), ("1min", 60_000)] {
            assert_eq!(sync_interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "0", "1", "ms", "49ms", "-1ms", "+50ms", "1.5s", "0s", "61s", "60001ms", "2min", "4294967296ms"]
        {
            assert!(matches!(sync_interval(bad), Err(Flaw::Form { .. })), "{bad}");
        }
        for (text, bytes) in [("1MiB", 1 << 20), ("64GiB", 64 << 30)] {
            assert_eq!(sync_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "1048575", "65GiB", "much"] {
            assert!(sync_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages_may_be_days_and_0_is_never() {
        assert_eq!(age("0"), Ok(None));
        for (text, hours) in [("1day", 24), ("14days", 336), ("14d", 336), ("12h", 12), ("60min", 1), ("60m", 1)] {
            assert_eq!(age(text), Ok(Some(Duration::from_secs(hours * 3600))), "{text}");
        }
        for bad in ["", "14", "days", "0days", "0s", "-1days", "+1days", "1.5days", "2weeks", "4294967296days"] {
            assert!(matches!(age(bad), Err(Flaw::Form { .. })), "{bad}");
        }
    }

    #[test]
    fn lists_are_values_between_commas() {
        assert_eq!(list("1, 8,auto", lanes), Ok(vec![Some(1), Some(8), None]));
        for bad in ["", "1,,2", "1,", "0", "1;2", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"] {
            assert!(list(bad, lanes).is_err(), "{bad}");
        }
    }

    #[test]
    fn measurements_have_bounds() {
        assert_eq!(seconds("3600"), Ok(Duration::from_secs(3600)));
        for bad in ["0", "3601", "10s", "1.5", "-1", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!((rounds("100"), file_size("1TiB")), (Ok(100), Ok(ByteCount(1 << 40))));
        assert!(rounds("0").is_err() && rounds("101").is_err() && file_size("1.1TiB").is_err());
        assert_eq!(amount("1MiB"), Ok(ByteCount(1 << 20)));
        for bad in ["1MB", "0", "", "-1", "much"] {
            assert!(amount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn congestion_takes_the_kernels_kind_of_name() {
        assert_eq!(congestion("bbr"), Ok(Congestion::Named("bbr".to_owned())));
        for bad in ["", "a b", "sixteen-bytes-xx", "x\n"] {
            assert!(congestion(bad).is_err(), "{bad:?}");
        }
    }
}
