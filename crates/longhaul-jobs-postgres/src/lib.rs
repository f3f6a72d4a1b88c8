//! The queue of bulk replication in PostgreSQL: one database for any number of hosts.
//!
//! In: the place of a database, and transactions of the queue's rules. Out: durable rows. A
//! transaction is serializable; if those of others came in between, or the connection was lost
//! before it was committed, it is run again. Must not know a rule, nor the environment.

mod connection;
mod error;
mod passfile;
mod place;
mod rows;
mod schema;
mod statements;
#[cfg(test)]
mod tests;
mod tls;
mod values;

use std::time::{Duration, Instant};

use longhaul_jobs::{JobsError, Micros, Rows, Store};

use connection::{Connection, Dialling, Value};
use error::Failure;
use rows::{PostgresRows, RowsEnd};
use schema::{ALONE, Absent, BESIDE_OTHERS};
use statements::Statement;

pub use error::{PostgresError, Refusal};
pub use place::{Passwords, Place};
pub use tls::authorities;

/// The queue in a database.
pub struct PostgresStore {
    connection: Connection,
    dialling: Box<Dialling>,
    /// 16 random bytes by which the server knows the marks of this store.
    name: [u8; 16],
    /// Transactions that wait for their turn from the beginning, as others were in the way of the
    /// last ones.
    in_turn: u32,
    /// As many as that behind each conflict.
    turns: u32,
    /// The lock of a first try. A user who may only look has none, and may not take it.
    beside_others: &'static str,
    /// A rule is at work, or one panicked: then its transaction is open yet.
    at_work: bool,
    clock: Option<Box<dyn Fn() -> Micros + Send>>,
}

/// A try to carry out a transaction.
enum Tried<T> {
    Ended(Result<T, JobsError>),
    /// It was not committed, and may be run again for so long after it began.
    Again(Failure, Duration),
}

impl PostgresStore {
    /// Opens the queue, and makes it if the database has none. Its schema is brought to the present
    /// version.
    ///
    /// # Errors
    /// All of [`PostgresError`].
    pub fn open_or_make(place: &Place, passwords: &Passwords) -> Result<PostgresStore, PostgresError> {
        PostgresStore::opened(place, passwords, Absent::Make)
    }

    /// Opens the queue of a database that has one.
    ///
    /// # Errors
    /// [`Refusal::Missing`] if there is none, and the errors of [`PostgresStore::open_or_make`].
    pub fn open(place: &Place, passwords: &Passwords) -> Result<PostgresStore, PostgresError> {
        PostgresStore::opened(place, passwords, Absent::Refuse)
    }

    fn opened(place: &Place, passwords: &Passwords, absent: Absent) -> Result<PostgresStore, PostgresError> {
        let shown = place.to_string();
        let failed = |failure: Failure| failure.error(&shown);
        let dialling = place.dialling(passwords)?;
        let connection = Connection::new(dialling.clone()).map_err(failed)?;
        schema::open(&connection, absent, &schema::MIGRATIONS).map_err(failed)?;
        let mut store = PostgresStore::over(connection, dialling)?;
        store.remove_old_marks();
        Ok(store)
    }

    fn over(connection: Connection, dialling: Dialling) -> Result<PostgresStore, PostgresError> {
        let name = random().map_err(|words| PostgresError::Failed { place: dialling.place.clone(), words })?;
        let (in_turn, turns, beside_others, at_work) = (0, IN_TURN, BESIDE_OTHERS, false);
        let dialling = Box::new(dialling);
        Ok(PostgresStore { connection, dialling, name, in_turn, turns, beside_others, at_work, clock: None })
    }

    /// The same queue over a connection of its own, which is dialled when it is used first: its
    /// transactions do not wait for those of this store. They are short ones, of which only the try
    /// behind a conflict waits for its turn.
    ///
    /// # Errors
    /// [`PostgresError::Failed`] if this host has no thread or no random numbers for it.
    pub fn beside(&self) -> Result<PostgresStore, PostgresError> {
        let failed = |failure: Failure| failure.error(&self.dialling.place);
        let dialling = Dialling::clone(&self.dialling);
        let connection = Connection::new(dialling.clone()).map_err(failed)?;
        let store = PostgresStore::over(connection, dialling)?;
        Ok(PostgresStore { beside_others: self.beside_others, turns: 1, ..store })
    }

