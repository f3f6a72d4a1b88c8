//! Which lanes stand still while others move. Pure: readings and times in, lanes to give up out.
//!
//! A lane that has a unit in hand and moves no piece of it for the whole stall time is of no use, if its siblings show that
//! the session moves. On the sending side a lane also stands still while the receiver's disk keeps it from reading, and takes
//! turns in that with its siblings: there they must have moved several turns more. Knows no streams and no machines.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, Role};

use crate::lane::pulse::{Doing, Reading};

/// Watches the lanes of one side.
#[derive(Debug)]
pub(crate) struct Stalls {
    after: Duration,
    role: Role,
    seen: HashMap<LaneId, Seen>,
}

/// The last progress of a lane.
#[derive(Debug)]
struct Seen {
    pieces: u64,
    since: Instant,
    /// Units of all lanes then.
    units: u64,
}

impl Stalls {
    /// Lanes are given up after `after`.
    pub(crate) fn new(role: Role, after: Duration) -> Stalls {
        Stalls { after, role, seen: HashMap::new() }
    }

    /// The lanes to give up now. `owing` have something to bring even if they have nothing in hand.
    pub(crate) fn find(&mut self, now: Instant, lanes: &[(LaneId, Reading)], owing: &BTreeSet<LaneId>) -> Vec<LaneId> {
        let units: u64 = lanes.iter().map(|(_, reading)| reading.units).sum();
        let needed = match self.role {
            Role::Receiver => 1,
            Role::Sender => TURNS * lanes.len() as u64,
        };
        self.seen.retain(|id, _| lanes.iter().any(|(lane, _)| lane == id));
        let mut stalled = Vec::new();
        for (id, reading) in lanes {
            let busy = match reading.doing {
                Doing::Nothing => owing.contains(id),
                Doing::Moving => true,
                Doing::Waiting => false,
            };
            let seen = self.seen.entry(*id).or_insert(Seen { pieces: reading.pieces, since: now, units });
            if !busy || seen.pieces != reading.pieces {
                *seen = Seen { pieces: reading.pieces, since: now, units };
            } else if now - seen.since >= self.after && units >= seen.units + needed {
                stalled.push(*id);
            }
        }
        stalled
    }
}

/// A receiver that is short of buffers serves its lanes in turn, but in no strict order: so many turns without one mean that
/// it is not that (a guess, on the safe side: a lane that is given up wrongly costs what it had in hand).
const TURNS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(20);

    fn lane(id: u32, pieces: u64, units: u64, doing: Doing) -> (LaneId, Reading) {
        (LaneId(id), Reading { pieces, units, doing })
    }

    /// What is given up when lane 0 stands as `still` for `seconds` while lane 1 moves `units`.
    fn given_up(role: Role, still: Doing, owes: bool, seconds: u64, units: u64) -> Vec<LaneId> {
        let start = Instant::now();
        let owing = if owes { BTreeSet::from([LaneId(0)]) } else { BTreeSet::new() };
        let mut stalls = Stalls::new(role, AFTER);
        let before = [lane(0, 7, 1, still), lane(1, 9, 2, Doing::Moving)];
        assert_eq!(stalls.find(start, &before, &owing), []);
        let after = [lane(0, 7, 1, still), lane(1, 9 + units, 2 + units, Doing::Moving)];
        stalls.find(start + Duration::from_secs(seconds), &after, &owing)
    }

    #[test]
    fn a_lane_that_stands_still_is_given_up_when_its_siblings_moved_enough() {
        for (role, still, owes, seconds, units, want) in [
            (Role::Receiver, Doing::Moving, false, 20, 1, true),
            (Role::Receiver, Doing::Moving, false, 19, 100, false),
            (Role::Receiver, Doing::Moving, false, 99, 0, false),
            (Role::Receiver, Doing::Waiting, true, 99, 100, false),
            (Role::Receiver, Doing::Nothing, false, 99, 100, false),
            (Role::Receiver, Doing::Nothing, true, 20, 1, true),
            (Role::Sender, Doing::Moving, false, 20, 2 * TURNS, true),
            (Role::Sender, Doing::Moving, false, 99, 2 * TURNS - 1, false),
            (Role::Sender, Doing::Nothing, false, 99, 100, false),
        ] {
            let want = if want { vec![LaneId(0)] } else { vec![] };
            let got = given_up(role, still, owes, seconds, units);
            assert_eq!(got, want, "{role:?} {still:?} {owes} {seconds} s {units} units");
        }
    }

    #[test]
    fn any_piece_is_progress() {
        let (start, owing) = (Instant::now(), BTreeSet::new());
        let mut stalls = Stalls::new(Role::Receiver, AFTER);
        for second in 0..100 {
            let lanes = [lane(0, second / 15, 0, Doing::Moving), lane(1, second, second, Doing::Moving)];
            assert_eq!(stalls.find(start + Duration::from_secs(second), &lanes, &owing), [], "{second}");
        }
    }
}
