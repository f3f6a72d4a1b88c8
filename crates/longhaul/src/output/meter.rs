//! How fast bytes become durable, and how long the rest will take.
//!
//! In: the engine's counters, about once a second. Out: [`Pace`] to the progress line and event. Looks at no clock: the
//! counters carry their time.

use std::collections::VecDeque;

use longhaul_engine::Progress;

/// A window of recent counters. Bytes become durable in groups, at most a second apart, so the rate is taken over several.
#[derive(Debug, Default)]
pub(super) struct Meter {
    recent: VecDeque<(f64, u64)>,
}

/// Speed and what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Bytes per second that became durable of late.
    pub(super) bytes_per_s: f64,
    /// Seconds to go, once the total is known and anything moves.
    pub(super) eta_s: Option<f64>,
    /// Bytes that will move at all, as far as known.
    pub(super) bytes_to_move: u64,
}

impl Meter {
    /// Takes the newest counters.
    pub(super) fn absorb(&mut self, now: &Progress) -> Pace {
        self.recent.push_back((now.seconds, now.bytes_durable));
        while self.recent.len() > 2 && now.seconds - self.recent[0].0 > WINDOW_SECONDS {
            self.recent.pop_front();
        }
        let (since, had) = match self.recent.front() {
            Some(&first) if self.recent.len() > 1 => first,
            _ => (0.0, 0),
        };
        let elapsed = now.seconds - since;
        let bytes = now.bytes_durable.saturating_sub(had);
        let bytes_per_s = if elapsed > 0.0 { bytes as f64 / elapsed } else { 0.0 };
        let bytes_to_move = now.bytes_total.saturating_sub(now.bytes_done_without);
        let left = bytes_to_move.saturating_sub(now.bytes_durable) as f64;
        let eta_s = (now.scanned && (bytes_per_s > 0.0 || left == 0.0))
            .then(|| if left > 0.0 { left / bytes_per_s } else { 0.0 });
        Pace { bytes_per_s, eta_s, bytes_to_move }
    }
}

/// Long enough to even out groups of a second, short enough to show a change.
const WINDOW_SECONDS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, bytes_durable: u64, scanned: bool) -> Progress {
        Progress {
            seconds,
            bytes_durable,
            scanned,
            bytes_total: 10_000,
            bytes_done_without: 2_000,
            ..Progress::default()
        }
    }

    #[test]
    fn the_rate_follows_the_last_ten_seconds() {
        let mut meter = Meter::default();
        assert_eq!(meter.absorb(&at(1.0, 100, false)).bytes_per_s, 100.0);
        for second in 2..=30 {
            meter.absorb(&at(f64::from(second), 100, false));
        }
        assert_eq!(meter.absorb(&at(31.0, 2100, false)).bytes_per_s, 200.0);
    }

    #[test]
    fn the_rest_is_what_will_move_and_known_only_after_the_scan() {
        let mut meter = Meter::default();
        assert_eq!(meter.absorb(&at(1.0, 1000, false)).eta_s, None);
        let pace = meter.absorb(&at(2.0, 2000, true));
        assert_eq!((pace.bytes_to_move, pace.eta_s), (8000, Some(6.0)));
        assert_eq!(meter.absorb(&at(3.0, 8000, true)).eta_s, Some(0.0));
    }

    #[test]
    fn nothing_moving_promises_nothing() {
        assert_eq!(Meter::default().absorb(&at(5.0, 0, true)).eta_s, None);
        assert_eq!(Meter::default().absorb(&at(0.0, 0, true)).bytes_per_s, 0.0);
    }
}
