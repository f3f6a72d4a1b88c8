//! What is left of a file system when its host or a program dies, and what a failed operation
//! leaves.
//!
//! Every change that no sync made durable is there or not, each sector of a write for itself. Of
//! names, either those up to some moment came through (a file system with a journal) or any of them
//! (one without).

use std::collections::BTreeMap;

use super::{Change, Errno, Fs, Op, OpId};
use crate::rng::Rng;

/// How much of what is volatile comes through: each part so many times in a thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survival {
    pub(crate) permille: u32,
    /// Names come through up to a moment and not behind it.
    pub(crate) names_in_order: bool,
}

impl Survival {
    /// Nothing, everything, or some of it.
    pub(crate) fn random(rng: &mut Rng) -> Survival {
        let some = rng.below(1000) as u32;
        Survival { permille: *rng.pick(&[0, 1000, 500, some, some]), names_in_order: rng.permille(500) }
    }
}

impl Fs {
    /// The host dies.
    pub(crate) fn crash(&mut self, rng: &mut Rng, survival: Survival) {
        let changes = self.volatile();
        let last_name = rng.index(changes.len() + 1);
        let survives = |(at, part): (usize, &Change)| match part.dir() {
            Some(_) if survival.names_in_order => at < last_name,
            _ => rng.permille(survival.permille),
        };
        let mask: Vec<bool> = changes.iter().enumerate().map(survives).collect();
        *self = self.crashed(&mask);
    }

    /// Everything that a crash may take or leave, each part for itself: what no sync made durable,
    /// and what is under way.
    fn volatile(&self) -> Vec<Change> {
        let under_way = self.under_way.values().filter_map(|(_, op)| self.change_of(op).ok()?);
        let seen = self.log.values().cloned();
        seen.chain(under_way).flat_map(|change| change.sectors()).collect()
    }

    /// How many parts a crash may take or leave.
    pub(crate) fn volatile_parts(&self) -> usize {
        self.volatile().len()
    }

    /// The file system after a crash that leaves these parts.
    pub(crate) fn crashed(&self, leaves: &[bool]) -> Fs {
        let mut medium = self.medium.clone();
        let left = self.volatile().into_iter().zip(leaves).filter(|(_, leaves)| **leaves);
        left.for_each(|(part, _)| medium.apply(&part));
        medium.prune();
        Fs { cached: medium.clone(), medium, log: BTreeMap::new(), under_way: BTreeMap::new(), next: self.next }
    }

    /// The program dies: what it had under way is done, or done in part, or not. Nothing of it
    /// comes later.
    pub(crate) fn kill(&mut self, rng: &mut Rng) {
        for (id, (_, op)) in self.under_way.clone() {
            match (op, rng.below(3)) {
                (Op::SyncFile(_) | Op::SyncDir(_), _) | (_, 0) => drop(self.under_way.remove(&id)),
                (_, 1) => drop(self.end(id)),
                _ => drop(self.fail(rng, id, Errno::Io)),
            }
        }
    }

    /// Ends an operation badly: part of a write may be there. After a failed sync of a file nothing
    /// is known of what it was to make durable: the cache shows it, the medium has some of it, and
    /// no later sync will write the rest.
    pub(crate) fn fail(&mut self, rng: &mut Rng, id: OpId, errno: Errno) -> Result<(), Errno> {
        let Some((begun, op)) = self.under_way.remove(&id) else { return Err(errno) };
        match op {
            Op::Write { ino, offset, bytes } => {
                let parts = Change::Write { ino, offset, bytes }.sectors();
                let some = rng.index(parts.len().max(1));
                parts.into_iter().take(some).for_each(|part| self.see(part));
            }
            Op::SyncFile(ino) => {
                let covered = self.log.range(..begun).filter(|(_, change)| change.ino() == Some(ino));
                for number in covered.map(|(number, _)| *number).collect::<Vec<_>>() {
                    let parts = self.log.remove(&number).map(|change| change.sectors()).unwrap_or_default();
                    for part in parts {
                        if rng.permille(500) {
                            self.medium.apply(&part);
                        }
                    }
                }
            }
            _ => {}
        }
        Err(errno)
    }
}
