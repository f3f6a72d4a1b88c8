//! Texts that cross hosts: short, and harmless to the terminal or log that they end in.
//!
//! Applied to every text of a message both when it is written and when it is read, so nothing above has to think of it.

use longhaul_core::limits::PEER_TEXT_BYTES_MAX;
use longhaul_core::{Escaped, Fault};

/// The text on one line, without anything that moves a cursor, at most [`PEER_TEXT_BYTES_MAX`] bytes of it. What is
/// escaped already stays as it is.
pub fn clean(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in cut(text).split('\\').enumerate() {
        if at > 0 {
            out.push('\\');
        }
        out += &Escaped(part.as_bytes()).to_string();
    }
    out.truncate(cut(&out).len());
    out
}

/// The fault with all its texts clean.
pub fn clean_fault(fault: &Fault) -> Fault {
    Fault {
        code: fault.code,
        blame: fault.blame,
        object: clean(&fault.object),
        message: clean(&fault.message),
        hint: clean(&fault.hint),
    }
}

/// The longest prefix within the bound that ends between characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(PEER_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_what_moves_a_cursor_and_keep_what_is_escaped() {
        assert_eq!(clean("a\nb\x1b[2J\u{202e} c\\x0a \u{e9}"), "a\\x0ab\\x1b[2J\\xe2\\x80\\xae c\\x0a \u{e9}");
    }

    #[test]
    fn texts_end_at_the_bound_between_characters() {
        let long = "\u{e9}".repeat(PEER_TEXT_BYTES_MAX);
        assert_eq!(clean(&format!("x{long}")).len(), PEER_TEXT_BYTES_MAX - 1);
        assert_eq!(clean(&"\n".repeat(PEER_TEXT_BYTES_MAX)).len(), PEER_TEXT_BYTES_MAX);
    }

    #[test]
    fn a_clean_text_stays_as_it_is() {
        for text in ["", "plain", "a\\b\\x0a", &"\n".repeat(2000), &"\u{200b}\\".repeat(900)] {
            let once = clean(text);
            assert_eq!(clean(&once), once);
        }
    }
}
