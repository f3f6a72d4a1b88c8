//! The paths between which the items of each segment of a sealed list lie, as readings have found
//! them: whoever looks for a few files need not read again a segment that cannot have them.
//!
//! In: ranges of segments that were read to their ends, with the digest of the list. Out: whether a
//! segment of that very list has any of some paths. Holds two paths for each segment, within a
//! bound, and those of one list only. Must not know files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Hash32, RelPath};

/// The first and the last path of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentRange {
    /// The path of its first item.
    pub(super) first: RelPath,
    /// The path of its last item, which may be the first one.
    pub(super) last: RelPath,
}

impl SegmentRange {
    fn bytes(&self) -> usize {
        self.first.as_bytes().len() + self.last.as_bytes().len()
    }

    /// Whether one of these paths is not before the first and not behind the last.
    fn has_any(&self, paths: &BTreeSet<RelPath>) -> bool {
        paths.range::<RelPath, _>(&self.first..).next().is_some_and(|path| *path <= self.last)
    }
}

/// The ranges of the segments of a list, as far as they are known. Several readers may share them.
#[derive(Default)]
pub(in crate::jobs::verify) struct ListRanges(Mutex<KnownRanges>);

#[derive(Default)]
struct KnownRanges {
    /// The digest of the list.
    list: Hash32,
    /// By the numbers of the segments in its head.
    ranges: BTreeMap<usize, SegmentRange>,
    /// Bytes of all these paths.
    bytes: usize,
}

impl ListRanges {
    /// Notes the range of the segment with this number of the list with this digest, once it was
    /// read to its end. Those of another list are forgotten. One for which there is no room is not
    /// kept: the segment is read again then.
    pub(super) fn note(&self, (list, number): (Hash32, usize), range: SegmentRange) {
        let mut known = self.known();
        if known.list != list {
            *known = KnownRanges { list, ..KnownRanges::default() };
        }
        let bytes = known.bytes.saturating_add(range.bytes());
        if bytes <= RANGES_BYTES_MAX && !known.ranges.contains_key(&number) {
            known.bytes = bytes;
            known.ranges.insert(number, range);
        }
    }

    /// The last path of a segment that has none of these paths. `None`: it may have one, or its
    /// range is not known, or it does not lie behind the path `behind`, with which the segment
    /// before it ended. Whoever reads it then finds which.
    pub(super) fn end_without(
        &self,
        (list, number): (Hash32, usize),
        behind: &RelPath,
        paths: &BTreeSet<RelPath>,
    ) -> Option<RelPath> {
        let known = self.known();
        let range = known.ranges.get(&number).filter(|_| known.list == list)?;
        (range.first > *behind && !range.has_any(paths)).then(|| range.last.clone())
    }

    fn known(&self) -> MutexGuard<'_, KnownRanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of the paths that are kept: two of 300 bytes of each of the most segments that a list has.
const RANGES_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Hash32 = [1; 32];

    fn path(name: &str) -> RelPath {
        RelPath::new(name).unwrap()
    }

    fn range(first: &str, last: &str) -> SegmentRange {
        SegmentRange { first: path(first), last: path(last) }
    }

    fn end_without(ranges: &ListRanges, of: (Hash32, usize), behind: &str, paths: &[&str]) -> Option<RelPath> {
        let behind = if behind.is_empty() { RelPath::root() } else { path(behind) };
        ranges.end_without(of, &behind, &paths.iter().map(|name| path(name)).collect())
    }

    #[test]
    fn a_segment_is_passed_over_only_if_no_path_lies_within_its_range() {
        let ranges = ListRanges::default();
        ranges.note((LIST, 1), range("f", "k"));
        for (paths, is_passed) in [
            (&["a", "z"][..], true),
            (&["ez", "ka"], true),
            (&[], true),
            (&["a", "f", "z"], false),
            (&["k"], false),
            (&["h"], false),
            (&["h", "i"], false),
        ] {
            let end = end_without(&ranges, (LIST, 1), "e", paths);
            assert_eq!(end, is_passed.then(|| path("k")), "{paths:?}");
        }
        assert_eq!(end_without(&ranges, (LIST, 0), "", &["z"]), None, "it was not read");
        ranges.note((LIST, 2), range("l", "l"));
        assert_eq!(end_without(&ranges, (LIST, 2), "k", &["l"]), None);
        assert_eq!(end_without(&ranges, (LIST, 2), "k", &["k", "l/a"]), Some(path("l")));
    }

    #[test]
    fn a_segment_that_does_not_lie_behind_the_one_before_is_read() {
        let ranges = ListRanges::default();
        ranges.note((LIST, 1), range("f", "k"));
        assert_eq!(end_without(&ranges, (LIST, 1), "f", &["z"]), None);
        assert_eq!(end_without(&ranges, (LIST, 1), "g", &["z"]), None);
        assert_eq!(end_without(&ranges, (LIST, 1), "e/z", &["z"]), Some(path("k")));
    }

    #[test]
    fn ranges_are_of_one_list_alone() {
        let ranges = ListRanges::default();
        ranges.note((LIST, 0), range("a", "c"));
        assert_eq!(end_without(&ranges, ([2; 32], 0), "", &["z"]), None);
        ranges.note(([2; 32], 1), range("d", "e"));
        assert_eq!(end_without(&ranges, ([2; 32], 1), "c", &["z"]), Some(path("e")));
        assert_eq!(end_without(&ranges, ([2; 32], 0), "", &["z"]), None);
        assert_eq!(end_without(&ranges, (LIST, 0), "", &["z"]), None, "it is forgotten");
    }

    #[test]
    fn long_paths_of_many_segments_take_bounded_memory() {
        let ranges = ListRanges::default();
        let long = |number: usize| path(&format!("{number:08}{}", format!("/{}", "d".repeat(200)).repeat(20)));
        let each = 2 * long(0).as_bytes().len();
        let segments = RANGES_BYTES_MAX / each + 10;
        for number in 0..segments {
            ranges.note((LIST, number), SegmentRange { first: long(number), last: long(number) });
            ranges.note((LIST, number), SegmentRange { first: long(number), last: long(number) });
        }
        let known = ranges.known();
        assert!(known.bytes <= RANGES_BYTES_MAX, "{}", known.bytes);
        assert_eq!(known.ranges.len(), segments - 10);
        assert_eq!(known.bytes, known.ranges.values().map(SegmentRange::bytes).sum::<usize>());
    }
}
