//! The lines of items of a sealed manifest, as people and checking programs read them.
//!
//! In: items. Out: lines. Must not know where they are told.

use longhaul_core::Escaped;
use longhaul_manifest::{Item, ItemKind};

use super::super::units::time;

/// The length of a file, if it is known.
pub(super) fn bytes_of(item: &Item) -> Option<u64> {
    match item.kind {
        ItemKind::File { bytes } => bytes,
        ItemKind::Dir | ItemKind::Link { .. } => None,
    }
}

/// `-        300 2026-11-20T13:42:25Z a/x`, with `?` for what is not known.
pub(super) fn long_line(item: &Item) -> String {
    let (kind, tail) = match &item.kind {
        ItemKind::File { .. } => ('-', String::new()),
        ItemKind::Dir => ('d', "/".to_owned()),
        ItemKind::Link { target } => ('l', format!(" -> {}", Escaped(target))),
    };
    let bytes = bytes_of(item).map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
    let at = item.mtime.map_or_else(|| "?".to_owned(), time);
    format!("{kind} {bytes:>15} {at:>20} {}{tail}\n", Escaped(item.path.as_bytes()))
}

/// A line that programs such as `md5sum` check: the bytes of the name are as they are, and a
/// backslash or newline in it is escaped.
pub(super) fn sums_line(sum: &str, name: &[u8]) -> Vec<u8> {
    let is_escaped = name.iter().any(|byte| matches!(byte, b'\\' | b'\n'));
    let mut line = if is_escaped { b"\\".to_vec() } else { Vec::new() };
    line.extend_from_slice(sum.as_bytes());
    line.extend_from_slice(b"  ");
    for byte in name {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_checksums_escape_what_programs_escape() {
        assert_eq!(sums_line("00", b"a b"), b"00  a b\n");
        assert_eq!(sums_line("00", b"a\\b\n\xff"), b"\\00  a\\\\b\\n\xff\n");
    }
}
