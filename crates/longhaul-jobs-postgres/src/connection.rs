//! One connection to the server, on a thread of its own.
//!
//! In: statements, one after the other, from a thread that may wait. Out: rows, or a failure; an
//! answer that does not come in time is one, and the connection is given up with it. A connection
//! that is gone is dialled again at the next beginning of a transaction. Must not know rows, nor
//! what a transaction is for.
//!
//! The client library is asynchronous. Its runtime lives on this thread, so that a store can be
//! used and dropped anywhere: on a thread that waits, and within another runtime.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Row};

use crate::error::{Failure, PostgresError, Refusal, words_of};
use crate::statements::Statement;
use crate::tls::Sealer;

/// A way to the server.
pub(crate) struct Connection {
    place: String,
    schema: String,
    orders: UnboundedSender<Order>,
}

/// The means of a connection: who is dialled, and how it is made private.
#[derive(Clone)]
pub(crate) struct Dialling {
    /// The server and the database, as errors name them.
    pub(crate) place: String,
    /// The schema of the queue.
    pub(crate) schema: String,
    /// The library's own words for the server, the user and the password.
    pub(crate) config: Config,
    /// The TLS of it.
    pub(crate) sealer: Sealer,
}

/// A value of a statement.
#[derive(Debug)]
pub(crate) enum Value {
    Number(Option<i64>),
    Bytes(Option<Vec<u8>>),
    Text(Option<String>),
}

/// The rows that a statement gave.
type Reply = Result<Vec<Row>, Failure>;

struct Order {
    work: Work,
    /// The longest that is waited for the server's answer.
    time: Duration,
    answer: mpsc::SyncSender<Reply>,
}

enum Work {
    /// Dials if need be, and then carries out texts that have no values.
    Begin(String),
    Batch(String),
    Query(Statement, Vec<Value>),
}

impl Connection {
    /// A connection that is dialled when a transaction begins.
    ///
    /// # Errors
    /// [`Failure::Final`] if there can be no thread for it.
    pub(crate) fn new(dialling: Dialling) -> Result<Connection, Failure> {
        let (orders, taken) = unbounded_channel();
        let (place, schema) = (dialling.place.clone(), dialling.schema.clone());
        let failed = |error: std::io::Error| {
            Failure::Final(PostgresError::Failed { place: place.clone(), words: format!("no thread for it: {error}") })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let serve = move || runtime.block_on(serve(dialling, taken));
        std::thread::Builder::new().name("queue".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Connection { place, schema, orders })
    }

    /// The server and the database.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The schema of the queue.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The settings of a transaction, each as it must be whatever the server's own are. A commit
    /// is durable before it is answered, and no other program waits for this one for long.
    pub(crate) fn settings(&self) -> String {
        self.settings_with(STATEMENT_TIME, LOCK_TIME)
    }

    /// The settings of a transaction that changes the schema: an index over millions of rows takes
    /// minutes, and so may movers whose transactions come first.
    pub(crate) fn settings_of_migration(&self) -> String {
        self.settings_with(MIGRATION_TIME, MIGRATION_TIME)
    }

    fn settings_with(&self, statement: Duration, lock: Duration) -> String {
        format!(
            "SET LOCAL search_path TO {}; SET LOCAL synchronous_commit TO on;
            SET LOCAL statement_timeout TO {}; SET LOCAL lock_timeout TO {};
            SET LOCAL idle_in_transaction_session_timeout TO {}; SET LOCAL jit TO off",
            quoted(&self.schema),
            statement.as_millis(),
            lock.as_millis(),
            IDLE_TIME.as_millis(),
        )
    }

    /// Begins a transaction with a text. None is open if it fails.
    pub(crate) fn begin(&self, text: &str) -> Result<(), Failure> {
        let begun = self.order(Work::Begin(text.to_owned()), ANSWER_TIME);
        if begun.is_err() {
            self.roll_back();
        }
        begun.map(drop)
    }

    /// Carries out texts that have no values.
    pub(crate) fn batch(&self, text: &str) -> Result<(), Failure> {
        self.order(Work::Batch(text.to_owned()), ANSWER_TIME).map(drop)
    }

    /// Carries out texts of a migration.
    pub(crate) fn migrate(&self, text: &str) -> Result<(), Failure> {
        self.order(Work::Batch(text.to_owned()), MIGRATION_ANSWER_TIME).map(drop)
    }

    /// Carries out a statement.
    pub(crate) fn query(&self, statement: Statement, values: Vec<Value>) -> Reply {
        self.order(Work::Query(statement, values), ANSWER_TIME)
    }

    /// Carries out a statement that waits for the migrations of others.
    pub(crate) fn query_of_migration(&self, statement: Statement, values: Vec<Value>) -> Reply {
        self.order(Work::Query(statement, values), MIGRATION_ANSWER_TIME)
    }

    /// Commits if all went well, and takes everything back if not.
    pub(crate) fn end<T>(&self, result: &Result<T, Failure>) -> Result<(), Failure> {
        match result {
            Ok(_) => self.batch("COMMIT"),
            Err(_) => {
                self.roll_back();
                Ok(())
            }
        }
    }

    /// Takes everything back. A connection that is gone has done so already.
    pub(crate) fn roll_back(&self) {
        self.batch("ROLLBACK").unwrap_or_default();
    }

    /// The failure of a server that is no place for the queue.
    pub(crate) fn refused(&self, refusal: Refusal) -> Failure {
        Failure::Final(PostgresError::Refused { place: self.place.clone(), refusal })
    }

    /// The failure of a user who may not do what the queue needs.
    pub(crate) fn denied(&self, words: &str) -> Failure {
        Failure::Final(PostgresError::Denied { place: self.place.clone(), words: words.to_owned() })
    }

    /// The failure of a server that says what no server should.
    pub(crate) fn odd(&self, words: &str) -> Failure {
        Failure::Final(PostgresError::Failed { place: self.place.clone(), words: words.to_owned() })
    }

    fn order(&self, work: Work, time: Duration) -> Reply {
        let (answer, answered) = mpsc::sync_channel(1);
        let sent = self.orders.send(Order { work, time, answer });
        sent.map_err(|_| self.odd("its thread is gone"))?;
        answered.recv().unwrap_or_else(|_| Err(self.odd("its thread is gone")))
    }
}

impl Value {
    /// A text.
    pub(crate) fn text(text: &str) -> Value {
        Value::Text(Some(text.to_owned()))
    }

