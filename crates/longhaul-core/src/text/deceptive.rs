//! Characters that no text for people may hold, by Unicode's properties.
//!
//! In: a character. Out: whether it deceives a reader. Knows no text.

use std::cmp::Ordering;

/// Whether a reader may be deceived by a character: a control character, one that Unicode calls a
/// format character (`General_Category=Cf`: marks and overrides of direction, soft hyphens, tags)
/// or says to leave out where it cannot be shown (`Default_Ignorable_Code_Point`: joiners, fillers,
/// variation selectors), a separator of lines, a blank other than the space and the ideographic
/// one, a character without a meaning of its own (private use), and code points that are no
/// characters.
///
/// Characters that Unicode may come to assign are shown: those among them that will be invisible
/// are set aside in `Default_Ignorable_Code_Point` already.
pub fn is_deceptive(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let place = |&(first, last): &(char, char)| match () {
        () if last < c => Ordering::Less,
        () if first > c => Ordering::Greater,
        () => Ordering::Equal,
    };
    DECEPTIVE.binary_search_by(place).is_ok()
}

/// Beyond ASCII, of Unicode 16.0: Cc, Cf, Zl, Zp, Zs without U+3000, Co,
/// Default_Ignorable_Code_Point, Noncharacter_Code_Point, and U+2800 (a Braille pattern without a
/// dot). The test compares it with the tables of `regex-syntax`.
const DECEPTIVE: &[(char, char)] = &[
    ('\u{80}', '\u{a0}'),
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2000}', '\u{200f}'),
    ('\u{2028}', '\u{202f}'),
    ('\u{205f}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{e000}', '\u{f8ff}'),
    ('\u{fdd0}', '\u{fdef}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{fffe}', '\u{ffff}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{1fffe}', '\u{1ffff}'),
    ('\u{2fffe}', '\u{2ffff}'),
    ('\u{3fffe}', '\u{3ffff}'),
    ('\u{4fffe}', '\u{4ffff}'),
    ('\u{5fffe}', '\u{5ffff}'),
    ('\u{6fffe}', '\u{6ffff}'),
    ('\u{7fffe}', '\u{7ffff}'),
    ('\u{8fffe}', '\u{8ffff}'),
    ('\u{9fffe}', '\u{9ffff}'),
    ('\u{afffe}', '\u{affff}'),
    ('\u{bfffe}', '\u{bffff}'),
    ('\u{cfffe}', '\u{cffff}'),
    ('\u{dfffe}', '\u{e0fff}'),
    ('\u{efffe}', '\u{10ffff}'),
];

#[cfg(test)]
mod tests {
    use super::*;
    use regex_syntax::hir::{Class, HirKind};

    /// The same set by Unicode's own tables, as another crate keeps them.
    fn by_property(c: char, classes: &[(char, char)]) -> bool {
        let blank = matches!(c, ' ' | '\u{3000}');
        !blank && (c == '\u{2800}' || classes.iter().any(|&(first, last)| (first..=last).contains(&c)))
    }

    #[test]
    fn the_table_is_what_unicode_says() {
        let properties =
            r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Zs}\p{Co}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}]";
        let hir = regex_syntax::parse(properties).expect("properties that it knows");
        let HirKind::Class(Class::Unicode(class)) = hir.into_kind() else { panic!("no class") };
        let classes: Vec<_> = class.ranges().iter().map(|range| (range.start(), range.end())).collect();
        for c in '\0'..=char::MAX {
            assert_eq!(is_deceptive(c), by_property(c, &classes), "U+{:04X}", u32::from(c));
        }
    }

    #[test]
    fn what_hides_or_turns_text_is_in_it() {
        let hidden = "\n\r\t\x1b\x7f\u{85}\u{9b}\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{180e}\u{200b}\u{200f}\u{2028}\u{2029}\
            \u{202e}\u{2066}\u{2069}\u{2800}\u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{fffb}\u{e000}\u{e0041}\u{e01ef}\u{10ffff}";
        assert_eq!(hidden.chars().find(|&c| !is_deceptive(c)), None);
        assert_eq!(
            " ~\\'\u{e9}\u{4e2d}\u{3000}\u{5d0}\u{1f600}\u{301}\u{fffd}".chars().find(|&c| is_deceptive(c)),
            None
        );
    }
}
