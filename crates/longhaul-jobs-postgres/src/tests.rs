//! The statements and the migrations, before a real server.
//!
//! Takes a server of its own; gives tests. Must not know a rule.

#[path = "../../longhaul-jobs-sqlite/tests/queue/continued.rs"]
mod continued;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[allow(clippy::disallowed_methods, reason = "a server has a directory of its own")]
#[path = "../../../tests/fixture/postgres.rs"]
mod postgres;

use postgres::Postgres;

use super::*;
use crate::error::words_of;
use crate::schema::MIGRATIONS;

fn place(server: &Postgres) -> Place {
    Place::parse(&server.url("postgres")).unwrap()
}

#[test]
fn the_server_understands_every_statement() {
    let server = Postgres::start();
    drop(PostgresStore::open_or_make(&place(&server), &Passwords::default()).unwrap());
    let dialling = place(&server).dialling(&Passwords::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = dialling.config.connect(dialling.sealer).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET search_path TO longhaul").await.unwrap();
        for statement in Statement::ALL {
            let prepared = client.prepare(statement.text()).await;
            prepared.unwrap_or_else(|error| panic!("{statement:?}: {}", words_of(&error)));
        }
    });
}

#[test]
fn a_schema_of_this_version_is_continued_by_the_next_one_and_refused_by_this_one_afterwards() {
    let server = Postgres::start();
    let mut store = PostgresStore::open_or_make(&place(&server), &Passwords::default()).unwrap();
    let site =
        longhaul_jobs::Site { id: longhaul_jobs::SiteId(7), name: "here".to_owned(), movers_in: 1, movers_out: 1 };
    store.transact(|rows| rows.put_site(&site)).unwrap();
    let next: Vec<&str> = MIGRATIONS.into_iter().chain(["ALTER TABLE shard ADD COLUMN colour text"]).collect();
    let broken: Vec<&str> = next.iter().copied().chain(["CREATE TABLE a (b text); CREATE TABLE a (b text)"]).collect();
    schema::open(&store.connection, Absent::Refuse, &broken).unwrap_err();
    let known = MIGRATIONS.len();
    assert_eq!(server.sql("postgres", "SELECT version FROM longhaul.queue_version"), known.to_string());
    schema::open(&store.connection, Absent::Refuse, &next).unwrap();
    assert_eq!(store.transact(|rows| rows.site(site.id)).unwrap(), Some(site));
    assert_eq!(server.sql("postgres", "SELECT count(colour) FROM longhaul.shard"), "0");
    let refused = PostgresStore::open(&place(&server), &Passwords::default()).err().unwrap();
    let newer = Refusal::Newer { found: known as i64 + 1, known: known as i64 };
    assert!(matches!(&refused, PostgresError::Refused { refusal, .. } if *refusal == newer), "{refused}");
}

#[test]
fn a_campaign_that_version_1_left_half_done_is_finished_by_this_one_and_by_the_next() {
    let server = Postgres::start();
    let next: Vec<&str> = MIGRATIONS.into_iter().chain(["ALTER TABLE shard ADD COLUMN colour text"]).collect();
    for migrations in [&MIGRATIONS[..], &next] {
        server.sql("postgres", "DROP SCHEMA IF EXISTS longhaul CASCADE");
        server.load("postgres", include_str!("golden/queue-1.sql"));
        assert_eq!(server.sql("postgres", "SELECT version FROM longhaul.queue_version"), "1");
        let store = PostgresStore::open(&place(&server), &Passwords::default()).unwrap();
        schema::open(&store.connection, Absent::Refuse, migrations).unwrap();
        let version = server.sql("postgres", "SELECT version FROM longhaul.queue_version");
        assert_eq!(version, migrations.len().to_string());
        continued::finish_half_done(&mut store.with_clock(Box::new(|| continued::LATER)));
    }
}

