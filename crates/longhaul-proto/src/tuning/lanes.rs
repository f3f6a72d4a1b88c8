//! The search for the number of lanes: success first, then throughput.
//!
//! One change at a time, each judged by what all lanes together delivered before and after: double
//! them while that pays, take back what did not, stay, and look again when the flow falls or much
//! time has passed. Only seconds in which the network was the limit are judged: more lanes do not
//! make a disk faster.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::LaneId;

use super::algorithm::{AlgorithmTrial, Better};
use super::{LaneDecision, LaneSample, Second, Why};

/// What the search works with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningConfig {
    /// Lanes at the start, and as many as stay when the network is not the limit.
    pub start: u32,
    /// No more than these.
    pub max: u32,
    /// Bytes that a lane takes at a time.
    pub unit: u64,
    /// Congestion controls to choose from, by name. One or none: there is no choice.
    pub algorithms: Vec<String>,
}

/// The search. See the module.
#[derive(Debug)]
pub struct Tuner {
    config: TuningConfig,
    phase: SearchPhase,
    /// Time in this phase, ...
    elapsed: Duration,
    /// ... of which this was judged, and what was delivered in it.
    judged: Duration,
    delivered: u64,
    /// For how long something else than the network has been the limit.
    elsewhere: Duration,
    /// The longest round trip of late.
    rtt: Duration,
    /// It was found that they carry less, once.
    is_less: bool,
    /// Time since lanes were added, switched or taken back, or had to share with others.
    unchanged: Duration,
    /// What each lane delivered of late, bytes/s.
    speeds: BTreeMap<LaneId, f64>,
    comparison: AlgorithmTrial,
    /// Whether enough is left for a trial to pay.
    is_worthwhile: bool,
    /// The congestion control that was found to be better.
    chosen: Option<usize>,
    /// How long to stay after the next trial that does not pay.
    patience: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPhase {
    /// What the lanes deliver is measured.
    Measure,
    /// So many were added to what delivered so much.
    Trial { before: u64, added: u32 },
    /// They deliver so much, and are left alone for so long.
    Stay { level: u64, left: Duration },
}

impl Tuner {
    /// Begins with [`TuningConfig::start`] lanes.
    pub fn new(config: TuningConfig) -> Tuner {
        Tuner {
            config,
            phase: SearchPhase::Measure,
            elapsed: Duration::ZERO,
            judged: Duration::ZERO,
            delivered: 0,
            elsewhere: Duration::ZERO,
            rtt: Duration::ZERO,
            is_less: false,
            unchanged: Duration::ZERO,
            speeds: BTreeMap::new(),
            comparison: AlgorithmTrial::default(),
            is_worthwhile: true,
            chosen: None,
            patience: PATIENCE_MIN,
        }
    }

    /// The congestion control for the next lane: the chosen one; while none is, the first for most,
    /// and each fourth has another to compare it with.
    pub fn algorithm_for(&self, lane: LaneId) -> Option<usize> {
        let choices = self.config.algorithms.len() as u32;
        let (turn, compared) = (lane.0 / COMPARED_EACH, lane.0 % COMPARED_EACH == COMPARED_EACH - 1);
        let place = if compared && choices > 1 { 1 + turn % (choices - 1) } else { 0 };
        self.chosen.or_else(|| (choices > 0).then_some(place as usize))
    }

    /// Whether it is not known yet what these lanes carry: some are on trial, or there were others
    /// a short while ago.
    pub fn is_trying(&self) -> bool {
        matches!(self.phase, SearchPhase::Trial { .. }) || self.unchanged < warm_up(self.rtt) + window(self.rtt)
    }

    /// Other traffic on the path has come or gone that is of this side's own making: lanes find
    /// their speed anew.
    pub fn disturbed(&mut self) {
        (self.elapsed, self.unchanged, self.is_less) = (Duration::ZERO, Duration::ZERO, false);
        self.forget();
    }

