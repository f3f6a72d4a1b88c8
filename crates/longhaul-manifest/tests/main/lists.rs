//! Sorting, merging and comparing lists.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::slice::from_ref;

use longhaul_core::Mtime;
use longhaul_manifest::{Algorithm, Difference, Item, Lists, ManifestError, Merge, Sorter, Sums, diff, united};
use proptest::prelude::*;

use crate::{any_items, file, path};

fn findings(one: &[Item], other: &[Item], lists: Lists) -> Vec<(String, Difference)> {
    let mut found = Vec::new();
    let given = |items: &[Item]| items.iter().cloned().map(Ok).collect::<Vec<_>>().into_iter();
    let sink = |item: &Item, what| {
        found.push((item.path.escaped().to_string(), what));
        ControlFlow::Continue(())
    };
    diff(given(one), given(other), lists, sink).unwrap();
    found
}

#[test]
fn names_are_compared_by_checksum_and_else_by_length_and_time() {
    use Difference::{Added, Changed, Removed, Same, Unknown};
    let (md5, adler) = (Algorithm::Md5, Algorithm::Adler32);
    let time = |secs| Some(Mtime { secs, nanos: 0 });
    let plain = |bytes, secs| Item { mtime: time(secs), ..Item::file(path("f"), bytes, Sums::default()) };
    for (one, other, expected) in [
        (file("f", 1, md5, 1), file("f", 1, md5, 1), Same),
        (file("f", 1, md5, 1), file("f", 1, md5, 2), Changed),
        (file("f", 1, md5, 1), file("f", 2, md5, 1), Changed),
        (file("f", 1, md5, 1), file("f", 1, adler, 1), Unknown),
        (plain(Some(1), 5), plain(Some(1), 5), Same),
        (plain(Some(1), 5), plain(Some(1), 6), Unknown),
        (plain(Some(1), 5), plain(None, 5), Unknown),
        (plain(Some(1), 5), Item::dir(path("f")), Changed),
        (Item { mtime: time(5), ..file("f", 1, md5, 1) }, Item { mtime: time(9), ..file("f", 1, md5, 1) }, Same),
    ] {
        assert_eq!(
            findings(from_ref(&one), from_ref(&other), Lists::ALL),
            [("f".to_owned(), expected)],
            "{one:?} {other:?}"
        );
    }
    let (a, b) = (file("a", 1, md5, 1), file("b", 1, md5, 1));
    assert_eq!(findings(&[a], &[b], Lists::ALL), [("a".to_owned(), Removed), ("b".to_owned(), Added)]);
}

#[test]
fn kinds_that_one_list_leaves_out_are_no_difference() {
    let (dir, file) = (Item::dir(path("a")), file("a/f", 1, Algorithm::Md5, 1));
    assert_eq!(findings(&[dir.clone(), file.clone()], from_ref(&file), Lists::FILES).len(), 1);
    assert_eq!(findings(&[dir, file.clone()], &[file], Lists::ALL).len(), 2);
}

#[test]
fn two_lists_that_contradict_each_other_do_not_merge() {
    let one = file("f", 1, Algorithm::Md5, 1);
    let merged = united(one.clone(), &file("f", 1, Algorithm::Adler32, 2)).unwrap();
    assert!(merged.sums.get(Algorithm::Md5).is_some() && merged.sums.get(Algorithm::Adler32).is_some());
    for (other, of) in [
        (file("f", 2, Algorithm::Md5, 1), "length"),
        (file("f", 1, Algorithm::Md5, 2), "md5"),
        (Item::dir(path("f")), "kind"),
    ] {
        let lists = vec![vec![Ok(one.clone())].into_iter(), vec![Ok(other)].into_iter()];
        match Merge::new(lists).next() {
            Some(Err(ManifestError::Conflict { of: found, .. })) => assert_eq!(found, of),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sort_in_little_memory_gives_what_a_map_gives(
        list in proptest::collection::vec(any_items(30), 1..12), bytes_max in 1..20_000usize,
    ) {
        let mut expected: BTreeMap<Vec<u8>, Item> = BTreeMap::new();
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(dir.path(), bytes_max);
        for item in list.concat() {
            // Names that contradict an earlier one are not given.
            let key = item.path.as_bytes().to_vec();
            let merged = match expected.get(&key) {
                None => item.clone(),
                Some(known) => match united(known.clone(), &item) { Ok(merged) => merged, Err(_) => continue },
            };
            expected.insert(key, merged);
            sorter.add(item).unwrap();
        }
        let sorted: Vec<Item> = sorter.finish().unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(sorted, expected.into_values().collect::<Vec<_>>());
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
