//! The control in a fluid model: a line with a queue that drops at its tail, sessions and cubic
//! flows on it. The figures of docs/DECISIONS.md as lower and upper bounds.

mod excess;
mod short;

use std::collections::VecDeque;

use super::*;

/// A line of 1 Gbit/s: docs/DECISIONS.md counts in Mbit/s.
const LINE: f64 = 125e6;
const MBIT: f64 = 8e-6;
/// Payload of a packet in the model.
const PACKET: f64 = 8948.0;
/// The step of the model, seconds.
const STEP: f64 = 0.0005;

/// The flows on the line, and the line.
#[derive(Clone, Copy, Debug)]
struct Case {
    rtt: f64,
    /// The queue in round trips, and the part of all packets that the line loses by itself.
    queue: f64,
    loss: f64,
    /// Within each so many seconds, all losses come in so many.
    bursts: (f64, f64),
    share: PathShare,
    /// Sessions, of which each begins so many seconds after the one before.
    sessions: usize,
    begin: f64,
    /// Cubic flows, which are there from this time to that.
    cubics: usize,
    there: f64,
    end: f64,
    /// From this time on the round trip is longer by so many seconds.
    longer: (f64, f64),
    /// From this time on the line carries this part.
    narrower: (f64, f64),
    /// Within each so many seconds, sessions have nothing to send for so many.
    stalls: (f64, f64),
    /// The rate at which they have something to send.
    source: f64,
    /// The part of what they may send that they send, as their threads wake late, and the seconds
    /// by which that makes nine of ten round trips longer.
    wakes: (f64, f64),
    /// The time that is measured.
    from: f64,
    to: f64,
}

const ALONE: Case = Case {
    rtt: 0.1,
    queue: 1.0,
    loss: 0.0,
    bursts: (1.0, 1.0),
    share: PathShare::Fair,
    sessions: 1,
    begin: 0.1,
    cubics: 0,
    there: 0.0,
    end: f64::INFINITY,
    longer: (f64::INFINITY, 0.0),
    narrower: (f64::INFINITY, 1.0),
    stalls: (f64::INFINITY, 0.0),
    source: f64::INFINITY,
    wakes: (1.0, 0.0),
    from: 10.0,
    to: 40.0,
};
const BESIDE: Case = Case { cubics: 1, begin: 10.0, from: 15.0, to: 50.0, ..ALONE };

/// The outcome: Mbit/s of each session and of all cubics, the mean queue in seconds, and the
/// part of the sessions' packets that was lost.
#[derive(Debug, Default)]
struct Figures {
    ours: Vec<f64>,
    cubic: f64,
    queue: f64,
    lost: f64,
}

/// A cubic flow (RFC 9438). Its window is in packets.
#[derive(Clone, Debug)]
struct CubicFlow {
    window: f64,
    highest: f64,
    age: f64,
    /// It does not back off again before a round trip has passed.
    hold: f64,
}

impl CubicFlow {
    fn step(&mut self, rtt: f64, is_lost: bool) {
        (self.hold, self.age) = (self.hold - STEP, self.age + STEP);
        if is_lost && self.hold <= 0.0 {
            self.highest = if self.window < self.highest { self.window * 0.85 } else { self.window };
            (self.window, self.age, self.hold) = (self.window * 0.7, 0.0, rtt);
        } else if self.highest == 0.0 {
            self.window *= 1.0 + STEP / rtt * 0.69;
        } else {
            let back = (self.highest * 0.3 / 0.4).cbrt();
            let cubic = 0.4 * (self.age - back).powi(3) + self.highest;
            let wanted = cubic.max(self.highest * 0.7 + 0.53 * self.age / rtt);
            self.window += (wanted - self.window).clamp(0.0, 0.5 * self.window * STEP / rtt);
        }
    }
}

