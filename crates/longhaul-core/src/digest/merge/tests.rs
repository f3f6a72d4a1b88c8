//! Roots merged from parts in any order, held against BLAKE3 itself.

use proptest::prelude::*;

use super::*;
use crate::digest::digest_of;
use crate::units::ChunkSize;

fn map(len: u64, log2: u8) -> ChunkMap {
    ChunkMap::new(len, ChunkSize::from_log2(log2).expect("in range"))
}

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn chunk_digest(bytes: &[u8], map: ChunkMap, index: u64) -> Digest {
    let index = ChunkIndex(index);
    let start = map.start_of(index);
    let len = map.len_of(index).expect("a chunk of the file");
    digest_of(&bytes[start.0 as usize..][..len as usize], map.kind(), start)
}

/// Merges the chunks in `order`; checks that the root appears with the last and not before.
fn merged(bytes: &[u8], map: ChunkMap, order: impl IntoIterator<Item = u64>) -> Hash32 {
    let mut merger = RootMerger::new(map);
    for (count, index) in order.into_iter().enumerate() {
        assert_eq!((merger.root(), merger.inserted()), (None, count as u64));
        assert!(!merger.contains(ChunkIndex(index)));
        assert_eq!(merger.insert(ChunkIndex(index), chunk_digest(bytes, map, index)), Ok(()));
        assert!(merger.contains(ChunkIndex(index)));
    }
    assert_eq!((merger.inserted(), merger.parts_held()), (map.chunks(), 0));
    merger.root().expect("all chunks are in")
}

/// A file of `n` chunks and all of them in order; the digests are made up.
fn in_order(chunks: u64) -> (RootMerger, usize) {
    let mut merger = RootMerger::new(map(chunks << 10, 10));
    let mut most = 0;
    for index in 0..chunks {
        assert_eq!(merger.insert(ChunkIndex(index), Digest::Cv([index as u8; 32])), Ok(()));
        most = most.max(merger.parts_held());
    }
    (merger, most)
}

#[test]
fn edge_lengths_merge_to_the_hash_of_the_file() {
    for log2 in [10, 12, 14] {
        let c = 1u64 << log2;
        for len in [0, 1, 1023, 1024, 1025, c - 1, c, c + 1, 2 * c - 1, 2 * c, 2 * c + 1, 5 * c + 7, 8 * c, 11 * c + 1]
        {
            let (bytes, map) = (content(len), map(len, log2));
            let want = *blake3::hash(&bytes).as_bytes();
            assert_eq!(merged(&bytes, map, 0..map.chunks()), want, "{len} forwards");
            assert_eq!(merged(&bytes, map, (0..map.chunks()).rev()), want, "{len} backwards");
        }
    }
}

#[test]
fn what_does_not_belong_is_refused_and_changes_nothing() {
    let (bytes, map) = (content(5 << 10), map(5 << 10, 10));
    let mut merger = RootMerger::new(map);
    let (index, chunks) = (ChunkIndex(5), 5);
    assert_eq!(merger.insert(index, Digest::Cv([0; 32])), Err(MergeError::OutOfRange { index, chunks }));
    let index = ChunkIndex(1);
    let wrong = MergeError::WrongKind { index, want: DigestKind::Cv };
    assert_eq!(merger.insert(index, Digest::Root([0; 32])), Err(wrong));
    for next in [4, 2, 3, 0, 1] {
        assert_eq!(merger.insert(ChunkIndex(next), chunk_digest(&bytes, map, next)), Ok(()));
        let index = ChunkIndex(next);
        assert_eq!(merger.insert(index, Digest::Cv([9; 32])), Err(MergeError::Duplicate { index }));
    }
    assert_eq!((merger.root(), merger.inserted()), (Some(*blake3::hash(&bytes).as_bytes()), 5));
}

#[test]
fn parts_of_one_merger_and_the_chunks_that_it_lacks_make_another_whole() {
    for chunks in [1u64, 2, 5, 6, 7, 8, 13] {
        let (bytes, map) = (content((chunks << 10) - 3), map((chunks << 10) - 3, 10));
        for held in 0..1u64 << chunks {
            let (mut some, mut other) = (RootMerger::new(map), RootMerger::new(map));
            for index in (0..chunks).filter(|at| held >> at & 1 == 1) {
                some.insert(ChunkIndex(index), chunk_digest(&bytes, map, index)).expect("once");
            }
            let parts = some.parts();
            assert_eq!(parts.iter().map(|part| part.chunks).sum::<u64>(), u64::from(held.count_ones()));
            for part in parts {
                other.insert_part(&part).expect("a part");
                let index = part.start;
                assert_eq!(other.insert_part(&part), Err(MergeError::Duplicate { index }));
            }
            for index in (0..chunks).filter(|at| held >> at & 1 == 0) {
                other.insert(ChunkIndex(index), chunk_digest(&bytes, map, index)).expect("once");
            }
            assert_eq!(other.root(), Some(*blake3::hash(&bytes).as_bytes()), "{chunks} {held:b}");
            assert_eq!(other.inserted(), chunks);
        }
    }
}

