//! The list of `--files-from`: names relative to the one source, one a line or ended by NUL.
//!
//! In: the list's path, or `-`. Out: paths to `settings`. Names are bytes; nothing in them is a comment.

#![allow(clippy::disallowed_methods, reason = "the settings loader reads the files that options name")]

use std::ffi::OsStr;
use std::io::Read;

use longhaul_core::{PathError, RelPath};

use crate::error::Error;

/// Reads the list.
///
/// # Errors
/// [`Error::File`] if it cannot be read, [`Error::ListedName`] for a name that leaves the source.
pub(super) fn read(list: &OsStr, nul: bool) -> Result<Vec<RelPath>, Error> {
    let bytes = if list == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(Error::file("read", "standard input"))?;
        bytes
    } else {
        std::fs::read(list).map_err(Error::file("read", list))?
    };
    parse(&bytes, nul).map_err(|(number, why)| Error::ListedName { list: list.to_string_lossy().into(), number, why })
}

fn parse(bytes: &[u8], nul: bool) -> Result<Vec<RelPath>, (usize, PathError)> {
    let end = if nul { 0 } else { b'\n' };
    let names = bytes.split(|&b| b == end).enumerate().filter(|(_, name)| !name.is_empty());
    names.map(|(at, name)| normal(name).map_err(|why| (at + 1, why))).collect()
}

/// As rsync reads such names: leading, trailing and repeated slashes and `.` do not count; `..` is refused.
fn normal(name: &[u8]) -> Result<RelPath, PathError> {
    let names = name.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.into_iter().try_fold(RelPath::root(), |path, name| path.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&[u8]]) -> Vec<RelPath> {
        names.iter().map(|name| RelPath::new(*name).unwrap()).collect()
    }

    #[test]
    fn names_are_lines_or_end_in_nul() {
        assert_eq!(parse(b"a\n\n./b/c/\n/d\n#e", false), Ok(paths(&[b"a", b"b/c", b"d", b"#e"])));
        assert_eq!(parse(b"a\nb\0c\0", true), Ok(paths(&[b"a\nb", b"c"])));
        assert_eq!(parse(b"\xff\n", false), Ok(paths(&[b"\xff"])));
        assert_eq!(parse(b"", false), Ok(vec![]));
    }

    #[test]
    fn a_name_that_leaves_the_source_is_numbered() {
        assert_eq!(parse(b"a\nb/../../c\n", false), Err((2, PathError::Dots)));
        assert_eq!(parse(b"a\0.longhaul\0", true), Err((2, PathError::Reserved)));
    }
}
