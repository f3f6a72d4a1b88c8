//! Markup that is being written, in which every text is escaped.
//!
//! In: pieces of markup that stand in this program's sources, and texts from anywhere. Out: one
//! string. Texts cannot become markup: only literals are taken as they are.

use std::fmt::Display;

use crate::output::clean;

/// Markup that is being written.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds markup. It is a literal, so that nothing of a user can be in it.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Adds a text, or the value of an attribute between double quotes. Characters that deceive are
    /// shown as escapes.
    pub(super) fn text(&mut self, text: &str) -> &mut Html {
        for letter in clean(text).as_str().chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '`' => self.0.push_str("&#96;"),
                letter => self.0.push(letter),
            }
        }
        self
    }

    /// Adds a value as a text.
    pub(super) fn show(&mut self, value: impl Display) -> &mut Html {
        self.text(&value.to_string())
    }

    /// Adds markup that was written apart.
    pub(super) fn part(&mut self, part: Html) -> &mut Html {
        self.0.push_str(&part.0);
        self
    }

    /// The whole.
    pub(super) fn end(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup_or_ends_an_attribute() {
        let mut html = Html::default();
        html.raw("<b title=\"")
            .text("\" onload='x' `")
            .raw("\">")
            .text("<script>alert(1)</script>&\n\u{202e}")
            .raw("</b>");
        assert_eq!(
            html.end(),
            "<b title=\"&quot; onload=&#39;x&#39; &#96;\">&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\x0a\\xe2\\x80\\xae</b>"
        );
    }
}
