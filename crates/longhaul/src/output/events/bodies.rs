//! The fields of the events: their names, their order and their units.
//!
//! It owns one struct an event. Figures come in from the writer of lines, one level up; serde takes
//! them out again as JSON. The doc comments are the text of `docs/EVENTS.md`. It must not know how
//! a figure is found.

use std::borrow::Cow;

use longhaul_core::Rights;
use longhaul_engine::{Limited, Stage};
use serde::Serialize;

use super::ways::WaysBody;
use super::{as_map, limits};

/// A daemon accepts on a socket. There is one event for each address that it listens on.
#[derive(Debug, Serialize)]
pub struct Listening {
    /// The address and the port, as `HOST:PORT`.
    pub addr: String,
    /// The daemon's public key, `lhk1:...`.
    pub key: String,
}

/// The last line of every run of `push`, `pull`, `copy`, `ls` and `serve --check-config`, and of a
/// command that ended before it began. All counts are 0 where the command counts nothing.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    pub(super) status: &'static str,
    /// The exit code.
    pub(super) exit: u8,
    /// Regular files and links that stand under their final names, durable.
    pub(super) files_committed: u64,
    /// Regular files and links that were skipped, as the destination has them.
    pub(super) files_skipped: u64,
    /// Regular files and links that failed.
    pub(super) files_failed: u64,
    /// Bytes of the committed files.
    pub(super) bytes_committed: u64,
    /// Bytes of received files that were not sent: earlier runs had brought them, or they stood at
    /// the destination and were copied.
    pub(super) bytes_resumed: u64,
    /// Bytes that were sent again: after a mismatch, over another lane, or in another session.
    pub(super) bytes_resent: u64,
    /// Bytes that the receiver read back from the medium and compared (`--verify disk`, and MD5 or
    /// SHA-256 of `--extra-checksum`).
    pub(super) bytes_read_back: u64,
    /// Bytes among `bytes_read_back` that lie in chunks and files that were not what had been
    /// written.
    pub(super) bytes_misread: u64,
    /// Bytes of skipped files that were read at the destination for the manifest.
    pub(super) bytes_digested: u64,
    /// Seconds from the first dial to the last commit.
    pub(super) seconds: f64,
    /// The rate at which payload arrived, in bytes per second: `bytes_moved` over the time of the
    /// run.
    pub(super) bytes_per_s: u64,
    /// CPU seconds per 10^9 bytes that arrived, holes among them.
    pub(super) cpu_s_per_gb: CpuPerGb,
    /// The part that limited the run for the longest time: `source`, `hash`, `cpu`, `network:loss`,
    /// `network:window`, `network:rate`, `network:shared`, `receiver`, `target` or `memory`. Null
    /// where it is not known.
    pub(super) limited_by: Option<&'static str>,
    /// The share of the time for which `limited_by` holds, 0 to 1, of the time for which the limit
    /// is known.
    pub(super) limited_share: Option<f64>,
    /// The share of each part that limited, 0 to 1, by its name; the largest is first.
    #[serde(serialize_with = "limits")]
    pub(super) limits: &'a [Limited],
    /// CPU seconds of this side, by the stage that spent them.
    #[serde(serialize_with = "as_map")]
    pub(super) stages: &'a [(Stage, f64)],
    /// The I/O engine of this side, and how it really ran. Null where none was started.
    pub(super) io: Option<IoBody>,
    /// Payload bytes that arrived in this run, those that were sent again among them.
    pub(super) bytes_moved: u64,
    /// Bytes of holes that came in this run: nothing of them was sent.
    pub(super) bytes_holes: u64,
    /// Bytes that are durable at the receiver in files that are not committed: the same command
    /// continues them.
    pub(super) bytes_held: u64,
    /// Bytes of all files that were found, without those that stand at the destination already.
    pub(super) bytes_wanted: u64,
    /// The ways that data took, where there was more than one.
    #[serde(flatten)]
    pub(super) ways: WaysBody,
    /// One object for each target of the destination that was slow, full or failed for some time.
    /// The field is absent where all were well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) troubled_targets: Vec<TroubledBody<'a>>,
    /// Files that were committed on targets of this side that failed afterwards, one for each such
    /// target; see `at_risk`.
    pub(super) files_at_risk: u64,
}

