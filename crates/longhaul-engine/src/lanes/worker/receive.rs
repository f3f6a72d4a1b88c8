//! Owns a receiving lane's thread: it takes units off the wire into slots, and hashes them as they
//! come.
//!
//! In: a joined stream, which may bring the pieces of a unit in any order. Out: [`Arrival`]s to the
//! session loop, whose machine alone judges them. A slot is claimed before its payload is read;
//! when none is free the lane stops reading, and its transport tells the sender. It knows no files
//! and no messages.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::digest::{ChunkHasher, Digest, digest_of};
use longhaul_core::{Algorithms, Blame, DigestKind, Fault, FaultCode, FileId, FileOffset, PartSums, Unit, hint};
use longhaul_net::{LaneStream, PieceRoom, Protection};
use longhaul_proto::receiver::{Landed, LandedRow, Ticket};
use longhaul_proto::wire::bundle;
use longhaul_proto::wire::data::{HEADER_BYTES, Header, Piece, TRAILER_BYTES};
use longhaul_sys::{Slab, Slot};

use super::PIECE_BYTES;
use super::hashing::digest_zeros;
use super::holes::Holes;
use super::pacer::Pacer;
use super::pieces::{PieceBreach, ReceivedPieces};
use super::pulse::Pulse;
use super::zeros::ZeroChunk;
use crate::cpu::{Stage, StageTimes};
use crate::faults::lane_fault;
use crate::lanes::StreamLane;
use crate::lanes::join::hear_taken;

/// A unit that arrived: its description for the machine, and its payload, which goes around the
/// machine.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The description.
    pub(crate) landed: Landed,
    /// The bytes. `None` for a hole.
    pub(crate) slot: Option<Slot>,
    /// The range of each file of a bundle in the slot.
    pub(crate) rows: Vec<(FileId, Range<usize>)>,
    /// The further checksums of the bytes. `None`: none are wanted, or no bytes came.
    pub(crate) sums: Option<PartSums>,
}

/// The means of a receiving lane's thread.
#[derive(Clone, Copy)]
pub(crate) struct ReceiveMeans<'a> {
    /// Its buffers.
    pub(crate) slab: &'a Arc<Slab>,
    /// Says when it may read on.
    pub(crate) pacer: &'a Pacer,
    /// Where CPU time is counted.
    pub(crate) times: &'a StageTimes,
    /// Its signs of life.
    pub(crate) pulse: &'a Pulse,
    /// The holes that it may bring.
    pub(crate) holes: &'a Holes,
    /// Further checksums that are computed of chunks.
    pub(crate) sums: Algorithms,
}

/// Receives until the sender is done with the lane, or this side gives no more buffers. Returns the
/// number of units that were delivered, however it ended.
///
/// A [`Fault`] when the lane breaks or carries bytes that no sender sends.
pub(crate) fn run(
    StreamLane { id: lane, mut stream, taken }: StreamLane,
    means: ReceiveMeans<'_>,
    deliver: impl Fn(Arrival),
) -> (u64, Result<(), Fault>) {
    let protection = stream.protection();
    let (mut landed, mut grain_bytes) = (0, SLOW_GRAIN_BYTES);
    let heard = if taken { Ok(()) } else { hear_taken(&mut stream).map_err(|e| lane_fault(&e)) };
    let result = heard.and_then(|()| {
        loop {
            match receive_unit(&mut stream, Ticket { lane, seq: landed }, means, &mut grain_bytes) {
                Ok(Some(arrival)) => deliver(arrival),
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            }
            landed += 1;
            means.pulse.done();
        }
    });
    let result = result.map_err(|fault| match (protection, fault.code) {
        // An attacker on the path may have done that: it is not the sender's fault, and another try
        // may find a cleaner path.
        (Protection::Safe, FaultCode::Protocol) => Fault::new(
            FaultCode::Lost,
            Blame::Path,
            format_args!("a safe lane was damaged on the way: {}", fault.message),
        )
        .hint(hint::Again::Encrypted),
        _ => fault,
    });
    (landed, result)
}

