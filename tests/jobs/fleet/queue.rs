//! The queue of a fleet, in a database or in a file, and what a test asks of it by SQL.
//!
//! In: statements that both understand. Out: the numbers that they give. Must not know what they
//! are for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fixture::postgres::Postgres;

/// Where the rows of a queue are.
pub(super) enum FleetQueue {
    /// A server of the test's own.
    Database(Postgres),
    /// A file on this host.
    File(PathBuf),
}

/// The longest that a statement waits for the file while ten movers write to it.
const FILE_PATIENCE: Duration = Duration::from_secs(60);

impl FleetQueue {
    /// The name by which commands know it.
    pub(super) fn name(&self) -> String {
        match self {
            FleetQueue::Database(server) => server.url("postgres"),
            FleetQueue::File(path) => path.to_str().unwrap().to_owned(),
        }
    }

    /// Whether it has a server, which may be away.
    pub(super) fn has_server(&self) -> bool {
        matches!(self, FleetQueue::Database(_))
    }

    /// Kills the server, if it has one, and starts it again.
    pub(super) fn kill_server(&mut self) {
        if let FleetQueue::Database(server) = self {
            server.kill();
            server.restart();
        }
    }

    /// Carries out statements that give nothing, all of them or none.
    pub(super) fn change(&self, statements: &str) {
        match self {
            FleetQueue::Database(server) => {
                server.sql("postgres", &in_schema(statements));
            }
            FleetQueue::File(path) => {
                let rows = opened(path);
                rows.execute_batch(&format!("BEGIN IMMEDIATE; {statements}; COMMIT")).unwrap();
            }
        }
    }

    /// The rows that a query gives, all of whose columns are numbers.
    pub(super) fn numbers(&self, query: &str) -> Vec<Vec<u64>> {
        match self {
            FleetQueue::Database(server) => {
                let rows = server.sql("postgres", &in_schema(query));
                let numbers = |row: &str| row.split('|').map(|number| number.parse().unwrap()).collect();
                rows.lines().map(numbers).collect()
            }
            FleetQueue::File(path) => {
                let rows = opened(path);
                let mut asked = rows.prepare(query).unwrap();
                let columns = 0..asked.column_count();
                let numbers = |row: &rusqlite::Row<'_>| columns.clone().map(|at| number(row, at)).collect();
                let rows: rusqlite::Result<Vec<Vec<u64>>> = asked.query_map([], numbers).unwrap().collect();
                rows.unwrap()
            }
        }
    }

    /// The number of rows of a table, or of those that a condition behind its name lets through.
    pub(super) fn count(&self, what: &str) -> u64 {
        self.numbers(&format!("SELECT count(*) FROM {what}"))[0][0]
    }
}

/// Statements about the tables of the queue, wherever the database looks for tables.
fn in_schema(statements: &str) -> String {
    format!("SET search_path TO longhaul; {statements}")
}

fn number(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap())
}

fn opened(path: &Path) -> rusqlite::Connection {
    let rows = rusqlite::Connection::open(path).unwrap();
    rows.busy_timeout(FILE_PATIENCE).unwrap();
    rows
}
