//! Records what clients do to files and names, for a log that tells afterwards who had which file.
//!
//! In: the beginning and end of sessions, files that are opened for a client and names that are
//! settled, listings, refusals. Out: records to an [`AuditLog`], if there is one; and the end of a
//! session whose record that log may not lose and did. It knows no file and no form of a record.

pub(super) mod source;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use longhaul_core::{Escaped, Fault, FaultCode, RelPath};
use longhaul_net::PublicKey;
use serde::{Deserialize, Serialize};

use super::ClientConfig;
use crate::api::{FileEvent, FileStatus, StopTrigger};
use crate::session::dataset::Appearance;

/// Keeps records. It is called from the loops of sessions and from the threads that read files, so
/// it must return at once, however slow its disk is.
pub trait AuditLog: Send + Sync + 'static {
    /// Keeps a record.
    ///
    /// # Errors
    /// [`AuditLost`] if it is lost and none may be: then the session ends whose deed it is.
    fn keep(&self, record: &AuditRecord<'_>) -> Result<(), AuditLost>;

    /// Whether sessions and listings may begin.
    ///
    /// # Errors
    /// The reason why not: no record may be lost, and none can be kept now.
    fn ready(&self) -> Result<(), Fault>;
}

/// The loss of a record that may not be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditLost;

/// One record. The log adds the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AuditRecord<'a> {
    /// The deed.
    pub deed: AuditDeed,
    /// Whose it is.
    pub who: AuditWho<'a>,
    /// The root.
    pub root: Option<&'a str>,
    /// The path beneath the root, escaped.
    pub path: Option<&'a str>,
    /// The deed of a session or a request in words.
    pub what: Option<&'a str>,
    /// The file's length, or the bytes that a session moved.
    pub bytes: Option<u64>,
    /// The BLAKE3 of the file.
    pub b3: Option<[u8; 32]>,
    /// Files of a session, or refusals that have no record of their own.
    pub count: Option<u64>,
    /// Seconds since the session, or the request, began.
    pub seconds: Option<f64>,
    /// The reason why it was not done. `None`: it was.
    pub code: Option<FaultCode>,
}

/// Whose deed a record tells of, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AuditWho<'a> {
    /// The name of the session: the one that its client is told, too.
    pub session: Option<&'a str>,
    /// The name of the client in the configuration.
    pub client: Option<&'a str>,
    /// The key that it has proved.
    pub key: Option<&'a str>,
    /// The address that it came from.
    pub peer: Option<&'a str>,
}

/// The deed of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AuditDeed {
    /// A session was admitted.
    SessionBegan,
    /// A session is over.
    SessionEnded,
    /// A file was opened to be sent to a client.
    Opened,
    /// A file is at the client, under its final name, as the client says.
    Sent,
    /// A file or link that a client sent has its name, where nothing stood.
    Committed,
    /// A file or link that a client sent has its name, in place of what stood there.
    Replaced,
    /// A file or link that a client sent is there, and gets its name with all others of its
    /// dataset.
    Staged,
    /// A name that its source has no more lies in a grace directory now.
    MovedAway,
    /// A file or link was not sent, or not taken; a name was not moved away.
    Failed,
    /// Names were listed.
    Listed,
    /// A claim on a shard is kept for copies by another daemon: it ends the session of any other
    /// mover of the shard, and bars what has a lower fence.
    ClaimKept,
    /// A request or a key was refused.
    #[default]
    Refused,
}

