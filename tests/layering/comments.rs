//! Comments: every file says what it owns, lines are no wider than a page, and docs begin with
//! a subject.
//!
//! Takes the comments of every Rust file; gives two ratchets and one plain rule. Must not know
//! code.

use super::ratchet::{Found, Rule};
use super::source::Source;
use super::tree::everything;

/// Columns of a line of comment.
const COLUMNS_MAX: usize = 100;

/// Words that a doc comment does not begin with: they point at something the reader has not met.
const OPENINGS: [&str; 8] = ["What", "That", "So", "Of", "Those", "Who", "Whatever", "Whoever"];

pub(super) const WIDTH: Rule = Rule {
    list: "comment-width",
    form: "path: lines",
    says: "A line of comment has at most 100 columns.",
    remedy: "Wrap them.",
    counted: true,
};

pub(super) const OPENING: Rule = Rule {
    list: "opening-words",
    form: "path: comments",
    says: "No doc comment begins with What, That, So, Of, Those, Who, Whatever or Whoever.",
    remedy: "Begin with the thing itself: a noun, or a verb that the function does.",
    counted: true,
};

#[test]
fn every_source_file_says_what_it_owns() {
    let files = everything().map(|(file, _)| file);
    let silent: Vec<_> = files.filter(|file| !file.text.starts_with("//!")).map(|file| &file.path).collect();
    assert!(silent.is_empty(), "these do not open with //!: {silent:#?}");
}

#[test]
fn lines_of_comment_are_no_wider_than_a_page() {
    let mut found = Found::default();
    for (file, source) in everything() {
        wide(source).for_each(|line| found.one(&file.path, format!("{}:{line}", file.path)));
    }
    WIDTH.hold(&found);
}

#[test]
fn doc_comments_begin_with_a_subject() {
    let mut found = Found::default();
    for (file, source) in everything() {
        for (line, word) in pointing(source) {
            found.one(&file.path, format!("{}:{line}: {word}", file.path));
        }
    }
    OPENING.hold(&found);
}

/// The lines of comment that are too wide.
fn wide(source: &Source) -> impl Iterator<Item = usize> {
    source.comments.iter().filter(|comment| comment.alone && comment.columns > COLUMNS_MAX).map(|comment| comment.line)
}

/// The doc comments that begin with one of the words: their lines, and the word.
fn pointing<'a>(source: &Source<'a>) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut before = None;
    for comment in &source.comments {
        let Some((mark, text)) = comment.doc() else { continue };
        let goes_on = before == Some((mark, comment.line - 1));
        before = Some((mark, comment.line));
        let text = text.trim_start();
        let word = &text[..text.find(|c: char| !c.is_alphabetic()).unwrap_or(text.len())];
        if !goes_on && OPENINGS.contains(&word) {
            found.push((comment.line, word));
        }
    }
    found
}

#[test]
fn a_wide_comment_is_found_and_wide_code_is_not() {
    let (fits, over) = ("x".repeat(97), "x".repeat(98));
    let text =
        format!("// {fits}\n// {over}\n    /// {over}\nlet a = \"{over}\"; // {over}\nlet b = \"\n// {over}\";\n");
    assert_eq!(wide(&Source::of(&text)).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_doc_comment_without_a_subject_is_found() {
    let bad = "//! What it is.\n\n/// That's it.\nfn a() {}\n/// Of\n/// course.\nfn b() {}\n";
    assert_eq!(pointing(&Source::of(bad)), [(1, "What"), (3, "That"), (5, "Of")]);
    let good = "//! Office.\n//! What comes later may.\n\n/// The thing\n/// Whoever has it.\nfn a() {}\n// So what.\n";
    assert_eq!(pointing(&Source::of(good)), []);
}