#[test]
fn a_part_that_is_no_subtree_of_the_file_is_refused() {
    let part = |start, chunks, digest| TreePart { start: ChunkIndex(start), chunks, digest };
    let cv = Digest::Cv([1; 32]);
    for (start, chunks, digest) in
        [(1, 2, cv), (0, 3, cv), (0, 0, cv), (4, 4, cv), (u64::MAX, 2, cv), (0, 7, cv), (2, 2, Digest::Root([1; 32]))]
    {
        let mut merger = RootMerger::new(map(7 << 10, 10));
        assert!(merger.insert_part(&part(start, chunks, digest)).is_err(), "{start} {chunks}");
        assert_eq!(merger.inserted(), 0);
    }
}

#[test]
fn a_file_of_one_chunk_takes_only_a_root() {
    let index = ChunkIndex(0);
    let mut merger = RootMerger::new(map(0, 10));
    let wrong = MergeError::WrongKind { index, want: DigestKind::Root };
    assert_eq!(merger.insert(index, Digest::Cv([1; 32])), Err(wrong));
    assert_eq!(merger.insert(index, Digest::Root([1; 32])), Ok(()));
    assert_eq!(merger.insert(index, Digest::Root([1; 32])), Err(MergeError::Duplicate { index }));
    assert_eq!(merger.root(), Some([1; 32]));
}

#[test]
fn chunks_in_order_hold_one_value_per_level() {
    for chunks in [2, 3, 1000, 1024, 100_003] {
        let (merger, most) = in_order(chunks);
        assert!(merger.root().is_some());
        assert!(most <= 64 - chunks.leading_zeros() as usize, "{most} values for {chunks} chunks");
    }
}

#[test]
fn the_longest_file_can_be_started() {
    let map = map(u64::MAX, 10);
    let mut merger = RootMerger::new(map);
    for index in [0, 1, map.chunks() - 1, map.chunks() - 2] {
        assert_eq!(merger.insert(ChunkIndex(index), Digest::Cv([3; 32])), Ok(()));
        assert!(merger.contains(ChunkIndex(index)));
    }
    assert_eq!((merger.parts_held(), merger.root()), (2, None));
}

fn shuffled_file() -> impl Strategy<Value = (u64, u8, Vec<u64>)> {
    (10u8..=14, 0u64..200_000).prop_flat_map(|(log2, len)| {
        let order: Vec<u64> = (0..map(len, log2).chunks()).collect();
        (Just(len), Just(log2), Just(order).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_any_file_gives_its_hash((len, log2, order) in shuffled_file()) {
        let bytes = content(len);
        prop_assert_eq!(merged(&bytes, map(len, log2), order), *blake3::hash(&bytes).as_bytes());
    }

    #[test]
    fn any_chunk_is_refused_a_second_time((len, log2, order) in shuffled_file(), upto in any::<prop::sample::Index>()) {
        let map = map(len, log2);
        let digest = |byte| match map.kind() {
            DigestKind::Root => Digest::Root([byte; 32]),
            DigestKind::Cv => Digest::Cv([byte; 32]),
        };
        let (first, rest) = order.split_at(upto.index(order.len()) + 1);
        let mut merger = RootMerger::new(map);
        for &index in first {
            prop_assert_eq!(merger.insert(ChunkIndex(index), digest(1)), Ok(()));
        }
        for &index in first {
            let index = ChunkIndex(index);
            prop_assert_eq!(merger.insert(index, digest(2)), Err(MergeError::Duplicate { index }));
        }
        for &index in rest {
            prop_assert!(!merger.contains(ChunkIndex(index)));
        }
    }
}

#[test]
fn a_stream_merges_before_its_end_is_known_to_the_hash_of_all_of_it() {
    let size = ChunkSize::from_log2(10).expect("in range");
    for chunks in 2..=33u64 {
        for rest in [0, 1, 1023] {
            let len = (chunks << 10) - rest;
            let (bytes, map) = (content(len), map(len, 10));
            let want = *blake3::hash(&bytes).as_bytes();
            for backwards in [false, true] {
                let mut merger = RootMerger::unended(size);
                let whole = map.whole_chunks();
                for at in 0..whole {
                    let index = if backwards { whole - 1 - at } else { at };
                    assert_eq!(merger.insert(ChunkIndex(index), chunk_digest(&bytes, map, index)), Ok(()));
                }
                assert_eq!(merger.root(), None);
                let mut again = RootMerger::unended(size);
                merger.parts().iter().for_each(|part| assert_eq!(again.insert_part(part), Ok(())));
                for unended in [merger, again] {
                    let mut ended = unended.ended(map).expect("it lies within");
                    if whole < chunks {
                        assert_eq!(ended.insert(ChunkIndex(whole), chunk_digest(&bytes, map, whole)), Ok(()));
                    }
                    assert_eq!(ended.root(), Some(want), "{len}, {backwards}");
                }
            }
        }
    }
}

#[test]
fn a_stream_ends_behind_all_of_its_chunks_and_takes_no_parent_that_may_be_the_root() {
    let size = ChunkSize::from_log2(10).expect("in range");
    let mut merger = RootMerger::unended(size);
    let part = TreePart { start: ChunkIndex(0), chunks: 2, digest: Digest::Cv([1; 32]) };
    assert!(matches!(merger.insert_part(&part), Err(MergeError::NoSubtree { .. })));
    assert_eq!(merger.insert(ChunkIndex(4), Digest::Cv([1; 32])), Ok(()));
    assert!(merger.ended(map(4 << 10, 10)).is_err());
    assert!(merger.ended(map(5 << 10, 10)).is_ok());
}
