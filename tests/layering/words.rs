//! Words of the command line: the libraries have none.
//!
//! Takes the texts in the code of the library crates outside of tests; gives a ratchet. Must not
//! know which options and commands there are: it knows their form, and how commands begin.

use super::ratchet::{Found, Rule};
use super::source::{Kind, Source, Token};
use super::tree::products;

/// The crates that another program may use.
const LIBRARIES: [&str; 10] = [
    "longhaul-core",
    "longhaul-disk",
    "longhaul-engine",
    "longhaul-jobs",
    "longhaul-jobs-postgres",
    "longhaul-jobs-sqlite",
    "longhaul-manifest",
    "longhaul-net",
    "longhaul-proto",
    "longhaul-sys",
];

/// The commands of the program, as they follow its name.
const COMMANDS: [&str; 10] =
    ["bench", "copy", "key authorize", "key generate", "key show", "key trust", "ls", "pull", "push", "serve"];

pub(super) const OPTIONS: Rule = Rule {
    list: "command-line-words",
    form: "path: texts",
    says: "No text of a library names an option or a command of the program.",
    remedy: "Add a hint to `longhaul-core`, and its words to `crates/longhaul/src/output/hints.rs`.",
    counted: true,
};

#[test]
fn libraries_name_no_option_and_no_command() {
    let mut found = Found::default();
    for product in products().iter().filter(|product| LIBRARIES.contains(&product.home.name.as_str())) {
        let path = &product.file.path;
        for token in spoken(&product.code.tokens) {
            found.one(path, format!("{path}:{}: {}", token.line, token.text));
        }
    }
    OPTIONS.hold(&found);
}

/// The texts that name an option or a command.
fn spoken<'c, 'a>(tokens: &'c [Token<'a>]) -> impl Iterator<Item = &'c Token<'a>> {
    tokens.iter().filter(|token| token.kind == Kind::Text && (names_option(token.text) || names_command(token.text)))
}

fn names_option(text: &str) -> bool {
    text.match_indices("--").any(|(at, _)| text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase()))
}

fn names_command(text: &str) -> bool {
    text.match_indices("longhaul ").any(|(at, name)| {
        let rest = &text[at + name.len()..];
        let ends = |behind: &str| !behind.starts_with(|c: char| c.is_ascii_lowercase());
        COMMANDS.iter().any(|command| rest.strip_prefix(command).is_some_and(ends))
    })
}

#[test]
fn an_option_or_a_command_in_a_text_is_found_and_other_words_are_not() {
    let bad = "f(\"lower --memory\"); g(r\"'longhaul ls' of it\");\n";
    let good = "// lower --memory\nf(\"a longhaul daemon\", \"a -- b\", \"no longhaul key: x\", a--b);\n";
    let lines = |text: &str| spoken(&Source::of(text).tokens).map(|token| token.text.len()).collect::<Vec<_>>();
    assert_eq!((lines(bad), lines(good)), (vec![16, 22], vec![]));
}
