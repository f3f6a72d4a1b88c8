//! Tells the findings of `manifest consistency`: a line or an event for each name on which
//! catalogue and storage disagree, and the sums at the end.
//!
//! In: findings on names. Out: lines on standard output, the last line on standard error, and the
//! exit code. It compares nothing.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use longhaul_core::{Escaped, Fault};
use longhaul_manifest::{ConsistencySums, Inconsistency, Item, ItemKind};
use serde::Serialize;

use super::events::{JsonLines, Name, millis, name};
use super::human::{Talker, clean};
use super::units;
use crate::exit::Exit;
use crate::settings::Talk;

/// A name on which a catalogue and its storage disagree.
#[derive(Serialize)]
struct InconsistencyBody<'a> {
    /// The path in the lists.
    #[serde(flatten)]
    path: Name<'a>,
    /// `lost` (both lists of the catalogue have it, and the storage does not) or `dark` (the
    /// storage has it, and neither list of the catalogue does).
    status: &'static str,
    /// The length of the file in bytes in the list that has it. Null where it is not known.
    bytes: Option<u64>,
}

/// The last line of `manifest consistency`.
#[derive(Serialize)]
struct ConsistencySummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Names that the storage has, and a list of the catalogue too.
    consistent: u64,
    /// Names that are lost.
    lost: u64,
    /// Names that are dark.
    dark: u64,
    /// Names that one list of the catalogue has, and nothing else: they came or went meanwhile.
    passing: u64,
    /// Seconds that it took.
    seconds: f64,
}

/// Tells what the comparison finds.
pub struct ConsistencyTelling<W: Write> {
    out: W,
    talker: Talker,
    json: bool,
    /// The exit of the first failure. `Complete`: there was none.
    exit: Exit,
    begun: Instant,
    written: io::Result<()>,
}

impl<W: Write> ConsistencyTelling<W> {
    /// Tells on `out`, as events or as lines.
    pub fn new(out: W, talk: Talk) -> ConsistencyTelling<W> {
        let (talker, json, exit) = (Talker::new(talk), talk.json, Exit::Complete);
        ConsistencyTelling { out, talker, json, exit, begun: Instant::now(), written: Ok(()) }
    }

    /// Whether nobody reads any more.
    pub fn is_deaf(&self) -> bool {
        self.written.is_err()
    }

    /// Tells the finding on a name.
    pub fn found(&mut self, item: &Item, found: Inconsistency) {
        let status = match found {
            Inconsistency::Lost => "lost",
            Inconsistency::Dark => "dark",
        };
        let path = item.path.as_bytes();
        self.written = if self.json {
            let bytes = if let ItemKind::File { bytes } = item.kind { bytes } else { None };
            JsonLines::new(&mut self.out).say("inconsistency", InconsistencyBody { path: name(path), status, bytes })
        } else {
            writeln!(self.out, "{status}: {}", clean(&Escaped(path).to_string()))
        };
    }

    /// Warns that a manifest has not all names: one that it lacks may be told as lost or dark.
    pub fn incomplete(&mut self, path: &Path, omitted: u64) {
        let names = units::count(omitted, "name");
        self.talker.warn(format!("'{}' was sealed without {names} that could not be read", path.display()));
        self.exit = Exit::Partial;
    }

    /// Tells what ended the command.
    pub fn failed(&mut self, fault: &Fault) {
        self.talker.fault(fault);
        if self.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
        self.exit = fault.code.into();
    }

    /// Ends the command.
    pub fn end(mut self, sums: ConsistencySums) -> Exit {
        let ConsistencySums { consistent, lost, dark, passing } = sums;
        let exit = if self.exit == Exit::Complete && lost + dark > 0 { Exit::Partial } else { self.exit };
        if self.json && self.written.is_ok() {
            let (status, code, seconds) = (exit.status(), exit.code(), millis(self.begun.elapsed().as_secs_f64()));
            let body = ConsistencySummaryBody { status, exit: code, consistent, lost, dark, passing, seconds };
            self.written = JsonLines::new(&mut self.out).say("summary", body);
        } else if self.written.is_ok() {
            self.written = self.out.flush();
            let names = units::count(consistent, "name");
            self.talker.note(format!("{names} consistent, {lost} lost, {dark} dark, {passing} came or went meanwhile"));
        }
        match self.written.and_then(|()| self.out.flush()) {
            Ok(()) => exit,
            Err(error) => super::stdout_failed(error),
        }
    }
}
