//! The circuit breaker of a path's UDP lanes (RFC 8084): apart from the control of the rate, and
//! simpler than it.
//!
//! In: lanes that begin and end, each message and each status of one, and the passing of time. Out:
//! an order ([`BreakerOrder`]): the part of the control's rate that may be sent, or that data
//! stops, or that the lanes end. It counts what the receiver says came and what the sender found
//! lost, and asks no control: a control that fails to slow down is stopped all the same. Knows no
//! rate that was decided and no lane but by its number.
//!
//! | found | order |
//! |---|---|
//! | nothing heard for a time (1) | half the rate, and half of that each round trip, to 1/64 |
//! | none for 4 s | no data: one probe of 1,200 bytes a second |
//! | none for 20 s | the lanes are lost |
//! | too much lost (2) | all UDP lanes of the path end, for 30 s, then 60 s, up to 900 s (3) |
//! | less than half arrives in an interval, under `all` | a fair share from then on |
//!
//! 1. 1.5 round trips and three report times, 200 ms at least, after the first message since the
//!    last news, and three messages: where few packets are sent, the time between two of them is no
//!    silence of the path, and one of them may be lost by chance. The rate doubles each round trip
//!    once it is heard of again. Something is heard if a status says that a packet came, or was
//!    found lost: statuses that only repeat themselves while bytes are on their way are none.
//! 2. More than a tenth beyond the path's own loss, and more than chance, in three intervals in a
//!    row, while less than a quarter of the best rate of the last minute arrives; or in five,
//!    whatever arrives, unless no more is sent in the last than a few TCP connections would send
//!    there (the equation of RFC 8083) and half of it comes: that is a slow line, and harms nobody.
//!    Who takes all has no such leave, and a round trip below 10 ms counts as that: on a short one
//!    few are many. Who bears loss ([`UdpBreaker::bearing_loss`]) has it whatever is sent, as long
//!    as less than 45 % is lost.
//! 3. Half as long again after each ten minutes without a bad interval.
//!
//! An interval is five round trips, a second at least, and goes on until [`PACKETS_JUDGED`] packets
//! came or were lost; one that has fewer in a minute is not judged. As long as it lost more than
//! may be, but no more than chance, it goes on, to [`PACKETS_SURE`] packets or a minute. What may
//! still be chance then is borne, is not taken for the path's own loss, and ends no row. Intervals
//! that are more than a minute apart are not in a row. Losses that the receiver's own system
//! explains are none.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longhaul_core::{LaneId, PathShare};

use super::drops::DropBalance;
use super::ended::EndedLanes;
use super::receiving::report_interval;
use super::sending::UdpSample;
use super::status::Counts;
use crate::time::Timestamp;

/// Packets of an interval that is judged, at least: a fifth of fewer is chance.
pub const PACKETS_JUDGED: u64 = 50;

/// Packets of an interval after which nothing more is waited for: a loss that is still no more
/// than chance is then within 0.02 of what may be lost.
pub const PACKETS_SURE: u64 = 5000;

/// The order of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerOrder {
    /// Data may be sent at the control's rate, divided by this power of two.
    Go(u32),
    /// No data may be sent: one probe of 1,200 bytes goes each second.
    Probe,
    /// The other end has said nothing for so long that the lanes are lost.
    Lost,
    /// The path is broken: all UDP lanes of it end, and none is dialled for so long.
    Open(Duration),
}

/// The openings of a breaker, as it leaves them to the next one of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerPast {
    /// How often it was opened, less what good times took back.
    pub times: u32,
    /// The time for which it is still open. 0: it is not.
    pub open: Duration,
}

impl BreakerPast {
    /// The same, opened once more.
    pub fn opened_again(self) -> BreakerPast {
        let open = (OPEN_FIRST * 2_u32.saturating_pow(self.times)).min(OPEN_MOST);
        BreakerPast { times: self.times.saturating_add(1).min(TIMES_MOST), open }
    }
}

/// The breaker of a path. It outlives the lanes, and what it opened for counts for the next ones.
#[derive(Clone, Debug)]
pub struct UdpBreaker {
    lanes: BreakerLanes,
    /// Whether all lanes ended, so that nothing is owed.
    is_idle: bool,
    round_trip: Duration,
    silence: BreakerSilence,
    interval: BreakerInterval,
    /// Intervals in a row that lost too much, and when the last of them ended.
    bad: (u32, Timestamp),
    /// The path's own loss: the mean of intervals that did not.
    own: f64,
    /// The rates of the intervals of the last minute, bytes/s, and when each ended.
    rates: VecDeque<(Timestamp, f64)>,
    opening: BreakerOpening,
    all: BreakerAll,
}