#[test]
fn a_campaign_that_this_version_left_half_done_is_finished_by_the_next() {
    let server = Postgres::start();
    server.load("postgres", include_str!("golden/queue-1.sql"));
    let store = PostgresStore::open(&place(&server), &Passwords::default()).unwrap();
    schema::open(&store.connection, Absent::Refuse, &MIGRATIONS).unwrap();
    let mut store = store.with_clock(Box::new(|| continued::LATER));
    continued::leave_half_done(&mut store);
    let next: Vec<&str> = MIGRATIONS.into_iter().chain(["ALTER TABLE shard ADD COLUMN colour text"]).collect();
    schema::open(&store.connection, Absent::Refuse, &next).unwrap();
    continued::finish_rest(&mut store.with_clock(Box::new(|| continued::LATER_STILL)));
}

#[test]
fn a_migration_has_an_hour_and_rules_have_seconds_whatever_the_server_allows() {
    let server = Postgres::start();
    server.sql("postgres", "ALTER DATABASE postgres SET statement_timeout = '1s'");
    let seen = "CREATE TABLE seen AS SELECT current_setting('statement_timeout') AS statement,
        current_setting('lock_timeout') AS lock";
    let mut store = PostgresStore::open_or_make(&place(&server), &Passwords::default()).unwrap();
    let next: Vec<&str> = MIGRATIONS.into_iter().chain([seen, "SELECT pg_sleep(2)"]).collect();
    schema::open(&store.connection, Absent::Refuse, &next).unwrap();
    assert_eq!(server.sql("postgres", "SELECT statement, lock FROM longhaul.seen"), "1h|1h");
    store.transact(|rows| rows.sites()).unwrap();
    store
        .begin("READ COMMITTED", "CREATE TABLE longhaul.later AS SELECT current_setting('lock_timeout') AS lock")
        .unwrap();
    store.connection.batch("COMMIT").unwrap();
    assert_eq!(server.sql("postgres", "SELECT lock FROM longhaul.later"), "10s");
}

#[test]
fn a_migration_waits_for_transactions_that_came_first() {
    let server = Postgres::start();
    let mut store = PostgresStore::open_or_make(&place(&server), &Passwords::default()).unwrap();
    let next: Vec<&str> = MIGRATIONS.into_iter().chain(["ALTER TABLE site ADD COLUMN colour text"]).collect();
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let other = store.beside().unwrap();
        let migrated = scope.spawn(|| {
            begun.wait();
            let connection = other.connection;
            schema::open(&connection, Absent::Refuse, &next).unwrap();
        });
        let mut first = true;
        let held = store.transact(|rows| {
            rows.sites()?;
            if std::mem::take(&mut first) {
                begun.wait();
                // The migration waits for this transaction, and not this one for it.
                let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ExclusiveLock'";
                let until = Instant::now() + Duration::from_secs(10);
                while server.sql("postgres", waits) != "1" {
                    assert!(Instant::now() < until, "the migration does not wait for its turn");
                }
            }
            rows.links().map(|links| links.len())
        });
        assert_eq!(held.unwrap(), 0);
        migrated.join().unwrap();
    });
}

#[test]
fn a_store_beside_another_one_does_not_wait_for_its_transaction() {
    let server = Postgres::start();
    let mut store = PostgresStore::open_or_make(&place(&server), &Passwords::default()).unwrap();
    let mut beside = store.beside().unwrap();
    let site =
        |at| longhaul_jobs::Site { id: longhaul_jobs::SiteId(at), name: String::new(), movers_in: 1, movers_out: 1 };
    store
        .transact(|rows| {
            rows.put_site(&site(1))?;
            beside.transact(|rows| rows.put_site(&site(2)))
        })
        .unwrap();
    assert_eq!(store.transact(|rows| rows.sites()).unwrap(), [site(1), site(2)]);
}

#[test]
fn a_rule_that_panics_leaves_no_transaction_open() {
    let server = Postgres::start();
    let mut store = PostgresStore::open_or_make(&place(&server), &Passwords::default()).unwrap();
    let site =
        |at| longhaul_jobs::Site { id: longhaul_jobs::SiteId(at), name: String::new(), movers_in: 1, movers_out: 1 };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.transact(|rows| {
            rows.put_site(&site(1))?;
            assert!(rows.sites()?.is_empty(), "a rule panics");
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    store.transact(|rows| rows.put_site(&site(2))).unwrap();
    let sites = store.transact(|rows| rows.sites()).unwrap();
    assert_eq!(sites, [site(2)]);
}
