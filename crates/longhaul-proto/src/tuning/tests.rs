//! Tests of the search over made-up paths: each gives the rate of a number of lanes, and the
//! decisions are written as lines.

mod fewer;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::*;

/// A path, and the lanes on it.
struct Path {
    tuner: Tuner,
    algorithms: Vec<String>,
    lanes: BTreeMap<LaneId, Option<usize>>,
    next: u32,
    rtt: Duration,
    idle: u16,
    rate: Option<u64>,
    full: bool,
    excess_loss: u16,
    remaining: Option<u64>,
    backlog: u64,
    seconds: u64,
    log: String,
}

/// The settings of a search among so many lanes.
fn config(start: u32, max: u32) -> TuningConfig {
    TuningConfig { start, usual: start, max, unit: 4 << 20, algorithms: Vec::new(), chosen: None }
}

impl Path {
    fn new(start: u32, max: u32, algorithms: &[&str]) -> Path {
        let algorithms: Vec<String> = algorithms.iter().map(|&name| name.to_owned()).collect();
        let mut path = Path {
            tuner: Tuner::new(TuningConfig { algorithms: algorithms.clone(), ..config(start, max) }),
            algorithms,
            lanes: BTreeMap::new(),
            next: 0,
            rtt: Duration::from_millis(100),
            idle: 0,
            rate: None,
            full: false,
            excess_loss: 0,
            remaining: None,
            backlog: 0,
            seconds: 0,
            log: String::new(),
        };
        path.add(start);
        path
    }

    fn add(&mut self, count: u32) {
        for _ in 0..count {
            let lane = LaneId(self.next);
            self.lanes.insert(lane, self.tuner.algorithm_for(lane));
            self.next += 1;
        }
    }

    /// Lets time pass, where lane `n` of `count` delivers `speed(algorithm, count)` MB/s.
    fn run(&mut self, seconds: u64, speed: impl Fn(Option<usize>, u64) -> u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            let count = self.lanes.len() as u64;
            let sample = |(&lane, &algorithm): (&LaneId, &Option<usize>)| LaneSample {
                lane,
                algorithm,
                acked: speed(algorithm, count) * 1_000_000,
                idle: self.idle,
                held_back: 0,
                rtt: self.rtt,
                backlog: self.backlog,
            };
            let lanes: Vec<_> = self.lanes.iter().map(sample).collect();
            let second = Second {
                elapsed: Duration::from_secs(1),
                lanes: &lanes,
                rate: self.rate,
                full: self.full,
                excess_loss: self.excess_loss,
                remaining: self.remaining,
            };
            for decision in self.tuner.second(&second) {
                self.follow(decision);
            }
        }
    }

    fn follow(&mut self, decision: LaneDecision) {
        let at = self.seconds;
        match decision {
            LaneDecision::Add(count, why) => {
                self.add(count);
                let _ = writeln!(self.log, "{at}: +{count} = {}: {why}", self.lanes.len());
            }
            LaneDecision::Retire(lanes, why) => {
                lanes.iter().for_each(|lane| {
                    self.lanes.remove(lane);
                });
                let _ = writeln!(self.log, "{at}: -{} = {}: {why}", lanes.len(), self.lanes.len());
            }
            LaneDecision::Lose(lanes, why) => {
                lanes.iter().for_each(|lane| {
                    self.lanes.remove(lane);
                });
                let _ = writeln!(self.log, "{at}: lost {} = {}: {why}", lanes.len(), self.lanes.len());
            }
            LaneDecision::Switch(lanes, to, why) => {
                self.lanes.extend(lanes.iter().map(|lane| (*lane, Some(to))));
                let _ = writeln!(self.log, "{at}: {} to {}: {why}", lanes.len(), self.algorithms[to]);
            }
            LaneDecision::Stay(why) => {
                let _ = writeln!(self.log, "{at}: {why}");
            }
        }
    }
}

fn told(log: &str, want: &[&str]) {
    assert_eq!(log.lines().collect::<Vec<_>>(), want, "\n{log}");
}

#[test]
fn lanes_are_doubled_while_that_pays_and_no_further() {
    let mut path = Path::new(4, 32, &[]);
    // Each carries 5 MB/s, all together 100 at most.
    path.run(30, |_, count| 5.min(100 / count));
    told(
        &path.log,
        &[
            "3: +4 = 8: the network limits at 20.0 MB/s",
            "6: more lanes carried more: 20.0 MB/s before, 40.0 after",
            "6: +8 = 16: the network limits at 40.0 MB/s",
            "9: more lanes carried more: 40.0 MB/s before, 80.0 after",
            "9: +16 = 32: the network limits at 80.0 MB/s",
            "12: more lanes carried more: 80.0 MB/s before, 96.0 after",
            "12: there may be no more lanes than these, at 96.0 MB/s",
        ],
    );
}

