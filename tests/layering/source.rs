//! Rust text, cut into tokens and comments, and freed from what is compiled for tests alone.
//!
//! Takes a file's text; gives the items and all the rules what they look at. Must not know what any
//! rule asks for, nor where a text lies. No compiler: it knows enough of the language to tell code
//! from comments and strings, and one bracket from another.

/// A piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Word,
    Number,
    /// A string or a character of any kind, with its quotes.
    Text,
    Lifetime,
    /// Punctuation: one character, or `::`, `->` and `=>`.
    Mark,
    /// An outer doc comment.
    Doc,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Its line, from 1 on.
    pub(super) line: usize,
}

impl Token<'_> {
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }
}

/// A line comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comment<'a> {
    /// From its slashes to the end of the line.
    pub(super) text: &'a str,
    /// Its line, from 1 on.
    pub(super) line: usize,
    /// Columns of the whole line.
    pub(super) columns: usize,
    /// No code stands before it.
    pub(super) alone: bool,
}

impl<'a> Comment<'a> {
    /// The slashes of a doc comment, and the rest of the line.
    pub(super) fn doc(&self) -> Option<(&'static str, &'a str)> {
        let plain = self.text.starts_with("////");
        ["///", "//!"].into_iter().filter(|_| !plain).find_map(|mark| Some((mark, self.text.strip_prefix(mark)?)))
    }
}

/// A text's tokens, tests and all, and its line comments.
pub(super) struct Source<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) comments: Vec<Comment<'a>>,
}

impl<'a> Source<'a> {
    pub(super) fn of(text: &'a str) -> Source<'a> {
        let mut cutter = Cutter { text, at: 0, line: 1, line_start: 0 };
        let mut source = Source { tokens: Vec::new(), comments: Vec::new() };
        while let Some(piece) = cutter.next() {
            match piece {
                Piece::Token(token) => source.tokens.push(token),
                Piece::Comment(comment) => {
                    source.comments.push(comment);
                    if comment.doc().is_some_and(|(mark, _)| mark == "///") {
                        source.tokens.push(Token { kind: Kind::Doc, text: comment.text, line: comment.line });
                    }
                }
                Piece::Nothing => {}
            }
        }
        source
    }

    /// The tokens without the items, fields and statements under `#[cfg(test)]`.
    pub(super) fn outside_tests(&self) -> Vec<Token<'a>> {
        let mut kept: Vec<Token> = Vec::with_capacity(self.tokens.len());
        let mut at = 0;
        while at < self.tokens.len() {
            match behind_test_attribute(&self.tokens, at) {
                Some(behind) => {
                    at = behind_item(&self.tokens, behind);
                    while kept.last().is_some_and(|token| token.kind == Kind::Doc) {
                        kept.pop();
                    }
                }
                None => {
                    kept.push(self.tokens[at]);
                    at += 1;
                }
            }
        }
        kept
    }

    /// The modules in files of their own that are compiled for tests alone: their names, and the
    /// paths that they are given.
    pub(super) fn test_modules(&self) -> Vec<(&'a str, Option<&'a str>)> {
        let tokens = &self.tokens;
        let starts = (0..tokens.len()).filter_map(|at| behind_test_attribute(tokens, at));
        starts
            .filter_map(|start| {
                let mut at = behind_attributes(tokens, start);
                let attributes = &tokens[start..at];
                let path = attributes.iter().position(|token| token.is("path")).and_then(|at| attributes.get(at + 2));
                if tokens.get(at)?.is("pub") {
                    at = behind_visibility(tokens, at);
                }
                let (module, name, end) = (tokens.get(at)?, tokens.get(at + 1)?, tokens.get(at + 2)?);
                (module.is("mod") && end.is(";")).then(|| (name.text, path.map(|path| path.text.trim_matches('"'))))
            })
            .collect()
    }
}

/// The index behind `#[cfg(test)]`, if that is at `at`.
fn behind_test_attribute(tokens: &[Token], at: usize) -> Option<usize> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let found = tokens.get(at..at + ATTRIBUTE.len())?;
    found.iter().zip(ATTRIBUTE).all(|(token, text)| token.is(text)).then_some(at + ATTRIBUTE.len())
}

