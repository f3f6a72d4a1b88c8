//! The tables, and how a schema comes to the present version of them.
//!
//! In: a connection. Out: the tables, or an error for a schema that is another's or a newer one's.
//! Must not know rows.
//!
//! The queue has a schema of its own in the database. `queue_version` is the number of migrations
//! that it has been through; all that are missing are one transaction, together with their number,
//! which may take an hour.
//! A migration is never changed once it was released: the next one is appended. The columns are
//! those of the queue's file: times are microseconds since 1970, rates are bytes/s, ids of movers
//! and claims are 16 bytes. Paths are longer than an index may have entries, so indexes have their
//! digests.

use longhaul_jobs::JobsError;
use longhaul_jobs::columns::Cells;
use tokio_postgres::Row;

use crate::connection::{Connection, Value, quoted};
use crate::error::{Failure, Refusal};
use crate::rows::RowCells;
use crate::statements::Statement;

/// The migrations, in their order.
pub(crate) const MIGRATIONS: [&str; 6] = [FIRST, SECOND, SIGNATURES, SITES, VERIFICATIONS, COMMITS];

/// The lock of those who bring a schema up to date: `lhjq`.
const MIGRATION_LOCK: i64 = 0x6c68_6a71;
/// The lock of transactions that are at work beside each other. A copy of the database by `pg_dump`
/// is in the way of neither lock.
pub(crate) const BESIDE_OTHERS: &str = "LOCK TABLE turn IN ROW SHARE MODE";
/// The lock of a transaction that is at work alone: it waits for the others, and keeps new ones
/// waiting.
pub(crate) const ALONE: &str = "LOCK TABLE turn IN EXCLUSIVE MODE";
/// `sha256` is there from this version on, and servers from it on are tested.
const SERVER_VERSION_MIN: i64 = 120_000;

const FIRST: &str = r#"
CREATE TABLE queue_version (one bigint PRIMARY KEY CHECK (one = 1), version bigint NOT NULL);
CREATE TABLE turn (one bigint PRIMARY KEY);
CREATE TABLE mark (store bytea PRIMARY KEY, token bytea NOT NULL, at timestamptz NOT NULL) WITH (fillfactor = 50);
CREATE SEQUENCE number AS bigint;

CREATE TABLE campaign (
    id bigint PRIMARY KEY, key bytea NOT NULL, name text COLLATE "C" NOT NULL UNIQUE, state bigint NOT NULL,
    priority bigint NOT NULL, weight bigint NOT NULL, deadline bigint, calendar text NOT NULL,
    retry text NOT NULL, spec bytea NOT NULL, omitted bigint NOT NULL
);

CREATE TABLE segment (
    campaign bigint NOT NULL, number bigint NOT NULL, digest bytea NOT NULL, files bigint NOT NULL,
    bytes bigint NOT NULL, PRIMARY KEY (campaign, number)
);

CREATE TABLE omitted (
    campaign bigint NOT NULL, source bigint NOT NULL, object bytea NOT NULL, code text NOT NULL,
    message text NOT NULL
);
CREATE UNIQUE INDEX omitted_object ON omitted (campaign, source, sha256(object));

CREATE TABLE site (
    id bigint PRIMARY KEY, name text NOT NULL, movers_in bigint NOT NULL, movers_out bigint NOT NULL
);

