//! The texts in which a set writes its own files: one fact in a line, hex in lower case, paths
//! without newlines. Knows no file.

/// Exactly `N` bytes from lower case hex: one value has one spelling.
pub(crate) fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |hex: u8| match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Lower case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds a path to a line: `\\\\` for a backslash and `\\n` for a newline.
pub(crate) fn push_path(line: &mut Vec<u8>, path: &[u8]) {
    for byte in path {
        match byte {
            b'\\' => line.extend_from_slice(br"\\"),
            b'\n' => line.extend_from_slice(br"\n"),
            byte => line.push(*byte),
        }
    }
}

/// The path of a line. `None` if it is none.
pub(crate) fn path_of(line: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                _ => return None,
            },
            byte => *byte,
        });
    }
    (!bytes.is_empty()).then_some(bytes)
}
