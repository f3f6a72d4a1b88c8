//! The state of a daemon as one object: for `/status.json` and for the page.
//!
//! In: the engine's figures, those of this process, the last hour. Out: plain data with the names
//! that scripts see. Texts are as they came: whoever shows them escapes them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::Mtime;
use longhaul_engine::{Protection, RecentFault, RootFigures, RootTarget, ServiceHandle, SessionFigures, SessionPace};
use serde::Serialize;

use super::Watched;
use super::history::{HourSample, SAMPLE_EVERY};
use super::metrics::fill_of;
use super::process::ProcessFigures;
use super::ready;
use crate::output;

/// The state of a daemon.
#[derive(Debug, Default, Serialize)]
pub(super) struct Status {
    /// The daemon itself.
    #[serde(flatten)]
    pub(super) head: StatusHead,
    /// `starting`, `serving` or `draining`.
    pub(super) state: &'static str,
    /// The reasons why no session should be sent here.
    pub(super) unready: Vec<String>,
    /// The load of the whole.
    pub(super) load: Load,
    /// The sums since it began.
    pub(super) totals: Totals,
    /// The sessions that run, the oldest first.
    pub(super) sessions: Vec<SessionState>,
    /// The roots.
    pub(super) roots: Vec<RootState>,
    /// Where sessions come from.
    pub(super) paths: Vec<PathOf>,
    /// The last faults, the latest first.
    pub(super) faults: Vec<FaultOf>,
    /// The last hour.
    pub(super) history: Hour,
}

/// The facts of a daemon that stay.
#[derive(Debug, Default, Serialize)]
pub(super) struct StatusHead {
    /// The version of this form; a change that scripts would have to follow gets the next number.
    pub(super) v: u32,
    /// When it was made, UTC.
    pub(super) time: String,
    /// The version of the program.
    pub(super) version: &'static str,
    /// The number of the process.
    pub(super) pid: u32,
    /// When it began to serve, UTC.
    pub(super) begun: Option<String>,
    /// For how long it has served.
    pub(super) seconds: f64,
    /// Its addresses.
    pub(super) listen: Vec<String>,
    /// Its public key.
    pub(super) key: String,
}

/// The load of the whole.
#[derive(Debug, Default, Serialize)]
pub(super) struct Load {
    /// Sessions that run.
    pub(super) sessions: u64,
    /// As many as may run at a time.
    pub(super) sessions_max: u64,
    /// Payload bytes of the last second that came.
    pub(super) received_per_s: u64,
    /// Payload bytes of the last second that were sent.
    pub(super) sent_per_s: u64,
    /// The rate of all sessions together. `None`: no limit.
    pub(super) rate_limit_per_s: Option<u64>,
    /// Bytes of memory that sessions and listings have.
    pub(super) memory_bytes: u64,
    /// As many as they may have.
    pub(super) memory_max: u64,
    /// Descriptors that are open. `None`: not known.
    pub(super) descriptors: Option<u64>,
    /// As many as may be. `None`: any number.
    pub(super) descriptors_max: Option<u64>,
    /// Bytes of memory of the process. `None`: not known.
    pub(super) resident_bytes: Option<u64>,
    /// Seconds of processor time. `None`: not known.
    pub(super) cpu_s: Option<f64>,
    /// Connections that have not shown whose they are.
    pub(super) unauthenticated: u64,
}

/// The sums since it began.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    /// Payload bytes that came.
    pub(super) received_bytes: u64,
    /// Payload bytes that were sent.
    pub(super) sent_bytes: u64,
    /// Files and links that have their names.
    pub(super) files_committed: u64,
    /// Files and links that failed.
    pub(super) files_failed: u64,
    /// Sessions that ended well.
    pub(super) sessions_complete: u64,
    /// Sessions that ended by a fault.
    pub(super) sessions_failed: u64,
    /// Requests and keys that were refused.
    pub(super) refused: u64,
    /// Records in the audit log. `None`: there is no such log.
    pub(super) audit_records: Option<u64>,
    /// Records that were lost. `None`: there is no such log.
    pub(super) audit_lost: Option<u64>,
}

