//! The search for the number of lanes: success first, then throughput.
//!
//! One change at a time, each judged by the bytes that all lanes together delivered before and
//! after. Double the lanes while that pays, take back the ones that did not, stay, and search again
//! when the rate falls or much time has passed. Only seconds in which the network was the limit are
//! judged: more lanes do not make a disk faster. `fewer` takes lanes back that were for the start
//! alone, and those that lose too much.

mod fewer;

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::LaneId;

use self::fewer::StartLanes;
use super::algorithm::{AlgorithmTrial, Better};
use super::{LaneDecision, LaneSample, Second, Why};

/// The settings of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningConfig {
    /// The number of lanes that stay when the network is not the limit. A transfer begins with as
    /// many, or with more if those did better before.
    pub start: u32,
    /// The number of lanes that stay of those once the path is known, if it needs no more. A
    /// session over a long path begins with more, as twice as many are a round trip ahead.
    pub usual: u32,
    /// The most lanes.
    pub max: u32,
    /// Bytes of a unit, which a lane takes at a time, as long as [`Tuner::carry_units`] says no
    /// other length.
    pub unit: u64,
    /// Congestion controls to choose from, by name. With one or none, there is no choice.
    pub algorithms: Vec<String>,
    /// The place of the one that was found better before, which all lanes begin with. `None` if
    /// none was.
    pub chosen: Option<usize>,
}

/// The search. See the module.
#[derive(Debug)]
pub struct Tuner {
    config: TuningConfig,
    phase: SearchPhase,
    /// Time in this phase, ...
    elapsed: Duration,
    /// ... the part of it that was judged, and the bytes that were delivered in that part.
    judged: Duration,
    delivered: u64,
    /// How long another part than the network has been the limit.
    elsewhere: Duration,
    /// The longest recent round trip.
    rtt: Duration,
    /// Whether the lanes were once found to carry less.
    is_less: bool,
    /// Time since lanes were added, switched or taken back, or began to share the path with others.
    unchanged: Duration,
    deliveries: Deliveries,
    comparison: AlgorithmTrial,
    room: RoomForMore,
    /// The congestion control that was found to be better. `None` until one was.
    chosen: Option<usize>,
    /// The length of the stay after the next trial that does not pay.
    patience: Duration,
}

/// Whether more lanes may be tried.
#[derive(Clone, Copy, Debug)]
struct RoomForMore {
    /// Enough bytes are left for a trial to pay.
    is_worthwhile: bool,
    /// Enough are left for the lanes of the start to be ended one by one.
    is_long: bool,
    /// More lanes would only take from others, if anything.
    is_full: bool,
    /// How long too much has been lost without a break.
    lossy: Duration,
    start_lanes: StartLanes,
}

/// The bytes that lanes delivered, by which those are found that others wait for at the end.
#[derive(Debug, Default)]
struct Deliveries {
    /// The recent rate of each lane, bytes/s.
    speeds: BTreeMap<LaneId, f64>,
    /// How long each lane has had bytes under way without a break.
    laden: BTreeMap<LaneId, Duration>,
    /// Bytes of all lanes so far.
    carried: u64,
    /// Bytes that lanes had in hand which were given up.
    given_up: u64,
}

/// The phase of the search. Only seconds in which the network was the limit count.
///
/// ```text
/// phase    event                                                next phase
/// Measure  measured; more lanes are allowed and worthwhile      Trial
/// Measure  measured; no more lanes, or too little is left       Stay
/// Trial    more was carried; even more lanes are allowed        Trial
/// Trial    more was carried; no more lanes                      Stay
/// Trial    no more was carried                                  Stay
/// Trial    another part than the network limits                 Measure
/// Stay     the rate fell by a quarter, twice in a row           Measure
/// Measure  measured; the path is full                           Stay
/// Stay     the stay is over; more lanes are allowed             Trial
/// Stay     lanes of the start stand that are of no more use     Fewer
/// Fewer    as much is carried, and more of them stand           Fewer
/// Fewer    less is carried, or none is left, or the end nears   Stay
/// Fewer    another part than the network limits                 Measure
/// any      too much is lost                                     Stay
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPhase {
    /// The rate of the lanes is being measured.
    Measure,
    /// `added` lanes were added to lanes that delivered `before` bytes/s.
    Trial { before: u64, added: u32 },
    /// `ended` lanes were ended, one by one, of those that delivered `before` bytes/s.
    Fewer { before: u64, ended: u32 },
    /// The lanes deliver `level` bytes/s and are left alone for the time `left`.
    Stay { level: u64, left: Duration },
}

