//! The database and the store in memory, side by side.
//!
//! In: databases of their own. Out: the first difference. Must not know a rule.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_jobs::{Micros, ShardKind};

use crate::open;
use crate::pair::{START, play};
use crate::postgres::Postgres;

#[test]
fn each_rule_answers_over_the_database_as_over_the_store_in_memory() {
    let server = Postgres::start();
    let mut kinds = BTreeSet::new();
    for seed in 0..8 {
        let clock = Arc::new(AtomicU64::new(START));
        let shown = Arc::clone(&clock);
        let clock_of_store = Box::new(move || Micros(shown.load(Ordering::Relaxed)));
        let store = open(&format!("{}?schema=seed{seed}", server.url("postgres"))).unwrap();
        kinds.extend(play(seed, store.with_clock(clock_of_store), clock));
    }
    assert_eq!(kinds.len(), ShardKind::ALL.len(), "some states were never reached: {kinds:?}");
}