    /// Finds out whether the server gives this store its connection, by one try.
    ///
    /// # Errors
    /// [`PostgresError::Away`], [`PostgresError::Denied`] and others of a server that does not.
    pub fn dial(&self) -> Result<(), PostgresError> {
        let dialled = self.begin("READ COMMITTED", "").and_then(|()| self.connection.batch("COMMIT"));
        dialled.map_err(|failure| failure.error(self.connection.place()))
    }

    /// The same queue, whose transactions have the time of another clock than the server's.
    #[must_use]
    pub fn with_clock(self, clock: Box<dyn Fn() -> Micros + Send>) -> PostgresStore {
        PostgresStore { clock: Some(clock), ..self }
    }

    /// Marks that are left take some room, and no more. A user who may only look leaves them there.
    fn remove_old_marks(&mut self) {
        let begun = self.begin("READ COMMITTED", BESIDE_OTHERS);
        if let Err(Failure::Final(PostgresError::Denied { .. })) = begun {
            self.beside_others = "";
        }
        let removed = begun.and_then(|()| {
            let removed = self.connection.query(Statement::RemoveOldMarks, Vec::new());
            self.connection.end(&removed)?;
            removed
        });
        if let Err(failure) = removed {
            let error = failure.error(self.connection.place());
            tracing::debug!(%error, "old marks stay in the queue");
        }
    }

    fn begin(&self, isolation: &str, more: &str) -> Result<(), Failure> {
        let settings = self.connection.settings();
        self.connection.begin(&format!("BEGIN ISOLATION LEVEL {isolation} READ WRITE; {settings}; {more}"))
    }

    /// One try. The lock is taken before the server takes the snapshot that the transaction sees:
    /// whoever waits for its turn has the queue to itself then, and sees all that was committed.
    fn attempt<T>(&mut self, work: &mut impl FnMut(&mut dyn Rows) -> Result<T, JobsError>) -> Tried<T> {
        let turn = if self.in_turn > 0 { ALONE } else { self.beside_others };
        self.in_turn = self.in_turn.saturating_sub(1);
        if self.at_work {
            self.connection.roll_back();
        }
        self.at_work = true;
        if let Err(failure) = self.begin("SERIALIZABLE", turn) {
            self.at_work = false;
            return self.tried(failure);
        }
        let mut rows = PostgresRows::new(&self.connection, self.clock.as_ref().map(|clock| clock()));
        let result = work(&mut rows);
        let RowsEnd { failure, wrote } = rows.end();
        self.at_work = false;
        if let Some(failure) = failure {
            self.connection.roll_back();
            return self.tried(failure);
        }
        match result {
            Ok(value) if wrote => self.commit(value),
            Ok(value) => match self.connection.batch("COMMIT") {
                Ok(()) => Tried::Ended(Ok(value)),
                Err(failure) => self.tried(failure),
            },
            Err(error) => {
                self.connection.roll_back();
                Tried::Ended(Err(error))
            }
        }
    }

    /// Commits what was written, and finds out whether it was committed if the answer was lost.
    fn commit<T>(&mut self, value: T) -> Tried<T> {
        let token = match random() {
            Ok(token) => token,
            Err(words) => return self.tried(self.connection.odd(&words)),
        };
        let mark = vec![Value::bytes(&self.name), Value::bytes(&token)];
        if let Err(failure) = self.connection.query(Statement::PutMark, mark) {
            self.connection.roll_back();
            return self.tried(failure);
        }
        match self.connection.batch("COMMIT") {
            Ok(()) => Tried::Ended(Ok(value)),
            Err(failure @ Failure::Conflict(_)) => self.tried(failure),
            // An error may come behind the commit itself: the mark alone tells.
            Err(failure) => match self.was_committed(&token) {
                Ok(true) => Tried::Ended(Ok(value)),
                // The server answers, and has taken it back.
                Ok(false) => self.tried(match failure {
                    Failure::Lost(lost) => Failure::Conflict(lost),
                    failure => failure,
                }),
                Err(failure) => {
                    let place = self.connection.place().to_owned();
                    let words = failure.error(&place).to_string();
                    Tried::Ended(Err(JobsError::store(PostgresError::CommitUnknown { place, words })))
                }
            },
        }
    }

