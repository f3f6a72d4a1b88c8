//! Whether a handshake goes unanswered because segments are too large for the path.
//!
//! A router that cannot pass a packet on says so by ICMP, and TCP sends smaller ones; where a
//! filter keeps that from us, large segments vanish and small ones pass: connections are made and
//! then stand still. Takes the kernel's state of a socket that waits for an answer; gives a
//! suspicion to `wire`. Only dialling again with smaller segments confirms it.

use std::time::Duration;

use longhaul_core::limits::SEGMENT_BYTES_SAFE;
use socket2::Socket;

/// The state of a connection that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Payload of a full segment.
    pub(crate) segment_bytes: u32,
    /// How often in a row the kernel had to send the same data again.
    timeouts: u8,
    /// How long the other host has acknowledged nothing. `None` if it has acknowledged all data.
    unacknowledged: Option<Duration>,
    /// How long the other host has sent nothing.
    quiet: Duration,
    rtt: Duration,
}

impl Silence {
    pub(crate) fn of(socket: &Socket) -> Option<Silence> {
        let state = longhaul_sys::tcp::state(socket).ok()?;
        Some(Silence {
            segment_bytes: state.segment_bytes,
            timeouts: state.timeouts,
            unacknowledged: longhaul_sys::tcp::unacknowledged(socket).ok()?,
            quiet: longhaul_sys::tcp::quiet(socket).ok()?,
            rtt: state.rtt,
        })
    }

    pub(crate) fn is_of_swallowed_segments(&self) -> bool {
        let ours = self.timeouts >= TIMEOUTS && self.unacknowledged.is_some_and(|silence| silence >= UNACKNOWLEDGED);
        let theirs = self.quiet >= QUIET + 4 * self.rtt;
        self.segment_bytes > SEGMENT_BYTES_SAFE && (ours || theirs)
    }
}

/// Timeouts in a row from which segments count as swallowed: the data was lost three times, ...
const TIMEOUTS: u8 = 2;
/// ... and where round trips are short, four times: the kernel waits at least 0.2 s, and twice as
/// long each time.
const UNACKNOWLEDGED: Duration = Duration::from_millis(1500);
/// Silence from which the other host's segments count as swallowed. It sends again by the same
/// clock as ours; and it may be busy.
const QUIET: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_called_swallowed_when_the_way_back_or_forth_was_tried_often_enough() {
        for (segment_bytes, timeouts, unacknowledged, quiet, rtt, want) in [
            (8948, 2, Some(1500), 1500, 20, true),
            (8948, 3, Some(1499), 1499, 20, false),
            // One loss, and another of the repeated data.
            (8948, 1, Some(1900), 1900, 900, false),
            (8948, 2, Some(2700), 2700, 600, true),
            // It has the data and does not answer.
            (1448, 0, None, 3100, 20, true),
            (1448, 0, None, 3100, 30, false),
            (1448, 0, None, 5400, 600, true),
            // Smaller ones would be no better.
            (1220, 9, Some(9000), 9000, 20, false),
        ] {
            let ms = Duration::from_millis;
            let (unacknowledged, quiet, rtt) = (unacknowledged.map(ms), ms(quiet), ms(rtt));
            let silence = Silence { segment_bytes, timeouts, unacknowledged, quiet, rtt };
            assert_eq!(silence.is_of_swallowed_segments(), want, "{silence:?}");
        }
    }
}
