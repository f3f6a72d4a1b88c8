//! Tests of the session journal on a real directory: which partials are trusted, whose "done"
//! counts, which journals are locked, which names are in doubt, and which files stay behind. A
//! second [`RootJournals`] on one shelf stands for another process, as locks belong to openings.

#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex as StdMutex, mpsc};
use std::time::Duration;

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{
    ChunkIndex, DigestKind, Entry as ManifestEntry, FileOffset, Inode, Layout, Meta, Mtime, Preserve, TempName, hint,
};
use longhaul_disk::{Call, DirectMode, FsTarget, InodeId, Interposer, Passage, Shelved};
use longhaul_proto::receiver::Created;
use rustix::io::Errno;

use super::super::{Principal, RootJournals};
use super::*;
use crate::journals::root::Acquired;

const CHUNK: u64 = 64 << 10;
const LEN: u64 = 4 * CHUNK;
const BOOT: [u8; 16] = [1; 16];
const RUN: [u8; 16] = [7; 16];

/// A process that receives into a directory.
struct Process {
    tree: FsTarget,
    ledger: SessionJournal,
}

fn process(dir: &Path, boot: [u8; 16], run: [u8; 16]) -> Process {
    process_of(dir, boot, run, &Principal::local())
}

fn process_of(dir: &Path, boot: [u8; 16], run: [u8; 16], who: &Principal) -> Process {
    let tree = FsTarget::open(dir, DirectMode::Auto).expect("target");
    let store = RootJournals::with(tree.shelf().clone(), Layout::WHOLE, boot, usize::MAX);
    let ledger = store.begin(who, run, RelPath::root(), Arc::default()).expect("begins");
    Process { tree: tree.tagged(ledger.tag()), ledger }
}

fn stranger() -> Principal {
    Principal { principal: "key:other".to_owned(), owner: "client 'other'".to_owned() }
}

fn file(id: u64, path: &str, len: u64) -> EntryRef {
    let path = RelPath::new(path).expect("a path");
    let kind = EntryKind::File { len, sparse: false, inode: Inode::default() };
    let meta = Meta::new(0o644, Mtime { secs: 9, nanos: 9 });
    EntryRef { id: FileId(id), entry: ManifestEntry { path: path.clone(), kind, meta }, placed: path }
}

fn size() -> ChunkSize {
    ChunkSize::from_bytes(CHUNK).expect("a size")
}

fn byte(index: u64) -> u8 {
    0x50 + index as u8
}

impl Process {
    /// Opens the temporary of the file. Returns the chunks that are held.
    fn open(&self, held: &EntryRef) -> Result<Option<Vec<u64>>, Fault> {
        let known = self.ledger.claim(&self.tree, held, Arriving::InChunks)?;
        let (_file, created) = self.ledger.open(&self.tree, held, known.partial.as_ref(), size(), true)?;
        Ok(match created {
            Created::Fresh => None,
            Created::Continued(partial) => Some(partial.iter().map(|(index, _)| index.0).collect()),
        })
    }

    /// Receives these chunks of an open file, durably.
    fn receive(&self, dir: &Path, held: &EntryRef, chunks: std::ops::Range<u64>) {
        let temp = temps(dir).into_iter().next_back().expect("a temporary");
        let out = fs::File::options().write(true).open(dir.join(temp)).expect("open");
        let digests: Vec<(ChunkIndex, Digest)> = chunks
            .map(|index| {
                let bytes = vec![byte(index); CHUNK as usize];
                out.write_all_at(&bytes, index * CHUNK).expect("write");
                (ChunkIndex(index), digest_of(&bytes, DigestKind::Cv, FileOffset(index * CHUNK)))
            })
            .collect();
        out.sync_all().expect("sync");
        self.ledger.write(&[receiver::JournalEntry::Chunks { file: held.id, chunks: digests }]).expect("journalled");
    }
}

/// Receives three of four chunks of `f` in a process that is then killed.
fn leave(dir: &Path) {
    let process = process(dir, BOOT, RUN);
    let held = file(0, "f", LEN);
    assert_eq!(process.open(&held).expect("opened"), None);
    process.receive(dir, &held, 0..3);
}

