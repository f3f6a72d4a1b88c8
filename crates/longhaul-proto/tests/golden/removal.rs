//! The messages by which names are moved away; their bytes stand beside those of all others.

use longhaul_core::{PlanName, Whereabouts};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    KnownFacts, KnownKind, KnownName, NameAnswer, RemovalAnswer, RemovalBatch, RemovalOpened, RemovalOrder,
};

use super::{fault, meta, path};

fn facts(kind: KnownKind) -> KnownFacts {
    KnownFacts { kind, dev: 1, ino: 300, bytes: 5, mtime: meta().mtime }
}

/// One of each, and their bytes.
pub(crate) fn messages() -> Vec<(Message, &'static str)> {
    let (host, at, above) = ([1; 16], vec![[2; 16]], vec![[3; 16]]);
    let whereabouts = Whereabouts { host, at, above, whole: true };
    let opened = RemovalOpened { device: 300, grace: ".l".into(), whereabouts: whereabouts.clone() };
    let plan = PlanName { digest: [0xab; 32], made: 300 };
    let names = vec![KnownName { path: path("a"), facts: facts(KnownKind::Link) }];
    let answers = vec![
        NameAnswer::Absent,
        NameAnswer::Found { facts: facts(KnownKind::Dir), within: 7 },
        NameAnswer::Moved,
        NameAnswer::MovedBefore,
        NameAnswer::Changed,
        NameAnswer::NotEmpty,
        NameAnswer::Refused(fault()),
    ];
    vec![
        (
            Message::RemovalOpened(opened),
            "3900000032ac02022e6c0101010101010101010101010101010101020202020202020202020202020202020103\
             03030303030303030303030303030301",
        ),
        (
            Message::Whereabouts(whereabouts),
            "340000003501010101010101010101010101010101010202020202020202020202020202020201030303030303\
             0303030303030303030301",
        ),
        (Message::RemovalOrder(RemovalOrder::Look(vec![path("a/b")])), "0700000033000103612f62"),
        (
            Message::RemovalOrder(RemovalOrder::Move(RemovalBatch { plan, names })),
            "2f0000003301ababababababababababababababababababababababababababababababababac0201016101\
             01ac020503ac02",
        ),
        (
            Message::RemovalAnswer(RemovalAnswer { names: answers, last: true }),
            "1c000000340700010201ac020503ac0207020304050603000161026e6f016201",
        ),
    ]
}