/// A session whose lanes double their rate each round trip until the control says one.
struct Session {
    control: PathControl,
    open: f64,
    /// Delivered and lost bytes that are still to be heard of.
    on_its_way: VecDeque<(f64, f64)>,
    first: f64,
    delivered: f64,
    lost: f64,
    idle: f64,
    elapsed: f64,
}

impl Session {
    fn rate(&self) -> f64 {
        self.control.rate().map_or(self.open, |rate| rate as f64)
    }

    fn step(&mut self, rtt: f64, (delivered, lost): (f64, f64), idle: f64) {
        self.on_its_way.push_back((delivered, lost));
        let (delivered, lost) = self.on_its_way.pop_front().unwrap_or_default();
        (self.delivered, self.lost) = (self.delivered + delivered, self.lost + lost);
        (self.elapsed, self.idle) = (self.elapsed + STEP, self.idle + idle * STEP);
        self.open = (self.open * (1.0 + 0.69 * STEP / rtt)).min(1.25 * LINE);
        self.first = if self.first == 0.0 { rtt } else { self.first };
        if self.elapsed >= self.control.next_look().as_secs_f64() {
            let delivered = self.delivered as u64;
            self.control.look(&PathRound {
                elapsed: Duration::from_secs_f64(self.elapsed),
                delivered,
                lost: self.lost as u64,
                rtt: if delivered > 0 { Duration::from_secs_f64(rtt) } else { Duration::ZERO },
                rtt_first: Duration::from_secs_f64(self.first),
                packet_bytes: PACKET as u32,
                idle: self.idle / self.elapsed,
                lanes: 1,
            });
            (self.delivered, self.lost, self.idle, self.elapsed) = (0.0, 0.0, 0.0, 0.0);
        }
    }
}

/// The line of a case, as it is now.
struct Line {
    carries: f64,
    rtt: f64,
    queue: f64,
}

impl Line {
    /// Takes what is offered in a step. Returns what is served, and the part that finds no room.
    fn step(&mut self, offered: f64, room: f64) -> (f64, f64) {
        let served = if self.queue > 0.0 { self.carries } else { offered.min(self.carries) };
        let filled = (self.queue + (offered - self.carries) * STEP).max(0.0);
        self.queue = filled.min(room);
        (served, (filled - self.queue) / (offered * STEP))
    }

    fn turn(&mut self, case: &Case, time: f64) {
        self.rtt = case.rtt + if time >= case.longer.0 { case.longer.1 } else { 0.0 };
        self.carries = LINE * if time >= case.narrower.0 { case.narrower.1 } else { 1.0 };
    }
}

impl Case {
    /// The rate of a session that may send at `rate`, and the part of the time for which it has
    /// nothing to send.
    fn sends(&self, n: usize, time: f64, rate: f64) -> (f64, f64) {
        let (each, long) = self.stalls;
        let is_stalled = each.is_finite() && time % each > each - long;
        match time >= self.begin * (n + 1) as f64 {
            true if is_stalled => (0.0, 1.0),
            true => (self.wakes.0 * rate.min(self.source), (1.0 - self.source / rate).max(0.0)),
            false => (0.0, 0.0),
        }
    }
}

