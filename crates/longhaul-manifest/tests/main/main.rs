//! Tests of the crate as its users see it: bytes, hostile bytes, sorting and merging, and manifests
//! of trees. Takes temporary directories; must not know how anything is done.

#![allow(clippy::disallowed_methods, reason = "tests set up and judge files themselves")]
#![allow(clippy::unwrap_used, reason = "what a test sets up itself it may take for granted")]

mod collected;
mod format;
mod lists;
mod segments;
mod trees;

use longhaul_core::{Mtime, RelPath};
use longhaul_manifest::{Algorithm, Algorithms, Item, ItemKind, SegmentReader, SegmentWriter, Sums};
use proptest::prelude::*;

/// A path.
fn path(text: &str) -> RelPath {
    RelPath::new(text).expect("a path")
}

/// A file with one checksum.
fn file(name: &str, bytes: u64, algorithm: Algorithm, fill: u8) -> Item {
    let sums = Sums::one(algorithm, &vec![fill; algorithm.bytes()]).expect("a checksum");
    Item::file(path(name), Some(bytes), sums)
}

/// The bytes of a segment with these items.
fn segment(items: &[Item]) -> Vec<u8> {
    let mut writer = SegmentWriter::new(Vec::new()).expect("memory");
    items.iter().for_each(|item| writer.add(item).expect("memory"));
    writer.finish().expect("memory").0
}

/// The items of a segment, or the first error.
fn items(bytes: &[u8]) -> std::io::Result<Vec<Item>> {
    let mut reader = SegmentReader::new(bytes)?;
    let mut found = Vec::new();
    while let Some(item) = reader.next_item()? {
        found.push(item);
    }
    Ok(found)
}

/// Any item.
fn any_item() -> impl Strategy<Value = Item> {
    let name = proptest::collection::vec(prop_oneof![b'a'..=b'c', Just(b'.'), Just(b'-'), Just(0xff)], 1..6);
    let path = proptest::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'));
    let path = path.prop_filter_map("no path", |bytes| RelPath::new(bytes).ok());
    let mtime = proptest::option::of((any::<i64>(), 0..1_000_000_000u32));
    let mtime = mtime.prop_map(|time| time.map(|(secs, nanos)| Mtime { secs, nanos }));
    let sums = (0..128u8, any::<u8>()).prop_map(|(bits, fill)| {
        let known = Algorithms::of_bits(bits).expect("bits");
        Sums::of_bytes(known, &vec![fill; known.bytes()]).expect("bytes")
    });
    let kind = prop_oneof![
        6 => proptest::option::of(any::<u64>()).prop_map(|bytes| ItemKind::File { bytes }),
        1 => Just(ItemKind::Dir),
        1 => proptest::collection::vec(1..=255u8, 1..40).prop_map(|target| ItemKind::Link { target }),
    ];
    (path, mtime, sums, kind).prop_map(|(path, mtime, sums, kind)| {
        let sums = if matches!(kind, ItemKind::File { .. }) { sums } else { Sums::default() };
        Item { path, kind, mtime, sums }
    })
}

/// Items in order, each name once.
fn any_items(most: usize) -> impl Strategy<Value = Vec<Item>> {
    proptest::collection::vec(any_item(), 0..most).prop_map(|mut items| {
        items.sort_by(|one, other| one.path.cmp(&other.path));
        items.dedup_by(|one, other| one.path == other.path);
        items
    })
}
