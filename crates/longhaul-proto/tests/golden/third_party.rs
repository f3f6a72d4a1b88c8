//! The messages of a copy from one daemon to another, and their bytes.

use longhaul_core::{ChunkSize, FaultCode, IfExists, Mtime, RelPath, ShardClaim, Sums, Transport, Word};
use longhaul_proto::Message;
use longhaul_proto::wire::grant::{Grant, GrantRight, ListedWrite, SignedGrant};
use longhaul_proto::wire::message::{
    ClaimKept, FarSource, Limit, Limited, Order, OrderBytes, OrderEnd, OrderEvent, OrderExpected, OrderFile,
    OrderFiles, OrderLeft, OrderListName, OrderListPart, OrderOutcome, OrderProgress, OrderSkills, OrderStart,
    OrderStop, OrderSum, OrderTaken, OrderUnsent, OrderVerdict, Protect, Request,
};

fn word(text: &str) -> Word {
    Word::try_from(text).expect("a word")
}

fn grant() -> SignedGrant {
    signed(GrantRight::Read)
}

fn signed(right: GrantRight) -> SignedGrant {
    let path = RelPath::new("x").expect("a path");
    let grant = Grant {
        id: [0x99; 16],
        issuer: [0x11; 32],
        holder: [0x22; 32],
        audience: [0x33; 32],
        right,
        sources: vec![FarSource { root: word("data"), path, contents: true }],
        not_before: 300,
        not_after: 400,
    };
    grant.signed(|_| [0x44; 64]).expect("small")
}

fn events() -> Vec<OrderEvent> {
    let path = || RelPath::new("x").expect("a path");
    let start = OrderStart {
        session: [0x55; 16],
        transport: Transport::Tcp,
        protect: Protect::Private,
        lanes: 3,
        chunk: ChunkSize::DEFAULT,
        congestion: word("bbr"),
        caps: 2,
    };
    let progress = OrderProgress {
        millis: 1,
        found: OrderSum { files: 2, bytes: 3 },
        scanned: true,
        committed: OrderSum { files: 4, bytes: 5 },
        without: OrderSum { files: 6, bytes: 7 },
        received: 8,
        arrived: 9,
        resumed: 10,
        durable: 11,
        limited: Some(Limited { by: Limit::Target, thousandths: 300 }),
    };
    let file = OrderFile {
        path: path(),
        placed: path(),
        outcome: OrderOutcome::Committed,
        bytes: 300,
        b3: Some([0xab; 32]),
        regular: true,
        renamed: false,
        replaced: Some(true),
        sums: Sums::default(),
    };
    let (path, placed) = (b"p".to_vec(), b"q".to_vec());
    let unsent = OrderUnsent { path, placed, reason: "fifo".into(), message: "m".into() };
    vec![
        OrderEvent::Started(start),
        OrderEvent::Moved(progress),
        OrderEvent::Settled(Box::new(file)),
        OrderEvent::Unsent(unsent),
        OrderEvent::Restarted([0x66; 16]),
        OrderEvent::Unheard(5),
    ]
}

/// Each message, and its bytes.
pub(super) fn messages() -> Vec<(Message, &'static str)> {
    let order = Order {
        host: word("a.b"),
        port: 7214,
        grant: grant(),
        rules: Vec::new(),
        lanes: 2,
        retry_seconds: 600,
        into: None,
    };
    let end = OrderEnd {
        verdict: OrderVerdict::Complete,
        files: OrderFiles { committed: 1, skipped: 2, failed: 3, changed: 4, mismatched: 5, total: 6 },
        bytes: OrderBytes { committed: 7, misread: 8, ..OrderBytes::default() },
        failures: vec![FaultCode::Denied],
        scanned: true,
        millis: 300,
        limits: vec![Limited { by: Limit::Source, thousandths: 1000 }],
    };
    vec![
        (Message::Order(order), GOLDEN[0]),
        (Message::ShownGrant(grant()), GOLDEN[1]),
        (Message::OrderTaken(OrderTaken { id: [0x99; 16] }), GOLDEN[2]),
        (Message::OrderEvents(events()), GOLDEN[3]),
        (Message::OrderEnded(Box::new(end)), GOLDEN[4]),
        (Message::OrderLeft(OrderLeft { id: [0x99; 16] }), GOLDEN[5]),
        (super::hello(Request::Order { id: [0x99; 16] }), GOLDEN[6]),
        (Message::OrderListPart(list()), GOLDEN[7]),
        (Message::OrderSkills(OrderSkills { lists: true, stops: true }), GOLDEN[8]),
        (Message::OrderStop(OrderStop { id: [0x99; 16] }), GOLDEN[9]),
        (Message::ShownGrant(signed(GrantRight::ReadListed([0x77; 32]))), GOLDEN[10]),
        (Message::ClaimKept(ClaimKept { shard: 300, fence: 7 }), GOLDEN[11]),
        (Message::ShownGrant(signed(GrantRight::WriteListed(listed_write()))), GOLDEN[12]),
    ]
}

fn listed_write() -> ListedWrite {
    let claim = ShardClaim { campaign: [0x55; 16], shard: 300, fence: 7, id: [0x66; 16] };
    ListedWrite { list: [0x77; 32], claim: Some(claim), if_exists: IfExists::Fail }
}

fn list() -> OrderListPart {
    let name = |path: &str, expected| OrderListName { path: RelPath::new(path).expect("a path"), expected };
    let mtime = Some(Mtime { secs: 300, nanos: 7 });
    let file = OrderExpected::File { bytes: 300, mtime };
    let names = vec![name("d", OrderExpected::Anything), name("e/f", file), name("g", OrderExpected::Link)];
    OrderListPart { names, last: true }
}

const GOLDEN: [&str; 13] = [
    "cb0000002b03612e62ae387e9999999999999999999999999999999911111111111111111111111111111111111111111111111111111111111111112222222222222222222222222222222222222222222222222222222222222222333333333333333333333333333333333333333333333333333333333333333300010464617461017801ac029003444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444440002d80400",
    "c00000002c7e9999999999999999999999999999999911111111111111111111111111111111111111111111111111111111111111112222222222222222222222222222222222222222222222222222222222222222333333333333333333333333333333333333333333333333333333333333333300010464617461017801ac02900344444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444",
    "110000002d99999999999999999999999999999999",
    "7b0000002e06005555555555555555555555555555555500000316036262720201010203010405060708090a0b0107ac02020178017800ac0201abababababababababababababababababababababababababababababababab0100010100000301700171046669666f016d05666666666666666666666666666666660705",
    "1a0000002f00010203040506070000000000000008010301ac020100e807",
    "110000003099999999999999999999999999999999",
    "15000000010101000499999999999999999999999999999999",
    "14000000380301640003652f6601ac0201d8040701670201",
    "03000000390101",
    "110000003a99999999999999999999999999999999",
    "e10000002c9e0199999999999999999999999999999999111111111111111111111111111111111111111111111111111111111111111122222222222222222222222222222222222222222222222222222222222222223333333333333333333333333333333333333333333333333333333333333333027777777777777777777777777777777777777777777777777777777777777777010464617461017801ac02900344444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444",
    "040000003bac0207",
    "060100002cc301999999999999999999999999999999991111111111111111111111111111111111111111111111111111111111111111222222222222222222222222222222222222222222222222222222222222222233333333333333333333333333333333333333333333333333333333333333330377777777777777777777777777777777777777777777777777777777777777770155555555555555555555555555555555ac02076666666666666666666666666666666602010464617461017801ac02900344444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444444",
];
