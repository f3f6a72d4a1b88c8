//! Tests of a destination with several targets: the real engine moves files into bodies in memory,
//! is cut off, and goes on from a journal on a real shelf that says where each chunk lies.

#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Layout, Meta, Preserve, RelPath, TargetId, TempName};
use longhaul_disk::{
    Body, DirectMode, DiskError, FsSource, FsTarget, Journalled, Made, Reopened, Replace, SourceSpec, Staged, Standing,
    TargetFile, TargetTree, WriteAt,
};
use longhaul_proto::journal::{End, Replay, Replayed};
use longhaul_proto::receiver::Landing;

use super::*;
use crate::api::{Report, Settings, Stop};
use crate::client::conclude;
use crate::journals::{Doubts, Principal, RootJournals};

const CHUNK: usize = 1 << 20;
/// Chunks of the file, the last of them short.
const CHUNKS: usize = 11;
const LEN: usize = CHUNKS * CHUNK - 77;

/// A destination with several targets in memory, which outlives its sessions.
#[derive(Debug)]
struct Disks {
    layout: Layout,
    temps: Mutex<BTreeMap<TempName, Vec<Arc<Disk>>>>,
    published: Mutex<BTreeMap<RelPath, Vec<u8>>>,
    /// Writes that succeed before all others fail.
    writes_left: Arc<AtomicUsize>,
}

/// The body of a file on one of them.
#[derive(Debug)]
struct Disk {
    bytes: Mutex<Vec<u8>>,
    writes_left: Arc<AtomicUsize>,
}

impl WriteAt for Disk {
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let spend = |left: usize| left.checked_sub(1);
        self.writes_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .map_err(|_| io::Error::other("worn out"))?;
        let (mut bytes, at) = (lock(&self.bytes), offset as usize);
        let end = at + buf.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = lock(&self.bytes);
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

impl Disks {
    fn new(targets: u32) -> Arc<Disks> {
        let layout = Layout::over(NonZeroU32::new(targets).expect("some"));
        let (temps, published) = (Mutex::default(), Mutex::default());
        Arc::new(Disks { layout, temps, published, writes_left: Arc::new(AtomicUsize::new(usize::MAX)) })
    }

    fn file(&self, path: &RelPath, map: ChunkMap, disks: &[Arc<Disk>]) -> Arc<TargetFile> {
        let body = |(target, disk): (TargetId, &Arc<Disk>)| {
            Body::of(self.layout.len_on(map, target), u64::from(target.0), disk.clone())
        };
        Arc::new(TargetFile::new(path, map.len(), self.layout.targets().zip(disks).map(body).collect()))
    }
}

impl TargetTree for Disks {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn examine(&self, _path: &RelPath) -> Result<Option<Standing>, DiskError> {
        Ok(None)
    }

    fn make_dir(&self, _path: &RelPath) -> Result<Made, DiskError> {
        Ok(Made::Created)
    }

    fn create(
        &self,
        path: &RelPath,
        map: ChunkMap,
        _sparse: bool,
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        let disk = |_| Arc::new(Disk { bytes: Mutex::default(), writes_left: self.writes_left.clone() });
        let disks: Vec<Arc<Disk>> = self.layout.targets().map(disk).collect();
        let file = self.file(path, map, &disks);
        lock(&self.temps).insert(*temp, disks);
        Ok(file)
    }

    fn reopen(
        &self,
        path: &RelPath,
        map: ChunkMap,
        _sparse: bool,
        temp: &TempName,
        _journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        let temps = lock(&self.temps);
        Ok(temps.get(temp).map(|disks| Reopened { file: self.file(path, map, disks), differs: None }))
    }

    fn remove_temp(&self, _path: &RelPath, temp: &TempName) -> Result<(), DiskError> {
        lock(&self.temps).remove(temp);
        Ok(())
    }

    fn write_small(&self, _path: &RelPath, _: &[u8], _: &Meta, _: Preserve) -> Result<Staged, DiskError> {
        unreachable!("no file is small")
    }

