//! The sight that all lanes of a path have of it together, round by round.
//!
//! In: a [`UdpSample`] of one lane at a time. Out: rounds and steps of them ([`UdpRound`]) with the
//! sums over all lanes, the round trip and the queue. It judges nothing and sets no rate.
//!
//! A round lasts for a round trip at least (10 ms at least), and until something was delivered or
//! lost. After a time without news, more than 1.5 round trips and 0.2 s, it begins anew. Its rate
//! is by the clock of the receiver, lane by lane, so that statuses that are held up on their way
//! back and come in a bunch do not make it higher. Where lanes take turns so rarely that some are
//! not heard in a round, all that came in it counts, up to half as much again as was let through.
//! Two clocks that have nothing to do with each other say by how much the queue grew, and not how
//! long it is: each lane's smallest delay of the last ten seconds stands for an empty one. So a
//! path that becomes longer is taken for a queue for ten seconds and not for good, and clocks that
//! drift apart by 100 ppm make an error of 1 ms.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::LaneId;

use super::UdpLaneLimit;
use super::road::UdpRoad;
use crate::time::Timestamp;
use crate::udp::drops::DropBalance;
use crate::udp::ended::EndedLanes;
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
    /// Packets that did not open: somebody else's.
    pub(super) wrong: u32,
    /// The shortest queue in seconds. `None` if no packet came.
    pub(super) queue: Option<f64>,
    /// No lane took all turns that it had, as it had nothing to send, or was not admitted to.
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
    /// The first ones. `None` before one was measured.
    first: Option<FirstTrips>,
    /// The queue of a sample, and when it was seen: a lane that is new or was silent is judged by
    /// it.
    queue: (f64, Timestamp),
    /// When something new was heard last, and since when losses are those of a silence.
    heard: Timestamp,
    pardoned: Option<Timestamp>,
    /// The last lanes that ended.
    ended: EndedLanes,
    /// Bytes of the largest datagrams of late.
    pub(super) datagram_bytes: f64,
    /// The sums of all rounds.
    pub(super) road: UdpRoad,
}

/// The round trips that were measured first. That of the join is not trusted any longer then: a
/// busy handshake made it longer, or a queue of this session's own lanes over another transport.
#[derive(Clone, Copy, Debug)]
struct FirstTrips {
    /// The shortest of the first round trip, and when that is over.
    early: f64,
    until: Timestamp,
    /// The shortest of all since, and since the path has become longer.
    least: f64,
}

/// One lane as its last sample had it.
#[derive(Clone, Copy, Debug, Default)]
struct LaneTotals {
    counts: Counts,
    arrived_us: Option<u32>,
    delay: Option<LaneDelay>,
    /// Datagrams sent so far, and bytes that were on their way: no more than these and what was
    /// sent since can have arrived, whatever the other end says.
    sent: u64,
    flying_bytes: u64,
    /// Bytes of the largest datagrams so far.
    datagram_bytes: u16,
    drops: DropBalance,
    /// Whether the next sample is the first after a silence.
    resumes: bool,
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
    by_lane: BTreeMap<LaneId, LaneSums>,
}

