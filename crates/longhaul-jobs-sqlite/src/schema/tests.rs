//! Files of older versions of the schema, of this one and of the next.
//!
//! In: files in memory, the one of `golden/queue-1.sql` among them. Out: verdicts on `schema`. Must
//! not know rules.

#[path = "../../tests/queue/continued.rs"]
mod continued;

use longhaul_jobs::Micros;

use super::*;
use crate::SqliteStore;
use continued::{LATER, LATER_STILL};

/// The version behind the present one, as the next program might bring it.
const NEXT: [&str; 8] =
    [FIRST, SECOND, THIRD, SIGNATURES, SITES, VERIFICATIONS, COMMITS, "ALTER TABLE shard ADD COLUMN colour TEXT"];

#[test]
fn a_file_of_this_version_is_continued_by_the_next_one_and_refused_by_this_one_afterwards() {
    let mut connection = Connection::open_in_memory().unwrap();
    let path = Path::new("queue.db");
    migrate(&mut connection, path, &MIGRATIONS).unwrap();
    let site = "INSERT INTO site VALUES (7, 'here', 1, 1)";
    connection.execute(site, []).unwrap();
    migrate(&mut connection, path, &NEXT).unwrap();
    let kept: i64 = connection.query_row("SELECT id FROM site", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 7);
    connection.prepare("SELECT colour FROM shard").unwrap();
    let refused = migrate(&mut connection, path, &MIGRATIONS).unwrap_err();
    assert!(matches!(refused, SqliteError::Newer { found: 8, known: 7, .. }), "{refused}");
}

#[test]
fn a_migration_that_fails_leaves_the_file_as_it_was() {
    let mut connection = Connection::open_in_memory().unwrap();
    let path = Path::new("queue.db");
    let broken = [FIRST, "CREATE TABLE colour (id INTEGER); CREATE TABLE colour (id INTEGER)"];
    migrate(&mut connection, path, &broken).unwrap_err();
    assert!(connection.is_autocommit());
    migrate(&mut connection, path, &MIGRATIONS).unwrap();
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute("CREATE TABLE theirs (id INTEGER)", []).unwrap();
    let refused = migrate(&mut connection, Path::new("queue.db"), &MIGRATIONS).unwrap_err();
    assert!(matches!(refused, SqliteError::Foreign { .. }), "{refused}");
}

/// A campaign that a program with version 1 left half done.
fn half_done() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("../../tests/queue/golden/queue-1.sql")).unwrap();
    connection
}

/// The queue in a file whatever its version, at a time.
fn store(connection: Connection, now: Micros) -> SqliteStore {
    SqliteStore { connection, path: "queue.db".into(), clock: Box::new(move || now) }
}

/// Rows of the tables that each version added, as a program of that version may have left them: the
/// version, the table and its row.
const ADDED: [(usize, &str, &str); 6] = [
    (2, "omitted", "1, 0, 'name', 'denied', 'it cannot be read'"),
    (
        3,
        "notice",
        "90, 'told', 1, 0, 5, 3, 1, 'done', 3, 120000, 3, 120000, 0, 0, NULL, 1795937400000000, 1, 0, 0, \
         zeroblob(16), NULL",
    ),
    (4, "queue_id", "1, zeroblob(16)"),
    (4, "signature", "1, zeroblob(32), 1, zeroblob(64), NULL, NULL"),
    (5, "site_above", "2, 20"),
    (6, "verification", "5, 1, 1795937400000000, 0, zeroblob(16), 0, 0, 0, 0, 0"),
];

#[test]
fn a_campaign_that_any_version_left_half_done_is_finished_by_this_one_and_by_the_next() {
    let path = Path::new("queue.db");
    for version in 1..=MIGRATIONS.len() {
        for migrations in [&MIGRATIONS[..], &NEXT] {
            let mut connection = half_done();
            migrate(&mut connection, path, &MIGRATIONS[..version]).unwrap();
            let added = || ADDED.into_iter().filter(|(since, ..)| *since <= version);
            for (_, table, row) in added() {
                connection.execute(&format!("INSERT INTO {table} VALUES ({row})"), []).unwrap();
            }
            // The site that a host is said to belong to.
            connection.execute("INSERT INTO site VALUES (20, 'all of them', 9, 9)", []).unwrap();
            migrate(&mut connection, path, migrations).unwrap();
            let mut store = store(connection, LATER);
            continued::finish_half_done(&mut store);
            store.check().unwrap();
            for (_, table, _) in added() {
                let query = format!("SELECT count(*) FROM {table}");
                let rows: i64 = store.connection.query_row(&query, [], |row| row.get(0)).unwrap();
                assert_eq!(rows, 1, "{table} of version {version}");
            }
        }
    }
}

#[test]
fn a_campaign_that_this_version_left_half_done_is_finished_by_the_next() {
    let mut connection = half_done();
    migrate(&mut connection, Path::new("queue.db"), &MIGRATIONS).unwrap();
    let mut before = store(connection, LATER);
    continued::leave_half_done(&mut before);
    let mut connection = before.connection;
    migrate(&mut connection, Path::new("queue.db"), &NEXT).unwrap();
    let mut after = store(connection, LATER_STILL);
    continued::finish_rest(&mut after);
    after.check().unwrap();
}
