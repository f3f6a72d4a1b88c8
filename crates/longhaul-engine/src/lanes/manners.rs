//! Keeps the manners of a sending side: gives the counters of all lanes of a path together to
//! `proto`'s control of that path, and its rate back to them.
//!
//! In: lanes that join, and handles of those that stand, each round trip. Out: to each connection
//! the share of the rate which it paces, and changes for people. One control serves all lanes of a
//! session on a path whose rate the kernel controls; those over QUIC control theirs by themselves.
//! The connections keep the rate and not the account that all lanes draw on: they send packet by
//! packet, where the account lets a hundredth of a second through at a time, more than a short
//! queue holds. It knows no sockets and no messages.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, PathShare, Role};
use longhaul_net::{CongestionControl, LaneCounters, LaneHandle, LaneStream};
use longhaul_proto::tuning::Why;
use longhaul_proto::tuning::manners::{PathControl, PathPhase, PathRound};

use super::tune::{LaneTask, TuningStep, delivered_between};
use crate::api::LanesChange;

/// The manners of one side. See the module.
#[derive(Debug)]
pub(crate) struct LaneManners {
    /// Whether there are manners to keep: at a sender that does not take all.
    keeps: bool,
    share: PathShare,
    paths: Vec<LanePath>,
    /// The path of each lane, as an index into `paths`.
    path_of: HashMap<LaneId, usize>,
    steps: Vec<TuningStep>,
}

/// The marks by which paths differ: the interface here, and the other end's address.
type PathEnds = (Option<u32>, Option<IpAddr>);

/// A path, and the lanes on it.
#[derive(Debug)]
struct LanePath {
    ends: PathEnds,
    control: PathControl,
    looks: HashMap<LaneId, LaneLook>,
    since: Instant,
    next: Instant,
    /// The last state that was told, and when.
    told: Option<(ToldState, Instant)>,
}

/// The last look at a lane.
#[derive(Clone, Copy, Debug)]
struct LaneLook {
    counters: LaneCounters,
    /// Bytes/s that it delivered in the last round.
    used: f64,
    /// Bytes/s that it may send. `None`: as much as it can.
    paced: Option<f64>,
}

/// A state of the path as people are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToldState {
    Full,
    Shared,
}

impl LaneManners {
    /// The manners of a side that begins.
    pub(crate) fn new(role: Role, share: PathShare) -> LaneManners {
        let keeps = role == Role::Sender && share != PathShare::All;
        LaneManners { keeps, share, paths: Vec::new(), path_of: HashMap::new(), steps: Vec::new() }
    }

    /// Takes a lane that joined.
    pub(crate) fn joined(&mut self, id: LaneId, stream: &LaneStream) {
        let lane = stream.handle();
        // Within a host there is no path, and what ssh does is its own affair. A lane whose
        // transport has a control of its own measures round trips that begin before it waits for
        // its turn: they are longer by that wait, which is no queue of the path.
        let is_kernels = lane.facts().congestion_control == CongestionControl::Kernel;
        if !self.keeps || !is_kernels || lane.is_within_host() {
            return;
        }
        if self.share == PathShare::Polite {
            lane.set_scavenger();
        }
        let ends = (stream.interface(), stream.peer_addr().map(|peer| peer.ip()));
        let place = self.paths.iter().position(|path| path.ends == ends).unwrap_or_else(|| {
            self.paths.push(LanePath::new(ends, self.share));
            self.paths.len() - 1
        });
        self.path_of.insert(id, place);
    }

