//! Gives a session its lanes and replaces lost ones: the acceptor grants ids, the initiator dials
//! them.
//!
//! In: lanes that joined or were lost, and ids from control. Out: ids to grant to the loop, and
//! lanes that joined to the session's listener. Grants are bounded: each that led to no lane
//! doubles the wait for the next, and after 8 in a row there are no more. An id is good for 10 s,
//! in which the initiator tries again and again. It owns no joined streams and knows no messages.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::limits::LANE_JOIN_SECONDS_MAX;
use longhaul_core::{Blame, Fault, FaultCode, LaneId};
use longhaul_proto::wire::message::Transport;

use super::JoinedLane;
use super::event::{LaneEvent, LaneListener};

/// Opens a new id for a lane that may join. `None` when there were too many.
pub(crate) type OpenLaneId = Box<dyn FnMut() -> Option<LaneId> + Send>;
/// Dials a lane and joins it to its session. Blocks for as long as that takes.
pub(crate) type Dial = Arc<dyn Fn(LaneId, Transport) -> Result<JoinedLane, Fault> + Send + Sync>;

/// How this side replaces lost lanes.
pub(crate) enum Replacement {
    /// Not at all: both ends are in one process, where only a bug loses a lane.
    Never,
    /// It is the acceptor: see [`LaneGrants`].
    Grant(LaneGrants),
    /// It dials the lanes that are granted.
    Dial {
        /// Dials one.
        dial: Dial,
        /// The number of lanes being dialled.
        under_way: Arc<AtomicUsize>,
    },
}

/// The grants of an accepting side.
pub(crate) struct LaneGrants {
    open: OpenLaneId,
    /// Ids that may still join, and until when.
    pending: BTreeMap<LaneId, Instant>,
    /// When the next grant is due. `None` if no lane is missing.
    next: Option<Instant>,
    /// Rounds of grants since a unit last went through, and how many units had gone through by
    /// then.
    in_vain: u32,
    units: u64,
}

impl LaneGrants {
    /// Grants of a session whose ids `0..first` were named in its welcome.
    pub(crate) fn new(first: u32, open: OpenLaneId) -> LaneGrants {
        let until = Instant::now() + GOOD_FOR;
        LaneGrants {
            open,
            pending: (0..first).map(|id| (LaneId(id), until)).collect(),
            next: None,
            in_vain: 0,
            units: 0,
        }
    }
}

impl LaneGrants {
    /// When to look whether lanes are missing: at the time set, or when an unused id expires.
    fn due(&self) -> Option<Instant> {
        self.next.or_else(|| self.pending.values().min().copied())
    }
}

impl Replacement {
    /// The replacement of the side that dials.
    pub(crate) fn dialling(dial: Dial) -> Replacement {
        Replacement::Dial { dial, under_way: Arc::default() }
    }

    /// Records that a lane joined.
    pub(crate) fn joined(&mut self, id: LaneId) {
        if let Replacement::Grant(grants) = self {
            grants.pending.remove(&id);
        }
    }

    /// Records that a lane is lost.
    pub(crate) fn lost(&mut self, now: Instant) {
        if let Replacement::Grant(grants) = self {
            grants.next.get_or_insert(now);
        }
    }

    /// When the next call of [`Replacement::grant`] is due. `None` if it has nothing to do.
    pub(crate) fn grant_at(&self) -> Option<Instant> {
        match self {
            Replacement::Grant(grants) => grants.due(),
            _ => None,
        }
    }

    /// The ids to grant now. `running` lanes stand, `target` should, and `units` went through so
    /// far.
    pub(crate) fn grant(&mut self, now: Instant, running: usize, target: u32, units: u64) -> Vec<LaneId> {
        let Replacement::Grant(grants) = self else { return Vec::new() };
        if grants.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        grants.pending.retain(|_, until| now < *until);
        if units > grants.units {
            (grants.units, grants.in_vain) = (units, 0);
        }
        let missing = (target as usize).saturating_sub(running + grants.pending.len());
        let left = (IN_VAIN_MAX * target).saturating_sub(grants.in_vain) as usize;
        let ids: Vec<_> = std::iter::from_fn(|| (grants.open)()).take(missing.min(left)).collect();
        grants.pending.extend(ids.iter().map(|id| (*id, now + GOOD_FOR)));
        grants.in_vain += ids.len() as u32;
        let whole = running + grants.pending.len() >= target as usize && grants.pending.is_empty();
        let patience = BACKOFF * 2u32.saturating_pow((grants.in_vain / target.max(1)).min(BACKOFF_DOUBLINGS));
        grants.next = (!whole && left > 0).then(|| now + patience);
        ids
    }

