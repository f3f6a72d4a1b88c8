//! Everything that can fail with the server, and what a failure means for the transaction that met
//! it.
//!
//! In: errors of the client library, and what was found at the server. Out: one enum, with the
//! place, and never with a password. Must not know how it is said to users.

use std::error::Error as _;
use std::path::PathBuf;

use tokio_postgres::error::SqlState;

/// A failure of the queue in PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL of the queue cannot be used.
    #[error("the queue's URL: {why}")]
    Url {
        /// The flaw in it.
        why: String,
    },
    /// The file of passwords cannot be used.
    #[error("the password file '{}': {why}", .path.display())]
    PassFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// No certificates could be read by which the server could be checked.
    #[error("the certificates of authorities '{}': {why}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The server cannot be reached, or was lost.
    #[error("the queue {place} cannot be reached: {words}")]
    Away {
        /// The server and the database.
        place: String,
        /// The words of whoever failed.
        words: String,
    },
    /// The connection was lost while a change was committed, and nobody could be asked since.
    #[error("the queue {place} was lost while a change was committed, and whether it was is not known: {words}")]
    CommitUnknown {
        /// The server and the database.
        place: String,
        /// The words of whoever failed.
        words: String,
    },
    /// The server does not let this user in, or not do what the queue needs.
    #[error("the queue {place} refuses this user: {words}")]
    Denied {
        /// The server and the database.
        place: String,
        /// The server's words.
        words: String,
    },
    /// The connection could not be made private.
    #[error("the queue {place} cannot be reached over TLS: {words}")]
    Tls {
        /// The server and the database.
        place: String,
        /// The reason.
        words: String,
    },
    /// The server has no such database.
    #[error("the queue {place} is not there: {words}")]
    NoDatabase {
        /// The server and the database.
        place: String,
        /// The server's words.
        words: String,
    },
    /// The server or its database cannot be used as it is.
    #[error("the queue {place} cannot be used: {refusal}")]
    Refused {
        /// The server and the database.
        place: String,
        /// The reason.
        refusal: Refusal,
    },
    /// Others were in the way for too long.
    #[error("the queue {place} is too busy: {words}")]
    Busy {
        /// The server and the database.
        place: String,
        /// The server's words.
        words: String,
    },
    /// The server's disk is full.
    #[error("the queue {place} has no room: {words}")]
    Full {
        /// The server and the database.
        place: String,
        /// The server's words.
        words: String,
    },
    /// The server says no.
    #[error("the queue {place}: {words}")]
    Failed {
        /// The server and the database.
        place: String,
        /// The server's words.
        words: String,
    },
}

/// The reason why a server that answers is no place for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A newer program made the schema or used it.
    #[error("it has version {found} of its schema, and this program knows up to {known}: use the newer program")]
    Newer {
        /// Its version.
        found: i64,
        /// The latest version that this build knows.
        known: i64,
    },
    /// The schema has tables of another program.
    #[error("its schema has tables of another program, and no queue: name another schema")]
    Foreign,
    /// There is no queue in the database.
    #[error("there is no queue in its schema")]
    Missing,
    /// The server is too old.
    #[error("the server is older than PostgreSQL 12")]
    OldServer,
    /// The database cannot keep all names.
    #[error("the encoding of the database is not UTF8")]
    Encoding,
    /// The server is a standby, which nothing can be written to.
    #[error("the server is a standby: name the primary")]
    Standby,
}

/// A failure, by what it means for the transaction that met it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Others were in the way, and it was taken back: it can be run again.
    Conflict(PostgresError),
    /// The connection is gone, and what was not committed with it.
    Lost(PostgresError),
    /// It would fail again.
    Final(PostgresError),
    /// A sum is larger than a number of a row.
    TooMuch,
}

impl Failure {
    /// The meaning of an error of the client library.
    pub(crate) fn of(place: &str, error: &tokio_postgres::Error) -> Failure {
        let (place, words) = (place.to_owned(), words_of(error));
        let Some(code) = error.code() else { return Failure::of_connection(place, words, error) };
        let class = code.code().get(..2).unwrap_or_default();
        match code {
            &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED | &SqlState::LOCK_NOT_AVAILABLE => {
                Failure::Conflict(PostgresError::Busy { place, words })
            }
            &SqlState::QUERY_CANCELED => Failure::Final(PostgresError::Busy { place, words }),
            &SqlState::NUMERIC_VALUE_OUT_OF_RANGE => Failure::TooMuch,
            &SqlState::INSUFFICIENT_PRIVILEGE => Failure::Final(PostgresError::Denied { place, words }),
            &SqlState::INVALID_CATALOG_NAME => Failure::Final(PostgresError::NoDatabase { place, words }),
            &SqlState::DISK_FULL => Failure::Final(PostgresError::Full { place, words }),
            &SqlState::READ_ONLY_SQL_TRANSACTION => {
                Failure::Final(PostgresError::Refused { place, refusal: Refusal::Standby })
            }
            &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | &SqlState::TOO_MANY_CONNECTIONS
            | &SqlState::ADMIN_SHUTDOWN
            | &SqlState::CRASH_SHUTDOWN
            | &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::IDLE_SESSION_TIMEOUT => Failure::Lost(PostgresError::Away { place, words }),
            _ if class == "08" => Failure::Lost(PostgresError::Away { place, words }),
            _ if class == "28" => Failure::Final(PostgresError::Denied { place, words }),
            _ => Failure::Final(PostgresError::Failed { place, words }),
        }
    }

    /// An error that no server sent. The library tells their kinds by words alone; a test holds it
    /// to them.
    fn of_connection(place: String, words: String, error: &tokio_postgres::Error) -> Failure {
        let kind = error.to_string();
        match kind.as_str() {
            "authentication error" | "invalid configuration" => Failure::Final(PostgresError::Denied { place, words }),
            "error performing TLS handshake" => Failure::Final(PostgresError::Tls { place, words }),
            "connection closed" | "error communicating with the server" | "error connecting to server" => {
                Failure::Lost(PostgresError::Away { place, words })
            }
            _ => Failure::Final(PostgresError::Failed { place, words }),
        }
    }

    /// The error, for whoever has no other try.
    pub(crate) fn error(self, place: &str) -> PostgresError {
        match self {
            Failure::Conflict(error) | Failure::Lost(error) | Failure::Final(error) => error,
            Failure::TooMuch => {
                PostgresError::Failed { place: place.to_owned(), words: "a sum does not fit".to_owned() }
            }
        }
    }
}

/// The words of an error with all that is beneath it, of a length that can be told.
pub(crate) fn words_of(error: &tokio_postgres::Error) -> String {
    let mut words = match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => error.to_string(),
    };
    let mut beneath = error.source().filter(|_| error.as_db_error().is_none());
    while let Some(error) = beneath {
        words.push_str(": ");
        words.push_str(&error.to_string());
        beneath = error.source();
    }
    if let Some((at, _)) = words.char_indices().nth(WORDS_MAX) {
        words.truncate(at);
    }
    words
}

/// Characters of an error that are told.
const WORDS_MAX: usize = 300;
