//! One session over a line: the real control, a queue that drops at its tail, and a receiver that
//! says four times a round trip what came.
//!
//! In: a session's plan, and what is told of the path. Out: its [`RoadFigures`], and the path as it
//! leaves it. Time goes by in steps of a fortieth of a round trip; packets travel in batches.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::LaneId;
use longhaul_proto::Timestamp;
use longhaul_proto::udp::control::{KnownPath, KnownRate, UdpControl, UdpControlConfig, UdpLaneLimit, UdpPhase};
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::udp::status::Counts;

use super::mutants::RoadMutant;
use super::plan::RoadSession;
use crate::rng::Rng;

/// Bytes of a packet.
pub(crate) const PACKET: f64 = 1472.0;
/// Round trips that are the beginning.
const EARLY_ROUNDS: f64 = 12.0;

/// The figures of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoadFigures {
    /// The rate at first, bytes/s.
    pub(crate) first_rate: f64,
    /// The highest rate while a known one was tried, bytes/s.
    pub(crate) tried: f64,
    /// Most bytes on their way before anything was heard.
    pub(crate) unheard: f64,
    /// Packets that were lost in the beginning.
    pub(crate) lost: f64,
    /// Bytes that arrived in the beginning.
    pub(crate) early: f64,
    /// Bytes/s later on.
    pub(crate) later: f64,
    /// The outcome of the known rate.
    pub(crate) known: KnownRate,
    /// The path as the session leaves it.
    pub(crate) left: Option<KnownPath>,
}

/// The sender of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoadFlow {
    Ours,
    Others,
}

/// Packets of one flow, one behind the other.
#[derive(Clone, Copy, Debug)]
struct RoadBatch {
    flow: RoadFlow,
    packets: u64,
    lost: u64,
    sent: f64,
}

/// A status on its way back.
#[derive(Clone, Copy, Debug)]
struct RoadReport {
    due: f64,
    counts: Counts,
    lost: u64,
    delay: u16,
    sent: f64,
    arrived: f64,
}

/// The session that is played.
pub(crate) struct Road {
    plan: RoadSession,
    known: Option<KnownPath>,
    mutant: Option<RoadMutant>,
    control: UdpControl,
    now: f64,
    step: f64,
    line: LineState,
    sender: RoadSender,
    receiver: RoadReceiver,
    back: VecDeque<RoadReport>,
    rng: Rng,
    figures: RoadFigures,
}

/// The queue before the line. Parts of packets are carried over from step to step.
#[derive(Debug, Default)]
struct LineState {
    queue: VecDeque<RoadBatch>,
    backlog: f64,
    served: f64,
    others: f64,
}

/// The state of the sender.
#[derive(Debug, Default)]
struct RoadSender {
    credit: f64,
    sent: u64,
    flying: i64,
    /// When something was heard last, and packets it has heard of.
    heard: Option<f64>,
    seen: u64,
}

/// The state of the receiver.
#[derive(Debug, Default)]
struct RoadReceiver {
    /// Batches on their way to it.
    coming: VecDeque<(f64, RoadBatch)>,
    counts: Counts,
    lost: u64,
    delay: Option<u16>,
    largest: Option<(f64, f64)>,
    reported: f64,
}

impl Road {
    /// A session that is told this of its path.
    pub(crate) fn new(plan: RoadSession, known: Option<KnownPath>, mutant: Option<RoadMutant>) -> Road {
        let round_trip = Duration::from_secs_f64(plan.line.rtt);
        let as_told = known.map(|known| match mutant {
            Some(RoadMutant::IgnoresRoundTrip) => KnownPath { round_trip, ..known },
            Some(RoadMutant::TriesAll) => KnownPath { rate: known.rate * 2, ..known },
            _ => known,
        });
        let config = UdpControlConfig { share: plan.share, ceiling: None, known: as_told, round_trip };
        let control = UdpControl::new(Timestamp(0), config);
        let first_rate = control.rate() as f64;
        let figures = RoadFigures {
            first_rate,
            tried: 0.0,
            unheard: 0.0,
            lost: 0.0,
            early: 0.0,
            later: 0.0,
            known: control.known_rate(),
            left: None,
        };
        Road {
            plan,
            known,
            mutant,
            control,
            now: 0.0,
            step: (plan.line.rtt / 40.0).clamp(1e-4, 1e-3),
            line: LineState::default(),
            sender: RoadSender::default(),
            receiver: RoadReceiver::default(),
            back: VecDeque::new(),
            rng: Rng::new(plan.seed),
            figures,
        }
    }

