//! The events of `--json`: one object a line on standard output, each with `v` and `type`.
//!
//! `bodies` declares their fields. In: the engine's events and report. Out: lines whose names,
//! units and order of fields are the contract with scripts (fields are only ever added). Knows no
//! people.

mod bodies;
mod not_kept;
mod printable;
mod road;
mod ways;

use std::io::{self, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::{Algorithm, Author, Fault, Mtime, PlainText};
use longhaul_engine::{
    DeviceDepth, EngineKind, EngineReport, FileEvent, FileStatus, FilesAtRisk, LanesTuned, Latency, Limited, Listed,
    ListedKind, ListedPartial, MetadataLoss, PathFigures, Progress, Protection, Report, RoadFigures, Stage, Start,
    StreamFigures, SyncMethod, TargetFigures, TroubledTarget,
};
use serde::Serialize;

use super::closing::{self, EndOfStream};
use super::deliveries::DeliveriesTold;
use super::hints::sentence;
use super::human::PEER_SAYS;
use super::meter::Pace;
use super::units;
use super::words::note;
use crate::exit::Exit;
use bodies::{
    AtRiskBody, AtRiskNameBody, BoundBody, DepthBody, EntryBody, FaultBody, FileBody, IoBody, LanesBody, Line,
    PartialBody, ProgressBody, StartBody, StreamBody, Target, TargetBody, TargetsBody, TroubledBody, WarningBody,
};
use printable::Printable;
use road::RoadBody;
use ways::{DeliveriesBody, LeftBody, PathsBody, UnheardBody, WaysBody, path_bodies};

pub(super) use bodies::{CpuPerGb, Name};
pub use bodies::{Listening, Summary};
pub(super) use road::RoadReportBody;

/// Writes events. Each line is flushed: a script reads along.
pub struct JsonLines<W: Write> {
    out: W,
    /// The destination that events are about. `None` where a command has one.
    dest: Option<&'static str>,
}

impl CpuPerGb {
    /// The figures of two sides that spent these seconds on so many bytes.
    pub(super) fn of(bytes: u64, sender: Option<f64>, receiver: Option<f64>) -> CpuPerGb {
        let per_gb = |s: Option<f64>| s.filter(|_| bytes > 0).map(|s| millis(s / (bytes as f64 / 1e9)));
        CpuPerGb { sender: per_gb(sender), receiver: per_gb(receiver) }
    }
}

impl<W: Write> JsonLines<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> JsonLines<W> {
        JsonLines { out, dest: None }
    }

    /// The same for one destination of several, which each event names.
    #[must_use]
    pub fn of_destination(self, dest: Option<&'static str>) -> JsonLines<W> {
        JsonLines { dest, ..self }
    }

    /// Tells that the session stands.
    ///
    /// # Errors
    /// The error of writing; the same for all methods below.
    pub fn start(&mut self, start: &Start) -> io::Result<()> {
        let protect = protection(start.protect);
        let Start { session, transport, congestion, notes, sync, .. } = start;
        let chunk_bytes = start.chunk.bytes();
        let (direction, lanes) = (start.direction.name(), start.lanes);
        let (transport, sync) = (transport.name(), sync.map(SyncMethod::name));
        let notes = notes.iter().copied().map(note).collect();
        let body = StartBody { session, direction, transport, protect, lanes, chunk_bytes, congestion, sync, notes };
        self.say("start", body)
    }

    /// Tells the counters of this second.
    pub(super) fn progress(&mut self, progress: &Progress, pace: &Pace) -> io::Result<()> {
        let body = ProgressBody {
            t_s: millis(progress.seconds),
            files_total: progress.files_total,
            files_committed: progress.files_committed,
            bytes_total: progress.bytes_total,
            bytes_sent: progress.bytes_sent,
            bytes_received: progress.bytes_received,
            bytes_durable: progress.bytes_durable,
            bytes_committed: progress.bytes_committed,
            bytes_digested: progress.bytes_digested,
            bytes_per_s: pace.bytes_per_s as u64,
            eta_s: pace.eta_s.map(millis),
            limited_by: progress.limited_by.map(|limited| limited.by.name()),
            limited_share: progress.limited_by.map(|limited| millis(limited.share)),
            bytes_arrived: progress.bytes_arrived,
            bytes_resumed: progress.bytes_resumed,
            silent_s: millis(progress.silent_s),
        };
        self.say("progress", body)
    }

    /// Tells what the session did to its path of late.
    pub(super) fn road(&mut self, figures: &RoadFigures) -> io::Result<()> {
        self.say("road", RoadBody::of(figures))
    }

    /// Tells the bytes that each of several paths has carried.
    pub(super) fn paths(&mut self, figures: &[PathFigures]) -> io::Result<()> {
        self.say("paths", PathsBody { paths: path_bodies(figures) })
    }

    /// Tells how each of several targets does.
    pub(super) fn targets(&mut self, figures: &[TargetFigures]) -> io::Result<()> {
        self.say("targets", TargetsBody { targets: figures.iter().map(target_body).collect() })
    }

    /// Tells which files are at risk on a target that failed.
    pub(super) fn at_risk(&mut self, files: &FilesAtRisk) -> io::Result<()> {
        let names = files.names.iter().map(|path| AtRiskNameBody { path: name(path.as_bytes()) }).collect();
        let dir = name(files.dir.as_os_str().as_encoded_bytes());
        self.say("at_risk", AtRiskBody { target: files.target.0, dir, files: files.files, names })
    }

    /// Tells metadata that could not be kept.
    pub(super) fn not_kept(&mut self, loss: &MetadataLoss) -> io::Result<()> {
        self.say("not_kept", not_kept::body(loss))
    }

    /// Tells how a source went to several destinations.
    pub(super) fn deliveries(&mut self, told: &DeliveriesTold) -> io::Result<()> {
        self.say("deliveries", DeliveriesBody::of(told))
    }

    /// Tells that a copy goes on without this run.
    pub(super) fn left(&mut self, order: &str) -> io::Result<()> {
        self.say("left", LeftBody { order })
    }

    /// Tells how many names have no event of their own.
    pub(super) fn unheard(&mut self, names: u64) -> io::Result<()> {
        self.say("unheard", UnheardBody { names })
    }

    /// Tells that the sending side changed its lanes, or decided not to.
    pub(super) fn lanes(&mut self, tuned: &LanesTuned) -> io::Result<()> {
        let LanesTuned { seconds, lanes, change, reason } = tuned;
        self.say(
            "lanes",
            LanesBody {
                t_s: millis(*seconds),
                lanes: *lanes,
                change: &change.to_string(),
                reason: &reason.to_string(),
            },
        )
    }

    /// Tells that a name is settled.
    pub(super) fn file(&mut self, file: &FileEvent) -> io::Result<()> {
        let body = FileBody {
            path: name(file.path.as_bytes()),
            status: status(&file.status),
            bytes: file.bytes,
            b3: file.b3.map(|digest| blake3::Hash::from_bytes(digest).to_hex().to_string()),
            target: target(file.placed.as_bytes()),
            reason: None,
            adler32: file.sums.hex(Algorithm::Adler32),
            crc32c: file.sums.hex(Algorithm::Crc32c),
            md5: file.sums.hex(Algorithm::Md5),
            sha256: file.sums.hex(Algorithm::Sha256),
        };
        self.say("file", body)
    }

    /// Tells that an entry of the sources is not sent, which is no failure.
    pub(super) fn skipped(&mut self, path: &[u8], placed: &[u8], reason: &str) -> io::Result<()> {
        let body = FileBody {
            path: name(path),
            status: status(&FileStatus::Skipped),
            bytes: 0,
            b3: None,
            target: target(placed),
            reason: Some(reason),
            adler32: None,
            crc32c: None,
            md5: None,
            sha256: None,
        };
        self.say("file", body)
    }

    /// Tells a fault.
    pub fn fault(&mut self, fault: &Fault) -> io::Result<()> {
        let Fault { code, blame, object, message, hint, author, os_error: _ } = fault;
        let hint = hint.as_ref().map(sentence).unwrap_or_default();
        let hint = match author {
            Author::Peer if !hint.is_empty() => format!("{PEER_SAYS}{hint}").into(),
            _ => hint,
        };
        let (code, blame, retry, author) = (code.name(), blame.name(), fault.retry(), author.name());
        self.say("fault", FaultBody { code, blame, retry, object, message, hint, author })
    }

    /// Tells the summary, the last line of every run.
    pub fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        self.say("summary", summary)
    }

    /// Tells that a socket accepts connections.
    pub fn listening(&mut self, listening: &Listening) -> io::Result<()> {
        self.say("listening", listening)
    }

    /// Tells a doubt about a config that was only checked.
    pub fn warning(&mut self, message: &PlainText) -> io::Result<()> {
        self.say("warning", WarningBody { message: message.as_str() })
    }

    /// Tells one name of `ls`, with its location if several were asked for.
    pub fn entry(&mut self, listed: &Listed, location: Option<&str>) -> io::Result<()> {
        let (kind, rights) = match &listed.kind {
            ListedKind::File => ("file", None),
            ListedKind::Dir => ("dir", None),
            ListedKind::Symlink { .. } => ("symlink", None),
            ListedKind::Root { rights } => ("root", Some(*rights)),
            ListedKind::Partial(_) => ("partial", None),
            _ => ("special", None),
        };
        // A root is a name of the daemon's: its directory is not told.
        let is_root = rights.is_some();
        let mode = (!is_root).then(|| format!("{:04o}", listed.meta.mode & 0o7777));
        let mtime = (!is_root).then(|| units::time(listed.meta.mtime));
        let partial = if let ListedKind::Partial(partial) = &listed.kind { Some(partial_body(partial)) } else { None };
        self.say(
            "entry",
            EntryBody { path: name(&listed.name), location, kind, bytes: listed.len, mode, mtime, rights, partial },
        )
    }

    /// Writes any event.
    pub(super) fn say(&mut self, kind: &'static str, body: impl Serialize) -> io::Result<()> {
        let mut line = Vec::with_capacity(256);
        let mut json = serde_json::Serializer::with_formatter(&mut line, Printable::default());
        Line { v: VERSION, kind, dest: self.dest, body }.serialize(&mut json)?;
        line.push(b'\n');
        self.out.write_all(&line)?;
        self.out.flush()
    }
}

