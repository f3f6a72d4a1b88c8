//! The message by which files are read where they lie; its bytes stand beside those of all others.

use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    FoundName, FoundNames, FoundThing, Listed, ListedKind, Listing, ReadOrder, ReadingWord,
};

use super::{fault, meta, path};

/// One of each word, and their bytes.
pub(crate) fn messages() -> Vec<(Message, &'static str)> {
    let found = [
        (0, FoundThing::Absent),
        (1, FoundThing::File { bytes: 5, mtime: meta().mtime }),
        (2, FoundThing::Read { bytes: 5, b3: [0xab; 32] }),
        (3, FoundThing::Link { target: b"/t".to_vec() }),
        (4, FoundThing::Dir),
        (300, FoundThing::Special),
        (6, FoundThing::Failed(fault())),
    ];
    let names = found.into_iter().map(|(at, found)| FoundName { at, found }).collect();
    let listed = vec![Listed { name: b"n".to_vec(), kind: ListedKind::Dir, len: 0, meta: meta() }];
    let words = [
        (ReadingWord::Opened, "020000003700"),
        (ReadingWord::Look(vec![path("a/b")]), "0700000037010103612f62"),
        (ReadingWord::Read(ReadOrder { names: vec![path("a")], rate: 300 }), "070000003702010161ac02"),
        (ReadingWord::List(path("a")), "0400000037030161"),
        (
            ReadingWord::Found(FoundNames { names, last: true }),
            "44000000370407000001010503ac02020205abababababababababababababababababababababab\
             abababababababababab0303022f740404ac0205060603000161026e6f016201",
        ),
        (ReadingWord::Names(Listing { names: listed, last: true }), "0d000000370501016e0100a40303ac0201"),
    ];
    words.into_iter().map(|(word, bytes)| (Message::Reading(word), bytes)).collect()
}