/// The index behind the doc comments and attributes that begin at `at`.
pub(super) fn behind_attributes(tokens: &[Token], mut at: usize) -> usize {
    while let Some(token) = tokens.get(at) {
        if token.kind == Kind::Doc {
            at += 1;
        } else if token.is("#") {
            let open = at + 1 + usize::from(tokens.get(at + 1).is_some_and(|next| next.is("!")));
            if !tokens.get(open).is_some_and(|next| next.is("[")) {
                break;
            }
            at = closing(tokens, open) + 1;
        } else {
            break;
        }
    }
    at
}

/// The index behind `pub` at `at` and what stands in its parentheses.
pub(super) fn behind_visibility(tokens: &[Token], at: usize) -> usize {
    let restricted = tokens.get(at + 1).is_some_and(|next| next.is("("));
    if restricted { closing(tokens, at + 1) + 1 } else { at + 1 }
}

/// The index of the bracket that closes the one at `open`; the last index, if nothing does.
pub(super) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match change(token) {
            1 => depth += 1,
            -1 if depth <= 1 => return at,
            -1 => depth -= 1,
            _ => {}
        }
    }
    tokens.len().saturating_sub(1)
}

/// The index behind the angle brackets that open at `open`.
pub(super) fn behind_angles(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.is("<") {
            depth += 1;
        } else if token.is(">") {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    tokens.len()
}

/// How much deeper in brackets it is behind a token.
pub(super) fn change(token: &Token) -> i32 {
    match token.text {
        "(" | "[" | "{" if token.kind == Kind::Mark => 1,
        ")" | "]" | "}" if token.kind == Kind::Mark => -1,
        _ => 0,
    }
}

/// The index behind the item, field, variant or statement that begins at `from`.
fn behind_item(tokens: &[Token], from: usize) -> usize {
    const KEYWORDS: [&str; 13] =
        ["fn", "struct", "enum", "union", "impl", "mod", "trait", "use", "const", "static", "type", "let", "extern"];
    let (mut depth, mut item, mut typed) = (0, false, false);
    for (at, token) in tokens.iter().enumerate().skip(behind_attributes(tokens, from)) {
        let field = typed && !item;
        depth += change(token);
        if depth < 0 {
            return at;
        }
        match token.text {
            "<" if field && token.kind == Kind::Mark => depth += 1,
            ">" if field && token.kind == Kind::Mark => depth -= 1,
            "}" if depth == 0 && token.kind == Kind::Mark => return at + 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !item => return at + 1,
            ":" if depth == 0 => typed = true,
            word if KEYWORDS.contains(&word) && token.kind == Kind::Word => item = true,
            _ => {}
        }
    }
    tokens.len()
}

enum Piece<'a> {
    Token(Token<'a>),
    Comment(Comment<'a>),
    Nothing,
}

struct Cutter<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    line_start: usize,
}

impl<'a> Cutter<'a> {
    fn next(&mut self) -> Option<Piece<'a>> {
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        if first.is_whitespace() {
            self.skip(first.len_utf8());
            return Some(Piece::Nothing);
        }
        if rest.starts_with("//") {
            return Some(Piece::Comment(self.comment()));
        }
        if rest.starts_with("/*") {
            self.skip(block_len(rest));
            return Some(Piece::Nothing);
        }
        let (kind, len) = match text_len(rest) {
            Some(len) => (Kind::Text, len),
            None if first == '\'' => (Kind::Lifetime, 1 + word_len(&rest[1..])),
            None if rest.starts_with("r#") => (Kind::Word, 2 + word_len(&rest[2..])),
            None if first.is_alphabetic() || first == '_' => (Kind::Word, word_len(rest)),
            None if first.is_ascii_digit() => (Kind::Number, number_len(rest)),
            None => (Kind::Mark, mark_len(rest, first)),
        };
        let token = Token { kind, text: &rest[..len], line: self.line };
        self.skip(len);
        Some(Piece::Token(token))
    }

    fn comment(&mut self) -> Comment<'a> {
        let before = &self.text[self.line_start..self.at];
        let rest = &self.text[self.at..];
        let text = rest.lines().next().unwrap_or_default();
        let columns = before.chars().count() + text.chars().count();
        let comment = Comment { text, line: self.line, columns, alone: before.trim().is_empty() };
        self.skip(text.len());
        comment
    }

    fn skip(&mut self, len: usize) {
        let from = self.at;
        self.at += len;
        for (newline, _) in self.text[from..self.at].match_indices('\n') {
            self.line += 1;
            self.line_start = from + newline + 1;
        }
    }
}

