//! Brings the units of a UDP lane to a receiving session, in whatever order they come.
//!
//! In: units that came whole, from the lane's thread. Out: [`Arrival`]s to the session loop, whose
//! machine alone judges them, and slots of the session's slab to the lane: each unit that the
//! sender may begin has one. A sender that is faster than it may be gets none. It knows no files
//! and no messages.

use longhaul_core::{Fault, FileOffset, LaneId, PartSums};
use longhaul_proto::receiver::{Landed, Ticket};
use longhaul_proto::wire::data::Piece;
use longhaul_proto::wire::message::LandedUnits;
use longhaul_sys::Slot;

use super::join::JoinedUdp;
use super::receive::{self, UdpArrival, UdpLanded, UdpReceiveMeans, UdpSink};
use super::sharers::SlotSharers;
use crate::cpu::Stage;
use crate::lanes::worker::receive::{Arrival, ReceiveMeans, bare_digest, digest_in, rows_of, start_of};

/// Receives until the sender is done with the lane, which shares the slots with `sharers`. Returns
/// the units that were delivered, however it ended.
///
/// A [`Fault`] when the lane breaks, or the sender breaks the protocol.
pub(crate) fn run(
    joined: JoinedUdp,
    means: ReceiveMeans<'_>,
    sharers: SlotSharers,
    deliver: impl Fn(Arrival),
) -> (LandedUnits, Result<(), Fault>) {
    let (lane, round_trip) = (joined.id, joined.round_trip);
    let slot_bytes = means.slab.slot_bytes();
    let receiving = UdpReceiveMeans { times: means.times, pulse: means.pulse, slot_bytes };
    let mut sink = SlabSink { means, lane, sharers, deliver };
    let (UdpLanded { below, beyond }, result) = receive::run(joined, round_trip, receiving, &mut sink);
    (LandedUnits::with_beyond(below.into(), beyond.into_iter().map(u64::from)), result)
}

/// The buffers and the loop of a session, as a UDP lane sees them.
struct SlabSink<'a, D> {
    means: ReceiveMeans<'a>,
    lane: LaneId,
    sharers: SlotSharers,
    deliver: D,
}

impl<D> SlabSink<'_, D> {
    /// The further checksums of a chunk that is whole. `None` if none are wanted.
    fn sums(&self, piece: &Piece, slot: &Slot) -> Option<PartSums> {
        let wanted = self.means.sums_of(piece.unit);
        let bytes = slot.get(..piece.unit_len as usize).filter(|_| !wanted.is_empty())?;
        let mut sums = PartSums::empty(wanted);
        self.means.times.count(Stage::Hash, || sums.update(bytes));
        Some(sums)
    }
}

impl<D: Fn(Arrival)> UdpSink for SlabSink<'_, D> {
    fn claim(&mut self) -> Option<Slot> {
        if self.means.pacer.is_ahead() {
            return None;
        }
        self.means.slab.try_claim()
    }

    fn window(&self) -> u32 {
        self.sharers.window(u32::try_from(self.means.slab.within_reach()).unwrap_or(u32::MAX))
    }

    fn deliver(&mut self, arrival: UdpArrival) {
        let UdpArrival { serial, header: piece, slot, declared, computed } = arrival;
        if slot.is_some() {
            self.means.pacer.charge(piece.unit_len);
        }
        let computed = computed.unwrap_or_else(|| {
            // The lane has judged where it lies.
            bare_digest(&piece, start_of(&piece).unwrap_or(FileOffset(0)), self.means)
        });
        let declared = Some(digest_in(piece.digest, declared));
        let (rows, places) = self.means.times.count(Stage::Hash, || rows_of(&piece, slot.as_ref()));
        let ticket = Ticket { lane: self.lane, seq: serial.into() };
        let landed = Landed { ticket, piece, computed, declared, rows };
        let sums = slot.as_ref().and_then(|slot| self.sums(&piece, slot));
        (self.deliver)(Arrival { landed, slot, rows: places, sums });
    }
}
