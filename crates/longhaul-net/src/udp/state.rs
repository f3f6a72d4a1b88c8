//! A hold on a UDP lane for other threads.
//!
//! Owns what the lane's thread tells of the lane, and the word to close it. In: figures from the
//! lane's thread, which alone knows them. Out: counters. It must not know how they come about.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::FACTS;
use super::carrier::LaneSocket;
use super::lane::CAPABLE;
use crate::counters::{LaneCounters, Packets, RoundTrip, SendWaits};
use crate::facts::TransportFacts;
use crate::handle::LaneHold;
use crate::tcp::LOWER_EFFORT;

/// A hold on a UDP lane. Clones hold the same lane; none keeps its socket open.
#[derive(Clone, Debug)]
pub struct UdpHandle(Arc<UdpState>);

/// A figure of a lane that its thread knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum UdpFigure {
    /// Bytes of datagrams that were sent.
    Sent,
    /// Payload that was sent again.
    Resent,
    /// Payload that the other end says it has.
    Acked,
    /// Bytes of datagrams that came from the other end: they opened, and did not come before.
    Received,
    /// Packets that the other end says came.
    Delivered,
    /// Pieces on their way.
    Unacked,
    /// The smoothed round trip, us.
    RttUs,
    /// Its mean deviation, us.
    RttDeviationUs,
    /// The shortest round trip of late, us; 0 before the first.
    RttMinUs,
    /// Payload of a full datagram, bytes.
    DatagramBytes,
    /// Time in which the other end took no more, us.
    ReceiverLimitedUs,
    /// When something came last, us since the lane was made.
    HeardUs,
    /// When the first datagram was sent that nothing came after, us since the lane was made and one
    /// more; 0 if something came since.
    WaitingUs,
    /// Datagrams that came and that the socket had no room for.
    Dropped,
    /// Packets that did not open.
    Forged,
    /// Joins of this lane, or answers to its join, that came once more, as far as late answers
    /// explain them. Counted by the end that receives files.
    JoinedAgain,
}

const FIGURES: usize = UdpFigure::JoinedAgain as usize + 1;

#[derive(Debug)]
struct UdpState {
    socket: Weak<LaneSocket>,
    closed: AtomicBool,
    figures: [AtomicU64; FIGURES],
    made: Instant,
    within_host: bool,
}

impl UdpHandle {
    /// A hold on the lane of this socket.
    pub(crate) fn new(socket: &Arc<LaneSocket>) -> UdpHandle {
        let ends = || Some((socket.local_addr()?.ip(), socket.peer_addr()?.ip()));
        let within_host = ends().is_some_and(|(local, peer)| {
            peer.to_canonical().is_loopback() || local.to_canonical() == peer.to_canonical()
        });
        UdpHandle(Arc::new(UdpState {
            socket: Arc::downgrade(socket),
            closed: AtomicBool::new(false),
            figures: [const { AtomicU64::new(0) }; FIGURES],
            made: Instant::now(),
            within_host,
        }))
    }

