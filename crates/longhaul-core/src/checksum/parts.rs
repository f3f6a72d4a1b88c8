//! Checksums that combine: those of a part of a file, and those of the whole from its parts in any
//! order.
//!
//! In: bytes, the lengths of holes, and the place of each part among the chunks of its file. Out:
//! the checksums of the whole, or which chunks are missing for that. Knows no files.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Algorithm, Algorithms, Sums, adler32_combine, crc32c_combine};
use crate::units::ChunkIndex;

/// The checksums of a part of a file: of those that combine, the ones that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSums {
    bytes: u64,
    adler32: Option<u32>,
    crc32c: Option<u32>,
}

impl PartSums {
    /// The checksums of no bytes: those of `wanted` that combine.
    pub fn empty(wanted: Algorithms) -> PartSums {
        PartSums::of_zeros(wanted, 0)
    }

    /// The same of so many zeros, by arithmetic.
    pub fn of_zeros(wanted: Algorithms, bytes: u64) -> PartSums {
        // The sum of the sums grows by one with each zero.
        let adler32 = || ((bytes % u64::from(super::ADLER_MODULUS)) as u32) << 16 | 1;
        PartSums {
            bytes,
            adler32: wanted.has(Algorithm::Adler32).then(adler32),
            // A register of ones is shifted by the zeros, and turned over at the end.
            crc32c: wanted.has(Algorithm::Crc32c).then(|| crc32c_combine(u32::MAX, u32::MAX, bytes)),
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(adler32) = &mut self.adler32 {
            let mut running = simd_adler32::Adler32::from_checksum(*adler32);
            running.write(bytes);
            *adler32 = running.finish();
        }
        if let Some(crc32c) = &mut self.crc32c {
            *crc32c = crc32c::crc32c_append(*crc32c, bytes);
        }
    }

    /// The checksums of this part and of the one behind it together.
    #[must_use]
    pub fn then(self, next: PartSums) -> PartSums {
        let both = |one: Option<u32>, other, combine: fn(u32, u32, u64) -> u32| Some(combine(one?, other?, next.bytes));
        PartSums {
            bytes: self.bytes.saturating_add(next.bytes),
            adler32: both(self.adler32, next.adler32, adler32_combine),
            crc32c: both(self.crc32c, next.crc32c, crc32c_combine),
        }
    }

    /// The algorithms that it has.
    pub fn wanted(&self) -> Algorithms {
        let of = |algorithms: Algorithms, (algorithm, sum): (Algorithm, Option<u32>)| match sum {
            Some(_) => algorithms.with(algorithm),
            None => algorithms,
        };
        [(Algorithm::Adler32, self.adler32), (Algorithm::Crc32c, self.crc32c)].into_iter().fold(Algorithms::NONE, of)
    }

    /// Bytes of the part.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The checksums.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for (algorithm, sum) in [(Algorithm::Adler32, self.adler32), (Algorithm::Crc32c, self.crc32c)] {
            if let Some(sum) = sum {
                // They are in the order of their numbers.
                sums.known = sums.known.with(algorithm);
                sums.bytes.extend(sum.to_be_bytes());
            }
        }
        sums
    }
}

/// The checksums of the chunks of a file, as far as they are known. Chunks that follow each other
/// are kept together, so that it stays small however long the file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkSums {
    /// For each run of chunks the first one, the one behind the last, and the checksums of the run.
    runs: BTreeMap<u64, (u64, PartSums)>,
}

impl ChunkSums {
    /// Notes the checksums of a chunk. Of a chunk that was noted before, the run that it is in is
    /// forgotten: it may have had other bytes then, and what is not known can be read again.
    pub fn note(&mut self, chunk: ChunkIndex, part: PartSums) {
        self.forget(chunk);
        let (mut first, mut end, mut sums) = (chunk.0, chunk.0.saturating_add(1), part);
        if let Some((&start, &(stop, before))) = self.runs.range(..first).next_back()
            && stop == first
        {
            self.runs.remove(&start);
            (first, sums) = (start, before.then(sums));
        }
        if let Some((stop, behind)) = self.runs.remove(&end) {
            (end, sums) = (stop, sums.then(behind));
        }
        self.runs.insert(first, (end, sums));
    }

    /// Whether the sums of a chunk are known.
    pub fn has(&self, chunk: ChunkIndex) -> bool {
        self.runs.range(..=chunk.0).next_back().is_some_and(|(_, (end, _))| *end > chunk.0)
    }

    /// Forgets the run of chunks in which this one is.
    pub fn forget(&mut self, chunk: ChunkIndex) {
        if let Some((&start, &(end, _))) = self.runs.range(..=chunk.0).next_back()
            && end > chunk.0
        {
            self.runs.remove(&start);
        }
    }

