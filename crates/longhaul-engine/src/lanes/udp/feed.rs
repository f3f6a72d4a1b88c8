//! Brings the units of a sending session to a UDP lane: out of the one queue that all its lanes
//! empty.
//!
//! In: [`Ready`] from `session/source.rs`. Out: units to the lane's thread, a report of each that
//! was sent whole to the session loop, and at the end those that it had in hand. A unit keeps its
//! slot until it is whole at the receiver. It knows no files and no messages.

use crossbeam_channel::TryRecvError;
use longhaul_core::digest::Digest;
use longhaul_core::{Fault, LaneId, PartSums};
use longhaul_proto::sender::{Sent, Unfinished};
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::wire::data::Piece;
use longhaul_sys::Slot;

use super::join::JoinedUdp;
use super::path::UdpPath;
use super::send::{self, SILENT_MOST, UdpSendMeans};
use super::units::{FeedNext, UdpFeed, UdpUnit};
use crate::lanes::worker::send::{Ready, SendFeed, UnitPayload, is_same};

/// Sends units until the queue or `quit` ends and the receiver has all of them, as fast as `path`
/// allows all lanes of the session.
///
/// # Errors
/// A [`Fault`] when the lane breaks, with the units that it had in hand.
pub(crate) fn run(
    joined: JoinedUdp,
    source: &SendFeed<'_>,
    path: &UdpPath,
    report: impl Fn(Sent, Option<PartSums>),
) -> Result<(), (Fault, Vec<Unfinished>)> {
    let (lane, round_trip) = (joined.id, joined.round_trip);
    let SendFeed { pacer, times, pulse, .. } = *source;
    let means = UdpSendMeans { pacer, times, pulse, path: Some(path), patience: SILENT_MOST };
    let mut feed = QueueFeed { source, lane, report };
    send::run(joined, round_trip, means, &mut feed).map_err(|(fault, units)| {
        let unfinished = |unit: UdpUnit<Slot>| Unfinished { unit: unit.header.unit, attempt: unit.header.attempt };
        (fault, units.into_iter().map(unfinished).collect())
    })
}

/// The queue of a session, as a UDP lane sees it.
struct QueueFeed<'a, R> {
    source: &'a SendFeed<'a>,
    lane: LaneId,
    report: R,
}

impl<R: Fn(Sent, Option<PartSums>)> UdpFeed for QueueFeed<'_, R> {
    type Bytes = Slot;

    fn next(&mut self) -> FeedNext<Slot> {
        if self.is_over() {
            return FeedNext::Over;
        }
        match self.source.queue.try_recv() {
            Ok(ready) => FeedNext::Unit(self.unit(ready)),
            Err(TryRecvError::Empty) => FeedNext::NotNow,
            Err(TryRecvError::Disconnected) => FeedNext::Over,
        }
    }

    fn is_over(&mut self) -> bool {
        // A lane that is given up hears so from its socket.
        self.source.quit.try_recv().is_ok()
    }

    fn sent(&mut self, serial: u32, header: &Piece, digest: Digest) {
        let Piece { unit, attempt, len, unit_len, .. } = *header;
        let (lane, seq) = (self.lane, serial.into());
        // No checksum follows pieces that are sent again in any order: the receiver's stands alone.
        (self.report)(Sent { unit, attempt, digest, len, unit_len, lane, seq, declared: true }, None);
    }

    /// Its slot goes home with it.
    fn whole(&mut self, _serial: u32, _unit: UdpUnit<Slot>, _digest: Digest) {}

    fn observe(&mut self, _now: Timestamp, _sample: &UdpSample) {}
}

impl<R> QueueFeed<'_, R> {
    fn unit(&self, ready: Ready) -> UdpUnit<Slot> {
        let SendFeed { times, pulse, .. } = self.source;
        let same = ready.expect.is_some_and(|expect| is_same(&ready, expect, times, pulse));
        let is_hole = !same && matches!(ready.payload, UnitPayload::Hole);
        let header = Piece {
            unit: ready.unit,
            attempt: ready.attempt,
            offset: 0,
            len: if same || is_hole { 0 } else { ready.len },
            unit_len: ready.len,
            chunk: ready.chunk,
            digest: ready.digest,
            hole: is_hole,
            same,
            trailer: true,
        };
        match ready.payload {
            UnitPayload::Slot(slot) if !same => UdpUnit { header, bytes: Some(slot), digest: None },
            _ if same => UdpUnit { header, bytes: None, digest: ready.expect },
            _ => {
                let digest = Some(self.source.digest_hole(ready.zeros()));
                UdpUnit { header, bytes: None, digest }
            }
        }
    }
}
