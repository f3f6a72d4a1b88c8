//! The packets of a UDP lane but those of its join: the outer header, which anybody sees, and what
//! the sealed part of each kind holds.
//!
//! In: datagrams, and plain text that was opened. Out: typed values, each of which encodes to the
//! bytes it was parsed from. Knows no key, no socket and no payload: of a piece it knows the place.
//! The outer header is the additional data of the seal (AAD), so it is seen and cannot be changed.

use longhaul_core::limits::{
    CHUNK_BYTES_USER_MAX, UDP_DATAGRAM_BYTES_MAX, UDP_DATAGRAM_BYTES_SAFE, UDP_PACKETS_MAX, UDP_PIECE_BYTES_MIN,
};

use crate::wire::data::{HEADER_BYTES, Header, Piece, TRAILER_BYTES};

/// Bytes of the outer header of every packet but DATA, JOIN and JOINED.
pub const OUTER_BYTES: usize = 16;
/// Bytes of the outer header of DATA.
pub const DATA_OUTER_BYTES: usize = 24;
/// Bytes by which sealing makes a plain text longer: the tag of AES-GCM.
pub const TAG_BYTES: usize = 16;
/// Bytes of a datagram with a piece beside the piece.
pub const DATA_OVERHEAD_BYTES: u16 = (DATA_OUTER_BYTES + TAG_BYTES) as u16;
/// Bytes of the plain text of UNIT.
pub const UNIT_BYTES: usize = 8 + HEADER_BYTES + TRAILER_BYTES;
/// Bytes of the datagram of UNIT.
pub const UNIT_DATAGRAM_BYTES: u16 = (OUTER_BYTES + UNIT_BYTES + TAG_BYTES) as u16;
/// Bytes of the plain text of END.
pub const END_BYTES: usize = 4;
/// Bytes of the plain text of CLOSE.
pub const CLOSE_BYTES: usize = 1;
/// The fewest bytes of the datagram of a PROBE: one without a zero in it.
pub const PROBE_DATAGRAM_BYTES_MIN: u16 = (OUTER_BYTES + TAG_BYTES) as u16;

/// The kind of a packet: its first byte. The second highest bit is 0, so that packets of QUIC
/// (whose fixed bit is 1) and these may share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// The dialler asks to join.
    Join = 0x21,
    /// The acceptor answers a JOIN.
    Joined = 0x22,
    /// A piece of a unit.
    Data = 0x23,
    /// The description of a unit.
    Unit = 0x24,
    /// The standing of all units, from the receiver of files to the sender.
    Status = 0x25,
    /// Zeros, to try a size or as a sign of life.
    Probe = 0x26,
    /// No further unit is begun.
    End = 0x27,
    /// This end has closed the lane.
    Close = 0x28,
}

impl PacketKind {
    /// The kind of a datagram; `None` if it is none of a UDP lane.
    pub fn of(datagram: &[u8]) -> Option<PacketKind> {
        Some(match *datagram.first()? {
            0x21 => PacketKind::Join,
            0x22 => PacketKind::Joined,
            0x23 => PacketKind::Data,
            0x24 => PacketKind::Unit,
            0x25 => PacketKind::Status,
            0x26 => PacketKind::Probe,
            0x27 => PacketKind::End,
            0x28 => PacketKind::Close,
            _ => return None,
        })
    }
}

/// The reason why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The first byte is no kind, or not one that stands here.
    #[error("a datagram of another kind")]
    Kind,
    /// Too short for its kind, or longer than it may be.
    #[error("a packet of an impossible length")]
    Length,
    /// A number that is out of bounds, or contradicts another one.
    #[error("a packet with a number out of bounds")]
    Bounds,
    /// A reserved bit or byte that is set, or an unknown flag, version or reason.
    #[error("a packet with an unknown flag")]
    Unknown,
    /// The description of a unit that no sender writes.
    #[error("a packet with an impossible unit")]
    Header,
}

/// The number by which the receiver of a packet knows its lane: random, chosen by it in the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneIndex(pub u32);

/// The number of a packet in its direction of a lane: from 0, one more for each packet, never
/// twice. Below 2^48.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketNumber(u64);

