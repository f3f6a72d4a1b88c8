//! Planted bugs: the simulator finds each of them, or it would not find them in the machines
//! either.

use longhaul_sim::{Mutant, Options, play};

/// Plays seeds with a planted bug until one fails; one of the first `bound` must.
fn is_caught(mutant: Mutant, bound: u64) {
    // A machine that panics over a planted bug has caught it as well; there is no need to print
    // that.
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..bound).find_map(|seed| play(seed, Options { mutant: Some(mutant), trace: false }).err());
    let _ = std::panic::take_hook();
    match caught {
        Some(failure) => println!("{mutant:?}: seed {}: {}", failure.seed, failure.what),
        None => panic!("{mutant:?} survives {bound} seeds"),
    }
}

/// One test for each planted bug, with the number of seeds that must suffice: a few times as many
/// as were needed when it was written.
macro_rules! caught {
    ($($name:ident: $mutant:ident within $bound:literal,)*) => {
        $(#[test] fn $name() { is_caught(Mutant::$mutant, $bound); })*

        #[test]
        fn every_mutant_has_its_test() {
            let tested = [$(Mutant::$mutant),*];
            assert!(Mutant::ALL.iter().all(|mutant| tested.contains(mutant)));
        }
    };
}

caught! {
    journalling_before_the_sync_is_caught: JournalBeforeSync within 50,
    committing_without_the_root_is_caught: CommitWithoutRoot within 50,
    calling_durable_what_was_received_is_caught: ReceivedIsDurable within 50,
    a_session_that_goes_on_after_a_takeover_is_caught: NoFence within 500,
    a_tail_one_byte_short_is_caught: ShortTail within 20,
    a_late_duplicate_written_after_the_commit_is_caught: LateDuplicate within 50,
    a_takeover_while_writes_are_under_way_is_caught: ReassignEarly within 500,
    journalling_under_a_name_that_is_not_durable_is_caught: NameNotSynced within 50,
    writing_another_version_before_the_journal_says_so_is_caught: ChangeNotSynced within 500,
    renaming_before_the_sync_is_caught: RenameBeforeSync within 20,
    committing_before_the_renames_are_durable_is_caught: DirsNotSynced within 20,
    taking_what_stands_for_durable_is_caught: StandingNotSynced within 1000,
    believing_a_journal_whose_sync_failed_is_caught: CachedJournal within 500,
    taking_over_a_journal_whose_name_is_not_durable_is_caught: ShelfNotSynced within 5000,
    appending_behind_a_torn_tail_is_caught: TornTailKept within 200,
    a_takeover_that_is_not_synced_is_caught: TakeoverNotSynced within 500,
    journalling_a_chunk_before_its_group_sync_is_caught: ChunkBeforeGroupSync within 50,
    giving_up_a_partial_before_the_better_one_is_durable_is_caught: LoserFirst within 5000,
    forgetting_what_was_journalled_is_caught: Forgetful within 50,
    a_lane_that_goes_on_after_it_was_said_to_be_closed_is_caught: LaneStaysOpen within 500,
    a_lane_that_is_said_to_have_brought_more_than_it_did_is_caught: LaneOvercounts within 200,
    a_unit_that_overtook_others_and_hides_their_loss_is_caught: GapForgotten within 500,
    a_chunk_that_is_called_copied_and_is_not_is_caught: EqualNotCopied within 200,
    a_temporary_in_a_directory_that_no_journal_names_is_caught: DirUnnamed within 200,
    a_directory_that_is_forgotten_before_its_names_are_synced_is_caught: LeftBeforeSync within 200,
    a_directory_that_is_forgotten_though_a_temporary_may_come_back_is_caught: ThinnedForgotten within 2000,
    forgetting_a_partial_whose_temporary_stands_is_caught: RemovalUnchecked within 2000,
    going_on_behind_an_append_that_failed_is_caught: TornAppendKept within 2000,
    taking_an_undone_change_of_a_journal_for_done_is_caught: UndoneIsDone within 500,
    journalling_a_chunk_whose_bytes_were_given_up_is_caught: LostIsSynced within 200,
    sealing_a_file_without_a_chunk_that_was_lost_is_caught: LostNotRewritten within 200,
    publishing_a_file_that_was_postponed_is_caught: PostponedIsPublished within 200,
    writing_what_came_unasked_and_is_not_wanted_is_caught: UnwantedIsWritten within 200,
}
