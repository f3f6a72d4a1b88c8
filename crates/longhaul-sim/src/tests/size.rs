//! Sessions of many files, and of long ones.

use longhaul_core::limits::CHUNKS_WANTED_MAX;
use longhaul_proto::receiver::SyncGroup;

use super::{file, is_committed, many, play};
use crate::plan::{CHUNK, Plan};

#[test]
fn thousands_of_small_files_share_barriers_and_messages() {
    let session = play(Plan { lanes: 4, disk_us: 20, ..Plan::one_session(many(6000, 100, 20)) }, 1);
    assert!(session.outcomes().all(is_committed));
    let barriers = session.receiver().seen.barriers;
    assert!(barriers <= 20, "{barriers} barriers");
}

#[test]
fn a_long_file_is_wanted_by_the_window_and_synced_by_the_group() {
    let chunks = 3 * CHUNKS_WANTED_MAX + 5;
    let mut plan = Plan::one_session(vec![file("long", chunks * CHUNK)]);
    plan.scene.look_us = 20;
    let session = play(Plan { lanes: 4, disk_us: 20, delay_us: 200, ..plan }, 1);
    assert_eq!(session.wanted(), chunks);
    let syncs = session.receiver().seen.syncs;
    assert!(syncs >= 20, "{syncs} syncs of at least 8 KiB");
}

#[test]
fn more_large_files_than_descriptors_all_come_through() {
    let items = (0..700).map(|at| file(&format!("f{at}"), CHUNK + 1)).collect();
    let mut plan = Plan { lanes: 3, ..Plan::one_session(items) };
    plan.terms.group = SyncGroup::default();
    let session = play(plan, 1);
    assert!(session.outcomes().all(is_committed));
    assert_eq!(session.receiver().seen.waits, 0, "files that wait for a descriptor do not wait for a clock");
}
