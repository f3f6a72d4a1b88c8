//! Rooms: the modules at the top of a crate do not import each other in circles.
//!
//! Takes the paths in the crates' code outside of tests; gives one ratchet of imports. Must not
//! know what is imported. A room is `src/X.rs` with all of `src/X/`. The crate's root is none: an
//! import through a name that `lib.rs` lends from a room is an import of that room. Only where
//! `lib.rs` has items of its own that rooms import, it is the room `lib`.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{Code, Item};
use super::ratchet::{Found, Rule};
use super::source::{Kind, Token, behind_visibility, closing};
use super::tree::products;

pub(super) const CIRCLES: Rule = Rule {
    list: "room-circles",
    form: "crate: from -> to",
    says: "The rooms of a crate (src/X.rs, src/X/) do not import each other in circles.",
    remedy: "Move what both need to a room that imports neither, or hand it in.",
    counted: false,
};

/// The code of one file, as a part of its crate.
struct Part<'c, 'a> {
    /// Its module, nothing for the root.
    module: Vec<&'a str>,
    code: &'c Code<'a>,
}

/// An import between rooms.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    from: String,
    to: String,
    /// The index of the importing part, and the line.
    part: usize,
    line: usize,
}

#[test]
fn rooms_do_not_import_each_other_in_circles() {
    let mut found = Found::default();
    let mut crates: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    // A `main.rs` is a crate of its own.
    for product in products().iter().filter(|product| !product.file.path.ends_with("src/main.rs")) {
        crates.entry(&product.home.name).or_default().push(product);
    }
    for (name, products) in crates {
        let module = |at: usize| products[at].home.module.iter().map(String::as_str).collect();
        let parts: Vec<_> =
            (0..products.len()).map(|at| Part { module: module(at), code: &products[at].code }).collect();
        let imports = imports(&parts);
        for import in in_circles(&imports) {
            let key = format!("{name}: {} -> {}", import.from, import.to);
            found.one(key, format!("{}:{}", products[import.part].file.path, import.line));
        }
    }
    CIRCLES.hold(&found);
}

/// The imports between rooms on which a way leads back.
fn in_circles(imports: &[Import]) -> impl Iterator<Item = &Import> {
    let mut ways: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports {
        ways.entry(&import.from).or_default().insert(&import.to);
    }
    imports.iter().filter(move |import| {
        let (mut met, mut open) = (BTreeSet::new(), vec![import.to.as_str()]);
        while let Some(room) = open.pop() {
            if met.insert(room) {
                open.extend(ways.get(room).into_iter().flatten());
            }
        }
        met.contains(import.from.as_str())
    })
}

/// All imports between rooms.
fn imports(parts: &[Part]) -> Vec<Import> {
    let rooms: BTreeSet<&str> = parts.iter().filter_map(|part| part.module.first().copied()).collect();
    let root = parts.iter().find(|part| part.module.is_empty());
    let lent = root.map(|root| lent(root.code, &rooms)).unwrap_or_default();
    let own: BTreeSet<&str> = root
        .into_iter()
        .flat_map(|root| &root.code.items)
        .filter(|item| item.owner.is_none() && !["mod", "impl"].contains(&item.kind))
        .map(|item| item.name)
        .collect();
    let mut found = BTreeSet::new();
    for (at, part) in parts.iter().enumerate() {
        let from = part.module.first().copied().unwrap_or("lib");
        for (line, path) in paths(part, &rooms) {
            let Some(&first) = path.first() else { continue };
            let room = rooms.get(first).or_else(|| lent.get(first)).copied();
            if let Some(to) = room.or(own.contains(first).then_some("lib")).filter(|to| *to != from) {
                found.insert(Import { from: from.to_owned(), to: to.to_owned(), part: at, line });
            }
        }
    }
    found.into_iter().collect()
}

/// The names that the root lends from rooms with `pub use`, and the rooms.
fn lent<'a>(code: &Code<'a>, rooms: &BTreeSet<&'a str>) -> BTreeMap<&'a str, &'a str> {
    let mut lent = BTreeMap::new();
    for start in visible_uses(&code.tokens) {
        for path in expanded(&code.tokens, start) {
            let path: Vec<_> = path.into_iter().skip_while(|part| ["crate", "self"].contains(part)).collect();
            if let (Some(room), Some(name)) = (path.first().and_then(|first| rooms.get(first)), path.last()) {
                lent.insert(*name, *room);
            }
        }
    }
    lent
}

/// The indexes behind `pub use`.
fn visible_uses(tokens: &[Token]) -> Vec<usize> {
    let visible = tokens.iter().enumerate().filter(|(_, token)| token.is("pub"));
    let behind = visible.map(|(at, _)| behind_visibility(tokens, at));
    behind.filter(|at| tokens.get(*at).is_some_and(|token| token.is("use"))).map(|at| at + 1).collect()
}

