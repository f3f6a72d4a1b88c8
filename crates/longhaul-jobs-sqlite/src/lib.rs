//! The queue of bulk replication in SQLite: one file in a state directory, with nothing to install.
//!
//! In: the path of the file, a clock, and transactions of the queue's rules. Out: durable rows.
//! A transaction that was committed survives a crash of the process and of the host: WAL, and a
//! sync at each commit. Several processes of one host may have the file open; it must not lie on a
//! network file system. Must not know a rule.
//!
//! The file belongs into a directory that only its user can read: faults name paths.

mod columns;
mod error;
mod rows;
mod schema;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_jobs::{JobsError, Micros, Rows, Store};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

pub use error::SqliteError;

/// The queue in a file.
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    clock: Box<dyn Fn() -> Micros + Send>,
}

/// A transaction waits so long for those of others, of which each takes milliseconds.
const BUSY: Duration = Duration::from_secs(30);
/// Prepared statements that are kept: there are fewer.
const STATEMENTS: usize = 64;

impl SqliteStore {
    /// Opens the file, or makes it, and brings its schema to the present version. Rows have the
    /// time of this host's clock.
    ///
    /// # Errors
    /// [`SqliteError::Newer`] if a newer program made the file, [`SqliteError::Foreign`] if it is
    /// something else, [`SqliteError::NoWal`] if its file system cannot share it, and
    /// [`SqliteError::Failed`].
    pub fn open(path: &Path) -> Result<SqliteStore, SqliteError> {
        SqliteStore::open_with_clock(path, Box::new(host_clock))
    }

    /// Opens the file with another clock.
    ///
    /// # Errors
    /// The errors of [`SqliteStore::open`].
    pub fn open_with_clock(path: &Path, clock: Box<dyn Fn() -> Micros + Send>) -> Result<SqliteStore, SqliteError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let failed = |source| SqliteError::failed(path, "it cannot be opened", source);
        let mut connection = Connection::open_with_flags(in_real_directory(path), flags).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        schema::check(&connection, path, schema::MIGRATIONS.len())?;
        prepare(&connection, path)?;
        schema::migrate(&mut connection, path, &schema::MIGRATIONS)?;
        Ok(SqliteStore { connection, path: path.to_owned(), clock })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks through the whole file for damage.
    ///
    /// # Errors
    /// [`SqliteError::Damaged`] with the first thing that was found, and [`SqliteError::Failed`].
    pub fn check(&self) -> Result<(), SqliteError> {
        let failed = |source| SqliteError::failed(&self.path, "it cannot be checked", source);
        let found: String =
            self.connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(failed)?;
        if found == "ok" { Ok(()) } else { Err(SqliteError::Damaged { path: self.path.clone(), found }) }
    }
}

impl Store for SqliteStore {
    fn transact<T>(&mut self, mut work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError>) -> Result<T, JobsError> {
        let path = &self.path;
        let failed = |doing| move |source| JobsError::store(SqliteError::failed(path, doing, source));
        // It begins with the lock for writing: one that began by reading could not get it behind
        // another's commit.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.map_err(failed("a transaction cannot begin"))?;
        let now = (self.clock)();
        let result = work(&mut rows::SqliteRows::new(&transaction, path, now))?;
        transaction.commit().map_err(failed("a transaction cannot be committed"))?;
        Ok(result)
    }
}

/// The path with the links in its directory followed: SQLite's `NOFOLLOW` refuses a link anywhere
/// in a path, and only the file itself must not be one. A directory that is not there stays as it
/// is written, and SQLite says so.
fn in_real_directory(path: &Path) -> PathBuf {
    let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    match (parent.map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Settings of a connection. WAL lets those who only look go on beside the one that writes; a full
/// sync makes each commit durable, where WAL's default would lose the last ones with the power.
fn prepare(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let failed = |source| SqliteError::failed(path, "it cannot be set up", source);
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(SqliteError::NoWal { path: path.to_owned() });
    }
    for (name, value) in [("synchronous", "full"), ("trusted_schema", "off"), ("cell_size_check", "on")] {
        connection.pragma_update(None, name, value).map_err(failed)?;
    }
    Ok(())
}

fn host_clock() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Micros(0).plus(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_is_synced_in_full() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("queue.db")).unwrap();
        let full: i64 = store.connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        assert_eq!(full, 2);
    }
}
