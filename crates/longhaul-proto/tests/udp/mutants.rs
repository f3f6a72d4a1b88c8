//! Bugs that are planted in a world, one at a time, to see that its promises find them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use longhaul_proto::Timestamp;

use super::world::{Plan, World};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The first gap of each status is not said.
    ForgetsGap,
    /// The sender's slot gets other content before its unit is whole.
    FreesSlotEarly,
    /// A piece that came twice counts for the one behind it.
    CountsCopy,
    /// A packet that did not open counts as one that did.
    AcksUnopened,
    /// Pieces of different cuts are taken for those of one.
    IgnoresCut,
}

const ALL: [Mutant; 5] =
    [Mutant::ForgetsGap, Mutant::FreesSlotEarly, Mutant::CountsCopy, Mutant::AcksUnopened, Mutant::IgnoresCut];

/// A world with every fault of a path.
fn plan(seed: u64) -> Plan {
    Plan {
        lost: 50,
        copied: 50,
        spoiled: 20,
        statuses_lost: 50,
        late: Duration::from_millis(2),
        hole: Some((1300, Timestamp(1_100_000))),
        ..Plan::sound(vec![60_000; 40], seed)
    }
}

fn play(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let played = catch_unwind(AssertUnwindSafe(|| World::new(plan(seed), mutant).play()));
    played.unwrap_or_else(|_| Err("a promise is broken".into()))
}

#[test]
fn each_planted_bug_is_found_and_nothing_is_found_without_one() {
    for seed in 0..8 {
        assert_eq!(play(seed, None), Ok(()), "seed {seed}");
    }
    for mutant in ALL {
        assert!((0..8).any(|seed| play(seed, Some(mutant)).is_err()), "{mutant:?} is not found");
    }
}
