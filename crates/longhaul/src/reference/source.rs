//! Structs and enums as a source file declares them: names, docs, attributes, types.
//!
//! It owns a reader of sources as rustfmt leaves them, a declaration on a line. Texts come in from
//! `reference`; shapes go to `events`, `config` and `exits`. It must not know what a type means.

/// A struct or an enum.
#[derive(Debug)]
pub(super) struct Shape {
    /// Whether it is an enum.
    pub(super) is_enum: bool,
    /// Its name, without parameters.
    pub(super) name: String,
    /// Its doc comment in one line.
    pub(super) docs: String,
    /// Its attributes, as they are written.
    pub(super) attributes: Vec<String>,
    /// Fields or variants, in their order.
    pub(super) parts: Vec<Part>,
}

/// A field or a variant.
#[derive(Debug)]
pub(super) struct Part {
    /// Its name.
    pub(super) name: String,
    /// Its doc comment in one line.
    pub(super) docs: String,
    /// Its attributes, as they are written.
    pub(super) attributes: Vec<String>,
    /// The type of a field, the types in a variant's parentheses, or the number of a variant.
    pub(super) kind: String,
}

impl Shape {
    /// Whether an attribute has this word.
    pub(super) fn has(&self, word: &str) -> bool {
        self.attributes.iter().any(|attribute| has_word(attribute, word))
    }
}

impl Part {
    /// Whether an attribute has this word.
    pub(super) fn has(&self, word: &str) -> bool {
        self.attributes.iter().any(|attribute| has_word(attribute, word))
    }

    /// The text that an attribute gives to a word, as in `rename = "type"`.
    pub(super) fn given(&self, word: &str) -> Option<&str> {
        let opening = format!("{word} = \"");
        self.attributes.iter().find_map(|attribute| attribute.split_once(&opening)?.1.split('"').next())
    }
}

fn has_word(attribute: &str, word: &str) -> bool {
    attribute.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// All structs with fields and all enums of a text that stand at its left edge.
pub(super) fn shapes(text: &str) -> Vec<Shape> {
    let mut found = Vec::new();
    let mut above = Above::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if above.takes(line) {
            continue;
        }
        let (docs, attributes) = above.end();
        let Some(name) = declared(line) else { continue };
        let body = lines.by_ref().take_while(|line| *line != "}");
        let is_enum = without_visibility(line).starts_with("enum ");
        found.push(Shape { is_enum, name, docs, attributes, parts: parts(body) });
    }
    found
}

/// The doc comment of the first line that has these words.
pub(super) fn docs_of(text: &str, words: &str) -> String {
    let mut above = Above::default();
    for line in text.lines().map(str::trim_start) {
        if above.takes(line) {
            continue;
        }
        let (docs, _) = above.end();
        if line.contains(words) {
            return docs;
        }
    }
    panic!("nothing is declared as {words}");
}

/// The name that a line declares if it opens a struct or an enum.
fn declared(line: &str) -> Option<String> {
    let rest = without_visibility(line);
    let rest = rest.strip_prefix("struct ").or_else(|| rest.strip_prefix("enum "))?;
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    rest.ends_with('{').then(|| name.to_owned())
}

fn parts<'a>(body: impl Iterator<Item = &'a str>) -> Vec<Part> {
    let mut above = Above::default();
    let mut parts = Vec::new();
    for line in body.map(str::trim).filter(|line| !line.is_empty()) {
        if above.takes(line) || line.starts_with("//") {
            continue;
        }
        let (docs, attributes) = above.end();
        let line = without_visibility(line);
        let line = line.strip_suffix(',').unwrap_or_else(|| panic!("{line}: this does not end in a comma"));
        let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let kind = line[name.len()..].trim_start_matches([':', ' ', '=']);
        let kind = kind.strip_prefix('(').and_then(|kind| kind.strip_suffix(')')).unwrap_or(kind).to_owned();
        parts.push(Part { name, docs, attributes, kind });
    }
    parts
}

fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, rest)| rest),
        Some(rest) => rest.trim_start(),
        None => line,
    }
}

/// The lines that stand above a declaration.
#[derive(Default)]
struct Above {
    docs: Vec<String>,
    attributes: Vec<String>,
}

impl Above {
    /// Takes a line if it is a doc comment or an attribute.
    fn takes(&mut self, line: &str) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            self.docs.push(doc.trim().to_owned());
        } else if line.starts_with("#[") {
            self.attributes.push(line.to_owned());
        } else {
            return false;
        }
        true
    }

    /// Docs and attributes, for the declaration that follows. Headings and what stands beneath them
    /// are for programmers.
    fn end(&mut self) -> (String, Vec<String>) {
        let docs = std::mem::take(&mut self.docs);
        let docs: Vec<_> = docs.into_iter().take_while(|line| !line.starts_with('#')).collect();
        (docs.join(" ").trim().to_owned(), std::mem::take(&mut self.attributes))
    }
}

#[test]
fn declarations_are_read_with_docs_attributes_and_types() {
    let text = "/// A thing\n/// that is.\n#[derive(Serialize)]\npub(super) struct Thing<'a> {\n    \
                /// The name.\n    #[serde(rename = \"type\")]\n    pub(in crate::a) name: &'a str,\n    size: Option<u64>,\n}\n\n\
                fn f() {}\n\nenum Choice {\n    /// One.\n    One(String),\n    Two = 2,\n}\n";
    let [thing, choice] = <[Shape; 2]>::try_from(shapes(text)).expect("two shapes");
    assert_eq!((thing.name.as_str(), thing.docs.as_str(), thing.has("Serialize")), ("Thing", "A thing that is.", true));
    assert_eq!((thing.parts[0].name.as_str(), thing.parts[0].kind.as_str()), ("name", "&'a str"));
    assert_eq!((thing.parts[0].docs.as_str(), thing.parts[0].given("rename")), ("The name.", Some("type")));
    assert_eq!((thing.parts[1].name.as_str(), thing.parts[1].kind.as_str()), ("size", "Option<u64>"));
    assert!(choice.is_enum && !thing.is_enum);
    assert_eq!((choice.parts[0].name.as_str(), choice.parts[0].kind.as_str()), ("One", "String"));
    assert_eq!((choice.parts[1].name.as_str(), choice.parts[1].kind.as_str()), ("Two", "2"));
}
