//! Small files that a sender says with its first page, before anybody asked for them.
//!
//! In: the source and the files, or a bundle that came so. Out: that bundle to whoever says it, or
//! an [`Arrival`] for the receiver's machine, which alone decides on it. It travels over the
//! control connection, as no lane can be there so early, and so it is short: more than the first
//! flight of a fresh connection carries would come no sooner than what is asked for. Of a sender's
//! machine it sets how it begins.

use std::time::Duration;

use longhaul_core::digest::{Hash32, digest_of};
use longhaul_core::limits::{UNASKED_BYTES_MAX, UNASKED_SEGMENTS};
use longhaul_core::{Attempt, BundleId, ChunkSize, DigestKind, Fault, FileId, FileOffset, Unit};
use longhaul_disk::SourceTree;
use longhaul_proto::receiver::{Landed, Ticket};
use longhaul_proto::sender::Sender;
use longhaul_proto::wire::bundle::{self, table_bytes};
use longhaul_proto::wire::data::Piece;
use longhaul_sys::{Slab, Slot};
use std::sync::Arc;

use super::orders::FileOrder;
use super::source;
use crate::budget::FAR;
use crate::lanes::worker::receive::{Arrival, rows_of};

/// The first flight of a fresh connection, in which the first page shall fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstFlight {
    /// The bytes that the page, and what comes before it, may have. `None` if the path is short, or
    /// is not known: nothing would be gained.
    bytes: Option<u64>,
    /// Whether small files may come before the page, as the other side takes them.
    takes_unasked: bool,
    /// The time for which the page waits for its entries, and then for them: a disk that takes
    /// longer would cost more than they gain.
    pub(super) patience: Duration,
}

impl FirstFlight {
    /// Where the first page need not fit anything, and nothing comes before it.
    pub(crate) const UNBOUNDED: FirstFlight =
        FirstFlight { bytes: None, takes_unasked: false, patience: PATIENCE_LEAST };

    /// The flight on a path with this round trip whose control connection has segments of so many
    /// bytes, or 0 if that is not known. One that what goes before fills is no bound.
    pub(crate) fn over(rtt: Duration, segment_bytes: u32) -> FirstFlight {
        let flight = UNASKED_SEGMENTS * u64::from(segment_bytes);
        let left = flight.checked_sub(SAID_BEFORE_BYTES).filter(|left| *left > 0);
        // A quarter of a round trip more is the most that reading may cost to save a whole one.
        let patience = (rtt / 4).max(PATIENCE_LEAST);
        FirstFlight { bytes: left.filter(|_| rtt >= FAR), takes_unasked: false, patience }
    }

    /// The same, with small files before the page.
    pub(crate) fn with_files(self) -> FirstFlight {
        FirstFlight { takes_unasked: true, ..self }
    }

    /// Whether the first page shall fit it.
    pub(super) fn is_bound(self) -> bool {
        self.bytes.is_some()
    }

    /// Lets a machine that has said nothing begin so.
    pub(super) fn prepare(self, machine: &mut Sender) {
        let Some(bytes) = self.bytes else { return };
        machine.fit_first_page(bytes);
        if self.takes_unasked {
            machine.allow_unasked(bytes);
        }
    }
}

/// Small files in a bundle.
#[derive(Debug, Default)]
pub(crate) struct PackedUnasked {
    /// The bundle. Empty if none of the files could be read.
    pub(crate) bundle: Vec<u8>,
    /// The files in it, with their roots.
    pub(crate) roots: Vec<(FileId, Hash32)>,
}

/// Reads the files. One that cannot be read is left out: if it is wanted, it is read again then,
/// and that failure counts.
pub(super) fn pack(tree: &dyn SourceTree, files: &[FileOrder]) -> PackedUnasked {
    let payload_bytes: u64 = files.iter().map(|(small, _)| small.len).sum();
    let mut bundle = vec![0; table_bytes(files.len()) + payload_bytes as usize];
    let (len, kept, _) = source::pack(tree, &mut bundle, files);
    bundle.truncate(if kept > 0 { len } else { 0 });
    let rows = bundle::parse(&bundle).unwrap_or_default();
    PackedUnasked { roots: rows.into_iter().map(|row| (row.file, row.root)).collect(), bundle }
}

