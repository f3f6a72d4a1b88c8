//! The congestion control of QUIC lanes by default: it holds a rate, and bears acceptable loss.
//!
//! In: the bytes acknowledged and lost, round by round. Out: a rate for the bucket below QUIC, and
//! a window that is wide enough not to be the limit. Pure: no sockets, no clock of its own.
//!
//! It works in two ways. Where a rate was asked for (the *ceiling*), it follows tsunami-udp (Meiss
//! 2004): it sends at the rate while the loss is acceptable, slows down by a twenty-fifth each
//! round while it is not, and speeds up again by a sixth when it is. Where none was asked for, it
//! looks for the rate that the path delivers, as BBR does (Cardwell et al., CACM 60(2), 2017): it
//! sends at nearly three times the delivered rate while that grows, then at the highest one of ten
//! rounds, a quarter more in one round of eight and a quarter less in the next. Unlike BBR it takes
//! unacceptable loss as the sign of a full path. Where looking for a quarter more finds it twice in
//! a row, it does not wait for the third time, but begins anew: the path has become faster, or was
//! never filled.

use std::collections::VecDeque;
use std::time::Duration;

/// The measurements of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Round {
    /// The length of the round in seconds.
    pub(crate) seconds: f64,
    /// Bytes that were acknowledged in it.
    pub(crate) acked: u64,
    /// Bytes that were found lost in it.
    pub(crate) lost: u64,
    /// The sender ran out of data at times.
    pub(crate) starved: bool,
    /// The smoothed round trip, and the shortest so far.
    pub(crate) rtt: Duration,
    pub(crate) min_rtt: Duration,
}

/// The rate control: see the module.
#[derive(Clone, Debug)]
pub(crate) struct RateControl {
    phase: Phase,
    /// Bytes/s to send at.
    rate: f64,
    /// Bytes/s delivered in the latest rounds, the newest last.
    delivered: VecDeque<f64>,
    /// The highest delivered rate when it last grew by a quarter, and the rounds since.
    grown: (f64, u32),
    cycle: usize,
    /// The highest delivered rate before the last look for more, and how many such looks in a row
    /// have found more.
    looked_from: f64,
    found: u32,
    rtt: Duration,
    min_rtt: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The rate of the path is not known yet.
    Start,
    /// The packets that startup put into the queue leave it.
    Drain,
    /// The path is full.
    Cruise,
}

impl RateControl {
    /// Begins at `rate` bytes/s. `dice` chooses the phase of the cycle in which it begins: lanes on
    /// one path must not look for more at the same time.
    pub(crate) fn new(rate: f64, rtt: Duration, dice: usize) -> RateControl {
        RateControl {
            phase: Phase::Start,
            rate: rate.max(FLOOR),
            delivered: VecDeque::new(),
            grown: (0.0, 0),
            cycle: 2 + dice % (GAINS.len() - 2),
            looked_from: f64::INFINITY,
            found: 0,
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
            (None, Phase::Start) => self.rate * self.min_rtt.as_secs_f64(),
            (Some(_), _) => CEILING_WINDOW * self.rate * self.rtt.as_secs_f64(),
        };
        most + SLACK
    }

    /// Takes the measurements of a round that is over.
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

    /// Slows down when no packet came through for several round trips.
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
            Phase::Start => {
                if most >= self.grown.0 * GROWTH {
                    self.grown = (most, 0);
                } else if !starved {
                    self.grown.1 += 1;
                }
                // A queue that grows says so two rounds earlier; a round trip alone may be long for
                // other reasons.
                let full_after = if self.is_queued() { FULL_AFTER_QUEUED } else { FULL_AFTER };
                if self.grown.1 >= full_after {
                    self.phase = Phase::Drain;
                }
            }
            Phase::Drain => self.phase = Phase::Cruise,
            Phase::Cruise => {
                self.cycle = (self.cycle + 1) % GAINS.len();
                self.look_back(most, lossy);
            }
        }
        match self.phase {
            Phase::Start => self.rate = self.rate.max(most * STARTUP),
            Phase::Drain => self.rate = most * DRAIN,
            Phase::Cruise => {
                if lossy {
                    // What was delivered while the path was overfull is more than it carries for
                    // long.
                    self.delivered.iter_mut().for_each(|rate| *rate *= SLOWER);
                }
                let gain = GAINS[self.cycle];
                self.rate = self.most() * if lossy { gain.min(1.0) } else { gain };
            }
        }
    }

    /// Judges the round at a quarter more: its acknowledgements come in the next round.
    fn look_back(&mut self, most: f64, lossy: bool) {
        if self.cycle == 0 {
            self.looked_from = most;
        }
        if self.cycle != HEARD_OF {
            return;
        }
        let has_found = most >= self.looked_from * FOUND && !lossy && !self.is_queued();
        self.found = if has_found { self.found + 1 } else { 0 };
        if self.found == FOUND_AGAIN {
            (self.phase, self.grown, self.found) = (Phase::Start, (most, 0), 0);
        }
    }

    /// Whether packets wait in a queue of the path. A batch waits for its turn at this end too, and
    /// its round trip grows by that wait: that wait is allowed for, at the delivered rate.
    fn is_queued(&self) -> bool {
        let turn = Duration::from_secs_f64(BATCH_BYTES / self.most().max(FLOOR));
        self.rtt > self.min_rtt.mul_f64(QUEUED) + QUEUED_LEAST + turn
    }

    /// Remembers a delivered rate. A starved round shows only the least that the path carries.
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

