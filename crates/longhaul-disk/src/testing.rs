//! Shared helpers of this crate's tests: scratch file systems, a kernel that fails, synchronous
//! requests, and a byte pattern that differs after any shift.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use longhaul_core::filter::Filter;
use longhaul_core::{ChunkMap, ChunkSize, Meta, Mtime, PathList, Place, Preserve, RelPath, SessionTag, TempName};
use longhaul_sys::Slot;
use rustix::io::Errno;

use crate::{
    Call, ChunkIo, DirectMode, DiskError, FsSource, Identity, InodeId, Interposer, Passage, ScanRequest, Scanned,
    SourceFile, SourceRef, SourceSpec, SourceTree, Staged, TargetFile,
};

/// Asks again while `is_held` says that somebody holds a lock, and gives the last answer. A process
/// that another test starts has our descriptors, and so their locks, until it runs its program.
pub(crate) fn once_let_go<T>(mut ask: impl FnMut() -> T, is_held: impl Fn(&T) -> bool) -> T {
    for _ in 0..ASKED_MAX {
        let answer = ask();
        if !is_held(&answer) {
            return answer;
        }
        std::thread::yield_now();
    }
    ask()
}

const ASKED_MAX: usize = 50_000;

/// A path beneath a root.
pub(crate) fn path(bytes: impl Into<Vec<u8>>) -> RelPath {
    RelPath::new(bytes).expect("a relative path")
}

/// The chunks of a file, of the default size.
pub(crate) fn map(len: u64) -> ChunkMap {
    ChunkMap::new(len, ChunkSize::DEFAULT)
}

/// A name for a temporary that nothing else has.
pub(crate) fn temp() -> TempName {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    TempName::new(TAG, NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes())
}

/// The tag of those names.
pub(crate) const TAG: SessionTag = SessionTag(*b"testtest");

/// The byte at `offset` of every test file: not periodic in any block size.
pub(crate) fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The first `len` bytes of a test file. Each byte is computed once: without optimisation that
/// takes longer than all that a test does with it.
pub(crate) fn content(len: u64) -> Vec<u8> {
    static FIRST: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    let known = first.len() as u64;
    first.extend((known..len).map(byte_at));
    first[..len as usize].to_vec()
}

/// Everything that is staged, as a barrier takes it.
pub(crate) fn all(staged: &[Staged]) -> Vec<&Staged> {
    staged.iter().collect()
}

/// Metadata that no test file has by chance.
pub(crate) const META: Meta = Meta::new(0o640, Mtime { secs: 1_234_567_890, nanos: 123_456_789 });

/// Reads, and waits for the result.
pub(crate) fn read(
    io: &ChunkIo,
    file: &Arc<SourceFile>,
    offset: u64,
    len: usize,
    slot: Slot,
) -> (Slot, Result<(), DiskError>) {
    let (tx, rx) = mpsc::channel();
    let done = move |slot, result| tx.send((slot, result)).expect("the test waits");
    io.read(Arc::clone(file), offset, len, slot, Box::new(done));
    rx.recv().expect("completion")
}

/// Writes, and waits for the result. A chunk of a striped file brings no slot back.
pub(crate) fn write(
    io: &ChunkIo,
    file: &Arc<TargetFile>,
    offset: u64,
    len: usize,
    slot: Slot,
) -> (Option<Slot>, Result<(), DiskError>) {
    let (tx, rx) = mpsc::channel();
    let done = move |slot, result| tx.send((slot, result)).expect("the test waits");
    io.write(Arc::clone(file), Place::whole(offset), len, slot, Box::new(done));
    rx.recv().expect("completion")
}

/// All that a scan finds, with links.
pub(crate) fn scan(source: &dyn SourceTree, filter: &Filter, files_from: Option<Vec<RelPath>>) -> Vec<Scanned> {
    let mut found = Vec::new();
    let files_from = files_from.map(|names| Arc::new(PathList::new(&names)));
    let what = ScanRequest { files_from, ..ScanRequest::of_all(filter, Preserve::default()) };
    source.scan(&what, &mut |one| {
        found.push(one);
        ControlFlow::Continue(())
    });
    found
}

/// A source of the content of one directory.
pub(crate) fn source_of(dir: &Path, direct: DirectMode) -> FsSource {
    FsSource::open(vec![SourceSpec { path: dir.to_owned(), contents: true }], direct)
}

/// The reference and identity of one file beneath a scanned directory.
pub(crate) fn find(source: &dyn SourceTree, at: &RelPath) -> (SourceRef, Identity) {
    let all = Filter::new(Vec::new()).expect("no rules");
    let found = scan(source, &all, None).into_iter().find_map(|one| match one {
        Scanned::Entry { entry, source, identity } if entry.path == *at => Some((source, identity)),
        _ => None,
    });
    found.expect("the file is scanned")
}

/// A file system mounted for one test, unmounted with it.
pub(crate) struct Mounted {
    pub(crate) path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    /// Mounts with the given arguments of `mount`. `None`, with a loud message, where that is not
    /// allowed.
    pub(crate) fn new(args: &[&str]) -> Option<Mounted> {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().to_owned();
        let outcome = Command::new("mount").args(args).arg(&path).stderr(Stdio::null()).status();
        if outcome.is_ok_and(|status| status.success()) {
            return Some(Mounted { path, _dir: dir });
        }
        eprintln!("SKIPPED: cannot mount {args:?} here (needs root)");
        None
    }

    /// A small ext4 in a file.
    pub(crate) fn ext4(bytes: u64) -> Option<(Mounted, tempfile::NamedTempFile)> {
        let image = tempfile::NamedTempFile::new().expect("image");
        image.as_file().set_len(bytes).expect("size");
        let made = Command::new("mkfs.ext4").arg("-q").arg(image.path()).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no mkfs.ext4 here");
            return None;
        }
        let image_path = image.path().to_str().expect("name").to_owned();
        Mounted::new(&["-o", "loop", &image_path]).map(|mounted| (mounted, image))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// A kernel in which some calls fail, or that has no locks.
#[derive(Debug, Default)]
pub(crate) struct FailingKernel {
    /// The error with which the next sync fails.
    pub(crate) sync: Mutex<Option<Errno>>,
    /// The error with which each lock fails. `None`: there are locks.
    pub(crate) locks: Option<Errno>,
    /// Syncs of directories and files that were asked for so far.
    pub(crate) syncs: AtomicUsize,
    /// Calls that are made before all others fail, as behind a process that was killed. `None`: all
    /// are made.
    pub(crate) calls_left: Option<AtomicUsize>,
}

impl Interposer for FailingKernel {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let spend = |left: usize| left.checked_sub(1);
        let is_over = |left: &AtomicUsize| left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err();
        if self.calls_left.as_ref().is_some_and(is_over) {
            return Passage::Answered(Err(Errno::IO));
        }
        if !matches!(call, Call::Sync { .. }) {
            return Passage::Made(0);
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync.lock().expect("no panic").take().map_or(Passage::Made(0), |error| Passage::Answered(Err(error)))
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }

    fn refuses_locks(&self) -> Option<Errno> {
        self.locks
    }
}
