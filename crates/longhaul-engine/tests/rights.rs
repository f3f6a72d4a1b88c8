//! The rights of a client are those that both it and the root grant, whatever a configuration says
//! of one of them alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::{ByteCount, Fault, PathShare};
use longhaul_engine::{
    Bounds, ClientConfig, Credentials, DirectMode, EngineKind, ListedKind, Pin, Protection, Reach, Rights, RootConfig,
    ServeConfig, Service, StateFiles, Stop, SyncGroup, TargetDirs, TreePolicy, Trust, list,
};
use longhaul_net::{Identity, PublicKey};

struct Anybody;

impl Trust for Anybody {
    fn judge(&self, _host: &str, _port: u16, _key: &PublicKey) -> Result<(), Fault> {
        Ok(())
    }
}

const READ: Rights = Rights { read: true, create: false, modify: false, delete: false };
const ALL: Rights = Rights { read: true, create: true, modify: true, delete: true };

fn config(roots: Vec<RootConfig>, client: ClientConfig) -> ServeConfig {
    ServeConfig {
        file: None,
        listen: vec!["127.0.0.1:0".to_owned()],
        sessions: 1,
        memory: ByteCount(16 << 20),
        idle: None,
        partials: None,
        unfinished: 1024,
        sync: SyncGroup::default(),
        roots,
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

#[tokio::test]
async fn a_root_that_allows_less_than_its_client_has_decides() {
    let dir = tempfile::tempdir().expect("scratch");
    let root = |name: &str, allow| RootConfig {
        name: name.to_owned(),
        targets: TargetDirs::one(dir.path()),
        allow,
        protect: vec![Protection::Private],
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        policy: TreePolicy::served(),
    };
    let [ours, theirs] = [(); 2].map(|()| Arc::new(Identity::generate().expect("a key")));
    let client = ClientConfig {
        name: "client".to_owned(),
        key: ours.public(),
        roots: BTreeMap::from([("narrow".to_owned(), ALL), ("wide".to_owned(), READ)]),
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        weight: 1,
        bench: false,
        share: PathShare::Fair,
        user: None,
    };
    let served = config(vec![root("narrow", READ), root("wide", ALL), root("other", ALL)], client);
    let service = Service::start(served, theirs).await.expect("it listens");
    let reach = Reach::Address { host: "127.0.0.1".to_owned(), port: service.listening()[0].0.port() };
    let remote = Credentials { identity: ours, trust: Arc::new(Anybody), memory: None }.at(reach);
    let (mut found, (_trigger, stop)) = (Vec::new(), Stop::new());
    let listed = list(remote, None, stop, |names| {
        found.extend(names.into_iter().map(|name| name.kind));
        ControlFlow::Continue(())
    });
    listed.await.expect("it answers");
    let rights: Vec<_> =
        found.iter().map(|kind| matches!(kind, ListedKind::Root { rights } if *rights == READ)).collect();
    assert_eq!(rights, [true, true], "{found:?}");
    service.shutdown();
    service.wait().await;
}