    /// A second has passed. What to do now, in this order.
    pub fn second(&mut self, second: &Second<'_>) -> Vec<LaneDecision> {
        if second.lanes.is_empty() {
            return Vec::new();
        }
        self.unchanged += second.elapsed;
        if second.remaining == Some(0) {
            self.look_at_speeds(second);
            return self.at_the_end(second).into_iter().collect();
        }
        if !is_network_limited(second) {
            return self.not_the_network(second);
        }
        self.elsewhere = Duration::ZERO;
        self.elapsed += second.elapsed;
        self.look_at_speeds(second);
        if let Some(end) = self.near_the_end(second) {
            return end;
        }
        let rtt = second.lanes.iter().map(|lane| lane.rtt).max().unwrap_or_default();
        self.rtt = rtt;
        if let SearchPhase::Stay { left, .. } = &mut self.phase {
            *left = left.saturating_sub(second.elapsed);
        }
        // Lanes find their speed first: new ones, and those that have the room of others now.
        let since = if matches!(self.phase, SearchPhase::Stay { .. }) { self.unchanged } else { self.elapsed };
        if since <= warm_up(rtt) {
            return Vec::new();
        }
        self.judged += second.elapsed;
        self.delivered += second.lanes.iter().map(|lane| lane.acked).sum::<u64>();
        self.comparison.add(second.lanes);
        if self.judged < window(rtt) {
            return Vec::new();
        }
        let rate = (self.delivered as f64 / self.judged.as_secs_f64()) as u64;
        let mut decisions: Vec<_> = self.choose_algorithm(second.lanes).into_iter().collect();
        // What is found in a trial must still be of use for a while.
        let trial = (warm_up(rtt) + window(rtt)) * TRIALS_LEFT;
        self.is_worthwhile = second.remaining.is_none_or(|left| left as f64 > rate as f64 * trial.as_secs_f64());
        decisions.extend(self.judge(rate, second.lanes));
        self.forget();
        decisions
    }

    fn look_at_speeds(&mut self, second: &Second<'_>) {
        self.speeds.retain(|id, _| second.lanes.iter().any(|lane| lane.lane == *id));
        for lane in second.lanes.iter().filter(|lane| lane.acked > 0 || lane.backlog > 0) {
            let now = lane.acked as f64 / second.elapsed.as_secs_f64().max(1e-6);
            self.speeds.entry(lane.lane).and_modify(|speed| *speed = (*speed + now) / 2.0).or_insert(now);
        }
    }

    /// What to do when so little is left that a trial would not end, or that a slow lane would be
    /// waited for.
    fn near_the_end(&mut self, second: &Second<'_>) -> Option<Vec<LaneDecision>> {
        let remaining = second.remaining?;
        let all: f64 = self.speeds.values().sum();
        let fastest = self.speeds.values().copied().fold(0.0, f64::max);
        let left = remaining as f64 / all.max(1.0);
        if left > NEAR {
            return None;
        }
        let unit = self.config.unit as f64;
        let too_slow = |speed: f64| unit / speed.max(1.0) > left + LATE * unit / fastest.max(1.0);
        let slow: Vec<_> = self.speeds.iter().filter(|(_, speed)| too_slow(**speed)).map(|(lane, _)| *lane).collect();
        if slow.is_empty() {
            return Some(Vec::new());
        }
        Some(vec![LaneDecision::Retire(slow, Why::TooSlowForTheEnd { remaining })])
    }

    /// What to do when no lane gets anything any more: a lane that is waited for for long is given
    /// up.
    fn at_the_end(&self, second: &Second<'_>) -> Option<LaneDecision> {
        let (fastest, speed) = self.speeds.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let unit = self.config.unit as f64;
        let slow = second
            .lanes
            .iter()
            .filter(|lane| lane.lane != *fastest && lane.backlog > 0 && u64::from(lane.held_back) < HELD_BACK_MAX)
            .filter_map(|lane| {
                let left = lane.backlog as f64 / self.speeds.get(&lane.lane)?.max(1.0);
                // Both ends close it, a chunk is read and sent again.
                let again = 2.0 * lane.rtt.as_secs_f64() + unit / speed.max(1.0);
                (left > again * WORTH_IT).then_some((lane.lane, left))
            });
        let slow: Vec<_> = slow.collect();
        let left = slow.iter().map(|(_, left)| *left).fold(0.0, f64::max);
        let left = (left < NEVER).then(|| Duration::from_secs_f64(left));
        (!slow.is_empty())
            .then(|| LaneDecision::Lose(slow.into_iter().map(|(lane, _)| lane).collect(), Why::WaitedFor { left }))
    }