/// A target that was slow, full or failed for some time.
#[derive(Debug, Serialize)]
pub(super) struct TroubledBody<'a> {
    /// Its number.
    pub(super) target: u32,
    /// Its directory; empty for a target of the other side, which does not tell.
    #[serde(flatten)]
    pub(super) dir: Name<'a>,
    /// Seconds for which it was slow: below half of the median rate of its siblings.
    pub(super) slow_s: f64,
    /// Seconds for which it was full: a write had no room in the last 30 s.
    pub(super) full_s: f64,
    /// Seconds for which it had failed: a call failed, and no probe passed since.
    pub(super) failed_s: f64,
    /// Bytes per second while it was busy and slow. Null where it was not slow.
    pub(super) busy_bytes_per_s: Option<u64>,
    /// The same of its slowest sibling over that time.
    pub(super) slowest_sibling_bytes_per_s: Option<u64>,
    /// The same of its fastest sibling over that time.
    pub(super) fastest_sibling_bytes_per_s: Option<u64>,
    /// The largest number of milliseconds that 99 of 100 recent requests took at most while it was
    /// slow.
    pub(super) p99_ms: Option<f64>,
    /// Its share of the bytes that all targets wrote while it was slow, 0 to 1.
    pub(super) share: Option<f64>,
    /// Seconds for which it hung: a call had not come back.
    pub(super) hung_s: f64,
}

/// The I/O engine of this side, and how it really ran.
#[derive(Debug, Serialize)]
pub(super) struct IoBody {
    /// `uring`, `threads`, or `void` where no disk is used.
    pub(super) engine: &'static str,
    /// Requests in flight per device; with `--depth auto` the most that was found best for one.
    pub(super) depth: usize,
    /// Devices in use.
    pub(super) devices: usize,
    /// Buffers that the engine has.
    pub(super) buffers: usize,
    /// The largest number of buffers that were registered with a ring of the kernel; 0 without a
    /// ring.
    pub(super) buffers_registered: usize,
    /// One object for each group of threads that was bound to CPUs. The field is absent where
    /// threads run anywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) bound: Vec<BoundBody>,
    /// The stream that went out, written by a thread of its own. The field is absent for any other
    /// destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<StreamBody>,
    /// Whether anything proves that a stream which was read came to its end: `proven` or `not
    /// proven`. The field is absent for any other source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end_of_stream: Option<&'static str>,
    /// One object for each device, with the requests in flight that were found best for it. The
    /// field is absent where their number was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) depths: Vec<DepthBody>,
}

/// The depth that was found for a device.
#[derive(Debug, Serialize)]
pub(super) struct DepthBody {
    /// The device, as `MAJOR:MINOR`.
    pub(super) device: String,
    /// The requests in flight that were found best for it.
    pub(super) depth: usize,
}

/// Threads of this side that are bound to CPUs.
#[derive(Debug, Serialize)]
pub(super) struct BoundBody {
    /// The threads, such as `disk 8:1`, `lanes` or `lanes over eth0`.
    pub(super) threads: String,
    /// The memory node whose CPUs these are. Null where the user named the CPUs.
    pub(super) node: Option<u32>,
    /// The CPUs, such as `0-3,8`.
    pub(super) cpus: String,
}

/// The stream that went out.
#[derive(Debug, Serialize)]
pub(super) struct StreamBody {
    /// Bytes that left, headers and padding among them.
    pub(super) bytes: u64,
    /// Blocks that left.
    pub(super) blocks: u64,
    /// How often the stream stood still until its buffers were filled again. 0 where `--prefill`
    /// was not asked for.
    pub(super) under_runs: u64,
}

