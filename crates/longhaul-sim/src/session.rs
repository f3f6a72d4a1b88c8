//! Worlds of one session: played to their end, and checked when both sides say that it was good.
//!
//! Takes a plan and its seed. Gives the outcome of each entry as both sides say it; panics at the
//! first broken promise. Knows nothing of what follows a session.

use std::collections::BTreeMap;

use longhaul_core::FileId;
use longhaul_proto::wire::message::Outcome;

use crate::check::is_ours;
use crate::fs::Node;
use crate::plan::{Item, Plan};
use crate::sending::{SendSession, SenderEnd};
use crate::watched::{ReceiverEnd, Watched};
use crate::world::World;

/// Plays the session of a seed, in which anything may be the case and anything may go wrong but a
/// crash. Gives how many entries had each outcome, by its name; files that failed count under the
/// name of their code.
///
/// # Panics
/// At the first promise that is broken.
pub fn play_session(seed: u64) -> BTreeMap<&'static str, u64> {
    let session = Session::new(Plan::varied(seed), seed).run_well();
    let mut counts = BTreeMap::new();
    session.sender().outcomes.values().for_each(|outcome| *counts.entry(name(outcome)).or_default() += 1);
    counts
}

/// The name of an outcome, or of the code with which a file failed.
pub(crate) fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Committed(_) => "committed",
        Outcome::Skipped => "skipped",
        Outcome::Stands(_) => "stands",
        Outcome::Planned => "planned",
        Outcome::Failed(fault) => fault.code.name(),
        Outcome::Unsent => "unsent",
        Outcome::Equal(_) => "equal",
        Outcome::Linked(_) => "linked",
    }
}

/// A world of one session.
pub(crate) struct Session {
    /// The world, for tests that look at it or act in it.
    pub(crate) world: World,
    seed: u64,
}

impl Session {
    /// One that has not begun.
    pub(crate) fn new(plan: Plan, seed: u64) -> Session {
        assert!(plan.scene.is_one_session, "a world of many sessions");
        Session { world: World::new(plan, seed, None, false), seed }
    }

    /// Plays the next event.
    pub(crate) fn step(&mut self) {
        self.world.step();
        if let Some(violation) = &self.world.env.ledger.violation {
            panic!("seed {}: {violation}", self.seed);
        }
    }

    /// Plays to the end of both sides.
    pub(crate) fn run(mut self) -> Session {
        while !self.world.is_over() {
            self.step();
        }
        self
    }

    /// Plays to a good end of both sides and checks the result.
    pub(crate) fn run_well(self) -> Session {
        let session = self.run();
        assert_eq!(session.receiver().seen.end, Some(ReceiverEnd::Finished), "seed {}", session.seed);
        if let Some(SenderEnd::Aborted(fault)) = &session.sender().ended {
            panic!("seed {}: {fault}", session.seed);
        }
        session.check();
        session
    }

    /// The sending side.
    pub(crate) fn sender(&self) -> &SendSession {
        self.world.sender.as_ref().expect("a session is under way")
    }

    /// The receiver's machine.
    pub(crate) fn receiver(&self) -> &Watched {
        &self.world.receivers.first().expect("a session is under way").machine
    }

    /// Checks a good end: both sides say the same of every entry, committed files stand as they
    /// were sent, other files do not stand, and nothing else is left.
    fn check(&self) {
        let (here, there) = (&self.sender().outcomes, &self.receiver().seen.outcomes);
        let items = &self.world.env.plan.items;
        assert_eq!((here.len(), there.len()), (items.len(), items.len()), "seed {}", self.seed);
        for (at, item) in items.iter().enumerate() {
            let id = FileId(at as u64);
            let (here, there) = (&here[&id], &there[&id]);
            let is_same = std::mem::discriminant(here) == std::mem::discriminant(there);
            assert!(is_same, "seed {}: {here:?} and {there:?} of {item:?}", self.seed);
            let file = if let Item::Name { of, .. } = item { &items[*of] } else { item };
            if let Item::File { bytes, .. } = file {
                self.check_file(id, bytes, here);
            }
        }
        self.check_leftovers();
    }

    fn check_file(&self, id: FileId, bytes: &[u8], outcome: &Outcome) {
        let (seed, env) = (self.seed, &self.world.env);
        let place = env.source.place(id.0 as usize);
        let root = *blake3::hash(bytes).as_bytes();
        let stands = env.fs.cached().names.get(place).and_then(|node| match node {
            Node::File(ino) => Some(&env.fs.cached().content(*ino).bytes),
            _ => None,
        });
        let is_double = (0..env.source.len()).filter(|at| env.source.place(*at) == place).count() > 1;
        match outcome {
            Outcome::Committed(said) => {
                assert_eq!(*said, Some(root), "seed {seed}: the root of {place}");
                assert!(!self.sender().units.bad.contains(&id), "seed {seed}: a bad source is committed as {place}");
                let is_whole = stands.is_some_and(|stands| stands == bytes);
                assert!(is_whole || is_double, "seed {seed}: {place} stands otherwise");
            }
            Outcome::Linked(said) => {
                assert!(said.is_none_or(|said| said == root), "seed {seed}: the root of {place}");
                assert!(
                    stands.is_some_and(|stands| stands == bytes) || is_double,
                    "seed {seed}: {place} stands otherwise"
                );
            }
            Outcome::Equal(said) => assert_eq!(*said, root, "seed {seed}: the root of {place}"),
            Outcome::Stands(said) => {
                let is_it = stands.is_none_or(|stands| *said == *blake3::hash(stands).as_bytes());
                assert!(
                    is_it || env.plan.rates.restless > 0 || is_double,
                    "seed {seed}: the root of what is at {place}"
                );
            }
            Outcome::Failed(_) | Outcome::Skipped | Outcome::Planned => {
                let is_whole = stands.is_some_and(|stands| stands == bytes);
                let may_stand =
                    is_double || env.ledger.stood_as(place, bytes) || self.receiver().seen.unsure.contains(&id);
                assert!(!is_whole || may_stand, "seed {seed}: {place} stands after all, and is {outcome:?}");
            }
            Outcome::Unsent => panic!("seed {seed}: {place} was to be sent"),
        }
    }

    /// Nothing of ours is left but what another session may continue.
    fn check_leftovers(&self) {
        let env = &self.world.env;
        let failed = self.sender().outcomes.values().any(|outcome| matches!(outcome, Outcome::Failed(_)));
        // An operation that removes something may fail as well, and a dry run removes nothing.
        if failed || env.plan.rates.disk_faults > 0 || env.plan.terms.dry_run {
            return;
        }
        let left: Vec<&String> = env.fs.cached().names.keys().filter(|path| is_ours(path)).collect();
        assert!(left.is_empty(), "seed {}: {left:?} are left behind", self.seed);
    }
}
