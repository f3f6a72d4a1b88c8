//! The controller that tells quinn how much may be on its way: one of three congestion controls,
//! with counters, exchangeable in flight; or the control of a path that the lanes of a session
//! share.
//!
//! Takes acknowledgements and losses from quinn; gives it a window, the bucket a rate, and
//! [`Figures`] to whoever else wants to know. Outside of the lane's turns the window is closed, so
//! that quinn makes no packet that would have to wait. Must not know sockets or lanes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quinn::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

use super::driver::Outgoing;
use super::figures::{Algorithm, Figures};
use super::rate::{RateControl, Round};
use super::sight::Sight;

/// Makes the [`Watched`] of one connection.
#[derive(Debug)]
pub(crate) struct Factory(pub(crate) Arc<Figures>);

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Watched::new(self.0.clone(), now, mtu))
    }
}

/// The congestion control in use, and its counters.
struct Watched {
    figures: Arc<Figures>,
    algorithm: Algorithm,
    inner: Inner,
    mtu: u16,
    sight: Sight,
    /// When an acknowledgement came last, or the first bytes left since all had come.
    heard: Instant,
}

enum Inner {
    Rate(Paced),
    Quinn(Box<dyn Controller>),
}

/// The rate control between quinn's callbacks.
#[derive(Clone)]
struct Paced {
    control: Option<RateControl>,
    since: Instant,
    acked: u64,
    lost: u64,
    starved: bool,
    rtt: Duration,
    min_rtt: Duration,
    initial_window: u64,
}

impl Watched {
    fn new(figures: Arc<Figures>, now: Instant, mtu: u16) -> Watched {
        let algorithm = figures.wanted();
        let inner = Inner::new(algorithm, now, mtu);
        let watched = Watched { inner, figures, algorithm, mtu, sight: Sight::default(), heard: now };
        // On a new path nothing is on its way.
        watched.figures.place().into_iter().for_each(|place| place.correct(0));
        watched.tell();
        watched
    }

    /// Takes up the algorithm that the handle asks for.
    fn follow(&mut self, now: Instant) {
        let wanted = self.figures.wanted();
        if wanted != self.algorithm {
            self.algorithm = wanted;
            self.inner = Inner::new(wanted, now, self.mtu);
            if wanted != Algorithm::Rate {
                self.figures.asked.store(0, Ordering::Relaxed);
                self.figures.bucket.set_rate(now, self.figures.ceiling());
            }
        }
    }

    /// Notes that so many bytes were sent. A lane that is not heard leaves its path to the others:
    /// else what it sent in vain would be all that may be on its way there.
    fn note_sent(&mut self, now: Instant, bytes: u64) {
        let packet = u64::from(self.mtu);
        if self.sight.seen.flying <= FEW_PACKETS * packet {
            self.heard = now;
        }
        self.sight.sent(bytes, self.mtu);
        self.figures.flying.store(self.sight.seen.flying, Ordering::Relaxed);
        let Some(place) = self.figures.place() else { return };
        let is_heard = now.saturating_duration_since(self.heard) <= self.sight.answers_within();
        // Less may be an acknowledgement alone, which nobody answers.
        if is_heard || bytes < packet / 2 {
            place.sent(bytes);
        } else {
            place.silence();
        }
    }

    fn tell(&self) {
        self.figures.window.store(self.span(), Ordering::Relaxed);
        self.figures.flying.store(self.sight.seen.flying, Ordering::Relaxed);
    }

    /// Bytes that may be on their way.
    fn span(&self) -> u64 {
        match (&self.inner, self.figures.place()) {
            (Inner::Quinn(inner), _) => inner.window(),
            (Inner::Rate(_), Some(place)) => place.flight(),
            (Inner::Rate(paced), None) => paced.window(self.figures.ceiling()),
        }
        .max(2 * u64::from(self.mtu))
    }
}