/// CPU seconds per 10^9 bytes.
#[derive(Debug, Serialize)]
pub(in crate::output) struct CpuPerGb {
    /// CPU seconds of the sending process. Null where they are not known, or nothing arrived.
    pub(in crate::output) sender: Option<f64>,
    /// CPU seconds of the receiving process. Null where they are not known, or nothing arrived.
    pub(in crate::output) receiver: Option<f64>,
}

/// The frame of every event.
#[derive(Serialize)]
pub(super) struct Line<T: Serialize> {
    /// The version of the schema. It grows only if scripts have to follow a change; a new field is
    /// no such change.
    pub(super) v: u32,
    /// The name of the event.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The destination that the event is about, as the command line has it. The field is absent
    /// where a command has one destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dest: Option<&'static str>,
    /// The fields of the event.
    #[serde(flatten)]
    pub(super) body: T,
}

/// A session stands: both sides know each other and have agreed. A run that dials again after an
/// outage has one such event for each session.
#[derive(Serialize)]
pub(super) struct StartBody<'a> {
    /// The session's id, in hex.
    pub(super) session: &'a str,
    /// `push`, `pull`, `copy`, or `third-party` from one daemon to another.
    pub(super) direction: &'a str,
    /// The kind of lane at first: `tcp`, `quic`, `udp`, or `pair` between two local directories.
    pub(super) transport: &'a str,
    /// The protection of the lanes: `private` or `safe`.
    pub(super) protect: &'static str,
    /// Lanes that the session begins with: joined, or being dialled.
    pub(super) lanes: u32,
    /// The chunk size in bytes.
    pub(super) chunk_bytes: u64,
    /// The congestion control of the lanes as the kernel reports it; `-` where there is none, or no
    /// lane was needed.
    pub(super) congestion: &'a str,
    /// The way in which the receiver makes small files and names durable: `syncfs`, or `fsync` of
    /// each. Null where nothing is kept.
    pub(super) sync: Option<&'static str>,
    /// Sentences for people: facts that nobody would guess, such as fewer lanes than asked for, no
    /// encryption, or buffered I/O.
    pub(super) notes: Vec<Cow<'static, str>>,
}

/// The counters of a transfer, once a second.
#[derive(Serialize)]
pub(super) struct ProgressBody {
    /// Seconds in which a session stood.
    pub(super) t_s: f64,
    /// Files and links that are known so far. The number grows while the scan runs.
    pub(super) files_total: u64,
    /// Files and links that are committed, or staged.
    pub(super) files_committed: u64,
    /// Bytes of the files that are known so far.
    pub(super) bytes_total: u64,
    /// Payload bytes that were handed to lanes.
    pub(super) bytes_sent: u64,
    /// Payload bytes that arrived over lanes.
    pub(super) bytes_received: u64,
    /// Bytes that are verified and synced at the receiver, those of earlier runs among them.
    pub(super) bytes_durable: u64,
    /// Bytes of those files.
    pub(super) bytes_committed: u64,
    /// Bytes of skipped files that were read at the destination for the manifest.
    pub(super) bytes_digested: u64,
    /// The rate of late, in bytes per second.
    pub(super) bytes_per_s: u64,
    /// Seconds that are left at this rate. Null where nobody can tell yet.
    pub(super) eta_s: Option<f64>,
    /// The part that limited the last second, by the names of `summary`. Null where it is not
    /// known.
    pub(super) limited_by: Option<&'static str>,
    /// The share of that second for which `limited_by` holds, 0 to 1.
    pub(super) limited_share: Option<f64>,
    /// Bytes that are at the receiver: those that earlier runs brought, those that arrived in this
    /// one, and holes. It is at least `bytes_durable`.
    pub(super) bytes_arrived: u64,
    /// Bytes among `bytes_arrived` that were not sent in this run.
    pub(super) bytes_resumed: u64,
    /// Seconds since the other side was last heard of.
    pub(super) silent_s: f64,
}

/// The figures of each target, about once a second, where a side receives into several.
#[derive(Serialize)]
pub(super) struct TargetsBody<'a> {
    /// One object for each target that is there.
    pub(super) targets: Vec<TargetBody<'a>>,
}

