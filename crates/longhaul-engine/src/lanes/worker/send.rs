//! Owns a sending lane's thread: it takes filled slots from the one queue of its session, hashes
//! and sends them.
//!
//! In: [`Ready`] from `session/source.rs`. Out: a report of each sent unit to the session loop, and
//! at the end the unit that it had in hand. A fast lane takes more. It knows no files and no
//! messages.

use std::time::Duration;

use crossbeam_channel::{Receiver, select};
use longhaul_core::digest::{ChunkHasher, Digest};
use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_core::{
    Algorithms, Attempt, Blame, ChunkSize, DigestKind, Fault, FaultCode, FileOffset, PartSums, Unit, hint,
};
use longhaul_net::{LaneStream, More, NetError, Protection, UnitPart};
use longhaul_proto::sender::{Sent, Unfinished};
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_sys::Slot;

use super::PIECE_BYTES;
use super::hashing::{digest_zeros, hash_bytes};
use super::hole_costs::HoleCosts;
use super::pacer::Pacer;
use super::pulse::Pulse;
use super::zeros::ZeroChunk;
use crate::cpu::{Stage, StageTimes};
use crate::faults::lane_fault;
use crate::lanes::StreamLane;
use crate::lanes::join::hear_taken;

/// A unit that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Its chunk or bundle.
    pub(crate) unit: Unit,
    /// The number of this sending.
    pub(crate) attempt: Attempt,
    /// Its bytes.
    pub(crate) payload: UnitPayload,
    /// Its length, bytes.
    pub(crate) len: u64,
    /// The digest of the chunk that the receiver holds. If the chunk still has it, no payload is
    /// sent. `None` if it holds none.
    pub(crate) expect: Option<Digest>,
    /// The kind of its digest, and its place in the digest tree.
    pub(crate) digest: DigestKind,
    pub(crate) start: FileOffset,
    pub(crate) chunk: ChunkSize,
}

/// The place of a unit's bytes.
#[derive(Debug)]
pub(crate) enum UnitPayload {
    Slot(Slot),
    Hole,
}

/// The means of a sending lane's thread.
pub(crate) struct SendFeed<'a> {
    /// Units to send. When it is closed the lane is done.
    pub(crate) queue: &'a Receiver<Ready>,
    /// Says that the lane shall end in order; closed when the lane is given up.
    pub(crate) quit: &'a Receiver<()>,
    /// Says when the lane may send.
    pub(crate) pacer: &'a Pacer,
    /// Where CPU time is counted.
    pub(crate) times: &'a StageTimes,
    /// Its signs of life.
    pub(crate) pulse: &'a Pulse,
    /// Further checksums that are computed of chunks as they are sent.
    pub(crate) sums: Algorithms,
    /// How holes count.
    pub(crate) holes: &'a HoleCosts,
}

impl Ready {
    /// The same chunk, if it has nothing but zeros.
    pub(in crate::lanes) fn zeros(&self) -> ZeroChunk {
        ZeroChunk { kind: self.digest, start: self.start, len: self.len }
    }
}

impl SendFeed<'_> {
    /// The digest of a chunk that lies in a hole, for which the lane waits as holes count.
    pub(in crate::lanes) fn digest_hole(&self, chunk: ZeroChunk) -> Digest {
        self.holes.pay(chunk.len, self.pacer, self.pulse);
        digest_zeros(chunk, self.holes.permit(), (self.times, self.pulse))
    }
}

/// Sends units until the queue or `quit` ends, then tells the other end that the lane is done.
///
/// # Errors
/// A [`Fault`] when the lane breaks, with the unit that it had in hand.
pub(crate) fn run(
    StreamLane { id: lane, mut stream, taken }: StreamLane,
    source: &SendFeed<'_>,
    report: impl Fn(Sent, Option<PartSums>),
) -> Result<(), (Fault, Option<Unfinished>)> {
    let declared = stream.protection() == Protection::Private;
    for seq in 0.. {
        let ready = select! {
            recv(source.queue) -> ready => ready.ok(),
            recv(source.quit) -> word => match word {
                Ok(()) => None,
                Err(_) => return Err((given_up(), None)),
            },
        };
        let Some(ready) = ready else { break };
        let Ready { unit, attempt, len: unit_len, .. } = ready;
        source.pulse.begin_sending(ready.len, attempt);
        let (digest, sums, len) = send_unit(&mut stream, &ready, declared, source)
            .map_err(|e| (lane_fault(&e), Some(Unfinished { unit, attempt })))?;
        source.pulse.done();
        report(Sent { unit, attempt, digest, len, unit_len, lane, seq, declared }, sums);
    }
    end(&mut stream, taken).map_err(|e| (lane_fault(&e), None))
}

/// Ends a lane in order. That is of use only where the other end has taken it: of a lane that was
/// turned away nobody would ever report what arrived.
fn end(stream: &mut LaneStream, taken: bool) -> Result<(), NetError> {
    stream.send(&[&Header::End.encode()])?;
    if !taken {
        stream.set_deadline(Some(Duration::from_secs(HANDSHAKE_SECONDS_MAX)))?;
        hear_taken(stream)?;
    }
    stream.finish();
    Ok(())
}

fn given_up() -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, "a lane was given up").hint(hint::Again::Now)
}

