//! The words between a program and the engine: jobs, settings, events, reports, and how to stop.
//!
//! In: from the command line or a library user. Out: to `client` and `daemon`. Plain data: no
//! threads, no sockets, no words of the command line.

mod event;
mod expected;
mod job;
mod lanes;
mod losses;
mod memory;
mod report;
mod road;
mod settings;
mod stop;
mod targets;

pub use event::{
    Direction, Event, FileEvent, FileStatus, LaneKind, Limited, Observer, OwnFacts, PathFigures, Progress, Redial,
    SkipReason, SshFigures, Start, StartNote,
};
pub(crate) use expected::FileDifference;
pub use expected::{ExpectedFile, ExpectedFiles};
pub use job::{
    Credentials, Dialler, Following, Job, JobDestination, JobSource, LocalDest, LocalSource, Reach, Remote, RemotePath,
    SshHost, StreamDest, StreamPlace, Trust,
};
pub use lanes::{LanesChange, LanesReason, LanesTuned};
pub use losses::{LossAt, MetadataLoss};
pub use memory::{PathFacts, PathKey, PathMemory, PathRate};
pub use report::{Report, WayFigures};
pub use road::{RoadFigures, RoadReport};
pub use settings::{Metadata, RATE_MIN, Settings, Transport, Verify};
pub(crate) use stop::KICKED;
pub use stop::{Stop, StopTrigger};
pub use targets::{FilesAtRisk, TargetFigures, TargetState, TroubledTarget};
