//! [`VoidSource`] has files that do not exist, to measure all but the disk; [`TimedVoid`] has one
//! that ends by the clock. Their content is the bytes that a slot happens to hold.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::{Entry, EntryKind, Meta, Mtime, RelPath};

use crate::error::DiskError;
use crate::source::{ScanRequest, Scanned, SourceFile, SourceRef, SourceTree};
use crate::stat::Identity;

/// A number of files of equal length, whose content is the bytes that a slot happens to hold.
#[derive(Clone, Copy, Debug)]
pub struct VoidSource {
    /// Length of each file in bytes.
    pub len: u64,
    /// The number of files; at most 2^32.
    pub files: u64,
}

impl SourceTree for VoidSource {
    fn scan(&self, _what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        for n in 0..self.files {
            let Ok(path) = RelPath::new(format!("void-{n:010}")) else { return };
            let entry = Entry {
                path: path.clone(),
                kind: EntryKind::File { len: self.len, sparse: false, inode: longhaul_core::Inode::default() },
                meta: Meta::new(0o600, Mtime::default()),
            };
            let found = Scanned::Entry { entry, source: SourceRef::new(path), identity: self.identity(n) };
            if sink(found).is_break() {
                return;
            }
        }
    }

    fn open(&self, _at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        Ok(Arc::new(SourceFile::void(*expect, None)))
    }
}

impl VoidSource {
    fn identity(&self, n: u64) -> Identity {
        Identity { dev: 0, ino: n, len: self.len, mtime: Mtime::default(), ctime: Mtime::default() }
    }
}

/// One file that does not exist. Reads fail once a time has passed since it was first opened.
#[derive(Debug)]
pub struct TimedVoid {
    one: VoidSource,
    time: Duration,
    until: OnceLock<Instant>,
}

impl TimedVoid {
    /// A file of `len` bytes.
    pub fn new(len: u64, time: Duration) -> TimedVoid {
        TimedVoid { one: VoidSource { len, files: 1 }, time, until: OnceLock::new() }
    }
}

impl SourceTree for TimedVoid {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        self.one.scan(what, sink);
    }

    fn open(&self, _at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let until = *self.until.get_or_init(|| Instant::now() + self.time);
        Ok(Arc::new(SourceFile::void(*expect, Some(until))))
    }
}