/// The figures of a target.
#[derive(Serialize)]
pub(super) struct TargetBody<'a> {
    /// Its number.
    pub(super) target: u32,
    /// Its directory; empty for a target of the other side, which does not tell.
    #[serde(flatten)]
    pub(super) dir: Name<'a>,
    /// Bytes per second written there since the event before.
    pub(super) bytes_per_s: u64,
    /// Bytes per second while it was busy, recent times counting most. Null while it is not known.
    pub(super) busy_bytes_per_s: Option<u64>,
    /// Bytes of requests that wait or are under way there.
    pub(super) queued_bytes: u64,
    /// Requests that wait or are under way there.
    pub(super) queued: u64,
    /// Milliseconds that half of its recent requests took at most. Null before the first.
    pub(super) p50_ms: Option<f64>,
    /// Milliseconds that nine of ten took at most.
    pub(super) p90_ms: Option<f64>,
    /// Milliseconds that 99 of 100 took at most.
    pub(super) p99_ms: Option<f64>,
    /// Its share of the bytes written on all targets since the event before, 0 to 1.
    pub(super) share: f64,
    /// `ok`; `slow`: below half of the median rate of its siblings; `full`: a write had no room in
    /// the last 30 s; `failed`: a call failed, and no probe passed since; `hung`: a call has not
    /// come back.
    pub(super) state: &'static str,
}

/// A target of this side failed on which files were committed in this run: a disk that fails may
/// lose what it called durable. Check them: `set verify` reads striped files, `check` compares
/// others with a manifest.
#[derive(Serialize)]
pub(super) struct AtRiskBody<'a> {
    /// The number of the target.
    pub(super) target: u32,
    /// Its directory.
    #[serde(flatten)]
    pub(super) dir: Name<'a>,
    /// The number of files that lie there, or a part of them.
    pub(super) files: u64,
    /// The latest 10,000 of them, the latest first: one object for each.
    pub(super) names: Vec<AtRiskNameBody<'a>>,
}

/// A file on a target that failed.
#[derive(Serialize)]
pub(super) struct AtRiskNameBody<'a> {
    /// The path beneath the top of the set.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
}

/// The sending side changed its lanes, or tried and decided not to.
#[derive(Serialize)]
pub(super) struct LanesBody<'a> {
    /// Seconds since the session stood.
    pub(super) t_s: f64,
    /// Lanes that stand now. Lanes that are being added are not counted yet; lanes that are ending
    /// still are.
    pub(super) lanes: u32,
    /// The change: `+4`, `-4`, `2 to bbr`, `to segments of 1440 bytes`, `paced at 118.2 MB/s`,
    /// `fair` where not all of the path is taken any more, `begun with 12, bbr` where an earlier
    /// run left these, or `=` for none.
    pub(super) change: &'a str,
    /// The reason, for people.
    pub(super) reason: &'a str,
}

/// A name is settled: there is one event for each file and link, and for each name that is left
/// out.
#[derive(Serialize)]
pub(super) struct FileBody<'a> {
    /// The path beneath the destination, as the sender named it.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
    /// `committed` (under its final name, durable), `staged` (durable, and part of a dataset, which
    /// gets its name at the end: it has it if the run ends well), `skipped` (the destination has
    /// it, or it is not sent: see `reason`), `linked` (as `committed` or `staged`, as another name
    /// of a file that came before), `planned` (`--dry-run` would send it) or `failed`. A `fault`
    /// event says why a file failed.
    pub(super) status: &'static str,
    /// The length in bytes.
    pub(super) bytes: u64,
    /// The BLAKE3 digest in hex. Null where the file was not sent.
    pub(super) b3: Option<String>,
    /// The path at the destination.
    #[serde(flatten)]
    pub(super) target: Target<'a>,
    /// The reason why a name of the source is left out, for people. The field is absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    /// The Adler-32 in hex, of the bytes that the receiver wrote. The field is absent where
    /// `--extra-checksum` does not ask for it, the file was not sent, its checksums are among the
    /// events `not_kept` as `not-computed`, or a lost connection took the word of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) adler32: Option<String>,
    /// The CRC-32C in hex, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) crc32c: Option<String>,
    /// The MD5 in hex, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) md5: Option<String>,
    /// The SHA-256 in hex, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