fn play(case: Case) -> Figures {
    let way = (case.rtt / 2.0 / STEP) as usize;
    let session = |_| Session {
        control: PathControl::new(case.share),
        open: 40.0 * PACKET / case.rtt,
        on_its_way: vec![(0.0, 0.0); 2 * way].into(),
        first: 0.0,
        delivered: 0.0,
        lost: 0.0,
        idle: 0.0,
        elapsed: 0.0,
    };
    let mut sessions: Vec<_> = (0..case.sessions).map(session).collect();
    let mut cubics = vec![CubicFlow { window: 10.0, highest: 0.0, age: 0.0, hold: 0.0 }; case.cubics];
    let (mut queues, mut drops) = (VecDeque::from(vec![0.0; way]), VecDeque::from(vec![false; 2 * way]));
    let mut figures = Figures { ours: vec![0.0; case.sessions], ..Figures::default() };
    let (mut line, mut time, mut sent) = (Line { carries: LINE, rtt: case.rtt, queue: 0.0 }, 0.0, 0.0);
    while time < case.to {
        line.turn(&case, time);
        let rtt = line.rtt + line.queue / line.carries;
        let ours: Vec<_> = sessions.iter().enumerate().map(|(n, one)| case.sends(n, time, one.rate())).collect();
        let are_there = (case.there..case.end).contains(&time);
        let theirs: f64 = if are_there { cubics.iter().map(|flow| flow.window * PACKET / rtt).sum() } else { 0.0 };
        let offered = (ours.iter().map(|(rate, _)| rate).sum::<f64>() + theirs).max(1.0);
        let (served, dropped) = line.step(offered, case.queue * case.rtt * LINE);
        let is_measured = time >= case.from;
        let late = if time % 1.0 < 0.1 { 0.0 } else { case.wakes.1 };
        let seen = line.rtt + queues[0] / line.carries + late;
        for (n, one) in sessions.iter_mut().enumerate().filter(|(n, _)| time >= case.begin * (n + 1) as f64) {
            let (rate, idle) = ours[n];
            let through = served * rate / offered;
            let loss =
                if time % case.bursts.0 < case.bursts.1 { case.loss * case.bursts.0 / case.bursts.1 } else { 0.0 };
            let (delivered, lost) = (through * (1.0 - loss), rate * dropped + through * loss);
            one.step(seen, (delivered * STEP, lost * STEP), idle);
            if is_measured {
                (figures.ours[n], figures.lost) = (figures.ours[n] + delivered * STEP, figures.lost + lost * STEP);
                sent += rate * STEP;
            }
        }
        drops.push_back(dropped > 0.0);
        let is_lost = drops.pop_front().unwrap_or_default();
        cubics.iter_mut().filter(|_| are_there).for_each(|flow| flow.step(rtt, is_lost));
        queues.push_back(line.queue);
        queues.pop_front();
        if is_measured {
            (figures.cubic, figures.queue) =
                (figures.cubic + served * theirs / offered * STEP, figures.queue + line.queue / line.carries * STEP);
        }
        time += STEP;
    }
    let seconds = case.to - case.from;
    figures.ours.iter_mut().for_each(|sum| *sum *= MBIT / seconds);
    (figures.cubic, figures.queue, figures.lost) =
        (figures.cubic * MBIT / seconds, figures.queue / seconds, figures.lost / f64::max(sent, 1.0));
    figures
}

#[test]
fn alone_a_session_fills_a_path_whatever_that_loses_and_keeps_its_queue_short() {
    for rtt in [0.02, 0.1, 0.3] {
        for loss in [0.0, 1e-2, 3e-2] {
            let figures = play(Case { rtt, loss, ..ALONE });
            let context = format!("{rtt} s, {loss}: {figures:?}");
            assert!(figures.ours[0] > 995.0 * (1.0 - loss), "{context}");
            assert!(figures.queue < 0.25 * rtt && figures.lost < loss + 1e-3, "{context}");
        }
    }
}

#[test]
fn losses_that_come_in_bursts_do_not_take_the_rate_of_a_session() {
    for (rtt, loss, least) in [(0.02, 0.01, 900.0), (0.1, 0.01, 800.0), (0.02, 0.03, 850.0), (0.1, 0.03, 850.0)] {
        let figures = play(Case { rtt, loss, bursts: (0.5, 0.1), ..ALONE });
        assert!(figures.ours[0] > least, "{rtt} s, {loss}: {figures:?}");
    }
}

