//! Measures a native UDP lane alone: from this process's memory to another's, without sessions and
//! disks. Each process is one end.
//!
//! In: a control connection, whose keys the lane takes, and an [`UdpRun`] that both ends agree on.
//! Out: an [`UdpReport`] of this end. Payload is noise that is sent over and over, hashed at both
//! ends, and each digest is compared.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::digest::Digest;

use longhaul_core::{Attempt, Blame, ChunkIndex, ChunkSize, DigestKind, Fault, FaultCode, FileId, LaneId, Unit};
use longhaul_net::{Control, Knocks, Loss, Seat, UdpFigure};
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::sending::UdpSample;
use longhaul_proto::wire::data::Piece;
use longhaul_sys::{SharedSlot, Slab, Slot};

use crate::cpu::{Stage, StageTimes};
use crate::lanes::udp::desk::{Desk, UdpSessions};
use crate::lanes::udp::join::{UdpOrder, UdpTerms, dial};
use crate::lanes::udp::receive::{self, UdpArrival, UdpReceiveMeans, UdpSink};
use crate::lanes::udp::send::{self, UdpSendMeans};
use crate::lanes::udp::units::{FeedNext, UdpFeed, UdpUnit};
use crate::lanes::worker::pacer::Pacer;
use crate::lanes::worker::pulse::Pulse;

/// One measurement, as both ends must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRun {
    /// Units that are moved.
    pub units: u32,
    /// The length of each: a chunk.
    pub chunk: ChunkSize,
    /// Chunks that may be on their way or wait for their repairs. Half of a session's memory.
    pub window: u32,
    /// The rate of the payload and its headers, bytes/s. `None` for no rate.
    pub rate: Option<u64>,
}

/// One end's view of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UdpReport {
    /// Payload that was moved, bytes.
    pub bytes: u64,
    /// From the first unit to the last.
    pub seconds: f64,
    /// CPU seconds of hashing, in the lane's thread.
    pub hash_cpu_s: f64,
    /// CPU seconds of the lane's thread, hashing included.
    pub cpu_s: f64,
    /// Payload that was sent again, bytes.
    pub resent: u64,
    /// Packets that were lost, as the sender found.
    pub lost: u64,
    /// Datagrams that came and that the receiver's socket had no room for.
    pub dropped: u64,
    /// The smoothed round trip at the end. 0 at the receiver.
    pub round_trip: Duration,
    /// UDP payload of a full datagram, bytes.
    pub datagram_bytes: u64,
}

/// Sends to the other end, which runs [`receive_over_udp`] at the port `to`.
///
/// # Errors
/// A [`Fault`]: no join, a lane that broke, no memory.
pub fn send_over_udp(control: &Control, to: SocketAddr, run: UdpRun) -> Result<UdpReport, Fault> {
    let order = UdpOrder { to, local: None, id: LaneId(0), admit: 0 };
    let joined = dial(&order, &UdpTerms::of(control))?;
    let (handle, times) = (joined.lane.handle.clone(), StageTimes::default());
    let (pacer, pulse) = (Pacer::new(run.rate), Pulse::default());
    let mut feed =
        Noise { run, next: 0, payload: noise(run.chunk)?, in_hand: 0, moved: 0, lost: 0, began: None, ended: None };
    let before = thread_cpu_s();
    let means = UdpSendMeans { pacer: &pacer, times: &times, pulse: &pulse, path: None, patience: send::SILENT_MOST };
    send::run(joined, control.rtt, means, &mut feed).map_err(|(fault, _)| fault)?;
    let ends = feed.began.zip(feed.ended);
    Ok(UdpReport {
        bytes: feed.moved,
        seconds: ends.map_or(0.0, |(began, ended)| (ended - began).as_secs_f64()),
        hash_cpu_s: times.of(Stage::Hash),
        cpu_s: thread_cpu_s() - before,
        resent: handle.get(UdpFigure::Resent),
        lost: feed.lost,
        dropped: 0,
        round_trip: Duration::from_micros(handle.get(UdpFigure::RttUs)),
        datagram_bytes: handle.get(UdpFigure::DatagramBytes),
    })
}

/// Receives from the other end, which runs [`send_over_udp`], and compares all digests.
///
/// # Errors
/// A [`Fault`]: nobody joined within 10 s, a lane that broke, a digest that is wrong, no memory.
pub async fn receive_over_udp(control: &Control, mut knocks: Knocks, run: UdpRun) -> Result<UdpReport, Fault> {
    let slab = slab(run.chunk, run.window)?;
    let sessions = OneLane { terms: UdpTerms::of(control), slab: slab.clone() };
    let (mut desk, deadline) = (Desk::new(Instant::now()), Duration::from_secs(JOIN_SECONDS));
    let accepted = loop {
        let knock = tokio::time::timeout(deadline, knocks.next()).await.ok().flatten();
        let knock = knock.ok_or_else(|| failed(FaultCode::TimedOut, "nobody joined a UDP lane"))?;
        if let Some(accepted) = desk.hear(&knock, &knocks, &sessions) {
            break accepted?;
        }
    };
    let round_trip = control.rtt;
    let received = tokio::task::spawn_blocking(move || {
        let (handle, times, pulse) = (accepted.handle(), StageTimes::default(), Pulse::default());
        let joined = accepted.first()?;
        let slot_bytes = slab.slot_bytes();
        let mut sink = Void { slab, run, moved: 0, wrong: 0, began: None, ended: None };
        let means = UdpReceiveMeans { times: &times, pulse: &pulse, slot_bytes };
        let before = thread_cpu_s();
        let (landed, result) = receive::run(joined, round_trip, means, &mut sink);
        result?;
        if sink.wrong > 0 || landed.below != run.units {
            let said = format!("{} of {} units came, {} of them wrong", landed.below, run.units, sink.wrong);
            return Err(failed(FaultCode::Mismatch, &said));
        }
        let ends = sink.began.zip(sink.ended);
        Ok(UdpReport {
            bytes: sink.moved,
            seconds: ends.map_or(0.0, |(began, ended)| (ended - began).as_secs_f64()),
            hash_cpu_s: times.of(Stage::Hash),
            cpu_s: thread_cpu_s() - before,
            dropped: handle.get(UdpFigure::Dropped),
            ..UdpReport::default()
        })
    });
    received.await.map_err(|e| failed(FaultCode::Internal, &e.to_string()))?
}

