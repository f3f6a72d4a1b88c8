//! An option's text with the place where it was written, and the variables.
//!
//! In: the process's environment, handed in. Out: [`Given`] texts of `settings` and `config`. Knows
//! no option's meaning.

use std::ffi::OsString;

use crate::error::Origin;

/// Looks a variable up; tests give their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A text and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The text as written.
    pub text: OsString,
    /// The place.
    pub origin: Origin,
}

/// The variable of an option: `chunk-size` is `LONGHAUL_CHUNK_SIZE`.
pub fn variable(name: &str) -> String {
    format!("LONGHAUL_{}", name.to_ascii_uppercase().replace('-', "_"))
}
