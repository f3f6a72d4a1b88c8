//! Counts everything that moves in a session, and notes when that last happened.
//!
//! In: events of the session's queue, pieces of lanes, arrived bytes, the state of the loop, and
//! signs of life. Out: the fault of a session that moves nothing, and whether this side stalls. It
//! knows no connection and no lanes. It also marks the rounds of the session's loop.

use std::time::{Duration, Instant};

use longhaul_core::Fault;

use super::signs::LifeSigns;
use super::{ControlLink, RoundState};
use crate::session::SessionEvent;
use crate::session::idle::{Doings, Idle, moves};
use crate::session::inbox::Inbound;
use crate::session::rounds::RoundMark;

/// The movement of a session. See the module.
pub(super) struct Movement {
    /// Watches whether anything moves. `None` where an idle session goes on.
    idle: Option<Idle>,
    /// Messages, units and other progress besides pieces on lanes.
    events: u64,
    /// The count of everything that had moved at the last look, and when it last grew.
    moved_by: (u64, Instant),
    /// The payload that had arrived at the last look, bytes, and when it last grew.
    arrived_by: (u64, Instant),
    /// Whether this side's disk has something to do.
    at_work: bool,
    /// Shows others whether the loop comes to the end of its rounds.
    round: RoundMark,
}

impl ControlLink {
    /// Shows others whether the session's loop comes to the end of its rounds.
    pub(crate) fn set_round(&mut self, round: RoundMark) {
        self.movement.round = round;
    }
}

impl Movement {
    /// A session that moves at `now`.
    pub(super) fn new(now: Instant) -> Movement {
        Movement {
            idle: None,
            events: 0,
            moved_by: (0, now),
            arrived_by: (0, now),
            at_work: false,
            round: RoundMark::default(),
        }
    }

    /// Ends the session when nothing moves in it, as `idle` says.
    pub(super) fn set_idle(&mut self, idle: Idle) {
        self.idle = Some(idle);
    }

    /// Keeps whether this side's disk has something to do, at the end of a round.
    pub(super) fn settle(&mut self, state: &RoundState) {
        self.at_work = state.at_work;
        self.round.end();
    }

    /// Counts an event, if it is one that moves a session towards its end. A round has begun.
    pub(super) fn count(&mut self, event: &SessionEvent) {
        self.round.begin();
        self.events += u64::from(match event {
            SessionEvent::Inbound(Inbound { message, .. }) => moves(message),
            SessionEvent::Wrote(done) => done.is_heard(),
            SessionEvent::Read(_) => true,
            _ => false,
        });
    }

    /// The fault by which the session ends if nothing moved in it for too long. Asked once a
    /// second. `pieces`: those that all lanes moved so far.
    pub(super) fn find_idle(&mut self, pieces: u64, signs: &LifeSigns) -> Option<Fault> {
        self.round.begin();
        let (now, moved) = (Instant::now(), pieces + self.events);
        if moved != self.moved_by.0 {
            self.moved_by = (moved, now);
        }
        self.idle.as_mut()?.look(now, Doings { moved, at_work: self.at_work, peer_stalls: signs.peer_stalls() })
    }

    /// Whether nothing has moved for a while although this side's disk is at work.
    pub(super) fn is_stalled(&self) -> bool {
        self.at_work && self.moved_by.1.elapsed() >= STALLED_AFTER
    }

    /// When payload last arrived. `arrived`: its bytes so far, as far as this side knows.
    pub(super) fn last_arrival(&mut self, arrived: u64) -> Instant {
        if arrived != self.arrived_by.0 {
            self.arrived_by = (arrived, Instant::now());
        }
        self.arrived_by.1
    }
}

/// A disk at work for this long while nothing moved stalls, for the other side.
const STALLED_AFTER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::checksum::Hashing;
    use longhaul_core::{Algorithms, FileId};

    use super::super::WaitsFor;
    use super::*;
    use crate::journals::presence::Presence;
    use crate::session::destination::DestinationDone;

    #[test]
    fn a_side_that_reads_in_order_and_does_nothing_else_tells_that_its_disk_stalls() {
        let hashing = || Box::new(Hashing::new(Algorithms::NONE));
        let read = || DestinationDone::ReadInOrder { file: FileId(0), results: Vec::new(), hashing: hashing() };
        for (done, stalls) in [(read(), true), (DestinationDone::Journal(Ok(())), false)] {
            let long_ago = Instant::now().checked_sub(2 * STALLED_AFTER).expect("a host that is up for a minute");
            let mut movement = Movement::new(long_ago);
            let signs = LifeSigns::new(Arc::new(Presence::default()), long_ago);
            movement.settle(&RoundState { waits_for: WaitsFor::Other, at_work: true, remaining: None });
            movement.count(&SessionEvent::Wrote(done));
            assert!(movement.find_idle(0, &signs).is_none());
            assert_eq!(movement.is_stalled(), stalls);
        }
    }
}