/// Names of temporaries in a directory, in order.
fn temps(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut temps: Vec<String> = names.map(|name| name.into_string().expect("text")).collect();
    temps.retain(|name| TempName::parse(name.as_bytes()).is_some());
    temps.sort();
    temps
}

fn journals(dir: &Path) -> usize {
    fs::read_dir(dir.join(".longhaul")).map_or(0, Iterator::count)
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("scratch")
}

#[test]
fn a_partial_that_is_what_its_journal_says_is_not_read() {
    let dir = scratch();
    leave(dir.path());
    // Only reading would tell.
    let temp = dir.path().join(&temps(dir.path())[0]);
    fs::File::options().write(true).open(temp).expect("open").write_all_at(b"x", 5).expect("write");
    let held = process(dir.path(), BOOT, RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![0, 1, 2]));
}

#[test]
fn a_partial_that_was_cut_to_nothing_is_held_no_more() {
    let dir = scratch();
    leave(dir.path());
    let temp = dir.path().join(&temps(dir.path())[0]);
    fs::File::options().write(true).open(temp).expect("open").set_len(0).expect("cut");
    for _ in 0..2 {
        let held = process(dir.path(), BOOT, RUN).open(&file(0, "f", LEN));
        assert_eq!(held.expect("opened"), Some(vec![]), "also as its journal says it later");
    }
}

#[test]
fn another_file_under_the_name_of_a_partial_is_read_and_only_what_is_right_is_held() {
    let dir = scratch();
    leave(dir.path());
    let temp = dir.path().join(&temps(dir.path())[0]);
    let mut bytes = fs::read(&temp).expect("read");
    bytes[CHUNK as usize + 9] ^= 1;
    fs::rename(&temp, dir.path().join("old")).expect("away");
    fs::write(&temp, bytes).expect("another file");
    let held = process(dir.path(), BOOT, RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![0, 2]));
}

#[test]
fn a_partial_of_an_earlier_boot_is_read_once() {
    let dir = scratch();
    leave(dir.path());
    let damage = |at| {
        let temp = dir.path().join(&temps(dir.path())[0]);
        fs::File::options().write(true).open(temp).expect("open").write_all_at(b"x", at).expect("write");
    };
    damage(2 * CHUNK);
    let held = process(dir.path(), [2; 16], RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![0, 1]));
    damage(0);
    let held = process(dir.path(), [2; 16], RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![0, 1]), "in that boot it is what its journal says");
    let held = process(dir.path(), [3; 16], RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![1]));
}

#[test]
fn reading_back_ends_with_the_session_and_the_partial_stays_what_it_was() {
    let dir = scratch();
    leave(dir.path());
    let second = process(dir.path(), [2; 16], RUN);
    second.ledger.stop_proving();
    let fault = second.open(&file(0, "f", LEN)).expect_err("it is over");
    assert_eq!(fault.code, FaultCode::Interrupted);
    drop(second);
    let held = process(dir.path(), [2; 16], RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![0, 1, 2]));
}

#[test]
fn what_a_run_committed_counts_for_that_run_alone() {
    let dir = scratch();
    let first = process(dir.path(), BOOT, RUN);
    let done = file(1, "done", LEN);
    first.open(&done).expect("opened");
    first.ledger.write(&[receiver::JournalEntry::Done(done.id)]).expect("written down");
    let rest = file(2, "rest", LEN);
    first.open(&rest).expect("opened");
    drop(first);
    for (run, committed) in [(RUN, true), ([8; 16], false), ([0; 16], false)] {
        let process = process(dir.path(), BOOT, run);
        let known = process.ledger.claim(&process.tree, &done, Arriving::InChunks).expect("claimed");
        assert_eq!(known.committed, committed, "{run:?}");
    }
}

#[test]
fn two_files_of_two_journals_are_gone_on_with_side_by_side() {
    let dir = scratch();
    for name in ["a", "b"] {
        let process = process(dir.path(), BOOT, RUN);
        process.open(&file(0, name, LEN)).expect("opened");
    }
    let (one, two) = (process(dir.path(), BOOT, [3; 16]), process(dir.path(), BOOT, [4; 16]));
    assert_eq!(one.open(&file(0, "a", LEN)).expect("nobody has it"), Some(vec![]));
    assert_eq!(two.open(&file(0, "b", LEN)).expect("nobody has it"), Some(vec![]));
    let fault = process(dir.path(), BOOT, [5; 16]).open(&file(0, "a", LEN)).expect_err("one has it");
    assert_eq!(fault.code, FaultCode::Busy);
}

