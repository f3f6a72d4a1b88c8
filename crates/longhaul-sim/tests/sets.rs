//! Many worlds of target sets: the promises hold under any fault, each world ends, and planted bugs
//! are found.

use longhaul_sim::{SetMutant, SetOptions, play_many_sets, play_set};

/// Seeds played by an ordinary test run; `SIM_SEEDS` asks for another number.
const SEEDS: u64 = 10_000;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn every_seed_of_a_set_keeps_every_promise() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    match play_many_sets(0, seeds, threads(), SetOptions::default()) {
        Ok(seen) => println!("{seeds} seeds: {seen:?}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// A simulator in which nothing happens finds nothing.
#[test]
fn worlds_of_sets_hedge_give_up_continue_and_rebuild() {
    let seeds = 1000;
    let seen = play_many_sets(0, seeds, 1, SetOptions::default()).expect("every promise is kept");
    assert!(seen.committed > 2 * seeds && seen.crashes > seeds && seen.events > 100 * seeds, "{seen:?}");
    assert!(seen.hedged > seeds / 10 && seen.losers > seeds / 20 && seen.given_up > seeds / 5, "{seen:?}");
    assert!(seen.continued > seeds / 2 && seen.resumed > seeds && seen.begun_anew > seeds / 20, "{seen:?}");
    assert!(seen.after_death > seeds / 20 && seen.old > seeds / 20 && seen.refused > seeds / 10, "{seen:?}");
    assert!(seen.said > seeds / 50 && seen.rebuilt > seeds / 5 && seen.stripes_lost >= seen.rebuilt, "{seen:?}");
}

#[test]
fn a_seed_plays_the_same_world_of_a_set_each_time() {
    for seed in 0..100 {
        let trace = || play_set(seed, SetOptions { trace: true, ..SetOptions::default() }).expect("kept").trace;
        let (first, second) = (trace(), trace());
        let differ = first.iter().zip(&second).find(|(one, other)| one != other);
        assert!(first.len() == second.len() && differ.is_none(), "seed {seed}: {differ:?}");
    }
}

/// Plays seeds with a planted bug until one fails; one of `bound` from `first` on must.
fn is_caught(mutant: SetMutant, (first, bound): (u64, u64)) {
    let options = SetOptions { mutant: Some(mutant), trace: false };
    match play_many_sets(first, bound, threads(), options) {
        Err(failure) => println!("{mutant:?}: seed {}: {}", failure.seed, failure.what),
        Ok(_) => panic!("{mutant:?} survives {bound} seeds"),
    }
}

/// Each of these seeds failed before the program was mended. Worlds change with the simulator, so
/// each bug has a test of its own too.
#[test]
fn records_that_were_cut_off_do_not_come_back() {
    for seed in [920_102, 1_795_807_682] {
        if let Err(failure) = play_set(seed, SetOptions::default()) {
            panic!("{failure}");
        }
    }
}

/// One test for each planted bug, with the number of seeds that must suffice: a few times as many
/// as were needed when it was written.
macro_rules! caught {
    ($($name:ident: $mutant:ident within $bound:literal $(from $first:literal)?,)*) => {
        $(#[test] fn $name() { is_caught(SetMutant::$mutant, (0 $(+ $first)?, $bound)); })*

        #[test]
        fn every_mutant_of_sets_has_its_test() {
            let tested = [$(SetMutant::$mutant),*];
            assert!(SetMutant::ALL.iter().all(|mutant| tested.contains(mutant)));
        }
    };
}

caught! {
    a_name_that_is_given_before_the_bodies_are_synced_is_caught: RenameBeforeBodySync within 20,
    recording_the_place_of_a_write_that_lost_is_caught: LoserRecorded within 200,
    recording_what_a_failed_target_holds_is_caught: FailedPlacementBelieved within 500,
    a_footer_before_the_data_is_caught: FooterBeforeData within 500,
    giving_the_slot_of_a_late_write_away_is_caught: LoserSlotUsedAgain within 3000,
    sealing_while_writes_are_under_way_is_caught: SealWithoutWaitingForLosers within 500,
    a_target_with_more_than_its_share_of_the_memory_is_caught: ShareIgnored within 20,
    reading_without_the_digest_is_caught: OldImageBelieved within 3000,
    recording_before_the_bodies_are_synced_is_caught: RecordBeforeBodySync within 20,
    forgetting_what_a_failed_sync_lost_is_caught: FailedSyncForgotten within 3000,
    continuing_from_records_that_a_sync_has_lost_is_caught: CachedRecordsBelieved within 20_000,
    continuing_before_the_cut_of_the_records_is_durable_is_caught: CutNotSynced within 20_000 from 910_000,
    continuing_a_body_that_is_in_use_is_caught: BodyInUseContinued within 3000,
    sealing_before_the_records_are_durable_is_caught: SealWithoutRecords within 20_000 from 870_000,
    not_reading_the_marks_is_caught: MarksUnread within 200,
    removing_what_is_replaced_too_early_is_caught: ReplacedRemovedEarly within 20_000,
    making_the_older_of_two_files_again_is_caught: OlderRebuilt within 500,
}
