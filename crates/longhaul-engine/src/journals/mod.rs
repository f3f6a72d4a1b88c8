//! Owns the partials beneath a root: those of earlier sessions, and those that this one leaves. It
//! joins the journals of `disk`, in the format of `proto`, to a session.
//!
//! [`RootJournals`] belongs to a root (of a daemon, or of one run): it opens journals, and lets one
//! session at a time own a path (`owners`, who ask each other's `presence`). Journals on the shelf
//! are read without their lock (`outline`); `open_files` knows those that this process has open,
//! and `file` is one of them. `doubts` are names that a failed sync may have cost. `listing` shows
//! partials and takes none; `collect` clears away those that nobody came back for, and `stages`
//! datasets that were staged and never committed.
//! [`SessionJournal`] belongs to a receiving session: it finds the partial of a path, has it
//! continued, and writes records. `claims` decides which session may publish the files of a shard.
//! It knows no messages of peers.

pub(crate) mod claims;
mod collect;
mod doubts;
pub(crate) mod file;
pub(crate) mod listing;
mod open_files;
mod outline;
pub(crate) mod owners;
pub(crate) mod presence;
pub(crate) mod root;
mod session;
mod stages;

pub(crate) use doubts::Doubts;
pub(crate) use root::RootJournals;
pub(crate) use session::{Arriving, PathHistory, SessionJournal};

/// The owner of the partials of a session: a client's key, or a user of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The name in journals: `key:FINGERPRINT` at a daemon, `uid:N` locally. A session may continue
    /// the partials of its own principal.
    pub(crate) principal: String,
    /// The principal for people.
    pub(crate) owner: String,
}

impl Principal {
    /// The user of this process.
    pub(crate) fn local() -> Principal {
        let uid = rustix::process::geteuid().as_raw();
        Principal { principal: format!("uid:{uid}"), owner: format!("user {uid} on this host") }
    }

    /// Its name in files of claims.
    pub(crate) fn claims_owner(&self) -> longhaul_disk::ClaimsOwner {
        let mut owner = [0; 16];
        owner.copy_from_slice(&blake3::derive_key("longhaul 1 claims owner", self.principal.as_bytes())[..16]);
        longhaul_disk::ClaimsOwner(owner)
    }

    /// The client behind a key.
    pub(crate) fn client(key: &longhaul_net::PublicKey, name: &str) -> Principal {
        Principal { principal: format!("key:{key}"), owner: format!("client '{name}'") }
    }
}

/// The name in journals of the run that shows this secret. A client that shows none has zeros.
pub(crate) fn run_of(secret: [u8; 16]) -> [u8; 16] {
    let mut run = [0; 16];
    if secret != run {
        run.copy_from_slice(&blake3::derive_key("longhaul 1 journal run", &secret)[..16]);
    }
    run
}
