//! The state of a daemon as one object: for `/status.json` and for the page.
//!
//! In: the engine's figures, those of this process, the last hour. Out: plain data with the names
//! that scripts see. Texts are as they came: whoever shows them escapes them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::Mtime;
use longhaul_engine::{Protection, RecentFault, RootFigures, RootTarget, ServiceHandle, SessionFigures};
use serde::Serialize;

use super::Watched;
use super::history::{SAMPLE_EVERY, Sample};
use super::metrics::fill_of;
use super::process::ProcessFigures;
use super::ready;
use crate::output;

/// The state of a daemon.
#[derive(Debug, Default, Serialize)]
pub(super) struct Status {
    /// The version of this form; a change that scripts would have to follow gets the next number.
    pub(super) v: u32,
    /// When it was made, UTC.
    pub(super) time: String,
    /// The version of the program.
    pub(super) version: &'static str,
    /// The number of the process.
    pub(super) pid: u32,
    /// `starting`, `serving` or `draining`.
    pub(super) state: &'static str,
    /// The reasons why no session should be sent here.
    pub(super) unready: Vec<String>,
    /// When it began to serve, UTC.
    pub(super) begun: Option<String>,
    /// For how long it has served.
    pub(super) seconds: f64,
    /// Its addresses.
    pub(super) listen: Vec<String>,
    /// Its public key.
    pub(super) key: String,
    /// The load of the whole.
    pub(super) load: Load,
    /// The sums since it began.
    pub(super) totals: Totals,
    /// The sessions that run, the oldest first.
    pub(super) sessions: Vec<Session>,
    /// The roots.
    pub(super) roots: Vec<Root>,
    /// Where sessions come from.
    pub(super) paths: Vec<PathOf>,
    /// The last faults, the latest first.
    pub(super) faults: Vec<FaultOf>,
    /// The last hour.
    pub(super) history: Hour,
}

/// The load of the whole.
#[derive(Debug, Default, Serialize)]
pub(super) struct Load {
    pub(super) sessions: u64,
    pub(super) sessions_max: u64,
    pub(super) received_per_s: u64,
    pub(super) sent_per_s: u64,
    pub(super) rate_limit_per_s: Option<u64>,
    pub(super) memory_bytes: u64,
    pub(super) memory_max: u64,
    pub(super) descriptors: Option<u64>,
    pub(super) descriptors_max: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) cpu_s: Option<f64>,
    pub(super) unauthenticated: u64,
}

/// The sums since it began.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) files_committed: u64,
    pub(super) files_failed: u64,
    pub(super) sessions_complete: u64,
    pub(super) sessions_failed: u64,
    pub(super) refused: u64,
    pub(super) audit_records: Option<u64>,
    pub(super) audit_lost: Option<u64>,
}

/// A session that runs.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    pub(super) session: String,
    pub(super) client: String,
    pub(super) peer: String,
    pub(super) what: String,
    /// `in` if the daemon receives, `out` if it sends.
    pub(super) direction: &'static str,
    pub(super) protect: &'static str,
    pub(super) transport: &'static str,
    pub(super) lanes: u32,
    pub(super) seconds: f64,
    pub(super) files_committed: u64,
    pub(super) files_failed: u64,
    pub(super) bytes_done: u64,
    pub(super) bytes_total: u64,
    /// Whether the total is final.
    pub(super) scanned: bool,
    pub(super) bytes_per_s: u64,
    pub(super) eta_s: Option<f64>,
    pub(super) limited_by: Option<&'static str>,
    pub(super) silent_s: f64,
}

/// A root.
#[derive(Debug, Serialize)]
pub(super) struct Root {
    pub(super) root: String,
    pub(super) takes_files: bool,
    pub(super) rate_limit_per_s: Option<u64>,
    /// Why it cannot be used as it should.
    pub(super) flaws: Vec<String>,
    pub(super) targets: Vec<Target>,
}

/// A target of a root.
#[derive(Debug, Serialize)]
pub(super) struct Target {
    pub(super) target: u32,
    pub(super) dir: String,
    pub(super) state: &'static str,
    pub(super) free_bytes: Option<u64>,
    pub(super) size_bytes: Option<u64>,
    pub(super) fill: Option<f64>,
    pub(super) written_bytes: u64,
    pub(super) busy_bytes_per_s: Option<u64>,
    pub(super) queued: u64,
    pub(super) p50_s: Option<f64>,
    pub(super) p99_s: Option<f64>,
}

/// The address that sessions come from.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathOf {
    pub(super) peer: String,
    pub(super) clients: Vec<String>,
    pub(super) sessions: u64,
    pub(super) lanes: u64,
    pub(super) transports: Vec<&'static str>,
    pub(super) received_per_s: u64,
    pub(super) sent_per_s: u64,
}

