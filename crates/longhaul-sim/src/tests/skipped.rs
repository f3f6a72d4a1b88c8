//! Skipped files whose root is wanted: the standing file is read, and the root is said to the side
//! that asked.

use longhaul_core::{FaultCode, FileId};
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::Outcome;

use super::{file, is_committed, play};
use crate::plan::Plan;
use crate::scene::Standing;
use crate::session::name;

/// Files that stand as they would be sent, small and in chunks; each holds other bytes than the
/// source.
fn plan(digests: SkippedDigests) -> Plan {
    let mut plan = Plan::one_session(vec![file("small", 100), file("large", 5000), file("new", 300)]);
    plan.terms.digests = digests;
    plan.scene.standing = vec![
        ("small".to_owned(), Standing::Current(vec![7; 100])),
        ("large".to_owned(), Standing::Current(vec![8; 5000])),
    ];
    plan
}

#[test]
fn skipped_files_are_told_with_the_roots_of_what_stands() {
    for seed in 0..20 {
        let session = play(plan(SkippedDigests::Told), seed);
        for (path, bytes) in [("small", vec![7; 100]), ("large", vec![8; 5000])] {
            assert_eq!(*session.outcome(path), Outcome::Stands(*blake3::hash(&bytes).as_bytes()), "{path}");
        }
        assert!(is_committed(session.outcome("new")));
        assert_eq!(session.receiver().tally().standing, 5100);
    }
}

#[test]
fn nothing_that_is_skipped_is_read_unless_its_root_is_wanted() {
    let session = play(plan(SkippedDigests::Unwanted), 1);
    assert_eq!((name(session.outcome("small")), session.receiver().tally().standing), ("skipped", 0));
    let mut dry = plan(SkippedDigests::Told);
    dry.terms.dry_run = true;
    let dry = play(dry, 1);
    assert_eq!((name(dry.outcome("small")), dry.receiver().tally().standing), ("skipped", 0));
}

#[test]
fn a_skipped_file_that_cannot_be_read_fails_alone() {
    let mut plan = plan(SkippedDigests::Told);
    plan.rates.read_faults = 1000;
    let session = play(plan, 1);
    let outcome = &session.receiver().seen.outcomes[&FileId(0)];
    assert!(matches!(outcome, Outcome::Failed(fault) if fault.code == FaultCode::Io), "{outcome:?}");
    assert!(is_committed(session.outcome("new")));
}
