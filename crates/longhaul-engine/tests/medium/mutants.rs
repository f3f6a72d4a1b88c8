//! Plants bugs: calls of the disk crate are left out or falsified. Worlds must find each bug by the
//! promise that it breaks; a test that missed it would miss the same bug in the crate.

use super::faults::Mutant;
use super::promise::Promise;
use super::world::play;

/// Plays worlds with a planted bug until one breaks such a promise. That must be one of the first
/// `bound`.
fn is_caught(mutant: Mutant, promises: &[Promise], bound: u64) {
    let found = (0..bound).find_map(|seed| play(seed, Some(mutant)).err().filter(|b| promises.contains(&b.promise)));
    match found {
        Some(broken) => println!("{mutant:?}: {broken}"),
        None => panic!("{mutant:?} survives {bound} worlds"),
    }
}

/// One test for each planted bug, with the number of worlds that must suffice: several times as
/// many as it took when it was written.
macro_rules! caught {
    ($($name:ident: $mutant:ident breaks $($promise:ident)|+ within $bound:literal,)*) => {
        $(#[test] fn $name() { is_caught(Mutant::$mutant, &[$(Promise::$promise),+], $bound); })*
    };
}

caught! {
    directories_that_are_not_synced_are_caught: DirsNotSynced breaks Committed within 40,
    temporaries_whose_data_is_not_synced_are_caught: DataNotSynced breaks Durable within 100,
    a_journal_that_is_not_synced_is_caught: JournalNotSynced breaks Durable within 100,
    a_rename_before_the_barrier_is_caught: NoBarrier breaks Committed within 40,
    a_revision_that_is_not_synced_is_caught: RevisionNotSynced breaks Durable | Names within 1500,
    a_journal_that_is_taken_over_as_it_is_cached_is_caught: NotReasserted breaks Durable within 300,
    a_rename_that_replaces_what_it_must_not_is_caught: ReplacesAnyway breaks Theirs within 300,
    a_failed_sync_that_is_called_good_is_caught: SyncErrorIgnored breaks Durable | Committed within 200,
    a_failed_sync_of_a_file_system_that_is_called_good_is_caught:
        FileSystemErrorIgnored breaks Durable | Committed within 200,
    a_file_system_whose_syncfs_does_nothing_and_is_believed_is_caught: FileSystemMistaken breaks Committed within 40,
    standing_names_that_are_not_synced_are_caught: StandingNotSynced breaks Complete | Committed within 300,
}
