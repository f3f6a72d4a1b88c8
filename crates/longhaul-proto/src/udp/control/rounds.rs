//! The sight that all lanes of a path have of it together, round by round.
//!
//! In: a [`UdpSample`] of one lane at a time. Out: rounds and steps of them ([`UdpRound`]) with the
//! sums over all lanes, the round trip and the queue. It judges nothing and sets no rate.
//!
//! A round lasts for a round trip at least (10 ms at least), and until something was delivered or
//! lost: silence only makes it longer. Its rate is by the clock of the receiver, lane by lane, so
//! that statuses that are held up on their way back and come in a bunch do not make it higher. Two
//! clocks that have nothing to do with each other say by how much the queue grew, and not how long
//! it is: each lane's smallest delay of the last ten seconds stands for an empty one. So a path
//! that becomes longer is taken for a queue for ten seconds and not for good, and clocks that drift
//! apart by 100 ppm make an error of 1 ms.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::LaneId;

use super::UdpLaneLimit;
use crate::time::Timestamp;
use crate::udp::sending::UdpSample;
use crate::udp::status::Counts;

/// The sums of a round over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UdpRound {
    /// Its length in seconds.
    pub(super) seconds: f64,
    /// Bytes/s that arrived.
    pub(super) rate: f64,
    /// Packets that arrived.
    pub(super) packets: f64,
    /// Packets found lost on the path.
    pub(super) lost: f64,
    /// Packets with the mark of congestion.
    pub(super) marked: u32,
    /// Datagrams that the receiver's system dropped.
    pub(super) dropped: u32,
    /// The shortest queue in seconds. `None` if no packet came.
    pub(super) queue: Option<f64>,
    /// A lane had nothing to send, or was not admitted to.
    pub(super) limited: Option<UdpLaneLimit>,
}

/// The lanes of a path.
#[derive(Clone, Debug)]
pub(super) struct LaneRounds {
    lanes: BTreeMap<LaneId, LaneTotals>,
    round: RoundSums,
    step: RoundSums,
    /// The smoothed round trip, and the shortest of late.
    smoothed: f64,
    shortest: SlidingLeast,
    /// Bytes of the largest datagrams of late.
    pub(super) datagram_bytes: f64,
}

/// One lane as its last sample had it.
#[derive(Clone, Copy, Debug, Default)]
struct LaneTotals {
    counts: Counts,
    arrived_us: Option<u32>,
    delay: Option<LaneDelay>,
    /// Bytes that arrived: no more than were sent, whatever the other end says.
    bytes: u64,
    /// Bytes of the largest datagrams so far.
    datagram_bytes: u16,
    /// Datagrams that the receiver's system dropped and that were not yet found lost.
    dropped: u32,
}

/// The delay of a lane, with its wraps undone: units of 100 us.
#[derive(Clone, Copy, Debug)]
struct LaneDelay {
    last: u16,
    at: i64,
    least: SlidingLeast,
}

/// Sums since a time.
#[derive(Clone, Debug, Default)]
struct RoundSums {
    since: Timestamp,
    sums: UdpRound,
    /// Bytes that arrived, and the microseconds in which they did, lane by lane.
    arrived: BTreeMap<LaneId, (u64, u64)>,
}

/// The least of the last ten seconds, second by second.
#[derive(Clone, Copy, Debug)]
struct SlidingLeast {
    least: [f64; LEAST_KEPT],
    /// The number of the newest, and its length in microseconds.
    second: u64,
    each_us: u64,
}

impl LaneRounds {
    /// No lanes. The first round trip is that of the join.
    pub(super) fn new(now: Timestamp, round_trip: Duration) -> LaneRounds {
        let sums = RoundSums { since: now, ..RoundSums::default() };
        let smoothed = round_trip.as_secs_f64().max(SHORTEST_RTT);
        let mut shortest = SlidingLeast::new(now, smoothed);
        shortest.add(now, smoothed);
        LaneRounds {
            lanes: BTreeMap::new(),
            round: sums.clone(),
            step: sums,
            smoothed,
            shortest,
            datagram_bytes: DATAGRAM,
        }
    }

