//! Tests of skipped files whose root is wanted: the standing file is read, and the root is said to
//! the side that asked.

use longhaul_core::{Clock, FaultCode, FileId, IfExists};

use super::plan::{Plan, file, path};
use super::scenarios::play;
use crate::receiver::{Policy, Seen, SkippedDigests};
use crate::wire::message::Outcome;

/// Files that stand as they would be sent, small and in chunks; each holds other bytes than the
/// source.
fn plan(digests: SkippedDigests) -> Plan {
    let items = vec![file("small", 100), file("large", 5000), file("new", 300)];
    let seen = |at: usize, len| Seen::File { len, mtime: items[at].entry.meta.mtime, clock: Clock::Exact };
    let standing = vec![(path("small"), seen(0, 100)), (path("large"), seen(1, 5000))];
    let contents = vec![(path("small"), vec![7; 100]), (path("large"), vec![8; 5000])];
    Plan { standing, contents, digests, ..Plan::new(items) }
}

#[test]
fn skipped_files_are_told_with_the_roots_of_what_stands() {
    for seed in 0..20 {
        let world = play(plan(SkippedDigests::Told).seed(seed));
        for (name, bytes) in [("small", vec![7; 100]), ("large", vec![8; 5000])] {
            assert_eq!(*world.outcome(name), Outcome::Stands(*blake3::hash(&bytes).as_bytes()), "{name}");
        }
        assert!(matches!(world.outcome("new"), Outcome::Committed(Some(_))));
        assert_eq!(world.receiver.tally().standing, 5100);
    }
}

#[test]
fn nothing_that_is_skipped_is_read_unless_its_root_is_wanted() {
    let world = play(plan(SkippedDigests::Unwanted));
    assert_eq!(*world.outcome("small"), Outcome::Skipped);
    assert_eq!(world.receiver.tally().standing, 0);
    let dry = play(Plan { dry_run: true, ..plan(SkippedDigests::Told) });
    assert_eq!((dry.outcome("small").clone(), dry.receiver.tally().standing), (Outcome::Skipped, 0));
}

#[test]
fn a_skipped_file_that_cannot_be_read_fails_alone() {
    let plan = Plan { disk_faults: (1000, FaultCode::Io), ..plan(SkippedDigests::Told) };
    let policy = Policy { if_exists: IfExists::SkipSame, may_modify: true };
    let items = plan.items[..2].to_vec();
    let world = play(Plan { policy, items, ..plan });
    assert!(matches!(&world.target.outcomes[&FileId(0)], Outcome::Failed(fault) if fault.code == FaultCode::Io));
}