    /// The chunks from 0 up to `count` that are not known, in order.
    pub fn missing(&self, count: u64) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), 0);
        for (&start, &(end, _)) in &self.runs {
            if start.min(count) > at {
                gaps.push(at..start.min(count));
            }
            at = at.max(end);
        }
        if at < count {
            gaps.push(at..count);
        }
        gaps
    }

    /// The checksums of a file of `bytes` bytes. `None` if a chunk of it is not known.
    pub fn whole(&self, wanted: Algorithms, bytes: u64) -> Option<Sums> {
        let sums = match self.runs.get(&0) {
            Some((_, sums)) => *sums,
            None => PartSums::empty(wanted),
        };
        (sums.bytes == bytes && self.runs.len() <= 1).then(|| sums.sums())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Hashing;
    use super::*;

    fn both() -> Algorithms {
        Algorithms::default().with(Algorithm::Adler32).with(Algorithm::Crc32c)
    }

    fn part(bytes: &[u8]) -> PartSums {
        let mut part = PartSums::empty(both());
        part.update(bytes);
        part
    }

    fn whole(bytes: &[u8]) -> Sums {
        let mut hashing = Hashing::new(both());
        hashing.update(bytes);
        hashing.finish()
    }

    #[test]
    fn zeros_are_summed_by_arithmetic() {
        for len in [0, 1, 5, 4096, 65_520, 65_521, 65_522, (1 << 20) + 3] {
            assert_eq!(PartSums::of_zeros(both(), len as u64), part(&vec![0; len]), "{len}");
        }
        // Far more than anybody would read here.
        let (half, all) = (1 << 43, 1 << 44);
        let halves = PartSums::of_zeros(both(), half).then(PartSums::of_zeros(both(), half));
        assert_eq!(halves, PartSums::of_zeros(both(), all));
    }

    #[test]
    fn a_file_without_bytes_is_known_and_one_that_lacks_a_chunk_is_not() {
        assert_eq!(ChunkSums::default().whole(both(), 0), Some(whole(b"")));
        let mut chunks = ChunkSums::default();
        chunks.note(ChunkIndex(1), part(b"b"));
        assert_eq!((chunks.whole(both(), 2), chunks.missing(3)), (None, vec![0..1, 2..3]));
        chunks.note(ChunkIndex(0), part(b"a"));
        assert_eq!((chunks.whole(both(), 3), chunks.missing(2)), (None, vec![]));
        assert_eq!(chunks.whole(both(), 2), Some(whole(b"ab")));
    }

    #[test]
    fn a_chunk_that_comes_again_is_not_guessed_from_what_it_was() {
        let mut chunks = ChunkSums::default();
        for (index, bytes) in [b"a", b"b", b"c"].into_iter().enumerate() {
            chunks.note(ChunkIndex(index as u64), part(bytes));
        }
        chunks.note(ChunkIndex(1), part(b"B"));
        assert_eq!((chunks.whole(both(), 3), chunks.missing(3)), (None, vec![0..1, 2..3]));
        chunks.note(ChunkIndex(0), part(b"a"));
        chunks.note(ChunkIndex(2), part(b"c"));
        assert_eq!(chunks.whole(both(), 3), Some(whole(b"aBc")));
    }

    proptest! {
        #[test]
        fn chunks_in_any_order_with_any_of_them_read_later_give_the_sums_of_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..9000),
            chunk in 1_usize..700,
            order in any::<prop::sample::Index>(),
            stride in 1_usize..50,
            kept in any::<u64>(),
        ) {
            let parts: Vec<&[u8]> = bytes.chunks(chunk).collect();
            let count = parts.len();
            let mut chunks = ChunkSums::default();
            // Every chunk once, from anywhere, in steps that come round.
            let step = (stride..).find(|step| gcd(*step, count.max(1)) == 1).unwrap_or(1);
            let first = if count == 0 { 0 } else { order.index(count) };
            for at in (0..count).map(|n| (first + n * step) % count) {
                if kept >> (at % 64) & 1 == 1 {
                    chunks.note(ChunkIndex(at as u64), part(parts[at]));
                }
            }
            // An earlier session has brought the others: they are read again.
            for at in chunks.missing(count as u64).into_iter().flatten() {
                prop_assert!(chunks.whole(both(), bytes.len() as u64).is_none());
                chunks.note(ChunkIndex(at), part(parts[at as usize]));
            }
            prop_assert_eq!(chunks.whole(both(), bytes.len() as u64), Some(whole(&bytes)));
            prop_assert_eq!(chunks.missing(count as u64), vec![]);
        }
    }

    fn gcd(a: usize, b: usize) -> usize {
        if b == 0 { a } else { gcd(b, a % b) }
    }
}
