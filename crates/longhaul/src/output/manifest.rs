//! Tells what there is about sealed manifests: their sums, their items, their differences.
//!
//! In: manifests, items and findings. Out: lines or events on standard output, notes on standard
//! error, and the exit code. Reads no manifest and compares none.

mod lines;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use longhaul_core::{ByteCount, Escaped, Fault};
use longhaul_jobs::queue::OMITTED_NAMES_MAX;
use longhaul_manifest::{Algorithm, Difference, Item, ItemKind, Sealed};
use serde::Serialize;

use self::lines::{bytes_of, long_line, sums_line};
use super::events::{JsonLines, Name, millis, name};
use super::human::{Talker, clean};
use super::units;
use crate::exit::Exit;
use crate::settings::Talk;

/// A sealed manifest.
#[derive(Serialize)]
struct SealedBody<'a> {
    /// Its place, as it was given.
    path: &'a str,
    /// The digest that names the dataset, in hex: the BLAKE3 of its head.
    digest: String,
    /// Names in it.
    items: u64,
    /// Files among them.
    files: u64,
    /// Bytes of the files whose length is known.
    bytes: u64,
    /// Names that could not be read when it was made, and so are not in it.
    omitted: u64,
    /// Its segments.
    segments: u64,
    /// The checksums that any of its files has.
    checksums: Vec<&'static str>,
    /// Kinds of names that it lists: `file`, `dir`, `link`.
    lists: Vec<&'static str>,
}

/// How far `manifest make` is, about every 5 s.
#[derive(Serialize)]
struct ManifestProgressBody {
    /// Seconds since the run began.
    t_s: f64,
    /// Names that were listed by this run.
    items: u64,
    /// Bytes of the files among them.
    bytes: u64,
}

/// A name in a manifest, of `manifest show --list`.
#[derive(Serialize)]
struct ItemBody<'a> {
    /// The path beneath the top of the dataset.
    #[serde(flatten)]
    path: Name<'a>,
    /// `file`, `dir` or `link`.
    kind: &'static str,
    /// The length of a file in bytes. Null where it is not known, and of other kinds.
    bytes: Option<u64>,
    /// Whole seconds since 1970 of the last change, times 10^9, plus nanoseconds, as text, since it
    /// is larger than what scripts count exactly. Null where it is not known.
    mtime_ns: Option<String>,
    /// The checksums that are known, in hex, by their names.
    checksums: BTreeMap<&'static str, String>,
    /// The target of a link; bytes that are not UTF-8 are replaced. Null of other kinds.
    target: Option<String>,
}

/// A name on which two manifests differ; with `-v` every name.
#[derive(Serialize)]
struct DifferenceBody<'a> {
    /// The path beneath the top of the dataset.
    #[serde(flatten)]
    path: Name<'a>,
    /// `added` (only the second has it), `removed` (only the first), `changed`, `unknown` (what is
    /// known tells neither that it is the same nor that it differs) or `same`.
    status: &'static str,
    /// The length of the file in bytes in the second manifest, or in the only one that has it. Null
    /// where it is not known, and of other kinds.
    bytes: Option<u64>,
}

/// The last line of the `manifest` commands.
#[derive(Serialize)]
struct ManifestSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Names that an earlier run of `manifest make` had listed already.
    items_resumed: u64,
    /// Names of kinds that are not listed: fifos, sockets, devices, and names that longhaul keeps
    /// for itself; of `manifest show --sums`, files without that checksum.
    skipped: u64,
    /// Seconds that it took.
    seconds: f64,
}

/// The last line of `manifest diff`.
#[derive(Serialize)]
struct DiffSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Names that are the same in both.
    same: u64,
    /// Names that only the second has.
    added: u64,
    /// Names that only the first has.
    removed: u64,
    /// Names that both have and that differ.
    changed: u64,
    /// Names that both have and of which nothing tells.
    unknown: u64,
    /// Seconds that it took.
    seconds: f64,
}

/// The form of an item's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemForm {
    /// Its length, its time and its name.
    Long,
    /// A checksum and its name, as programs print and check them.
    Sums(Algorithm),
}

