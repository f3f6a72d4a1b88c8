//! The reading of a calendar's text.
//!
//! In: a line that a user wrote. Out: its zone and rules, or the reason why it is none. Must not
//! know times.

use jiff::civil::{Date, DateTime};
use longhaul_core::PlainText;
use longhaul_core::units::parse_rate;

use super::{Allowance, CALENDAR_BYTES_MAX, CALENDAR_RULES_MAX, CalendarError, CalendarRule, Span, ZONES, Zoned};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const EVERY_DAY: u8 = 0b111_1111;
const WHOLE_DAY: (u16, u16) = (0, 24 * 60);
/// Hours of `days`; `nights` are the rest.
const DAYLIGHT: (u16, u16) = (8 * 60, 20 * 60);

/// The rules of a text. `None` if there are none.
pub(super) fn calendar(text: &str) -> Result<Option<Zoned>, CalendarError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    if text.len() > CALENDAR_BYTES_MAX {
        return Err(CalendarError::TooLong);
    }
    let rest = text.trim().strip_prefix("in ").ok_or(CalendarError::NoZone)?;
    let (name, rules) = rest.split_once(':').ok_or(CalendarError::NoZone)?;
    let zone = ZONES.get(name.trim()).map_err(|_| CalendarError::UnknownZone(PlainText::from(name.trim())))?;
    let rules = rules.split(',').map(|text| rule(text.trim())).collect::<Result<Vec<_>, _>>()?;
    if rules.len() > CALENDAR_RULES_MAX {
        return Err(CalendarError::TooLong);
    }
    Ok(Some(Zoned { zone, rules }))
}

fn rule(text: &str) -> Result<CalendarRule, CalendarError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (span, used) = span(&words).ok_or_else(|| CalendarError::Span(PlainText::from(text)))?;
    let value = value(&words[used..].join(" "));
    let value = value.map_err(|why| CalendarError::Value { rule: PlainText::from(text), why })?;
    Ok(CalendarRule { span, value })
}

/// The span at the start of a rule, and how many words it has.
fn span(words: &[&str]) -> Option<(Span, usize)> {
    let weekly = |days, (from, to)| Span::Weekly { days, from, to };
    match *words.first()? {
        "else" => return Some((Span::Else, 1)),
        "days" => return Some((weekly(EVERY_DAY, DAYLIGHT), 1)),
        "nights" => return Some((weekly(EVERY_DAY, (DAYLIGHT.1, DAYLIGHT.0)), 1)),
        _ => {}
    }
    if let [first, at, "to", last, until, ..] = words {
        let (from, to) = (moment(first, at)?, moment(last, until)?);
        return (from < to).then_some((Span::Once { from, to }, 5));
    }
    let Some(days) = weekdays(words[0]) else { return Some((weekly(EVERY_DAY, hours(words[0])?), 1)) };
    match words.get(1).and_then(|word| hours(word)) {
        Some(hours) => Some((weekly(days, hours), 2)),
        None => Some((weekly(days, WHOLE_DAY), 1)),
    }
}

fn value(text: &str) -> Result<Allowance, PlainText> {
    match text {
        "closed" => Ok(Allowance::Closed),
        "open" => Ok(Allowance::Open),
        text => match parse_rate(text) {
            Ok(0) => Err(PlainText::from("a rate of nothing is written as closed")),
            Ok(rate) => Ok(Allowance::Rate(rate)),
            Err(error) => Err(PlainText::of(error)),
        },
    }
}

/// `mon`, or `fri-mon`, as bits.
fn weekdays(word: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| *day == name);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (day(first)?, day(last)?);
    let count = (last + 7 - first) % 7 + 1;
    Some((first..first + count).fold(0, |days, day| days | 1 << (day % 7)))
}

/// `22:00-06:00`, in minutes.
fn hours(word: &str) -> Option<(u16, u16)> {
    let (from, to) = word.split_once('-')?;
    let (from, to) = (minutes(from)?, minutes(to)?);
    (from < WHOLE_DAY.1).then_some((from, to))
}

/// `06:30`, up to `24:00`.
fn minutes(word: &str) -> Option<u16> {
    let (hour, minute) = word.split_once(':')?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|_| text.len() == 2 && !text.starts_with('+'));
    let (hour, minute) = (number(hour)?, number(minute)?);
    (hour <= 24 && minute < 60).then_some(hour * 60 + minute).filter(|minutes| *minutes <= WHOLE_DAY.1)
}

fn moment(date: &str, time: &str) -> Option<DateTime> {
    let date: Date = date.parse().ok()?;
    let minutes = minutes(time)?;
    let (date, minutes) = if minutes == WHOLE_DAY.1 { (date.tomorrow().ok()?, 0) } else { (date, minutes) };
    Some(date.at((minutes / 60) as i8, (minutes % 60) as i8, 0, 0))
}