/// One lane's part of the sums.
#[derive(Clone, Copy, Debug, Default)]
struct LaneSums {
    /// Bytes that arrived, and the microseconds in which they did.
    bytes: u64,
    span_us: u64,
    /// The reason why it sent less, at any moment.
    limited: Option<UdpLaneLimit>,
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
            first: None,
            queue: (0.0, now),
            heard: now,
            pardoned: None,
            ended: EndedLanes::default(),
            road: UdpRoad::default(),
            datagram_bytes: DATAGRAM,
        }
    }

    /// Takes a sample of a lane. Gives the packets that the path lost.
    pub(super) fn add(&mut self, now: Timestamp, lane: LaneId, sample: &UdpSample, limit: UdpLaneLimit) -> u32 {
        self.datagram_bytes = f64::from(sample.datagram_bytes).max(1.0);
        self.time(now, sample.round_trip);
        self.resume(now, lane, sample);
        let returns = self.ended.take(lane);
        let totals = self.lanes.entry(lane).or_insert_with(|| LaneTotals::new(now, returns.then_some(sample)));
        // A lane that is new, or was silent, finds the queue that the others see.
        let seen = if now.since(self.queue.1).as_secs_f64() < self.smoothed + SEEN_LEAST { self.queue.0 } else { 0.0 };
        let queue = sample.delay.map(|delay| totals.queue(now, delay, self.smoothed, seen));
        let round_trip = Duration::from_secs_f64(self.smoothed);
        let (dropped, lost) = totals.drops.take(now, sample.counts.dropped, sample.lost, round_trip);
        // What was on its way when a silence began is no sign of a queue.
        let is_pardoned = self.pardoned.is_some_and(|since| now.since(since).as_secs_f64() < self.smoothed);
        let lost = if is_pardoned { 0 } else { lost };
        let news = totals.take(sample);
        for sums in [&mut self.round, &mut self.step] {
            let since = sums.since;
            let by_lane = sums.by_lane.entry(lane).or_default();
            by_lane.bytes = by_lane.bytes.saturating_add(news.bytes);
            // The first packets of a lane arrived since the round began.
            let span = news.span_us.unwrap_or_else(|| now.since(since).as_micros() as u64);
            by_lane.span_us = by_lane.span_us.saturating_add(span);
            if limit != UdpLaneLimit::Path {
                by_lane.limited = Some(limit);
            }
            let sums = &mut sums.sums;
            sums.packets += news.packets as f64;
            sums.lost += f64::from(lost);
            sums.marked = sums.marked.saturating_add(news.marked);
            sums.dropped = sums.dropped.saturating_add(dropped);
            sums.wrong = sums.wrong.saturating_add(news.wrong);
            sums.queue = match (sums.queue, queue) {
                (Some(least), Some(queue)) => Some(least.min(queue)),
                (least, queue) => least.or(queue),
            };
        }
        if let Some(queue) = queue {
            self.queue = (queue, now);
        }
        lost
    }

    /// Begins a round anew if this is the first news after a time without any: its rate would be
    /// none of the path. If bytes were on their way all the while, the losses of the first round
    /// trip are those of the silence.
    fn resume(&mut self, now: Timestamp, lane: LaneId, sample: &UdpSample) {
        let last = self.lanes.get(&lane).map(|totals| totals.counts.packets).unwrap_or_default();
        if sample.counts.packets <= last && sample.lost == 0 {
            return;
        }
        let silent = now.since(std::mem::replace(&mut self.heard, now)).as_secs_f64();
        if silent < SILENT_ROUNDS * self.smoothed + SILENT_LEAST {
            return;
        }
        let is_idle = self.lanes.values().all(|totals| totals.flying_bytes == 0);
        self.pardoned = (!is_idle).then_some(now);
        self.round = RoundSums { since: now, ..RoundSums::default() };
        self.step = self.round.clone();
        for totals in self.lanes.values_mut() {
            totals.resumes = true;
        }
    }

    /// Takes a measured round trip. The first one takes the place of that of the join.
    fn time(&mut self, now: Timestamp, round_trip: Option<Duration>) {
        let Some(round_trip) = round_trip else { return };
        let round_trip = round_trip.as_secs_f64().max(SHORTEST_RTT);
        if self.first.is_none() {
            self.smoothed = round_trip;
            self.shortest = SlidingLeast::new(now, round_trip);
        }
        let until = now.after(Duration::from_secs_f64(round_trip));
        let first = self.first.get_or_insert(FirstTrips { early: round_trip, until, least: round_trip });
        first.least = first.least.min(round_trip);
        if now <= first.until {
            first.early = first.least;
        }
        self.smoothed += (round_trip - self.smoothed) / 8.0;
        self.shortest.add(now, round_trip);
    }

    /// A lane is over.
    pub(super) fn remove(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
        self.ended.push(lane);
    }

    /// A quarter of a round that is over, in which `rate` bytes/s were let through.
    pub(super) fn step(&mut self, now: Timestamp, rate: f64) -> Option<UdpRound> {
        self.step.close(now, (self.smoothed / 4.0).max(STEP_SHORTEST), (self.lanes.len(), rate))
    }

    /// A round that is over, in which `rate` bytes/s were let through.
    pub(super) fn round(&mut self, now: Timestamp, rate: f64) -> Option<UdpRound> {
        self.round.close(now, self.smoothed.max(ROUND_SHORTEST), (self.lanes.len(), rate))
    }

    /// The queue that a lane saw last, in seconds.
    pub(super) fn queue(&self) -> f64 {
        self.queue.0
    }

    /// The smoothed round trip in seconds.
    pub(super) fn round_trip(&self) -> f64 {
        self.smoothed
    }

    /// The shortest round trip of the last ten seconds.
    pub(super) fn base(&self) -> f64 {
        self.shortest.least().min(self.smoothed)
    }

    /// The shortest round trip of the first one, in which next to nothing of this session's was in
    /// a queue; that of the join before one was measured.
    pub(super) fn first(&self) -> f64 {
        self.first.map_or(self.smoothed, |first| first.early)
    }

    /// The shortest round trip of the path as it is.
    pub(super) fn least(&self) -> f64 {
        self.first.map_or(self.smoothed, |first| first.least)
    }

    /// The path has become longer: the delays of now stand for an empty queue.
    pub(super) fn renew_base(&mut self, now: Timestamp) {
        self.shortest = SlidingLeast::new(now, self.smoothed);
        self.shortest.add(now, self.smoothed);
        if let Some(first) = &mut self.first {
            first.least = self.smoothed;
        }
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

/// The news of a sample.
#[derive(Clone, Copy, Debug)]
struct LaneNews {
    packets: u64,
    bytes: u64,
    marked: u32,
    wrong: u32,
    /// The microseconds in which they arrived. `None` for the first ones.
    span_us: Option<u64>,
}

impl LaneTotals {
    /// A lane of which nothing is known; or one that ended and was heard of once more, whose totals
    /// were counted already.
    fn new(now: Timestamp, returns: Option<&UdpSample>) -> LaneTotals {
        let Some(sample) = returns else { return LaneTotals::default() };
        LaneTotals {
            counts: sample.counts,
            arrived_us: sample.arrived_us,
            sent: sample.sent,
            drops: DropBalance::new(now, sample.counts.dropped),
            ..LaneTotals::default()
        }
    }

    /// Takes the totals of a sample.
    fn take(&mut self, sample: &UdpSample) -> LaneNews {
        let (last, next) = (self.counts, sample.counts);
        self.datagram_bytes = self.datagram_bytes.max(sample.datagram_bytes);
        let sent = sample.sent.saturating_sub(self.sent).saturating_mul(self.datagram_bytes.into());
        let possible = self.flying_bytes.saturating_add(sent);
        let span_us = match (self.arrived_us, sample.arrived_us) {
            (Some(last), Some(next)) => Some(u64::from(next.wrapping_sub(last))),
            _ => None,
        };
        let resumes = std::mem::take(&mut self.resumes);
        let span_us = if resumes { Some(0) } else { span_us };
        (self.counts, self.arrived_us) = (next, sample.arrived_us.or(self.arrived_us));
        (self.sent, self.flying_bytes) = (sample.sent, sample.flying_bytes);
        LaneNews {
            packets: next.packets.saturating_sub(last.packets),
            bytes: if resumes { 0 } else { next.bytes.saturating_sub(last.bytes).min(possible) },
            // The totals of a connection that has found a new path begin anew.
            marked: next.marked.saturating_sub(last.marked),
            wrong: next.wrong.wrapping_sub(last.wrong),
            span_us,
        }
    }

    /// The queue in seconds, if the delay is this now. `seen`: the one that other lanes see.
    fn queue(&mut self, now: Timestamp, delay: u16, rtt: f64, seen: f64) -> f64 {
        let begun = |at: f64| {
            let mut least = SlidingLeast::new(now, rtt);
            least.add(now, at - seen);
            least
        };
        let lane = self.delay.get_or_insert_with(|| LaneDelay { last: delay, at: 0, least: begun(0.0) });
        lane.at += i64::from(delay.wrapping_sub(lane.last) as i16);
        lane.last = delay;
        let at = lane.at as f64 * DELAY_UNIT;
        if lane.least.is_old(now) {
            lane.least = begun(at);
        }
        lane.least.add(now, at);
        at - lane.least.least()
    }
}

impl RoundSums {
    /// Ends it, if it is `least` seconds old and something came. There are so many lanes, and so
    /// much was let through.
    fn close(&mut self, now: Timestamp, least: f64, (lanes, sent): (usize, f64)) -> Option<UdpRound> {
        let seconds = now.since(self.since).as_secs_f64();
        let is_silent = self.sums.packets + self.sums.lost <= 0.0;
        if seconds < least || is_silent {
            return None;
        }
        let rates = self.by_lane.values().map(|lane| {
            let span = lane.span_us as f64 / 1e6;
            lane.bytes as f64 / if span < seconds * SPAN_LEAST { seconds } else { span }
        });
        let mut rate = rates.sum::<f64>();
        let heard = self.by_lane.values().filter(|lane| lane.bytes > 0);
        if heard.clone().count() < lanes {
            // Each has a part of the rate, also those whose turn it was not.
            let came = heard.map(|lane| lane.bytes as f64).sum::<f64>() / seconds;
            rate = rate.max(came.min(sent * TURNS_MOST));
        }
        // All lanes draw on one account: if one of them took whatever turns it had, none was
        // unused.
        let limited = self.by_lane.values().map(|lane| lane.limited).reduce(Option::and).flatten();
        let round = UdpRound { seconds, rate: rate.min(RATE_MOST), limited, ..self.sums };
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

    /// Whether nothing was added for as long as a value is kept.
    fn is_old(&self, now: Timestamp) -> bool {
        now.0 / self.each_us >= self.second + LEAST_KEPT as u64
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

/// The highest rate, bytes/s: 100 Gbit/s, whatever the other end says.
pub(super) const RATE_MOST: f64 = 12.5e9;
/// Spans of which the least is kept.
const LEAST_KEPT: usize = 10;
/// The unit of a delay, in seconds.
const DELAY_UNIT: f64 = 1e-4;
/// The shortest round and the shortest step, and the shortest round trip that is reckoned with, in
/// seconds.
pub(super) const ROUND_SHORTEST: f64 = 0.01;
const STEP_SHORTEST: f64 = 0.004;
const SHORTEST_RTT: f64 = 1e-4;
/// A lane whose packets arrived in less than this part of a round has its rate by the round.
const SPAN_LEAST: f64 = 0.5;
/// The most that may come in a round in which not all lanes were heard, as a multiple of what was
/// let through.
const TURNS_MOST: f64 = 1.5;
/// A time without news is a silence from so many round trips, and so many seconds more, on.
const SILENT_ROUNDS: f64 = 1.5;
const SILENT_LEAST: f64 = 0.2;
/// Seconds beside a round trip for which the queue that a lane saw is that of another one.
const SEEN_LEAST: f64 = 0.1;
/// Bytes of a datagram before the first sample.
const DATAGRAM: f64 = 1232.0;