    fn publish(&self, staged: &Staged, _replace: Replace) -> Result<(), DiskError> {
        let bodies: Vec<Vec<u8>> = staged
            .bytes()
            .map(|bytes| {
                let any: &dyn std::any::Any = &**bytes;
                lock(&any.downcast_ref::<Disk>().expect("made by this tree").bytes).clone()
            })
            .collect();
        let map = map();
        let chunks = (0..map.chunks()).map(ChunkIndex).flat_map(|index| {
            let (place, len) = (self.layout.place_of(map, index), map.len_of(index).unwrap_or(0) as usize);
            bodies[place.target.0 as usize][place.offset as usize..][..len].to_vec()
        });
        lock(&self.published).insert(staged.path().clone(), chunks.collect());
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic with the lock held")
}

fn map() -> ChunkMap {
    ChunkMap::new(LEN as u64, ChunkSize::from_bytes(CHUNK as u64).expect("a power of two"))
}

fn content() -> Vec<u8> {
    (0..LEN).map(|i| (i * 31 + (i >> 11)) as u8).collect()
}

/// Copies the file `f`, with the journal on the shelf of `dir`. After `writes` writes all fail.
async fn copy(dir: &Path, disks: &Arc<Disks>, writes: usize) -> Report {
    disks.writes_left.store(writes, Ordering::Relaxed);
    let shelf = FsTarget::open(dir, DirectMode::Auto).expect("opened").shelf().clone();
    let presence = Arc::<Presence>::default();
    let journals = RootJournals::new(shelf, disks.layout(), &Doubts::default());
    let ledger = journals.begin(&Principal::local(), [7; 16], RelPath::root(), presence.clone()).expect("begun");
    let destination = Destination {
        tree: disks.clone(),
        landing: Landing::beneath(),
        base: String::new(),
        place: String::new(),
        ledger: Some(Arc::new(ledger)),
        presence,
        names_standing: false,
        stream: None,
        claim: None,
        expected: None,
        dataset: None,
        is_whole: false,
    };
    let settings =
        Settings { lanes: Some(1), chunk: Some(map().size()), memory: ByteCount(32 << 20), ..Settings::default() };
    let (observer, begun) = (Arc::new(Nobody), Instant::now());
    let (_trigger, stop) = Stop::new();
    let run = Run::within_process(settings, observer.clone(), stop).expect("a run");
    let spec = SourceSpec { path: dir.join("source/f"), contents: false };
    let source = Arc::new(FsSource::open(vec![spec], DirectMode::Auto));
    conclude(run.embedded(source, destination, observer.clone()).await, &*observer, begun)
}

fn scratch() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("scratch");
    std::fs::create_dir(dir.path().join("source")).expect("made");
    std::fs::write(dir.path().join("source/f"), content()).expect("written");
    dir
}

/// The bytes of the only journal on the shelf. `None` if there is none.
fn journal(dir: &Path) -> Option<Vec<u8>> {
    let mut names = std::fs::read_dir(dir.join(".longhaul")).ok()?;
    Some(std::fs::read(names.next()?.expect("a name").path()).expect("read"))
}

fn replayed(bytes: &[u8], layout: Layout) -> Replayed {
    let mut replay = Replay::over(layout);
    replay.push(bytes);
    replay.finish().expect("a journal")
}

fn held(replayed: &Replayed) -> u64 {
    replayed.files.values().map(|partial| partial.held.len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_over_several_targets_is_gone_on_with_at_the_places_that_its_journal_says() {
    for targets in 2..=4 {
        let (dir, disks) = (scratch(), Disks::new(targets));
        let cut = copy(dir.path(), &disks, 7).await;
        assert_eq!((cut.files_failed, cut.files_committed), (1, 0), "{targets} targets: {cut:?}");
        let bytes = journal(dir.path()).expect("it stays");
        assert_eq!(bytes[6..8], [3, 0], "the version");
        let left = replayed(&bytes, disks.layout);
        assert_eq!((held(&left), left.end), (7, End::Clean), "{targets} targets");
        // The second target forgets what it holds: only its chunks come again.
        let temp = left.files.values().next().expect("one").file.temp;
        lock(&lock(&disks.temps)[&temp][1].bytes).fill(0xee);
        let partial = left.files.values().next().expect("one");
        let lost = partial.held.iter().filter(|(index, _)| index.0 % u64::from(targets) == 1);
        let lost: u64 = lost.map(|(index, _)| map().len_of(index).expect("one of it")).sum();
        assert!(lost > 0);
        let report = copy(dir.path(), &disks, usize::MAX).await;
        assert_eq!((report.fault, report.files_committed), (None, 1), "{targets} targets");
        assert_eq!(report.bytes_resumed, partial.held.bytes(map()) - lost, "{targets} targets");
        assert!(lock(&disks.published).values().eq([&content()]), "{targets} targets");
        assert_eq!(journal(dir.path()), None, "nothing is left to go on with");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_target_has_a_journal_as_before_and_its_chunks_are_believed_nowhere_else() {
    let (dir, one) = (scratch(), Disks::new(1));
    copy(dir.path(), &one, 7).await;
    let bytes = journal(dir.path()).expect("it stays");
    assert_eq!(bytes[6..8], [2, 0], "the version");
    assert_eq!(held(&replayed(&bytes, one.layout)), 7);
    // With another number of targets the file is received from its start, in a journal that says
    // where; the old temporary goes.
    let two = Disks::new(2);
    std::mem::swap(&mut *lock(&two.temps), &mut *lock(&one.temps));
    let report = copy(dir.path(), &two, usize::MAX).await;
    assert_eq!((report.fault, report.files_committed, report.bytes_resumed), (None, 1, 0));
    assert!(lock(&two.published).values().eq([&content()]));
    assert_eq!((lock(&two.temps).len(), journal(dir.path())), (1, None), "the published one alone");
}
