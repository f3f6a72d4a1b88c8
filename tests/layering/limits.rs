//! Limits: each has one home, where it has a name and a reason.
//!
//! Takes the constants of the product's crates outside of tests; gives one ratchet of their names,
//! and a rule without exceptions for values that were once written in several places.

use super::items::{Code, Item, Place};
use super::ratchet::{Found, Rule};
use super::source::{Kind, Token};
use super::tree::{Product, products};

/// Crates that ship nothing: limits there are those of a simulation.
const NO_PRODUCT: [&str; 2] = ["longhaul-sim", "longhaul-wan"];

/// The home of limits that more than one crate knows.
const HOME: &str = "crates/longhaul-core/src/limits.rs";

/// Values that stand nowhere but in [`HOME`], neither in code nor in texts for people; and the
/// names to write instead.
const ONLY_AT_HOME: [(&str, &str); 6] = [
    ("ByteCount(256<<20)", "MEMORY_BYTES_DEFAULT"),
    ("256MiB", "MEMORY_BYTES_DEFAULT"),
    ("at least 4 chunks", "MEMORY_CHUNKS_MIN"),
    ("from_millis(5)", "LONG_PATH_MILLISECONDS"),
    ("1 to 256", "DISK_DEPTH_MAX"),
    ("TCP_CA_NAME_MAX", "CONGESTION_NAME_BYTES_MAX"),
];

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
    for product in products().iter().filter(|product| ships(product)) {
        for item in limits(&product.code) {
            found.one(item.name, format!("{}:{}", product.file.path, item.line));
        }
    }
    NAMES.hold(&found.repeated());
}

#[test]
fn a_value_with_a_name_is_written_once() {
    let mut found = Vec::new();
    for Product { file, code, .. } in products().iter().filter(|product| ships(product) && product.file.path != HOME) {
        let strays = strays(code).into_iter();
        found.extend(strays.map(|(value, name)| format!("{}: {value}, which is {name}", file.path)));
    }
    assert!(found.is_empty(), "written out, and not by its name in {HOME}: {found:#?}");
}

/// The values in [`ONLY_AT_HOME`] that stand in a text, and their names.
fn strays(code: &Code) -> Vec<(&'static str, &'static str)> {
    let talks = |token: &&Token| matches!(token.kind, Kind::Text | Kind::Doc);
    let (talk, code): (Vec<&Token>, Vec<&Token>) = code.tokens.iter().partition(talks);
    let code: String = code.iter().map(|token| token.text).collect();
    let stands = |value: &str| code.contains(value) || talk.iter().any(|token| token.text.contains(value));
    ONLY_AT_HOME.into_iter().filter(|(value, _)| stands(value)).collect()
}

fn ships(product: &Product) -> bool {
    !NO_PRODUCT.contains(&product.home.name.as_str())
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

#[test]
fn a_value_that_is_written_out_is_found() {
    let names = |text: &str| strays(&Code::of(text)).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names("const A: ByteCount = ByteCount(256 << 20);"), ["MEMORY_BYTES_DEFAULT"]);
    assert_eq!(names("fn f() { hint(\"the default of 256MiB\") }"), ["MEMORY_BYTES_DEFAULT"]);
    assert_eq!(
        names("/// Deep, 1 to 256.\nfn f() { Duration::from_millis(5) }"),
        ["LONG_PATH_MILLISECONDS", "DISK_DEPTH_MAX"]
    );
    assert_eq!(
        names("fn f() { from_millis(50); 256 << 20 } #[cfg(test)] mod tests { const A: u8 = ByteCount(256 << 20); }"),
        [""; 0]
    );
}
