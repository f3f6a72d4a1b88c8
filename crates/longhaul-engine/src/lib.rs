//! Joins machines, disks and networks into sessions: pipelines, memory, the session loops, the
//! daemon.
//!
//! It is the only crate that sees both network and disk. In: a [`Job`] with [`Settings`], or a
//! [`ServeConfig`]. Out: events to an [`Observer`] and a [`Report`]. It must not know the command
//! line, the environment or JSON.
//!
//! A program that moves files makes a job, hands it over with an observer, and looks at the report:
//!
//! ```
//! use std::sync::Arc;
//!
//! use longhaul_engine::{Event, Job, LocalDest, LocalSource, Observer, Settings, Stop};
//!
//! struct Silent;
//!
//! impl Observer for Silent {
//!     fn event(&self, _event: Event) {}
//! }
//!
//! # let dir = tempfile::tempdir()?;
//! # let (from, to) = (dir.path().join("from"), dir.path().join("to"));
//! # std::fs::create_dir(&from)?;
//! # std::fs::write(from.join("a file"), b"content")?;
//! let job = Job::copy(vec![LocalSource::contents(&from)], LocalDest::directory(&to));
//! let (_trigger, stop) = Stop::new();
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! let running = longhaul_engine::run(job, None, Settings::default(), Arc::new(Silent), stop);
//! let report = runtime.block_on(running);
//! assert!(report.fault.is_none());
//! assert_eq!((report.files_committed, report.bytes_committed), (1, 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Job`], [`Settings`], [`Event`] and [`Report`] are plain data: serde writes them down and reads
//! them back (but for a path of this host that is not UTF-8, which serde refuses). A key is none of
//! it: it is given to [`run`] beside the job, as [`Credentials`]. A [`Fault`](longhaul_core::Fault)
//! says by its code what happened, by its hint what to do, both as values and not as words of any
//! command line. `examples/push.rs` pushes a directory to a daemon.

mod api;
mod budget;
mod client;
mod cpu;
mod daemon;
mod faults;
mod journals;
mod known_name;
mod lanes;
mod measure;
mod name_page;
mod place;
mod random;
mod session;
mod ssh;
mod third_party;
mod workers;

pub use api::{
    Credentials, Dialler, Direction, Event, ExpectedFile, ExpectedFiles, FileEvent, FileStatus, FilesAtRisk, Following,
    Job, JobDestination, JobSource, LaneKind, LanesChange, LanesReason, LanesTuned, Limited, LocalDest, LocalSource,
    LossAt, Metadata, MetadataLoss, Observer, OwnFacts, PathFacts, PathFigures, PathKey, PathMemory, PathRate,
    Progress, RATE_MIN, Reach, Redial, Remote, RemotePath, Report, RoadFigures, RoadReport, Settings, SkipReason,
    SshFigures, SshHost, Start, StartNote, Stop, StopTrigger, StreamDest, StreamPlace, TargetFigures, TargetState,
    Transport, TroubledTarget, Trust, Verify, WayFigures,
};
pub use budget::{LANES_DEFAULT, MEMORY_DEFAULT, host_memory};
pub use client::digests::digest_sources;
pub use client::list::{
    Listed, ListedKind, ListedPartial, list, list_local, list_local_partials, list_partials, locate,
};
pub use client::reading::{FarReading, FoundThing};
pub use client::removal::{FarName, FarRemoval};
pub use client::sets::{SetFind, rebalance_set, rebuild_set, replace_target, survey_bodies, verify_set, walk_set};
pub use client::{CampaignFiles, Deliveries, Observers, commit_dataset, run, run_between, run_into, shard_grant_time};
pub use cpu::Stage;
pub use daemon::{
    AuditDeed, AuditLog, AuditLost, AuditRecord, AuditWho, Bounds, Broker, BrokerAnswer, BrokerRequest, Changes,
    ClientConfig, ClientFigures, ClientUser, DialRule, DialRuleError, FreeReserve, Liveness, MovedSums, PipeConfig,
    RateOf, RecentFault, Reloaded, RootConfig, RootFigures, RootTarget, ServeConfig, Service, ServiceFigures,
    ServiceHandle, ServiceSums, SessionFigures, SessionPace, StateFile, StateFiles, Stored, StoredFigures, Stuck,
    WatchFigures, bind_addresses, serve_deputy, serve_pipe,
};
pub use longhaul_core::{AccountMap, AccountRule, Latency, PlanName, Rights, Siting, TargetId, Whereabouts};
pub use longhaul_disk::{
    Beginning, BoundThreads, CopyKind, CpuList, DeviceDepth, DirectMode, EngineKind, EngineReport, ExtrasPolicy, Grace,
    IoMode, LastBlock, LinkPolicy, LostFile, Marks, MissingTarget, ModePolicy, Moving, NameFacts, NameKind, OldTarget,
    OnMissing, Orphan, Orphans, Pin, Prefill, ReadingFigures, Rebalance, Rebuilding, Relocation, Removed, ReplaceEnd,
    Replacement, STRIPE_FROM_BYTES, SameDevice, SetId, SetLayout, SetMark, SourceTree, StreamFigures, StreamForm,
    StreamFrom, StreamShape, StreamSpec, SumsCatalogue, SyncMethod, TargetDirs, TargetSet, TargetTree, Tree,
    TreePolicy, VoidSource, VoidTarget, Withdrawn, Writing,
};
pub use longhaul_net::{Congestion, NetPath, Protection};
pub use longhaul_proto::receiver::SyncGroup;
pub use longhaul_proto::tuning::Why;
pub use longhaul_proto::wire::message::Limit;
/// The version of the protocol that this build speaks.
pub use longhaul_proto::wire::message::VERSION as PROTOCOL_VERSION;
pub use longhaul_sys::passing::{Passing, pair as passing_pair, receive as receive_passed, send as send_passed};
pub use longhaul_sys::signals::outlive_signals;
pub use longhaul_sys::{accounts, ignores_hangup, privileges, take_sockets};
pub use measure::lab;
pub use measure::{
    CellReport, CellRun, HalfReport, LaneFigures, LanesStood, NOISE_NAME, NetReport, NetRun, SentFigures, UdpReport,
    UdpRun, Way, bench_cell, bench_net, io_mode, receive_over_udp, send_over_udp,
};
pub use place::staged::{CampaignStage, IdleCampaignStage, find_campaign_stage};

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
