//! Sessions whose destination has targets that hang: syncs give chunks up, and barriers postpone
//! files.

use longhaul_core::IfExists;
use longhaul_core::limits::ATTEMPTS_MAX;
use longhaul_proto::receiver::SyncGroup;

use super::{bytes, file, is_committed, many, play, sparse};
use crate::plan::{CHUNK, Plan};
use crate::scene::Standing;

/// A session with files in chunks and in bundles; every other one reads back, every third one loses
/// lanes, and half of them are `safe`.
fn plan(seed: u64) -> Plan {
    let items = [many(30, 5, 100), vec![file("a", 40 * CHUNK + 5), file("b", 9 * CHUNK), sparse("c", 6)]].concat();
    let mut plan = Plan { safe: seed % 4 < 2, ..Plan::one_session(items) };
    plan.terms.read_back = seed % 2 == 1;
    plan.terms.group = SyncGroup { bytes: 4 * CHUNK as u64, ..SyncGroup::default() };
    plan.rates.lanes.losses = if seed.is_multiple_of(3) { 150 } else { 0 };
    plan
}

#[test]
fn chunks_that_syncs_give_up_come_again_and_every_file_is_whole() {
    let (mut lost, mut often) = (0, 0);
    for seed in 0..40 {
        let mut plan = plan(seed);
        plan.rates.hangs.chunks = 300;
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        assert_eq!(session.judged_wrong(), 0);
        // Some have come again and were lost once more before their session knew of the first loss.
        let (gone, again) = (session.world.env.seen.chunks_lost, session.receiver().seen.again as u64);
        assert_eq!(again, gone, "each is asked for once");
        lost += gone;
        often += session.sendings().values().filter(|count| **count > ATTEMPTS_MAX).count();
    }
    assert!(lost > 400, "{lost} chunks were lost");
    assert!(often > 0, "some chunks are lost more often than damaged ones are sent");
}

#[test]
fn copied_chunks_that_a_sync_gives_up_are_sent() {
    let mut again = 0;
    for seed in 0..20 {
        let mut plan = plan(seed);
        let mut older = bytes(&file("a", 40 * CHUNK + 5)).to_vec();
        older[7 * CHUNK] ^= 1;
        plan.scene.standing.push(("a".to_owned(), Standing::Older(older)));
        (plan.terms.if_exists, plan.rates.hangs.chunks) = (IfExists::Verify, 300);
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        let tally = session.receiver().tally();
        assert_eq!(session.receiver().seen.again > 0, session.world.env.seen.chunks_lost > 0);
        assert!(tally.resumed < 40 * CHUNK as u64, "what is sent does not count as resumed");
        again += session.receiver().seen.again;
    }
    assert!(again > 200, "{again} chunks came again");
}

#[test]
fn files_that_barriers_postpone_are_committed_later_and_the_others_do_not_wait() {
    let mut all = 0;
    for seed in 0..40 {
        let mut plan = plan(seed);
        plan.rates.hangs.files = *[100, 500, 900].get(seed as usize % 3).expect("one of three");
        let session = play(plan, seed);
        assert!(session.outcomes().all(is_committed));
        let (postponed, barriers) = (session.world.env.seen.files_postponed, session.receiver().seen.barriers);
        all += postponed;
        // At most one for each half a second, and those that are full before.
        let seconds = session.world.env.clock.now().0 / 1_000_000;
        assert!(barriers as u64 <= 40 + 2 * seconds, "{barriers} batches in {seconds} s");
    }
    assert!(all > 1000, "{all} times a file was postponed");
}