impl AuditDeed {
    /// Whether it was done to a file or link, or to a name that was to go, in a session.
    pub(super) const fn is_of_a_file(self) -> bool {
        match self {
            AuditDeed::Opened
            | AuditDeed::Sent
            | AuditDeed::Committed
            | AuditDeed::Replaced
            | AuditDeed::Staged
            | AuditDeed::MovedAway
            | AuditDeed::Failed => true,
            AuditDeed::SessionBegan
            | AuditDeed::SessionEnded
            | AuditDeed::Listed
            | AuditDeed::ClaimKept
            | AuditDeed::Refused => false,
        }
    }

    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            AuditDeed::SessionBegan => "session_began",
            AuditDeed::SessionEnded => "session_ended",
            AuditDeed::Opened => "opened",
            AuditDeed::Sent => "sent",
            AuditDeed::Committed => "committed",
            AuditDeed::Replaced => "replaced",
            AuditDeed::Staged => "staged",
            AuditDeed::MovedAway => "moved_away",
            AuditDeed::Failed => "failed",
            AuditDeed::Listed => "listed",
            AuditDeed::ClaimKept => "claim_kept",
            AuditDeed::Refused => "refused",
        }
    }
}

/// The log of a daemon, if it has one. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Auditor(Option<Arc<dyn AuditLog>>);

impl Auditor {
    /// Records go there.
    pub(super) fn new(log: Option<Arc<dyn AuditLog>>) -> Auditor {
        Auditor(log)
    }

    /// Keeps a record of no session.
    pub(super) fn keep(&self, record: &AuditRecord<'_>) {
        // Nothing of a refusal or a listing could be undone; what follows is refused.
        let _ = self.0.as_ref().map(|log| log.keep(record));
    }

    /// Refuses sessions and listings while records that may not be lost would be.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn ready(&self) -> Result<(), Fault> {
        self.0.as_ref().map_or(Ok(()), |log| log.ready())
    }

    /// Whether the log takes records now. `None`: there is no log.
    pub(super) fn state(&self) -> Option<Result<(), Fault>> {
        self.0.as_ref().map(|log| log.ready())
    }

    /// The records of one session of a client whose other side has proved this key, at this
    /// address.
    pub(super) fn session(&self, client: &ClientConfig, (key, peer): (PublicKey, SocketAddr)) -> Arc<SessionAudit> {
        let session = SessionAudit {
            log: self.0.clone(),
            client: client.name.clone(),
            // As texts, once: each record has them.
            key: key.to_string(),
            peer: peer.to_string(),
            begun: Instant::now(),
            name: OnceLock::new(),
            end: OnceLock::new(),
            place: OnceLock::new(),
        };
        Arc::new(session)
    }
}

/// The records of one session.
pub(super) struct SessionAudit {
    log: Option<Arc<dyn AuditLog>>,
    client: String,
    key: String,
    peer: String,
    begun: Instant,
    /// Its name, once it has one.
    name: OnceLock<String>,
    /// Ends it.
    end: OnceLock<StopTrigger>,
    /// The root of a destination, and the directory in it that names are placed beneath.
    place: OnceLock<(String, String)>,
}

impl SessionAudit {
    /// Sets what a session has once it was admitted: its name, and its trigger.
    pub(super) fn admitted(&self, name: String, end: StopTrigger) {
        let _ = (self.name.set(name), self.end.set(end));
    }

    /// Sets where the names are placed that it receives; the directory is escaped.
    pub(super) fn placed(&self, root: &str, dir: &str) {
        let dir = if dir == "." { String::new() } else { format!("{dir}/") };
        let _ = self.place.set((root.to_owned(), dir));
    }

    /// The name of the session. Empty before it has one.
    pub(super) fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Records a file that was opened to be sent, by the path that begins with the root's name, or
    /// that could not be.
    fn opened(&self, shown: &[u8], bytes: u64, code: Option<FaultCode>) {
        if self.log.is_none() {
            return;
        }
        let (root, path) = split(shown);
        let deed = if code.is_some() { AuditDeed::Failed } else { AuditDeed::Opened };
        let record = AuditRecord { deed, root: Some(&root), path: Some(&path), code, ..AuditRecord::default() };
        self.keep(AuditRecord { bytes: Some(bytes), ..record });
    }