    /// Takes a sample of a lane.
    pub(super) fn add(&mut self, now: Timestamp, lane: LaneId, sample: &UdpSample, limit: UdpLaneLimit) {
        self.datagram_bytes = f64::from(sample.datagram_bytes).max(1.0);
        if let Some(round_trip) = sample.round_trip {
            let round_trip = round_trip.as_secs_f64().max(SHORTEST_RTT);
            self.smoothed += (round_trip - self.smoothed) / 8.0;
            self.shortest.add(now, round_trip);
        }
        let totals = self.lanes.entry(lane).or_default();
        let (last, next) = (totals.counts, sample.counts);
        let span = match (totals.arrived_us, sample.arrived_us) {
            (Some(last), Some(next)) => Some(u64::from(next.wrapping_sub(last))),
            _ => None,
        };
        let queue = sample.delay.map(|delay| totals.queue(now, delay, self.smoothed));
        let dropped = next.dropped.wrapping_sub(last.dropped);
        // A datagram that the receiver's system dropped is not lost on the path.
        let lost_there = totals.dropped.saturating_add(dropped).min(sample.lost);
        totals.dropped = totals.dropped.saturating_add(dropped) - lost_there;
        totals.datagram_bytes = totals.datagram_bytes.max(sample.datagram_bytes);
        let bytes = next.bytes.min(sample.sent.saturating_mul(totals.datagram_bytes.into()));
        let arrived_bytes = bytes.saturating_sub(totals.bytes);
        totals.bytes = totals.bytes.max(bytes);
        for sums in [&mut self.round, &mut self.step] {
            let arrived = sums.arrived.entry(lane).or_default();
            // The first packets of a lane arrived since the round began.
            let span = span.unwrap_or(now.since(sums.since).as_micros() as u64);
            *arrived = (arrived.0 + arrived_bytes, arrived.1.saturating_add(span));
            let sums = &mut sums.sums;
            sums.packets += next.packets.saturating_sub(last.packets) as f64;
            sums.lost += f64::from(sample.lost - lost_there);
            sums.marked = sums.marked.saturating_add(next.marked.wrapping_sub(last.marked));
            sums.dropped = sums.dropped.saturating_add(dropped);
            sums.queue = match (sums.queue, queue) {
                (Some(least), Some(queue)) => Some(least.min(queue)),
                (least, queue) => least.or(queue),
            };
            if limit != UdpLaneLimit::Path {
                sums.limited = Some(limit);
            }
        }
        (totals.counts, totals.arrived_us) = (next, sample.arrived_us.or(totals.arrived_us));
    }

    /// A lane is over.
    pub(super) fn remove(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
    }

    /// A quarter of a round that is over.
    pub(super) fn step(&mut self, now: Timestamp) -> Option<UdpRound> {
        self.step.close(now, (self.smoothed / 4.0).max(STEP_SHORTEST))
    }

    /// A round that is over.
    pub(super) fn round(&mut self, now: Timestamp) -> Option<UdpRound> {
        self.round.close(now, self.smoothed.max(ROUND_SHORTEST))
    }

    /// The smoothed round trip in seconds.
    pub(super) fn round_trip(&self) -> f64 {
        self.smoothed
    }

    /// The shortest round trip of the last ten seconds.
    pub(super) fn base(&self) -> f64 {
        self.shortest.least().min(self.smoothed)
    }

    /// The path has become longer: the delays of now stand for an empty queue.
    pub(super) fn renew_base(&mut self, now: Timestamp) {
        self.shortest = SlidingLeast::new(now, self.smoothed);
        self.shortest.add(now, self.smoothed);
        for lane in self.lanes.values_mut() {
            if let Some(delay) = &mut lane.delay {
                delay.least = SlidingLeast::new(now, self.smoothed);
                delay.least.add(now, delay.at as f64 * DELAY_UNIT);
            }
        }
    }

