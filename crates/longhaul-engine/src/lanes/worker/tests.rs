//! Tests of a receiving lane over a transport that brings the pieces of a unit as it likes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use longhaul_core::digest::digest_of;
use longhaul_core::{
    Algorithms, Attempt, ChunkIndex, ChunkSize, DigestKind, FaultCode, FileId, FileOffset, LaneId, Unit,
};
use longhaul_net::{
    Congestion, LaneHandle, LaneStream, LaneTransport, More, NetError, PieceRoom, Protection, ReceivedPiece,
};
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_sys::Slab;

use super::holes::Holes;
use super::pacer::Pacer;
use super::pulse::Pulse;
use super::receive::{Arrival, ReceiveMeans, run};
use crate::cpu::StageTimes;
use crate::lanes::StreamLane;

/// A lane on which one unit and the end arrive, the unit in given pieces.
struct Scattered {
    protection: Protection,
    /// The bytes outside of payload that are still to come.
    framing: VecDeque<u8>,
    unit: Vec<u8>,
    /// The pieces that are still to come. Some may lie outside of the unit.
    pieces: VecDeque<Range<usize>>,
}

impl LaneTransport for Scattered {
    fn send(&mut self, _parts: &[&[u8]], _more: More) -> Result<(), NetError> {
        unreachable!("it receives")
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, NetError> {
        let len = into.len().min(self.framing.len());
        into.iter_mut().zip(self.framing.drain(..len)).for_each(|(into, byte)| *into = byte);
        Ok(len)
    }

    fn receive_piece(&mut self, room: PieceRoom<'_>) -> Result<ReceivedPiece, NetError> {
        let piece = self.pieces.pop_front().expect("a unit is not waited for when it is whole");
        if let (Some(into), Some(bytes)) = (room.unit.get_mut(piece.clone()), self.unit.get(piece.clone())) {
            into.copy_from_slice(bytes);
        }
        Ok(ReceivedPiece { offset: piece.start, len: piece.len() })
    }

    fn finish(&mut self) {}

    fn handle(&self) -> LaneHandle {
        LaneStream::pair().expect("a pair").0.handle()
    }

    fn peer(&self) -> &'static str {
        "a test"
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn protection(&self) -> Protection {
        self.protection
    }

    fn congestion(&self) -> String {
        "none".to_owned()
    }

    fn set_congestion(&self, _congestion: &Congestion) -> Result<(), NetError> {
        Ok(())
    }

    fn set_deadline(&mut self, _left: Option<Duration>) -> Result<(), NetError> {
        Ok(())
    }
}

/// The arrivals of a lane that brings a unit in these pieces, and how the lane ends.
fn received(
    protection: Protection,
    unit: &[u8],
    pieces: impl IntoIterator<Item = Range<usize>>,
) -> (Vec<Arrival>, Result<(), FaultCode>) {
    let trailer = protection == Protection::Private;
    let piece = Piece {
        unit: Unit::Chunk { file: FileId(3), index: ChunkIndex(0) },
        attempt: Attempt::FIRST,
        offset: 0,
        len: unit.len() as u64,
        unit_len: unit.len() as u64,
        chunk: ChunkSize::DEFAULT,
        digest: DigestKind::Root,
        hole: false,
        same: false,
        trailer,
    };
    let mut framing = VecDeque::from(Header::Piece(piece).encode());
    if trailer {
        framing.extend(digest_of(unit, DigestKind::Root, FileOffset(0)).bytes());
    }
    framing.extend(Header::End.encode());
    let pieces = pieces.into_iter().collect();
    let stream = LaneStream::over(Scattered { protection, framing, unit: unit.to_vec(), pieces });
    let slab = Slab::new(unit.len().next_multiple_of(4096), 1).expect("a slab");
    let (pacer, times, pulse) = (Pacer::new(None), StageTimes::default(), Pulse::default());
    let means = ReceiveMeans {
        slab: &slab,
        pacer: &pacer,
        times: &times,
        pulse: &pulse,
        holes: &Holes::default(),
        sums: Algorithms::NONE,
    };
    let arrivals = RefCell::new(Vec::new());
    let lane = StreamLane { id: LaneId(0), stream, taken: true };
    let (_, ended) = run(lane, means, |arrival| arrivals.borrow_mut().push(arrival));
    (arrivals.into_inner(), ended.map_err(|fault| fault.code))
}

/// Bytes of which no two pieces are equal.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).take(len).collect()
}

/// `len` bytes, cut into pieces of `size`.
fn cut(len: usize, size: usize) -> Vec<Range<usize>> {
    (0..len).step_by(size).map(|at| at..len.min(at + size)).collect()
}

#[test]
fn a_unit_is_hashed_right_in_whatever_order_its_pieces_come() {
    for (len, size) in
        [(1, 1), (1200, 1200), (1201, 1200), (1_000_000, 1448), (1 << 20, 256 << 10), (2_000_001, 300_000)]
    {
        let (unit, pieces) = (bytes(len), cut(len, size));
        let backwards = pieces.iter().rev().cloned().collect();
        let halves = pieces.iter().skip(1).step_by(2).chain(pieces.iter().step_by(2)).cloned().collect();
        let mut mixed = pieces.clone();
        mixed.sort_by_key(|piece| piece.start.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut first_comes_last = pieces.clone();
        first_comes_last.rotate_left(1);
        for (order, pieces) in [pieces, backwards, halves, mixed, first_comes_last].into_iter().enumerate() {
            for protection in [Protection::Private, Protection::Safe] {
                let (arrivals, ended) = received(protection, &unit, pieces.clone());
                let case = format!("{len} bytes in pieces of {size}, order {order}, {protection:?}");
                assert_eq!((arrivals.len(), ended), (1, Ok(())), "{case}");
                let computed = arrivals[0].landed.computed;
                assert_eq!(computed, digest_of(&unit, DigestKind::Root, FileOffset(0)), "{case}");
                let slot = arrivals[0].slot.as_ref().expect("it has payload");
                assert!(slot[..len] == unit, "{case}: bytes lie elsewhere");
            }
        }
    }
}

#[test]
fn pieces_that_come_twice_or_overlap_or_leave_the_unit_end_the_lane_as_a_breach() {
    let (len, unit) = (4096, bytes(4096));
    for (case, pieces) in [
        ("repeated at once", vec![0..1024, 0..1024, 1024..4096]),
        ("repeated behind a gap", vec![2048..3072, 2048..3072, 0..2048]),
        ("overlaps what was hashed", vec![0..1024, 1023..4096]),
        ("overlaps what waits", vec![2048..3072, 0..2049]),
        ("covers what waits", vec![2048..3072, 0..4096]),
        ("reaches beyond the unit", vec![0..1024, 1024..4097]),
        ("lies beyond the unit", vec![8192..8193, 0..4096]),
        ("is empty", vec![0..0, 0..4096]),
    ] {
        let breach = |protection| {
            let (arrivals, ended) = received(protection, &unit, pieces.clone());
            assert!(arrivals.is_empty(), "{case}: it was delivered");
            ended
        };
        assert_eq!(breach(Protection::Private), Err(FaultCode::Protocol), "{case} of {len}");
        // Anyone on the path of a safe lane may have done it.
        assert_eq!(breach(Protection::Safe), Err(FaultCode::Lost), "{case} of {len}");
    }
}
