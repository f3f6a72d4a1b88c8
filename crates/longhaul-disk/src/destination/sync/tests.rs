//! Tests of a failed sync and the files staged beside it, on file systems whose syncs are answered
//! here.

use std::sync::atomic::AtomicU32;

use longhaul_core::Preserve;
use rustix::io::Errno;

use super::*;
use crate::kernel::{Call, InodeId, Interposer, Passage};
use crate::testing::{META, all, map, path, temp};
use crate::{DirectMode, FsTarget, Replace, TargetTree};

/// A file system of one type. It counts syncs, and the next few fail.
#[derive(Debug, Default)]
struct Failing {
    file_system: u64,
    whole: AtomicU32,
    each: AtomicU32,
    /// Whole syncs that fail from now on.
    failures: AtomicU32,
    /// Syncs of single files that fail from now on.
    file_failures: AtomicU32,
}

fn next_fails(failures: &AtomicU32) -> Passage {
    let left = failures.load(Ordering::Relaxed);
    failures.store(left.saturating_sub(1), Ordering::Relaxed);
    Passage::Answered(if left > 0 { Err(Errno::IO) } else { Ok(()) })
}

impl Interposer for Failing {
    fn begin(&self, call: &Call<'_>) -> Passage {
        match call {
            Call::SyncFileSystem { .. } => {
                self.whole.fetch_add(1, Ordering::Relaxed);
                next_fails(&self.failures)
            }
            Call::Sync { .. } => {
                self.each.fetch_add(1, Ordering::Relaxed);
                next_fails(&self.file_failures)
            }
            _ => Passage::Made(0),
        }
    }
    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}
    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }
    fn file_system_type(&self) -> Option<u64> {
        Some(self.file_system)
    }
}

const EXT4: u64 = 0xEF53;
const OVERLAY: u64 = 0x794c_7630;

fn target(file_system: u64) -> (tempfile::TempDir, FsTarget, Arc<Failing>) {
    let scratch = tempfile::tempdir().expect("scratch");
    let failing = Arc::new(Failing { file_system, ..Failing::default() });
    let target = FsTarget::open_behind(scratch.path(), DirectMode::Auto, failing.clone()).expect("opened");
    (scratch, target, failing)
}

/// Stages small files, so many that they are synced with their file system.
fn stage(target: &FsTarget, prefix: &str) -> Vec<Staged> {
    let one = |n| target.write_small(&path(format!("{prefix}{n}")), b"content", &META, Preserve::default());
    (0..=OPEN_STAGED_MAX).map(|n| one(n).expect("written")).collect()
}

#[test]
fn a_failed_sync_of_one_batch_keeps_what_was_staged_beside_it_from_being_published() {
    let (_scratch, target, failing) = target(EXT4);
    let (first, beside) = (stage(&target, "a"), stage(&target, "b"));
    failing.failures.store(1, Ordering::Relaxed);
    assert!(target.barrier(&all(&first)).is_err());
    drop(first);
    let later = stage(&target, "c");
    let error =
        target.barrier(&all(&beside)).expect_err("the system has told of the error already, and of whose data?");
    assert!(matches!(error, DiskError::Doubted { .. }), "{error}");
    assert!(beside.iter().all(|staged| target.publish(staged, Replace::Allowed).is_err()));
    // Some were read back from the medium.
    let (proven, lost) = beside.split_at(3);
    proven.iter().for_each(|staged| target.believe(staged));
    target.barrier(&all(proven)).expect("synced");
    proven.iter().for_each(|staged| target.publish(staged, Replace::Allowed).expect("proven"));
    assert!(lost.iter().all(|staged| target.publish(staged, Replace::Allowed).is_err()));
    target.barrier(&all(&later)).expect("synced");
    later.iter().for_each(|staged| target.publish(staged, Replace::Allowed).expect("begun after the failure"));
}

#[test]
fn a_sync_that_fails_after_files_were_read_back_puts_them_in_doubt_again() {
    let (_scratch, target, failing) = target(EXT4);
    let (files, beside) = (stage(&target, "a"), stage(&target, "b"));
    failing.failures.store(1, Ordering::Relaxed);
    assert!(target.barrier(&all(&files)).is_err());
    let mut slot = [0; 4096];
    for staged in &files {
        target.read_staged(staged, 7, &mut slot).expect("read");
    }
    failing.failures.store(1, Ordering::Relaxed);
    assert!(target.barrier(&all(&beside)).is_err());
    files.iter().for_each(|staged| target.believe(staged));
    let closed = &files[OPEN_STAGED_MAX];
    assert!(matches!(target.barrier(&[closed]), Err(DiskError::Doubted { .. })), "the medium was asked before");
}

