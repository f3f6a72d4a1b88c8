//! Tests of claims on a shelf: what a second process sees, and what is never taken for nothing.
#![expect(clippy::disallowed_methods, reason = "tests damage files of the shelf by hand")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use longhaul_core::TargetId;
use rustix::io::Errno;

use super::dir::{KEPT_FOR, PAGES_MAX, lock_byte};
use super::*;
use crate::kernel::{Call, InodeId, Interposer, Kernel, Passage};
use crate::load::{Membership, TargetLoad};
use crate::set_id::SetId;
use crate::shelf::Reach;
use crate::tree::Tree;

const SHARD: ShardKey = ShardKey { campaign: [0xab; 16], shard: 300 };
const PATIENCE: Duration = Duration::from_secs(60);

/// A disk on which so many calls are made, and then none: its process was killed.
#[derive(Debug)]
struct Killed {
    left: AtomicUsize,
    locks: Option<Errno>,
}

impl Interposer for Killed {
    fn begin(&self, _: &Call<'_>) -> Passage {
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Passage::Made(0),
            Err(_) => Passage::Answered(Err(Errno::IO)),
        }
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

fn shelf(dir: &Path) -> Shelf {
    Tree::open(dir).expect("tree").shelf()
}

fn shelf_behind(dir: &Path, left: usize, locks: Option<Errno>) -> Shelf {
    let kernel = Kernel::behind(Arc::new(Killed { left: AtomicUsize::new(left), locks }));
    Tree::open(dir).expect("tree").behind(&kernel).shelf()
}

fn lock(shelf: &Shelf) -> LockedShard {
    shelf.lock_shard(SHARD, PATIENCE).expect("the lock")
}

fn claim(shelf: &Shelf) -> Option<(u64, u8, u8)> {
    lock(shelf).kept().map(|kept| (kept.fence, kept.id[0], kept.session[0]))
}

fn keep(shelf: &Shelf, fence: u64, session: u8) {
    lock(shelf).keep(fence, [1; 16], [session; 16]).expect("kept");
}

fn page_of(dir: &Path) -> PathBuf {
    dir.join(".longhaul").join(format!("{}-{:014x}.claims", "ab".repeat(16), 1))
}

#[test]
fn a_claim_is_kept_for_every_other_process_and_shards_side_by_side_do_not_meet() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, there) = (shelf(dir.path()), shelf(dir.path()));
    assert_eq!(claim(&here), None);
    keep(&here, 4, 7);
    assert_eq!(claim(&there), Some((4, 1, 7)));
    keep(&there, 5, 8);
    let beside = ShardKey { shard: 301, ..SHARD };
    here.lock_shard(beside, PATIENCE).expect("free").keep(9, [2; 16], [3; 16]).expect("kept");
    assert_eq!(claim(&here), Some((5, 1, 8)));
    assert_eq!(here.lock_shard(beside, PATIENCE).expect("free").kept().map(|kept| kept.fence), Some(9));
    here.remove_if_empty();
    assert_eq!(claim(&there), Some((5, 1, 8)), "a shelf with claims stays");
    assert!(here.list().expect("a shelf").is_empty(), "and none of them is a journal");
}

#[test]
fn a_shard_is_locked_for_one_at_a_time_and_others_are_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let (here, there) = (shelf(dir.path()), shelf(dir.path()));
    let held = lock(&here);
    let refused = there.lock_shard(SHARD, Duration::ZERO);
    assert!(matches!(refused, Err(DiskError::Claims(ClaimsError::Held { shard: 300, .. }))), "{refused:?}");
    let other = (301..).map(|shard| ShardKey { shard, ..SHARD }).find(|other| lock_byte(other) != lock_byte(&SHARD));
    there.lock_shard(other.expect("one"), Duration::ZERO).expect("another shard");
    let waiting = std::thread::spawn(move || lock(&there).kept());
    drop(held);
    assert_eq!(waiting.join().expect("no panic"), None);
}

#[test]
fn a_damaged_file_of_claims_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let shelf = shelf(dir.path());
    keep(&shelf, 4, 7);
    let page = page_of(dir.path());
    let good = std::fs::read(&page).expect("the page");
    let mut other = good.clone();
    let fence = good.windows(8).position(|bytes| bytes == b" fence 4").expect("the fence");
    other[fence + 7] = b'3';
    for bad in [&b""[..], &good[..good.len() - 1], &other[..], &vec![0; good.len()][..], &vec![b'x'; 1 << 20][..]] {
        std::fs::write(&page, bad).expect("written");
        let refused = shelf.lock_shard(SHARD, PATIENCE).map(|locked| locked.kept());
        assert!(matches!(refused, Err(DiskError::Claims(ClaimsError::Damaged { .. }))), "{refused:?}");
        let fault = refused.expect_err("refused").fault();
        assert!(fault.object.contains(".longhaul/abab") && fault.hint.is_some(), "{fault:?}");
        assert_eq!(std::fs::read(&page).expect("the page"), bad);
    }
    std::fs::write(&page, &good).expect("written");
    assert_eq!(claim(&shelf), Some((4, 1, 7)));
    std::fs::remove_file(&page).expect("removed");
    std::os::unix::fs::symlink("elsewhere", &page).expect("a link");
    assert!(matches!(shelf.lock_shard(SHARD, PATIENCE), Err(DiskError::Escape { .. })));
}