#[test]
fn beside_a_cubic_flow_each_has_a_fair_part() {
    for (rtt, queue, least, most) in [
        (0.02, 0.25, 400.0, 600.0),
        (0.1, 0.25, 300.0, 500.0),
        (0.02, 1.0, 300.0, 700.0),
        (0.1, 1.0, 300.0, 700.0),
        (0.02, 4.0, 250.0, 700.0),
        (0.1, 4.0, 150.0, 500.0),
    ] {
        let figures = play(Case { rtt, queue, ..BESIDE });
        let (ours, theirs) = (figures.ours[0], figures.cubic);
        assert!(
            (least..most).contains(&ours) && theirs > 300.0 && ours + theirs > 950.0,
            "{rtt} s, {queue}: {figures:?}"
        );
    }
}

#[test]
fn beside_a_cubic_flow_parts_become_more_equal_with_time() {
    let figures = play(Case { from: 100.0, to: 200.0, ..BESIDE });
    assert!((300.0..650.0).contains(&figures.ours[0]) && figures.cubic > 350.0, "{figures:?}");
}

#[test]
fn a_polite_session_leaves_a_cubic_flow_what_that_has_alone_and_takes_all_when_it_ends() {
    for (rtt, queue, least) in [(0.02, 0.25, 0.95), (0.1, 0.25, 0.8), (0.02, 1.0, 0.98), (0.1, 1.0, 0.9)] {
        let beside = Case { rtt, queue, share: PathShare::Polite, ..BESIDE };
        let (polite, alone) = (play(beside), play(Case { sessions: 0, ..beside }));
        assert!(polite.cubic > least * alone.cubic, "{rtt} s, {queue}: {polite:?} {alone:?}");
        let after = play(Case { end: 30.0, from: 35.0, to: 45.0, ..beside });
        assert!(after.ours[0] > 980.0, "{rtt} s, {queue}: {after:?}");
    }
}

#[test]
fn when_a_cubic_flow_ends_a_fair_session_takes_its_place() {
    for rtt in [0.02, 0.1] {
        let figures = play(Case { rtt, end: 30.0, from: 35.0, to: 45.0, ..BESIDE });
        assert!(figures.ours[0] > 980.0, "{rtt} s: {figures:?}");
    }
}

#[test]
fn two_sessions_share_a_path_and_ten_cubic_flows_leave_one_its_part() {
    for (rtt, queue, least) in [(0.02, 0.25, 350.0), (0.1, 0.25, 380.0), (0.02, 1.0, 300.0), (0.1, 1.0, 370.0)] {
        let figures = play(Case { rtt, queue, sessions: 2, begin: 5.0, from: 20.0, to: 60.0, ..ALONE });
        let smaller = figures.ours[0].min(figures.ours[1]);
        assert!(smaller > least && figures.ours.iter().sum::<f64>() > 940.0, "{rtt} s, {queue}: {figures:?}");
        let figures = play(Case { rtt, queue, cubics: 10, from: 20.0, to: 60.0, ..BESIDE });
        assert!((64.0..500.0).contains(&figures.ours[0]), "{rtt} s, {queue}, ten: {figures:?}");
    }
}

#[test]
fn who_takes_all_keeps_no_rate_and_a_silent_round_changes_nothing() {
    let round = PathRound {
        elapsed: Duration::from_millis(100),
        delivered: 10_000_000,
        lost: 1_000_000,
        rtt: Duration::from_millis(100),
        packet_bytes: 1448,
        ..PathRound::default()
    };
    let mut all = PathControl::new(PathShare::All);
    (0..20).for_each(|_| all.look(&round));
    assert_eq!(all.rate(), None);
    let mut fair = PathControl::new(PathShare::Fair);
    (0..20).for_each(|_| fair.look(&round));
    let rate = fair.rate();
    assert!(rate.is_some(), "a tenth is lost: {fair:?}");
    fair.look(&PathRound { delivered: 0, ..round });
    assert_eq!(fair.rate(), rate);
}

/// A round on a path of 100 ms: the part of the line that is delivered, and the round trip.
fn round(delivered: f64, rtt: u64) -> PathRound {
    PathRound {
        elapsed: Duration::from_millis(200),
        delivered: (delivered * LINE / 5.0) as u64,
        rtt: Duration::from_millis(rtt),
        packet_bytes: 1448,
        lanes: 4,
        ..PathRound::default()
    }
}

