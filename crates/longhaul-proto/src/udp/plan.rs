//! The message that a sender sends next: datagrams that one system call can send (`UDP_SEGMENT`).
//!
//! Made by [`sending`](super::sending), carried out by a lane's thread. A plan names pieces, and
//! has no payload. All its datagrams are of one length but the last, which may be shorter.

use std::ops::Range;

use super::packet::{
    DATA_OVERHEAD_BYTES, DataPlace, OUTER_BYTES, OuterBody, PROBE_DATAGRAM_BYTES_MIN, PieceBytes, Serial, SizeSearch,
    TAG_BYTES, UNIT_DATAGRAM_BYTES, UnitCut,
};

/// The most that a caller takes in one message.
#[derive(Clone, Copy, Debug)]
pub struct MessageRoom {
    /// Bytes of all datagrams together. One datagram may be more.
    pub bytes: usize,
    /// Datagrams: 64 pass every kernel that knows `UDP_SEGMENT`.
    pub datagrams: usize,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UdpPlan {
    /// Pieces of one unit, its description, or both.
    Unit(UnitPlan),
    /// A PROBE of a search, with a datagram of so many bytes.
    Probe(SizeSearch, u16),
    /// END, with the units in all.
    End(u32),
}

/// Datagrams of one unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlan {
    /// The unit.
    pub serial: Serial,
    /// The cut by which its pieces are numbered.
    pub cut: UnitCut,
    /// Bytes of each of its pieces but the last.
    pub piece_bytes: PieceBytes,
    /// Payload bytes of the unit.
    pub payload: u64,
    /// The pieces, ascending.
    pub pieces: Vec<Range<u16>>,
    /// Where its UNIT goes in the message, and whether it goes.
    pub description: Description,
    /// Why it is sent.
    pub purpose: Purpose,
}

/// Where the UNIT of a message goes. It holds the digest if, by the time of
/// [`UdpSending::sent`](super::sending::UdpSending::sent), the sender's end was told that this is
/// known, and not otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// There is none.
    None,
    /// Before the pieces, of which there is one at most, as that is shorter.
    First,
    /// Behind the pieces, none of which is shorter.
    Last,
}

/// Why datagrams of a unit are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They were not sent before in this cut.
    New,
    /// They were lost.
    Repair,
    /// They were lost and sent again, and nothing else is to be sent: so they are sent once more.
    Copy,
    /// Nothing was heard for long. The receiver is asked for a status by this.
    Ask,
}

/// A datagram of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedDatagram {
    /// The part of its outer header that is of its kind.
    pub body: OuterBody,
    /// The bytes of the unit that are sealed, of DATA. Empty for others.
    pub at: Range<u64>,
    /// Bytes of the whole datagram.
    pub bytes: u16,
}

impl PlannedDatagram {
    /// Bytes of the plain text that is sealed.
    pub fn plain_bytes(&self) -> usize {
        let outer = if matches!(self.body, OuterBody::Data(_)) {
            DATA_OVERHEAD_BYTES as usize
        } else {
            OUTER_BYTES + TAG_BYTES
        };
        usize::from(self.bytes) - outer
    }
}

impl UdpPlan {
    /// Its datagrams, in the order in which they are numbered and sent.
    pub fn datagrams(&self) -> impl Iterator<Item = PlannedDatagram> {
        let (unit, other) = match self {
            UdpPlan::Unit(unit) => (Some(unit), None),
            UdpPlan::Probe(search, bytes) => (None, Some((OuterBody::Probe(*search), *bytes))),
            UdpPlan::End(_) => (None, Some((OuterBody::End, END_DATAGRAM_BYTES))),
        };
        let other = other.map(|(body, bytes)| PlannedDatagram { body, at: 0..0, bytes });
        unit.into_iter().flat_map(UnitPlan::datagrams).chain(other)
    }

    /// How many datagrams it has.
    pub fn count(&self) -> usize {
        match self {
            UdpPlan::Unit(unit) => unit.piece_count() + usize::from(unit.description != Description::None),
            UdpPlan::Probe(..) | UdpPlan::End(_) => 1,
        }
    }

    /// Whether it only keeps the lane going: a question, a sign of life, an END. Such a word is
    /// short, and waits for no rate.
    pub fn is_word(&self) -> bool {
        match self {
            UdpPlan::Unit(unit) => unit.purpose == Purpose::Ask,
            UdpPlan::Probe(_, bytes) => *bytes <= PROBE_DATAGRAM_BYTES_MIN,
            UdpPlan::End(_) => true,
        }
    }

    /// Bytes of its first datagram, and of every other but the last (`UDP_SEGMENT`).
    pub fn segment_bytes(&self) -> u16 {
        self.datagrams().next().map_or(0, |datagram| datagram.bytes)
    }

    /// Bytes of all its datagrams.
    pub fn bytes(&self) -> usize {
        self.datagrams().map(|datagram| usize::from(datagram.bytes)).sum()
    }
}

impl UnitPlan {
    /// How many pieces it has.
    pub fn piece_count(&self) -> usize {
        self.pieces.iter().map(ExactSizeIterator::len).sum()
    }

    /// The bytes of a piece in the unit.
    pub fn at(&self, piece: u16) -> Range<u64> {
        piece_at(piece, self.piece_bytes, self.payload)
    }

    /// Its datagrams, in the order in which they are numbered and sent.
    pub fn datagrams(&self) -> impl Iterator<Item = PlannedDatagram> {
        let described = |wanted| {
            let body = OuterBody::Unit(self.cut);
            (self.description == wanted).then_some(PlannedDatagram { body, at: 0..0, bytes: UNIT_DATAGRAM_BYTES })
        };
        let pieces = self.pieces.iter().cloned().flatten().map(|piece| {
            let at = self.at(piece);
            let place = DataPlace { serial: self.serial, cut: self.cut, piece, piece_bytes: self.piece_bytes };
            // No piece is longer than its cut's, which is a u16.
            let bytes = (at.end - at.start) as u16 + DATA_OVERHEAD_BYTES;
            PlannedDatagram { body: OuterBody::Data(place), at, bytes }
        });
        described(Description::First).into_iter().chain(pieces).chain(described(Description::Last))
    }
}

/// The bytes of a piece in a unit with so many bytes of payload.
pub(super) fn piece_at(piece: u16, piece_bytes: PieceBytes, payload: u64) -> Range<u64> {
    let bytes = u64::from(piece_bytes.get());
    let start = u64::from(piece) * bytes;
    start..(start + bytes).min(payload).max(start)
}

const END_DATAGRAM_BYTES: u16 = PROBE_DATAGRAM_BYTES_MIN + super::packet::END_BYTES as u16;
