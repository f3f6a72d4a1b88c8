//! Properties of everything that parses a peer's bytes: what is written reads back, and nothing that is cut, changed or
//! made up panics, reads back as something else, or takes memory that it did not pay for.

use longhaul_core::filter::{Rule, RuleKind};
use longhaul_core::limits::{BUNDLE_FILES_MAX, MESSAGE_BYTES_MAX};
use longhaul_core::{
    Attempt, Blame, BundleId, ChunkIndex, ChunkSize, Digest, DigestKind, Entry, EntryKind, Fault, FaultCode, FileId,
    IfExists, LaneId, Meta, Mtime, Preserve, RelPath, Role, Unit,
};
use longhaul_proto::Message;
use longhaul_proto::wire::bundle::{self, Packer, table_bytes};
use longhaul_proto::wire::data::{HEADER_BYTES, Header, Piece};
use longhaul_proto::wire::frame::{FrameError, LENGTH_BYTES, announced};
use longhaul_proto::wire::message::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn paths() -> impl Strategy<Value = RelPath> {
    vec("[a-z\u{e9}\n]{1,20}", 0..6).prop_map(|names| RelPath::new(names.join("/")).expect("a path"))
}

fn metas() -> impl Strategy<Value = Meta> {
    (any::<u32>(), any::<i64>(), any::<u32>())
        .prop_map(|(mode, secs, nanos)| Meta { mode, mtime: Mtime { secs, nanos } })
}

fn hashes() -> impl Strategy<Value = [u8; 32]> {
    any::<u8>().prop_map(|byte| [byte; 32])
}

fn digests() -> impl Strategy<Value = Digest> {
    prop_oneof![hashes().prop_map(Digest::Root), hashes().prop_map(Digest::Cv)]
}

fn units() -> impl Strategy<Value = Unit> {
    prop_oneof![
        (any::<u64>(), any::<u64>())
            .prop_map(|(file, index)| Unit::Chunk { file: FileId(file), index: ChunkIndex(index) }),
        any::<u64>().prop_map(|id| Unit::Bundle(BundleId(id))),
    ]
}

fn chunks() -> impl Strategy<Value = ChunkSize> {
    (10u8..=26).prop_map(|log2| ChunkSize::from_log2(log2).expect("in range"))
}

fn faults() -> impl Strategy<Value = Fault> {
    let codes = prop_oneof![Just(FaultCode::Io), Just(FaultCode::NoSpace), Just(FaultCode::Internal)];
    let blames = prop_oneof![Just(Blame::Local), Just(Blame::Peer), Just(Blame::Path), Just(Blame::Bug)];
    // Clean texts, which read back as they are; others are cleaned on the way.
    (codes, blames, "[ -Z]{0,40}", "[a-z ]{0,40}", "[a-z]{0,9}")
        .prop_map(|(code, blame, object, message, hint)| Fault { code, blame, object, message, hint })
}

fn entries() -> impl Strategy<Value = Entry> {
    let kinds = prop_oneof![
        (any::<u64>(), any::<bool>()).prop_map(|(len, sparse)| EntryKind::File { len, sparse }),
        Just(EntryKind::Dir),
        Just(EntryKind::DirEnd),
        vec(any::<u8>(), 0..50).prop_map(|target| EntryKind::Symlink { target }),
        (any::<bool>(), "[ -Z]{0,40}")
            .prop_map(|(failed, why)| EntryKind::Unsent { failure: failed.then_some(FaultCode::Denied), why }),
    ];
    (paths(), kinds, metas()).prop_map(|(path, kind, meta)| Entry { path, kind, meta })
}

fn tallies() -> impl Strategy<Value = Tally> {
    any::<[u64; 4]>().prop_map(|[received, durable, committed, files]| Tally { received, durable, committed, files })
}

fn endings() -> impl Strategy<Value = Ending> {
    (any::<u64>(), tallies()).prop_map(|(cpu_us, tally)| Ending { cpu_us, tally })
}

