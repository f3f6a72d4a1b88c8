//! The shape of the source tree, checked: rules that keep the house.
//!
//! Takes manifests and sources as text; gives tests, and lists of exceptions that only shrink (see
//! [`ratchet`]). Must not know what the product does, nor be compiled with it: it needs the
//! standard library and a reader of manifests.

#![allow(clippy::disallowed_methods, reason = "the test reads the source tree itself")]

mod comments;
mod crates;
mod docs;
mod functions;
mod items;
mod length;
mod limits;
mod ratchet;
mod rooms;
mod source;
mod tree;
mod types;
mod unsafety;
mod words;

/// Every rule that has a list.
const RULES: &[&ratchet::Rule] = &[
    &comments::OPENING,
    &comments::WIDTH,
    &docs::DOCS,
    &functions::LENGTH,
    &functions::SWITCHES,
    &length::FILES,
    &limits::NAMES,
    &rooms::CIRCLES,
    &types::FIELDS,
    &types::NAMES,
    &words::OPTIONS,
];

#[test]
fn every_list_belongs_to_a_rule() {
    let lists = tree::entries(&ratchet::lists());
    assert!(!lists.is_empty(), "no lists found");
    for list in lists {
        let owner =
            RULES.iter().find(|rule| list.file_name().is_some_and(|name| *name == *format!("{}.txt", rule.list)));
        assert!(owner.is_some(), "{} belongs to no rule: remove it", list.display());
    }
}