    /// Another side is slower: nothing that is measured now says anything about lanes.
    fn not_the_network(&mut self, second: &Second<'_>) -> Vec<LaneDecision> {
        self.elsewhere += second.elapsed;
        self.is_less = false;
        self.forget();
        if matches!(self.phase, SearchPhase::Trial { .. }) {
            self.enter(SearchPhase::Measure);
        }
        let spare = (second.lanes.len() as u32).saturating_sub(self.config.start);
        if self.elsewhere < SPARE_AFTER || spare == 0 {
            return Vec::new();
        }
        self.elsewhere = Duration::ZERO;
        vec![LaneDecision::Retire(slowest(second.lanes, spare), Why::NotTheNetwork)]
    }

    fn choose_algorithm(&mut self, lanes: &[LaneSample]) -> Option<LaneDecision> {
        if self.config.algorithms.len() < 2 {
            return None;
        }
        let Better { algorithm, better, worse } = self.comparison.better()?;
        let others = lanes.iter().filter(|lane| lane.algorithm.is_some_and(|other| other != algorithm));
        let others: Vec<_> = others.map(|lane| lane.lane).collect();
        self.chosen = Some(algorithm);
        (!others.is_empty()).then_some(LaneDecision::Switch(others, algorithm, Why::Delivers { better, worse }))
    }

    fn judge(&mut self, rate: u64, lanes: &[LaneSample]) -> Vec<LaneDecision> {
        match self.phase {
            SearchPhase::Measure => self.try_more(rate, lanes.len() as u32),
            SearchPhase::Trial { before, .. } if pays(before, rate) => {
                self.patience = PATIENCE_MIN;
                let mut more = vec![LaneDecision::Stay(Why::Paid { before, after: rate })];
                more.extend(self.try_more(rate, lanes.len() as u32));
                more
            }
            SearchPhase::Trial { before, added } => {
                self.stay(before.max(rate));
                self.unchanged = Duration::ZERO;
                let spare = added.min((lanes.len() as u32).saturating_sub(self.config.start.min(lanes.len() as u32)));
                vec![LaneDecision::Retire(slowest(lanes, spare), Why::DidNotPay { before, after: rate })]
            }
            SearchPhase::Stay { level, left } => {
                let was_less = std::mem::replace(&mut self.is_less, rate < level - level / FELL);
                match (self.is_less, was_less) {
                    (true, true) => self.look_again(level, rate, lanes),
                    (false, _) if left.is_zero() => self.try_more(rate, lanes.len() as u32),
                    // Once may be chance.
                    _ => Vec::new(),
                }
            }
        }
    }

    /// The path has changed: all that was found is in question, the congestion control too.
    fn look_again(&mut self, level: u64, rate: u64, lanes: &[LaneSample]) -> Vec<LaneDecision> {
        let why = Why::Fell { from: level, to: rate };
        self.patience = PATIENCE_MIN;
        self.enter(SearchPhase::Measure);
        self.unchanged = Duration::ZERO;
        let Some(chosen) = self.chosen.take() else { return vec![LaneDecision::Stay(why)] };
        let other = (chosen + 1) % self.config.algorithms.len().max(1);
        let lanes = lanes.iter().filter(|lane| lane.algorithm == Some(chosen)).map(|lane| lane.lane);
        vec![LaneDecision::Switch(lanes.step_by(COMPARED_EACH as usize).collect(), other, why)]
    }

