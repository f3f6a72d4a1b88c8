//! Tests of whole sessions, named for the promise that must hold.

use std::collections::BTreeSet;

use longhaul_core::limits::{ATTEMPTS_MAX, CHUNKS_WANTED_MAX};
use longhaul_core::{Blame, BundleId, ChunkIndex, Clock, EntryKind, Fault, FaultCode, FileId, IfExists, RelPath, Unit};

use super::plan::{CHUNK, Item, Left, Plan, file, item, many, path, sparse, unsent};
use super::target::Standing;
use super::world::{End, World};
use crate::receiver::{Landing, Policy, Seen, Source, SyncGroup};
use crate::wire::message::{Finding, Outcome};

pub(super) fn play(plan: Plan) -> World {
    World::new(plan).run_well()
}

/// The code with which the entry failed.
pub(super) fn failure(world: &World, name: &str) -> Option<FaultCode> {
    match world.outcome(name) {
        Outcome::Failed(fault) => Some(fault.code),
        _ => None,
    }
}

/// Chunks of `item` as an earlier session left them; chunks that it did not journal have random
/// bytes.
pub(super) fn left(item: &Item, size: usize, held: BTreeSet<u64>, source: Source) -> Left {
    let mut bytes = item.bytes.clone();
    for (at, content) in bytes.chunks_mut(size).enumerate() {
        if !held.contains(&(at as u64)) {
            content.fill(0xa5);
        }
    }
    let chunk = longhaul_core::ChunkSize::from_bytes(size as u64).expect("a size");
    Left { path: item.entry.path.clone(), bytes, chunk, held, source, gone: false }
}

pub(super) fn chunk(file: u64, index: u64) -> Unit {
    Unit::Chunk { file: FileId(file), index: ChunkIndex(index) }
}

#[test]
fn whatever_happens_in_whatever_order_every_entry_comes_to_its_outcome() {
    let mut codes = std::collections::BTreeMap::<&str, usize>::new();
    for seed in 0..600 {
        for outcome in play(Plan::random(seed)).told.values() {
            let name = match outcome {
                Outcome::Committed(_) => "committed",
                Outcome::Skipped => "skipped",
                Outcome::Stands(_) => "stands",
                Outcome::Planned => "planned",
                Outcome::Failed(fault) => fault.code.name(),
                Outcome::Unsent => "unsent",
                Outcome::Equal(_) => "equal",
            };
            *codes.entry(name).or_default() += 1;
        }
    }
    // The worlds are only worth something if all of this happens in them.
    for name in [
        "committed",
        "skipped",
        "planned",
        "mismatch",
        "changed",
        "vanished",
        "exists",
        "denied",
        "in-the-way",
        "unsent",
        "equal",
    ] {
        assert!(codes.get(name).is_some_and(|count| *count >= 10), "{name} hardly ever happened: {codes:?}");
    }
}

#[test]
fn without_trouble_everything_is_committed_with_one_sending_each() {
    for seed in 0..20 {
        let items = [many(30, 7, 100), vec![file("a", 5 * CHUNK + 1), file("b", CHUNK), sparse("c", 6)]].concat();
        let world = play(Plan { safe: seed % 2 == 0, dawdling: 0, ..Plan::new(items).seed(seed) });
        assert!(world.told.values().all(|outcome| matches!(outcome, Outcome::Committed(_))));
        assert!(world.sendings.values().all(|count| *count == 1));
        assert_eq!(world.receiver.tally().committed, world.receiver.tally().durable);
        assert_eq!(world.receiver.tally().files, 33);
        assert_eq!(world.waits, 0, "nothing waits for a clock at the end");
    }
}

#[test]
fn a_unit_that_arrives_damaged_is_sent_again_and_right_at_the_end() {
    for seed in 0..40 {
        let items = [many(12, 4, 200), vec![file("big", 20 * CHUNK + 5)]].concat();
        let plan = Plan { flips: 150, safe: seed % 2 == 0, ..Plan::new(items).seed(seed) };
        let world = play(plan);
        let again = world.findings.iter().filter(|(_, finding)| *finding == Finding::Again).count();
        let resent: u32 = world.sendings.values().map(|count| count - 1).sum();
        assert_eq!(again as u32, resent);
        assert!(world.sendings.values().all(|count| *count <= ATTEMPTS_MAX));
    }
}

