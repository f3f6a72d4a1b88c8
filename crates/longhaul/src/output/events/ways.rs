//! The figures of the ways that data took: network paths, and ssh.
//!
//! In: figures of the engine. Out: bodies of events, and fields of the summary.

use longhaul_engine::{PathFigures, Report, SshFigures};
use serde::Serialize;

use super::millis;
use super::road::RoadReportBody;
use crate::output::deliveries::DeliveriesTold;

/// The figures of each network path, where a run has several (`--path`).
#[derive(Serialize)]
pub(super) struct PathsBody {
    /// One object for each path.
    pub(super) paths: Vec<PathBody>,
}

/// A source went to several destinations (`--also`). The event stands before the summaries, of
/// which there is one for each destination.
#[derive(Serialize)]
pub(super) struct DeliveriesBody {
    /// The number of destinations.
    pub(super) destinations: usize,
    /// The destinations that are complete.
    pub(super) complete: usize,
    /// Bytes that were read from the source.
    pub(super) bytes_read: u64,
    /// Bytes that all destinations together took of them.
    pub(super) bytes_taken: u64,
    /// The exit code of the command: the worst of all destinations.
    pub(super) exit: u8,
}

impl DeliveriesBody {
    /// The fields of what is told.
    pub(super) fn of(told: &DeliveriesTold) -> DeliveriesBody {
        let &DeliveriesTold { destinations, complete, reading, exit } = told;
        let (bytes_read, bytes_taken) = (reading.bytes_read, reading.bytes_taken);
        DeliveriesBody { destinations, complete, bytes_read, bytes_taken, exit: exit.code() }
    }
}

/// A copy from one daemon to another runs, and goes on without this command (`--detach`).
#[derive(Serialize)]
pub(super) struct LeftBody<'a> {
    /// The name of the order, which the log of the daemon that has it names too.
    pub(super) order: &'a str,
}

/// Names of a copy from one daemon to another that did not fail have no event `file`, as this host
/// took in too slowly what it was told. The summary counts them; the sums of a `sync` do not.
#[derive(Serialize)]
pub(super) struct UnheardBody {
    /// The number of these names.
    pub(super) names: u64,
}

/// The figures of a network path.
#[derive(Debug, Serialize)]
pub(super) struct PathBody {
    /// The addresses of the path, as they were given.
    pub(super) path: String,
    /// Lanes that run over it now.
    pub(super) lanes: u32,
    /// Bytes that its lanes sent and had acknowledged, or received, with their encryption.
    pub(super) bytes: u64,
    /// True if the path did not answer when a lane was last dialled over it. It is tried again and
    /// again.
    pub(super) down: bool,
}

/// The figures of the ways of a run.
#[derive(Debug, Default, Serialize)]
pub(super) struct WaysBody {
    /// One object for each network path. The field is absent where the run had one path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) paths: Vec<PathBody>,
    /// The path that the lanes took, and how long the run took to begin and to end. The field is
    /// absent where no lane went to another host, and those of its own that the event `road` has
    /// too are absent where they are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) road: Option<RoadReportBody>,
    /// The cost of ssh. The field is absent where the other host was not reached by ssh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ssh: Option<SshBody>,
}

/// The cost of ssh in a run.
#[derive(Debug, Serialize)]
pub(super) struct SshBody {
    /// Bytes that went through ssh in both directions: messages, and the data of lanes that had no
    /// way beside it.
    pub(super) bytes: u64,
    /// CPU seconds of ssh on this host. Null where they are not known. The cost of a process that
    /// several connections share (`ControlMaster`), or of a jump host, is not in it.
    pub(super) cpu_s: Option<f64>,
}

impl WaysBody {
    /// The ways of a run.
    pub(super) fn of(report: &Report) -> WaysBody {
        let ssh = |SshFigures { bytes, cpu_s }| SshBody { bytes, cpu_s: cpu_s.map(millis) };
        let road = report.ways.road.as_ref().map(RoadReportBody::of);
        WaysBody { paths: path_bodies(&report.ways.paths), road, ssh: report.ways.ssh.map(ssh) }
    }
}

/// The figures of several paths.
pub(super) fn path_bodies(figures: &[PathFigures]) -> Vec<PathBody> {
    let body = |figure: &PathFigures| {
        let PathFigures { path, lanes, bytes, is_down } = figure.clone();
        PathBody { path, lanes, bytes, down: is_down }
    };
    figures.iter().map(body).collect()
}
