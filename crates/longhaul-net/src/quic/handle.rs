//! A hold on a QUIC lane for another thread: the QUIC side of [`crate::LaneHold`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_core::LaneId;

use super::FACTS;
use super::figures::Algorithm;
use super::stream::Shared;
use crate::counters::{LaneCounters, Packets, RoundTrip, SendWaits};
use crate::facts::TransportFacts;
use crate::handle::LaneHold;
use crate::shared_path::SharedPath;

/// A hold on a QUIC lane: see the module. Holding one does not keep the connection open.
pub(crate) struct QuicHold {
    shared: Weak<Shared>,
    last: Mutex<Seen>,
    carried: Arc<AtomicU64>,
    stood: Instant,
}

/// The counter at the last look, and the time when it last grew.
struct Seen {
    stream_frames: u64,
    payload_at: Instant,
    datagrams: u64,
    sent: u64,
    /// The time of the first datagram that was sent since the last one came.
    waiting: Option<Instant>,
}

impl QuicHold {
    pub(crate) fn new(shared: &Arc<Shared>) -> QuicHold {
        let now = Instant::now();
        let seen = Seen { stream_frames: 0, payload_at: now, datagrams: 0, sent: 0, waiting: None };
        QuicHold { shared: Arc::downgrade(shared), last: Mutex::new(seen), carried: shared.carried.clone(), stood: now }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaneHold for QuicHold {
    fn facts(&self) -> TransportFacts {
        FACTS
    }

    fn close(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.give_up();
        }
    }

    /// How long ago payload came in, accurate to the time between two calls.
    fn quiet(&self) -> Option<Duration> {
        let frames = self.shared.upgrade()?.connection.stats().frame_rx.stream;
        let mut seen = self.seen();
        if frames != seen.stream_frames {
            (seen.stream_frames, seen.payload_at) = (frames, Instant::now());
        }
        Some(seen.payload_at.elapsed())
    }

    /// How long the other end has answered nothing to what was sent, accurate to the time between
    /// two calls. A connection that lives answers each sign of life.
    fn unacknowledged(&self) -> Option<Duration> {
        let stats = self.shared.upgrade()?.connection.stats();
        let mut seen = self.seen();
        if stats.udp_rx.datagrams != seen.datagrams {
            (seen.datagrams, seen.sent, seen.waiting) = (stats.udp_rx.datagrams, stats.udp_tx.datagrams, None);
        } else if stats.udp_tx.datagrams != seen.sent {
            seen.waiting.get_or_insert_with(Instant::now);
        }
        seen.waiting.map(|since| since.elapsed())
    }

    /// The counters, as far as a connection has them. How long something else was the limit is not
    /// known.
    fn counters(&self) -> Option<LaneCounters> {
        let shared = self.shared.upgrade()?;
        // A caller that asks for this each second hears of silence in time.
        let _ = self.quiet();
        let stats = shared.connection.stats();
        let count = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let (path, payload_bytes) = (stats.path, u32::from(stats.path.current_mtu).max(1));
        let is_ipv4 = shared.connection.remote_address().ip().to_canonical().is_ipv4();
        Some(LaneCounters {
            sent: stats.udp_tx.bytes,
            resent: count(&shared.figures.lost),
            acked: count(&shared.figures.acked),
            flying: count(&shared.figures.flying),
            received: stats.udp_rx.bytes,
            round_trip: RoundTrip { min: Some(path.min_rtt), smoothed: path.rtt, ..RoundTrip::default() },
            packets: Packets {
                payload_bytes,
                path_mtu: Some(payload_bytes + if is_ipv4 { 28 } else { 48 }),
                ..Packets::default()
            },
            waits: SendWaits { busy: self.stood.elapsed(), ..SendWaits::default() },
            ..LaneCounters::default()
        })
    }

    fn carried_at_end(&self) -> u64 {
        self.carried.load(Ordering::Acquire)
    }

    fn set_pace(&self, bytes_per_s: Option<u64>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.figures.set_ceiling(bytes_per_s);
        }
    }

    fn set_scavenger(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.figures.set_scavenger();
        }
    }

    fn share_path(&self, path: &Arc<SharedPath>, lane: LaneId) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.figures.share(path, lane))
    }

    fn set_window(&self, bytes: usize) {
        if let Some(shared) = self.shared.upgrade() {
            shared.set_window(bytes);
        }
    }

    fn set_congestion(&self, name: &str) -> bool {
        let wanted = self.shared.upgrade().zip(Algorithm::named(name));
        wanted.map(|(shared, algorithm)| shared.figures.want(algorithm)).is_some()
    }

    fn congestion(&self) -> Option<String> {
        self.shared.upgrade().map(|shared| shared.figures.wanted().name().to_owned())
    }

    fn is_within_host(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| {
            let peer = shared.connection.remote_address().ip().to_canonical();
            let local = shared.connection.local_ip().or(shared.local);
            peer.is_loopback() || local.is_some_and(|local| local.to_canonical() == peer)
        })
    }
}

impl fmt::Debug for QuicHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicHold").finish_non_exhaustive()
    }
}
