//! Tests of claims on a shelf: what a second process sees, and what is never taken for nothing.
#![expect(clippy::disallowed_methods, reason = "tests damage files of the shelf by hand")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::SystemTime;

use longhaul_core::{FaultCode, TargetId};
use rustix::io::Errno;

use super::dir::{KEPT_FOR, OWN_KEPT_FOR, PAGES_MAX, PAGES_OF_OWNER_MAX, lock_byte};
use super::page::Page;
use super::*;
use crate::kernel::Kernel;
use crate::load::{Membership, TargetLoad};
use crate::set_id::SetId;
use crate::shelf::Reach;
use crate::testing::FailingKernel;
use crate::tree::Tree;

const SHARD: ShardKey = ShardKey { campaign: [0xab; 16], shard: 300 };
const OWNER: ClaimsOwner = ClaimsOwner([0xee; 16]);
const PATIENCE: Duration = Duration::from_secs(60);

fn shelf(dir: &Path) -> Shelf {
    Tree::open(dir).expect("tree").shelf()
}

fn shelf_behind(dir: &Path, left: usize, locks: Option<Errno>) -> Shelf {
    let kernel = Kernel::behind(Arc::new(FailingKernel {
        calls_left: Some(AtomicUsize::new(left)),
        locks,
        ..FailingKernel::default()
    }));
    Tree::open(dir).expect("tree").behind(&kernel).shelf()
}

fn lock(shelf: &Shelf) -> LockedShard {
    shelf.lock_shard(SHARD, PATIENCE).expect("the lock")
}

fn claim(shelf: &Shelf) -> Option<(u64, u8, u8)> {
    lock(shelf).kept().map(|kept| (kept.fence, kept.id[0], kept.session[0]))
}

fn keep(shelf: &Shelf, fence: u64, session: u8) {
    lock(shelf).keep((fence, [1; 16], [session; 16]), OWNER).expect("kept");
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
    here.lock_shard(beside, PATIENCE).expect("free").keep((9, [2; 16], [3; 16]), OWNER).expect("kept");
    assert_eq!(claim(&here), Some((5, 1, 8)));
    assert_eq!(here.lock_shard(beside, PATIENCE).expect("free").kept().map(|kept| kept.fence), Some(9));
    here.remove_if_empty();
    assert_eq!(claim(&there), Some((5, 1, 8)), "a shelf with claims stays");
    let far = ShardKey { shard: 7000, ..SHARD };
    here.lock_shard(far, PATIENCE).expect("free").keep((1, [2; 16], [3; 16]), OWNER).expect("kept");
    assert_eq!(there.kept_shards(SHARD.campaign).expect("listed"), [300, 301, 7000].into());
    assert!(there.kept_shards([0; 16]).expect("listed").is_empty(), "they are another campaign's");
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
        let kept = killed.lock_shard(SHARD, PATIENCE).and_then(|mut locked| locked.keep((5, [1; 16], [8; 16]), OWNER));
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
fn where_claims_are_kept_a_lock_that_is_refused_is_no_leave_to_go_without_one() {
    let dir = tempfile::tempdir().expect("a directory");
    keep(&shelf(dir.path()), 4, 7);
    let refused = shelf_behind(dir.path(), usize::MAX, Some(Errno::NOLCK)).lock_shard(SHARD, PATIENCE);
    let fault = refused.expect_err("no lock").fault();
    assert_eq!(fault.code, FaultCode::Busy);
    assert!(fault.object.contains("claims.lock") && fault.hint.is_some(), "{fault:?}");
}

#[test]
fn old_files_of_an_owner_that_made_room_count_no_more_against_the_bound_of_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let shelf = shelf(dir.path());
    keep(&shelf, 4, 7);
    let name = |n: usize| dir.path().join(".longhaul").join(format!("{}-{n:014x}.claims", "cd".repeat(16)));
    let head = std::fs::read(page_of(dir.path())).expect("a page of the owner");
    (1..PAGES_MAX).for_each(|n| {
        std::fs::write(name(n), &head[..head.len() * usize::from(n < PAGES_OF_OWNER_MAX)]).expect("written")
    });
    let old = SystemTime::now() - OWN_KEPT_FOR - Duration::from_secs(60);
    std::fs::File::options().write(true).open(name(9)).and_then(|file| file.set_modified(old)).expect("aged");
    let far = ShardKey { shard: 1 << 40, ..SHARD };
    let mut locked = shelf.lock_shard(far, PATIENCE).expect("free");
    locked.keep((1, [1; 16], [1; 16]), OWNER).expect("its own old file made room");
    assert!(!name(9).exists() && name(10).exists());
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
    let full = locked.keep((1, [1; 16], [1; 16]), OWNER);
    assert!(matches!(full, Err(DiskError::Claims(ClaimsError::Full { count: PAGES_MAX, .. }))), "{full:?}");
    keep(&shelf, 5, 8);
    let old = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
    std::fs::File::options().write(true).open(name(9)).and_then(|file| file.set_modified(old)).expect("aged");
    locked.keep((1, [1; 16], [1; 16]), OWNER).expect("there is room");
    assert!(!name(9).exists() && name(10).exists());
    assert_eq!(claim(&shelf), Some((5, 1, 8)));
}

