//! Watches the lanes of a measurement while it runs, as a lane that is closed has no counters any
//! more.
//!
//! In: handles of lanes as they join, and a call now and then to look. Out: [`LaneFigures`].
//! Figures that only the sending end has are there only if this is it. It
//! knows no messages.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::{LaneId, Transport};
use longhaul_net::{LaneCounters, LaneHandle};

use super::net::Way;
use crate::lanes::dial::DialObserver;

/// The counters of one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaneFigures {
    /// The lane's number in its session.
    pub lane: u32,
    /// Bytes of its stream that the other host acknowledged or that came in, including headers,
    /// digests and encryption.
    pub bytes: u64,
    /// The shortest round trip of late. `None` before the first.
    pub rtt_min: Option<Duration>,
    /// The counters that only the sending end has. `None` at the receiving end.
    pub sent: Option<SentFigures>,
}

/// The counters of a sending lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentFigures {
    /// Its congestion control.
    pub congestion: String,
    /// Bytes that were sent, including repeats.
    pub bytes: u64,
    /// Bytes that were sent again.
    pub bytes_resent: u64,
    /// The smoothed round trip, the mean of all looks at which data was on its way.
    pub rtt_mean: Option<Duration>,
    /// The variation of round trips: the smoothed mean deviation (RFC 6298), the mean of the same
    /// looks.
    pub jitter: Option<Duration>,
    /// The largest packet that the path takes, bytes.
    pub path_mtu: Option<u32>,
    /// Payload of TCP in one segment, bytes.
    pub segment_bytes: Option<u32>,
}

/// The number of lanes that stood.
#[derive(Clone, Copy, Debug, Default)]
pub struct LanesStood {
    /// The most at one time.
    pub most: u32,
    /// The number at the last look that found any.
    pub last: u32,
}

/// The lanes of one run. See the module.
#[derive(Debug)]
pub(crate) struct LaneWatch {
    way: Way,
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    lanes: BTreeMap<LaneId, WatchedLane>,
    standing: LanesStood,
    /// Whether payload is through, so that looks count no more.
    is_over: bool,
}

#[derive(Debug)]
struct WatchedLane {
    handle: LaneHandle,
    congestion: Option<String>,
    last: Option<LaneCounters>,
    /// Sums over the looks at which data was on its way.
    rtt: Duration,
    deviation: Duration,
    looks: u32,
}

impl DialObserver for LaneWatch {
    fn lane_joined(&self, id: LaneId, handle: LaneHandle) {
        let zero = Duration::ZERO;
        let lane = WatchedLane { handle, congestion: None, last: None, rtt: zero, deviation: zero, looks: 0 };
        self.lock().lanes.insert(id, lane);
    }
}

impl LaneWatch {
    pub(crate) fn new(way: Way) -> LaneWatch {
        LaneWatch { way, state: Mutex::default() }
    }

    /// Looks at all lanes for the last time, because payload is through: the receiver has said that
    /// it has all of it.
    pub(crate) fn look_last(&self) {
        self.look();
        let mut seen = self.lock();
        if !seen.is_over && self.way == Way::Push {
            seen.lanes.values_mut().for_each(WatchedLane::arrived);
        }
        seen.is_over = true;
    }

    /// Looks at all lanes.
    pub(crate) fn look(&self) {
        let mut seen = self.lock();
        if seen.is_over {
            return;
        }
        let standing = seen.lanes.values_mut().filter_map(WatchedLane::look).count() as u32;
        if standing > 0 {
            seen.standing = LanesStood { most: seen.standing.most.max(standing), last: standing };
        }
    }

    pub(crate) fn standing(&self) -> LanesStood {
        self.lock().standing
    }

