//! Sessions whose names stand already, appear in the middle, come twice, or are not sent.

use longhaul_core::{FaultCode, FileId, IfExists};
use longhaul_proto::receiver::Landing;
use longhaul_proto::wire::message::Outcome;

use super::{bytes, file, is_committed, many, play};
use crate::fs::Node;
use crate::plan::{CHUNK, Item, Plan};
use crate::scene::Standing;
use crate::session::{Session, name};

#[test]
fn a_dry_run_plans_everything_and_touches_nothing() {
    let items = many(9, 3, 10);
    let mut plan = Plan::one_session(items.clone());
    plan.terms.dry_run = true;
    plan.scene.standing = vec![("d0/f1".to_owned(), Standing::Current(bytes(&items[2]).to_vec()))];
    let session = Session::new(plan, 1);
    let before = session.world.env.fs.cached().names.clone();
    let session = session.run_well();
    assert_eq!((name(session.outcome("d0/f0")), name(session.outcome("d0"))), ("planned", "planned"));
    assert_eq!(*session.outcome("d0/f1"), Outcome::Skipped);
    assert!(session.sendings().is_empty() && session.world.env.fs.cached().names == before && before.len() == 2);
}

#[test]
fn of_two_sources_for_one_name_at_most_one_is_on_its_way_at_a_time() {
    for seed in 0..30 {
        let second =
            Item::File { path: "x".to_owned(), bytes: bytes(&file("other", 2 * CHUNK)).to_vec(), sparse: false };
        let session = play(Plan::one_session(vec![file("x", 6 * CHUNK), second]), seed);
        let outcomes = &session.sender().outcomes;
        assert!(is_committed(&outcomes[&FileId(0)]));
        assert!(matches!(&outcomes[&FileId(1)], Outcome::Failed(fault) if fault.code == FaultCode::Exists));
    }
}

#[test]
fn names_that_stand_are_skipped_replaced_or_refused() {
    let items = vec![file("same", 700), file("other", 700), file("dir", 700), file("new", 700)];
    let standing =
        [("same", Standing::Current(vec![1; 700])), ("other", Standing::Current(vec![1; 1])), ("dir", Standing::Dir)];
    for (if_exists, may_modify, want) in [
        (IfExists::SkipSame, true, ["skipped", "committed", "in-the-way", "committed"]),
        (IfExists::SkipSame, false, ["skipped", "denied", "in-the-way", "committed"]),
        (IfExists::Replace, true, ["committed", "committed", "in-the-way", "committed"]),
        (IfExists::Fail, true, ["exists", "exists", "in-the-way", "committed"]),
    ] {
        let mut plan = Plan::one_session(items.clone());
        (plan.terms.if_exists, plan.terms.may_modify) = (if_exists, may_modify);
        plan.scene.standing = standing.iter().map(|(path, node)| ((*path).to_owned(), node.clone())).collect();
        let session = play(plan, 1);
        let found = ["same", "other", "dir", "new"].map(|path| name(session.outcome(path)));
        assert_eq!(found, want, "{if_exists:?} {may_modify}");
    }
}

#[test]
fn a_name_that_appears_in_the_middle_is_never_replaced() {
    for if_exists in [IfExists::Fail, IfExists::SkipSame, IfExists::Replace, IfExists::Verify] {
        let mut plan = Plan::one_session(vec![file("late", 9 * CHUNK), file("free", CHUNK)]);
        plan.terms.if_exists = if_exists;
        let mut session = Session::new(plan, 1);
        while session.began().is_none() || session.wanted() == 0 {
            session.step();
        }
        session.world.env.ledger.stands("late", Standing::Special);
        assert!(session.world.env.fs.put_node("late", Node::Special));
        let session = session.run_well();
        assert_eq!(session.failure("late"), Some(FaultCode::Exists), "{if_exists:?}");
        assert!(is_committed(session.outcome("free")));
        assert_eq!(session.world.env.fs.cached().names["late"], Node::Special, "{if_exists:?}");
    }
}