    /// Records a name that is settled. What stands as it should is no deed.
    pub(super) fn settled(&self, file: &FileEvent) {
        if self.log.is_none() {
            return;
        }
        let (root, path) = match (&file.own.source, self.place.get()) {
            (Some(shown), _) => split(shown),
            (None, Some((root, dir))) => (root.clone(), format!("{dir}{}", file.placed.escaped())),
            (None, None) => (String::new(), file.placed.escaped().to_string()),
        };
        let receives = self.place.get().is_some();
        let (deed, code) = match &file.status {
            FileStatus::Committed | FileStatus::Linked if !receives => (AuditDeed::Sent, None),
            FileStatus::Committed | FileStatus::Linked if file.own.replaced => (AuditDeed::Replaced, None),
            FileStatus::Committed | FileStatus::Linked => (AuditDeed::Committed, None),
            FileStatus::Staged => (AuditDeed::Staged, None),
            FileStatus::Failed(fault) => (AuditDeed::Failed, Some(fault.code)),
            FileStatus::Skipped | FileStatus::Planned => return,
        };
        let record = AuditRecord { deed, root: Some(&root), path: Some(&path), code, ..AuditRecord::default() };
        self.keep(AuditRecord { bytes: Some(file.bytes), b3: file.b3, ..record });
    }

    /// Records that a name beneath the root was moved away, and what there is to say of that, or
    /// why it was not.
    pub(super) fn withdrawn(
        &self,
        (root, path): (&str, &RelPath),
        bytes: u64,
        (code, what): (Option<FaultCode>, Option<&str>),
    ) {
        if self.log.is_none() {
            return;
        }
        let (root, path) = (Escaped(root.as_bytes()).to_string(), path.escaped().to_string());
        let deed = if code.is_some() { AuditDeed::Failed } else { AuditDeed::MovedAway };
        let record = AuditRecord { deed, root: Some(&root), path: Some(&path), code, ..AuditRecord::default() };
        self.keep(AuditRecord { bytes: Some(bytes), what, ..record });
    }

    /// Records that all files that were staged have their names: the dataset's directory, with the
    /// digest of its sealed manifest.
    pub(super) fn appeared(&self, appearance: &Appearance) {
        let Some((root, dir)) = self.place.get() else { return };
        let deed = if appearance.replaced { AuditDeed::Replaced } else { AuditDeed::Committed };
        let path = dir.trim_end_matches('/');
        let record = AuditRecord { deed, root: Some(root), path: Some(path), ..AuditRecord::default() };
        self.keep(AuditRecord { b3: Some(appearance.digest), ..record });
    }

    /// Keeps a record of the session: whose it is, its name and the time are added.
    pub(super) fn keep(&self, record: AuditRecord<'_>) {
        let Some(log) = &self.log else { return };
        let record = AuditRecord {
            who: AuditWho {
                session: self.name.get().map(String::as_str),
                client: Some(&self.client),
                key: Some(&self.key),
                peer: Some(&self.peer),
            },
            seconds: Some(self.begun.elapsed().as_secs_f64()),
            ..record
        };
        if log.keep(&record).is_err()
            && let Some(end) = self.end.get()
        {
            end.stop(UNRECORDED);
        }
    }
}

/// The code by which a session ends of which a record was lost. It has no other use as a stop.
pub(super) const UNRECORDED: FaultCode = FaultCode::Io;

/// The root and the path beneath it, escaped, of a path that begins with the root's name.
fn split(shown: &[u8]) -> (String, String) {
    let slash = shown.iter().position(|&byte| byte == b'/');
    let (root, path) = slash.map_or((shown, &b"."[..]), |at| (&shown[..at], &shown[at + 1..]));
    (Escaped(root).to_string(), Escaped(path).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_behind_the_name_of_its_root_and_escaped() {
        let halves = |shown: &[u8]| split(shown);
        assert_eq!(halves(b"data/a/b"), ("data".to_owned(), "a/b".to_owned()));
        assert_eq!(halves(b"data"), ("data".to_owned(), ".".to_owned()));
        assert_eq!(halves(b"data/a\nb\x1b"), ("data".to_owned(), "a\\x0ab\\x1b".to_owned()));
    }
}
