//! The file of a program with an older version of the schema.
//!
//! In: `golden/queue-1.sql`. Out: its campaign, done. Must not know rules.

use longhaul_jobs_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::continued::{LATER, finish_half_done};

#[test]
fn a_campaign_that_version_1_left_half_done_is_finished_by_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    let version =
        |file: &Connection| file.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap();
    let file = Connection::open(&path).unwrap();
    file.execute_batch(include_str!("golden/queue-1.sql")).unwrap();
    assert_eq!(version(&file), 1);
    let mut store = SqliteStore::open_with_clock(&path, Box::new(|| LATER)).unwrap();
    assert!(version(&file) > 1, "it was brought up to date");
    finish_half_done(&mut store);
    store.check().unwrap();
}
