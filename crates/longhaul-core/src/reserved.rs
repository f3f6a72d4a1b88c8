//! The names that are ours, however a file system spells them: `.longhaul` and everything that
//! begins so.
//!
//! In: one component of a path, any bytes. Out: a verdict. Knows no disk: a directory may ignore
//! case though the one above it does not, so a spelling that any file system is known to take for
//! one of our names is refused on all of them.
//!
//! | spelling | taken for the plain one by |
//! |---|---|
//! | `.LongHaul` | ext4 and f2fs (casefold), XFS (ascii-ci), vfat, exFAT, NTFS, CIFS, ZFS and APFS where they are made so |
//! | `.long\u{200d}haul` | ext4 and f2fs, HFS+: characters that show nothing are not compared |
//! | `．ｌｏｎｇｈａｕｌ` | ZFS with `normalization=formKC` or `formKD` |
//! | `.longhaul.`, `.longhaul:x` | vfat, NTFS: what ends a name is cut off. They begin with the prefix anyway |
//! | `LONGHA~1`, `LO12AB~1` | vfat, NTFS: short names |

use crate::limits::RESERVED_PREFIX;

/// Whether a file system may take this name, or the beginning of it, for one of ours.
pub fn is_reserved(name: &[u8]) -> bool {
    folds_to_prefix(name) || is_short_name(name)
}

/// Whether the name begins with the prefix once it is folded.
fn folds_to_prefix(name: &[u8]) -> bool {
    let mut wanted = RESERVED_PREFIX;
    for part in name.utf8_chunks() {
        for c in part.valid().chars().filter(|c| !is_ignored(*c)) {
            let Some(rest) = after(wanted, c) else { return false };
            if rest.is_empty() {
                return true;
            }
            wanted = rest;
        }
        if !part.invalid().is_empty() {
            return false;
        }
    }
    false
}

/// The rest of `wanted` behind a character that folds to its beginning. `None` if the character
/// folds to something else.
fn after(wanted: &[u8], c: char) -> Option<&[u8]> {
    match c {
        '\u{33ca}' => wanted.strip_prefix(b"ha"),
        '\u{3373}' => wanted.strip_prefix(b"au"),
        _ => wanted.strip_prefix(&[folded(c)?]),
    }
}

/// The lower case ASCII character that a character becomes by compatibility decomposition and case
/// folding, as far as it can be one of the prefix.
fn folded(c: char) -> Option<u8> {
    let code = u32::from(c);
    let letter = |first: u32| Some(b'a' + ((code - first) % 26) as u8);
    match code {
        0..=0x7f => Some((code as u8).to_ascii_lowercase()),
        // Full width.
        0xff01..=0xff5e => Some(((code - 0xfee0) as u8).to_ascii_lowercase()),
        // Circled, mathematical, outlined and squared alphabets, one behind the other.
        0x24b6..=0x24e9 => letter(0x24b6),
        0x1d400..=0x1d6a3 => letter(0x1d400),
        0x1ccd6..=0x1ccef => letter(0x1ccd6),
        0x1f130..=0x1f149 => letter(0x1f130),
        // Raised, lowered and letter-like ones.
        0xaa | 0x1d2c | 0x1d43 | 0x2090 => Some(b'a'),
        0x1d33 | 0x1d4d | 0x210a => Some(b'g'),
        0x2b0 | 0x1d34 | 0x2095 | 0x210b..=0x210e => Some(b'h'),
        0x2e1 | 0x1d38 | 0x2097 | 0x2112 | 0x2113 | 0x216c | 0x217c => Some(b'l'),
        0x1d3a | 0x207f | 0x2099 | 0x2115 => Some(b'n'),
        0xba | 0x1d3c | 0x1d52 | 0x2092 | 0x2134 => Some(b'o'),
        0x1d41 | 0x1d58 | 0x1d64 => Some(b'u'),
        0x2024 | 0xfe52 => Some(b'.'),
        _ => None,
    }
}