/// The acceptable part of lost bytes. Tsunami-udp's default is 7.5 %; the paths that this is for
/// lose far less until they are overfull.
const ACCEPTABLE_LOSS: f64 = 0.05;
/// Steps of the rate, as in tsunami-udp: a twenty-fifth slower, a sixth faster.
const SLOWER: f64 = 24.0 / 25.0;
const FASTER: f64 = 7.0 / 6.0;
/// The delivered rate, and a little more than the acceptable loss.
const OVERFULL: f64 = 1.1;
/// The part of a rate asked for that is sent however much is lost: a path may lose more than is
/// acceptable by itself.
const TARGET_FLOOR: f64 = 0.1;
/// The gain at the start: BBR's 2 / ln 2, rounded down. The bytes delivered in a round were sent in
/// the one before, so that this grows by two thirds a round. A higher gain, or more packets at
/// first, would be a faster start, but overfills the queue while quinn still looks for the MTU,
/// whose probes are then lost.
const STARTUP: f64 = 2.8;
const DOUBLING: f64 = 2.0;
const DRAIN: f64 = 0.5;
/// The path is full when its delivered rate has not grown by a quarter for this many rounds.
const GROWTH: f64 = 1.25;
const FULL_AFTER: u32 = 3;
const FULL_AFTER_QUEUED: u32 = 1;
/// A round trip this many times as long as the shortest shows a queue.
const QUEUED: f64 = 1.25;
const QUEUED_LEAST: Duration = Duration::from_millis(4);
/// Gains in a cycle: the first round looks for more, and the second lets its queue drain.
const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const ROUNDS_KEPT: usize = 10;
/// The round of a cycle in which the result of the first one is known, ...
const HEARD_OF: usize = 3;
/// ... and the growth that it then shows if the path is not full: on a full one a lane takes from
/// others, and one of four finds 1.18 times as much at most (1.25 of 4.25). One of sixteen finds
/// 1.23, but not twice without a queue.
const FOUND: f64 = 1.2;
const FOUND_AGAIN: u32 = 2;
/// The most bytes that quinn builds at a time.
const BATCH_BYTES: f64 = 65536.0;
/// Windows, as multiples of the bytes on their way at the rate. Lanes that share a path each
/// remember the round in which they looked for more, together more than the path carries: only this
/// keeps them from filling a queue of one BDP for good.
const CRUISE_WINDOW: f64 = 1.5;
const CEILING_WINDOW: f64 = 2.5;
/// Bytes added to the window: short paths, whose round trip is mostly the processors' own, must not
/// be held back, and no sender may wait for an acknowledgement that itself waits for more packets,
/// or for the moment for which the other end rests.
const SLACK: f64 = 288.0 * 1024.0;
/// The lowest rate in bytes/s: slow enough for any path, fast enough to notice a better one.
const FLOOR: f64 = 32.0 * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of `rate` bytes/s that loses `loss` of all packets, with a queue of one BDP.
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

        /// The part of the line's rate that came through in rounds `from..to`, and the part lost.
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
    fn a_batch_that_waits_for_its_turn_at_a_low_rate_is_not_a_queue() {
        let mut path = Line { rtt: 0.3, ..line(0.0) };
        let mut control = RateControl::new(130_000.0, Duration::from_millis(300), 0);
        for _ in 0..25 {
            let round = path.carry(control.rate());
            // Rounds at the start are uneven too.
            let turn = Duration::from_secs_f64(BATCH_BYTES / control.rate());
            control.round(&Round { rtt: round.rtt + turn, ..round }, None);
            control.round(&Round { rtt: round.rtt + turn, ..round }, None);
        }
        assert!(control.rate() > 80e6, "{}", control.rate());
    }

    #[test]
    fn what_was_never_filled_is_found_within_three_cycles_and_a_start() {
        let mut path = Line { rate: 1e6, ..line(0.0) };
        let mut control = RateControl::new(200_000.0, Duration::from_millis(100), 0);
        (0..60).for_each(|_| control.round(&path.carry(control.rate()), None));
        assert!((0.7e6..1.4e6).contains(&control.rate()), "{}", control.rate());
        path.rate = 125e6;
        (0..3 * 8 + 12).for_each(|_| control.round(&path.carry(control.rate()), None));
        assert!(control.rate() > 80e6, "{}", control.rate());
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

    /// Lanes over one line, in steps of a millisecond; results are heard of a round trip later.
    struct Shared {
        line: Line,
        lanes: Vec<Lane>,
        /// By the millisecond in which they are heard of: lane, bytes through, bytes lost.
        heard: VecDeque<Vec<(usize, f64, f64)>>,
        steps: usize,
    }

    struct Lane {
        control: RateControl,
        in_flight: f64,
        since: usize,
        acked: f64,
        lost: f64,
    }

    impl Shared {
        fn new(line: Line, lanes: usize) -> Shared {
            let first = 32.0 * 1200.0 / line.rtt;
            let control = |n: usize| RateControl::new(first, Duration::from_secs_f64(line.rtt), 3 * n);
            let lane = |n| Lane { control: control(n), in_flight: 0.0, since: 0, acked: 0.0, lost: 0.0 };
            let lanes = (0..lanes).map(lane).collect();
            Shared { line, lanes, heard: VecDeque::new(), steps: 0 }
        }

        /// The delivered and the lost part of the bytes that the line carries in `seconds`.
        fn run(&mut self, seconds: f64) -> (f64, f64) {
            let (mut acked, mut lost) = (0.0, 0.0);
            for _ in 0..(seconds * 1e3) as usize {
                for (n, through, gone) in self.heard.pop_front().unwrap_or_default() {
                    let lane = &mut self.lanes[n];
                    (lane.acked, lane.lost) = (lane.acked + through, lane.lost + gone);
                    lane.in_flight -= through + gone;
                    (acked, lost) = (acked + through, lost + gone);
                }
                self.step();
            }
            let whole = self.line.rate * seconds;
            (acked / whole, lost / whole)
        }

        fn step(&mut self) {
            let Line { rate, loss, rtt: min_rtt, queue } = self.line;
            let rtt = min_rtt + queue / rate;
            self.steps += 1;
            let mut sent = Vec::new();
            for lane in &mut self.lanes {
                let seconds = (self.steps - lane.since) as f64 / 1e3;
                if seconds >= rtt && lane.acked > 0.0 {
                    let round = Round {
                        seconds,
                        acked: lane.acked as u64,
                        lost: lane.lost as u64,
                        starved: false,
                        rtt: Duration::from_secs_f64(rtt),
                        min_rtt: Duration::from_secs_f64(min_rtt),
                    };
                    lane.control.round(&round, None);
                    (lane.since, lane.acked, lane.lost) = (self.steps, 0.0, 0.0);
                }
                let room = (lane.control.window(None) - lane.in_flight).max(0.0);
                sent.push((lane.control.rate() / 1e3).min(room));
                lane.in_flight += sent[sent.len() - 1];
            }
            let all: f64 = sent.iter().sum();
            self.line.queue += all - rate / 1e3;
            let dropped = (self.line.queue - rate * min_rtt).max(0.0);
            self.line.queue = (self.line.queue - dropped).max(0.0);
            let heard = (rtt * 1e3) as usize;
            self.heard.resize_with(self.heard.len().max(heard + 1), Vec::new);
            for (n, sent) in sent.into_iter().enumerate().filter(|(_, sent)| *sent > 0.0) {
                let gone = sent * dropped / all + sent * (1.0 - dropped / all) * loss;
                self.heard[heard].push((n, sent - gone, gone));
            }
        }
    }

    #[test]
    fn lanes_that_share_a_path_fill_it_without_keeping_its_queue_full() {
        for (loss, lanes) in [(0.0, 4), (1e-2, 4), (4e-2, 4), (0.0, 16), (1e-2, 16)] {
            let mut shared = Shared::new(line(loss), lanes);
            shared.run(4.0);
            let (carried, lost) = shared.run(10.0);
            assert!(carried > 0.98 * (1.0 - loss), "{lanes} lanes, {loss}: {carried}");
            assert!(lost < loss + 0.005, "{lanes} lanes, {loss}: {lost}");
        }
    }

    #[test]
    fn the_start_takes_twenty_round_trips_and_overfills_the_queue_but_briefly() {
        let mut shared = Shared::new(line(0.0), 4);
        let (_, lost) = shared.run(2.0);
        assert!(lost < 0.15, "{lost}");
        let (carried, lost) = shared.run(0.5);
        assert!(carried > 0.95 && lost < 0.05, "{carried} {lost}");
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
