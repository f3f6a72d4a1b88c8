//! Tells what lies in a target set: a line or an event for each file and for each finding, and the
//! targets at the end.
//!
//! In: files, faults, and the set. Out: lines on standard output, and the exit code. It looks at no
//! file.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use longhaul_core::{ByteCount, Escaped, Fault, FaultCode, Mtime, RelPath, TempName};
use longhaul_engine::{CopyKind, LostFile, Moving, OldTarget, Orphan, Rebuilding, ReplaceEnd, TargetSet};
use serde::Serialize;

use super::events::{JsonLines, Name, name};
use super::human::{Talker, clean};
use super::units;
use crate::exit::Exit;
use crate::settings::Talk;

/// Whether each file is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TellsFiles {
    /// Each.
    Each,
    /// None: only what is wrong.
    No,
}

/// A file of a set.
#[derive(Serialize)]
struct SetFileBody<'a> {
    /// The path beneath the set.
    #[serde(flatten)]
    path: Name<'a>,
    /// The number of its target.
    target: u32,
    /// Its length in bytes.
    bytes: u64,
}

/// A body that no striped file needs.
#[derive(Serialize)]
struct SetOrphanBody<'a> {
    /// The number of its target.
    target: u32,
    /// The id of the file that it was a part of, 32 hex digits, which its name ends with.
    id: &'a str,
    /// Its length in bytes.
    bytes: u64,
    /// The path of that file beneath the set, escaped. Null where that is not known: the file was
    /// never whole.
    path: Option<String>,
}

/// A striped file whose stripe file was lost.
#[derive(Serialize)]
struct SetLostBody<'a> {
    /// Its path beneath the set.
    #[serde(flatten)]
    path: Name<'a>,
    /// Its id, 32 hex digits.
    id: &'a str,
    /// Its length in bytes.
    bytes: u64,
    /// `possible` (it can be made again), `made` or `impossible`.
    state: &'static str,
    /// The reason why it cannot be made again. Null if it can, or was.
    why: Option<&'a str>,
}

/// A file, or chunks of a striped one, that went to another target.
#[derive(Serialize)]
struct SetMoveBody<'a> {
    /// Its path beneath the set.
    #[serde(flatten)]
    path: Name<'a>,
    /// The number of the target that it lay on.
    from: u32,
    /// The number of the target that it went to, or is to go to.
    to: u32,
    /// The bytes that moved.
    bytes: u64,
    /// `planned` or `moved`.
    state: &'static str,
}

/// A file, a link or a body of a target that is replaced.
#[derive(Serialize)]
struct SetCopyBody<'a> {
    /// Its path beneath the target; that of a body or journal ends with its name.
    #[serde(flatten)]
    path: Name<'a>,
    /// `name` (of the tree), `body` (of a striped file) or `journal` (of unfinished files).
    kind: &'static str,
    /// Its length in bytes.
    bytes: u64,
    /// `planned` or `copied`: by this run, or by an earlier one and unchanged since.
    state: &'static str,
}

/// A verification that was stopped and is gone on with. The files that were read whole by then are
/// told again, each as a `set_file` or, where it is damaged, a `fault`.
#[derive(Serialize)]
struct SetContinuedBody {
    /// When the verification began, in seconds since 1970.
    began_s: u64,
    /// Files that were read whole by then and are right.
    files: u64,
    /// Their bytes.
    bytes: u64,
}

/// A target of a set.
#[derive(Serialize)]
struct SetTargetBody<'a> {
    /// Its number.
    target: u32,
    /// Its directory.
    #[serde(flatten)]
    dir: Name<'a>,
    /// `present` or `missing`.
    state: &'static str,
    /// Files and links on it. 0 for `init`, which looks at none.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Bytes that are free on its file system. Null where that is not known.
    free_bytes: Option<u64>,
}

/// The last line of a `set` command.
#[derive(Serialize)]
struct SetSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// The id of the set, 32 hex digits.
    set: String,
    /// Its layout.
    layout: &'static str,
    /// Files and links on all targets that are there.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Names that stand on two targets or could not be looked at; a `fault` event tells each.
    findings: u64,
    /// Targets that are missing.
    missing: u64,
}

/// Tells what lies in a set.
pub struct SetTelling<W: Write> {
    out: W,
    talker: Talker,
    json: bool,
    files: TellsFiles,
    /// Files and bytes by the number of their target.
    sums: BTreeMap<u32, (u64, u64)>,
    findings: u64,
    /// Whether orphans are what is asked for, and no finding.
    collects: bool,
    /// Whether any content is not what was written.
    is_damaged: bool,
    /// The exit of a command that was stopped.
    stopped: Option<Exit>,
    written: io::Result<()>,
}

impl<W: Write> SetTelling<W> {
    /// Tells on `out`, as events or as lines.
    pub fn new(out: W, talk: Talk, files: TellsFiles) -> SetTelling<W> {
        let (talker, json) = (Talker::new(talk), talk.json);
        let (sums, findings, collects, written) = (BTreeMap::new(), 0, false, Ok(()));
        let (is_damaged, stopped) = (false, None);
        SetTelling { out, talker, json, files, sums, findings, collects, is_damaged, stopped, written }
    }