/// Something went wrong: one file, or the whole run. The exit code is in `summary`. A run over ssh
/// whose way for UDP is closed goes on with another `start`, over TCP, with `--retry-for 0` too.
#[derive(Serialize)]
pub(super) struct FaultBody<'a> {
    /// The stable name of the failure; [EXIT-CODES.md](EXIT-CODES.md) lists them all.
    pub(super) code: &'static str,
    /// The side whose failure it is: `local`, `peer`, `path` (what lies between) or `bug`.
    pub(super) blame: &'static str,
    /// True if the same command may succeed later with nothing changed by hand.
    pub(super) retry: bool,
    /// The path or the address that it concerns; of `superseded` the claim that is kept, as
    /// `CAMPAIGN:SHARD:FENCE`. It may be empty.
    pub(super) object: &'a str,
    /// One line that says what happened and why, for people.
    pub(super) message: &'a str,
    /// One line that says what to do next, for people. It may be empty.
    pub(super) hint: Cow<'a, str>,
    /// The host that worded it: `local`, or `peer`, whose words may say anything.
    pub(super) author: &'static str,
}

/// `serve --check-config` found something that is not wrong but can hardly be meant.
#[derive(Serialize)]
pub(super) struct WarningBody<'a> {
    /// One line, for people.
    pub(super) message: &'a str,
}

/// A name that `ls` found.
#[derive(Serialize)]
pub(super) struct EntryBody<'a> {
    /// The name; of a partial its path beneath the location.
    #[serde(flatten)]
    pub(super) path: Name<'a>,
    /// The location that was listed. The field is absent where one location was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) location: Option<&'a str>,
    /// `file`, `dir`, `symlink`, `special`, `root` or `partial` (an unfinished file).
    pub(super) kind: &'static str,
    /// The length in bytes; of a partial the length of the whole file.
    pub(super) bytes: u64,
    /// The permissions as four octal digits. The field is absent for a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<String>,
    /// The time of the last change, in UTC, as `2026-11-20T13:42:25Z`. The field is absent for a
    /// root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mtime: Option<String>,
    /// The rights that this key has: of `read`, `create`, `modify` and `delete`. The field is
    /// absent for all but roots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rights: Option<Rights>,
    /// The state of an unfinished file. Its fields are absent for all but partials.
    #[serde(flatten)]
    pub(super) partial: Option<PartialBody<'a>>,
}

/// The state of an unfinished file.
#[derive(Serialize)]
pub(super) struct PartialBody<'a> {
    /// Bytes that are verified and durable.
    pub(super) bytes_held: u64,
    /// The time at which the session began that wrote it last, in UTC, as `2026-11-20T13:42:25Z`.
    pub(super) since: String,
    /// The owner, for people.
    pub(super) owner: &'a str,
    /// The owner: `key:FINGERPRINT` or `uid:N`.
    pub(super) principal: &'a str,
    /// The name of the temporary file, in the directory of the final name.
    pub(super) temporary: String,
    /// The session that writes it now, for people. Null where nobody does.
    pub(super) in_use_by: Option<&'a str>,
}

/// A path as text, or in base64 when it is none.
#[derive(Debug, Serialize)]
pub(in crate::output) enum Name<'a> {
    /// This field has it as text, where it is UTF-8.
    #[serde(rename = "path")]
    Text(&'a str),
    /// This field has its bytes in base64, where they are not UTF-8.
    #[serde(rename = "path_b64")]
    Bytes(String),
}

/// A path at the destination as text, or in base64 when it is none.
#[derive(Serialize)]
pub(super) enum Target<'a> {
    /// This field has it as text, where it is UTF-8.
    #[serde(rename = "target")]
    Text(&'a str),
    /// This field has its bytes in base64, where they are not UTF-8.
    #[serde(rename = "target_b64")]
    Bytes(String),
}