/// The next unit. `None` when the sender is done with the lane, or this side gives no more buffers.
/// `grain_bytes`: bytes taken off the stream at a time, which follows the lane's speed.
fn receive_unit(
    stream: &mut LaneStream,
    ticket: Ticket,
    means: ReceiveMeans<'_>,
    grain_bytes: &mut usize,
) -> Result<Option<Arrival>, Fault> {
    let trailers = stream.protection() == Protection::Private;
    let mut header = [0; HEADER_BYTES];
    if !stream.recv_or_end(&mut header).map_err(|e| lane_fault(&e))? {
        return Err(Fault::new(FaultCode::Lost, Blame::Path, "a lane ended without saying so"));
    }
    means.pulse.begin();
    let Header::Piece(piece) = Header::decode(&header).map_err(Fault::protocol)? else { return Ok(None) };
    check(&piece, means.slab, trailers)?;
    // Of a unit without payload the digest is here at once. So nothing is hashed of a unit that a
    // broken lane does not bring whole.
    let early = if trailers && piece.len == 0 { Some(receive_trailer(stream, &piece)?) } else { None };
    let Some((slot, (computed, sums))) = receive(stream, &piece, means, grain_bytes)? else { return Ok(None) };
    let declared = if trailers && early.is_none() { Some(receive_trailer(stream, &piece)?) } else { early };
    let (rows, places) = means.times.count(Stage::Hash, || rows_of(&piece, slot.as_ref()));
    let landed = Landed { ticket, piece, computed, declared, rows };
    Ok(Some(Arrival { landed, slot, rows: places, sums }))
}

/// A lane's header describes a unit as one piece, in however many its transport brings it; a digest
/// is behind it exactly if the lane authenticates.
fn check(piece: &Piece, slab: &Slab, trailers: bool) -> Result<(), Fault> {
    let whole = piece.offset == 0 && piece.len == if piece.is_bare() { 0 } else { piece.unit_len };
    if !whole || piece.trailer != trailers || piece.unit_len > slab.slot_bytes() as u64 {
        return Err(Fault::protocol(format_args!("{} came in a form that this lane does not carry", piece.unit)));
    }
    Ok(())
}

fn receive(
    stream: &mut LaneStream,
    piece: &Piece,
    means: ReceiveMeans<'_>,
    grain_bytes: &mut usize,
) -> Result<Option<(Option<Slot>, DigestAndSums)>, Fault> {
    let start = start_of(piece)?;
    if piece.len == 0 {
        return Ok(Some((None, (bare_digest(piece, start, means), None))));
    }
    let Some(mut slot) = means.pulse.waiting(|| means.slab.claim()) else { return Ok(None) };
    let mut hasher = ChunkHasher::new(piece.digest, start).summing(means.sums_of(piece.unit));
    receive_payload(stream, piece.unit, &mut slot[..piece.len as usize], &mut hasher, means, grain_bytes)?;
    let sums = hasher.sums();
    Ok(Some((Some(slot), (hasher.finish(), sums))))
}

/// The digest of a unit, and the further checksums that are wanted of it.
type DigestAndSums = (Digest, Option<PartSums>);

impl ReceiveMeans<'_> {
    /// The further checksums that are wanted of a unit. Files of a bundle are summed one by one, as
    /// they are written.
    pub(in crate::lanes) fn sums_of(&self, unit: Unit) -> Algorithms {
        if matches!(unit, Unit::Chunk { .. }) { self.sums } else { Algorithms::NONE }
    }
}

/// The place of a unit in its file.
pub(in crate::lanes) fn start_of(piece: &Piece) -> Result<FileOffset, Fault> {
    let start = match piece.unit {
        Unit::Chunk { index, .. } => index.start(piece.chunk),
        Unit::Bundle(_) => FileOffset(0),
    };
    // The tree has no place beyond 2^64 bytes, and none for a chunk that is not aligned to its
    // size.
    if start.0.checked_add(piece.unit_len).is_none() || piece.digest == DigestKind::Root && start.0 != 0 {
        return Err(Fault::protocol(format_args!("{} lies where no file reaches", piece.unit)));
    }
    Ok(start)
}

