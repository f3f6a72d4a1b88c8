//! The way between the two machines: the control connection with its classes, lanes, and an
//! attacker who changes bytes on them.

use std::collections::VecDeque;
use std::ops::Range;

use longhaul_core::digest::{ChunkHasher, digest_of};
use longhaul_core::limits::MESSAGE_BYTES_MAX;
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, Digest, DigestKind, FileId, FileOffset, LaneId, Unit};

use super::rng::Rng;
use crate::Message;
use crate::receiver::{Landed, LandedRow, Ticket};
use crate::sender::{Sent, Unfinished};
use crate::wire::bundle;
use crate::wire::data::{HEADER_BYTES, Header, Piece};
use crate::wire::frame::{LENGTH_BYTES, announced};

/// One direction of the control channel.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    classes: [VecDeque<Vec<u8>>; 3],
}

impl Pipe {
    pub(crate) fn send(&mut self, message: &Message) {
        let bytes = message.encode();
        assert!(bytes.len() <= LENGTH_BYTES + 1 + MESSAGE_BYTES_MAX, "{} of {} bytes", message.name(), bytes.len());
        self.classes[message.class() as usize].push_back(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    /// The next message to arrive.
    pub(crate) fn receive(&mut self, rng: &mut Rng, any_class_order: bool) -> Option<Message> {
        let filled: Vec<_> = (0..3).filter(|class| !self.classes[*class].is_empty()).collect();
        let first = *filled.first()?;
        let class = if any_class_order { *rng.pick(&filled) } else { first };
        let bytes = self.classes[class].pop_front()?;
        let (length, body) = bytes.split_at(LENGTH_BYTES);
        let announced = announced(length.try_into().expect("four bytes")).expect("a length in bounds");
        assert_eq!(announced, body.len());
        Some(Message::decode(body).expect("what was encoded decodes"))
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
    /// Whether it was read with other bytes than before.
    pub(crate) otherwise: bool,
}

/// A unit on its way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: [u8; HEADER_BYTES],
    pub(crate) payload: Vec<u8>,
    pub(crate) trailer: Option<Digest>,
}

/// A lane: units on their way, and reports that its sending end has not given yet.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) frames: VecDeque<Frame>,
    pub(crate) reports: VecDeque<Sent>,
    sent: u64,
    pub(crate) landed: u64,
    /// The ends, the sender's and the receiver's.
    pub(crate) near: LaneEnd,
    pub(crate) far: LaneEnd,
    /// The sending end ended it in order.
    pub(crate) retired: bool,
    /// The unit in hand of the sending end when it broke.
    pub(crate) unfinished: Option<Unfinished>,
}

/// The state of an end of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LaneEnd {
    #[default]
    Up,
    /// It is broken or being closed; its machine has not heard of its end.
    Down,
    /// Its machine has heard of its end.
    Gone,
}

/// A bundle's files in its payload.
pub(crate) type Rows = Vec<(FileId, Range<usize>)>;

impl Lane {
    pub(crate) fn new(id: usize) -> Lane {
        Lane { id: LaneId(id as u32), ..Lane::default() }
    }

    /// Breaks the way: units on it are lost from some unit on, and both ends will notice.
    pub(crate) fn break_off(&mut self, rng: &mut Rng) {
        self.frames.truncate(rng.below(self.frames.len() + 1));
        for end in [&mut self.near, &mut self.far] {
            *end = (*end).max_down();
        }
    }

    /// The sending end takes no more: units on the way still arrive, and then the receiving end is
    /// over too.
    pub(crate) fn retire(&mut self) {
        if (self.near, self.far) == (LaneEnd::Up, LaneEnd::Up) {
            (self.near, self.far, self.retired) = (LaneEnd::Down, LaneEnd::Down, true);
        }
    }

    /// The sending end fails while it has this in hand.
    pub(crate) fn fail_with(&mut self, ready: &Ready) {
        self.near = LaneEnd::Down;
        self.unfinished = Some(Unfinished { unit: ready.unit, attempt: ready.attempt });
    }

    /// Closes the receiving end: units on their way are lost.
    pub(crate) fn close_far(&mut self) {
        self.frames.clear();
        self.far = self.far.max_down();
    }

    /// The sending end takes a unit.
    pub(crate) fn send(&mut self, ready: Ready, safe: bool) {
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
            hole: ready.payload.is_none(),
            same: ready.same,
            trailer: !safe,
        });
        if self.far == LaneEnd::Up {
            self.frames.push_back(Frame { header: header.encode(), payload, trailer: (!safe).then_some(digest) });
        }
        self.reports.push_back(Sent {
            unit: ready.unit,
            attempt: ready.attempt,
            digest,
            len: ready.len,
            lane: self.id,
            seq: self.sent,
            declared: !safe,
        });
        self.sent += 1;
    }

    /// The receiving end takes a unit. Gives its report to the machine, the payload, and the places
    /// of a bundle's files in it.
    pub(crate) fn receive(&mut self) -> Option<(Landed, Vec<u8>, Rows)> {
        let frame = self.frames.pop_front()?;
        let Ok(Header::Piece(piece)) = Header::decode(&frame.header) else { panic!("a header that does not parse") };
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
        let ticket = Ticket { lane: self.id, seq: self.landed };
        self.landed += 1;
        let landed = Landed { ticket, piece, computed: hasher.finish(), declared: frame.trailer, rows };
        Some((landed, frame.payload, places))
    }
}

fn rows_of(piece: &Piece, payload: &[u8]) -> (Vec<LandedRow>, Rows) {
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

impl LaneEnd {
    /// Down, if it was up.
    pub(crate) fn max_down(self) -> LaneEnd {
        if self == LaneEnd::Up { LaneEnd::Down } else { self }
    }
}

impl Frame {
    /// Changes a byte of the payload; false if there is none.
    pub(crate) fn flip(&mut self, rng: &mut Rng) -> bool {
        if self.payload.is_empty() {
            return false;
        }
        let at = rng.below(self.payload.len());
        self.payload[at] ^= 1 << rng.below(8);
        true
    }

    /// Changes the header into another that parses; false if it would not.
    pub(crate) fn alter(&mut self, rng: &mut Rng) -> bool {
        let Ok(Header::Piece(mut piece)) = Header::decode(&self.header) else { return false };
        let mut payload = self.payload.clone();
        match (rng.below(6), &mut piece.unit) {
            (0, Unit::Chunk { file, .. }) => file.0 = rng.below(20) as u64,
            (1, Unit::Chunk { index, .. }) => *index = ChunkIndex(rng.below(6) as u64),
            (2, Unit::Bundle(id)) => id.0 = rng.below(6) as u64,
            (3, _) => piece.attempt = Attempt(1 + rng.below(4) as u32),
            (4, _) => {
                piece.unit_len = piece.unit_len.saturating_sub(1 + rng.below(5) as u64);
                piece.len = piece.len.min(piece.unit_len);
                payload.truncate(piece.len as usize);
            }
            _ => piece.chunk = ChunkSize::from_log2(10 + rng.below(3) as u8).expect("in range"),
        }
        let header = Header::Piece(piece).encode();
        if header == self.header || Header::decode(&header).is_err() {
            return false;
        }
        (self.header, self.payload) = (header, payload);
        true
    }
}