#[test]
fn lanes_that_do_not_pay_are_taken_back_and_tried_again_much_later() {
    let mut path = Path::new(4, 32, &[]);
    path.run(200, |_, count| 120 / count);
    told(
        &path.log,
        &[
            "3: +4 = 8: the network limits at 120.0 MB/s",
            "6: -4 = 4: more lanes carried no more: 120.0 MB/s before, 120.0 after",
            "67: +4 = 8: the network limits at 120.0 MB/s",
            "70: -4 = 4: more lanes carried no more: 120.0 MB/s before, 120.0 after",
            "191: +4 = 8: the network limits at 120.0 MB/s",
            "194: -4 = 4: more lanes carried no more: 120.0 MB/s before, 120.0 after",
        ],
    );
}

#[test]
fn a_long_path_is_given_longer_to_find_its_speed() {
    let mut path = Path::new(4, 8, &[]);
    path.rtt = Duration::from_millis(300);
    path.run(12, |_, count| 120 / count);
    told(
        &path.log,
        &[
            "6: +4 = 8: the network limits at 120.0 MB/s",
            "12: -4 = 4: more lanes carried no more: 120.0 MB/s before, 120.0 after",
        ],
    );
}

#[test]
fn the_congestion_control_that_delivers_more_takes_all_lanes_and_is_tried_again_when_the_flow_falls() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    path.run(5, |algorithm, _| if algorithm == Some(0) { 20 } else { 3 });
    assert!(path.lanes.values().all(|algorithm| *algorithm == Some(0)));
    path.run(5, |algorithm, _| if algorithm == Some(0) { 20 } else { 3 });
    // Now a policer drops packets of BBR.
    path.run(20, |algorithm, _| if algorithm == Some(0) { 2 } else { 15 });
    assert!(path.lanes.values().all(|algorithm| *algorithm == Some(1)));
    told(
        &path.log,
        &[
            "3: 1 to bbr: a lane delivers 20.0 MB/s with it, 3.0 with the other",
            "3: there may be no more lanes than these, at 63.0 MB/s",
            "13: 1 to cubic: the lanes carry less: 8.0 MB/s, 63.0 before",
            "16: 3 to cubic: a lane delivers 15.0 MB/s with it, 2.0 with the other",
            "16: there may be no more lanes than these, at 21.0 MB/s",
        ],
    );
}

#[test]
fn a_congestion_control_that_is_known_is_every_lanes_until_the_flow_falls() {
    let algorithms: Vec<String> = ["bbr", "cubic"].map(str::to_owned).to_vec();
    let mut path = Path::new(0, 4, &["bbr", "cubic"]);
    path.tuner = Tuner::new(TuningConfig { algorithms, chosen: Some(1), ..config(4, 4) });
    path.add(4);
    assert!(path.lanes.values().all(|algorithm| *algorithm == Some(1)));
    path.run(10, |_, _| 20);
    path.run(20, |algorithm, _| if algorithm == Some(1) { 2 } else { 15 });
    assert!(path.lanes.values().all(|algorithm| *algorithm == Some(0)), "{}", path.log);
    let unknown = Tuner::new(TuningConfig { chosen: Some(1), ..config(4, 4) });
    assert_eq!(unknown.algorithm_for(LaneId(0)), None);
}

#[test]
fn a_fall_that_does_not_last_changes_nothing() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    path.run(11, |_, _| 20);
    let before = path.log.clone();
    for _ in 0..10 {
        path.run(2, |_, _| 5);
        path.run(2, |_, _| 20);
    }
    assert_eq!(path.log, before);
}

#[test]
fn lanes_are_known_after_a_while_whatever_limits_them() {
    let mut path = Path::new(4, 4, &[]);
    path.idle = 600;
    assert!(path.tuner.is_trying());
    path.run(20, |_, _| 2);
    assert!(!path.tuner.is_trying());
}

#[test]
fn what_lanes_carry_while_they_find_their_speed_again_changes_nothing() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    path.rtt = Duration::from_millis(400);
    path.run(20, |_, _| 20);
    let before = path.log.clone();
    assert!(!path.tuner.is_trying());
    path.tuner.disturbed();
    assert!(path.tuner.is_trying());
    path.run(6, |_, _| 5);
    path.run(20, |_, _| 20);
    assert_eq!(path.log, before);
    assert!(!path.tuner.is_trying());
    // A look before it does not count with one after it.
    path.run(4, |_, _| 5);
    path.tuner.disturbed();
    path.run(4, |_, _| 20);
    path.run(4, |_, _| 5);
    path.run(8, |_, _| 20);
    assert_eq!(path.log, before);
    // The same without anybody who says so.
    path.run(8, |_, _| 5);
    assert!(path.log.contains("the lanes carry less"), "{}", path.log);
}