/// The digest of a unit at `start` of which no bytes came.
pub(in crate::lanes) fn bare_digest(piece: &Piece, start: FileOffset, means: ReceiveMeans<'_>) -> Digest {
    if piece.same {
        // No bytes came that could be hashed; the machine knows the chunk that it holds.
        return zero_digest(piece.digest);
    }
    if piece.hole && !means.holes.take(piece) {
        // Nobody wants this hole, so its digest matters to nobody. A header must not cost as much
        // hashing as it claims.
        return zero_digest(piece.digest);
    }
    let chunk = ZeroChunk { kind: piece.digest, start, len: piece.unit_len };
    digest_zeros(chunk, None, (means.times, means.pulse))
}

/// Receives all bytes of a unit into `payload`, and hashes them: after each 256 KiB as many as are
/// there without a gap. Where pieces come in order these are the ones that just came, and are still
/// in cache; what waits for a gap is hashed when that closes.
fn receive_payload(
    stream: &mut LaneStream,
    unit: Unit,
    payload: &mut [u8],
    hasher: &mut ChunkHasher,
    ReceiveMeans { pacer, times, pulse, .. }: ReceiveMeans<'_>,
    grain_bytes: &mut usize,
) -> Result<(), Fault> {
    let breach = |breach: PieceBreach| Fault::protocol(format_args!("{unit} {}", breach.words()));
    let (mut pieces, mut hashed) = (ReceivedPieces::new(payload.len()), 0);
    while !pieces.is_whole() {
        let rest = PIECE_BYTES.min(payload.len() - pieces.received());
        let until = pieces.received() + pulse.paced(pacer, rest).clamp(1, rest);
        let begun = Instant::now();
        while pieces.received() < until {
            let received = pieces.received();
            let room = PieceRoom { unit: payload, received, bytes_max: (*grain_bytes).min(until - received) };
            let piece = times.count(Stage::Net, || stream.receive_piece(room)).map_err(|e| lane_fault(&e))?;
            pieces.add(piece).map_err(breach)?;
            pulse.carried(piece.len);
        }
        *grain_bytes = if begun.elapsed() < SLOW_PIECE { PIECE_BYTES } else { SLOW_GRAIN_BYTES };
        pulse.beat();
        let there = hashed..pieces.contiguous();
        hashed = there.end;
        for (place, part) in payload[there].chunks(PIECE_BYTES).enumerate() {
            // A lane that hashes what has waited for a gap is at work, too.
            if place > 0 {
                pulse.beat();
            }
            times.count(Stage::Hash, || hasher.update(part));
        }
    }
    Ok(())
}

/// A digest that no file has, in place of one that was not computed.
fn zero_digest(kind: DigestKind) -> Digest {
    digest_in(kind, [0; TRAILER_BYTES])
}

fn receive_trailer(stream: &mut LaneStream, piece: &Piece) -> Result<Digest, Fault> {
    let mut bytes = [0; TRAILER_BYTES];
    stream.recv_exact(&mut bytes).map_err(|e| lane_fault(&e))?;
    Ok(digest_in(piece.digest, bytes))
}

/// The digest of this kind in these bytes.
pub(in crate::lanes) fn digest_in(kind: DigestKind, bytes: [u8; TRAILER_BYTES]) -> Digest {
    match kind {
        DigestKind::Root => Digest::Root(bytes),
        DigestKind::Cv => Digest::Cv(bytes),
    }
}

/// The files of a bundle, each hashed. Empty if the bundle does not parse: its digest then tells
/// whether the sender or the path is to blame.
pub(crate) fn rows_of(piece: &Piece, slot: Option<&Slot>) -> (Vec<LandedRow>, Vec<(FileId, Range<usize>)>) {
    let (Unit::Bundle(_), Some(slot)) = (piece.unit, slot) else { return Default::default() };
    let unit = &slot[..piece.len as usize];
    let rows = bundle::parse(unit).unwrap_or_default();
    rows.into_iter()
        .map(|row| {
            let bytes = &unit[row.bytes.clone()];
            let hashed = || *digest_of(bytes, DigestKind::Root, FileOffset(0)).bytes();
            // No bytes came that could be hashed; the machine knows the file that it has.
            let computed = if row.same { row.root } else { hashed() };
            let landed = LandedRow { file: row.file, len: row.len, declared: row.root, computed, same: row.same };
            (landed, (row.file, row.bytes))
        })
        .unzip()
}

