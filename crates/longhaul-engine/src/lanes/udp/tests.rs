//! Whole lanes over the sockets of this host, also through a relay that loses, copies, changes and
//! delays datagrams.

mod early;
mod hostile;
mod late;
mod seats;
mod small_buffer;
mod standing;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{Attempt, ChunkIndex, ChunkSize, DigestKind, Fault, FaultCode, FileId, FileOffset, Unit};
use longhaul_net::{UdpFigure, UdpHandle};
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::wire::data::Piece;
use longhaul_sys::{Slab, Slot};

use super::accepted::AcceptedUdp;
use super::desk::tests::{PATIENCE, World};
use super::join::JoinedUdp;
use super::receive::{self, UdpArrival, UdpLanded, UdpReceiveMeans, UdpSink};
use super::send::{self, UdpSendMeans};
use super::units::{FeedNext, UdpFeed, UdpUnit};
use crate::cpu::StageTimes;
use crate::lanes::worker::pacer::Pacer;
use crate::lanes::worker::pulse::Pulse;

const CHUNK: u64 = 1 << 20;
/// Slots of a receiver.
const WINDOW: u32 = 4;

/// Units of a test, all of which are remembered until they are whole.
struct Units {
    left: Vec<UdpUnit<Vec<u8>>>,
    sent: Vec<u32>,
    settled: Vec<u32>,
    samples: u32,
    /// Packets that the receiver counted as wrong.
    wrong: u32,
}

impl UdpFeed for Units {
    type Bytes = Vec<u8>;

    fn next(&mut self) -> FeedNext<Vec<u8>> {
        self.left.pop().map_or(FeedNext::Over, FeedNext::Unit)
    }

    fn is_over(&mut self) -> bool {
        self.left.is_empty()
    }

    fn sent(&mut self, serial: u32, _header: &Piece, _digest: Digest) {
        assert!(!self.settled.contains(&serial), "{serial} was whole before it was sent");
        self.sent.push(serial);
    }

    fn whole(&mut self, serial: u32, unit: UdpUnit<Vec<u8>>, digest: Digest) {
        let bytes = unit.bytes.unwrap_or_else(|| vec![0; unit.header.unit_len as usize]);
        assert_eq!(digest, digest_of(&bytes, unit.header.digest, start(&unit.header)), "{serial}");
        self.settled.push(serial);
    }

    fn observe(&mut self, _now: Timestamp, sample: &UdpSample) {
        self.samples += 1;
        self.wrong = sample.counts.wrong;
    }
}

/// Units as they come, and the slab of their slots.
struct Came {
    slab: Arc<Slab>,
    units: Vec<(u32, Piece, Option<Vec<u8>>)>,
}

impl UdpSink for Came {
    fn claim(&mut self) -> Option<Slot> {
        self.slab.try_claim()
    }

    fn window(&self) -> u32 {
        WINDOW
    }

    fn deliver(&mut self, arrival: UdpArrival) {
        let bytes = arrival.slot.map(|slot| slot[..arrival.header.unit_len as usize].to_vec());
        if let Some(bytes) = &bytes {
            let want = digest_of(bytes, arrival.header.digest, start(&arrival.header));
            assert_eq!((arrival.computed, arrival.declared), (Some(want), *want.bytes()), "{}", arrival.serial);
        } else {
            assert_eq!(arrival.computed, None);
        }
        self.units.push((arrival.serial, arrival.header, bytes));
    }
}

fn start(header: &Piece) -> FileOffset {
    match header.unit {
        Unit::Chunk { index, .. } => index.start(header.chunk),
        Unit::Bundle(_) => FileOffset(0),
    }
}

fn chunk() -> ChunkSize {
    ChunkSize::from_bytes(CHUNK).expect("a power of two")
}

/// The chunk at `index`, of this length. No two have the same bytes.
fn unit(index: u64, len: u64) -> UdpUnit<Vec<u8>> {
    let bytes = (0..len).map(|at| (at.wrapping_mul(2_654_435_761 + index) >> 11) as u8).collect();
    UdpUnit { header: header(index, len), bytes: Some(bytes), digest: None }
}

/// A hole of a chunk.
fn hole(index: u64) -> UdpUnit<Vec<u8>> {
    let header = Piece { hole: true, len: 0, ..header(index, CHUNK) };
    let digest = digest_of(&vec![0; CHUNK as usize], header.digest, start(&header));
    UdpUnit { header, bytes: None, digest: Some(digest) }
}

fn header(index: u64, len: u64) -> Piece {
    Piece {
        unit: Unit::Chunk { file: FileId(9), index: ChunkIndex(index) },
        attempt: Attempt::FIRST,
        offset: 0,
        len,
        unit_len: len,
        chunk: chunk(),
        digest: DigestKind::Cv,
        hole: false,
        same: false,
        trailer: true,
    }
}

/// An end of a lane that is about to stand.
enum End {
    Dialled(Box<JoinedUdp>),
    Accepted(Box<AcceptedUdp>),
}

