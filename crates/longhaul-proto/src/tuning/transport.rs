//! TCP, UDP or QUIC: which of them carries more on this path, found while data flows.
//!
//! In: the bytes that lanes of each delivered, second by second, and whether TCP is held back by
//! something that may not hold back the others: loss, or a window. Out: a trial, and its verdict.
//! Sans-I/O. Lanes over TCP go on meanwhile, so that a path without UDP costs only a few datagrams.
//!
//! TCP goes through every firewall, so another transport must carry more: if TCP fills the path
//! there is nothing to try, and if both together carry hardly more than TCP alone, TCP stays. Lanes
//! over UDP keep the session's share of the path by a control of their own, which must not run
//! beside that of TCP for long: if they pay they go on alone, and if they carry less by themselves
//! than TCP did, that is taken back. If they carry as much, the one that costs less processor time
//! a byte carries on.

use std::collections::VecDeque;
use std::time::Duration;

use super::Why;

/// A transport that may be tried beside TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Datagrams of this program's own making.
    Udp,
    /// QUIC.
    Quic,
}

impl Rival {
    /// Number of its lanes in a trial.
    pub const fn lanes(self) -> u32 {
        match self {
            Rival::Udp => 1,
            Rival::Quic => LANES,
        }
    }
}

/// The counts of the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Its length.
    pub elapsed: Duration,
    /// Bytes that lanes over TCP delivered in it.
    pub tcp: u64,
    /// Bytes that lanes over [`Choice::rival`] delivered in it.
    pub rival: u64,
    /// Number of open lanes over [`Choice::rival`].
    pub rival_lanes: u32,
    /// The longest smoothed round trip time.
    pub rtt: Duration,
    /// Whether loss or a window limits, and the search for the number of lanes has its result.
    pub hindered: bool,
    /// Whether it is the network that limits, by whatever, or a receiver whose system drops the
    /// datagrams of lanes over [`Choice::rival`]: what these carry is what they can.
    pub by_network: bool,
    /// Whether this side used up its host's processors: a lane over [`Choice::rival`] carries no
    /// more there either.
    pub by_processors: bool,
    /// Processor time that lanes of this side spent on moving bytes in it, encryption included. 0
    /// if that is unknown.
    pub spent: Duration,
    /// Bytes that no lane has taken yet. `None` if that is unknown.
    pub remaining: Option<u64>,
}

/// A decision on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportDecision {
    /// Add [`Rival::lanes`] lanes over this transport to those over TCP.
    Try(Rival, Why),
    /// Keep the lanes over this transport; lanes that are added or replaced from now on run over it
    /// too. If true, lanes over TCP end.
    Keep(Rival, bool, Why),
    /// End the lanes over this transport, and add none. Lanes over TCP stand.
    Drop(Rival, Why),
    /// Give the lanes over this transport up, which carry next to nothing: what they have in hand
    /// goes over TCP, whose lanes stand.
    Abandon(Rival, Why),
    /// Go back to as many lanes over TCP as there were: those over this transport were alone.
    Return(Rival, Why),
}

/// The choice. See the module.
#[derive(Debug)]
pub struct Choice {
    /// The transports that may be tried, the one to try first in front.
    rivals: VecDeque<Rival>,
    phase: TransportPhase,
    /// Time in this phase; in `Watch`, time for which TCP has been held back in a row.
    elapsed: Duration,
    /// Bytes that TCP and the other delivered in the seconds that are judged, and the length of
    /// these.
    judged: (u64, u64, Duration),
    /// Processor time of these seconds.
    judged_cost: Duration,
    /// The cost of lanes over TCP before the trial: see [`Choice::cost`].
    tcp_cost: Option<u64>,
    /// The rate of lanes over TCP in each of the last seconds, bytes/s, the latest last.
    late: VecDeque<u64>,
}

/// The phase of the choice.
///
/// ```text
/// phase  event                                          decision      next phase
/// Watch  TCP was held back for 3 s, a trial may pay     Try           Wait
/// Wait   a lane over the other joined                   -             Warm
/// Wait   none joined in time                            Drop          Watch, for the next rival
/// Warm   the lanes found their speed                    -             Judge
/// Judge  QUIC was judged for 3 s                        Keep or Drop  Over
/// Judge  UDP was judged for 3 s                         the same      Alone or Over
/// Alone  UDP found its speed                            -             Prove
/// Prove  judged for 3 s, or another part limits         - or Return   Over
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransportPhase {
    /// TCP runs alone.
    #[default]
    Watch,
    /// Lanes over the other were asked for, while TCP delivered `before` bytes/s.
    Wait { before: u64 },
    /// Lanes over the other find their speed.
    Warm { before: u64 },
    /// Lanes over the other have found their speed and are judged.
    Judge { before: u64 },
    /// Lanes over TCP end, and those over the other take what they leave.
    Alone { before: u64 },
    /// Lanes over the other are judged by what they carry alone.
    Prove { before: u64 },
    /// The transport is chosen.
    Over,
}

