//! The congestion control of QUIC lanes when nobody names another: it holds a rate, and bears loss up to a share that is
//! acceptable.
//!
//! In: what was acknowledged and lost, round by round. Out: a rate for the bucket below QUIC, and a window that is wide enough not to
//! be the limit. Pure: no sockets, no clock of its own.
//!
//! Two ways. Where a rate was asked for (the *ceiling*), it is that of tsunami-udp (Meiss 2004): at the rate while less is
//! lost than is acceptable, slower by a twenty-fifth each round while more is, faster again by a sixth when less is. Where none
//! was, it looks for what the path delivers, as BBR does (Cardwell et al., CACM 60(2), 2017): at nearly three times what was
//! delivered while that grows, then at the most that was within ten rounds, a quarter more in one round of eight and a quarter
//! less in the next. Unlike BBR it reads loss beyond what is acceptable as a path that is full.

use std::collections::VecDeque;
use std::time::Duration;

/// What one round brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Round {
    /// Its length, seconds.
    pub(crate) seconds: f64,
    /// Bytes that were acknowledged in it.
    pub(crate) acked: u64,
    /// Bytes that were found lost in it.
    pub(crate) lost: u64,
    /// There was not always something to send.
    pub(crate) starved: bool,
    /// The smoothed round trip, and the shortest so far.
    pub(crate) rtt: Duration,
    pub(crate) min_rtt: Duration,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RateControl {
    phase: Phase,
    /// Bytes/s to send at.
    rate: f64,
    /// Bytes/s delivered in rounds of late, the newest last.
    delivered: VecDeque<f64>,
    /// The most that was delivered when it last grew by a quarter, and rounds since.
    grown: (f64, u32),
    cycle: usize,
    rtt: Duration,
    min_rtt: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is known.
    Start,
    /// What startup put into the queue leaves it.
    Drain,
    /// The path is full.
    Cruise,
}

impl RateControl {
    /// Begins at `rate` bytes/s. `dice` says where in its cycle it begins: lanes on one path must not look for more at the same time.
    pub(crate) fn new(rate: f64, rtt: Duration, dice: usize) -> RateControl {
        RateControl {
            phase: Phase::Start,
            rate: rate.max(FLOOR),
            delivered: VecDeque::new(),
            grown: (0.0, 0),
            cycle: 2 + dice % (GAINS.len() - 2),
            rtt,
            min_rtt: rtt,
        }
    }

    /// Bytes/s to send at.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Bytes that may be on their way.
    pub(crate) fn window(&self, ceiling: Option<f64>) -> f64 {
        let most = match (ceiling, self.phase) {
            (None, Phase::Cruise | Phase::Drain) => CRUISE_WINDOW * self.most() * self.min_rtt.as_secs_f64(),
            _ => START_WINDOW * self.rate * self.rtt.as_secs_f64(),
        };
        most + SLACK
    }

    /// A round is over.
    pub(crate) fn round(&mut self, round: &Round, ceiling: Option<f64>) {
        (self.rtt, self.min_rtt) = (round.rtt, round.min_rtt);
        let delivered = round.acked as f64 / round.seconds.max(1e-6);
        self.remember(delivered, round.starved);
        let lossy = round.lost as f64 > ACCEPTABLE_LOSS * (round.acked + round.lost) as f64;
        match ceiling {
            Some(ceiling) => self.towards(ceiling, delivered, lossy),
            None => self.probe(lossy, round.starved),
        }
        self.rate = self.rate.max(FLOOR);
    }

    /// No packet came through for several round trips.
    pub(crate) fn cut_off(&mut self) {
        self.delivered.clear();
        self.grown = (0.0, 0);
        self.phase = Phase::Start;
        self.rate = (self.rate / 4.0).max(FLOOR);
    }

