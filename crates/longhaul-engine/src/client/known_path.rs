//! Uses what earlier pushes found out about a path, and finds out for later ones.
//!
//! In: the control connection of each session, the decisions of the search for lanes, and the rate
//! that lanes over UDP or QUIC found. Out: the number of lanes and the congestion control to begin
//! with, to `connect` and `session`, and the path of UDP and QUIC lanes with the rate that is
//! known; at the end of the run the facts of the path, to the program's [`PathMemory`]. It knows no
//! lanes and no files.
//!
//! Only a push finds anything out: in a pull the daemon searches. Of lanes over TCP, the search
//! judges number and control; and only what it decided counts, as a second in which something else
//! than the path was the limit says nothing about the path. Of lanes over UDP and QUIC, the rate is
//! known, as it is this program that decides it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use longhaul_core::PathShare;
use longhaul_net::{Congestion, Control};
use longhaul_proto::tuning::Why;
use longhaul_proto::udp::control;
use longhaul_proto::wire::message::Transport;

use crate::api::{Event, LanesChange, LanesReason, LanesTuned, Observer, PathFacts, PathKey, PathMemory, PathRate};
use crate::lanes::past::PathPast;
use crate::lanes::udp::path::UdpPath;

/// The path of a run to its daemon. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct KnownPath {
    memory: Option<Arc<dyn PathMemory>>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    met: Option<(PathKey, Duration)>,
    recalled: Option<PathFacts>,
    /// Lanes and control as this run found them out. The outer `None` of the control: it has not
    /// judged them; the inner: what was known is not so any more.
    lanes: Option<u32>,
    congestion: Option<Option<String>>,
    /// The paths of this run's sessions, as they leave them to one another, and the one of now.
    pasts: Vec<(PathKey, PathPast)>,
    past: PathPast,
    /// The path of the UDP lanes of the last session, and the rate that one before it found.
    udp: Option<UdpPath>,
    rate: Option<PathRate>,
    /// Whether lanes run over something else than TCP.
    is_mixed: bool,
    /// Whether the UDP lanes of the last session ran beside those over TCP, and never alone: what
    /// they carry is what those left.
    is_beside_tcp: bool,
}

impl KnownPath {
    /// A path of which `memory` may know something.
    pub(crate) fn new(memory: Option<Arc<dyn PathMemory>>) -> KnownPath {
        KnownPath { memory, state: Arc::default() }
    }