fn fars() -> impl Strategy<Value = Far> {
    let sources =
        ("[a-z]{1,9}", paths(), any::<bool>()).prop_map(|(root, path, contents)| FarSource { root, path, contents });
    let rules = ("[a-z*]{1,9}", any::<bool>()).prop_map(|(pattern, include)| Rule {
        kind: if include { RuleKind::Include } else { RuleKind::Exclude },
        pattern,
    });
    prop_oneof![
        ("[a-z]{1,9}", paths(), any::<bool>()).prop_map(|(root, path, beneath)| Far::Destination {
            root,
            path,
            placing: if beneath { Placing::Beneath } else { Placing::BeneathIfDir },
            if_exists: IfExists::Replace,
        }),
        (vec(sources, 0..4), vec(rules, 0..4), option::of(vec(paths(), 0..4)))
            .prop_map(|(sources, rules, names)| Far::Sources { sources, rules, names }),
    ]
}

fn requests() -> impl Strategy<Value = Request> {
    let transfers = (fars(), chunks(), any::<u32>(), any::<[bool; 4]>()).prop_map(|(far, chunk, lanes, flags)| {
        let [initiator, safe, dry_run, sender] = flags;
        Request::Transfer(Box::new(Transfer {
            role: if sender { Role::Sender } else { Role::Receiver },
            initiator,
            protect: if safe { Protect::Safe } else { Protect::Private },
            chunk,
            lanes,
            preserve: Preserve::default(),
            dry_run,
            set: 0,
            far,
        }))
    });
    let lists = ("[a-z]{1,9}", paths()).prop_map(|(root, path)| Request::List { root, path });
    prop_oneof![transfers, Just(Request::Roots), lists]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        option::of(hashes()).prop_map(Outcome::Committed),
        Just(Outcome::Skipped),
        Just(Outcome::Planned),
        Just(Outcome::Unsent),
        faults().prop_map(Outcome::Failed),
    ]
}

fn listed() -> impl Strategy<Value = Listed> {
    let kinds = prop_oneof![
        Just(ListedKind::File),
        Just(ListedKind::Dir),
        vec(any::<u8>(), 0..9).prop_map(|target| ListedKind::Symlink { target }),
        Just(ListedKind::Special),
        vec("[a-z]{1,9}", 0..3).prop_map(|rights| ListedKind::Root { rights }),
    ];
    (vec(any::<u8>(), 0..9), kinds, any::<u64>(), metas()).prop_map(|(name, kind, len, meta)| Listed {
        name,
        kind,
        len,
        meta,
    })
}

fn opening_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<[u16; 2]>(), any::<u64>(), requests()).prop_map(|([version_min, version_max], caps, request)| {
            Message::Hello(Hello { version_min, version_max, caps, request })
        }),
        (any::<u16>(), any::<[u64; 2]>(), any::<[u8; 16]>(), chunks()).prop_map(
            |(version, [caps, bundled_max], session, chunk)| Message::Welcome(Welcome {
                version,
                caps,
                session,
                chunk,
                bundled_max,
            })
        ),
        faults().prop_map(Message::Refuse),
        any::<[u32; 2]>().prop_map(|[first, count]| Message::Lanes(Lanes { first: LaneId(first), count })),
        (vec(listed(), 0..5), any::<bool>()).prop_map(|(names, last)| Message::Listing(Listing { names, last })),
    ]
}

fn manifest_messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), option::of(vec(any::<u8>(), 0..20)), "[a-z/]{0,20}")
            .prop_map(|(pages, renamed, base)| Message::Offer(Offer { pages, renamed, base })),
        any::<u64>().prop_map(|upto| Message::PageCredit(PageCredit { upto })),
        (any::<u64>(), any::<bool>(), vec(entries(), 0..5)).prop_map(|(first, last, entries)| Message::Page(Page {
            first: FileId(first),
            last,
            entries
        })),
        (any::<u64>(), vec(any::<u8>(), 0..130))
            .prop_map(|(first, wanted)| Message::Answer(Answer { first: FileId(first), wanted })),
        any::<[u64; 3]>().prop_map(|[file, start, count]| {
            Message::WantChunks(WantChunks { file: FileId(file), start: ChunkIndex(start), count })
        }),
    ]
}