/// Bytes of the block comment that `rest` begins with, and of those within it.
fn block_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Bytes of the string or character that `rest` begins with, if it does.
fn text_len(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let prefix = rest.len() - body.len();
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(inner) = raw[hashes..].strip_prefix('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let len = inner.find(&close).map_or(inner.len(), |at| at + close.len());
            return Some(prefix + 1 + hashes + 1 + len);
        }
    }
    let quote = body.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inner = &body[1..];
    if quote == '\'' {
        let mut chars = inner.chars();
        let first = chars.next()?;
        if first != '\\' && chars.next() != Some('\'') {
            return None;
        }
    }
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(prefix + 1 + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

fn word_len(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

fn number_len(rest: &str) -> usize {
    let whole = word_len(rest);
    let fraction = rest[whole..].strip_prefix('.').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    whole + fraction.map_or(0, |fraction| 1 + word_len(fraction))
}

fn mark_len(rest: &str, first: char) -> usize {
    let double = ["::", "->", "=>"].iter().any(|mark| rest.starts_with(mark));
    if double { 2 } else { first.len_utf8() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let tokens = Source::of(text).tokens;
        tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    fn outside(text: &str) -> String {
        let tokens = Source::of(text).outside_tests();
        tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn strings_hide_what_is_in_them() {
        for text in [r#""fn { //""#, r##"r#"fn " { //"#"##, r#"b"\" {""#, r"'{'", r"'\''", r"b'\\'", r#"c"/*""#, r"'é'"]
        {
            let source = Source::of(text);
            assert_eq!(source.tokens.len(), 1, "{text}: {:?}", source.tokens);
            assert_eq!(source.tokens[0].kind, Kind::Text, "{text}");
            assert!(source.comments.is_empty(), "{text}");
        }
    }

    #[test]
    fn lifetimes_raw_names_numbers_and_marks_are_told_apart() {
        assert_eq!(
            words("fn r#type<'a>(x: &'a u8) -> u8 { 0..1.5 }"),
            "fn r#type < 'a > ( x : & 'a u8 ) -> u8 { 0 . . 1.5 }"
        );
        assert_eq!(words("a::b.0.max(1) => 256 << 20u64"), "a :: b . 0 . max ( 1 ) => 256 < < 20u64");
    }

    #[test]
    fn comments_are_no_code_and_know_their_lines() {
        let source = Source::of("//! Top.\n\nfn a() {} // {\n    /// Doc.\n//// No doc.\n/* fn /* b */ { */ x");
        let found: Vec<_> = source.comments.iter().map(|c| (c.line, c.alone, c.columns, c.doc())).collect();
        let want = [
            (1, true, 8, Some(("//!", " Top."))),
            (3, false, 14, None),
            (4, true, 12, Some(("///", " Doc."))),
            (5, true, 12, None),
        ];
        assert_eq!(found, want);
        assert_eq!(source.tokens.last().map(|token| (token.text, token.line)), Some(("x", 6)));
    }

    #[test]
    fn code_for_tests_is_left_out_item_by_item() {
        assert_eq!(outside("a; #[cfg(test)] mod tests { fn x() { ; } } b;"), "a ; b ;");
        assert_eq!(outside("#[cfg(test)] #[allow(x)] pub(crate) fn f<A, B>() -> [u8; 3] { } b"), "b");
        assert_eq!(outside("struct A { #[cfg(test)] x: Map<K, V>, y: u8 }"), "struct A { y : u8 }");
        assert_eq!(outside("A { x, #[cfg(test)] y: 1 } b"), "A { x , } b");
        assert_eq!(outside("/// Doc.\n#[cfg(test)] mod tests; fn b() {}"), "fn b ( ) { }");
        assert_eq!(outside("#[cfg(feature = \"x\")] fn a() {}"), "# [ cfg ( feature = \"x\" ) ] fn a ( ) { }");
    }

    #[test]
    fn modules_of_tests_in_files_of_their_own_are_found() {
        let text = "#[cfg(test)] #[path = \"cut/tests.rs\"] mod tests; #[cfg(test)] pub(crate) mod testing; mod a;
            #[cfg(test)] mod inline { }";
        assert_eq!(Source::of(text).test_modules(), [("tests", Some("cut/tests.rs")), ("testing", None)]);
    }
}
