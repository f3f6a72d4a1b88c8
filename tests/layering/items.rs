//! The items of a text: functions, types, constants, modules and impls, with all that stands within
//! them.
//!
//! Takes tokens; gives the rules each item's name, its owner, and the tokens of its head and of its
//! body. Must not know which items a rule wants, nor where a text lies.

use std::ops::Range;

use super::source::{Kind, Source, Token, behind_angles, behind_attributes, behind_visibility, change, closing};

/// A text outside of its tests: its tokens and its items.
pub(super) struct Code<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) items: Vec<Item<'a>>,
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a module or in a function.
    Free,
    /// In a trait's definition.
    Trait { visible: bool },
    /// In an impl of a type's own.
    Impl,
    /// In an impl of a trait, which says what its items look like.
    TraitImpl,
}

#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    /// Its keyword: `fn`, `struct`, `enum`, `trait`, `type`, `const`, `static`, `mod`, `impl`.
    pub(super) kind: &'a str,
    /// Its name; of an impl the name of the type.
    pub(super) name: &'a str,
    /// The type or trait that it stands in.
    pub(super) owner: Option<&'a str>,
    pub(super) place: Place,
    /// It has a `pub` of any kind.
    pub(super) visible: bool,
    pub(super) documented: bool,
    /// The line of its keyword, from 1 on, and the lines to its end.
    pub(super) line: usize,
    pub(super) lines: usize,
    /// Tokens between its name and its body, and those of its body without the braces.
    pub(super) head: Range<usize>,
    pub(super) body: Range<usize>,
}

impl Item<'_> {
    /// Its name with its owner's.
    pub(super) fn full_name(&self) -> String {
        self.owner.map_or_else(|| self.name.to_owned(), |owner| format!("{owner}::{}", self.name))
    }
}

/// A named field of a struct.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) line: usize,
    pub(super) visible: bool,
    pub(super) documented: bool,
}

impl<'a> Code<'a> {
    pub(super) fn of(text: &'a str) -> Code<'a> {
        Code::from_source(&Source::of(text))
    }

    pub(super) fn from_source(source: &Source<'a>) -> Code<'a> {
        let tokens = source.outside_tests();
        let items = items(&tokens);
        Code { tokens, items }
    }

    pub(super) fn of_kind(&self, kinds: &[&str]) -> impl Iterator<Item = &Item<'a>> {
        self.items.iter().filter(move |item| kinds.contains(&item.kind))
    }

    /// The tokens between the parentheses of a function.
    pub(super) fn parameters(&self, function: &Item) -> &[Token<'a>] {
        let generic = self.tokens.get(function.head.start).is_some_and(|token| token.is("<"));
        let open = if generic { behind_angles(&self.tokens, function.head.start) } else { function.head.start };
        if !self.tokens.get(open).is_some_and(|token| token.is("(")) {
            return &[];
        }
        &self.tokens[open + 1..closing(&self.tokens, open)]
    }

    /// The named fields of a struct.
    pub(super) fn fields(&self, item: &Item) -> Vec<Field<'a>> {
        let (mut fields, mut at) = (Vec::new(), item.body.start);
        while at < item.body.end {
            let start = at;
            at = behind_attributes(&self.tokens, at);
            let documented = is_documented(&self.tokens[start..at]);
            let visible = self.tokens[at].is("pub");
            if visible {
                at = behind_visibility(&self.tokens, at);
            }
            let (name, colon) = (self.tokens[at], self.tokens.get(at + 1));
            if at < item.body.end && name.kind == Kind::Word && colon.is_some_and(|colon| colon.is(":")) {
                fields.push(Field { name: name.text, line: name.line, visible, documented });
            }
            at = behind_comma(&self.tokens[..item.body.end], at);
        }
        fields
    }
}

/// The index behind the comma that ends a field at `from`.
fn behind_comma(tokens: &[Token], from: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        depth += change(token) + i32::from(token.is("<")) - i32::from(token.is(">"));
        if depth <= 0 && token.is(",") {
            return at + 1;
        }
    }
    tokens.len()
}

