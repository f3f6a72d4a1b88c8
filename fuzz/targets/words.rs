//! Words of a peer: no decoded text acts on a terminal, is too long, or shows something else than
//! it is. The first byte chooses between a message and a text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::limits::{NAME_BYTES_MAX, PEER_TEXT_BYTES_MAX};
use longhaul_core::{Author, Escaped, PlainText, Word, is_deceptive};
use longhaul_proto::Message;
use longhaul_proto::wire::message::Outcome;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some((&chosen, bytes)) = bytes.split_first() else { return };
    if chosen == b't' { text(bytes) } else { message(chosen, bytes) }
});

/// A message of the number `number`.
fn message(number: u8, body: &[u8]) {
    let Ok(message) = Message::decode(&[&[number], body].concat()) else { return };
    let Ok(value) = message.serialize_body(serde_json::value::Serializer) else { return };
    assert_clean(&value);
    assert!(!format!("{message:?}").chars().any(is_deceptive));
    // Its faults are known to be its own.
    let faults: Vec<_> = match &message {
        Message::Refuse(fault) => vec![fault],
        Message::Settled(list) => list
            .iter()
            .filter_map(|settled| if let Outcome::Failed(fault) = &settled.outcome { Some(fault) } else { None })
            .collect(),
        _ => Vec::new(),
    };
    assert!(faults.iter().all(|fault| fault.author == Author::Peer));
}

fn assert_clean(value: &Value) {
    match value {
        Value::String(text) => {
            assert!(text.len() <= PEER_TEXT_BYTES_MAX && !text.chars().any(is_deceptive), "{text:?}");
        }
        Value::Array(values) => values.iter().for_each(assert_clean),
        Value::Object(fields) => fields.values().for_each(assert_clean),
        _ => {}
    }
}

fn text(bytes: &[u8]) {
    let shown = Escaped(bytes).to_string();
    assert!(!shown.chars().any(is_deceptive));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let plain = PlainText::from(text);
    assert!(!plain.chars().any(is_deceptive) && PlainText::of(&plain) == plain);
    assert!(plain.clone().cut().len() <= PEER_TEXT_BYTES_MAX && plain.starts_with(plain.clone().cut().as_str()));
    let is_word = text.len() <= NAME_BYTES_MAX && plain == text;
    assert_eq!(Word::try_from(text).is_ok(), is_word);
}
