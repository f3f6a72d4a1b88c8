//! Owns how long the trial of a path is: a segment that shows that large ones pass, or as many as open
//! the window of a fresh connection.
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
        let Ok(state) = longhaul_sys::tcp::state(&*self.socket) else { return 0 };
        let segment = state.segment_bytes;
        if self.may_open_window(state.min_rtt) {
            WINDOW_SEGMENTS.saturating_mul(segment).min(WINDOW_BYTES_MAX.max(segment)).min(TRIAL_BYTES_MAX)
        } else if segment <= self.passed {
            0
        } else {
            segment.min(TRIAL_BYTES_MAX)
        }
    }

    /// Notes that `bytes`, sent at once, have passed both ways in a handshake that took so long.
    pub(crate) fn has_shaken_hands(&mut self, bytes: usize, took: Duration) {
        self.passed = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.handshake = Some(took);
    }

    /// Whether the trial may open the window: the path is long; its handshake took hardly more than
    /// a round trip, so that the path is not so slow that such a trial is waited for; and no earlier
    /// lane was lost to large segments.
    fn may_open_window(&self, round_trip: Option<Duration>) -> bool {
        let (Some(round_trip), Some(handshake)) = (round_trip, self.handshake) else { return false };
        let is_long = round_trip >= Duration::from_millis(LONG_PATH_MILLISECONDS);
        is_long && self.segment_max.is_none() && handshake <= round_trip + round_trip / LATE_PART
    }
}

/// Segments of a trial that opens the window. A connection may have ten on their way at first (RFC
/// 6928), and what follows the trial of a private lane shall not wait for the window either.
const WINDOW_SEGMENTS: u32 = 8;
/// Most bytes of such a trial: a fresh connection may receive 64 KiB in whole segments (Linux), which
/// are seven of 8,948 bytes, and says a little more than the trial.
const WINDOW_BYTES_MAX: u32 = 54 << 10;
/// The handshake of a path that is not slow takes at most this part of a round trip longer than one.
/// Each of five connections says some 1,500 bytes in it, and a trial of eight such segments takes
/// up to eight times as long beyond the round trip.
const LATE_PART: u32 = 8;