    /// Ends the lane: calls on it give [`crate::NetError::Closed`], also those that wait.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        if let Some(socket) = self.0.socket.upgrade() {
            socket.end_receiving();
        }
    }

    /// Whether [`UdpHandle::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Whether both ends are addresses of this host.
    pub fn is_within_host(&self) -> bool {
        self.0.within_host
    }

    /// A figure.
    pub fn get(&self, figure: UdpFigure) -> u64 {
        self.0.figures[figure as usize].load(Ordering::Relaxed)
    }

    /// Says a figure anew.
    pub fn set(&self, figure: UdpFigure, value: u64) {
        self.0.figures[figure as usize].store(value, Ordering::Relaxed);
    }

    /// Adds to a figure. Only the lane's thread calls it.
    pub fn add(&self, figure: UdpFigure, more: u64) {
        self.set(figure, self.get(figure).wrapping_add(more));
    }

    /// Microseconds since the lane was made.
    fn now_us(&self) -> u64 {
        self.0.made.elapsed().as_micros() as u64
    }

    /// Datagrams of so many bytes came from the other end: they opened, and did not come before.
    /// Anybody can send others, and they are no sign of life. Only the lane's thread calls it.
    pub fn heard(&self, bytes: u64) {
        self.add(UdpFigure::Received, bytes);
        self.set(UdpFigure::HeardUs, self.now_us());
        self.set(UdpFigure::WaitingUs, 0);
    }

    /// Datagrams of so many bytes were sent.
    pub(crate) fn said(&self, bytes: u64) {
        self.add(UdpFigure::Sent, bytes);
        if self.get(UdpFigure::WaitingUs) == 0 {
            self.set(UdpFigure::WaitingUs, self.now_us() + 1);
        }
    }

    /// How long ago anything came in.
    pub fn quiet(&self) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(self.get(UdpFigure::HeardUs)))
    }

    /// How long nothing has come in since something was sent. `None` if something came since.
    pub fn unacknowledged(&self) -> Option<Duration> {
        let since = self.get(UdpFigure::WaitingUs).checked_sub(1)?;
        Some(Duration::from_micros(self.now_us().saturating_sub(since)))
    }

    /// Bytes that the lane has carried: acknowledged, or received.
    pub fn carried(&self) -> u64 {
        self.get(UdpFigure::Acked).wrapping_add(self.get(UdpFigure::Received))
    }

    /// The counters now, or when the lane ended.
    pub fn counters(&self) -> LaneCounters {
        let us = |figure| Duration::from_micros(self.get(figure));
        let narrow = |figure| self.get(figure) as u32;
        LaneCounters {
            sent: self.get(UdpFigure::Sent),
            resent: self.get(UdpFigure::Resent),
            acked: self.get(UdpFigure::Acked),
            received: self.get(UdpFigure::Received),
            round_trip: RoundTrip {
                min: Some(us(UdpFigure::RttMinUs)).filter(|rtt| !rtt.is_zero()),
                smoothed: us(UdpFigure::RttUs),
                deviation: us(UdpFigure::RttDeviationUs),
            },
            packets: Packets {
                delivered: Some(narrow(UdpFigure::Delivered)),
                unacked: narrow(UdpFigure::Unacked),
                // A lane repairs by what statuses say, and is lost if none comes for long enough.
                timeouts: 0,
                payload_bytes: narrow(UdpFigure::DatagramBytes),
                path_mtu: None,
            },
            waits: SendWaits {
                busy: self.0.made.elapsed(),
                receiver: us(UdpFigure::ReceiverLimitedUs),
                ..SendWaits::default()
            },
            ..LaneCounters::default()
        }
    }
}

impl LaneHold for UdpHandle {
    fn facts(&self) -> TransportFacts {
        FACTS
    }

    fn close(&self) {
        UdpHandle::close(self);
    }

    fn quiet(&self) -> Option<Duration> {
        (!self.is_closed()).then(|| UdpHandle::quiet(self))
    }

    fn counters(&self) -> Option<LaneCounters> {
        (self.0.socket.strong_count() > 0).then(|| UdpHandle::counters(self))
    }

    fn carried_at_end(&self) -> u64 {
        UdpHandle::carried(self)
    }

    fn unacknowledged(&self) -> Option<Duration> {
        UdpHandle::unacknowledged(self)
    }

    fn is_within_host(&self) -> bool {
        UdpHandle::is_within_host(self)
    }

    /// The account of the rate, on which all lanes of a session draw, is all that paces them: they
    /// send no bursts that the kernel could spread.
    fn set_pace(&self, _bytes_per_s: Option<u64>) {}

    fn set_scavenger(&self) {
        if let Some(socket) = self.0.socket.upgrade() {
            // Marks of a full path are wanted all the same.
            let _ = socket.set_class(LOWER_EFFORT | CAPABLE);
        }
    }

    fn congestion(&self) -> Option<String> {
        None
    }

    fn set_congestion(&self, _name: &str) -> bool {
        false
    }
}
