//! The seam between a lane and what carries it.
//!
//! Owns the trait that each transport implements. Takes units in parts from `engine`, through
//! [`crate::LaneStream`]; gives it pieces of units. Must not know any transport: those are `tcp`
//! and `quic`, and `lane` chooses among them.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::error::NetError;
use crate::facts::Protection;
use crate::handle::LaneHandle;
use crate::wire::{Congestion, More};

/// One end of a lane over some transport, used by one thread. [`crate::LaneStream`] is what others
/// hold of it.
///
/// Two kinds of bytes pass. *Framing* (proofs, headers, digests) comes in the order in which it was
/// sent, and so it does here. The *payload* of a unit follows the unit's header and may come in
/// pieces in any order, each once; the framing behind it is received after all of them. The
/// provided methods are those of a byte stream, where everything is in order: a transport of
/// datagrams has its own. Dropping a lane without [`LaneTransport::finish`] tells the peer that
/// something went wrong.
///
/// Errors are those of [`crate::LaneStream`]. After one the lane is of no more use.
pub trait LaneTransport: Any + Send {
    /// Sends framing: all of the parts, gathered.
    fn send(&mut self, parts: &[&[u8]], more: More) -> Result<(), NetError>;

    /// Receives framing: fills `into`. Fewer bytes mean that the peer has ended in good order.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, NetError>;

    /// Sends the next part of a unit. When it returns, the part's bytes are the caller's again.
    fn send_part(&mut self, part: &UnitPart<'_>) -> Result<(), NetError> {
        self.send(&[part.header, part.payload, part.trailer], part.more)
    }

    /// Waits for the next piece of the unit whose header was received, and writes it to its place.
    /// Where the piece lies is what the peer says: the caller checks that it was not there before.
    fn receive_piece(&mut self, room: PieceRoom<'_>) -> Result<ReceivedPiece, NetError> {
        let PieceRoom { unit, received, bytes_max } = room;
        let into = &mut unit[received..];
        let len = into.len().min(bytes_max);
        match self.receive(&mut into[..len])? {
            filled if filled == len => Ok(ReceivedPiece { offset: received, len }),
            _ => Err(NetError::Truncated { peer: self.peer().to_owned() }),
        }
    }

    /// Ends this side's sending in good order; receiving goes on.
    fn finish(&mut self);

    /// A hold on this lane for another thread.
    fn handle(&self) -> LaneHandle;

    /// The name of the other end, for messages.
    fn peer(&self) -> &str;

    /// The other end's address. `None` for a pair within this process.
    fn peer_addr(&self) -> Option<SocketAddr>;

    /// This end's address. `None` where the route chose one and nobody says which.
    fn local_ip(&self) -> Option<IpAddr> {
        None
    }

    /// The protection of its payload.
    fn protection(&self) -> Protection;

    /// The congestion control in use. `none` where there is none.
    fn congestion(&self) -> String;

    /// Chooses another congestion control.
    fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError>;

    /// Gives all further calls together the time `left`. `None` takes the limit away: the lane has
    /// joined, and its peer is known.
    fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError>;

    /// The largest segment that it was dialled with, in bytes. `None` where nobody asked for one.
    fn segment_max(&self) -> Option<u32> {
        None
    }

    /// See [`crate::LaneStream::make_room`]. By default it does nothing.
    fn make_room(&self) {}

    /// Bytes that fill a segment, to try the path with. 0 where no trial is needed.
    fn trial_bytes(&self) -> u32 {
        0
    }
}

/// A part of a unit to be sent. A unit is sent as one part or as several, in order.
#[derive(Clone, Copy, Debug)]
pub struct UnitPart<'a> {
    /// The unit's header. Empty except in the first part.
    pub header: &'a [u8],
    /// Where the payload begins in the unit, in bytes.
    pub offset: usize,
    /// The next bytes of the unit.
    pub payload: &'a [u8],
    /// The framing that follows the unit. Empty except in the last part, and on lanes without it.
    pub trailer: &'a [u8],
    /// Whether another part follows at once.
    pub more: More,
}

/// The room for the next piece of a unit.
#[derive(Debug)]
pub struct PieceRoom<'a> {
    /// The place of the whole unit.
    pub unit: &'a mut [u8],
    /// Bytes of the unit that were received, fewer than there are. Where pieces come in order, the
    /// next begins there.
    pub received: usize,
    /// The most bytes of the next piece, at least 1. A transport whose packets carry more may
    /// exceed it by less than a packet.
    pub bytes_max: usize,
}

/// A piece of a unit that was received and lies in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPiece {
    /// Where it begins in the unit, in bytes.
    pub offset: usize,
    /// Its length, in bytes.
    pub len: usize,
}
