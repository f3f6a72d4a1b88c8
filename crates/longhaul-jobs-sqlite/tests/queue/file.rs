//! The file itself: how it is kept, and which files are refused.
//!
//! In: files of this program, of a later one and of others. Out: stores and errors. Must not know
//! rows.

use longhaul_jobs::Store;
use longhaul_jobs_sqlite::{SqliteError, SqliteStore};
use rusqlite::Connection;

use crate::random::begin;

#[test]
fn a_commit_is_seen_by_others_who_have_the_file_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let mut other = SqliteStore::open(&path).unwrap();
    let (_, campaigns) = store.transact(|rows| begin(rows, 2, 3)).unwrap();
    let seen = other.transact(|rows| rows.campaigns()).unwrap();
    assert_eq!(seen.iter().map(|campaign| campaign.id).collect::<Vec<_>>(), campaigns);
    let plain = Connection::open(&path).unwrap();
    let mode: String = plain.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    store.check().unwrap();
}

#[test]
fn a_transaction_that_fails_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&directory.path().join("queue.db")).unwrap();
    let failed = store.transact(|rows| {
        begin(rows, 1, 1)?;
        begin(rows, 1, 1)
    });
    assert!(failed.unwrap_err().to_string().contains("already"));
    assert_eq!(store.transact(|rows| rows.campaigns()).unwrap(), []);
}

#[test]
fn files_of_other_programs_and_of_newer_ones_are_refused_and_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    drop(SqliteStore::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = SqliteStore::open(&path).err().unwrap();
    assert!(matches!(newer, SqliteError::Newer { found: 99, .. }), "{newer}");
    assert!(newer.to_string().contains("queue.db"));
    let theirs = directory.path().join("theirs.db");
    Connection::open(&theirs).unwrap().execute("CREATE TABLE theirs (id INTEGER)", []).unwrap();
    let before = std::fs::read(&theirs).unwrap();
    let foreign = SqliteStore::open(&theirs).err().unwrap();
    assert!(matches!(foreign, SqliteError::Foreign { .. }), "{foreign}");
    assert!(std::fs::read(&theirs).unwrap() == before);
    let text = directory.path().join("text");
    std::fs::write(&text, "no database at all, but a text that is long enough").unwrap();
    let refused = SqliteStore::open(&text).err().unwrap();
    assert!(refused.to_string().contains("not a database"), "{refused}");
}