#[test]
fn a_chunk_that_is_always_damaged_fails_its_file_and_no_other() {
    for (seed, safe) in [(1, true), (2, false)] {
        let mut plan = Plan::new(vec![file("bad", 8 * CHUNK), file("good", 8 * CHUNK)]).seed(seed);
        plan.always_flipped.insert(chunk(0, 3));
        let world = play(Plan { safe, ..plan });
        assert_eq!(failure(&world, "bad"), Some(FaultCode::Mismatch));
        assert!(matches!(world.outcome("good"), Outcome::Committed(Some(_))));
        assert_eq!(world.sendings[&chunk(0, 3)], ATTEMPTS_MAX);
        assert!(world.findings.contains(&(chunk(0, 3), Finding::GivenUp)));
        assert!(!world.target.names.contains_key(&path("bad")));
    }
}

#[test]
fn a_bundle_that_is_always_damaged_fails_each_of_its_files_though_the_receiver_cannot_name_them() {
    for (seed, safe) in [(3, true), (4, false)] {
        let mut plan = Plan::new(many(40, 40, 150)).seed(seed);
        plan.always_flipped.insert(Unit::Bundle(BundleId(0)));
        let world = play(Plan { safe, ..plan });
        let failed = world.told.values().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
        assert!((1..=5).contains(&failed), "{failed} files of 150 bytes in a bundle of 1 KiB");
        for name in ["d0/f0", "d0/f1"] {
            assert_eq!(failure(&world, name), Some(FaultCode::Mismatch), "{name}");
        }
    }
}

#[test]
fn what_an_earlier_session_left_is_not_sent_again() {
    for (seed, safe) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let item = file("big", 20 * CHUNK + 5);
        let held: BTreeSet<u64> = (0..21).filter(|at| (seed >> (at % 6)) & 1 == 1).collect();
        let left = left(&item, CHUNK, held.clone(), Source::Same);
        let world = play(Plan { left: vec![left], safe, ..Plan::new(vec![item]).seed(seed) });
        assert_eq!(world.wanted(), 21 - held.len());
        assert_eq!(world.sendings.len(), 21 - held.len());
        assert!(held.iter().all(|at| !world.sendings.contains_key(&chunk(0, *at))));
        assert_eq!(world.told[&FileId(0)], world.target.outcomes[&FileId(0)]);
        assert_eq!(world.receiver.tally().durable, 20 * CHUNK as u64 + 5);
    }
}

#[test]
fn a_partial_keeps_its_own_chunk_size_as_far_as_buffers_reach() {
    // The buffers of a world hold two of its chunks.
    for (size, wanted) in [(CHUNK, 19), (2 * CHUNK, 9), (4 * CHUNK, 21)] {
        let item = file("big", 20 * CHUNK + 5);
        let left = left(&item, size, [0, 3].into(), Source::Same);
        let world = play(Plan { left: vec![left], ..Plan::new(vec![item]) });
        assert_eq!(world.wanted(), wanted, "{size}");
    }
}

#[test]
fn of_another_version_only_the_chunks_that_differ_are_sent() {
    for (seed, safe) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let item = file("big", 20 * CHUNK + 5);
        let mut left = left(&item, CHUNK, (0..15).collect(), Source::Changed);
        for at in [2usize, 9, 10] {
            left.bytes[at * CHUNK..][..CHUNK].fill(1);
        }
        let world = play(Plan { left: vec![left], safe, ..Plan::new(vec![item]).seed(seed) });
        assert_eq!((world.compared, world.wanted()), (15, 6));
        let resumed = 12 * CHUNK as u64;
        assert_eq!(world.receiver.tally().resumed, resumed);
        assert_eq!(world.receiver.tally().received, 20 * CHUNK as u64 + 5 - resumed);
    }
}

