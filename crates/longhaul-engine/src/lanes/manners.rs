//! Keeps the manners of a sending side: gives the counters of all lanes of a path together to
//! `proto`'s control of that path, and its rate back to them.
//!
//! In: lanes that join, and handles of those that stand, each round trip. Out: the rate of the
//! account on which all lanes draw, to each connection the rate that it may pace at, and changes
//! for people. One control serves all lanes of a session on a path whose rate the kernel controls;
//! `own` has the one of those over QUIC, and `breakers` what stops these on a path that is broken.
//! The account keeps the sum, so that the others take at once what a lane leaves while it repairs a
//! loss or measures its round trip; connections pace below it, each at more than its part, so that
//! a piece does not leave as a burst. It knows no sockets and no messages.

mod breakers;
mod own;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, PathShare, Role};
use longhaul_net::{CongestionControl, LaneCounters, LaneHandle, LaneStream};
use longhaul_proto::tuning::manners::{PathControl, PathPhase, PathRound};
use longhaul_proto::tuning::road::RoadSums;
use longhaul_proto::wire::message::Transport;

use self::breakers::QuicBreakers;
use self::own::OwnPaths;
use super::past::PathPast;
use super::rules::TransportChanges;
use super::told::{LastTold, ToldState};
use super::tune::{LaneTask, TuningStep, delivered_between};
use super::worker::pacer::Pacer;
use crate::api::LanesChange;

/// The manners of one side. See the module.
#[derive(Debug)]
pub(crate) struct LaneManners {
    /// Whether there are manners to keep: at a sender that does not take all.
    keeps: bool,
    share: PathShare,
    /// Paths with lanes, and those that had some a short while ago.
    paths: Vec<LanePath>,
    path_of: HashMap<LaneId, PathEnds>,
    /// The paths of lanes whose transport has a control of its own.
    own: OwnPaths,
    /// Their breakers, at a sender. `None` at a receiver.
    breakers: Option<QuicBreakers>,
    /// Whether all lanes that stand are on one of them.
    are_all: bool,
    steps: Vec<TuningStep>,
    /// The road of paths that were forgotten.
    past: RoadSums,
}

/// A lane that stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneMet<'a> {
    /// The lane.
    pub(crate) id: LaneId,
    /// Its connection.
    pub(crate) handle: &'a LaneHandle,
    /// The time so far in which it had nothing to send.
    pub(crate) idle: Duration,
}

/// The account on which all lanes draw, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccountSeen {
    /// The share of a connection of a rate that was asked for, bytes/s, if there is one.
    pub(crate) given: Option<u64>,
    /// Whether that rate is the lower one, and not the one of manners.
    pub(crate) is_asked: bool,
    /// The time so far in which lanes asked it for less than it lets through. `None`: it keeps no
    /// rate.
    pub(crate) unused: Option<Duration>,
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
    /// The time then in which lanes had asked the account for less than it lets through.
    unused: Option<Duration>,
    next: Instant,
    /// Since when no lane has been on it. `None`: some are.
    left: Option<Instant>,
    /// The last state that was told.
    told: LastTold,
}

/// A lane at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct LaneLook {
    counters: LaneCounters,
    idle: Duration,
    /// The rate that its connection was last told. `None`: it was told none.
    pace: Option<u64>,
    /// Whether nobody can have told it another since.
    is_sure: bool,
}

/// The part that sees to it that the lanes of a path keep its rate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SumKeeper {
    /// The account of all lanes: they are on one path.
    Account,
    Nobody,
}

impl LaneManners {
    /// The manners of a side that begins.
    pub(crate) fn new(role: Role, share: PathShare, past: PathPast) -> LaneManners {
        let keeps = role == Role::Sender && share != PathShare::All;
        let (paths, own, path_of, steps) = (Vec::new(), OwnPaths::new(past.clone()), HashMap::new(), Vec::new());
        let breakers = (role == Role::Sender).then(|| QuicBreakers::new(share, past));
        LaneManners { keeps, share, paths, path_of, own, breakers, are_all: false, steps, past: RoadSums::default() }
    }

    /// The same where the transport may change so. A breaker that opens where the other side cannot
    /// go back to TCP would end the transfer, so there is none.
    pub(crate) fn within(mut self, changes: TransportChanges) -> LaneManners {
        if changes.keeps_quic {
            self.breakers = None;
        }
        self
    }

