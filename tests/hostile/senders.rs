//! Senders of well-formed messages against the rules: the daemon ends that session, keeps nothing
//! of it, and continues to serve.

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{
    Attempt, BundleId, ChunkIndex, ChunkSize, DigestKind, EntryKind, FaultCode, FileId, FileOffset, LaneId, Unit,
};
use longhaul_proto::Message;
use longhaul_proto::wire::data::{HEADER_BYTES, Piece};
use longhaul_proto::wire::message::{Declared, Ending, FileEnd, FileFault, Outcome, Page, Request, Settlement, Tally};

use super::peer::{Client, bundle, chunk, entry, file, hello, packed, page, push_to};
use super::{Abuse, assert_serves, client, stocked};
use crate::fixture::files;
use crate::fixture::tree::{self, Tree};

#[test]
fn a_sender_that_breaks_the_rules_is_refused_and_leaves_nothing() {
    let site = stocked();
    for (number, (what, abuse, code)) in SENDERS.iter().enumerate() {
        let top = format!("case-{number}");
        let mut client = client(&site);
        client.agree(push_to("data", &top));
        client.lane();
        abuse(&mut client);
        assert_eq!(client.speech.end(), *code, "{what}\n{}", site.daemon.log());
        // The daemon hears out whom it refused.
        drop(client);
        site.daemon.wait_log(&format!("ended: push to data/{top}:"));
        let left = Tree::of(site.root().join(top)).paths();
        assert_eq!(left, [""], "{what}: what the session wrote");
    }
    assert_serves(&site, "senders that break the rules");
}

/// A page that goes on.
fn more(first: u64, entries: Vec<longhaul_core::Entry>) -> Message {
    Message::Page(Page { first: FileId(first), last: false, entries })
}

/// A link entry that points to `target`.
fn link(target: &[u8]) -> longhaul_core::Entry {
    entry("link", EntryKind::Symlink { target: target.to_vec() })
}

/// Announces one file of two chunks, id 0, and waits until they are wanted.
fn large(c: &mut Client) {
    c.speech.say(&page(0, vec![file("large", 2 << 20)]));
    let wanted = c.speech.hear_until(|message| match message {
        Message::WantChunks(want) => Some((want.file, want.start, want.count)),
        _ => None,
    });
    assert_eq!(wanted, Some((FileId(0), ChunkIndex(0), 2)));
}

/// Announces two small files, ids 0 and 1, of 5 bytes each, and waits until they are wanted.
fn small(c: &mut Client) {
    c.speech.say(&page(0, vec![file("a", 5), file("b", 5), file("large", 2 << 20)]));
    let wanted = c.speech.hear_until(|message| match message {
        Message::Answer(answer) => Some(answer.wanted),
        _ => None,
    });
    assert_eq!(wanted, Some(vec![0b111]));
}

/// Sends a bundle with this table and payload, with the right digest behind it.
fn send_unit(c: &mut Client, unit: &[u8]) {
    let digest = digest_of(unit, DigestKind::Root, FileOffset(0));
    c.send_unit(bundle(unit.len() as u64), unit, digest.bytes());
}

fn declared(seq: u64) -> Declared {
    let unit = Unit::Bundle(BundleId(0));
    Declared { lane: LaneId(0), seq, unit, attempt: Attempt::FIRST, digest: Digest::Root([1; 32]) }
}

