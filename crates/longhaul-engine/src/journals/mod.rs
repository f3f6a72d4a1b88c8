//! Partials: what earlier sessions left beneath a root, and what this one leaves. Journals of
//! `disk` with the format of `proto`, joined to a session.
//!
//! [`RootJournals`] belongs to a root (of a daemon, or of one run): it holds paths against other
//! sessions and opens journals; those that were left are looked at without their lock (`outline`),
//! those that are open are known to `open_books`. `doubts` are names that a failed sync may have
//! cost. What is left is looked at in `look`, where nothing is taken; `collect` clears away what
//! nobody came back for. [`SessionJournal`] belongs to a receiving session: it finds the partial of
//! a path, has it continued, and writes records. Knows nothing of peers' messages.

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

pub(crate) use root::RootJournals;
pub(crate) use session::{Arriving, PathHistory, SessionJournal};

/// On whose behalf a session receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// Whose partials it may continue: `key:FINGERPRINT` at a daemon, `uid:N` locally.
    pub(crate) principal: String,
    /// Who that is, for people.
    pub(crate) owner: String,
}

impl Principal {
    /// The user of this process.
    pub(crate) fn local() -> Principal {
        let uid = rustix::process::geteuid().as_raw();
        Principal { principal: format!("uid:{uid}"), owner: format!("user {uid} on this host") }
    }

    /// The client behind a key.
    pub(crate) fn client(key: &longhaul_net::PublicKey, name: &str) -> Principal {
        Principal { principal: format!("key:{key}"), owner: format!("client '{name}'") }
    }
}

/// What a journal calls the run that shows this secret. Zeros: a client that shows none.
pub(crate) fn run_of(secret: [u8; 16]) -> [u8; 16] {
    let mut run = [0; 16];
    if secret != run {
        run.copy_from_slice(&blake3::derive_key("longhaul 1 journal run", &secret)[..16]);
    }
    run
}
