//! One small transfer with every fault of a kind: nothing is left to chance.

use longhaul_sim::{Exhausted, ExhaustedLanes, Failure, Mutant, crash_everywhere, fail_everywhere};

fn survives(played: Result<Exhausted, Failure>) -> Exhausted {
    match played {
        Ok(played) => played,
        Err(failure) => panic!("{}", failure.what),
    }
}

#[test]
fn every_state_that_a_crash_may_leave_is_recovered_from() {
    for seed in 0..3 {
        for lanes in [ExhaustedLanes::InOrder, ExhaustedLanes::Overtaking] {
            let played = survives(crash_everywhere(seed, lanes, None));
            println!("seed {seed}, {lanes:?}: {played:?}");
            assert!(played.moments > 100 && played.cases > 300, "{lanes:?}: {played:?}");
        }
    }
}

#[test]
fn every_operation_that_fails_ends_in_a_commit_or_in_a_clear_error_and_a_resume() {
    for seed in 0..20 {
        let played = survives(fail_everywhere(seed, None));
        assert!(played.moments > 50, "{played:?}");
    }
}

#[test]
fn a_crash_at_the_right_moment_shows_planted_bugs() {
    for mutant in [Mutant::JournalBeforeSync, Mutant::NameNotSynced, Mutant::RenameBeforeSync, Mutant::DirsNotSynced] {
        for lanes in [ExhaustedLanes::InOrder, ExhaustedLanes::Overtaking] {
            let is_found = (0..10).any(|seed| crash_everywhere(seed, lanes, Some(mutant)).is_err());
            assert!(is_found, "{mutant:?}, {lanes:?}");
        }
    }
}