/// A session that runs.
#[derive(Debug, Serialize)]
pub(super) struct SessionState {
    /// Its name.
    pub(super) session: String,
    /// The name of its client.
    pub(super) client: String,
    /// The address that it came from.
    pub(super) peer: String,
    /// Its doing, as the log says it.
    pub(super) what: String,
    /// `in` if the daemon receives, `out` if it sends.
    pub(super) direction: &'static str,
    /// The protection of its lanes.
    pub(super) protect: &'static str,
    /// The kind of lane that it began with.
    pub(super) transport: &'static str,
    /// For how long it has run.
    pub(super) seconds: f64,
    /// Files and links that it committed.
    pub(super) files_committed: u64,
    /// Files and links that failed.
    pub(super) files_failed: u64,
    /// How far it is, and how fast.
    #[serde(flatten)]
    pub(super) pace: PaceState,
}

/// How far a session is, and how fast.
#[derive(Debug, Default, Serialize)]
pub(super) struct PaceState {
    /// Bytes of files that are at the receiver, or will not come.
    pub(super) bytes_done: u64,
    /// Bytes of all files that are known.
    pub(super) bytes_total: u64,
    /// Whether the total is final.
    pub(super) scanned: bool,
    /// Payload bytes of the last second.
    pub(super) bytes_per_s: u64,
    /// Seconds to its end at the rate of the last ones. `None`: not known.
    pub(super) eta_s: Option<f64>,
    /// The part that limited the last second. `None`: not known.
    pub(super) limited_by: Option<&'static str>,
    /// Seconds since its client was last heard of.
    pub(super) silent_s: f64,
    /// Lanes that run.
    pub(super) lanes: u32,
}

/// A root.
#[derive(Debug, Serialize)]
pub(super) struct RootState {
    /// Its name.
    pub(super) root: String,
    /// Whether clients may write there.
    pub(super) takes_files: bool,
    /// The rate of its sessions together. `None`: no limit.
    pub(super) rate_limit_per_s: Option<u64>,
    /// Why it cannot be used as it should.
    pub(super) flaws: Vec<String>,
    /// Its targets.
    pub(super) targets: Vec<TargetOf>,
}

/// A target of a root.
#[derive(Debug, Serialize)]
pub(super) struct TargetOf {
    /// Its number.
    pub(super) target: u32,
    /// Its directory.
    pub(super) dir: String,
    /// A word for its state.
    pub(super) state: &'static str,
    /// Bytes free on its file system. `None`: not known.
    pub(super) free_bytes: Option<u64>,
    /// Bytes of its file system. `None`: not known.
    pub(super) size_bytes: Option<u64>,
    /// The part of it that is taken. `None`: not known.
    pub(super) fill: Option<f64>,
    /// Bytes written there since the daemon began to use it.
    pub(super) written_bytes: u64,
    /// Bytes per second while it was busy. `None`: not known yet.
    pub(super) busy_bytes_per_s: Option<u64>,
    /// Writes that wait or are under way.
    pub(super) queued: u64,
    /// Half of the recent writes took no longer. `None`: there were none.
    pub(super) p50_s: Option<f64>,
    /// 99 of 100 recent writes took no longer. `None`: there were none.
    pub(super) p99_s: Option<f64>,
}

/// The address that sessions come from.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathOf {
    /// The address.
    pub(super) peer: String,
    /// The clients that came from there.
    pub(super) clients: Vec<String>,
    /// Their sessions.
    pub(super) sessions: u64,
    /// Their lanes.
    pub(super) lanes: u64,
    /// The kinds of their lanes.
    pub(super) transports: Vec<&'static str>,
    /// Payload bytes of the last second that came.
    pub(super) received_per_s: u64,
    /// Payload bytes of the last second that were sent.
    pub(super) sent_per_s: u64,
}