impl Tuner {
    /// Begins with the lanes of the first second.
    pub fn new(config: TuningConfig) -> Tuner {
        let start_lanes = StartLanes::of(&config);
        Tuner {
            chosen: config.chosen.filter(|place| *place < config.algorithms.len()),
            config,
            phase: SearchPhase::Measure,
            elapsed: Duration::ZERO,
            judged: Duration::ZERO,
            delivered: 0,
            elsewhere: Duration::ZERO,
            rtt: Duration::ZERO,
            is_less: false,
            unchanged: Duration::ZERO,
            deliveries: Deliveries::default(),
            comparison: AlgorithmTrial::default(),
            room: RoomForMore {
                is_worthwhile: true,
                is_long: true,
                is_full: false,
                lossy: Duration::ZERO,
                start_lanes,
            },
            patience: PATIENCE_MIN,
        }
    }

    /// The congestion control for the next lane: the chosen one; until one is chosen, the first one
    /// for most lanes, and another one for each fourth to compare it with.
    pub fn algorithm_for(&self, lane: LaneId) -> Option<usize> {
        let choices = self.config.algorithms.len() as u32;
        let (turn, compared) = (lane.0 / COMPARED_EACH, lane.0 % COMPARED_EACH == COMPARED_EACH - 1);
        let place = if compared && choices > 1 { 1 + turn % (choices - 1) } else { 0 };
        self.chosen.or_else(|| (choices > 0).then_some(place as usize))
    }

    /// Whether the rate of these lanes is not known yet: some are on trial, or there were others a
    /// short while ago.
    pub fn is_trying(&self) -> bool {
        let is_trial = matches!(self.phase, SearchPhase::Trial { .. } | SearchPhase::Fewer { .. });
        is_trial || self.unchanged < warm_up(self.rtt) + window(self.rtt)
    }

    /// Units have `bytes` from now on.
    pub fn carry_units(&mut self, bytes: u64) {
        self.config.unit = bytes;
    }

    /// Other traffic of this side has come to the path or left it, so that lanes find their speed
    /// anew.
    pub fn disturbed(&mut self) {
        (self.elapsed, self.unchanged, self.is_less) = (Duration::ZERO, Duration::ZERO, false);
        self.forget();
    }

