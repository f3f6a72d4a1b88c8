//! Finds the part that limits a transfer, from four sources: several looks a second at the lanes,
//! the counters of each, the processor time, and the other side's reports.
//!
//! In: looks at the lanes, and once a second their handles. Out: the part that limited the second,
//! as `proto` names it. It knows no messages and no disks: the session loop says what an idle lane
//! waits for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, Role};
use longhaul_net::{LaneCounters, LaneHandle};
use longhaul_proto::tuning::limit::{Heard, Path, Processors, Receiving, Sending, Spent, of_receiver, of_transfer};
use longhaul_proto::wire::message::{Limit, Limited};

use super::worker::pulse::Doing;
use crate::cpu::{Stage, StageTimes, process_micros};

/// The reason for which a lane has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// At a sender: ordered reads, or the scan.
    Source,
    /// At a sender: the receiver's next wants.
    Wants,
    /// At a receiver: the disk, which has as much work as it takes at a time.
    Target,
    /// At a receiver: free buffers; the disk could use more.
    Buffers,
    /// The session has just begun.
    Other,
}

/// The users of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathUse {
    /// This session, as far as is known.
    Alone,
    /// Others besides, who leave this session less than there is.
    Shared,
}

/// A path, as the control of its lanes' rate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathView {
    /// Its users.
    pub(crate) users: PathUse,
    /// The part of the network that limits. `None` if the control does not know, or there is none.
    pub(crate) limit: Option<Limit>,
}

/// The bottleneck search. See the module.
#[derive(Debug)]
pub(crate) struct Limiter {
    role: Role,
    looks: Looks,
    since: Instant,
    /// The counters of each lane at the end of the last second.
    last_counters: HashMap<LaneId, LaneCounters>,
    cpu: CpuSeen,
    /// The other side's last report, and when it came. `None` before the first.
    peer_limit: Option<(Instant, Option<Limited>)>,
    /// The part that limited the last second. `None` if it is not known, as in an outage.
    limited: Option<Limited>,
    /// Whether this process used up the processors in the last second.
    is_pressed: bool,
    path: PathView,
    spent: Spent,
}

/// How many looks found each state.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    all: u32,
    source: u32,
    wants: u32,
    paced: u32,
    held: u32,
    target: u32,
    buffers: u32,
}

/// CPU seconds so far.
#[derive(Clone, Copy, Debug)]
struct CpuSeen {
    process: f64,
    hash: f64,
    net: f64,
    files: f64,
}

impl CpuSeen {
    fn now(times: &StageTimes) -> CpuSeen {
        CpuSeen {
            process: process_micros() as f64 / 1e6,
            hash: times.of(Stage::Hash),
            net: times.of(Stage::Net),
            files: times.of(Stage::Files),
        }
    }
}

impl Limiter {
    /// The search of one side of a session that begins.
    pub(crate) fn new(role: Role) -> Limiter {
        Limiter {
            role,
            looks: Looks::default(),
            since: Instant::now(),
            last_counters: HashMap::new(),
            cpu: CpuSeen::now(&StageTimes::default()),
            peer_limit: None,
            limited: None,
            is_pressed: false,
            path: PathView { users: PathUse::Alone, limit: None },
            spent: Spent::default(),
        }
    }

    /// Counts a look at what the lanes do.
    pub(crate) fn look(&mut self, lanes: &[Doing], waits_for: WaitsFor) {
        if !lanes.is_empty() {
            self.looks.add(self.role, lanes, waits_for);
        }
    }

    /// Records how the control of its rate sees the path.
    pub(crate) fn set_path(&mut self, path: PathView) {
        self.path = path;
    }

    /// Records the other side's report of what limits it.
    pub(crate) fn hear(&mut self, now: Instant, by: Option<Limited>) {
        self.peer_limit = Some((now, by));
    }