#[test]
fn a_slow_disk_adds_no_lanes_and_spares_those_that_were_added() {
    let mut path = Path::new(4, 32, &[]);
    path.run(5, |_, _| 5);
    assert_eq!(path.lanes.len(), 8);
    path.idle = 600;
    path.run(60, |_, _| 2);
    told(&path.log, &["3: +4 = 8: the network limits at 20.0 MB/s", "35: -4 = 4: it is not the network that limits"]);
}

#[test]
fn a_rate_that_is_kept_is_no_reason_for_more_lanes() {
    let mut path = Path::new(4, 32, &[]);
    path.rate = Some(40_000_000);
    path.run(30, |_, _| 10);
    told(&path.log, &[]);
    path.run(3, |_, _| 5);
    told(&path.log, &["33: +4 = 8: the network limits at 20.0 MB/s"]);
}

#[test]
fn on_a_full_path_no_lanes_are_added_but_controls_are_compared_and_the_end_is_looked_after() {
    let mut path = Path::new(8, 32, &["bbr", "cubic"]);
    path.full = true;
    path.run(40, |algorithm, _| if algorithm == Some(0) { 12 } else { 2 });
    assert!(path.log.contains("a lane delivers 12.0 MB/s with it"), "{}", path.log);
    assert!(!path.log.contains('+') && !path.log.contains("it is not the network"), "{}", path.log);
    path.run(10, |_, _| 5);
    assert!(!path.log.contains("the lanes carry less"), "others take their part: {}", path.log);
    path.full = false;
    path.run(10, |_, _| 5);
    assert!(path.log.contains("+8"), "there is room again: {}", path.log);
    let mut path = Path::new(4, 32, &["bbr", "cubic"]);
    (path.full, path.remaining) = (true, Some(50_000_000));
    path.run(1, |algorithm, _| if algorithm == Some(0) { 10 } else { 1 });
    told(&path.log, &["1: -1 = 3: 50.0 MB are left, which others send sooner"]);
}

#[test]
fn near_the_end_nothing_is_tried_and_slow_lanes_take_no_more() {
    let mut path = Path::new(4, 32, &["bbr", "cubic"]);
    path.remaining = Some(50_000_000);
    path.run(1, |algorithm, _| if algorithm == Some(0) { 10 } else { 1 });
    told(&path.log, &["1: -1 = 3: 50.0 MB are left, which others send sooner"]);
    path.run(20, |_, _| 10);
    assert_eq!(path.lanes.len(), 3, "{}", path.log);
}

#[test]
fn far_from_the_end_slow_lanes_are_welcome() {
    let mut path = Path::new(4, 4, &[]);
    path.remaining = Some(50_000_000_000);
    path.run(20, |_, _| 1);
    assert_eq!(path.lanes.len(), 4, "{}", path.log);
}

#[test]
fn at_the_end_lanes_that_are_waited_for_are_given_up_if_others_are_sooner() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    let speed = |algorithm, _| if algorithm == Some(0) { 10 } else { 1 };
    path.tuner.carry_units(1_000_000);
    (path.remaining, path.backlog) = (Some(1_000_000_000), 3_000_000);
    path.run(1, speed);
    path.remaining = Some(0);
    path.run(1, speed);
    told(&path.log, &["2: lost 1 = 3: only they are waited for, for 3.0 s; others send that again sooner"]);
    path.run(5, |_, _| 0);
    assert!(!path.lanes.is_empty(), "somebody must send it: {}", path.log);
}

#[test]
fn at_the_end_a_lane_that_does_not_move_is_given_up() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    (path.remaining, path.backlog) = (Some(0), 3_000_000);
    path.run(1, |algorithm, _| if algorithm == Some(0) { 10 } else { 0 });
    told(&path.log, &["1: lost 1 = 3: only they are waited for, and one of them does not move"]);
}

#[test]
fn at_the_end_of_a_short_transfer_a_lane_has_some_round_trips_to_deliver_in() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    (path.rtt, path.remaining, path.backlog) = (Duration::from_secs(1), Some(0), 60_000);
    let speed = |algorithm, _| u64::from(algorithm == Some(0));
    path.run(3, speed);
    told(&path.log, &[]);
    path.backlog = 0;
    path.run(1, speed);
    path.backlog = 60_000;
    path.run(3, speed);
    told(&path.log, &[]);
    path.run(1, speed);
    told(&path.log, &["8: lost 1 = 3: only they are waited for, and one of them does not move"]);
}

