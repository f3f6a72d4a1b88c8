//! The events of a world, and the names of sessions and jobs in them.
//!
//! Plain data that the environment keeps until its time and the world gives to the sessions.
//! Decides nothing, and knows no session.

use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkMap, Digest, FileId, LaneId};
use longhaul_proto::Message;
use longhaul_proto::sender::{Sent, Small, Unfinished};

use crate::fs::OpId;
use crate::link::Frame;

/// The number of a session of the command, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionNo(
    /// The number.
    pub(crate) u32,
);

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Event {
    /// The command begins a session.
    Dial,
    /// A session's first message reaches the receiver.
    Accept(SessionNo),
    /// A message reaches a side.
    ToReceiver(SessionNo, Box<Message>),
    ToSender(SessionNo, Box<Message>),
    /// A unit comes out of a lane.
    Landed(SessionNo, LaneId, Frame),
    /// The sender's end of a lane is closed, with this unit in hand.
    NearEnds(SessionNo, LaneId, Option<Unfinished>),
    /// The sender's end of a lane is closed in order.
    NearRetires(SessionNo, LaneId),
    /// The sender finds a lane broken.
    NearBreaks(SessionNo, LaneId),
    /// The receiver's end of a lane is closed, or found broken.
    FarEnds(SessionNo, LaneId),
    /// The receiver gives a lane up.
    FarGivesUp(SessionNo, LaneId),
    /// A lane joins at the sender; its units arrive from that time on.
    NearJoins(SessionNo, LaneId, u64),
    /// The lane joins at the receiver.
    FarJoins(SessionNo, LaneId),
    /// A lane has taken a unit whole.
    Sent(SessionNo, Sent),
    /// The scan of the source goes on.
    Scan(SessionNo),
    /// An order of the sender's machine is carried out.
    Source(SessionNo, SourceJob),
    /// A side notices that the connections are gone.
    SenderLoses(SessionNo),
    ReceiverLoses(SessionNo),
    /// The time has come that the receiver's machine waits for.
    ReceiverTimeout(SessionNo),
    /// A side that took events in carries out the orders of its machine.
    SenderActs(SessionNo),
    ReceiverActs(SessionNo),
    /// An operation of the file system ends.
    Disk(OpId),
    /// A job of the receiver has nothing left to do.
    JobDone(SessionNo, JobNo),
    /// A receiver's session has released everything.
    Closed(SessionNo),
}

/// The number of a job in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobNo(
    /// The number.
    pub(crate) u64,
);

impl JobNo {
    /// The job that opens the journal.
    pub(crate) const OPENING: JobNo = JobNo(0);
}

/// An order of the sender's machine that is being carried out.
#[derive(Clone, Debug)]
pub(crate) enum SourceJob {
    /// Reads a chunk.
    Chunk { file: FileId, index: ChunkIndex, attempt: Attempt, map: ChunkMap, expect: Option<Digest> },
    /// Reads small files into a bundle.
    Pack { bundle: BundleId, attempt: Attempt, files: Vec<Small> },
    /// Reads small files that are said unasked.
    PackUnasked(Vec<Small>),
    /// Looks whether a file is still the version that was offered.
    Check(FileId),
}
