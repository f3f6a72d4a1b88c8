//! Functions: they fit a screen, and their callers see what they ask for.
//!
//! Takes the functions of the crates outside of tests; gives two ratchets. Must not know types.

use super::items::{Code, Item, Place};
use super::ratchet::{Found, Rule};
use super::tree::products;

/// Lines of a function, from its `fn` to its last brace.
const LINES_MAX: usize = 70;

pub(super) const SWITCHES: Rule = Rule {
    list: "bool-parameters",
    form: "path: parameters",
    says: "No function takes a `bool`: a call does not say what `true` means.",
    remedy: "Take an enum of two names, or make two functions.",
    counted: true,
};

pub(super) const LENGTH: Rule = Rule {
    list: "long-functions",
    form: "path: function: lines",
    says: "A function has at most 70 lines.",
    remedy: "Name a part of it and take that out.",
    counted: true,
};

#[test]
fn no_function_takes_a_bool() {
    let mut found = Found::default();
    for product in products() {
        let path = &product.file.path;
        for (function, parameter) in switches(&product.code) {
            found.one(path, format!("{path}:{}: {}, {parameter}", function.line, function.full_name()));
        }
    }
    SWITCHES.hold(&found);
}

#[test]
fn functions_fit_a_screen() {
    let mut found = Found::default();
    for product in products() {
        let path = &product.file.path;
        for function in long(&product.code) {
            let name = function.full_name();
            found.sized(format!("{path}: {name}"), function.lines, format!("{path}:{}", function.line));
        }
    }
    LENGTH.hold(&found);
}

/// The functions with a bare `bool` and the parameter's name. A trait gives the signature of those
/// in its impls.
fn switches<'c, 'a>(code: &'c Code<'a>) -> impl Iterator<Item = (&'c Item<'a>, &'a str)> {
    let own = code.of_kind(&["fn"]).filter(|function| function.place != Place::TraitImpl);
    own.flat_map(|function| {
        let parameters = code.parameters(function);
        let ends = |at: usize| parameters.get(at).is_none_or(|token| token.is(","));
        let bare = move |at: usize| parameters[at].is(":") && parameters[at + 1].is("bool") && ends(at + 2);
        let colons = (1..parameters.len().saturating_sub(1)).filter(move |at| bare(*at));
        colons.map(move |at| (function, parameters[at - 1].text))
    })
}

fn long<'c, 'a>(code: &'c Code<'a>) -> impl Iterator<Item = &'c Item<'a>> {
    code.of_kind(&["fn"]).filter(|function| function.lines > LINES_MAX)
}

#[test]
fn a_bool_is_found_where_it_is_a_parameter() {
    let bad =
        Code::of("fn a(x: bool) {} impl A { fn b(&self, x: u8, mut y: bool, z: bool) {} } trait T { fn c(d: bool); }");
    let names: Vec<_> = switches(&bad).map(|(function, name)| format!("{}/{name}", function.name)).collect();
    assert_eq!(names, ["a/x", "b/y", "b/z", "c/d"]);
    let good = Code::of(
        "fn a(x: &[bool], y: fn(bool), z: Vec<bool>) -> bool { let b: bool = c(|d: bool| d); b }
        impl T for A { fn b(x: bool) {} }
        struct S { x: bool }
        #[cfg(test)] fn c(x: bool) {}",
    );
    assert_eq!(switches(&good).count(), 0);
}

#[test]
fn a_long_function_is_found() {
    let function = |lines: usize| format!("/// Doc.\n#[inline]\nfn f() {{{}}}\n", "\n".repeat(lines - 1));
    assert_eq!(long(&Code::of(&function(70))).count(), 0);
    let text = format!("impl A {{ {} }}", function(71));
    let found: Vec<_> = long(&Code::of(&text)).map(|function| (function.full_name(), function.lines)).collect();
    assert_eq!(found, [("A::f".to_owned(), 71)]);
}