    /// The same for a command about orphans, which are no findings then.
    pub fn collecting(self) -> SetTelling<W> {
        SetTelling { collects: true, ..self }
    }

    /// Tells a body that no striped file needs.
    pub fn orphan(&mut self, orphan: &Orphan) {
        self.findings += u64::from(!self.collects);
        if self.written.is_err() {
            return;
        }
        let id = hex(&orphan.id);
        let path = orphan.path.as_ref().map(|path| Escaped(path).to_string());
        let (target, bytes) = (orphan.target, orphan.bytes);
        self.written = if self.json {
            JsonLines::new(&mut self.out).say("set_orphan", SetOrphanBody { target, id: &id, bytes, path })
        } else {
            let was = path.map_or_else(String::new, |path| format!(", once a part of {}", clean(&path)));
            writeln!(self.out, "orphan {id} on target {target}: {}{was}", ByteCount(bytes))
        };
    }

    /// Tells a file.
    pub fn file(&mut self, path: &RelPath, target: u32, bytes: u64) {
        let (files, sum) = self.sums.entry(target).or_default();
        (*files, *sum) = (*files + 1, *sum + bytes);
        if self.written.is_err() || self.files == TellsFiles::No {
            return;
        }
        self.written = if self.json {
            JsonLines::new(&mut self.out).say("set_file", SetFileBody { path: name(path.as_bytes()), target, bytes })
        } else {
            writeln!(self.out, "{target}\t{bytes}\t{}", clean(&path.escaped().to_string()))
        };
    }

    /// Tells a striped file whose stripe file was lost. One that was made again is no finding.
    pub fn lost(&mut self, file: &LostFile, deed: Rebuilding) {
        let state = match (&file.why_not, deed) {
            (Some(_), _) => "impossible",
            (None, Rebuilding::Planned) => "possible",
            (None, Rebuilding::Done) => "made",
        };
        self.findings += u64::from(state == "impossible");
        if self.written.is_err() {
            return;
        }
        let (id, why) = (hex(&file.id), file.why_not.as_deref());
        self.written = if self.json {
            let body = SetLostBody { path: name(&file.path), id: &id, bytes: file.bytes, state, why };
            JsonLines::new(&mut self.out).say("set_lost", body)
        } else {
            let why = why.map_or_else(String::new, |why| format!(": {}", clean(why)));
            let path = clean(&Escaped(&file.path).to_string());
            writeln!(self.out, "{state}\t{}\t{path}{why}", ByteCount(file.bytes))
        };
    }

    /// Tells a move between targets.
    pub fn moved(&mut self, path: &RelPath, (from, to): (u32, u32), bytes: u64, moving: Moving) {
        if self.written.is_err() {
            return;
        }
        let state = if moving == Moving::Done { "moved" } else { "planned" };
        self.written = if self.json {
            let body = SetMoveBody { path: name(path.as_bytes()), from, to, bytes, state };
            JsonLines::new(&mut self.out).say("set_move", body)
        } else {
            writeln!(self.out, "{state}\t{from}\t{to}\t{bytes}\t{}", clean(&path.escaped().to_string()))
        };
        // A move may take long.
        if moving == Moving::Done {
            self.flush();
        }
    }

    /// Tells a copy of what lies on a target that is replaced.
    pub fn copied(&mut self, (path, kind): (&RelPath, CopyKind), bytes: u64, moving: Moving) {
        if self.written.is_err() {
            return;
        }
        let state = if moving == Moving::Done { "copied" } else { "planned" };
        let kind = match kind {
            CopyKind::Name => "name",
            CopyKind::Body => "body",
            CopyKind::Journal => "journal",
        };
        self.written = if self.json {
            let body = SetCopyBody { path: name(path.as_bytes()), kind, bytes, state };
            JsonLines::new(&mut self.out).say("set_copy", body)
        } else {
            writeln!(self.out, "{state}\t{kind}\t{bytes}\t{}", clean(&path.escaped().to_string()))
        };
        // A copy may take long.
        if moving == Moving::Done {
            self.flush();
        }
    }

    /// Tells how a replacement ended, and what to do next.
    pub fn replaced(&self, end: ReplaceEnd, state: OldTarget) {
        match (end, state) {
            (ReplaceEnd::Open, _) => {
                self.talker.note("the set is as it was: what could not be copied is told above");
                self.talker.hint(
                    "run the same command again, which copies only what is missing, or with --give-up-unreadable to go \
                     on without it",
                );
            }
            (_, OldTarget::Lost) => {
                self.talker
                    .note("whole files that lay on the lost target are lost with it, and the set has no list of them");
                self.talker.hint(
                    "'longhaul set rebuild' makes stripe files again that lay there: run it before 'longhaul set collect'",
                );
            }
            (ReplaceEnd::Done, _) => {
                self.talker.note("the old directory keeps all that lay there, and is no target any more")
            }
            (ReplaceEnd::Planned, _) => {}
        }
    }

