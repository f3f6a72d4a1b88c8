//! Tests of the list of sessions, and the daemon that they share with other tests.

use super::super::current::Current;
use super::super::serve::end_if_unwanted;
use super::*;
use crate::daemon::{Bounds, ClientConfig, RootConfig, Roots, StateFiles, reload};
use longhaul_disk::{TargetDirs, TreePolicy};

const READ: Rights = Rights { read: true, create: false, modify: false, delete: false };

/// A daemon with one root, of which a client has these rights.
pub(in super::super) fn daemon(dir: &std::path::Path, client: Option<Rights>, allow: Rights) -> Daemon {
    let root = RootConfig {
        name: "data".to_owned(),
        targets: TargetDirs::one(dir),
        allow,
        protect: vec![Protection::Private],
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        policy: TreePolicy::served(),
    };
    let client = client.map(|rights| ClientConfig {
        name: "tester".to_owned(),
        key: key(),
        roots: BTreeMap::from([("data".to_owned(), rights)]),
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        weight: 1,
        bench: false,
        share: longhaul_core::PathShare::Fair,
        user: None,
    });
    let config = ServeConfig {
        file: None,
        listen: Vec::new(),
        sessions: 1,
        memory: longhaul_core::ByteCount(16 << 20),
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
        state: StateFiles::default(),
        bench_bytes: longhaul_core::ByteCount(1 << 20),
    };
    let named = reload::open_roots(&config, &BTreeMap::new()).expect("a directory");
    let affinity = reload::affinity(&config).expect("any CPU");
    Daemon::new(config, Roots { named, ..Roots::default() }, affinity, crate::api::Stop::new().1)
}

fn key() -> PublicKey {
    PublicKey::from_bytes([7; 32])
}

/// A session that reads, and is ended by this.
fn live(trigger: crate::api::StopTrigger) -> Live {
    Live {
        key: key(),
        client: "tester".to_owned(),
        peer: ([127, 0, 0, 1], 1).into(),
        what: "pull".to_owned(),
        protection: Protection::Private,
        transport: "tcp",
        receives: false,
        begun: Instant::now(),
        needs: Needs { roots: BTreeMap::from([("data".to_owned(), READ)]), ..Needs::default() },
        counter: Arc::default(),
        trigger,
    }
}

#[tokio::test]
async fn a_session_may_go_on_while_client_and_root_grant_what_it_needs_and_ends_by_its_own_code() {
    let dir = tempfile::tempdir().expect("scratch");
    let sessions = LiveSessions::default();
    let (trigger, mut stop) = crate::api::Stop::new();
    let seat = sessions.enter([1; 16], live(trigger));
    let create = Rights { read: false, create: true, modify: false, delete: false };
    for (client, allow, may) in [
        (Some(READ), READ, true),
        (Some(Rights { create: true, ..READ }), Rights { modify: true, ..READ }, true),
        (Some(create), READ, false),
        (Some(READ), create, false),
        (None, READ, false),
    ] {
        assert_eq!(seat.is_allowed(&daemon(dir.path(), client, allow)), may, "{client:?} {allow:?}");
    }
    let all = Needs { share: PathShare::All, ..Needs::default() };
    assert!(!daemon(dir.path(), Some(READ), READ).allows(&key(), &all), "it may have a fair share");
    assert_eq!(sessions.count(), 1);
    seat.end(FaultCode::Denied);
    assert_eq!(stop.stopped().await, FaultCode::Denied);
    drop(seat);
    assert_eq!(sessions.count(), 0);
}

#[tokio::test]
async fn a_session_that_begins_while_its_client_is_taken_out_or_the_daemon_drains_is_ended() {
    let dir = tempfile::tempdir().expect("scratch");
    for (client, drains, want) in
        [(Some(READ), false, None), (None, false, Some(FaultCode::Denied)), (Some(READ), true, Some(FaultCode::Busy))]
    {
        let (trigger, stop) = crate::api::Stop::new();
        let seat = LiveSessions::default().enter([1; 16], live(trigger));
        let current = Current::new(daemon(dir.path(), client, READ));
        if drains {
            current.now().live.drain.start(None);
        }
        end_if_unwanted(&current, &seat);
        assert_eq!(stop.pulled(), want, "{client:?}");
    }
}

#[test]
fn a_session_counts_what_moved_since_those_before_it_of_the_same_run() {
    let progress = |seconds, bytes_sent| Progress { seconds, bytes_sent, ..Progress::default() };
    let mut counts = SessionCounter::default().after(1000, 5.0).counts();
    assert_eq!([counts.hear(&progress(6.0, 1300)), counts.hear(&progress(7.0, 1350))], [300, 50]);
    assert_eq!(counts.pace.bytes_per_s, 50);
}