fn partial_body(partial: &ListedPartial) -> PartialBody<'_> {
    let since = Mtime { secs: i64::try_from(partial.since_unix).unwrap_or(i64::MAX), nanos: 0 };
    PartialBody {
        bytes_held: partial.held,
        since: units::time(since),
        owner: &partial.owner,
        principal: &partial.principal,
        temporary: partial.temp.to_string(),
        in_use_by: partial.user.as_deref(),
    }
}

impl Summary<'_> {
    /// The summary of a command that ended before counting, or that counts nothing.
    pub fn nothing(exit: Exit) -> Summary<'static> {
        Summary {
            status: exit.status(),
            exit: exit.code(),
            files_committed: 0,
            files_skipped: 0,
            files_failed: 0,
            bytes_committed: 0,
            bytes_resumed: 0,
            bytes_resent: 0,
            bytes_read_back: 0,
            bytes_misread: 0,
            bytes_digested: 0,
            seconds: 0.0,
            bytes_per_s: 0,
            bytes_moved: 0,
            bytes_holes: 0,
            bytes_held: 0,
            bytes_wanted: 0,
            cpu_s_per_gb: CpuPerGb { sender: None, receiver: None },
            limited_by: None,
            limited_share: None,
            limits: &[],
            stages: &[],
            io: None,
            ways: WaysBody::default(),
            troubled_targets: Vec::new(),
            files_at_risk: 0,
        }
    }

    /// The summary of a run.
    pub fn of(report: &Report, exit: Exit) -> Summary<'_> {
        let bytes_per_s = closing::per_second(report);
        Summary {
            files_committed: report.files_committed,
            files_skipped: report.files_skipped,
            files_failed: report.files_failed,
            bytes_committed: report.bytes_committed,
            bytes_resent: report.bytes_resent,
            bytes_resumed: report.bytes_resumed,
            bytes_read_back: report.bytes_read_back,
            bytes_misread: report.bytes_misread,
            bytes_digested: report.bytes_digested,
            seconds: millis(report.seconds),
            bytes_per_s: bytes_per_s as u64,
            bytes_moved: report.bytes_moved,
            bytes_holes: report.bytes_holes,
            bytes_held: report.bytes_held,
            bytes_wanted: report.bytes_wanted,
            cpu_s_per_gb: CpuPerGb::of(
                report.bytes_moved.saturating_add(report.bytes_holes),
                report.sender_cpu,
                report.receiver_cpu,
            ),
            limited_by: report.limits.first().map(|limited| limited.by.name()),
            limited_share: report.limits.first().map(|limited| millis(limited.share)),
            limits: &report.limits,
            stages: &report.stages,
            io: report.io.as_ref().map(io_body),
            ways: WaysBody::of(report),
            troubled_targets: report.troubled_targets.iter().map(troubled_body).collect(),
            files_at_risk: report.files_at_risk,
            ..Summary::nothing(exit)
        }
    }
}

