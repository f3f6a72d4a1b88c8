//! Sessions that compare standing files with their sources before they send.

use std::collections::BTreeSet;

use longhaul_core::{FaultCode, IfExists, Unit};
use longhaul_proto::receiver::Source;
use longhaul_proto::wire::message::Outcome;

use super::{bytes, chunk, file, is_committed, left, play, sparse, with_left};
use crate::plan::{CHUNK, Item, Plan};
use crate::scene::Standing;
use crate::session::Session;

/// A session in which all of `items` stand, with the content that `change` makes of theirs.
fn standing(items: Vec<Item>, change: impl Fn(&str, &mut Vec<u8>)) -> Plan {
    let mut plan = Plan::one_session(items);
    for item in &plan.items {
        let mut bytes = bytes(item).to_vec();
        change(item.path(), &mut bytes);
        plan.scene.standing.push((item.path().to_owned(), Standing::Older(bytes)));
    }
    plan.terms.if_exists = IfExists::Verify;
    plan
}

/// Large files, one of a single chunk, one with holes; small ones, one of them empty.
fn files() -> Vec<Item> {
    let small = ["s0", "s1", "s2"].map(|name| file(name, 200)).to_vec();
    [vec![file("big", 40 * CHUNK + 5), file("one", CHUNK), sparse("holes", 6), file("empty", 0)], small].concat()
}

fn equal(session: &Session) -> usize {
    session.outcomes().filter(|outcome| matches!(outcome, Outcome::Equal(_))).count()
}

#[test]
fn of_what_stands_as_it_would_be_sent_nothing_is_sent_or_made() {
    for seed in 0..30 {
        for may_modify in [true, false] {
            let mut plan = Plan { safe: seed % 2 == 0, ..standing(files(), |_, _| {}) };
            (plan.terms.may_modify, plan.terms.read_back) = (may_modify, seed % 3 == 0);
            let session = play(plan, seed);
            let (seen, tally) = (&session.receiver().seen, session.receiver().tally());
            assert_eq!(equal(&session), 7);
            assert_eq!((tally.received, seen.syncs, seen.barriers, seen.copies), (0, 0, 0, 0));
            assert_eq!(seen.compared, 41 + 1 + 7 + 4);
            assert_eq!(seen.waits, 0, "nothing waits for a clock");
        }
    }
}

#[test]
fn of_a_file_that_differs_in_a_chunk_that_chunk_is_sent_and_the_rest_is_copied() {
    for seed in 0..30 {
        for at in [0, 17, 40] {
            let plan = standing(files(), |path, bytes| {
                if path == "big" {
                    bytes[at * CHUNK] ^= 1;
                }
            });
            let mut plan = Plan { safe: seed % 2 == 0, ..plan };
            plan.terms.read_back = seed % 3 == 0;
            let session = play(plan, seed);
            assert!(is_committed(session.outcome("big")), "{:?}", session.outcome("big"));
            assert_eq!(equal(&session), 6);
            let (len, whole) = (if at == 40 { 5 } else { CHUNK }, 40 * CHUNK + 5);
            let tally = session.receiver().tally();
            assert_eq!((tally.received, tally.resumed), (len as u64, (whole - len) as u64));
            assert_eq!(session.receiver().seen.copies, 40);
            assert!(session.sendings().values().all(|count| *count == 1), "each is asked about once");
        }
    }
}

#[test]
fn of_small_files_those_that_differ_are_sent() {
    for seed in 0..10 {
        let files = (0..300).map(|at| file(&format!("f{at}"), 50)).collect();
        let plan = standing(files, |path, bytes| bytes[0] ^= u8::from(path.ends_with('7')));
        let session = play(plan, seed);
        assert_eq!(equal(&session), 270);
        assert_eq!(session.receiver().tally().received, 30 * 50);
        let bundles = session.sendings().keys().filter(|unit| matches!(unit, Unit::Bundle(_))).count();
        assert!(bundles <= 40 && bundles == session.sendings().len(), "{bundles} bundles");
    }
}

#[test]
fn more_files_than_descriptors_are_compared_without_a_wait() {
    let items = (0..600).map(|at| file(&format!("f{at}"), CHUNK + 1)).collect();
    let plan = standing(items, |path, bytes| bytes[CHUNK] ^= u8::from(path.ends_with('3')));
    let session = play(Plan { lanes: 3, ..plan }, 1);
    // A last chunk of one zero travels as a hole.
    let tally = session.receiver().tally();
    assert_eq!((equal(&session), tally.received + tally.holes), (540, 60));
    assert_eq!(session.receiver().seen.waits, 0);
}

#[test]
fn what_differs_and_may_not_be_replaced_fails_and_what_is_equal_is_skipped() {
    for seed in 0..20 {
        let mut plan = standing(files(), |path, bytes| {
            let differs = ["big", "s1"].contains(&path);
            bytes.iter_mut().skip(150).take(1).for_each(|byte| *byte ^= u8::from(differs));
        });
        plan.terms.may_modify = false;
        let session = play(plan, seed);
        for path in ["big", "s1"] {
            assert_eq!(session.failure(path), Some(FaultCode::Denied), "{path}");
        }
        assert_eq!((equal(&session), session.receiver().seen.barriers), (5, 0));
    }
}

#[test]
fn what_somebody_writes_to_while_it_is_compared_is_sent_or_fails_and_is_never_called_equal() {
    let mut failed = 0;
    for seed in 0..200 {
        let mut plan =
            standing(files(), |_, bytes| bytes.iter_mut().skip(5 * CHUNK).take(1).for_each(|byte| *byte ^= 1));
        plan.rates.restless = 30;
        for outcome in play(plan, seed).outcomes() {
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
            let session = play(with_left(plan, vec![left(&big, CHUNK, held.clone(), source)]), seed);
            assert!(is_committed(session.outcome("big")));
            assert_eq!(session.receiver().tally().received, CHUNK as u64, "of the rest one chunk differs");
            assert_eq!(session.receiver().seen.copies, 20);
            let asked = session.sendings().contains_key(&chunk(0, 7));
            assert_eq!(asked, source == Source::Changed, "what is held is not asked about unless the source changed");
        }
    }
}

#[test]
fn what_cannot_be_read_is_sent_whole() {
    for seed in 0..10 {
        let mut plan = standing(files(), |_, _| {});
        plan.rates.read_faults = 1000;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        assert_eq!(session.receiver().seen.copies, 0);
    }
}