    /// Bytes.
    pub(crate) fn bytes(bytes: &[u8]) -> Value {
        Value::Bytes(Some(bytes.to_vec()))
    }

    fn shown(&self) -> &(dyn ToSql + Sync) {
        match self {
            Value::Number(number) => number,
            Value::Bytes(bytes) => bytes,
            Value::Text(text) => text,
        }
    }
}

/// A name in a text.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Carries out orders until nobody can give any more.
async fn serve(dialling: Dialling, mut orders: UnboundedReceiver<Order>) {
    let mut dialled: Option<Dialled> = None;
    while let Some(Order { work, time, answer }) = orders.recv().await {
        let done = match carry_out(&dialling, &mut dialled, (work, time)).await {
            Err(Failure::Lost(error)) => {
                dialled = None;
                Err(Failure::Lost(error))
            }
            done => done,
        };
        // Whoever asked waits for it.
        answer.send(done).unwrap_or_default();
    }
}

async fn carry_out(dialling: &Dialling, dialled: &mut Option<Dialled>, (work, time): (Work, Duration)) -> Reply {
    if let Work::Begin(_) = work
        && dialled.as_ref().is_none_or(|dialled| dialled.client.is_closed())
    {
        *dialled = None;
        *dialled = Some(in_time(dialling, DIAL_TIME, dial(dialling)).await?);
    }
    let Some(dialled) = dialled else { return Err(lost(dialling, "the connection is gone")) };
    match work {
        Work::Begin(text) | Work::Batch(text) => {
            let carried_out = async {
                let done = dialled.client.batch_execute(&text).await;
                done.map_err(|error| Failure::of(&dialling.place, &error))
            };
            in_time(dialling, time, carried_out).await.map(|()| Vec::new())
        }
        Work::Query(statement, values) => in_time(dialling, time, dialled.query(dialling, statement, &values)).await,
    }
}

/// A connection that stands, and the statements that it knows.
struct Dialled {
    client: Client,
    prepared: BTreeMap<Statement, tokio_postgres::Statement>,
}

impl Dialled {
    async fn query(&mut self, dialling: &Dialling, statement: Statement, values: &[Value]) -> Reply {
        let failed = |error| Failure::of(&dialling.place, &error);
        let prepared = match self.prepared.get(&statement) {
            Some(prepared) => prepared.clone(),
            None => {
                let prepared = self.client.prepare(statement.text()).await.map_err(failed)?;
                self.prepared.insert(statement, prepared.clone());
                prepared
            }
        };
        let values: Vec<_> = values.iter().map(Value::shown).collect();
        self.client.query(&prepared, &values).await.map_err(failed)
    }
}

async fn dial(dialling: &Dialling) -> Result<Dialled, Failure> {
    let connected = dialling.config.connect(dialling.sealer.clone()).await;
    let (client, connection) = connected.map_err(|error| Failure::of(&dialling.place, &error))?;
    // It ends with the client, or with the server; whoever uses the client then hears of it.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(words = words_of(&error), "the connection to the queue ended");
        }
    });
    Ok(Dialled { client, prepared: BTreeMap::new() })
}

async fn in_time<T>(
    dialling: &Dialling,
    time: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = |_| lost(dialling, "no answer in time");
    timeout(time, work).await.map_err(late)?
}

fn lost(dialling: &Dialling, words: &str) -> Failure {
    Failure::Lost(PostgresError::Away { place: dialling.place.clone(), words: words.to_owned() })
}

/// The longest that the server works on a statement; it waits for a lock, and for a transaction to
/// go on, no longer than these.
const STATEMENT_TIME: Duration = Duration::from_secs(20);
const LOCK_TIME: Duration = Duration::from_secs(10);
const IDLE_TIME: Duration = Duration::from_secs(15);
/// The longest that is waited for an answer: the server's own bounds come before it.
const ANSWER_TIME: Duration = Duration::from_secs(25);
/// The same of a migration, and of the wait for its locks. Whoever has lost the server meanwhile
/// hears of that from its system, which asks for signs of life.
const MIGRATION_TIME: Duration = Duration::from_secs(3600);
const MIGRATION_ANSWER_TIME: Duration = Duration::from_secs(3605);
/// The longest that dialling takes, with all addresses of the server and the password.
const DIAL_TIME: Duration = Duration::from_secs(10);