/// A fault of the past.
#[derive(Debug, Serialize)]
pub(super) struct FaultOf {
    /// When it happened, UTC.
    pub(super) time: String,
    /// Its code.
    pub(super) code: &'static str,
    /// The client.
    pub(super) client: String,
    /// The doing of the client.
    pub(super) what: String,
    /// Its message.
    pub(super) message: String,
}

/// The last hour: a value for each sample, the oldest first.
#[derive(Debug, Default, Serialize)]
pub(super) struct Hour {
    /// Seconds of a sample.
    pub(super) every_s: u64,
    /// Payload bytes per second that came.
    pub(super) received_per_s: Vec<f64>,
    /// Payload bytes per second that were sent.
    pub(super) sent_per_s: Vec<f64>,
    /// Sessions that ran.
    pub(super) sessions: Vec<f64>,
}

impl Watched {
    /// The state now.
    pub(super) fn status(&self) -> Status {
        let head = StatusHead {
            v: 1,
            time: utc(SystemTime::now()),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            ..StatusHead::default()
        };
        let unready = self.unready();
        let Some((service, _)) = self.0.running.get() else {
            return Status { head, state: "starting", unready, ..Status::default() };
        };
        let (status, sessions) = (service.status(), service.sessions());
        let sessions: Vec<_> = sessions.into_iter().map(session).collect();
        let caps: BTreeMap<_, _> = status.roots.iter().map(|(name, rate, _)| (name.clone(), *rate)).collect();
        let roots = self.0.roots.last().map(|(_, roots)| roots).unwrap_or_default();
        Status {
            state: if status.drains { "draining" } else { "serving" },
            head: StatusHead {
                begun: Some(utc(status.begun)),
                seconds: status.age.as_secs_f64(),
                listen: status.listening.iter().map(|(address, _)| address.to_string()).collect(),
                key: status.listening.first().map(|(_, key)| key.to_string()).unwrap_or_default(),
                ..head
            },
            unready,
            load: self.load(service, &sessions),
            totals: self.totals(service),
            roots: roots.iter().map(|root| self::root(root, caps.get(&root.name).copied().flatten())).collect(),
            paths: paths(&sessions),
            faults: service.recent_faults().into_iter().rev().map(fault).collect(),
            history: hour(&self.0.history.samples()),
            sessions,
        }
    }

    fn load(&self, service: &ServiceHandle, sessions: &[SessionState]) -> Load {
        let (status, process) = (service.status(), ProcessFigures::now());
        let rate = |direction| sessions.iter().filter(|s| s.direction == direction).map(|s| s.pace.bytes_per_s).sum();
        Load {
            sessions: status.sessions as u64,
            sessions_max: status.sessions_max,
            received_per_s: rate(IN),
            sent_per_s: rate(OUT),
            rate_limit_per_s: status.rate,
            memory_bytes: status.memory_taken,
            memory_max: status.memory_max,
            descriptors: process.descriptors,
            descriptors_max: process.descriptors_max,
            resident_bytes: process.resident_bytes,
            cpu_s: process.cpu_seconds,
            unauthenticated: service.watch().greeting as u64,
        }
    }

    fn totals(&self, service: &ServiceHandle) -> Totals {
        let sums = service.watch().sums;
        let audit = self.0.audit.as_ref().map(|audit| audit.figures());
        let mut totals = Totals {
            refused: sums.refused.values().sum::<u64>() + sums.strangers + sums.crowded,
            audit_records: audit.map(|figures| figures.written),
            audit_lost: audit.map(|figures| figures.lost),
            ..Totals::default()
        };
        for one in sums.moved.values() {
            totals.received_bytes += one.received_bytes;
            totals.sent_bytes += one.sent_bytes;
            totals.files_committed += one.files_committed;
            totals.files_failed += one.files_failed;
        }
        for ((_, code), count) in &sums.ended {
            match *code {
                "complete" => totals.sessions_complete += count,
                _ => totals.sessions_failed += count,
            }
        }
        totals
    }
}

