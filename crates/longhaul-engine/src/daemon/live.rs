//! Owns the list of sessions that run: whose they are, what they do and which rights they need.
//!
//! In: each session as it begins, its events, and the wish to end some. Out: figures for whoever
//! looks after the daemon, and the stop of each session that is to end. It does not know when a
//! session is to end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::{FaultCode, IfExists, PathShare, Rights, Role};
use longhaul_net::{Protection, PublicKey};
use longhaul_proto::wire::message::{Far, Limit, Transfer};
use serde::{Deserialize, Serialize};

use super::audit::{Auditor, SessionAudit};
use super::deputy::{DaemonLink, Deputies};
use super::dials::Abroad;
use super::drain::Drain;
use super::grants::Grants;
use super::quotas::Quotas;
use super::rates::RateLimits;
use super::root_places::RootPlaces;
use super::spare::SpareMemory;
use super::tallies::{MovedSums, Tallies};
use super::{Daemon, ServeConfig};
use crate::api::{Event, FileEvent, FileStatus, Observer, Progress, StopTrigger};

/// The name of a session: the number that its client is told, too.
pub(super) type SessionName = [u8; 16];

/// The sessions that run. Clones share them.
#[derive(Clone, Default)]
pub(super) struct LiveSessions {
    list: Arc<Mutex<BTreeMap<SessionName, Live>>>,
    /// Whether others may begin.
    pub(super) drain: Drain,
    /// The rate of each.
    pub(super) rates: RateLimits,
    /// Their places on roots.
    pub(super) places: RootPlaces,
    /// The processes of users of this host in which some run.
    pub(super) deputies: Deputies,
    /// In such a process: the way of one conversation to the daemon.
    pub(super) link: Option<Arc<DaemonLink>>,
    /// Sums of what they did, and of what was refused.
    pub(super) tallies: Tallies,
    /// Records of the same.
    pub(super) audit: Auditor,
    /// The counts of what they store.
    pub(super) quotas: Quotas,
    /// The memory that they leave.
    pub(super) spare: SpareMemory,
    /// The rights of clients that some run by.
    pub(super) grants: Grants,
    /// The daemon as others know it. `None` where a client's grant is of no use.
    pub(super) abroad: Option<Arc<Abroad>>,
}

/// A session that runs.
#[derive(Clone)]
pub(super) struct Live {
    /// The key of its client.
    pub(super) key: PublicKey,
    /// The name of its client.
    pub(super) client: String,
    /// The address that it came from.
    pub(super) peer: SocketAddr,
    /// Its doing, as the log says it.
    pub(super) what: String,
    /// The protection of its lanes.
    pub(super) protection: Protection,
    /// The kind of lane that it began with.
    pub(super) transport: &'static str,
    /// Whether the daemon receives.
    pub(super) receives: bool,
    /// When it began.
    pub(super) begun: Instant,
    /// The rights that it began with.
    pub(super) needs: Needs,
    /// Its figures.
    pub(super) counter: Arc<SessionCounter>,
    /// Ends it.
    pub(super) trigger: StopTrigger,
}

/// The place of a session in the list. Dropping it takes the session out.
pub(super) struct LiveSeat {
    sessions: LiveSessions,
    name: SessionName,
}

/// The rights without which a session may not go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Needs {
    roots: BTreeMap<String, Rights>,
    /// Whether it measures.
    bench: bool,
    share: PathShare,
    /// The number of the user of this host as which it runs. `None`: the daemon's.
    uid: Option<u32>,
}

impl Needs {
    /// The needs of a transfer; `may_modify` says whether it was let replace what stands.
    pub(super) fn of(transfer: &Transfer, may_modify: MayModify) -> Needs {
        let share = transfer.flow.share;
        match (&transfer.far, transfer.role) {
            (Far::Destination { root, if_exists, .. }, Role::Sender) => {
                let read = transfer.digests || *if_exists == IfExists::Verify;
                let modify = may_modify == MayModify::Yes && *if_exists != IfExists::Fail;
                let roots = BTreeMap::from([(root.to_string(), Rights { read, create: true, modify, delete: false })]);
                Needs { roots, share, ..Needs::default() }
            }
            (Far::Sources { sources, .. }, _) => {
                let read = Rights { read: true, ..Rights::default() };
                let roots = sources.iter().map(|source| (source.root.to_string(), read));
                Needs { roots: roots.collect(), share, ..Needs::default() }
            }
            _ => Needs { bench: true, share, ..Needs::default() },
        }
    }

    /// The needs of a session that moves names away in a root.
    pub(super) fn of_removal(root: &str) -> Needs {
        let rights = Rights { read: true, delete: true, ..Rights::default() };
        Needs { roots: BTreeMap::from([(root.to_owned(), rights)]), ..Needs::default() }
    }

    /// The needs of a session that reads files of a root where they lie.
    pub(super) fn of_reading(root: &str) -> Needs {
        let rights = Rights { read: true, ..Rights::default() };
        Needs { roots: BTreeMap::from([(root.to_owned(), rights)]), ..Needs::default() }
    }