#[test]
fn at_the_end_a_lane_that_is_nearly_through_is_waited_for() {
    let mut path = Path::new(4, 4, &["bbr", "cubic"]);
    (path.remaining, path.backlog) = (Some(0), 500_000);
    path.run(1, |algorithm, _| if algorithm == Some(0) { 10 } else { 1 });
    told(&path.log, &[]);
}

#[test]
fn lanes_that_paid_are_kept_when_there_is_no_time_for_more() {
    let mut path = Path::new(4, 32, &[]);
    path.remaining = Some(1_000_000_000);
    path.run(3, |_, _| 5);
    path.remaining = Some(300_000_000);
    path.run(20, |_, _| 5);
    told(
        &path.log,
        &["3: +4 = 8: the network limits at 20.0 MB/s", "6: more lanes carried more: 20.0 MB/s before, 40.0 after"],
    );
}

#[test]
fn a_trial_that_would_end_with_the_transfer_is_not_made() {
    let mut path = Path::new(4, 32, &[]);
    path.remaining = Some(200_000_000);
    path.run(10, |_, _| 5);
    told(&path.log, &[]);
    path.remaining = Some(2_000_000_000);
    path.run(54, |_, _| 5);
    told(&path.log, &["63: +4 = 8: the network limits at 20.0 MB/s"]);
}

/// The decision when nothing is left to give and the second of two lanes, which delivers a tenth of
/// the MB/s that the first does, has this backlog.
fn at_the_end(seconds: u64, unit: u64, backlog: u64) -> Vec<LaneDecision> {
    at_the_end_under(None, seconds, unit, backlog)
}

/// The same where a rate in bytes/s was asked for.
fn at_the_end_under(rate: Option<u64>, seconds: u64, unit: u64, backlog: u64) -> Vec<LaneDecision> {
    let mut tuner = Tuner::new(config(2, 2));
    tuner.carry_units(unit);
    let lane = |id, acked, backlog| LaneSample {
        lane: LaneId(id),
        algorithm: None,
        acked,
        idle: 0,
        held_back: 0,
        rtt: Duration::from_millis(300),
        backlog,
    };
    let mut second = |backlog, remaining| {
        let lanes = [lane(0, 1_000_000, 0), lane(1, 100_000, backlog)];
        let elapsed = Duration::from_secs(1);
        tuner.second(&Second { elapsed, lanes: &lanes, rate, full: false, excess_loss: 0, remaining: Some(remaining) })
    };
    (0..seconds).for_each(|_| drop(second(backlog, 100 << 20)));
    second(backlog, 0)
}

fn is_given_up(decisions: &[LaneDecision]) -> bool {
    match decisions {
        [] => false,
        [LaneDecision::Lose(lanes, _)] => lanes[..] == [LaneId(1)],
        other => panic!("{other:?}"),
    }
}

#[test]
fn stragglers_that_are_given_up_cost_a_twentieth_of_all_unless_they_stand_still() {
    // After 4.4 MB and after 6.6 MB, of which a twentieth is 220 and 330 kB.
    assert!(!is_given_up(&at_the_end(3, 256 << 10, 256 << 10)));
    assert!(is_given_up(&at_the_end(5, 256 << 10, 256 << 10)));
    // It would take more than 10 s.
    assert!(is_given_up(&at_the_end(3, 256 << 10, 1 << 20)));
}

#[test]
fn stragglers_cost_whole_units_and_count_against_all_that_was_carried_though_a_rate_was_kept() {
    // A twentieth of 19.8 MB is less than a unit of which 900 kB are missing, that of 22 MB is not.
    assert!(!is_given_up(&at_the_end(17, 1 << 20, 900_000)));
    for rate in [None, Some(1_000_000)] {
        assert!(is_given_up(&at_the_end_under(rate, 19, 1 << 20, 900_000)), "{rate:?}");
    }
}

#[test]
fn a_straggler_is_given_up_by_what_it_has_and_not_by_what_a_chunk_could_be() {
    let is_lost = |unit: u64, backlog: u64| is_given_up(&at_the_end(30, unit, backlog));
    // It takes 2.6 s for a small chunk, which another sends again in 0.9 s.
    assert!(is_lost(256 << 10, 256 << 10));
    // A chunk of 4 MiB would take 4.8 s.
    assert!(!is_lost(4 << 20, 256 << 10));
    // It is soon through.
    assert!(!is_lost(256 << 10, 128 << 10));
    // All that it has is sent again: eight small chunks, which take another 2.7 s.
    assert!(is_lost(256 << 10, 2 << 20));
}
