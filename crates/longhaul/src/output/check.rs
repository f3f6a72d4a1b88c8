//! Tells the findings of `check`: a line or an event for each file that is not what the manifest
//! says, and the sums at the end.
//!
//! In: findings on names. Out: lines on standard output, the last line on standard error, and the
//! exit code. It reads no file and no manifest.

use std::io::{self, Write};

use longhaul_core::{ByteCount, Fault, RelPath};
use serde::Serialize;

use super::events::{JsonLines, Name, millis, name};
use super::human::{Talker, clean};
use super::units;
use crate::exit::Exit;
use crate::settings::Talk;

/// The finding on one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is what the manifest says.
    Ok,
    /// Its content is something else, or it is no regular file.
    Changed,
    /// Nothing has its name.
    Missing,
    /// It could not be read.
    Unread,
    /// The manifest does not have it.
    Extra,
}

impl Checked {
    const fn name(self) -> &'static str {
        match self {
            Checked::Ok => "ok",
            Checked::Changed => "changed",
            Checked::Missing => "missing",
            Checked::Unread => "unread",
            Checked::Extra => "extra",
        }
    }
}

/// The finding on one name of a manifest, or on a file that it does not have.
#[derive(Serialize)]
struct CheckBody<'a> {
    /// The path beneath the directory that is checked.
    #[serde(flatten)]
    path: Name<'a>,
    /// `ok`, `changed` (its content is something else, or it is no regular file), `missing`,
    /// `unread` (a `fault` event says why) or `extra` (the manifest does not have it).
    status: &'static str,
    /// Its length in bytes. 0 where nothing was read.
    bytes: u64,
    /// The BLAKE3 digest of its content in hex. Null where it was not read.
    b3: Option<String>,
}

/// The last line of `check`.
#[derive(Serialize)]
struct CheckSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Names of the manifest whose files are what it says.
    files_ok: u64,
    /// Names of the manifest whose files are something else.
    files_changed: u64,
    /// Names of the manifest that do not exist.
    files_missing: u64,
    /// Names of the manifest whose files could not be read.
    files_unread: u64,
    /// Files that the manifest does not have. They are looked for where a directory was named.
    files_extra: u64,
    /// Bytes of the files that were read, holes among them.
    bytes_read: u64,
    /// Seconds from the first look to the last.
    seconds: f64,
}

/// Tells findings.
pub struct CheckTelling<W: Write> {
    out: W,
    talker: Talker,
    json: bool,
    /// Whether names that are as they should be are told too.
    tells_all: bool,
    counts: [u64; 5],
    bytes: u64,
    has_failed: bool,
    written: io::Result<()>,
}

impl<W: Write> CheckTelling<W> {
    /// Tells on `out`, as events or as lines.
    pub fn new(out: W, talk: Talk) -> CheckTelling<W> {
        let (talker, json) = (Talker::new(talk), talk.json);
        let tells_all = json || talker.names_files();
        CheckTelling { out, talker, json, tells_all, counts: [0; 5], bytes: 0, has_failed: false, written: Ok(()) }
    }

    /// Tells the finding on a name, and the length and digest of its file if that was read.
    pub fn found(&mut self, path: &RelPath, checked: Checked, bytes: u64, b3: Option<[u8; 32]>) {
        self.counts[checked as usize] += 1;
        // A daemon may say anything.
        self.bytes = self.bytes.saturating_add(bytes);
        if self.written.is_err() || checked == Checked::Ok && !self.tells_all {
            return;
        }
        let status = checked.name();
        self.written = if self.json {
            let b3 = b3.map(|digest| blake3::Hash::from_bytes(digest).to_hex().to_string());
            JsonLines::new(&mut self.out).say("check", CheckBody { path: name(path.as_bytes()), status, bytes, b3 })
        } else {
            writeln!(self.out, "{status}: {}", clean(&path.escaped().to_string()))
        };
    }

    /// Tells a fault: not all was looked at.
    pub fn fault(&mut self, fault: &Fault) {
        self.has_failed = true;
        self.talker.fault(fault);
        if self.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
    }

    /// Whether nobody reads the findings any more.
    pub fn is_deaf(&self) -> bool {
        self.written.is_err()
    }

    fn count(&self, checked: Checked) -> u64 {
        self.counts[checked as usize]
    }

