//! Sessions whose destination has several targets: few files are begun at a time, and each is asked
//! for a few chunks in turn.

use longhaul_proto::receiver::WantOrder;

use super::{file, is_committed, many, sparse};
use crate::plan::{CHUNK, Plan};
use crate::session::Session;

#[test]
fn every_file_comes_whole_however_few_are_begun_and_however_few_chunks_are_wanted() {
    for (files_max, chunks_max) in [(1, 1), (2, 3), (3, 8), (16, 64)] {
        for seed in 0..20 {
            let large = [file("a", 40 * CHUNK + 1), sparse("b", 9), file("c", 3 * CHUNK), file("e", 0)];
            let rest = [file("x", 7 * CHUNK), file("y", CHUNK + 1), file("z", 30 * CHUNK)];
            let items = large.into_iter().chain(many(12, 5, 100)).chain(rest).collect();
            let mut plan = Plan { safe: seed % 2 == 0, lanes: 1 + seed as u32 % 4, ..Plan::one_session(items) };
            plan.bundled_max = if seed % 3 == 0 { 0 } else { 256 };
            plan.terms.order = WantOrder::Spread { files_max, chunks_max };
            plan.rates.lanes.losses = if seed % 3 == 0 { 150 } else { 0 };
            let session = Session::new(plan, seed).run_well();
            assert!(session.outcomes().all(is_committed), "seed {seed}, {files_max} files, {chunks_max} chunks");
        }
    }
}
