//! Owns the account of a run's seconds. Takes the bytes that had passed over the wire at each
//! moment; gives the seconds by their use. Must not know the sender.

use serde::Serialize;

/// The bytes that had passed at a moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the first payload.
    pub(crate) t_s: f64,
    /// Bytes on the wire, those that were lost there included.
    pub(crate) bytes: u64,
}

/// Seconds, which sum up (`tail_s` apart) to the time from the first payload to the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Account {
    /// The time that the payload takes at the rate.
    pub(crate) payload_s: f64,
    /// The time of all other bytes on the wire: headers, encryption, repeated data.
    pub(crate) overhead_s: f64,
    /// The time without a byte on the wire: in the first [`START_S`], ...
    pub(crate) idle_start_s: f64,
    /// ... after them, ...
    pub(crate) idle_between_s: f64,
    /// ... and in the last [`END_S`].
    pub(crate) idle_end_s: f64,
    /// The time from the passing of 999 of 1000 bytes to the end.
    pub(crate) tail_s: f64,
}

impl Account {
    /// The account of samples in the order of time, the first at 0 and the last at the end.
    pub(crate) fn of(samples: &[Sample], payload_bytes: u64, bits_per_s: u64) -> Account {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Account::default() };
        let seconds = |bytes: u64| bytes as f64 * 8.0 / bits_per_s as f64;
        let payload_s = seconds(payload_bytes);
        let mut account = Account {
            payload_s,
            overhead_s: seconds(last.bytes - first.bytes) - payload_s,
            tail_s: last.t_s - passed(samples, last.bytes / 1000 * 999),
            ..Account::default()
        };
        for pair in samples.windows(2) {
            let idle = pair[1].t_s - pair[0].t_s - seconds(pair[1].bytes - pair[0].bytes);
            *match pair[1].t_s {
                t if t <= START_S => &mut account.idle_start_s,
                t if t > last.t_s - END_S => &mut account.idle_end_s,
                _ => &mut account.idle_between_s,
            } += idle;
        }
        account
    }
}

/// Bits/s between start and end. `None` for a run that is shorter than both.
pub(crate) fn steady_bits_per_s(samples: &[Sample]) -> Option<f64> {
    let ended = samples.last()?.t_s - END_S;
    let first = samples.iter().find(|sample| sample.t_s >= START_S)?;
    let last = samples.iter().rfind(|sample| sample.t_s <= ended && sample.t_s > first.t_s)?;
    Some((last.bytes - first.bytes) as f64 * 8.0 / (last.t_s - first.t_s))
}

/// The time when `bytes` had passed.
fn passed(samples: &[Sample], bytes: u64) -> f64 {
    samples.iter().find(|sample| sample.bytes >= bytes).map_or(0.0, |sample| sample.t_s)
}

/// The seconds of a start. The beginning of a transfer is over then, whatever the path's round
/// trip.
pub(crate) const START_S: f64 = 5.0;
pub(crate) const END_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_is_accounted_for() {
        // 8 bit/s: a byte a second. Two seconds late at the start, one in between, half a second at
        // the end.
        let points = [(0.0, 0), (2.0, 0), (5.0, 3), (10.0, 7), (12.0, 8), (14.0, 10)];
        let samples = points.map(|(t_s, bytes)| Sample { t_s, bytes });
        let account = Account::of(&samples, 9, 8);
        assert_eq!((account.payload_s, account.overhead_s), (9.0, 1.0));
        assert_eq!((account.idle_start_s, account.idle_between_s, account.idle_end_s), (2.0, 2.0, 0.0));
        let sum =
            account.payload_s + account.overhead_s + account.idle_start_s + account.idle_between_s + account.idle_end_s;
        assert_eq!(sum, 14.0);
    }

    #[test]
    fn the_steady_rate_leaves_out_how_it_began_and_ended() {
        let points = [(0.0, 0), (4.0, 1), (5.0, 3), (8.0, 9), (11.0, 15), (13.0, 15)];
        let mut samples = points.map(|(t_s, bytes)| Sample { t_s, bytes }).to_vec();
        assert_eq!(steady_bits_per_s(&samples), Some(16.0));
        samples.truncate(3);
        assert_eq!(steady_bits_per_s(&samples), None);
    }
}