/// Tells what a `manifest` command finds.
pub struct ManifestTelling<W: Write> {
    out: W,
    talker: Talker,
    json: bool,
    tells_all: bool,
    counts: [u64; 5],
    skipped: u64,
    resumed: u64,
    /// The exit of the first failure. `Complete`: there was none.
    exit: Exit,
    begun: Instant,
    written: io::Result<()>,
    /// The faults of the first names that could not be read.
    omissions: Vec<Fault>,
}

impl<W: Write> ManifestTelling<W> {
    /// Tells on `out`, as events or as lines.
    pub fn new(out: W, talk: Talk) -> ManifestTelling<W> {
        let (talker, json) = (Talker::new(talk), talk.json);
        let tells_all = talk.verbose > 0;
        let (counts, exit, begun, written) = ([0; 5], Exit::Complete, Instant::now(), Ok(()));
        let (skipped, resumed, omissions) = (0, 0, Vec::new());
        ManifestTelling { out, talker, json, tells_all, counts, skipped, resumed, exit, begun, written, omissions }
    }

    /// Whether nobody reads any more.
    pub fn is_deaf(&self) -> bool {
        self.written.is_err()
    }

    /// Tells that a name could not be read.
    pub fn omitted(&mut self, fault: &Fault) {
        self.tell_fault(fault);
        self.fail(Exit::Partial);
        if self.omissions.len() < OMITTED_NAMES_MAX {
            self.omissions.push(fault.clone());
        }
    }

    /// The faults of names that could not be read: the first ones, for whoever keeps them.
    pub fn omissions(self) -> Vec<Fault> {
        self.omissions
    }

    /// Tells what ended the command.
    pub fn failed(&mut self, fault: &Fault) {
        self.tell_fault(fault);
        // It says more than a name that was left out before.
        self.exit = fault.code.into();
    }

