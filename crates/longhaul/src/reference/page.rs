//! The Markdown of a reference: a header, paragraphs, lists and tables.
//!
//! It owns wrapping and escaping. Plain texts come in from the modules of the documents; a page
//! goes back to them. It must not know what a text is about.

use std::fmt::Write;

use super::COMMAND;

/// A document that grows from top to bottom.
pub(super) struct Page {
    text: String,
}

impl Page {
    /// A document with its title and the line that says how it is made.
    pub(super) fn new(title: &str) -> Page {
        let mut page = Page { text: format!("# {title}\n\n") };
        page.text += &format!("Generated from the code; do not edit. Write it again with\n`{COMMAND}`\n\n");
        page
    }

    /// A heading of the second level.
    pub(super) fn heading(&mut self, text: &str) {
        self.add(format_args!("## {text}\n\n"));
    }

    /// A heading of the third level.
    pub(super) fn subheading(&mut self, text: &str) {
        self.add(format_args!("### {text}\n\n"));
    }

    /// A paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.add(format_args!("{}\n\n", wrapped(text, "", "")));
    }

    /// Markdown that is ready: it ends in an empty line.
    pub(super) fn ready(&mut self, text: &str) {
        self.add(format_args!("{text}"));
    }

    /// A block that is shown as it is. Lines that begin with a space keep their form; others are
    /// wrapped.
    pub(super) fn block(&mut self, text: &str) {
        let line = |line: &str| match line.starts_with(' ') {
            true => line.to_owned(),
            false => wrapped(line, "", ""),
        };
        let lines: Vec<String> = text.trim_end().lines().map(line).collect();
        self.add(format_args!("```text\n{}\n```\n\n", lines.join("\n")));
    }

    /// A table.
    pub(super) fn table<const COLUMNS: usize>(&mut self, heads: [&str; COLUMNS], rows: &[[String; COLUMNS]]) {
        self.add(format_args!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(COLUMNS)));
        for row in rows {
            let cells = row.each_ref().map(|cell| cell.replace('|', "\\|"));
            self.add(format_args!("| {} |\n", cells.join(" | ")));
        }
        self.text.push('\n');
    }

    /// The whole text.
    pub(super) fn end(self) -> String {
        format!("{}\n", self.text.trim_end())
    }

    fn add(&mut self, text: std::fmt::Arguments) {
        self.text.write_fmt(text).expect("memory");
    }
}

/// An item of a list.
pub(super) fn item(text: &str) -> String {
    format!("{}\n", wrapped(text, "- ", "  "))
}

/// A plain text in which nothing is taken for Markdown but code between backticks.
pub(super) fn escaped(text: &str) -> String {
    let mut is_code = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        is_code ^= c == '`';
        if !is_code && matches!(c, '<' | '*' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Words in lines of at most 100 columns.
fn wrapped(text: &str, first: &str, rest: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut begins = true;
    for word in text.split_whitespace() {
        let columns = lines.last().map_or(0, |line| line.chars().count());
        if !begins && columns + 1 + word.chars().count() > COLUMNS_MAX {
            lines.push(rest.to_owned());
            begins = true;
        }
        if let Some(line) = lines.last_mut() {
            *line += if begins { "" } else { " " };
            *line += word;
        }
        begins = false;
    }
    lines.join("\n")
}

/// The width of documents.
const COLUMNS_MAX: usize = 100;

#[test]
fn long_texts_are_wrapped_and_items_are_indented() {
    let text = "word ".repeat(40);
    let item = item(&text);
    let lines: Vec<_> = item.lines().collect();
    assert!(lines.iter().all(|line| line.len() <= COLUMNS_MAX), "{item}");
    assert!(lines[0].starts_with("- word") && lines[1..].iter().all(|line| line.starts_with("  word")), "{item}");
}

#[test]
fn code_is_not_escaped_and_the_rest_is() {
    assert_eq!(escaped("a*b `c*d` <e>"), "a\\*b `c*d` \\<e>");
}