fn unit_messages() -> impl Strategy<Value = Message> {
    let declared = (any::<u32>(), any::<u64>(), units(), any::<u32>(), digests()).prop_map(
        |(lane, seq, unit, attempt, digest)| Declared {
            lane: LaneId(lane),
            seq,
            unit,
            attempt: Attempt(attempt),
            digest,
        },
    );
    let findings = prop_oneof![digests().prop_map(Finding::Good), Just(Finding::Again), Just(Finding::GivenUp)];
    let verdicts = (units(), any::<u32>(), findings).prop_map(|(unit, attempt, finding)| Verdict {
        unit,
        attempt: Attempt(attempt),
        finding,
    });
    let settled = (any::<u64>(), outcomes()).prop_map(|(file, outcome)| Settlement { file: FileId(file), outcome });
    prop_oneof![
        vec(declared, 0..5).prop_map(Message::Digests),
        (any::<u64>(), hashes()).prop_map(|(file, root)| Message::FileEnd(FileEnd { file: FileId(file), root })),
        (any::<u64>(), "[a-z ]{0,40}").prop_map(|(file, message)| {
            Message::FileFault(FileFault { file: FileId(file), code: FaultCode::Vanished, message })
        }),
        vec(verdicts, 0..5).prop_map(Message::Verdicts),
        vec(settled, 0..5).prop_map(Message::Settled),
        tallies().prop_map(Message::Tally),
        endings().prop_map(Message::Complete),
        endings().prop_map(Message::Bye),
        any::<bool>().prop_map(|stalled| Message::Heartbeat(Heartbeat { stalled })),
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![opening_messages(), manifest_messages(), unit_messages()]
}

/// Headers that a sender may write.
fn headers() -> impl Strategy<Value = Header> {
    let chunk = |file, index| Unit::Chunk { file: FileId(file), index: ChunkIndex(index) };
    let units = prop_oneof![
        (any::<u64>(), 0u64..1 << 37).prop_map(move |(file, index)| (chunk(file, index), DigestKind::Cv)),
        any::<u64>().prop_map(move |file| (chunk(file, 0), DigestKind::Root)),
        any::<u64>().prop_map(|id| (Unit::Bundle(BundleId(id)), DigestKind::Root)),
    ];
    let pieces = (units, 1u32.., any::<[u64; 3]>(), chunks(), any::<[bool; 2]>()).prop_map(
        |((unit, digest), attempt, [offset, len, unit_len], chunk, [hole, trailer])| {
            let hole = hole && matches!(unit, Unit::Chunk { .. });
            let unit_len = 1 + unit_len % chunk.bytes();
            let offset = if hole { 0 } else { offset % unit_len };
            let len = if hole { 0 } else { 1 + len % (unit_len - offset) };
            Piece { unit, attempt: Attempt(attempt), offset, len, unit_len, chunk, digest, hole, trailer }
        },
    );
    prop_oneof![9 => pieces.prop_map(Header::Piece), 1 => Just(Header::End)]
}

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
    fn noise_is_no_message(number in 0u8..24, body in vec(any::<u8>(), 0..400)) {
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

/// What a lane does with a header before anyone has judged it must not panic.
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

/// A list that claims 2^32 or 2^64 elements in a short body is refused without room being made for them: making it would
/// overflow a capacity or exhaust the memory of the test.
#[test]
fn lists_that_claim_more_than_they_bring_get_no_memory() {
    let claims: [&[u8]; 3] = [
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    ];
    // Number and what stands before the list: digests, verdicts, settlements, a page, an answer, a listing, an offer's new
    // name, the text of a fault, the sources of a pull, a path in a page.
    let lists: [&[u8]; 10] = [
        &[10],
        &[13],
        &[14],
        &[7, 0, 1],
        &[8, 0],
        &[19],
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
    let rule = Rule { kind: RuleKind::Include, pattern: "x".repeat(4000) };
    let far = Far::Sources { sources: vec![], rules: vec![rule; 100], names: None };
    let transfer = Transfer {
        role: Role::Receiver,
        initiator: true,
        protect: Protect::Safe,
        chunk: ChunkSize::DEFAULT,
        lanes: 1,
        preserve: Preserve::default(),
        dry_run: false,
        set: 0,
        far,
    };
    let request = Request::Transfer(Box::new(transfer));
    let hello = Message::Hello(Hello { version_min: 1, version_max: 1, caps: 0, request });
    assert!(matches!(hello.try_encode(), Err(FrameError::TooLong { .. })));
}