#[test]
fn a_partial_that_is_whole_is_committed_without_a_byte_and_one_that_is_gone_is_sent_anew() {
    let item = file("big", 4 * CHUNK);
    let whole = left(&item, CHUNK, (0..4).collect(), Source::Same);
    let world = play(Plan { left: vec![whole.clone()], ..Plan::new(vec![item.clone()]) });
    assert!(world.sendings.is_empty());
    assert_eq!(world.receiver.tally().resumed, 4 * CHUNK as u64);
    let world = play(Plan { left: vec![Left { gone: true, ..whole }], ..Plan::new(vec![item]) });
    assert_eq!((world.sendings.len(), world.receiver.tally().resumed), (4, 0));
}

#[test]
fn a_session_that_is_given_up_first_makes_safe_what_is_written() {
    for seed in 0..40 {
        let mut world = World::new(Plan { dawdling: 0, ..Plan::new(vec![file("big", 30 * CHUNK)]).seed(seed) });
        while world.receiver.tally().received < 10 * CHUNK as u64 {
            world.step();
        }
        world.receiver.abort(Fault::new(FaultCode::Interrupted, Blame::Local, "enough"));
        let received = world.receiver.tally().received;
        let world = world.run();
        assert!(matches!(&world.ends.1, Some(End::Aborted(fault)) if fault.code == FaultCode::Interrupted));
        assert_eq!(world.receiver.tally().durable, received, "seed {seed}");
    }
}

#[test]
fn altered_headers_on_a_safe_lane_never_change_what_is_written() {
    let mut failed = 0;
    for seed in 0..60 {
        let items = [many(10, 5, 220), vec![file("x", 6 * CHUNK + 9), file("y", 6 * CHUNK + 9)]].concat();
        let world = play(Plan { alters: 300, ..Plan::new(items).seed(seed) });
        failed += world.told.values().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count();
        let mismatch = |o: &Outcome| !matches!(o, Outcome::Failed(fault) if fault.code != FaultCode::Mismatch);
        assert!(world.told.values().all(mismatch));
    }
    assert!(failed > 0, "three altered headers in a row give a file up");
}

#[test]
fn a_frame_put_into_a_safe_lane_by_another_costs_sendings_but_no_truth() {
    for seed in 0..40 {
        let mut world =
            World::new(Plan { lanes: 1, ..Plan::new(vec![file("x", 12 * CHUNK), file("y", 3 * CHUNK)]) }.seed(seed));
        while world.lanes[0].frames.len() < 2 {
            world.step();
        }
        let replayed = world.lanes[0].frames[1].clone();
        world.lanes[0].frames.push_front(replayed);
        let world = world.run();
        // Everything behind it is out of step: files fail, or the session ends for the frame that
        // no one announced.
        for (name, bytes) in world.target.names.iter().filter_map(|(name, standing)| match standing {
            Standing::File(id, bytes) => Some((name, (id, bytes))),
            _ => None,
        }) {
            assert_eq!(*bytes.1, world.plan.items[bytes.0.0 as usize].bytes, "{name:?}");
        }
    }
}

#[test]
fn a_full_disk_ends_the_session_and_both_sides_hear_of_the_file_first() {
    for seed in 0..30 {
        let items = [many(20, 5, 200), vec![file("big", 30 * CHUNK)]].concat();
        let plan = Plan { disk_faults: (100, FaultCode::NoSpace), ..Plan::new(items).seed(seed) };
        let world = World::new(plan).run();
        let code = |end: &Option<End>| match end {
            Some(End::Aborted(fault)) => Some(fault.code),
            _ => None,
        };
        assert_eq!(code(&world.ends.0), Some(FaultCode::NoSpace), "seed {seed}");
        assert_eq!(code(&world.ends.1), Some(FaultCode::NoSpace), "seed {seed}");
        let full = |o: &Outcome| matches!(o, Outcome::Failed(fault) if fault.code == FaultCode::NoSpace);
        assert!(world.target.outcomes.values().any(full), "seed {seed}: the file is named before the session ends");
        assert!(world.told.values().any(full), "seed {seed}: also to the sender");
    }
}

