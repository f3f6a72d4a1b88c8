//! The audit log: a file with one JSON object a line for each deed of a client.
//!
//! In: records of the engine. Out: lines in a file that only its owner reads, and the number of
//! those that were lost. Whoever brings a record never waits for the disk: lines go into a bounded
//! memory, from which one thread writes. If that is full, records are lost and counted, and the
//! file says how many; or, where none may be lost, the session ends whose deed it was. `file` opens
//! the file. It knows no session.

mod file;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_engine::{AuditLog, AuditLost, AuditRecord};
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::error::Error;
use crate::output::json_line;

pub use file::check;

/// An audit log. Clones are of the same one.
#[derive(Clone, Debug)]
pub struct AuditFile(Arc<Shared>);

/// The figures of an audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditFigures {
    /// Records that are in the file.
    pub written: u64,
    /// Records that were lost.
    pub lost: u64,
    /// Whether the file could not be written when that was last tried.
    pub fails: bool,
}

/// The treatment of records for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// They are counted.
    Counted,
    /// There must be none: the session ends whose record it is.
    Never,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    losses: Losses,
    queue: Mutex<Queue>,
    /// Wakes the thread that writes.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Whole lines.
    lines: Vec<u8>,
    /// Records that were lost and of which the file does not say so yet.
    untold: u64,
    figures: AuditFigures,
    /// The file is to be opened anew.
    reopen: bool,
    /// Nothing comes any more.
    closed: bool,
}

/// A record as it is written. Facts that it does not have are left out.
#[derive(Debug, Default, Serialize)]
struct AuditLine<'a> {
    /// RFC 3339, UTC.
    time: String,
    deed: &'a str,
    #[serde(flatten)]
    who: WhoseLine<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// `ok`, or the name of the reason why not.
    code: &'a str,
}

/// Whose deed a line tells of.
#[derive(Debug, Default, Serialize)]
struct WhoseLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

impl AuditFile {
    /// Opens the file at `path` and starts the thread that writes to it.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Exposed`]: the file cannot be opened, or others could read or
    /// change it.
    pub fn open(path: &Path, losses: Losses) -> Result<(AuditFile, AuditWriter), Error> {
        let file = file::open(path)?;
        let (queue, wake) = (Mutex::default(), Condvar::new());
        let log = AuditFile(Arc::new(Shared { path: path.to_owned(), losses, queue, wake }));
        let shared = log.0.clone();
        let thread = thread::Builder::new().name("audit".to_owned()).spawn(move || write_all(&shared, file));
        let thread = thread.map_err(Error::file("start the thread that writes", path))?;
        Ok((log.clone(), AuditWriter { log, thread }))
    }

    /// Has the file opened anew: another one may have its name by now.
    pub fn reopen(&self) {
        self.0.lock().reopen = true;
        self.0.wake.notify_one();
    }

