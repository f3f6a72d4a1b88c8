//! Translates patterns of rsync into globs of globset.
//!
//! Takes one pattern as the user wrote it; gives the globs that match the same paths. They differ
//! in more than dialect: rsync has no braces, its `**` crosses from anywhere in a name, it has
//! `[:classes:]`, and it matches bytes. Therefore no text of the user reaches globset unescaped.
//! Must not know rules or their order.

use globset::{Glob, GlobBuilder};
use std::str::Chars;

use crate::limits::{FILTERS_MAX, PATH_BYTES_MAX};
use crate::path::Escaped;

/// The error in a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternFault {
    /// Nothing but slashes, or nothing at all.
    #[error("it names nothing")]
    Empty,
    /// Longer than any path.
    #[error("it is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// Two slashes in a row.
    #[error("it has an empty name between two slashes, which no path has")]
    EmptyName,
    /// A backslash with nothing behind it.
    #[error("it ends in a backslash that escapes nothing")]
    LoneBackslash,
    /// A `[` without its `]`.
    #[error("a bracket is not closed (for the character itself write \\[ or [[])")]
    OpenBracket,
    /// A range such as `[z-a]`.
    #[error("the range from {from:?} to {to:?} is empty")]
    EmptyRange {
        /// Its first character.
        from: char,
        /// Its last.
        to: char,
    },
    /// A class such as `[:foo:]`.
    #[error("there is no character class [:{}:]", Escaped(name.as_bytes()))]
    UnknownClass {
        /// Its name.
        name: String,
    },
    /// Names are bytes, and one bracket matches one byte.
    #[error("{found:?} is not ASCII, and brackets hold ASCII only")]
    NotAscii {
        /// The character.
        found: char,
    },
    /// Only a slash in the bracket.
    #[error("a bracket matches nothing, as it never matches a slash")]
    OnlySlash,
    /// More stars in one pattern than any name needs: each multiplies the cost of matching.
    #[error("it has stars in more than {STARS_MAX} places")]
    TooManyStars,
    /// More patterns than a request may carry.
    #[error("it is one pattern more than {FILTERS_MAX}")]
    TooMany,
    /// The patterns together are too long, classes in brackets counted in full.
    #[error("with those before it, it is too much to match")]
    TooMuch,
    /// The matcher cannot be built of all patterns up to this one.
    #[error("with those before it, it cannot be compiled")]
    Glob(#[source] globset::Error),
}

/// One glob of a pattern.
pub(super) struct PatternPart {
    pub(super) glob: Glob,
    pub(super) directories_only: bool,
}

/// The globs that together match the paths of `pattern`: one, or two for a trailing `/***`.
pub(super) fn compile(pattern: &str) -> Result<Vec<PatternPart>, PatternFault> {
    if pattern.len() > PATH_BYTES_MAX {
        return Err(PatternFault::TooLong);
    }
    let (body, directories_only) = pattern.strip_suffix('/').map_or((pattern, false), |body| (body, true));
    let (body, anchored) = body.strip_prefix('/').map_or((body, false), |body| (body, true));
    if body.is_empty() {
        return Err(PatternFault::Empty);
    }
    if body.starts_with('/') || body.ends_with('/') || body.contains("//") {
        return Err(PatternFault::EmptyName);
    }
    let escapes = body.contains(['*', '?', '[']);
    let part = |body: &str, directories_only: bool| {
        let translated = if anchored {
            translate(body, escapes)?
        } else {
            "**/".to_owned() + &translate(without_any_depth(body), escapes)?
        };
        let glob = GlobBuilder::new(&translated).literal_separator(true).backslash_escape(true).build();
        Ok(PatternPart { glob: glob.map_err(PatternFault::Glob)?, directories_only })
    };
    let mut parts = vec![part(body, directories_only)?];
    if let Some(directory) = directory_of(body) {
        parts.push(part(directory, true)?);
    }
    Ok(parts)
}

/// The `a` of `**/a`: a pattern that may begin at any name may begin at the first one, so rsync
/// reads both alike.
fn without_any_depth(body: &str) -> &str {
    let rest = body.trim_start_matches('*');
    if body.len() - rest.len() < 2 { body } else { rest.strip_prefix('/').unwrap_or(body) }
}

/// The `a` of `a/***`, which rsync matches as well as its content.
fn directory_of(body: &str) -> Option<&str> {
    let head = body.trim_end_matches('*');
    if body.len() - head.len() < 3 { None } else { head.strip_suffix('/') }
}

/// The globset text for rsync's `body`. `escapes`: whether a backslash is more than a character.
fn translate(body: &str, escapes: bool) -> Result<String, PatternFault> {
    let mut glob = String::with_capacity(body.len() + 16);
    let mut chars = body.chars();
    let mut stars = 0;
    while let Some(c) = chars.next() {
        match c {
            '*' => {
                let rest = chars.as_str().trim_start_matches('*');
                let crosses = rest.len() < chars.as_str().len();
                glob.push_str(if crosses { ANYTHING } else { "*" });
                chars = rest.chars();
                stars += 1;
                if stars > STARS_MAX {
                    return Err(PatternFault::TooManyStars);
                }
            }
            '?' => glob.push('?'),
            '[' => push_bracket(&mut glob, &mut chars)?,
            '\\' if escapes => push_literal(&mut glob, chars.next().ok_or(PatternFault::LoneBackslash)?),
            c => push_literal(&mut glob, c),
        }
    }
    Ok(glob)
}

