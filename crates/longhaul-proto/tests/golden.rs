//! Golden bytes: every message number, the lane header and the bundle, held fast as `docs/WIRE.md`
//! describes them.
//!
//! A test that fails here means that old and new builds no longer understand each other: append,
//! never change.

#[path = "golden/extras.rs"]
mod extras;
#[path = "golden/limits.rs"]
mod limits;
#[path = "golden/reading.rs"]
mod reading;
#[path = "golden/removal.rs"]
mod removal;
#[path = "golden/third_party.rs"]
mod third_party;
#[path = "golden/udp.rs"]
mod udp;

use std::fmt::Write;

use longhaul_core::filter::{Rule, RuleKind};
use longhaul_core::{
    Attempt, Blame, BundleId, ChunkIndex, ChunkSize, Digest, DigestKind, Entry, EntryKind, Fault, FaultCode, FileId,
    IfExists, LaneId, Meta, Mtime, PathShare, Preserve, RelPath, Rights, Role, SessionTag, TempName, TreePart, Unit,
    Word,
};
use longhaul_proto::Message;
use longhaul_proto::join::{Claim, JoinKey, Opening, Prover};
use longhaul_proto::wire::bundle::Packer;
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_proto::wire::message::{
    Answer, CheckChunks, CheckFiles, Declared, DurableChunks, Ending, Far, FarSource, FileEnd, FileFault, Finding,
    Flow, Follows, GrantedLanes, Heartbeat, Hello, LaneClosed, LaneLost, LaneTarget, Limit, Limited, Limiting, Listed,
    ListedKind, ListedPartial, Listing, LostChunk, Offer, Outcome, Page, PageCredit, Placing, Protect, Rate, Request,
    RequestPart, Resume, SendAgain, Settlement, StreamEnd, Tally, TargetReport, TargetStanding, Transfer, Transport,
    Unasked, Verdict, WantChunks, WantLast, Welcome,
};

fn path(text: &str) -> RelPath {
    RelPath::new(text).expect("a path")
}

fn word(text: &str) -> Word {
    Word::try_from(text).expect("a word")
}

fn meta() -> Meta {
    Meta::new(0o644, Mtime { secs: -2, nanos: 300 })
}

fn fault() -> Fault {
    Fault::new(FaultCode::Denied, Blame::Local, "no").about("a").hint_in_words("b").said_by_peer()
}

fn transfer(far: Far) -> Message {
    let transfer = Transfer {
        role: Role::Sender,
        initiator: true,
        protect: Protect::Private,
        chunk: ChunkSize::DEFAULT,
        chunk_max: ChunkSize::DEFAULT,
        lanes: 4,
        preserve: Preserve { links: false, ..Preserve::default() },
        dry_run: false,
        set: 0,
        far,
        run: [0x22; 16],
        read_back: true,
        flow: Flow {
            lanes_max: 300,
            congestion: word("bbr"),
            rate: 300,
            transport: Transport::Quic,
            choose: true,
            exact_chunks: false,
            knows_shared: false,
            udp_beside_tcp: false,
            share: PathShare::Fair,
            ..Flow::default()
        },
        digests: true,
    };
    hello(Request::Transfer(Box::new(transfer)))
}

fn hello(request: Request) -> Message {
    Message::Hello(Hello { version_min: 1, version_max: 1, caps: 0, request })
}

fn push() -> Message {
    transfer(Far::Destination {
        root: word("data"),
        path: path("in/box"),
        placing: Placing::BeneathIfDir,
        if_exists: IfExists::Fail,
    })
}

fn pull() -> Message {
    transfer(Far::Sources {
        sources: vec![FarSource { root: word("data"), path: path("out"), contents: true }],
        rules: vec![Rule { kind: RuleKind::Exclude, pattern: "*.o".into() }],
        follows: Follows::Names,
    })
}

fn request_part() -> Message {
    let sources = vec![FarSource { root: word("data"), path: path("out"), contents: true }];
    Message::RequestPart(RequestPart { sources, names: b"a/b\0a-b\0".to_vec(), last: true })
}

fn page() -> Message {
    let entry = |name, kind| Entry { path: path(name), kind, meta: meta() };
    Message::Page(Page {
        first: FileId(300),
        last: true,
        entries: vec![
            entry("d", EntryKind::Dir),
            entry("d/f", EntryKind::File { len: 1 << 40, sparse: true, inode: longhaul_core::Inode::default() }),
            entry("d/l", EntryKind::Symlink { target: b"f".to_vec() }),
            entry("d", EntryKind::DirEnd),
        ],
    })
}