#[test]
fn an_empty_tree_ends_well_however_early_its_scan_is_over() {
    for early in [true, false] {
        let mut session = Session::new(Plan::one_session(Vec::new()), 1);
        while session.world.sender.is_none() {
            session.step();
        }
        if early && let Some(sender) = &mut session.world.sender {
            sender.ends_scan();
        }
        assert_eq!(session.run_well().outcomes().count(), 0);
    }
}

#[test]
fn a_renamed_source_lands_under_its_new_name_and_a_path_that_gets_too_long_fails_alone() {
    let deep = vec!["n".repeat(250); 16].join("/");
    let items = vec![
        Item::Dir("s".to_owned()),
        file("s/short", 100),
        file(&format!("s/{deep}"), 100),
        Item::DirEnd("s".to_owned()),
    ];
    let mut plan = Plan::one_session(items);
    plan.terms.landing = Landing::beneath().renamed_to(vec![b'r'; 200]);
    let session = play(plan, 1);
    assert_eq!(session.failure(&format!("s/{deep}")), Some(FaultCode::Unsupported));
    let names = &session.world.env.fs.cached().names;
    assert!(matches!(names.get(&format!("{}/short", "r".repeat(200))), Some(Node::File(_))));
}

#[test]
fn what_is_not_sent_is_heard_of_at_both_ends_and_only_failures_fail() {
    let unsent = |path: &str, failure| Item::Unsent { path: path.to_owned(), failure };
    let items = vec![
        // As a source itself that cannot be read: it has no name beneath the destination.
        unsent("", Some(FaultCode::NotFound)),
        unsent("old/fifo", None),
        unsent("old/secret", Some(FaultCode::Denied)),
        unsent("old/full", Some(FaultCode::NoSpace)),
        Item::Dir("old".to_owned()),
        file("old/f", 300),
        Item::DirEnd("old".to_owned()),
    ];
    for dry_run in [false, true] {
        let mut plan = Plan::one_session(items.clone());
        plan.terms.landing = Landing::beneath().renamed_to(b"new".to_vec());
        plan.terms.dry_run = dry_run;
        let session = play(plan, 1);
        assert_eq!(session.failure(""), Some(FaultCode::NotFound));
        assert_eq!(*session.outcome("old/fifo"), Outcome::Unsent);
        assert_eq!(session.failure("old/secret"), Some(FaultCode::Denied));
        assert_eq!(session.failure("old/full"), Some(FaultCode::Io), "the sender's disk ends no session");
        let there = &session.receiver().seen.outcomes;
        assert_eq!(there[&FileId(1)], Outcome::Unsent);
        assert!(matches!(there[&FileId(2)], Outcome::Failed(_)));
        assert_eq!(name(session.outcome("old/f")), if dry_run { "planned" } else { "committed" });
    }
}

#[test]
fn a_name_that_cannot_be_looked_at_fails_alone_and_a_directory_with_all_beneath_it() {
    let (mut alone, mut beneath) = (0, 0);
    for seed in 0..60 {
        let items = [many(12, 4, 300), vec![file("large", 5 * CHUNK)]].concat();
        let mut plan = Plan::one_session(items);
        plan.rates.names.unseen = 100;
        let session = play(plan, seed);
        for dir in ["d0", "d1", "d2"] {
            let files = session.sender().outcomes.iter().filter(|(id, _)| {
                let path = session.world.env.plan.items[id.0 as usize].path();
                path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
            });
            let failed = files.filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_))).count();
            alone += usize::from((1..4).contains(&failed));
            beneath += usize::from(session.failure(dir).is_some());
            // The entry that ends the directory has its path too.
            assert!(session.failure(dir).is_none() || failed == 4, "seed {seed}: {failed} of 4 in {dir}");
        }
    }
    assert!(alone > 20 && beneath > 5, "{alone} directories with some failures, {beneath} that failed");
}
