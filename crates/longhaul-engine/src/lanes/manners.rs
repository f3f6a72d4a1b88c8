//! Keeps the manners of a sending side: gives the counters of all lanes of a path together to
//! `proto`'s control of that path, and its rate back to them.
//!
//! In: lanes that join, and handles of those that stand, each round trip. Out: the rate of the
//! account on which all lanes draw, to each connection the rate that it may pace at, and changes
//! for people. One control serves all lanes of a session on a path whose rate the kernel controls;
//! those over QUIC control theirs by themselves. The account keeps the sum, so that the others take
//! at once what a lane leaves while it repairs a loss or measures its round trip; connections pace
//! below it, each at more than its part, so that a piece does not leave as a burst. It knows no
//! sockets and no messages.

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
    /// Whether all lanes that stand are on one of them.
    are_all: bool,
    steps: Vec<TuningStep>,
}

/// The marks by which paths differ: the interface here, and the other end's address.
type PathEnds = (Option<u32>, Option<IpAddr>);

/// A path, and the lanes on it.
#[derive(Debug)]
struct LanePath {
    ends: PathEnds,
    control: PathControl,
    looks: HashMap<LaneId, LaneCounters>,
    since: Instant,
    next: Instant,
    /// The last state that was told, and when.
    told: Option<(ToldState, Instant)>,
}

/// The part that sees to it that the lanes of a path keep its rate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SumKeeper {
    /// The account of all lanes: they are on one path.
    Account,
    Nobody,
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
        LaneManners { keeps, share, paths: Vec::new(), path_of: HashMap::new(), are_all: false, steps: Vec::new() }
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

    /// Ends the rounds that are over, and has each connection pace. `given`: the share of a rate
    /// that was asked for, bytes/s, if there is one. Returns whether a round was over.
    pub(crate) fn look<'a>(
        &mut self,
        now: Instant,
        lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)> + Clone,
        given: Option<u64>,
    ) -> bool {
        let mut has_looked = false;
        self.are_all = lanes.clone().all(|(id, _)| self.path_of.contains_key(&id));
        let keeper = if self.are_all && self.paths.len() == 1 { SumKeeper::Account } else { SumKeeper::Nobody };
        for (place, path) in self.paths.iter_mut().enumerate().filter(|(_, path)| now >= path.next) {
            let on_it = lanes.clone().filter(|(id, _)| self.path_of.get(id) == Some(&place));
            path.look(now, on_it, (given, keeper));
            self.steps.extend(path.change(now));
            has_looked = true;
        }
        has_looked
    }

    /// The rate that all lanes keep together, bytes/s. `None` if a path is not full, as far as is
    /// known, or if some lanes are on none that is looked at.
    pub(crate) fn rate(&self) -> Option<u64> {
        let keeps = self.are_all && !self.paths.is_empty();
        self.paths.iter().map(|path| path.control.rate()).sum::<Option<u64>>().filter(|_| keeps)
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
        (given, keeper): (Option<u64>, SumKeeper),
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
        let paced = divide(self.control.rate(), self.looks.len(), keeper);
        lanes.for_each(|(_, handle)| handle.set_pace(paced.into_iter().chain(given).min()));
    }

    /// The counts of all lanes since the last look. A lane that is new is counted from now on.
    fn round<'a>(&mut self, now: Instant, lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)>) -> PathRound {
        let elapsed = now - std::mem::replace(&mut self.since, now);
        let mut round = PathRound { elapsed, ..PathRound::default() };
        let mut seen = HashMap::new();
        for (id, handle) in lanes {
            let Some(counters) = handle.counters() else { continue };
            if let Some(before) = self.looks.get(&id) {
                let delivered = delivered_between(before, &counters);
                round.delivered += delivered;
                round.lost += counters.resent.saturating_sub(before.resent);
                round.packet_bytes = round.packet_bytes.max(counters.packets.payload_bytes);
                // A lane without traffic remembers a round trip of another time.
                let rtt = counters.round_trip.smoothed;
                if delivered > 0 && (round.rtt.is_zero() || rtt < round.rtt) {
                    round.rtt = rtt;
                }
            }
            seen.insert(id, counters);
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

/// The rate at which each of `lanes` connections may pace: more than its part of `rate`.
fn divide(rate: Option<u64>, lanes: usize, keeper: SumKeeper) -> Option<u64> {
    let room = match keeper {
        SumKeeper::Nobody => ROOM_WITHOUT,
        SumKeeper::Account if lanes <= 1 => ROOM_ALONE,
        SumKeeper::Account => ROOM,
    };
    Some((rate? as f64 / lanes.max(1) as f64 * room) as u64)
}

/// Multiples of its part that a connection may use. BBR needs a quarter more than its part now and
/// then, to find out that it may have it; with half more, two lanes do the work of three. With
/// twice its part, lanes that all stood still fill a queue when they go on.
const ROOM: f64 = 1.5;
const ROOM_ALONE: f64 = 1.5;
/// The same if no account keeps the sum.
const ROOM_WITHOUT: f64 = 1.1;
/// The shortest round: within less, threads that wake late are what is measured.
const ROUND_LEAST: Duration = Duration::from_millis(20);
/// The longest time between two looks.
const ROUND_LONGEST: Duration = Duration::from_secs(1);
/// The time between two changes that people are told of.
const TELL_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_may_use_more_than_its_part_where_an_account_keeps_the_sum() {
        assert_eq!(divide(Some(400), 4, SumKeeper::Account), Some(150));
        assert_eq!(divide(Some(400), 1, SumKeeper::Account), Some(600));
        assert_eq!(divide(Some(400), 4, SumKeeper::Nobody), Some(110));
        assert_eq!(divide(None, 4, SumKeeper::Account), None);
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