    /// When the next call of [`LaneManners::look`] is due. `None` if none ever is.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.paths.iter().map(|path| path.next).min()
    }

    /// Ends the rounds that are over, and has each lane keep its share of its path's rate. `given`:
    /// the share of a rate that was asked for, bytes/s, if there is one.
    pub(crate) fn look<'a>(
        &mut self,
        now: Instant,
        lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)> + Clone,
        given: Option<u64>,
    ) {
        for (place, path) in self.paths.iter_mut().enumerate().filter(|(_, path)| now >= path.next) {
            let on_it = lanes.clone().filter(|(id, _)| self.path_of.get(id) == Some(&place));
            path.look(now, on_it, given);
            self.steps.extend(path.change(now));
        }
    }

    /// The rate that all lanes carry together where their paths are full, bytes/s. `None` if they
    /// are not, or if the lanes cannot use what they may.
    pub(crate) fn full_at(&self) -> Option<u64> {
        let used = |path: &LanePath| path.control.full_at();
        let rates: Option<Vec<_>> = self.paths.iter().map(used).collect();
        rates.filter(|rates| !rates.is_empty()).map(|rates| rates.into_iter().sum())
    }

    /// Whether others on a path leave this session less than there is.
    pub(crate) fn is_shared(&self) -> bool {
        self.paths.iter().any(|path| path.control.is_shared())
    }

    /// The changes since the last call, for people.
    pub(crate) fn take_steps(&mut self) -> Vec<TuningStep> {
        std::mem::take(&mut self.steps)
    }
}

impl LanePath {
    fn new(ends: PathEnds, share: PathShare) -> LanePath {
        let (control, since) = (PathControl::new(share), Instant::now());
        LanePath { ends, control, looks: HashMap::new(), since, next: since + ROUND_LEAST, told: None }
    }

    fn look<'a>(
        &mut self,
        now: Instant,
        lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)> + Clone,
        given: Option<u64>,
    ) {
        let round = self.round(now, lanes.clone());
        let was_kept = self.control.rate().is_some();
        self.control.round(&round);
        tracing::trace!(
            target: "longhaul::lanes",
            ?round,
            rate = self.control.rate(),
            phase = ?self.control.phase(),
            own_loss = self.control.own_loss(),
            base = ?self.control.base(),
            "a round of the path"
        );
        self.next = now + round.rtt.clamp(ROUND_LEAST, ROUND_LONGEST);
        if !was_kept && self.control.rate().is_none() {
            return;
        }
        divide(&mut self.looks, self.control.rate());
        for (id, handle) in lanes {
            let paced = self.looks.get(&id).and_then(|look| look.paced);
            handle.set_pace(paced.map(|rate| rate as u64).into_iter().chain(given).min());
        }
    }

    /// The counts of all lanes since the last look. A lane that is new is counted from now on.
    fn round<'a>(&mut self, now: Instant, lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)>) -> PathRound {
        let elapsed = now - std::mem::replace(&mut self.since, now);
        let mut round = PathRound { elapsed, ..PathRound::default() };
        let mut seen = HashMap::new();
        for (id, handle) in lanes {
            let Some(counters) = handle.counters() else { continue };
            let mut look = LaneLook { counters, used: 0.0, paced: None };
            if let Some(before) = self.looks.get(&id) {
                let delivered = delivered_between(&before.counters, &counters);
                look.used = delivered as f64 / elapsed.as_secs_f64().max(1e-6);
                look.paced = before.paced;
                round.delivered += delivered;
                round.lost += counters.resent.saturating_sub(before.counters.resent);
                round.packet_bytes = round.packet_bytes.max(counters.packets.payload_bytes);
                // A lane without traffic remembers a round trip of another time.
                let rtt = counters.round_trip.smoothed;
                if delivered > 0 && (round.rtt.is_zero() || rtt < round.rtt) {
                    round.rtt = rtt;
                }
            }
            seen.insert(id, look);
        }
        self.looks = seen;
        round
    }

    /// A change of the path's state, if there is one to tell.
    fn change(&mut self, now: Instant) -> Option<TuningStep> {
        let state = match (self.control.phase(), self.control.is_shared()) {
            (PathPhase::Steady, true) => ToldState::Shared,
            (PathPhase::Steady, false) => ToldState::Full,
            (PathPhase::Open | PathPhase::Drain, _) => return None,
        };
        // Others come and go; a line each second would tell nobody more.
        if self.told.is_some_and(|(was, at)| state == was || now - at < TELL_EVERY) {
            return None;
        }
        self.told = Some((state, now));
        let (rate, most) = (self.control.rate()?, self.control.capacity() as u64);
        tracing::debug!(
            target: "longhaul::lanes",
            rate,
            most,
            own_loss = self.control.own_loss(),
            round_trip_ms = self.control.base().as_secs_f64() * 1e3,
            "the path is {state:?}"
        );
        let reason = match state {
            ToldState::Full => Why::PathFull { most },
            ToldState::Shared => Why::PathShared { most },
        };
        Some(TuningStep { task: LaneTask::Nothing, change: LanesChange::Paced(rate), reason })
    }
}