    /// The same of a session that runs as this user.
    #[must_use]
    pub(super) fn of_user(self, uid: Option<u32>) -> Needs {
        Needs { uid, ..self }
    }

    /// The roots.
    pub(super) fn roots(&self) -> impl Iterator<Item = &str> {
        self.roots.keys().map(String::as_str)
    }
}

/// Whether a session was let replace what stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayModify {
    /// It was.
    Yes,
    /// It was not.
    No,
}

impl Daemon {
    /// Whether a client's session may go on that needs this.
    pub(super) fn allows(&self, key: &PublicKey, needs: &Needs) -> bool {
        let Ok(client) = self.client(key) else { return false };
        let grants = |(root, rights): (&String, &Rights)| {
            self.root(client, root).is_ok_and(|(_, granted)| granted.and(*rights) == *rights)
        };
        let is_user = needs.uid == client.uid() && needs.share <= client.share;
        is_user && (client.bench || !needs.bench) && needs.roots.iter().all(grants)
    }
}

impl LiveSessions {
    /// None yet, beneath the caps of a configuration.
    pub(super) fn new(config: &ServeConfig) -> LiveSessions {
        let sessions = LiveSessions::default();
        sessions.rates.set_all(config);
        sessions
    }

    /// The same sessions, of which some run in these processes.
    #[must_use]
    pub(super) fn served_by(self, deputies: Deputies) -> LiveSessions {
        LiveSessions { deputies, ..self }
    }

    /// The same sessions, as a conversation of a deputy sees them.
    #[must_use]
    pub(super) fn linked(self, link: Arc<DaemonLink>, audit: Auditor) -> LiveSessions {
        LiveSessions { link: Some(link), audit, ..self }
    }

    /// Enters a session.
    pub(super) fn enter(&self, name: SessionName, live: Live) -> LiveSeat {
        self.lock().insert(name, live);
        LiveSeat { sessions: self.clone(), name }
    }

    /// All sessions, the oldest first.
    pub(super) fn all(&self) -> Vec<(SessionName, Live)> {
        let mut all: Vec<_> = self.lock().iter().map(|(name, live)| (*name, live.clone())).collect();
        all.sort_by_key(|(_, live)| live.begun);
        all
    }

    /// The number of sessions.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends all sessions that `wanted` takes, in order and with this code. Returns them.
    pub(super) fn end(&self, code: FaultCode, wanted: impl Fn(&SessionName, &Live) -> bool) -> Vec<Live> {
        let ended: Vec<Live> =
            self.lock().iter().filter(|(name, live)| wanted(name, live)).map(|(_, live)| live.clone()).collect();
        ended.iter().for_each(|live| live.trigger.stop(code));
        ended
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionName, Live>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveSeat {
    /// Whether the session may go on by what `daemon` allows.
    pub(super) fn is_allowed(&self, daemon: &Daemon) -> bool {
        self.sessions.lock().get(&self.name).is_some_and(|live| daemon.allows(&live.key, &live.needs))
    }

    /// Ends the session in order, with this code.
    pub(super) fn end(&self, code: FaultCode) {
        self.sessions.end(code, |name, _| *name == self.name);
    }
}

impl Drop for LiveSeat {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.name);
    }
}

/// Counts what a session does: for the log line at its end, for its figures until then, and for the
/// daemon's sums. It passes settled names on to the session's records.
#[derive(Default)]
pub(super) struct SessionCounter {
    counts: Mutex<Counts>,
    account: Option<SessionAccount>,
}

/// The accounts that a session's deeds go to.
pub(super) struct SessionAccount {
    /// Its records.
    pub(super) audit: Arc<SessionAudit>,
    /// The daemon's sums.
    pub(super) tallies: Tallies,
    /// The root and the client that it counts for.
    pub(super) whose: (String, String),
    /// Whether the daemon receives.
    pub(super) receives: bool,
    /// Whether a file failed already: the first one is among the daemon's last faults, and not
    /// each.
    pub(super) told: AtomicBool,
}

/// How far a session is, and how fast.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SessionPace {
    /// Bytes of committed files.
    pub bytes_committed: u64,
    /// Payload bytes that were sent or received.
    pub bytes_moved: u64,
    /// Payload bytes of the last second.
    pub bytes_per_s: u64,
    /// The same as a mean in which the last ten seconds count most.
    pub mean_bytes_per_s: u64,
    /// Bytes of files that are at the receiver, or will not come.
    pub bytes_done: u64,
    /// Bytes of all files that are known so far.
    pub bytes_total: u64,
    /// Whether all files are known.
    pub scanned: bool,
    /// Lanes that run.
    pub lanes: u32,
    /// Seconds since the other side was last heard of.
    pub silent_s: f64,
    /// The part that limited the last second, as far as known.
    pub limited_by: Option<Limit>,
}

