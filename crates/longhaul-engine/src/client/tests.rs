//! A push to a daemon that answers late: what this side does meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Fault, RelPath, Word};
use longhaul_disk::{DiskError, Identity, ScanRequest, Scanned, SourceFile, SourceRef, SourceTree, VoidSource};
use longhaul_net::PublicKey;
use longhaul_proto::wire::message::Placing;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Run;
use crate::api::{Credentials, Event, Observer, Reach, RemotePath, Settings, Stop, Trust};

/// A tree of three files that says how many of them a scan has given.
struct SaysWhenScanned(VoidSource, UnboundedSender<u64>);

impl SourceTree for SaysWhenScanned {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        let mut given = 0;
        self.0.scan(what, &mut |scanned| {
            given += 1;
            sink(scanned)
        });
        let _ = self.1.send(given);
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        self.0.open(at, expect)
    }
}

struct AnyKey;

impl Trust for AnyKey {
    fn judge(&self, _: &str, _: u16, _: &PublicKey) -> Result<(), Fault> {
        Ok(())
    }
}

struct HearsNoEvent;

impl Observer for HearsNoEvent {
    fn event(&self, _: Event) {}
}

#[tokio::test]
async fn a_source_is_scanned_while_the_daemon_has_not_said_a_word() {
    let daemon = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = daemon.local_addr().expect("an address").port();
    let (scanned, mut hears) = unbounded_channel();
    let tree = Arc::new(SaysWhenScanned(VoidSource { len: 0, files: 3 }, scanned));
    let identity = Arc::new(longhaul_net::Identity::generate().expect("a key"));
    let credentials = Credentials { identity, trust: Arc::new(AnyKey), memory: None };
    let remote = credentials.at(Reach::Address { host: "127.0.0.1".to_owned(), port });
    let root = Word::try_from("data").expect("a word");
    let to = RemotePath { root, path: RelPath::root(), slash: true };
    let (trigger, stop) = Stop::new();
    let run = Run::within_process(Settings::default(), Arc::new(HearsNoEvent), stop).expect("a run");
    let pushing = tokio::spawn(async move { run.push_tree((tree, Placing::Beneath), &remote, to).await.map(drop) });
    // It is dialled, takes the connection, and says nothing.
    let (silent, _) = daemon.accept().await.expect("it is dialled");
    let given = tokio::time::timeout(Duration::from_secs(30), hears.recv()).await;
    assert_eq!(given, Ok(Some(3)), "the scan waits for no answer");
    assert!(!pushing.is_finished());
    pushing.abort();
    drop((silent, trigger));
}
