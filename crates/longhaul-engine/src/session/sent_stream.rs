//! The stream that a sending side sends, over all sessions of a run.
//!
//! In: how far the source is, and orders of the machine. Out: to the machine, how far its input is
//! or why it fails. It reads nothing and knows no messages.

use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkIndex, ChunkSize, Entry, EntryKind, Fault, FileId};
use longhaul_disk::StreamSource;
use longhaul_proto::receiver::EntryRef;
use longhaul_proto::sender::{Sender, StreamInput};
use tokio::sync::mpsc::UnboundedSender;

use super::SessionEvent;

/// See the module.
pub(crate) struct SentStream {
    source: Arc<StreamSource>,
    form: OfferedForm,
    /// Bytes that are counted as found.
    counted: u64,
    /// Why it cannot be sent. `None` as long as it can.
    failure: Option<Fault>,
}

/// The form in which a stream is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferedForm {
    /// A file: it is short, and its length is known.
    File,
    /// A stream.
    Stream,
}

impl SentStream {
    /// A stream of which nothing was offered.
    pub(super) fn new(source: Arc<StreamSource>) -> SentStream {
        SentStream { source, form: OfferedForm::File, counted: 0, failure: None }
    }

    /// Wakes the loop of a session whenever more of it has come.
    pub(super) fn wake(&self, sink: UnboundedSender<SessionEvent>) {
        self.source.watch(move || drop(sink.send(SessionEvent::StreamCame)));
    }

    /// Notes the kind of the entry as which it is offered.
    pub(super) fn offered(&mut self, kind: &EntryKind) {
        if matches!(kind, EntryKind::Stream { .. }) {
            self.form = OfferedForm::Stream;
        }
    }

    /// Tells the machine how far it is. Gives the bytes that came since the last time.
    pub(super) fn follow(&mut self, machine: &mut Sender) -> u64 {
        if self.form == OfferedForm::File {
            return 0;
        }
        let so_far = self.source.so_far();
        match so_far.end {
            Some(Err(fault)) => {
                machine.handle_unreadable(THE_ENTRY, &fault);
                self.failure.get_or_insert(fault);
            }
            end => {
                let input = StreamInput { bytes: so_far.bytes, len: end.map(|_| so_far.bytes) };
                machine.handle_stream_input(THE_ENTRY, input);
            }
        }
        let came = so_far.bytes - self.counted;
        self.counted = so_far.bytes;
        came
    }

    /// Checks whether it is what was expected, now that all of it was read.
    pub(super) fn prove(&mut self, root: Hash32) -> Result<(), Fault> {
        self.source.prove(root).inspect_err(|fault| self.failure = Some(fault.clone()))
    }

    /// Lets go of chunks that are durable at the receiver.
    pub(super) fn release(&self, start: ChunkIndex, count: u64, size: ChunkSize) {
        self.source.release(start.start(size).0, count.saturating_mul(size.bytes()));
    }

    /// Reads no more of it, as it has its outcome.
    pub(super) fn close(&self) {
        self.source.close();
    }

    /// Why it cannot be sent, in the words of this side.
    pub(super) fn failure(&self) -> Option<Fault> {
        self.failure.clone()
    }

    /// The entry as the file that it has become, if its end was read.
    pub(super) fn as_file(&self, held: Arc<EntryRef>) -> Arc<EntryRef> {
        let EntryKind::Stream { inode, .. } = held.entry.kind else { return held };
        let so_far = self.source.so_far();
        let Some(Ok(())) = so_far.end else { return held };
        let kind = EntryKind::File { len: so_far.bytes, sparse: false, inode };
        let entry = Entry { path: held.entry.path.clone(), kind, meta: held.entry.meta.clone() };
        Arc::new(EntryRef { id: held.id, entry, placed: held.placed.clone() })
    }
}

/// The entry of a stream: the only one of its session.
const THE_ENTRY: FileId = FileId(0);
