//! Reads written files back, on a destination whose medium keeps other bytes; and compares standing
//! files, where another program writes to them.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longhaul_core::{ByteCount, ChunkIndex, ChunkSize, FaultCode, IfExists, Meta, Preserve, RelPath};
use longhaul_disk::{Back, DiskError, FsSource, FsTarget, Identity, SourceSpec, Staged, TargetFile};
use longhaul_engine::{DirectMode, Event, Observer, Report, Settings, Stop, TargetTree, Verify, run_between};

const CHUNK: u64 = 1 << 20;

/// A destination that changes a byte of synced files, as often as it is told to.
struct Spoiling {
    inner: FsTarget,
    dir: PathBuf,
    /// The offset of the byte, in every file that is as long.
    offset: u64,
    times: Mutex<u32>,
    /// The look at which the byte of the standing file changes too.
    at_look: Mutex<Option<u32>>,
}

impl Spoiling {
    /// Changes the byte of the standing file, if this is the look.
    fn is_looked_at(&self, path: &RelPath) {
        let mut at_look = self.at_look.lock().expect("no panic while looking");
        *at_look = at_look.and_then(|looks| looks.checked_sub(1));
        if *at_look == Some(0) {
            change(&self.dir.join(path.escaped().to_string()), self.offset);
        }
    }

    /// Changes the byte in every temporary that stands.
    fn spoil(&self) {
        let mut times = self.times.lock().expect("no panic while spoiling");
        for entry in std::fs::read_dir(&self.dir).expect("listed") {
            let path = entry.expect("a name").path();
            let is_temp = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".longhaul-"));
            if !is_temp || std::fs::metadata(&path).expect("examined").len() <= self.offset || *times == 0 {
                continue;
            }
            *times -= 1;
            change(&path, self.offset);
        }
    }
}

fn change(path: &Path, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x40], offset).expect("written");
}

impl TargetTree for Spoiling {
    fn beneath(&self) -> Option<&dyn TargetTree> {
        Some(&self.inner)
    }
    fn sync_data(&self, file: &TargetFile) -> Result<Vec<ChunkIndex>, DiskError> {
        let lost = self.inner.sync_data(file)?;
        self.spoil();
        Ok(lost)
    }
    fn barrier(&self, staged: &[&Staged]) -> Result<Vec<usize>, DiskError> {
        let postponed = self.inner.barrier(staged)?;
        self.spoil();
        Ok(postponed)
    }
    fn read_standing(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<(Back, Identity), DiskError> {
        self.is_looked_at(path);
        self.inner.read_standing(path, offset, len, slot)
    }
    fn retouch(
        &self,
        path: &RelPath,
        expect: &Identity,
        meta: Option<&Meta>,
        preserve: Preserve,
    ) -> Result<(), DiskError> {
        self.is_looked_at(path);
        self.inner.retouch(path, expect, meta, preserve)
    }
}

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: Event) {}
}

/// Copies files of these lengths to a destination that changes the byte at `offset` `times` times.
/// Returns the report and, for each file, whether it stands as it was sent. `None` if it does not
/// stand.
async fn copy(verify: Verify, lens: &[usize], offset: u64, times: u32) -> (Report, BTreeMap<usize, Option<bool>>) {
    let scratch = tempfile::tempdir().expect("scratch");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    std::fs::create_dir_all(&from).expect("made");
    for len in lens {
        std::fs::write(from.join(len.to_string()), content(*len)).expect("written");
    }
    let inner = FsTarget::open(&to, DirectMode::Auto).expect("opened");
    let target = Spoiling { inner, dir: to.clone(), offset, times: Mutex::new(times), at_look: Mutex::new(None) };
    let source = FsSource::open(vec![spec(&from)], DirectMode::Auto);
    let (_trigger, stop) = Stop::new();
    let settings = settings(verify, IfExists::SkipSame);
    let report = run_between(Arc::new(source), Arc::new(target), settings, Arc::new(Nobody), stop).await;
    let stands = |len: &usize| {
        let bytes = std::fs::read(to.join(len.to_string())).ok();
        (*len, bytes.map(|bytes| bytes == content(*len)))
    };
    (report, lens.iter().map(stands).collect())
}

