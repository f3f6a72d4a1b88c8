//! Types: one name for one thing, and few enough parts to keep in mind.
//!
//! Takes the types of the crates outside of tests; gives two ratchets. Must not know functions.

use super::items::{Code, Item, Place};
use super::ratchet::{Found, Rule};
use super::tree::products;

/// Named fields of a struct.
const FIELDS_MAX: usize = 12;

pub(super) const NAMES: Rule = Rule {
    list: "doubled-types",
    form: "crate: name: definitions",
    says: "A type's name is defined once in a crate.",
    remedy: "Name each for what it alone is.",
    counted: true,
};

pub(super) const FIELDS: Rule = Rule {
    list: "wide-types",
    form: "path: type: fields",
    says: "A struct has at most 12 fields.",
    remedy: "Give those that belong together a type of their own.",
    counted: true,
};

#[test]
fn a_type_has_its_name_for_itself() {
    let mut found = Found::default();
    for product in products() {
        for item in types(&product.code) {
            found.one(format!("{}: {}", product.home.name, item.name), format!("{}:{}", product.file.path, item.line));
        }
    }
    NAMES.hold(&found.repeated());
}

#[test]
fn structs_have_few_fields() {
    let mut found = Found::default();
    for product in products() {
        let path = &product.file.path;
        for (item, fields) in wide(&product.code) {
            found.sized(format!("{path}: {}", item.name), fields, format!("{path}:{}", item.line));
        }
    }
    FIELDS.hold(&found);
}

/// The types, traits and aliases that have a name of their own; not those that a trait asks for.
fn types<'c, 'a>(code: &'c Code<'a>) -> impl Iterator<Item = &'c Item<'a>> {
    code.of_kind(&["struct", "enum", "trait", "type"]).filter(|item| item.place == Place::Free)
}

fn wide<'c, 'a>(code: &'c Code<'a>) -> impl Iterator<Item = (&'c Item<'a>, usize)> {
    code.of_kind(&["struct"]).map(|item| (item, code.fields(item).len())).filter(|(_, fields)| *fields > FIELDS_MAX)
}

#[test]
fn a_doubled_name_is_found() {
    let code = Code::of(
        "struct A; mod m { enum A {} } fn f() { trait A {} } type B = A;
        impl I for A { type Item = u8; } impl I for B { type Item = u8; } trait I { type Item; }
        #[cfg(test)] mod tests { struct B; struct I; }",
    );
    let mut found = Found::default();
    types(&code).for_each(|item| found.one(item.name, "here"));
    assert_eq!(found.listed(), [("A", 3), ("B", 1), ("I", 1)]);
    assert_eq!(found.repeated().listed(), [("A", 3)]);
}

#[test]
fn a_wide_struct_is_found() {
    let with = |count: usize| (0..count).map(|n| format!("f{n}: Map<u8, fn(u8, u8)>,")).collect::<String>();
    let text =
        format!("struct Fits {{ {} }} struct Over {{ {} }} enum Other {{ A {{ {} }} }}", with(12), with(13), with(13));
    let code = Code::of(&text);
    let found: Vec<_> = wide(&code).map(|(item, fields)| (item.name, fields)).collect();
    assert_eq!(found, [("Over", 13)]);
}
