//! A model of a line for the control of UDP lanes: trains of packets through one queue that drops
//! at its tail, sessions on it, and flows under cubic and BBR.
//!
//! In: a [`Case`]. Out: [`LineFigures`]. Time goes by in steps of an eightieth of a round trip at
//! most; packets are counted one by one and travel in trains of up to four. Sessions have all that
//! their lanes have: statuses each quarter of a round trip, losses that are found an eighth of one
//! later, send stamps of 100 us by clocks that have nothing to do with each other.

pub(crate) mod bbr;
pub(crate) mod cubic;
pub(crate) mod session;

use std::collections::VecDeque;

use longhaul_core::PathShare;
use longhaul_proto::Timestamp;
use longhaul_proto::udp::control::UdpControl;

use bbr::BbrFlow;
use cubic::CubicFlow;
use session::{ControlMutant, LineSession};

/// A line of 1 Gbit/s, in bytes/s, and a usual packet's bytes.
pub(crate) const LINE: f64 = 125e6;
pub(crate) const PACKET: f64 = 1472.0;
const MBIT: f64 = 8e-6;
/// Most packets of a train.
const TRAIN: u32 = 4;

/// Packets of a flow that travel one behind the other, and those behind them that the queue had no
/// room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    pub(crate) flow: usize,
    pub(crate) lane: usize,
    pub(crate) packets: u32,
    pub(crate) lost: u32,
    pub(crate) sent: f64,
}

/// The line and what is on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) rtt: f64,
    /// The queue in round trips, and the part of all packets that the line loses by itself.
    pub(crate) queue: f64,
    pub(crate) loss: f64,
    /// Bytes of each packet of the sessions, and of the other flows.
    pub(crate) packet: f64,
    pub(crate) others: f64,
    pub(crate) share: PathShare,
    pub(crate) ceiling: Option<u64>,
    pub(crate) known: Option<u64>,
    pub(crate) lanes: usize,
    /// Sessions; the first one begins at `begin`, each other one 5 s after the one before.
    pub(crate) sessions: usize,
    pub(crate) begin: f64,
    /// Cubic flows, and when they and those under BBR begin and end.
    pub(crate) cubics: usize,
    pub(crate) bbrs: usize,
    pub(crate) cubic_begin: f64,
    pub(crate) cubic_end: f64,
    /// A change of the line: from when to when, and which.
    pub(crate) event: Option<(f64, f64, LineEvent)>,
    /// Bytes/s that the source gives: from when to when.
    pub(crate) source: Option<(f64, f64, f64)>,
    pub(crate) twist: Option<LineTwist>,
    /// The time that is measured.
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) seed: u64,
    pub(crate) mutant: Option<ControlMutant>,
}

/// A change of the line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LineEvent {
    /// Another round trip.
    Reroute(f64),
    /// Nothing passes, either way.
    Outage,
    /// Statuses do not pass.
    NoStatuses,
    /// This part of all packets is lost.
    Lossy(f64),
    /// The same for so many seconds of each so many.
    LossyAtTimes(f64, f64, f64),
    /// Bytes/s above which packets are dropped without a queue.
    Policed(f64),
    /// Bytes/s of the line.
    Slower(f64),
}

/// A way in which an end is not as usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LineTwist {
    /// The round trip of the join is so many times that of the path.
    Join(f64),
    /// Each so many seconds the source gives so many bytes, from 10 s on.
    Bursts(f64, f64),
    /// The receiver's system takes so many bytes/s: from when to when.
    Drops(f64, f64, f64),
    /// The second lane sends nothing before this time.
    LateLane(f64),
    /// The second lane says that it has nothing to send.
    IdleLane,
    /// Each way packets arrive in bunches so many seconds apart, and this part of all statuses is
    /// lost.
    Rough(f64, f64),
    /// Datagrams are said to be of 8972 bytes from this time on.
    Large(f64),
    /// The threads of the lanes can send so many bytes/s in all, and always have something to.
    Busy(f64),
    /// Threads that wait for their turn hear nothing but each so many seconds.
    Naps(f64),
}