#[test]
fn a_journal_that_is_only_looked_through_is_waited_for() {
    let dir = scratch();
    leave(dir.path());
    let next = process(dir.path(), BOOT, RUN);
    let shelf = next.tree.shelf().clone();
    let tag = shelf.list().expect("a shelf")[0];
    let Ok(Shelved::Free(journal)) = shelf.open(tag) else { panic!("nobody has it") };
    let now = next.ledger.store.acquire(tag, Duration::ZERO).expect("looked");
    assert!(matches!(now, Acquired::Elsewhere), "who does not wait finds it held");
    let (begins, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            begins.send(()).expect("heard");
            next.open(&file(0, "f", LEN))
        });
        begun.recv().expect("it begins");
        drop(journal);
        assert_eq!(opening.join().expect("no panic").expect("free again"), Some(vec![0, 1, 2]));
    });
}

/// Makes a small temporary in `d`, as a session does that is killed before the rename.
fn leave_small(dir: &Path, who: &Principal) {
    fs::create_dir_all(dir.join("d")).expect("made");
    let process = process_of(dir, BOOT, RUN, who);
    let held = file(0, "d/small", 3);
    process.ledger.begin(std::iter::once(&held)).expect("written down");
    let staged = process.tree.write_small(&held.placed, b"abc", &held.entry.meta, Preserve::default());
    std::mem::forget(staged.expect("staged"));
}

#[test]
fn temporaries_of_small_files_go_with_the_next_session_of_their_principal() {
    let dir = scratch();
    leave_small(dir.path(), &Principal::local());
    assert_eq!((temps(&dir.path().join("d")).len(), journals(dir.path())), (1, 1));
    let other = process_of(dir.path(), BOOT, RUN, &stranger());
    other.ledger.put_away(&other.tree);
    drop(other);
    assert_eq!((temps(&dir.path().join("d")).len(), journals(dir.path())), (1, 1), "a stranger leaves it alone");
    drop(process(dir.path(), BOOT, RUN));
    assert_eq!((temps(&dir.path().join("d")).len(), journals(dir.path())), (1, 1), "who does nothing removes nothing");
    let next = process(dir.path(), BOOT, RUN);
    next.ledger.put_away(&next.tree);
    assert_eq!(temps(&dir.path().join("d")).len(), 0);
    assert!(!dir.path().join(".longhaul").exists());
}

#[test]
fn a_journal_stays_as_long_as_a_directory_of_it_cannot_be_looked_through_from_here() {
    let dir = scratch();
    leave_small(dir.path(), &Principal::local());
    let tree = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    let store = RootJournals::with(tree.shelf().clone(), Layout::WHOLE, BOOT, usize::MAX);
    let elsewhere = RelPath::new("e").expect("a path");
    let ledger = store.begin(&Principal::local(), RUN, elsewhere, Arc::default()).expect("begins");
    ledger.put_away(&tree);
    assert_eq!((temps(&dir.path().join("d")).len(), journals(dir.path())), (1, 1));
}

#[test]
fn a_session_that_ends_removes_its_own_journal_and_keeps_that_of_a_partial() {
    let dir = scratch();
    let ended = process(dir.path(), BOOT, RUN);
    ended.ledger.begin(std::iter::once(&file(0, "x", 3))).expect("begun");
    assert_eq!(journals(dir.path()), 1);
    ended.ledger.close(&ended.tree);
    assert_eq!(journals(dir.path()), 0);
    let kept = process(dir.path(), BOOT, RUN);
    kept.open(&file(0, "f", LEN)).expect("opened");
    kept.ledger.close(&kept.tree);
    assert_eq!((journals(dir.path()), temps(dir.path()).len()), (1, 1));
}