    /// Takes the samples of a second. Gives the decisions, in the order to carry them out.
    pub fn second(&mut self, second: &Second<'_>) -> Vec<LaneDecision> {
        if second.lanes.is_empty() {
            return Vec::new();
        }
        self.unchanged += second.elapsed;
        // Also while something else than the network limits.
        self.deliveries.carried += second.lanes.iter().map(|lane| lane.acked).sum::<u64>();
        self.deliveries.look_at_loads(second);
        if second.remaining == Some(0) {
            self.look_at_speeds(second);
            return self.at_the_end(second).into_iter().collect();
        }
        if let Some(fewer) = self.take_back(second) {
            return vec![fewer];
        }
        if !is_network_limited(second) {
            return self.not_the_network(second);
        }
        self.elsewhere = Duration::ZERO;
        self.elapsed += second.elapsed;
        self.room.is_full = second.full;
        self.look_at_speeds(second);
        if let Some(end) = self.near_the_end(second) {
            return end;
        }
        let rtt = second.lanes.iter().map(|lane| lane.rtt).max().unwrap_or_default();
        self.rtt = rtt;
        if let SearchPhase::Stay { left, .. } = &mut self.phase {
            *left = left.saturating_sub(second.elapsed);
        }
        // New lanes, and lanes that take over the room of others, find their speed first.
        let since = if matches!(self.phase, SearchPhase::Stay { .. }) { self.unchanged } else { self.elapsed };
        let is_fewer = matches!(self.phase, SearchPhase::Fewer { .. });
        if since <= if is_fewer { warm_up(rtt).max(rtt * FEWER_ROUNDS) } else { warm_up(rtt) } {
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
        // The result of a trial must still be of use for a while.
        let trial = (warm_up(rtt) + window(rtt)) * TRIALS_LEFT;
        let lasts = |time: Duration| second.remaining.is_none_or(|left| left as f64 > rate as f64 * time.as_secs_f64());
        (self.room.is_worthwhile, self.room.is_long) = (lasts(trial), lasts(FEWER_LEFT));
        decisions.extend(self.judge(rate, second.lanes));
        self.forget();
        decisions
    }

    fn look_at_speeds(&mut self, second: &Second<'_>) {
        self.deliveries.speeds.retain(|id, _| second.lanes.iter().any(|lane| lane.lane == *id));
        for lane in second.lanes.iter().filter(|lane| lane.acked > 0 || lane.backlog > 0) {
            let now = lane.acked as f64 / second.elapsed.as_secs_f64().max(1e-6);
            // What was a second ago counts half.
            let before = 0.5_f64.powf(second.elapsed.as_secs_f64());
            let mean = |speed: f64| speed * before + now * (1.0 - before);
            self.deliveries.speeds.entry(lane.lane).and_modify(|speed| *speed = mean(*speed)).or_insert(now);
        }
    }

    /// The decision if so little is left that a trial would not end, or that a slow lane would be
    /// waited for. `None` if the end is not near.
    fn near_the_end(&mut self, second: &Second<'_>) -> Option<Vec<LaneDecision>> {
        let remaining = second.remaining?;
        let all: f64 = self.deliveries.speeds.values().sum();
        let fastest = self.deliveries.speeds.values().copied().fold(0.0, f64::max);
        let left = remaining as f64 / all.max(1.0);
        if left > NEAR {
            return None;
        }
        let unit = self.config.unit as f64;
        let too_slow = |speed: f64| unit / speed.max(1.0) > left + LATE * unit / fastest.max(1.0);
        let slow: Vec<_> =
            self.deliveries.speeds.iter().filter(|(_, speed)| too_slow(**speed)).map(|(lane, _)| *lane).collect();
        if slow.is_empty() {
            return Some(Vec::new());
        }
        Some(vec![LaneDecision::Retire(slow, Why::TooSlowForTheEnd { remaining })])
    }

    /// The decision when no lane gets anything any more: a lane that would be waited for too long
    /// is given up. All that are given up cost a small part of the whole, unless one hardly moves.
    fn at_the_end(&mut self, second: &Second<'_>) -> Option<LaneDecision> {
        let (fastest, speed) = self.deliveries.speeds.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let unit = self.config.unit.max(1);
        // A unit of which only a part is missing is sent again as a whole.
        let cost = |lane: &LaneSample| lane.backlog.max(1).div_ceil(unit).saturating_mul(unit);
        let slow = second
            .lanes
            .iter()
            .filter(|lane| lane.lane != *fastest && lane.backlog > 0 && u64::from(lane.held_back) < HELD_BACK_MAX)
            .filter(|lane| self.deliveries.can_have_delivered(lane))
            .filter_map(|lane| {
                let left = lane.backlog as f64 / self.deliveries.speeds.get(&lane.lane)?.max(1.0);
                // Both ends close the lane, and what it has is read and sent again.
                let again = 2.0 * lane.rtt.as_secs_f64() + cost(lane) as f64 / speed.max(1.0);
                (left > again * WORTH_IT).then_some((lane, left))
            });
        let mut slow: Vec<_> = slow.collect();
        slow.retain(|(lane, left)| {
            let is_small = self.deliveries.given_up.saturating_add(cost(lane)) <= self.deliveries.carried / AGAIN_PART;
            let is_lost = is_small || *left > STANDS_STILL;
            self.deliveries.given_up += if is_lost { cost(lane) } else { 0 };
            is_lost
        });
        let left = slow.iter().map(|(_, left)| *left).fold(0.0, f64::max);
        let left = (left < NEVER).then(|| Duration::from_secs_f64(left));
        (!slow.is_empty())
            .then(|| LaneDecision::Lose(slow.into_iter().map(|(lane, _)| lane.lane).collect(), Why::WaitedFor { left }))
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
                self.room.start_lanes = StartLanes::Settled;
                let mut more = vec![LaneDecision::Stay(Why::Paid { before, after: rate })];
                more.extend(self.try_more(rate, lanes.len() as u32));
                more
            }
            SearchPhase::Trial { before, added } => {
                self.stay(before.max(rate));
                self.unchanged = Duration::ZERO;
                self.room.start_lanes.need_no_more();
                let spare = added.min((lanes.len() as u32).saturating_sub(self.begun_with()));
                if self.room.start_lanes == StartLanes::Ended {
                    self.keep_fewer(self.config.usual);
                }
                vec![LaneDecision::Retire(slowest(lanes, spare), Why::DidNotPay { before, after: rate })]
            }
            SearchPhase::Fewer { before, ended } => self.judge_fewer((before, ended), rate, lanes),
            SearchPhase::Stay { level, left } => {
                let was_less = std::mem::replace(&mut self.is_less, rate < level - level / FELL && !self.room.is_full);
                match (self.is_less, was_less) {
                    (true, true) => self.look_again(level, rate, lanes),
                    (false, _) if self.has_start_lanes(lanes) => self.end_start_lane(rate, 0, lanes),
                    (false, _) if left.is_zero() => self.try_more(rate, lanes.len() as u32),
                    // One slow measurement may be chance.
                    _ => Vec::new(),
                }
            }
        }
    }

    /// The path has changed, so the results are measured anew, those of the congestion control too.
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
        if !self.room.is_worthwhile {
            self.stay(rate);
            return Vec::new();
        }
        if self.room.is_full || !self.room.lossy.is_zero() {
            self.room.start_lanes.need_no_more();
            // That says nothing about what more lanes carry when it is over.
            self.enter(SearchPhase::Stay { level: rate, left: FULL_STAY });
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

    /// Begins the next measurement.
    fn forget(&mut self) {
        (self.judged, self.delivered) = (Duration::ZERO, 0);
        self.comparison.clear();
    }
}

