//! Owns the payload of arrivals until their verdict, and writes it: chunks into their temporaries,
//! files of a bundle under temporary names.
//!
//! In: arrivals, and the machine's verdict on each. Out: requests to the chunk I/O and jobs that
//! stage. It knows no lanes and no messages.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use longhaul_core::digest::Digest;
use longhaul_core::{ChunkIndex, Fault, FileId, PartSums};
use longhaul_disk::{ChunkIo, DiskError};
use longhaul_proto::receiver::{Created, EntryRef, Ticket};
use longhaul_sys::Slot;

use super::jobs::Pool;
use super::sums::{sums_of, with_sums};
use super::{DestinationDone, DestinationWorkers, begun, bug};
use crate::lanes::worker::receive::Arrival;

/// The payload that waits for its verdict, and the writes of chunks.
pub(super) struct ChunkWrites {
    io: ChunkIo,
    targets: usize,
    /// Held once by each write that is under way.
    under_way: Arc<()>,
    payload: HashMap<Ticket, ArrivedPayload>,
}

/// The payload of an arrival, kept until its verdict.
#[derive(Debug, Default)]
struct ArrivedPayload {
    /// The bytes. `None` for a hole.
    slot: Option<Slot>,
    /// The unit's length, bytes.
    len: usize,
    /// Whether it is a hole.
    hole: bool,
    /// The digest of a unit that is a chunk. `None`: it was not computed here.
    digest: Option<Digest>,
    /// The range of each file of a bundle in the bytes.
    rows: Vec<(FileId, Range<usize>)>,
    /// The further checksums of a unit that is a chunk. `None`: they were not computed here.
    sums: Option<PartSums>,
}

impl ChunkWrites {
    /// Writes through `io` to a tree on so many targets.
    pub(super) fn new(io: ChunkIo, targets: usize) -> ChunkWrites {
        ChunkWrites { io, targets: targets.max(1), under_way: Arc::default(), payload: HashMap::new() }
    }

    /// The number of writes that are under way.
    pub(super) fn under_way(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }

    /// The number of requests that the disks take at a time now.
    pub(super) fn depth(&self) -> usize {
        self.io.depth_now() * self.targets
    }

    /// The chunk I/O, for writes that are counted elsewhere.
    pub(super) fn io(&self) -> &ChunkIo {
        &self.io
    }
}

impl DestinationWorkers {
    /// Keeps an arrival's payload for the verdict that follows.
    pub(crate) fn hold_payload(&mut self, arrival: &mut Arrival) {
        let piece = &arrival.landed.piece;
        let (len, hole) = (piece.unit_len as usize, piece.hole);
        let digest = Some(arrival.landed.computed);
        let rows = std::mem::take(&mut arrival.rows);
        let sums = if hole { self.sums.of_hole(len as u64) } else { arrival.sums };
        let payload = ArrivedPayload { slot: arrival.slot.take(), len, hole, digest, rows, sums };
        self.chunks.payload.insert(arrival.landed.ticket, payload);
    }

    /// Gives a payload's buffer back.
    pub(crate) fn drop_payload(&mut self, ticket: Ticket) {
        self.chunks.payload.remove(&ticket);
    }

    /// Writes a verified chunk. A hole needs no write.
    pub(crate) fn write(&mut self, file: FileId, index: ChunkIndex, ticket: Ticket) {
        let (Some(ArrivedPayload { slot, len, hole, digest, sums, .. }), Some(open)) =
            (self.chunks.payload.remove(&ticket), self.files.get(file))
        else {
            let result = Err(bug("a verified chunk without its payload or file"));
            return self.jobs.reporter().say(DestinationDone::Write { file, index, result });
        };
        let (target, place) = (open.target().clone(), open.place(index));
        digest.into_iter().for_each(|digest| target.note_digest(index, digest));
        self.sums.note(file, index, sums);
        // Only the last chunk is shorter than the others: with it the end of a stream is known, and
        // its write may be padded.
        if (len as u64) < open.map().size().bytes() {
            target.end_if_unended(open.map().start_of(index).0 + len as u64);
        }
        let Some(slot) = slot else {
            if hole && (matches!(open.created(), Created::Continued(_)) || target.notes_holes()) {
                return self.jobs.report(Pool::Stage, move |tree| {
                    let result = tree.make_hole(&target, place, len as u64).map_err(Fault::from);
                    DestinationDone::Write { file, index, result }
                });
            }
            return self.jobs.reporter().say(DestinationDone::Write { file, index, result: Ok(()) });
        };
        let (reporter, under_way) = (self.jobs.reporter().clone(), self.chunks.under_way.clone());
        let done = move |slot: Option<Slot>, result: Result<(), DiskError>| {
            drop((slot, under_way));
            let result = result.map_err(|error| reporter.fault(&error));
            reporter.say(DestinationDone::Write { file, index, result });
        };
        self.chunks.io.write(target, place, len, slot, Box::new(done));
    }

    /// Writes verified files of a bundle under temporary names.
    pub(crate) fn write_bundle(&mut self, ticket: Ticket, files: Vec<Arc<EntryRef>>) {
        let ArrivedPayload { slot, rows, .. } = self.chunks.payload.remove(&ticket).unwrap_or_default();
        let (preserve, wanted) = (self.options.preserve, self.sums.wanted());
        let (ledger, reporter) = (self.journalling.ledger().cloned(), self.jobs.reporter().clone());
        self.jobs.report(Pool::Stage, move |tree| {
            let begun = begun(ledger.as_deref(), files.iter());
            let (rows, mut summed) = (first_of_each(rows), Vec::new());
            let mut stage = |held: &Arc<EntryRef>| {
                begun.clone()?;
                let bytes = rows.get(&held.id).cloned().and_then(|range| slot.as_ref()?.get(range));
                let bytes = bytes.ok_or_else(|| bug("a verified file without its payload"))?;
                let sums = sums_of(bytes, wanted);
                summed.extend(sums.clone().map(|sums| (held.id, sums)));
                let meta = with_sums(&held.entry.meta, sums);
                tree.write_small(&held.placed, bytes, &meta, preserve).map_err(Fault::from)
            };
            let staged = files.iter().map(|held| (held.id, stage(held))).collect();
            if !summed.is_empty() {
                reporter.say(DestinationDone::SumSmall(summed));
            }
            DestinationDone::Stage(staged)
        });
    }
}

/// The range of each file. The first one counts, as it does where rows are verified.
fn first_of_each(rows: Vec<(FileId, Range<usize>)>) -> HashMap<FileId, Range<usize>> {
    let mut ranges = HashMap::with_capacity(rows.len());
    for (file, range) in rows {
        ranges.entry(file).or_insert(range);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_that_a_bundle_names_twice_the_bytes_that_were_verified_are_written() {
        let ranges = first_of_each(vec![(FileId(1), 0..3), (FileId(2), 3..4), (FileId(1), 4..7)]);
        assert_eq!(ranges, HashMap::from([(FileId(1), 0..3), (FileId(2), 3..4)]));
    }
}
