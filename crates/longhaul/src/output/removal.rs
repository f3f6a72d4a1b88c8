//! Tells what `sync --delete` plans and moves: a line or an event for each name, and the sums.
//!
//! In: findings on names, and plans. Out: lines on standard output, notes on standard error, and
//! the exit code. Decides nothing.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::Path;
use std::time::Instant;

use longhaul_core::{ByteCount, Escaped, Fault, RelPath};
use serde::Serialize;

use super::events::{JsonLines, Name, millis, name};
use super::human::{Talker, clean};
use super::units;
use crate::exit::Exit;
use crate::removal::RemovalPlan;
use crate::settings::Talk;

/// The finding on one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalFinding {
    /// It is in the plan.
    Planned,
    /// It lies on another file system, and is in no plan.
    Elsewhere,
    /// Something that is no directory stands above it at the source, and it is in no plan.
    InTheWay,
    /// It was moved away.
    Moved,
    /// An earlier run had moved it.
    MovedBefore,
    /// Nothing has the name any more.
    Gone,
    /// It is another one than was planned, or was changed.
    Changed,
    /// It is a directory in which something came to stand.
    NotEmpty,
    /// The source has the name again.
    AtSource,
    /// A filter leaves it out.
    Excluded,
    /// It could not be looked at or moved.
    Failed,
}

impl RemovalFinding {
    const fn name(self) -> &'static str {
        match self {
            RemovalFinding::Planned => "planned",
            RemovalFinding::Elsewhere => "elsewhere",
            RemovalFinding::InTheWay => "in-the-way",
            RemovalFinding::Moved => "moved",
            RemovalFinding::MovedBefore => "moved-before",
            RemovalFinding::Gone => "gone",
            RemovalFinding::Changed => "changed",
            RemovalFinding::NotEmpty => "not-empty",
            RemovalFinding::AtSource => "at-source",
            RemovalFinding::Excluded => "excluded",
            RemovalFinding::Failed => "failed",
        }
    }

    /// Whether a name of a plan was left where it is.
    const fn is_skip(self) -> bool {
        !matches!(
            self,
            RemovalFinding::Planned
                | RemovalFinding::Elsewhere
                | RemovalFinding::InTheWay
                | RemovalFinding::Moved
                | RemovalFinding::MovedBefore
        )
    }
}

/// A name that only the destination has.
#[derive(Serialize)]
struct RemovalBody<'a> {
    /// The path beneath the destination.
    #[serde(flatten)]
    path: Name<'a>,
    /// By `plan`: `planned`, or why it is in no plan: `elsewhere` (on another file system),
    /// `in-the-way` (a link stands above it at the source). By `apply`: `moved`, `moved-before` (by
    /// an earlier run), or why it was left where it is: `gone`, `changed` (it is not what was
    /// planned), `not-empty`, `at-source` (the source has the name again), `excluded` (by a
    /// filter), `failed` (a `fault` event says why).
    status: &'static str,
    /// Its length in bytes, as planned.
    bytes: u64,
}

/// A plan that was made.
#[derive(Serialize)]
struct RemovalPlanBody {
    /// Its digest in hex, by which it is applied.
    digest: String,
    /// Its file.
    path: String,
    /// The directory that DEST is, without links; its location, if it is at a daemon.
    destination: String,
    /// Files and links in it.
    files: u64,
    /// Bytes of the files.
    bytes: u64,
    /// All names in it, directories too.
    names: u64,
}

/// The last line of `sync --delete`.
#[derive(Serialize)]
struct RemovalSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Names in the plan that was made.
    planned: u64,
    /// Names that were moved, by this run or an earlier one.
    moved: u64,
    /// Names of the plan that were left where they are.
    skipped: u64,
    /// The directory in which names lie that were moved; behind `lh://HOST:PORT/ROOT/` at a daemon.
    /// Null where nothing was to be moved.
    grace: Option<String>,
    /// Seconds that it took.
    seconds: f64,
}

/// Tells what becomes of names that only the destination has.
pub struct RemovalTelling {
    out: BufWriter<Stdout>,
    talker: Talker,
    json: bool,
    planned: u64,
    moved: u64,
    skipped: u64,
    grace: Option<String>,
    exit: Exit,
    begun: Instant,
    written: io::Result<()>,
}

