//! TCP or QUIC: which of them carries more on this path, found while data flows.
//!
//! In: the bytes that lanes of either delivered, second by second, and whether TCP is held back by
//! something that may not hold back QUIC: loss, or a window. Out: a trial, and its verdict.
//! Sans-I/O. Lanes over TCP go on meanwhile, so that a path without UDP costs only a few datagrams.
//!
//! QUIC costs several times the processor time of TCP, so it must carry more: if TCP fills the path
//! there is nothing to try, and if both together carry hardly more than TCP alone, TCP stays.

use std::collections::VecDeque;
use std::time::Duration;

use super::Why;

/// The counts of the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Its length.
    pub elapsed: Duration,
    /// Bytes that lanes over TCP delivered in it.
    pub tcp: u64,
    /// Bytes that lanes over QUIC delivered in it.
    pub quic: u64,
    /// Number of open lanes over QUIC.
    pub quic_lanes: u32,
    /// The longest smoothed round trip time.
    pub rtt: Duration,
    /// Whether loss or a window limits, and the search for the number of lanes has its result.
    pub hindered: bool,
    /// Bytes that no lane has taken yet. `None` if that is unknown.
    pub remaining: Option<u64>,
}

/// A decision on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportDecision {
    /// Add this number of lanes over QUIC to those over TCP.
    Try(u32, Why),
    /// Keep the lanes over QUIC; lanes that are added or replaced from now on run over QUIC too. If
    /// true, lanes over TCP end.
    Keep(bool, Why),
    /// End the lanes over QUIC, and add none.
    Drop(Why),
}

/// The choice. See the module.
#[derive(Debug, Default)]
pub struct Choice {
    phase: TransportPhase,
    /// Time in this phase; in `Watch`, time for which TCP has been held back in a row.
    elapsed: Duration,
    /// Bytes that TCP and QUIC delivered in the seconds that are judged, and the length of these.
    judged: (u64, u64, Duration),
    /// The rate of lanes over TCP in each of the last seconds, bytes/s, the latest last.
    late: VecDeque<u64>,
}

/// The phase of the choice.
///
/// ```text
/// phase  event                                          decision      next phase
/// Watch  TCP was held back for 3 s, a trial may pay     Try           Wait
/// Wait   a lane over QUIC joined                        -             Warm
/// Wait   none joined in time                            Drop          Over
/// Warm   the lanes found their speed                    -             Judge
/// Judge  judged for 3 s                                 Keep or Drop  Over
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransportPhase {
    /// TCP runs alone.
    #[default]
    Watch,
    /// Lanes over QUIC were asked for, while TCP delivered `before` bytes/s.
    Wait { before: u64 },
    /// Lanes over QUIC find their speed.
    Warm { before: u64 },
    /// Lanes over QUIC have found their speed and are judged.
    Judge { before: u64 },
    /// The transport is chosen.
    Over,
}

impl Choice {
    /// Whether a trial is under way: nothing else about the lanes should change then.
    pub fn is_trying(&self) -> bool {
        matches!(self.phase, TransportPhase::Wait { .. } | TransportPhase::Warm { .. } | TransportPhase::Judge { .. })
    }

    /// Takes the counts of a second. Gives a decision, if there is one.
    pub fn second(&mut self, carried: &Carried) -> Option<TransportDecision> {
        self.elapsed += carried.elapsed;
        match self.phase {
            TransportPhase::Watch => {
                self.remember(carried);
                self.watch(carried)
            }
            TransportPhase::Wait { before } if carried.quic_lanes > 0 => {
                self.enter(TransportPhase::Warm { before });
                None
            }
            TransportPhase::Wait { .. } if self.elapsed >= JOIN_WITHIN => {
                self.enter(TransportPhase::Over);
                Some(TransportDecision::Drop(Why::NoQuic { waited: JOIN_WITHIN }))
            }
            TransportPhase::Wait { .. } | TransportPhase::Over => None,
            TransportPhase::Warm { before } => {
                if self.elapsed >= (carried.rtt * WARM_UP_ROUND_TRIPS).clamp(WARM_UP, WARM_UP_MAX) {
                    self.enter(TransportPhase::Judge { before });
                }
                None
            }
            TransportPhase::Judge { before } => self.judge(before, carried),
        }
    }

