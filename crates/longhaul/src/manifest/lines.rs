//! The lines of a manifest: a BLAKE3 and a name each, as `b3sum` prints them and takes them back.
//!
//! In: a digest and a name, or the bytes of a line. Out: the line, or the digest and the name.
//! Knows no files.

use longhaul_core::digest::Hash32;

use crate::error::LineFlaw;

/// One line; a backslash or newline in the name is escaped and the line then begins with a
/// backslash.
pub(super) fn line(digest: &Hash32, name: &str) -> String {
    let hex = blake3::Hash::from_bytes(*digest).to_hex();
    if name.contains(['\\', '\n']) {
        format!("\\{hex}  {}\n", name.replace('\\', "\\\\").replace('\n', "\\n"))
    } else {
        format!("{hex}  {name}\n")
    }
}

/// Takes a line, without its newline, apart.
pub(super) fn parse(line: &[u8]) -> Result<(Hash32, Vec<u8>), LineFlaw> {
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (hex, rest) = line.split_at_checked(HEX_DIGITS).ok_or(LineFlaw::Digest)?;
    let digest = blake3::Hash::from_hex(hex).map_err(|_| LineFlaw::Digest)?;
    let name = rest.strip_prefix(b"  ").ok_or(LineFlaw::Digest)?;
    let name = if is_escaped { unescaped(name)? } else { name.to_vec() };
    if name.is_empty() {
        return Err(LineFlaw::Name);
    }
    Ok((*digest.as_bytes(), name))
}

fn unescaped(name: &[u8]) -> Result<Vec<u8>, LineFlaw> {
    let (mut plain, mut bytes) = (Vec::with_capacity(name.len()), name.iter());
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                _ => return Err(LineFlaw::Name),
            },
            byte => byte,
        });
    }
    Ok(plain)
}

/// Hexadecimal digits of a digest.
const HEX_DIGITS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_b3sum_does_and_read_back() {
        let zeros = "0".repeat(64);
        for (name, want) in [
            ("a b/c", format!("{zeros}  a b/c\n")),
            ("a\\b", format!("\\{zeros}  a\\\\b\n")),
            ("a\nb", format!("\\{zeros}  a\\nb\n")),
            ("\\n\n", format!("\\{zeros}  \\\\n\\n\n")),
            (" lead", format!("{zeros}   lead\n")),
        ] {
            assert_eq!(line(&[0; 32], name), want);
            let back = parse(want.strip_suffix('\n').unwrap().as_bytes());
            assert_eq!(back, Ok(([0; 32], name.as_bytes().to_vec())));
        }
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        let zeros = "0".repeat(64);
        let short = &zeros[1..];
        for (line, flaw) in [
            (String::new(), LineFlaw::Digest),
            (format!("{short}  a"), LineFlaw::Digest),
            (format!("{}g  a", short), LineFlaw::Digest),
            (format!("{zeros} a"), LineFlaw::Digest),
            (format!("{zeros}  "), LineFlaw::Name),
            (format!("\\{zeros}  a\\t"), LineFlaw::Name),
            (format!("\\{zeros}  a\\"), LineFlaw::Name),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(flaw), "{line}");
        }
    }
}
