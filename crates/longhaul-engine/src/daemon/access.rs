//! Decides what a client may do: a request needs the right from the root and from the client. Pure
//! rules on a configuration.
//!
//! In: a key, a root's name, the right that a request needs. Out: the root, or a refusal. It knows
//! no connections and no paths.

use longhaul_core::{Blame, Escaped, Fault, FaultCode, PathShare, Rights, hint};
use longhaul_net::{Protection, PublicKey};

use super::strangers::unknown;
use super::{ClientConfig, Daemon, RootConfig};

impl Daemon {
    /// The client behind a key.
    pub(super) fn client(&self, key: &PublicKey) -> Result<&ClientConfig, Fault> {
        self.config.clients.iter().find(|c| c.key == *key).ok_or_else(|| unknown(key))
    }

    /// A root that the client may see at all, and its rights there. Other clients are not told
    /// whether the root exists.
    pub(super) fn root(&self, client: &ClientConfig, name: &str) -> Result<(&RootConfig, Rights), Fault> {
        let rights = client.roots.get(name).copied().unwrap_or_default();
        let root = self.roots.account.as_ref().map(|account| account.root());
        match root.or_else(|| self.config.roots.iter().find(|root| root.name == name)) {
            Some(root) if rights != Rights::default() => Ok((root, root.allow.and(rights))),
            _ => Err(Fault::new(
                FaultCode::Denied,
                Blame::Local,
                format_args!("no root '{}' for this key", Escaped(name.as_bytes())),
            )
            .hint(hint::Daemon::ListRoots)),
        }
    }
}

/// Refuses unless `granted`.
pub(super) fn need(granted: bool, right: &str, root: &RootConfig) -> Result<(), Fault> {
    if granted {
        return Ok(());
    }
    Err(Fault::new(
        FaultCode::Denied,
        Blame::Local,
        format_args!("this key has no right '{right}' on root '{}'", root.name),
    )
    .hint(hint::Daemon::AskForRight))
}

/// Refuses a share of the path that is larger than this client may have.
pub(super) fn need_share(share: PathShare, client: &ClientConfig) -> Result<(), Fault> {
    if share <= client.share {
        return Ok(());
    }
    let why = format_args!("this key may have no more than a {} share of a path, and not {share}", client.share);
    Err(Fault::new(FaultCode::Denied, Blame::Local, why).hint(hint::Daemon::TakeFairShare))
}

/// Refuses a protection that the root does not allow.
pub(super) fn need_protection(protection: Protection, root: &RootConfig) -> Result<(), Fault> {
    if root.protect.contains(&protection) {
        return Ok(());
    }
    let (asked, hint) = match protection {
        Protection::Private => ("private", hint::Daemon::UseSafe),
        Protection::Safe => ("safe", hint::Daemon::UsePrivate),
    };
    let message = format_args!("root '{}' does not allow lanes that are {asked}", root.name);
    Err(Fault::new(FaultCode::Denied, Blame::Local, message).hint(hint))
}
