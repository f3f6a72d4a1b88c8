//! Readers of all kinds at one place, in virtual time: each with several threads, and each of these
//! steps when the schedule says so.

use std::collections::{BTreeMap, HashSet};

use longhaul_core::Mtime;
use proptest::prelude::*;

use super::*;

/// Bytes of each block.
const BYTES: usize = 8;

/// What a thread of a reader does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Nothing,
    Wants(u64),
    Reads(u64),
    /// Waits for a block to land.
    AwaitsLanding(u64),
    /// Waits for room, up to this time.
    AwaitsRoom(u64, Duration),
}

/// A reader, the blocks that it has not asked for yet, the last one first, and its threads.
struct Reader {
    wants: Vec<u64>,
    threads: Vec<Doing>,
    taken: Vec<u64>,
}

struct World {
    blocks: SharedBlocks,
    readers: Vec<Reader>,
    /// The blocks whose bytes are there.
    kept: HashSet<u64>,
    now: Duration,
    /// How often each block was read from the disk.
    reads: BTreeMap<u64, usize>,
    /// The time for which each reader had a thread that waited for room.
    waited: Vec<Duration>,
}

fn key(number: u64) -> BlockKey {
    let never = Mtime { secs: 0, nanos: 0 };
    BlockKey { file: Identity { dev: 1, ino: 2, len: u64::MAX, mtime: never, ctime: never }, number }
}

const SIZE: BlockSize = BlockSize { len: BYTES, kept: BYTES as u64 };

impl World {
    fn new(room_blocks: u64, wants: Vec<Vec<u64>>, threads: usize) -> World {
        let blocks = SharedBlocks::new(room_blocks * BYTES as u64, wants.len());
        let waited = vec![Duration::ZERO; wants.len()];
        let reader = |mut wants: Vec<u64>| {
            wants.reverse();
            Reader { wants, threads: vec![Doing::Nothing; threads], taken: Vec::new() }
        };
        let readers = wants.into_iter().map(reader).collect();
        World { blocks, readers, kept: HashSet::new(), now: Duration::ZERO, reads: BTreeMap::new(), waited }
    }

    fn is_over(&self, reader: usize) -> bool {
        let Reader { wants, threads, .. } = &self.readers[reader];
        wants.is_empty() && threads.iter().all(|doing| *doing == Doing::Nothing)
    }

    /// Has a thread take one step. Gives whether it could.
    fn step(&mut self, reader: usize, thread: usize) -> bool {
        let doing = self.readers[reader].threads[thread];
        let next = match doing {
            Doing::Nothing => match self.readers[reader].wants.pop() {
                Some(number) => Doing::Wants(number),
                None => return false,
            },
            Doing::Wants(number) => self.ask(reader, number),
            Doing::Reads(number) => {
                *self.reads.entry(number).or_default() += 1;
                self.kept.insert(number);
                self.blocks.landed(key(number));
                self.wake();
                Doing::Wants(number)
            }
            Doing::AwaitsRoom(number, until) if self.now >= until => self.ask(reader, number),
            Doing::AwaitsLanding(_) | Doing::AwaitsRoom(..) => return false,
        };
        self.readers[reader].threads[thread] = next;
        if self.is_over(reader) {
            self.blocks.leave(ReaderId(reader));
            self.wake();
        }
        self.check();
        true
    }

    fn ask(&mut self, reader: usize, number: u64) -> Doing {
        let answer = self.blocks.want(ReaderId(reader), key(number), SIZE, self.now);
        while let Some(left) = self.blocks.poll_leaving() {
            assert!(self.kept.remove(&left.number), "{left:?} left and was not there");
        }
        match answer {
            BlockAnswer::Take => {
                assert!(self.kept.contains(&number), "{number} is to be taken and is not there");
                self.readers[reader].taken.push(number);
                if self.blocks.took(ReaderId(reader), key(number), BYTES) {
                    self.wake();
                }
                Doing::Nothing
            }
            BlockAnswer::Landing => Doing::AwaitsLanding(number),
            BlockAnswer::Read => Doing::Reads(number),
            BlockAnswer::Alone => {
                *self.reads.entry(number).or_default() += 1;
                self.readers[reader].taken.push(number);
                Doing::Nothing
            }
            BlockAnswer::Full(most) => {
                assert!(!most.is_zero(), "a wait must come to an end by time");
                Doing::AwaitsRoom(number, self.now + most)
            }
        }
    }