fn stream() -> Message {
    let kind = EntryKind::Stream { inode: longhaul_core::Inode::default(), kept_bytes: 300 };
    let entries = vec![Entry { path: path("s"), kind, meta: Meta::default() }];
    Message::Page(Page { first: FileId(1), last: false, entries })
}

fn unsent() -> Message {
    let entry = |failure, why: &str| {
        let kind = EntryKind::Unsent { failure, why: why.into() };
        Entry { path: path("u"), kind, meta: Meta::default() }
    };
    let entries = vec![entry(None, "fifo"), entry(Some(FaultCode::Denied), "no")];
    Message::Page(Page { first: FileId(1), last: false, entries })
}

fn listed_partial() -> Message {
    let partial = ListedPartial {
        held: 4,
        since_unix: 300,
        principal: "key:k".into(),
        owner: "o".into(),
        temp: TempName::new(SessionTag([0x11; 8]), [0x22; 8]),
        user: Some("u".into()),
    };
    let kind = ListedKind::Partial(Box::new(partial));
    let names = vec![Listed { name: b"d/n".to_vec(), kind, len: 5, meta: meta() }];
    Message::Listing(Listing { names, last: true })
}

fn listing() -> Message {
    let kinds = [
        ListedKind::File,
        ListedKind::Dir,
        ListedKind::Symlink { target: b"f".to_vec() },
        ListedKind::Special,
        ListedKind::Root { rights: Rights { read: true, ..Rights::default() } },
    ];
    let names = kinds.map(|kind| Listed { name: b"n".to_vec(), kind, len: 5, meta: meta() }).to_vec();
    Message::Listing(Listing { names, last: true })
}

fn verdicts() -> Message {
    let unit = Unit::Chunk { file: FileId(1), index: ChunkIndex(2) };
    let findings = [Finding::Good(Digest::Cv([0xcd; 32])), Finding::Again, Finding::GivenUp];
    Message::Verdicts(findings.map(|finding| Verdict { unit, attempt: Attempt(3), finding }).to_vec())
}

fn outcomes() -> Message {
    let outcomes = [
        Outcome::Committed(Some([0xab; 32])),
        Outcome::Committed(None),
        Outcome::Skipped,
        Outcome::Planned,
        Outcome::Failed(fault()),
    ];
    Message::Settled(outcomes.map(|outcome| Settlement { file: FileId(200), outcome }).to_vec())
}

fn ending() -> Ending {
    let tally = Tally {
        received: 4,
        durable: 3,
        committed: 2,
        files: 1,
        resumed: 5,
        read_back: 6,
        misread: 7,
        holes: 8,
        arriving: 9,
        standing: 10,
    };
    Ending { cpu_us: 1000, tally }
}