const SENDERS: &[Abuse] = &[
    ("a second hello", |c| c.speech.say(&hello(Request::Roots)), "protocol"),
    ("a receiver's words", |c| c.speech.say(&Message::Tally(Tally::default())), "protocol"),
    ("a settlement", |c| c.speech.say(&Message::Settled(vec![])), "protocol"),
    ("goodbye at once", |c| c.speech.say(&Message::Bye(Ending::default())), "protocol"),
    ("a page that does not begin at the beginning", |c| c.speech.say(&page(1, vec![file("f", 1)])), "protocol"),
    ("an id twice", |c| (0..2).for_each(|_| c.speech.say(&more(0, vec![file("f", 1)]))), "protocol"),
    ("an empty page that is not the last", |c| c.speech.say(&more(0, vec![])), "protocol"),
    ("a page after the last", |c| (0..2).for_each(|n| c.speech.say(&page(n, vec![file("f", 1)]))), "protocol"),
    ("more entries than a page has", |c| c.speech.say(&page(0, vec![file("f", 1); 1025])), "protocol"),
    (
        "more pages than were asked for",
        |c| {
            // The answers are not waited for, and looking up a page takes longer than hearing it.
            let pages = (0..64).map(|n| more(n * 1000, vec![file("no/such/dir/f", 1); 1000]).encode());
            c.speech.say_bytes(&pages.collect::<Vec<_>>().concat());
        },
        "protocol",
    ),
    ("a link to nothing", |c| c.speech.say(&page(0, vec![link(b"")])), "protocol"),
    ("a link with a NUL", |c| c.speech.say(&page(0, vec![link(b"a\0b")])), "protocol"),
    ("an endless link", |c| c.speech.say(&page(0, vec![link(&[b'x'; 5000])])), "protocol"),
    ("the end of no file", |c| c.speech.say(&Message::FileEnd(FileEnd { file: FileId(0), root: [0; 32] })), "protocol"),
    (
        "the end of a small file",
        |c| {
            small(c);
            c.speech.say(&Message::FileEnd(FileEnd { file: FileId(0), root: [0; 32] }));
        },
        "protocol",
    ),
    (
        "two ends of a file",
        |c| {
            large(c);
            (0..2).for_each(|_| c.speech.say(&Message::FileEnd(FileEnd { file: FileId(0), root: [0; 32] })));
        },
        "protocol",
    ),
    (
        "the failure of no file",
        |c| {
            let message = Default::default();
            c.speech.say(&Message::FileFault(FileFault { file: FileId(7), code: FaultCode::Io, message }));
        },
        "protocol",
    ),
    ("two digests of one unit", |c| c.speech.say(&Message::Digests(vec![declared(0), declared(0)])), "protocol"),
    (
        "digests without end",
        |c| {
            for n in 0..40 {
                c.speech.say(&Message::Digests((n * 1000..(n + 1) * 1000).map(declared).collect()));
            }
        },
        "protocol",
    ),
    ("rubbish on a lane", |c| drop(c.lane().send(&[&[0x5a; HEADER_BYTES]])), "protocol"),
    (
        "a unit larger than a chunk",
        |c| {
            let piece = Piece {
                chunk: ChunkSize::from_log2(22).unwrap(),
                ..chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, 2 << 20)
            };
            c.send_unit(piece, &[0; 100], &[0; 32]);
        },
        "protocol",
    ),
    (
        "a chunk without its digest",
        |c| {
            large(c);
            let piece = Piece { trailer: false, ..chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, 1 << 20) };
            c.send_unit(piece, &[0; 1 << 20], &[0; 32]);
        },
        "protocol",
    ),
    (
        "half a chunk for a whole one",
        |c| {
            large(c);
            c.send_chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, &[7; 1 << 19]);
        },
        "protocol",
    ),
    (
        "a bundle that is none",
        |c| {
            small(c);
            send_unit(c, &[0xff; 100]);
        },
        "protocol",
    ),
    (
        "a bundle cut short",
        |c| {
            small(c);
            let mut unit = packed(&[(FileId(0), b"12345"), (FileId(1), b"12345")]);
            unit.pop();
            send_unit(c, &unit);
        },
        "protocol",
    ),
    (
        "a bundle with a file of another length",
        |c| {
            small(c);
            c.send_bundle(&[(FileId(0), b"1234567")]);
        },
        "protocol",
    ),
    (
        "a bundle with a file that comes in chunks",
        |c| {
            small(c);
            c.send_bundle(&[(FileId(2), b"12345")]);
        },
        "protocol",
    ),
    (
        "a bundle with a file twice",
        |c| {
            small(c);
            c.send_bundle(&[(FileId(0), b"12345"), (FileId(0), b"12345")]);
        },
        "protocol",
    ),
];