impl Choice {
    /// A choice between TCP, with which a session begins, and these.
    pub fn new(rivals: impl IntoIterator<Item = Rival>) -> Choice {
        let rivals: VecDeque<_> = rivals.into_iter().collect();
        let phase = if rivals.is_empty() { TransportPhase::Over } else { TransportPhase::Watch };
        Choice {
            rivals,
            phase,
            elapsed: Duration::ZERO,
            judged: (0, 0, Duration::ZERO),
            judged_cost: Duration::ZERO,
            tcp_cost: None,
            late: VecDeque::new(),
        }
    }

    /// The transport that is tried, or would be next. `None` if there is no other than TCP.
    pub fn rival(&self) -> Option<Rival> {
        self.rivals.front().copied()
    }

    /// Whether a trial is under way: nothing else about the lanes should change then.
    pub fn is_trying(&self) -> bool {
        !matches!(self.phase, TransportPhase::Watch | TransportPhase::Over)
    }

    /// Whether nothing will be decided any more.
    pub fn is_over(&self) -> bool {
        self.phase == TransportPhase::Over
    }

    /// Takes the counts of a second. Gives a decision, if there is one.
    pub fn second(&mut self, carried: &Carried) -> Option<TransportDecision> {
        let rival = self.rival()?;
        self.elapsed += carried.elapsed;
        match self.phase {
            TransportPhase::Watch => {
                self.remember(carried);
                self.watch(rival, carried)
            }
            TransportPhase::Wait { before } if carried.rival_lanes > 0 => {
                self.enter(TransportPhase::Warm { before });
                None
            }
            TransportPhase::Wait { .. } if self.elapsed >= JOIN_WITHIN => {
                self.rivals.pop_front();
                let next = if self.rivals.is_empty() { TransportPhase::Over } else { TransportPhase::Watch };
                self.enter(next);
                Some(TransportDecision::Drop(rival, rival.not_there()))
            }
            TransportPhase::Wait { .. } | TransportPhase::Over => None,
            TransportPhase::Warm { before } => {
                if self.has_warmed_up(carried) {
                    self.enter(TransportPhase::Judge { before });
                }
                None
            }
            TransportPhase::Judge { before } => self.judge(rival, before, carried),
            TransportPhase::Alone { before } => {
                if self.has_warmed_up(carried) {
                    self.enter(TransportPhase::Prove { before });
                }
                None
            }
            TransportPhase::Prove { before } => self.prove(rival, before, carried),
        }
    }

    /// Whether lanes have had the time to find their speed.
    fn has_warmed_up(&self, carried: &Carried) -> bool {
        self.elapsed >= (carried.rtt * WARM_UP_ROUND_TRIPS).clamp(WARM_UP, WARM_UP_MAX)
    }

    fn watch(&mut self, rival: Rival, carried: &Carried) -> Option<TransportDecision> {
        if !carried.hindered {
            self.enter(TransportPhase::Watch);
            return None;
        }
        self.add(carried);
        if self.elapsed < HINDERED_FOR {
            return None;
        }
        let (before, _) = self.rates();
        // TCP may reach its earlier rate again; that is for the search for lanes. But what it
        // carried before its first losses it never does again, and a trial of UDP costs little.
        let is_left_to_the_search = rival == Rival::Quic || self.elapsed < HINDERED_LONG;
        if (before as f64) < self.best() * FALLEN && is_left_to_the_search {
            return None;
        }
        // A trial takes a while to pay, so there is none near the end.
        if carried.remaining.is_some_and(|left| left < before.saturating_mul(WORTH_SECONDS)) {
            return None;
        }
        self.tcp_cost = self.cost();
        self.enter(TransportPhase::Wait { before });
        Some(TransportDecision::Try(rival, Why::Trying { rate: before }))
    }

    fn remember(&mut self, carried: &Carried) {
        if self.late.len() == LATE {
            self.late.pop_front();
        }
        self.late.push_back((carried.tcp as f64 / carried.elapsed.as_secs_f64().max(1e-3)) as u64);
    }

    /// The best mean rate of lanes over TCP in the last seconds, over the time for which TCP must
    /// be held back, bytes/s.
    fn best(&self) -> f64 {
        let seconds = HINDERED_FOR.as_secs() as usize;
        let means = (seconds..=self.late.len()).map(|end| self.late.range(end - seconds..end).sum::<u64>());
        means.max().unwrap_or(0) as f64 / seconds as f64
    }

    fn judge(&mut self, rival: Rival, before: u64, carried: &Carried) -> Option<TransportDecision> {
        self.add(carried);
        if self.elapsed < JUDGED_FOR {
            return None;
        }
        let (tcp, other) = self.rates();
        let after = tcp + other;
        // A rival whose lanes are gone carries nothing from now on.
        let pays = carried.rival_lanes > 0 && after as f64 >= before as f64 * PAYS;
        self.enter(if pays && rival == Rival::Udp { TransportPhase::Alone { before } } else { TransportPhase::Over });
        Some(match (pays, rival) {
            (true, Rival::Udp) => TransportDecision::Keep(rival, true, Why::UdpPaid { before, after }),
            (true, Rival::Quic) => TransportDecision::Keep(rival, tcp < after / 4, Why::QuicPaid { before, after }),
            // They would take long to finish what they have in hand.
            (false, Rival::Udp) if other < before / 8 => {
                TransportDecision::Abandon(rival, Why::UdpDidNotPay { before, after })
            }
            (false, Rival::Udp) => TransportDecision::Drop(rival, Why::UdpDidNotPay { before, after }),
            (false, Rival::Quic) => TransportDecision::Drop(rival, Why::QuicDidNotPay { before, after }),
        })
    }

