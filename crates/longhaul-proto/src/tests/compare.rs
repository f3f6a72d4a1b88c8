//! Tests of sessions that compare standing files with their sources before they send.

use std::collections::BTreeSet;

use longhaul_core::{Clock, FaultCode, FileId, IfExists, Unit};

use super::plan::{CHUNK, Item, Plan, file, many, path, sparse};
use super::scenarios::{chunk, failure, left, play};
use super::victim::{NOW, Victim};
use super::world::World;
use crate::receiver::{LandedRow, Policy, ReceiverAction, Seen, Source};
use crate::wire::message::{Message, Outcome};

/// A world in which all of `items` stand, the files with the content that `change` makes of theirs.
fn standing(items: Vec<Item>, change: impl Fn(&Item, &mut Vec<u8>)) -> Plan {
    let mut plan = Plan::new(items.clone());
    for item in items {
        let mut bytes = item.bytes.clone();
        change(&item, &mut bytes);
        let seen = Seen::File { len: bytes.len() as u64, mtime: Default::default(), clock: Clock::Exact };
        plan.standing.push((item.entry.path.clone(), seen));
        plan.contents.push((item.entry.path, bytes));
    }
    Plan { policy: Policy { if_exists: IfExists::Verify, may_modify: true }, dawdling: 0, ..plan }
}

/// Large files, one of a single chunk, one with holes; small ones, one of them empty.
fn files() -> Vec<Item> {
    let small = ["s0", "s1", "s2"].map(|name| file(name, 200)).to_vec();
    [vec![file("big", 40 * CHUNK + 5), file("one", CHUNK), sparse("holes", 6), file("empty", 0)], small].concat()
}

fn equal(world: &World) -> usize {
    world.told.values().filter(|outcome| matches!(outcome, Outcome::Equal(_))).count()
}

#[test]
fn of_what_stands_as_it_would_be_sent_nothing_is_sent_or_made() {
    for seed in 0..30 {
        for may_modify in [true, false] {
            let plan = standing(files(), |_, _| {});
            let policy = Policy { if_exists: IfExists::Verify, may_modify };
            let world = play(Plan { policy, safe: seed % 2 == 0, read_back: seed % 3 == 0, ..plan }.seed(seed));
            assert_eq!(equal(&world), 7, "{:?}", world.told);
            assert_eq!((world.receiver.tally().received, world.target.syncs, world.target.barriers), (0, 0, 0));
            assert_eq!(world.target.stood.copies, 0);
            assert_eq!(world.compared, 41 + 1 + 7 + 4);
            assert_eq!(world.waits, 0, "nothing waits for a clock");
        }
    }
}

#[test]
fn of_a_file_that_differs_in_a_chunk_that_chunk_is_sent_and_the_rest_is_copied() {
    for seed in 0..30 {
        for at in [0, 17, 40] {
            let plan = standing(files(), |item, bytes| {
                if item.entry.path == path("big") {
                    bytes[at * CHUNK] ^= 1;
                }
            });
            let world = play(Plan { safe: seed % 2 == 0, read_back: seed % 3 == 0, ..plan }.seed(seed));
            assert!(matches!(world.outcome("big"), Outcome::Committed(_)), "{:?}", world.outcome("big"));
            assert_eq!(equal(&world), 6);
            let (len, whole) = (if at == 40 { 5 } else { CHUNK }, 40 * CHUNK + 5);
            let tally = world.receiver.tally();
            assert_eq!((tally.received, tally.resumed), (len as u64, (whole - len) as u64));
            assert_eq!(world.target.stood.copies, 40);
            assert!(world.sendings.values().all(|count| *count == 1), "each is asked about once");
        }
    }
}

#[test]
fn of_small_files_those_that_differ_are_sent() {
    for seed in 0..10 {
        let plan = standing(many(300, 300, 50)[1..301].to_vec(), |item, bytes| {
            bytes[0] ^= u8::from(item.entry.path.as_bytes().ends_with(b"7"));
        });
        let world = play(plan.seed(seed));
        assert_eq!(equal(&world), 270);
        assert_eq!(world.receiver.tally().received, 30 * 50);
        let bundles = world.sendings.keys().filter(|unit| matches!(unit, Unit::Bundle(_))).count();
        assert!(bundles <= 40 && bundles == world.sendings.len(), "{bundles} bundles");
    }
}

#[test]
fn more_files_than_descriptors_are_compared_without_a_wait() {
    let items = (0..600).map(|at| file(&format!("f{at}"), CHUNK + 1)).collect();
    let plan = standing(items, |item, bytes| bytes[CHUNK] ^= u8::from(item.entry.path.as_bytes().ends_with(b"3")));
    let world = play(Plan { lanes: 3, ..plan });
    assert_eq!((equal(&world), world.receiver.tally().received), (540, 60));
}

