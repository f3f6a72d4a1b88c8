//! The last lines of a run, for users: files done, bytes held, names that failed, and advice.
//!
//! In: the engine's report and the names that failed. Out: lines. Prints nothing itself.

use longhaul_core::{ByteCount, Escaped, LossKind, LossReason, RelPath};
use longhaul_engine::{
    BoundThreads, DeviceDepth, EngineReport, FilesAtRisk, LossAt, MetadataLoss, Report, SshFigures, StreamFigures,
};

use super::events::engine as engine_name;
use super::{units, words};
use crate::exit::Exit;
use crate::manifest::Omissions;

/// Names that failed, the first ones kept.
#[derive(Debug, Default)]
pub(super) struct Failed {
    count: u64,
    first: Vec<String>,
}

impl Failed {
    /// Adds a name.
    pub(super) fn add(&mut self, placed: &RelPath) {
        self.count += 1;
        if self.first.len() < FAILED_NAMED {
            self.first.push(placed.escaped().to_string());
        }
    }

    /// The names once more, as the reasons may have scrolled away. Empty if they add nothing to the
    /// one reason.
    pub(super) fn lines(&self) -> Vec<String> {
        if self.count < 2 {
            return Vec::new();
        }
        let mut lines = vec![format!("{} names failed:", self.count)];
        lines.extend(self.first.iter().map(|name| format!("  {name}")));
        match self.count - self.first.len() as u64 {
            0 => {}
            more => {
                lines.push(format!("  and {more} more: -v names each as it fails, --json tells each in a 'file' event"))
            }
        }
        lines
    }
}

/// Facts about a run that are not in the report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClosingRun {
    /// Whether it was a dry run.
    pub(super) dry: bool,
    /// Whether, where the network limited, it was the rate that was asked for.
    pub(super) capped: bool,
    /// Whether the source was a stream, and what proved its end.
    pub(super) end: EndOfStream,
}

/// Whether the source of a run is a stream, and whether anything proves that it came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndOfStream {
    /// The source is no stream.
    #[default]
    NoStream,
    /// Its length or digest was expected, or a command ended well.
    Proven,
    /// Nothing tells a stream that was cut off from a whole one.
    NotProven,
}

impl EndOfStream {
    /// Its name, for scripts. `None` where the source is no stream.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            EndOfStream::NoStream => None,
            EndOfStream::Proven => Some("proven"),
            EndOfStream::NotProven => Some("not proven"),
        }
    }
}

