//! Counts everything that moves in a session, and notes when that last happened.
//!
//! In: events of the session's queue, pieces of lanes, arrived bytes, the state of the loop, and
//! signs of life. Out: the fault of a session that moves nothing, and whether this side stalls. It
//! knows no connection and no lanes. It also marks the rounds of the session's loop.

use std::time::{Duration, Instant};

use longhaul_core::Fault;
use longhaul_proto::Message;
use longhaul_proto::wire::message::Tally;

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
    /// The most bytes that the other side has said it read back.
    peer_read: u64,
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
            peer_read: 0,
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
            SessionEvent::Inbound(Inbound { message: Message::Tally(tally), .. }) => self.has_read_more(tally),
            SessionEvent::Inbound(Inbound { message, .. }) => moves(message),
            SessionEvent::Wrote(_) | SessionEvent::Read(_) => true,
            _ => false,
        });
    }

    /// Takes the session for one that moves, because its loop was held up.
    pub(super) fn excuse(&mut self) {
        self.events += 1;
    }

    /// Whether the other side has read more back than it ever said. Of a whole file that it reads
    /// in order nothing else is heard before its end, which may be many hours away.
    fn has_read_more(&mut self, tally: &Tally) -> bool {
        let before = self.peer_read;
        self.peer_read = before.max(tally.read_back);
        self.peer_read > before
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

    use tokio::sync::Semaphore;

    use super::*;
    use crate::journals::presence::Presence;
    use crate::session::idle::Activity;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Whether a session goes on in which nothing moved for twice its limit, when these come.
    fn goes_on(tallies: &[Tally]) -> bool {
        let long_ago = Instant::now().checked_sub(2 * LIMIT).expect("a host that is up for two minutes");
        let signs = LifeSigns::new(Arc::new(Presence::default()), long_ago);
        let mut movement = Movement::new(long_ago);
        movement.set_idle(Idle::new(Some(LIMIT), Activity::new(long_ago)));
        for tally in tallies {
            let room = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("it has one");
            movement.count(&SessionEvent::Inbound(Inbound { message: Message::Tally(*tally), room }));
        }
        movement.find_idle(0, &signs).is_none()
    }

    #[test]
    fn a_receiver_that_reads_back_more_and_more_moves_and_other_counters_move_nothing() {
        let read = |bytes| Tally { read_back: bytes, ..Tally::default() };
        assert!(goes_on(&[read(1 << 24)]));
        assert!(!goes_on(&[read(0), Tally { received: 9, durable: 9, standing: 9, ..read(0) }]));
        let mut movement = Movement::new(Instant::now());
        let grew = [5, 5, 4, 5, 6].map(|bytes| movement.has_read_more(&read(bytes)));
        assert_eq!(grew, [true, false, false, false, true], "what was read once counts once");
    }
}