    /// The figures now.
    pub fn figures(&self) -> AuditFigures {
        self.0.lock().figures
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

/// The thread that writes.
#[derive(Debug)]
pub struct AuditWriter {
    log: AuditFile,
    thread: JoinHandle<()>,
}

impl AuditWriter {
    /// Writes what is left, for a few seconds at most.
    pub fn close(self) {
        let shared = &self.log.0;
        shared.lock().closed = true;
        shared.wake.notify_one();
        let until = Instant::now() + CLOSING_MAX;
        while !self.thread.is_finished() && Instant::now() < until {
            thread::sleep(CLOSING_LOOK);
        }
        let left = shared.lock().lines.iter().filter(|byte| **byte == b'\n').count();
        if left > 0 {
            tracing::error!(target: "longhaul::serve", left, "records of the audit log could not be written before the end");
        }
    }
}

impl AuditLog for AuditFile {
    fn keep(&self, record: &AuditRecord<'_>) -> Result<(), AuditLost> {
        let line = line_of(record);
        let mut queue = self.0.lock();
        if queue.lines.len() + line.len() > QUEUE_BYTES_MAX {
            queue.untold += 1;
            queue.figures.lost += 1;
            return match self.0.losses {
                Losses::Counted => Ok(()),
                Losses::Never => Err(AuditLost),
            };
        }
        let (before, after) = (queue.lines.len(), queue.lines.len() + line.len());
        queue.lines.extend_from_slice(line.as_bytes());
        drop(queue);
        if before == 0 || before < GATHERED_BYTES && after >= GATHERED_BYTES {
            self.0.wake.notify_one();
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), Fault> {
        let queue = self.0.lock();
        if self.0.losses == Losses::Never && (queue.figures.fails || queue.lines.len() > QUEUE_BYTES_MAX / 2) {
            let why = "the daemon must record what is done to its files, and its audit log cannot be written";
            return Err(Fault::new(FaultCode::Busy, Blame::Local, why).hint(longhaul_core::hint::Again::Later));
        }
        Ok(())
    }
}

impl Shared {
    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do, and takes the lines. `None`: nothing comes any more.
    fn next(&self, pending: &mut Vec<u8>) -> Option<bool> {
        let mut queue = self.lock();
        while queue.lines.is_empty() && queue.untold == 0 && !queue.reopen && !queue.closed {
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        // A moment for others to come along: the thread wakes some times a second, and not for
        // each.
        if !queue.reopen && !queue.closed && queue.lines.len() < GATHERED_BYTES {
            let gathered = |queue: &mut Queue| !queue.reopen && !queue.closed && queue.lines.len() < GATHERED_BYTES;
            let waited = self.wake.wait_timeout_while(queue, GATHERING, gathered);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if queue.lines.is_empty() && queue.untold == 0 && !queue.reopen && queue.closed {
            return None;
        }
        if queue.untold > 0 {
            let lost = std::mem::take(&mut queue.untold);
            let line = AuditLine { time: now(), deed: "lost", count: Some(lost), code: "io", ..AuditLine::default() };
            pending.extend_from_slice(rendered(&line).as_bytes());
        }
        pending.append(&mut queue.lines);
        Some(std::mem::take(&mut queue.reopen))
    }

    /// Notes how a write went: so many lines are in the file, and whether there was an error.
    fn wrote(&self, lines: u64, error: Option<&io::Error>) {
        let mut queue = self.lock();
        queue.figures.written += lines;
        let failed_before = std::mem::replace(&mut queue.figures.fails, error.is_some());
        drop(queue);
        let path = self.path.display();
        match error {
            Some(error) if !failed_before => {
                tracing::error!(target: "longhaul::serve", %path, %error, "the audit log cannot be written");
            }
            None if failed_before => {
                tracing::info!(target: "longhaul::serve", %path, "the audit log can be written again");
            }
            _ => {}
        }
    }
}

/// The thread that writes: it holds what it could not write yet, and tries that again.
fn write_all(shared: &Shared, mut file: File) {
    let mut pending = Vec::new();
    while let Some(reopen) = shared.next(&mut pending) {
        if reopen {
            match file::open(&shared.path) {
                // A line of which a part is in the old file ends there.
                Ok(new) => file = new,
                Err(error) => {
                    let fault = Fault::from(error);
                    tracing::error!(target: "longhaul::serve", "the audit log goes on in the file that is open: {fault}");
                }
            }
        }
        loop {
            let (written, error) = write_some(&mut file, &pending);
            pending.drain(..written.0);
            shared.wrote(written.1, error.as_ref());
            if error.is_none() {
                break;
            }
            // Meanwhile lines gather, and are lost beyond the bound.
            let queue = shared.lock();
            if queue.closed {
                return give_back(queue, pending);
            }
            let waited = shared.wake.wait_timeout_while(queue, RETRY, |queue| !queue.closed && !queue.reopen);
            if waited.unwrap_or_else(PoisonError::into_inner).0.reopen {
                break;
            }
        }
    }
}

/// Leaves what could not be written to whoever counts it.
fn give_back(mut queue: MutexGuard<'_, Queue>, mut pending: Vec<u8>) {
    pending.append(&mut queue.lines);
    queue.lines = pending;
}

/// Writes whole lines. Returns the bytes and lines that are done, and the error that came then. A
/// line of which only a part could be written is ended, so that it cannot be mistaken for another.
fn write_some(file: &mut File, pending: &[u8]) -> ((usize, u64), Option<io::Error>) {
    let mut done = 0;
    let error = loop {
        if done == pending.len() {
            break None;
        }
        match file.write(&pending[done..]) {
            Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Some(error),
        }
    };
    let whole = pending[..done].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < done {
        // If this fails as well, the next opening ends the line.
        let _ = file.write_all(b"\n");
    }
    let lines = pending[..whole].iter().filter(|byte| **byte == b'\n').count();
    ((whole, lines as u64), error)
}

fn line_of(record: &AuditRecord<'_>) -> String {
    let hex = |digest: [u8; 32]| digest.iter().map(|byte| format!("{byte:02x}")).collect();
    rendered(&AuditLine {
        time: now(),
        deed: record.deed.name(),
        who: WhoseLine {
            session: record.who.session.filter(|name| !name.is_empty()),
            client: record.who.client,
            key: record.who.key.map(|key| key.to_string()),
            peer: record.who.peer.map(|peer| peer.to_string()),
        },
        root: record.root,
        path: record.path,
        what: record.what,
        bytes: record.bytes,
        b3: record.b3.map(hex),
        count: record.count,
        seconds: record.seconds.map(|seconds| (seconds * 1e3).round() / 1e3),
        code: record.code.map_or("ok", FaultCode::name),
    })
}

fn rendered(line: &AuditLine<'_>) -> String {
    // Texts and numbers can always be written.
    let mut text = json_line(line).unwrap_or_default();
    text.push('\n');
    text
}

fn now() -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Bytes of lines that wait to be written: some 50,000 records, which is a second or two of the
/// smallest files.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Bytes that are written at once, however soon after the last ones they come.
const GATHERED_BYTES: usize = 256 << 10;
/// Fewer are gathered for so long.
const GATHERING: Duration = Duration::from_millis(50);
/// A file that could not be written is tried again after this.
const RETRY: Duration = Duration::from_secs(1);
/// How long the last lines may take at the end.
const CLOSING_MAX: Duration = Duration::from_secs(5);
const CLOSING_LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
