//! Calendars as users write them, at times on both sides of each edge.
//!
//! In: texts and times of a zone. Out: what is allowed. Must not know the host's zone.

use super::*;

/// A time as a zone's clocks show it.
fn at(zone: &str, local: &str) -> Micros {
    let local: DateTime = local.parse().unwrap();
    let timestamp = ZONES.get(zone).unwrap().to_timestamp(local).unwrap();
    Micros(timestamp.as_microsecond() as u64)
}

fn gbits(rate: u64) -> Allowance {
    Allowance::Rate(rate * 125_000_000)
}

#[test]
fn nights_are_faster_than_days_by_the_clocks_of_the_named_zone() {
    let calendar: Calendar = "in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s".parse().unwrap();
    for (time, want) in [
        ("2026-07-01T07:59:59", gbits(8)),
        ("2026-07-01T08:00:00", gbits(1)),
        ("2026-07-01T19:59:59", gbits(1)),
        ("2026-07-01T20:00:00", gbits(8)),
        ("2026-12-01T07:59:59", gbits(8)),
        ("2026-12-01T08:00:00", gbits(1)),
    ] {
        assert_eq!(calendar.at(at("Europe/Zurich", time)), want, "{time}");
    }
    assert_eq!(calendar.at(at("UTC", "2026-07-01T06:00:00")), gbits(1), "summer time is two hours ahead");
    assert_eq!(calendar.at(at("UTC", "2026-12-01T06:59:59")), gbits(8), "winter time is one hour ahead");
}

#[test]
fn the_first_rule_that_has_the_time_decides_and_hours_belong_to_the_day_on_which_they_begin() {
    let text = "in UTC: fri 22:00-06:00 closed, mon-fri 08:00-18:00 1Gbit/s, sat-sun open, else 4Gbit/s";
    let calendar: Calendar = text.parse().unwrap();
    // 2026-12-04 is a Friday.
    for (time, want) in [
        ("2026-12-04T07:59:59", gbits(4)),
        ("2026-12-04T08:00:00", gbits(1)),
        ("2026-12-04T21:59:59", gbits(4)),
        ("2026-12-04T22:00:00", Allowance::Closed),
        ("2026-12-05T05:59:59", Allowance::Closed),
        ("2026-12-05T06:00:00", Allowance::Open),
        ("2026-12-06T23:59:59", Allowance::Open),
        ("2026-12-07T00:00:00", gbits(4)),
        ("2026-12-03T23:00:00", gbits(4)),
    ] {
        assert_eq!(calendar.at(at("UTC", time)), want, "{time}");
    }
}

#[test]
fn a_maintenance_window_between_two_dates_is_closed_once() {
    let calendar: Calendar = "in America/Vancouver: 2026-12-01 06:00 to 2026-12-02 24:00 closed".parse().unwrap();
    for (time, want) in [
        ("2026-12-01T05:59:59", Allowance::Open),
        ("2026-12-01T06:00:00", Allowance::Closed),
        ("2026-12-02T23:59:59", Allowance::Closed),
        ("2026-12-03T00:00:00", Allowance::Open),
        ("2027-12-01T06:00:00", Allowance::Open),
    ] {
        assert_eq!(calendar.at(at("America/Vancouver", time)), want, "{time}");
    }
}

#[test]
fn a_calendar_without_text_restricts_nothing() {
    let calendar: Calendar = " ".parse().unwrap();
    assert_eq!(calendar, Calendar::default());
    assert_eq!(calendar.at(Micros(u64::MAX)), Allowance::Open);
    let text = "in UTC: else 1GB/s";
    assert_eq!(text.parse::<Calendar>().unwrap().text(), text);
}

#[test]
fn a_calendar_that_is_none_is_refused_with_the_part_that_is_wrong() {
    for (text, want) in [
        ("nights 8 Gbit/s", "begins with its time zone"),
        ("in Europe/Zurich nights 8Gbit/s", "begins with its time zone"),
        ("in Middle/Earth: else open", "no time zone 'Middle/Earth'"),
        ("in UTC: nights 8", "'nights 8' does not end with"),
        ("in UTC: nights 8G", "write 8Gbit/s or 8GB/s"),
        ("in UTC: nights 0Gbit/s", "written as closed"),
        ("in UTC: nights", "'nights' does not end with"),
        ("in UTC: 25:00-26:00 closed", "'25:00-26:00 closed' does not begin with hours"),
        ("in UTC: 24:00-06:00 closed", "does not begin with hours"),
        ("in UTC: 8:00-9:00 closed", "does not begin with hours"),
        ("in UTC: funday closed", "does not begin with hours"),
        ("in UTC: 2026-12-02 06:00 to 2026-12-01 06:00 closed", "does not begin with hours"),
        ("in UTC: 2026-13-02 06:00 to 2026-12-01 06:00 closed", "does not begin with hours"),
        ("in UTC: else open,", "'' does not begin with hours"),
    ] {
        let said = text.parse::<Calendar>().unwrap_err().to_string();
        assert!(said.contains(want), "{text}: {said}");
    }
    let long = format!("in UTC: {}", vec!["else open"; 101].join(","));
    assert_eq!(long.parse::<Calendar>(), Err(CalendarError::TooLong));
    let spaces = format!("in UTC: {}else open", " ".repeat(5000));
    assert_eq!(spaces.parse::<Calendar>(), Err(CalendarError::TooLong));
}

#[test]
fn the_calendars_of_the_guide_are_ones() {
    let guide = include_str!("../../../../docs/REPLICATE.md");
    let calendars: Vec<_> = guide.lines().filter(|line| line.starts_with("in ") && line.contains(": ")).collect();
    assert_eq!(calendars.len(), 3);
    for text in calendars {
        assert!(text.parse::<Calendar>().is_ok(), "{text}");
    }
}

#[test]
fn the_stricter_of_two_calendars_holds() {
    let (open, slow, fast, closed) = (Allowance::Open, gbits(1), gbits(8), Allowance::Closed);
    for (one, two, want) in [(open, open, open), (open, slow, slow), (fast, slow, slow), (fast, closed, closed)] {
        assert_eq!((one.and(two), two.and(one)), (want, want));
    }
}
