//! Hashes bytes that are not moved piece by piece: holes, and chunks that are compared before they
//! are sent.
//!
//! In: a hasher and the bytes to hash. Out: the hasher's state, and a beat for each piece: a lane
//! that hashes is at work, and its watch must see that, however large the chunk and however slow
//! the processor. It knows no streams.

use longhaul_core::digest::ChunkHasher;

use super::PIECE_BYTES;
use super::pulse::Pulse;
use crate::cpu::{Stage, StageTimes};

/// Hashes `len` bytes of zeros.
pub(in crate::lanes) fn hash_zeros(hasher: &mut ChunkHasher, len: u64, times: &StageTimes, pulse: &Pulse) {
    let mut left = len;
    while left > 0 {
        let step = left.min(PIECE_BYTES as u64);
        times.count(Stage::Hash, || hasher.update_zeros(step));
        pulse.beat();
        left -= step;
    }
}

/// Hashes bytes in memory.
pub(in crate::lanes) fn hash_bytes(hasher: &mut ChunkHasher, bytes: &[u8], times: &StageTimes, pulse: &Pulse) {
    for piece in bytes.chunks(PIECE_BYTES) {
        times.count(Stage::Hash, || hasher.update(piece));
        pulse.beat();
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::digest::digest_of;
    use longhaul_core::{DigestKind, FileOffset};

    use super::*;

    #[test]
    fn zeros_and_bytes_have_the_digest_of_the_whole_and_a_beat_for_each_piece() {
        for (len, beats) in [(0, 0), (1, 1), (PIECE_BYTES, 1), (PIECE_BYTES + 1, 2), (64 * PIECE_BYTES, 64)] {
            let zeros = vec![0; len];
            let hashed = |hash: &dyn Fn(&mut ChunkHasher, &Pulse)| {
                let (mut hasher, pulse) = (ChunkHasher::new(DigestKind::Root, FileOffset(0)), Pulse::default());
                hash(&mut hasher, &pulse);
                (hasher.finish(), pulse.read().pieces)
            };
            let times = StageTimes::default();
            let want = (digest_of(&zeros, DigestKind::Root, FileOffset(0)), beats);
            assert_eq!(hashed(&|hasher, pulse| hash_zeros(hasher, len as u64, &times, pulse)), want, "{len}");
            assert_eq!(hashed(&|hasher, pulse| hash_bytes(hasher, &zeros, &times, pulse)), want, "{len}");
        }
    }
}