impl PacketNumber {
    /// The number, if it is below 2^48. A lane that is out of numbers ends.
    pub const fn new(number: u64) -> Option<PacketNumber> {
        if number < UDP_PACKETS_MAX { Some(PacketNumber(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The number of a unit in its lane: from 0 in the order in which they are begun, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(pub u32);

/// When the message of a packet was sent, by the clock of whoever sent it: units of 100 us, modulo
/// 2^16 (6.5 s). All datagrams of one message have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTime(pub u16);

/// How often the sender has cut this unit into pieces anew: 0 at first. Pieces of different cuts do
/// not mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitCut(pub u8);

/// The number of a search for the size of datagrams: 0 at first, one more when the sender found
/// that large ones pass no longer. So a probe that came before that proves nothing after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeSearch(pub u8);

/// Payload bytes of every piece of a unit but the last: 1,152 to 65,467.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PieceBytes(u16);

impl PieceBytes {
    /// The smallest: what fits the smallest datagram that passes wherever IPv6 does.
    pub const SAFE: PieceBytes = PieceBytes(UDP_DATAGRAM_BYTES_SAFE - DATA_OVERHEAD_BYTES);

    /// A piece of so many bytes, if it may have them.
    pub const fn new(bytes: u16) -> Option<PieceBytes> {
        let most = UDP_DATAGRAM_BYTES_MAX - DATA_OVERHEAD_BYTES;
        if bytes >= UDP_PIECE_BYTES_MIN && bytes <= most { Some(PieceBytes(bytes)) } else { None }
    }

    /// The piece that fills a datagram of so many bytes.
    pub const fn filling(datagram: u16) -> Option<PieceBytes> {
        PieceBytes::new(datagram.saturating_sub(DATA_OVERHEAD_BYTES))
    }

    /// The bytes.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Bytes of the datagram with such a piece.
    pub const fn datagram(self) -> u16 {
        self.0 + DATA_OVERHEAD_BYTES
    }

    /// The pieces of a unit with so many bytes of payload. Those of the largest unit are fewer than
    /// a u16 can number.
    pub fn pieces(self, payload: u64) -> u16 {
        u16::try_from(payload.div_ceil(u64::from(self.0))).unwrap_or(u16::MAX)
    }
}

/// The place of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPlace {
    /// Its unit.
    pub serial: Serial,
    /// The cut by which it is numbered.
    pub cut: UnitCut,
    /// Its number in the unit, from 0; never 65,535.
    pub piece: u16,
    /// Bytes of every piece of this cut but the last.
    pub piece_bytes: PieceBytes,
}

impl DataPlace {
    /// The offset of its first byte in the unit.
    pub fn offset(&self) -> u64 {
        u64::from(self.piece) * u64::from(self.piece_bytes.get())
    }
}

/// The outer header of a packet that is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The lane, as the receiver of the packet knows it.
    pub index: LaneIndex,
    /// The packet's number.
    pub number: PacketNumber,
    /// When its message was sent.
    pub sent: SendTime,
    /// Its kind, with what is seen of it.
    pub body: OuterBody,
}

/// The part of an outer header that is of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterBody {
    /// DATA: a piece of this place is sealed.
    Data(DataPlace),
    /// UNIT of this cut: a [`UnitBody`] is sealed.
    Unit(UnitCut),
    /// STATUS: a [`Status`](super::status::Status) is sealed.
    Status,
    /// PROBE of this search: zeros are sealed.
    Probe(SizeSearch),
    /// END: the units in all are sealed ([`decode_end`]).
    End,
    /// CLOSE: a [`CloseReason`] is sealed.
    Close,
}

/// The bytes of an outer header.
#[derive(Clone, Copy, Debug)]
pub struct OuterHeader {
    bytes: [u8; DATA_OUTER_BYTES],
    len: usize,
}

impl AsRef<[u8]> for OuterHeader {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Outer {
    /// The bytes of the header: what goes before the sealed part, and what is sealed with it as
    /// additional data.
    pub fn encode(&self) -> OuterHeader {
        let (kind, cut) = match self.body {
            OuterBody::Data(place) => (PacketKind::Data, place.cut.0),
            OuterBody::Unit(cut) => (PacketKind::Unit, cut.0),
            OuterBody::Status => (PacketKind::Status, 0),
            OuterBody::Probe(search) => (PacketKind::Probe, search.0),
            OuterBody::End => (PacketKind::End, 0),
            OuterBody::Close => (PacketKind::Close, 0),
        };
        let mut bytes = [0; DATA_OUTER_BYTES];
        bytes[0] = kind as u8;
        bytes[1] = cut;
        bytes[2..4].copy_from_slice(&self.sent.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.0.to_le_bytes());
        let OuterBody::Data(place) = self.body else { return OuterHeader { bytes, len: OUTER_BYTES } };
        bytes[16..20].copy_from_slice(&place.serial.0.to_le_bytes());
        bytes[20..22].copy_from_slice(&place.piece.to_le_bytes());
        bytes[22..24].copy_from_slice(&place.piece_bytes.get().to_le_bytes());
        OuterHeader { bytes, len: DATA_OUTER_BYTES }
    }

    /// Reads the header of a datagram. Behind its [`Outer::bytes`] stands the sealed part, whose
    /// length fits the kind; how much plain text it holds says [`Outer::plain_bytes`].
    ///
    /// # Errors
    /// [`PacketError`] for anything that no peer sends; also for JOIN and JOINED, which are not
    /// sealed ([`super::join`]).
    pub fn parse(datagram: &[u8]) -> Result<Outer, PacketError> {
        let kind = PacketKind::of(datagram).ok_or(PacketError::Kind)?;
        if datagram.len() < OUTER_BYTES + TAG_BYTES || datagram.len() > usize::from(UDP_DATAGRAM_BYTES_MAX) {
            return Err(PacketError::Length);
        }
        let cut = UnitCut(datagram[1]);
        let body = match kind {
            PacketKind::Join | PacketKind::Joined => return Err(PacketError::Kind),
            PacketKind::Data => OuterBody::Data(data_place(datagram, cut)?),
            PacketKind::Unit => OuterBody::Unit(cut),
            PacketKind::Status => OuterBody::Status,
            PacketKind::Probe => OuterBody::Probe(SizeSearch(datagram[1])),
            PacketKind::End => OuterBody::End,
            PacketKind::Close => OuterBody::Close,
        };
        if matches!(body, OuterBody::Status | OuterBody::End | OuterBody::Close) && cut.0 != 0 {
            return Err(PacketError::Unknown);
        }
        let number = PacketNumber::new(u64_at(datagram, 8)).ok_or(PacketError::Bounds)?;
        let outer = Outer { index: LaneIndex(u32_at(datagram, 4)), number, sent: SendTime(u16_at(datagram, 2)), body };
        outer.check_plain(datagram.len())?;
        Ok(outer)
    }

    /// Bytes of this header.
    pub fn bytes(&self) -> usize {
        if matches!(self.body, OuterBody::Data(_)) { DATA_OUTER_BYTES } else { OUTER_BYTES }
    }

    /// Bytes of the plain text in a datagram of so many bytes that was parsed.
    pub fn plain_bytes(&self, datagram: usize) -> usize {
        datagram.saturating_sub(self.bytes() + TAG_BYTES)
    }

    /// A piece is not empty, no longer than those of its cut, and ends within the largest unit; the
    /// others are as long as their kind says.
    fn check_plain(&self, datagram: usize) -> Result<(), PacketError> {
        let plain = datagram.checked_sub(self.bytes() + TAG_BYTES).ok_or(PacketError::Length)?;
        let sound = match self.body {
            OuterBody::Data(place) => {
                let within = place.offset() + plain as u64 <= CHUNK_BYTES_USER_MAX;
                if plain > 0 && !within {
                    return Err(PacketError::Bounds);
                }
                plain > 0 && plain <= usize::from(place.piece_bytes.get())
            }
            OuterBody::Unit(_) => plain == UNIT_BYTES,
            OuterBody::Status => plain >= super::status::STATUS_BYTES_MIN,
            OuterBody::Probe(_) => true,
            OuterBody::End => plain == END_BYTES,
            OuterBody::Close => plain == CLOSE_BYTES,
        };
        if sound { Ok(()) } else { Err(PacketError::Length) }
    }
}

fn data_place(datagram: &[u8], cut: UnitCut) -> Result<DataPlace, PacketError> {
    if datagram.len() < DATA_OUTER_BYTES + TAG_BYTES {
        return Err(PacketError::Length);
    }
    let piece = u16_at(datagram, 20);
    let piece_bytes = PieceBytes::new(u16_at(datagram, 22)).ok_or(PacketError::Bounds)?;
    if piece == u16::MAX {
        return Err(PacketError::Bounds);
    }
    Ok(DataPlace { serial: Serial(u32_at(datagram, 16)), cut, piece, piece_bytes })
}

/// The sealed part of UNIT: the description of a unit. It is said once as the unit begins, and once
/// more with the digest behind its last piece if that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitBody {
    /// The unit.
    pub serial: Serial,
    /// Bytes of every piece of this cut but the last.
    pub piece_bytes: PieceBytes,
    /// The header that a byte stream would bring before the unit (section 6 of `docs/WIRE.md`):
    /// whole, and with a digest behind it.
    pub header: Piece,
    /// The unit's digest; `None` if it is not known yet.
    pub digest: Option<[u8; TRAILER_BYTES]>,
}

impl UnitBody {
    /// Bytes of payload that travel: none if the unit is a hole, or the receiver has it.
    pub fn payload(&self) -> u64 {
        if self.header.is_bare() { 0 } else { self.header.unit_len }
    }

    /// The plain text.
    pub fn encode(&self) -> [u8; UNIT_BYTES] {
        let mut out = [0; UNIT_BYTES];
        out[..4].copy_from_slice(&self.serial.0.to_le_bytes());
        out[4..6].copy_from_slice(&self.piece_bytes.get().to_le_bytes());
        out[6] = u8::from(self.digest.is_some());
        out[8..8 + HEADER_BYTES].copy_from_slice(&Header::Piece(self.header).encode());
        out[8 + HEADER_BYTES..].copy_from_slice(&self.digest.unwrap_or_default());
        out
    }

    /// Reads a plain text. An accepted one encodes to the same bytes again.
    ///
    /// # Errors
    /// [`PacketError`] for anything that no sender writes.
    pub fn decode(plain: &[u8]) -> Result<UnitBody, PacketError> {
        let plain: &[u8; UNIT_BYTES] = plain.try_into().map_err(|_| PacketError::Length)?;
        let (mut header, mut digest) = ([0; HEADER_BYTES], [0; TRAILER_BYTES]);
        header.copy_from_slice(&plain[8..8 + HEADER_BYTES]);
        digest.copy_from_slice(&plain[8 + HEADER_BYTES..]);
        let piece_bytes = PieceBytes::new(u16_at(plain, 4)).ok_or(PacketError::Bounds)?;
        let Ok(Header::Piece(header)) = Header::decode(&header) else { return Err(PacketError::Header) };
        let payload = if header.is_bare() { 0 } else { header.unit_len };
        if header.offset != 0 || header.len != payload || !header.trailer {
            return Err(PacketError::Header);
        }
        let digest = match plain[6] {
            0 if digest == [0; TRAILER_BYTES] => None,
            1 => Some(digest),
            _ => return Err(PacketError::Unknown),
        };
        if plain[7] != 0 {
            return Err(PacketError::Unknown);
        }
        Ok(UnitBody { serial: Serial(u32_at(plain, 0)), piece_bytes, header, digest })
    }
}

/// The plain text of END: the units that were begun in all.
pub fn encode_end(units: u32) -> [u8; END_BYTES] {
    units.to_le_bytes()
}

/// Reads the plain text of END: the units that were begun in all.
///
/// # Errors
/// [`PacketError::Length`] unless it has four bytes.
pub fn decode_end(plain: &[u8]) -> Result<u32, PacketError> {
    Ok(u32::from_le_bytes(plain.try_into().map_err(|_| PacketError::Length)?))
}

/// Reads the plain text of PROBE.
///
/// # Errors
/// [`PacketError::Unknown`] unless all of it is zeros.
pub fn check_probe(plain: &[u8]) -> Result<(), PacketError> {
    if plain.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(PacketError::Unknown) }
}

/// Why an end closed a lane: the plain text of CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseReason {
    /// The lane ended in order.
    Over = 0,
    /// This end gave it up.
    GivenUp = 1,
    /// The other end broke the protocol.
    Breach = 2,
}

impl CloseReason {
    /// The plain text.
    pub fn encode(self) -> [u8; CLOSE_BYTES] {
        [self as u8]
    }

    /// Reads a plain text.
    ///
    /// # Errors
    /// [`PacketError`] for another length or an unknown reason.
    pub fn decode(plain: &[u8]) -> Result<CloseReason, PacketError> {
        match plain {
            [0] => Ok(CloseReason::Over),
            [1] => Ok(CloseReason::GivenUp),
            [2] => Ok(CloseReason::Breach),
            [_] => Err(PacketError::Unknown),
            _ => Err(PacketError::Length),
        }
    }
}

/// The two bytes at `at`, which the caller has.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The four bytes at `at`, which the caller has.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | (u32::from(u16_at(bytes, at + 2)) << 16)
}

/// The eight bytes at `at`, which the caller has.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}
