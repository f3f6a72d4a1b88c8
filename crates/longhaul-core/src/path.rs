//! Paths beneath a root: the only form in which a name travels between hosts or reaches the disk.
//!
//! A [`RelPath`] cannot be absolute, climb, hide a NUL or use a reserved name, so that it may be
//! handed to the confined walk in `disk`. Bytes are kept as they are; only [`Escaped`] changes
//! them, for people.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use crate::reserved::is_reserved;
use crate::text::is_deceptive;

/// A path beneath a root: components of 1 to 255 bytes joined by `/`, at most 4095 bytes, any bytes
/// but NUL and `/`.
///
/// The empty path is the root itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct RelPath {
    bytes: Vec<u8>,
}

/// The reason why bytes are not a [`RelPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Begins with `/`.
    #[error("path is absolute")]
    Absolute,
    /// Has an empty, `.` or `..` component.
    #[error("path has an empty, '.' or '..' component")]
    Dots,
    /// Holds a NUL.
    #[error("path holds a NUL byte")]
    Nul,
    /// A component is over 255 bytes.
    #[error("a name in the path is longer than 255 bytes")]
    NameTooLong,
    /// Over 4095 bytes.
    #[error("path is longer than 4095 bytes")]
    PathTooLong,
    /// A component begins with `.longhaul`, or some file system would take it for such a name.
    #[error("names beginning with .longhaul, in whatever spelling a file system takes for it, are reserved")]
    Reserved,
}

impl RelPath {
    /// The root itself.
    pub const fn root() -> RelPath {
        RelPath { bytes: Vec::new() }
    }

    /// Takes bytes that are already a relative path in normal form.
    ///
    /// # Errors
    /// The [`PathError`] that names the error in them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<RelPath, PathError> {
        let bytes = bytes.into();
        RelPath::check(&bytes)?;
        Ok(RelPath { bytes })
    }

    /// Whether bytes are a relative path in normal form.
    ///
    /// # Errors
    /// The [`PathError`] that names the error in them.
    pub fn check(bytes: &[u8]) -> Result<(), PathError> {
        match bytes.first() {
            None => Ok(()),
            Some(b'/') => Err(PathError::Absolute),
            Some(_) if bytes.len() > PATH_BYTES_MAX => Err(PathError::PathTooLong),
            Some(_) => bytes.split(|&b| b == b'/').try_for_each(check_name),
        }
    }

    /// This path with one more component.
    ///
    /// # Errors
    /// As [`RelPath::new`].
    pub fn join(&self, name: &[u8]) -> Result<RelPath, PathError> {
        check_name(name)?;
        if name.contains(&b'/') {
            return Err(PathError::Dots);
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + 1 + name.len());
        if !self.bytes.is_empty() {
            bytes.extend_from_slice(&self.bytes);
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::PathTooLong);
        }
        Ok(RelPath { bytes })
    }

    /// This path with all of `tail` beneath it.
    ///
    /// # Errors
    /// [`PathError::PathTooLong`] when both together are.
    pub fn concat(&self, tail: &RelPath) -> Result<RelPath, PathError> {
        if self.is_root() {
            return Ok(tail.clone());
        }
        if tail.is_root() {
            return Ok(self.clone());
        }
        let bytes = [self.bytes.as_slice(), b"/", tail.bytes.as_slice()].concat();
        if bytes.len() > PATH_BYTES_MAX { Err(PathError::PathTooLong) } else { Ok(RelPath { bytes }) }
    }

    /// The path from `top` to this, if it is `top` or lies in it.
    pub fn beneath(&self, top: &RelPath) -> Option<RelPath> {
        let rest = self.bytes.strip_prefix(top.bytes.as_slice())?;
        let bytes = match rest.split_first() {
            None => Vec::new(),
            Some(_) if top.is_root() => rest.to_vec(),
            Some((b'/', name)) => name.to_vec(),
            Some(_) => return None,
        };
        Some(RelPath { bytes })
    }

    /// Whether this is the root itself.
    pub fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, components joined by `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The components from the top; the root has none.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.bytes.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// The last component. `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.components().next_back()
    }

    /// The path without its last component. `None` for the root.
    pub fn parent(&self) -> Option<RelPath> {
        if self.is_root() {
            return None;
        }
        let end = self.bytes.iter().rposition(|&b| b == b'/').unwrap_or(0);
        Some(RelPath { bytes: self.bytes[..end].to_vec() })
    }

    /// The first component and the path beneath it. `None` for the root.
    pub fn split_top(&self) -> Option<(&[u8], RelPath)> {
        if self.is_root() {
            return None;
        }
        match self.bytes.iter().position(|&b| b == b'/') {
            Some(at) => Some((&self.bytes[..at], RelPath { bytes: self.bytes[at + 1..].to_vec() })),
            None => Some((&self.bytes, RelPath::root())),
        }
    }

    /// A form for people: see [`Escaped`].
    pub fn escaped(&self) -> Escaped<'_> {
        Escaped(if self.is_root() { b"." } else { &self.bytes })
    }
}

