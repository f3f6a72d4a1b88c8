//! Holds one side of a session: one loop that owns one machine, hears all events, and has the
//! machine's actions carried out.
//!
//! `sender` and `receiver` are the two loops; each is started from a `plan`, a receiver with an
//! `opened` destination. `source` and `destination` carry out on disks what the machines order.
//! `control` is the part that both loops share: heartbeats, silence, the way to an end, over the
//! messages of `channel`, which begin with a `handshake`. `outbox` bounds messages that the other
//! side has not read yet, `inbox` messages of the other side that the loop has not dealt with,
//! `bare` arrivals without payload, and `overhead` the memory of all these. `orders` are chunks to
//! read; `dirs` are directories to offer again; `unsent` words the entries that are not sent;
//! `allowed` checks a manifest against the request; `idle` finds a session that moves nothing, and
//! `rounds` one that hangs; `timed_source` ends a source with a time limit. `course` outlives a
//! session, `totals` is the base of the report, `settled` reports one entry, and `stopped` words an
//! end from outside. It knows no sockets of its own and no daemon.

pub(crate) mod allowed;
mod appeared;
mod bare;
pub(crate) mod channel;
pub(crate) mod control;
pub(crate) mod course;
pub(crate) mod dataset;
mod destination;
mod device_orders;
mod dirs;
pub(crate) mod expected_source;
pub(crate) mod handshake;
pub(crate) mod idle;
mod inbox;
pub(crate) mod opened;
mod orders;
pub(crate) mod outbox;
pub(crate) mod overhead;
pub(crate) mod plan;
pub(crate) mod receiver;
pub(crate) mod rounds;
pub(crate) mod sender;
mod sent_stream;
mod settled;
mod source;
mod staged_told;
pub(crate) mod stopped;
mod timed_source;
pub(crate) mod totals;
pub(crate) mod unasked;
mod unsent;

use longhaul_core::{Fault, FileId, PartSums, Transport};
use longhaul_proto::sender::Sent;

use crate::lanes::JoinedLane;
use crate::lanes::event::LaneEnd;
use crate::lanes::event::LaneEvent;
use crate::lanes::worker::receive::Arrival;

/// An event of a session loop. The queue is not bounded by itself: everything in it has its room in
/// the inbox, or is owed under a credit, a slot or a pool of threads.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// A message of the other side.
    Inbound(inbox::Inbound),
    /// The control channel ended: cleanly (`None`) or by a fault.
    ControlEnded(Option<Fault>),
    /// A lane joined.
    Lane(JoinedLane),
    /// No lane can be dialled, so the session is of no use.
    Undialled(Fault),
    /// A lane's thread ended.
    LaneEnded(LaneEnd),
    /// Lanes over this transport need not go over ssh any more.
    WayFound(Transport),
    /// The rate that this side allows the session has changed, bytes/s. `None` for no rate.
    OwnRate(Option<u64>),
    /// A receiving lane brought a unit, with a pass if the unit holds no buffer.
    Arrived(Arrival, Option<bare::Pass>),
    /// A sending lane sent a unit, with the further checksums that it computed.
    Sent(Sent, Option<PartSums>),
    /// A report of the source side.
    Read(source::SourceDone),
    /// The stream that is sent has come further.
    StreamCame,
    /// A report of the destination side.
    Wrote(destination::DestinationDone),
}

impl From<LaneEvent> for SessionEvent {
    fn from(event: LaneEvent) -> SessionEvent {
        match event {
            LaneEvent::Joined(lane) => SessionEvent::Lane(lane),
            LaneEvent::Undialled(fault) => SessionEvent::Undialled(fault),
            LaneEvent::Ended(end) => SessionEvent::LaneEnded(end),
            LaneEvent::WayFound(transport) => SessionEvent::WayFound(transport),
        }
    }
}

/// A file's result.
pub(crate) type FileResult = (FileId, Result<(), Fault>);
