//! The order of calls that durability rests on, read off one transfer.
//!
//! In: the steps that the medium wrote down. A sync counts only if it ended well, a write when it was seen.

use super::each_call::small_tree;
use super::faults::{Faults, Nature};
use super::model::{Step, What};
use super::rng::Rng;
use super::view::text;
use super::world::{World, plain_settings, scratch};

/// The steps of a run that goes well.
fn steps(policy: impl FnOnce(&mut World), runs: usize) -> Vec<Step> {
    let scratch = scratch();
    let source = small_tree(&scratch.path().join("source"), CHUNK as usize);
    let mut world = World::new(scratch, source, Nature::default(), plain_settings(CHUNK), Rng::new(0, 1));
    policy(&mut world);
    for _ in 0..runs {
        let ran = world.faulty(Faults::default()).expect("every promise is kept");
        assert!(ran.is_success(), "{}", ran.told());
    }
    let steps = world.medium.state().steps.clone();
    steps
}

/// Where the first step behind `from` is that `is` recognises.
fn next(steps: &[Step], from: usize, what: &str, is: impl Fn(&Step) -> bool) -> usize {
    let found = steps[from..].iter().position(is).map(|at| from + at + 1);
    found.unwrap_or_else(|| panic!("no {what} behind step {from}:\n{}", told(steps)))
}

fn told(steps: &[Step]) -> String {
    steps.iter().enumerate().map(|(n, step)| format!("{} {:?} {}\n", n + 1, step.what, text(&step.path))).collect()
}

fn is_journal(step: &Step) -> bool {
    step.path.ends_with(b".journal")
}

fn covers(step: &Step, what: What, path: &[u8]) -> bool {
    step.what == What::SyncedFileSystem || step.what == what && step.path == path
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |at| &path[..at])
}

/// A chunk is journalled when its data is synced, and the journal is synced when it is.
#[test]
fn data_is_synced_before_it_is_journalled_and_the_journal_before_the_next_group() {
    let steps = steps(|_| (), 1);
    let is_large = |step: &&Step| step.what == What::Created && step.path == b"large";
    // Its name is what it was renamed to last: temporaries are known by what became of them.
    let temps: Vec<&Step> = steps.iter().filter(|step| step.what == What::SyncedData && !is_journal(step)).collect();
    assert!(!temps.is_empty() && !steps.iter().any(|step| is_large(&step)), "{}", told(&steps));
    for temp in temps {
        let wrote = next(&steps, 0, "write of it", |s| s.what == What::Wrote && s.path == temp.path);
        let synced = next(&steps, wrote, "sync of its data", |s| s.what == What::SyncedData && s.path == temp.path);
        let appended = next(&steps, synced, "append", |s| s.what == What::Wrote && is_journal(s));
        next(&steps, appended, "sync of the journal", |s| s.what == What::SyncedData && is_journal(s));
    }
}

/// Everything is synced before it is renamed, its directory before it is called committed.
#[test]
fn what_is_renamed_is_synced_before_and_its_directory_before_it_is_called_committed() {
    let steps = steps(|_| (), 1);
    let mut renamed = 0;
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.what == What::Renamed) {
        renamed += 1;
        if step.path != b"link" {
            let is_synced = |s: &Step| s.what == What::SyncedFileSystem || s.what == What::Synced && is_temp(&s.path);
            next(&steps[..at], 0, "barrier", is_synced);
        }
        let dir = parent(&step.path);
        let synced = next(&steps, at, "sync of its directory", |s| covers(s, What::Synced, dir));
        next(&steps, synced, "word of it", |s| s.what == What::Committed && s.path == step.path);
    }
    assert_eq!(renamed, 6, "{}", told(&steps));
}

/// What stands already is synced before a run that does nothing ends.
#[test]
fn directories_of_what_stands_are_synced_by_a_run_that_finds_everything_there() {
    let steps = steps(|_| (), 2);
    assert!(!steps.iter().any(|step| step.what == What::Renamed), "{}", told(&steps));
    for dir in [&b""[..], b"d", b"d/e"] {
        next(&steps, 0, "sync of a directory", |s| covers(s, What::Synced, dir));
    }
}

fn is_temp(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b".longhaul-"))
}

const CHUNK: u64 = 4096;