/// The time for which the other end has owed an answer, and what follows from it.
#[derive(Clone, Copy, Debug)]
struct BreakerSilence {
    /// When the first message was sent that was not answered, and how many were since then. `None`
    /// if no answer is owed.
    owed: Option<(Timestamp, u32)>,
    /// Halvings of the rate that are in force, and when the next one is due or the last is taken
    /// back.
    halved: u32,
    changes: Timestamp,
}

/// All of a path, as a session may take it.
#[derive(Clone, Copy, Debug)]
struct BreakerAll {
    is_taken: bool,
    /// Whether losses that leave the rate what it is are borne.
    bears_loss: bool,
    is_allowed: bool,
}

/// The lanes that are, and the last ones that ended.
#[derive(Clone, Debug, Default)]
struct BreakerLanes {
    known: BTreeMap<LaneId, BreakerLane>,
    ended: EndedLanes,
}

/// When and how often the breaker was opened.
#[derive(Clone, Copy, Debug)]
struct BreakerOpening {
    /// Since when, and until when it is open, and how often it was opened.
    open: Option<(Timestamp, Duration)>,
    times: u32,
    /// Since when no interval was bad, or the last opening was forgotten.
    good_since: Timestamp,
}

/// One lane as its last status had it.
#[derive(Clone, Copy, Debug, Default)]
struct BreakerLane {
    counts: Counts,
    drops: DropBalance,
}

/// Sums of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct BreakerInterval {
    since: Timestamp,
    packets: u64,
    bytes: u64,
    lost: u64,
}

impl UdpBreaker {
    /// A breaker of a path with this round trip, that lets everything through.
    pub fn new(now: Timestamp, round_trip: Duration) -> UdpBreaker {
        UdpBreaker {
            lanes: BreakerLanes::default(),
            is_idle: false,
            round_trip,
            silence: BreakerSilence { owed: None, halved: 0, changes: now },
            interval: BreakerInterval { since: now, ..BreakerInterval::default() },
            bad: (0, now),
            own: 0.0,
            rates: VecDeque::new(),
            opening: BreakerOpening { open: None, times: 0, good_since: now },
            all: BreakerAll { is_taken: false, bears_loss: false, is_allowed: true },
        }
    }

    /// The same, after another of its path that left this.
    pub fn after(mut self, now: Timestamp, past: BreakerPast) -> UdpBreaker {
        self.opening.times = past.times.min(TIMES_MOST);
        self.opening.open = Some((now, past.open.min(OPEN_MOST))).filter(|(_, open)| !open.is_zero());
        self
    }

    /// The openings that it leaves to the next one.
    pub fn past(&self, now: Timestamp) -> BreakerPast {
        let open = self.opening.open.map_or(Duration::ZERO, |(since, span)| span.saturating_sub(now.since(since)));
        BreakerPast { times: self.opening.times, open }
    }

    /// A lane has joined: from now on something may be owed.
    pub fn begin_lane(&mut self, now: Timestamp, lane: LaneId) {
        if self.lanes.known.is_empty() {
            (self.silence.owed, self.silence.halved) = (Some((now, 0)), 0);
        }
        self.is_idle = false;
        self.lanes.ended.take(lane);
        self.lanes.known.entry(lane).or_default();
    }

    /// A lane has sent a message that the other end is to answer.
    pub fn handle_sent(&mut self, now: Timestamp) {
        let (_, messages) = self.silence.owed.get_or_insert((now, 0));
        *messages = messages.saturating_add(1);
    }

    /// Takes a status of a lane. `round_trip` is the path's, smoothed.
    pub fn handle_status(&mut self, now: Timestamp, lane: LaneId, sample: &UdpSample, round_trip: Duration) {
        (self.round_trip, self.is_idle) = (round_trip, false);
        let next = sample.counts;
        // The totals of a lane that ended were counted already.
        let returns = self.lanes.ended.take(lane);
        let first = if returns {
            BreakerLane { counts: next, drops: DropBalance::new(now, next.dropped) }
        } else {
            BreakerLane::default()
        };
        let state = self.lanes.known.entry(lane).or_insert(first);
        let last = std::mem::replace(&mut state.counts, next);
        // A loss that the receiver's system explains is none of the path.
        let (_, lost) = state.drops.take(now, next.dropped, sample.lost, round_trip);
        let packets = next.packets.saturating_sub(last.packets);
        if self.opening.open.is_none() {
            let interval = &mut self.interval;
            interval.packets = interval.packets.saturating_add(packets);
            interval.bytes = interval.bytes.saturating_add(next.bytes.saturating_sub(last.bytes));
            interval.lost = interval.lost.saturating_add(lost.into());
        }
        // A larger number has a round trip.
        let came = sample.round_trip.is_some() || packets > 0 || sample.lost > 0;
        if !came && sample.flying_bytes > 0 {
            return;
        }
        if self.silence.halved > 0 && self.silent(now) > self.silence_borne() {
            // Each answer doubles the rate, however seldom this end hears one.
            self.silence.halved -= 1;
            self.silence.changes = now.after(self.round_trip);
        }
        self.silence.owed = None;
        if self.opening.open.is_none() {
            self.judge(now);
        }
    }