    /// Takes a lane that joined. `pacer`: has the rate that was asked for.
    pub(crate) fn joined(&mut self, id: LaneId, stream: &LaneStream, pacer: &Pacer) {
        let (lane, facts) = (stream.handle(), stream.handle().facts());
        // Within a host there is no path, and what ssh does is its own affair.
        if !facts.has_manners() || lane.is_within_host() {
            return;
        }
        let ends = (stream.interface(), stream.peer_addr().map(|peer| peer.ip()));
        if let Some(breakers) = self.breakers.as_mut().filter(|_| facts.transport == Transport::Quic) {
            let round_trip = lane.counters().map(|counters| counters.round_trip.smoothed).unwrap_or_default();
            breakers.joined(Instant::now(), id, ends, round_trip);
        }
        if !self.keeps {
            return;
        }
        if self.share == PathShare::Polite {
            lane.set_scavenger();
        }
        match facts.congestion_control {
            CongestionControl::Kernel => self.joined_path(id, ends, Instant::now()),
            CongestionControl::Own => self.own.joined(id, &lane, ends, self.share, pacer),
        }
    }

    /// Takes a lane over UDP that joined. Its path has a control of its own.
    pub(crate) fn joined_udp(&self, lane: &LaneHandle) {
        if self.keeps && self.share == PathShare::Polite {
            lane.set_scavenger();
        }
    }

    fn joined_path(&mut self, id: LaneId, ends: PathEnds, now: Instant) {
        match self.paths.iter_mut().find(|path| path.ends == ends) {
            Some(path) if path.left.is_some() => path.come_back(now),
            Some(_) => {}
            None => self.paths.push(LanePath::new(ends, self.share, now)),
        }
        self.path_of.insert(id, ends);
    }

    /// When the next call of [`LaneManners::look`] is due. `None` if none ever is.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.paths.iter().map(|path| path.next).min()
    }

    /// Ends the rounds that are over, and has each connection pace. Returns whether there was
    /// anything to look at.
    pub(crate) fn look<'a>(
        &mut self,
        now: Instant,
        lanes: impl Iterator<Item = LaneMet<'a>> + Clone,
        account: AccountSeen,
    ) -> bool {
        if self.look_at().is_none_or(|at| now < at) {
            return false;
        }
        self.path_of.retain(|id, _| lanes.clone().any(|lane| lane.id == *id));
        self.are_all = lanes.clone().all(|lane| self.path_of.contains_key(&lane.id));
        for path in &mut self.paths {
            let has_lanes = self.path_of.values().any(|ends| *ends == path.ends);
            path.left = if has_lanes { None } else { path.left.or(Some(now)) };
        }
        let past = &mut self.past;
        self.paths.retain(|path| {
            let stays = path.left.is_none_or(|left| now - left < REMEMBERED_FOR);
            if !stays {
                past.add_all(path.control.road());
            }
            stays
        });
        let keeper = if self.are_all && self.standing().count() == 1 { SumKeeper::Account } else { SumKeeper::Nobody };
        let path_of = &self.path_of;
        for path in self.paths.iter_mut().filter(|path| now >= path.next) {
            let ends = path.ends;
            let on_it = lanes.clone().filter(|lane| path_of.get(&lane.id) == Some(&ends));
            if path.left.is_none() {
                path.look(now, on_it, (account, keeper));
                self.steps.extend(path.change(now));
            } else {
                path.next = now + REMEMBERED_FOR;
            }
        }
        true
    }

    /// Has the breakers of paths of lanes over QUIC look at the lanes that stand. Gives the lanes
    /// that are over.
    pub(crate) fn guard<'a>(&mut self, now: Instant, lanes: impl Iterator<Item = LaneMet<'a>> + Clone) -> Vec<LaneId> {
        let Some(breakers) = &mut self.breakers else { return Vec::new() };
        let found = breakers.look(now, lanes);
        found.orders.into_iter().for_each(|(ends, order)| self.own.restrain(now, ends, order));
        found.over
    }

    /// Whether a path of lanes over QUIC is broken: they are of no use to this session any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.breakers.as_ref().is_some_and(QuicBreakers::is_broken)
    }

    /// The paths on which lanes stand.
    fn standing(&self) -> impl Iterator<Item = &LanePath> {
        self.paths.iter().filter(|path| path.left.is_none())
    }

    /// The pace that a lane's connection was told, bytes/s. `None` if its path keeps no rate.
    pub(crate) fn pace(&self, id: LaneId) -> Option<u64> {
        let keeps = |path: &&LanePath| path.control.rate().is_some();
        self.paths.iter().filter(keeps).find_map(|path| path.looks.get(&id)?.pace)
    }

    /// Has each connection be told its pace at the next look, as somebody else told it another.
    pub(crate) fn doubt_paces(&mut self) {
        self.paths.iter_mut().flat_map(|path| path.looks.values_mut()).for_each(|look| look.is_sure = false);
    }

    /// The rate that all lanes keep together, bytes/s. `None` if a path is not full, as far as is
    /// known, or if some lanes are on none that is looked at.
    pub(crate) fn rate(&self) -> Option<u64> {
        let keeps = self.are_all && self.standing().next().is_some();
        self.standing().map(|path| path.control.rate()).sum::<Option<u64>>().filter(|_| keeps)
    }

    /// Whether more lanes would carry no more, or take it from others.
    pub(crate) fn is_full(&self) -> bool {
        self.standing().next().is_some() && self.standing().all(|path| path.control.is_full())
    }

    /// Thousandths of the packets of late that the lanes of a path lost beyond what it loses by
    /// itself: those of the worst.
    pub(crate) fn excess_loss(&self) -> u16 {
        let worst = self.standing().map(|path| path.control.excess_loss()).fold(0.0, f64::max);
        (worst * 1000.0).clamp(0.0, 1000.0) as u16
    }

    /// Whether others on a path leave this session less than there is.
    pub(crate) fn is_shared(&self) -> bool {
        self.own.is_shared() || self.standing().any(|path| path.control.is_shared())
    }

    /// The road so far, over all paths.
    pub(crate) fn road(&self) -> RoadSums {
        let mut sums = self.past;
        sums.add_all(&self.own.road());
        self.paths.iter().for_each(|path| sums.add_all(path.control.road()));
        sums
    }

    /// The changes since the last call, for people.
    pub(crate) fn take_steps(&mut self) -> Vec<TuningStep> {
        self.steps.extend(self.own.take_steps(Instant::now()));
        std::mem::take(&mut self.steps)
    }
}

