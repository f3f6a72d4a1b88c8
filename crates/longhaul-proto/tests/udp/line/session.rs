//! A session on the line: its control, its breaker, and both ends of its lanes.
//!
//! In: trains that arrived. Out: packets to send, and statuses for the control. It knows no line.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::{LaneId, PathShare};
use longhaul_proto::udp::breaker::{BreakerOrder, UdpBreaker};
use longhaul_proto::udp::control::{KnownPath, UdpControl, UdpControlConfig, UdpLaneLimit, UdpPhase};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::udp::status::Counts;

use super::{Case, Dice, LineTwist, Train, at};

/// A bug that is planted in a session, to see that the bounds of the model find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlMutant {
    /// The start begins anew whenever it is over.
    NeverLeavesStart,
    /// Each lost packet is a sign of a full path, as a mark of congestion is.
    IgnoresOwnLoss,
    /// No loss is a sign of anything.
    IgnoresLoss,
    /// An open breaker stops nothing.
    NeverOpens,
    /// Half of a known rate is sent for the first round trips, whatever arrives.
    TrustsKnown,
}

/// The session.
pub(crate) struct LineSession {
    begin: f64,
    is_begun: bool,
    /// The round trip of the join, as a multiple of that of the path.
    join: f64,
    twist: Option<LineTwist>,
    /// Bursts of the source so far.
    burst: u64,
    pub(crate) control: UdpControl,
    pub(crate) breaker: UdpBreaker,
    /// The order of the breaker, and when each kind of order was first given.
    pub(crate) order: BreakerOrder,
    pub(crate) probed: f64,
    pub(crate) broken: f64,
    mutant: Option<ControlMutant>,
    /// Bytes/s that a planted bug sends whatever the control says.
    trusted: f64,
    config: UdpControlConfig,
    probe: f64,
    lanes: Vec<SessionLane>,
    credit: f64,
    /// Bytes that the source has.
    source: f64,
    is_starved: bool,
    next: usize,
    /// When the other end is asked next.
    ask: f64,
    /// When the next repair goes.
    repair: f64,
    /// When threads wake that wait for their turn.
    wakes: f64,
}

/// One lane: what its sender and its receiver know.
struct SessionLane {
    /// Seconds that the clock of the receiver is ahead.
    ahead: f64,
    /// Bytes of a packet.
    packet: f64,
    /// Trains on their way to the receiver, and statuses on their way back.
    there: VecDeque<(f64, Train)>,
    back: VecDeque<(f64, LaneStatus)>,
    sent: u64,
    /// Packets that arrived, as the sender knows.
    seen: u64,
    flying: i64,
    /// Lost packets that a planted bug takes for marks.
    marked: u32,
    counts: Counts,
    /// Packets that are lost, and when that can be known.
    lost: VecDeque<(f64, u32)>,
    delay: Option<u16>,
    largest: Option<(f64, f64)>,
    reported: f64,
    /// Packets that its system has room for, and when one came last.
    room: f64,
    taken: f64,
    /// Losses that a lost status said.
    dice: Dice,
    unsaid: u32,
}

#[derive(Clone, Copy)]
struct LaneStatus {
    counts: Counts,
    lost: u32,
    delay: Option<u16>,
    sent: f64,
    waited: f64,
    arrived_us: u32,
}

impl LineSession {
    pub(crate) fn new(n: usize, case: &Case, begin: f64) -> LineSession {
        let (round_trip, lanes, mutant) = (Duration::from_secs_f64(case.rtt), case.lanes, case.mutant);
        let join = if let Some(LineTwist::Join(join)) = case.twist { join } else { 1.0 };
        let known = case.known.map(|rate| KnownPath { rate, round_trip });
        let config = UdpControlConfig { share: case.share, ceiling: case.ceiling, known, round_trip };
        let lane = |at: usize| SessionLane {
            ahead: 17.3 * (at + n) as f64,
            packet: case.packet,
            there: VecDeque::new(),
            back: VecDeque::new(),
            sent: 0,
            seen: 0,
            flying: 0,
            marked: 0,
            counts: Counts::default(),
            lost: VecDeque::new(),
            delay: None,
            largest: None,
            reported: 0.0,
            room: 0.0,
            taken: 0.0,
            dice: Dice((at + 2 * n) as u64 * 0x9E37_79B9 + case.seed),
            unsaid: 0,
        };
        LineSession {
            begin,
            is_begun: false,
            join,
            twist: case.twist,
            burst: 0,
            control: UdpControl::new(at(begin), config),
            breaker: UdpBreaker::new(at(begin), config.round_trip),
            order: BreakerOrder::Go(0),
            probed: f64::INFINITY,
            broken: f64::INFINITY,
            mutant,
            trusted: 0.0,
            config,
            probe: 0.0,
            lanes: (0..lanes).map(lane).collect(),
            credit: 0.0,
            source: 0.0,
            is_starved: false,
            next: 0,
            ask: 0.0,
            repair: 0.0,
            wakes: 0.0,
        }
    }

