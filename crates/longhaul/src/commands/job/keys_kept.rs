//! The keys of a campaign: what `job add` keeps of its options, and what movers make of that.
//!
//! In: options, and the keys in a campaign's row. Out: the other. Paths of files are kept, and no
//! content of them. Must not know the queue.

#![allow(clippy::disallowed_methods, reason = "it is looked whether a file that the user named is there")]

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_core::{Blame, Escaped, Fault, FaultCode};

use crate::cli::SshOptions;
use crate::error::{Error, Flaw, Origin};
use crate::jobs::CampaignKeys;
use crate::settings::Keys;
use crate::values;

/// The keys that a campaign keeps. Paths become absolute, as movers run elsewhere.
///
/// # Errors
/// [`Error::File`] for a path without a place.
pub(super) fn kept(keys: &Keys) -> Result<CampaignKeys, Error> {
    let whole = |path: &Option<std::path::PathBuf>| match path {
        Some(path) => std::path::absolute(path).map(Some).map_err(Error::file("find", path)),
        None => Ok(None),
    };
    Ok(CampaignKeys {
        identity: whole(&keys.identity)?,
        known_hosts: whole(&keys.known_hosts)?,
        peer_key: keys.peer_key.map(|key| key.to_string()),
        trust_on_first_use: keys.trust_on_first_use,
    })
}

/// The keys with which the daemons of a campaign are met: those that were given now, and else those
/// that it keeps.
///
/// # Errors
/// [`Error::Option`] for a kept key of a daemon that is none, and a fault of code not-found for a
/// kept file of our own key that is not there.
pub(in crate::commands) fn met_with(given: &Keys, campaign: &CampaignKeys) -> Result<Keys, Error> {
    if let (None, Some(path)) = (&given.identity, &campaign.identity) {
        need_key(path)?;
    }
    let peer_key = campaign.peer_key.as_deref().map(values::key).transpose();
    let peer_key = peer_key.map_err(|flaw: Flaw| Error::Option { origin: Origin::Flag("peer-key"), flaw })?;
    Ok(Keys {
        identity: given.identity.clone().or_else(|| campaign.identity.clone()),
        known_hosts: given.known_hosts.clone().or_else(|| campaign.known_hosts.clone()),
        peer_key: given.peer_key.or(peer_key),
        trust_on_first_use: given.trust_on_first_use || campaign.trust_on_first_use,
    })
}

/// Refuses a kept key that is not there: making another one would hide that.
fn need_key(path: &Path) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    let message = format_args!("the campaign's key '{}' is not there", Escaped(path.as_os_str().as_bytes()));
    let fault = Fault::new(FaultCode::NotFound, Blame::Local, message);
    Err(fault.hint_in_words("bring the file back, or name another one with --identity").into())
}

/// Refuses options of ssh: no campaign goes over it yet.
///
/// # Errors
/// [`Error::Combination`] if one was given.
pub(super) fn refuse_ssh(ssh: &SshOptions) -> Result<(), Error> {
    let SshOptions { ssh, remote_longhaul, install, port_range } = ssh;
    if ssh.is_none() && remote_longhaul.is_none() && !install && port_range.is_none() {
        return Ok(());
    }
    Err(Error::Combination {
        why: "a campaign over ssh is not built yet",
        hint: "leave --ssh, --remote-longhaul, --install and --port-range out",
    })
}