    /// Closes a second (or half of one, or the session) and returns the report for the other side.
    /// `None` if too little was seen.
    pub(crate) fn second<'a>(
        &mut self,
        lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)>,
        times: &StageTimes,
    ) -> Option<Option<Limited>> {
        let now = Instant::now();
        // In an outage nothing is slow, because nothing moves. There may be no lanes to look at
        // either.
        let is_silent = self.peer_limit.is_some_and(|(at, _)| now.saturating_duration_since(at) >= SILENT_AFTER);
        if is_silent {
            self.limited = None;
        }
        if self.looks.all < LOOKS_MIN {
            return None;
        }
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.since, now)).as_secs_f64();
        let looks = std::mem::take(&mut self.looks);
        let (path, count) = self.counted(lanes);
        let processors = self.processors(CpuSeen::now(times), elapsed, count);
        let heard =
            self.peer_limit.filter(|(at, _)| now.saturating_duration_since(*at) < STALE_AFTER).map(|(_, by)| by);
        let own = match self.role {
            Role::Sender => {
                let (source, unwanted, paced) = (looks.share(looks.source), looks.share(looks.wants), looks.paced());
                let (held, shared) = (looks.share(looks.held), self.path.users == PathUse::Shared);
                let named = self.path.limit;
                let sending = Sending { source, unwanted, paced, held, shared, named, path, processors };
                of_transfer(&sending, heard.map_or(Heard::Silence, Heard::Says))
            }
            Role::Receiver => {
                let (target, memory, paced) = (looks.share(looks.target), looks.share(looks.buffers), looks.paced());
                of_receiver(&Receiving { target, memory, paced, processors })
            }
        };
        self.limited = match self.role {
            // The kernel of a process that stands still reports it: the process takes no more data.
            Role::Sender if is_silent => own.filter(|limited| limited.by == Limit::Receiver),
            Role::Sender => own,
            Role::Receiver if is_silent => None,
            // The sender names the limit of the whole transfer.
            Role::Receiver => heard.flatten(),
        };
        if let Some(limited) = self.limited {
            self.spent.add(limited.by, elapsed);
        }
        Some(own)
    }

    /// When the limit was last named.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The part that limited the last second. `None` if it is not known, as in an outage.
    pub(crate) fn limited(&self) -> Option<Limited> {
        self.limited
    }

    /// Whether this process used up this host's processors in the last second. A lane's thread that
    /// has no rest is none of it, and neither is the other side.
    pub(crate) fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// How long each part has limited the session so far.
    pub(crate) fn spent(&self) -> &Spent {
        &self.spent
    }

    /// The lanes' counts since the last second, and the number of lanes.
    fn counted<'a>(&mut self, lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)>) -> (Option<Path>, usize) {
        let (mut sum, mut count, mut seen) = (Sum::default(), 0, HashMap::new());
        for (id, handle) in lanes {
            count += 1;
            if handle.is_within_host() {
                continue;
            }
            if let Some(counters) = handle.counters() {
                sum.add(&counters, &self.last_counters.get(&id).copied().unwrap_or_default());
                seen.insert(id, counters);
            }
        }
        let path = (!seen.is_empty()).then(|| sum.path());
        self.last_counters = seen;
        (path, count)
    }

    fn processors(&mut self, now: CpuSeen, elapsed: f64, lanes: usize) -> Processors {
        let before = std::mem::replace(&mut self.cpu, now);
        let (hash, net, files) = (now.hash - before.hash, now.net - before.net, now.files - before.files);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let of = |seconds: f64, threads: usize| seconds / (elapsed * threads.max(1) as f64).max(1e-6);
        let all = of(now.process - before.process, processors);
        self.is_pressed = Processors::are_busy(all);
        Processors {
            busy: all.max(of(hash + net, lanes)),
            most: if hash > 0.0 && hash >= net.max(files) { Limit::Hash } else { Limit::Cpu },
        }
    }
}

impl Looks {
    fn add(&mut self, role: Role, lanes: &[Doing], waits_for: WaitsFor) {
        let any = |doing| lanes.contains(&doing);
        let idle = |doing: &Doing| *doing == Doing::Nothing;
        self.all += 1;
        let found = match (role, waits_for) {
            (Role::Sender, WaitsFor::Source) if any(Doing::Nothing) => &mut self.source,
            (Role::Sender, WaitsFor::Wants) if lanes.iter().all(idle) => &mut self.wants,
            (Role::Receiver, WaitsFor::Target) if any(Doing::Waiting) => &mut self.target,
            (Role::Receiver, WaitsFor::Buffers) if any(Doing::Waiting) => &mut self.buffers,
            _ if any(Doing::Paced) => &mut self.paced,
            (Role::Sender, _) if any(Doing::Held) => &mut self.held,
            _ => return,
        };
        *found += 1;
    }

    fn share(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.all.max(1))
    }

    fn paced(&self) -> f64 {
        self.share(self.paced)
    }
}

/// The sum of all lanes' counters since the last second.
#[derive(Debug, Default)]
struct Sum {
    busy: Duration,
    receiver: Duration,
    buffer: Duration,
    sent: u64,
    resent: u64,
    rtt: Duration,
    min_rtt: Duration,
}

impl Sum {
    fn add(&mut self, now: &LaneCounters, before: &LaneCounters) {
        self.busy += now.waits.busy.saturating_sub(before.waits.busy);
        self.receiver += now.waits.receiver.saturating_sub(before.waits.receiver);
        self.buffer += now.waits.buffer.saturating_sub(before.waits.buffer);
        self.sent += now.sent.saturating_sub(before.sent);
        self.resent += now.resent.saturating_sub(before.resent);
        if let Some(min_rtt) = now.round_trip.min {
            self.rtt += now.round_trip.smoothed;
            self.min_rtt += min_rtt;
        }
    }