    /// The lanes have joined, with this round trip, if it is time.
    pub(crate) fn begin(&mut self, now: f64, round_trip: f64) {
        if !self.is_begun && now >= self.begin {
            let round_trip = Duration::from_secs_f64(self.join * round_trip);
            (self.is_begun, self.config.round_trip) = (true, round_trip);
            self.control = UdpControl::new(at(now), self.config);
            self.breaker = UdpBreaker::new(at(now), round_trip);
        }
    }

    /// A train has left the queue.
    pub(crate) fn travel(&mut self, now: f64, rtt: f64, train: Train) {
        let lane = &mut self.lanes[train.lane];
        lane.there.push_back((bunched(self.twist, now + rtt / 2.0), train));
    }

    /// Both ends take in what has come.
    pub(crate) fn hear(&mut self, now: f64, rtt: f64, is_blocked: bool) {
        let interval = (rtt / 4.0).clamp(0.002, 0.025);
        let overtaking = (rtt / 8.0).max(0.002);
        let listens = self.listens(now);
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            while let Some((_, train)) = lane.there.front().copied().filter(|(due, _)| *due <= now) {
                lane.there.pop_front();
                let train = dropped(self.twist, lane, now, train);
                lane.land(now, &train, overtaking);
            }
            if let Some(status) = lane.report(now, interval).filter(|_| !is_blocked) {
                lane.send_back(now + rtt / 2.0, status, self.twist);
            }
            while let Some((_, status)) = lane.back.front().copied().filter(|(due, _)| *due <= now && listens) {
                lane.back.pop_front();
                let mut sample = lane.sample(now, &status);
                if self.mutant == Some(ControlMutant::IgnoresOwnLoss) {
                    lane.marked += sample.lost;
                    sample.counts.marked = lane.marked;
                }
                if let Some(LineTwist::Large(from)) = self.twist {
                    sample.datagram_bytes = if now > from { 8972 } else { sample.datagram_bytes };
                }
                let is_idle = self.twist == Some(LineTwist::IdleLane) && n == 1;
                let limit = match self.order {
                    BreakerOrder::Go(0) if self.is_starved || is_idle => UdpLaneLimit::Source,
                    BreakerOrder::Go(0) => UdpLaneLimit::Path,
                    _ => UdpLaneLimit::Breaker,
                };
                self.ask = now + self.control.ask_after().as_secs_f64();
                let (id, round_trip) = (LaneId(n as u32), self.control.round_trip());
                self.breaker.set_share(self.control.share());
                self.breaker.handle_status(at(now), id, &sample, round_trip);
                self.control.observe(at(now), id, &planted(self.mutant, sample), limit);
            }
        }
        if listens {
            self.obey(now);
        }
    }

    /// Whether the threads of the lanes take in what has come: they do so when their turn is there.
    fn listens(&mut self, now: f64) -> bool {
        let Some(LineTwist::Naps(each)) = self.twist else { return true };
        let is_awake = self.credit >= 1.0 || now >= self.wakes || matches!(self.order, BreakerOrder::Probe);
        if is_awake {
            self.wakes = now + each;
        }
        is_awake
    }

    fn obey(&mut self, now: f64) {
        if now < self.begin || self.lanes.iter().all(|lane| lane.flying <= 0) {
            self.breaker.handle_idle();
        }
        if !self.breaker.allows_all() && self.control.share() == PathShare::All {
            self.control.set_share(PathShare::Fair);
        }
        self.order = self.breaker.poll_order(at(now));
        match self.order {
            BreakerOrder::Go(_) => {}
            BreakerOrder::Probe => self.probed = self.probed.min(now),
            BreakerOrder::Lost | BreakerOrder::Open(_) => self.broken = self.broken.min(now),
        }
        let is_new = now - self.begin < 2.0 * self.config.round_trip.as_secs_f64();
        let trusts = self.mutant == Some(ControlMutant::TrustsKnown) && is_new && now >= self.begin;
        let known = self.config.known.filter(|_| trusts);
        self.trusted = known.map_or(0.0, |known| known.rate as f64 / 2.0);
        if self.mutant == Some(ControlMutant::NeverLeavesStart) && self.control.phase() != UdpPhase::Start {
            let known = Some(KnownPath { rate: self.control.capacity(), round_trip: self.config.round_trip });
            self.control = UdpControl::new(at(now), UdpControlConfig { known, ..self.config });
        }
        if self.mutant == Some(ControlMutant::NeverOpens) && matches!(self.order, BreakerOrder::Open(_)) {
            self.order = BreakerOrder::Go(0);
            self.broken = f64::INFINITY;
        }
    }

    /// Bytes/s that may be sent.
    pub(crate) fn rate(&self) -> f64 {
        match self.order {
            BreakerOrder::Go(halved) => (self.control.rate() as f64).max(self.trusted) / f64::from(1 << halved),
            _ => 0.0,
        }
    }

    /// Bytes that may be on their way.
    fn flight_limit(&self) -> f64 {
        let trusted = self.trusted * self.config.round_trip.as_secs_f64();
        (self.control.flight_limit() as f64).max(trusted)
    }

    /// Sends by turns on all lanes.
    pub(crate) fn send(&mut self, now: f64, step: f64, case: &Case, mut out: impl FnMut(usize, u32)) {
        if now < self.begin {
            return;
        }
        let rate = self.rate() / case.packet;
        self.credit = (self.credit + rate * step).min((rate * 0.002).max(10.0));
        let flying: i64 = self.lanes.iter().map(|lane| lane.flying).sum();
        let room = self.flight_limit() / case.packet - flying as f64;
        let mut packets = self.credit.min(room).max(0.0).floor();
        // A lane that hears nothing asks, whatever the limit.
        let probes = self.order == BreakerOrder::Probe && now > self.probe;
        if probes {
            (packets, self.probe) = (1.0, now + 1.0);
        }
        if rate > 0.0 && room < 1.0 && now > self.ask {
            (packets, self.ask) = (1.0, now + self.control.ask_after().as_secs_f64());
        }
        packets = self.fed(now, step, case, packets);
        // One that has nothing more to send sends again what did not come.
        if self.is_starved && packets == 0.0 && flying > 0 && now > self.repair {
            (packets, self.repair) = (1.0, now + 2.0 * case.rtt + 0.05);
        }
        self.credit -= packets;
        if packets > 0.0 {
            self.breaker.handle_sent(at(now));
        }
        let share = (packets / self.lanes.len() as f64).ceil() as u32;
        let mut left = packets as u32;
        while left > 0 {
            let part = left.min(share);
            let is_late = matches!(case.twist, Some(LineTwist::LateLane(from)) if now < from);
            let place = if is_late { 0 } else { self.next % self.lanes.len() };
            self.next += 1;
            left -= part;
            self.lanes[place].sent += u64::from(part);
            self.lanes[place].flying += i64::from(part);
            out(place, part);
        }
    }
}

