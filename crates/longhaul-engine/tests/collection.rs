//! Abandoned partials are looked for as a daemon starts and each hour, in time that passes only
//! here.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_core::ByteCount;
use longhaul_engine::{
    Bounds, DirectMode, EngineKind, Pin, Protection, Rights, RootConfig, ServeConfig, Service, StateFiles, SyncGroup,
    TargetDirs, TreePolicy,
};
use longhaul_net::Identity;

const HOUR: Duration = Duration::from_secs(3600);

/// A journal that promised nothing, written three hours ago.
fn abandoned(root: &Path, name: &str) -> PathBuf {
    let shelf = root.join(".longhaul");
    std::fs::create_dir_all(&shelf).expect("made");
    let path = shelf.join(format!("{name}.journal"));
    let file = std::fs::File::create(&path).expect("made");
    file.set_modified(SystemTime::now() - 3 * HOUR).expect("aged");
    path
}

fn config(root: &Path) -> ServeConfig {
    let allow = Rights { read: true, create: true, modify: true, delete: false };
    let root = RootConfig {
        name: "data".to_owned(),
        targets: TargetDirs::one(root),
        allow,
        protect: vec![Protection::Private],
        rate: None,
        sessions: None,
        memory: None,
        bounds: Bounds::default(),
        policy: TreePolicy::served(),
    };
    ServeConfig {
        file: None,
        listen: vec!["127.0.0.1:0".to_owned()],
        sessions: 1,
        memory: ByteCount(16 << 20),
        idle: None,
        partials: Some(2 * HOUR),
        unfinished: 1024,
        sync: SyncGroup::default(),
        roots: vec![root],
        clients: Vec::new(),
        io: DirectMode::Auto,
        engine: EngineKind::Auto,
        depth: None,
        pin: Pin::Auto,
        rate: None,
        state: StateFiles::default(),
        bench_bytes: ByteCount(1 << 20),
    }
}

/// Time passes when nothing else is to be done: a look that is under way is over first.
#[tokio::test(start_paused = true)]
async fn what_is_abandoned_after_the_start_is_collected_within_the_hour() {
    let root = tempfile::tempdir().expect("scratch");
    let first = abandoned(root.path(), "1111111111111111");
    let identity = Arc::new(Identity::generate().expect("a key"));
    let service = Service::start(config(root.path()), identity).await.expect("it listens");
    tokio::time::sleep(HOUR / 4).await;
    assert!(!first.exists(), "looked for at the start");
    let second = abandoned(root.path(), "2222222222222222");
    tokio::time::sleep(HOUR / 2).await;
    assert!(second.exists(), "not before an hour is over");
    tokio::time::sleep(HOUR / 2).await;
    assert!(!second.exists(), "looked for again");
    let third = abandoned(root.path(), "3333333333333333");
    tokio::time::sleep(HOUR).await;
    assert!(!third.exists(), "and again");
    service.shutdown();
}