    fn tell_fault(&mut self, fault: &Fault) {
        if !self.json && self.written.is_ok() {
            self.written = self.out.flush();
        }
        self.talker.fault(fault);
        if self.json && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).fault(fault);
        }
    }

    fn fail(&mut self, exit: Exit) {
        if self.exit == Exit::Complete {
            self.exit = exit;
        }
    }

    /// Tells a name of a kind that is not listed.
    pub fn skipped(&mut self, path: &[u8], what: &str) {
        self.skipped += 1;
        if self.tells_all {
            self.talker.note(format!("'{}' is not listed: {what}", Escaped(path)));
        }
    }

    /// Notes how many items an earlier run had listed.
    pub fn resumed(&mut self, items: u64) {
        self.resumed = items;
        if items > 0 {
            self.talker.note(format!("{} had been listed by an earlier run", units::count(items, "name")));
        }
    }

    /// Tells how far it is.
    pub fn progress(&mut self, items: u64, bytes: u64) {
        let seconds = self.begun.elapsed().as_secs_f64();
        if !self.json {
            let line = format!("{} {}, {}", units::span(seconds), units::count(items, "name"), ByteCount(bytes));
            self.talker.say(line);
        } else if self.written.is_ok() {
            let body = ManifestProgressBody { t_s: millis(seconds), items, bytes };
            self.written = JsonLines::new(&mut self.out).say("manifest_progress", body);
        }
    }

    /// Tells a manifest that was made: its digest on standard output, the sums beside it.
    pub fn made(&mut self, path: &Path, sealed: &Sealed) {
        let (head, digest) = (sealed.head(), hex(&sealed.digest()));
        if head.omitted > 0 {
            self.fail(Exit::Partial);
        }
        if self.json {
            return self.sealed_event(path, sealed);
        }
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{digest}").and_then(|()| self.out.flush());
        }
        let files = units::count(head.files(), "file");
        self.talker.note(format!("{files}, {} in {}", ByteCount(head.bytes()), clean(&path.to_string_lossy())));
        if head.omitted > 0 {
            let names = units::count(head.omitted, "name");
            self.talker.warn(format!("{names} could not be read, and the manifest is sealed without"));
        }
    }

    /// Tells all that the head of a manifest says.
    pub fn sealed(&mut self, path: &Path, sealed: &Sealed) {
        if self.json {
            return self.sealed_event(path, sealed);
        }
        let head = sealed.head();
        let mut lines = String::new();
        for (word, value) in [
            ("digest", hex(&sealed.digest())),
            ("items", head.items().to_string()),
            ("files", head.files().to_string()),
            ("bytes", head.bytes().to_string()),
            ("omitted", head.omitted.to_string()),
            ("segments", head.segments.len().to_string()),
            ("checksums", head.known().to_string()),
            ("lists", lists_of(sealed).join(" ")),
        ] {
            lines.push_str(&format!("{word:<10}{value}\n"));
        }
        if self.written.is_ok() {
            self.written = self.out.write_all(lines.as_bytes());
        }
    }

    fn sealed_event(&mut self, path: &Path, sealed: &Sealed) {
        let head = sealed.head();
        let body = SealedBody {
            path: &path.to_string_lossy(),
            digest: hex(&sealed.digest()),
            items: head.items(),
            files: head.files(),
            bytes: head.bytes(),
            omitted: head.omitted,
            segments: head.segments.len() as u64,
            checksums: head.known().iter().map(Algorithm::name).collect(),
            lists: lists_of(sealed),
        };
        if self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).say("manifest", body);
        }
    }

    /// Tells an item. In the form of checksums one that has none of them is left out.
    pub fn item(&mut self, item: &Item, form: ItemForm) {
        if self.written.is_err() {
            return;
        }
        let lacks = |algorithm| item.is_file() && item.sums.get(algorithm).is_none();
        self.skipped += u64::from(matches!(form, ItemForm::Sums(algorithm) if lacks(algorithm)));
        self.written = match form {
            _ if self.json => JsonLines::new(&mut self.out).say("item", body_of(item)),
            ItemForm::Long => self.out.write_all(long_line(item).as_bytes()),
            ItemForm::Sums(algorithm) => match item.sums.hex(algorithm) {
                Some(sum) => self.out.write_all(&sums_line(&sum, item.path.as_bytes())),
                None => Ok(()),
            },
        };
    }

    /// Warns of files that were left out for want of a checksum.
    pub fn without_sums(&mut self) {
        if self.skipped > 0 {
            let _ = self.out.flush();
            self.talker.warn(format!("{} no such checksum", have(self.skipped)));
            self.fail(Exit::Partial);
        }
    }

    /// Tells the finding on a name.
    pub fn difference(&mut self, item: &Item, difference: Difference) {
        self.counts[difference as usize] += 1;
        if self.written.is_err() || difference == Difference::Same && !self.tells_all {
            return;
        }
        let (status, path) = (status(difference), item.path.as_bytes());
        self.written = if self.json {
            let body = DifferenceBody { path: name(path), status, bytes: bytes_of(item) };
            JsonLines::new(&mut self.out).say("difference", body)
        } else {
            writeln!(self.out, "{status}: {}", clean(&Escaped(path).to_string()))
        };
    }

    /// Warns that a manifest that is compared has not all names.
    pub fn incomplete(&mut self, path: &Path, omitted: u64) {
        let names = units::count(omitted, "name");
        self.talker.warn(format!("'{}' was sealed without {names} that could not be read", path.display()));
        self.fail(Exit::Partial);
    }

    /// Ends a command.
    pub fn end(mut self) -> Exit {
        let (exit, seconds) = (self.exit, millis(self.begun.elapsed().as_secs_f64()));
        if self.json && self.written.is_ok() {
            let (status, items_resumed, skipped) = (exit.status(), self.resumed, self.skipped);
            let body = ManifestSummaryBody { status, exit: exit.code(), items_resumed, skipped, seconds };
            self.written = JsonLines::new(&mut self.out).say("summary", body);
        }
        self.flushed(exit)
    }

    /// Ends a comparison.
    pub fn end_of_diff(mut self) -> Exit {
        let [same, added, removed, changed, unknown] = self.counts;
        let exit = match self.exit {
            Exit::Complete | Exit::Partial if changed > 0 => Exit::Mismatch,
            Exit::Complete if added + removed + unknown > 0 => Exit::Partial,
            exit => exit,
        };
        if !self.json {
            self.written = self.written.and_then(|()| self.out.flush());
            let mut line = format!("{} the same", units::count(same, "name"));
            for (count, what) in [(added, "added"), (removed, "removed"), (changed, "changed"), (unknown, "unknown")] {
                if count > 0 {
                    line.push_str(&format!(", {count} {what}"));
                }
            }
            if self.written.is_ok() {
                self.talker.note(line);
            }
        } else if self.written.is_ok() {
            let (status, code, seconds) = (exit.status(), exit.code(), millis(self.begun.elapsed().as_secs_f64()));
            let body = DiffSummaryBody { status, exit: code, same, added, removed, changed, unknown, seconds };
            self.written = JsonLines::new(&mut self.out).say("summary", body);
        }
        self.flushed(exit)
    }

    fn flushed(mut self, exit: Exit) -> Exit {
        match self.written.and_then(|()| self.out.flush()) {
            Ok(()) => exit,
            Err(error) => super::stdout_failed(error),
        }
    }
}

