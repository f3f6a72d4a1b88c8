//! Requests that contradict themselves or ask for things that do not exist: the daemon refuses them
//! and continues to serve.

use longhaul_core::filter::{Rule, RuleKind};
use longhaul_core::{ChunkSize, Role};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Hello, Request, Transfer, VERSION};

use super::peer::{Client, hello, page, pull, push_to, source};
use super::{Abuse, assert_serves, client, stocked};
use crate::fixture::tree::{self, Tree};

#[test]
fn requests_that_make_no_sense_are_refused() {
    let site = stocked();
    let before = Tree::of(site.root());
    for (what, abuse, code) in OPENINGS {
        let mut client = client(&site);
        abuse(&mut client);
        assert_eq!(client.speech.end(), *code, "{what}\n{}", site.daemon.log());
    }
    tree::assert_same(&before, &Tree::of(site.root()), "after requests that make no sense");
    assert_serves(&site, "requests that make no sense");
}

fn ask(client: &mut Client, transfer: Transfer) {
    client.speech.say(&hello(Request::Transfer(Box::new(transfer))));
}

const OPENINGS: &[Abuse] = &[
    ("a length that is no length", |c| c.speech.say_bytes(&[0xff; 16]), "protocol"),
    ("a message of no bytes", |c| c.speech.say_bytes(&[0; 4]), "protocol"),
    ("a number that nobody gave", |c| c.speech.say_bytes(&[1, 0, 0, 0, 250]), "protocol"),
    ("a body that ends too soon", |c| c.speech.say_bytes(&[3, 0, 0, 0, 1, 1, 1]), "protocol"),
    (
        "a body with more behind it",
        |c| {
            let mut bytes = hello(Request::Roots).encode();
            bytes[0] += 1;
            bytes.push(0);
            c.speech.say_bytes(&bytes);
        },
        "protocol",
    ),
    ("a page before all else", |c| c.speech.say(&page(0, vec![])), "protocol"),
    (
        "versions of a distant future",
        |c| {
            let request = Request::Roots;
            c.speech.say(&Message::Hello(Hello { version_min: VERSION + 1, version_max: u16::MAX, caps: 0, request }));
        },
        "unsupported",
    ),
    ("a set", |c| ask(c, Transfer { set: 1, ..push_to("data", "") }), "unsupported"),
    ("no initiator", |c| ask(c, Transfer { initiator: false, ..push_to("data", "") }), "unsupported"),
    ("no lanes", |c| ask(c, Transfer { lanes: 0, ..push_to("data", "") }), "unsupported"),
    (
        "chunks too small to be true",
        |c| ask(c, Transfer { chunk: ChunkSize::from_log2(10).unwrap(), ..push_to("data", "") }),
        "unsupported",
    ),
    (
        "a sender with sources elsewhere",
        |c| ask(c, Transfer { role: Role::Sender, ..pull(vec![], vec![]) }),
        "protocol",
    ),
    ("a receiver with a destination", |c| ask(c, Transfer { role: Role::Receiver, ..push_to("data", "") }), "protocol"),
    ("no sources", |c| ask(c, pull(vec![], vec![])), "protocol"),
    ("more sources than there may be", |c| ask(c, pull(vec![source("data", "small"); 1025], vec![])), "protocol"),
    (
        "a source in a root that is not there",
        |c| ask(c, pull(vec![source("data", "small"), source("other", "x")], vec![])),
        "denied",
    ),
    ("more rules than there may be", |c| ask(c, pull(vec![source("data", "")], vec![rule("*a"); 1025])), "usage"),
    ("a pattern without end", |c| ask(c, pull(vec![source("data", "")], vec![rule("[a")])), "usage"),
];

fn rule(pattern: &str) -> Rule {
    Rule { kind: RuleKind::Exclude, pattern: pattern.into() }
}