    /// Nothing of any lane is on its way, so no status is owed.
    pub fn handle_idle(&mut self) {
        self.silence.owed = None;
    }

    /// A lane is over.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.lanes.known.remove(&lane);
        self.is_idle |= self.lanes.known.is_empty();
        self.lanes.ended.push(lane);
    }

    /// The order of now. It is asked for each few milliseconds, and before a lane is dialled.
    pub fn poll_order(&mut self, now: Timestamp) -> BreakerOrder {
        if let Some((since, span)) = self.opening.open {
            let left = span.saturating_sub(now.since(since));
            if !left.is_zero() {
                return BreakerOrder::Open(left);
            }
            self.close(now);
        }
        if self.is_idle {
            (self.silence.owed, self.silence.halved) = (None, 0);
        }
        let (silent, borne) = (self.silent(now), self.silence_borne());
        let messages = self.silence.owed.map_or(0, |(_, messages)| messages);
        if silent >= LOST_AFTER {
            return BreakerOrder::Lost;
        }
        if silent >= STOP_AFTER {
            return BreakerOrder::Probe;
        }
        let silence = &mut self.silence;
        if silent >= borne && messages >= SILENT_MESSAGES {
            let more = 1 + (silent - borne).as_micros() / self.round_trip.as_micros().max(1000);
            silence.halved = silence.halved.max(u32::try_from(more).unwrap_or(HALVED_MOST).min(HALVED_MOST));
            silence.changes = now.after(self.round_trip);
        } else {
            while silence.halved > 0 && now >= silence.changes {
                silence.halved -= 1;
                silence.changes = silence.changes.after(self.round_trip.max(Duration::from_millis(1)));
            }
        }
        BreakerOrder::Go(silence.halved)
    }

    /// The share that the session takes of the path. A fair one before it is said.
    pub fn set_share(&mut self, share: PathShare) {
        self.all.is_taken = share == PathShare::All;
    }

    /// The same for lanes that keep a rate through losses to which nobody else on the path is
    /// subject: a row of bad intervals alone does not open it.
    pub fn bearing_loss(mut self) -> UdpBreaker {
        self.all.bears_loss = true;
        self
    }

    /// Whether the session may still take all that it can have, if it was asked to.
    pub fn allows_all(&self) -> bool {
        self.all.is_allowed
    }

    /// The time for which an answer has been owed.
    fn silent(&self, now: Timestamp) -> Duration {
        self.silence.owed.map_or(Duration::ZERO, |(since, _)| now.since(since))
    }

    /// The time without a status after which the rate is halved.
    fn silence_borne(&self) -> Duration {
        (self.round_trip * 3 / 2 + report_interval(self.round_trip) * 3).max(SILENCE_LEAST)
    }

    /// Judges the interval, if it is over.
    fn judge(&mut self, now: Timestamp) {
        let seconds = now.since(self.interval.since);
        if seconds < INTERVAL_LEAST.max(self.round_trip * INTERVAL_ROUNDS) {
            return;
        }
        let packets = self.interval.packets.saturating_add(self.interval.lost);
        let (is_judged, is_long) = (packets >= PACKETS_JUDGED, seconds >= INTERVAL_MOST);
        if !is_judged && !is_long {
            return;
        }
        let lost = self.interval.lost as f64 / packets.max(1) as f64;
        let borne = LOST_BORNE + self.own;
        // A path that loses a tenth by chance loses more than that in every other interval.
        let is_bad = lost > borne + SIGMAS * (borne * (1.0 - borne) / packets.max(1) as f64).sqrt();
        let is_doubtful = lost > borne && !is_bad;
        if is_doubtful && packets < PACKETS_SURE && !is_long {
            return;
        }
        let interval = std::mem::replace(&mut self.interval, BreakerInterval { since: now, ..Default::default() });
        if now.since(self.bad.1) > INTERVAL_MOST {
            self.bad.0 = 0;
        }
        if !is_judged {
            return;
        }
        let rate = interval.bytes as f64 / seconds.as_secs_f64();
        self.rates.push_back((now, rate));
        while self.rates.front().is_some_and(|(at, _)| now.since(*at) > RATES_KEPT) {
            self.rates.pop_front();
        }
        if lost > ALL_LOST {
            self.all.is_allowed = false;
        }
        if is_doubtful {
            return;
        }
        if !is_bad {
            self.own += (lost.min(OWN_MOST) - self.own) * OWN_STEP;
            self.bad.0 = 0;
            if now.since(self.opening.good_since) >= FORGIVEN_AFTER {
                (self.opening.times, self.opening.good_since) = (self.opening.times.saturating_sub(1), now);
            }
            return;
        }
        let is_slow = !self.all.is_taken && lost < LOST_MUCH && self.is_slow(&interval, seconds, lost - self.own);
        (self.bad, self.opening.good_since) = ((self.bad.0 + 1, now), now);
        let best = self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let is_down = rate < best * DOWN;
        let is_borne = is_slow || self.all.bears_loss && lost < LOST_MUCH;
        if self.bad.0 >= BAD_ANYHOW && !is_borne || self.bad.0 >= BAD_DOWN && is_down {
            let opened = BreakerPast { times: self.opening.times, open: Duration::ZERO }.opened_again();
            (self.opening.times, self.opening.open) = (opened.times, Some((now, opened.open)));
        }
    }

    /// Whether no more was sent in an interval than a few TCP connections would send there that
    /// lose this part of their packets.
    fn is_slow(&self, interval: &BreakerInterval, seconds: Duration, lost: f64) -> bool {
        let packets = interval.packets.saturating_add(interval.lost) as f64;
        let round_trip = self.round_trip.as_secs_f64().max(ROUND_TRIP_SLOW);
        // Packets in a round trip: 1 / sqrt(2 p / 3), of which one for a packet's bytes drops out.
        let of_one = seconds.as_secs_f64() / (round_trip * (2.0 / 3.0 * lost).sqrt());
        packets <= TCP_CONNECTIONS * of_one
    }

    /// Lets everything through again.
    fn close(&mut self, now: Timestamp) {
        (self.opening.open, self.bad) = (None, (0, now));
        (self.silence.owed, self.silence.halved) = (None, 0);
        self.interval = BreakerInterval { since: now, ..BreakerInterval::default() };
        self.opening.good_since = now;
        self.rates.clear();
    }
}

