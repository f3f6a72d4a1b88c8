//! Whose campaigns a mover moves: the owners that its own configuration names.
//!
//! In: keys of this host's configuration, and what signatures say. Out: whether a campaign is
//! moved, or a fault that says why not and what to do. Must not know the queue's rows, nor what a
//! signature is over.

use std::collections::BTreeSet;
use std::fmt;

use longhaul_core::{Blame, Fault, FaultCode, Hash32};
use longhaul_net::PublicKey;

use super::signing::Signed;

/// The owners whose campaigns a mover moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    /// `None`: any.
    keys: Option<BTreeSet<PublicKey>>,
    unsigned: Unsigned,
}

/// The way with campaigns that nobody signed. Whoever may write to the queue writes what those are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsigned {
    /// They are moved.
    Moved,
    /// Campaigns with these names are moved, and no others.
    Named(BTreeSet<String>),
    /// They are not.
    Refused,
}

/// The reason why a mover does not move a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody signed it.
    Unsigned,
    /// Its owner is not one of the mover's.
    Owner(PublicKey),
    /// Its row is not what its owner signed. `None`: the row of the signature makes no sense.
    Altered(Option<PublicKey>),
    /// Its plan is not what its owner signed.
    Plan(PublicKey),
}

impl Owners {
    /// All owners: for a queue in a file, which its user alone can write to.
    pub fn any(unsigned: Unsigned) -> Owners {
        Owners { keys: None, unsigned }
    }

    /// These owners.
    pub fn these(keys: impl IntoIterator<Item = PublicKey>, unsigned: Unsigned) -> Owners {
        Owners { keys: Some(keys.into_iter().collect()), unsigned }
    }

    /// Whether the campaign of a name is moved by its signature. Gives the digests of the manifests
    /// that its owner signed, `None` if nobody signed any.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn admit(&self, name: &str, signed: Signed) -> Result<Option<Vec<Hash32>>, Refusal> {
        match (self.owner(&signed), signed) {
            (Err(Refusal::Unsigned), _) if self.unsigned.moves(name) => Ok(None),
            (Ok(_), Signed::By(_, roots)) => Ok(Some(roots)),
            (Ok(_), _) => Ok(None),
            (Err(refusal), _) => Err(refusal),
        }
    }

    /// The owner of a campaign, who is one of these.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn owner(&self, signed: &Signed) -> Result<PublicKey, Refusal> {
        let owner = match *signed {
            Signed::Nobody => return Err(Refusal::Unsigned),
            Signed::Unreadable => return Err(Refusal::Altered(None)),
            Signed::By(owner, _) | Signed::Otherwise(owner) | Signed::PlannedOtherwise(owner) => owner,
        };
        if self.keys.as_ref().is_some_and(|keys| !keys.contains(&owner)) {
            return Err(Refusal::Owner(owner));
        }
        match signed {
            Signed::Otherwise(_) => Err(Refusal::Altered(Some(owner))),
            Signed::PlannedOtherwise(_) => Err(Refusal::Plan(owner)),
            _ => Ok(owner),
        }
    }
}

impl Unsigned {
    fn moves(&self, name: &str) -> bool {
        match self {
            Unsigned::Moved => true,
            Unsigned::Named(names) => names.contains(name),
            Unsigned::Refused => false,
        }
    }
}

impl Refusal {
    /// Whether the campaign is simply none of this mover's: others may move it.
    pub fn is_of_others(&self) -> bool {
        matches!(self, Refusal::Unsigned | Refusal::Owner(_))
    }

    /// The fault of whoever refuses a campaign, with words for what that one does not do.
    pub fn fault(&self, refused: impl fmt::Display) -> Fault {
        let denied =
            |why: fmt::Arguments| Fault::new(FaultCode::Denied, Blame::Local, format_args!("{refused}: {why}"));
        match self {
            Refusal::Unsigned => denied(format_args!("nobody has signed it")).hint_in_words(
                "cancel it and add it again under another name, as 'longhaul job add' signs it; or name it, which \
                 gives whoever may write to the queue this mover's rights over it: --allow-unsigned NAME of \
                 'longhaul job run', allow_unsigned in [mover] of serve.toml",
            ),
            Refusal::Owner(owner) => denied(format_args!("its owner {owner} is not one of this mover's"))
                .hint_in_words(format_args!(
                    "compare the key with what 'longhaul key show' prints for its owner; if it is the same, name it: \
                     --owner {owner} of 'longhaul job run', owners in [mover] of serve.toml"
                )),
            Refusal::Altered(owner) => {
                let words = "what the queue says of it is not what its owner signed";
                let fault = match owner {
                    Some(owner) => denied(format_args!("{words} ({owner})")),
                    None => denied(format_args!("{words}")),
                };
                fault.hint_in_words(
                    "its row was changed or copied: find out who may write to the queue, cancel the campaign, and have \
                     its owner add it again under another name",
                )
            }
            Refusal::Plan(owner) => denied(format_args!("its plan is not what its owner signed ({owner})"))
                .hint_in_words(
                    "its segments or its state were changed: find out who may write to the queue, cancel the campaign, \
                     and have its owner add and plan it again under another name",
                ),
        }
    }
}
