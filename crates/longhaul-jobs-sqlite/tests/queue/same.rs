//! The file and the store in memory, side by side.
//!
//! In: files in directories of their own. Out: the first difference. Must not know a rule.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_jobs::{Micros, ShardKind};
use longhaul_jobs_sqlite::SqliteStore;

use crate::pair::{START, play};

#[test]
fn each_rule_answers_over_the_file_as_over_the_store_in_memory() {
    let mut kinds = BTreeSet::new();
    for seed in 0..8 {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicU64::new(START));
        let shown = Arc::clone(&clock);
        let clock_of_file = Box::new(move || Micros(shown.load(Ordering::Relaxed)));
        let file = SqliteStore::open_with_clock(&directory.path().join("queue.db"), clock_of_file).unwrap();
        kinds.extend(play(seed, file, clock));
    }
    assert_eq!(kinds.len(), ShardKind::ALL.len(), "some states were never reached: {kinds:?}");
}