    /// Looks the path of a control connection up. What is known counts if the round trip is about
    /// what it was then.
    pub(crate) fn meet(&self, control: &Control) -> impl Future<Output = ()> + Send + use<'_> {
        let key = PathKey {
            peer: control.peer_key,
            remote: control.peer_addr.ip(),
            local: control.local_addr.ip(),
            interface: control.interface(),
        };
        self.meet_over(key, control.rtt)
    }

    async fn meet_over(&self, key: PathKey, rtt: Duration) {
        if key.remote.is_unspecified() || rtt.is_zero() {
            return;
        }
        let known = match self.memory.clone() {
            Some(memory) => {
                let asked = key.clone();
                tokio::task::spawn_blocking(move || memory.recall(&asked)).await.ok().flatten()
            }
            None => None,
        };
        self.met(key, rtt, known);
    }

    fn met(&self, key: PathKey, rtt: Duration, known: Option<PathFacts>) {
        let mut state = self.lock();
        if state.met.as_ref().is_some_and(|(before, _)| *before != key) {
            // What was found out belongs to another path.
            *state = State { pasts: std::mem::take(&mut state.pasts), ..State::default() };
        }
        state.past = state.past_of(&key);
        state.recalled = known.filter(|facts| facts.rtt.abs_diff(rtt) <= (facts.rtt / 4).max(RTT_SLACK));
        state.met = Some((key, rtt));
        if let Some(facts) = &state.recalled {
            tracing::debug!(target: "longhaul::session", ?facts, "this path is known");
        }
    }

    /// Lanes to begin with. `None` if the path is not known.
    pub(crate) fn lanes(&self) -> Option<u32> {
        self.lock().recalled.as_ref()?.lanes.map(|(lanes, _)| lanes)
    }

    /// The congestion control of the kernel to begin with. `None` if none is known.
    pub(crate) fn congestion(&self) -> Option<String> {
        self.lock().recalled.as_ref()?.congestion.as_ref().map(|(name, _)| name.clone())
    }

    /// The event that a session begins with what an earlier run found out about lanes over TCP.
    /// `lanes`: those that were granted, if no number was given; `congestion`: as it was asked for.
    /// `None` if nothing that is known is used.
    pub(crate) fn begun(&self, over: Transport, lanes: Option<u32>, congestion: &Congestion) -> Option<LanesTuned> {
        let known = || (over == Transport::Tcp).then_some(());
        let name = known().filter(|()| *congestion == Congestion::Auto).and_then(|()| self.congestion());
        let count = known().and_then(|()| self.lanes()).and(lanes);
        let change = LanesChange::Begun { lanes: count, congestion: name };
        let is_used = change != LanesChange::Begun { lanes: None, congestion: None };
        // None has joined.
        is_used.then_some(LanesTuned { seconds: 0.0, lanes: 0, change, reason: LanesReason::PathKnown })
    }

    /// The path of the UDP lanes of a session that begins, of which it takes this share.
    pub(crate) fn udp_path(&self, share: PathShare) -> UdpPath {
        let mut state = self.lock();
        state.rate = state.rate_found();
        let recalled = || state.recalled.as_ref().and_then(|facts| facts.rate).map(|(rate, _)| rate);
        let known = state.rate.or_else(recalled);
        let known = known.map(|rate| control::KnownPath { rate: rate.bytes_per_second, round_trip: rate.rtt });
        let path = UdpPath::new(share).after(state.past.with_known(known));
        (state.udp, state.is_beside_tcp) = (Some(path.clone()), false);
        path
    }

    /// The path of the session of now, as sessions of this run leave it to one another.
    pub(crate) fn past(&self) -> PathPast {
        self.lock().past.clone()
    }

    /// Has the memory keep what this run found out. What it did not find out stays as it is known.
    pub(crate) async fn remember(&self) {
        let (Some(memory), Some((key, facts))) = (self.memory.clone(), self.lock().news(SystemTime::now())) else {
            return;
        };
        let _ = tokio::task::spawn_blocking(move || memory.remember(&key, &facts)).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The path of this key. The oldest of many is forgotten.
    fn past_of(&mut self, key: &PathKey) -> PathPast {
        if let Some((_, past)) = self.pasts.iter().find(|(known, _)| known == key) {
            return past.clone();
        }
        if self.pasts.len() >= PASTS_MAX {
            self.pasts.remove(0);
        }
        let past = PathPast::default();
        self.pasts.push((key.clone(), past.clone()));
        past
    }

    /// The rate that the run found last.
    fn rate_found(&self) -> Option<PathRate> {
        let alone = self.udp.as_ref().filter(|_| !self.is_beside_tcp);
        let found = alone.and_then(UdpPath::finding).or_else(|| self.past.finding());
        let found = found.map(|found| PathRate { bytes_per_second: found.rate, rtt: found.round_trip });
        found.or(self.rate)
    }

    /// The facts of the path, if the run has found any out.
    fn news(&self, now: SystemTime) -> Option<(PathKey, PathFacts)> {
        let (key, rtt) = self.met.clone()?;
        let found = self.rate_found();
        if self.lanes.is_none() && self.congestion.is_none() && found.is_none() {
            return None;
        }
        let before = self.recalled.clone();
        let before = before.map_or((None, None, None), |facts| (facts.lanes, facts.congestion, facts.rate));
        let (lanes, congestion, rate) = before;
        let rate = found.map(|rate| (rate, now)).or(rate);
        let lanes = self.lanes.map(|lanes| (lanes, now)).or(lanes);
        let congestion = match &self.congestion {
            Some(chosen) => chosen.clone().map(|name| (name, now)),
            None => congestion,
        };
        Some((key, PathFacts { rtt, lanes, congestion, rate }))
    }

    fn tuned(&mut self, tuned: &LanesTuned) {
        if let LanesChange::AddedOverQuic(_) | LanesChange::AddedOverUdp(_) | LanesChange::Straight(_) = tuned.change {
            self.is_mixed = true;
        }
        match (&tuned.change, tuned.reason) {
            (LanesChange::AddedOverUdp(_), _) => self.is_beside_tcp = true,
            (_, LanesReason::Search(Why::UdpPaid { .. })) => self.is_beside_tcp = false,
            _ => {}
        }
        if self.is_mixed {
            return;
        }
        match (tuned.reason, &tuned.change) {
            (LanesReason::Search(Why::Delivers { .. }), LanesChange::Congestion { name, .. }) => {
                self.congestion = Some(Some(name.clone()));
            }
            // What was found out is not so any more.
            (LanesReason::Search(Why::Fell { .. }), _) => (self.lanes, self.congestion) = (None, Some(None)),
            (LanesReason::Search(Why::Paid { .. } | Why::AtMost { .. }), _) => self.lanes = Some(tuned.lanes),
            (LanesReason::Search(Why::DidNotPay { .. } | Why::LosesTooMuch { .. }), LanesChange::Retired(spare)) => {
                self.lanes = Some(tuned.lanes.saturating_sub(*spare).max(1));
            }
            _ => {}
        }
    }
}

