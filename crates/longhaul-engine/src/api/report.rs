//! The end of a run: what was committed, moved, resumed and held, what limited it, what failed.
//!
//! In: from the totals of a session. Out: to whoever ran the job. Plain data.

use longhaul_core::{Fault, FaultCode};
use longhaul_disk::EngineReport;
use serde::{Deserialize, Serialize};

use super::event::{Limited, PathFigures, SshFigures};
use super::road::RoadReport;
use super::targets::TroubledTarget;
use crate::cpu::Stage;

/// The end of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The fault that ended the session early. `None`: none did.
    pub fault: Option<Fault>,
    /// Files that failed one by one, by code, in the order they failed (the first 1000).
    pub failures: Vec<FaultCode>,
    /// Regular files and links committed.
    pub files_committed: u64,
    /// Skipped, as the destination has them.
    pub files_skipped: u64,
    /// Failed.
    pub files_failed: u64,
    /// Files among `files_failed` that failed only because the source changed or vanished.
    pub files_changed: u64,
    /// Files among `files_failed` that failed by a mismatch.
    pub files_mismatched: u64,
    /// Regular files and links that the scan found.
    pub files_total: u64,
    /// Bytes under their final names.
    pub bytes_committed: u64,
    /// Payload that arrived in this run.
    pub bytes_moved: u64,
    /// Bytes of holes that came in this run: nothing of them was sent.
    pub bytes_holes: u64,
    /// Bytes of all files that the scan found, but for those that are there already.
    pub bytes_wanted: u64,
    /// Whether the scan came to its end: else there are more files than were found.
    pub scanned: bool,
    /// Bytes sent again: after a mismatch, over another lane, or in another session.
    pub bytes_resent: u64,
    /// Bytes of files that were received and that were not sent: earlier sessions had brought them,
    /// or they stood at the destination and were copied.
    pub bytes_resumed: u64,
    /// Bytes that lie durable at the destination in files that have not come to their end: the same
    /// command goes on with them. 0 where nothing was left unfinished, or where the destination
    /// said nothing of it.
    pub bytes_held: u64,
    /// Bytes that the receiver read back from the medium and compared.
    pub bytes_read_back: u64,
    /// Bytes among `bytes_read_back` of chunks and files that were not what had been written.
    pub bytes_misread: u64,
    /// Bytes of skipped files that were read at the destination for their roots
    /// ([`Settings::digests`](super::Settings::digests)).
    pub bytes_digested: u64,
    /// Seconds from the first dial to the last commit.
    pub seconds: f64,
    /// CPU seconds of the sending process, where known.
    pub sender_cpu: Option<f64>,
    /// CPU seconds of the receiving process, where known.
    pub receiver_cpu: Option<f64>,
    /// The parts that limited the transfer, with shares of the time in which that is known: the
    /// largest first.
    pub limits: Vec<Limited>,
    /// CPU seconds by stage on this side.
    pub stages: Vec<(Stage, f64)>,
    /// The I/O engine of this side, and what it really did.
    pub io: Option<EngineReport>,
    /// The ways that its data took, where there was more than one.
    pub ways: WayFigures,
    /// Targets of the destination that were slow, full or failed for some time, by their numbers.
    pub troubled_targets: Vec<TroubledTarget>,
    /// Files that were committed on targets of this side that failed afterwards; a striped file is
    /// counted for each of them.
    pub files_at_risk: u64,
}

/// The ways that the data of a run took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WayFigures {
    /// The figures of each of several paths. Empty where there was one.
    pub paths: Vec<PathFigures>,
    /// The effect of the run on its path, and how long it took to begin and to end. `None` where no
    /// lane went to another host.
    pub road: Option<RoadReport>,
    /// The cost of ssh. `None` where it led nowhere in this run.
    pub ssh: Option<SshFigures>,
}