/// One of each number, some in several forms, and the bytes that they travel as.
fn messages() -> Vec<(Message, &'static str)> {
    let offer = Offer { pages: 8, renamed: Some(b"new".to_vec()), base: "/d".into() };
    let declared = Declared {
        lane: LaneId(2),
        seq: 300,
        unit: Unit::Bundle(BundleId(9)),
        attempt: Attempt(1),
        digest: Digest::Root([0xef; 32]),
    };
    let welcome = Welcome {
        version: 1,
        caps: 0,
        session: [0x11; 16],
        chunk: ChunkSize::DEFAULT,
        chunk_max: ChunkSize::DEFAULT,
        bundled_max: 256 << 10,
        lanes_max: 32,
        rate: 300,
        memory_bytes: 300,
    };
    let list = Request::List { root: word("data"), path: path("x") };
    let partials = Request::Partials { root: word("data"), path: path("x") };
    vec![
        (push(), GOLDEN[0]),
        (pull(), GOLDEN[1]),
        (transfer(Far::Memory { bytes: 1 << 40, millis: 300 }), GOLDEN[36]),
        (hello(Request::Roots), GOLDEN[2]),
        (hello(list), GOLDEN[3]),
        (hello(partials), GOLDEN[28]),
        (Message::Welcome(welcome), GOLDEN[4]),
        (Message::Refuse(fault()), GOLDEN[5]),
        (Message::Lanes(GrantedLanes { first: LaneId(1), count: 4, transport: Transport::Tcp }), GOLDEN[6]),
        (Message::Offer(offer), GOLDEN[7]),
        (Message::PageCredit(PageCredit { upto: 9 }), GOLDEN[8]),
        (page(), GOLDEN[9]),
        (unsent(), GOLDEN[22]),
        (stream(), GOLDEN[42]),
        (Message::Answer(Answer { first: FileId(300), wanted: vec![0b10] }), GOLDEN[10]),
        (Message::WantChunks(WantChunks { file: FileId(301), start: ChunkIndex(0), count: 1024 }), GOLDEN[11]),
        (Message::Digests(vec![declared]), GOLDEN[12]),
        (Message::FileEnd(FileEnd { file: FileId(301), root: [0xab; 32] }), GOLDEN[13]),
        (
            Message::FileFault(FileFault { file: FileId(301), code: FaultCode::Changed, message: "grew".into() }),
            GOLDEN[14],
        ),
        (verdicts(), GOLDEN[15]),
        (outcomes(), GOLDEN[16]),
        (Message::Settled(vec![Settlement { file: FileId(1), outcome: Outcome::Unsent }]), GOLDEN[23]),
        (Message::Settled(vec![Settlement { file: FileId(1), outcome: Outcome::Equal([0xab; 32]) }]), GOLDEN[31]),
        (Message::Settled(vec![Settlement { file: FileId(1), outcome: Outcome::Stands([0xab; 32]) }]), GOLDEN[38]),
        (
            Message::Settled(vec![Settlement { file: FileId(1), outcome: Outcome::Linked(Some([0xab; 32])) }]),
            GOLDEN[48],
        ),
        (Message::Settled(vec![Settlement { file: FileId(1), outcome: Outcome::Linked(None) }]), GOLDEN[49]),
        (Message::Tally(ending().tally), GOLDEN[17]),
        (Message::Complete(ending()), GOLDEN[18]),
        (Message::Bye(ending()), GOLDEN[19]),
        (Message::Heartbeat(Heartbeat { stalled: true, answer: false }), GOLDEN[20]),
        (listing(), GOLDEN[21]),
        (listed_partial(), GOLDEN[29]),
        (resume(), GOLDEN[24]),
        (check(), GOLDEN[25]),
        extras::settled_sums(),
        extras::replaced(),
        (Message::LaneLost(LaneLost { lane: LaneId(300) }), GOLDEN[26]),
        (Message::LaneClosed(LaneClosed { lane: LaneId(2), landed: 300 }), GOLDEN[27]),
        (check_files(), GOLDEN[30]),
        (Message::LaneTarget(LaneTarget { count: 300, transport: Transport::Quic }), GOLDEN[32]),
        (Message::Rate(Rate { bytes_per_s: 300 }), GOLDEN[33]),
        (Message::Limiting(Limiting { by: Some(Limited { by: Limit::Target, thousandths: 300 }) }), GOLDEN[34]),
        (Message::Limiting(Limiting { by: None }), GOLDEN[35]),
        (request_part(), GOLDEN[37]),
        (Message::StreamEnd(StreamEnd { file: FileId(301), len: 1 << 40 }), GOLDEN[39]),
        (Message::WantLast(WantLast { file: FileId(301) }), GOLDEN[40]),
        (Message::DurableChunks(DurableChunks { file: FileId(301), start: ChunkIndex(2), count: 300 }), GOLDEN[41]),
        (Message::Targets(vec![target_report()]), GOLDEN[43]),
        (send_again(), GOLDEN[44]),
        (extras::extras(), GOLDEN[45]),
        (extras::losses(), GOLDEN[46]),
        (extras::names(), GOLDEN[47]),
        (udp::lane_closed(), udp::LANE_CLOSED),
        (Message::Unasked(Unasked { bundle: b"abc".to_vec() }), "050000002803616263"),
        (extras::shown_claim(), extras::SHOWN_CLAIM),
        (extras::as_dataset(), extras::AS_DATASET),
        (extras::part_of_shard(), extras::PART_OF_SHARD),
        (extras::part_that_commits(), extras::PART_THAT_COMMITS),
    ]
    .into_iter()
    .chain(removal::messages())
    .chain(reading::messages())
    .chain(third_party::messages())
    .collect()
}