    /// Plays the session to its end.
    pub(crate) fn play(mut self) -> RoadFigures {
        let rtt = self.plan.line.rtt;
        let (early, from, to) = (EARLY_ROUNDS * rtt, 120.0 * rtt + 12.0, 140.0 * rtt + 16.0);
        let mut marks = [None; 3];
        while self.now < to {
            for (mark, at) in marks.iter_mut().zip([early, from, to]) {
                if mark.is_none() && self.now >= at - self.step {
                    *mark = Some((self.receiver.counts.bytes as f64, self.now, self.figures.lost));
                }
            }
            self.advance();
        }
        let [early, from, to] = marks.map(|mark| mark.unwrap_or_default());
        self.figures.early = early.0;
        self.figures.lost = early.2;
        self.figures.later = (to.0 - from.0) / (to.1 - from.1).max(self.step);
        self.figures.known = self.control.known_rate();
        self.figures.left = self.control.finding();
        self.figures
    }

    fn advance(&mut self) {
        self.now += self.step;
        self.hear();
        self.send();
        self.serve();
        self.arrive();
    }

    fn hear(&mut self) {
        while let Some(report) = self.back.front().copied().filter(|report| report.due <= self.now) {
            self.back.pop_front();
            self.sender.heard = Some(self.now);
            let news = (report.counts.packets - self.sender.seen) + report.lost;
            (self.sender.seen, self.sender.flying) = (report.counts.packets, self.sender.flying - news as i64);
            let round_trip = (self.now - report.sent).max(1e-4);
            let sample = UdpSample {
                round_trip: Some(Duration::from_secs_f64(round_trip)),
                arrived_us: Some((report.arrived * 1e6) as u64 as u32),
                delay: Some(report.delay),
                counts: report.counts,
                lost: report.lost as u32,
                sent: self.sender.sent,
                datagram_bytes: PACKET as u16,
                flying_bytes: (self.sender.flying.max(0) as f64 * PACKET) as u64,
            };
            let sample = self.planted(sample);
            self.control.observe(self.timestamp(), LaneId(0), &sample, UdpLaneLimit::Path);
        }
    }

    fn planted(&self, sample: UdpSample) -> UdpSample {
        match self.mutant {
            Some(RoadMutant::NeverLeavesStart) if self.control.phase() == UdpPhase::Start => {
                UdpSample { lost: 0, delay: Some(0), ..sample }
            }
            _ => sample,
        }
    }

