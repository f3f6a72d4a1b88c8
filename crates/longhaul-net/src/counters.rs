//! The counters of a lane as a sender, in terms that every transport has.
//!
//! Plain data. Each transport fills it in from what it counts itself: TCP from the kernel, QUIC
//! from its connection. `engine` compares two of them to learn what a lane did in between.

use std::time::Duration;

/// A lane's counters at one moment. Bytes are those of the transport's payload, framing and
/// encryption included (for QUIC: those of its packets); they add up since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    /// Bytes that were sent, including repeats.
    pub sent: u64,
    /// Bytes that were sent again.
    pub resent: u64,
    /// Bytes that were given to the transport and not sent yet. 0 where it does not tell.
    pub unsent: u64,
    /// Bytes that the other host has acknowledged (over TCP one more for the opening, at the end
    /// that dialled).
    pub acked: u64,
    /// Bytes on their way, neither acknowledged nor found lost, as a congestion control of
    /// QUIC's has it. 0 where they are not counted.
    pub flying: u64,
    /// Bytes that were received.
    pub received: u64,
    /// The time to the other host and back.
    pub round_trip: RoundTrip,
    /// The packets of the lane.
    pub packets: Packets,
    /// The times for which the lane has waited.
    pub waits: SendWaits,
}

/// The time to the other host and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// The shortest of late. `None` before the first.
    pub min: Option<Duration>,
    /// The smoothed mean. 0 before the first.
    pub smoothed: Duration,
    /// The smoothed mean deviation (RFC 6298). 0 where it is not counted.
    pub deviation: Duration,
}

/// The packets of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Packets that the other host has, also those behind a gap that holds back
    /// [`LaneCounters::acked`]. Wraps around. `None` where they are not counted.
    pub delivered: Option<u32>,
    /// Packets that are on their way, or lost, and not acknowledged. 0 where they are not counted.
    pub unacked: u32,
    /// How often in a row the oldest packet was sent again because no answer came in time. 0 as
    /// soon as the other host acknowledges anything, and where it is not counted.
    pub timeouts: u8,
    /// Payload of one full packet, bytes. 0 if it is not known.
    pub payload_bytes: u32,
    /// The largest packet that the way to the other host takes, bytes. `None` if it is not known.
    pub path_mtu: Option<u32>,
}

/// The times for which a lane has waited. They add up since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWaits {
    /// Time in which there was something to send or to be acknowledged.
    pub busy: Duration,
    /// Part of [`SendWaits::busy`] in which the other host took no more. 0 where it is not counted.
    pub receiver: Duration,
    /// Part of [`SendWaits::busy`] in which this host's buffer was the limit. 0 where it is not
    /// counted.
    pub buffer: Duration,
}
