//! The keys of `serve.toml` that take powers from the daemon itself: its user, and what it may
//! reach.
//!
//! In: the values of these keys. Out: a [`Confinement`] to `confine`, or the mistake at its place.
//! Asks the system for users, and changes nothing.

use std::path::PathBuf;

use longhaul_engine::DialRule;
use longhaul_engine::accounts::{Account, account};
use toml::Spanned;

use super::file::{Wrong, at, wrong};
use crate::error::Flaw;

/// The powers that a daemon gives up once it has what needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The user as whom it goes on. `None`: the one that started it.
    pub user: Option<Account>,
    /// Whether it confines itself.
    pub when: Confine,
    /// Directories beneath which a reload may add roots.
    pub reload_beneath: Vec<PathBuf>,
    /// Where it dials for its clients.
    pub dial: Vec<DialRule>,
}

/// Whether a daemon confines itself to its own files and the system calls that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// As far as the kernel can.
    #[default]
    Auto,
    /// It does not start where the kernel cannot.
    Required,
    /// It does not.
    Off,
}

/// Judges the keys.
pub(super) fn judge(
    user: Option<&Spanned<String>>,
    confine: Option<&Spanned<String>>,
    reload_beneath: Option<&Spanned<Vec<PathBuf>>>,
) -> Result<Confinement, Wrong> {
    let when = match confine.map(|word| (word, word.get_ref().as_str())) {
        None | Some((_, "auto")) => Confine::Auto,
        Some((_, "required")) => Confine::Required,
        Some((_, "off")) => Confine::Off,
        Some((word, given)) => {
            return at(word, Err(Flaw::Unknown { given: given.to_owned(), allowed: "auto, required, off" }));
        }
    };
    let relative = reload_beneath.filter(|dirs| dirs.get_ref().iter().any(|dir| dir.is_relative()));
    if let Some(dirs) = relative {
        return Err(wrong(dirs, "reload_beneath takes absolute paths"));
    }
    let reload_beneath = reload_beneath.map(|dirs| dirs.get_ref().clone()).unwrap_or_default();
    Ok(Confinement { user: user.map(judge_user).transpose()?, when, reload_beneath, dial: Vec::new() })
}

fn judge_user(user: &Spanned<String>) -> Result<Account, Wrong> {
    let name = user.get_ref().escape_debug();
    let found = account(user.get_ref())
        .map_err(|error| wrong(user, format!("the system cannot be asked for the user '{name}': {error}")))?;
    match found {
        None => Err(wrong(user, format!("there is no user '{name}' on this host"))),
        Some(found) if found.uid == 0 => Err(wrong(
            user,
            format!(
                "'{name}' is root, which 'user' is there to leave: name a user that owns the roots and nothing else"
            ),
        )),
        Some(found) => Ok(found),
    }
}
