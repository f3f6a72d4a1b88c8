//! Receivers that want units they may not have, or judge units that were not sent: the daemon ends
//! that session and continues to serve.

use longhaul_core::digest::Digest;
use longhaul_core::limits::{ENTRIES_UNSETTLED_MAX, PAGE_ENTRIES_MAX};
use longhaul_core::{Attempt, ChunkIndex, EntryKind, FileId, Unit};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{
    Answer, Ending, FarSource, Finding, Offer, Outcome, Page, Settlement, Verdict, WantChunks,
};

use super::peer::{Client, page, pull, rel, source};
use super::{Abuse, assert_serves, client, stocked};
use crate::fixture::Site;

#[test]
fn a_receiver_that_breaks_the_rules_is_refused() {
    let site = stocked();
    for (what, abuse, code) in RECEIVERS {
        let mut client = client(&site);
        client.agree(pull(vec![FarSource { contents: true, ..source("data", "") }], vec![]));
        client.lane();
        abuse(&mut client);
        assert_eq!(client.speech.end(), *code, "{what}\n{}", site.daemon.log());
    }
    assert_serves(&site, "receivers that break the rules");
}

fn offer(c: &mut Client) {
    c.speech.say(&Message::Offer(Offer { pages: 8, renamed: None, base: "".into() }));
}

/// Offers, reads all pages, and wants everything that has content. Returns the id of the file that
/// comes in chunks.
fn wanting(c: &mut Client) -> FileId {
    offer(c);
    let mut large = None;
    loop {
        let page = c.speech.hear_until(|message| match message {
            Message::Page(page) => Some(page),
            _ => None,
        });
        let Page { first, last, entries } = page.expect("a page");
        let files: Vec<bool> = entries.iter().map(|e| matches!(e.kind, EntryKind::File { .. })).collect();
        let wanted = files.chunks(8).map(|bits| bits.iter().enumerate().map(|(n, bit)| u8::from(*bit) << n).sum());
        c.speech.say(&Message::Answer(Answer { first, wanted: wanted.collect() }));
        let stands = entries.iter().position(|e| e.path == rel("stands"));
        large = large.or(stands.map(|at| FileId(first.0 + at as u64)));
        if last {
            return large.expect("it stands");
        }
    }
}

fn want(file: FileId, start: u64, count: u64) -> Message {
    Message::WantChunks(WantChunks { file, start: ChunkIndex(start), count })
}

fn verdict(unit: Unit, attempt: u32, finding: Finding) -> Message {
    Message::Verdicts(vec![Verdict { unit, attempt: Attempt(attempt), finding }])
}

fn settled(file: u64) -> Message {
    Message::Settled(vec![Settlement { file: FileId(file), outcome: Outcome::Skipped }])
}

/// The first chunk of the file that comes in chunks.
fn first(file: FileId) -> Unit {
    Unit::Chunk { file, index: ChunkIndex(0) }
}

const RECEIVERS: &[Abuse] = &[
    ("two offers", |c| (0..2).for_each(|_| offer(c)), "protocol"),
    ("a sender's words", |c| c.speech.say(&page(0, vec![])), "protocol"),
    (
        "an answer to no page",
        |c| c.speech.say(&Message::Answer(Answer { first: FileId(0), wanted: vec![1] })),
        "protocol",
    ),
    (
        "an answer without end",
        |c| {
            wanting(c);
            c.speech.say(&Message::Answer(Answer { first: FileId(0), wanted: vec![0xff; 100_000] }));
        },
        "protocol",
    ),
    (
        "what has no content",
        |c| {
            offer(c);
            c.speech.hear_until(|message| matches!(message, Message::Page(_)).then_some(()));
            c.speech.say(&Message::Answer(Answer { first: FileId(0), wanted: vec![0xff; 128] }));
        },
        "protocol",
    ),
    ("chunks of nothing", |c| c.speech.say(&want(FileId(0), 0, 1)), "protocol"),
    (
        "chunks beyond the end",
        |c| {
            let file = wanting(c);
            c.speech.say(&want(file, 0, 5));
        },
        "protocol",
    ),
    (
        "chunks twice",
        |c| {
            let file = wanting(c);
            (0..2).for_each(|_| c.speech.say(&want(file, 0, 1)));
        },
        "protocol",
    ),
    (
        "chunks without number",
        |c| {
            let file = wanting(c);
            c.speech.say(&want(file, 0, u64::MAX));
        },
        "protocol",
    ),
    (
        "a verdict on what was not sent",
        |c| {
            let file = wanting(c);
            c.speech.say(&verdict(first(file), 1, Finding::Again));
        },
        "protocol",
    ),
    (
        "a verdict on another attempt",
        |c| {
            let file = wanting(c);
            c.speech.say(&want(file, 0, 1));
            c.speech.say(&verdict(first(file), 2, Finding::Again));
        },
        "protocol",
    ),
    (
        "another digest than was sent",
        |c| {
            let file = wanting(c);
            c.speech.say(&want(file, 0, 1));
            c.speech.say(&verdict(first(file), 1, Finding::Good(Digest::Cv([1; 32]))));
        },
        "protocol",
    ),
    ("an outcome of nothing", |c| c.speech.say(&settled(77)), "protocol"),
    ("complete at once", |c| c.speech.say(&Message::Complete(Ending::default())), "protocol"),
    (
        "complete too soon",
        |c| {
            wanting(c);
            c.speech.say(&Message::Complete(Ending::default()));
        },
        "protocol",
    ),
];

#[test]
fn a_receiver_without_measure_gets_no_more_than_a_window() {
    let site = Site::new();
    const FILES: usize = 39_000;
    for dir in 0..30 {
        let dir = site.root().join(dir.to_string());
        std::fs::create_dir(&dir).unwrap();
        (0..FILES / 30).for_each(|n| drop(std::fs::File::create(dir.join(n.to_string())).unwrap()));
    }
    for answers in [false, true] {
        let mut client = client(&site);
        client.agree(pull(vec![FarSource { contents: true, ..source("data", "") }], vec![]));
        client.lane();
        client.speech.say(&Message::Offer(Offer { pages: u64::MAX, renamed: None, base: "".into() }));
        let mut heard = 0;
        // Every unit is answered, and no entry is ever settled, until no more units come.
        while let Some(message) = client.speech.hear() {
            match message {
                Message::Page(page) => {
                    heard += page.entries.len();
                    if answers {
                        client.speech.say(&Message::Answer(Answer { first: page.first, wanted: vec![] }));
                    }
                }
                Message::Heartbeat(_) => break,
                other => panic!("{other:?}"),
            }
        }
        let window = 2 * ENTRIES_UNSETTLED_MAX + PAGE_ENTRIES_MAX;
        assert!((1..=window).contains(&heard), "{heard} entries went to one that settles none, answers: {answers}");
    }
}
