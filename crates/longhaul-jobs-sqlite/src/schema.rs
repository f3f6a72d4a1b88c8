//! The tables, and how a file comes to the present version of them.
//!
//! In: a connection. Out: the tables, or an error for a file that is another's or a newer one's.
//! Must not know rows.
//!
//! `user_version` is the number of migrations that the file has been through; each is a
//! transaction together with its number. A migration is never changed once it was released: the
//! next one is appended. A shard is a row, and so is a file that failed; a file that stands is
//! none. Times are microseconds since 1970, rates are bytes/s, ids of movers and claims are 16
//! bytes.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::SqliteError;

/// The migrations, in their order.
pub(crate) const MIGRATIONS: [&str; 7] = [FIRST, SECOND, THIRD, SIGNATURES, SITES, VERIFICATIONS, COMMITS];

/// `lhjq`, by which a file of ours is known.
const APPLICATION_ID: i64 = 0x6c68_6a71;

const FIRST: &str = "
CREATE TABLE number (one INTEGER PRIMARY KEY CHECK (one = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO number VALUES (1, 0);

CREATE TABLE campaign (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL, name TEXT NOT NULL UNIQUE, state INTEGER NOT NULL,
    priority INTEGER NOT NULL, weight INTEGER NOT NULL, deadline INTEGER, calendar TEXT NOT NULL,
    retry TEXT NOT NULL, spec BLOB NOT NULL
) STRICT;

CREATE TABLE segment (
    campaign INTEGER NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL, files INTEGER NOT NULL,
    bytes INTEGER NOT NULL, PRIMARY KEY (campaign, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE site (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, movers_in INTEGER NOT NULL, movers_out INTEGER NOT NULL
) STRICT;

CREATE TABLE link (
    id INTEGER PRIMARY KEY, site_from INTEGER NOT NULL, site_to INTEGER NOT NULL, movers INTEGER NOT NULL,
    rate INTEGER, calendar TEXT NOT NULL, state INTEGER NOT NULL, reason TEXT, failures INTEGER NOT NULL,
    pause_until INTEGER NOT NULL, mismatches INTEGER NOT NULL, meter_since INTEGER NOT NULL,
    meter_bytes INTEGER NOT NULL, meter_rate INTEGER NOT NULL
) STRICT;

CREATE TABLE share (
    campaign INTEGER NOT NULL, link INTEGER NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (campaign, link)
) STRICT, WITHOUT ROWID;

CREATE TABLE shard (
    id INTEGER PRIMARY KEY, campaign INTEGER NOT NULL, link INTEGER NOT NULL, segment INTEGER NOT NULL,
    entry_first INTEGER NOT NULL, entry_end INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
    done_files INTEGER NOT NULL, done_bytes INTEGER NOT NULL, failed_files INTEGER NOT NULL,
    failed_bytes INTEGER NOT NULL, state INTEGER NOT NULL, mover BLOB, lease_until INTEGER, hold TEXT,
    rank INTEGER NOT NULL, not_before INTEGER NOT NULL, again INTEGER NOT NULL, lapses INTEGER NOT NULL,
    breaks INTEGER NOT NULL, fence INTEGER NOT NULL, claim BLOB NOT NULL, moved INTEGER NOT NULL,
    judged INTEGER NOT NULL
) STRICT;
CREATE INDEX shard_planned ON shard (campaign, link, id) WHERE state = 0;
CREATE INDEX shard_ready ON shard (link, rank, id) WHERE state = 1;
CREATE INDEX shard_leased ON shard (id) WHERE state = 2;
CREATE INDEX shard_state ON shard (campaign, state, id);

CREATE TABLE permit (
    kind INTEGER NOT NULL, place INTEGER NOT NULL, slot INTEGER NOT NULL, shard INTEGER NOT NULL,
    fence INTEGER NOT NULL, claim BLOB NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (kind, place, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX permit_shard ON permit (shard);

CREATE TABLE fault (
    shard INTEGER NOT NULL, path BLOB NOT NULL, campaign INTEGER NOT NULL, bytes INTEGER NOT NULL,
    code TEXT NOT NULL, blame TEXT NOT NULL, message TEXT NOT NULL, given_up INTEGER NOT NULL,
    tries INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (shard, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX fault_campaign ON fault (campaign, code, given_up, bytes);

CREATE TABLE leader (
    one INTEGER PRIMARY KEY CHECK (one = 1), term INTEGER NOT NULL, holder BLOB NOT NULL, until INTEGER NOT NULL
) STRICT;
";

/// Shards that were moved without a claim, and names that could not be read while a campaign was
/// planned.
const SECOND: &str = "
ALTER TABLE shard ADD COLUMN unclaimed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE campaign ADD COLUMN omitted INTEGER NOT NULL DEFAULT 0;
CREATE TABLE omitted (
    campaign INTEGER NOT NULL, source INTEGER NOT NULL, object TEXT NOT NULL, code TEXT NOT NULL,
    message TEXT NOT NULL, PRIMARY KEY (campaign, source, object)
) STRICT, WITHOUT ROWID;
";

/// Hooks, and what they are to be told.
const THIRD: &str = "
ALTER TABLE campaign ADD COLUMN hooks TEXT NOT NULL DEFAULT '';
CREATE TABLE notice (
    number INTEGER PRIMARY KEY, hook TEXT NOT NULL, campaign INTEGER NOT NULL, kind INTEGER NOT NULL,
    shard INTEGER, link INTEGER, fence INTEGER, state TEXT NOT NULL, total_files INTEGER NOT NULL,
    total_bytes INTEGER NOT NULL, done_files INTEGER NOT NULL, done_bytes INTEGER NOT NULL,
    failed_files INTEGER NOT NULL, failed_bytes INTEGER NOT NULL, code TEXT, at INTEGER NOT NULL,
    given_up INTEGER NOT NULL, tries INTEGER NOT NULL, not_before INTEGER NOT NULL, taker BLOB NOT NULL,
    failure TEXT
) STRICT;
CREATE INDEX notice_due ON notice (hook, number) WHERE given_up = 0;
CREATE INDEX notice_campaign ON notice (campaign, number);
";

/// The signatures of campaigns, and the id by which they know the queue.
const SIGNATURES: &str = "
CREATE TABLE queue_id (one INTEGER PRIMARY KEY CHECK (one = 1), id BLOB NOT NULL) STRICT;
CREATE TABLE signature (
    campaign INTEGER PRIMARY KEY, owner BLOB NOT NULL, at INTEGER NOT NULL, spec BLOB NOT NULL, roots BLOB,
    manifest BLOB
) STRICT;
";

/// The sites of hosts.
const SITES: &str = "CREATE TABLE site_above (host INTEGER PRIMARY KEY, above INTEGER NOT NULL) STRICT";

/// The readings of shards at their destinations, and the files that are bad there.
const VERIFICATIONS: &str = "
CREATE TABLE verification (
    shard INTEGER PRIMARY KEY, campaign INTEGER NOT NULL, last INTEGER NOT NULL, entry INTEGER NOT NULL,
    claim BLOB NOT NULL, until INTEGER NOT NULL, failed INTEGER NOT NULL, unlisted_kind INTEGER NOT NULL,
    unlisted_files INTEGER NOT NULL, unlisted_bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE bad_file (
    shard INTEGER NOT NULL, path BLOB NOT NULL, campaign INTEGER NOT NULL, files INTEGER NOT NULL,
    bytes INTEGER NOT NULL, kind INTEGER NOT NULL, message TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, PRIMARY KEY (shard, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX bad_file_campaign ON bad_file (campaign, shard);
";

/// The commits of campaigns: one of each at most, found without a look at its other shards.
const COMMITS: &str = "CREATE UNIQUE INDEX shard_commit ON shard (campaign) WHERE segment = 9223372036854775807";

/// Whether the file is new or ours, and not newer than this program. It reads, and writes nothing.
pub(crate) fn check(connection: &Connection, path: &Path, known: usize) -> Result<(), SqliteError> {
    let failed = |source| SqliteError::failed(path, "it cannot be read", source);
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, found) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    let is_new = application == 0 && found == 0 && tables == 0;
    if application != APPLICATION_ID && !is_new {
        return Err(SqliteError::Foreign { path: path.to_owned() });
    }
    if found < 0 || found > known as i64 {
        return Err(SqliteError::Newer { path: path.to_owned(), found, known: known as i64 });
    }
    Ok(())
}

/// Carries out the migrations that the file has not been through. Of several processes that open it
/// at once, one does.
pub(crate) fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), SqliteError> {
    let failed = |source| SqliteError::failed(path, "its schema cannot be brought up to date", source);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    check(&transaction, path, migrations.len())?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    for migration in migrations.iter().skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    if (found as usize) < migrations.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        transaction.pragma_update(None, "user_version", migrations.len() as i64).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests;