    /// Whether lanes alone are as good as TCP was: whether they carry more, or cost no more where
    /// that is alike. Seconds in which another part than this side's processors or the network
    /// limits say nothing of them.
    fn prove(&mut self, rival: Rival, before: u64, carried: &Carried) -> Option<TransportDecision> {
        if carried.by_network || carried.by_processors {
            self.add(carried);
        }
        if self.judged.2 < JUDGED_FOR {
            if self.elapsed >= PROVED_WITHIN {
                self.enter(TransportPhase::Over);
            }
            return None;
        }
        // What lanes over TCP still finish is none of it.
        let ((_, after), costs) = (self.rates(), self.tcp_cost.zip(self.cost()));
        let is_alike = after.abs_diff(before) as f64 <= before as f64 * ALIKE;
        self.enter(TransportPhase::Over);
        let why = match costs {
            Some((tcp, udp)) if is_alike => {
                (udp as f64 > tcp as f64 * COSTS_MORE).then_some(Why::UdpCostsMore { before: tcp, after: udp })
            }
            _ => (after < before).then_some(Why::UdpCarriesLess { before, after }),
        };
        why.map(|why| TransportDecision::Return(rival, why))
    }

    /// Nanoseconds of processor time that a MB cost in the seconds that are judged. `None` if it is
    /// not known, or next to nothing was carried.
    fn cost(&self) -> Option<u64> {
        let (bytes, spent) = (u128::from(self.judged.0) + u128::from(self.judged.1), self.judged_cost);
        let cost = (spent.as_nanos() * 1_000_000).checked_div(bytes)?;
        u64::try_from(cost).ok().filter(|cost| *cost > 0)
    }

    fn add(&mut self, carried: &Carried) {
        self.judged.0 += carried.tcp;
        self.judged.1 += carried.rival;
        self.judged.2 += carried.elapsed;
        self.judged_cost += carried.spent;
    }

    /// Bytes/s over TCP, and over the other.
    fn rates(&self) -> (u64, u64) {
        let seconds = self.judged.2.as_secs_f64().max(1e-3);
        ((self.judged.0 as f64 / seconds) as u64, (self.judged.1 as f64 / seconds) as u64)
    }

    fn enter(&mut self, phase: TransportPhase) {
        (self.phase, self.elapsed, self.judged) = (phase, Duration::ZERO, (0, 0, Duration::ZERO));
        self.judged_cost = Duration::ZERO;
    }
}

impl Rival {
    /// Why none of its lanes is there.
    fn not_there(self) -> Why {
        match self {
            Rival::Udp => Why::NoUdp { waited: JOIN_WITHIN },
            Rival::Quic => Why::NoQuic { waited: JOIN_WITHIN },
        }
    }
}

/// Seconds in which TCP's best rate is looked for, and the part of it below which TCP has fallen.
/// If the path's rate limits, the bytes of 3 s scatter by a few per cent.
const LATE: usize = 60;
const FALLEN: f64 = 0.9;
/// Number of lanes over QUIC in a trial, as many as a transfer over QUIC has.
pub const LANES: u32 = 4;
/// TCP is held back this long before another is tried: the search for lanes and the congestion
/// control may mend it before.
const HINDERED_FOR: Duration = Duration::from_secs(3);
/// TCP is held back this long before UDP is tried although TCP carried more a short while ago.
const HINDERED_LONG: Duration = Duration::from_secs(6);
/// A lane joins within this time if UDP passes at all.
const JOIN_WITHIN: Duration = Duration::from_secs(4);
/// Lanes find their speed in this time, ...
const WARM_UP: Duration = Duration::from_secs(2);
/// ... or in this many round trips, ...
const WARM_UP_ROUND_TRIPS: u32 = 16;
/// ... but in no more than this time: a measured round trip includes queues, and a change of the
/// path spoils a long trial.
const WARM_UP_MAX: Duration = Duration::from_secs(8);
const JUDGED_FOR: Duration = Duration::from_secs(3);
/// Lanes that were not limited by the network for so long are not judged any more.
const PROVED_WITHIN: Duration = Duration::from_secs(15);
/// The rate of both, as a multiple of TCP alone, that pays. Scatter alone makes a tenth.
const PAYS: f64 = 1.15;
/// Two carry alike whose rates differ by this part, and one costs more than the other from this
/// multiple on. Seconds of one path scatter by as much.
const ALIKE: f64 = 0.05;
const COSTS_MORE: f64 = 1.05;
/// No trial is made for fewer bytes than TCP moves in this many seconds.
const WORTH_SECONDS: u64 = 15;

#[cfg(test)]
mod tests;