impl Inner {
    fn new(algorithm: Algorithm, now: Instant, mtu: u16) -> Inner {
        match algorithm {
            Algorithm::Rate => Inner::Rate(Paced {
                control: None,
                since: now,
                acked: 0,
                lost: 0,
                starved: false,
                rtt: Duration::ZERO,
                min_rtt: Duration::ZERO,
                initial_window: INITIAL_PACKETS * u64::from(mtu),
            }),
            Algorithm::Bbr => Inner::Quinn(Arc::new(BbrConfig::default()).build(now, mtu)),
            Algorithm::Cubic => Inner::Quinn(Arc::new(CubicConfig::default()).build(now, mtu)),
        }
    }
}

impl Controller for Watched {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.note_sent(now, bytes);
        if let Inner::Quinn(inner) = &mut self.inner {
            inner.on_sent(now, bytes, last_packet_number);
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.figures.acked.fetch_add(bytes, Ordering::Relaxed);
        self.follow(now);
        self.sight.acked(bytes, (rtt.get(), rtt.min()));
        match &mut self.inner {
            Inner::Quinn(inner) => inner.on_ack(now, sent, bytes, app_limited, rtt),
            Inner::Rate(paced) => {
                paced.acked += bytes;
                paced.starved |= app_limited;
                (paced.rtt, paced.min_rtt) = (rtt.get(), rtt.min());
            }
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.heard = now;
        self.sight.end_acks(in_flight, self.mtu);
        self.sight.seen.is_starved |= app_limited;
        if let Some(place) = self.figures.place() {
            place.observe(now, &self.sight.take(self.mtu));
        }
        match &mut self.inner {
            Inner::Quinn(inner) => inner.on_end_acks(now, in_flight, app_limited, largest),
            Inner::Rate(paced) => paced.look(now, &self.figures),
        }
        self.tell();
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.figures.lost.fetch_add(lost_bytes, Ordering::Relaxed);
        self.sight.lost(lost_bytes, self.mtu);
        // Quinn finds losses after the last call with what is on its way. If nothing is any more,
        // no timer would ever open a window that stays closed.
        self.figures.place().into_iter().for_each(|place| place.correct(self.sight.seen.flying));
        match &mut self.inner {
            Inner::Quinn(inner) => inner.on_congestion_event(now, sent, is_persistent, lost_bytes),
            Inner::Rate(paced) => {
                paced.lost += lost_bytes;
                if let Some(control) = paced.control.as_mut().filter(|_| is_persistent) {
                    control.cut_off();
                }
            }
        }
        self.tell();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        if let Inner::Quinn(inner) = &mut self.inner {
            inner.on_mtu_update(new_mtu);
        }
    }

    fn window(&self) -> u64 {
        let figures = &self.figures;
        Outgoing::note_lane(figures);
        if !figures.has_turn() {
            return CLOSED;
        }
        let place = figures.place();
        if place.is_some_and(|place| !place.has_room()) {
            figures.note_full();
            return CLOSED;
        }
        // Quinn paces by a window that is not open. The turns do that already.
        let span = self.span();
        match &self.inner {
            Inner::Rate(_) if place.is_some() || self.sight.seen.flying + NEAR_BYTES < span => OPEN,
            _ => span,
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.span();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let inner = match &self.inner {
            Inner::Rate(paced) => Inner::Rate(paced.clone()),
            Inner::Quinn(inner) => Inner::Quinn(inner.clone_box()),
        };
        Box::new(Watched { figures: self.figures.clone(), inner, ..*self })
    }

    fn initial_window(&self) -> u64 {
        match &self.inner {
            Inner::Quinn(inner) => inner.initial_window(),
            Inner::Rate(paced) => paced.initial_window,
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Paced {
    fn window(&self, ceiling: Option<u64>) -> u64 {
        match &self.control {
            None => self.initial_window,
            Some(control) => (control.window(ceiling.map(|rate| rate as f64)) as u64).max(self.initial_window),
        }
    }

    /// Ends the round when it has lasted for a round trip.
    fn look(&mut self, now: Instant, figures: &Figures) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < self.rtt.max(ROUND_MIN) || self.acked == 0 {
            return;
        }
        let ceiling = figures.ceiling().map(|rate| rate as f64);
        let (rtt, initial) = (self.rtt, self.initial_window);
        let control = self.control.get_or_insert_with(|| {
            let rate = initial as f64 / rtt.as_secs_f64().max(1e-4);
            RateControl::new(
                ceiling.map_or(rate, |ceiling| rate.min(ceiling)),
                rtt,
                DICE.fetch_add(1, Ordering::Relaxed),
            )
        });
        let round = Round {
            seconds: elapsed.as_secs_f64(),
            acked: self.acked,
            lost: self.lost,
            starved: self.starved,
            rtt,
            min_rtt: self.min_rtt,
        };
        control.round(&round, ceiling);
        let rate = ceiling.map_or(control.rate(), |ceiling| control.rate().min(ceiling));
        figures.asked.store(control.rate() as u64, Ordering::Relaxed);
        figures.bucket.set_rate(now, Some(rate as u64));
        (self.since, self.acked, self.lost, self.starved) = (now, 0, 0, false);
    }
}

/// A window that admits nothing, and one that admits all: beyond 4 GiB quinn does not pace.
const CLOSED: u64 = 1;
const OPEN: u64 = 1 << 40;
/// A connection is held to its window while that has so many bytes of room: quinn makes no more at
/// a time.
const NEAR_BYTES: u64 = 256 << 10;
/// Packets on their way that may be none, if there are no more: nobody tells of the end of
/// acknowledgements and of probes of the MTU.
const FEW_PACKETS: u64 = 2;
/// The phase of its cycle in which the next controller begins.
static DICE: AtomicUsize = AtomicUsize::new(0);
/// The first window in packets of 1200 bytes; they are paced. RFC 6928 has ten of 1460, quinn's BBR
/// 200.
const INITIAL_PACKETS: u64 = 32;
/// The shortest round. Round trips within a host are noise.
const ROUND_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use longhaul_core::LaneId;

    use super::*;
    use crate::shared_path::{PathControl, PathOrder, PathSeen, SharedPath};

    /// MB/s that the bucket lets through some seconds from now. `None` if it has no rate.
    fn lets_through(figures: &Figures, after: u64) -> Option<f64> {
        let now = Instant::now() + Duration::from_secs(after);
        let first = figures.bucket().turn(now)?;
        let next = figures.bucket().turn(now)?;
        let seconds = (next.at() - first.at()).as_secs_f64();
        Some(first.left() as f64 / 1e6 / seconds)
    }

    #[test]
    fn a_ceiling_never_lets_through_more_than_the_rate_control_asked_for() {
        let figures = Arc::new(Figures::default());
        figures.set_ceiling(Some(50_000_000));
        assert!(lets_through(&figures, 0).is_some_and(|rate| (49.0..51.0).contains(&rate)));
        // A round in which nearly nothing was delivered, as it had only begun.
        let mut watched = Watched::new(figures.clone(), Instant::now(), 1200);
        let Inner::Rate(paced) = &mut watched.inner else { panic!("the default") };
        (paced.rtt, paced.min_rtt, paced.acked) = (Duration::from_millis(100), Duration::from_millis(100), 200_000);
        paced.look(paced.since + Duration::from_millis(100), &figures);
        let asked = figures.asked.load(Ordering::Relaxed) as f64 / 1e6;
        assert!((0.1..10.0).contains(&asked), "{asked}");
        figures.set_ceiling(Some(60_000_000));
        let rate = lets_through(&figures, 10).expect("a rate");
        assert!((rate - asked).abs() < asked / 10.0, "{rate}, not {asked}");
    }

    #[test]
    fn what_the_rate_control_asked_for_is_forgotten_with_it() {
        let figures = Arc::new(Figures::default());
        figures.asked.store(1_000_000, Ordering::Relaxed);
        figures.bucket.set_rate(Instant::now(), Some(1_000_000));
        let mut watched = Watched::new(figures.clone(), Instant::now(), 1200);
        figures.want(Algorithm::Cubic);
        watched.follow(Instant::now());
        assert_eq!(lets_through(&figures, 0), None, "quinn's own window is what limits");
        figures.set_ceiling(Some(50_000_000));
        assert!(lets_through(&figures, 10).is_some_and(|rate| (49.0..51.0).contains(&rate)));
    }

    #[test]
    fn a_connection_sends_in_its_turns_alone_and_while_its_path_has_room() {
        let figures = Arc::new(Figures::default());
        let mut watched = Watched::new(figures.clone(), Instant::now(), 1200);
        assert!(watched.window() > 1200, "nobody gives turns yet");
        figures.begin_poll(1000);
        assert!(watched.window() > 1200);
        figures.charge(1500);
        assert_eq!((watched.window(), figures.end_poll()), (CLOSED, (-500, false)));
        let path = SharedPath::new(Box::new(Same), ORDER);
        figures.share(&path, LaneId(1));
        figures.begin_poll(1 << 20);
        assert_eq!(watched.window(), OPEN);
        watched.on_sent(Instant::now(), 20_000, 9);
        assert_eq!((watched.window(), figures.end_poll().1), (CLOSED, true), "10,000 may be on their way");
        watched.on_end_acks(Instant::now(), 5000, false, Some(3));
        assert_eq!((watched.window(), watched.span()), (OPEN, 10_000));
        let rate = lets_through(&figures, 0).expect("the path's");
        assert!((49.0..51.0).contains(&rate), "{rate}");
    }

    /// A lane of a path on which 10,000 bytes may be on their way, with a round trip of 100 ms.
    fn lane(path: &Arc<SharedPath>, id: u32, now: Instant) -> Watched {
        let figures = Arc::new(Figures::default());
        figures.share(path, LaneId(id));
        figures.begin_poll(1 << 20);
        let mut watched = Watched::new(figures, now, 1200);
        watched.sight.smoothed = Duration::from_millis(100);
        watched
    }

    #[test]
    fn after_all_that_was_on_its_way_is_lost_a_lane_sends_again() {
        let now = Instant::now();
        let mut watched = lane(&SharedPath::new(Box::new(Same), ORDER), 1, now);
        watched.on_sent(now, 20_000, 9);
        // A probe of 2,000 bytes came after an outage.
        watched.on_end_acks(now, 18_000, false, Some(9));
        assert_eq!(watched.window(), CLOSED);
        watched.on_congestion_event(now, now, true, 18_000);
        assert_eq!((watched.window(), watched.sight.seen.flying), (OPEN, 0));
    }

    #[test]
    fn a_lane_that_is_not_heard_leaves_the_path_to_the_others() {
        let (now, path) = (Instant::now(), SharedPath::new(Box::new(Same), ORDER));
        let at = |ms| now + Duration::from_millis(ms);
        let (mut dead, healthy) = (lane(&path, 1, now), lane(&path, 2, now));
        dead.on_sent(at(0), 20_000, 9);
        dead.on_sent(at(200), 1200, 10);
        assert_eq!(healthy.window(), CLOSED, "an acknowledgement may be on its way");
        dead.on_sent(at(300), 60, 11);
        assert_eq!(healthy.window(), CLOSED, "this was an acknowledgement, for all that is known");
        dead.on_sent(at(400), 1200, 12);
        assert_eq!((healthy.window(), dead.window()), (OPEN, CLOSED));
        dead.on_end_acks(at(500), 1200, false, Some(12));
        assert_eq!((healthy.window(), dead.window()), (OPEN, OPEN));
    }

    #[test]
    fn a_lane_that_sends_after_a_pause_is_not_taken_for_one_that_is_not_heard() {
        let now = Instant::now();
        let mut watched = lane(&SharedPath::new(Box::new(Same), ORDER), 1, now);
        watched.on_sent(now, 5000, 4);
        watched.on_end_acks(now, 0, false, Some(4));
        let later = now + Duration::from_secs(60);
        watched.on_sent(later, 5000, 8);
        watched.on_sent(later + Duration::from_millis(1), 1200, 9);
        assert_eq!(watched.window(), OPEN);
    }

    const ORDER: PathOrder = PathOrder { rate: 50_000_000, flight: 10_000 };

    /// Says always the same.
    #[derive(Debug)]
    struct Same;

    impl PathControl for Same {
        fn observe(&self, _lane: LaneId, _seen: &PathSeen) -> PathOrder {
            ORDER
        }

        fn leave(&self, _lane: LaneId) {}
    }
}
