//! The link between the two machines: messages in their classes, units of lanes in order or not,
//! and damage on the way.
//!
//! Gives each message and frame the time of its arrival; the clock brings it. Knows nothing of
//! their content.

use std::collections::BTreeSet;
use std::ops::Range;

use longhaul_core::digest::{ChunkHasher, digest_of};
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, Digest, DigestKind, FileId, FileOffset, LaneId, Unit};
use longhaul_proto::Message;
use longhaul_proto::receiver::{Landed, LandedRow, Ticket};
use longhaul_proto::sender::Sent;
use longhaul_proto::wire::bundle;
use longhaul_proto::wire::data::{HEADER_BYTES, Header, Piece};
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};
use longhaul_proto::wire::message::LandedUnits;

use crate::plan::Plan;
use crate::rng::Rng;

/// One direction of the control connection: the last arrival of each class.
#[derive(Debug)]
pub(crate) struct Pipe {
    last: [u64; 3],
    any_class_order: bool,
}

impl Pipe {
    /// One on which nothing was said.
    pub(crate) fn new(plan: &Plan) -> Pipe {
        Pipe { last: [0; 3], any_class_order: plan.scene.any_class_order }
    }

    /// The arrival of a message that would need until `at`: it may overtake less urgent ones that
    /// wait, and nothing else; with any order of classes, all of other classes.
    pub(crate) fn arrival(&mut self, message: &Message, at: u64) -> u64 {
        let class = message.class() as usize;
        let from = if self.any_class_order { class } else { 0 };
        let at = self.last[from..=class].iter().fold(at, |at, last| at.max(*last));
        self.last[class] = at;
        at
    }
}

/// A message as it comes out at the other end.
pub(crate) fn carried(message: &Message) -> Message {
    let bytes = message.encode();
    let length = bytes.first_chunk().copied().map(announced).expect("a message has a length");
    assert!(length.is_ok(), "a machine says what no peer reads: {length:?}");
    Message::decode(&bytes[LENGTH_BYTES..]).expect("what a machine says is read again")
}

/// A message in one line.
pub(crate) fn told(message: &Message) -> String {
    match message {
        Message::Page(page) => format!("Page of {} from {}", page.entries.len(), page.first.0),
        message => {
            let mut line = format!("{message:?}");
            line.truncate(line.char_indices().nth(160).map_or(line.len(), |(at, _)| at));
            line
        }
    }
}

/// A unit that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) unit: Unit,
    pub(crate) attempt: Attempt,
    /// `None` for a hole.
    pub(crate) payload: Option<Vec<u8>>,
    /// Declared without payload.
    pub(crate) same: bool,
    pub(crate) len: u64,
    pub(crate) kind: DigestKind,
    pub(crate) start: FileOffset,
    pub(crate) chunk: ChunkSize,
}

/// A unit on its way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    header: [u8; HEADER_BYTES],
    pub(crate) payload: Vec<u8>,
    trailer: Option<Digest>,
    /// Its number in the lane.
    seq: u64,
}

/// The ends of a lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    sent: u64,
    /// The numbers of the units that came out of it.
    landed: BTreeSet<u64>,
    /// Whether units overtake each other.
    overtaking: bool,
    /// Nothing arrives before this time.
    from: u64,
    /// The time when the last unit on its way arrives.
    last: u64,
    /// The time when its sending end reports the last unit that it took.
    last_report: u64,
    /// Whether this side's end of it takes or brings units.
    pub(crate) is_open: bool,
}

/// A bundle's files in its payload.
pub(crate) type Rows = Vec<(FileId, Range<usize>)>;

impl Lane {
    /// A lane of which nothing arrives before `from`.
    pub(crate) fn new(id: LaneId, from: u64, plan: &Plan) -> Lane {
        let overtaking = plan.rates.lanes.overtaking;
        Lane { id, sent: 0, landed: BTreeSet::new(), overtaking, from, last: from, last_report: 0, is_open: true }
    }

    /// The units that came out of it.
    pub(crate) fn landed(&self) -> LandedUnits {
        let below = (0..).zip(&self.landed).take_while(|(at, seq)| at == *seq).count() as u64;
        LandedUnits::with_beyond(below, self.landed.range(below..).copied())
    }

    /// Number of units that came out of it.
    #[cfg(test)]
    pub(crate) fn brought(&self) -> u64 {
        self.landed.len() as u64
    }

    /// The last unit that came out of it.
    pub(crate) fn last_landed(&self) -> Option<u64> {
        self.landed.last().copied()
    }

