//! A hold on a QUIC lane for another thread: the QUIC side of [`crate::LaneHandle`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_sys::tcp::ConnectionState;

use super::controller::Algorithm;
use super::stream::Shared;

/// A hold on a QUIC lane: see the module. Holding one does not keep the connection open.
#[derive(Clone)]
pub(crate) struct QuicHandle {
    shared: Weak<Shared>,
    last: Arc<Mutex<Seen>>,
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

impl QuicHandle {
    pub(crate) fn new(shared: &Arc<Shared>) -> QuicHandle {
        let now = Instant::now();
        let seen = Seen { stream_frames: 0, payload_at: now, datagrams: 0, sent: 0, waiting: None };
        QuicHandle {
            shared: Arc::downgrade(shared),
            last: Arc::new(Mutex::new(seen)),
            carried: shared.carried.clone(),
            stood: now,
        }
    }

    pub(crate) fn close(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.give_up();
        }
    }

    /// How long ago payload came in, accurate to the time between two calls.
    pub(crate) fn quiet(&self) -> Option<Duration> {
        let frames = self.shared.upgrade()?.connection.stats().frame_rx.stream;
        let mut seen = self.seen();
        if frames != seen.stream_frames {
            (seen.stream_frames, seen.payload_at) = (frames, Instant::now());
        }
        Some(seen.payload_at.elapsed())
    }

    /// How long the other end has answered nothing to what was sent, accurate to the time between
    /// two calls. A connection that lives answers each sign of life.
    pub(crate) fn unacknowledged(&self) -> Option<Duration> {
        let stats = self.shared.upgrade()?.connection.stats();
        let mut seen = self.seen();
        if stats.udp_rx.datagrams != seen.datagrams {
            (seen.datagrams, seen.sent, seen.waiting) = (stats.udp_rx.datagrams, stats.udp_tx.datagrams, None);
        } else if stats.udp_tx.datagrams != seen.sent {
            seen.waiting.get_or_insert_with(Instant::now);
        }
        seen.waiting.map(|since| since.elapsed())
    }

    /// The state in the kernel's terms, as far as they have a meaning here. How long something else
    /// was the limit is not known.
    pub(crate) fn state(&self) -> Option<ConnectionState> {
        let shared = self.shared.upgrade()?;
        shared.follow_peer();
        // A caller that asks for this each second hears of silence in time.
        let _ = self.quiet();
        let stats = shared.connection.stats();
        let count = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let mtu = u32::from(stats.path.current_mtu).max(1);
        Some(ConnectionState {
            acked: count(&shared.figures.acked),
            received: stats.udp_rx.bytes,
            sent: stats.udp_tx.bytes,
            resent: count(&shared.figures.lost),
            min_rtt: Some(stats.path.min_rtt),
            rtt: stats.path.rtt,
            window_segments: u32::try_from(stats.path.cwnd / u64::from(mtu)).unwrap_or(u32::MAX),
            segment_bytes: mtu,
            path_mtu: mtu + if shared.connection.remote_address().ip().to_canonical().is_ipv4() { 28 } else { 48 },
            busy: self.stood.elapsed(),
            delivery_rate: count(&shared.figures.delivered),
            ..ConnectionState::default()
        })
    }

    /// The bytes that a connection carried, once it is gone.
    pub(crate) fn carried(&self) -> u64 {
        self.carried.load(Ordering::Acquire)
    }

    pub(crate) fn set_pace(&self, bytes_per_s: Option<u64>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.figures.set_ceiling(bytes_per_s);
        }
    }

    pub(crate) fn set_window(&self, bytes: usize) {
        if let Some(shared) = self.shared.upgrade() {
            shared.set_window(bytes);
        }
    }

    pub(crate) fn set_congestion(&self, name: &str) -> bool {
        let wanted = self.shared.upgrade().zip(Algorithm::named(name));
        wanted.map(|(shared, algorithm)| shared.figures.want(algorithm)).is_some()
    }

    pub(crate) fn congestion(&self) -> Option<String> {
        self.shared.upgrade().map(|shared| shared.figures.wanted().name().to_owned())
    }

    pub(crate) fn is_within_host(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| {
            let peer = shared.connection.remote_address().ip().to_canonical();
            let local = shared.connection.local_ip().or(shared.local);
            peer.is_loopback() || local.is_some_and(|local| local.to_canonical() == peer)
        })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for QuicHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicHandle").finish_non_exhaustive()
    }
}