    fn towards(&mut self, ceiling: f64, delivered: f64, lossy: bool) {
        if lossy {
            self.phase = Phase::Cruise;
            // Far beyond the path it would take a hundred rounds of small steps.
            let slower = (self.rate * SLOWER).min(delivered * OVERFULL);
            self.rate = slower.max(ceiling * TARGET_FLOOR);
        } else {
            self.rate *= if self.phase == Phase::Start { DOUBLING } else { FASTER };
        }
        if self.rate >= ceiling {
            (self.rate, self.phase) = (ceiling, Phase::Cruise);
        }
    }

    fn probe(&mut self, lossy: bool, starved: bool) {
        let most = self.most();
        match self.phase {
            Phase::Start if lossy => self.phase = Phase::Drain,
            Phase::Start if starved => {}
            Phase::Start => {
                if most >= self.grown.0 * GROWTH {
                    self.grown = (most, 0);
                } else {
                    self.grown.1 += 1;
                }
                if self.grown.1 >= FULL_AFTER {
                    self.phase = Phase::Drain;
                } else {
                    self.rate = self.rate.max(most * STARTUP);
                }
            }
            Phase::Drain => self.phase = Phase::Cruise,
            Phase::Cruise => self.cycle = (self.cycle + 1) % GAINS.len(),
        }
        match self.phase {
            Phase::Start => {}
            Phase::Drain => self.rate = most * DRAIN,
            Phase::Cruise => {
                if lossy {
                    // What was delivered while the path was overfull is more than it carries for long.
                    self.delivered.iter_mut().for_each(|rate| *rate *= SLOWER);
                }
                let gain = GAINS[self.cycle];
                self.rate = self.most() * if lossy { gain.min(1.0) } else { gain };
            }
        }
    }

    /// What a round without enough to send delivered says only what the path carries at least.
    fn remember(&mut self, delivered: f64, starved: bool) {
        if starved && delivered <= self.most() {
            return;
        }
        self.delivered.push_back(delivered);
        if self.delivered.len() > ROUNDS_KEPT {
            self.delivered.pop_front();
        }
    }

    fn most(&self) -> f64 {
        self.delivered.iter().copied().fold(0.0, f64::max)
    }
}