#[test]
fn units_that_nobody_wants_are_dropped_and_the_session_goes_on() {
    let site = stocked();
    let mut client = client(&site);
    client.agree(push_to("data", "got"));
    small(&mut client);
    let bytes = files::bytes(5, 2 << 20);
    // Never announced, never wanted, of another attempt; twice.
    for (id, index, attempt) in [(9, 0, 1), (u64::MAX, 1 << 40, 1), (0, 0, 1), (2, 5, 1), (2, 0, 2), (2, 0, u32::MAX)] {
        client.send_chunk(FileId(id), ChunkIndex(index), Attempt(attempt), &bytes[..1 << 20]);
    }
    client.send_bundle(&[(FileId(0), b"12345"), (FileId(1), b"67890"), (FileId(77), b"nobody's")]);
    for index in [1, 0, 0, 1] {
        let start = (index as usize) << 20;
        client.send_chunk(FileId(2), ChunkIndex(index), Attempt::FIRST, &bytes[start..start + (1 << 20)]);
    }
    client.speech.say(&Message::FileEnd(FileEnd { file: FileId(2), root: *blake3::hash(&bytes).as_bytes() }));
    let complete = client.speech.hear_until(|message| match message {
        Message::Complete(ending) => Some(ending.tally),
        Message::Refuse(fault) => panic!("{fault}"),
        _ => None,
    });
    assert_eq!(complete.map(|tally| tally.files), Some(3));
    client.speech.say(&Message::Bye(Ending::default()));
    site.daemon.wait_log("ended: push to data/got: complete");
    let got = Tree::of(site.root().join("got"));
    assert_eq!(got.paths(), ["", "a", "b", "large"]);
    let holds = |name: &str, bytes: &[u8]| assert!(got.node(name).kind == tree::Kind::File(bytes.to_vec()), "{got:?}");
    holds("a", b"12345");
    holds("b", b"67890");
    holds("large", &bytes);
}

#[test]
fn digests_that_lie_never_make_a_file() {
    let site = stocked();
    let mut client = client(&site);
    client.agree(push_to("data", "got"));
    let entries = vec![file("a", 5), file("chunk-lies", 2 << 20), file("root-lies", 2 << 20), file("b", 5)];
    client.speech.say(&page(0, entries));
    let bytes = files::bytes(5, 2 << 20);
    for index in [0, 1] {
        let part = &bytes[index << 20..(index + 1) << 20];
        client.send_chunk_when_wanted(FileId(2), ChunkIndex(index as u64), part);
    }
    client.speech.say(&Message::FileEnd(FileEnd { file: FileId(2), root: [9; 32] }));
    for attempt in 1..=3 {
        let piece = chunk(FileId(1), ChunkIndex(0), Attempt(attempt), 1 << 20);
        client.send_unit(piece, &bytes[..1 << 20], &[9; 32]);
    }
    // In a bundle that is right as such, a row may lie.
    let mut unit = packed(&[(FileId(0), b"12345"), (FileId(3), b"67890")]);
    let last = unit.len() - 1;
    unit[last] ^= 1;
    send_unit(&mut client, &unit);
    let mut outcomes: Vec<Settlement> = Vec::new();
    client.speech.hear_until(|message| match message {
        Message::Settled(list) => {
            outcomes.extend(list);
            None
        }
        Message::Refuse(fault) => panic!("{fault}"),
        Message::Complete(_) => Some(()),
        _ => None,
    });
    outcomes.sort_by_key(|settled| settled.file);
    let codes = outcomes.iter().map(|settled| match &settled.outcome {
        Outcome::Failed(fault) => fault.code.name(),
        _ => "committed",
    });
    assert_eq!(codes.collect::<Vec<_>>(), ["committed", "mismatch", "mismatch", "mismatch"]);
    assert_eq!(Tree::of(site.root().join("got")).paths(), ["", "a"]);
}

#[test]
fn a_client_that_goes_without_a_word_at_the_end_does_not_keep_its_session() {
    let site = stocked();
    let mut client = client(&site);
    client.agree(push_to("data", "got"));
    client.lane();
    client.speech.say(&page(0, vec![link(b"anything")]));
    client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
    drop(client);
    site.daemon.wait_log("ended: push to data/got: complete");
    assert!(site.root().join("got/link").is_symlink());
}

#[test]
fn of_two_entries_with_one_name_one_is_taken() {
    let site = stocked();
    let mut client = client(&site);
    client.agree(push_to("data", "got"));
    client
        .speech
        .say(&page(0, vec![file("a", 5), file("a", 5), file("a", 2 << 20), file("a/b", 5), link(b"x"), link(b"y")]));
    let wanted = client.speech.hear_until(|message| match message {
        Message::Answer(answer) => Some(answer.wanted),
        _ => None,
    });
    assert_eq!(wanted, Some(vec![0b1001]), "the first of each name is wanted");
    client.send_bundle(&[(FileId(0), b"first"), (FileId(3), b"below")]);
    client.speech.hear_until(|message| matches!(message, Message::Complete(_)).then_some(()));
    let got = Tree::of(site.root().join("got"));
    assert_eq!(got.paths(), ["", "a", "link"]);
    assert!(got.node("a").kind == tree::Kind::File(b"first".to_vec()), "{got:?}");
    assert!(got.node("link").kind == tree::Kind::Link(b"x".to_vec()), "{got:?}");
}