    /// All that wait ask again, as the threads of a reader do when they are notified.
    fn wake(&mut self) {
        for doing in self.readers.iter_mut().flat_map(|reader| &mut reader.threads) {
            if let Doing::AwaitsLanding(number) | Doing::AwaitsRoom(number, _) = *doing {
                *doing = Doing::Wants(number);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        for (reader, waited) in self.readers.iter().zip(&mut self.waited) {
            if reader.threads.iter().any(|doing| matches!(doing, Doing::AwaitsRoom(..))) {
                *waited += time;
            }
        }
        self.now += time;
    }

    fn check(&self) {
        assert!(self.blocks.kept <= self.blocks.room, "{} of {} bytes", self.blocks.kept, self.blocks.room);
        assert!(self.kept.len() as u64 * BYTES as u64 <= self.blocks.room);
        for (number, state) in self.blocks.readers.iter().enumerate() {
            let owed = self.blocks.blocks.values().filter(|block| block.owed & ReaderId(number).bit() != 0);
            assert_eq!(owed.map(|block| block.size.kept).sum::<u64>(), state.owed, "debts to reader {number}");
        }
        let spare = self.blocks.blocks.values().filter(|block| block.is_spare()).count();
        assert_eq!(spare, self.blocks.spare.len());
        assert_eq!(self.blocks.order.len(), self.blocks.blocks.len());
    }

    /// Runs the threads in turn, as often for each reader as `pace` says, until those are over that
    /// have a pace at all.
    fn run(&mut self, pace: &[usize], tick: Duration) {
        for round in 0..1_000_000 {
            let mut moved = false;
            for (reader, steps) in pace.iter().enumerate() {
                let threads = self.readers[reader].threads.len();
                for step in 0..*steps {
                    moved |= self.step(reader, (round + step) % threads);
                }
            }
            if (0..pace.len()).all(|reader| pace[reader] == 0 || self.is_over(reader)) {
                return;
            }
            self.pass(if moved { tick } else { tick.max(Duration::from_millis(10)) });
        }
        panic!("they do not come to an end: {:?}", self.readers.iter().map(|r| &r.threads).collect::<Vec<_>>());
    }

    fn took_all(&self, reader: usize, wanted: impl IntoIterator<Item = u64>) -> bool {
        let mut taken = self.readers[reader].taken.clone();
        taken.sort_unstable();
        taken.into_iter().eq(wanted)
    }
}

const TICK: Duration = Duration::from_millis(1);

#[test]
fn readers_that_keep_up_have_each_block_read_once() {
    for readers in [2, 3, 5] {
        let mut world = World::new(8, vec![(0..500).collect(); readers], 3);
        world.run(&vec![3; readers], TICK);
        assert!(world.reads.values().all(|times| *times == 1), "{readers}: {:?}", world.reads);
        assert!((0..readers).all(|reader| world.took_all(reader, 0..500)));
    }
}

#[test]
fn one_that_begins_late_is_waited_for() {
    let mut world = World::new(8, vec![(0..100).collect(); 2], 2);
    while world.now < Duration::from_secs(3) {
        for thread in 0..2 {
            world.step(0, thread);
        }
        world.pass(TICK);
    }
    assert!(!world.is_over(0), "it waits");
    world.run(&[2, 2], TICK);
    assert!(world.reads.values().all(|times| *times == 1), "{:?}", world.reads);
}

#[test]
fn one_that_stands_still_holds_the_others_no_longer_than_its_credit() {
    let mut world = World::new(8, vec![(0..500).collect(); 3], 2);
    world.run(&[2, 2, 0], TICK);
    let most = CREDIT + CREDIT / GIVEN_BACK_PART + Duration::from_millis(600);
    assert!(world.waited[..2].iter().all(|waited| *waited <= most), "{:?}", world.waited);
    assert!(world.reads.values().all(|times| *times == 1), "{:?}", world.reads);
    // It goes on by itself, and gets all.
    world.run(&[0, 0, 2], TICK);
    assert!(world.took_all(2, 0..500));
}

#[test]
fn a_slow_one_costs_the_others_no_more_than_its_credit_and_a_tenth_of_the_time() {
    let mut world = World::new(8, vec![(0..40_000).collect(), (0..2000).collect()], 2);
    // Its one step to the other's forty: it reads for itself before long.
    while !world.is_over(0) {
        for _ in 0..20 {
            for thread in 0..2 {
                world.step(0, thread);
            }
        }
        world.step(1, 0);
        world.pass(Duration::from_millis(20));
    }
    let most = CREDIT + world.now / GIVEN_BACK_PART + Duration::from_secs(1);
    assert!(world.waited[0] <= most, "{:?} of {:?}", world.waited[0], world.now);
}

#[test]
fn one_that_has_half_of_it_takes_part_in_the_other_half() {
    let odd: Vec<u64> = (0..600).filter(|number| number % 2 == 1).collect();
    let mut world = World::new(16, vec![(0..600).collect(), odd.clone()], 2);
    world.run(&[4, 2], TICK);
    assert!(world.took_all(1, odd));
    let again = world.reads.values().map(|times| times - 1).sum::<usize>();
    assert!(again <= 16, "{again} blocks were read twice");
}

#[test]
fn those_that_have_the_first_half_do_not_hold_the_one_that_has_not_and_not_each_other() {
    let behind: Vec<u64> = (300..600).collect();
    let mut world = World::new(16, vec![(0..600).collect(), behind.clone(), behind.clone()], 2);
    world.run(&[2, 2, 2], TICK);
    assert!(world.waited.iter().all(|waited| *waited < Duration::from_secs(2)), "{:?}", world.waited);
    assert!(world.took_all(0, 0..600) && world.took_all(1, 300..600) && world.took_all(2, 300..600));
    // What two have in common is read once for the two, and once for the one that comes later.
    assert!(world.reads.values().all(|times| *times <= 2), "{:?}", world.reads);
}

#[test]
fn a_block_that_cannot_be_read_is_read_by_the_next_who_wants_it() {
    let mut blocks = SharedBlocks::new(64, 2);
    let (one, other) = (ReaderId(0), ReaderId(1));
    assert_eq!(blocks.want(one, key(7), SIZE, Duration::ZERO), BlockAnswer::Read);
    assert_eq!(blocks.want(other, key(7), SIZE, Duration::ZERO), BlockAnswer::Landing);
    blocks.failed(key(7));
    assert_eq!(blocks.want(other, key(7), SIZE, Duration::ZERO), BlockAnswer::Read);
    assert_eq!(blocks.kept, SIZE.kept);
}

#[test]
fn a_block_that_is_taken_in_parts_stays_until_all_of_it_is_taken() {
    let mut blocks = SharedBlocks::new(2 * BYTES as u64, 1);
    let reader = ReaderId(0);
    assert_eq!(blocks.want(reader, key(0), SIZE, Duration::ZERO), BlockAnswer::Read);
    blocks.landed(key(0));
    for _ in 0..BYTES / 2 {
        assert_eq!(blocks.want(reader, key(0), SIZE, Duration::ZERO), BlockAnswer::Take);
        assert!(blocks.spare.is_empty());
        blocks.took(reader, key(0), 2);
    }
    assert_eq!(blocks.spare.len(), 1);
}

#[test]
fn a_block_larger_than_the_place_is_read_alone() {
    let mut blocks = SharedBlocks::new(BYTES as u64 - 1, 2);
    assert_eq!(blocks.want(ReaderId(0), key(0), SIZE, Duration::ZERO), BlockAnswer::Alone);
}

proptest! {
    /// Whatever each reader wants, in whatever order, and whoever goes on: all come to an end, each
    /// has what it wanted, and the place never holds more than it may.
    #[test]
    fn readers_of_all_kinds_come_to_their_end(
        room in 1u64..12,
        wants in prop::collection::vec(prop::collection::vec(0u64..60, 0..80), 1..5),
        threads in 1usize..4,
        schedule in prop::collection::vec((0usize..5, 0usize..4, 0u64..40), 0..600),
    ) {
        let wants: Vec<Vec<u64>> = wants.into_iter().map(|mut wants| {
            let mut seen = HashSet::new();
            wants.retain(|number| seen.insert(*number));
            wants
        }).collect();
        let readers = wants.len();
        let mut world = World::new(room, wants.clone(), threads);
        for (reader, thread, time) in schedule {
            world.step(reader % readers, thread % threads);
            world.pass(Duration::from_millis(time));
        }
        world.run(&vec![threads; readers], TICK);
        for (reader, mut wants) in wants.into_iter().enumerate() {
            wants.sort_unstable();
            prop_assert!(world.took_all(reader, wants));
        }
    }
}
