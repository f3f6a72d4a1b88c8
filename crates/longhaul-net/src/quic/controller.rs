//! The controller that tells quinn how much may be on its way: one of three congestion controls,
//! with counters, exchangeable in flight.
//!
//! Owns the [`Figures`] that a lane's handle and its socket read. Takes acknowledgements and losses
//! from quinn; gives it a window, and the socket's bucket a rate. Must not know sockets or lanes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quinn::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

use super::bucket::Bucket;
use super::rate::{RateControl, Round};

/// A congestion control that QUIC lanes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// The program's own, which holds a rate: see [`super::rate`].
    #[default]
    Rate,
    /// Quinn's.
    Bbr,
    Cubic,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::Rate, Algorithm::Bbr, Algorithm::Cubic];

    /// The name that users give.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Rate => "rate",
            Algorithm::Bbr => "bbr",
            Algorithm::Cubic => "cubic",
        }
    }

    /// The algorithm of this name.
    pub(crate) fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Counters and settings of a connection as a sender. Bytes are those of QUIC packets.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Bytes acknowledged so far.
    pub(crate) acked: AtomicU64,
    /// Bytes found lost so far.
    pub(crate) lost: AtomicU64,
    /// Bytes that may be on their way at a time.
    pub(crate) window: AtomicU64,
    /// The rate limit in bytes/s; 0 means no limit.
    ceiling: AtomicU64,
    /// The rate in bytes/s that the rate control last asked for; 0 if it asked for none.
    asked: AtomicU64,
    wanted: AtomicU8,
    /// The bucket that keeps the rate.
    pub(crate) bucket: Arc<Bucket>,
}

impl Figures {
    /// Asks for `algorithm` from now on.
    pub(crate) fn want(&self, algorithm: Algorithm) {
        let place = Algorithm::ALL.iter().position(|one| *one == algorithm).unwrap_or(0);
        self.wanted.store(place as u8, Ordering::Relaxed);
    }

    /// The algorithm that was last asked for.
    pub(crate) fn wanted(&self) -> Algorithm {
        Algorithm::ALL[usize::from(self.wanted.load(Ordering::Relaxed)) % Algorithm::ALL.len()]
    }

    /// Limits the rate to `ceiling` bytes/s from now on; `None` takes the limit away.
    pub(crate) fn set_ceiling(&self, ceiling: Option<u64>) {
        self.ceiling.store(ceiling.unwrap_or(0), Ordering::Relaxed);
        // Also where no acknowledgement comes that would bring the rate here.
        if ceiling.is_some() || self.wanted() != Algorithm::Rate {
            let asked = Some(self.asked.load(Ordering::Relaxed)).filter(|asked| *asked > 0);
            self.bucket.set_rate(ceiling.into_iter().chain(asked).min());
        }
    }

    fn ceiling(&self) -> Option<u64> {
        Some(self.ceiling.load(Ordering::Relaxed)).filter(|ceiling| *ceiling > 0)
    }
}

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
        let watched = Watched { inner: Inner::new(algorithm, now, mtu), figures, algorithm, mtu };
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
                self.figures.bucket.set_rate(self.figures.ceiling());
            }
        }
    }

    fn tell(&self) {
        self.figures.window.store(self.window(), Ordering::Relaxed);
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
        if let Inner::Quinn(inner) = &mut self.inner {
            inner.on_sent(now, bytes, last_packet_number);
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.figures.acked.fetch_add(bytes, Ordering::Relaxed);
        self.follow(now);
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
        match &mut self.inner {
            Inner::Quinn(inner) => inner.on_end_acks(now, in_flight, app_limited, largest),
            Inner::Rate(paced) => paced.look(now, &self.figures),
        }
        self.tell();
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.figures.lost.fetch_add(lost_bytes, Ordering::Relaxed);
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
        match &self.inner {
            Inner::Quinn(inner) => inner.window(),
            Inner::Rate(paced) => paced.window(self.figures.ceiling()).max(2 * u64::from(self.mtu)),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let inner = match &self.inner {
            Inner::Rate(paced) => Inner::Rate(paced.clone()),
            Inner::Quinn(inner) => Inner::Quinn(inner.clone_box()),
        };
        Box::new(Watched { figures: self.figures.clone(), algorithm: self.algorithm, inner, mtu: self.mtu })
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
        figures.bucket.set_rate(Some(rate as u64));
        (self.since, self.acked, self.lost, self.starved) = (now, 0, 0, false);
    }
}

/// The phase of its cycle in which the next controller begins.
static DICE: AtomicUsize = AtomicUsize::new(0);
/// The first window in packets of 1200 bytes; they are paced. RFC 6928 has ten of 1460, quinn's BBR
/// 200.
const INITIAL_PACKETS: u64 = 32;
/// The shortest round. Round trips within a host are noise.
const ROUND_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// MB that the bucket lets through in a second that begins `after` this many seconds. `None` if
    /// the bucket has no rate.
    fn lets_through(figures: &Figures, after: u64) -> Option<f64> {
        let mut now = Instant::now() + Duration::from_secs(after);
        let end = now + Duration::from_secs(1);
        let mut megabytes = 0.0;
        while megabytes < 1000.0 {
            match figures.bucket.take(now, 10_000) {
                Ok(()) => megabytes += 0.01,
                Err(until) if until > end => return Some(megabytes),
                Err(until) => now = until,
            }
        }
        None
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
        figures.bucket.set_rate(Some(1_000_000));
        let mut watched = Watched::new(figures.clone(), Instant::now(), 1200);
        figures.want(Algorithm::Cubic);
        watched.follow(Instant::now());
        assert_eq!(lets_through(&figures, 0), None, "quinn's own window is what limits");
        figures.set_ceiling(Some(50_000_000));
        assert!(lets_through(&figures, 10).is_some_and(|rate| (49.0..51.0).contains(&rate)));
    }
}