    fn watch(&mut self, carried: &Carried) -> Option<TransportDecision> {
        if !carried.hindered {
            self.enter(TransportPhase::Watch);
            return None;
        }
        self.add(carried);
        if self.elapsed < HINDERED_FOR {
            return None;
        }
        let (before, _) = self.rates();
        // TCP may reach its earlier rate again; that is for the search for lanes.
        if (before as f64) < self.best() * FALLEN {
            return None;
        }
        // A trial takes a while to pay, so there is none near the end.
        if carried.remaining.is_some_and(|left| left < before.saturating_mul(WORTH_SECONDS)) {
            return None;
        }
        self.enter(TransportPhase::Wait { before });
        Some(TransportDecision::Try(LANES, Why::Trying { rate: before }))
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

    fn judge(&mut self, before: u64, carried: &Carried) -> Option<TransportDecision> {
        self.add(carried);
        if self.elapsed < JUDGED_FOR {
            return None;
        }
        let (tcp, quic) = self.rates();
        let after = tcp + quic;
        self.enter(TransportPhase::Over);
        Some(if after as f64 >= before as f64 * PAYS {
            TransportDecision::Keep(tcp < after / 4, Why::QuicPaid { before, after })
        } else {
            TransportDecision::Drop(Why::QuicDidNotPay { before, after })
        })
    }

    fn add(&mut self, carried: &Carried) {
        self.judged.0 += carried.tcp;
        self.judged.1 += carried.quic;
        self.judged.2 += carried.elapsed;
    }

    /// Bytes/s over TCP, and over QUIC.
    fn rates(&self) -> (u64, u64) {
        let seconds = self.judged.2.as_secs_f64().max(1e-3);
        ((self.judged.0 as f64 / seconds) as u64, (self.judged.1 as f64 / seconds) as u64)
    }

    fn enter(&mut self, phase: TransportPhase) {
        (self.phase, self.elapsed, self.judged) = (phase, Duration::ZERO, (0, 0, Duration::ZERO));
    }
}

/// Seconds in which TCP's best rate is looked for, and the part of it below which TCP has fallen.
/// If the path's rate limits, the bytes of 3 s scatter by a few per cent.
const LATE: usize = 60;
const FALLEN: f64 = 0.9;
/// Number of lanes over QUIC in a trial, as many as a transfer over QUIC has.
pub const LANES: u32 = 4;
/// TCP is held back this long before QUIC is tried: the search for lanes and the congestion control
/// may mend it before.
const HINDERED_FOR: Duration = Duration::from_secs(3);
/// A lane over QUIC joins within this time if UDP passes at all.
const JOIN_WITHIN: Duration = Duration::from_secs(4);
/// Lanes find their speed in this time, ...
const WARM_UP: Duration = Duration::from_secs(2);
/// ... or in this many round trips, ...
const WARM_UP_ROUND_TRIPS: u32 = 16;
/// ... but in no more than this time: a measured round trip includes queues, and a change of the
/// path spoils a long trial.
const WARM_UP_MAX: Duration = Duration::from_secs(8);
const JUDGED_FOR: Duration = Duration::from_secs(3);
/// The rate of both, as a multiple of TCP alone, that pays. Scatter alone makes a tenth.
const PAYS: f64 = 1.15;
/// No trial is made for fewer bytes than TCP moves in this many seconds.
const WORTH_SECONDS: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a path on which TCP delivers `tcp` MB/s, and lanes over QUIC `quic` from the second
    /// after they are asked for.
    fn play(hindered: bool, tcp: u64, quic: Option<u64>, remaining: Option<u64>) -> Vec<(u64, String)> {
        let (mut choice, mut told, mut asked) = (Choice::default(), Vec::new(), None);
        for second in 1..=30 {
            let stands = asked.is_some_and(|at| second > at) && quic.is_some();
            let carried = Carried {
                elapsed: Duration::from_secs(1),
                tcp: tcp * 1_000_000,
                quic: if stands { quic.unwrap_or(0) * 1_000_000 } else { 0 },
                quic_lanes: if stands { LANES } else { 0 },
                rtt: Duration::from_millis(100),
                hindered,
                remaining,
            };
            if let Some(verdict) = choice.second(&carried) {
                let (what, why) = match verdict {
                    TransportDecision::Try(lanes, why) => {
                        asked = Some(second);
                        (format!("try {lanes}"), why)
                    }
                    TransportDecision::Keep(alone, why) => {
                        asked = None;
                        ((if alone { "keep alone" } else { "keep both" }).to_owned(), why)
                    }
                    TransportDecision::Drop(why) => {
                        asked = None;
                        ("drop".to_owned(), why)
                    }
                };
                told.push((second, format!("{what}: {why}")));
            }
        }
        told
    }

