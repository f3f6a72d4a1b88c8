//! The part of a sender's loop that says small files before anybody asked for them.
//!
//! In: the machine's order, and the bundle when it is read. Out: the message, and the report to the
//! machine, behind which the first page leaves.

use longhaul_proto::Message;
use longhaul_proto::sender::{Sender, SenderConfig, Small};
use longhaul_proto::wire::message::Unasked;

use super::SenderLoop;
use super::first_page::SaidPage;
use crate::session::unasked::{FirstFlight, PackedUnasked};

/// A machine under these terms that goes on from the first page, or whose first page shall fit
/// `flight` if none was said.
pub(super) fn begin(said: Option<SaidPage>, config: SenderConfig, flight: FirstFlight) -> SaidPage {
    match said {
        Some(mut said) => {
            said.machine.handle_agreed(config);
            said
        }
        None => {
            let mut machine = Sender::new(config);
            flight.prepare(&mut machine);
            SaidPage::none(machine, flight)
        }
    }
}

/// Reports to the machine that files were read, and gives the message that says them before its
/// page. `None` if there are none, or if they come too late and the page has left.
pub(super) fn said(machine: &mut Sender, PackedUnasked { bundle, roots }: PackedUnasked) -> Option<Message> {
    let is_said = machine.is_packing_unasked() && !roots.is_empty();
    machine.handle_pack_unasked(roots);
    is_said.then_some(Message::Unasked(Unasked { bundle }))
}

impl SenderLoop<'_> {
    /// Has small files read that go before the first page.
    pub(super) fn pack_unasked(&mut self, files: Vec<Small>) {
        let origin = |small: Small| self.offered.origin(small.file).map(|origin| (small, origin));
        self.workers.pack_unasked(files.into_iter().filter_map(origin).collect());
    }

    /// Says them, and lets the page follow.
    pub(super) fn say_unasked(&mut self, packed: PackedUnasked) {
        if let Some(message) = said(&mut self.machine, packed) {
            self.link.say(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::budget::{MemoryPlan, SessionBuffers};
    use crate::cpu::StageTimes;
    use crate::session::SessionEvent;
    use crate::session::source::{Origin, SourceDone, SourceWorkers};
    use longhaul_core::{ChunkSize, Entry, EntryKind, FileId, Inode, Meta, Mtime, RelPath, Role};
    use longhaul_disk::{
        Affinity, DiskError, EngineKind, Identity, ScanRequest, Scanned, SourceFile, SourceRef, SourceTree, VoidSource,
    };
    use longhaul_proto::sender::SenderAction;

    use tokio::sync::mpsc::unbounded_channel;

    const VOID: VoidSource = VoidSource { len: 3, files: 1 };

    /// A disk that gives no file until the other end of its channel is gone.
    struct StuckDisk(Mutex<mpsc::Receiver<()>>);

    impl SourceTree for StuckDisk {
        fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
            VOID.scan(what, sink);
        }

        fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
            let _ = self.0.lock().expect("a lock").recv();
            VOID.open(at, expect)
        }
    }

    #[tokio::test]
    async fn files_that_a_disk_does_not_give_are_not_waited_for() {
        let (sink, mut events) = unbounded_channel();
        let (engine, affinity, chunk) = (EngineKind::Void, Affinity::default(), ChunkSize::DEFAULT);
        let means = MemoryPlan { slots: 1, lanes: 1, depth: Some(1), engine, chunk, affinity };
        let SessionBuffers { slab, io } = SessionBuffers::start(Role::Sender, means).expect("void I/O");
        let (go, stuck) = mpsc::channel();
        let tree = Arc::new(StuckDisk(Mutex::new(stuck)));
        let workers = SourceWorkers::start(tree, slab, io, chunk, StageTimes::default(), sink).expect("threads");
        // Gone before the workers are, which wait for what they read.
        let go: mpsc::Sender<()> = go;
        let identity = Identity { dev: 0, ino: 0, len: 3, mtime: Mtime::default(), ctime: Mtime::default() };
        let at = SourceRef::new(RelPath::new(b"a").expect("a path"));
        let file = Small { file: FileId(0), len: 3, standing_root: None };
        workers.pack_unasked(vec![(file, Arc::new(Origin { at, identity, sparse: false }))]);
        let came = tokio::time::timeout(Duration::from_secs(60), events.recv()).await.expect("a report");
        let Some(SessionEvent::Read(SourceDone::PackUnasked(packed))) = came else { panic!("another report") };
        assert!(packed.roots.is_empty());
        drop(go);
    }

    /// A machine whose first page waits for a file that is being read.
    fn waiting() -> Sender {
        let chunk = ChunkSize::DEFAULT;
        let mut machine = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 512 });
        machine.allow_unasked(1000);
        let kind = EntryKind::File { len: 3, sparse: false, inode: Inode::default() };
        machine.handle_scanned(Entry { path: RelPath::new(b"a").expect("a path"), kind, meta: Meta::default() });
        machine.handle_scan_end();
        assert!(matches!(machine.poll_action(), Some(SenderAction::PackUnasked(_))));
        machine
    }

    fn read() -> PackedUnasked {
        PackedUnasked { bundle: b"a bundle".to_vec(), roots: vec![(FileId(0), [1; 32])] }
    }

    #[test]
    fn files_that_are_read_in_time_are_said_before_their_page_and_later_ones_never() {
        let mut machine = waiting();
        assert!(matches!(said(&mut machine, read()), Some(Message::Unasked(_))));
        assert!(matches!(machine.poll_action(), Some(SenderAction::Send(Message::Page(_)))));
        let mut machine = waiting();
        assert!(said(&mut machine, PackedUnasked::default()).is_none());
        assert!(matches!(machine.poll_action(), Some(SenderAction::Send(Message::Page(_)))));
        assert!(said(&mut machine, read()).is_none(), "behind its page it would be a breach of the protocol");
        assert!(machine.poll_action().is_none());
    }
}
