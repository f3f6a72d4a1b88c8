//! Sources and destinations that are no directories: real chunks move through the real engine
//! between trees that live in this process's memory, written against the public traits alone.
#![allow(clippy::disallowed_methods, reason = "the test has no disk to confine itself to")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use longhaul_core::{
    ByteCount, ChunkMap, ChunkSize, Entry, EntryKind, FaultCode, Inode, Meta, Mtime, Preserve, RelPath, TempName,
};
use longhaul_disk::{
    Body, DiskError, Identity, Made, ReadAt, Replace, ScanRequest, Scanned, SourceFile, SourceRef, Staged, Standing,
    TargetFile, WriteAt,
};
use longhaul_engine::{
    EngineKind, Event, Observer, Report, Settings, SourceTree, Stop, TargetTree, Verify, run_between,
};

const CHUNK: usize = 1 << 20;
const META: Meta = Meta::new(0o640, Mtime { secs: 1_234_567_890, nanos: 0 });

type Files = BTreeMap<RelPath, Vec<u8>>;

/// Files in memory, to be sent.
#[derive(Debug, Default)]
struct MemorySource {
    files: Arc<Files>,
    /// The file that another program writes to while it is read.
    restless: Option<RelPath>,
}

/// One of them, open.
#[derive(Debug)]
struct OpenMemory {
    files: Arc<Files>,
    path: RelPath,
    is_restless: bool,
}

impl ReadAt for OpenMemory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // As a connection would: less at a time than is asked for.
        let rest = &self.files[&self.path][offset as usize..];
        let len = rest.len().min(buf.len()).min(100_000);
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn unchanged(&self) -> io::Result<bool> {
        Ok(!self.is_restless)
    }
}

impl MemorySource {
    fn identity(&self, path: &RelPath) -> Identity {
        let ino = self.files.keys().position(|other| other == path).unwrap_or(0) as u64;
        Identity { dev: 7, ino, len: self.files[path].len() as u64, mtime: META.mtime, ctime: META.mtime }
    }
}

impl SourceTree for MemorySource {
    fn scan(&self, _what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        for path in self.files.keys() {
            let identity = self.identity(path);
            let kind = EntryKind::File { len: identity.len, sparse: false, inode: Inode::default() };
            let entry = Entry { path: path.clone(), kind, meta: META };
            if sink(Scanned::Entry { entry, source: SourceRef::new(path.clone()), identity }).is_break() {
                return;
            }
        }
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let (files, path) = (self.files.clone(), at.path().clone());
        let is_restless = self.restless.as_ref() == Some(&path);
        let bytes = Box::new(OpenMemory { files, path, is_restless });
        Ok(Arc::new(SourceFile::of(at.path(), *expect, bytes)))
    }
}

/// The content and metadata of a file under its final name.
type Published = (Vec<u8>, Option<Meta>);

/// A destination in memory.
#[derive(Debug, Default)]
struct MemoryTarget {
    published: Mutex<BTreeMap<RelPath, Published>>,
    dirs: Mutex<BTreeSet<RelPath>>,
    /// Whether the next write of a chunk puts down other bytes than it was given.
    spoils: Arc<AtomicBool>,
}

/// A file of it that is being received.
#[derive(Debug, Default)]
struct Received {
    bytes: Mutex<Vec<u8>>,
    meta: Mutex<Option<Meta>>,
    is_synced: AtomicBool,
    spoils: Arc<AtomicBool>,
}

impl WriteAt for Received {
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let (mut bytes, len, at) = (lock(&self.bytes), buf.len().min(300_000), offset as usize);
        bytes[at..at + len].copy_from_slice(&buf[..len]);
        bytes[at] ^= u8::from(self.spoils.swap(false, Ordering::Relaxed));
        self.is_synced.store(false, Ordering::Relaxed);
        Ok(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.is_synced.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let (bytes, at) = (lock(&self.bytes), offset as usize);
        let len = (bytes.len() - at).min(buf.len());
        buf[..len].copy_from_slice(&bytes[at..at + len]);
        Ok(len)
    }

    fn seal(&self, meta: &Meta, _preserve: Preserve) -> io::Result<()> {
        *lock(&self.meta) = Some(meta.clone());
        Ok(())
    }
}

impl TargetTree for MemoryTarget {
    fn examine(&self, _path: &RelPath) -> Result<Option<Standing>, DiskError> {
        Ok(None)
    }

    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError> {
        lock(&self.dirs).insert(path.clone());
        Ok(Made::Created)
    }