impl End {
    fn handle(&self) -> UdpHandle {
        match self {
            End::Dialled(joined) => joined.lane.handle.clone(),
            End::Accepted(accepted) => accepted.handle(),
        }
    }

    fn stand(self) -> JoinedUdp {
        match self {
            End::Dialled(joined) => *joined,
            End::Accepted(accepted) => accepted.first().unwrap_or_else(|e| panic!("{e:?}")),
        }
    }
}

/// A lane with the slots that its end has promised in the join, which it may have said alone.
fn promising(mut joined: JoinedUdp, slab: &Arc<Slab>) -> JoinedUdp {
    if joined.claimed.is_empty() {
        joined.claimed = (0..WINDOW).map_while(|_| slab.try_claim()).collect();
    }
    joined.round_trip = OF_JOIN;
    joined
}

/// The round trip of a join.
const OF_JOIN: Duration = Duration::from_millis(7);

/// The end of a lane, as both ends saw it.
struct Ended {
    sent: Result<(), (FaultCode, usize)>,
    reported: Vec<u32>,
    settled: Vec<u32>,
    resent: u64,
    /// The round trip that the receiver's end has.
    round_trip: Duration,
    landed: UdpLanded,
    received: Result<(), Fault>,
    came: Vec<(u32, Piece, Option<Vec<u8>>)>,
    forged: u64,
    /// Packets that the receiver counted as wrong, and joins that came to it again.
    wrong: u32,
    joined_again: u64,
}

/// Which end sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Push,
    Pull,
}

/// Moves units over a lane, at a rate. `meanwhile` gets the handles of the ends that send and
/// receive.
fn carry(
    way: Way,
    (dialled, accepted): (JoinedUdp, AcceptedUdp),
    mut units: Vec<UdpUnit<Vec<u8>>>,
    rate: Option<u64>,
    meanwhile: impl FnOnce(&UdpHandle, &UdpHandle),
) -> Ended {
    let slab = Slab::new(CHUNK as usize, WINDOW as usize).expect("memory");
    let (dialled, accepted) = (End::Dialled(Box::new(dialled)), End::Accepted(Box::new(accepted)));
    let (sender, receiver) = if way == Way::Push { (dialled, accepted) } else { (accepted, dialled) };
    let (of_sender, of_receiver) = (sender.handle(), receiver.handle());
    units.reverse();
    let (pacer, times) = (Pacer::new(rate), StageTimes::default());
    let mut feed = Units { left: units, sent: Vec::new(), settled: Vec::new(), samples: 0, wrong: 0 };
    let mut came = Came { slab, units: Vec::new() };
    let (sent, (landed, received)) = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (times, pulse) = (StageTimes::default(), Pulse::default());
            let means = UdpReceiveMeans { times: &times, pulse: &pulse, slot_bytes: CHUNK as usize };
            receive::run(promising(receiver.stand(), &came.slab), Duration::ZERO, means, &mut came)
        });
        let sending = scope.spawn(|| {
            let pulse = Pulse::default();
            let means = UdpSendMeans { pacer: &pacer, times: &times, pulse: &pulse, path: None, patience: PATIENCE };
            send::run(sender.stand(), Duration::ZERO, means, &mut feed)
        });
        meanwhile(&of_sender, &of_receiver);
        (sending.join().expect("no panic"), receiving.join().expect("no panic"))
    });
    Ended {
        sent: sent.map_err(|(fault, units)| (fault.code, units.len())),
        reported: feed.sent,
        settled: feed.settled,
        resent: of_sender.get(UdpFigure::Resent),
        round_trip: Duration::from_micros(of_receiver.get(UdpFigure::RttMinUs)),
        landed,
        received,
        came: came.units,
        forged: of_receiver.get(UdpFigure::Forged),
        wrong: feed.wrong,
        joined_again: of_receiver.get(UdpFigure::JoinedAgain),
    }
}

/// Both ends did what they should with these units, in whatever order.
fn check(ended: &Ended, units: &[UdpUnit<Vec<u8>>]) {
    assert_eq!(ended.sent, Ok(()));
    assert!(ended.received.is_ok(), "{:?}", ended.received);
    assert_eq!(ended.round_trip, OF_JOIN, "a receiver measures none of its own");
    let count = units.len() as u32;
    assert_eq!(ended.landed, UdpLanded { below: count, beyond: Vec::new() });
    let mut reported = ended.reported.clone();
    reported.sort_unstable();
    assert_eq!(reported, (0..count).collect::<Vec<_>>(), "each is reported once");
    let mut settled = ended.settled.clone();
    settled.sort_unstable();
    assert_eq!(settled, (0..count).collect::<Vec<_>>(), "each is settled once");
    let mut came: Vec<_> = ended.came.iter().collect();
    came.sort_unstable_by_key(|(serial, ..)| *serial);
    assert_eq!(came.len(), units.len(), "each is delivered once");
    for ((serial, header, bytes), unit) in came.into_iter().zip(units) {
        assert_eq!((header, bytes), (&unit.header, &unit.bytes), "{serial}");
    }
}