/// Finds out about the path from the events of each session, and passes them on.
pub(crate) struct WithKnownPath {
    /// Hears the same events.
    pub(crate) observer: Arc<dyn Observer>,
    /// The path that they tell of.
    pub(crate) known: KnownPath,
}

impl Observer for WithKnownPath {
    fn event(&self, event: Event) {
        if let Event::Lanes(tuned) = &event {
            self.known.lock().tuned(tuned);
        }
        self.observer.event(event);
    }

    fn lanes(&self, count: u32) {
        self.observer.lanes(count);
    }

    fn claim_kept(&self) {
        self.observer.claim_kept();
    }
}

/// Paths of a run that are remembered: addresses of one host are few.
const PASTS_MAX: usize = 16;
/// On short paths a round trip differs by more than a quarter from one connection to the next.
const RTT_SLACK: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use longhaul_core::LaneId;
    use longhaul_net::PublicKey;
    use longhaul_proto::udp::breaker::BreakerPast;
    use longhaul_proto::udp::control::UdpLaneLimit;
    use longhaul_proto::udp::sending::UdpSample;
    use longhaul_proto::udp::status::Counts;

    use super::*;
    use crate::lanes::past::tests::FixedFinding;
    use crate::lanes::udp::path::PathLeave;
    use crate::lanes::worker::pacer::Pacer;

    struct Nobody;

    impl Observer for Nobody {
        fn event(&self, _: Event) {}
    }

    fn key(n: u8) -> PathKey {
        let (remote, local) = ([10, 0, 0, n].into(), [10, 0, 0, 1].into());
        PathKey { peer: PublicKey::from_bytes([7; 32]), remote, local, interface: Some(2) }
    }

    fn facts(lanes: u32, congestion: Option<&str>) -> PathFacts {
        let congestion = congestion.map(|name| (name.to_owned(), SystemTime::UNIX_EPOCH));
        PathFacts { rtt: RTT, lanes: Some((lanes, SystemTime::UNIX_EPOCH)), congestion, rate: None }
    }

    fn tuned(lanes: u32, change: LanesChange, why: Why) -> Event {
        Event::Lanes(LanesTuned { seconds: 1.0, lanes, change, reason: LanesReason::Search(why) })
    }

    /// The lanes and the control that are known after a run that knew these facts and heard this.
    fn after(known: Option<PathFacts>, heard: Vec<Event>) -> Option<(Option<u32>, Option<String>)> {
        let path = KnownPath::default();
        path.met(key(2), RTT, known);
        let telling = WithKnownPath { observer: Arc::new(Nobody), known: path.clone() };
        heard.into_iter().for_each(|event| telling.event(event));
        let news = path.lock().news(SystemTime::now());
        news.map(|(_, facts)| (facts.lanes.map(|l| l.0), facts.congestion.map(|c| c.0)))
    }

    const RTT: Duration = Duration::from_millis(100);
    const NOT_PAID: Why = Why::DidNotPay { before: 2, after: 1 };
    const PAID: Why = Why::Paid { before: 1, after: 2 };
    const CHOSEN: Why = Why::Delivers { better: 2, worse: 1 };

    fn switched(lanes: u32, name: &str) -> LanesChange {
        LanesChange::Congestion { lanes, name: name.to_owned() }
    }

    #[test]
    fn the_lanes_on_which_the_search_settled_and_the_control_that_it_chose_are_found_out() {
        let trying = || tuned(8, LanesChange::Added(8), Why::Trying { rate: 1 });
        let bbr = || tuned(8, switched(2, "bbr"), CHOSEN);
        let got = after(None, vec![bbr(), trying(), tuned(16, LanesChange::Unchanged, PAID)]);
        assert_eq!(got, Some((Some(16), Some("bbr".to_owned()))));
        let got = after(None, vec![trying(), tuned(16, LanesChange::Retired(8), NOT_PAID)]);
        assert_eq!(got, Some((Some(8), None)));
        let loses = tuned(16, LanesChange::Retired(8), Why::LosesTooMuch { lost: 30 });
        assert_eq!(after(None, vec![trying(), loses]), Some((Some(8), None)));
        let most = tuned(32, LanesChange::Unchanged, Why::AtMost { rate: 1 });
        assert_eq!(after(None, vec![most]), Some((Some(32), None)));
        assert_eq!(after(None, vec![trying()]), None, "a trial is no result");
        let idle = tuned(16, LanesChange::Retired(8), Why::NotTheNetwork);
        assert_eq!(after(Some(facts(16, Some("bbr"))), vec![idle]), None, "the path did not limit");
    }

    #[test]
    fn a_run_leaves_what_it_did_not_find_out_and_forgets_what_turned_out_wrong() {
        let known = || Some(facts(16, Some("bbr")));
        let spare = || tuned(16, LanesChange::Retired(8), NOT_PAID);
        assert_eq!(after(known(), vec![spare()]), Some((Some(8), Some("bbr".to_owned()))));
        let fell = tuned(16, switched(4, "cubic"), Why::Fell { from: 2, to: 1 });
        assert_eq!(after(known(), vec![spare(), fell]), Some((Some(16), None)));
        let path = KnownPath::default();
        path.met(key(2), RTT, known());
        path.lock().lanes = Some(4);
        let (_, kept) = path.lock().news(SystemTime::now()).expect("news");
        assert_eq!(kept.congestion.map(|c| c.1), Some(SystemTime::UNIX_EPOCH), "it is no younger for that");
    }

    #[test]
    fn of_lanes_over_quic_and_beside_ssh_nothing_is_found_out() {
        for change in [LanesChange::AddedOverQuic(4), LanesChange::AddedOverUdp(1), LanesChange::Straight(4)] {
            let mixed = tuned(8, change, Why::Trying { rate: 1 });
            assert_eq!(after(None, vec![mixed, tuned(12, LanesChange::Unchanged, PAID)]), None);
        }
    }

    #[test]
    fn a_path_whose_round_trip_is_another_now_is_not_the_one_that_is_known() {
        for (rtt, known) in [(75, true), (74, false), (125, true), (126, false)] {
            let next = KnownPath::default();
            next.met(key(2), Duration::from_millis(rtt), Some(facts(16, Some("bbr"))));
            assert_eq!((next.lanes().is_some(), next.congestion().is_some()), (known, known), "{rtt} ms");
        }
    }

    #[test]
    fn a_session_tells_what_it_begins_with_if_that_is_known_and_nobody_gave_it() {
        let path = KnownPath::default();
        path.met(key(2), RTT, Some(facts(16, Some("bbr"))));
        let (auto, named) = (Congestion::Auto, Congestion::Named("cubic".to_owned()));
        let change =
            |over, lanes, congestion: &_| path.begun(over, lanes, congestion).map(|told| told.change.to_string());
        assert_eq!(change(Transport::Tcp, Some(12), &auto).as_deref(), Some("begun with 12, bbr"), "12 were granted");
        assert_eq!(change(Transport::Tcp, None, &auto).as_deref(), Some("begun with bbr"));
        assert_eq!(change(Transport::Tcp, Some(12), &named).as_deref(), Some("begun with 12"));
        assert_eq!(change(Transport::Tcp, None, &named), None);
        assert_eq!(change(Transport::Udp, Some(1), &auto), None, "its control tells of the rate");
        let why = path.begun(Transport::Tcp, Some(12), &auto).map(|told| told.reason.to_string());
        assert_eq!(why.as_deref(), Some("an earlier run over this path did best so"));
        path.met(key(3), RTT, None);
        assert_eq!(change(Transport::Tcp, Some(12), &auto), None, "nothing is known of it");
    }

    #[test]
    fn what_was_found_out_on_one_path_is_not_said_of_the_next() {
        let path = KnownPath::default();
        path.met(key(2), RTT, None);
        path.lock().lanes = Some(16);
        path.met(key(2), RTT, None);
        assert!(path.lock().news(SystemTime::now()).is_some(), "the same path again");
        path.met(key(3), RTT, None);
        assert_eq!(path.lock().news(SystemTime::now()), None);
    }

    #[test]
    fn the_rate_that_lanes_over_quic_found_is_kept_and_is_known_to_the_next_session() {
        let path = KnownPath::default();
        path.met(key(2), RTT, None);
        let found = control::KnownPath { rate: 80_000_000, round_trip: RTT };
        path.udp_path(PathShare::Fair).past().found_by(Box::new(FixedFinding(Some(found))));
        let (_, kept) = path.lock().news(SystemTime::now()).expect("news");
        assert_eq!(kept.rate.map(|(rate, _)| rate), Some(PathRate { bytes_per_second: 80_000_000, rtt: RTT }));
        assert_eq!(path.udp_path(PathShare::Fair).past().known(), Some(found));
        path.met(key(3), RTT, None);
        assert_eq!(path.udp_path(PathShare::Fair).past().known(), None, "it is another path");
    }

    #[test]
    fn a_path_whose_breaker_is_open_stays_shut_for_the_run_and_another_one_is_not() {
        let (path, now) = (KnownPath::default(), std::time::Instant::now());
        path.met(key(2), RTT, None);
        path.past().broke(now, BreakerPast { times: 1, open: Duration::from_secs(30) });
        path.met(key(3), RTT, None);
        assert_eq!(path.past().broken_for(now), None);
        path.met(key(2), RTT, None);
        assert_eq!(path.past().broken_for(now), Some(Duration::from_secs(30)));
        let (session, pacer) = (path.udp_path(PathShare::Fair), Pacer::new(None));
        session.begin(LaneId(1), RTT, &pacer);
        assert!(matches!(session.leave(&pacer), PathLeave::Over(_)));
        (4..40).for_each(|n| path.met(key(n), RTT, None));
        assert_eq!(path.lock().pasts.len(), PASTS_MAX);
    }

    #[test]
    fn the_rate_of_udp_lanes_is_kept_and_begun_with_at_half_by_the_next_session() {
        let rate = |bytes_per_second| PathRate { bytes_per_second, rtt: RTT };
        let begun_with = |path: &KnownPath| {
            let pacer = Pacer::new(None);
            path.udp_path(PathShare::Fair).begin(LaneId(1), RTT, &pacer);
            pacer.rate()
        };
        let known = PathFacts { rate: Some((rate(100_000_000), SystemTime::UNIX_EPOCH)), ..facts(8, None) };
        let path = KnownPath::default();
        path.met(key(2), RTT, Some(known.clone()));
        assert_eq!(begun_with(&path), Some(50_000_000));
        assert_eq!(path.lock().news(SystemTime::now()), None, "nothing arrived");
        // A session found another one; the next session of the run has it.
        path.lock().rate = Some(rate(40_000_000));
        assert_eq!(begun_with(&path), Some(20_000_000));
        let (_, kept) = path.lock().news(SystemTime::now()).expect("news");
        assert_eq!((kept.rate.map(|found| found.0), kept.lanes), (Some(rate(40_000_000)), known.lanes));
        // Another round trip of the control connection: it is not the path that is known.
        let path = KnownPath::default();
        path.met(key(2), 2 * RTT, Some(known));
        assert!(begun_with(&path) < Some(10_000_000));
    }

    #[test]
    fn what_udp_lanes_carry_beside_those_over_tcp_is_no_rate_of_the_path_before_they_are_alone() {
        let (path, pacer) = (KnownPath::default(), Pacer::new(None));
        path.met(key(2), RTT, None);
        let udp = path.udp_path(PathShare::Fair);
        let telling = WithKnownPath { observer: Arc::new(Nobody), known: path.clone() };
        telling.event(tuned(9, LanesChange::AddedOverUdp(1), Why::Trying { rate: 1 }));
        udp.begin(LaneId(1), RTT, &pacer);
        let counts = Counts { packets: 100, bytes: 140_000, ..Counts::default() };
        let heard = UdpSample {
            round_trip: Some(RTT),
            arrived_us: Some(1),
            delay: Some(0),
            counts,
            lost: 0,
            sent: 100,
            datagram_bytes: 1472,
            flying_bytes: 0,
        };
        let begun = std::time::Instant::now();
        while udp.finding().is_none() && begun.elapsed() < Duration::from_secs(10) {
            udp.observe(LaneId(1), &heard, UdpLaneLimit::Path, &pacer);
            std::thread::yield_now();
        }
        assert!(udp.finding().is_some());
        let rate = || path.lock().news(SystemTime::now()).and_then(|(_, facts)| facts.rate);
        assert_eq!(rate(), None, "lanes over TCP have their part");
        telling.event(tuned(1, LanesChange::Udp, Why::UdpPaid { before: 1, after: 2 }));
        assert!(rate().is_some());
    }
}