    #[test]
    fn a_path_that_tcp_fills_is_left_alone() {
        assert_eq!(play(false, 110, Some(120), None), []);
    }

    #[test]
    fn where_loss_holds_tcp_back_quic_takes_over() {
        let want = [
            (3, "try 4: the network limits at 5.0 MB/s".to_owned()),
            (9, "keep alone: lanes over QUIC carry more: 5.0 MB/s before, 115.0 with them".to_owned()),
        ];
        assert_eq!(play(true, 5, Some(110), None), want);
    }

    #[test]
    fn both_stay_where_each_carries_its_part() {
        let told = play(true, 50, Some(50), None);
        assert!(told[1].1.starts_with("keep both"), "{told:?}");
    }

    #[test]
    fn where_both_carry_hardly_more_tcp_stays() {
        let told = play(true, 100, Some(10), None);
        assert_eq!(told[1], (9, "drop: lanes over QUIC carry no more: 100.0 MB/s before, 110.0 with them".to_owned()));
        assert_eq!(told.len(), 2, "and are not tried again");
    }

    #[test]
    fn where_udp_does_not_pass_tcp_goes_on() {
        let told = play(true, 5, None, None);
        assert_eq!(told[1], (7, "drop: no lane over QUIC joined in 4 s: a firewall may drop UDP".to_owned()));
    }

    /// The second in which QUIC is tried, where TCP carries 100 MB/s for 8 s, unhindered, and then
    /// that, hindered.
    fn tried(tcp: u64) -> Option<u64> {
        let mut choice = Choice::default();
        (1..=100).find(|second| {
            let (tcp, hindered) = if *second <= 8 { (100_000_000, false) } else { (tcp, true) };
            let carried = Carried { elapsed: Duration::from_secs(1), tcp, hindered, ..Carried::default() };
            choice.second(&carried).is_some()
        })
    }

    #[test]
    fn where_tcp_carried_more_a_short_while_ago_it_is_left_to_the_search() {
        assert_eq!(tried(91_000_000), Some(11));
        // Its rate a minute ago does not count any more.
        assert!(tried(89_000_000).is_some_and(|second| second > 60));
    }

    #[test]
    fn lanes_on_trial_get_longer_to_find_their_speed_on_longer_paths_but_not_for_ever() {
        for (rtt_ms, judged) in [(10, 9), (300, 12), (2000, 15)] {
            let mut choice = Choice::default();
            let verdict = (1..=60u64).find(|second| {
                let carried = Carried {
                    elapsed: Duration::from_secs(1),
                    tcp: 5_000_000,
                    quic: 20_000_000,
                    quic_lanes: u32::from(*second > 3),
                    rtt: Duration::from_millis(rtt_ms),
                    hindered: true,
                    remaining: None,
                };
                matches!(choice.second(&carried), Some(TransportDecision::Keep(..)))
            });
            assert_eq!(verdict, Some(judged), "{rtt_ms} ms");
        }
    }

    #[test]
    fn near_the_end_nothing_is_tried() {
        assert_eq!(play(true, 5, Some(100), Some(70_000_000)), []);
    }
}
