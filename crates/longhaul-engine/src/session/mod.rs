//! A session on one side: one loop that owns one machine, hears everything that happens, and has it
//! done.
//!
//! `sender` and `receiver` are the two loops; `source` and `destination` do what their machines
//! order on disks; `control` is what both have in common: heartbeats, silence, the way to an end,
//! over the messages of `channel`, which begin with a `handshake`. `outbox` bounds what the other
//! side has not read yet, `inbox` what it has said and nobody dealt with, `bare` what its lanes
//! bring without payload, `overhead` what all that may hold. `orders` are chunks to read, `dirs`
//! what is said of directories, `unsent` what is told of names that are not sent; `allowed` checks
//! what comes against what was asked for; `idle` tells a session that moves nothing; `timed_source`
//! ends what ends by the clock. `course` is what of a transfer outlives a session, `totals` what
//! there is to report, `settled` tells of one entry.

pub(crate) mod allowed;
mod bare;
pub(crate) mod channel;
pub(crate) mod control;
pub(crate) mod course;
mod destination;
mod dirs;
pub(crate) mod handshake;
pub(crate) mod idle;
mod inbox;
pub(crate) mod opened;
mod orders;
pub(crate) mod outbox;
pub(crate) mod overhead;
pub(crate) mod plan;
pub(crate) mod receiver;
pub(crate) mod sender;
mod settled;
mod source;
mod timed_source;
pub(crate) mod totals;
mod unsent;

use longhaul_core::{Fault, FileId};
use longhaul_proto::sender::Sent;

use crate::lanes::JoinedLane;
use crate::lanes::event::LaneEnd;
use crate::lanes::event::LaneEvent;
use crate::lanes::worker::receive::Arrival;

/// What a session loop hears. The queue is not bounded by itself: everything in it has its room in
/// the inbox, or is owed under a credit, a slot or a pool of threads.
#[derive(Debug)]
pub(crate) enum SessionEvent {
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
    Read(source::SourceDone),
    /// The target side reports.
    Wrote(destination::DestinationDone),
}

impl From<LaneEvent> for SessionEvent {
    fn from(event: LaneEvent) -> SessionEvent {
        match event {
            LaneEvent::Joined(lane) => SessionEvent::Lane(lane),
            LaneEvent::Undialled(fault) => SessionEvent::Undialled(fault),
            LaneEvent::Ended(end) => SessionEvent::LaneEnded(end),
        }
    }
}

/// A file's result.
pub(crate) type FileResult = (FileId, Result<(), Fault>);