    fn send(&mut self) {
        let rtt = self.plan.line.rtt;
        let (mut rate, mut limit) = (self.control.rate() as f64, self.control.flight_limit() as f64);
        if let (Some(RoadMutant::SendsUnvalidated), Some(known)) = (self.mutant, self.known)
            && self.now < 2.0 * rtt
        {
            rate = rate.max(known.rate as f64 / 2.0);
            limit = limit.max(rate * rtt);
        }
        self.sender.credit = (self.sender.credit + rate * self.step / PACKET).min((rate * 0.002 / PACKET).max(10.0));
        let room = limit / PACKET - self.sender.flying as f64;
        let mut packets = self.sender.credit.min(room).max(0.0) as u64;
        let quiet = self.now - self.sender.heard.unwrap_or_default();
        if packets == 0 && room < 1.0 && quiet > self.control.ask_after().as_secs_f64() {
            (packets, self.sender.heard) = (1, Some(self.now));
        }
        self.sender.credit -= packets as f64;
        (self.sender.sent, self.sender.flying) = (self.sender.sent + packets, self.sender.flying + packets as i64);
        if self.sender.heard.is_none() {
            self.figures.unheard = self.figures.unheard.max(self.sender.flying as f64 * PACKET);
        }
        if self.control.known_rate() == KnownRate::Tried {
            self.figures.tried = self.figures.tried.max(rate);
        }
        self.line.others += self.plan.line.others * self.plan.line.rate * self.step / PACKET;
        let theirs = self.line.others as u64;
        self.line.others -= theirs as f64;
        self.enqueue(RoadFlow::Ours, packets);
        self.enqueue(RoadFlow::Others, theirs);
    }

    fn enqueue(&mut self, flow: RoadFlow, packets: u64) {
        if packets == 0 {
            return;
        }
        let line = self.plan.line;
        let room = (line.queue * line.rtt * line.rate / PACKET).max(10.0) - self.line.backlog;
        let fits = packets.min(room.max(0.0) as u64);
        self.line.backlog += fits as f64;
        self.line.queue.push_back(RoadBatch { flow, packets: fits, lost: packets - fits, sent: self.now });
    }

    fn serve(&mut self) {
        self.line.served += self.plan.line.rate * self.step / PACKET;
        while let Some(batch) = self.line.queue.front_mut() {
            let passed = batch.packets.min(self.line.served as u64);
            let is_whole = passed == batch.packets;
            let mut part = RoadBatch { packets: passed, lost: if is_whole { batch.lost } else { 0 }, ..*batch };
            batch.packets -= passed;
            self.line.served -= passed as f64;
            self.line.backlog -= passed as f64;
            if part.flow == RoadFlow::Ours && (passed > 0 || part.lost > 0) {
                let loss = (self.plan.line.loss * 1e6) as u64;
                let lost = (0..passed).filter(|_| loss > 0 && self.rng.below(1_000_000) < loss).count() as u64;
                (part.packets, part.lost) = (passed - lost, part.lost + lost);
                self.figures.lost += part.lost as f64;
                self.receiver.coming.push_back((self.now + self.plan.line.rtt / 2.0, part));
            }
            if !is_whole {
                return;
            }
            self.line.queue.pop_front();
        }
        self.line.served = 0.0;
    }

    fn arrive(&mut self) {
        while let Some((_, batch)) = self.receiver.coming.front().copied().filter(|(due, _)| *due <= self.now) {
            self.receiver.coming.pop_front();
            self.receiver.lost += batch.lost;
            if batch.packets == 0 {
                continue;
            }
            self.receiver.counts.packets += batch.packets;
            self.receiver.counts.bytes += batch.packets * PACKET as u64;
            let delay = ((self.now - batch.sent) * 1e4) as u16;
            self.receiver.delay = Some(self.receiver.delay.map_or(delay, |least| least.min(delay)));
            self.receiver.largest = Some((batch.sent, self.now));
        }
        let interval = (self.plan.line.rtt / 4.0).clamp(0.002, 0.025);
        let Some((sent, arrived)) = self.receiver.largest.filter(|(_, at)| *at > self.receiver.reported) else {
            return;
        };
        if self.now - self.receiver.reported < interval && self.receiver.reported > 0.0 {
            return;
        }
        self.receiver.reported = self.now;
        let (lost, delay) = (std::mem::take(&mut self.receiver.lost), self.receiver.delay.take().unwrap_or_default());
        // The wait of the largest packet is taken off its round trip.
        let sent = sent + (self.now - arrived);
        let due = self.now + self.plan.line.rtt / 2.0;
        self.back.push_back(RoadReport { due, counts: self.receiver.counts, lost, delay, sent, arrived });
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp((self.now * 1e6) as u64)
    }
}