const GOLDEN: [&str; 50] = [
    "3c000000010101000000010016160401010001000000046461746106696e2f626f7801022222222222222222222222222222222201ac0203626272ac02010101",
    "40000000010101000000010016160401010001000001010464617461036f7574010101032a2e6f022222222222222222222222222222222201ac0203626272ac02010101",
    "050000000101010001",
    "0c000000010101000204646174610178",
    "1d00000002010011111111111111111111111111111111161680801020ac02ac02",
    "0a0000000303000161026e6f0162",
    "0400000004010400",
    "0a000000050801036e6577022f64",
    "020000000609",
    "3600000007ac020104016401a40303ac0203642f66008080808080200100000000a40303ac0203642f6c030166a40303ac02016402a40303ac02",
    "0500000008ac020102",
    "0600000009ad02008008",
    "290000000a0102ac0201090100efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef",
    "230000000bad02abababababababababababababababababababababababababababababababab",
    "090000000cad020d0467726577",
    "320000000d03000102030001cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd00010203010001020302",
    "3c0000000e05c8010001ababababababababababababababababababababababababababababababababc8010000c80101c80102c8010303000161026e6f0162",
    "0b0000000f0403020105060708090a",
    "0d00000010e8070403020105060708090a",
    "0d00000011e8070403020105060708090a",
    "03000000120100",
    "380000001305016e0005a40303ac02016e0105a40303ac02016e02016605a40303ac02016e0305a40303ac02016e0401047265616405a40303ac0201",
    "1b0000000701000201750400046669666f0000000175040103026e6f000000",
    "040000000e010104",
    "4e00000014ac02160200ac0200abababababababababababababababababababababababababababababababab80040101cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd01",
    "4500000015ac020702ababababababababababababababababababababababababababababababababcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
    "0300000017ac02",
    "040000001802ac02",
    "0c000000010101000304646174610178",
    "2c000000130103642f6e0504ac02056b65793a6b016f1111111111111111222222222222222201017505a40303ac0201",
    "2700000019020101ababababababababababababababababababababababababababababababababac0200",
    "240000000e010105abababababababababababababababababababababababababababababababab",
    "040000001aac0201",
    "030000001bac02",
    "050000001c0107ac02",
    "020000001c00",
    "36000000010101000000010016160401010001000002808080808020ac022222222222222222222222222222222201ac0203626272ac02010101",
    "160000001d010464617461036f75740108612f6200612d620001",
    "240000000e010106abababababababababababababababababababababababababababababababab",
    "090000001ead02808080808020",
    "030000001fad02",
    "0600000020ad0202ac02",
    "100000000701000101730500000000ac02000000",
    "14000000210103ac0201ad02ae02040105af02b002fa0103",
    "4900000022ad02020202ababababababababababababababababababababababababababababababababac0205cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
    "400000002302010000000000ac020101000001ad0201036c6162010600070101ac020103616e6e060205030001036c6162040403050001000106757365722e610200ff01",
    "0f000000240200000101610307ac0203642f62",
    "0e0000002502010002ac020103642f61ac02",
    "250000000e01010701abababababababababababababababababababababababababababababababab",
    "050000000e01010700",
];

fn send_again() -> Message {
    let lost =
        |index, attempt, byte| LostChunk { index: ChunkIndex(index), attempt: Attempt(attempt), digest: [byte; 32] };
    Message::SendAgain(SendAgain { file: FileId(301), chunks: vec![lost(2, 2, 0xab), lost(300, 5, 0xcd)] })
}

fn target_report() -> TargetReport {
    TargetReport {
        target: 3,
        bytes_per_s: 300,
        busy_bytes_per_s: Some(301),
        queued_bytes: 302,
        queued: 4,
        latency_us: Some([5, 303, 304]),
        thousandths: 250,
        state: TargetStanding::Failed,
    }
}

fn resume() -> Message {
    let parts = vec![
        TreePart { start: ChunkIndex(0), chunks: 300, digest: Digest::Root([0xab; 32]) },
        TreePart { start: ChunkIndex(512), chunks: 1, digest: Digest::Cv([0xcd; 32]) },
    ];
    Message::Resume(Resume { file: FileId(300), chunk: ChunkSize::DEFAULT, parts, more: true })
}

fn check() -> Message {
    let digests = vec![[0xab; 32], [0xcd; 32]];
    Message::CheckChunks(CheckChunks { file: FileId(300), start: ChunkIndex(7), digests })
}

fn check_files() -> Message {
    Message::CheckFiles(CheckFiles { files: vec![(FileId(1), Some([0xab; 32])), (FileId(300), None)] })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("strings take everything");
        out
    })
}

