//! Tests of texts of a peer: any text that is decoded from a message is harmless and short, or the
//! message is refused.
//!
//! In: messages made up at random, with hostile texts in the place of theirs. Walks every string of
//! a decoded message.

use longhaul_core::limits::PEER_TEXT_BYTES_MAX;
use longhaul_core::{Rights, is_deceptive};
use longhaul_proto::Message;
use longhaul_proto::wire::frame::LENGTH_BYTES;
use longhaul_proto::wire::message::{ListedKind, Listing};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use crate::strategies::messages;

/// Texts that would write over a terminal, begin a line of a log, or show something else than they
/// are.
const HOSTILE: &[&str] = &[
    "\x1b]0;owned\x07\x1b[2J",
    "\nlonghaul: complete",
    "a\u{9b}31m",
    "\u{202e}gpj.exe",
    "\u{61c}\u{ad}\u{180e}\u{fff9}\u{fffb}\u{2800}\u{3164}\u{115f}\u{ffa0}",
    "\u{e0041}\u{e007f}\u{fe0f}\u{e0100}\u{2066}\u{2028}",
    "read\r",
    "\0",
];

/// Every string that a message holds.
fn strings(message: &Message) -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&message.serialize_body(serde_json::value::Serializer).expect("it is plain data"), &mut found);
    found
}

/// As it travels: its length, which is below 128 here, and its bytes.
fn spelled(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

fn assert_clean(message: &Message) -> Result<(), TestCaseError> {
    for text in strings(message) {
        prop_assert!(!text.chars().any(is_deceptive) && text.len() <= PEER_TEXT_BYTES_MAX, "{:?}", text);
    }
    // Text of logs and panics is one line too.
    let logged = format!("{message:?}");
    prop_assert!(!logged.chars().any(is_deceptive), "{}", logged);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_text_of_a_decoded_message_is_clean(message in messages(), hostile in select(HOSTILE)) {
        let body = message.encode().split_off(LENGTH_BYTES);
        assert_clean(&message)?;
        for text in strings(&message).into_iter().filter(|text| text.len() < 128) {
            let spelled_text = spelled(&text);
            for at in 1..body.len() {
                if !body[at..].starts_with(&spelled_text) {
                    continue;
                }
                let forged = [&body[..at], &spelled(hostile), &body[at + spelled_text.len()..]].concat();
                if let Ok(read) = Message::decode(&forged) {
                    assert_clean(&read)?;
                }
            }
        }
    }

    #[test]
    fn a_right_that_is_not_known_is_no_listing(word in "\\PC{0,8}", known in select(&["read", "create", "modify", "delete"][..])) {
        let listing = |rights: &[&str]| {
            let names: Vec<u8> = rights.iter().flat_map(|right| spelled(right)).collect();
            Message::decode(&[&[19, 1, 1, b'r', 4, rights.len() as u8], &names[..], &[0, 0, 0, 0, 1]].concat())
        };
        prop_assert!(matches!(listing(&[known]), Ok(Message::Listing(_))));
        prop_assert!(listing(&[known, known]).is_err());
        prop_assert_eq!(listing(&[&word]).is_ok(), ["read", "create", "modify", "delete"].contains(&word.as_str()));
    }
}

#[test]
fn rights_are_told_by_their_names_in_their_order() {
    let listing = |rights: &[&str]| {
        let names: Vec<u8> = rights.iter().flat_map(|right| spelled(right)).collect();
        Message::decode(&[&[19, 1, 1, b'r', 4, rights.len() as u8], &names[..], &[0, 0, 0, 0, 1]].concat())
    };
    let Ok(Message::Listing(Listing { names, .. })) = listing(&["read", "modify"]) else { panic!("no listing") };
    assert_eq!(
        names[0].kind,
        ListedKind::Root { rights: Rights { read: true, create: false, modify: true, delete: false } }
    );
    for wrong in [
        &["modify", "read"][..],
        &["read", "read"],
        &["remove"],
        &["delete", "read"],
        &[""],
        &["read", "create", "modify", "read"],
    ] {
        assert!(listing(wrong).is_err(), "{wrong:?}");
    }
}

/// A field that is a bare `String` would come out as the peer said it.
#[test]
fn no_message_has_a_bare_string() {
    let sources = [
        ("flow.rs", include_str!("../../src/wire/message/flow.rs")),
        ("limiting.rs", include_str!("../../src/wire/message/limiting.rs")),
        ("listing.rs", include_str!("../../src/wire/message/listing.rs")),
        ("mod.rs", include_str!("../../src/wire/message/mod.rs")),
        ("opening.rs", include_str!("../../src/wire/message/opening.rs")),
        ("reading.rs", include_str!("../../src/wire/message/reading.rs")),
        ("removal.rs", include_str!("../../src/wire/message/removal.rs")),
        ("fault.rs", include_str!("../../../longhaul-core/src/fault.rs")),
        ("manifest.rs", include_str!("../../../longhaul-core/src/manifest.rs")),
    ];
    for (file, source) in sources {
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        assert_eq!(code.filter(|line| line.contains("String")).collect::<Vec<_>>(), Vec::<&str>::new(), "{file}");
    }
}