fn session(session: SessionFigures) -> SessionState {
    SessionState {
        session: session.name,
        client: session.client,
        peer: session.peer.to_string(),
        what: session.what,
        direction: if session.receives { IN } else { OUT },
        protect: if session.protection == Protection::Private { "private" } else { "safe" },
        transport: session.transport,
        seconds: session.age.as_secs_f64(),
        files_committed: session.files,
        files_failed: session.failed,
        pace: pace(&session.pace),
    }
}

fn pace(pace: &SessionPace) -> PaceState {
    let (done, rate) = (pace.bytes_done.min(pace.bytes_total), pace.mean_bytes_per_s);
    PaceState {
        bytes_done: done,
        bytes_total: pace.bytes_total,
        scanned: pace.scanned,
        bytes_per_s: pace.bytes_per_s,
        eta_s: (pace.scanned && rate > 0).then(|| (pace.bytes_total - done) as f64 / rate as f64),
        limited_by: pace.limited_by.map(|limit| limit.name()),
        silent_s: pace.silent_s,
        lanes: pace.lanes,
    }
}

fn root(root: &RootFigures, rate: Option<u64>) -> RootState {
    RootState {
        root: root.name.clone(),
        takes_files: root.takes_files,
        rate_limit_per_s: rate,
        flaws: ready::of_root(root),
        targets: root.targets.iter().map(target).collect(),
    }
}

fn target(target: &RootTarget) -> TargetOf {
    let seconds = |of: fn(&longhaul_engine::Latency) -> std::time::Duration| {
        target.latency.as_ref().map(|latency| of(latency).as_secs_f64())
    };
    TargetOf {
        target: target.number,
        dir: target.dir.display().to_string(),
        state: match &target.missing {
            Some(_) => "missing",
            None if target.read_only => "read-only",
            None => target.state.name(),
        },
        free_bytes: target.free_bytes,
        size_bytes: target.total_bytes,
        fill: fill_of(target),
        written_bytes: target.written_bytes,
        busy_bytes_per_s: target.busy_bytes_per_s,
        queued: target.queued,
        p50_s: seconds(|latency| latency.p50),
        p99_s: seconds(|latency| latency.p99),
    }
}

/// The sessions by the address that they come from.
fn paths(sessions: &[SessionState]) -> Vec<PathOf> {
    let mut paths = BTreeMap::<&str, PathOf>::new();
    for session in sessions {
        let peer = session.peer.rsplit_once(':').map_or(&*session.peer, |(host, _)| host);
        let path = paths.entry(peer).or_default();
        path.peer = peer.to_owned();
        path.sessions += 1;
        path.lanes += u64::from(session.pace.lanes);
        if !path.clients.contains(&session.client) {
            path.clients.push(session.client.clone());
        }
        if !path.transports.contains(&session.transport) {
            path.transports.push(session.transport);
        }
        match session.direction {
            IN => path.received_per_s += session.pace.bytes_per_s,
            _ => path.sent_per_s += session.pace.bytes_per_s,
        }
    }
    paths.into_values().collect()
}

fn fault(fault: RecentFault) -> FaultOf {
    let RecentFault { at, client, what, code, message } = fault;
    FaultOf { time: utc(at), code: code.name(), client, what, message: output::without_numbers(&message).into_owned() }
}

fn hour(samples: &[HourSample]) -> Hour {
    let whole = |value: f64| value.round();
    Hour {
        every_s: SAMPLE_EVERY.as_secs(),
        received_per_s: samples.iter().map(|sample| whole(sample.received_per_s)).collect(),
        sent_per_s: samples.iter().map(|sample| whole(sample.sent_per_s)).collect(),
        sessions: samples.iter().map(|sample| sample.sessions as f64).collect(),
    }
}

fn utc(at: SystemTime) -> String {
    let secs = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    output::time(Mtime { secs: secs as i64, nanos: 0 })
}

/// The daemon receives.
pub(super) const IN: &str = "in";
/// The daemon sends.
pub(super) const OUT: &str = "out";
