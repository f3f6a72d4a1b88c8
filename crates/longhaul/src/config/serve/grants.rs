//! The rights that a `[[client]]` has at its roots and on the way there, and the protections of a
//! `[[root]]`.
//!
//! In: the roots that are known, and the words of the client. Out: its rights, or what contradicts
//! a root. Opens nothing.

use longhaul_core::PathShare;
use longhaul_engine::{Bounds, Rights, RootConfig};
use longhaul_net::Protection;

use super::file::{Text, Wrong, at, wrong};
use crate::config::rights::grant;
use crate::error::Flaw;
use crate::values;

/// The roots that a client may name.
pub(super) struct KnownRoots<'a> {
    /// The known ones.
    pub(super) roots: Vec<&'a RootConfig>,
    /// Whether there are more.
    pub(super) others: OtherRoots,
}

/// Whether there may be roots besides the known ones.
pub(super) enum OtherRoots {
    /// There are none.
    None,
    /// There may be some, of a command line that is not known here.
    Perhaps,
}

impl KnownRoots<'_> {
    /// Whether the root of this name lies on several targets.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.roots.iter().any(|root| root.name == name && root.targets.dirs.len() > 1)
    }

    /// The bounds of the root of this name, if it is known.
    pub(super) fn bounds(&self, name: &str) -> Option<&Bounds> {
        self.roots.iter().find(|root| root.name == name).map(|root| &root.bounds)
    }

    /// The rights that a client is granted at a root by these words. A right that the root denies
    /// is a contradiction: one of the two is a mistake, and nobody can tell which.
    pub(super) fn granted(&self, client: &str, root: &Text, words: &[Text]) -> Result<Rights, Wrong> {
        let name = root.get_ref().escape_debug();
        let Some(config) = self.roots.iter().find(|config| config.name == *root.get_ref()) else {
            return match self.others {
                OtherRoots::Perhaps => rights(words),
                OtherRoots::None => Err(wrong(
                    root,
                    format!("there is no root '{name}': add a [[root]] of this name, or give --root {name}=DIR"),
                )),
            };
        };
        for word in words {
            let right = at(word, grant(Rights::default(), word.get_ref()))?;
            if right.and(config.allow) != right {
                let (client, word_text) = (client.escape_debug(), word.get_ref());
                let allowed: Vec<_> = config.allow.names().collect();
                let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
                let message = format!(
                    "client '{client}' has '{word_text}' in root '{name}', which allows {allowed}: take it out here, or \
                     add it to 'allow' of that root"
                );
                return Err(wrong(word, message));
            }
        }
        rights(words)
    }
}

/// The rights of these words.
pub(super) fn rights(words: &[Text]) -> Result<Rights, Wrong> {
    words.iter().try_fold(Rights::default(), |rights, word| at(word, grant(rights, word.get_ref())))
}

/// The protections of these words.
pub(super) fn protections(words: &[Text]) -> Result<Vec<Protection>, Wrong> {
    let level = |word: &Text| match word.get_ref().as_str() {
        "private" => Ok(Protection::Private),
        "safe" => Ok(Protection::Safe),
        given => at(word, Err(Flaw::Unknown { given: given.to_owned(), allowed: "private, safe" })),
    };
    words.iter().map(level).collect()
}

/// The largest share of a path that a client may ask for. Every client may be polite.
pub(super) fn share(word: Option<Text>) -> Result<PathShare, Wrong> {
    let Some(word) = word else { return Ok(PathShare::Fair) };
    match at(&word, values::share(word.get_ref()))? {
        PathShare::Polite => Err(wrong(&word, "share must be \"fair\" or \"all\": every client may ask for less")),
        share => Ok(share),
    }
}