/// The shortest silence that halves the rate, the one that stops data and the one that ends lanes.
const SILENCE_LEAST: Duration = Duration::from_millis(200);
const STOP_AFTER: Duration = Duration::from_secs(4);
const LOST_AFTER: Duration = Duration::from_secs(20);
/// Messages without an answer that show a silence: with a loss of 10 % three in a row are lost once
/// in 1,000 times.
const SILENT_MESSAGES: u32 = 3;
/// Most halvings: to 1/64.
const HALVED_MOST: u32 = 6;
/// The shortest interval, and round trips of one.
const INTERVAL_LEAST: Duration = Duration::from_secs(1);
const INTERVAL_ROUNDS: u32 = 5;
/// The longest interval, and the longest time between two bad ones in a row.
const INTERVAL_MOST: Duration = Duration::from_secs(60);
/// The part of all packets that may be lost beyond the path's own loss, ...
const LOST_BORNE: f64 = 0.1;
/// ... deviations of chance within which that may be, ...
const SIGMAS: f64 = 3.0;
/// ... and of which an interval shows this much, and which is no more than this.
const OWN_STEP: f64 = 0.1;
const OWN_MOST: f64 = 0.1;
/// The part of all packets whose loss breaks a slow line too, and the TCP connections as much as
/// which one may send that is slow.
const LOST_MUCH: f64 = 0.45;
const TCP_CONNECTIONS: f64 = 3.0;
/// The shortest round trip in seconds for which these are reckoned.
const ROUND_TRIP_SLOW: f64 = 0.01;
/// The part that is lost when a session no longer takes all that it can have.
const ALL_LOST: f64 = 0.5;
/// The part of the best rate below which a rate is down, and how long rates are kept.
const DOWN: f64 = 0.25;
const RATES_KEPT: Duration = Duration::from_secs(60);
/// Bad intervals in a row that open the breaker if the rate is down, and whatever it is.
const BAD_DOWN: u32 = 3;
const BAD_ANYHOW: u32 = 5;
/// How long it is open at first, and at most.
const OPEN_FIRST: Duration = Duration::from_secs(30);
const OPEN_MOST: Duration = Duration::from_secs(900);
const TIMES_MOST: u32 = 5;
/// Time without a bad interval after which it opens half as long.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