#[test]
fn messages_travel_as_these_bytes() {
    for (message, golden) in messages() {
        let bytes = message.encode();
        assert_eq!(hex(&bytes), golden, "{}", message.name());
        assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_le_bytes(), "{}", message.name());
        assert_eq!(Message::decode(&bytes[4..]), Ok(message));
    }
}

#[test]
fn every_number_is_held_fast() {
    let mut numbers: Vec<u8> = messages().iter().map(|(message, _)| message.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1..=37).chain(39..=59).collect::<Vec<_>>());
    for new in [38, 60] {
        assert!(Message::decode(&[new]).is_err(), "a new number needs its golden bytes here");
    }
}

/// Fault codes travel by their place in the enum: names in that order.
#[test]
fn fault_codes_keep_their_places() {
    let code = |place: u8| match Message::decode(&[12, 0, place, 0]) {
        Ok(Message::FileFault(fault)) => Some(fault.code.name()),
        _ => None,
    };
    let names: Vec<_> = (0..).map_while(code).collect();
    let want = "unclassified usage not-found denied unreachable lost timed-out busy mismatch no-space \
                read-only io exists changed vanished in-the-way unsupported protocol interrupted \
                terminated internal exhausted target-failed superseded incomplete published";
    assert_eq!(names.join(" "), want);
}

#[test]
fn lane_headers_are_these_bytes() {
    let piece = Piece {
        unit: Unit::Chunk { file: FileId(0x0102), index: ChunkIndex(3) },
        attempt: Attempt(2),
        offset: 0x100,
        len: 0x200,
        unit_len: 0x400,
        chunk: ChunkSize::DEFAULT,
        digest: DigestKind::Cv,
        hole: false,
        same: false,
        trailer: true,
    };
    let hole = Piece { offset: 0, len: 0, hole: true, trailer: false, ..piece };
    let bundle = Piece { unit: Unit::Bundle(BundleId(5)), digest: DigestKind::Root, ..piece };
    for (header, golden) in [
        (Header::Piece(piece), HEADERS[0]),
        (Header::Piece(hole), HEADERS[1]),
        (Header::Piece(bundle), HEADERS[2]),
        (Header::End, HEADERS[3]),
    ] {
        assert_eq!(hex(&header.encode()), golden, "{header:?}");
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

const HEADERS: [&str; 4] = [
    "4c486431010616000201000000000000030000000000000002000000000000000001000000000000000200000000000000040000000000000000000000000000",
    "4c486431010316000201000000000000030000000000000002000000000000000000000000000000000000000000000000040000000000000000000000000000",
    "4c486431020416000500000000000000000000000000000002000000000000000001000000000000000200000000000000040000000000000000000000000000",
    "4c486431030000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
];

#[test]
fn a_bundle_is_these_bytes() {
    let mut unit = [0xee; 112];
    let mut packer = Packer::new(&mut unit, 2);
    packer.space(3).expect("room").copy_from_slice(b"abc");
    packer.keep(FileId(7), 3, [0xaa; 32]);
    let (len, files) = packer.finish();
    assert_eq!((files, hex(&unit[..len])), (1, BUNDLE.to_owned()));
}

const BUNDLE: &str = "010000006800000007000000000000000300000000000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000616263";

#[test]
fn a_lane_joins_by_these_bytes() {
    let claim = Claim { session: [1; 16], lane: LaneId(2), dialer_nonce: [3; 16], acceptor_nonce: [4; 16] };
    let key = JoinKey([5; 32]);
    let opening = Opening { session: [1; 16], lane: LaneId(2), nonce: [3; 16], trial: 8948 };
    assert_eq!(hex(&opening.encode()), JOIN[0]);
    assert_eq!(hex(&key.prove(Prover::Acceptor, &claim)), JOIN[1]);
    assert_eq!(hex(&key.prove(Prover::Dialer, &claim)), JOIN[2]);
    let claim = Claim { acceptor_nonce: [0; 16], ..claim };
    assert_eq!(hex(&key.prove(Prover::PrivateDialer, &claim)), JOIN[3]);
}

const JOIN: [&str; 4] = [
    "010101010101010101010101010101010200000003030303030303030303030303030303f4220000",
    "81a56e51a6493b82f634264e7526d1b0fc3a23c47e3a86291164792d8243fbf9",
    "bc360ad0948c09ec703d51756b1b3d23e66330a3c5308c03f0c90c2ba41d3708",
    "1fc8f38a7d362f03db68b228932c09e7fdad20b3aef80ef288b86f6c1728ef04",
];
