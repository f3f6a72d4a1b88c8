//! Properties of everything that parses a peer's bytes: written values read back, and no cut,
//! changed or made-up bytes cause a panic, read back as another value, or take memory that they did
//! not pay for.

mod strategies;
mod texts;

use longhaul_core::filter::{Rule, RuleKind};
use longhaul_core::limits::{BUNDLE_FILES_MAX, MESSAGE_BYTES_MAX};
use longhaul_core::{ChunkSize, Entry, EntryKind, FileId, Meta, Mtime, Preserve, RelPath, Role, Unit};
use longhaul_proto::Message;
use longhaul_proto::wire::bundle::{self, Packer, table_bytes};
use longhaul_proto::wire::data::{HEADER_BYTES, Header};
use longhaul_proto::wire::frame::{FrameError, LENGTH_BYTES, announced};
use longhaul_proto::wire::message::{Far, Flow, Follows, Hello, Page, Protect, Request, Settlement, Transfer, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;

use strategies::{headers, messages};

/// A bundle of files of these lengths, with this many more for which room was left.
fn bundle_of(lens: &[usize], dropped: usize) -> Vec<u8> {
    let files = lens.len() + dropped;
    let mut unit = vec![0xee; table_bytes(files) + lens.iter().sum::<usize>()];
    let mut packer = Packer::new(&mut unit, files);
    for (at, len) in lens.iter().enumerate() {
        packer.space(*len).expect("room").fill(at as u8);
        packer.keep(FileId(at as u64), *len, [at as u8; 32]);
    }
    let (len, _) = packer.finish();
    unit.truncate(len);
    unit
}

#[test]
fn a_time_that_is_none_is_refused_and_never_obeyed() {
    let page = |nanos| {
        let meta = Meta::new(0o644, Mtime { secs: 1, nanos });
        let entry = Entry { path: RelPath::root(), kind: EntryKind::Dir, meta };
        let page = Message::Page(Page { first: FileId(0), last: true, entries: vec![entry] });
        Message::decode(&page.encode().split_off(LENGTH_BYTES))
    };
    assert!(page(999_999_999).is_ok());
    // The last values are orders to the system: now, and not at all.
    for nanos in [1_000_000_000, u32::MAX, 0x3fff_ffff, 0x3fff_fffe] {
        assert!(page(nanos).is_err(), "{nanos}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_read_back(message in messages()) {
        let bytes = message.encode();
        let (length, body) = bytes.split_at(LENGTH_BYTES);
        prop_assert_eq!(announced(length.try_into().expect("four bytes")), Ok(body.len()));
        prop_assert_eq!(Message::decode(body), Ok(message));
    }

    #[test]
    fn messages_cut_short_or_with_more_behind_are_refused(message in messages(), at in any::<prop::sample::Index>(), more in any::<u8>()) {
        let mut body = message.encode().split_off(LENGTH_BYTES);
        let cut = &body[..at.index(body.len())];
        prop_assert!(Message::decode(cut).is_err());
        body.push(more);
        prop_assert!(Message::decode(&body).is_err());
    }

    #[test]
    fn changed_messages_read_as_something_sound_or_not_at_all(
        message in messages(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = message.encode().split_off(LENGTH_BYTES);
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(read) = Message::decode(&body) {
            let again = read.encode().split_off(LENGTH_BYTES);
            prop_assert_eq!(Message::decode(&again), Ok(read));
        }
    }

    #[test]
    fn noise_is_no_message(number in 0u8..27, body in vec(any::<u8>(), 0..400)) {
        let _ = Message::decode(&[vec![number], body].concat());
    }

    #[test]
    fn headers_read_back(header in headers()) {
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn changed_headers_read_as_they_are_written_or_not_at_all(
        header in headers(),
        changes in vec((0..HEADER_BYTES, any::<u8>()), 0..4),
    ) {
        let mut bytes = header.encode();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(read) = Header::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
            hash_as_a_lane_would(&read);
        }
    }

    #[test]
    fn bundles_read_back(lens in vec(0usize..300, 0..20), dropped in 0usize..5) {
        let unit = bundle_of(&lens, dropped);
        let rows = bundle::parse(&unit).expect("parses");
        prop_assert_eq!(rows.len(), lens.len());
        for (at, row) in rows.iter().enumerate() {
            prop_assert_eq!((row.file, row.root), (FileId(at as u64), [at as u8; 32]));
            prop_assert_eq!(&unit[row.bytes.clone()], vec![at as u8; lens[at]]);
        }
    }

    #[test]
    fn bundles_cut_or_changed_cover_their_unit_or_are_refused(
        lens in vec(0usize..300, 0..20),
        cut in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut unit = bundle_of(&lens, 0);
        unit.truncate(cut.index(unit.len() + 1));
        for (at, byte) in changes.into_iter().filter(|_| !unit.is_empty()).collect::<Vec<_>>() {
            let at = at.index(unit.len());
            unit[at] = byte;
        }
        if let Ok(rows) = bundle::parse(&unit) {
            let mut at = rows.first().map_or(unit.len(), |row| row.bytes.start);
            prop_assert!(rows.len() <= BUNDLE_FILES_MAX && at >= table_bytes(rows.len()));
            for row in rows {
                prop_assert_eq!(row.bytes.start, at);
                at = row.bytes.end;
            }
            prop_assert_eq!(at, unit.len());
        }
    }
}

/// Hashes as a lane does with a header before it is judged, which must not panic.
fn hash_as_a_lane_would(header: &Header) {
    let Header::Piece(piece) = header else { return };
    let start = match piece.unit {
        Unit::Chunk { index, .. } => index.start(piece.chunk),
        Unit::Bundle(_) => Default::default(),
    };
    let mut hasher = longhaul_core::ChunkHasher::new(piece.digest, start);
    hasher.update_zeros(piece.unit_len);
    hasher.finish();
}

/// A list that claims 2^32 or 2^64 elements in a short body is refused without room being made for
/// them: making it would overflow a capacity or exhaust the memory of the test.
#[test]
fn lists_that_claim_more_than_they_bring_get_no_memory() {
    let claims: [&[u8]; 3] = [
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    ];
    // The number and the bytes before the list: digests, verdicts, settlements, a page, an answer,
    // a listing, chunks that are lost, an offer's new name, the text of a fault, the sources of a
    // pull, a path in a page; extras, attributes in them, losses, several names.
    let lists: [&[u8]; 15] = [
        &[10],
        &[13],
        &[14],
        &[7, 0, 1],
        &[8, 0],
        &[19],
        &[34, 0],
        &[35],
        &[35, 1, 0, 0, 0, 0],
        &[36],
        &[37],
        &[5, 8, 1],
        &[3, 0, 0],
        &[1, 1, 1, 0, 0, 0, 1, 0, 22, 4, 1, 1, 1, 1, 0, 0, 1],
        &[7, 0, 1, 1],
    ];
    for list in lists {
        for claim in claims {
            for rest in [0, 3, 100, 4096] {
                let body = [list, claim, &vec![0; rest]].concat();
                assert!(Message::decode(&body).is_err(), "{list:?} {claim:?}");
            }
        }
    }
}

/// The most that decoding can be made to hold: the smallest elements that fill a message.
#[test]
fn a_message_full_of_the_smallest_elements_decodes_to_little() {
    for (number, element, size) in
        [(14u8, &[0u8, 1][..], size_of::<Settlement>()), (13, &[1, 0, 1, 1], size_of::<Verdict>())]
    {
        let count = (MESSAGE_BYTES_MAX - 5) / element.len();
        let mut body = vec![number];
        let mut left = count;
        while left >= 0x80 {
            body.push(left as u8 | 0x80);
            left >>= 7;
        }
        body.push(left as u8);
        (0..count).for_each(|_| body.extend_from_slice(element));
        let held = match Message::decode(&body).expect("decodes") {
            Message::Settled(list) => list.capacity() * size,
            Message::Verdicts(list) => list.capacity() * size,
            other => panic!("{other:?}"),
        };
        assert!(held <= 16 << 20, "{held} bytes for a message of {}", body.len());
    }
}

#[test]
fn lengths_beyond_the_bound_are_refused_before_anything_is_read() {
    for len in [MESSAGE_BYTES_MAX as u32 + 2, u32::MAX] {
        assert_eq!(announced(len.to_le_bytes()), Err(FrameError::TooLong { len: len as usize }));
    }
    assert_eq!(announced([0; 4]), Err(FrameError::Empty));
    assert_eq!(announced((MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes()), Ok(MESSAGE_BYTES_MAX + 1));
}

#[test]
fn a_hello_that_no_peer_accepts_is_an_error_before_it_is_sent() {
    let rule = Rule { kind: RuleKind::Include, pattern: "x".repeat(4000).into() };
    let far = Far::Sources { sources: vec![], rules: vec![rule; 100], follows: Follows::Nothing };
    let transfer = Transfer {
        role: Role::Receiver,
        initiator: true,
        protect: Protect::Safe,
        chunk: ChunkSize::DEFAULT,
        chunk_max: ChunkSize::DEFAULT,
        lanes: 1,
        preserve: Preserve::default(),
        dry_run: false,
        set: 0,
        far,
        run: [0; 16],
        read_back: false,
        flow: Flow::default(),
        digests: false,
    };
    let request = Request::Transfer(Box::new(transfer));
    let hello = Message::Hello(Hello { version_min: 1, version_max: 1, caps: 0, request });
    assert!(matches!(hello.try_encode(), Err(FrameError::TooLong { .. })));
}
