//! The circuit breakers of the paths of lanes over QUIC, apart from the control of their rate.
//!
//! In: lanes over QUIC that join at a sending side, and their counters, several times a second:
//! bytes sent, acknowledged and found lost. Out: the order for each path to whoever keeps its rate,
//! lanes to close, and whether a path is broken. `proto`'s breaker of UDP lanes decides, and an
//! acknowledgement counts as a status. It asks no control: lanes that keep their rates to
//! themselves have a breaker too. It knows no sockets and no messages.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, PathShare};
use longhaul_net::LaneCounters;
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::breaker::{BreakerOrder, UdpBreaker};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::udp::status::Counts;

use super::{LaneMet, PathEnds};
use crate::lanes::past::PathPast;

/// The breakers of a side. See the module.
#[derive(Debug)]
pub(super) struct QuicBreakers {
    share: PathShare,
    /// The path as earlier sessions left it, and as this one leaves it.
    past: PathPast,
    paths: Vec<GuardedPath>,
}

/// A path, and the lanes on it.
#[derive(Debug)]
struct GuardedPath {
    ends: PathEnds,
    began: Instant,
    breaker: UdpBreaker,
    lanes: BTreeMap<LaneId, GuardedLane>,
    order: BreakerOrder,
}

/// A lane at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct GuardedLane {
    counters: LaneCounters,
    /// Packets acknowledged and lost, as the bytes of either make them.
    came: WholePackets,
    lost: WholePackets,
}

/// Packets of which the bytes are known.
#[derive(Clone, Copy, Debug, Default)]
struct WholePackets {
    packets: u64,
    /// Bytes that make no whole packet yet.
    rest: u64,
}

/// The findings of a look.
#[derive(Debug, Default)]
pub(super) struct GuardFindings {
    /// Orders that are others than before, and those that hold something back.
    pub(super) orders: Vec<(PathEnds, BreakerOrder)>,
    /// Lanes of paths that are broken, or at whose other end nothing is heard of any more.
    pub(super) over: Vec<LaneId>,
}

impl QuicBreakers {
    /// The breakers of a side that takes this share and has no lane yet.
    pub(super) fn new(share: PathShare, past: PathPast) -> QuicBreakers {
        QuicBreakers { share, past, paths: Vec::new() }
    }

    /// Takes a lane that joined, over a path with this round trip.
    pub(super) fn joined(&mut self, now: Instant, id: LaneId, ends: PathEnds, round_trip: Duration) {
        let place = match self.paths.iter().position(|path| path.ends == ends) {
            Some(place) => place,
            None => {
                let mut path = GuardedPath::new(now, ends, self.share, round_trip);
                path.breaker = path.breaker.after(Timestamp(0), self.past.breaker(now));
                self.paths.push(path);
                self.paths.len() - 1
            }
        };
        let path = &mut self.paths[place];
        let at = path.at(now);
        path.breaker.begin_lane(at, id);
        path.lanes.insert(id, GuardedLane::default());
    }

    /// Whether the breaker of a path is open: lanes over QUIC are of no use to this session.
    pub(super) fn is_broken(&self) -> bool {
        self.paths.iter().any(|path| matches!(path.order, BreakerOrder::Open(_)))
    }

    /// Looks at the lanes that stand.
    pub(super) fn look<'a>(&mut self, now: Instant, lanes: impl Iterator<Item = LaneMet<'a>> + Clone) -> GuardFindings {
        let mut findings = GuardFindings::default();
        for path in &mut self.paths {
            path.lanes.retain(|id, _| {
                let stands = lanes.clone().any(|lane| lane.id == *id);
                if !stands {
                    path.breaker.remove_lane(*id);
                }
                stands
            });
            let on_it = lanes.clone().filter(|lane| path.lanes.contains_key(&lane.id));
            let seen: Vec<_> = on_it.filter_map(|lane| Some((lane.id, lane.handle.counters()?))).collect();
            let order = path.look(now, &seen);
            let is_news = order != path.order;
            path.order = order;
            if is_news && matches!(order, BreakerOrder::Open(_)) {
                self.past.broke(now, path.breaker.past(path.at(now)));
            }
            // A lane may just have stored what the control ordered before.
            if is_news || order != BreakerOrder::Go(0) {
                findings.orders.push((path.ends, order));
            }
            if let BreakerOrder::Lost | BreakerOrder::Open(_) = order {
                findings.over.extend(path.lanes.keys());
            }
        }
        findings
    }
}

impl GuardedPath {
    fn new(now: Instant, ends: PathEnds, share: PathShare, round_trip: Duration) -> GuardedPath {
        let mut breaker = UdpBreaker::new(Timestamp(0), round_trip);
        breaker.set_share(share);
        if share == PathShare::All {
            // Its lanes keep what they carry on a path that loses much by itself.
            breaker = breaker.bearing_loss();
        }
        GuardedPath { ends, began: now, breaker, lanes: BTreeMap::new(), order: BreakerOrder::Go(0) }
    }

