//! The figures of the road: what a session did to its path, and how long a run took to begin and to
//! end.
//!
//! In: figures of the engine. Out: bodies of events, and fields of the summary. It must not know
//! how a figure is found.

use std::time::Duration;

use longhaul_engine::{RoadFigures, RoadReport};
use serde::Serialize;

use super::millis;

/// The effect of a session on its path since the event before, about once a second. Only the
/// sending side knows it, and only where one control keeps the rate of all lanes: over TCP with
/// `--share fair` or `polite`, over UDP and over QUIC. A field is absent where it is not known.
#[derive(Debug, Serialize)]
pub(in crate::output) struct RoadBody {
    /// The mean time by which the queue of the path made round trips longer, in microseconds: over
    /// TCP by the smoothed round trip of the fastest lane, over UDP and QUIC by the smallest delay
    /// of a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) queue_us: Option<u64>,
    /// The same as a part of the shortest round trip: the queue in bandwidth-delay products of the
    /// path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) queue_bdp: Option<f64>,
    /// The part of all packets that the path loses by itself, 0 to 1, as was seen while its queue
    /// was short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) own_loss: Option<f64>,
    /// The part of all packets that was lost beyond that, 0 to 1. Over TCP a packet that was sent
    /// again counts as lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) loss_beyond_own: Option<f64>,
    /// The part that the session had of what it had seen the path carry, 0 to 1, while others were
    /// there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) share_beside: Option<f64>,
    /// Seconds in which others were there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) beside_s: Option<f64>,
}

/// The figures of the road of a whole run.
#[derive(Debug, Serialize)]
pub(in crate::output) struct RoadReportBody {
    /// The shortest round trip of any lane, in microseconds, as this side saw it.
    pub(in crate::output) rtt_us: u64,
    /// Seconds from the start of the run until the first payload left this side, or came. Absent
    /// where none did, as for the next three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) first_byte_s: Option<f64>,
    /// The same in round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) first_byte_rtts: Option<f64>,
    /// Seconds from when the last payload had left this side, or come, until the run was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) last_byte_s: Option<f64>,
    /// The same in round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) last_byte_rtts: Option<f64>,
    /// Payload bytes that lanes over UDP sent again: where they are more than the path lost, some
    /// were not lost. Absent where none ran over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::output) udp_bytes_resent: Option<u64>,
    /// The effect of the sessions of the run on the path.
    #[serde(flatten)]
    pub(in crate::output) figures: RoadBody,
}

impl RoadBody {
    /// The body of these figures.
    pub(in crate::output) fn of(figures: &RoadFigures) -> RoadBody {
        RoadBody {
            queue_us: figures.queue.map(micros),
            queue_bdp: figures.queue_bdp.map(millis),
            own_loss: figures.own_loss.map(millionths),
            loss_beyond_own: figures.loss_beyond.map(millionths),
            share_beside: figures.share_beside.map(millis),
            beside_s: figures.beside.map(seconds),
        }
    }
}

impl RoadReportBody {
    /// The body of this report.
    pub(in crate::output) fn of(road: &RoadReport) -> RoadReportBody {
        RoadReportBody {
            rtt_us: micros(road.round_trip),
            first_byte_s: road.first_byte.map(seconds),
            first_byte_rtts: road.in_round_trips(road.first_byte).map(millis),
            last_byte_s: road.last_byte.map(seconds),
            last_byte_rtts: road.in_round_trips(road.last_byte).map(millis),
            udp_bytes_resent: road.udp_bytes_resent,
            figures: RoadBody::of(&road.figures),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn seconds(time: Duration) -> f64 {
    millis(time.as_secs_f64())
}

/// A share with six digits: one in a million is still a loss.
fn millionths(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_absent_and_the_rest_has_its_units() {
        let ms = Duration::from_millis;
        let figures = RoadFigures { queue: Some(ms(3)), queue_bdp: Some(0.0301), ..RoadFigures::default() };
        let udp_bytes_resent = Some(0);
        let road =
            RoadReport { round_trip: ms(100), figures, first_byte: Some(ms(250)), last_byte: None, udp_bytes_resent };
        let text = serde_json::to_string(&RoadReportBody::of(&road)).expect("plain data");
        assert_eq!(
            text,
            r#"{"rtt_us":100000,"first_byte_s":0.25,"first_byte_rtts":2.5,"udp_bytes_resent":0,"queue_us":3000,"queue_bdp":0.03}"#
        );
    }
}
