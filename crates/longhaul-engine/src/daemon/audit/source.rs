//! A source whose files are recorded when they are opened.
//!
//! In: another source. Out: the same entries and files, and a record of each file that is opened
//! for a client, before a byte of it is read. It reads nothing itself.

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::Losses;
use longhaul_disk::{DiskError, Identity, ScanRequest, Scanned, SmallFile, SourceFile, SourceRef, SourceTree};

use super::SessionAudit;

/// The source of a session that is recorded.
pub(in crate::daemon) struct RecordedSource {
    tree: Arc<dyn SourceTree>,
    audit: Arc<SessionAudit>,
}

impl RecordedSource {
    /// Records what is opened of `tree`.
    pub(in crate::daemon) fn over(tree: Arc<dyn SourceTree>, audit: Arc<SessionAudit>) -> Arc<dyn SourceTree> {
        if audit.log.is_none() { tree } else { Arc::new(RecordedSource { tree, audit }) }
    }

    fn record<T>(&self, at: &SourceRef, expect: &Identity, opened: Result<T, DiskError>) -> Result<T, DiskError> {
        let code = opened.as_ref().err().map(|error| error.fault().code);
        self.audit.opened(&self.tree.shown(at), expect.len, code);
        opened
    }
}

impl SourceTree for RecordedSource {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        self.tree.scan(what, sink);
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        self.record(at, expect, self.tree.open(at, expect))
    }

    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        self.record(at, expect, self.tree.open_small(at, expect))
    }

    fn losses(&self) -> Losses {
        self.tree.losses()
    }

    fn shown(&self, at: &SourceRef) -> Vec<u8> {
        self.tree.shown(at)
    }
}