#[test]
fn a_receiver_out_of_descriptors_ends_the_session_and_no_file_has_failed() {
    for seed in 0..30 {
        let items = [many(20, 5, 200), vec![file("big", 30 * CHUNK)]].concat();
        let plan = Plan { disk_faults: (100, FaultCode::Exhausted), ..Plan::new(items).seed(seed) };
        let world = World::new(plan).run();
        for end in [&world.ends.0, &world.ends.1] {
            let ended = matches!(end, Some(End::Aborted(fault)) if fault.code == FaultCode::Exhausted);
            assert!(ended, "seed {seed}: {end:?}");
        }
        let failed = |o: &Outcome| matches!(o, Outcome::Failed(_));
        assert!(!world.target.outcomes.values().any(failed) && !world.told.values().any(failed), "seed {seed}");
    }
}

#[test]
fn a_dry_run_plans_everything_and_touches_nothing() {
    let plan = Plan {
        dry_run: true,
        standing: vec![(
            path("d0/f1"),
            Seen::File { len: 10, mtime: file("d0/f1", 10).entry.meta.mtime, clock: Clock::Exact },
        )],
        ..Plan::new(many(9, 3, 10))
    };
    let world = play(plan);
    assert!(matches!(world.outcome("d0/f0"), Outcome::Planned) && matches!(world.outcome("d0"), Outcome::Planned));
    assert!(matches!(world.outcome("d0/f1"), Outcome::Skipped));
    assert!(world.sendings.is_empty() && world.target.names.len() == 1);
}

#[test]
fn of_two_sources_for_one_name_at_most_one_is_on_its_way_at_a_time() {
    for seed in 0..30 {
        let first = file("x", 6 * CHUNK);
        let second = Item { bytes: file("other", 2 * CHUNK).bytes, ..first.clone() };
        let second = Item {
            entry: longhaul_core::Entry {
                kind: EntryKind::File { len: 2 * CHUNK as u64, sparse: false, inode: longhaul_core::Inode::default() },
                ..second.entry.clone()
            },
            ..second
        };
        let world = play(Plan::new(vec![first, second]).seed(seed));
        assert!(matches!(world.told[&FileId(0)], Outcome::Committed(_)));
        assert!(matches!(&world.told[&FileId(1)], Outcome::Failed(fault) if fault.code == FaultCode::Exists));
    }
}

#[test]
fn names_that_stand_are_skipped_replaced_or_refused() {
    let mtime = file("same", 700).entry.meta.mtime;
    let standing = vec![
        (path("same"), Seen::File { len: 700, mtime, clock: Clock::Exact }),
        (path("other"), Seen::File { len: 1, mtime, clock: Clock::Exact }),
        (path("dir"), Seen::Dir),
    ];
    let items = vec![file("same", 700), file("other", 700), file("dir", 700), file("new", 700)];
    for (if_exists, may_modify, want) in [
        (IfExists::SkipSame, true, ["skipped", "committed", "in-the-way", "committed"]),
        (IfExists::SkipSame, false, ["skipped", "denied", "in-the-way", "committed"]),
        (IfExists::Replace, true, ["committed", "committed", "in-the-way", "committed"]),
        (IfExists::Fail, true, ["exists", "exists", "in-the-way", "committed"]),
    ] {
        let plan =
            Plan { standing: standing.clone(), policy: Policy { if_exists, may_modify }, ..Plan::new(items.clone()) };
        let world = play(plan);
        let found = ["same", "other", "dir", "new"].map(|name| match world.outcome(name) {
            Outcome::Committed(_) => "committed",
            Outcome::Skipped => "skipped",
            Outcome::Planned => "planned",
            Outcome::Failed(fault) => fault.code.name(),
            Outcome::Unsent => "unsent",
            Outcome::Equal(_) => "equal",
            Outcome::Stands(_) => "stands",
        });
        assert_eq!(found, want, "{if_exists:?} {may_modify}");
    }
}

#[test]
fn a_name_that_appears_in_the_middle_is_never_replaced() {
    for if_exists in [IfExists::Fail, IfExists::SkipSame, IfExists::Replace, IfExists::Verify] {
        let plan = Plan {
            policy: Policy { if_exists, may_modify: true },
            ..Plan::new(vec![file("late", 9 * CHUNK), file("free", CHUNK)])
        };
        let mut world = World::new(plan);
        while world.wanted() == 0 {
            world.step();
        }
        world.target.names.insert(path("late"), Standing::Before(Seen::Special));
        let world = world.run_well();
        assert_eq!(failure(&world, "late"), Some(FaultCode::Exists), "{if_exists:?}");
        assert!(matches!(world.outcome("free"), Outcome::Committed(_)));
        assert_eq!(world.target.names[&path("late")], Standing::Before(Seen::Special), "{if_exists:?}");
    }
}

