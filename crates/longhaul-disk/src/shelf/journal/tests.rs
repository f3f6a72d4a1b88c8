//! Tests of journals with two copies: what is believed after disks failed, were away or came back
//! old, and processes were stopped at any call. The records of these tests are eight bytes: a
//! number, and a check of all before it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::TargetId;
use rustix::io::Errno;

use super::*;
use crate::kernel::{Call, InodeId, Interposer, Kernel, Passage};
use crate::load::{Membership, TargetLoad};
use crate::set_id::SetId;
use crate::shelf::{Pieces, Proves, Reach, Shelved};
use crate::testing::once_let_go;
use crate::tree::Tree;

mod hangs;

const TAG: SessionTag = SessionTag([0xab; 8]);

/// Directories that stand for disks.
struct Disks {
    top: tempfile::TempDir,
    count: usize,
}

/// A disk that fails at a call, and in whose process no call is made any more at some call.
#[derive(Debug)]
struct Failing {
    /// Calls on this disk until it fails.
    left: AtomicUsize,
    errno: Errno,
    /// Calls on all disks until the process is stopped.
    process: Arc<AtomicUsize>,
}

/// Takes one of a number that never ends once it is over.
fn take(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

impl Interposer for Failing {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let last = self.left.load(Ordering::Relaxed) == 1 || self.process.load(Ordering::Relaxed) == 1;
        match (take(&self.process), take(&self.left), call) {
            // The last write is cut short.
            (true, true, Call::Write { bytes, .. }) if last => Passage::Short(0, bytes.len() / 2),
            (true, true, _) => Passage::Made(0),
            _ => Passage::Answered(Err(self.errno)),
        }
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

/// A disk as a process sees it: its place, the number of calls until it fails, and with what.
type Seen = (usize, usize, Errno);

const NEVER: usize = usize::MAX;

impl Disks {
    fn new(count: usize) -> Disks {
        let top = tempfile::tempdir().expect("scratch");
        (0..count).for_each(|n| std::fs::create_dir(top.path().join(format!("d{n}"))).expect("made"));
        Disks { top, count }
    }

    fn dir(&self, n: usize) -> PathBuf {
        self.top.path().join(format!("d{n}"))
    }

    fn journal_at(&self, n: usize) -> PathBuf {
        self.dir(n).join(format!(".longhaul/{TAG}.journal"))
    }

    /// The disks that have a copy.
    fn with_copy(&self) -> Vec<usize> {
        (0..self.count).filter(|n| self.journal_at(*n).exists()).collect()
    }

    /// The shelf as a new process sees it that makes so many calls.
    fn shelf_of(&self, seen: &[Seen], calls: usize) -> Shelf {
        let process = Arc::new(AtomicUsize::new(calls));
        let failing = |(n, left, errno): &Seen| {
            let left = AtomicUsize::new(*left);
            let failing: Arc<dyn Interposer> = Arc::new(Failing { left, errno: *errno, process: Arc::clone(&process) });
            (*n, failing)
        };
        self.shelf_behind(seen.iter().map(failing).collect()).0
    }

    /// The shelf over disks that stand behind these, and their loads.
    fn shelf_behind(&self, seen: Vec<(usize, Arc<dyn Interposer>)>) -> (Shelf, Vec<Arc<TargetLoad>>) {
        let (set, there) = (SetId::new().expect("an id"), seen.len());
        let target = |(n, interposer): (usize, Arc<dyn Interposer>)| {
            let tree = Tree::open(&self.dir(n)).expect("there").behind(&Kernel::behind(interposer));
            let member = Membership::new(set, there, Arc::new(|| Ok(())));
            (tree, TargetLoad::in_set(TargetId(n as u32), &self.dir(n), member))
        };
        let targets: Vec<_> = seen.into_iter().map(target).collect();
        let reach = if there == self.count { Reach::All } else { Reach::Some };
        let shelf = Shelf::over(targets.iter().map(|(tree, load)| (tree.root(), load)), reach);
        (shelf.proved_by(Arc::new(Checked)), targets.into_iter().map(|(_, load)| load).collect())
    }

    /// The shelf over disks that are well.
    fn shelf(&self, seen: &[usize]) -> Shelf {
        let seen: Vec<Seen> = seen.iter().map(|n| (*n, NEVER, Errno::IO)).collect();
        self.shelf_of(&seen, NEVER)
    }

    fn all(&self) -> Shelf {
        self.shelf(&(0..self.count).collect::<Vec<_>>())
    }
}

fn check_of(before: &[u8], number: &[u8]) -> [u8; 4] {
    let mut check = [0; 4];
    check.copy_from_slice(&blake3::hash(&[before, number].concat()).as_bytes()[..4]);
    check
}

/// The next record of a journal.
fn record(before: &[u8], number: u32) -> Vec<u8> {
    let number = number.to_le_bytes();
    [number, check_of(before, &number)].concat()
}

/// The part of a journal that is proven.
fn proven(bytes: &[u8]) -> &[u8] {
    let is_sound = |at: &usize| {
        let (before, record) = (&bytes[..8 * at], &bytes[8 * at..8 * at + 8]);
        record[4..] == check_of(before, &record[..4])
    };
    let sound = (0..bytes.len() / 8).take_while(is_sound).count();
    &bytes[..8 * sound]
}

/// The prover for these records.
#[derive(Debug)]
struct Checked;

impl Proves for Checked {
    fn proven_len(&self, read: &mut Pieces<'_>) -> u64 {
        let mut all = Vec::new();
        read(&mut |piece| {
            all.extend_from_slice(piece);
            true
        });
        proven(&all).len() as u64
    }
}

/// Everything that a journal says, as far as it is proven.
fn content(journal: &Journal) -> Vec<u8> {
    let mut all = Vec::new();
    let read = journal.read(&mut |piece| {
        all.extend_from_slice(piece);
        true
    });
    read.expect("read");
    proven(&all).to_vec()
}

/// The same of one that is only looked at.
fn looked(shelf: &Shelf) -> Vec<u8> {
    let mut all = Vec::new();
    let reader = shelf.look(TAG).expect("looked at").expect("it stands");
    let read = reader.read(&mut |piece| {
        all.extend_from_slice(piece);
        true
    });
    read.expect("read");
    proven(&all).to_vec()
}

fn open(shelf: &Shelf) -> Option<Journal> {
    match once_let_go(|| shelf.open(TAG).expect("opened"), |shelved| matches!(shelved, Shelved::Held(_))) {
        Shelved::Free(journal) => Some(journal),
        Shelved::Gone => None,
        Shelved::Held(_) => panic!("it is held"),
    }
}

/// Appends a record and makes it durable. What was there before and is not proven is cut.
fn write(journal: &Journal, number: u32) -> Result<(), DiskError> {
    let before = content(journal);
    if journal.len() > before.len() as u64 {
        journal.truncate(before.len() as u64)?;
    }
    journal.append(&record(&before, number))?;
    journal.sync()
}

/// A journal of so many records, closed.
fn written(shelf: &Shelf, records: u32) -> Vec<u8> {
    let journal = shelf.create(TAG).expect("created");
    (0..records).for_each(|number| write(&journal, number).expect("written"));
    content(&journal)
}

#[test]
fn a_journal_of_a_set_lies_on_its_first_two_targets_and_goes_from_both() {
    // COPIES-1.
    let disks = Disks::new(3);
    let all = written(&disks.all(), 3);
    assert_eq!(disks.with_copy(), [0, 1]);
    assert_eq!(std::fs::read(disks.journal_at(0)).expect("there"), all);
    assert_eq!(std::fs::read(disks.journal_at(1)).expect("there"), all);
    assert_eq!(disks.all().list().expect("listed"), [TAG]);
    assert_eq!(std::fs::read_dir(disks.dir(0).join(".longhaul")).expect("there").count(), 1, "nothing beside it");
    let journal = open(&disks.all()).expect("it stands");
    assert!(journal.is_sure() && content(&journal) == all);
    journal.remove().expect("removed");
    assert!((0..3).all(|n| !disks.dir(n).join(".longhaul").exists()));
}

#[test]
fn a_journal_outlives_the_loss_of_either_disk_and_gets_another_copy_before_it_is_written_to() {
    // COPIES-5 and COPIES-7.
    for lost in [0, 1] {
        let disks = Disks::new(3);
        let all = written(&disks.all(), 3);
        let there: Vec<usize> = (0..3).filter(|n| *n != lost).collect();
        assert_eq!(looked(&disks.shelf(&there)), all);
        let journal = open(&disks.shelf(&there)).expect("it stands");
        assert!(!journal.is_sure(), "the other one may say more");
        assert_eq!(content(&journal), all);
        write(&journal, 7).expect("written");
        let all = content(&journal);
        drop(journal);
        assert_eq!(disks.with_copy(), [0, 1, 2]);
        // The lost one comes back.
        let journal = open(&disks.all()).expect("it stands");
        assert_eq!(content(&journal), all);
        assert!(!journal.is_sure(), "that is remembered");
        write(&journal, 8).expect("written");
        assert_eq!(disks.with_copy(), there, "the old one goes");
    }
}

#[test]
fn what_one_disk_fails_to_take_at_any_call_is_in_the_journal_all_the_same() {
    // COPIES-2 and COPIES-3.
    for (bad, errno) in [(0, Errno::IO), (1, Errno::ROFS), (0, Errno::NOSPC)] {
        let mut calls = 0;
        loop {
            let disks = Disks::new(3);
            let seen: Vec<Seen> = (0..3).map(|n| (n, if n == bad { calls } else { NEVER }, errno)).collect();
            let all = written(&disks.shelf_of(&seen, NEVER), 3);
            let others: Vec<usize> = (0..3).filter(|n| *n != bad).collect();
            for there in [vec![0, 1, 2], others] {
                let shelf = disks.shelf(&there);
                assert_eq!(looked(&shelf), all, "{bad} {errno} {calls}");
                assert_eq!(content(&open(&shelf).expect("it stands")), all, "{bad} {errno} {calls}");
            }
            assert!(open(&disks.all()).expect("it stands").is_sure(), "{bad} {errno} {calls}");
            let alone = disks.with_copy().contains(&bad).then(|| open(&disks.shelf(&[bad]))).flatten();
            assert!(alone.is_none_or(|alone| !alone.is_sure()), "{bad} {errno} {calls}");
            if disks.with_copy() == [0, 1] && !disks.dir(1 - bad).join(format!(".longhaul/{TAG}.epoch")).exists() {
                break;
            }
            calls += 1;
        }
        assert!(calls > 9, "it failed at each call: {calls}");
    }
}

#[test]
fn a_journal_of_which_both_disks_fail_fails_and_says_nothing_that_it_did_not() {
    let disks = Disks::new(2);
    let all = written(&disks.all(), 2);
    let shelf = disks.shelf_of(&[(0, 9, Errno::IO), (1, 5, Errno::IO)], NEVER);
    let journal = open(&shelf).expect("it stands");
    let failed = (2..9).find_map(|number| write(&journal, number).err());
    assert!(failed.is_some() && !journal.is_usable());
    assert!(journal.append(b"x").is_err() && journal.sync().is_err());
    drop(journal);
    assert!(content(&open(&disks.all()).expect("it stands")).starts_with(&all));
}

#[test]
fn a_copy_that_is_torn_or_damaged_is_made_like_the_other_one() {
    // COPIES-4.
    for (damaged, cut) in [(0, 17), (1, 17), (0, 0), (1, 0), (0, 24), (1, 24)] {
        let disks = Disks::new(2);
        let all = written(&disks.all(), 3);
        let mut bytes = all.clone();
        match cut {
            24 => bytes[9] ^= 1,
            cut => bytes.truncate(cut),
        }
        std::fs::write(disks.journal_at(damaged), &bytes).expect("damaged");
        assert_eq!(looked(&disks.all()), all, "{damaged} {cut}");
        let journal = open(&disks.all()).expect("it stands");
        assert!(journal.is_sure() && content(&journal) == all, "{damaged} {cut}");
        write(&journal, 3).expect("written");
        let all = content(&journal);
        drop(journal);
        for n in [0, 1] {
            assert_eq!(std::fs::read(disks.journal_at(n)).expect("there"), all, "{damaged} {cut} {n}");
        }
    }
}

#[test]
fn a_copy_that_is_locked_keeps_others_out_though_the_other_one_is_not_there() {
    // COPIES-6.
    let disks = Disks::new(2);
    drop(written(&disks.all(), 1));
    let journal = open(&disks.all()).expect("it stands");
    for there in [vec![0], vec![1], vec![0, 1]] {
        let shelf = disks.shelf(&there);
        assert!(matches!(shelf.open(TAG).expect("opened"), Shelved::Held(_)) && shelf.is_live(TAG).expect("asked"));
    }
    drop(journal);
    // One that counts no more is kept from others as well.
    let shelf = disks.shelf_of(&[(0, 0, Errno::IO), (1, NEVER, Errno::IO)], NEVER);
    let journal = open(&shelf).expect("it stands");
    write(&journal, 1).expect("on the other one");
    assert!(matches!(disks.shelf(&[0]).open(TAG).expect("opened"), Shelved::Held(_)));
    drop(journal);
}

#[test]
fn a_journal_of_one_copy_from_before_there_were_two_is_continued_with_two() {
    let disks = Disks::new(3);
    let old = Tree::open(&disks.dir(0)).expect("there").shelf();
    let all = written(&old, 2);
    assert_eq!(looked(&disks.all()), all);
    let journal = open(&disks.all()).expect("it stands");
    assert_eq!(content(&journal), all);
    write(&journal, 2).expect("written");
    assert_eq!(disks.with_copy(), [0, 1]);
}

#[test]
fn a_removed_journal_leaves_a_copy_only_where_the_disk_does_not_let_it_go_and_that_is_not_sure() {
    // COPIES-8.
    for calls in 0..3 {
        let disks = Disks::new(2);
        let all = written(&disks.all(), 2);
        let shelf = disks.shelf_of(&[(0, calls, Errno::ROFS), (1, NEVER, Errno::IO)], NEVER);
        open(&shelf).expect("it stands").remove().expect("removed");
        if disks.with_copy() == [0] {
            let left = open(&disks.all()).expect("it stands");
            assert!(!left.is_sure() && content(&left) == all);
            left.remove().expect("removed");
        }
        assert!(disks.with_copy().is_empty());
    }
}

/// A sequence of numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }

    /// A number of calls: often none too many.
    fn calls(&mut self) -> usize {
        if self.below(2) == 0 { self.below(40) } else { NEVER }
    }
}

/// One process after the other uses a journal; each sees some of the disks, some of which fail, and
/// may be stopped at any call. A journal that calls itself sure has all that was durable in it.
#[test]
fn a_journal_that_is_sure_has_every_record_that_was_durable_whatever_failed_or_was_away() {
    let (mut sure, mut unsure) = (0, 0);
    for seed in 0..SEEDS {
        let (disks, mut numbers) = (Disks::new(3), Numbers(seed));
        // What the journal may say: more than one thing after a change that was interrupted.
        let mut durable: Vec<Vec<u8>> = vec![written(&disks.all(), 1)];
        for process in 0..6 {
            let mut seen: Vec<Seen> = Vec::new();
            for n in 0..3 {
                if numbers.below(8) > 0 {
                    let errno = [Errno::IO, Errno::ROFS, Errno::NOSPC][numbers.below(3)];
                    seen.push((n, numbers.calls(), errno));
                }
            }
            if seen.is_empty() {
                continue;
            }
            let shelf = disks.shelf_of(&seen, numbers.calls());
            let Some(journal) = open(&shelf) else { continue };
            let found = content(&journal);
            assert_eq!(looked(&shelf), found, "seed {seed} process {process}");
            if journal.is_sure() {
                sure += 1;
                let has_all = durable.iter().any(|durable| found.starts_with(durable));
                assert!(has_all, "seed {seed} process {process}: it lacks what was durable");
            } else {
                unsure += 1;
                durable.push(found);
            }
            for step in 0..numbers.below(4) {
                let said = write(&journal, (process * 10 + step) as u32);
                match said {
                    Ok(()) => durable = vec![content(&journal)],
                    Err(_) => break,
                }
            }
        }
    }
    assert!(sure > SEEDS && unsure > SEEDS, "{sure} {unsure}");
}

const SEEDS: u64 = 40;

#[test]
fn a_journal_of_which_a_copy_is_lost_stays_unsure_wherever_its_next_process_stops() {
    // COPIES-7: the lost one may have said more.
    for calls in 0.. {
        let disks = Disks::new(3);
        let all = written(&disks.all(), 3);
        std::fs::remove_file(disks.journal_at(1)).expect("removed");
        let seen: Vec<Seen> = (0..3).map(|n| (n, NEVER, Errno::IO)).collect();
        let journal = open(&disks.shelf_of(&seen, calls)).expect("it stands");
        assert!(!journal.is_sure());
        let went_well = write(&journal, 7).is_ok();
        drop(journal);
        let journal = open(&disks.all()).expect("it stands");
        assert!(!journal.is_sure(), "stopped at call {calls}");
        assert!(content(&journal).starts_with(&all), "stopped at call {calls}");
        if went_well {
            assert!(calls > 10, "the process makes calls");
            break;
        }
    }
}