    pub(crate) fn figures(&self) -> Vec<LaneFigures> {
        self.lock().lanes.iter().map(|(id, lane)| lane.figures(*id, self.way)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedLane {
    /// Looks at the lane. `None` if it is gone.
    fn look(&mut self) -> Option<()> {
        let counters = self.handle.counters()?;
        self.congestion = self.handle.congestion().or(self.congestion.take());
        self.take(counters);
        Some(())
    }

    fn take(&mut self, counters: LaneCounters) {
        let LaneCounters { sent, resent, acked, round_trip, .. } = counters;
        // The opening of the connection counts as a byte.
        if sent.saturating_sub(resent) > acked && !round_trip.smoothed.is_zero() {
            self.rtt += round_trip.smoothed;
            self.deviation += round_trip.deviation;
            self.looks += 1;
        }
        self.last = Some(counters);
    }

    /// Counts what was sent as acknowledged. The receiver's word that it has all comes over the
    /// control connection, and may overtake the last acknowledgements of a lane.
    fn arrived(&mut self) {
        // What a lane over UDP sent is not what its `acked` counts, which is payload alone.
        let is_stream = self.handle.facts().transport != Transport::Udp;
        if let Some(last) = self.last.as_mut().filter(|_| is_stream) {
            last.acked = last.acked.max(last.sent.saturating_sub(last.resent));
        }
    }

    fn figures(&self, id: LaneId, way: Way) -> LaneFigures {
        let Some(last) = self.last else { return LaneFigures { lane: id.0, ..LaneFigures::default() } };
        let mean = |sum: Duration| sum.checked_div(self.looks);
        let sent = || SentFigures {
            congestion: self.congestion.clone().unwrap_or_default(),
            bytes: last.sent,
            bytes_resent: last.resent,
            rtt_mean: mean(self.rtt),
            jitter: mean(self.deviation).filter(|deviation| !deviation.is_zero()),
            path_mtu: last.packets.path_mtu,
            segment_bytes: Some(last.packets.payload_bytes).filter(|bytes| *bytes > 0),
        };
        LaneFigures {
            lane: id.0,
            bytes: if way == Way::Push { last.acked } else { last.received },
            rtt_min: last.round_trip.min,
            sent: (way == Way::Push).then(sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::RoundTrip;

    use super::*;

    fn lane() -> WatchedLane {
        let handle = longhaul_net::LaneStream::pair().expect("a pair").0.handle();
        let zero = Duration::ZERO;
        WatchedLane { handle, congestion: Some("bbr".to_owned()), last: None, rtt: zero, deviation: zero, looks: 0 }
    }

    fn counted(sent: u64, acked: u64, rtt_ms: u64) -> LaneCounters {
        let ms = Duration::from_millis;
        let round_trip = RoundTrip { min: Some(ms(20)), smoothed: ms(rtt_ms), deviation: ms(rtt_ms / 10) };
        LaneCounters { sent, acked, received: 7, round_trip, ..LaneCounters::default() }
    }

    #[test]
    fn round_trips_count_only_while_data_is_on_its_way() {
        let mut lane = lane();
        [counted(0, 0, 90), counted(900, 100, 30), counted(1800, 900, 50), counted(1800, 1800, 90)]
            .into_iter()
            .for_each(|counters| lane.take(counters));
        let figures = lane.figures(LaneId(3), Way::Push);
        let sent = figures.sent.expect("it sends");
        assert_eq!((figures.lane, figures.bytes, sent.bytes), (3, 1800, 1800));
        assert_eq!(sent.rtt_mean, Some(Duration::from_millis(40)));
        assert_eq!(sent.jitter, Some(Duration::from_millis(4)));
        assert_eq!((sent.path_mtu, sent.segment_bytes), (None, None), "the kernel did not say");
    }

    #[test]
    fn what_was_sent_counts_once_the_receiver_has_all_though_its_last_acknowledgements_are_on_their_way() {
        for (way, want) in [(Way::Push, 1700), (Way::Pull, 7)] {
            let watch = LaneWatch::new(way);
            let mut watched = lane();
            watched.take(LaneCounters { resent: 100, ..counted(1800, 843, 30) });
            watch.lock().lanes.insert(LaneId(0), watched);
            watch.look_last();
            assert_eq!(watch.figures()[0].bytes, want, "{way:?}");
        }
    }

    #[test]
    fn of_a_lane_that_receives_nothing_is_told_that_the_sender_alone_knows() {
        let mut lane = lane();
        lane.take(counted(100, 90, 30));
        let figures = lane.figures(LaneId(0), Way::Pull);
        assert_eq!((figures.bytes, figures.rtt_min, figures.sent), (7, Some(Duration::from_millis(20)), None));
    }

    #[test]
    fn a_lane_that_was_never_looked_at_has_no_figures() {
        assert_eq!(lane().figures(LaneId(1), Way::Push), LaneFigures { lane: 1, ..LaneFigures::default() });
    }
}