#[test]
fn a_failed_sync_of_directories_keeps_what_was_staged_meanwhile_from_being_published() {
    let (_scratch, target, failing) = target(EXT4);
    let dirs: Vec<RelPath> = (0..50).map(|n| path(format!("d{n}"))).collect();
    for dir in &dirs {
        target.make_dir(dir).expect("made");
        target.make_dir(&dir.join(b"x").expect("a name")).expect("made");
    }
    let beside = stage(&target, "b");
    failing.failures.store(1, Ordering::Relaxed);
    assert!(target.sync_dirs(&[]).is_err(), "so many directories are synced at once");
    assert!(target.barrier(&all(&beside)).is_err());
    let (open, closed) = (&beside[0], &beside[OPEN_STAGED_MAX]);
    target.publish(open, Replace::Allowed).expect("proven by its own descriptor");
    assert!(target.publish(closed, Replace::Allowed).is_err());
}

#[test]
fn a_large_file_is_proven_by_its_own_descriptor_after_the_sync_of_others_failed() {
    let (_scratch, target, failing) = target(EXT4);
    let file = target.create(&path("large"), map(1 << 20), false, &temp()).expect("created");
    let beside = stage(&target, "b");
    failing.failures.store(1, Ordering::Relaxed);
    assert!(target.barrier(&all(&beside)).is_err());
    let mut batch = stage(&target, "c");
    batch.push(target.seal(file, &META, Preserve::default()).expect("sealed"));
    let before = failing.each.load(Ordering::Relaxed);
    target.barrier(&all(&batch)).expect("synced");
    assert_eq!(failing.each.load(Ordering::Relaxed), before + 1, "it alone is synced by itself");
    batch.iter().for_each(|staged| target.publish(staged, Replace::Allowed).expect("proven"));
}

#[test]
fn a_large_file_whose_own_sync_failed_is_not_believed_though_the_next_one_goes_well() {
    let (_scratch, target, failing) = target(OVERLAY);
    let file = target.create(&path("large"), map(1 << 20), false, &temp()).expect("created");
    let large = target.seal(file, &META, Preserve::default()).expect("sealed");
    failing.file_failures.store(1, Ordering::Relaxed);
    assert!(target.barrier(&[&large]).is_err());
    assert!(target.barrier(&[&large]).is_err(), "the system tells of an error once");
    assert!(target.publish(&large, Replace::Allowed).is_err());
}

#[test]
fn where_a_sync_of_everything_means_nothing_each_file_and_directory_is_synced() {
    let (_scratch, target, failing) = target(OVERLAY);
    assert_eq!(target.sync_method(), Some(SyncMethod::Each));
    for n in 0..DIRS_NOTED_MAX + 20 {
        target.make_dir(&path(format!("d{n}"))).expect("made");
        target.make_dir(&path(format!("d{n}/x"))).expect("made");
    }
    let small = stage(&target, "a");
    assert!(failing.each.load(Ordering::Relaxed) >= small.len() as u32);
    let file = target.create(&path("large"), map(1 << 20), false, &temp()).expect("created");
    let large = target.seal(file, &META, Preserve::default()).expect("sealed");
    let before = failing.each.load(Ordering::Relaxed);
    target.barrier(&[&large]).expect("synced");
    assert_eq!(failing.each.load(Ordering::Relaxed), before + 1);
    target.barrier(&all(&small)).expect("they are synced already");
    small.iter().for_each(|staged| target.publish(staged, Replace::Allowed).expect("proven"));
    target.sync_dirs(&small).expect("synced");
    let (files, dirs) = (small.len() as u32 + 1, DIRS_NOTED_MAX as u32 + 20);
    assert!(failing.each.load(Ordering::Relaxed) > files + dirs, "the top, and each that has a name in it");
    assert_eq!(failing.whole.load(Ordering::Relaxed), 0);
}

#[test]
fn the_type_of_a_real_file_system_is_asked_for() {
    let scratch = tempfile::tempdir().expect("scratch");
    let target = FsTarget::open(scratch.path(), DirectMode::Auto).expect("opened");
    assert!(target.sync_method().is_some());
}