fn mixture(count: u64) -> Vec<UdpUnit<Vec<u8>>> {
    (0..count)
        .map(|index| match index % 5 {
            1 => hole(index),
            2 => unit(index, 1),
            3 => unit(index, 4096 + index),
            _ => unit(index, CHUNK),
        })
        .collect()
}

/// Takes a datagram on that came from this address.
type Onward = Box<dyn FnMut(&[u8], SocketAddr) + Send>;

/// A relay between a dialler and a port.
struct Relay {
    addr: SocketAddr,
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Relay {
    /// `fate`: the fate of a datagram, of which this is the number in its direction.
    fn to(port: SocketAddr, fate: impl Fn(u64, &[u8]) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Relay {
        let fate = Arc::new(fate);
        let (near, far) = (Arc::new(bound()), Arc::new(bound()));
        far.connect(port).expect("connected");
        let (addr, over) = (near.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
        let dialler = Arc::new(Mutex::new(None));
        let pass = |from: &Arc<UdpSocket>, mut on: Onward| {
            let (from, over, fate) = (from.clone(), over.clone(), fate.clone());
            thread::spawn(move || {
                let (mut number, mut datagram) = (0, vec![0; 65_536]);
                while !over.load(Ordering::Relaxed) {
                    let Ok((len, sender)) = from.recv_from(&mut datagram) else { continue };
                    number += 1;
                    fate(number, &datagram[..len]).iter().for_each(|datagram| on(datagram, sender));
                }
            })
        };
        let (known, to) = (dialler.clone(), far.clone());
        let there = pass(
            &near,
            Box::new(move |datagram, sender| {
                *known.lock().expect("sound") = Some(sender);
                let _ = to.send(datagram);
            }),
        );
        let to = near.clone();
        let back = pass(
            &far,
            Box::new(move |datagram, _| {
                let dialler = *dialler.lock().expect("sound");
                let _ = dialler.map(|dialler| to.send_to(datagram, dialler));
            }),
        );
        Relay { addr, over, threads: vec![there, back] }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("taken");
    socket
}

#[test]
fn units_of_all_kinds_come_whole_through_fewer_slots() {
    for way in [Way::Push, Way::Pull] {
        let mut world = World::new();
        let units = || mixture(23);
        let ended = carry(way, world.lane(None), units(), None, |_, _| {});
        check(&ended, &units());
        assert_eq!(ended.forged, 0);
    }
}

#[test]
fn an_empty_lane_ends_in_order() {
    let mut world = World::new();
    check(&carry(Way::Push, world.lane(None), Vec::new(), None, |_, _| {}), &[]);
}

#[test]
fn what_is_lost_copied_changed_or_made_up_on_the_way_comes_whole_all_the_same() {
    let mut world = World::new();
    let relay = Relay::to(world.addr, |number, datagram| {
        let mut changed = datagram.to_vec();
        let at = (number as usize).wrapping_mul(7919) % changed.len();
        changed[at] ^= 0x20;
        // The join is not what is tried here.
        match number {
            0..4 => vec![datagram.to_vec()],
            _ if number % 13 == 0 => vec![],
            _ if number % 17 == 0 => vec![datagram.to_vec(), datagram.to_vec()],
            // First the forged one, in the place of the true one.
            _ if number % 19 == 0 => vec![changed, datagram.to_vec()],
            _ => vec![datagram.to_vec()],
        }
    });
    let units = || mixture(12);
    let ended = carry(Way::Push, world.lane(Some(relay.addr)), units(), Some(20_000_000), |_, _| {});
    check(&ended, &units());
    assert!(ended.resent > 0 && ended.forged > 0, "{} resent, {} forged", ended.resent, ended.forged);
}

#[test]
fn a_lane_keeps_its_rate() {
    let mut world = World::new();
    let units = || (0..4).map(|index| unit(index, CHUNK)).collect::<Vec<_>>();
    let begun = Instant::now();
    let ended = carry(Way::Push, world.lane(None), units(), Some(10_000_000), |_, _| {});
    check(&ended, &units());
    assert!(begun.elapsed() > Duration::from_millis(370), "{:?}", begun.elapsed());
}

#[test]
fn a_lane_that_either_end_closes_gives_back_what_was_in_hand() {
    for is_sender in [true, false] {
        let mut world = World::new();
        let units: Vec<_> = (0..8).map(|index| unit(index, CHUNK)).collect();
        // So slow that nothing of a chunk is whole.
        let ended = carry(Way::Push, world.lane(None), units, Some(1_000_000), |sender, receiver| {
            let begun = Instant::now();
            while receiver.get(UdpFigure::Received) < 100_000 && begun.elapsed() < PATIENCE {
                thread::yield_now();
            }
            let closes = if is_sender { sender } else { receiver };
            closes.close();
            if !is_sender {
                // What the other end hears of it by itself takes 20 s; the session says it sooner.
                sender.close();
            } else {
                receiver.close();
            }
        });
        let (_, in_hand) = ended.sent.expect_err("it was closed");
        assert!((1..=2).contains(&in_hand) && ended.settled.is_empty(), "{in_hand}");
        assert!(ended.received.is_err() && ended.landed.below == 0);
    }
}
