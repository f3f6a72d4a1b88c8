//! Owns the list of sessions that run: whose they are, what they do and which rights they need.
//!
//! In: each session as it begins, its events, and the wish to end some. Out: figures for whoever
//! looks after the daemon, and the stop of each session that is to end. It does not know when a
//! session is to end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::{FaultCode, IfExists, Rights, Role};
use longhaul_net::{Protection, PublicKey};
use longhaul_proto::wire::message::{Far, Limit, Transfer};

use super::drain::Drain;
use super::rates::RateLimits;
use super::root_places::RootPlaces;
use super::{Daemon, ServeConfig};
use crate::api::{Event, FileStatus, Observer, Progress, StopTrigger};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    roots: BTreeMap<String, Rights>,
    /// Whether it measures.
    bench: bool,
}

impl Needs {
    /// The needs of a transfer; `may_modify` says whether it was let replace what stands.
    pub(super) fn of(transfer: &Transfer, may_modify: MayModify) -> Needs {
        match (&transfer.far, transfer.role) {
            (Far::Destination { root, if_exists, .. }, Role::Sender) => {
                let read = transfer.digests || *if_exists == IfExists::Verify;
                let modify = may_modify == MayModify::Yes && *if_exists != IfExists::Fail;
                Needs {
                    roots: BTreeMap::from([(root.to_string(), Rights { read, create: true, modify })]),
                    bench: false,
                }
            }
            (Far::Sources { sources, .. }, _) => {
                let read = Rights { read: true, create: false, modify: false };
                let roots = sources.iter().map(|source| (source.root.to_string(), read));
                Needs { roots: roots.collect(), bench: false }
            }
            _ => Needs { roots: BTreeMap::new(), bench: true },
        }
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
        (client.bench || !needs.bench) && needs.roots.iter().all(grants)
    }
}

impl LiveSessions {
    /// None yet, beneath the caps of a configuration.
    pub(super) fn new(config: &ServeConfig) -> LiveSessions {
        let sessions = LiveSessions::default();
        sessions.rates.set_all(config);
        sessions
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

/// Counts what a session does: for the log line at its end, and for its figures until then.
#[derive(Default)]
pub(super) struct SessionCounter(Mutex<Counts>);

/// The figures of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Files and links that were committed.
    pub(super) files: u64,
    /// Files and links that failed.
    pub(super) failed: u64,
    /// Bytes of committed files.
    pub(super) committed: u64,
    /// Payload bytes that were sent or received.
    pub(super) moved: u64,
    /// Payload bytes of the last second.
    pub(super) bytes_per_s: u64,
    /// The part that limited the last second.
    pub(super) limited_by: Option<Limit>,
    /// When the last second ended, since the session began.
    seconds: f64,
}

impl SessionCounter {
    /// The figures now.
    pub(super) fn counts(&self) -> Counts {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn hear(&mut self, progress: &Progress) {
        let moved = progress.bytes_sent.max(progress.bytes_received);
        let (bytes, seconds) = (moved.saturating_sub(self.moved), progress.seconds - self.seconds);
        if seconds > 0.0 {
            self.bytes_per_s = (bytes as f64 / seconds) as u64;
            (self.moved, self.seconds) = (moved, progress.seconds);
        }
        self.limited_by = progress.limited_by.map(|limited| limited.by);
    }
}

impl Observer for SessionCounter {
    fn event(&self, event: Event) {
        match event {
            Event::Progress(progress) => self.lock().hear(&progress),
            Event::File(file) => {
                let mut counts = self.lock();
                match file.status {
                    FileStatus::Committed if file.regular => {
                        counts.files += 1;
                        counts.committed += file.bytes;
                    }
                    FileStatus::Linked => counts.files += 1,
                    FileStatus::Failed(_) => counts.failed += 1,
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Stop;
    use crate::daemon::{ClientConfig, RootConfig, Roots, reload};
    use longhaul_core::ByteCount;
    use longhaul_disk::{TargetDirs, TreePolicy};

    const READ: Rights = Rights { read: true, create: false, modify: false };

    /// A daemon with one root, of which a client has these rights.
    fn daemon(dir: &std::path::Path, client: Option<Rights>, allow: Rights) -> Daemon {
        let root = RootConfig {
            name: "data".to_owned(),
            targets: TargetDirs::one(dir),
            allow,
            protect: vec![Protection::Private],
            rate: None,
            sessions: None,
            policy: TreePolicy::served(),
        };
        let client = client.map(|rights| ClientConfig {
            name: "tester".to_owned(),
            key: key(),
            roots: BTreeMap::from([("data".to_owned(), rights)]),
            rate: None,
            sessions: None,
            memory: None,
            weight: 1,
            bench: false,
        });
        let config = ServeConfig {
            file: None,
            listen: Vec::new(),
            sessions: 1,
            memory: ByteCount(16 << 20),
            idle: None,
            partials: None,
            unfinished: 1,
            sync: longhaul_proto::receiver::SyncGroup::default(),
            roots: vec![root],
            clients: client.into_iter().collect(),
            io: longhaul_disk::DirectMode::Auto,
            engine: longhaul_disk::EngineKind::Auto,
            depth: None,
            pin: longhaul_disk::Pin::Auto,
            rate: None,
            bench_bytes: ByteCount(1 << 20),
        };
        let named = reload::open_roots(&config, &BTreeMap::new()).expect("a directory");
        let affinity = reload::affinity(&config).expect("any CPU");
        Daemon::new(config, Roots { named, account: None }, affinity, Stop::new().1)
    }

    fn key() -> PublicKey {
        PublicKey::from_bytes([7; 32])
    }

    #[tokio::test]
    async fn a_session_may_go_on_while_client_and_root_grant_what_it_needs_and_ends_by_its_own_code() {
        let dir = tempfile::tempdir().expect("scratch");
        let sessions = LiveSessions::default();
        let (trigger, mut stop) = Stop::new();
        let live = Live {
            key: key(),
            client: "tester".to_owned(),
            peer: ([127, 0, 0, 1], 1).into(),
            what: "pull".to_owned(),
            protection: Protection::Private,
            begun: Instant::now(),
            needs: Needs { roots: BTreeMap::from([("data".to_owned(), READ)]), bench: false },
            counter: Arc::default(),
            trigger,
        };
        let seat = sessions.enter([1; 16], live);
        let create = Rights { read: false, create: true, modify: false };
        for (client, allow, may) in [
            (Some(READ), READ, true),
            (Some(Rights { create: true, ..READ }), Rights { modify: true, ..READ }, true),
            (Some(create), READ, false),
            (Some(READ), create, false),
            (None, READ, false),
        ] {
            let daemon = daemon(dir.path(), client, allow);
            assert_eq!(seat.is_allowed(&daemon), may, "{client:?} {allow:?}");
        }
        assert_eq!(sessions.count(), 1);
        seat.end(FaultCode::Denied);
        assert_eq!(stop.stopped().await, FaultCode::Denied);
        drop(seat);
        assert_eq!(sessions.count(), 0);
    }
}