/// Compares a file with itself, or with one that differs in its fourth chunk, while another program
/// changes a byte of its first chunk at the look `at_look`. Returns the report and the bytes that
/// stand.
async fn compare(len: usize, differs: bool, at_look: u32) -> (Report, Vec<u8>) {
    let scratch = tempfile::tempdir().expect("scratch");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for dir in [&from, &to] {
        std::fs::create_dir_all(dir).expect("made");
        std::fs::write(dir.join("f"), content(len)).expect("written");
    }
    if differs {
        change(&to.join("f"), 3 * CHUNK + 5);
    }
    let inner = FsTarget::open(&to, DirectMode::Auto).expect("opened");
    let at_look = Mutex::new(Some(at_look));
    let target = Spoiling { inner, dir: to.clone(), offset: 5, times: Mutex::new(0), at_look };
    let source = FsSource::open(vec![spec(&from)], DirectMode::Auto);
    let (_trigger, stop) = Stop::new();
    let settings = settings(Verify::Wire, IfExists::Verify);
    let report = run_between(Arc::new(source), Arc::new(target), settings, Arc::new(Nobody), stop).await;
    let names = std::fs::read_dir(&to).expect("listed").count();
    assert!(names == 1 || !report.failures.is_empty(), "something is left");
    (report, std::fs::read(to.join("f")).expect("it stands"))
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + len + (i >> 11)) as u8).collect()
}

fn settings(verify: Verify, if_exists: IfExists) -> Settings {
    Settings {
        lanes: Some(2),
        chunk: ChunkSize::from_bytes(CHUNK),
        memory: ByteCount(32 << 20),
        verify,
        if_exists,
        ..Settings::default()
    }
}

fn spec(dir: &Path) -> SourceSpec {
    SourceSpec { path: dir.to_owned(), contents: true }
}

const LARGE: usize = 5 * CHUNK as usize + 77;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_medium_that_keeps_something_else_is_found_out_by_reading_back_and_by_nothing_else() {
    let (report, stands) = copy(Verify::Wire, &[1000], 5, 1).await;
    assert_eq!((report.files_committed, report.bytes_read_back), (1, 0));
    assert_eq!(stands[&1000], Some(false), "digests of what arrives do not see it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_is_spoilt_once_is_sent_again_and_the_file_is_whole() {
    let (report, stands) = copy(Verify::Disk, &[LARGE], 2 * CHUNK + 9, 1).await;
    assert_eq!((report.fault, report.failures), (None, vec![]));
    assert_eq!(stands[&LARGE], Some(true));
    assert_eq!((report.bytes_misread, report.bytes_resent), (CHUNK, CHUNK));
    assert_eq!(report.bytes_read_back, LARGE as u64 + CHUNK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_is_spoilt_each_time_fails_its_file_after_three_tries() {
    let (report, stands) = copy(Verify::Disk, &[LARGE, 1000], 2 * CHUNK + 9, 99).await;
    assert_eq!(report.failures, [FaultCode::Mismatch]);
    assert_eq!((report.files_mismatched, report.files_committed), (1, 1));
    assert_eq!((stands[&LARGE], stands[&1000]), (None, Some(true)));
    assert_eq!(report.bytes_misread, 3 * CHUNK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_that_is_spoilt_once_is_sent_again_alone() {
    let (report, stands) = copy(Verify::Disk, &[0, 7, 5000], 4000, 1).await;
    assert_eq!((report.fault, report.failures), (None, vec![]));
    assert_eq!((stands[&0], stands[&7], stands[&5000]), (Some(true), Some(true), Some(true)));
    assert_eq!((report.bytes_misread, report.bytes_read_back), (5000, 10_007));
    assert!((5000..5100).contains(&report.bytes_resent), "{} bytes, with a table", report.bytes_resent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_that_is_spoilt_each_time_fails_alone_and_gets_no_name() {
    let (report, stands) = copy(Verify::Disk, &[0, 7, 5000], 4000, 99).await;
    assert_eq!(report.failures, [FaultCode::Mismatch]);
    assert_eq!((stands[&0], stands[&7], stands[&5000]), (Some(true), Some(true), None));
    assert_eq!((report.bytes_misread, report.bytes_read_back), (15_000, 15_007));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_writes_to_while_it_is_compared_is_replaced_whole_or_fails() {
    let (mut whole, mut failed) = (0, 0);
    for (len, differs, looks) in [(5000, false, 2), (LARGE, false, 8), (LARGE, true, 12)] {
        for at_look in 1..=looks {
            let (report, stands) = compare(len, differs, at_look).await;
            let context = format!("{len} bytes, differs: {differs}, look {at_look}: {report:?}");
            match report.failures.as_slice() {
                [] => {
                    assert!(stands == content(len), "{context}");
                    whole += 1;
                }
                [FaultCode::Busy] => {
                    // The file is as the other program left it, with none of our bytes in it.
                    let mut theirs = content(len);
                    theirs[5] ^= 0x40;
                    if differs {
                        theirs[3 * CHUNK as usize + 5] ^= 0x40;
                    }
                    assert!(stands == theirs, "{context}");
                    failed += 1;
                }
                other => panic!("{other:?}: {context}"),
            }
        }
    }
    assert!(whole > 3 && failed > 3, "{whole} were replaced or the same, {failed} failed");
}
