//! The cells of SQLite's rows.
//!
//! In: a row. Out: its cells, one by one. Must not know what they stand for.

use longhaul_jobs::JobsError;
use longhaul_jobs::columns::{Cells, OTHER_TYPE};
use rusqlite::Row;
use rusqlite::types::FromSql;

/// The cells of a row, read from left to right.
pub(crate) struct RowCells<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> RowCells<'a> {
    /// The cells of a row, from the first one on.
    pub(crate) fn of(row: &'a Row<'a>) -> RowCells<'a> {
        RowCells { row, next: 0 }
    }

    fn get<T: FromSql>(&mut self) -> Result<T, JobsError> {
        self.next += 1;
        self.row.get(self.next - 1).map_err(|_| OTHER_TYPE)
    }
}

impl Cells for RowCells<'_> {
    fn number(&mut self) -> Result<Option<i64>, JobsError> {
        self.get()
    }

    fn bytes(&mut self) -> Result<Option<Vec<u8>>, JobsError> {
        self.get()
    }

    fn text(&mut self) -> Result<Option<String>, JobsError> {
        self.get()
    }
}