/// Sends a unit. Returns its digest, the further checksums that are wanted of it, and the payload
/// bytes that it took.
fn send_unit(
    stream: &mut LaneStream,
    ready: &Ready,
    trailer: bool,
    feed: &SendFeed<'_>,
) -> Result<(Digest, Option<PartSums>, u64), NetError> {
    let SendFeed { times, pulse, pacer, sums, .. } = feed;
    let wanted = if matches!(ready.unit, Unit::Chunk { .. }) { *sums } else { Algorithms::NONE };
    let same = ready.expect.is_some_and(|expect| is_same(ready, expect, times, pulse));
    let mut hasher = ChunkHasher::new(ready.digest, ready.start).summing(wanted);
    let payload = match &ready.payload {
        UnitPayload::Slot(slot) if !same => &slot[..ready.len as usize],
        _ => &[],
    };
    let header = Header::Piece(Piece {
        unit: ready.unit,
        attempt: ready.attempt,
        offset: 0,
        len: payload.len() as u64,
        unit_len: ready.len,
        chunk: ready.chunk,
        digest: ready.digest,
        hole: !same && matches!(ready.payload, UnitPayload::Hole),
        same,
        trailer,
    })
    .encode();
    // A chunk without bytes is hashed as zeros, and its checksums follow from its length.
    let zeros = (payload.is_empty() && !same).then(|| feed.digest_hole(ready.zeros()));
    let (mut head, mut offset) = (&header[..], 0);
    for piece in payload.chunks(PIECE_BYTES) {
        times.count(Stage::Hash, || hasher.update(piece));
        let mut rest = piece;
        while !rest.is_empty() {
            let (grain, behind) = rest.split_at(pulse.paced(pacer, rest.len()).clamp(1, rest.len()));
            rest = behind;
            let is_last = offset + grain.len() == payload.len() && !trailer;
            let more = if is_last { More::No } else { More::Follows };
            let part = UnitPart { header: head, offset, payload: grain, trailer: &[], more };
            times.count(Stage::Net, || stream.send_part(&part))?;
            pulse.beat();
            pulse.carried(grain.len());
            offset += grain.len();
            head = &[];
        }
    }
    let sums = match zeros {
        Some(_) => hasher.sums().map(|sums| PartSums::of_zeros(sums.wanted(), ready.len)),
        None => hasher.sums().filter(|_| !same),
    };
    let digest = zeros.or(ready.expect.filter(|_| same)).unwrap_or_else(|| hasher.finish());
    let tail = if trailer { &digest.bytes()[..] } else { &[] };
    if !(head.is_empty() && tail.is_empty()) {
        let last = UnitPart { header: head, offset, payload: &[], trailer: tail, more: More::No };
        times.count(Stage::Net, || stream.send_part(&last))?;
    }
    Ok((digest, sums, payload.len() as u64))
}

/// Whether a chunk still is the one that the receiver holds. It is hashed before any of it is sent.
pub(in crate::lanes) fn is_same(ready: &Ready, expect: Digest, times: &StageTimes, pulse: &Pulse) -> bool {
    let mut hasher = ChunkHasher::new(ready.digest, ready.start);
    match &ready.payload {
        UnitPayload::Slot(slot) => hash_bytes(&mut hasher, &slot[..ready.len as usize], times, pulse),
        UnitPayload::Hole => return digest_zeros(ready.zeros(), None, (times, pulse)) == expect,
    }
    hasher.finish() == expect
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crossbeam_channel::{bounded, unbounded};
    use longhaul_core::LaneId;
    use longhaul_proto::wire::data::HEADER_BYTES;

    use super::*;
    use crate::lanes::join::confirm;

    /// How a lane with nothing to send ends, where the other end runs `other_end`.
    fn ended(taken: bool, other_end: impl FnOnce(LaneStream) + Send) -> Result<(), FaultCode> {
        let (stream, other) = LaneStream::pair().expect("a pair");
        thread::scope(|scope| {
            scope.spawn(|| other_end(other));
            let (units, queue) = unbounded();
            drop(units);
            let (_quit, quit) = bounded(1);
            let (pacer, times, pulse) = (Pacer::new(None), StageTimes::default(), Pulse::default());
            let source = SendFeed {
                queue: &queue,
                quit: &quit,
                pacer: &pacer,
                times: &times,
                pulse: &pulse,
                sums: Algorithms::NONE,
                holes: &HoleCosts::default(),
            };
            run(StreamLane { id: LaneId(0), stream, taken }, &source, |_, _| {}).map_err(|(fault, _)| fault.code)
        })
    }

    fn hear_end(stream: &mut LaneStream) {
        stream.recv_exact(&mut [0; HEADER_BYTES]).expect("the end of a lane");
    }

    #[test]
    fn a_lane_ends_in_order_only_where_the_other_end_has_taken_it() {
        assert_eq!(ended(true, |mut other| hear_end(&mut other)), Ok(()));
        // Nobody heard what was sent on the lane. That must be a loss, or its units would be waited
        // for.
        assert_eq!(ended(false, |mut other| hear_end(&mut other)), Err(FaultCode::Lost));
        let takes_late = |mut other: LaneStream| {
            hear_end(&mut other);
            confirm(&mut other).expect("a word");
        };
        assert_eq!(ended(false, takes_late), Ok(()));
    }
}