    /// Whether the transaction of a token was committed. It wrote the store's mark, and so the
    /// question waits until the server has done with it, whichever way.
    fn was_committed(&self, token: &[u8; 16]) -> Result<bool, Failure> {
        let began = Instant::now();
        for tries in 1.. {
            match self.ask_mark() {
                Ok(kept) => return Ok(kept == *token),
                Err(Failure::Conflict(_) | Failure::Lost(_)) if began.elapsed() < PATIENCE_ASKING => {
                    std::thread::sleep(pause(tries, PAUSE_AWAY));
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(self.connection.odd("it was asked too often"))
    }

    fn ask_mark(&self) -> Result<Vec<u8>, Failure> {
        self.begin("READ COMMITTED", "")?;
        let mark = vec![Value::bytes(&self.name), Value::bytes(&[0; 16])];
        let asked = self.connection.query(Statement::AskMark, mark);
        self.connection.end(&asked)?;
        let rows = asked?;
        let kept = rows.first().and_then(|row| row.try_get(0).ok());
        kept.ok_or_else(|| self.connection.odd("its mark cannot be read"))
    }

    fn tried<T>(&self, failure: Failure) -> Tried<T> {
        match failure {
            Failure::Conflict(_) => Tried::Again(failure, PATIENCE_CONFLICTS),
            Failure::Lost(_) => Tried::Again(failure, PATIENCE_AWAY),
            failure => Tried::Ended(Err(self.said(failure))),
        }
    }

    fn said(&self, failure: Failure) -> JobsError {
        match failure {
            Failure::TooMuch => JobsError::TooMuch("files of a campaign"),
            failure => JobsError::store(failure.error(self.connection.place())),
        }
    }
}

impl Store for PostgresStore {
    fn transact<T>(&mut self, mut work: impl FnMut(&mut dyn Rows) -> Result<T, JobsError>) -> Result<T, JobsError> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let (failure, patience) = match self.attempt(&mut work) {
                Tried::Ended(result) => return result,
                Tried::Again(failure, patience) => (failure, patience),
            };
            if began.elapsed() >= patience {
                return Err(self.said(failure));
            }
            let longest = if let Failure::Conflict(_) = failure {
                self.in_turn = self.turns;
                PAUSE_CONFLICT
            } else {
                PAUSE_AWAY
            };
            tracing::debug!(tries, ?failure, "a transaction is run again");
            std::thread::sleep(pause(tries, longest));
        }
    }
}

/// A pause with some chance in it, twice as long each time, so that those who met do not meet
/// again.
fn pause(tries: u32, longest: Duration) -> Duration {
    let most = PAUSE_FIRST.saturating_mul(1 << tries.min(10)).min(longest);
    let chance = random::<1>().map_or(u8::MAX, |[chance]| chance);
    most.mul_f64(0.5 + f64::from(chance) / 510.0)
}

fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(bytes)
}

/// Transactions behind a conflict that wait for their turn: where many meet, one after the other is
/// faster than all at once.
const IN_TURN: u32 = 16;
/// A transaction that met others is run again for so long.
const PATIENCE_CONFLICTS: Duration = Duration::from_secs(30);
/// A server that is away is dialled for so long: a restart is shorter, and a mover has a heartbeat
/// to send meanwhile.
const PATIENCE_AWAY: Duration = Duration::from_secs(10);
/// A commit whose answer was lost is asked for so long: it is worth more than a heartbeat that
/// comes late.
const PATIENCE_ASKING: Duration = Duration::from_secs(20);
/// The first pause, and the longest ones.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_CONFLICT: Duration = Duration::from_millis(100);
const PAUSE_AWAY: Duration = Duration::from_secs(1);
