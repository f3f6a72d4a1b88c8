//! Checks the order of calls on which durability rests, in one transfer.
//!
//! In: the steps that the medium recorded. A sync counts only if it ended well, a write as soon as
//! it was seen. It knows no contents.

use std::path::Path;

use longhaul_engine::Settings;

use super::each_call::small_tree;
use super::faults::{Faults, Nature};
use super::rng::Rng;
use super::source::Source;
use super::state::{Step, What};
use super::view::{parent, text};
use super::world::{World, plain_settings, scratch, without_metadata};

/// The steps of a run that goes well.
fn steps(runs: usize, tree: impl FnOnce(&Path) -> Source, settings: Settings) -> Vec<Step> {
    let scratch = scratch();
    let source = tree(&scratch.path().join("source"));
    let mut world = World::new(scratch, source, Nature::default(), settings, Rng::new(0, 1));
    for _ in 0..runs {
        let ran = world.faulty(Faults::default()).expect("every promise is kept");
        assert!(ran.is_success(), "{}", ran.told());
    }
    world.medium.state().steps.clone()
}

/// A tree with directories.
fn tree(dir: &Path) -> Source {
    small_tree(dir, CHUNK as usize)
}

/// Two files and nothing else.
fn flat_tree(dir: &Path) -> Source {
    let (mut source, mut rng) = (Source::empty(dir), Rng::new(0, 5));
    for (path, len) in [("large", 3 * CHUNK), ("small", 9)] {
        source.put(path, rng.bytes(len as usize), &mut rng);
    }
    source
}

/// The place after the first step behind `from` that `is` recognises.
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

/// Chunks are journalled after a sync of their data, and the journal is synced after that.
#[test]
fn data_is_synced_before_it_is_journalled_and_the_journal_after_that() {
    let steps = steps(1, tree, plain_settings(CHUNK));
    let (mut synced, mut groups) = (0, 0);
    for (at, step) in steps.iter().enumerate() {
        match step.what {
            What::SyncedData if is_temp(&step.path) => {
                next(&steps[..at], 0, "write", |s| s.what == What::Wrote && s.path == step.path);
                synced += 1;
            }
            What::Journalled => {
                groups += 1;
                assert!(synced >= groups, "more groups are journalled than were synced:\n{}", told(&steps[..at]));
                next(&steps, at, "sync of the journal", |s| s.what == What::SyncedData && is_journal(s));
            }
            _ => {}
        }
    }
    assert!(groups > 0, "{}", told(&steps));
}

/// Bytes are called durable after the sync of the journal, and not before.
#[test]
fn bytes_are_called_durable_behind_the_sync_of_the_journal() {
    let durable_before = |sync: u64| {
        let scratch = scratch();
        let mut source = Source::empty(&scratch.path().join("source"));
        let mut rng = Rng::new(0, 3);
        source.put("large", rng.bytes(40 * CHUNK as usize), &mut rng);
        let mut world = World::new(scratch, source, Nature::default(), plain_settings(CHUNK), rng);
        let faults = Faults { cut_at_journal_sync: Some(sync), ..Faults::default() };
        // The reported durable bytes are compared with those that the power cut leaves.
        world.faulty(faults).expect("every promise is kept").durable
    };
    assert_eq!(durable_before(1), 0);
    let grown = (2..8).map(durable_before).filter(|durable| *durable > 0).count();
    assert!(grown > 0, "nothing is called durable before the end");
}

/// Everything is synced before it is renamed, its directory before it is called committed.
#[test]
fn what_is_renamed_is_synced_before_and_its_directory_before_it_is_called_committed() {
    let steps = steps(1, tree, plain_settings(CHUNK));
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

/// Standing files are synced before a run that changes nothing ends.
#[test]
fn directories_of_what_stands_are_synced_by_a_run_that_finds_everything_there() {
    let steps = steps(2, tree, plain_settings(CHUNK));
    assert!(!steps.iter().any(|step| step.what == What::Renamed), "{}", told(&steps));
    for dir in [&b""[..], b"d", b"d/e"] {
        next(&steps, 0, "sync of a directory", |s| covers(s, What::Synced, dir));
    }
}

#[test]
fn names_that_stand_are_synced_where_no_directory_is_touched() {
    let steps = steps(2, flat_tree, without_metadata(plain_settings(CHUNK)));
    assert!(!steps.iter().any(|step| step.what == What::Renamed), "{}", told(&steps));
    next(&steps, 0, "sync of the directory", |s| covers(s, What::Synced, b""));
}

/// A file system need not keep the changes of two directories in their order: a temporary that a
/// power cut brings back must be known.
#[test]
fn temporaries_that_were_removed_are_gone_for_good_before_the_journal_that_knows_them() {
    let mut removed = 0;
    for seed in 0..8 {
        let scratch = scratch();
        let (mut source, mut rng) = (Source::empty(&scratch.path().join("source")), Rng::new(seed, 6));
        ["d", "d/e", "f"].into_iter().for_each(|dir| source.add_dir(dir));
        for path in ["d/e/1", "d/e/2", "d/3", "d/4", "f/5", "f/6"] {
            source.put(path, rng.bytes(900), &mut rng);
        }
        let mut world = World::new(scratch, source, Nature::default(), plain_settings(CHUNK), rng);
        world.faulty(Faults { bad_files: 500, ..Faults::default() }).expect("every promise is kept");
        let steps = world.medium.state().steps.clone();
        let gone = |step: &&Step| step.what == What::Removed && is_journal(step);
        let Some(end) = steps.iter().position(|step| gone(&step)) else { continue };
        for (at, step) in steps[..end].iter().enumerate() {
            if step.what == What::Removed && is_temp(&step.path) {
                removed += 1;
                next(&steps[..end], at, "sync of its directory", |s| covers(s, What::Synced, parent(&step.path)));
            }
        }
    }
    assert!(removed > 0, "no file failed");
}

fn is_temp(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b".longhaul-"))
}

const CHUNK: u64 = 4096;
