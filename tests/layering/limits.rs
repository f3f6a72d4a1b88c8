//! Limits: each has one home, where it has a name and a reason.
//!
//! Takes the constants of the product's crates outside of tests; gives one ratchet of their names.
//! Must not know what they limit.

use super::items::{Code, Item, Place};
use super::ratchet::{Found, Rule};
use super::tree::products;

/// Crates that ship nothing: limits there are those of a simulation.
const NO_PRODUCT: [&str; 2] = ["longhaul-sim", "longhaul-wan"];

/// A constant with such an end to its name is a limit.
const ENDINGS: [&str; 3] = ["_MAX", "_MIN", "_DEFAULT"];

pub(super) const NAMES: Rule = Rule {
    list: "doubled-limits",
    form: "name: definitions",
    says: "The name of a limit (a constant in _MAX, _MIN or _DEFAULT) is defined once in the product.",
    remedy: "If they are one limit, import it from one home (longhaul-core/src/limits.rs); if not, name each for what it limits.",
    counted: true,
};

#[test]
fn a_limit_has_one_home() {
    let mut found = Found::default();
    for product in products().iter().filter(|product| !NO_PRODUCT.contains(&product.home.name.as_str())) {
        for item in limits(&product.code) {
            found.one(item.name, format!("{}:{}", product.file.path, item.line));
        }
    }
    NAMES.hold(&found.repeated());
}

fn limits<'c, 'a>(code: &'c Code<'a>) -> impl Iterator<Item = &'c Item<'a>> {
    let constants = code.of_kind(&["const"]).filter(|item| item.place == Place::Free);
    constants.filter(|item| ENDINGS.iter().any(|ending| item.name.ends_with(ending)))
}

#[test]
fn a_doubled_limit_is_found() {
    let code = Code::of(
        "const A_MAX: u8 = 1; const B_MAX: u8 = 1; fn f() { const A_MAX: u8 = 2; x as *const B_MAX; }
        const C: u8 = 1; mod m { const C: u8 = 1; } const _: () = ();
        impl T for X { const B_MAX: u8 = 1; }
        #[cfg(test)] mod tests { const B_MAX: u8 = 2; }",
    );
    let mut found = Found::default();
    limits(&code).for_each(|item| found.one(item.name, "here"));
    assert_eq!(found.listed(), [("A_MAX", 2), ("B_MAX", 1)]);
    assert_eq!(found.repeated().listed(), [("A_MAX", 2)]);
}