/// The paths in a part's code that begin at its crate's root: their lines, and what stands behind
/// `crate`. The root's own code may name its rooms without `crate`; what it only lends is left out.
fn paths<'a>(part: &Part<'_, 'a>, rooms: &BTreeSet<&'a str>) -> Vec<(usize, Vec<&'a str>)> {
    let tokens = &part.code.tokens;
    let root = part.module.is_empty();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        if token.is("pub") {
            at = behind_visibility(tokens, at);
            if root && tokens.get(at).is_some_and(|token| token.is("use")) {
                at += tokens[at..].iter().take_while(|token| !token.is(";")).count();
            }
            continue;
        }
        let begins = ["crate", "super", "self"].iter().any(|word| token.is(word))
            || root && token.kind == Kind::Word && rooms.contains(token.text);
        let path = begins && tokens.get(at + 1).is_some_and(|next| next.is("::"));
        if path && !(at > 0 && tokens[at - 1].is("::")) {
            let module = module_at(part, at);
            found.extend(expanded(tokens, at).into_iter().map(|path| (token.line, absolute(&module, path))));
            at += 1;
            while tokens.get(at).is_some_and(|next| next.is("::")) {
                at += 2;
            }
            continue;
        }
        at += 1;
    }
    found
}

/// The module that holds a token: the part's own, and those in braces around the token.
fn module_at<'a>(part: &Part<'_, 'a>, at: usize) -> Vec<&'a str> {
    let holds = |item: &&Item| item.kind == "mod" && item.body.contains(&at);
    let inner = part.code.items.iter().filter(holds).map(|item| item.name);
    part.module.iter().copied().chain(inner).collect()
}

/// A path from the crate's root on; `path` stands in `module`.
fn absolute<'a>(module: &[&'a str], path: Vec<&'a str>) -> Vec<&'a str> {
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    while let [first, others @ ..] = rest {
        match *first {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        rest = others;
    }
    base.into_iter().chain(rest.iter().copied()).collect()
}

/// The paths that begin at a token, one for each name in its braces.
fn expanded<'a>(tokens: &[Token<'a>], start: usize) -> Vec<Vec<&'a str>> {
    let mut path = Vec::new();
    let mut at = start;
    loop {
        match tokens.get(at) {
            Some(token) if token.is("{") => {
                let end = closing(tokens, at);
                let mut found = Vec::new();
                let mut inner = at + 1;
                while inner < end {
                    found.extend(expanded(&tokens[..end], inner).into_iter().map(|rest| [path.clone(), rest].concat()));
                    inner = behind_branch(&tokens[..end], inner);
                }
                return found;
            }
            Some(token) if token.kind == Kind::Word || token.is("*") => path.push(token.text),
            _ => return vec![path],
        }
        if !tokens.get(at + 1).is_some_and(|next| next.is("::")) {
            return vec![path];
        }
        at += 2;
    }
}

/// The index behind the comma that ends a branch of a `use`.
fn behind_branch(tokens: &[Token], from: usize) -> usize {
    let mut at = from;
    while at < tokens.len() && !tokens[at].is(",") {
        at = if tokens[at].is("{") { closing(tokens, at) + 1 } else { at + 1 };
    }
    at + 1
}

/// The circles among rooms whose files are given as `module path: text`.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let codes: Vec<_> = files.iter().map(|(_, text)| Code::of(text)).collect();
    let module = |at: usize| files[at].0.split("::").filter(|part| !part.is_empty()).collect();
    let parts: Vec<_> = codes.iter().enumerate().map(|(at, code)| Part { module: module(at), code }).collect();
    let imports = imports(&parts);
    in_circles(&imports)
        .map(|import| format!("{}->{} {}:{}", import.from, import.to, import.part, import.line))
        .collect()
}

#[test]
fn a_circle_is_found_with_its_files() {
    let files = [
        ("a", "use crate::b::X;\n"),
        ("b", "\nuse super::c::{self, Y};\n"),
        ("c::inner", "fn f() { super::super::a::g(); }"),
        ("d", "use crate::{a::A, b::{B, c}};"),
    ];
    assert_eq!(circles(&files), ["a->b 0:1", "b->c 1:2", "c->a 2:1"]);
}

#[test]
fn names_that_the_root_lends_lead_to_their_rooms() {
    let lends = ("", "mod a; mod b; pub use a::{x::X, Z as W}; pub(crate) use crate::b::Y;");
    assert_eq!(circles(&[lends, ("a", "use crate::Y;"), ("b", "use crate::X;")]), ["a->b 1:1", "b->a 2:1"]);
    let own = ("", "mod a; use a::X; pub fn run() { b::go() } fn other() {}");
    assert_eq!(circles(&[own, ("a", "fn f() { crate::run() }"), ("b", "")]), ["a->lib 1:1", "lib->a 0:1"]);
}

#[test]
fn layers_and_tests_and_a_rooms_own_modules_make_no_circle() {
    let files = [
        ("", "mod a; mod b; fn run() { a::go(); b::go(); }"),
        ("a", "use crate::b::X; use crate::a::inner::Y; pub(super) mod inner; pub(in crate::b) fn f() {}"),
        ("b", "#[cfg(test)] mod tests { use crate::a::Z; } // crate::a\nconst A: &str = \"crate::a::Z\";"),
        ("a::inner", "use super::super::b; use super::W; use std::a::b; mod deep { use super::super::V; }"),
    ];
    assert_eq!(circles(&files), Vec::<String>::new());
}