    /// Number of units that it took.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u64 {
        self.sent
    }

    /// The arrival of a unit that would need until `at`: behind those before it, unless units
    /// overtake each other.
    pub(crate) fn arrival(&mut self, at: u64) -> u64 {
        self.last = self.last.max(at);
        if self.overtaking { self.from.max(at) } else { self.last }
    }

    /// The time from `at` on when all units on its way have arrived.
    pub(crate) fn emptied(&self, at: u64) -> u64 {
        self.last.max(at)
    }

    /// The time of the report that a unit was taken whole, which would need until `at`: behind
    /// those before it.
    pub(crate) fn report(&mut self, at: u64) -> u64 {
        self.last_report = self.last_report.max(at);
        self.last_report
    }

    /// The sending end takes a unit.
    pub(crate) fn send(&mut self, ready: &Ready, safe: bool) -> (Frame, Sent) {
        let mut hasher = ChunkHasher::new(ready.kind, ready.start);
        match &ready.payload {
            Some(payload) => hasher.update(payload),
            None => hasher.update_zeros(ready.len),
        }
        let digest = hasher.finish();
        let payload = ready.payload.clone().filter(|_| !ready.same).unwrap_or_default();
        let header = Header::Piece(Piece {
            unit: ready.unit,
            attempt: ready.attempt,
            offset: 0,
            len: payload.len() as u64,
            unit_len: ready.len,
            chunk: ready.chunk,
            digest: ready.kind,
            hole: ready.payload.is_none() && !ready.same,
            same: ready.same,
            trailer: !safe,
        });
        let sent = Sent {
            unit: ready.unit,
            attempt: ready.attempt,
            digest,
            len: payload.len() as u64,
            unit_len: ready.len,
            lane: self.id,
            seq: self.sent,
            declared: !safe,
        };
        self.sent += 1;
        (Frame { header: header.encode(), payload, trailer: (!safe).then_some(digest), seq: sent.seq }, sent)
    }

    /// The receiving end takes a unit. Gives its report to the machine, and the places of a
    /// bundle's files in the payload.
    pub(crate) fn receive(&mut self, frame: &Frame) -> Option<(Landed, Rows)> {
        let Ok(Header::Piece(piece)) = Header::decode(&frame.header) else { return None };
        let start = match piece.unit {
            Unit::Chunk { index, .. } => index.start(piece.chunk),
            Unit::Bundle(_) => FileOffset(0),
        };
        let mut hasher = ChunkHasher::new(piece.digest, start);
        match piece.is_bare() {
            true => hasher.update_zeros(piece.unit_len),
            false => hasher.update(&frame.payload),
        }
        let (rows, places) = rows_of(&piece, &frame.payload);
        // A byte stream says no number: units are counted, and one that came twice is two.
        let seq = if self.overtaking { frame.seq } else { self.landed.len() as u64 };
        self.landed.insert(seq);
        let ticket = Ticket { lane: self.id, seq };
        Some((Landed { ticket, piece, computed: hasher.finish(), declared: frame.trailer, rows }, places))
    }
}

/// The files of a bundle, each hashed, and their places in it.
pub(crate) fn rows_of(piece: &Piece, payload: &[u8]) -> (Vec<LandedRow>, Rows) {
    let Unit::Bundle(_) = piece.unit else { return Default::default() };
    let rows = bundle::parse(payload).unwrap_or_default();
    rows.into_iter()
        .map(|row| {
            let bytes = &payload[row.bytes.clone()];
            let hashed = || *digest_of(bytes, DigestKind::Root, FileOffset(0)).bytes();
            // No payload came that could be hashed; the machine knows the digest that it has.
            let computed = if row.same { row.root } else { hashed() };
            let landed = LandedRow { file: row.file, len: row.len, declared: row.root, computed, same: row.same };
            (landed, (row.file, row.bytes))
        })
        .unzip()
}

impl Frame {
    /// Changes a bit of the payload, if there is any.
    pub(crate) fn flip(&mut self, rng: &mut Rng) {
        if !self.payload.is_empty() {
            let at = rng.index(self.payload.len());
            self.payload[at] ^= 1 << rng.below(8);
        }
    }

    /// Changes the header into another that parses, if it would.
    pub(crate) fn alter(&mut self, rng: &mut Rng) {
        let Ok(Header::Piece(mut piece)) = Header::decode(&self.header) else { return };
        let mut payload = self.payload.clone();
        match (rng.below(6), &mut piece.unit) {
            (0, Unit::Chunk { file, .. }) => file.0 = rng.below(20),
            (1, Unit::Chunk { index, .. }) => *index = ChunkIndex(rng.below(6)),
            (2, Unit::Bundle(id)) => id.0 = rng.below(6),
            (3, _) => piece.attempt = Attempt(1 + rng.below(4) as u32),
            (4, _) => {
                piece.unit_len = piece.unit_len.saturating_sub(1 + rng.below(5));
                piece.len = piece.len.min(piece.unit_len);
                payload.truncate(piece.len as usize);
            }
            _ => piece.chunk = ChunkSize::from_log2(10 + rng.below(3) as u8).unwrap_or(piece.chunk),
        }
        let header = Header::Piece(piece).encode();
        if Header::decode(&header).is_ok() {
            (self.header, self.payload) = (header, payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::limits::MESSAGE_BYTES_MAX;
    use longhaul_proto::wire::message::{Outcome, Settlement};

    use super::*;

    #[test]
    #[should_panic(expected = "a machine says what no peer reads")]
    fn a_message_that_is_too_long_is_found() {
        let settled = |file| Settlement { file: FileId(file), outcome: Outcome::Committed(Some([7; 32])) };
        carried(&Message::Settled((0..MESSAGE_BYTES_MAX as u64 / 32).map(settled).collect()));
    }
}