#[test]
fn what_is_left_of_a_file_that_became_short_goes_when_that_is_committed() {
    let dir = scratch();
    leave(dir.path());
    let next = process(dir.path(), BOOT, [8; 16]);
    let short = file(0, "f", 5);
    let known = next.ledger.claim(&next.tree, &short, Arriving::Whole).expect("claimed");
    assert!(known.partial.is_none() && next.ledger.concerns(&short));
    next.ledger.settled(&next.tree, &short, &Outcome::Committed(None));
    assert_eq!(temps(dir.path()).len(), 0);
    assert!(!next.ledger.concerns(&short));
    next.ledger.put_away(&next.tree);
    assert_eq!(journals(dir.path()), 0);
}

#[test]
fn of_two_partials_the_poorer_goes_with_its_temporary() {
    let dir = scratch();
    leave(dir.path());
    let rich = temps(dir.path());
    // Two processes that found nothing at first leave such a state.
    fs::rename(dir.path().join(".longhaul"), dir.path().join("aside")).expect("away");
    let poor = process(dir.path(), BOOT, RUN);
    poor.open(&file(0, "f", LEN)).expect("opened");
    drop(poor);
    for journal in fs::read_dir(dir.path().join("aside")).expect("a directory") {
        let journal = journal.expect("a journal");
        fs::rename(journal.path(), dir.path().join(".longhaul").join(journal.file_name())).expect("back");
    }
    assert_eq!(temps(dir.path()).len(), 2);
    let held = process(dir.path(), BOOT, RUN).open(&file(0, "f", LEN));
    assert_eq!(held.expect("opened"), Some(vec![0, 1, 2]));
    assert_eq!(temps(dir.path()), rich);
}

#[test]
fn doubts_outlive_their_process_for_everybody_until_the_name_is_committed_anew() {
    let dir = scratch();
    let (doubtful, other) = (file(0, "d/x", 3), file(1, "d/y", 3));
    let first = process(dir.path(), BOOT, RUN);
    assert!(!first.ledger.is_doubtful(&doubtful.placed));
    let names = vec![Arc::new(file(0, "d/x", 3)), Arc::new(file(1, "d/y", 3))];
    first.ledger.write(&[receiver::JournalEntry::Doubtful(names)]).expect("written down");
    assert!(first.ledger.is_doubtful(&doubtful.placed));
    first.ledger.put_away(&first.tree);
    drop(first);
    for who in [Principal::local(), stranger()] {
        let process = process_of(dir.path(), BOOT, RUN, &who);
        let known = process.ledger.claim(&process.tree, &doubtful, Arriving::Whole).expect("claimed");
        assert!(known.doubtful, "{who:?}");
        process.ledger.settled(&process.tree, &doubtful, &Outcome::Skipped);
        process.ledger.put_away(&process.tree);
    }
    let third = process_of(dir.path(), BOOT, RUN, &stranger());
    assert!(third.ledger.concerns(&doubtful));
    third.ledger.settled(&third.tree, &doubtful, &Outcome::Committed(None));
    third.ledger.close(&third.tree);
    assert!(!third.ledger.is_doubtful(&doubtful.placed) && third.ledger.is_doubtful(&other.placed));
    let fourth = process(dir.path(), BOOT, RUN);
    assert!(!fourth.ledger.is_doubtful(&doubtful.placed) && fourth.ledger.is_doubtful(&other.placed));
    fourth.ledger.end_doubts(&[other.placed]);
    assert_eq!(journals(dir.path()), 0);
}