CREATE TABLE link (
    id bigint PRIMARY KEY, site_from bigint NOT NULL, site_to bigint NOT NULL, movers bigint NOT NULL,
    rate bigint, calendar text NOT NULL, state bigint NOT NULL, reason text, failures bigint NOT NULL,
    pause_until bigint NOT NULL, mismatches bigint NOT NULL, meter_since bigint NOT NULL,
    meter_bytes bigint NOT NULL, meter_rate bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE share (
    campaign bigint NOT NULL, link bigint NOT NULL, used bigint NOT NULL, PRIMARY KEY (campaign, link)
);

CREATE TABLE shard (
    id bigint PRIMARY KEY, campaign bigint NOT NULL, link bigint NOT NULL, segment bigint NOT NULL,
    entry_first bigint NOT NULL, entry_end bigint NOT NULL, files bigint NOT NULL, bytes bigint NOT NULL,
    done_files bigint NOT NULL, done_bytes bigint NOT NULL, failed_files bigint NOT NULL,
    failed_bytes bigint NOT NULL, state bigint NOT NULL, mover bytea, lease_until bigint, hold text,
    rank bigint NOT NULL, not_before bigint NOT NULL, again bigint NOT NULL, lapses bigint NOT NULL,
    breaks bigint NOT NULL, fence bigint NOT NULL, claim bytea NOT NULL, moved bigint NOT NULL,
    judged bigint NOT NULL, unclaimed bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX shard_planned ON shard (campaign, link, id) WHERE state = 0;
CREATE INDEX shard_ready ON shard (link, rank, id) WHERE state = 1;
CREATE INDEX shard_leased ON shard (id) WHERE state = 2;
CREATE INDEX shard_state ON shard (campaign, state, id);

CREATE TABLE permit (
    kind bigint NOT NULL, place bigint NOT NULL, slot bigint NOT NULL, shard bigint NOT NULL,
    fence bigint NOT NULL, claim bytea NOT NULL, until bigint NOT NULL, PRIMARY KEY (kind, place, slot)
) WITH (fillfactor = 50);
CREATE INDEX permit_shard ON permit (shard);

CREATE TABLE fault (
    shard bigint NOT NULL, path bytea NOT NULL, campaign bigint NOT NULL, bytes bigint NOT NULL,
    code text COLLATE "C" NOT NULL, blame text NOT NULL, message text NOT NULL, given_up bigint NOT NULL,
    tries bigint NOT NULL, first bigint NOT NULL, last bigint NOT NULL
);
CREATE UNIQUE INDEX fault_path ON fault (shard, sha256(path));
CREATE INDEX fault_campaign ON fault (campaign, code, given_up, bytes);

CREATE TABLE leader (
    one bigint PRIMARY KEY CHECK (one = 1), term bigint NOT NULL, holder bytea NOT NULL, until bigint NOT NULL
) WITH (fillfactor = 50);
"#;

/// Hooks, and what they are to be told.
const SECOND: &str = r#"
ALTER TABLE campaign ADD COLUMN hooks text NOT NULL DEFAULT '';
CREATE TABLE notice (
    number bigint PRIMARY KEY, hook text COLLATE "C" NOT NULL, campaign bigint NOT NULL, kind bigint NOT NULL,
    shard bigint, link bigint, fence bigint, state text NOT NULL, total_files bigint NOT NULL,
    total_bytes bigint NOT NULL, done_files bigint NOT NULL, done_bytes bigint NOT NULL,
    failed_files bigint NOT NULL, failed_bytes bigint NOT NULL, code text, at bigint NOT NULL,
    given_up bigint NOT NULL, tries bigint NOT NULL, not_before bigint NOT NULL, taker bytea NOT NULL,
    failure text
);
CREATE INDEX notice_due ON notice (hook, number) WHERE given_up = 0;
CREATE INDEX notice_campaign ON notice (campaign, number);
"#;

/// The signatures of campaigns, and the id by which they know the queue.
const SIGNATURES: &str = r#"
CREATE TABLE queue_id (one bigint PRIMARY KEY CHECK (one = 1), id bytea NOT NULL);
CREATE TABLE signature (
    campaign bigint PRIMARY KEY, owner bytea NOT NULL, at bigint NOT NULL, spec bytea NOT NULL, roots bytea,
    manifest bytea
);
"#;

/// The sites of hosts.
const SITES: &str = "CREATE TABLE site_above (host bigint PRIMARY KEY, above bigint NOT NULL)";

/// The readings of shards at their destinations, and the files that are bad there.
const VERIFICATIONS: &str = r#"
CREATE TABLE verification (
    shard bigint PRIMARY KEY, campaign bigint NOT NULL, last bigint NOT NULL, entry bigint NOT NULL,
    claim bytea NOT NULL, until bigint NOT NULL, failed bigint NOT NULL, unlisted_kind bigint NOT NULL,
    unlisted_files bigint NOT NULL, unlisted_bytes bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE bad_file (
    shard bigint NOT NULL, path bytea NOT NULL, campaign bigint NOT NULL, files bigint NOT NULL,
    bytes bigint NOT NULL, kind bigint NOT NULL, message text NOT NULL, first bigint NOT NULL,
    last bigint NOT NULL
);
CREATE UNIQUE INDEX bad_file_path ON bad_file (shard, sha256(path));
CREATE INDEX bad_file_campaign ON bad_file (campaign, shard);
"#;

/// The commits of campaigns: one of each at most, found without a look at its other shards.
const COMMITS: &str = "CREATE UNIQUE INDEX shard_commit ON shard (campaign) WHERE segment = 9223372036854775807";

/// The way with a schema that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It is made.
    Make,
    /// It is an error.
    Refuse,
}

/// A schema as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// There is none.
    Nothing,
    /// An administrator made it for the queue.
    Empty,
    /// It has been through so many migrations.
    Version(i64),
}

/// Brings the schema up to date, unless it is.
pub(crate) fn open(connection: &Connection, absent: Absent, migrations: &[&str]) -> Result<(), Failure> {
    check_server(connection)?;
    connection.begin(&read_committed(connection))?;
    let found = look(connection, migrations.len());
    connection.end(&found)?;
    match (found?, absent) {
        (Found::Version(version), _) if version == migrations.len() as i64 => return Ok(()),
        (Found::Nothing | Found::Empty, Absent::Refuse) => return Err(connection.refused(Refusal::Missing)),
        _ => {}
    }
    connection.begin(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", connection.settings_of_migration()))?;
    let migrated = migrate(connection, migrations);
    connection.end(&migrated)?;
    migrated
}

/// Refuses servers that cannot keep a queue.
fn check_server(connection: &Connection) -> Result<(), Failure> {
    connection.begin(&read_committed(connection))?;
    let looked = connection.query(Statement::LookAtServer, Vec::new());
    connection.end(&looked)?;
    let rows = looked?;
    let mut cells = first(connection, &rows)?;
    let version = value(connection, cells.number())?;
    let (encoding, recovers) = (value(connection, cells.text())?, value(connection, cells.number())?);
    if version < SERVER_VERSION_MIN {
        return Err(connection.refused(Refusal::OldServer));
    }
    if encoding != "UTF8" {
        return Err(connection.refused(Refusal::Encoding));
    }
    if recovers != 0 {
        return Err(connection.refused(Refusal::Standby));
    }
    Ok(())
}

fn look(connection: &Connection, known: usize) -> Result<Found, Failure> {
    let name = vec![Value::text(connection.schema())];
    let rows = connection.query(Statement::LookAtSchema, name)?;
    let mut cells = first(connection, &rows)?;
    let mut count = || value(connection, cells.number());
    match (count()?, count()?, count()?, count()?) {
        (0, ..) => return Ok(Found::Nothing),
        (_, 0, ..) => return Err(connection.denied("permission denied for its schema")),
        (_, _, 0, _) => return Ok(Found::Empty),
        (_, _, _, 0) => return Err(connection.refused(Refusal::Foreign)),
        _ => {}
    }
    let rows = connection.query(Statement::QueueVersion, Vec::new())?;
    if rows.is_empty() {
        return Err(connection.refused(Refusal::Foreign));
    }
    let (found, known) = (value(connection, first(connection, &rows)?.number())?, known as i64);
    if found < 0 || found > known {
        return Err(connection.refused(Refusal::Newer { found, known }));
    }
    Ok(Found::Version(found))
}

fn first<'a>(connection: &Connection, rows: &'a [Row]) -> Result<RowCells<'a>, Failure> {
    rows.first().map(RowCells::of).ok_or_else(|| connection.odd("an answer has no row"))
}

