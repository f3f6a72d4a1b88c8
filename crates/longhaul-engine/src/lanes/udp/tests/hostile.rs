//! A lane whose other end holds the keys and keeps to nothing else, or whose path is a stranger's.

use longhaul_proto::udp::packet::{
    CloseReason, DataPlace, OuterBody, PieceBytes, Serial, UnitBody, UnitCut, encode_end,
};

use super::super::packets::send_alone;
use super::*;

/// Bytes of a unit of which more than one step of the hash is there before the last piece.
const LEN: usize = 300_000;
const PIECE: usize = PieceBytes::SAFE.get() as usize;

/// A sender's end that says what it wants.
struct Hostile {
    lane: JoinedUdp,
    /// Counts those that the other end has heard.
    heard: UdpHandle,
    said: u64,
}

impl Hostile {
    fn say(&mut self, body: OuterBody, plain: &[u8]) {
        send_alone(&mut self.lane.lane.send, self.lane.there, Timestamp(0), body, plain).expect("open");
        let overhead = if matches!(body, OuterBody::Data(_)) { 40 } else { 32 };
        self.said += plain.len() as u64 + overhead;
        let begun = Instant::now();
        // No buffer has to hold more than a few of them.
        while self.heard.get(UdpFigure::Received) + 40_000 < self.said && !self.heard.is_closed() {
            assert!(begun.elapsed() < PATIENCE, "{} of {} came", self.heard.get(UdpFigure::Received), self.said);
            thread::yield_now();
        }
    }

    fn describe(&mut self, cut: u8, header: Piece, digest: Option<[u8; 32]>) {
        let body = UnitBody { serial: Serial(0), piece_bytes: PieceBytes::SAFE, header, digest };
        self.say(OuterBody::Unit(UnitCut(cut)), &body.encode());
    }

    /// Says the first so many bytes of unit 0.
    fn pieces(&mut self, cut: u8, bytes: &[u8]) {
        for (piece, bytes) in (0..).zip(bytes.chunks(PIECE)) {
            let (serial, cut, piece_bytes) = (Serial(0), UnitCut(cut), PieceBytes::SAFE);
            self.say(OuterBody::Data(DataPlace { serial, cut, piece, piece_bytes }), bytes);
        }
    }

    fn end(&mut self) {
        self.say(OuterBody::End, &encode_end(1));
        self.say(OuterBody::Close, &CloseReason::Over.encode());
    }
}

/// Units as they came: serial, header, bytes.
type CameUnits = Vec<(u32, Piece, Option<Vec<u8>>)>;

/// Receives from such an end.
fn receive(says: impl FnOnce(&mut Hostile) + Send) -> (Result<(), FaultCode>, CameUnits) {
    let mut world = World::new();
    let (lane, accepted) = world.lane(None);
    let (heard, slab) = (accepted.handle(), Slab::new(CHUNK as usize, WINDOW as usize).expect("memory"));
    let mut came = Came { slab, units: Vec::new() };
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (times, pulse) = (StageTimes::default(), Pulse::default());
            let means = UdpReceiveMeans { times: &times, pulse: &pulse, slot_bytes: CHUNK as usize };
            let handle = accepted.handle();
            let joined = promising(End::Accepted(Box::new(accepted)).stand(), &came.slab);
            let received = receive::run(joined, Duration::ZERO, means, &mut came);
            handle.close();
            received.1
        });
        let mut hostile = Hostile { lane, heard, said: 0 };
        says(&mut hostile);
        receiving.join().expect("no panic")
    });
    (received.map_err(|fault| fault.code), came.units)
}

#[test]
fn a_unit_that_is_cut_anew_is_hashed_as_it_is_in_its_last_cut() {
    let (first, second) = (vec![1; LEN], vec![2; LEN]);
    let header = header(0, LEN as u64);
    let (received, came) = receive(|hostile| {
        hostile.describe(0, header, None);
        hostile.pieces(0, &first[..LEN - PIECE]);
        hostile.pieces(1, &second);
        hostile.describe(1, header, Some(*digest_of(&second, header.digest, FileOffset(0)).bytes()));
        hostile.end();
    });
    // `Came` compares the digests with that of the bytes.
    assert_eq!((received, came), (Ok(()), vec![(0, header, Some(second))]));
}