impl Summary<'_> {
    /// The same of a run whose source may be a stream.
    pub(super) fn of_stream(mut self, end: EndOfStream) -> Self {
        if let Some(io) = &mut self.io {
            io.end_of_stream = end.name();
        }
        self
    }
}

/// The name of a protection level.
pub(super) fn protection(level: Protection) -> &'static str {
    match level {
        Protection::Private => "private",
        Protection::Safe => "safe",
    }
}

fn target_body(figures: &TargetFigures) -> TargetBody<'_> {
    let ms = |of: fn(Latency) -> Duration| figures.latency.map(|latency| millis(of(latency).as_secs_f64() * 1000.0));
    TargetBody {
        target: figures.target.0,
        dir: name(figures.dir.as_os_str().as_encoded_bytes()),
        bytes_per_s: figures.bytes_per_s,
        busy_bytes_per_s: figures.busy_bytes_per_s,
        queued_bytes: figures.queued_bytes,
        queued: figures.queued,
        p50_ms: ms(|latency| latency.p50),
        p90_ms: ms(|latency| latency.p90),
        p99_ms: ms(|latency| latency.p99),
        share: millis(figures.share),
        state: figures.state.name(),
    }
}

fn troubled_body(troubled: &TroubledTarget) -> TroubledBody<'_> {
    let siblings = troubled.siblings_bytes_per_s;
    TroubledBody {
        target: troubled.target.0,
        dir: name(troubled.dir.as_os_str().as_encoded_bytes()),
        slow_s: millis(troubled.slow_s),
        full_s: millis(troubled.full_s),
        failed_s: millis(troubled.failed_s),
        hung_s: millis(troubled.hung_s),
        busy_bytes_per_s: troubled.busy_bytes_per_s,
        slowest_sibling_bytes_per_s: siblings.map(|(slowest, _)| slowest),
        fastest_sibling_bytes_per_s: siblings.map(|(_, fastest)| fastest),
        p99_ms: troubled.p99.map(|p99| millis(p99.as_secs_f64() * 1000.0)),
        share: troubled.share.map(millis),
    }
}

