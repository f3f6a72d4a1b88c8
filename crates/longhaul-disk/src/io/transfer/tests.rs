//! Tests of the decisions of one request; the test plays the system's answers.

use longhaul_sys::Slab;

use super::*;
use crate::error::ErrorKind;
use crate::testing::{content, find, map, path, source_of, temp};
use crate::{DirectMode, FsTarget, SourceTree, TargetTree};

const SLOT: usize = 64 << 10;

struct Scratch {
    dir: tempfile::TempDir,
    slot: Vec<u8>,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { dir: tempfile::tempdir().expect("tempdir"), slot: vec![0xee; SLOT] }
    }

    fn read(&self, direct: DirectMode, file_len: u64, offset: u64) -> Job {
        std::fs::write(self.dir.path().join("f"), content(file_len)).expect("file");
        let source = source_of(self.dir.path(), direct);
        let (at, identity) = find(&source, &path("f"));
        Job::Read { file: source.open(&at, &identity).expect("open"), body: None, offset }
    }

    fn write(&self, direct: DirectMode, file_len: u64, offset: u64, sparse: bool) -> Job {
        let target = FsTarget::open(self.dir.path(), direct).expect("target");
        let file = target.create(&path("f"), map(file_len), sparse, &temp()).expect("create");
        let place = Place::whole(offset);
        Job::Write { file, place }
    }
}

/// The alignment that direct requests have here. `None` if the scratch directory has no direct I/O.
fn direct_align(job: &Job) -> Option<usize> {
    let align = job.handle().map(Handle::align).filter(|align| *align > 1);
    if align.is_none() {
        eprintln!("SKIPPED: no direct I/O on the scratch directory");
    }
    align
}

fn errno(errno: Errno) -> io::Result<usize> {
    Err(errno.into())
}

#[test]
fn short_reads_go_on_where_they_stopped() {
    let scratch = Scratch::new();
    let job = scratch.read(DirectMode::Buffered, 10_000, 1000);
    let mut transfer = Transfer::begin(&job, 9000, SLOT).expect("begin");
    for (range, moved) in [(0..9000, 1), (1..9000, 4000), (4001..9000, 4999)] {
        let step = transfer.next(&scratch.slot).expect("step").expect("more");
        assert_eq!(step, Step::Read { offset: 1000 + range.start as u64, range });
        transfer.absorb(&step, Ok(moved)).expect("progress");
    }
    assert_eq!(transfer.next(&scratch.slot).expect("end"), None);
}

#[test]
fn short_direct_reads_go_on_at_the_last_whole_block() {
    let scratch = Scratch::new();
    let job = scratch.read(DirectMode::Auto, 10_000, 0);
    let Some(align) = direct_align(&job) else { return };
    let mut transfer = Transfer::begin(&job, 10_000, SLOT).expect("begin");
    let end = 10_000_usize.next_multiple_of(align);
    let first = transfer.next(&scratch.slot).expect("step").expect("more");
    assert_eq!(first, Step::Read { range: 0..end, offset: 0 });
    transfer.absorb(&first, Ok(align + 1)).expect("progress");
    let second = transfer.next(&scratch.slot).expect("step").expect("more");
    assert_eq!(second, Step::Read { range: align..end, offset: align as u64 });
    let stuck = transfer.absorb(&second, Ok(1)).expect_err("ends here");
    assert_eq!(stuck.kind(), ErrorKind::Changed);
}

#[test]
fn a_refused_direct_request_is_tried_once_more_through_the_cache() {
    let scratch = Scratch::new();
    let job = scratch.write(DirectMode::Auto, 5000, 0, false);
    let Some(align) = direct_align(&job) else { return };
    let mut transfer = Transfer::begin(&job, 5000, SLOT).expect("begin");
    let step = transfer.next(&scratch.slot).expect("step").expect("more");
    assert_eq!(step, Step::Write { range: 0..5000_usize.next_multiple_of(align), offset: 0 });
    let slab = Slab::new(SLOT, 1).expect("slab");
    let mut slot = slab.claim().expect("slot");
    slot.fill(0xee);
    let mut buffer = Buffer::Own(slot);
    transfer.pad(&step, &mut buffer);
    let tail = 5000..5000_usize.next_multiple_of(align);
    assert!(buffer.bytes()[tail.clone()].iter().all(|&b| b == 0), "the tail is padded");
    assert_eq!((buffer.bytes()[tail.start - 1], buffer.bytes().get(tail.end)), (0xee, Some(&0xee)));
    transfer.absorb(&step, errno(Errno::INVAL)).expect("falls back");
    let again = transfer.next(&scratch.slot).expect("step").expect("more");
    assert_eq!(again, Step::Write { range: 0..5000, offset: 0 });
    assert!(transfer.absorb(&again, errno(Errno::INVAL)).is_err(), "once only");
}