impl LanePath {
    fn new(ends: PathEnds, share: PathShare, now: Instant) -> LanePath {
        let control = PathControl::new(share);
        let next = now + control.next_look();
        LanePath {
            ends,
            control,
            looks: HashMap::new(),
            since: now,
            unused: None,
            next,
            left: None,
            told: LastTold::default(),
        }
    }

    /// Has lanes again. What was known of it holds.
    fn come_back(&mut self, now: Instant) {
        (self.left, self.since, self.next) = (None, now, now + self.control.next_look());
        self.looks.clear();
    }

    fn look<'a>(
        &mut self,
        now: Instant,
        lanes: impl Iterator<Item = LaneMet<'a>> + Clone,
        (account, keeper): (AccountSeen, SumKeeper),
    ) {
        let (begun, before) = (self.since, std::mem::replace(&mut self.unused, account.unused));
        let mut look = self.counted(now, lanes.clone());
        // An account of several paths does not say on which of them lanes lacked work.
        if let (Some(before), Some(unused)) = (before, account.unused)
            && (keeper == SumKeeper::Account || account.is_asked)
        {
            let part = unused.saturating_sub(before).as_secs_f64() / (now - begun).as_secs_f64().max(1e-6);
            look.idle = account.lacking(look.idle, part);
        }
        let was_kept = self.control.rate().is_some();
        self.control.look(&look);
        tracing::trace!(
            target: "longhaul::lanes",
            ?look,
            rate = self.control.rate(),
            phase = ?self.control.phase(),
            own_loss = self.control.own_loss(),
            base = ?self.control.base(),
            "a look at the path"
        );
        self.next = now + self.control.next_look();
        if !was_kept && self.control.rate().is_none() {
            return;
        }
        let paced = divide(self.control.rate(), self.looks.len(), keeper).into_iter().chain(account.given).min();
        for lane in lanes {
            if let Some(look) = self.looks.get_mut(&lane.id).filter(|look| !look.is_sure || is_news(look.pace, paced)) {
                lane.handle.set_pace(paced);
                (look.pace, look.is_sure) = (paced, true);
            }
        }
    }

    /// The counts of all lanes since the last look. A lane that is new is counted from now on.
    fn counted<'a>(&mut self, now: Instant, lanes: impl Iterator<Item = LaneMet<'a>>) -> PathRound {
        let elapsed = now - std::mem::replace(&mut self.since, now);
        let mut round = PathRound { elapsed, ..PathRound::default() };
        let (mut seen, mut idle, mut counted) = (HashMap::new(), 0.0, 0);
        for lane in lanes {
            let Some(counters) = lane.handle.counters() else { continue };
            let before = self.looks.get(&lane.id);
            let look = LaneLook { counters, idle: lane.idle, ..before.copied().unwrap_or_default() };
            if let Some(before) = before {
                round.add(&before.counters, &counters);
                idle += look.idle_since(before).as_secs_f64();
                counted += 1;
            }
            round.rtt_first = least(round.rtt_first, counters.round_trip.min.unwrap_or_default());
            seen.insert(lane.id, look);
        }
        round.lanes = seen.len() as u32;
        round.idle = (idle / elapsed.as_secs_f64().max(1e-6) / f64::from(counted.max(1))).min(1.0);
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
        if !self.told.tells(now, state) {
            return None;
        }
        let (rate, most) = (self.control.rate()?, self.control.capacity() as u64);
        tracing::debug!(
            target: "longhaul::lanes",
            rate,
            most,
            own_loss = self.control.own_loss(),
            round_trip_ms = self.control.base().as_secs_f64() * 1e3,
            "the path is {state:?}"
        );
        let (change, reason) = (LanesChange::Paced(rate), state.reason(most));
        Some(TuningStep { task: LaneTask::Nothing, change, reason })
    }
}

