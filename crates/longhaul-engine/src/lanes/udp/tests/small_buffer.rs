//! A lane whose receiver's system has little room for datagrams: what it drops is the host's doing
//! and not the path's.

use longhaul_core::{LaneId, PathShare};
use longhaul_proto::wire::message::Limit;

use super::*;
use crate::lanes::udp::path::UdpPath;

/// Chunks that are sent at most, and slots for them.
const CHUNKS_MOST: u64 = 400;
const SLOTS: u32 = 16;
/// Statuses that a sender hears after it was held to what the receiver takes.
const HELD_STATUSES: usize = 100;

/// Sends chunks until the path has been held to what its receiver takes for some time.
struct UntilHeld<'a> {
    path: &'a UdpPath,
    pacer: &'a Pacer,
    bytes: Vec<u8>,
    begun: u64,
    whole: u64,
    /// Bytes that came, by the time of each status.
    came: Vec<(Timestamp, u64)>,
    /// The rate of the path at each status while the receiver was what limits it.
    held: Vec<u64>,
    dropped: u32,
}

impl UdpFeed for UntilHeld<'_> {
    type Bytes = Vec<u8>;

    fn next(&mut self) -> FeedNext<Vec<u8>> {
        if self.is_over() {
            return FeedNext::Over;
        }
        self.begun += 1;
        FeedNext::Unit(UdpUnit { header: header(self.begun, CHUNK), bytes: Some(self.bytes.clone()), digest: None })
    }

    fn is_over(&mut self) -> bool {
        self.begun == CHUNKS_MOST || self.held.len() >= HELD_STATUSES
    }

    fn sent(&mut self, _serial: u32, _header: &Piece, _digest: Digest) {}

    fn whole(&mut self, _serial: u32, unit: UdpUnit<Vec<u8>>, digest: Digest) {
        assert_eq!(digest, digest_of(&self.bytes, unit.header.digest, start(&unit.header)));
        self.whole += 1;
    }

    fn observe(&mut self, now: Timestamp, sample: &UdpSample) {
        self.dropped = sample.counts.dropped;
        self.came.push((now, sample.counts.bytes));
        if self.path.limit() == Some(Limit::Receiver) {
            self.held.push(self.pacer.rate().expect("a path has a rate"));
        }
    }
}

impl UntilHeld<'_> {
    /// The most bytes/s that came in any tenth of a second.
    fn most(&self) -> f64 {
        let tenth = |(at, bytes): &(Timestamp, u64)| {
            let later = self.came.iter().find(|(later, _)| later.since(*at) >= Duration::from_millis(100))?;
            Some((later.1 - bytes) as f64 / later.0.since(*at).as_secs_f64())
        };
        self.came.iter().filter_map(tenth).fold(0.0, f64::max)
    }
}

/// Counts units, and gives their slots back.
struct Counted {
    slab: Arc<Slab>,
    units: u64,
}

impl UdpSink for Counted {
    fn claim(&mut self) -> Option<Slot> {
        self.slab.try_claim()
    }

    fn window(&self) -> u32 {
        SLOTS
    }

    fn deliver(&mut self, arrival: UdpArrival) {
        let slot = arrival.slot.expect("a chunk");
        let want = digest_of(&slot[..CHUNK as usize], arrival.header.digest, start(&arrival.header));
        assert_eq!(arrival.computed, Some(want), "{}", arrival.serial);
        self.units += 1;
    }
}

#[test]
fn drops_of_a_receiver_with_a_small_buffer_are_its_own_and_its_lane_is_held_to_what_it_takes() {
    let mut world = World::new();
    let (dialled, accepted) = world.lane(None);
    let handle = accepted.handle();
    let (path, pacer, times) = (UdpPath::new(PathShare::Fair), Pacer::new(None), StageTimes::default());
    let UdpUnit { bytes, .. } = unit(0, CHUNK);
    let mut feed = UntilHeld {
        path: &path,
        pacer: &pacer,
        bytes: bytes.expect("a chunk"),
        begun: 0,
        whole: 0,
        came: Vec::new(),
        held: Vec::new(),
        dropped: 0,
    };
    let slab = Slab::new(CHUNK as usize, SLOTS as usize).expect("memory");
    let mut sink = Counted { slab, units: 0 };
    let (sent, received) = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (times, pulse) = (StageTimes::default(), Pulse::default());
            let means = UdpReceiveMeans { times: &times, pulse: &pulse, slot_bytes: CHUNK as usize };
            let joined = promising(End::Accepted(Box::new(accepted)).stand(), &sink.slab);
            joined.lane.receive.set_buffer(BUFFER).expect("taken");
            receive::run(joined, Duration::ZERO, means, &mut sink).1
        });
        let pulse = Pulse::default();
        let means = UdpSendMeans { pacer: &pacer, times: &times, pulse: &pulse, path: Some(&path), patience: PATIENCE };
        let sent = send::run(dialled, Duration::from_millis(1), means, &mut feed).map_err(|(fault, _)| fault);
        (sent, receiving.join().expect("no panic"))
    });
    assert!(sent.is_ok() && received.is_ok(), "{sent:?} {received:?}");
    let dropped = handle.get(UdpFigure::Dropped);
    let context = format!(
        "{} chunks, {dropped} dropped, {} said, {:?}, at most {}, held to {:?}",
        feed.begun,
        feed.dropped,
        path.road(),
        feed.most(),
        feed.held.iter().min()
    );
    assert_eq!((feed.whole, sink.units), (feed.begun, feed.begun), "all is whole: {context}");
    assert!(dropped > 0 && feed.dropped > 0 && feed.held.len() >= HELD_STATUSES, "{context}");
    // None of it is a loss of the path.
    let (own, beyond) = (path.road().own_loss(), path.road().loss_beyond());
    assert!(own.is_some_and(|own| own < 0.01) && beyond.is_some_and(|beyond| beyond < BEYOND_MAX), "{context}");
    assert!(!path.is_broken(), "{context}");
    assert!(feed.held.iter().all(|rate| (*rate as f64) <= feed.most() * MEAN_TO_TENTH), "{context}");
    path.end(LaneId(0));
}

/// Bytes of the receive buffer: as good as none, so that what comes while the thread is at work is
/// dropped.
const BUFFER: usize = 2048;
/// The part of the packets that may pass for lost on the path: drops are counted by mean runs, and
/// some statuses of two thousand packets are off by 40. Were drops losses, it would be a third.
const BEYOND_MAX: f64 = 0.05;
/// A lane is held to a mean of a second, and tenths are seen between statuses, of which a busy host
/// has few.
const MEAN_TO_TENTH: f64 = 1.5;