/// Tsunami-udp's default is 7.5 %; the paths that this is for lose far less until they are overfull.
const ACCEPTABLE_LOSS: f64 = 0.05;
/// As tsunami-udp: a twenty-fifth slower, a sixth faster.
const SLOWER: f64 = 24.0 / 25.0;
const FASTER: f64 = 7.0 / 6.0;
/// What was delivered, and a little more than is acceptable to lose.
const OVERFULL: f64 = 1.1;
/// Part of a rate asked for that is sent whatever is lost: a path may lose more than is acceptable by itself.
const TARGET_FLOOR: f64 = 0.1;
/// BBR's 2 / ln 2, rounded down.
const STARTUP: f64 = 2.8;
const DOUBLING: f64 = 2.0;
const DRAIN: f64 = 0.5;
/// The path is full when what it delivers has not grown by a quarter for so many rounds.
const GROWTH: f64 = 1.25;
const FULL_AFTER: u32 = 3;
/// One round of eight looks for more, the next lets the queue go that this made.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const ROUNDS_KEPT: usize = 10;
/// As multiples of what is on its way at the rate.
const CRUISE_WINDOW: f64 = 2.0;
const START_WINDOW: f64 = 2.5;
/// So that short paths, whose round trip is mostly the processors' own, are not held back.
const SLACK: f64 = 256.0 * 1024.0;
/// Bytes/s: slow enough for any path, fast enough to notice when it is better again.
const FLOOR: f64 = 32.0 * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of so many bytes/s that loses `loss` of all packets, with a queue of one BDP.
    struct Line {
        rate: f64,
        loss: f64,
        rtt: f64,
        queue: f64,
    }

    impl Line {
        /// One round of a sender at `rate`.
        fn carry(&mut self, rate: f64) -> Round {
            let offered = rate * self.rtt;
            let room = self.rate * self.rtt;
            self.queue += offered - room;
            let dropped = (self.queue - room).max(0.0);
            self.queue = self.queue.clamp(0.0, room);
            let through = (offered - dropped).min(room) * (1.0 - self.loss);
            let lost = dropped + offered * self.loss;
            let rtt = Duration::from_secs_f64(self.rtt + self.queue / self.rate);
            Round {
                seconds: self.rtt,
                acked: through as u64,
                lost: lost as u64,
                starved: false,
                rtt,
                min_rtt: Duration::from_secs_f64(self.rtt),
            }
        }

        /// Part of the line's rate that rounds `from..to` brought through, and part of what was sent that was lost.
        fn run(&mut self, ceiling: Option<f64>, from: usize, to: usize) -> (f64, f64) {
            let mut control = RateControl::new(200_000.0, Duration::from_secs_f64(self.rtt), 3);
            let (mut acked, mut lost) = (0, 0);
            for n in 0..to {
                let round = self.carry(control.rate());
                control.round(&round, ceiling);
                if n >= from {
                    acked += round.acked;
                    lost += round.lost;
                }
            }
            let whole = self.rate * self.rtt * (to - from) as f64;
            (acked as f64 / whole, lost as f64 / (acked + lost) as f64)
        }
    }

    fn line(loss: f64) -> Line {
        Line { rate: 125e6, loss, rtt: 0.1, queue: 0.0 }
    }

    #[test]
    fn it_finds_what_a_path_carries_whatever_it_loses_by_itself() {
        for loss in [0.0, 1e-3, 1e-2, 4e-2] {
            let (carried, _) = line(loss).run(None, 20, 120);
            assert!(carried > 0.93 * (1.0 - loss), "{loss}: {carried}");
        }
    }

    #[test]
    fn it_does_not_keep_a_path_overfull() {
        let (_, lost) = line(0.0).run(None, 20, 120);
        assert!(lost < 0.01, "{lost}");
    }

    #[test]
    fn a_rate_that_was_asked_for_is_held_on_a_path_that_loses_less_than_is_acceptable() {
        for loss in [0.0, 1e-2, 4e-2] {
            let (carried, _) = line(loss).run(Some(112.5e6), 20, 120);
            assert!((carried / 0.9 - (1.0 - loss)).abs() < 0.01, "{loss}: {carried}");
        }
    }

    #[test]
    fn a_rate_beyond_the_path_settles_where_about_as_much_is_lost_as_is_acceptable() {
        let (carried, lost) = line(0.0).run(Some(250e6), 60, 260);
        assert!(carried > 0.98, "{carried}");
        assert!((0.02..0.10).contains(&lost), "{lost}");
    }

    #[test]
    fn a_path_that_becomes_slower_is_followed_down_and_up_again() {
        let mut path = line(0.0);
        let mut control = RateControl::new(200_000.0, Duration::from_millis(100), 0);
        let mut settle = |path: &mut Line, rate| {
            path.rate = rate;
            for _ in 0..120 {
                control.round(&path.carry(control.rate()), None);
            }
            control.rate() / rate
        };
        for rate in [125e6, 12.5e6, 125e6] {
            let held = settle(&mut path, rate);
            assert!((0.7..1.4).contains(&held), "{held} of {rate}");
        }
    }

    #[test]
    fn rounds_without_enough_to_send_do_not_make_it_forget() {
        let mut path = line(0.0);
        let mut control = RateControl::new(200_000.0, Duration::from_millis(100), 0);
        (0..40).for_each(|_| control.round(&path.carry(control.rate()), None));
        for _ in 0..100 {
            control.round(&Round { starved: true, ..path.carry(1e6) }, None);
        }
        assert!(control.rate() > 80e6, "{}", control.rate());
    }

    #[test]
    fn it_never_stops() {
        let mut control = RateControl::new(0.0, Duration::from_millis(100), 0);
        for _ in 0..100 {
            control.cut_off();
            let round = Round { seconds: 0.1, lost: 1000, rtt: control.rtt, min_rtt: control.rtt, ..Round::default() };
            control.round(&round, None);
        }
        assert!(control.rate() >= FLOOR && control.window(None) > 0.0);
    }
}