/// A piece that takes longer is read in grains, so that its bytes are counted as they come.
const SLOW_PIECE: Duration = Duration::from_millis(100);
/// The grain of a lane that is slow, or whose speed is not known yet: one TLS record.
const SLOW_GRAIN_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use longhaul_core::{FaultCode, LaneId};

    use super::super::holes::tests::{announced, hole, want};
    use super::*;
    use crate::lanes::join::confirm;

    /// How a lane ends on which the other end confirms that it has taken the lane, or does not, and
    /// then says that there is no more.
    fn ended(taken: bool, is_confirmed: bool) -> Result<(), FaultCode> {
        let (stream, mut other) = LaneStream::pair().expect("a pair");
        if is_confirmed {
            confirm(&mut other).expect("a word");
        }
        other.send(&[&Header::End.encode()]).expect("an end");
        drop(other);
        let slab = Slab::new(4096, 1).expect("a slab");
        let (pacer, times, pulse) = (Pacer::new(None), StageTimes::default(), Pulse::default());
        let means = ReceiveMeans {
            slab: &slab,
            pacer: &pacer,
            times: &times,
            pulse: &pulse,
            holes: &Holes::default(),
            sums: Algorithms::NONE,
        };
        run(StreamLane { id: LaneId(0), stream, taken }, means, |_| {}).1.map_err(|fault| fault.code)
    }

    #[test]
    fn the_word_that_a_lane_was_taken_comes_before_its_units_where_it_was_not_heard_yet() {
        assert_eq!(ended(true, false), Ok(()));
        assert_eq!(ended(false, true), Ok(()));
        assert!(ended(true, true).is_err(), "it is no unit");
        assert!(ended(false, false).is_err(), "a unit is not the word");
    }

    #[test]
    fn holes_that_nobody_wants_cost_their_headers_and_no_hashing() {
        let (stream, mut other) = LaneStream::pair().expect("a pair");
        let (holes, chunk) = announced(true);
        holes.say(&want(0, 2));
        // Two wanted holes, between a thousand that are not: of other files, repeated, or of chunks
        // that do not exist.
        let mut pieces: Vec<Piece> = (0..1000).map(|n| hole(2 + n % 8, 1, 1 << 20, chunk)).collect();
        pieces.insert(500, hole(0, 1, 1 << 20, chunk));
        pieces.insert(0, hole(1, 1, 1 << 20, chunk));
        pieces.push(hole(0, 1, 1 << 20, chunk));
        let wanted = |piece: &Piece| matches!(piece.unit, Unit::Chunk { index, .. } if index.0 < 2);
        let slab = Slab::new(1 << 20, 1).expect("a slab");
        let (pacer, times, pulse) = (Pacer::new(None), StageTimes::default(), Pulse::default());
        let means = ReceiveMeans {
            slab: &slab,
            pacer: &pacer,
            times: &times,
            pulse: &pulse,
            holes: &holes,
            sums: Algorithms::NONE,
        };
        let trailers = stream.protection() == Protection::Private;
        let sent = pieces.clone();
        let sending = std::thread::spawn(move || {
            for piece in sent {
                let header = Header::Piece(Piece { trailer: trailers, ..piece }).encode();
                let tail = if trailers { &[0; TRAILER_BYTES][..] } else { &[] };
                other.send(&[&header, tail]).expect("a hole");
            }
            other.send(&[&Header::End.encode()]).expect("an end");
        });
        let arrived = std::cell::RefCell::new(Vec::new());
        let lane = StreamLane { id: LaneId(0), stream, taken: true };
        run(lane, means, |arrival| arrived.borrow_mut().push(arrival.landed)).1.expect("an honest end");
        sending.join().expect("no panic");
        let arrived = arrived.into_inner();
        assert_eq!(arrived.len(), pieces.len(), "the machine hears of each");
        let hashed = arrived.iter().filter(|landed| landed.computed != zero_digest(DigestKind::Cv));
        assert!(hashed.clone().all(|landed| wanted(&landed.piece)) && hashed.count() == 2);
        // Each completed unit counts as a piece as well.
        let bytes_hashed = (pulse.read().pieces - pieces.len() as u64) * PIECE_BYTES as u64;
        // Another test may have hashed the same chunks.
        assert!(bytes_hashed <= 2 << 20, "{bytes_hashed} of {} that were named", pieces.len() << 20);
    }
}
