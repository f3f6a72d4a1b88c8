//! Where no record may be lost, a session ends whose record is, and none begins while none can be
//! kept.

#![allow(clippy::disallowed_methods, reason = "the test makes the files that are served")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode, PathShare, RelPath, Word};
use longhaul_engine::{
    AuditDeed, AuditLog, AuditLost, AuditRecord, Bounds, ClientConfig, Credentials, DirectMode, EngineKind, Event,
    FarRemoval, Job, LocalDest, Observer, Pin, PlanName, Protection, Reach, RemotePath, Report, Rights, RootConfig,
    ServeConfig, Service, Settings, StateFiles, Stop, SyncGroup, TargetDirs, TreePolicy, Trust,
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

/// A log that loses every file that is opened, and every name that is moved away but those that it
/// has room for.
#[derive(Default)]
struct Broken {
    is_broken: AtomicBool,
    room: AtomicUsize,
    moved: Mutex<Vec<String>>,
}

impl AuditLog for Broken {
    fn keep(&self, record: &AuditRecord<'_>) -> Result<(), AuditLost> {
        if record.deed == AuditDeed::MovedAway {
            let path = [record.path, record.what].map(Option::unwrap_or_default).join(" ");
            let has_room = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1));
            if has_room.is_ok() {
                self.moved.lock().expect("no panic").push(path.trim().to_owned());
                return Ok(());
            }
        } else if record.deed != AuditDeed::Opened {
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

const RIGHTS: Rights = Rights { read: true, create: false, modify: false, delete: true };

fn config(dir: &std::path::Path, key: PublicKey) -> ServeConfig {
    let root = RootConfig {
        name: "data".to_owned(),
        targets: TargetDirs::one(dir),
        allow: RIGHTS,
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
        roots: BTreeMap::from([("data".to_owned(), RIGHTS)]),
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

#[tokio::test(flavor = "multi_thread")]
async fn no_name_goes_behind_one_whose_record_is_lost_and_a_rerun_records_what_went() {
    let dir = tempfile::tempdir().expect("scratch");
    for name in 0..9 {
        std::fs::write(dir.path().join(format!("{name}")), "content").expect("written");
    }
    let [ours, theirs] = [(); 2].map(|()| Arc::new(Identity::generate().expect("a key")));
    let log = Arc::new(Broken { room: AtomicUsize::new(2), ..Broken::default() });
    let served = config(dir.path(), ours.public());
    let service = Service::start_at(served, theirs, Vec::new(), (Some(log.clone()), None), (Vec::new(), None))
        .await
        .expect("it listens");
    let reach = Reach::Address { host: "127.0.0.1".to_owned(), port: service.listening()[0].0.port() };
    let remote = Credentials { identity: ours, trust: Arc::new(Anybody), memory: None }.at(reach);
    let place = RemotePath { root: Word::try_from("data").expect("a word"), path: RelPath::root(), slash: true };
    let (_trigger, stop) = Stop::new();
    let names: Vec<_> = (0..9).map(|name| RelPath::new(format!("{name}")).expect("a path")).collect();
    let mut removal = FarRemoval::open(remote.clone(), place.clone(), &stop).await.expect("it opens");
    let found = removal.look(&names, &stop).await.expect("found");
    let known: Vec<_> =
        names.into_iter().zip(found).map(|(name, found)| (name, found.expect("fine").expect("there").facts)).collect();
    let plan = PlanName { digest: [1; 32], made: 0 };
    assert_eq!(removal.withdraw(plan, &known, &stop).await.expect_err("a record is lost").code, FaultCode::Io);
    let there = |name: &usize| dir.path().join(format!("{name}")).exists();
    // The two that were recorded, and the one whose record was lost.
    assert_eq!((0..9).filter(there).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8]);
    log.is_broken.store(false, Ordering::Relaxed);
    log.room.store(100, Ordering::Relaxed);
    let mut removal = FarRemoval::open(remote, place, &stop).await.expect("it opens");
    let ends = removal.withdraw(plan, &known, &stop).await.expect("nothing is lost");
    assert!(ends.iter().all(Result::is_ok) && !(0..9).any(|name| there(&name)), "{ends:?}");
    let before = ["0", "1", "0 moved before", "1 moved before", "2 moved before"];
    let all = [&before[..], &["3", "4", "5", "6", "7", "8"]].concat();
    assert_eq!(*log.moved.lock().expect("no panic"), all);
    service.shutdown();
    service.wait().await;
}
