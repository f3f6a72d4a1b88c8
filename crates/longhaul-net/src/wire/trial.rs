//! Owns how long the trial of a path is: a segment that shows that large ones pass, or as many as
//! open the window of a fresh connection.
//!
//! Takes what the handshake of a [`Wire`] has shown. Gives a number of bytes. Must not know what a
//! trial is answered with, or which lane joins behind it.

use std::time::Duration;

use longhaul_core::limits::{LONG_PATH_MILLISECONDS, TRIAL_BYTES_MAX};

use super::Wire;

impl Wire {
    /// See [`crate::LaneStream::trial_bytes`].
    pub(crate) fn trial_bytes(&self) -> u32 {
        if !self.watched {
            return 0;
        }
        let segment = longhaul_sys::tcp::state(&*self.socket).map_or(0, |state| state.segment_bytes);
        if segment <= self.passed { 0 } else { segment.min(TRIAL_BYTES_MAX) }
    }

    /// See [`crate::LaneStream::window_trial_bytes`].
    pub(crate) fn window_trial_bytes(&self) -> u32 {
        let (true, Some(handshake)) = (self.watched && self.segment_max.is_none(), self.handshake) else { return 0 };
        let Ok(state) = longhaul_sys::tcp::state(&*self.socket) else { return 0 };
        state.min_rtt.map_or(0, |round_trip| window_trial(state.segment_bytes, round_trip, handshake))
    }

    /// Notes that `bytes`, sent at once, have passed both ways in a handshake that took so long.
    pub(crate) fn has_shaken_hands(&mut self, bytes: usize, took: Duration) {
        self.passed = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.handshake = Some(took);
    }
}

/// Bytes of a trial that opens the window of a connection with such segments. 0 where the path is
/// short, or its handshake took clearly more than a round trip: it is so slow that such a trial
/// would be waited for, or a processor is busy.
fn window_trial(segment: u32, round_trip: Duration, handshake: Duration) -> u32 {
    let is_long = round_trip >= Duration::from_millis(LONG_PATH_MILLISECONDS);
    if !is_long || handshake > round_trip + round_trip / LATE_PART {
        return 0;
    }
    WINDOW_SEGMENTS.saturating_mul(segment).min(WINDOW_TRIAL_BYTES_MAX.max(segment)).min(TRIAL_BYTES_MAX)
}

/// Segments of a trial that opens the window. A connection may have ten on their way at first (RFC
/// 6928), and what follows the trial of a private lane shall not wait for the window either.
const WINDOW_SEGMENTS: u32 = 8;
/// Most bytes of such a trial: a fresh connection may receive 64 KiB in whole segments (Linux),
/// which are seven of 8,948 bytes, and says a little more than the trial.
const WINDOW_TRIAL_BYTES_MAX: u32 = 54 << 10;
/// The handshake of a path that is not slow takes at most this part of a round trip longer than
/// one. Each of five connections says some 1,500 bytes in it, and a trial of eight such segments
/// takes up to eight times as long beyond the round trip; one of jumbo segments up to 36 times.
const LATE_PART: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_on_a_long_path_that_is_not_slow_does_a_trial_open_the_window() {
        for (segment, round_trip_us, handshake_us, want) in [
            (1448, 100_000, 101_000, 8 * 1448),
            (1448, 100_000, 112_500, 8 * 1448),
            (1448, 100_000, 112_501, 0),
            (1448, 5_000, 5_100, 8 * 1448),
            (1448, 4_999, 5_000, 0),
            (8948, 100_000, 101_000, 54 << 10),
            (60_000, 100_000, 101_000, 60_000),
            (70_000, 100_000, 101_000, TRIAL_BYTES_MAX),
        ] {
            let [round_trip, handshake] = [round_trip_us, handshake_us].map(Duration::from_micros);
            assert_eq!(window_trial(segment, round_trip, handshake), want, "{segment} {round_trip:?} {handshake:?}");
        }
    }
}
