//! The place where an option's text was written.
//!
//! In: from those who read texts, `settings` and `config`. Out: words for `error`. Knows no
//! option's meaning.

use std::fmt;
use std::path::PathBuf;

/// The place where the text of an option was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was written on the command line, as an argument of this name.
    Argument(&'static str),
    /// It was written on the command line, as `--NAME`.
    Flag(&'static str),
    /// It was written in this variable.
    Variable(String),
    /// It was written in the config file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Argument(name) => write!(f, "{name}"),
            Origin::Flag(name) => write!(f, "--{name}"),
            Origin::Variable(name) => write!(f, "{name}"),
            Origin::File { path, line, key } => write!(f, "{}:{line}: {key}", path.display()),
        }
    }
}
