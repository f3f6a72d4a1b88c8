//! Figures for whoever watches the daemon: its sums, its crowd of connections, and its roots.
//!
//! In: the wish to look. Out: plain data. What is asked of file systems may hang as they do, so
//! that the caller gives it a thread of its own. It knows no form in which figures are shown.

use std::path::PathBuf;

use longhaul_core::Latency;
use longhaul_disk::{TargetCondition, TargetSet};

use super::handle::ServiceHandle;
use super::tallies::{RecentFault, ServiceSums};
use super::{OpenRoot, RootConfig};
use crate::api::TargetState;

/// The sums of a daemon, and the connections that have not begun anything.
#[derive(Clone, Debug)]
pub struct WatchFigures {
    /// The sums since it began.
    pub sums: ServiceSums,
    /// Connections that have not shown yet whose they are.
    pub greeting: usize,
    /// As many as there may be.
    pub greeting_max: usize,
    /// Connections of clients that have not begun a session, or wait for an answer.
    pub waiting: usize,
}

/// A root as its file systems are now.
#[derive(Clone, Debug)]
pub struct RootFigures {
    /// Its name.
    pub name: String,
    /// Whether clients may write there.
    pub takes_files: bool,
    /// The reason why it cannot be served. `None`: it can be.
    pub fault: Option<String>,
    /// Its targets, those that are missing among them.
    pub targets: Vec<RootTarget>,
}

/// One target of a root. A root of one directory is its own target.
#[derive(Clone, Debug)]
pub struct RootTarget {
    /// Its number.
    pub number: u32,
    /// Its directory, as the operator named it.
    pub dir: PathBuf,
    /// Bytes free on its file system, as the daemon may take them. `None`: not known.
    pub free_bytes: Option<u64>,
    /// Bytes of its file system in all. `None`: not known.
    pub total_bytes: Option<u64>,
    /// Whether its file system takes no writes.
    pub read_only: bool,
    /// The reason why it is not there. `None`: it is.
    pub missing: Option<String>,
    /// Bytes written there since the daemon began to use it.
    pub written_bytes: u64,
    /// Write requests that wait or are under way.
    pub queued: u64,
    /// Bytes of them.
    pub queued_bytes: u64,
    /// Bytes per second while it was busy with writes, recent times counting most. `None`: not
    /// known yet.
    pub busy_bytes_per_s: Option<u64>,
    /// Quantiles of the latency of recent writes. `None` before the first.
    pub latency: Option<Latency>,
    /// Whether it takes what it is given.
    pub state: TargetState,
}

impl ServiceHandle {
    /// The sums of the daemon, and the connections that have not begun anything.
    pub fn watch(&self) -> WatchFigures {
        let (daemon, (greeting, greeting_max)) = (self.current(), self.greeting());
        WatchFigures { sums: daemon.live.tallies.now(), greeting, greeting_max, waiting: daemon.lobby.waiting() }
    }

    /// The last faults, the oldest first.
    pub fn recent_faults(&self) -> Vec<RecentFault> {
        self.current().live.tallies.faults()
    }

    /// The roots, as their file systems are now. It blocks as they do.
    pub fn look_at_roots(&self) -> Vec<RootFigures> {
        self.current().roots.named.values().map(figures).collect()
    }
}

fn figures((config, set, _): &OpenRoot) -> RootFigures {
    let fault = set.check_place().err().map(|error| error.fault().to_string());
    let RootConfig { name, allow, .. } = config;
    RootFigures { name: name.clone(), takes_files: allow.create || allow.modify, fault, targets: targets(set) }
}

fn targets(set: &TargetSet) -> Vec<RootTarget> {
    let there = set.rooms().zip(set.loads()).map(|(room, load)| {
        let load = load.figures();
        RootTarget {
            number: room.id.0,
            dir: room.dir,
            free_bytes: room.free_bytes,
            total_bytes: room.total_bytes,
            read_only: room.read_only,
            missing: None,
            written_bytes: load.written_bytes,
            queued: load.queued,
            queued_bytes: load.queued_bytes,
            busy_bytes_per_s: load.rate.map(|rate| rate as u64),
            latency: load.latency,
            state: match load.condition {
                TargetCondition::Well => TargetState::Ok,
                TargetCondition::Full => TargetState::Full,
                TargetCondition::Failed => TargetState::Failed,
                TargetCondition::Hung => TargetState::Hung,
            },
        }
    });
    let missing = set.missing().iter().map(|target| RootTarget {
        number: target.id.0,
        dir: target.dir.clone(),
        free_bytes: None,
        total_bytes: None,
        read_only: false,
        missing: Some(target.why.clone()),
        written_bytes: 0,
        queued: 0,
        queued_bytes: 0,
        busy_bytes_per_s: None,
        latency: None,
        state: TargetState::Failed,
    });
    let mut targets: Vec<_> = there.chain(missing).collect();
    targets.sort_by_key(|target| target.number);
    targets
}