/// Any bytes, slashes too. globset's `**` crosses only as a whole name at the start of something,
/// which braces give it; in the middle it would also match no name where rsync wants one (`a/**/b`
/// is not `a/b`).
const ANYTHING: &str = "{**/*}";

/// With 1300 places for `**` in one pattern a path of 4 KB took 0.5 s to match; with 16 in each of
/// 64 patterns 15 us.
const STARS_MAX: usize = 32;

fn push_literal(glob: &mut String, c: char) {
    if c.is_ascii_punctuation() && c != '/' {
        glob.push('\\');
    }
    glob.push(c);
}

/// Translates a bracket, of which `chars` stands behind the `[`.
fn push_bracket(glob: &mut String, chars: &mut Chars<'_>) -> Result<(), PatternFault> {
    let inside = chars.as_str().strip_prefix(['!', '^']);
    if let Some(inside) = inside {
        *chars = inside.chars();
    }
    let set = read_set(chars)? & !(1 << b'/');
    let members = (0..128u8).filter(|byte| set >> byte & 1 == 1).map(char::from);
    if inside.is_some() {
        // In globset's brackets only the place tells what `]` and `-` mean: first and last they are
        // themselves.
        glob.push_str(if set >> b']' & 1 == 1 { "[!]" } else { "[!" });
        glob.extend(members.filter(|c| !matches!(c, ']' | '-')));
        glob.push_str(if set >> b'-' & 1 == 1 { "/-]" } else { "/]" });
        return Ok(());
    }
    if set == 0 {
        return Err(PatternFault::OnlySlash);
    }
    // Alternatives can be escaped one by one, which spares the question of places.
    for (i, member) in members.enumerate() {
        glob.push(if i == 0 { '{' } else { ',' });
        push_literal(glob, member);
    }
    glob.push('}');
    Ok(())
}

/// Reads the content of a bracket, up to and with its `]`; bit n stands for the ASCII character n.
fn read_set(chars: &mut Chars<'_>) -> Result<u128, PatternFault> {
    let mut set = 0;
    // The character from which a `-` would make a range: the one before, unless that ended a range
    // or a class.
    let mut from = None;
    let mut first = true;
    loop {
        let c = chars.next().ok_or(PatternFault::OpenBracket)?;
        let rest = chars.as_str();
        match (c, from) {
            (']', _) if !first => return Ok(set),
            ('-', Some(low)) if !rest.is_empty() && !rest.starts_with(']') => {
                let next = chars.next().ok_or(PatternFault::OpenBracket)?;
                let high = ascii(next, chars)?;
                if high < low {
                    return Err(PatternFault::EmptyRange { from: char::from(low), to: char::from(high) });
                }
                set |= (low..=high).fold(0, |bits, byte| bits | 1 << byte);
                from = None;
            }
            ('[', _) if class_name(rest).is_some() => {
                let name = class_name(rest).unwrap_or_default();
                set |= class(name)?;
                *chars = rest[name.len() + 3..].chars();
                from = None;
            }
            (c, _) => {
                let byte = ascii(c, chars)?;
                set |= 1 << byte;
                from = Some(byte);
            }
        }
        first = false;
    }
}

/// The character `c` of a bracket as a byte, or the one behind it if `c` is a backslash.
fn ascii(c: char, chars: &mut Chars<'_>) -> Result<u8, PatternFault> {
    let c = if c == '\\' { chars.next().ok_or(PatternFault::OpenBracket)? } else { c };
    if c.is_ascii() { Ok(c as u8) } else { Err(PatternFault::NotAscii { found: c }) }
}

/// The `x` where `rest` begins with `:x:]`.
fn class_name(rest: &str) -> Option<&str> {
    let (name, _) = rest.strip_prefix(':')?.split_once(']')?;
    name.strip_suffix(':')
}

fn class(name: &str) -> Result<u128, PatternFault> {
    let holds: fn(u8) -> bool = match name {
        "alnum" => |b| b.is_ascii_alphanumeric(),
        "alpha" => |b| b.is_ascii_alphabetic(),
        "blank" => |b| matches!(b, b' ' | b'\t'),
        "cntrl" => |b| b.is_ascii_control(),
        "digit" => |b| b.is_ascii_digit(),
        "graph" => |b| b.is_ascii_graphic(),
        "lower" => |b| b.is_ascii_lowercase(),
        "print" => |b| b.is_ascii_graphic() || b == b' ',
        "punct" => |b| b.is_ascii_punctuation(),
        "space" => |b| matches!(b, b' ' | b'\t'..=b'\r'),
        "upper" => |b| b.is_ascii_uppercase(),
        "xdigit" => |b| b.is_ascii_hexdigit(),
        _ => return Err(PatternFault::UnknownClass { name: name.to_owned() }),
    };
    Ok((0..128).filter(|&byte| holds(byte)).fold(0, |bits, byte| bits | 1 << byte))
}
