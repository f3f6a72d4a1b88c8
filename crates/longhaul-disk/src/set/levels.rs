//! How full the targets of a set are and should be, and which of them gives and takes.
//!
//! In: the bytes that the set has on each target, those that are free, and moves. Out: the target
//! that takes something. Pure arithmetic.

use longhaul_core::TargetId;

/// The levels of all targets.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    targets: Vec<TargetLevel>,
    drained: Option<TargetId>,
}

/// The level of one target.
#[derive(Clone, Debug)]
struct TargetLevel {
    id: TargetId,
    /// Bytes that the set has there.
    held: u64,
    /// Bytes that the set can have there.
    room: u64,
    /// Bytes that it should have there, so that all are equally full.
    due: u64,
    /// Whether it gives. One that gives takes nothing, so that nothing goes to and fro.
    gives: bool,
}

impl TargetLevel {
    /// A difference that does not count.
    fn slack(&self) -> u64 {
        (self.due / 16).max(SLACK_BYTES)
    }
}

impl Levels {
    /// The levels of targets with so many bytes held and free. One that is drained gives all, and
    /// no other gives anything then.
    pub(super) fn new(found: Vec<(TargetId, u64, u64)>, drained: Option<TargetId>) -> Levels {
        let room = |(id, held, free): &(TargetId, u64, u64)| if drained == Some(*id) { 0 } else { held + free };
        let all_held: u128 = found.iter().map(|(_, held, _)| u128::from(*held)).sum();
        let all_room: u128 = found.iter().map(|one| u128::from(room(one))).sum();
        let level = |one: &(TargetId, u64, u64)| {
            let (id, held, room) = (one.0, one.1, room(one));
            let due = (all_held * u128::from(room)).checked_div(all_room).and_then(|due| u64::try_from(due).ok());
            let mut level = TargetLevel { id, held, room, due: due.unwrap_or(0), gives: false };
            level.gives = drained.map_or(held > level.due.saturating_add(level.slack()), |drained| drained == id);
            level
        };
        Levels { targets: found.iter().map(level).collect(), drained }
    }

    /// The targets that give.
    pub(super) fn givers(&self) -> impl Iterator<Item = TargetId> {
        self.targets.iter().filter(|level| level.gives).map(|level| level.id)
    }

    /// Whether a target gives.
    pub(super) fn gives(&self, id: TargetId) -> bool {
        self.givers().any(|giver| giver == id)
    }

    /// Whether a target is to give all.
    pub(super) fn is_drained(&self, id: TargetId) -> bool {
        self.drained == Some(id)
    }

    /// Bytes that a target has more than it should.
    pub(super) fn surplus(&self, id: TargetId) -> u64 {
        self.level(id).map_or(0, |level| level.held.saturating_sub(level.due))
    }

    /// The target that takes so many bytes from another one: the least full one of those that give
    /// nothing. `None`: none does, or they are not worth a move.
    pub(super) fn taker(&self, from: TargetId, bytes: u64) -> Option<TargetId> {
        let giver = self.level(from).filter(|level| level.gives)?;
        let is_drained = self.is_drained(from);
        // Half a slack is as good as none, or the last files would be moved for nothing.
        let is_over = giver.held > giver.due.saturating_add(giver.slack() / 2);
        if !is_drained && (bytes == 0 || !is_over || giver.held.saturating_sub(bytes) + giver.slack() < giver.due) {
            return None;
        }
        let takes = |level: &&TargetLevel| {
            let after = level.held.saturating_add(bytes);
            !level.gives && after <= level.room && (is_drained || after <= level.due.saturating_add(level.slack()))
        };
        let parts = |level: &TargetLevel| u128::from(level.held.saturating_add(bytes));
        let by_fullness = |one: &&TargetLevel, other: &&TargetLevel| {
            (parts(one) * u128::from(other.room.max(1))).cmp(&(parts(other) * u128::from(one.room.max(1))))
        };
        self.targets.iter().filter(takes).min_by(by_fullness).map(|level| level.id)
    }

    /// Notes that bytes went from a target to another one.
    pub(super) fn moved(&mut self, from: TargetId, to: TargetId, bytes: u64) {
        for level in &mut self.targets {
            if level.id == from {
                level.held = level.held.saturating_sub(bytes);
            } else if level.id == to {
                level.held = level.held.saturating_add(bytes);
            }
        }
    }

    fn level(&self, id: TargetId) -> Option<&TargetLevel> {
        self.targets.iter().find(|level| level.id == id)
    }
}

/// The least difference that counts: 1 MiB, which any disk writes in some milliseconds.
const SLACK_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn levels(held: &[u64], free: &[u64], drained: Option<u32>) -> Levels {
        let found = (0..).map(TargetId).zip(held.iter().zip(free)).map(|(id, (held, free))| (id, *held, *free));
        Levels::new(found.collect(), drained.map(TargetId))
    }

    /// Moves pieces until none is taken any more.
    fn run(mut levels: Levels, piece: u64) -> Vec<u64> {
        for from in levels.givers().collect::<Vec<_>>() {
            while let Some(to) = levels.taker(from, piece).filter(|_| levels.level(from).is_some_and(|it| it.held > 0))
            {
                levels.moved(from, to, piece);
            }
        }
        levels.targets.iter().map(|level| level.held).collect()
    }

    #[test]
    fn targets_end_about_as_full_as_each_other_and_equal_ones_give_nothing() {
        let after = run(levels(&[400 * MIB, 0, 200 * MIB], &[600 * MIB, 1000 * MIB, 800 * MIB], None), MIB);
        assert!(after.iter().all(|held| held.abs_diff(200 * MIB) <= 13 * MIB), "{after:?}");
        // A disk of twice the size holds twice as much.
        let after = run(levels(&[300 * MIB, 0], &[700 * MIB, 2000 * MIB], None), MIB);
        assert!(after[0].abs_diff(100 * MIB) <= 7 * MIB, "{after:?}");
        assert_eq!(levels(&[10 * MIB, 11 * MIB], &[100 * MIB; 2], None).givers().count(), 0);
        assert_eq!(levels(&[0, 0], &[0, 0], None).givers().count(), 0);
    }

    #[test]
    fn a_drained_target_gives_all_as_long_as_others_have_room() {
        assert_eq!(run(levels(&[9 * MIB, 50 * MIB, 0], &[0, 10 * MIB, 90 * MIB], Some(0)), MIB)[0], 0);
        assert_eq!(run(levels(&[9 * MIB, 0, 0], &[0, 4 * MIB, 3 * MIB], Some(0)), MIB)[0], 2 * MIB);
        assert_eq!(levels(&[0, 90 * MIB], &[MIB; 2], Some(0)).taker(TargetId(1), 1), None);
        assert_eq!(levels(&[0, 9], &[MIB; 2], Some(0)).taker(TargetId(0), 0), Some(TargetId(1)));
    }
}
