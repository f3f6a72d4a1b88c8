//! How many units the sender of a lane may have begun, or begin, beyond those that are whole.
//!
//! In: when units were promised a slot, and when they began. Out: a number of units, which doubles
//! while the sender begins what it was promised as soon as it can have heard of it: it waits for
//! promises then, and not for the path. It knows no slots.

use std::time::Duration;

use longhaul_proto::time::Timestamp;

/// The window. A lane that stands idle takes no more memory than it has use for.
pub(super) struct PromiseWindow {
    units: u32,
    most: u32,
    /// A unit that begins sooner than this after it was promised was waited for.
    soon: Duration,
    /// Units that were promised in all at some time, while the last of them has not begun.
    watched: Option<(u32, Timestamp)>,
}

impl PromiseWindow {
    /// The window of a lane whose join has promised so many units, over a path of this round trip.
    pub(super) fn new(now: Timestamp, promised: u32, round_trip: Duration) -> PromiseWindow {
        let mut window = PromiseWindow {
            units: WINDOW_FIRST.max(promised),
            most: u32::MAX,
            soon: round_trip * SOON_ROUND_TRIPS + SOON_BESIDE,
            watched: None,
        };
        window.note_promised(now, promised);
        window
    }

    /// Units now.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// At most so many from now on.
    pub(super) fn bound(&mut self, most: u32) {
        self.most = most;
        self.units = self.units.min(most);
    }

    /// Notes that so many units were promised in all by now.
    pub(super) fn note_promised(&mut self, now: Timestamp, promised: u32) {
        if promised > 0 {
            self.watched.get_or_insert((promised, now));
        }
    }

    /// Notes that so many units have begun in all by now, and `left` that were promised have not.
    pub(super) fn note_begun(&mut self, now: Timestamp, begun: u32, left: u32) {
        let watched = self.watched.filter(|(promised, _)| begun >= *promised);
        let is_soon = watched.is_some_and(|(_, since)| now.since(since) < self.soon);
        if watched.is_some() {
            self.watched = None;
        }
        // A part of one grows too as soon as its only slot is in use.
        if is_soon || left < self.units.div_ceil(2) {
            self.units = self.units.saturating_mul(2).min(self.most);
        }
    }
}

/// Units that are promised at first: as many as a session of a daemon has buffers when it begins.
pub(super) const WINDOW_FIRST: u32 = 4;
/// A promise needs half a round trip to be heard, and what is begun then as long to come. The
/// round trip is that of the join, and a queue of others may have made it three times as long
/// since; and what threads and statuses may be late by.
const SOON_ROUND_TRIPS: u32 = 3;
const SOON_BESIDE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(300);
    /// The time that a unit takes to come: 4 MiB at 1 Gbit/s.
    const UNIT: Duration = Duration::from_micros(33_554);

    /// The bytes/s, as a part of those of the line, that a sender has over a path of 300 ms in the
    /// last of so many seconds, if it begins a unit as soon as it hears that it may, and the window
    /// then.
    fn carried(mut window: PromiseWindow, seconds: u64) -> (f64, u32) {
        let (mut now, mut promised, mut whole, mut late) = (Timestamp(0), window.units(), 0, 0);
        // When the sender hears of each promise, and when the line has room for another unit.
        let mut heard: Vec<Timestamp> = vec![Timestamp(0); promised as usize];
        let mut free = Timestamp(0);
        while now < Timestamp(seconds * 1_000_000) {
            let leaves = heard[whole as usize].max(free);
            free = leaves.after(UNIT);
            window.note_begun(leaves.after(ROUND_TRIP / 2), whole + 1, promised - whole - 1);
            now = free.after(ROUND_TRIP / 2);
            (whole, late) = (whole + 1, late + u32::from(now > Timestamp((seconds - 1) * 1_000_000)));
            promised = promised.max(whole + window.units());
            heard.resize(promised as usize, now.after(ROUND_TRIP / 2));
            window.note_promised(now, promised);
        }
        (f64::from(late) * UNIT.as_secs_f64(), window.units())
    }

    #[test]
    fn a_sender_that_waits_for_promises_over_a_long_path_gets_as_many_as_fill_it_and_no_more() {
        let (part, units) = carried(PromiseWindow::new(Timestamp(0), 4, ROUND_TRIP), 10);
        assert!(part > 0.95 && (16..=32).contains(&units), "{part} of the line with {units} units");
        let mut bounded = PromiseWindow::new(Timestamp(0), 4, ROUND_TRIP);
        bounded.bound(4);
        let (part, units) = carried(bounded, 10);
        assert!(part < 0.45 && units == 4, "{part} of the line with {units} units");
    }

    #[test]
    fn a_unit_that_begins_within_three_round_trips_of_its_promise_was_waited_for() {
        for (took, units) in [(909, 8), (911, 4)] {
            let mut window = PromiseWindow::new(Timestamp(0), 4, ROUND_TRIP);
            window.note_begun(Timestamp(took * 1000), 4, 3);
            assert_eq!(window.units(), units, "{took} ms");
        }
    }

    #[test]
    fn a_sender_that_begins_units_later_than_it_may_gets_no_more() {
        let mut window = PromiseWindow::new(Timestamp(0), 4, ROUND_TRIP);
        for begun in 1..100 {
            let now = Timestamp(u64::from(begun) * 400_000);
            window.note_begun(now, begun, 3);
            window.note_promised(now, begun + 4);
        }
        assert_eq!(window.units(), 4);
    }
}