    fn create(&self, path: &RelPath, map: ChunkMap, _sparse: bool, _: &TempName) -> Result<Arc<TargetFile>, DiskError> {
        let len = map.len();
        let bytes = Mutex::new(vec![0; len as usize]);
        let received = Arc::new(Received { bytes, spoils: self.spoils.clone(), ..Received::default() });
        Ok(Arc::new(TargetFile::new(path, len, vec![Body::of(len, 0, received)])))
    }

    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, _: Preserve) -> Result<Staged, DiskError> {
        let (bytes, meta) = (Mutex::new(bytes.to_vec()), Mutex::new(Some(meta.clone())));
        Ok(Staged::of(path, Arc::new(Received { bytes, meta, ..Received::default() })))
    }

    fn publish(&self, staged: &Staged, _replace: Replace) -> Result<(), DiskError> {
        for bytes in staged.bytes() {
            let any: &dyn std::any::Any = &**bytes;
            let received = any.downcast_ref::<Received>().expect("made by this tree");
            assert!(received.is_synced.load(Ordering::Relaxed), "a name is given to what is durable");
            let whole = (lock(&received.bytes).clone(), lock(&received.meta).clone());
            lock(&self.published).insert(staged.path().clone(), whole);
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic with the lock held")
}

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: Event) {}
}

fn path(name: &str) -> RelPath {
    RelPath::new(name).expect("a relative path")
}

fn files(lens: &[usize]) -> Arc<Files> {
    let bytes = |n: usize, len: usize| (0..len).map(|i| (i * 31 + n + (i >> 11)) as u8).collect();
    Arc::new(lens.iter().enumerate().map(|(n, len)| (path(&format!("f{n:02}")), bytes(n, *len))).collect())
}

async fn copy(source: MemorySource, target: &Arc<MemoryTarget>, engine: EngineKind, verify: Verify) -> Report {
    let settings = Settings {
        lanes: Some(2),
        chunk: ChunkSize::from_bytes(CHUNK as u64),
        memory: ByteCount(32 << 20),
        engine,
        verify,
        ..Settings::default()
    };
    let (_trigger, stop) = Stop::new();
    run_between(Arc::new(source), target.clone(), settings, Arc::new(Nobody), stop).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_memory_arrive_in_memory_whatever_the_engine_is() {
    let lens = [0, 1, 1023, 300_000, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77];
    for engine in [EngineKind::Threads, EngineKind::Auto] {
        let (files, target) = (files(&lens), Arc::new(MemoryTarget::default()));
        let source = MemorySource { files: files.clone(), restless: None };
        let report = copy(source, &target, engine, Verify::Wire).await;
        assert_eq!((report.fault, report.files_committed, report.files_failed), (None, lens.len() as u64, 0));
        let published = lock(&target.published);
        assert_eq!(published.len(), files.len());
        for (path, bytes) in &*files {
            let (found, meta) = &published[path];
            assert!(found == bytes, "{} differs on {engine:?}", path.escaped());
            assert_eq!(*meta, Some(META), "{}", path.escaped());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_memory_keeps_wrongly_is_read_back_and_sent_again() {
    let (files, target) = (files(&[3 * CHUNK]), Arc::new(MemoryTarget::default()));
    target.spoils.store(true, Ordering::Relaxed);
    let source = MemorySource { files: files.clone(), restless: None };
    let report = copy(source, &target, EngineKind::Auto, Verify::Disk).await;
    assert_eq!((report.fault, report.files_committed), (None, 1));
    assert!(lock(&target.published)[&path("f00")].0 == files[&path("f00")]);
    assert!(!target.spoils.load(Ordering::Relaxed), "a chunk was spoilt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_in_memory_that_is_written_to_is_not_committed() {
    let (files, target) = (files(&[10, 2 * CHUNK, 3 * CHUNK]), Arc::new(MemoryTarget::default()));
    let source = MemorySource { files, restless: Some(path("f01")) };
    let report = copy(source, &target, EngineKind::Auto, Verify::Wire).await;
    assert_eq!((report.fault.map(|fault| fault.code), report.files_failed), (None::<FaultCode>, 1));
    assert_eq!(lock(&target.published).keys().cloned().collect::<Vec<_>>(), [path("f00"), path("f02")]);
}