/// Whether file systems that ignore characters ignore this one: Unicode's property
/// Default_Ignorable_Code_Point, and characters that had it in earlier versions.
fn is_ignored(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether it is a name of eight characters that a file system makes up for one of ours: as many of
/// its letters as fit and a number (`LONGHA~1`, `LONGH~10`), or two of them, four hexadecimal
/// digits of a hash or of the time, and a number (`LO12AB~1`).
///
/// One of those digits must be a decimal one, or words (`LOADED~1`) would be ours. One in fifty of
/// such made-up names has no decimal digit. They appear only if others of ours have taken the cut
/// names, and lead to a temporary, never to the shelf, which is compared with the entered name.
fn is_short_name(name: &[u8]) -> bool {
    let Some(tilde) = name.iter().position(|&b| b == b'~').filter(|_| name.len() == SHORT_NAME_BYTES) else {
        return false;
    };
    let (base, number) = (&name[..tilde], &name[tilde + 1..]);
    let letters = &RESERVED_PREFIX[1..];
    let is_cut = !base.is_empty() && letters.len() >= base.len() && letters[..base.len()].eq_ignore_ascii_case(base);
    let is_hashed = base.len() == 6
        && base[..2].eq_ignore_ascii_case(&letters[..2])
        && base[2..].iter().all(u8::is_ascii_hexdigit)
        && base[2..].iter().any(u8::is_ascii_digit);
    number.iter().all(u8::is_ascii_digit) && !number.is_empty() && (is_cut || is_hashed)
}

/// Eight characters stand before the dot of a short name; ours have nothing to put behind it.
const SHORT_NAME_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_prefix_is_reserved() {
        for name in [
            ".longhaul",
            ".LONGHAUL",
            ".Longhaul-0123456789abcdef0123456789abcdef",
            ".long\u{200d}haul",
            "\u{feff}.longhaul-00",
            ".longhau\u{ad}l",
            ".l\u{34f}o\u{fe0f}n\u{e0100}g\u{180e}h\u{61c}a\u{2064}u\u{3164}l",
            "\u{ff0e}\u{ff4c}\u{ff4f}\u{ff4e}\u{ff47}\u{ff48}\u{ff41}\u{ff55}\u{ff4c}",
            "\u{fe52}\u{2113}\u{2134}\u{207f}\u{210a}\u{210e}\u{aa}\u{1d64}\u{217c}",
            ".long\u{33ca}ul",
            ".longh\u{3373}l-x",
            ".\u{24c1}\u{24de}\u{1d427}\u{1f136}\u{1d58d}\u{1ccd6}\u{1d69e}\u{1d38}",
            ".longhaul.",
            ".longhaul ",
            ".longhaul:stream",
            "LONGHA~1",
            "longh~12",
            "LO0C4F~1",
            "LOADE9~1",
        ] {
            assert!(is_reserved(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn whatever_unicode_says_to_ignore_is_ignored() {
        use regex_syntax::hir::{Class, HirKind};

        let hir = regex_syntax::parse(r"\p{Default_Ignorable_Code_Point}").expect("a property that it knows");
        let HirKind::Class(Class::Unicode(class)) = hir.into_kind() else { panic!("no class") };
        for c in class.ranges().iter().flat_map(|range| range.start()..=range.end()) {
            assert!(is_ignored(c), "U+{:04X}", u32::from(c));
        }
        // A character that had the property once is no text that anybody reads.
        for c in ('\0'..=char::MAX).filter(|&c| is_ignored(c)) {
            assert!(crate::text::is_deceptive(c), "U+{:04X}", u32::from(c));
        }
    }

    #[test]
    fn names_that_only_look_alike_are_anybodys() {
        for name in [
            "longhaul",
            "..longhaul",
            ".longhau",
            ".long-haul",
            ".l\u{f3}nghaul",
            "\u{200d}",
            "",
            "longhaul~1",
            "LONGER~1",
            "lo12ag~1",
            "longha~x",
            "log~1",
            "LOADED~1",
            "LOBBED~2",
            "~1234567",
            "\u{4e2d}\u{6587}",
        ] {
            assert!(!is_reserved(name.as_bytes()), "{name:?}");
        }
        assert!(!is_reserved(b".long\xffhaul") && is_reserved(b".longhaul\xff"));
    }
}