fn status(difference: Difference) -> &'static str {
    match difference {
        Difference::Same => "same",
        Difference::Added => "added",
        Difference::Removed => "removed",
        Difference::Changed => "changed",
        Difference::Unknown => "unknown",
    }
}

fn lists_of(sealed: &Sealed) -> Vec<&'static str> {
    let lists = sealed.head().lists;
    let kinds = [(true, "file"), (lists.dirs, "dir"), (lists.links, "link")];
    kinds.into_iter().filter(|(is_listed, _)| *is_listed).map(|(_, kind)| kind).collect()
}

fn body_of(item: &Item) -> ItemBody<'_> {
    let (kind, target) = match &item.kind {
        ItemKind::File { .. } => ("file", None),
        ItemKind::Dir => ("dir", None),
        ItemKind::Link { target } => ("link", Some(String::from_utf8_lossy(target).into_owned())),
    };
    let sum = |algorithm: Algorithm| Some((algorithm.name(), item.sums.hex(algorithm)?));
    ItemBody {
        path: name(item.path.as_bytes()),
        kind,
        bytes: bytes_of(item),
        mtime_ns: item.mtime.map(|at| (i128::from(at.secs) * 1_000_000_000 + i128::from(at.nanos)).to_string()),
        checksums: item.sums.known().iter().filter_map(sum).collect(),
        target,
    }
}

fn have(files: u64) -> String {
    let has = if files == 1 { "has" } else { "have" };
    format!("{} {has}", units::count(files, "file"))
}

fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use longhaul_core::RelPath;
    use longhaul_manifest::Sums;

    use super::*;

    fn told(json: bool, findings: &[(&str, Difference)]) -> (String, Exit) {
        let mut out = Vec::new();
        let mut telling = ManifestTelling::new(&mut out, Talk { quiet: true, json, ..Talk::default() });
        for (path, difference) in findings {
            let item = Item::file(RelPath::new(*path).unwrap(), Some(5), Sums::default());
            telling.difference(&item, *difference);
        }
        let exit = telling.end_of_diff();
        (String::from_utf8(out).unwrap(), exit)
    }

    #[test]
    fn names_that_differ_are_told_and_the_worst_difference_is_the_exit() {
        let all = [("a", Difference::Same), ("b", Difference::Added), ("c\n", Difference::Changed)];
        assert_eq!(told(false, &all), ("added: b\nchanged: c\\x0a\n".to_owned(), Exit::Mismatch));
        assert_eq!(told(false, &all[..2]).1, Exit::Partial);
        assert_eq!(told(false, &[("a", Difference::Unknown)]).1, Exit::Partial);
        assert_eq!(told(false, &all[..1]), (String::new(), Exit::Complete));
    }

    #[test]
    fn scripts_get_each_difference_and_the_sums() {
        let (text, _) = told(true, &[("a", Difference::Same), ("b", Difference::Removed)]);
        let (difference, summary) = text.split_once('\n').unwrap();
        assert_eq!(difference, r#"{"v":1,"type":"difference","path":"b","status":"removed","bytes":5}"#);
        assert!(summary.starts_with(
            r#"{"v":1,"type":"summary","status":"partial","exit":23,"same":1,"added":0,"removed":1,"changed":0,"unknown":0,"#
        ));
    }
}
