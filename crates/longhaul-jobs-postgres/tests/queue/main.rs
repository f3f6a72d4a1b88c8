//! The queue in PostgreSQL: that it answers as the store in memory does, gives each shard once to
//! many movers while the server is killed under them, and refuses what is none of its own.
//!
//! In: servers of their own. Out: their rows. Must not know statements.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make files of their own, and stop at the first failure"
)]

mod fleet;
mod lost;
#[path = "../../../longhaul-jobs-sqlite/tests/queue/pair.rs"]
mod pair;
mod places;
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
#[path = "../../../../tests/fixture/postgres.rs"]
mod postgres;
#[path = "../../../longhaul-jobs-sqlite/tests/queue/random.rs"]
mod random;
mod same;

use longhaul_jobs_postgres::{Passwords, Place, PostgresError, PostgresStore};

/// A store of a URL, which is made if it is not there.
fn open(url: &str) -> Result<PostgresStore, PostgresError> {
    PostgresStore::open_or_make(&Place::parse(url)?, &Passwords::default())
}