    /// Dials the lanes that the welcome granted, all at once, and each once: one that does not join
    /// is granted again. If none joins, or one fails for a reason that stays, the session hears so.
    pub(crate) fn dial_first(&self, ids: Range<u32>, transport: Transport, listener: &Arc<dyn LaneListener>) {
        let Replacement::Dial { dial, under_way } = self else { return };
        let one = |id: u32| {
            let (dial, under_way, listener) = (dial.clone(), under_way.clone(), listener.clone());
            under_way.fetch_add(1, Ordering::AcqRel);
            tokio::task::spawn_blocking(move || {
                let joined = dial(LaneId(id), transport);
                under_way.fetch_sub(1, Ordering::AcqRel);
                let event = match joined {
                    Ok(lane) => LaneEvent::Joined(lane),
                    Err(fault) if fault.retry() => return Err(fault),
                    Err(fault) => LaneEvent::Undialled(fault),
                };
                listener.hear(event);
                Ok(())
            })
        };
        let (dialling, listener): (Vec<_>, _) = (ids.map(one).collect(), listener.clone());
        tokio::spawn(async move {
            let mut last = None;
            for lane in dialling {
                match lane.await.unwrap_or_else(|e| Err(Fault::new(FaultCode::Internal, Blame::Bug, e))) {
                    Ok(()) => return,
                    Err(fault) => last = Some(fault),
                }
            }
            if let Some(fault) = last {
                listener.hear(LaneEvent::Undialled(fault));
            }
        });
    }

    /// Dials granted lanes, as far as there is `room`. Returns whether this side dials at all.
    pub(crate) fn dial(
        &mut self,
        ids: impl Iterator<Item = LaneId>,
        transport: Transport,
        room: usize,
        listener: &Arc<dyn LaneListener>,
    ) -> bool {
        let Replacement::Dial { dial, under_way } = self else { return false };
        let room = room.saturating_sub(under_way.load(Ordering::Acquire));
        for id in ids.take(room) {
            let (dial, under_way, listener) = (dial.clone(), under_way.clone(), listener.clone());
            under_way.fetch_add(1, Ordering::AcqRel);
            tokio::spawn(async move {
                if let Some(lane) = dial_until_joined(&dial, id, transport, &*listener).await {
                    listener.hear(LaneEvent::Joined(lane));
                }
                under_way.fetch_sub(1, Ordering::AcqRel);
            });
        }
        true
    }
}

/// Dials as long as the id is good and the session stands.
async fn dial_until_joined(
    dial: &Dial,
    id: LaneId,
    transport: Transport,
    listener: &dyn LaneListener,
) -> Option<JoinedLane> {
    let until = Instant::now() + Duration::from_secs(LANE_JOIN_SECONDS_MAX);
    let mut wait = BACKOFF;
    while Instant::now() < until && !listener.is_over() {
        let dial = dial.clone();
        match tokio::task::spawn_blocking(move || dial(id, transport)).await {
            Ok(Ok(lane)) => return Some(lane),
            Ok(Err(fault)) => tracing::debug!(target: "longhaul::session", lane = id.0, %fault, "a lane did not join"),
            Err(_) => return None,
        }
        tokio::time::sleep(wait).await;
        wait *= 2;
    }
    None
}

impl fmt::Debug for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Replacement::Never => "Never",
            Replacement::Grant(_) => "Grant",
            Replacement::Dial { .. } => "Dial",
        })
    }
}

