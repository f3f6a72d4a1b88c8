//! Where no record may be lost, a session ends whose record is, and none begins while none can be
//! kept.

#![allow(clippy::disallowed_methods, reason = "the test makes the files that are served")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode, PathShare, RelPath, Word};
use longhaul_engine::{
    AuditDeed, AuditLog, AuditLost, AuditRecord, Bounds, ClientConfig, Credentials, DirectMode, EngineKind, Event, Job,
    LocalDest, Observer, Pin, Protection, Reach, RemotePath, Report, Rights, RootConfig, ServeConfig, Service,
    Settings, StateFiles, Stop, SyncGroup, TargetDirs, TreePolicy, Trust,
};
use longhaul_net::{Identity, PublicKey};

struct Anybody;

impl Trust for Anybody {
    fn judge(&self, _host: &str, _port: u16, _key: &PublicKey) -> Result<(), Fault> {
        Ok(())
    }
}

struct Silent;

impl Observer for Silent {
    fn event(&self, _event: Event) {}
}

/// A log that loses every file.
#[derive(Default)]
struct Broken {
    is_broken: AtomicBool,
}

impl AuditLog for Broken {
    fn keep(&self, record: &AuditRecord<'_>) -> Result<(), AuditLost> {
        if record.deed != AuditDeed::Opened {
            return Ok(());
        }
        self.is_broken.store(true, Ordering::Relaxed);
        Err(AuditLost)
    }

    fn ready(&self) -> Result<(), Fault> {
        let broken = self.is_broken.load(Ordering::Relaxed);
        if broken { Err(Fault::new(FaultCode::Busy, Blame::Local, "nothing can be recorded")) } else { Ok(()) }
    }
}

const READ: Rights = Rights { read: true, create: false, modify: false, delete: false };

fn config(dir: &std::path::Path, key: PublicKey) -> ServeConfig {
    let root = RootConfig {
        name: "data".to_owned(),
        targets: TargetDirs::one(dir),
        allow: READ,
        protect: vec![Protection::Private],
        // What is pulled takes minutes, if nothing ends it.
        rate: Some(64 << 10),
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        policy: TreePolicy::served(),
    };
    let client = ClientConfig {
        name: "client".to_owned(),
        key,
        roots: BTreeMap::from([("data".to_owned(), READ)]),
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        weight: 1,
        bench: false,
        share: PathShare::Fair,
        user: None,
    };
    ServeConfig {
        file: None,
        listen: vec!["127.0.0.1:0".to_owned()],
        // More than one, since the daemon may still be ending the first when the second comes.
        sessions: 4,
        memory: ByteCount(64 << 20),
        idle: None,
        partials: None,
        unfinished: 1024,
        sync: SyncGroup::default(),
        roots: vec![root],
        clients: vec![client],
        io: DirectMode::Auto,
        engine: EngineKind::Auto,
        depth: None,
        pin: Pin::Auto,
        rate: None,
        state: StateFiles::default(),
        bench_bytes: ByteCount(1 << 20),
    }
}

async fn pull(service: &Service, identity: &Arc<Identity>, to: &std::path::Path) -> Report {
    let reach = Reach::Address { host: "127.0.0.1".to_owned(), port: service.listening()[0].0.port() };
    let path = RelPath::new(&b"f"[..]).expect("a path");
    let path = RemotePath { root: Word::try_from("data").expect("a word"), path, slash: false };
    let job = Job::pull(reach, vec![path], LocalDest::directory(to));
    let credentials = Credentials { identity: identity.clone(), trust: Arc::new(Anybody), memory: None };
    let settings = Settings { retry_for: Duration::ZERO, ..Settings::default() };
    let (_trigger, stop) = Stop::new();
    longhaul_engine::run(job, Some(credentials), settings, Arc::new(Silent), stop).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_which_a_record_is_lost_ends_and_none_begins_after_it() {
    let dir = tempfile::tempdir().expect("scratch");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for made in [&from, &to] {
        std::fs::create_dir(made).expect("made");
    }
    std::fs::write(from.join("f"), vec![7; 16 << 20]).expect("written");
    let [ours, theirs] = [(); 2].map(|()| Arc::new(Identity::generate().expect("a key")));
    let (served, log) = (config(&from, ours.public()), Arc::new(Broken::default()));
    let service = Service::start_at(served, theirs, Vec::new(), (Some(log.clone()), None), (Vec::new(), None))
        .await
        .expect("it listens");
    let code = |report: Report| report.fault.map(|fault| fault.code);
    assert_eq!(code(pull(&service, &ours, &to).await), Some(FaultCode::Io));
    assert_eq!(code(pull(&service, &ours, &to).await), Some(FaultCode::Busy));
    log.is_broken.store(false, Ordering::Relaxed);
    assert_eq!(code(pull(&service, &ours, &to).await), Some(FaultCode::Io), "it was let begin again");
    service.shutdown();
    service.wait().await;
}
