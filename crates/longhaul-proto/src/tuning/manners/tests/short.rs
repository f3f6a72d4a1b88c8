//! Queues that are shorter than the one that is aimed at: those of the path, and those that only
//! seem to stand as threads wake late. The model is that of `tests.rs`.

use super::{ALONE, Case, play};

#[test]
fn a_queue_too_short_for_what_is_aimed_at_costs_little() {
    for (rtt, queue) in [(0.02, 0.05), (0.02, 0.1), (0.02, 0.25), (0.1, 0.05), (0.1, 0.1), (0.1, 0.25)] {
        let figures = play(Case { rtt, queue, ..ALONE });
        assert!(figures.ours[0] > 950.0 && figures.lost < 0.02, "{rtt} s, {queue}: {figures:?}");
    }
}

#[test]
fn threads_that_wake_late_take_little_of_the_rate() {
    // With nothing else in the way, it is 0.95 of the line.
    for (rtt, late) in [(0.02, 0.001), (0.02, 0.002), (0.1, 0.004), (0.1, 0.006)] {
        let figures = play(Case { rtt, wakes: (0.95, late), ..ALONE });
        assert!(figures.ours[0] > 900.0, "{rtt} s, {late} s: {figures:?}");
    }
}
