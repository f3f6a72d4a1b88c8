//! The control in a fluid model: a line with a queue that drops at its tail, sessions and cubic
//! flows on it. The figures of docs/DECISIONS.md as lower and upper bounds.

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
    share: PathShare,
    /// Sessions, of which each begins so many seconds after the one before.
    sessions: usize,
    begin: f64,
    /// Cubic flows, which are there first and end at this time.
    cubics: usize,
    end: f64,
    /// The time that is measured.
    from: f64,
    to: f64,
}

const ALONE: Case = Case {
    rtt: 0.1,
    queue: 1.0,
    loss: 0.0,
    share: PathShare::Fair,
    sessions: 1,
    begin: 0.1,
    cubics: 0,
    end: f64::INFINITY,
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
    delivered: f64,
    lost: f64,
    elapsed: f64,
}

impl Session {
    fn rate(&self) -> f64 {
        self.control.rate().map_or(self.open, |rate| rate as f64)
    }

    fn step(&mut self, rtt: f64, (delivered, lost): (f64, f64)) {
        self.on_its_way.push_back((delivered, lost));
        let (delivered, lost) = self.on_its_way.pop_front().unwrap_or_default();
        (self.delivered, self.lost) = (self.delivered + delivered, self.lost + lost);
        self.elapsed += STEP;
        self.open = (self.open * (1.0 + 0.69 * STEP / rtt)).min(1.25 * LINE);
        if self.elapsed >= rtt.max(0.02) {
            self.control.round(&PathRound {
                elapsed: Duration::from_secs_f64(self.elapsed),
                delivered: self.delivered as u64,
                lost: self.lost as u64,
                rtt: Duration::from_secs_f64(rtt),
                packet_bytes: PACKET as u32,
            });
            (self.delivered, self.lost, self.elapsed) = (0.0, 0.0, 0.0);
        }
    }
}

fn play(case: Case) -> Figures {
    let way = (case.rtt / 2.0 / STEP) as usize;
    let session = |_| Session {
        control: PathControl::new(case.share),
        open: 40.0 * PACKET / case.rtt,
        on_its_way: vec![(0.0, 0.0); 2 * way].into(),
        delivered: 0.0,
        lost: 0.0,
        elapsed: 0.0,
    };
    let mut sessions: Vec<_> = (0..case.sessions).map(session).collect();
    let mut cubics = vec![CubicFlow { window: 10.0, highest: 0.0, age: 0.0, hold: 0.0 }; case.cubics];
    let (mut queues, mut drops) = (VecDeque::from(vec![0.0; way]), VecDeque::from(vec![false; 2 * way]));
    let mut figures = Figures { ours: vec![0.0; case.sessions], ..Figures::default() };
    let (mut queue, mut time, mut sent) = (0.0f64, 0.0, 0.0);
    while time < case.to {
        let rtt = case.rtt + queue / LINE;
        let begun = |place: usize| time >= case.begin * (place + 1) as f64;
        let ours: Vec<f64> =
            sessions.iter().enumerate().map(|(n, one)| if begun(n) { one.rate() } else { 0.0 }).collect();
        let theirs: f64 =
            if time < case.end { cubics.iter().map(|flow| flow.window * PACKET / rtt).sum() } else { 0.0 };
        let offered = (ours.iter().sum::<f64>() + theirs).max(1.0);
        let served = if queue > 0.0 { LINE } else { offered.min(LINE) };
        let filled = (queue + (offered - LINE) * STEP).max(0.0);
        queue = filled.min(case.queue * case.rtt * LINE);
        let dropped = (filled - queue) / (offered * STEP);
        let is_measured = time >= case.from;
        let seen = case.rtt + queues[0] / LINE;
        for (n, one) in sessions.iter_mut().enumerate().filter(|(n, _)| begun(*n)) {
            let through = served * ours[n] / offered;
            let (delivered, lost) = (through * (1.0 - case.loss), ours[n] * dropped + through * case.loss);
            one.step(seen, (delivered * STEP, lost * STEP));
            if is_measured {
                (figures.ours[n], figures.lost) = (figures.ours[n] + delivered * STEP, figures.lost + lost * STEP);
                sent += ours[n] * STEP;
            }
        }
        drops.push_back(dropped > 0.0);
        let is_lost = drops.pop_front().unwrap_or_default();
        cubics.iter_mut().for_each(|flow| flow.step(rtt, is_lost));
        queues.push_back(queue);
        queues.pop_front();
        if is_measured {
            (figures.cubic, figures.queue) =
                (figures.cubic + served * theirs / offered * STEP, figures.queue + queue / LINE * STEP);
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
fn a_queue_too_short_for_what_is_aimed_at_costs_little() {
    for (rtt, queue) in [(0.02, 0.05), (0.02, 0.1), (0.02, 0.25), (0.1, 0.05), (0.1, 0.1), (0.1, 0.25)] {
        let figures = play(Case { rtt, queue, ..ALONE });
        assert!(figures.ours[0] > 950.0 && figures.lost < 0.02, "{rtt} s, {queue}: {figures:?}");
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
        assert!(smaller > least && figures.ours.iter().sum::<f64>() > 870.0, "{rtt} s, {queue}: {figures:?}");
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
    };
    let mut all = PathControl::new(PathShare::All);
    (0..20).for_each(|_| all.round(&round));
    assert_eq!(all.rate(), None);
    let mut fair = PathControl::new(PathShare::Fair);
    (0..20).for_each(|_| fair.round(&round));
    let rate = fair.rate();
    assert!(rate.is_some(), "a tenth is lost: {fair:?}");
    fair.round(&PathRound { delivered: 0, ..round });
    assert_eq!(fair.rate(), rate);
}

#[test]
fn lanes_that_cannot_use_what_they_may_are_known_to_limit() {
    let round = |delivered: f64, rtt| PathRound {
        elapsed: Duration::from_millis(100),
        delivered: (delivered * LINE / 10.0) as u64,
        lost: 0,
        rtt: Duration::from_millis(rtt),
        packet_bytes: 1448,
    };
    let mut control = PathControl::new(PathShare::Fair);
    [(0.5, 100), (1.0, 120), (1.0, 150), (1.0, 170), (1.0, 100), (1.0, 100)]
        .into_iter()
        .for_each(|(delivered, rtt)| control.round(&round(delivered, rtt)));
    assert!(control.full_at().is_some_and(|rate| rate > 80_000_000), "{control:?}");
    (0..40).for_each(|_| control.round(&round(0.2, 100)));
    assert_eq!(control.full_at(), None, "{control:?}");
}
