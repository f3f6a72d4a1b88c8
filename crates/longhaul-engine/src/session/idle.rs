//! Finds out whether a session still moves, by what this side itself receives, does and reads off
//! its clock.
//!
//! In: a count of everything that moved, whether this side's own disk is at work, and when the
//! other side last reported that its disk stalls. Out: the fault that ends the session; and to
//! observers from outside, the time since which nothing moved. The other side's reports of its disk
//! count as long as they go on, up to a bound; its signs of life do not count. It knows no sockets,
//! and of messages only whether they move anything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::Message;

/// The time since which nothing moved in a session. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<Instant>>);

/// Checks once a second whether anything moved.
#[derive(Debug)]
pub(crate) struct Idle {
    /// A session in which nothing moved for this long ends. `None`: never.
    limit: Option<Duration>,
    activity: Activity,
    /// The count of everything that had moved at the last look.
    moved: u64,
    /// How long the other side has reported since then that its disk stalls.
    peer_stalled: Duration,
    /// The time of the last look. `None` before the first.
    last_look: Option<Instant>,
}

/// The state of a session at one look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doings {
    /// Pieces, units and messages so far, in any unit that grows with each.
    pub(crate) moved: u64,
    /// Whether this side's disk has something to do.
    pub(crate) at_work: bool,
    /// Whether the other side lately reported that its disk stalls.
    pub(crate) peer_stalls: bool,
}

impl Activity {
    /// A session that moves at `now`.
    pub(crate) fn new(now: Instant) -> Activity {
        Activity(Arc::new(Mutex::new(now)))
    }

    /// The time since which nothing moved.
    pub(crate) fn since(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something moved at `now`.
    pub(crate) fn set(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Idle {
    /// Ends a session in which nothing moved for `limit`, and shows in `activity` since when.
    pub(crate) fn new(limit: Option<Duration>, activity: Activity) -> Idle {
        Idle { limit, activity, moved: 0, peer_stalled: Duration::ZERO, last_look: None }
    }

    /// The fault by which the session ends, if nothing moved for too long.
    pub(crate) fn look(&mut self, now: Instant, doings: Doings) -> Option<Fault> {
        let has_moved = std::mem::replace(&mut self.moved, doings.moved) != doings.moved;
        let looked = self.last_look.replace(now).unwrap_or(now);
        if has_moved || doings.at_work {
            self.peer_stalled = Duration::ZERO;
            self.activity.set(now);
            return None;
        }
        let limit = self.limit?;
        if doings.peer_stalls {
            self.peer_stalled += now.saturating_duration_since(looked);
        }
        // Only time in which the other side reports a stall is added, so a side that reported it
        // once and is silent is not waited for; nor does one late report end a session in which the
        // reports go on.
        let patience = (limit + self.peer_stalled).min(limit * PEER_STALL_LIMITS);
        let idle = now.saturating_duration_since(self.activity.since());
        (idle >= patience).then(|| {
            let why = format_args!("nothing moved for {} s, and no disk here was at work", idle.as_secs());
            Fault::new(FaultCode::TimedOut, Blame::Peer, why).hint(hint::Again::WhereItEndedOrIdleLonger)
        })
    }
}

/// Whether a message of the other side moves a session towards its end. Signs of life, counters and
/// messages about lanes and rates can go on for ever. (Of one counter that grows `control` takes
/// note: the bytes that a receiver has read back.)
pub(crate) fn moves(message: &Message) -> bool {
    match message {
        Message::Extras(extras) => !extras.entries.is_empty(),
        Message::Page(page) => page.last || !page.entries.is_empty(),
        Message::Answer(answer) => !answer.wanted.is_empty(),
        Message::WantChunks(want) => want.count > 0,
        Message::Digests(declared) => !declared.is_empty(),
        Message::Verdicts(verdicts) => !verdicts.is_empty(),
        Message::Settled(settled) => !settled.is_empty(),
        Message::Resume(resume) => !resume.parts.is_empty(),
        Message::CheckChunks(check) => !check.digests.is_empty(),
        Message::CheckFiles(check) => !check.files.is_empty(),
        Message::Offer(_) | Message::FileEnd(_) | Message::FileFault(_) | Message::Complete(_) | Message::Bye(_) => {
            true
        }
        Message::StreamEnd(_) | Message::WantLast(_) => true,
        Message::Unasked(unasked) => !unasked.bundle.is_empty(),
        Message::DurableChunks(durable) => durable.count > 0,
        Message::SendAgain(again) => !again.chunks.is_empty(),
        _ => false,
    }
}

/// A side that goes on reporting that its disk stalls is waited for up to this many times longer.
/// That is six hours, as it may be reading back 10 TB that it is to continue, and would begin that
/// anew in another session.
const PEER_STALL_LIMITS: u32 = 36;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::wire::message::Heartbeat;

    const LIMIT: Duration = Duration::from_secs(600);
    const QUIET: Doings = Doings { moved: 7, at_work: false, peer_stalls: false };

    fn idle(start: Instant) -> (Idle, Activity) {
        let activity = Activity::new(start);
        (Idle::new(Some(LIMIT), activity.clone()), activity)
    }

    /// The second in which a session with these states ends, if within ten hours.
    fn ends(doing: impl Fn(u64) -> Doings) -> Option<u64> {
        let start = Instant::now();
        let (mut idle, _) = idle(start);
        (1..36_000).find(|second| idle.look(start + Duration::from_secs(*second), doing(*second)).is_some())
    }

    #[test]
    fn a_session_in_which_nothing_moves_ends_whatever_signs_of_life_there_are() {
        assert_eq!(ends(|_| QUIET), Some(601), "seven had moved when it was first looked at");
        assert!(!moves(&Message::Heartbeat(Heartbeat { stalled: true, answer: true })));
    }

    #[test]
    fn a_piece_now_and_then_keeps_a_session() {
        assert_eq!(ends(|second| Doings { moved: second / 500, ..QUIET }), None);
    }

    #[test]
    fn the_own_disk_is_waited_for_however_long_it_takes_and_the_other_sides_for_a_while() {
        assert_eq!(ends(|_| Doings { at_work: true, ..QUIET }), None);
        assert_eq!(ends(|_| Doings { peer_stalls: true, ..QUIET }), Some(21_601));
        // A stall counts as long as it is reported.
        assert_eq!(ends(|second| Doings { peer_stalls: second == 5, ..QUIET }), Some(602));
        assert_eq!(ends(|second| Doings { peer_stalls: second <= 2000, ..QUIET }), Some(2600));
        assert_eq!(ends(|second| Doings { peer_stalls: second % 100 >= 20, ..QUIET }), Some(3001));
    }

    #[test]
    fn others_see_since_when_nothing_moved_also_where_that_ends_nothing() {
        let start = Instant::now();
        let activity = Activity::new(start);
        let mut idle = Idle::new(None, activity.clone());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(idle.look(at(10), QUIET).is_none());
        assert!(idle.look(at(90_000), QUIET).is_none());
        assert_eq!(activity.since(), at(10));
    }

    #[test]
    fn the_fault_says_what_to_do_and_lets_the_other_side_come_back() {
        let start = Instant::now();
        let (mut idle, _) = idle(start);
        idle.look(start, QUIET);
        let fault = idle.look(start + LIMIT, QUIET).expect("it is over");
        assert!(fault.retry() && fault.message.contains("600 s"), "{fault:?}");
        assert_eq!(fault.hint, Some(hint::Again::WhereItEndedOrIdleLonger.into()));
    }
}