impl RemovalTelling {
    /// Tells on standard output, as events or as lines.
    pub fn new(talk: Talk) -> RemovalTelling {
        let (out, talker, json) = (BufWriter::new(io::stdout()), Talker::new(talk), talk.json);
        let (planned, moved, skipped) = (0, 0, 0);
        let (grace, exit, begun, written) = (None, Exit::Complete, Instant::now(), Ok(()));
        RemovalTelling { out, talker, json, planned, moved, skipped, grace, exit, begun, written }
    }

    /// Whether nobody reads any more.
    pub fn is_deaf(&self) -> bool {
        self.written.is_err()
    }

    /// Tells the finding on a name.
    pub fn found(&mut self, path: &RelPath, finding: RemovalFinding, bytes: u64) {
        match finding {
            RemovalFinding::Planned => self.planned += 1,
            RemovalFinding::Moved | RemovalFinding::MovedBefore => self.moved += 1,
            finding if finding.is_skip() => {
                self.skipped += 1;
                self.exit = if self.exit == Exit::Complete { Exit::Partial } else { self.exit };
            }
            _ => {}
        }
        if self.written.is_err() {
            return;
        }
        let status = finding.name();
        self.written = if self.json {
            let body = RemovalBody { path: name(path.as_bytes()), status, bytes };
            JsonLines::new(&mut self.out).say("removal", body)
        } else {
            writeln!(self.out, "{status}: {}", clean(&path.escaped().to_string()))
        };
    }

    /// Tells a plan that was made: its digest on standard output, the sums beside it.
    pub fn planned(&mut self, plan: &RemovalPlan, digest: &str, file: &Path) {
        let (files, bytes, names) = (plan.files(), plan.bytes(), plan.names.len() as u64);
        if self.json {
            let path = file.to_string_lossy().into_owned();
            let destination = String::from_utf8_lossy(&plan.destination).into_owned();
            let body = RemovalPlanBody { digest: digest.to_owned(), path, destination, files, bytes, names };
            if self.written.is_ok() {
                self.written = JsonLines::new(&mut self.out).say("removal_plan", body);
            }
            return;
        }
        if self.written.is_ok() {
            self.written = writeln!(self.out, "digest: {digest}").and_then(|()| self.out.flush());
        }
        let files = units::count(files, "file");
        let dest = Escaped(&plan.destination);
        self.talker.note(format_args!("{files}, {} are at DEST alone, {dest}; nothing was moved", ByteCount(bytes)));
        self.talker.hint(
            "look through the names above; the same command with '--delete apply' and this digest moves them away",
        );
    }

    /// Notes where names lie that were moved.
    pub fn kept_in(&mut self, grace: String) {
        self.grace = Some(grace);
    }

    /// Tells a fault of one name.
    pub fn fault(&mut self, fault: &Fault) {
        if !self.json && self.written.is_ok() {
            self.written = self.out.flush();
        }
        self.talker.fault(fault);
        if self.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
    }

    /// Tells what ended the command.
    pub fn failed(&mut self, fault: &Fault) {
        self.fault(fault);
        self.exit = fault.code.into();
    }

    /// Ends with the sums.
    pub fn end(mut self) -> Exit {
        let RemovalTelling { planned, moved, skipped, exit, json, .. } = self;
        if self.written.is_ok() && json {
            let (status, seconds) = (exit.status(), millis(self.begun.elapsed().as_secs_f64()));
            let grace = self.grace.clone();
            let body = RemovalSummaryBody { status, exit: exit.code(), planned, moved, skipped, grace, seconds };
            self.written = JsonLines::new(&mut self.out).say("summary", body);
        }
        self.written = self.written.and_then(|()| self.out.flush());
        if let Err(error) = self.written {
            return super::stdout_failed(error);
        }
        match &self.grace {
            None if planned == 0 => self.talker.note("nothing is at DEST alone"),
            None => {}
            Some(grace) => {
                let mut line = format!("{} moved to {}", units::count(moved, "name"), clean(grace));
                if skipped > 0 {
                    line.push_str(&format!(", {skipped} left where they are"));
                }
                self.talker.note(line);
                if moved > 0 {
                    self.talker
                        .hint("move a name back to undo it; remove that directory when nobody misses anything in it");
                }
            }
        }
        exit
    }
}