impl LineSession {
    /// As many of these packets as the source has.
    fn fed(&mut self, now: f64, step: f64, case: &Case, packets: f64) -> f64 {
        self.is_starved = false;
        match (case.source, case.twist) {
            (Some((from, to, rate)), _) if (from..to).contains(&now) => self.source += rate * step / case.packet,
            (_, Some(LineTwist::Bursts(each, bytes))) if now > 10.0 => {
                let burst = (now / each) as u64;
                if std::mem::replace(&mut self.burst, burst) != burst {
                    self.source = bytes / case.packet;
                }
            }
            (_, Some(LineTwist::Busy(rate))) => {
                // A thread that did not run for a moment makes good for 10 ms of it.
                let rate = rate / case.packet;
                self.source = (self.source + rate * step).min((rate * 0.01).max(10.0));
                let packets = packets.min(self.source.floor());
                self.source -= packets;
                return packets;
            }
            _ => return packets,
        }
        self.is_starved = packets > self.source;
        let packets = packets.min(self.source.floor());
        self.source -= packets;
        packets
    }
}

/// The part of a train that the receiver's system leaves, with 10 ms of room.
fn dropped(twist: Option<LineTwist>, lane: &mut SessionLane, now: f64, train: Train) -> Train {
    let seconds = now - std::mem::replace(&mut lane.taken, now);
    let Some(LineTwist::Drops(from, to, rate)) = twist else { return train };
    if !(from..to).contains(&now) {
        return train;
    }
    let rate = rate / lane.packet / 2.0;
    lane.room = (lane.room + rate * seconds).min((rate * 0.01).max(20.0));
    let fits = train.packets.min(lane.room as u32);
    lane.room -= f64::from(fits);
    lane.counts.dropped += train.packets - fits;
    Train { packets: fits, lost: train.lost + train.packets - fits, ..train }
}