/// Units of one content.
struct Noise {
    run: UdpRun,
    next: u32,
    payload: SharedSlot,
    /// Units that are not whole at the receiver: this end's memory is bounded as well.
    in_hand: u32,
    moved: u64,
    lost: u64,
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl UdpFeed for Noise {
    type Bytes = SharedSlot;

    fn next(&mut self) -> FeedNext<SharedSlot> {
        if self.next == self.run.units {
            return FeedNext::Over;
        }
        if self.in_hand == self.run.window {
            return FeedNext::NotNow;
        }
        self.in_hand += 1;
        self.began.get_or_insert_with(Instant::now);
        let bytes = self.run.chunk.bytes();
        let header = Piece {
            unit: Unit::Chunk { file: FileId(0), index: ChunkIndex(self.next.into()) },
            attempt: Attempt::FIRST,
            offset: 0,
            len: bytes,
            unit_len: bytes,
            chunk: self.run.chunk,
            digest: DigestKind::Cv,
            hole: false,
            same: false,
            trailer: true,
        };
        self.next += 1;
        FeedNext::Unit(UdpUnit { header, bytes: Some(self.payload.clone()), digest: None })
    }

    fn is_over(&mut self) -> bool {
        self.next == self.run.units
    }

    fn whole(&mut self, _serial: u32, unit: UdpUnit<SharedSlot>, _digest: Digest) {
        self.in_hand -= 1;
        self.moved += unit.header.unit_len;
        self.ended = Some(Instant::now());
    }

    fn sent(&mut self, _serial: u32, _header: &Piece, _digest: Digest) {}

    fn observe(&mut self, _now: Timestamp, sample: &UdpSample) {
        self.lost += u64::from(sample.lost);
    }
}

/// Where slots are given back at once.
struct Void {
    slab: Arc<Slab>,
    run: UdpRun,
    moved: u64,
    wrong: u64,
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl UdpSink for Void {
    fn claim(&mut self) -> Option<Slot> {
        self.slab.try_claim()
    }

    fn window(&self) -> u32 {
        self.run.window
    }

    fn deliver(&mut self, arrival: UdpArrival) {
        let now = Instant::now();
        self.began.get_or_insert(now);
        self.ended = Some(now);
        let is_right = arrival.computed.is_some_and(|computed| *computed.bytes() == arrival.declared);
        let index = ChunkIndex(arrival.serial.into());
        let is_next = matches!(arrival.header.unit, Unit::Chunk { index: said, .. } if said == index);
        let is_full = arrival.slot.is_some() && arrival.header.unit_len == self.run.chunk.bytes();
        self.wrong += u64::from(!(is_right && is_next && is_full));
        self.moved += arrival.header.unit_len;
    }
}

/// A table of one session with one lane.
struct OneLane {
    terms: UdpTerms,
    slab: Arc<Slab>,
}

impl UdpSessions for OneLane {
    fn terms(&self, session: &[u8; 16], lane: LaneId) -> Option<UdpTerms> {
        (*session == self.terms.session && lane == LaneId(0)).then(|| self.terms.clone())
    }

    fn enter(&self, _session: &[u8; 16]) -> Option<(Seat, Loss)> {
        None
    }

    fn take(&self, _session: &[u8; 16], _lane: LaneId) -> Option<Vec<Slot>> {
        Some(std::iter::from_fn(|| self.slab.try_claim()).collect())
    }
}

fn slab(chunk: ChunkSize, slots: u32) -> Result<Arc<Slab>, Fault> {
    let slot_bytes = usize::try_from(chunk.bytes()).unwrap_or(usize::MAX);
    Slab::new(slot_bytes, slots as usize).map_err(|e| failed(FaultCode::Unsupported, &format!("no memory: {e}")))
}

fn noise(chunk: ChunkSize) -> Result<SharedSlot, Fault> {
    let slab = slab(chunk, 1)?;
    let mut slot = slab.try_claim().ok_or_else(|| failed(FaultCode::Internal, "no slot"))?;
    getrandom::fill(&mut slot).map_err(|e| failed(FaultCode::Internal, &e.to_string()))?;
    Ok(slot.share())
}

fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn failed(code: FaultCode, said: &str) -> Fault {
    Fault::new(code, Blame::Local, said)
}

/// The time for the other end to join.
const JOIN_SECONDS: u64 = 10;
