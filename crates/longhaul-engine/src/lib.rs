//! Joins machines, disks and networks into sessions: pipelines, memory, the session loops, the
//! daemon.
//!
//! It is the only crate that sees both network and disk. In: a [`Job`] with [`Settings`], or a
//! [`ServeConfig`]. Out: events to an [`Observer`] and a [`Report`]. It must not know the command
//! line, the environment or JSON.

mod api;
mod budget;
mod client;
mod cpu;
mod daemon;
mod faults;
mod journals;
mod lanes;
mod measure;
mod name_page;
mod place;
mod random;
mod session;
mod workers;

pub use api::{
    Direction, Event, FileEvent, FileStatus, Job, JobDestination, JobSource, LaneKind, LanesChange, LanesTuned,
    Limited, LocalDest, LocalSource, Observer, PathFigures, Progress, RATE_MIN, Reach, Redial, Remote, RemotePath,
    Report, Settings, Start, StartNote, Stop, StopTrigger, Transport, Trust, Verify,
};
pub use budget::{LANES_DEFAULT, MEMORY_DEFAULT, host_memory};
pub use client::list::{Listed, ListedKind, ListedPartial, list, list_local, list_local_partials, list_partials};
pub use client::{Observers, run, run_between, run_into};
pub use daemon::{ClientConfig, RootConfig, ServeConfig, Service};
pub use longhaul_core::Rights;
pub use longhaul_disk::{
    DirectMode, EngineKind, EngineReport, IoMode, LinkPolicy, ModePolicy, SourceTree, SyncMethod, TargetTree,
    TreePolicy, VoidSource, VoidTarget,
};
pub use longhaul_net::{Congestion, NetPath, Protection};
pub use longhaul_proto::receiver::SyncGroup;
pub use longhaul_proto::wire::message::Limit;
/// The version of the protocol that this build speaks.
pub use longhaul_proto::wire::message::VERSION as PROTOCOL_VERSION;
pub use longhaul_sys::ignores_hangup;
pub use measure::{
    CellReport, CellRun, HalfReport, LaneFigures, NOISE_NAME, NetReport, NetRun, SentFigures, Way, bench_cell,
    bench_net, io_mode,
};

/// Prepares the process: as many open files as the system allows, and limits on file sizes that
/// cause errors and not signals.
pub fn prepare_process() {
    if let Err(e) = longhaul_sys::raise_nofile_limit() {
        tracing::debug!(error = %e, "the limit on open files stays as it is");
    }
    if let Err(e) = longhaul_sys::survive_file_size_limit() {
        tracing::debug!(error = %e, "a limit on file sizes still ends the process");
    }
}