/// The result of a run, in one line.
pub(super) fn summary(report: &Report, exit: Exit, run: ClosingRun) -> String {
    let Report { files_total, files_committed, files_skipped, files_failed, bytes_moved, seconds, .. } = *report;
    if run.dry {
        return format!("dry run: {} found, nothing moved", units::count(files_total, "file"));
    }
    if exit == Exit::Complete && files_committed == 0 && files_skipped > 0 && bytes_moved == 0 {
        let are = if files_skipped == 1 { "is" } else { "are" };
        return format!(
            "nothing to do: {} {are} there already{}{}",
            units::count(files_skipped, "file"),
            read_for_manifest(report),
            read_back(report)
        );
    }
    if exit == Exit::Complete && files_total == 0 {
        return "nothing to do: no files found".to_owned();
    }
    let mut line = format!("{} done, {}", units::count(files_committed, "file"), ByteCount(report.bytes_committed));
    if bytes_moved != report.bytes_committed {
        line.push_str(&format!("; {} moved", ByteCount(bytes_moved)));
    }
    line.push_str(&format!(" in {seconds:.1} s"));
    if bytes_moved > 0 {
        line.push_str(&format!(", {}", units::rate(per_second(report))));
    }
    for (bytes, what) in [(report.bytes_resumed, "resumed"), (report.bytes_holes, "of holes")] {
        if bytes > 0 {
            line.push_str(&format!(", {} {what}", ByteCount(bytes)));
        }
    }
    let at_risk = report.files_at_risk;
    for (count, what) in [(files_skipped, "there already"), (files_failed, "failed"), (at_risk, "at risk")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line.push_str(&read_for_manifest(report));
    line.push_str(&read_back(report));
    line.push_str(&under_runs(report));
    if run.end == EndOfStream::NotProven && files_committed > 0 {
        line.push_str(", end of stream not proven");
    }
    line.push_str(&through_ssh(report));
    if let Some(limited) = report.limits.first() {
        let by = words::limit(limited.by, run.capped);
        line.push_str(&format!(", limited by {by} ({:.0} % of the time)", limited.share * 100.0));
    }
    line
}

/// The data that ssh carried and what that cost here, unless it was messages alone.
fn through_ssh(report: &Report) -> String {
    match report.ways.ssh {
        Some(SshFigures { bytes, cpu_s }) if bytes >= SSH_TOLD => {
            let cost = cpu_s.map(|seconds| format!(" at {seconds:.1} CPU s of it here")).unwrap_or_default();
            format!(", {} through ssh{cost}", ByteCount(bytes))
        }
        _ => String::new(),
    }
}

/// The messages of a run are some hundred KB, unless it has a great many files.
const SSH_TOLD: u64 = 1 << 20;

/// Metadata of one kind that could not be kept, in one line.
pub(super) fn not_kept(loss: &MetadataLoss) -> String {
    let MetadataLoss { at, kind, reason, entries, first } = loss;
    let what = match kind {
        LossKind::Xattrs => "extended attributes",
        LossKind::Owner => "owner or group",
        LossKind::SetId => "set-id bits",
        LossKind::Mode => "permissions",
        LossKind::Times => "times",
        LossKind::Checksums => "checksums",
        LossKind::Acls => "access lists",
        LossKind::Hardlinks => "hard links",
    };
    let side = match at {
        LossAt::Source => "the source",
        LossAt::Destination => "the destination",
    };
    let why = match (reason, at) {
        _ if *kind == LossKind::Hardlinks => no_link(*reason, *at),
        (LossReason::Unsupported, _) => "the file system has no such metadata",
        (LossReason::Denied, LossAt::Source) => "this user may not read them",
        (LossReason::Denied, LossAt::Destination) => "this user may not set them",
        (LossReason::Policy, _) => "the root of the daemon does not take them",
        (LossReason::TooLong, LossAt::Source) => "they are more than may travel",
        (LossReason::TooLong, LossAt::Destination) => "the file system has no room for them",
        (LossReason::System, _) => "only those of users travel, whose names begin with 'user.'",
        (LossReason::UnknownAccount, _) => "they name an account that is unknown there",
        (LossReason::SeveralNames, _) => "the file stood there and has hard links, which would change with it",
        (LossReason::Striped, _) => "a striped file belongs to whom its set belongs",
        (LossReason::Changed, _) => "another entry stood there when they were to be read",
        (LossReason::TooMany, _) if *kind == LossKind::Checksums => {
            "the catalogue has room for two million files, and they or older ones gave way"
        }
        (LossReason::TooMany, _) => "there are too many",
        (LossReason::Elsewhere, _) => "they belong to another file system",
        (LossReason::Unproven, _) => "nothing shows whose they are",
        (LossReason::Failed, _) => "the system could not set them",
        (LossReason::NotComputed, _) => "part of the bytes came while nobody computed them",
    };
    let entries = units::count(*entries, "entry").replace("entrys", "entries");
    format!("{what} of {entries} not kept at {side}: {why}; the first is '{}'", first.escaped())
}

/// The reason for which a name has a copy of its own, in words.
fn no_link(reason: LossReason, at: LossAt) -> &'static str {
    match (reason, at) {
        (LossReason::Unsupported, _) => "the file system has none",
        (LossReason::Denied, _) => "the system does not let this user link another user's file",
        (LossReason::Striped, _) => "a striped file has one name",
        (LossReason::Changed, LossAt::Source) => "the file changed between two of its names",
        (LossReason::Changed, LossAt::Destination) => "another file stands under the first name, or none",
        (LossReason::TooMany, LossAt::Source) => "more files have several names than are remembered",
        (LossReason::TooMany, LossAt::Destination) => {
            "the file has as many names as it may, or too many files have several"
        }
        (LossReason::Elsewhere, _) => "the first name lies on another file system or target",
        (LossReason::Unproven, _) => "nothing shows that the file under the first name is one of this transfer",
        _ => "the system could not make the link",
    }
}