    fn try_more(&mut self, rate: u64, now: u32) -> Vec<LaneDecision> {
        let added = now.min(self.config.max.saturating_sub(now));
        if !self.is_worthwhile {
            self.stay(rate);
            return Vec::new();
        }
        if added == 0 {
            self.stay(rate);
            return vec![LaneDecision::Stay(Why::AtMost { rate })];
        }
        self.enter(SearchPhase::Trial { before: rate, added });
        self.unchanged = Duration::ZERO;
        vec![LaneDecision::Add(added, Why::Trying { rate })]
    }

    fn stay(&mut self, level: u64) {
        self.enter(SearchPhase::Stay { level, left: self.patience });
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
    }

    fn enter(&mut self, phase: SearchPhase) {
        (self.phase, self.elapsed, self.is_less) = (phase, Duration::ZERO, false);
    }

    /// What is judged next begins from here.
    fn forget(&mut self) {
        (self.judged, self.delivered) = (Duration::ZERO, 0);
        self.comparison.clear();
    }
}

/// Whether the lanes had work, could send it as far as the other host is concerned, and were given
/// no rate that they keep.
fn is_network_limited(second: &Second<'_>) -> bool {
    let lanes = second.lanes;
    let mean = |of: fn(&LaneSample) -> u16| lanes.iter().map(|l| u64::from(of(l))).sum::<u64>() / lanes.len() as u64;
    let acked: u64 = lanes.iter().map(|lane| lane.acked).sum();
    let keeps = |rate: u64| acked as f64 >= rate as f64 * second.elapsed.as_secs_f64() * RATE_KEPT;
    mean(|lane| lane.idle) < IDLE_MAX && mean(|lane| lane.held_back) < HELD_BACK_MAX && !second.rate.is_some_and(keeps)
}

fn pays(before: u64, after: u64) -> bool {
    after > before + before / PAYS
}

fn slowest(lanes: &[LaneSample], count: u32) -> Vec<LaneId> {
    let mut by_speed: Vec<_> = lanes.iter().map(|lane| (lane.acked, lane.lane)).collect();
    by_speed.sort_unstable();
    by_speed.truncate(count as usize);
    by_speed.into_iter().map(|(_, lane)| lane).collect()
}

/// A connection doubles its speed each round trip from ten segments on: ten of them take it to
/// where its path is.
fn warm_up(rtt: Duration) -> Duration {
    (rtt * 10).clamp(Duration::from_secs(1), Duration::from_secs(4))
}

/// What is judged: long enough for a loss and the way back from it, on most paths.
fn window(rtt: Duration) -> Duration {
    (rtt * 10).clamp(Duration::from_secs(2), Duration::from_secs(4))
}

/// One lane in so many tries another congestion control.
const COMPARED_EACH: u32 = 4;
/// A trial is made if what is left takes so many times as long.
const TRIALS_LEFT: u32 = 4;
/// More lanes must bring a tenth more: as lanes share unevenly, each also is one to wait for at the
/// end.
const PAYS: u64 = 10;
/// A fall by a quarter is no chance.
const FELL: u64 = 4;
/// Thousandths of the time that lanes may have nothing in hand where the network is the limit, ...
const IDLE_MAX: u64 = 250;
/// ... and in which the other host may take no more.
const HELD_BACK_MAX: u64 = 500;
/// A rate is kept that is reached so far.
const RATE_KEPT: f64 = 0.9;
/// Seconds from the end within which nothing is tried any more: a trial takes about as long.
const NEAR: f64 = 6.0;
/// Sending again costs others time as well: it must be sooner by so many times.
const WORTH_IT: f64 = 2.0;
/// Seconds: a lane that would take so long does not move.
const NEVER: f64 = 3600.0;
/// A lane may take so many times as long for its last unit as the fastest does.
const LATE: f64 = 2.0;
/// Lanes beyond the first ones that are of no use are kept so long.
const SPARE_AFTER: Duration = Duration::from_secs(30);
/// The wait until more lanes are tried again, doubled each time that it does not pay, ...
const PATIENCE_MIN: Duration = Duration::from_secs(60);
/// ... up to this.
const PATIENCE_MAX: Duration = Duration::from_secs(16 * 60);
