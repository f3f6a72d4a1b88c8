//! How fast at which hours: the rate calendar and the maintenance windows of a link or a campaign.
//!
//! In: a line of text as users write it, and times. Out: what is allowed at a time. Must not know
//! links or campaigns, nor the host's clock and its zone: the zone stands in the text, and its
//! rules (summer time) are those that this build brings along.
//!
//! The text is `in ZONE: SPAN VALUE, SPAN VALUE, ...`; the first span that has the time decides,
//! and outside of all spans nothing is restricted:
//!
//! ```text
//! in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s
//! in America/Vancouver: mon-fri 08:00-18:00 closed, fri 22:00-06:00 2 Gbit/s, else 9.4Gbit/s
//! in UTC: 2026-12-01 06:00 to 2026-12-02 18:00 closed, tue 04:00-07:30 closed
//! ```
//!
//! A span is `else`, `days` (08:00-20:00), `nights` (20:00-08:00), days of the week, hours, both,
//! or one stretch between two dates. Hours that end before they begin end on the next day, and
//! belong to the day on which they begin. A value is a rate with its unit, `closed`, or `open`.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use longhaul_core::PlainText;

use crate::ids::Micros;

mod parse;

/// The allowance of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Nothing is restricted.
    Open,
    /// At most so many bytes/s, which is not 0.
    Rate(u64),
    /// Nothing may move.
    Closed,
}

/// A calendar. The default one restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    text: String,
    rules: Option<Zoned>,
}

/// The reason why a calendar was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// It does not say in which time zone its hours are.
    #[error("a calendar begins with its time zone, as in 'in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s'")]
    NoZone,
    /// There is no such zone.
    #[error("there is no time zone '{0}': write a name as Europe/Zurich, America/Vancouver or UTC")]
    UnknownZone(PlainText),
    /// It is longer than a store keeps, or has more rules than are looked through.
    #[error("a calendar has at most {CALENDAR_BYTES_MAX} bytes and {CALENDAR_RULES_MAX} rules")]
    TooLong,
    /// A rule's span is none.
    #[error(
        "'{0}' does not begin with hours: write else, days, nights, mon-fri, 08:00-18:00, mon-fri 08:00-18:00, or 2026-12-01 08:00 to 2026-12-02 18:00"
    )]
    Span(PlainText),
    /// A rule's value is none.
    #[error("'{rule}' does not end with closed, open or a rate: {why}")]
    Value {
        /// The rule.
        rule: PlainText,
        /// The reason.
        why: PlainText,
    },
}

/// Bytes of a calendar's text.
const CALENDAR_BYTES_MAX: usize = 4096;
/// Rules of a calendar: each is looked at for each claim.
const CALENDAR_RULES_MAX: usize = 100;

#[derive(Clone, Debug)]
struct Zoned {
    zone: TimeZone,
    rules: Vec<CalendarRule>,
}

#[derive(Clone, Debug)]
struct CalendarRule {
    span: Span,
    value: Allowance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Else,
    /// Days as bits, Monday is the lowest; minutes of the day.
    Weekly {
        days: u8,
        from: u16,
        to: u16,
    },
    Once {
        from: DateTime,
        to: DateTime,
    },
}

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl Calendar {
    /// The allowance of a time.
    pub fn at(&self, time: Micros) -> Allowance {
        let Some(zoned) = &self.rules else { return Allowance::Open };
        let timestamp = i64::try_from(time.0).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
        let local = zoned.zone.to_datetime(timestamp.unwrap_or(Timestamp::MAX));
        let rule = zoned.rules.iter().find(|rule| rule.span.has(local));
        rule.map_or(Allowance::Open, |rule| rule.value)
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Calendar) -> bool {
        self.text == other.text
    }
}

impl Eq for Calendar {}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Calendar {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Calendar, CalendarError> {
        let rules = parse::calendar(text)?;
        Ok(Calendar { text: text.trim().to_owned(), rules })
    }
}

impl Allowance {
    /// The stricter of both.
    #[must_use]
    pub fn and(self, other: Allowance) -> Allowance {
        match (self, other) {
            (Allowance::Closed, _) | (_, Allowance::Closed) => Allowance::Closed,
            (Allowance::Rate(one), Allowance::Rate(two)) => Allowance::Rate(one.min(two)),
            (Allowance::Open, value) | (value, Allowance::Open) => value,
        }
    }
}

impl Span {
    fn has(self, time: DateTime) -> bool {
        match self {
            Span::Else => true,
            Span::Once { from, to } => from <= time && time < to,
            Span::Weekly { days, from, to } => {
                let today = time.weekday().to_monday_zero_offset() as u32;
                let on = |day: u32| days & (1 << (day % 7)) != 0;
                let minute = time.hour() as u16 * 60 + time.minute() as u16;
                if from < to {
                    on(today) && (from..to).contains(&minute)
                } else {
                    on(today) && minute >= from || on(today + 6) && minute < to
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