fn is_documented(attributes: &[Token]) -> bool {
    attributes
        .iter()
        .enumerate()
        .any(|(at, token)| token.kind == Kind::Doc || token.is("doc") && at > 0 && attributes[at - 1].is("["))
}

/// An open block that owns what stands in it.
struct Scope<'a> {
    end: usize,
    owner: Option<&'a str>,
    place: Place,
}

fn items<'a>(tokens: &[Token<'a>]) -> Vec<Item<'a>> {
    let mut found: Vec<Item> = Vec::new();
    let mut scopes: Vec<Scope> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        while scopes.last().is_some_and(|scope| scope.end <= at) {
            scopes.pop();
        }
        let start = at;
        let after = behind_attributes(tokens, at);
        let documented = is_documented(&tokens[start..after]);
        let visible = tokens.get(after).is_some_and(|token| token.is("pub"));
        let bare = if visible { behind_visibility(tokens, after) } else { after };
        let Some((keyword, name)) = keyword(tokens, bare) else {
            at = bare.max(start + 1);
            continue;
        };
        let (kind, line) = (tokens[keyword].text, tokens[keyword].line);
        let head = name.map_or(keyword + 1, |name| name + 1);
        let scope = scopes.last();
        let (owner, place) = scope.map_or((None, Place::Free), |scope| (scope.owner, scope.place));
        let (end, body) = extent(tokens, kind, head);
        let mut item = Item {
            kind,
            name: name.map_or("", |name| tokens[name].text),
            owner,
            place,
            visible,
            documented,
            line,
            lines: tokens.get(end).map_or(1, |last| last.line + 1 - line),
            head: head..body.start.saturating_sub(1).max(head),
            body: body.clone(),
        };
        let own = match kind {
            "impl" => {
                let (owner, place) = implemented(&tokens[item.head.clone()]);
                item.name = owner;
                Some(Scope { end: body.end, owner: Some(owner), place })
            }
            "trait" => Some(Scope { end: body.end, owner: Some(item.name), place: Place::Trait { visible } }),
            "fn" | "mod" => Some(Scope { end: body.end, owner: None, place: Place::Free }),
            _ => None,
        };
        scopes.extend(own);
        found.push(item);
        at = if ["const", "static"].contains(&kind) { head } else { body.start };
    }
    found
}

/// The index of the keyword of the item that begins at `at`, and the index of its name.
fn keyword(tokens: &[Token], at: usize) -> Option<(usize, Option<usize>)> {
    if at > 0 && (tokens[at - 1].is("*") || tokens[at - 1].is("raw")) && tokens.get(at)?.is("const") {
        return None;
    }
    let mut at = at;
    loop {
        let token = tokens.get(at)?;
        if token.kind != Kind::Word {
            return None;
        }
        let next = tokens.get(at + 1)?;
        match token.text {
            "impl" => return Some((at, None)),
            "const" if ["fn", "async", "unsafe", "extern"].iter().any(|word| next.is(word)) => at += 1,
            "async" | "unsafe" | "safe" | "default" => at += 1,
            "extern" => at += 1 + usize::from(next.kind == Kind::Text),
            "static" if next.is("mut") => return Some((at, Some(at + 2))),
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "mod" if next.kind == Kind::Word => {
                return Some((at, Some(at + 1)));
            }
            _ => return None,
        }
    }
}

/// The index of the last token of an item whose head begins at `head`, and its body.
fn extent(tokens: &[Token], kind: &str, head: usize) -> (usize, Range<usize>) {
    let (mut depth, valued) = (0, ["type", "const", "static"].contains(&kind));
    for (at, token) in tokens.iter().enumerate().skip(head) {
        if depth == 0 && token.is("{") && !valued {
            let end = closing(tokens, at);
            return (end, at + 1..end);
        }
        depth += change(token);
        if depth < 0 || depth == 0 && token.is(";") {
            return (at, at..at);
        }
    }
    (tokens.len().saturating_sub(1), head..head)
}

