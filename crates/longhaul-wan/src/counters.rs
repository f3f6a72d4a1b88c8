//! Owns the counters of each direction of a link. Takes increments from the pipe and the thread
//! that drives it, gives the counts to callers, as JSON too. Must not know why anything happened.

use serde::Serialize;

/// The counts of one direction so far. Packets are wire packets: a super-packet counts as its
/// segments. Bytes include the IP header, and not [`Path::overhead`](crate::Path::overhead).
///
/// Once nothing is under way, `packets + duplicated` is `delivered_packets` plus all dropped
/// packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that the sending host handed over.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The pieces in which they came: super-packets of up to 64 KiB, if the sender has offloads.
    pub frames: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue: u64,
    /// Packets lost on the wire.
    pub dropped_loss: u64,
    /// Packets dropped because they were sent or under way while the link was down.
    pub dropped_outage: u64,
    /// Packets dropped because their protocol is blocked.
    pub dropped_blocked: u64,
    /// Packets dropped because they are larger than [`Path::hole`](crate::Path::hole).
    pub dropped_hole: u64,
    /// Packets dropped because the emulator's memory was used up, or the receiving host's device
    /// refused them: never by the path. A number above 0 means that the emulation was not true.
    pub dropped_emulator: u64,
    /// Frames dropped by the sending host's device before the emulator saw them: the emulator was
    /// not fast enough. A number above 0 means that the emulation was not true.
    pub dropped_device: u64,
    /// Packets that arrived with a changed bit and a checksum that tells.
    pub corrupted: u64,
    /// Packets that arrived with a changed bit and a checksum that fits.
    pub corrupted_silently: u64,
    /// Packets that arrived a second time.
    pub duplicated: u64,
    /// Packets that were held back.
    pub reordered: u64,
    /// The most bytes that ever waited for the rate, with overhead.
    pub queue_bytes_max: u64,
    /// Packets that arrived, copies included.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// The pieces in which they arrived.
    pub delivered_frames: u64,
    /// The longest delay that the emulator itself added to a delivery, in microseconds: its
    /// machine's share in the delay of the path.
    pub late_us_max: u64,
    /// The sum of such delays over all pieces, in nanoseconds; see [`Counters::late_us_mean`].
    pub late_ns_sum: u64,
    /// Processor time of the thread that moves this direction, in microseconds: the emulator's own,
    /// and the receiving host's network stack, which runs in it.
    pub cpu_us: u64,
}

impl Counters {
    /// The mean delay that the emulator itself added to a piece, in microseconds.
    #[must_use]
    pub fn late_us_mean(&self) -> f64 {
        self.late_ns_sum as f64 / 1000.0 / self.delivered_frames.max(1) as f64
    }

    /// All packets that did not arrive.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_queue
            + self.dropped_loss
            + self.dropped_outage
            + self.dropped_blocked
            + self.dropped_hole
            + self.dropped_emulator
    }
}

/// The counters of both directions of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// The counters from near to far.
    pub forward: Counters,
    /// The counters from far to near.
    pub backward: Counters,
}