/// A control that found its path to be full, and its round trip to be 100 ms.
fn full(share: PathShare) -> PathControl {
    let mut control = PathControl::new(share);
    [(0.5, 100), (1.0, 120), (1.0, 150), (1.0, 170), (1.0, 100), (1.0, 100)]
        .into_iter()
        .for_each(|(delivered, rtt)| control.look(&round(delivered, rtt)));
    assert_eq!(control.phase(), PathPhase::Steady, "{control:?}");
    control
}

#[test]
fn lanes_that_cannot_use_what_they_may_are_known_to_limit() {
    let mut control = full(PathShare::Fair);
    assert!(control.is_full(), "{control:?}");
    (0..40).for_each(|_| control.look(&round(0.2, 100)));
    assert!(!control.is_full(), "{control:?}");
}

#[test]
fn who_was_there_first_keeps_a_part_beside_those_that_come_and_stay() {
    for (rtt, queue) in [(0.02, 0.25), (0.1, 0.25), (0.02, 1.0), (0.1, 1.0)] {
        let later = Case { rtt, queue, there: 20.0, from: 260.0, to: 300.0, ..ALONE };
        for (cubics, least, most) in [(10, 64.0, 500.0), (1, 300.0, 700.0)] {
            let figures = play(Case { cubics, ..later });
            assert!((least..most).contains(&figures.ours[0]), "{rtt} s, {queue}, {cubics}: {figures:?}");
        }
    }
}

#[test]
fn a_line_that_carries_less_than_it_did_is_not_taken_for_one_that_others_use() {
    for rtt in [0.02, 0.1] {
        let narrower = (10.0, 0.3);
        let figures = play(Case { rtt, narrower, from: 120.0, to: 160.0, ..ALONE });
        assert!(figures.ours[0] > 285.0 && figures.queue < 0.3 * rtt && figures.lost < 1e-3, "{rtt} s: {figures:?}");
    }
}

#[test]
fn a_path_of_more_than_a_second_is_filled_like_any_other() {
    for rtt in [1.05, 1.2, 2.0] {
        let figures = play(Case { rtt, from: 60.0, to: 120.0, ..ALONE });
        assert!(figures.ours[0] > 950.0 && figures.queue < 0.25 * rtt, "{rtt} s: {figures:?}");
    }
}

#[test]
fn lanes_that_had_nothing_to_send_for_a_while_have_lost_nothing_of_their_rate() {
    for share in [PathShare::Fair, PathShare::Polite] {
        for rtt in [0.02, 0.1] {
            let figures = play(Case { share, rtt, stalls: (3.0, 0.2), ..ALONE });
            assert!(figures.ours[0] > 0.93 * 980.0, "{share}, {rtt} s: {figures:?}");
            let figures = play(Case { share, rtt, source: 0.3 * LINE, ..ALONE });
            assert!(figures.ours[0] > 295.0, "{share}, {rtt} s: {figures:?}");
        }
    }
    let mut control = full(PathShare::Polite);
    let before = control.rate();
    control.look(&PathRound { idle: 0.5, ..round(0.001, 110) });
    control.look(&round(0.001, 110));
    assert!(control.rate() > before.map(|rate| rate / 2), "{before:?} {control:?}");
    // Threads that stood still had something to send.
    (0..2).for_each(|_| control.look(&round(0.001, 110)));
    assert!(control.rate() > before.map(|rate| rate / 5), "{before:?} {control:?}");
}

#[test]
fn a_path_that_becomes_longer_is_found_to_be_no_queue() {
    for share in [PathShare::Fair, PathShare::Polite] {
        for more in [0.005, 0.03] {
            let figures = play(Case { share, rtt: 0.05, longer: (20.0, more), from: 25.0, to: 60.0, ..ALONE });
            assert!(figures.ours[0] > 980.0, "{share}, {more} s: {figures:?}");
        }
    }
}