/// The files on a target that failed, in one line.
pub(super) fn at_risk(files: &FilesAtRisk) -> String {
    let FilesAtRisk { target, dir, files, names } = files;
    let dir = Escaped(dir.as_os_str().as_encoded_bytes());
    let some: Vec<String> = names.iter().take(AT_RISK_NAMED).map(|name| format!("'{}'", name.escaped())).collect();
    let more = match files.saturating_sub(some.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = units::count(*files, "committed file");
    let are = if *files == 1 { "is" } else { "are" };
    format!("target {} ('{dir}') failed, and {what} that it has {are} at risk: {}{more}", target.0, some.join(", "))
}

/// The advice about files at risk.
pub(super) const CHECK_FILES_AT_RISK: &str = "files at risk may be damaged or lost though their disk called them durable: 'longhaul set verify' reads striped ones, 'longhaul check' compares others with a manifest";

/// Payload bytes that moved in each second of the run.
pub(super) fn per_second(report: &Report) -> f64 {
    if report.seconds > 0.0 { report.bytes_moved as f64 / report.seconds } else { 0.0 }
}

/// The durable bytes at the receiver of a run that was ended early. `None` if no bytes are wanted,
/// as in a dry run, or all are there.
pub(super) fn held(report: &Report, run: ClosingRun) -> Option<String> {
    let (safe, wanted) = (report.bytes_committed.saturating_add(report.bytes_held), report.bytes_wanted);
    let held = safe.min(wanted);
    // A stream keeps nothing for another run.
    let is_of_files = stream(report).is_none() && run.end == EndOfStream::NoStream;
    let ended_early = report.fault.is_some() && wanted > 0 && !run.dry && is_of_files;
    // As in the bar: files that were not found yet are wanted, too.
    let more = if report.scanned { "" } else { "+" };
    let wanted = ByteCount(wanted);
    ended_early.then(|| match held {
        0 => format!("held: nothing yet of {wanted}{more}"),
        _ => format!("held: {} of {wanted}{more}; what is held is not sent again", ByteCount(held)),
    })
}

/// The figures of this side's I/O engine, in one line.
pub(super) fn io(io: &EngineReport) -> String {
    let EngineReport { depth, slots, slots_registered, .. } = io;
    let devices = units::count(io.devices as u64, "device");
    format!(
        "I/O by {}, {depth} deep{}, {devices}, {slots_registered} of {slots} buffers registered",
        engine_name(io.engine),
        found_depths(io)
    )
}

/// The depth that was found for each of several devices.
fn found_depths(io: &EngineReport) -> String {
    if io.depths.len() < 2 {
        return String::new();
    }
    let each: Vec<_> = io.depths.iter().map(|DeviceDepth { device, depth }| format!("{device} {depth}")).collect();
    format!(" at most (found: {})", each.join(", "))
}

/// The threads of this side that were bound to CPUs, in one line. `None` if they run anywhere.
pub(super) fn bound(io: &EngineReport) -> Option<String> {
    let each = io.bound.iter().map(|BoundThreads { threads, node, cpus }| match node {
        Some(node) => format!("{threads} to {cpus} (node {node})"),
        None => format!("{threads} to {cpus}"),
    });
    let each: Vec<_> = each.collect();
    (!each.is_empty()).then(|| format!("threads bound to CPUs: {}", each.join(", ")))
}

/// Lines about files that the manifest lacks.
pub(super) fn omissions(omissions: &Omissions) -> Vec<String> {
    let mut lines = Vec::new();
    if omissions.failed > 0 {
        let failed = units::count(omissions.failed, "file");
        lines.push(format!("the manifest has no line for {failed} that failed"));
    }
    if omissions.not_utf8 > 0 {
        let names = units::count(omissions.not_utf8, "name");
        lines.push(format!("{names} in the manifest: not UTF-8, written with U+FFFD as b3sum prints them"));
    }
    lines
}

fn read_for_manifest(report: &Report) -> String {
    match report.bytes_digested {
        0 => String::new(),
        bytes => format!(", {} of skipped files read for the manifest", ByteCount(bytes)),
    }
}

/// The stream that went out. `None` for any other destination.
pub(super) fn stream(report: &Report) -> Option<StreamFigures> {
    report.io.as_ref()?.stream
}

fn under_runs(report: &Report) -> String {
    match stream(report).map_or(0, |stream| stream.under_runs) {
        0 => String::new(),
        1 => ", 1 under-run: the stream stood still once, until its buffers were filled again".to_owned(),
        count => format!(", {count} under-runs: each time the stream stood still until its buffers were filled again"),
    }
}

fn read_back(report: &Report) -> String {
    let mut text = String::new();
    if report.bytes_read_back > 0 {
        text.push_str(&format!(", {} read back", ByteCount(report.bytes_read_back)));
    }
    if report.bytes_misread > 0 {
        text.push_str(&format!(" ({} of it WRONG: suspect the disk)", ByteCount(report.bytes_misread)));
    }
    text
}

/// The most names that are listed: the summary then still fits on the screen with them.
const FAILED_NAMED: usize = 10;
/// Files at risk that a warning names.
const AT_RISK_NAMED: usize = 5;

#[cfg(test)]
mod tests {
    use longhaul_core::{Blame, Fault, FaultCode};
    use longhaul_engine::{EngineKind, Limit, Limited};

    use super::*;
    use crate::exit::tests::report;

    const MIB: u64 = 1 << 20;

    /// The I/O of a run that wrote a stream.
    fn streamed(under_runs: u64) -> Option<EngineReport> {
        let stream = Some(StreamFigures { bytes: 9, blocks: 1, under_runs });
        let (engine, depth, devices, slots) = (EngineKind::Threads, 8, 0, 4);
        Some(EngineReport {
            engine,
            depth,
            devices,
            slots,
            slots_registered: 0,
            cpu_nanos: 0,
            bound: Vec::new(),
            stream,
            depths: Vec::new(),
        })
    }

    #[test]
    fn the_summary_says_what_moved_and_what_did_not_have_to() {
        let done = Report { files_total: 2, files_committed: 2, bytes_committed: 1 << 30, seconds: 2.0, ..report() };
        let moved = Report { bytes_moved: 1 << 30, ..done.clone() };
        let said = |report: &Report, exit| summary(report, exit, ClosingRun::default());
        assert_eq!(said(&moved, Exit::Complete), "2 files done, 1.0 GiB in 2.0 s, 4.29 Gbit/s (537 MB/s)");
        let resumed = Report { bytes_moved: 256 * MIB, bytes_resumed: 768 * MIB, ..done.clone() };
        assert_eq!(
            said(&resumed, Exit::Complete),
            "2 files done, 1.0 GiB; 256.0 MiB moved in 2.0 s, 1.07 Gbit/s (134 MB/s), 768.0 MiB resumed"
        );
        let holes = Report { bytes_holes: 1 << 30, ..done };
        assert_eq!(said(&holes, Exit::Complete), "2 files done, 1.0 GiB; 0 B moved in 2.0 s, 1.0 GiB of holes");
        let limits = vec![Limited { by: Limit::Target, share: 0.826 }, Limited { by: Limit::Hash, share: 0.174 }];
        let mixed = Report { files_total: 4, files_skipped: 3, files_failed: 1, limits, ..report() };
        let line = said(&mixed, Exit::Partial);
        assert!(line.ends_with(", 3 there already, 1 failed, limited by the target disk (83 % of the time)"), "{line}");
        assert_eq!(
            summary(
                &Report { files_total: 4, ..report() },
                Exit::Complete,
                ClosingRun { dry: true, ..ClosingRun::default() }
            ),
            "dry run: 4 files found, nothing moved"
        );
    }

    #[test]
    fn the_depth_that_was_found_is_told_by_device_where_there_are_several() {
        let of = |depths: &[(&str, usize)]| {
            let depth = |(device, depth): &(&str, usize)| DeviceDepth { device: (*device).to_owned(), depth: *depth };
            io(&EngineReport { depths: depths.iter().map(depth).collect(), ..streamed(0).expect("some") })
        };
        assert!(of(&[("8:1", 8)]).contains(", 8 deep, "), "{}", of(&[("8:1", 8)]));
        let two = of(&[("8:1", 2), ("8:17", 8)]);
        assert!(two.contains(", 8 deep at most (found: 8:1 2, 8:17 8), "), "{two}");
    }

    #[test]
    fn under_runs_of_a_stream_are_named() {
        let of = |under_runs| {
            let io = streamed(under_runs);
            let report = Report { files_total: 1, files_committed: 1, bytes_committed: 9, io, ..report() };
            summary(&report, Exit::Complete, ClosingRun::default())
        };
        assert!(!of(0).contains("under-run"));
        assert!(of(1).contains(", 1 under-run: "), "{}", of(1));
        assert!(of(7).contains(", 7 under-runs: "), "{}", of(7));
    }

    #[test]
    fn a_stream_whose_end_nothing_proves_is_said_to_be_one() {
        let report = Report { files_total: 1, files_committed: 1, bytes_committed: 9, ..report() };
        let of = |end| summary(&report, Exit::Complete, ClosingRun { end, ..ClosingRun::default() });
        assert!(of(EndOfStream::NotProven).contains(", end of stream not proven"));
        assert!(!of(EndOfStream::Proven).contains("proven") && !of(EndOfStream::NoStream).contains("proven"));
    }

    #[test]
    fn a_run_with_nothing_to_do_says_so() {
        let skipped = |count| Report { files_total: count, files_skipped: count, ..report() };
        assert_eq!(
            summary(&skipped(3), Exit::Complete, ClosingRun::default()),
            "nothing to do: 3 files are there already"
        );
        assert_eq!(
            summary(&skipped(1), Exit::Complete, ClosingRun::default()),
            "nothing to do: 1 file is there already"
        );
        let read = Report { bytes_digested: 5 * MIB, ..skipped(1) };
        assert_eq!(
            summary(&read, Exit::Complete, ClosingRun::default()),
            "nothing to do: 1 file is there already, 5.0 MiB of skipped files read for the manifest"
        );
        assert_eq!(summary(&report(), Exit::Complete, ClosingRun::default()), "nothing to do: no files found");
        assert!(summary(&skipped(3), Exit::Interrupted, ClosingRun::default()).starts_with("0 files done"));
    }

    #[test]
    fn a_run_that_was_ended_says_what_is_held() {
        let ended = Report {
            fault: Some(Fault::new(FaultCode::Interrupted, Blame::Local, "interrupted")),
            bytes_committed: 18 * MIB,
            bytes_held: 20 * MIB,
            bytes_wanted: 57 * MIB,
            ..report()
        };
        let held = |report: &Report| held(report, ClosingRun::default());
        assert_eq!(held(&ended).as_deref(), Some("held: 38.0 MiB of 57.0 MiB; what is held is not sent again"));
        let nothing = Report { bytes_committed: 0, bytes_held: 0, ..ended.clone() };
        assert_eq!(held(&nothing).as_deref(), Some("held: nothing yet of 57.0 MiB"));
        assert_eq!(held(&Report { bytes_wanted: 0, ..ended.clone() }), None);
        let scanning = Report { scanned: false, ..ended.clone() };
        assert_eq!(held(&scanning).as_deref(), Some("held: 38.0 MiB of 57.0 MiB+; what is held is not sent again"));
        assert_eq!(super::held(&ended, ClosingRun { dry: true, ..ClosingRun::default() }), None);
        assert_eq!(held(&Report { io: streamed(0), ..ended.clone() }), None, "a stream begins anew");
        assert_eq!(held(&Report { fault: None, ..ended }), None);
    }

    #[test]
    fn the_first_names_that_failed_are_listed_and_the_rest_counted() {
        let mut failed = Failed::default();
        failed.add(&RelPath::new(b"a").expect("a path"));
        assert!(failed.lines().is_empty(), "its error line stands right above");
        failed.add(&RelPath::new(b"b\n").expect("a path"));
        assert_eq!(failed.lines(), ["2 names failed:", "  a", "  b\\x0a"]);
        (0..20).for_each(|n| failed.add(&RelPath::new(format!("f{n}").as_bytes()).expect("a path")));
        let lines = failed.lines();
        assert_eq!(lines.len(), 1 + FAILED_NAMED + 1);
        assert!(lines[11].starts_with("  and 12 more: "), "{lines:?}");
    }

    #[test]
    fn what_the_manifest_lacks_is_said() {
        assert!(omissions(&Omissions::default()).is_empty());
        let some = Omissions { failed: 2, not_utf8: 1 };
        let lines = omissions(&some);
        assert_eq!(lines[0], "the manifest has no line for 2 files that failed");
        assert!(lines[1].starts_with("1 name in the manifest: not UTF-8"));
    }

    #[test]
    fn files_at_risk_are_counted_and_the_latest_are_named() {
        let names = |count: usize| (0..count).map(|n| RelPath::new(format!("f{n}")).expect("a name")).collect();
        let files = |files: u64| FilesAtRisk {
            target: longhaul_core::TargetId(2),
            dir: "/d2".into(),
            files,
            names: names(files as usize),
        };
        let rows = [
            (1, "target 2 ('/d2') failed, and 1 committed file that it has is at risk: 'f0'"),
            (5, "5 committed files that it has are at risk: 'f0', 'f1', 'f2', 'f3', 'f4'"),
            (7, "7 committed files that it has are at risk: 'f0', 'f1', 'f2', 'f3', 'f4' and 2 more"),
        ];
        for (count, line) in rows {
            assert!(at_risk(&files(count)).ends_with(line), "{}", at_risk(&files(count)));
        }
        let line = summary(
            &Report { files_total: 1, files_committed: 1, files_at_risk: 3, ..report() },
            Exit::Complete,
            ClosingRun::default(),
        );
        assert!(line.contains(", 3 at risk"), "{line}");
    }
}
