//! Files: short enough to be read at one go.
//!
//! Takes every Rust file, tests too; gives one ratchet. Must not know their content.

use super::ratchet::{Found, Rule};
use super::tree::everything;

/// Lines of a file.
const LINES_MAX: usize = 500;

pub(super) const FILES: Rule = Rule {
    list: "long-files",
    form: "path: lines",
    says: "A source file has at most 500 lines.",
    remedy: "Split it where one idea ends and the next begins.",
    counted: true,
};

#[test]
fn files_are_short() {
    let mut found = Found::default();
    for (file, _) in everything() {
        if let Some(lines) = over(&file.text) {
            found.sized(&file.path, lines, format!("{}:{LINES_MAX}", file.path));
        }
    }
    FILES.hold(&found);
}

/// The lines of a text that has too many.
fn over(text: &str) -> Option<usize> {
    Some(text.lines().count()).filter(|lines| *lines > LINES_MAX)
}

#[test]
fn a_long_file_is_found() {
    assert_eq!(over(&"x\n".repeat(500)), None);
    assert_eq!(over(&"x\n".repeat(501)), Some(501));
}
