//! Owns the settings of one direction of a link: rate, delay, queue, and everything that can happen
//! to a packet. Takes numbers from the caller, gives them to the pipe and the dice. Must not know
//! packets, time or devices.

use std::time::Duration;

use crate::Rate;

/// One direction of a link. [`Path::default`] carries everything at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The data that passes per second, counted in whole packets with their IP headers and
    /// `overhead`. Default (`None`): no limit.
    pub rate: Option<Rate>,
    /// The time from the end of a packet's serialisation to its arrival: half a round trip if both
    /// directions are alike. Default: 0.
    pub delay: Duration,
    /// The bytes that may wait for the rate; further packets are dropped at the tail. Default: 1
    /// BDP. Without a rate nothing waits. Or, in a queue's place, the bucket of a policer.
    pub queue: Queue,
    /// Packets that vanish behind the queue. Default: none.
    pub loss: Loss,
    /// Share of packets that arrive twice, the copy right behind. Default: 0.
    pub duplicate: f64,
    /// Share of packets that are held back by `reorder_by`, so that later ones pass them. Default:
    /// 0.
    pub reorder: f64,
    /// The time for which a packet is held back. Default: 1 ms.
    pub reorder_by: Duration,
    /// Share of packets in which a bit changes and the checksum tells. Default: 0.
    pub corrupt: f64,
    /// Share of packets in which a bit of the payload changes and the checksum is made to fit: only
    /// the receiving program can notice. Packets without payload of TCP or UDP are spared. Default:
    /// 0.
    pub corrupt_silently: f64,
    /// The protocols that a firewall swallows. Default: nothing.
    pub blocked: Blocked,
    /// Packets with more bytes than this vanish silently: a hole in path MTU discovery. Default:
    /// `None`, no hole.
    pub hole: Option<u32>,
    /// Bytes that each packet costs on the wire besides its own, like 38 for Ethernet's framing.
    /// Default: 0.
    pub overhead: u32,
    /// Whether the link is down: no packet arrives, and packets under way are lost. Default: false.
    pub down: bool,
}

/// The size of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queue {
    /// This many bytes.
    Bytes(u64),
    /// This many times the bytes under way at full rate in twice the delay, but at least
    /// [`QUEUE_BYTES_MIN`].
    Bdp(f64),
    /// No queue but a policer: packets pass at once as long as its bucket, which holds so many
    /// bytes and is filled at the rate, has as many, and are dropped otherwise.
    Bucket(u64),
}

/// The way in which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each packet is lost by itself, with this probability.
    Independent(f64),
    /// Packets are lost by a path that is good or bad for a while (Gilbert and Elliott).
    Bursts(Bursts),
}

/// Gilbert and Elliott's chain of two states. Each packet is lost with its state's probability,
/// then the state may change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// Probability that good turns bad after a packet.
    pub enter: f64,
    /// Probability that bad turns good after a packet: bad times last for `1 / leave` packets on
    /// average.
    pub leave: f64,
    /// Probability of loss in the bad state.
    pub bad: f64,
    /// Probability of loss in the good state.
    pub good: f64,
}

/// Protocols that do not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocked {
    /// All of TCP.
    pub tcp: bool,
    /// All of UDP: the firewall that QUIC meets.
    pub udp: bool,
    /// UDP that is not QUIC: the firewall that lets nothing through which it does not know.
    pub strange_udp: bool,
    /// All of ICMP, version 4 and 6: errors and echoes.
    pub icmp: bool,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            rate: None,
            delay: Duration::ZERO,
            queue: Queue::Bdp(1.0),
            loss: Loss::Independent(0.0),
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(1),
            corrupt: 0.0,
            corrupt_silently: 0.0,
            blocked: Blocked::default(),
            hole: None,
            overhead: 0,
            down: false,
        }
    }
}

impl Path {
    /// Bytes that may wait; without a rate no packet is dropped.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        match (self.queue, self.rate) {
            (_, None) => u64::MAX,
            (Queue::Bytes(bytes) | Queue::Bucket(bytes), _) => bytes,
            (Queue::Bdp(times), Some(rate)) => {
                let bdp = rate.bytes_in(nanos(self.delay).saturating_mul(2));
                ((bdp as f64 * times) as u64).max(QUEUE_BYTES_MIN)
            }
        }
    }

    /// Bytes that can be held at a time, waiting and under way; without a rate they are bounded all
    /// the same.
    pub(crate) fn held_bytes(&self) -> u64 {
        let Some(rate) = self.rate else { return HELD_BYTES_UNLIMITED };
        let held_back = if self.reorder > 0.0 { self.reorder_by } else { Duration::ZERO };
        self.queue_bytes().saturating_add(rate.bytes_in(nanos(self.delay + held_back)))
    }

    /// Whether no dice are needed: each packet leaves as it came.
    pub(crate) fn is_even(&self) -> bool {
        let chances = [self.duplicate, self.reorder, self.corrupt, self.corrupt_silently];
        self.loss == Loss::Independent(0.0) && chances.iter().all(|chance| *chance == 0.0)
    }
}

impl Loss {
    /// Bursts of `packets` packets on average in which all are lost, so often that `share` of all
    /// packets is.
    #[must_use]
    pub fn in_bursts(share: f64, packets: f64) -> Loss {
        let leave = 1.0 / packets.max(1.0);
        // In the long run `enter / (enter + leave)` of all packets meet the bad state.
        let enter = if share < 1.0 { (share * leave / (1.0 - share)).min(1.0) } else { 1.0 };
        Loss::Bursts(Bursts { enter, leave, bad: 1.0, good: 0.0 })
    }
}

/// The time in whole nanoseconds; the longest is centuries.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The least that a queue measured in BDPs holds: a path without delay has no BDP, and a router on
/// it has a buffer all the same.
pub const QUEUE_BYTES_MIN: u64 = 256 * 1024;
/// The most that a direction without a rate holds: 100 ms at 20 Gbit/s.
const HELD_BYTES_UNLIMITED: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate_mbit: u64, delay_ms: u64, queue: Queue) -> Path {
        let rate = Some(Rate::mbit(rate_mbit));
        Path { rate, delay: Duration::from_millis(delay_ms), queue, ..Path::default() }
    }

    #[test]
    fn a_queue_in_bdps_follows_rate_and_round_trip() {
        assert_eq!(path(1000, 50, Queue::Bdp(1.0)).queue_bytes(), 12_500_000);
        assert_eq!(path(1000, 50, Queue::Bdp(0.5)).queue_bytes(), 6_250_000);
        assert_eq!(path(1000, 0, Queue::Bdp(1.0)).queue_bytes(), QUEUE_BYTES_MIN);
        assert_eq!(path(1000, 50, Queue::Bytes(1)).queue_bytes(), 1);
        assert_eq!(path(1000, 50, Queue::Bucket(9)).queue_bytes(), 9);
        assert_eq!(Path::default().queue_bytes(), u64::MAX);
    }

    #[test]
    fn what_is_held_is_the_queue_and_what_is_under_way() {
        assert_eq!(path(3000, 150, Queue::Bdp(1.0)).held_bytes(), 112_500_000 + 56_250_000);
    }

    #[test]
    fn bursts_lose_the_share_that_was_asked_for() {
        for (share, packets) in [(0.01, 4.0), (0.1, 1.0), (0.3, 10.0)] {
            let Loss::Bursts(chain) = Loss::in_bursts(share, packets) else { unreachable!() };
            let bad = chain.enter / (chain.enter + chain.leave);
            assert!((bad - share).abs() < 1e-9, "{share} in bursts of {packets}: {bad}");
        }
    }
}
