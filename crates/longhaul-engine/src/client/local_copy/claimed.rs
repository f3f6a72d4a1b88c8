//! Tests of sessions that publish by a claim: the look before each batch, with no other look beside
//! it.

#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::path::Path;
use std::time::Instant;

use longhaul_core::{FaultCode, ShardClaim};
use longhaul_disk::{DirectMode, FsSource, FsTarget, SourceSpec};
use longhaul_proto::receiver::Landing;

use super::*;
use crate::api::{Report, Settings, Stop};
use crate::client::conclude;
use crate::journals::Principal;
use crate::journals::claims::RootClaims;

fn claim(fence: u64) -> ShardClaim {
    ShardClaim { campaign: [0xab; 16], shard: 300, fence, id: [fence as u8; 16] }
}

/// Copies a directory by a claim that is kept when the session opens. `newer` is kept by another
/// daemon of the same directory right before the session begins, which nobody tells it.
async fn copy(from: &Path, to: &Path, newer: Option<ShardClaim>) -> Report {
    let target = FsTarget::open(to, DirectMode::Auto).expect("opened");
    let (shelf, who, presence) = (target.shelf().clone(), Principal::local(), Arc::<Presence>::default());
    let held = RootClaims::unwatched(shelf.clone()).show(claim(1), &who, &presence).expect("nobody was there");
    let other = newer.map(|claim| RootClaims::new(shelf).show(claim, &who, &Arc::default()).expect("it is newer"));
    let fleeting = Destination::fleeting(Arc::new(target), Landing::beneath(), String::new());
    let destination = Destination { presence, claim: Some(Arc::new(held)), ..fleeting };
    let (observer, begun, (_trigger, stop)) = (Arc::new(Nobody), Instant::now(), Stop::new());
    let settings = Settings { memory: ByteCount(32 << 20), ..Settings::default() };
    let run = Run::within_process(settings, observer.clone(), stop).expect("a run");
    let source = Arc::new(FsSource::open(vec![SourceSpec { path: from.to_owned(), contents: true }], DirectMode::Auto));
    let report = conclude(run.embedded(source, destination, observer.clone()).await, &*observer, begun);
    drop(other);
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_not_renamed_when_a_newer_claim_is_kept_though_nobody_told_the_session() {
    let (from, to) = (tempfile::tempdir().expect("scratch"), tempfile::tempdir().expect("scratch"));
    std::fs::write(from.path().join("f"), b"content").expect("written");
    let refused = copy(from.path(), to.path(), Some(claim(2))).await;
    let fault = refused.fault.expect("it ends by a fault");
    assert_eq!((fault.code, fault.kept_fence()), (FaultCode::Superseded, Some(2)));
    assert_eq!((refused.files_failed, refused.files_committed), (0, 0), "no file has failed");
    assert!(!to.path().join("f").exists());
    std::fs::remove_dir_all(to.path().join(".longhaul")).expect("the claims of the first run");
    let published = copy(from.path(), to.path(), None).await;
    assert_eq!((published.fault, published.files_committed), (None, 1));
    assert_eq!(std::fs::read(to.path().join("f")).expect("it stands"), b"content");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_not_given_its_mode_when_a_newer_claim_is_kept() {
    use std::os::unix::fs::PermissionsExt;
    let (from, to) = (tempfile::tempdir().expect("scratch"), tempfile::tempdir().expect("scratch"));
    std::fs::create_dir(from.path().join("d")).expect("made");
    std::fs::set_permissions(from.path().join("d"), PermissionsExt::from_mode(0o751)).expect("set");
    let mode = || std::fs::metadata(to.path().join("d")).expect("it is made").permissions().mode() & 0o777;
    let refused = copy(from.path(), to.path(), Some(claim(2))).await;
    assert_eq!(refused.fault.expect("it ends by a fault").code, FaultCode::Superseded);
    assert_ne!(mode(), 0o751);
    std::fs::remove_dir_all(to.path().join(".longhaul")).expect("the claims of the first run");
    assert_eq!(copy(from.path(), to.path(), None).await.fault, None);
    assert_eq!(mode(), 0o751);
}

/// Counts the times at which a claim was kept.
#[derive(Default)]
struct KeptCount(std::sync::atomic::AtomicU32);

impl Observer for KeptCount {
    fn event(&self, _event: Event) {}

    fn claim_kept(&self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_hears_that_its_claim_is_kept_and_of_one_that_is_refused_it_does_not() {
    let (from, to) = (tempfile::tempdir().expect("scratch"), tempfile::tempdir().expect("scratch"));
    for (fence, fault, kept) in [(2, None, 1), (1, Some(FaultCode::Superseded), 0)] {
        let (heard, (_trigger, stop)) = (Arc::new(KeptCount::default()), Stop::new());
        let job = crate::Job::copy(vec![LocalSource::contents(from.path())], LocalDest::directory(to.path()));
        let job = job.claimed(claim(fence));
        let report = crate::run(job, None, Settings::default(), heard.clone(), stop).await;
        assert_eq!(report.fault.map(|fault| fault.code), fault, "{fence}");
        assert_eq!(heard.0.load(std::sync::atomic::Ordering::Relaxed), kept, "{fence}");
    }
}