    /// Tenths of the time for which the shortest round trip is kept, since it was seen last.
    pub(super) fn base_age(&self, now: Timestamp) -> u64 {
        self.shortest.age(now)
    }
}

impl LaneTotals {
    /// The queue in seconds, if the delay is this now.
    fn queue(&mut self, now: Timestamp, delay: u16, rtt: f64) -> f64 {
        let seen =
            self.delay.get_or_insert_with(|| LaneDelay { last: delay, at: 0, least: SlidingLeast::new(now, rtt) });
        seen.at += i64::from(delay.wrapping_sub(seen.last) as i16);
        seen.last = delay;
        let at = seen.at as f64 * DELAY_UNIT;
        seen.least.add(now, at);
        at - seen.least.least()
    }
}

impl RoundSums {
    fn close(&mut self, now: Timestamp, least: f64) -> Option<UdpRound> {
        let seconds = now.since(self.since).as_secs_f64();
        let is_silent = self.sums.packets + self.sums.lost <= 0.0;
        if seconds < least || is_silent {
            return None;
        }
        let by_lane = self.arrived.values().map(|(bytes, span_us)| {
            let span = *span_us as f64 / 1e6;
            *bytes as f64 / if span < seconds * SPAN_LEAST { seconds } else { span }
        });
        let round = UdpRound { seconds, rate: by_lane.sum(), ..self.sums };
        *self = RoundSums { since: now, ..RoundSums::default() };
        Some(round)
    }
}

impl SlidingLeast {
    /// Spans of a second, or of two round trips if that is more.
    fn new(now: Timestamp, round_trip: f64) -> SlidingLeast {
        let each_us = (round_trip * 2e6).max(1e6) as u64;
        SlidingLeast { least: [f64::INFINITY; LEAST_KEPT], second: now.0 / each_us, each_us }
    }

    fn add(&mut self, now: Timestamp, value: f64) {
        let second = now.0 / self.each_us;
        while self.second < second {
            // After a long silence what was least last is still the best that is known.
            let last = self.least();
            self.second = (self.second + 1).max(second.saturating_sub(LEAST_KEPT as u64));
            *self.place(0) = f64::INFINITY;
            if self.least().is_infinite() {
                *self.place(0) = last.max(value);
            }
        }
        let place = self.place(0);
        *place = place.min(value);
    }

    fn place(&mut self, age: u64) -> &mut f64 {
        &mut self.least[self.second.saturating_sub(age) as usize % LEAST_KEPT]
    }

    fn least(&self) -> f64 {
        self.least.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Spans since a value within a twentieth of the least one came.
    fn age(&self, now: Timestamp) -> u64 {
        let near = self.least() * 1.05;
        let value = |age: u64| self.least[self.second.saturating_sub(age) as usize % LEAST_KEPT];
        let aged = (0..LEAST_KEPT as u64).find(|age| value(*age) <= near);
        aged.unwrap_or_default() + (now.0 / self.each_us).saturating_sub(self.second)
    }
}

/// Spans of which the least is kept.
const LEAST_KEPT: usize = 10;
/// The unit of a delay, in seconds.
const DELAY_UNIT: f64 = 1e-4;
/// The shortest round and the shortest step, and the shortest round trip that is reckoned with, in
/// seconds.
const ROUND_SHORTEST: f64 = 0.01;
const STEP_SHORTEST: f64 = 0.004;
const SHORTEST_RTT: f64 = 1e-4;
/// A lane whose packets arrived in less than this part of a round has its rate by the round.
const SPAN_LEAST: f64 = 0.5;
/// Bytes of a datagram before the first sample.
const DATAGRAM: f64 = 1232.0;