#[test]
fn a_session_that_finds_no_loss_becomes_no_bolder_than_its_path() {
    let mut control = full(PathShare::Fair);
    (0..290).for_each(|_| control.look(&round(0.3, 160)));
    assert!(control.rate().is_some_and(|rate| (rate as f64) < 1.3 * LINE), "{control:?}");
}

#[test]
fn some_losses_of_lanes_that_begin_are_no_sign_of_a_full_path() {
    let mut control = PathControl::new(PathShare::Fair);
    [(0.1, 100, 0), (0.2, 116, 4), (0.4, 116, 8)].into_iter().for_each(|(delivered, rtt, packets)| {
        control.look(&PathRound { lost: packets * 1448, ..round(delivered, rtt) });
    });
    assert_eq!(control.phase(), PathPhase::Open, "{control:?}");
}

#[test]
fn the_queue_that_lanes_made_themselves_when_they_began_is_nobody_elses() {
    for (first, is_shared) in [(0, true), (100, false)] {
        let mut control = PathControl::new(PathShare::Fair);
        for (delivered, rtt) in [(0.8, 130), (1.0, 170), (1.0, 170), (1.0, 120), (1.0, 100), (1.0, 100), (0.9, 100)] {
            control.look(&PathRound { rtt_first: Duration::from_millis(first), ..round(delivered, rtt) });
        }
        assert_eq!((control.phase(), control.is_shared()), (PathPhase::Steady, is_shared), "{first}: {control:?}");
    }
}

#[test]
fn on_a_near_path_only_a_polite_session_keeps_a_rate() {
    for (share, rtt, keeps) in [(PathShare::Fair, 4, false), (PathShare::Fair, 6, true), (PathShare::Polite, 4, true)] {
        let mut control = PathControl::new(share);
        (0..20).for_each(|n| control.look(&round(1.0, rtt * (1 + n.min(4)))));
        assert_eq!(control.rate().is_some(), keeps, "{share}, {rtt} ms: {control:?}");
        // More lanes are looked for there, as if there were no manners.
        assert_eq!(control.is_full(), keeps, "{share}, {rtt} ms");
    }
    let mut control = full(PathShare::Fair);
    control.look(&PathRound { rtt_first: Duration::from_millis(1), ..round(1.0, 100) });
    assert_eq!(control.rate(), None, "its queue stood all the while");
    assert!(PathControl::new(PathShare::Polite).is_full(), "it asks for no more lanes");
}

#[test]
fn a_line_that_carries_less_is_found_out_though_the_source_pauses() {
    let mut control = full(PathShare::Fair);
    (0..600).for_each(|n| control.look(&PathRound { idle: f64::from(u8::from(n % 20 == 0)), ..round(0.5, 101) }));
    assert!(control.capacity() < 0.55 * LINE, "{control:?}");
}

#[test]
fn the_least_rate_is_less_than_a_slow_line_carries() {
    let mut control = PathControl::new(PathShare::Polite);
    let mut look = |bytes_per_s: f64, rtt| control.look(&round(bytes_per_s / LINE, rtt));
    [100, 120, 150, 170, 100, 100].into_iter().for_each(|rtt| look(40e3, rtt));
    (0..40).for_each(|n| look(400.0, 150 + n % 2 * 30));
    assert_eq!(control.rate(), Some(8192), "{control:?}");
}

#[test]
fn the_least_rate_is_that_of_so_many_lanes() {
    for lanes in [1, 100] {
        let mut control = full(PathShare::Polite);
        (0..40).for_each(|n| control.look(&PathRound { lanes, ..round(0.0001, 150 + n % 2 * 30) }));
        assert_eq!(control.rate(), Some(65_536.max(u64::from(lanes) * 8192)), "{control:?}");
    }
}
