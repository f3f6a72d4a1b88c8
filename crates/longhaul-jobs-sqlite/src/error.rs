//! Everything that can fail with the file.
//!
//! In: SQLite's errors, and what was found in the file. Out: one enum, with the path. Must not know
//! how it is said to users.

use std::path::{Path, PathBuf};

/// A failure of the queue's file.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// SQLite says no.
    #[error("the queue '{}': {doing}: {source}", .path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// SQLite's own words.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer program made the file or used it.
    #[error(
        "the queue '{}' has version {found} of its schema, and this program knows up to {known}: use the newer program",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest version that this build knows.
        known: i64,
    },
    /// The file is a database of another program.
    #[error("'{}' is a database of another program, and no queue: use another file", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file system cannot keep the file as it must be kept.
    #[error(
        "the queue '{}' cannot be shared on its file system: keep it on a local disk",
        .path.display()
    )]
    NoWal {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("the queue '{}' is damaged: {found}: take the last backup of it", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first damage, in SQLite's words.
        found: String,
    },
}

impl SqliteError {
    /// SQLite's error, with the file and the step.
    pub(crate) fn failed(path: &Path, doing: &'static str, source: rusqlite::Error) -> SqliteError {
        SqliteError::Failed { path: path.to_owned(), doing, source }
    }
}
