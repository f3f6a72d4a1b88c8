//! The words for a client's rights at a root.
//!
//! In: texts from the daemon's config and the command line. Out: [`Rights`]. Knows neither roots
//! nor clients.

use longhaul_engine::Rights;

use crate::error::Flaw;

/// Reads `read,create,modify,delete` in any order and selection.
///
/// # Errors
/// [`Flaw::Unknown`] with the first word that is no right.
pub fn parse_rights(text: &str) -> Result<Rights, Flaw> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.into_iter().try_fold(Rights::default(), grant)
}

/// Adds a right by its name.
pub(super) fn grant(mut rights: Rights, name: &str) -> Result<Rights, Flaw> {
    match name {
        "read" => rights.read = true,
        "create" => rights.create = true,
        "modify" => rights.modify = true,
        "delete" => rights.delete = true,
        _ => return Err(Flaw::Unknown { given: name.to_owned(), allowed: "read, create, modify, delete" }),
    }
    Ok(rights)
}

/// The names of the granted rights.
pub(super) fn names(rights: Rights) -> Vec<&'static str> {
    rights.names().collect()
}