fn value<T>(connection: &Connection, cell: Result<Option<T>, JobsError>) -> Result<T, Failure> {
    cell.ok().flatten().ok_or_else(|| connection.odd("an answer has no value"))
}

/// Carries out the migrations that the schema has not been through.
fn migrate(connection: &Connection, migrations: &[&str]) -> Result<(), Failure> {
    connection.query_of_migration(Statement::LockMigrations, vec![Value::Number(Some(MIGRATION_LOCK))])?;
    let version = match look(connection, migrations.len())? {
        Found::Version(version) => {
            // Movers that are at work end their transactions, and begin none: tables are locked
            // one after the other below, and theirs the other way round.
            connection.migrate(ALONE)?;
            version
        }
        Found::Empty => 0,
        Found::Nothing => {
            connection.batch(&format!("CREATE SCHEMA {}", quoted(connection.schema())))?;
            0
        }
    };
    for migration in migrations.iter().skip(usize::try_from(version).unwrap_or(usize::MAX)) {
        connection.migrate(migration)?;
    }
    connection.query(Statement::PutQueueVersion, vec![Value::Number(Some(migrations.len() as i64))]).map(drop)
}

/// The beginning of a transaction that sees what others committed meanwhile.
fn read_committed(connection: &Connection) -> String {
    format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", connection.settings())
}
