//! Owns what is counted on each direction of a link. Takes increments from the pipe and the thread
//! that drives it, gives them to whoever asks, as JSON too. Must not know why anything happened.

use serde::Serialize;

/// What happened in one direction so far. Packets are wire packets: a super-packet counts as its
/// segments; bytes include the IP header, and not [`Path::overhead`](crate::Path::overhead).
///
/// Once nothing is under way, `packets + duplicated` is `delivered_packets` and all that was
/// dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that the sending host handed over.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// In how many pieces they came: super-packets of up to 64 KiB, if the sender has offloads.
    pub frames: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Lost on the wire.
    pub dropped_loss: u64,
    /// Sent or under way while the link was down.
    pub dropped_outage: u64,
    /// Of a protocol that is blocked.
    pub dropped_blocked: u64,
    /// Larger than the hole in the path lets through.
    pub dropped_hole: u64,
    /// Dropped because the emulator's memory was used up, or the receiving host's device refused
    /// them: never by the path. Anything above 0 means that the emulation was not true.
    pub dropped_emulator: u64,
    /// Dropped by the sending host's device before the emulator saw them, in frames: it was not
    /// fast enough. Likewise.
    pub dropped_device: u64,
    /// Arrived with a changed bit and a checksum that tells.
    pub corrupted: u64,
    /// Arrived with a changed bit and a checksum that fits.
    pub corrupted_silently: u64,
    /// Arrived a second time.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Most bytes that ever waited for the rate, with overhead.
    pub queue_bytes_max: u64,
    /// Packets that arrived, copies included.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// In how many pieces they arrived.
    pub delivered_frames: u64,
    /// By how much the emulator was ever late in delivering, in microseconds: its machine's share
    /// in what looks like the path.
    pub late_us_max: u64,
    /// The sum over all pieces, in nanoseconds; see [`Counters::late_us_mean`].
    pub late_ns_sum: u64,
    /// Processor time of the thread that moves this direction, in microseconds: the emulator's own,
    /// and the receiving host's network stack, which runs in it.
    pub cpu_us: u64,
}

impl Counters {
    /// By how much a piece was late on average, in microseconds.
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

/// Both directions of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// From near to far.
    pub forward: Counters,
    /// From far to near.
    pub backward: Counters,
}