fn stream_body(figures: StreamFigures) -> StreamBody {
    let StreamFigures { bytes, blocks, under_runs } = figures;
    StreamBody { bytes, blocks, under_runs }
}

fn io_body(io: &EngineReport) -> IoBody {
    let &EngineReport { depth, devices, slots, slots_registered, .. } = io;
    let bound = io.bound.iter().map(|bound| BoundBody {
        threads: bound.threads.clone(),
        node: bound.node,
        cpus: bound.cpus.clone(),
    });
    IoBody {
        engine: engine(io.engine),
        depth,
        devices,
        buffers: slots,
        buffers_registered: slots_registered,
        bound: bound.collect(),
        stream: io.stream.map(stream_body),
        end_of_stream: None,
        depths: io.depths.iter().map(depth_body).collect(),
    }
}

fn depth_body(depth: &DeviceDepth) -> DepthBody {
    let DeviceDepth { device, depth } = depth.clone();
    DepthBody { device, depth }
}

/// The name of an I/O engine.
pub(super) fn engine(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Auto => "auto",
        EngineKind::Uring => "uring",
        EngineKind::Threads => "threads",
        EngineKind::Void => "void",
    }
}

fn status(status: &FileStatus) -> &'static str {
    match status {
        FileStatus::Committed => "committed",
        FileStatus::Staged => "staged",
        FileStatus::Skipped => "skipped",
        FileStatus::Linked => "linked",
        FileStatus::Planned => "planned",
        FileStatus::Failed(_) => "failed",
    }
}

/// A path as an event has it.
pub(super) fn name(bytes: &[u8]) -> Name<'_> {
    std::str::from_utf8(bytes).map_or_else(|_| Name::Bytes(STANDARD.encode(bytes)), Name::Text)
}

fn target(bytes: &[u8]) -> Target<'_> {
    std::str::from_utf8(bytes).map_or_else(|_| Target::Bytes(STANDARD.encode(bytes)), Target::Text)
}

/// Rounds to milliseconds: anything finer is noise.
pub(super) fn millis(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// Writes the shares of what limited, by their names.
pub(super) fn limits<S: serde::Serializer>(limits: &&[Limited], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(limits.iter().map(|limited| (limited.by.name(), millis(limited.share))))
}

/// Writes seconds by their names.
pub(super) fn as_map<S: serde::Serializer>(stages: &&[(Stage, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(stages.iter().map(|(stage, seconds)| (stage.name(), millis(*seconds))))
}

/// The version of the schema; a change that scripts would have to follow gets the next number.
const VERSION: u32 = 1;

#[cfg(test)]
mod tests;
