//! Hashes bytes that are not moved piece by piece: holes, and chunks that are compared before they
//! are sent.
//!
//! In: a hasher and the bytes to hash, or a chunk of zeros. Out: the hasher's state or the digest,
//! and a beat for each piece: a lane that hashes is at work, and its watch must see that, however
//! large the chunk and however slow the processor. `zeros` keeps digests of holes, `hole_costs`
//! says who may hash them. It knows no streams.

use longhaul_core::digest::{ChunkHasher, Digest};

use super::PIECE_BYTES;
use super::hole_costs::HolePermit;
use super::pulse::Pulse;
use super::zeros::{ZeroChunk, ZeroDigests};
use crate::cpu::{Stage, StageTimes};

/// The digest of a chunk that lies in a hole. It is hashed unless this process knows it, by
/// `permit` where one is needed.
pub(in crate::lanes) fn digest_zeros(
    chunk: ZeroChunk,
    permit: Option<&HolePermit>,
    (times, pulse): (&StageTimes, &Pulse),
) -> Digest {
    if let Some(digest) = KNOWN.find(chunk) {
        pulse.beat();
        return digest;
    }
    let digest = hash_zeros(chunk, permit, (times, pulse));
    KNOWN.keep(chunk, digest);
    digest
}

/// Hashes a chunk of zeros.
fn hash_zeros(chunk: ZeroChunk, permit: Option<&HolePermit>, (times, pulse): (&StageTimes, &Pulse)) -> Digest {
    let (mut hasher, mut left) = (chunk.hasher(), chunk.len);
    while left > 0 {
        let step = left.min(PIECE_BYTES as u64);
        let held = permit.map(HolePermit::take);
        times.count(Stage::Hash, || hasher.update_zeros(step));
        drop(held);
        pulse.beat();
        left -= step;
    }
    hasher.finish()
}

/// Hashes bytes in memory.
pub(in crate::lanes) fn hash_bytes(hasher: &mut ChunkHasher, bytes: &[u8], times: &StageTimes, pulse: &Pulse) {
    for piece in bytes.chunks(PIECE_BYTES) {
        times.count(Stage::Hash, || hasher.update(piece));
        pulse.beat();
    }
}

/// The digests of holes that this process knows.
static KNOWN: ZeroDigests = ZeroDigests::new();

#[cfg(test)]
mod tests {
    use longhaul_core::digest::digest_of;
    use longhaul_core::{DigestKind, FileOffset};

    use super::*;

    #[test]
    fn zeros_and_bytes_have_the_digest_of_the_whole_and_a_beat_for_each_piece() {
        for (len, beats) in [(0, 0), (1, 1), (PIECE_BYTES, 1), (PIECE_BYTES + 1, 2), (64 * PIECE_BYTES, 64)] {
            let zeros = vec![0; len];
            let (kind, start) = (DigestKind::Root, FileOffset(0));
            let want = (digest_of(&zeros, kind, start), beats);
            let (times, pulse) = (StageTimes::default(), Pulse::default());
            let chunk = ZeroChunk { kind, start, len: len as u64 };
            let permit = HolePermit::default();
            assert_eq!((hash_zeros(chunk, Some(&permit), (&times, &pulse)), pulse.read().pieces), want, "{len}");
            let (mut hasher, pulse) = (ChunkHasher::new(kind, start), Pulse::default());
            hash_bytes(&mut hasher, &zeros, &times, &pulse);
            assert_eq!((hasher.finish(), pulse.read().pieces), want, "{len}");
        }
    }

    #[test]
    fn a_hole_is_hashed_once_for_its_place_and_has_the_digest_of_zeros_again() {
        let (times, pulse) = (StageTimes::default(), Pulse::default());
        // No other test has a chunk at this place.
        let (len, start) = (4 * PIECE_BYTES as u64, FileOffset(4 * PIECE_BYTES as u64 * 977));
        let chunk = ZeroChunk { kind: DigestKind::Cv, start, len };
        let want = digest_of(&vec![0; len as usize], DigestKind::Cv, start);
        assert_eq!((digest_zeros(chunk, None, (&times, &pulse)), pulse.read().pieces), (want, 4));
        assert_eq!((digest_zeros(chunk, None, (&times, &pulse)), pulse.read().pieces), (want, 5));
        let behind = ZeroChunk { start: FileOffset(start.0 + len), ..chunk };
        let want = digest_of(&vec![0; len as usize], DigestKind::Cv, behind.start);
        assert_eq!(digest_zeros(behind, None, (&times, &pulse)), want);
    }
}