    fn path(&self) -> Path {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let busy = self.busy.as_secs_f64();
        Path {
            receiver: share(self.receiver.as_secs_f64(), busy),
            buffer: share(self.buffer.as_secs_f64(), busy),
            resent: share(self.resent as f64, self.sent as f64),
            stretch: share(self.rtt.as_secs_f64(), self.min_rtt.as_secs_f64()),
        }
    }
}

/// Fewer looks than this, of 20 in a second, tell nothing.
const LOOKS_MIN: u32 = 4;
/// A report of the other side counts for this long; each side reports once a second at least.
const STALE_AFTER: Duration = Duration::from_secs(2);

/// After this long without a report, of which there is one a second, the other side is taken to be
/// out of reach.
const SILENT_AFTER: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use longhaul_net::{RoundTrip, SendWaits};

    use super::*;

    fn looked(role: Role, lanes: &[Doing], waits_for: WaitsFor) -> [u32; 6] {
        let mut looks = Looks::default();
        looks.add(role, lanes, waits_for);
        [looks.source, looks.wants, looks.paced, looks.target, looks.buffers, looks.held]
    }

    #[test]
    fn an_instant_counts_for_what_a_lane_is_found_waiting_for() {
        use Doing::{Held, Moving, Nothing, Paced, Waiting};
        for (role, lanes, waits_for, want) in [
            (Role::Sender, [Moving, Nothing], WaitsFor::Source, [1, 0, 0, 0, 0, 0]),
            (Role::Sender, [Moving, Moving], WaitsFor::Source, [0; 6]),
            (Role::Sender, [Nothing, Nothing], WaitsFor::Wants, [0, 1, 0, 0, 0, 0]),
            (Role::Sender, [Moving, Nothing], WaitsFor::Wants, [0; 6]),
            (Role::Sender, [Moving, Paced], WaitsFor::Wants, [0, 0, 1, 0, 0, 0]),
            (Role::Sender, [Moving, Held], WaitsFor::Wants, [0, 0, 0, 0, 0, 1]),
            (Role::Sender, [Paced, Held], WaitsFor::Wants, [0, 0, 1, 0, 0, 0]),
            (Role::Receiver, [Moving, Waiting], WaitsFor::Target, [0, 0, 0, 1, 0, 0]),
            (Role::Receiver, [Moving, Waiting], WaitsFor::Buffers, [0, 0, 0, 0, 1, 0]),
            (Role::Receiver, [Moving, Nothing], WaitsFor::Target, [0; 6]),
        ] {
            assert_eq!(looked(role, &lanes, waits_for), want, "{role:?} {lanes:?} {waits_for:?}");
        }
    }

    #[test]
    fn an_outage_is_limited_by_nothing() {
        for (ago, limited) in [(0, true), (4, false)] {
            let Some(heard) = Instant::now().checked_sub(Duration::from_secs(ago)) else { continue };
            let mut limiter = Limiter::new(Role::Sender);
            limiter.hear(heard, None);
            for _ in 0..LOOKS_MIN {
                limiter.look(&[Doing::Paced], WaitsFor::Wants);
            }
            limiter.second(std::iter::empty(), &StageTimes::default());
            assert_eq!(
                (limiter.limited().is_some(), limiter.spent().shares().is_empty()),
                (limited, !limited),
                "{ago} s"
            );
        }
    }

    #[test]
    fn an_outage_without_a_lane_to_look_at_is_limited_by_nothing_either() {
        let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(4)) else { return };
        let mut limiter = Limiter::new(Role::Sender);
        let mut second = |heard, looks| {
            limiter.hear(heard, None);
            (0..looks).for_each(|_| limiter.look(&[Doing::Paced], WaitsFor::Wants));
            let said = limiter.second(std::iter::empty(), &StageTimes::default());
            (said.is_some(), limiter.limited().is_some())
        };
        assert_eq!(second(Instant::now(), LOOKS_MIN), (true, true));
        assert_eq!(second(Instant::now(), 0), (false, true), "no looks say nothing new");
        assert_eq!(second(long_ago, 0), (false, false));
    }

    #[test]
    fn the_counters_of_lanes_are_those_of_the_second() {
        let ms = Duration::from_millis;
        let before = LaneCounters {
            sent: 1000,
            resent: 900,
            waits: SendWaits { busy: ms(1000), receiver: ms(1000), buffer: ms(0) },
            ..LaneCounters::default()
        };
        let now = LaneCounters {
            sent: 2000,
            resent: 910,
            round_trip: RoundTrip { min: Some(ms(20)), smoothed: ms(30), deviation: ms(0) },
            waits: SendWaits { busy: ms(2000), receiver: ms(1500), buffer: ms(250) },
            ..LaneCounters::default()
        };
        let mut sum = Sum::default();
        sum.add(&now, &before);
        assert_eq!(sum.path(), Path { receiver: 0.5, buffer: 0.25, resent: 0.01, stretch: 1.5 });
    }
}