#[test]
fn a_unit_that_becomes_another_one_in_a_new_cut_ends_the_lane() {
    let bytes = vec![1; LEN];
    let other = Piece { len: 1000, unit_len: 1000, ..header(0, LEN as u64) };
    for header in [other, header(1, LEN as u64), Piece { hole: true, len: 0, ..header(0, CHUNK) }] {
        let (received, came) = receive(|hostile| {
            hostile.describe(0, super::header(0, LEN as u64), None);
            hostile.pieces(0, &bytes[..LEN - PIECE]);
            hostile.describe(1, header, Some([3; 32]));
        });
        assert_eq!((received, came), (Err(FaultCode::Protocol), vec![]));
    }
}

#[test]
fn a_slot_of_a_unit_that_turns_out_to_be_a_hole_is_free_again() {
    let header = Piece { hole: true, len: 0, ..header(0, CHUNK) };
    let (received, came) = receive(|hostile| {
        // All that is known of it is one full piece.
        hostile.pieces(0, &[1; PIECE]);
        hostile.describe(1, header, Some([3; 32]));
        hostile.end();
    });
    assert_eq!((received, came), (Ok(()), vec![(0, header, None)]));
}

#[test]
fn what_does_not_open_is_no_sign_of_life() {
    let mut world = World::new();
    let relay = Relay::to(world.addr, |number, datagram| {
        let mut changed = datagram.to_vec();
        changed[datagram.len() - 1] ^= u8::from(number > 40);
        if datagram.len() > 1232 { vec![] } else { vec![changed] }
    });
    let units: Vec<_> = (0..8).map(|index| unit(index, CHUNK)).collect();
    let ended = carry(Way::Push, world.lane(Some(relay.addr)), units, Some(1_000_000), |sender, receiver| {
        let begun = Instant::now();
        while receiver.get(UdpFigure::Forged) < 200 && begun.elapsed() < PATIENCE {
            thread::yield_now();
        }
        // At this rate 200 datagrams take 0.25 s.
        let (received, quiet) = (receiver.get(UdpFigure::Received), receiver.quiet());
        sender.close();
        receiver.close();
        assert!(received <= 40 * 1232 && quiet >= Duration::from_millis(100), "{received} bytes, {quiet:?}");
    });
    assert!(ended.sent.is_err() && ended.forged >= 200);
}

#[test]
fn joins_that_come_again_are_counted_apart_as_far_as_late_answers_explain_them() {
    for (way, greets) in [(Way::Push, 0x21), (Way::Pull, 0x22)] {
        let mut world = World::new();
        let greeting: Mutex<(Option<Vec<u8>>, u32)> = Mutex::default();
        let relay = Relay::to(world.addr, move |_, datagram| {
            let mut guard = greeting.lock().expect("sound");
            let (greeting, pieces) = &mut *guard;
            let mut passes = vec![datagram.to_vec()];
            match greeting {
                // It goes on with each of the first pieces, and once it is another one.
                Some(greeting) if datagram[0] == 0x23 && *pieces < 60 => {
                    let mut again = greeting.clone();
                    again[1231] ^= u8::from(*pieces == 8);
                    passes.push(again);
                    *pieces += 1;
                }
                Some(_) => {}
                None => *greeting = (datagram[0] == greets).then(|| datagram.to_vec()),
            }
            passes
        });
        let units = || (0..2).map(|index| unit(index, CHUNK)).collect::<Vec<_>>();
        let ended = carry(way, world.lane(Some(relay.addr)), units(), Some(20_000_000), |_, _| {});
        check(&ended, &units());
        // An honest one may have been said again, too, where the machine is busy.
        assert_eq!(ended.joined_again, 16, "{} are wrong", ended.wrong);
        assert!((60 - 16..70).contains(&ended.wrong), "{} of 59 joins and one that was changed", ended.wrong);
    }
}