    fn at(&self, now: Instant) -> Timestamp {
        let elapsed = now.saturating_duration_since(self.began);
        Timestamp(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    /// Takes the counters of its lanes. Gives the order of now; the time for which a breaker is
    /// still open does not make another.
    fn look(&mut self, now: Instant, seen: &[(LaneId, LaneCounters)]) -> BreakerOrder {
        let at = self.at(now);
        let mut is_idle = true;
        for (id, counters) in seen {
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            let packet = u64::from(counters.packets.payload_bytes).max(1);
            let sent = counters.sent.saturating_sub(lane.counters.sent);
            if let Some(sample) = lane.take(counters) {
                self.breaker.handle_status(at, *id, &sample, counters.round_trip.smoothed);
            }
            let is_flying = counters.flying > FEW_PACKETS * packet;
            // Less may be an acknowledgement alone, which nobody answers.
            if is_flying && sent >= packet / 2 {
                self.breaker.handle_sent(at);
            }
            is_idle &= !is_flying;
        }
        if is_idle {
            self.breaker.handle_idle();
        }
        match (self.breaker.poll_order(at), self.order) {
            (BreakerOrder::Open(_), before @ BreakerOrder::Open(_)) => before,
            (order, _) => order,
        }
    }
}

impl GuardedLane {
    /// Takes the counters of now. Gives the status that acknowledgements since the last ones make.
    /// `None` if there were none.
    fn take(&mut self, counters: &LaneCounters) -> Option<UdpSample> {
        let before = std::mem::replace(&mut self.counters, *counters);
        let packet = u64::from(counters.packets.payload_bytes).max(1);
        let acked = counters.acked.saturating_sub(before.acked);
        let lost = counters.resent.saturating_sub(before.resent);
        self.came.add(acked, packet);
        let lost_packets = self.lost.add(lost, packet);
        (acked > 0 || lost > 0).then(|| UdpSample {
            round_trip: (acked > 0).then_some(counters.round_trip.smoothed),
            arrived_us: None,
            delay: None,
            counts: Counts { packets: self.came.packets, bytes: counters.acked, ..Counts::default() },
            lost: u32::try_from(lost_packets).unwrap_or(u32::MAX),
            sent: counters.sent / packet,
            datagram_bytes: counters.packets.payload_bytes as u16,
            flying_bytes: counters.flying,
        })
    }
}

impl WholePackets {
    /// Adds so many bytes of packets of this length. Gives how many packets these make.
    fn add(&mut self, bytes: u64, packet: u64) -> u64 {
        let all = self.rest.saturating_add(bytes);
        self.rest = all % packet;
        self.packets += all / packet;
        all / packet
    }
}

/// Packets of a lane that may be on its way though nobody answers them: an acknowledgement alone,
/// and a probe of the MTU.
const FEW_PACKETS: u64 = 2;

#[cfg(test)]
impl QuicBreakers {
    /// Opens the breaker of a path.
    pub(super) fn open(&mut self, now: Instant, ends: PathEnds) {
        let mut path = GuardedPath::new(now, ends, self.share, Duration::from_millis(20));
        path.order = BreakerOrder::Open(Duration::from_secs(30));
        self.paths.push(path);
    }

    /// Has the time of all that are open be over.
    pub(super) fn close(&mut self) {
        self.paths.iter_mut().for_each(|path| path.order = BreakerOrder::Go(0));
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::{Packets, RoundTrip};
    use longhaul_proto::udp::breaker::BreakerPast;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(20);
    const PACKET: u64 = 1200;

    /// A path with one lane that sends 10 MB/s, looked at each 50 ms.
    struct Guarded {
        path: GuardedPath,
        counters: LaneCounters,
        start: Instant,
        ms: u64,
    }

    impl Guarded {
        fn new(share: PathShare) -> Guarded {
            let start = Instant::now();
            let mut path = GuardedPath::new(start, (Some(1), None), share, ROUND_TRIP);
            path.lanes.insert(LaneId(1), GuardedLane::default());
            path.breaker.begin_lane(Timestamp(0), LaneId(1));
            let counters = LaneCounters {
                round_trip: RoundTrip { min: Some(ROUND_TRIP), smoothed: ROUND_TRIP, ..RoundTrip::default() },
                packets: Packets { payload_bytes: PACKET as u32, ..Packets::default() },
                flying: 200_000,
                ..LaneCounters::default()
            };
            Guarded { path, counters, start, ms: 0 }
        }

        /// 50 ms pass, in which so many packets of a hundred that are sent are lost. `None`:
        /// nothing is heard.
        fn pass(&mut self, lost_percent: Option<u64>) -> BreakerOrder {
            self.ms += 50;
            self.counters.sent += 500_000;
            if let Some(percent) = lost_percent {
                self.counters.resent += 5000 * percent;
                self.counters.acked += 5000 * (100 - percent);
            }
            let order = self.path.look(self.start + Duration::from_millis(self.ms), &[(LaneId(1), self.counters)]);
            self.path.order = order;
            order
        }

        /// Seconds until the breaker opens, at most so many.
        fn opens_after(&mut self, lost_percent: u64, seconds: u64) -> Option<u64> {
            let since = self.ms;
            while self.ms - since < seconds * 1000 {
                if let BreakerOrder::Open(_) = self.pass(Some(lost_percent)) {
                    return Some((self.ms - since) / 1000);
                }
            }
            None
        }
    }

    #[test]
    fn a_step_of_the_loss_breaks_the_path_of_lanes_over_quic_whatever_their_share() {
        for share in PathShare::ALL {
            let mut guarded = Guarded::new(share);
            assert_eq!(guarded.opens_after(5, 60), None, "{share}: what a path loses by itself is borne");
            let much = if share == PathShare::All { 50 } else { 30 };
            let after = guarded.opens_after(much, 60);
            assert!(after.is_some_and(|after| (3..=6).contains(&after)), "{share}: {after:?}");
            assert!(guarded.path.look(guarded.start + Duration::from_secs(300), &[]) == BreakerOrder::Go(0), "{share}");
        }
    }

    #[test]
    fn who_takes_all_keeps_a_rate_through_a_loss_of_the_path_itself_until_next_to_nothing_arrives() {
        let mut guarded = Guarded::new(PathShare::All);
        for percent in [12, 20, 35] {
            assert_eq!(guarded.opens_after(percent, 60), None, "{percent} %");
        }
        assert!(guarded.opens_after(80, 20).is_some());
        let mut fair = Guarded::new(PathShare::Fair);
        assert!(fair.opens_after(20, 60).is_some(), "a fair share slows down before");
    }

    #[test]
    fn lanes_over_quic_that_are_not_heard_are_slowed_then_stopped_then_lost() {
        let mut guarded = Guarded::new(PathShare::Fair);
        (0..20).for_each(|_| assert_eq!(guarded.pass(Some(0)), BreakerOrder::Go(0)));
        let since = guarded.ms;
        let mut orders: Vec<(u64, BreakerOrder)> = Vec::new();
        while guarded.ms - since < 21_000 {
            let order = guarded.pass(None);
            if orders.last().is_none_or(|(_, before)| *before != order) {
                orders.push((guarded.ms - since, order));
            }
        }
        assert_eq!(orders[0].1, BreakerOrder::Go(0), "{orders:?}");
        assert!(matches!(orders[1], (200..500, BreakerOrder::Go(1..))), "{orders:?}");
        let ends = [BreakerOrder::Go(6), BreakerOrder::Probe, BreakerOrder::Lost];
        let last = &orders[orders.len() - 3..];
        assert_eq!(last.iter().map(|(_, order)| *order).collect::<Vec<_>>(), ends, "{orders:?}");
        assert!((3900..4200).contains(&last[1].0) && (19_900..20_200).contains(&last[2].0), "{orders:?}");
    }

    #[test]
    fn lanes_over_quic_with_nothing_on_their_way_owe_nothing() {
        let mut guarded = Guarded::new(PathShare::Fair);
        guarded.counters.flying = FEW_PACKETS * PACKET;
        (0..1000).for_each(|_| assert_eq!(guarded.pass(None), BreakerOrder::Go(0)));
    }

    #[test]
    fn bytes_make_whole_packets_however_they_come() {
        let mut whole = WholePackets::default();
        let found: u64 = (0..24).map(|_| whole.add(100, PACKET)).sum();
        assert_eq!((found, whole.packets, whole.rest), (2, 2, 0));
    }

    #[test]
    fn a_path_is_broken_from_the_look_that_finds_it_so_and_its_lanes_are_over() {
        let (now, ends) = (Instant::now(), (Some(1), None));
        let mut breakers = QuicBreakers::new(PathShare::Fair, PathPast::default());
        breakers.joined(now, LaneId(1), ends, ROUND_TRIP);
        let found = breakers.look(now, std::iter::empty());
        assert!(!breakers.is_broken() && found.orders.is_empty() && found.over.is_empty());
        assert!(breakers.paths[0].lanes.is_empty(), "it does not stand any more");
        breakers.open(now, (Some(2), None));
        assert!(breakers.is_broken());
    }

    #[test]
    fn a_session_over_quic_that_begins_while_the_breaker_of_an_earlier_one_is_open_is_broken() {
        let (now, past) = (Instant::now(), PathPast::default());
        past.broke(now, BreakerPast { times: 2, open: Duration::from_secs(60) });
        let breakers = || {
            let mut breakers = QuicBreakers::new(PathShare::Fair, past.clone());
            breakers.joined(now, LaneId(1), (Some(1), None), ROUND_TRIP);
            breakers.look(now, std::iter::empty());
            breakers
        };
        let mut first = breakers();
        assert!(first.is_broken());
        let again = first.look(now, std::iter::empty()).orders;
        assert!(matches!(again[..], [(_, BreakerOrder::Open(_))]), "said anew at each look: {again:?}");
        past.broke(now, BreakerPast { times: 2, open: Duration::ZERO });
        let next = breakers();
        assert!(!next.is_broken() && next.paths[0].breaker.past(Timestamp(0)).times == 2);
    }
}
