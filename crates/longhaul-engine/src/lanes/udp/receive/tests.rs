//! Units as a sender that keeps to nothing brings them: any pieces and descriptions of any cut, in
//! any order. Each is refused, or its digest is that of the bytes that are handed on.

use longhaul_core::digest::digest_of;
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, FileId, FileOffset, Unit};
use longhaul_proto::udp::packet::{PacketNumber, PieceBytes, SendTime, UnitCut};
use longhaul_sys::Slab;

use super::*;

const SLOT_BYTES: usize = 1 << 20;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

fn described(dice: &mut Dice, piece_bytes: PieceBytes, lens: [u64; 2]) -> UnitBody {
    let hole = dice.below(40) == 0;
    let len = lens[usize::from(dice.below(30) == 0)];
    let header = Piece {
        unit: Unit::Chunk { file: FileId(1), index: ChunkIndex(0) },
        attempt: Attempt::FIRST,
        offset: 0,
        len: if hole { 0 } else { len },
        unit_len: len,
        chunk: ChunkSize::from_bytes(SLOT_BYTES as u64).expect("a power of two"),
        digest: DigestKind::Cv,
        hole,
        same: false,
        trailer: true,
    };
    UnitBody { serial: Serial(0), piece_bytes, header, digest: (dice.below(3) > 0).then_some([7; 32]) }
}

/// Plays one unit. Gives whether it was handed on with payload.
fn play(seed: u64, slab: &std::sync::Arc<Slab>) -> bool {
    let mut dice = Dice(seed);
    let config =
        UdpReceivingConfig { slot_bytes: SLOT_BYTES as u64, admit: Serial(1), round_trip: Duration::from_millis(40) };
    let (mut machine, times) = (UdpReceiving::new(Timestamp(0), config), StageTimes::default());
    let (mut slots, pulse) = (
        Slots::promised(Timestamp(0), slab.try_claim().into_iter().collect(), Duration::from_millis(100)),
        Pulse::default(),
    );
    let sizes = [1192, 8932, 65_467].map(|bytes| PieceBytes::new(bytes).expect("in bounds"));
    let lens = [1 + dice.below(SLOT_BYTES as u64), 1 + dice.below(SLOT_BYTES as u64)];
    let (mut cut, mut next) = (UnitCut(0), 0);
    for number in 0..4000 {
        let arrived =
            Arrived { number: PacketNumber::new(number).expect("few"), sent: SendTime(0), at: Timestamp(number) };
        if dice.below(600) == 0 {
            (cut, next) = (UnitCut(cut.0.saturating_add(1)), 0);
        }
        let piece_bytes = sizes[(usize::from(cut.0) + usize::from(dice.below(50) == 0)) % 3];
        let whole = if dice.below(20) == 0 {
            let body = described(&mut dice, piece_bytes, lens);
            let Ok(news) = machine.unit(arrived, cut, &body) else { return false };
            if let Some(first) = news.first.filter(|first| first.payload() > 0) {
                slots.place(Timestamp(0), 0, &pulse).expect("it has a slot").describe(cut, &first.header);
            }
            news.whole
        } else {
            let last = lens[0] / u64::from(piece_bytes.get());
            // Most come in their order, so that they are hashed as they come.
            let piece = if dice.below(8) == 0 { dice.below(last + 2) } else { next % (last + 1) } as u16;
            next += u64::from(u64::from(piece) == next % (last + 1));
            let place = DataPlace { serial: Serial(0), cut, piece, piece_bytes };
            let full = u64::from(piece_bytes.get());
            let bytes =
                if u64::from(place.piece) < last { full } else { lens[0].saturating_sub(place.offset()) } as usize;
            if !matches!(machine.look(&place, bytes), Look::Land(_) | Look::First) {
                continue;
            }
            let landed = machine.landed(arrived, &place, bytes).expect("it was looked at");
            let at = landed.at.start as usize..landed.at.end as usize;
            let unit = slots.place(Timestamp(0), 0, &pulse).expect("it has a slot");
            unit.slot[at.clone()].fill(dice.below(256) as u8);
            unit.land(cut, ReceivedPiece { offset: at.start, len: at.len() }, &times);
            landed.whole
        };
        let Some(body) = whole else { continue };
        let Some(place) = slots.take(Timestamp(0), 0).filter(|_| body.payload() > 0) else { return false };
        let (slot, computed) = place.finish(&body.header, &times);
        let bytes = &slot[..body.payload() as usize];
        assert_eq!(computed, Some(digest_of(bytes, body.header.digest, FileOffset(0))), "seed {seed}");
        return true;
    }
    false
}

#[test]
fn a_digest_is_that_of_the_bytes_whatever_a_sender_says_in_whatever_cut() {
    let slab = Slab::new(SLOT_BYTES, 1).expect("memory");
    let whole = (0..400).filter(|seed| play(*seed, &slab)).count();
    assert!(whole > 50, "{whole} of 400 units came whole");
}

/// A sink that leaves a lane all slots.
struct Generous(std::sync::Arc<Slab>);

impl UdpSink for Generous {
    fn claim(&mut self) -> Option<Slot> {
        self.0.try_claim()
    }

    fn window(&self) -> u32 {
        self.0.slots() as u32
    }

    fn deliver(&mut self, _arrival: UdpArrival) {}
}

/// A lane that has promised these slots, and looks after them at these seconds. Gives the free
/// slots after each look.
fn looked_after(slab: &std::sync::Arc<Slab>, promised: usize, seconds: &[u64]) -> Vec<usize> {
    let (times, pulse) = (StageTimes::default(), Pulse::default());
    let admit = Serial(promised as u32);
    let config = UdpReceivingConfig { slot_bytes: 4096, admit, round_trip: Duration::from_millis(40) };
    let mut core = Core {
        machine: UdpReceiving::new(Timestamp(0), config),
        slots: Slots::promised(
            Timestamp(0),
            (0..promised).map_while(|_| slab.try_claim()).collect(),
            Duration::from_millis(100),
        ),
        means: UdpReceiveMeans { times: &times, pulse: &pulse, slot_bytes: 4096 },
        here: LaneIndex(0),
        scratch: Vec::new(),
        has_moved: false,
        used: Timestamp(0),
        closed: None,
    };
    let mut sink = Generous(slab.clone());
    let look = |second: &u64| {
        let now = Timestamp(second * 1_000_000);
        let is_idle = core.is_idle(now, Duration::ZERO);
        core.keep_slots(now, if is_idle { SlotDemand::Idle } else { SlotDemand::Busy }, &mut sink);
        slab.free()
    };
    seconds.iter().map(look).collect()
}

#[test]
fn a_sender_that_begins_no_unit_loses_the_slots_that_it_was_promised_and_gets_no_others() {
    let slab = Slab::new(4096, 4).expect("memory");
    assert_eq!(looked_after(&slab, 2, &[1, 2, 3, 60]), [0, 4, 4, 4]);
}

#[test]
fn a_sender_that_was_never_promised_a_slot_gets_one_however_late() {
    let slab = Slab::new(4096, 4).expect("memory");
    let mut held: Vec<_> = (0..4).map_while(|_| slab.try_claim()).collect();
    assert_eq!(looked_after(&slab, 0, &[1, 60]), [0, 0]);
    held.clear();
    assert_eq!(looked_after(&slab, 0, &[60, 61, 62, 63]), [0, 0, 4, 4]);
}