#[test]
fn what_differs_and_may_not_be_replaced_fails_and_what_is_equal_is_skipped() {
    for seed in 0..20 {
        let plan = standing(files(), |item, bytes| {
            let differs = ["big", "s1"].iter().any(|name| item.entry.path == path(name));
            bytes.iter_mut().skip(150).take(1).for_each(|byte| *byte ^= u8::from(differs));
        });
        let policy = Policy { if_exists: IfExists::Verify, may_modify: false };
        let world = play(Plan { policy, ..plan }.seed(seed));
        for name in ["big", "s1"] {
            assert_eq!(failure(&world, name), Some(FaultCode::Denied), "{name}");
        }
        assert_eq!((equal(&world), world.target.barriers), (5, 0));
    }
}

#[test]
fn what_somebody_writes_to_while_it_is_compared_is_sent_or_fails_and_is_never_called_equal() {
    let mut failed = 0;
    for seed in 0..200 {
        let plan = standing(files(), |_, bytes| bytes.iter_mut().skip(5 * CHUNK).take(1).for_each(|byte| *byte ^= 1));
        let world = play(Plan { restless: 30, ..plan }.seed(seed));
        for outcome in world.told.values() {
            match outcome {
                Outcome::Committed(_) | Outcome::Equal(_) => {}
                Outcome::Failed(fault) => {
                    assert_eq!(fault.code, FaultCode::Busy);
                    failed += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(failed > 20, "{failed} files failed in all");
}

#[test]
fn what_an_earlier_session_left_is_gone_on_with_and_only_the_rest_is_compared() {
    let big = file("big", 40 * CHUNK + 5);
    let held: BTreeSet<u64> = (5..25).collect();
    for seed in 0..20 {
        for source in [Source::Same, Source::Changed] {
            let plan = standing(vec![big.clone()], |_, bytes| {
                bytes[7 * CHUNK] ^= 1;
                bytes[30 * CHUNK] ^= 1;
            });
            let world = play(Plan { left: vec![left(&big, CHUNK, held.clone(), source)], ..plan }.seed(seed));
            assert!(matches!(world.outcome("big"), Outcome::Committed(_)));
            assert_eq!(world.receiver.tally().received, CHUNK as u64, "of the rest one chunk differs");
            assert_eq!(world.target.stood.copies, 20);
            let asked = world.sendings.contains_key(&chunk(0, 7));
            assert_eq!(asked, source == Source::Changed, "what is held is not asked about unless the source changed");
        }
    }
}

#[test]
fn what_cannot_be_read_is_sent_whole() {
    let plan = standing(files(), |_, _| {});
    let mut world = World::new(plan);
    while world.target.stood.contents.len() == 7 && world.compared == 0 {
        world.step();
        world.target.stood.contents.clear();
    }
    let world = world.run_well();
    assert!(world.told.values().all(|outcome| matches!(outcome, Outcome::Committed(_))), "{:?}", world.told);
    assert_eq!(world.target.stood.copies, 0);
}

/// A victim that compares a small file (entry 0) and wants another (entry 1).
fn comparing() -> Victim {
    let mut victim = Victim::with(Policy { if_exists: IfExists::Verify, may_modify: true });
    victim.page(vec![file("stands", 100).entry, file("new", 100).entry]);
    let survey = |action: &ReceiverAction| matches!(action, ReceiverAction::Survey(_));
    while !victim.receiver.poll_action().is_some_and(|action| survey(&action)) {}
    let stands = Seen::File { len: 100, mtime: Default::default(), clock: Clock::Exact };
    victim.receiver.handle_survey(NOW, FileId(0), vec![Ok(stands.into()), Ok(Seen::Absent.into())]);
    victim.receiver.handle_read_standing(NOW, vec![(FileId(0), Ok([5; 32]))]);
    victim
}

#[test]
fn a_sender_that_calls_equal_what_is_not_or_was_not_asked_about_gets_nothing_committed() {
    let bundle = |victim: &mut Victim, row: LandedRow| {
        let root = longhaul_core::Digest::Root([7; 32]);
        let mut landed = victim.landed(Unit::Bundle(longhaul_core::BundleId(0)), 1, root, Some(root));
        landed.rows = vec![row];
        victim.land(landed);
    };
    let same = |file, root| LandedRow { file: FileId(file), len: 100, declared: root, computed: root, same: true };
    let mut victim = comparing();
    bundle(&mut victim, same(1, [5; 32]));
    victim.assert_refused(FaultCode::Protocol, "a file that nobody asked about");

    let mut victim = comparing();
    bundle(&mut victim, same(0, [6; 32]));
    let mismatch = |a: &ReceiverAction| matches!(a, ReceiverAction::Settled(_, Outcome::Failed(fault)) if fault.code == FaultCode::Mismatch);
    assert!(victim.obey().iter().any(mismatch), "another root than stands there");

    let mut victim = comparing();
    bundle(&mut victim, same(0, [5; 32]));
    let actions = victim.obey();
    assert!(actions.iter().any(|action| matches!(action, ReceiverAction::Retouch { .. })), "{actions:?}");
    assert!(
        actions.iter().any(|a| matches!(a, ReceiverAction::Send(Message::CheckFiles(check)) if check.files.len() == 1))
    );
}