/// The figures of a session.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Files and links that were committed.
    pub(super) files: u64,
    /// Files and links that failed.
    pub(super) failed: u64,
    /// Names that were moved away.
    pub(super) moved_away: u64,
    /// Files that were read where they lie.
    pub(super) read: u64,
    /// Files of which the digest is known, among those that were committed.
    pub(super) digests: u64,
    /// How far it is, and how fast.
    pub(super) pace: SessionPace,
    /// The mean of its rate, in which the last ten seconds count most.
    mean_bytes_per_s: f64,
    /// When the last second ended, since the session began.
    seconds: f64,
}

impl SessionCounter {
    /// No counts yet, of a session whose deeds go to these accounts.
    pub(super) fn new(account: SessionAccount) -> SessionCounter {
        SessionCounter { counts: Mutex::default(), account: Some(account) }
    }

    /// The same for a session of a run whose counters go on from those of earlier sessions: bytes
    /// that these moved were counted then.
    #[must_use]
    pub(super) fn after(self, bytes_moved: u64, seconds: f64) -> SessionCounter {
        {
            let mut counts = self.lock();
            (counts.pace.bytes_moved, counts.seconds) = (bytes_moved, seconds);
        }
        self
    }

    /// Counts the bytes that moved since the last second of a session that is over.
    pub(super) fn close(&self, bytes_moved: u64) {
        let more = {
            let mut counts = self.lock();
            let more = bytes_moved.saturating_sub(counts.pace.bytes_moved);
            counts.pace.bytes_moved += more;
            more
        };
        self.account.iter().for_each(|account| account.moved(more));
    }

    /// The figures now.
    pub(super) fn counts(&self) -> Counts {
        *self.lock()
    }

    /// Shows figures that were counted elsewhere. Returns those before.
    pub(super) fn set(&self, counts: Counts) -> Counts {
        std::mem::replace(&mut *self.lock(), counts)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionAccount {
    fn moved(&self, bytes: u64) {
        let more = match self.receives {
            true => MovedSums { received_bytes: bytes, ..MovedSums::default() },
            false => MovedSums { sent_bytes: bytes, ..MovedSums::default() },
        };
        if bytes > 0 {
            self.tallies.moved(&self.whose, more);
        }
    }

    fn settled(&self, file: &FileEvent) {
        let (files_committed, files_failed) = match &file.status {
            FileStatus::Committed | FileStatus::Staged | FileStatus::Linked => (1, 0),
            FileStatus::Failed(fault) => {
                if !self.told.swap(true, Ordering::Relaxed) {
                    self.tallies.fault(&self.whose.1, &file.placed.escaped().to_string(), fault);
                }
                (0, 1)
            }
            FileStatus::Skipped | FileStatus::Planned => return,
        };
        self.tallies.moved(&self.whose, MovedSums { files_committed, files_failed, ..MovedSums::default() });
        self.audit.settled(file);
    }
}

impl Counts {
    fn settled(&mut self, file: &FileEvent) {
        match file.status {
            FileStatus::Committed | FileStatus::Staged if file.regular => {
                self.files += 1;
                self.pace.bytes_committed += file.bytes;
                self.digests += u64::from(file.b3.is_some());
            }
            // Another name of a file that was counted.
            FileStatus::Linked => self.files += 1,
            FileStatus::Failed(_) => self.failed += 1,
            _ => {}
        }
    }

    /// Takes in the counters of a moment. Returns the payload bytes that moved since the last ones.
    fn hear(&mut self, progress: &Progress) -> u64 {
        let pace = &mut self.pace;
        let moved = progress.bytes_sent.max(progress.bytes_received);
        let (bytes, seconds) = (moved.saturating_sub(pace.bytes_moved), progress.seconds - self.seconds);
        let is_over = seconds > 0.0;
        if is_over {
            let rate = bytes as f64 / seconds;
            let weight = if self.seconds > 0.0 { 1.0 - (-seconds / MEAN_SECONDS).exp() } else { 1.0 };
            self.mean_bytes_per_s += weight * (rate - self.mean_bytes_per_s);
            (pace.bytes_per_s, pace.mean_bytes_per_s) = (rate as u64, self.mean_bytes_per_s as u64);
            (pace.bytes_moved, self.seconds) = (moved.max(pace.bytes_moved), progress.seconds);
        }
        pace.limited_by = progress.limited_by.map(|limited| limited.by);
        (pace.bytes_total, pace.scanned, pace.silent_s) = (progress.bytes_total, progress.scanned, progress.silent_s);
        pace.bytes_done = progress.bytes_arrived.saturating_add(progress.bytes_done_without);
        if is_over { bytes } else { 0 }
    }
}

impl Observer for SessionCounter {
    fn event(&self, event: Event) {
        match event {
            Event::Progress(progress) => {
                let more = self.lock().hear(&progress);
                self.account.iter().for_each(|account| account.moved(more));
            }
            Event::File(file) => {
                self.lock().settled(&file);
                self.account.iter().for_each(|account| account.settled(&file));
            }
            _ => {}
        }
    }

    fn lanes(&self, count: u32) {
        self.lock().pace.lanes = count;
    }
}

/// The time by which the weight of a second in the mean has fallen to a third.
const MEAN_SECONDS: f64 = 10.0;

#[cfg(test)]
pub(super) mod tests;
