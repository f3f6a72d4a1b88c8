//! Finds lanes that stand still while others move. Pure: readings and times in, lanes to give up
//! out.
//!
//! A lane that has a unit in hand and moves no piece of it for the whole stall time is of no use,
//! if its siblings show that the session itself does not stand: they have moved on, or have nothing
//! left to do. On the sending side a lane also stands still while the receiver's disk keeps it from
//! reading, and takes turns in that with its siblings. There the siblings must have moved several
//! turns more, or the receiver must not have reported that its disk stalls. It knows no streams and
//! no machines.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use longhaul_core::{LaneId, Role};

use crate::lanes::worker::pulse::{Doing, PulseReading};

/// Watches the lanes of one side.
#[derive(Debug)]
pub(crate) struct Stalls {
    after: Duration,
    role: Role,
    progress: HashMap<LaneId, LaneProgress>,
}

/// The last progress of a lane.
#[derive(Debug)]
struct LaneProgress {
    pieces: u64,
    since: Instant,
    /// Units that all lanes together had moved then.
    units: u64,
}

impl Stalls {
    /// Lanes are given up after `after`.
    pub(crate) fn new(role: Role, after: Duration) -> Stalls {
        Stalls { after, role, progress: HashMap::new() }
    }

    /// How long a lane may stand still.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// How long a lane may stand in the middle of a unit. A sending lane may stand as long as the
    /// receiver lets it wait.
    pub(crate) fn starving_after(&self) -> Duration {
        match self.role {
            Role::Receiver => self.after,
            Role::Sender => Duration::MAX,
        }
    }

    /// The lanes to give up now. Lanes in `owing` have something to bring even if they have nothing
    /// in hand. `peer_stalls`: the other side lately reported that its disk stalls.
    pub(crate) fn find(
        &mut self,
        now: Instant,
        lanes: &[(LaneId, PulseReading)],
        owing: &BTreeSet<LaneId>,
        peer_stalls: bool,
    ) -> Vec<LaneId> {
        let units: u64 = lanes.iter().map(|(_, reading)| reading.units).sum();
        let (needed, straggles_after) = match self.role {
            Role::Receiver => (1, self.after),
            Role::Sender => (TURNS * lanes.len() as u64, self.after.max(STRAGGLES_MIN)),
        };
        let others_idle = lanes.iter().any(|(id, reading)| reading.doing == Doing::Nothing && !owing.contains(id));
        self.progress.retain(|id, _| lanes.iter().any(|(lane, _)| lane == id));
        let mut stalled = Vec::new();
        for (id, reading) in lanes {
            let busy = match reading.doing {
                Doing::Nothing => owing.contains(id),
                Doing::Moving => true,
                Doing::Waiting | Doing::Paced => false,
            };
            let seen = self.progress.entry(*id).or_insert(LaneProgress { pieces: reading.pieces, since: now, units });
            if !busy || seen.pieces != reading.pieces {
                *seen = LaneProgress { pieces: reading.pieces, since: now, units };
                continue;
            }
            let still = now - seen.since;
            let left_behind = still >= self.after && units >= seen.units + needed;
            let straggles = still >= straggles_after && others_idle && !peer_stalls;
            if left_behind || straggles {
                stalled.push(*id);
            }
        }
        stalled
    }
}

/// Turns of its siblings after which a lane that had none is stalled. A receiver that is short of
/// buffers serves its lanes in turn, but in no strict order. 4 is a guess on the safe side: a lane
/// that is given up wrongly costs what it had in hand.
const TURNS: u64 = 4;

/// A lane may straggle for this long at least: within it a receiver whose disk stalls has said so,
/// as it reports every 5 s.
const STRAGGLES_MIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(20);

    fn lane(id: u32, pieces: u64, units: u64, doing: Doing) -> (LaneId, PulseReading) {
        (LaneId(id), PulseReading { pieces, units, in_hand: 0, unit: 0, is_again: false, doing })
    }

    /// The lanes given up when lane 0 stands as `still` for `seconds` while lane 1 moves `units`.
    fn given_up(role: Role, still: Doing, owes: bool, seconds: u64, units: u64) -> Vec<LaneId> {
        let start = Instant::now();
        let owing = if owes { BTreeSet::from([LaneId(0)]) } else { BTreeSet::new() };
        let mut stalls = Stalls::new(role, AFTER);
        let before = [lane(0, 7, 1, still), lane(1, 9, 2, Doing::Moving)];
        assert_eq!(stalls.find(start, &before, &owing, false), []);
        let after = [lane(0, 7, 1, still), lane(1, 9 + units, 2 + units, Doing::Moving)];
        stalls.find(start + Duration::from_secs(seconds), &after, &owing, false)
    }

    #[test]
    fn a_lane_that_straggles_while_others_have_nothing_to_do_is_given_up_unless_the_other_sides_disk_stalls() {
        for (role, seconds, others, peer_stalls, want) in [
            (Role::Receiver, 20, Doing::Nothing, false, true),
            (Role::Receiver, 19, Doing::Nothing, false, false),
            (Role::Receiver, 99, Doing::Moving, false, false),
            (Role::Receiver, 99, Doing::Waiting, false, false),
            (Role::Sender, 20, Doing::Nothing, false, true),
            (Role::Sender, 99, Doing::Nothing, true, false),
            (Role::Sender, 99, Doing::Moving, false, false),
        ] {
            let (start, owing) = (Instant::now(), BTreeSet::new());
            let lanes = [lane(0, 7, 1, Doing::Moving), lane(1, 9, 2, others)];
            let mut stalls = Stalls::new(role, AFTER);
            stalls.find(start, &lanes, &owing, peer_stalls);
            let found = stalls.find(start + Duration::from_secs(seconds), &lanes, &owing, peer_stalls);
            assert_eq!(found.contains(&LaneId(0)), want, "{role:?} {seconds} s {others:?} {peer_stalls}");
        }
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
            assert_eq!(stalls.find(start + Duration::from_secs(second), &lanes, &owing, false), [], "{second}");
        }
    }
}