    /// Shows what was told, where the next find may be long in coming.
    pub fn flush(&mut self) {
        if self.written.is_ok() {
            self.written = self.out.flush();
        }
    }

    /// Tells a name that is wrong.
    pub fn wrong(&mut self, fault: &Fault) {
        self.findings += 1;
        self.is_damaged |= fault.code == FaultCode::Mismatch;
        self.talker.fault(fault);
        if self.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
    }

    /// Tells that a verification is gone on with, when it began, and the files and bytes that it
    /// has read.
    pub fn continued(&mut self, began: Mtime, (files, bytes): (u64, u64)) {
        let (known, held) = (units::count(files, "file"), ByteCount(bytes));
        let since = units::time(began);
        self.talker.note(format_args!(
            "going on with a verification that began {since}: {known} ({held}) were read whole; --restart begins anew"
        ));
        if self.json && self.written.is_ok() {
            let began_s = u64::try_from(began.secs).unwrap_or(0);
            let body = SetContinuedBody { began_s, files, bytes };
            self.written = JsonLines::new(&mut self.out).say("set_continued", body);
        }
    }

    /// Tells why a verification cannot be gone on with when it is stopped.
    pub fn no_record(&self, fault: &Fault) {
        self.talker.note(format_args!("if this is stopped, the next run begins anew: {}", fault.message));
    }

    /// Tells that the command was stopped, and by which fault.
    pub fn stopped(&mut self, fault: &Fault) {
        self.stopped = Some(Exit::from(fault.code));
        self.talker.fault(fault);
        if self.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
    }

    /// Whether nobody reads any more.
    pub fn is_deaf(&self) -> bool {
        self.written.is_err()
    }

    /// Ends with the targets and the sums.
    pub fn end(mut self, set: &TargetSet) -> Exit {
        let missing = set.missing().len() as u64;
        let exit = self.stopped.unwrap_or(match self.findings + missing {
            0 => Exit::Complete,
            _ if self.is_damaged => Exit::Mismatch,
            _ => Exit::Partial,
        });
        for room in set.rooms() {
            self.target(room.id.0, &room.dir, "present", room.free_bytes);
        }
        for target in set.missing() {
            self.target(target.id.0, &target.dir, "missing", None);
            self.talker.warn(format!("target {} ({}) is missing: {}", target.id.0, target.dir.display(), target.why));
        }
        let (files, bytes) = self.sums.values().fold((0, 0), |(files, bytes), sum| (files + sum.0, bytes + sum.1));
        if let Some(mark) = set.mark() {
            let (id, layout) = (mark.set.to_string(), mark.layout.name());
            if self.json && self.written.is_ok() {
                let (findings, status) = (self.findings, exit.status());
                let body =
                    SetSummaryBody { status, exit: exit.code(), set: id, layout, files, bytes, findings, missing };
                self.written = JsonLines::new(&mut self.out).say("summary", body);
            } else {
                let targets = units::count(u64::from(mark.count()), "target");
                let wrong = units::count(self.findings, "finding");
                self.talker.note(format_args!("set {id}, {layout} over {targets}: {wrong}"));
            }
        }
        let flushed = self.out.flush();
        match self.written.and(flushed) {
            Ok(()) => exit,
            Err(error) => super::stdout_failed(error),
        }
    }

    fn target(&mut self, target: u32, dir: &Path, state: &'static str, free_bytes: Option<u64>) {
        if self.written.is_err() {
            return;
        }
        let (files, bytes) = self.sums.get(&target).copied().unwrap_or_default();
        let shown = dir.as_os_str().as_encoded_bytes();
        self.written = if self.json {
            let body = SetTargetBody { target, dir: name(shown), state, files, bytes, free_bytes };
            JsonLines::new(&mut self.out).say("set_target", body)
        } else {
            let free = free_bytes.map_or("?".to_owned(), |free| ByteCount(free).to_string());
            let (files, held) = (units::count(files, "file"), ByteCount(bytes));
            writeln!(
                self.out,
                "target {target}: {} {state}, {files}, {held}, {free} free",
                clean(&Escaped(shown).to_string())
            )
        };
    }
}

/// The digits of an id.
fn hex(id: &TempName) -> String {
    id.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_line_with_its_target_only_where_they_are_asked_for() {
        for (files, told) in [(TellsFiles::Each, "3\t5\ta\\x0ab\n"), (TellsFiles::No, "")] {
            let mut out = Vec::new();
            let mut telling = SetTelling::new(&mut out, Talk { quiet: true, ..Talk::default() }, files);
            telling.file(&RelPath::new("a\nb").unwrap(), 3, 5);
            drop(telling);
            assert_eq!(String::from_utf8(out).unwrap(), told);
        }
    }
}
