//! Group syncs: their beginning, and the chunks of failed files that they still save.

use std::time::Duration;

use longhaul_core::FaultCode;
use longhaul_proto::receiver::SyncGroup;

use super::{file, play};
use crate::plan::{CHUNK, Plan};
use crate::session::Session;

#[test]
fn a_group_is_synced_after_so_many_bytes_or_so_long_a_time() {
    let synced = |group| {
        // What is written is synced before much more arrives.
        let mut plan =
            Plan { lanes: 4, disk_us: 20, delay_us: 200, ..Plan::one_session(vec![file("long", 100 * CHUNK)]) };
        plan.terms.group = group;
        plan.scene.look_us = 20;
        let session = play(plan, 1);
        (session.receiver().seen.syncs, session.receiver().seen.waits)
    };
    let (bytes, age) = (10 * CHUNK as u64, Duration::from_secs(60));
    let rare = synced(SyncGroup { bytes: 1 << 30, age });
    assert_eq!(rare, (0, 0), "its seal is soon enough");
    let (syncs, waits) = synced(SyncGroup { bytes, age });
    assert!((5..=10).contains(&syncs), "{syncs} syncs of at least 10 of 100 chunks");
    assert_eq!(waits, 0);
    let old = synced(SyncGroup { bytes: 1 << 30, age: Duration::ZERO }).0;
    assert!(old > 10, "{old} syncs");
}

#[test]
fn what_was_written_of_a_file_before_its_disk_failed_is_kept() {
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
            let mut plan = Plan::one_session(vec![file("f", 60 * CHUNK)]);
            // Nothing would be synced before the seal.
            plan.terms.group = SyncGroup { bytes: 1 << 30, age: Duration::from_secs(60) };
            plan.terms.read_back = read_back;
            plan.rates.disk_faults = 40;
            plan.scene.fault = Some(code);
            Session::new(plan, seed).run().kept()
        };
        let kept: usize = (0..60).map(kept).sum();
        assert!(kept > 300, "{code:?}: {kept} chunks of some 50 files that failed");
    }
}