    /// Ends with the sums, after so many seconds of reading. The fault is the one that ended it.
    pub fn end(mut self, fault: Option<&Fault>, seconds: f64) -> Exit {
        let is_same = [Checked::Missing, Checked::Unread, Checked::Extra].iter().all(|what| self.count(*what) == 0);
        let exit = match fault {
            Some(fault) => fault.code.into(),
            None if self.count(Checked::Changed) > 0 => Exit::Mismatch,
            None if is_same && !self.has_failed => Exit::Complete,
            None => Exit::Partial,
        };
        if !self.json {
            self.written = self.written.and_then(|()| self.out.flush());
            if self.written.is_ok() {
                let line = self.closing(seconds);
                self.talker.note(line);
            }
        } else if self.written.is_ok() {
            let body = CheckSummaryBody {
                status: exit.status(),
                exit: exit.code(),
                files_ok: self.count(Checked::Ok),
                files_changed: self.count(Checked::Changed),
                files_missing: self.count(Checked::Missing),
                files_unread: self.count(Checked::Unread),
                files_extra: self.count(Checked::Extra),
                bytes_read: self.bytes,
                seconds: millis(seconds),
            };
            self.written = JsonLines::new(&mut self.out).say("summary", body);
        }
        match self.written {
            Ok(()) => exit,
            Err(error) => super::stdout_failed(error),
        }
    }

    fn closing(&self, seconds: f64) -> String {
        let mut line = format!("{} as the manifest says", units::count(self.count(Checked::Ok), "file"));
        for what in [Checked::Changed, Checked::Missing, Checked::Unread, Checked::Extra] {
            if self.count(what) > 0 {
                line.push_str(&format!(", {} {}", self.count(what), what.name()));
            }
        }
        line.push_str(&format!("; {} read in {seconds:.1} s", ByteCount(self.bytes)));
        if self.bytes > 0 && seconds > 0.0 {
            line.push_str(&format!(", {}", units::rate(self.bytes as f64 / seconds)));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: bool, findings: &[(&str, Checked)]) -> (String, Exit) {
        let mut out = Vec::new();
        let mut telling = CheckTelling::new(&mut out, Talk { quiet: true, json, ..Talk::default() });
        for (path, checked) in findings {
            let is_read = matches!(checked, Checked::Ok | Checked::Changed);
            let b3 = is_read.then_some([7; 32]);
            telling.found(&RelPath::new(*path).unwrap(), *checked, if is_read { 5 } else { 0 }, b3);
        }
        let exit = telling.end(None, 0.0);
        (String::from_utf8(out).unwrap(), exit)
    }

    #[test]
    fn names_that_are_as_they_should_be_take_no_line() {
        let findings = [("a", Checked::Ok), ("b", Checked::Changed), ("c\n", Checked::Missing), ("d", Checked::Extra)];
        let (text, exit) = told(false, &findings);
        assert_eq!(text, "changed: b\nmissing: c\\x0a\nextra: d\n");
        assert_eq!(exit, Exit::Mismatch);
        assert_eq!(told(false, &[("a", Checked::Ok)]), (String::new(), Exit::Complete));
    }

    #[test]
    fn every_difference_that_is_no_other_content_is_partial() {
        for what in [Checked::Missing, Checked::Unread, Checked::Extra] {
            assert_eq!(told(false, &[("a", Checked::Ok), ("b", what)]).1, Exit::Partial);
        }
    }

    #[test]
    fn scripts_get_each_finding_and_the_sums() {
        let (text, _) = told(true, &[("a", Checked::Ok), ("b", Checked::Missing)]);
        let sevens = "07".repeat(32);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                format!(
                    "{{\"v\":1,\"type\":\"check\",\"path\":\"a\",\"status\":\"ok\",\"bytes\":5,\"b3\":\"{sevens}\"}}"
                ),
                "{\"v\":1,\"type\":\"check\",\"path\":\"b\",\"status\":\"missing\",\"bytes\":0,\"b3\":null}".to_owned(),
                "{\"v\":1,\"type\":\"summary\",\"status\":\"partial\",\"exit\":23,\"files_ok\":1,\"files_changed\":0,\
                 \"files_missing\":1,\"files_unread\":0,\"files_extra\":0,\"bytes_read\":5,\"seconds\":0.0}"
                    .to_owned(),
            ]
        );
    }
}
