//! Text that is shown to people: [`PlainText`], which holds only visible characters, and [`Word`],
//! a name that a peer may say.
//!
//! In: text from anywhere, even from a peer. Out: the same text without characters that move a
//! cursor, begin a line, turn the direction of writing or show nothing at all. Both types check
//! that when they are read off the wire, so that no message can hold any other text. Names of files
//! are bytes and stay as they are: [`Escaped`](crate::Escaped) shows them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::ops::Deref;

use crate::limits::{NAME_BYTES_MAX, PEER_TEXT_BYTES_MAX};

mod deceptive;

pub use deceptive::is_deceptive;

/// One line of text for people, without a [deceptive](is_deceptive) character, which is written as
/// `\xNN`, byte by byte. Backslashes stay as they are, as names in it are escaped already.
///
/// On the wire it is a string, cut to [`PEER_TEXT_BYTES_MAX`] bytes by its writer and by its
/// reader.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlainText(String);

impl PlainText {
    /// The text, in any length, without deceptive characters.
    pub fn of(text: impl fmt::Display) -> PlainText {
        PlainText::from(text.to_string())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part of it that crosses hosts: at most [`PEER_TEXT_BYTES_MAX`] bytes.
    #[must_use]
    pub fn cut(mut self) -> PlainText {
        self.0.truncate(cut(&self.0).len());
        self
    }
}

impl From<String> for PlainText {
    fn from(text: String) -> PlainText {
        if text.chars().any(is_deceptive) { PlainText(cleaned(&text)) } else { PlainText(text) }
    }
}

impl From<&str> for PlainText {
    fn from(text: &str) -> PlainText {
        PlainText(cleaned(text))
    }
}

impl Deref for PlainText {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl PartialEq<str> for PlainText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for PlainText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl Serialize for PlainText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(cut(&self.0))
    }
}

impl<'de> Deserialize<'de> for PlainText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PlainText, D::Error> {
        struct TextVisitor;
        impl de::Visitor<'_> for TextVisitor {
            type Value = PlainText;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PlainText, E> {
                Ok(PlainText::from(cut(text)).cut())
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A name that a peer says and that is looked up here, of a root or of a congestion control: at
/// most 255 bytes without a [deceptive](is_deceptive) character. A name with such a character does
/// not parse, as nobody gives such names.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
        struct WordVisitor;
        impl de::Visitor<'_> for WordVisitor {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Word, E> {
                Word::try_from(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(WordVisitor)
    }
}

/// The reason why a text is no [`Word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name of more than {NAME_BYTES_MAX} bytes, or with a character that is not shown")]
pub struct WordError;

impl Word {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for Word {
    type Error = WordError;
    fn try_from(text: &str) -> Result<Word, WordError> {
        if text.len() > NAME_BYTES_MAX || text.chars().any(is_deceptive) {
            return Err(WordError);
        }
        Ok(Word(text.to_owned()))
    }
}

impl Deref for Word {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// The text with each deceptive character as `\xNN`, byte by byte.
fn cleaned(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_deceptive(c) { push_bytes(&mut out, c) } else { out.push(c) }
    }
    out
}

fn push_bytes(out: &mut String, c: char) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        out.push_str("\\x");
        out.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
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
    fn text_loses_what_moves_a_cursor_and_keeps_what_is_escaped() {
        let text = PlainText::from("a\nb\x1b[2J\u{202e} c\\x0a \u{e9}");
        assert_eq!(text, "a\\x0ab\\x1b[2J\\xe2\\x80\\xae c\\x0a \u{e9}");
        assert_eq!(PlainText::of(&text), text, "clean text stays as it is");
        assert_eq!(PlainText::from(text.to_string()), text);
    }

    #[test]
    fn text_is_cut_between_characters_where_it_crosses_hosts() {
        let long = PlainText::of(format_args!("x{}", "\u{e9}".repeat(PEER_TEXT_BYTES_MAX)));
        assert_eq!(long.len(), 1 + 2 * PEER_TEXT_BYTES_MAX, "what stays here is whole");
        assert_eq!(long.cut().len(), PEER_TEXT_BYTES_MAX - 1);
        assert_eq!(PlainText::from("\n".repeat(PEER_TEXT_BYTES_MAX)).cut().len(), PEER_TEXT_BYTES_MAX);
    }

    #[test]
    fn a_word_with_a_character_that_is_not_shown_is_none() {
        for bad in ["a\nb", "a\u{202e}", "\u{61c}", "a\u{ad}b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(Word::try_from(bad), Err(WordError), "{bad:?}");
        }
        for good in ["", "atlas", "d\u{e9}p\u{f4}t 2", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(Word::try_from(good).as_deref(), Ok(good));
        }
    }
}