impl Deliveries {
    fn look_at_loads(&mut self, second: &Second<'_>) {
        let laden = second.lanes.iter().filter(|lane| lane.backlog > 0).map(|lane| {
            (lane.lane, self.laden.get(&lane.lane).map_or(second.elapsed, |before| *before + second.elapsed))
        });
        self.laden = laden.collect();
    }

    /// Whether a lane that moves would have been seen to: nothing is acknowledged before a round
    /// trip, and a connection that begins takes some more for its first unit.
    fn can_have_delivered(&self, lane: &LaneSample) -> bool {
        self.laden.get(&lane.lane).is_some_and(|time| *time >= lane.rtt * ROUND_TRIPS_TO_MOVE)
    }
}

/// Whether the network limited: the lanes had work, the other host took it, and no given rate was
/// kept.
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

/// The time in which lanes find their speed. A connection doubles its speed each round trip from
/// ten segments on, and ten round trips take it to the speed of its path.
fn warm_up(rtt: Duration) -> Duration {
    (rtt * 10).clamp(Duration::from_secs(1), Duration::from_secs(4))
}

/// The time that is judged: long enough for a loss and the recovery from it, on most paths.
fn window(rtt: Duration) -> Duration {
    (rtt * 10).clamp(Duration::from_secs(2), Duration::from_secs(4))
}

/// One lane in this many tries another congestion control.
const COMPARED_EACH: u32 = 4;
/// A trial is made if the rest takes this many times as long.
const TRIALS_LEFT: u32 = 4;
/// Lanes of the start are ended if the rest takes so long, as each one that ends leaves a gap for
/// a while, ...
const FEWER_LEFT: Duration = Duration::from_secs(60);
/// ... which the others fill within as many round trips: BBR takes a quarter more each eight.
const FEWER_ROUNDS: u32 = 16;
/// More lanes must carry a tenth (1/10) more: lanes share unevenly, and each one more may be waited
/// for at the end.
const PAYS: u64 = 10;
/// The fall that starts a new search, a quarter (1/4): it is no chance.
const FELL: u64 = 4;
/// Thousandths of the time that lanes may have nothing in hand if the network is the limit, ...
const IDLE_MAX: u64 = 250;
/// ... and in which the other host may take no more.
const HELD_BACK_MAX: u64 = 500;
/// The share of a given rate from which on it counts as kept.
const RATE_KEPT: f64 = 0.9;
/// Seconds from the end within which nothing is tried any more: a trial takes about as long.
const NEAR: f64 = 6.0;
/// Sending again must be faster by this factor, as it takes time from other units.
const WORTH_IT: f64 = 2.0;
/// The part of the whole that lanes which are given up at the end may have in hand together, a
/// twentieth (1/20), ...
const AGAIN_PART: u64 = 20;
/// ... and more if a lane would take so many seconds: any transfer is better sent anew.
const STANDS_STILL: f64 = 10.0;
/// Round trips in which ten segments become the 150 that a bundle has.
const ROUND_TRIPS_TO_MOVE: u32 = 4;
/// Seconds. A lane that would take this long does not move.
const NEVER: f64 = 3600.0;
/// A lane may take this many times as long for its last unit as the fastest lane.
const LATE: f64 = 2.0;
/// The wait until it is looked again whether the path is still full.
const FULL_STAY: Duration = Duration::from_secs(5);
/// The wait until more lanes are tried again, doubled each time that it does not pay, ...
const PATIENCE_MIN: Duration = Duration::from_secs(60);
/// ... up to this.
const PATIENCE_MAX: Duration = Duration::from_secs(16 * 60);