/// An id is good for 10 s, and a proof that began in time may take as long again before the lane
/// stands here. A lane that comes later does no harm.
const GOOD_FOR: Duration = Duration::from_secs(LANE_JOIN_SECONDS_MAX + 2);
/// The wait after a grant or a dial that led to no lane. It doubles each time.
const BACKOFF: Duration = Duration::from_millis(200);
/// The number of times the wait doubles: it grows to 6.4 s.
const BACKOFF_DOUBLINGS: u32 = 5;
/// Rounds of grants in a row of which no lane brought a single unit through, after which no more
/// are granted.
const IN_VAIN_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::super::StreamLane;
    use super::*;

    fn granting(target: u32) -> Replacement {
        let mut next = target;
        let open = move || {
            next += 1;
            Some(LaneId(next - 1))
        };
        let mut regrow = Replacement::Grant(LaneGrants::new(target, Box::new(open)));
        (0..target).for_each(|id| regrow.joined(LaneId(id)));
        regrow
    }

    /// Dials `count` ids, each of which ends as `fails` says. Returns the faults that the session
    /// hears.
    fn dialled(count: u32, fails: impl Fn(LaneId) -> Option<FaultCode> + Send + Sync + 'static) -> Vec<String> {
        let dial: Dial = Arc::new(move |id, _| match fails(id) {
            Some(code) => Err(Fault::new(code, Blame::Path, "it fails")),
            None => {
                let (stream, _) = longhaul_net::LaneStream::pair().expect("a pair");
                Ok(StreamLane { id, stream, taken: true }.into())
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (sink, mut events) = tokio::sync::mpsc::unbounded_channel::<LaneEvent>();
        let listener: Arc<dyn LaneListener> = Arc::new(sink);
        runtime.block_on(async move {
            Replacement::dialling(dial).dial_first(0..count, Transport::Tcp, &listener);
            drop(listener);
            let mut heard = Vec::new();
            while let Some(event) = events.recv().await {
                heard.push(match event {
                    LaneEvent::Joined(lane) => format!("lane {}", lane.id().0),
                    LaneEvent::Undialled(fault) => fault.code.name().to_owned(),
                    other => panic!("{other:?}"),
                });
            }
            heard.sort();
            heard
        })
    }

    #[test]
    fn of_the_first_lanes_one_that_joins_is_enough() {
        assert_eq!(dialled(3, |id| (id.0 != 1).then_some(FaultCode::Unreachable)), ["lane 1"]);
    }

    #[test]
    fn where_no_lane_joins_or_one_never_will_the_session_hears_why() {
        assert_eq!(dialled(3, |_| Some(FaultCode::TimedOut)), ["timed-out"]);
        assert_eq!(dialled(2, |id| (id.0 == 1).then_some(FaultCode::Denied)), ["denied", "lane 0"]);
    }

    #[test]
    fn each_lost_lane_is_replaced_by_a_new_id_once() {
        let (mut regrow, now) = (granting(4), Instant::now());
        assert_eq!(regrow.grant_at(), None);
        regrow.lost(now);
        assert_eq!(regrow.grant(now, 3, 4, 10), [LaneId(4)]);
        let later = regrow.grant_at().expect("it looks whether it joined");
        assert_eq!(regrow.grant(later, 3, 4, 10), [], "the id is still good");
        regrow.joined(LaneId(4));
        assert_eq!(regrow.grant(later + GOOD_FOR, 4, 4, 10), []);
        assert_eq!(regrow.grant_at(), None);
    }

    #[test]
    fn an_id_that_was_named_at_the_start_and_never_used_is_replaced() {
        let mut next = 2;
        let open = move || {
            next += 1;
            Some(LaneId(next - 1))
        };
        let mut regrow = Replacement::Grant(LaneGrants::new(2, Box::new(open)));
        regrow.joined(LaneId(0));
        let due = regrow.grant_at().expect("the other may not come");
        assert_eq!(regrow.grant(due, 1, 2, 0), [LaneId(2)]);
    }

    #[test]
    fn grants_of_which_nothing_comes_wait_longer_each_time_and_end() {
        let (mut regrow, mut now) = (granting(1), Instant::now());
        regrow.lost(now);
        let (mut grants, mut waits) = (0, Vec::new());
        while let Some(next) = regrow.grant_at() {
            waits.push(next.saturating_duration_since(now));
            now = next;
            let ids = regrow.grant(now, 0, 1, 5);
            grants += ids.len() as u32;
            // The lane joins, and breaks before it has brought anything.
            for id in ids {
                regrow.joined(id);
                regrow.lost(now);
            }
        }
        assert_eq!(grants, IN_VAIN_MAX);
        assert!(waits.is_sorted() && waits.last() == Some(&(BACKOFF * 32)), "{waits:?}");
        regrow.lost(now);
        assert_eq!(regrow.grant(now, 0, 1, 6).len(), 1, "a unit that came through begins anew");
    }
}