/// When something arrives that would at `due`.
fn bunched(twist: Option<LineTwist>, due: f64) -> f64 {
    if let Some(LineTwist::Rough(each, _)) = twist { (due / each).ceil() * each } else { due }
}

impl SessionLane {
    fn send_back(&mut self, due: f64, status: LaneStatus, twist: Option<LineTwist>) {
        let lost = status.lost + std::mem::take(&mut self.unsaid);
        if matches!(twist, Some(LineTwist::Rough(_, part)) if self.dice.roll() < part) {
            self.unsaid = lost;
            return;
        }
        self.back.push_back((bunched(twist, due), LaneStatus { lost, ..status }));
    }

    fn land(&mut self, now: f64, train: &Train, overtaking: f64) {
        if train.lost > 0 {
            self.lost.push_back((now + overtaking, train.lost));
        }
        if train.packets == 0 {
            return;
        }
        self.counts.packets += u64::from(train.packets);
        self.counts.bytes += u64::from(train.packets) * self.packet as u64;
        let stamp = |seconds: f64| (seconds * 1e4) as u64 as u16;
        let delay = stamp(now + self.ahead).wrapping_sub(stamp(train.sent));
        if self.delay.is_none_or(|least| (delay.wrapping_sub(least) as i16) < 0) {
            self.delay = Some(delay);
        }
        self.largest = Some((train.sent, now));
    }

    fn report(&mut self, now: f64, interval: f64) -> Option<LaneStatus> {
        let (sent, arrived) = self.largest?;
        if now - self.reported < interval || arrived <= self.reported {
            return None;
        }
        self.reported = now;
        let mut lost = 0;
        while let Some((_, packets)) = self.lost.front().filter(|(found, _)| *found <= arrived) {
            lost += packets;
            self.lost.pop_front();
        }
        let arrived_us = ((arrived + self.ahead) * 1e6) as u64 as u32;
        Some(LaneStatus {
            counts: self.counts,
            lost,
            delay: self.delay.take(),
            sent,
            waited: now - arrived,
            arrived_us,
        })
    }

    fn sample(&mut self, now: f64, status: &LaneStatus) -> UdpSample {
        let known = self.counts_known(status);
        self.flying -= known;
        UdpSample {
            round_trip: Some(Duration::from_secs_f64((now - status.sent - status.waited).max(0.0))),
            arrived_us: Some(status.arrived_us),
            delay: status.delay,
            counts: status.counts,
            lost: status.lost,
            sent: self.sent,
            datagram_bytes: self.packet as u16,
            flying_bytes: (self.flying.max(0) as f64 * self.packet) as u64,
        }
    }

    /// Packets whose fate this status has shown.
    fn counts_known(&mut self, status: &LaneStatus) -> i64 {
        let before = std::mem::replace(&mut self.seen, status.counts.packets);
        (status.counts.packets - before) as i64 + i64::from(status.lost)
    }
}

/// The sample as a planted bug takes it.
fn planted(mutant: Option<ControlMutant>, sample: UdpSample) -> UdpSample {
    match mutant {
        Some(ControlMutant::IgnoresLoss) => UdpSample { lost: 0, ..sample },
        _ => sample,
    }
}