#[test]
fn a_process_that_is_killed_at_any_call_leaves_the_claim_before_or_the_new_one_whole() {
    let mut outcomes = [0; 2];
    for calls in 0.. {
        let dir = tempfile::tempdir().expect("a directory");
        keep(&shelf(dir.path()), 4, 7);
        let killed = shelf_behind(dir.path(), calls, None);
        let kept = killed.lock_shard(SHARD, PATIENCE).and_then(|mut locked| locked.keep(5, [1; 16], [8; 16]));
        let left = claim(&shelf(dir.path())).expect("one is kept");
        assert!(matches!(left, (4, 1, 7) | (5, 1, 8)), "{calls}: {left:?}");
        outcomes[usize::from(left.0 == 5)] += 1;
        if kept.is_ok() {
            assert_eq!(left.0, 5);
            break;
        }
        keep(&shelf(dir.path()), 6, 9);
        assert_eq!(claim(&shelf(dir.path())), Some((6, 1, 9)), "what it left is in nobody's way");
    }
    assert!(outcomes.iter().all(|count| *count > 1), "killed before and behind the rename: {outcomes:?}");
}

#[test]
fn without_locks_no_claim_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = shelf_behind(dir.path(), usize::MAX, Some(Errno::NOLCK)).lock_shard(SHARD, PATIENCE);
    assert!(matches!(refused, Err(DiskError::Claims(ClaimsError::Unlockable { .. }))), "{refused:?}");
}

#[test]
fn files_of_claims_are_bounded_and_old_ones_make_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let shelf = shelf(dir.path());
    keep(&shelf, 4, 7);
    let name = |n: usize| dir.path().join(".longhaul").join(format!("{}-{n:014x}.claims", "cd".repeat(16)));
    (1..PAGES_MAX).for_each(|n| std::fs::write(name(n), b"").expect("written"));
    let far = ShardKey { shard: 1 << 40, ..SHARD };
    let mut locked = shelf.lock_shard(far, PATIENCE).expect("free");
    let full = locked.keep(1, [1; 16], [1; 16]);
    assert!(matches!(full, Err(DiskError::Claims(ClaimsError::Full { count: PAGES_MAX, .. }))), "{full:?}");
    keep(&shelf, 5, 8);
    let old = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
    std::fs::File::options().write(true).open(name(9)).and_then(|file| file.set_modified(old)).expect("aged");
    locked.keep(1, [1; 16], [1; 16]).expect("there is room");
    assert!(!name(9).exists() && name(10).exists());
    assert_eq!(claim(&shelf), Some((5, 1, 8)));
}

/// Directories that stand for the targets of a set.
struct Targets(Vec<tempfile::TempDir>);

impl Targets {
    fn of(count: usize) -> Targets {
        Targets((0..count).map(|_| tempfile::tempdir().expect("a directory")).collect())
    }

    /// The shelf of the set, of which these targets are there.
    fn seen(&self, there: &[usize]) -> Shelf {
        let set = SetId::new().expect("an id");
        let target = |n: &usize| {
            let tree = Tree::open(self.0[*n].path()).expect("there");
            let member = Membership::new(set, there.len(), Arc::new(|| Ok(())));
            (tree, TargetLoad::in_set(TargetId(*n as u32), self.0[*n].path(), member))
        };
        let targets: Vec<_> = there.iter().map(target).collect();
        let missing = self.0.len() - there.len();
        Shelf::over(targets.iter().map(|(tree, load)| (tree.root(), load)), Reach::Some).with_missing(missing)
    }
}

#[test]
fn any_two_halves_of_a_set_see_each_others_claims_and_less_than_half_sees_none() {
    let set = Targets::of(3);
    keep(&set.seen(&[0, 1]), 4, 7);
    assert_eq!(claim(&set.seen(&[1, 2])), Some((4, 1, 7)));
    keep(&set.seen(&[1, 2]), 5, 8);
    assert_eq!(claim(&set.seen(&[0, 2])), Some((5, 1, 8)), "the copy on the first target is older");
    let few = set.seen(&[0]).lock_shard(SHARD, PATIENCE);
    assert!(matches!(few, Err(DiskError::Claims(ClaimsError::Minority { there: 1, count: 3 }))), "{few:?}");
    let held = lock(&set.seen(&[0, 1]));
    let refused = set.seen(&[1, 2]).lock_shard(SHARD, Duration::ZERO);
    assert!(matches!(refused, Err(DiskError::Claims(ClaimsError::Held { .. }))), "{refused:?}");
    drop(held);
    assert!(Targets::of(2).seen(&[0]).lock_shard(SHARD, PATIENCE).is_err(), "one of two is no more than half");
}

#[test]
fn a_copy_that_one_target_alone_has_gives_no_session_the_right_to_publish() {
    let set = Targets::of(3);
    keep(&set.seen(&[0, 1, 2]), 4, 7);
    // Two processes died while they kept the same claim in sessions of their own.
    let write = |n: usize, id, session| {
        let showing = KeptShowing { serial: 2, fence: 5, id: [id; 16], session: [session; 16] };
        lock(&set.seen(&[0, 1, 2])).copies[n].dir.keep(&SHARD, showing).expect("written");
    };
    write(0, 1, 8);
    write(1, 1, 9);
    assert_eq!(claim(&set.seen(&[0, 1, 2])), Some((5, 1, 0)), "the same claim may be shown again");
    write(1, 2, 9);
    assert_eq!(claim(&set.seen(&[0, 1, 2])), Some((5, 0, 0)), "a higher one must be shown");
    keep(&set.seen(&[1, 2]), 6, 3);
    assert_eq!(claim(&set.seen(&[0, 1])), Some((6, 1, 3)));
}
