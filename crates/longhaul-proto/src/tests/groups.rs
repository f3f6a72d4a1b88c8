//! Tests of group syncs: their beginning, and the chunks of failed files that they still save.

use std::time::Duration;

use longhaul_core::FaultCode;

use super::plan::{CHUNK, Plan, file};
use super::scenarios::play;
use super::world::World;
use crate::receiver::SyncGroup;

#[test]
fn a_group_is_synced_after_so_many_bytes_or_so_long_a_time() {
    let synced = |group| {
        let world = play(Plan { lanes: 4, group, dawdling: 0, ..Plan::new(vec![file("long", 100 * CHUNK)]) });
        (world.target.syncs, world.waits)
    };
    let (bytes, age) = (10 * CHUNK as u64, Duration::from_secs(60));
    let rare = synced(SyncGroup { bytes: 1 << 30, age });
    assert_eq!(rare, (0, 0), "its seal is soon enough");
    let (syncs, waits) = synced(SyncGroup { bytes, age });
    assert!((5..=10).contains(&syncs), "{syncs} syncs of at least 10 of 100 chunks");
    assert_eq!(waits, 0);
    assert!(synced(SyncGroup { bytes: 1 << 30, age: Duration::ZERO }).0 > 10);
}

#[test]
fn what_was_written_of_a_file_before_its_disk_failed_is_kept() {
    // Nothing would be synced before the seal.
    let group = SyncGroup { bytes: 1 << 30, age: Duration::from_secs(60) };
    for (code, read_back) in [
        (FaultCode::Io, false),
        (FaultCode::Io, true),
        (FaultCode::NoSpace, false),
        (FaultCode::Denied, false),
        (FaultCode::Unsupported, false),
        (FaultCode::NotFound, false),
        (FaultCode::Vanished, false),
        (FaultCode::Busy, false),
    ] {
        let kept = |seed| {
            let plan = Plan {
                group,
                disk_faults: (40, code),
                dawdling: 0,
                read_back,
                ..Plan::new(vec![file("f", 60 * CHUNK)])
            };
            World::new(plan.seed(seed)).run().target.kept
        };
        let kept: usize = (0..60).map(kept).sum();
        assert!(kept > 300, "{code:?}: {kept} chunks of some 50 files that failed");
    }
}
