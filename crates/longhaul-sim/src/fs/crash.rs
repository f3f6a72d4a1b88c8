//! The state of a file system after its host or a program died, or after a failed operation.
//!
//! Every change that no sync made durable survives or not, each sector of a write for itself.
//! Changes of names survive up to some moment (a file system with a journal), or any of them do
//! (one without).

use std::collections::BTreeMap;

use super::{Change, Errno, Fs, Op, OpId};
use crate::rng::Rng;

/// The frequency in a thousand with which a volatile part survives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survival {
    pub(crate) permille: u32,
    /// Whether names survive up to a moment and not after it.
    pub(crate) names_in_order: bool,
}

impl Survival {
    /// Nothing survives, everything, or some of it.
    pub(crate) fn random(rng: &mut Rng) -> Survival {
        let some = rng.below(1000) as u32;
        Survival { permille: *rng.pick(&[0, 1000, 500, some, some]), names_in_order: rng.permille(500) }
    }
}

impl Fs {
    /// Lets the host die.
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

    /// The parts that a crash may take or leave, each for itself: changes that no sync made
    /// durable, and operations under way.
    fn volatile(&self) -> Vec<Change> {
        let under_way = self.under_way.values().filter_map(|(_, op)| self.change_of(op).ok()?);
        let seen = self.log.values().cloned();
        seen.chain(under_way).flat_map(|change| change.sectors()).collect()
    }

    /// The number of parts that a crash may take or leave.
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

    /// Lets the program die: its operations under way are done, done in part, or not done. Nothing
    /// of them comes later.
    pub(crate) fn kill(&mut self, rng: &mut Rng) {
        for (id, (_, op)) in self.under_way.clone() {
            match (op, rng.below(3)) {
                (Op::SyncFile(_) | Op::SyncDir(_), _) | (_, 0) => drop(self.under_way.remove(&id)),
                (_, 1) => drop(self.end(id)),
                _ => drop(self.fail(rng, id, Errno::Io)),
            }
        }
    }

    /// Ends an operation with a failure: part of a write may be there. After a failed sync of a
    /// file, the cache shows the unsynced changes, the medium has some of them, and no later sync
    /// will write the rest.
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