#[test]
fn thousands_of_small_files_share_barriers_and_messages() {
    let world = play(Plan { lanes: 4, ..Plan::new(many(6000, 100, 20)) });
    assert!(world.told.values().all(|outcome| matches!(outcome, Outcome::Committed(_))));
    assert!(world.target.barriers <= 20, "{} barriers", world.target.barriers);
}

#[test]
fn a_long_file_is_wanted_by_the_window_and_synced_by_the_group() {
    let chunks = 3 * CHUNKS_WANTED_MAX + 5;
    let world = play(Plan { lanes: 4, ..Plan::new(vec![file("long", chunks * CHUNK)]) });
    assert_eq!(world.wanted(), chunks);
    assert!(world.target.syncs >= 20, "{} syncs of at least 8 KiB", world.target.syncs);
}

#[test]
fn more_large_files_than_descriptors_all_come_through() {
    let items = (0..700).map(|at| file(&format!("f{at}"), CHUNK + 1)).collect();
    let world = play(Plan { lanes: 3, group: SyncGroup::default(), dawdling: 0, ..Plan::new(items) });
    assert!(world.told.values().all(|outcome| matches!(outcome, Outcome::Committed(_))));
    assert_eq!(world.waits, 0, "files that wait for a descriptor do not wait for a clock");
}

#[test]
fn an_empty_tree_ends_well_however_early_its_scan_is_over() {
    let mut world = World::new(Plan::new(Vec::new()));
    world.sender.handle_scan_end();
    let world = world.run_well();
    assert!(world.told.is_empty());
}

#[test]
fn a_renamed_source_lands_under_its_new_name_and_a_path_that_gets_too_long_fails_alone() {
    let deep = vec!["n".repeat(250); 16].join("/");
    let mut items = vec![item("s", EntryKind::Dir), file("s/short", 100)];
    items.push(file(&format!("s/{deep}"), 100));
    items.push(item("s", EntryKind::DirEnd));
    let landing = Landing::beneath().renamed_to(vec![b'r'; 200]);
    let mut world = World::new(Plan { landing, ..Plan::new(items) }).run();
    assert_eq!(world.ends.0, Some(End::Finished));
    world.target.assert_clean();
    assert_eq!(failure(&world, &format!("s/{deep}")), Some(FaultCode::Unsupported));
    let renamed = path(&"r".repeat(200)).join(b"short").expect("a path");
    assert!(matches!(world.target.names.remove(&renamed), Some(Standing::File(..))));
}

#[test]
fn what_is_not_sent_is_heard_of_at_both_ends_and_only_failures_fail() {
    // As a source itself that cannot be read: it has no name beneath the destination.
    let mut top = unsent("x", Some(FaultCode::NotFound));
    top.entry.path = RelPath::root();
    let items = vec![
        top,
        unsent("old/fifo", None),
        unsent("old/secret", Some(FaultCode::Denied)),
        unsent("old/full", Some(FaultCode::NoSpace)),
        file("old/f", 300),
    ];
    for dry_run in [false, true] {
        let landing = Landing::beneath().renamed_to(b"new".to_vec());
        let plan = Plan { landing, dry_run, ..Plan::new(items.clone()) };
        let world = World::new(plan).run();
        assert_eq!(world.ends, (Some(End::Finished), Some(End::Finished)));
        assert_eq!(failure(&world, ""), Some(FaultCode::NotFound));
        assert_eq!(*world.outcome("old/fifo"), Outcome::Unsent);
        assert_eq!(failure(&world, "old/secret"), Some(FaultCode::Denied));
        assert_eq!(failure(&world, "old/full"), Some(FaultCode::Io), "the sender's disk ends no session");
        assert_eq!(world.target.outcomes[&FileId(1)], Outcome::Unsent);
        assert!(matches!(world.target.outcomes[&FileId(2)], Outcome::Failed(_)));
        assert!(matches!(world.outcome("old/f"), Outcome::Committed(_) | Outcome::Planned));
    }
}