impl Case {
    /// One session alone at 100 ms, with a queue of one BDP.
    pub(crate) const ALONE: Case = Case {
        rtt: 0.1,
        queue: 1.0,
        loss: 0.0,
        packet: PACKET,
        others: PACKET,
        share: PathShare::Fair,
        ceiling: None,
        known: None,
        lanes: 2,
        sessions: 1,
        begin: 0.0,
        cubics: 0,
        bbrs: 0,
        cubic_begin: 0.0,
        cubic_end: f64::INFINITY,
        event: None,
        source: None,
        twist: None,
        from: 10.0,
        to: 40.0,
        seed: 1,
        mutant: None,
    };
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineFigures {
    /// Mbit/s of each session, of all cubic flows together, and of all under BBR.
    pub(crate) ours: Vec<f64>,
    pub(crate) cubic: f64,
    pub(crate) bbr: f64,
    /// The mean queue in seconds.
    pub(crate) queue: f64,
    /// The part of the sessions' packets that was lost.
    pub(crate) lost: f64,
    /// The longest queue in seconds.
    pub(crate) longest: f64,
    /// Packets of the sessions that were lost.
    pub(crate) packets_lost: f64,
    /// Round trips until the first session carried 90 % of the line in one of them.
    pub(crate) full_after: f64,
}

/// A small generator of random numbers (xorshift64*, Marsaglia 2003).
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number from 0 to 1.
    pub(crate) fn roll(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The world of a case.
pub(crate) struct Line {
    pub(crate) case: Case,
    pub(crate) now: f64,
    step: f64,
    pub(crate) sessions: Vec<LineSession>,
    cubics: Vec<CubicFlow>,
    bbrs: Vec<BbrFlow>,
    queue: VecDeque<Train>,
    /// Bytes in the queue.
    backlog: f64,
    served: f64,
    bucket: f64,
    dice: Dice,
    sums: LineFigures,
    sent: f64,
    /// Packets of the first session that arrived in the round trip that is under way.
    arrived: f64,
    round: u32,
}

/// Bytes/s of the line.
fn line_of(event: Option<LineEvent>) -> f64 {
    if let Some(LineEvent::Slower(line)) = event { line } else { LINE }
}

pub(crate) fn at(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1e6) as u64)
}