/// Takes a bundle into a buffer. `None` if none is free at this moment: nothing was asked for, so
/// nothing is waited for.
pub(super) fn land(slab: &Arc<Slab>, chunk: ChunkSize, bundle: &[u8]) -> Result<Option<Arrival>, Fault> {
    if bundle.len() > slab.slot_bytes() || bundle.len() as u64 > UNASKED_BYTES_MAX {
        return Err(Fault::protocol("files that nobody asked for are longer than they may be, or than a buffer"));
    }
    let Some(mut slot) = slab.try_claim() else {
        return match bundle::parse(bundle) {
            Ok(rows) if !rows.is_empty() => Ok(None),
            _ => Err(Fault::protocol("files that nobody asked for are none")),
        };
    };
    slot[..bundle.len()].copy_from_slice(bundle);
    Ok(Some(arrival(slot, chunk, bundle)))
}

fn arrival(slot: Slot, chunk: ChunkSize, bundle: &[u8]) -> Arrival {
    let len = bundle.len() as u64;
    let piece = Piece {
        unit: Unit::Bundle(BundleId(u64::MAX)),
        attempt: Attempt::FIRST,
        offset: 0,
        len,
        unit_len: len,
        chunk,
        digest: DigestKind::Root,
        hole: false,
        same: false,
        trailer: false,
    };
    let (rows, places) = rows_of(&piece, Some(&slot));
    let computed = digest_of(bundle, DigestKind::Root, FileOffset(0));
    let landed = Landed { ticket: Ticket::UNASKED, piece, computed, declared: None, rows };
    Arrival { landed, slot: Some(slot), rows: places, sums: None }
}

/// Bytes that go before all this in the same flight: the end of a handshake, and a hello or what
/// answers it.
const SAID_BEFORE_BYTES: u64 = 640;
/// The least time that files are waited for: a disk may have to move its heads.
const PATIENCE_LEAST: Duration = FAR;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_flight_is_reckoned_with_over_long_paths_only() {
        let (near, far) = (FAR - Duration::from_nanos(1), FAR);
        let filled = [(far, 0, None), (far, 48, None), (far, 64, None), (far, 65, Some(10))];
        for (rtt, segment, want) in [(near, 1448, None), (far, 1448, Some(13_840))].into_iter().chain(filled) {
            assert_eq!(FirstFlight::over(rtt, segment).bytes, want, "{rtt:?} {segment}");
        }
    }

    #[test]
    fn what_comes_unasked_takes_a_free_buffer_and_waits_for_none() {
        let slab = Slab::new(4096, 1).expect("a slab");
        let chunk = ChunkSize::DEFAULT;
        let mut unit = [0; 256];
        let mut packer = bundle::Packer::new(&mut unit, 1);
        packer.space(3).expect("room").copy_from_slice(b"abc");
        packer.keep(FileId(7), 3, [1; 32]);
        let (len, _) = packer.finish();
        let came = land(&slab, chunk, &unit[..len]).expect("it fits").expect("a buffer is free");
        let row = came.landed.rows[0];
        let computed = *digest_of(b"abc", DigestKind::Root, FileOffset(0)).bytes();
        assert_eq!((row.file, row.len, row.declared, row.computed), (FileId(7), 3, [1; 32], computed));
        assert!(land(&slab, chunk, &unit[..len]).expect("it fits").is_none(), "no buffer is free");
        assert!(land(&slab, chunk, b"no bundle").is_err(), "no buffer would be of use");
        drop(came);
        assert!(land(&slab, chunk, b"no bundle").expect("it fits").expect("a buffer").landed.rows.is_empty());
        assert!(land(&slab, chunk, &[0; 4097]).is_err(), "longer than a buffer");
        let roomy = Slab::new(1 << 20, 1).expect("a slab");
        let longest = vec![0; UNASKED_BYTES_MAX as usize + 1];
        assert!(land(&roomy, chunk, &longest).is_err(), "longer than what may come so");
        assert!(land(&roomy, chunk, &longest[1..]).is_ok());
    }
}
