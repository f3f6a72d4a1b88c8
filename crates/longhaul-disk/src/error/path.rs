//! The path in an error: bytes that may be no text, shown escaped.
//!
//! Takes paths of any form; gives [`PathText`] to all errors of this crate. Knows no error.

use std::fmt;
use std::path::Path;

use longhaul_core::{Escaped, RelPath};

/// The bytes of a path in an error; shown escaped.
#[derive(Clone, PartialEq, Eq)]
pub struct PathText(Box<[u8]>);

impl PathText {
    /// The bytes themselves.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path behind `prefix`; `.` becomes `prefix`, and an empty `prefix` adds nothing.
    pub(crate) fn beneath(&self, prefix: &[u8]) -> PathText {
        match (prefix, &*self.0) {
            (b"", _) => self.clone(),
            (_, b".") => PathText::from(prefix),
            (_, name) if prefix.ends_with(b"/") => PathText([prefix, name].concat().into()),
            (_, name) => PathText([prefix, name].join(&b'/').into()),
        }
    }
}

impl From<&RelPath> for PathText {
    fn from(path: &RelPath) -> PathText {
        PathText::from(path.as_bytes())
    }
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> PathText {
        PathText::from(path.as_os_str().as_encoded_bytes())
    }
}

impl From<&[u8]> for PathText {
    fn from(bytes: &[u8]) -> PathText {
        PathText(if bytes.is_empty() { (*b".").into() } else { bytes.into() })
    }
}

impl From<&PathText> for PathText {
    fn from(path: &PathText) -> PathText {
        path.clone()
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.0))
    }
}

impl fmt::Debug for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
