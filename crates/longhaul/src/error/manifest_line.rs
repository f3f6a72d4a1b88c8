//! The flaws of a line of a manifest that is read back.
//!
//! In: from `manifest`. Out: the words for [`super::Error::Manifest`]. Reads nothing.

use longhaul_core::PathError;

/// The flaw of a line that is none of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFlaw {
    /// It does not begin with a digest.
    #[error("it does not begin with 64 hexadecimal digits and two spaces")]
    Digest,
    /// It has no name, or one with an escape that is none.
    #[error("it has no name, or a backslash that escapes nothing")]
    Name,
}

/// A line of a manifest that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFlaw {
    /// It is no line of a manifest.
    #[error("{0}")]
    Line(LineFlaw),
    /// Its name leads out of the directory, or is none.
    #[error("the name '{name}' cannot lie beneath a directory: {why}")]
    Name {
        /// The name, escaped.
        name: String,
        /// The reason.
        why: PathError,
    },
    /// The name has another digest on an earlier line.
    #[error("the name '{name}' has another digest on an earlier line")]
    Twice {
        /// The name, escaped.
        name: String,
    },
    /// A name lies beneath another one.
    #[error("a name of it lies beneath another name of it, so that one of the two is no file")]
    Nested,
}