impl LaneLook {
    /// The time since `before` in which it had nothing to send, or the other host took no more.
    fn idle_since(&self, before: &LaneLook) -> Duration {
        let full = self.counters.waits.receiver.saturating_sub(before.counters.waits.receiver);
        self.idle.saturating_sub(before.idle).max(full)
    }
}

/// Adds what a lane did between two looks.
trait AddLane {
    fn add(&mut self, before: &LaneCounters, now: &LaneCounters);
}

impl AddLane for PathRound {
    fn add(&mut self, before: &LaneCounters, now: &LaneCounters) {
        let delivered = delivered_between(before, now);
        self.delivered += delivered;
        self.lost += now.resent.saturating_sub(before.resent);
        self.packet_bytes = self.packet_bytes.max(now.packets.payload_bytes);
        // A lane without traffic remembers a round trip of another time.
        if delivered > 0 {
            self.rtt = least(self.rtt, now.round_trip.smoothed);
        }
    }
}

/// The shorter one, where 0 is none.
fn least(one: Duration, other: Duration) -> Duration {
    if one.is_zero() || !other.is_zero() && other < one { other } else { one }
}

impl AccountSeen {
    /// The part of the time in which lanes could not use the rate of manners for want of something
    /// else. `idle`: the mean part in which one had nothing to send. `unused`: the part in which
    /// they asked the account for less than it let through: while one makes good what another
    /// leaves, none lacks work. A lower rate that was asked for, and is used, leaves them nothing
    /// to find out.
    fn lacking(&self, idle: f64, unused: f64) -> f64 {
        if self.is_asked && unused < ASKED_USED { 1.0 } else { idle.min(unused) }
    }
}

/// Whether a connection should be told that pace: it differs by a twentieth.
fn is_news(told: Option<u64>, pace: Option<u64>) -> bool {
    match (told, pace) {
        (Some(told), Some(pace)) => pace.abs_diff(told) > told / 20,
        (told, pace) => told != pace,
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
/// A rate that was asked for is used if this part of the time at most is left.
const ASKED_USED: f64 = 0.1;
/// The time for which a path is remembered after the last lane has left it.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

#[cfg(test)]
impl LaneManners {
    /// Breaks a path of lanes over QUIC.
    pub(crate) fn break_quic(&mut self) {
        self.breakers.iter_mut().for_each(|breakers| breakers.open(Instant::now(), (None, None)));
    }

    /// Has the time of that be over.
    pub(crate) fn mend_quic(&mut self) {
        self.breakers.iter_mut().for_each(QuicBreakers::close);
    }
}

#[cfg(test)]
mod tests;