/// Divides `rate` among the lanes. A lane that does not use its part leaves most of the rest to the
/// others, as one does that repairs a loss or measures its round trip.
fn divide(looks: &mut HashMap<LaneId, LaneLook>, rate: Option<u64>) {
    let Some(rate) = rate.map(|rate| rate as f64) else {
        looks.values_mut().for_each(|look| look.paced = None);
        return;
    };
    let even = rate / looks.len().max(1) as f64;
    let claim = |look: &LaneLook| {
        let is_slack = look.paced.is_some_and(|paced| look.used < SLACK * paced.min(even));
        is_slack.then_some((look.used * ROOM).max(even / 4.0))
    };
    let (slack, claimed) = looks.values().filter_map(claim).fold((0, 0.0), |(n, sum), one| (n + 1, sum + one));
    let hungry = looks.len() - slack;
    for look in looks.values_mut() {
        look.paced = Some(match claim(look) {
            _ if hungry == 0 => even,
            Some(claimed) => claimed,
            None => (rate - claimed).max(even) / hungry as f64,
        });
    }
}

/// A lane that uses less than this part of what it may does not need it, ...
const SLACK: f64 = 0.7;
/// ... and keeps this many times what it uses.
const ROOM: f64 = 1.3;
/// The shortest round: within less, threads that wake late are what is measured.
const ROUND_LEAST: Duration = Duration::from_millis(20);
/// The longest time between two looks.
const ROUND_LONGEST: Duration = Duration::from_secs(1);
/// The time between two changes that people are told of.
const TELL_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(lanes: &[(f64, Option<f64>)], rate: Option<u64>) -> Vec<Option<i64>> {
        let look = |(used, paced): &(f64, Option<f64>)| LaneLook {
            counters: LaneCounters::default(),
            used: *used,
            paced: *paced,
        };
        let mut looks: HashMap<_, _> =
            lanes.iter().enumerate().map(|(n, lane)| (LaneId(n as u32), look(lane))).collect();
        divide(&mut looks, rate);
        (0..lanes.len()).map(|n| looks[&LaneId(n as u32)].paced.map(|paced| paced.round() as i64)).collect()
    }

    #[test]
    fn lanes_share_a_rate_evenly_and_take_over_what_one_of_them_does_not_use() {
        let new = (0.0, None);
        assert_eq!(divided(&[new, new, new, new], Some(400)), [Some(100); 4]);
        assert_eq!(divided(&[(0.0, Some(100.0)), new], None), [None; 2]);
        let (busy, idle, slow) = ((100.0, Some(100.0)), (0.0, Some(100.0)), (50.0, Some(100.0)));
        assert_eq!(divided(&[busy, busy, idle], Some(300)), [Some(138), Some(138), Some(25)]);
        assert_eq!(divided(&[busy, busy, slow], Some(300)), [Some(118), Some(118), Some(65)]);
        assert_eq!(divided(&[idle, idle], Some(200)), [Some(100); 2], "nobody is there to take it");
        // A lane that was given more than its part, as another was idle, and uses its part.
        assert_eq!(divided(&[(100.0, Some(275.0)), busy], Some(200)), [Some(100); 2]);
    }

    #[test]
    fn a_receiver_and_whoever_takes_all_keep_no_rate() {
        for (role, share) in [(Role::Receiver, PathShare::Fair), (Role::Sender, PathShare::All)] {
            let manners = LaneManners::new(role, share);
            assert!(!manners.keeps && manners.look_at().is_none() && manners.full_at().is_none(), "{role:?}");
        }
        assert!(LaneManners::new(Role::Sender, PathShare::Polite).keeps);
    }
}