#[test]
fn one_owner_does_not_fill_the_files_of_claims_and_its_own_old_ones_make_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let shelf = shelf(dir.path());
    keep(&shelf, 4, 7);
    let name = |n: usize| dir.path().join(".longhaul").join(format!("{}-{n:014x}.claims", "cd".repeat(16)));
    let head = std::fs::read(page_of(dir.path())).expect("a page of the owner");
    (1..PAGES_OF_OWNER_MAX).for_each(|n| std::fs::write(name(n), &head).expect("written"));
    let far = |shard: u64| ShardKey { shard: shard << 40, ..SHARD };
    let mut locked = shelf.lock_shard(far(1), PATIENCE).expect("free");
    let full = locked.keep((1, [1; 16], [1; 16]), OWNER);
    let words = full.expect_err("it has its quarter").fault();
    assert_eq!(words.code, FaultCode::NoSpace);
    assert!(words.message.contains("1024") && words.message.contains("7 days"), "{words:?}");
    locked.keep((1, [1; 16], [1; 16]), ClaimsOwner([9; 16])).expect("another owner has room");
    let age = |n: usize, age| {
        let old = SystemTime::now() - age - Duration::from_secs(60);
        std::fs::File::options().write(true).open(name(n)).and_then(|file| file.set_modified(old)).expect("aged");
    };
    let mut other = shelf.lock_shard(far(2), PATIENCE).expect("free");
    // Another one's page goes only for the sake of all, behind a longer time.
    std::fs::write(name(9), Page { owner: Some(ClaimsOwner([8; 16])), ..Page::default() }.text(&[0xcd; 16]))
        .expect("written");
    std::fs::write(name(PAGES_OF_OWNER_MAX), &head).expect("written");
    age(9, OWN_KEPT_FOR);
    other.keep((1, [1; 16], [1; 16]), OWNER).expect_err("no old page is its own");
    age(10, OWN_KEPT_FOR);
    other.keep((1, [1; 16], [1; 16]), OWNER).expect("there is room");
    assert!(name(9).exists() && !name(10).exists() && name(11).exists());
    assert_eq!(claim(&shelf), Some((4, 1, 7)));
}

#[test]
fn a_set_keeps_no_claims_even_if_one_target_alone_is_there() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let set = SetId::new().expect("an id");
    let target = |n: usize| {
        let tree = Tree::open(dirs[n].path()).expect("there");
        let member = Membership::new(set, dirs.len(), Arc::new(|| Ok(())));
        (tree, TargetLoad::in_set(TargetId(n as u32), dirs[n].path(), member))
    };
    for there in [1, 2] {
        let targets: Vec<_> = (0..there).map(target).collect();
        let shelf = Shelf::over(targets.iter().map(|(tree, load)| (tree.root(), load)), Reach::Some);
        let refused = [shelf.lock_shard(SHARD, PATIENCE).map(|_| ()), shelf.kept(SHARD).map(|_| ())];
        assert!(refused.iter().all(|it| matches!(it, Err(DiskError::Claims(ClaimsError::OnSet)))), "{refused:?}");
    }
    assert!(dirs.iter().all(|dir| !dir.path().join(".longhaul").exists()), "nothing is made that stays in the way");
}