/// A fault of the past.
#[derive(Debug, Serialize)]
pub(super) struct FaultOf {
    pub(super) time: String,
    pub(super) code: &'static str,
    pub(super) client: String,
    pub(super) what: String,
    pub(super) message: String,
}

/// The last hour: a value for each sample, the oldest first.
#[derive(Debug, Default, Serialize)]
pub(super) struct Hour {
    /// Seconds of a sample.
    pub(super) every_s: u64,
    pub(super) received_per_s: Vec<f64>,
    pub(super) sent_per_s: Vec<f64>,
    pub(super) sessions: Vec<f64>,
}

impl Watched {
    /// The state now.
    pub(super) fn status(&self) -> Status {
        let head = Status {
            v: 1,
            time: utc(SystemTime::now()),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            state: "starting",
            unready: self.unready(),
            ..Status::default()
        };
        let Some((service, _)) = self.0.running.get() else { return head };
        let (status, sessions) = (service.status(), service.sessions());
        let sessions: Vec<_> = sessions.into_iter().map(session).collect();
        let caps: BTreeMap<_, _> = status.roots.iter().cloned().collect();
        let roots = self.0.roots.last().map(|(_, roots)| roots).unwrap_or_default();
        Status {
            state: if status.drains { "draining" } else { "serving" },
            begun: Some(utc(status.begun)),
            seconds: status.age.as_secs_f64(),
            listen: status.listening.iter().map(|(address, _)| address.to_string()).collect(),
            key: status.listening.first().map(|(_, key)| key.to_string()).unwrap_or_default(),
            load: self.load(service, &sessions),
            totals: self.totals(service),
            roots: roots.iter().map(|root| self::root(root, caps.get(&root.name).copied().flatten())).collect(),
            paths: paths(&sessions),
            faults: service.recent_faults().into_iter().rev().map(fault).collect(),
            history: hour(&self.0.history.samples()),
            sessions,
            ..head
        }
    }

    fn load(&self, service: &ServiceHandle, sessions: &[Session]) -> Load {
        let (status, process) = (service.status(), ProcessFigures::now());
        let rate = |direction| sessions.iter().filter(|s| s.direction == direction).map(|s| s.bytes_per_s).sum();
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

fn session(session: SessionFigures) -> Session {
    let done = session.bytes_done.min(session.bytes_total);
    let rate = session.mean_bytes_per_s;
    let eta = (session.scanned && rate > 0).then(|| (session.bytes_total - done) as f64 / rate as f64);
    Session {
        session: session.name,
        client: session.client,
        peer: session.peer.to_string(),
        what: session.what,
        direction: if session.receives { IN } else { OUT },
        protect: if session.protection == Protection::Private { "private" } else { "safe" },
        transport: session.transport,
        lanes: session.lanes,
        seconds: session.age.as_secs_f64(),
        files_committed: session.files,
        files_failed: session.failed,
        bytes_done: done,
        bytes_total: session.bytes_total,
        scanned: session.scanned,
        bytes_per_s: session.bytes_per_s,
        eta_s: eta,
        limited_by: session.limited_by.map(|limit| limit.name()),
        silent_s: session.silent_s,
    }
}

fn root(root: &RootFigures, rate: Option<u64>) -> Root {
    Root {
        root: root.name.clone(),
        takes_files: root.takes_files,
        rate_limit_per_s: rate,
        flaws: ready::of_root(root),
        targets: root.targets.iter().map(target).collect(),
    }
}

fn target(target: &RootTarget) -> Target {
    let seconds = |of: fn(&longhaul_engine::Latency) -> std::time::Duration| {
        target.latency.as_ref().map(|latency| of(latency).as_secs_f64())
    };
    Target {
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
fn paths(sessions: &[Session]) -> Vec<PathOf> {
    let mut paths = BTreeMap::<&str, PathOf>::new();
    for session in sessions {
        let peer = session.peer.rsplit_once(':').map_or(&*session.peer, |(host, _)| host);
        let path = paths.entry(peer).or_default();
        path.peer = peer.to_owned();
        path.sessions += 1;
        path.lanes += u64::from(session.lanes);
        if !path.clients.contains(&session.client) {
            path.clients.push(session.client.clone());
        }
        if !path.transports.contains(&session.transport) {
            path.transports.push(session.transport);
        }
        match session.direction {
            IN => path.received_per_s += session.bytes_per_s,
            _ => path.sent_per_s += session.bytes_per_s,
        }
    }
    paths.into_values().collect()
}

fn fault(fault: RecentFault) -> FaultOf {
    let RecentFault { at, client, what, code, message } = fault;
    FaultOf { time: utc(at), code: code.name(), client, what, message: message.as_str().to_owned() }
}

fn hour(samples: &[Sample]) -> Hour {
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