fn check_name(name: &[u8]) -> Result<(), PathError> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(PathError::Dots);
    }
    if name.contains(&0) {
        return Err(PathError::Nul);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(PathError::NameTooLong);
    }
    if is_reserved(name) {
        return Err(PathError::Reserved);
    }
    Ok(())
}

impl TryFrom<Vec<u8>> for RelPath {
    type Error = PathError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, PathError> {
        RelPath::new(bytes)
    }
}

impl From<RelPath> for Vec<u8> {
    fn from(path: RelPath) -> Vec<u8> {
        path.bytes
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({})", self.escaped())
    }
}

/// Shows bytes to a person on one line: [deceptive](is_deceptive) characters (controls, separators
/// of lines, marks of direction and characters that show nothing), backslashes and bytes that are
/// not UTF-8 as `\xNN`; the rest as it is. Cannot move a cursor or forge a log line.
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.utf8_chunks() {
            for c in part.valid().chars() {
                if c == '\\' || is_deceptive(c) {
                    let mut utf8 = [0; 4];
                    for b in c.encode_utf8(&mut utf8).bytes() {
                        write!(f, "\\x{b:02x}")?;
                    }
                } else {
                    write!(f, "{c}")?;
                }
            }
            for b in part.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_or_hide_are_refused() {
        let cases: [(&[u8], PathError); 13] = [
            (b"/etc/passwd", PathError::Absolute),
            (b"..", PathError::Dots),
            (b"a/../../b", PathError::Dots),
            (b"./a", PathError::Dots),
            (b"a/.", PathError::Dots),
            (b"a//b", PathError::Dots),
            (b"a/", PathError::Dots),
            (b"a\0b", PathError::Nul),
            (&[b'x'; 256], PathError::NameTooLong),
            (b".longhaul", PathError::Reserved),
            (b"a/.longhaul-0123/b", PathError::Reserved),
            (b"a/.LongHaul-0123", PathError::Reserved),
            (b"/", PathError::Absolute),
        ];
        for (bytes, want) in cases {
            assert_eq!(RelPath::new(bytes), Err(want), "{}", Escaped(bytes));
        }
        let long = vec![b"abcdefg".to_vec(); 600].join(&b'/');
        assert_eq!(RelPath::new(long), Err(PathError::PathTooLong));
    }

    #[test]
    fn names_of_any_other_bytes_are_kept() {
        for bytes in [&b"a/b\nc"[..], b"\xff\xfe", b"...", b".hidden", b"\x1b[31m", &[b'x'; 255]] {
            assert_eq!(RelPath::new(bytes).map(Vec::from), Ok(bytes.to_vec()));
        }
    }

    #[test]
    fn a_path_takes_apart_and_joins_again() -> Result<(), PathError> {
        let path = RelPath::new("a/b/c")?;
        assert_eq!(path.name(), Some(&b"c"[..]));
        assert_eq!(path.parent(), Some(RelPath::new("a/b")?));
        assert_eq!(path.split_top(), Some((&b"a"[..], RelPath::new("b/c")?)));
        assert_eq!(path.parent().map(|p| p.join(b"c")), Some(Ok(path.clone())));
        assert_eq!(RelPath::root().concat(&path)?, path);
        assert_eq!(RelPath::new("x")?.concat(&path)?, RelPath::new("x/a/b/c")?);
        assert_eq!(path.join(b"d/e"), Err(PathError::Dots));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(path.beneath(&RelPath::new("a")?), Some(RelPath::new("b/c")?));
        assert_eq!((path.beneath(&path), path.beneath(&RelPath::root())), (Some(RelPath::root()), Some(path.clone())));
        assert_eq!((path.beneath(&RelPath::new("a/b/cd")?), path.beneath(&RelPath::new("a/bc")?)), (None, None));
        assert_eq!(RelPath::new("ab")?.beneath(&RelPath::new("a")?), None);
        Ok(())
    }

    #[test]
    fn shown_names_cannot_move_a_cursor() {
        let shown = Escaped(b"a\nb\x1b[2J\xc2\x9b1m\xff\xe2\x80\xae\\ \xc3\xa9").to_string();
        assert_eq!(shown, "a\\x0ab\\x1b[2J\\xc2\\x9b1m\\xff\\xe2\\x80\\xae\\x5c \u{e9}");
        let hidden = Escaped("\u{61c}\u{ad}\u{2800}\u{3164}\u{fe0f}".as_bytes()).to_string();
        assert_eq!(hidden, "\\xd8\\x9c\\xc2\\xad\\xe2\\xa0\\x80\\xe3\\x85\\xa4\\xef\\xb8\\x8f");
    }
}
