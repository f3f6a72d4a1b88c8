//! Docs: each item that another module can name has a doc comment.
//!
//! Takes the visible items of the crates outside of tests; gives one ratchet. Must not know what
//! good docs are. The compiler asks for docs of what leaves a crate; this asks for those of what
//! leaves a module: items and fields with a `pub` of any kind, and what a visible trait asks for.

use super::items::{Code, Place};
use super::ratchet::{Found, Rule};
use super::tree::products;

pub(super) const DOCS: Rule = Rule {
    list: "missing-docs",
    form: "path: items",
    says: "An item or field with a `pub` of any kind has a doc comment.",
    remedy: "Write them, or take the `pub` away.",
    counted: true,
};

#[test]
fn visible_items_have_docs() {
    let mut found = Found::default();
    for product in products() {
        let path = &product.file.path;
        for (line, name) in silent(&product.code) {
            found.one(path, format!("{path}:{line}: {name}"));
        }
    }
    DOCS.hold(&found);
}

/// Lines and names of visible items and fields without docs. Modules say theirs in their files.
fn silent(code: &Code) -> Vec<(usize, String)> {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    let mut found = Vec::new();
    for item in code.of_kind(&kinds) {
        let visible = item.visible || item.kind == "fn" && item.place == Place::Trait { visible: true };
        if visible && !item.documented {
            found.push((item.line, item.full_name()));
        }
        if item.kind == "struct" {
            let fields = code.fields(item).into_iter().filter(|field| field.visible && !field.documented);
            found.extend(fields.map(|field| (field.line, format!("{}::{}", item.name, field.name))));
        }
    }
    found
}

#[test]
fn a_visible_item_without_docs_is_found() {
    let names = |text: &str| silent(&Code::of(text)).into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ");
    let bad = "pub(super) struct A { pub(crate) a: u8 } impl A { pub fn b() {} } pub const C: u8 = 1;
        pub trait T { fn d(); }";
    assert_eq!(names(bad), "A A::a A::b C T T::d");
    let good = "/// A.\n#[derive(X)]\npub struct A { /// A.\n pub a: u8, b: u8 }
        impl T for A { fn c() {} } impl A { #[doc(hidden)] pub fn d() {} fn e() {} }
        pub mod m; pub use a::b; trait T { fn f(); }
        #[cfg(test)] pub(crate) fn g() {}";
    assert_eq!(names(good), "");
}
