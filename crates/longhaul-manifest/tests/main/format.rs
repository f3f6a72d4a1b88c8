//! The bytes of segments and heads: golden ones, any ones, hostile ones.

use longhaul_core::Mtime;
use longhaul_manifest::{Algorithm, Head, HeadFlaw, Item, ItemKind, Lists, Segment, Sums, check_segment};
use proptest::prelude::*;

use crate::{any_items, file, items, path, segment};

/// The items whose bytes docs/MANIFEST.md tells.
fn golden_items() -> Vec<Item> {
    let mtime = Some(Mtime { secs: 1_700_000_000, nanos: 5 });
    let target = b"a/x".to_vec();
    vec![
        Item::dir(path("a")),
        Item { mtime, ..file("a/x", 300, Algorithm::Adler32, 0x11) },
        Item { mtime, ..file("a/xy", 0, Algorithm::Adler32, 0x22) },
        Item { path: path("b"), kind: ItemKind::Link { target }, mtime: None, sums: Sums::default() },
    ]
}

/// Its magic, the numbers of its only block, four items, two checksums, the end.
const GOLDEN: &str = "4c48736567000001\
    04000000220000002200000008000000\
    00016101\
    01022f781cac0280c49fd50c0508\
    0301791c00000508\
    0001620203612f78\
    1111111122222222\
    00000000000000000000000000000000";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_a_segment_are_those_of_the_document() {
    let bytes = segment(&golden_items());
    assert_eq!(hex(&bytes), GOLDEN);
    assert_eq!(items(&bytes).unwrap(), golden_items());
    assert_eq!(hex(&check_segment(bytes.as_slice()).unwrap()), DIGEST);
}

/// The digest of its content.
const DIGEST: &str = "d0742e910157fa7f332c5575732f392d6474e8941d254f2523b25bfe7d2b52b6";

#[test]
fn a_block_that_was_packed_by_an_earlier_build_is_read() {
    let list: Vec<Item> = (1..=60).map(|n| Item::dir(path("x/".repeat(n).trim_end_matches('/')))).collect();
    let bytes: Vec<u8> =
        (0..PACKED.len() / 2).map(|at| u8::from_str_radix(&PACKED[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert_eq!(items(&bytes).unwrap(), list);
    assert_eq!(check_segment(bytes.as_slice()).unwrap(), check_segment(segment(&list).as_slice()).unwrap());
}

/// Sixty directories, each in the one before.
const PACKED: &str = "4c487365670000013c0000002b010000f400000000000000a00001780101022f78010305001005050010070500100905\
    00100b0500100d0500100f05001011050010130500101505001017050010190500101b0500101d0500101f0500102105\
    0010230500102505001027050010290500102b0500102d0500102f050010310500103305001035050010370500103905\
    00103b0500103d0500103f05001041050010430500104505001047050010490500104b0500104d0500104f0500105105\
    0010530500105505001057050010590500105b0500105d0500105f050010610500106305001065050010670500106905\
    00106b0500106d0500106f050010710500a073022f780175022f780100000000000000000000000000000000";

#[test]
fn a_head_is_the_text_of_the_document_and_its_digest_is_that_of_the_text() {
    let known = longhaul_manifest::Algorithms::default().with(Algorithm::Adler32);
    let segments = vec![Segment { digest: [0xab; 32], items: 4, files: 2, bytes: 300, known }];
    let head = Head { lists: Lists::ALL, omitted: 0, segments };
    let text = format!(
        "longhaul manifest 1\nlists files dirs links\nchecksums adler32\nitems 4\nfiles 2\nbytes 300\nomitted 0\n\
         segment {} 4 2 300 adler32\n",
        "ab".repeat(32)
    );
    assert_eq!(head.text(), text);
    assert_eq!(Head::parse(text.as_bytes()), Ok(head.clone()));
    assert_eq!(head.digest(), *blake3::hash(text.as_bytes()).as_bytes());
}

#[test]
fn a_head_that_is_spelled_otherwise_is_none() {
    let head = Head { lists: Lists::FILES, omitted: 2, segments: Vec::new() };
    let text = head.text();
    assert_eq!(Head::parse(text.as_bytes()), Ok(head));
    for (from, to, flaw) in [
        ("manifest 1", "manifest 2", HeadFlaw::Version),
        ("omitted 2", "omitted 02", HeadFlaw::Sums),
        ("omitted 2", "omitted two", HeadFlaw::Line(7)),
        ("items 0", "items 1", HeadFlaw::Sums),
        ("lists files\n", "lists dirs\n", HeadFlaw::Line(2)),
        ("omitted 2\n", "omitted 2", HeadFlaw::Sums),
        ("omitted 2\n", "omitted 2\nmore 1\n", HeadFlaw::Line(8)),
    ] {
        assert_eq!(Head::parse(text.replacen(from, to, 1).as_bytes()), Err(flaw), "{to}");
    }
    assert_eq!(Head::parse(&vec![b'\n'; 32 << 20]), Err(HeadFlaw::Long));
}

#[test]
fn a_block_that_says_more_than_it_may_takes_no_memory() {
    let mut bytes = segment(&golden_items());
    for at in [8, 12, 16, 20] {
        let kept = bytes[at + 3];
        bytes[at + 3] = 0x7f;
        assert!(items(&bytes).is_err(), "{at}");
        bytes[at + 3] = kept;
    }
    assert!(items(&bytes).is_ok());
}

#[test]
fn a_segment_of_many_blocks_is_read_back_and_small() {
    let many: Vec<Item> =
        (0..20_000).map(|n| Item { mtime: Some(Mtime { secs: n, nanos: 0 }), ..numbered(n) }).collect();
    let bytes = segment(&many);
    assert!(bytes.len() < 20_000 * 12, "{}", bytes.len());
    assert_eq!(items(&bytes).unwrap(), many);
}

fn numbered(number: i64) -> Item {
    Item::file(path(&format!("a/long/directory/with/many/files/{number:09}.data")), Some(7), Sums::default())
}

#[test]
fn items_that_come_out_of_order_are_refused() {
    let (one, other) = (file("a", 1, Algorithm::Md5, 1), file("b", 1, Algorithm::Md5, 1));
    assert!(items(&segment(&[one.clone(), other.clone()])).is_ok());
    assert!(items(&segment(&[other, one.clone()])).is_err());
    assert!(items(&segment(&[one.clone(), one])).is_err());
}

proptest! {
    #[test]
    fn any_items_are_read_back(list in any_items(60)) {
        let bytes = segment(&list);
        prop_assert_eq!(items(&bytes).unwrap(), list);
    }

    #[test]
    fn one_changed_byte_changes_the_digest_or_is_refused(
        list in any_items(20), at in any::<prop::sample::Index>(), by in 1..=255u8,
    ) {
        let mut bytes = segment(&list);
        let digest = check_segment(bytes.as_slice()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        prop_assert!(check_segment(bytes.as_slice()).map_or(true, |other| other != digest));
    }

    #[test]
    fn items_that_are_read_have_one_form(mut bytes in any_items(12).prop_map(|list| segment(&list)),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(list) = items(&bytes) {
            let again = segment(&list);
            prop_assert_eq!(check_segment(again.as_slice()).unwrap(), check_segment(bytes.as_slice()).unwrap());
        }
    }

    #[test]
    fn what_is_cut_is_no_segment(list in any_items(12), at in any::<prop::sample::Index>()) {
        let bytes = segment(&list);
        prop_assert!(check_segment(&bytes[..at.index(bytes.len())]).is_err());
    }
}