/// Notes the calls that change journals and temporaries.
#[derive(Debug, Default)]
struct Notes(StdMutex<Vec<&'static str>>);

impl Interposer for Notes {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let note = match call {
            Call::Create { name, .. } if name.ends_with(b".journal") => Some("journal made"),
            Call::Create { .. } => Some("temporary made"),
            Call::Write { bytes, .. } if bytes.windows(7).any(|word| word == b"some/at") => {
                Some("directory written down")
            }
            Call::SyncData { .. } => Some("synced"),
            _ => None,
        };
        self.0.lock().expect("no panic").extend(note);
        Passage::Made(0)
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

#[test]
fn a_directory_is_durably_written_down_before_its_first_temporary() {
    let dir = scratch();
    fs::create_dir_all(dir.path().join("some/at")).expect("made");
    let notes = Arc::new(Notes::default());
    let tree = FsTarget::open_behind(dir.path(), DirectMode::Auto, notes.clone()).expect("target");
    let store = RootJournals::with(tree.shelf().clone(), Layout::WHOLE, BOOT, usize::MAX);
    let ledger = store.begin(&Principal::local(), RUN, RelPath::root(), Arc::default()).expect("begins");
    let held = file(0, "some/at/f", LEN);
    ledger.claim(&tree, &held, Arriving::InChunks).expect("claimed");
    ledger.open(&tree, &held, None, size(), true).expect("opened");
    let small = file(1, "some/at/g", 3);
    ledger.begin(std::iter::once(&small)).expect("known already");
    let notes = notes.0.lock().expect("no panic");
    let until = notes.iter().position(|note| *note == "temporary made").expect("made");
    let before = &notes[..until];
    assert_eq!(before[..3], ["journal made", "directory written down", "synced"], "{notes:?}");
    assert_eq!(notes.iter().filter(|note| **note == "synced").count(), 1, "once for a directory: {notes:?}");
}

#[test]
fn of_a_client_no_more_unfinished_transfers_are_kept_than_may_be_and_those_are_still_gone_on_with() {
    let dir = scratch();
    let process = |who: &Principal| {
        let tree = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
        let store = RootJournals::with(tree.shelf().clone(), Layout::WHOLE, BOOT, 2);
        let ledger = store.begin(who, RUN, RelPath::root(), Arc::default()).expect("begins");
        Process { tree: tree.tagged(ledger.tag()), ledger }
    };
    for name in ["a", "b"] {
        let (one, held) = (process(&Principal::local()), file(0, name, LEN));
        one.open(&held).expect("there is room");
        one.receive(dir.path(), &held, 0..2);
    }
    let third = process(&Principal::local());
    let fault = third.open(&file(0, "c", LEN)).expect_err("two are left");
    assert_eq!(fault.code, FaultCode::NoSpace);
    assert!(fault.message.contains("2 transfers"), "{fault:?}");
    assert_eq!(fault.hint, Some(hint::Daemon::FinishOrAskForUnfinished.into()));
    assert!(third.open(&file(1, "a", LEN)).expect("it goes on").is_some());
    assert_eq!(process(&stranger()).open(&file(0, "c", LEN)).expect("another's"), None);
}

#[test]
fn partials_are_listed_as_far_as_there_is_room_for_them() {
    let dir = scratch();
    let names = ["a", "b", "c"].map(|name| name.repeat(200));
    let process = process(dir.path(), BOOT, RUN);
    for (id, name) in (0..).zip(&names) {
        process.open(&file(id, name, LEN)).expect("opened");
    }
    let store = RootJournals::with(process.tree.shelf().clone(), Layout::WHOLE, BOOT, usize::MAX);
    let principal = Principal::local().principal;
    let mut bytes = 0;
    let all = store.partials_within(&principal, &RelPath::root(), &mut |more| {
        bytes += more;
        Ok(())
    });
    assert_eq!(all.expect("room for all").len(), names.len());
    assert!((3 * 300..3 * 2000).contains(&bytes), "{bytes}");
    let mut asked = 0;
    let refused = store.partials_within(&principal, &RelPath::root(), &mut |_| {
        asked += 1;
        if asked < 2 { Ok(()) } else { Err(Fault::new(FaultCode::Busy, Blame::Local, "no more")) }
    });
    assert_eq!(refused.map(drop).map_err(|fault| fault.code), Err(FaultCode::Busy));
    assert_eq!(asked, 2, "what follows is not even read");
}

#[test]
fn a_start_does_not_wait_for_a_journal_that_somebody_else_is_at() {
    let dir = scratch();
    leave_small(dir.path(), &stranger());
    let tree = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    let store = RootJournals::with(tree.shelf().clone(), Layout::WHOLE, BOOT, usize::MAX);
    // A replay or a sweep of a journal holds it so.
    let entry = store.books.entry(store.shelf.list().expect("a shelf")[0]);
    let _at_it = crate::journals::open_files::lock(&entry);
    let ledger = store.begin(&Principal::local(), RUN, RelPath::root(), Arc::default()).expect("begins");
    let process = Process { tree: tree.tagged(ledger.tag()), ledger };
    assert_eq!(process.open(&file(0, "mine", LEN)).expect("opened"), None);
}
