//! A sending lane's thread: takes filled slots from the one queue of its session, hashes and sends them.
//!
//! In: [`Ready`] from `source`. Out: a report of each sent unit to the session loop. A fast lane takes more.

use crossbeam_channel::Receiver;
use longhaul_core::digest::{ChunkHasher, Digest};
use longhaul_core::{Attempt, ChunkSize, DigestKind, Fault, FileOffset, LaneId, Unit};
use longhaul_net::{LaneStream, NetError, Protection};
use longhaul_proto::sender::Sent;
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_sys::Slot;

use super::PIECE_BYTES;
use crate::cpu::{Stage, StageTimes};
use crate::faults::lane_fault;

/// A unit that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Ready {
    /// What it is.
    pub(crate) unit: Unit,
    /// Which sending.
    pub(crate) attempt: Attempt,
    /// Its bytes: in a slot, or zeros of a hole.
    pub(crate) payload: Payload,
    /// Its length.
    pub(crate) len: u64,
    /// The receiver holds a chunk of this digest: if it is that still, no payload is sent.
    pub(crate) expect: Option<Digest>,
    /// What its digest is, and the place in the tree that it speaks of.
    pub(crate) digest: DigestKind,
    pub(crate) start: FileOffset,
    pub(crate) chunk: ChunkSize,
}

/// Where a unit's bytes are.
#[derive(Debug)]
pub(crate) enum Payload {
    Slot(Slot),
    Hole,
}

/// Sends units until the queue ends, then says so to the other end.
///
/// # Errors
/// A [`Fault`] when the lane breaks; what it was sending is lost.
pub(crate) fn run(
    mut stream: LaneStream,
    lane: LaneId,
    queue: &Receiver<Ready>,
    times: &StageTimes,
    report: impl Fn(Sent),
) -> Result<(), Fault> {
    for (seq, ready) in (0..).zip(queue.iter()) {
        let declared = stream.protection() == Protection::Private;
        let (digest, len) = send_unit(&mut stream, &ready, declared, times).map_err(|e| lane_fault(&e))?;
        report(Sent { unit: ready.unit, attempt: ready.attempt, digest, len, lane, seq, declared });
    }
    stream.send(&[&Header::End.encode()]).map_err(|e| lane_fault(&e))?;
    stream.finish();
    Ok(())
}

/// Sends a unit; gives its digest and the payload bytes that it took.
fn send_unit(
    stream: &mut LaneStream,
    ready: &Ready,
    trailer: bool,
    times: &StageTimes,
) -> Result<(Digest, u64), NetError> {
    let same = ready.expect.is_some_and(|expect| times.count(Stage::Hash, || is_same(ready, expect)));
    let mut hasher = ChunkHasher::new(ready.digest, ready.start);
    let payload = match &ready.payload {
        Payload::Slot(slot) if !same => &slot[..ready.len as usize],
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
        hole: !same && matches!(ready.payload, Payload::Hole),
        same,
        trailer,
    })
    .encode();
    if payload.is_empty() && !same {
        times.count(Stage::Hash, || hasher.update_zeros(ready.len));
    }
    let mut head = &header[..];
    let mut pieces = payload.chunks(PIECE_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        times.count(Stage::Hash, || hasher.update(piece));
        let more = trailer || pieces.peek().is_some();
        times
            .count(Stage::Net, || if more { stream.send_more(&[head, piece]) } else { stream.send(&[head, piece]) })?;
        head = &[];
    }
    let digest = if same { ready.expect.unwrap_or_else(|| hasher.finish()) } else { hasher.finish() };
    let tail = if trailer { &digest.bytes()[..] } else { &[] };
    if !(head.is_empty() && tail.is_empty()) {
        times.count(Stage::Net, || stream.send(&[head, tail]))?;
    }
    Ok((digest, payload.len() as u64))
}

/// Whether a chunk still is what the receiver holds: hashed before anything of it is sent.
fn is_same(ready: &Ready, expect: Digest) -> bool {
    let mut hasher = ChunkHasher::new(ready.digest, ready.start);
    match &ready.payload {
        Payload::Slot(slot) => hasher.update(&slot[..ready.len as usize]),
        Payload::Hole => hasher.update_zeros(ready.len),
    }
    hasher.finish() == expect
}
