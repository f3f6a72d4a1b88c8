//! A session on one side: one loop that owns one machine, hears everything that happens, and has it done.
//!
//! `send` and `receive` are the two loops; `reading` and `writing` do what their machines order on disks; `link` is
//! what both have in common: control channel, heartbeats, the way to an end; `inbox` bounds what a peer has said and nobody dealt with, `bare` what
//! its lanes bring without payload; `lanes`, `regrow` and `tuning` keep the
//! lanes going, `limit` names what they wait for; `drain` ends what ends by the clock. `course` is what of a transfer outlives a session,
//! `unsent` what is told of names that are not sent.

mod bare;
pub(crate) mod course;
mod dirs;
mod drain;
pub(crate) mod idle;
mod inbox;
mod lanes;
mod limit;
mod link;
mod orders;
pub(crate) mod overhead;
mod reading;
pub(crate) mod receive;
pub(crate) mod regrow;
pub(crate) mod send;
mod tuning;
mod unsent;
mod writing;

pub(crate) use lanes::{LaneEnd, LaneRules};
pub(crate) use link::{Link, LinkParts};
pub(crate) use tuning::TuningRules;

use longhaul_core::{Fault, FileId};
use longhaul_proto::sender::Sent;

use crate::lane::JoinedLane;
use crate::lane::receive::Arrival;

/// What a session loop hears. The queue is not bounded by itself: everything in it has its room in the inbox, or is owed under a
/// credit, a slot or a pool of threads.
#[derive(Debug)]
pub(crate) enum Event {
    /// The other side said something.
    Inbound(inbox::Inbound),
    /// The control channel is at its end: cleanly (none) or not.
    ControlEnded(Option<Fault>),
    /// A lane joined.
    Lane(JoinedLane),
    /// Lanes cannot be dialled, so that the session is of no use.
    Undialled(Fault),
    /// A lane's thread is over.
    LaneEnded(LaneEnd),
    /// What this side lets the session carry has changed: bytes/s, none for no rate.
    OwnRate(Option<u64>),
    /// A receiving lane brought a unit, with a pass if that holds no buffer.
    Arrived(Arrival, Option<bare::Pass>),
    /// A sending lane sent a unit.
    Sent(Sent),
    /// The source side reports.
    Read(reading::Report),
    /// The target side reports.
    Wrote(writing::Report),
}

/// A file's result.
pub(crate) type FileResult = (FileId, Result<(), Fault>);