/// The name of the type that an impl is for, and whether the impl is of a trait.
fn implemented<'a>(head: &[Token<'a>]) -> (&'a str, Place) {
    let start = if head.first().is_some_and(|token| token.is("<")) { behind_angles(head, 0) } else { 0 };
    let (mut depth, mut of) = (0, None);
    for (at, token) in head.iter().enumerate().skip(start) {
        depth += change(token) + i32::from(token.is("<")) - i32::from(token.is(">"));
        if depth == 0 && token.is("where") {
            break;
        }
        let bound = head.get(at + 1).is_some_and(|next| next.is("<"));
        if depth == 0 && token.is("for") && !bound {
            of = Some(at + 1);
        }
    }
    let name = head[of.unwrap_or(start)..]
        .iter()
        .skip_while(|token| token.kind != Kind::Word || token.is("mut") || token.is("dyn"))
        .take_while(|token| token.is("::") || token.kind == Kind::Word && !token.is("where"))
        .filter(|token| token.kind == Kind::Word)
        .last();
    (name.map_or("", |token| token.text), if of.is_some() { Place::TraitImpl } else { Place::Impl })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        /// Doc.
        pub(crate) struct Pair<K: Ord, V> where K: Copy { /** D */ pub a: Map<K, V>, #[x] pub(super) b: fn(u8, u8), c: [u8; 2] }
        impl<'a, K: Into<V>, V> Pair<K, V> {
            pub const fn first(&self, flag: bool) -> [u8; 2] {
                struct Inner(u8);
                self.c as *const u8;
            }
        }
        impl<T> fmt::Debug for &mut crate::a::Pair<T> where for<'a> T: Fn(&'a u8) -> u8 {
            fn fmt(&self) {}
        }
        pub trait Shape: Sized { type Output; fn area<F: Fn(u8) -> u8>(&self, f: F) -> u8; }
        type Short = Box<dyn Fn(bool)>;
        const LIMIT: u64 = { 1 << 20 };
        unsafe extern \"C\" { fn outside(x: u8); }
        macro_rules! made { ($name:ident) => { struct $name; fn $name() {} } }
    ";

    #[test]
    fn items_are_found_with_their_owners() {
        let code = Code::of(TEXT);
        let found: Vec<_> = code.items.iter().map(|item| (item.kind, item.full_name(), item.place)).collect();
        let item = |kind, name: &str, place| (kind, name.to_owned(), place);
        let want = [
            item("struct", "Pair", Place::Free),
            item("impl", "Pair", Place::Free),
            item("fn", "Pair::first", Place::Impl),
            item("struct", "Inner", Place::Free),
            item("impl", "Pair", Place::Free),
            item("fn", "Pair::fmt", Place::TraitImpl),
            item("trait", "Shape", Place::Free),
            item("type", "Shape::Output", Place::Trait { visible: true }),
            item("fn", "Shape::area", Place::Trait { visible: true }),
            item("type", "Short", Place::Free),
            item("const", "LIMIT", Place::Free),
            item("fn", "outside", Place::Free),
        ];
        assert_eq!(found, want);
        assert!(code.items[0].documented && code.items[0].visible);
        assert!(!code.items[2].documented && code.items[2].visible);
        assert_eq!((code.items[2].line, code.items[2].lines), (5, 4));
    }

    #[test]
    fn fields_are_found_with_their_docs() {
        let code = Code::of(
            "struct A<T> { /// Doc.\n pub a: Map<u8, T>, #[x(y = 1)] pub(super) b: fn(u8) -> u8, c: [u8; 2] }",
        );
        let field = |name, line, visible, documented| Field { name, line, visible, documented };
        let want = [field("a", 2, true, true), field("b", 2, true, false), field("c", 2, false, false)];
        assert_eq!(code.fields(&code.items[0]), want);
        let tuple = Code::of("struct A(pub u8, u8); struct B; struct C {}");
        assert!(tuple.items.iter().all(|item| tuple.fields(item).is_empty()));
    }

    #[test]
    fn parameters_stand_behind_the_generics() {
        let code = Code::of("fn f<F: Fn(u8) -> u8, const N: usize>(a: u8, (b, c): (u8, u8)) -> impl Fn(u8) {}");
        let parameters: String = code.parameters(&code.items[0]).iter().map(|token| token.text).collect();
        assert_eq!(parameters, "a:u8,(b,c):(u8,u8)");
    }
}