#[test]
fn a_request_that_was_out_while_another_fell_back_is_tried_again() {
    let scratch = Scratch::new();
    let job = scratch.read(DirectMode::Auto, 5000, 0);
    if direct_align(&job).is_none() {
        return;
    }
    let mut transfer = Transfer::begin(&job, 5000, SLOT).expect("begin");
    let step = transfer.next(&scratch.slot).expect("step").expect("more");
    job.handle().expect("file").fall_back("another request").expect("allowed");
    transfer.absorb(&step, errno(Errno::INVAL)).expect("not this request's fault");
    assert_eq!(transfer.next(&scratch.slot).expect("step"), Some(Step::Read { range: 0..5000, offset: 0 }));
}

#[test]
fn where_direct_io_is_required_a_refusal_is_an_error() {
    let scratch = Scratch::new();
    std::fs::write(scratch.dir.path().join("probe"), b"").expect("file");
    let target = FsTarget::open(scratch.dir.path(), DirectMode::Direct).expect("target");
    let Ok(file) = target.create(&path("f"), map(4096), false, &temp()) else {
        eprintln!("SKIPPED: no direct I/O on the scratch directory");
        return;
    };
    let place = Place::whole(0);
    let job = Job::Write { file, place };
    let mut transfer = Transfer::begin(&job, 4096, SLOT).expect("begin");
    let step = transfer.next(&scratch.slot).expect("step").expect("more");
    let error = transfer.absorb(&step, errno(Errno::INVAL)).expect_err("required");
    assert!(matches!(error, DiskError::NoDirect { .. }));
}

#[test]
fn interrupted_calls_are_made_again_and_writes_of_nothing_fail() {
    let scratch = Scratch::new();
    let job = scratch.write(DirectMode::Buffered, 5000, 0, false);
    let mut transfer = Transfer::begin(&job, 5000, SLOT).expect("begin");
    let step = transfer.next(&scratch.slot).expect("step").expect("more");
    transfer.absorb(&step, errno(Errno::INTR)).expect("interrupted");
    assert_eq!(transfer.next(&scratch.slot).expect("step"), Some(step.clone()));
    assert_eq!(transfer.absorb(&step, Ok(0)).expect_err("nothing moved").kind(), ErrorKind::Io);
    assert_eq!(transfer.absorb(&step, errno(Errno::NOSPC)).expect_err("full").kind(), ErrorKind::NoSpace);
}

#[test]
fn space_is_reserved_once_per_stretch_and_not_where_that_is_unsupported_or_too_much() {
    [Errno::OPNOTSUPP, Errno::NOSPC, Errno::DQUOT].into_iter().for_each(reserve_until);
}

/// Checks that a refused reservation is no failure: the write itself says whether it fits.
fn reserve_until(refused: Errno) {
    let mut scratch = Scratch::new();
    let job = scratch.write(DirectMode::Buffered, 1 << 40, 0, false);
    let Job::Write { file, .. } = &job else { return };
    let step = |offset: u64, scratch: &mut Scratch, outcome: io::Result<usize>| {
        let job = Job::Write { file: Arc::clone(file), place: Place::whole(offset) };
        let mut transfer = Transfer::begin(&job, 4096, SLOT).expect("begin");
        let step = transfer.next(&scratch.slot).expect("step").expect("more");
        let reserves = matches!(step, Step::Reserve { .. });
        (reserves, transfer.absorb(&step, outcome).map_err(|error| error.kind()))
    };
    assert_eq!(step(0, &mut scratch, Ok(0)), (true, Ok(())));
    assert_eq!(step(1 << 20, &mut scratch, Ok(4096)), (false, Ok(())));
    assert_eq!(step(1 << 30, &mut scratch, errno(Errno::IO)), (true, Err(ErrorKind::Io)));
    assert_eq!(step(1 << 31, &mut scratch, errno(refused)), (true, Ok(())));
    assert_eq!(step(1 << 32, &mut scratch, Ok(4096)), (false, Ok(())));
}

#[test]
fn runs_of_data_in_a_sparse_file_are_written_and_holes_are_not() {
    let mut scratch = Scratch::new();
    let block = 16 << 10;
    let job = scratch.write(DirectMode::Buffered, 1 << 20, 8 << 10, true);
    scratch.slot.fill(0);
    // The request starts in the middle of a block: its first piece has 8 KiB.
    let first = block - (8 << 10);
    scratch.slot[first] = 1;
    scratch.slot[first + 2 * block - 1] = 1;
    scratch.slot[SLOT - 1] = 1;
    let mut transfer = Transfer::begin(&job, SLOT, SLOT).expect("begin");
    let mut steps = Vec::new();
    while let Some(step) = transfer.next(&scratch.slot).expect("step") {
        if let Step::Write { range, .. } = &step {
            steps.push(range.clone());
            transfer.absorb(&step, Ok(range.len())).expect("written");
        }
    }
    assert_eq!(steps, [first..first + 2 * block, first + 3 * block..SLOT]);
}
