//! Sealed manifests of several segments, which are read one by one.

use std::path::Path;

use longhaul_core::RelPath;
use longhaul_manifest::{Algorithm, Draft, HEAD_NAME, Item, Lists, ManifestError, Sealed, SegmentFlaw};

use crate::{file, path, segment};

/// A manifest of these items, with so many in a segment.
fn sealed(dir: &Path, items: &[Item], of_segment: u64) -> Sealed {
    let mut draft = Draft::begin(dir).unwrap().with_segments_of(of_segment);
    items.iter().for_each(|item| drop(draft.add(item).unwrap()));
    draft.seal(Lists::FILES, 0).unwrap()
}

fn named(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| file(name, 1, Algorithm::Blake3, 1)).collect()
}

/// The names of a segment.
fn names(list: &Sealed, number: usize, behind: &RelPath) -> Result<Vec<String>, ManifestError> {
    list.items_of(number, behind).map(|item| item.map(|item| item.path.escaped().to_string())).collect()
}

#[track_caller]
fn assert_flaw<T: std::fmt::Debug>(read: Result<T, ManifestError>, expected: SegmentFlaw) {
    match read {
        Err(ManifestError::Segment { flaw, .. }) => assert_eq!(flaw, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_segment_has_its_own_items_alone_and_follows_the_one_before() {
    let top = tempfile::tempdir().unwrap();
    let list = sealed(&top.path().join("list"), &named(&["a", "b", "c", "d", "e"]), 2);
    assert_eq!(list.head().segments.len(), 3);
    assert_eq!(names(&list, 0, &RelPath::root()).unwrap(), ["a", "b"]);
    assert_eq!(names(&list, 1, &path("b")).unwrap(), ["c", "d"]);
    assert_eq!(names(&list, 2, &path("d")).unwrap(), ["e"]);
    for number in [3, usize::MAX] {
        assert_eq!(names(&list, number, &path("e")).unwrap(), [""; 0]);
    }
    assert_flaw(names(&list, 1, &path("c")), SegmentFlaw::Order);
    assert_eq!(list.items().count(), 5);
}

#[test]
fn a_segment_is_checked_as_it_is_among_all_and_damage_elsewhere_does_not_concern_it() {
    let top = tempfile::tempdir().unwrap();
    let list = sealed(&top.path().join("list"), &named(&["a", "b", "c", "d"]), 2);
    // It is whole, and is another one.
    std::fs::write(list.file(&list.head().segments[0]), segment(&named(&["a", "bb"]))).unwrap();
    assert_flaw(names(&list, 0, &RelPath::root()), SegmentFlaw::Digest);
    assert_eq!(names(&list, 1, &path("b")).unwrap(), ["c", "d"]);
    assert_flaw(list.items().collect::<Result<Vec<_>, _>>(), SegmentFlaw::Digest);
    // The head says other sums of it.
    let mut head = list.head().clone();
    head.segments[1].bytes += 1;
    std::fs::write(top.path().join("list").join(HEAD_NAME), head.text()).unwrap();
    let list = Sealed::open(&top.path().join("list")).unwrap();
    assert_flaw(names(&list, 1, &path("b")), SegmentFlaw::Sums);
}

#[test]
fn a_segment_that_is_written_to_while_it_is_read_is_damaged_at_its_end() {
    let top = tempfile::tempdir().unwrap();
    // More than is read from the file at a time.
    let numbered = |number: usize| file(&format!("{number:06}"), 1, Algorithm::Blake3, 1);
    let many: Vec<_> = (0..20_000).map(numbered).collect();
    let list = sealed(&top.path().join("list"), &many, 100_000);
    let mut items = list.items();
    assert_eq!(items.next().unwrap().unwrap(), many[0]);
    let mut others = many.clone();
    others[19_999] = file("019999", 1, Algorithm::Blake3, 2);
    std::fs::write(list.file(&list.head().segments[0]), segment(&others)).unwrap();
    let mut ends = items.skip(many.len() - 1);
    assert_flaw(ends.next().unwrap(), SegmentFlaw::Digest);
    assert!(ends.next().is_none());
}