impl Line {
    pub(crate) fn new(case: Case) -> Line {
        let cubic = |n: usize| CubicFlow::new(case.cubic_begin + 0.1 * n as f64, case.rtt);
        let bbr = |n: usize| BbrFlow::new(case.cubic_begin + 0.1 * n as f64, case.rtt);
        Line {
            case,
            now: 0.0,
            step: (case.rtt / 80.0).clamp(1e-4, 2e-3),
            sessions: (0..case.sessions).map(|n| LineSession::new(n, &case, case.begin + 5.0 * n as f64)).collect(),
            cubics: (0..case.cubics).map(cubic).collect(),
            bbrs: (0..case.bbrs).map(bbr).collect(),
            queue: VecDeque::new(),
            backlog: 0.0,
            served: 0.0,
            bucket: 0.0,
            dice: Dice(case.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            sums: LineFigures { ours: vec![0.0; case.sessions], full_after: f64::INFINITY, ..LineFigures::default() },
            sent: 0.0,
            arrived: 0.0,
            round: 0,
        }
    }

    pub(crate) fn control(&self, session: usize) -> &UdpControl {
        &self.sessions[session].control
    }

    /// The event, while it lasts.
    pub(crate) fn event(&self) -> Option<LineEvent> {
        let (from, to, event) = self.case.event?;
        (from..to).contains(&self.now).then_some(event)
    }

    pub(crate) fn rtt(&self) -> f64 {
        if let Some(LineEvent::Reroute(rtt)) = self.event() { rtt } else { self.case.rtt }
    }

    /// Plays until this time.
    pub(crate) fn play(&mut self, to: f64) {
        while self.now < to {
            self.advance();
        }
    }

    /// The figures of the time that was measured.
    pub(crate) fn figures(&self) -> LineFigures {
        let seconds = self.now.min(self.case.to) - self.case.from;
        let (scale, others) = (self.case.packet * MBIT / seconds, self.case.others * MBIT / seconds);
        LineFigures {
            ours: self.sums.ours.iter().map(|packets| packets * scale).collect(),
            cubic: self.sums.cubic * others,
            bbr: self.sums.bbr * others,
            queue: self.sums.queue / seconds,
            lost: self.sums.lost / self.sent.max(1.0),
            longest: self.sums.longest,
            packets_lost: self.sums.lost,
            full_after: self.sums.full_after,
        }
    }

    fn advance(&mut self) {
        self.now += self.step;
        let event = self.event();
        let is_out = event == Some(LineEvent::Outage);
        let blocks = is_out || event == Some(LineEvent::NoStatuses);
        let rtt = self.rtt();
        for session in &mut self.sessions {
            session.begin(self.now, rtt + self.backlog / line_of(event));
            session.hear(self.now, rtt, blocks);
        }
        self.cubics.iter_mut().for_each(|cubic| cubic.hear(self.now));
        self.bbrs.iter_mut().for_each(|bbr| bbr.hear(self.now));
        let mut offers = Vec::new();
        for (flow, session) in self.sessions.iter_mut().enumerate() {
            session.send(self.now, self.step, &self.case, |lane, packets| offers.push((flow, lane, packets)));
        }
        let cubics = self.cubics.iter_mut().map(|cubic| cubic.send(self.now));
        let others = cubics.chain(self.bbrs.iter_mut().map(|bbr| bbr.send(self.now)));
        if self.now < self.case.cubic_end {
            offers.extend((self.sessions.len()..).zip(others).map(|(flow, packets)| (flow, 0, packets)));
        }
        self.enqueue(offers, event);
        self.serve(event);
        self.measure();
    }

    /// Bytes of a packet of this flow.
    fn bytes_of(&self, flow: usize) -> f64 {
        if flow < self.sessions.len() { self.case.packet } else { self.case.others }
    }

    /// Trains of all flows by turns.
    fn enqueue(&mut self, mut offers: Vec<(usize, usize, u32)>, event: Option<LineEvent>) {
        let room = (self.case.queue * self.case.rtt * LINE).max(10.0 * self.case.packet);
        let policed = if let Some(LineEvent::Policed(rate)) = event { Some(rate) } else { None };
        if let Some(rate) = policed {
            self.bucket = (self.bucket + rate * self.step).min((rate * 0.005).max(10.0 * self.case.packet));
        }
        while !offers.is_empty() {
            let place = (self.dice.roll() * offers.len() as f64) as usize;
            let (flow, lane, left) = &mut offers[place];
            let bytes = self.bytes_of(*flow);
            let packets = (*left).min(TRAIN);
            *left -= packets;
            let mut fits = (((room - self.backlog).max(0.0) / bytes) as u32).min(packets);
            if policed.is_some() {
                fits = fits.min((self.bucket / bytes) as u32);
                self.bucket -= f64::from(fits) * bytes;
            }
            self.backlog += f64::from(fits) * bytes;
            if packets > 0 {
                self.queue.push_back(Train {
                    flow: *flow,
                    lane: *lane,
                    packets: fits,
                    lost: packets - fits,
                    sent: self.now,
                });
            }
            if *left == 0 {
                offers.swap_remove(place);
            }
        }
    }

    fn serve(&mut self, event: Option<LineEvent>) {
        let line = line_of(event);
        let loss = match event {
            Some(LineEvent::Lossy(loss)) => loss,
            Some(LineEvent::LossyAtTimes(each, span, loss)) if self.now % each < span => loss,
            _ => self.case.loss,
        };
        let rtt = self.rtt();
        self.served += line * self.step;
        while let Some(mut train) = self.queue.front().copied() {
            let bytes = f64::from(train.packets) * self.bytes_of(train.flow);
            if bytes > self.served {
                return;
            }
            self.queue.pop_front();
            self.served -= bytes;
            self.backlog -= bytes;
            let lost = if event == Some(LineEvent::Outage) {
                train.packets
            } else if loss > 0.0 {
                (0..train.packets).filter(|_| self.dice.roll() < loss).count() as u32
            } else {
                0
            };
            (train.packets, train.lost) = (train.packets - lost, train.lost + lost);
            self.count(&train);
            let (ours, due) = (self.sessions.len(), self.now + rtt);
            match self.sessions.get_mut(train.flow) {
                Some(session) => session.travel(self.now, rtt, train),
                None => match self.cubics.get_mut(train.flow - ours) {
                    Some(cubic) => cubic.travel(due, train),
                    None => self.bbrs[train.flow - ours - self.cubics.len()].travel(due, train),
                },
            }
        }
        self.served = 0.0;
    }

    fn count(&mut self, train: &Train) {
        let packets = f64::from(train.packets);
        if train.flow == 0 {
            self.arrived += packets;
        }
        if !(self.case.from..self.case.to).contains(&self.now) {
            return;
        }
        match self.sums.ours.get_mut(train.flow) {
            Some(ours) => {
                *ours += packets;
                self.sums.lost += f64::from(train.lost);
                self.sent += packets + f64::from(train.lost);
            }
            None if train.flow - self.sessions.len() < self.cubics.len() => self.sums.cubic += packets,
            None => self.sums.bbr += packets,
        }
    }

    fn measure(&mut self) {
        if (self.case.from..self.case.to).contains(&self.now) {
            let queue = self.backlog / line_of(self.event());
            self.sums.queue += queue * self.step;
            self.sums.longest = self.sums.longest.max(queue);
        }
        let round = ((self.now - self.case.begin) / self.case.rtt) as u32;
        if round > self.round {
            if self.arrived * self.case.packet > 0.9 * line_of(self.event()) * self.case.rtt * (1.0 - self.case.loss)
                && self.sums.full_after.is_infinite()
            {
                self.sums.full_after = f64::from(round);
            }
            (self.round, self.arrived) = (round, 0.0);
        }
    }
}

/// Plays a case to its end.
pub(crate) fn play(case: Case) -> LineFigures {
    let mut line = Line::new(case);
    line.play(case.to);
    line.figures()
}