#[test]
fn forged_pieces_whose_place_has_landed_are_seen() {
    let mut world = World::new();
    let first: Mutex<Option<Vec<u8>>> = Mutex::default();
    let relay = Relay::to(world.addr, move |_, datagram| {
        let mut first = first.lock().expect("sound");
        let mut passes = vec![datagram.to_vec()];
        match &*first {
            // It goes on with each that follows, and does not open.
            Some(forged) => passes.push(forged.clone()),
            None if datagram[0] == 0x23 => {
                let mut forged = datagram.to_vec();
                forged[datagram.len() - 1] ^= 1;
                *first = Some(forged);
            }
            None => {}
        }
        passes
    });
    let units = || (0..4).map(|index| unit(index, CHUNK)).collect::<Vec<_>>();
    let ended = carry(Way::Push, world.lane(Some(relay.addr)), units(), Some(20_000_000), |_, _| {});
    check(&ended, &units());
    assert!(ended.forged > 20, "{} were found out", ended.forged);
}

/// Somebody who has recorded a whole lane plays it into another one, addressed to that one's ends;
/// and all that these say themselves again and again, to either of them.
#[test]
fn whole_lanes_that_are_played_again_move_nothing() {
    let units = |from: u64| (from..from + 3).map(|index| unit(index, CHUNK)).collect::<Vec<_>>();
    let recorded: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let into = recorded.clone();
    let mut world = World::new();
    let relay = Relay::to(world.addr, move |_, datagram| {
        into.lock().expect("sound").push(datagram.to_vec());
        vec![datagram.to_vec()]
    });
    check(&carry(Way::Push, world.lane(Some(relay.addr)), units(0), None, |_, _| {}), &units(0));
    drop(relay);
    let others = std::mem::take(&mut *recorded.lock().expect("sound"));
    // By kind: what goes one way is played again that way.
    let own = Mutex::new(std::collections::BTreeMap::<u8, Vec<Vec<u8>>>::new());
    let mut world = World::new();
    let relay = Relay::to(world.addr, move |number, datagram| {
        let mut own = own.lock().expect("sound");
        let own = own.entry(datagram[0]).or_default();
        own.push(datagram.to_vec());
        let (mut other, again) = (&others[number as usize % others.len()], &own[(7 * number as usize) % own.len()]);
        let addressed = [&other[..4], &datagram[4..8], &other[8..]].concat();
        if number % 2 == 0 {
            other = &addressed;
        }
        match number {
            // The join is not what is tried here.
            0..3 => vec![datagram.to_vec()],
            _ => vec![other.clone(), again.clone(), datagram.to_vec()],
        }
    });
    let ended = carry(Way::Push, world.lane(Some(relay.addr)), units(100), Some(20_000_000), |_, _| {});
    check(&ended, &units(100));
    assert!(ended.forged > 20, "{} did not open", ended.forged);
}

#[test]
fn a_lane_stands_on_the_smallest_path_before_there_is_anything_to_send() {
    let mut world = World::new();
    // The first words are lost as well.
    let relay = Relay::to(world.addr, |number, datagram| {
        if datagram.len() > 1232 || (2..6).contains(&number) { vec![] } else { vec![datagram.to_vec()] }
    });
    let (dialled, accepted) = world.lane(Some(relay.addr));
    let (handle, begun) = (dialled.lane.handle.clone(), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            let (pacer, times, pulse) = (Pacer::new(None), StageTimes::default(), Pulse::default());
            let means = UdpSendMeans { pacer: &pacer, times: &times, pulse: &pulse, path: None, patience: PATIENCE };
            assert!(send::run(dialled, Duration::ZERO, means, &mut Nothing).is_err(), "it was closed");
        });
        let stands = accepted.first();
        handle.close();
        assert!(stands.is_ok() && begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    });
}

/// A feed that has nothing yet.
struct Nothing;

impl UdpFeed for Nothing {
    type Bytes = Vec<u8>;

    fn next(&mut self) -> FeedNext<Vec<u8>> {
        FeedNext::NotNow
    }

    fn is_over(&mut self) -> bool {
        false
    }

    fn sent(&mut self, _serial: u32, _header: &Piece, _digest: Digest) {}

    fn whole(&mut self, _serial: u32, _unit: UdpUnit<Vec<u8>>, _digest: Digest) {}

    fn observe(&mut self, _now: Timestamp, _sample: &UdpSample) {}
}
