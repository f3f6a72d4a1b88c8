//! Decides what becomes of each block of a source that several readers read at their own pace: who
//! reads it from the disk, how long it stays for the others, and who waits for whom.
//!
//! In: requests of readers, with the time; reports that a block was read or taken. Out: one
//! [`BlockAnswer`] to each request. Readers *in step* are owed each block that one of them reads.
//! A block stays until all who are owed it have taken it, or have gone past it. While the place is
//! full of what others are owed, a reader that is ahead waits; that time is charged to those who
//! are behind. Whoever has used up its credit falls out of step and is owed nothing: it reads for
//! itself, until it comes upon a block that another one has read. It reads nothing and has no
//! clock.

mod block;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use block::{Block, BlockTaken, ReaderSet, SpareBlocks};
pub(super) use block::{BlockKey, BlockSize, READERS_MAX, ReaderId};

/// The answer to a request for a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlockAnswer {
    /// It is there.
    Take,
    /// Another reader reads it. Ask again when it has landed.
    Landing,
    /// The reader is to read it into the place.
    Read,
    /// The reader is to read it for itself alone.
    Alone,
    /// There is no room yet. Ask again when there is more, and after this time in any case.
    Full(Duration),
}

/// The blocks of a source and its readers. See the module.
#[derive(Debug)]
pub(super) struct SharedBlocks {
    /// Bytes that the blocks may take together.
    room: u64,
    /// Bytes that they take.
    kept: u64,
    blocks: HashMap<BlockKey, Block>,
    /// The blocks by their place in the order in which they were read.
    order: BTreeMap<u64, BlockKey>,
    /// The blocks that are there and nobody is owed.
    spare: SpareBlocks,
    /// Blocks that have left the place since they were last asked for.
    leaving: Vec<BlockKey>,
    /// The place of the next block: bytes that all blocks before it took.
    end: u64,
    readers: Vec<ReaderState>,
    /// The readers for whose sake others wait, and since when.
    held_by: Option<(ReaderSet, Duration)>,
    /// The time up to which credit was given back.
    settled: Duration,
}

#[derive(Debug, Default)]
struct ReaderState {
    is_in_step: bool,
    is_over: bool,
    /// Whether it came upon a block of another reader, or another one upon its own, since it last
    /// had no use for what it was owed.
    has_met: bool,
    /// The place of the furthest block of another reader that it took.
    reach: u64,
    /// Bytes that it has taken or read for itself.
    taken: u64,
    /// Bytes of the blocks that it is owed.
    owed: u64,
    /// The places of the blocks that it is owed, in the order of these, each with the value of
    /// `taken` beyond which it has gone past the block. Some may not be owed to it any more.
    dues: VecDeque<(u64, u64)>,
    /// Blocks that are there and owed to it.
    owed_landed: usize,
    /// The places of the blocks that it asked for while they were being read, and has not taken.
    asked: Vec<u64>,
    /// The time since which it has waited for room, has taken nothing, and nothing has landed that
    /// it is owed.
    waits_since: Option<Duration>,
    /// The time for which others waited for it, less what was given back.
    charged: Duration,
}

impl SharedBlocks {
    /// A place of `room` bytes for so many readers (1 to [`READERS_MAX`]), all in step.
    pub(super) fn new(room: u64, readers: usize) -> SharedBlocks {
        let in_step = || ReaderState { is_in_step: true, ..ReaderState::default() };
        SharedBlocks {
            room,
            kept: 0,
            blocks: HashMap::new(),
            order: BTreeMap::new(),
            spare: SpareBlocks::default(),
            leaving: Vec::new(),
            end: 0,
            readers: (0..readers.clamp(1, READERS_MAX)).map(|_| in_step()).collect(),
            held_by: None,
            settled: Duration::ZERO,
        }
    }

    /// A reader wants a block.
    pub(super) fn want(&mut self, reader: ReaderId, key: BlockKey, size: BlockSize, now: Duration) -> BlockAnswer {
        self.settle(now);
        if self.blocks.contains_key(&key) {
            return self.meet(reader, key);
        }
        if !self.is_in_step(reader) && !self.readers.iter().any(|other| other.is_in_step) {
            // Whoever is alone goes ahead of those who may come up to it.
            self.bring_in_step(reader);
        }
        if !self.may_place(reader, size) {
            return self.alone(reader, size);
        }
        while self.kept + size.kept > self.room {
            if let Some(place) = self.spare.oldest() {
                self.remove(place);
            } else if !self.is_in_step(reader) || size.kept > self.room {
                return self.alone(reader, size);
            } else if let Some(wait) = self.wait_for_others(reader, now) {
                return BlockAnswer::Full(wait);
            }
        }
        self.held_by = None;
        self.add(reader, key, size);
        BlockAnswer::Read
    }

    /// Whether a reader may bring a block into the place at all. One that is out of step takes no
    /// room that those in step need: half of it stays for these.
    fn may_place(&self, reader: ReaderId, size: BlockSize) -> bool {
        let in_use = self.kept.saturating_sub(self.spare.bytes());
        let shares = self.is_in_step(reader) || !self.readers.iter().any(|other| other.is_in_step);
        shares || in_use + size.kept <= self.room / OUT_OF_STEP_PART
    }

    /// A reader reads a block for itself. Whoever waited has its answer: nobody is charged further.
    fn alone(&mut self, reader: ReaderId, size: BlockSize) -> BlockAnswer {
        self.held_by = None;
        self.advance(reader, size.kept);
        BlockAnswer::Alone
    }

    /// Whether a block is there, or is being read.
    pub(super) fn is_known(&self, key: BlockKey) -> bool {
        self.blocks.contains_key(&key)
    }

    /// A block was read, and is there from now on.
    pub(super) fn landed(&mut self, key: BlockKey) {
        if let Some(block) = self.blocks.get_mut(&key).filter(|block| !block.is_landed) {
            block.is_landed = true;
            for reader in ReaderId::all_of(block.wanted()) {
                if let Some(state) = self.readers.get_mut(reader.0) {
                    state.owed_landed += usize::from(block.owed & reader.bit() != 0);
                    state.waits_since = None;
                }
            }
        }
        self.note_spare(key);
    }

    /// A block could not be read. Whoever wants it asks again, and reads it then.
    pub(super) fn failed(&mut self, key: BlockKey) {
        self.drop_block(key);
    }

    /// A reader took so many bytes of a block. Gives whether there may be more room now.
    pub(super) fn took(&mut self, reader: ReaderId, key: BlockKey, bytes: usize) -> bool {
        let spare = self.spare.count();
        if let Some(block) = self.blocks.get_mut(&key) {
            let (taken, place) = (block.take(reader, bytes), block.place);
            if let Some(state) = self.readers.get_mut(reader.0) {
                state.asked.retain(|asked| *asked != place);
                if block.reader != reader {
                    state.reach = state.reach.max(place);
                }
            }
            if taken == BlockTaken::Whole {
                self.settle_debt(reader, key);
            }
        }
        self.advance(reader, bytes as u64);
        self.note_spare(key);
        self.spare.count() > spare
    }

    /// A reader comes no more.
    pub(super) fn leave(&mut self, reader: ReaderId) {
        self.let_go(reader);
        if let Some(state) = self.readers.get_mut(reader.0) {
            state.is_over = true;
        }
    }

    /// The next block that has left the place.
    pub(super) fn poll_leaving(&mut self) -> Option<BlockKey> {
        self.leaving.pop()
    }

    /// A reader comes upon a block that is in the place, or will be.
    fn meet(&mut self, reader: ReaderId, key: BlockKey) -> BlockAnswer {
        let Some(block) = self.blocks.get_mut(&key) else { return BlockAnswer::Alone };
        let (by, is_landed) = (block.reader, block.is_landed);
        if !is_landed && block.asked & reader.bit() == 0 {
            block.asked |= reader.bit();
            if let Some(state) = self.readers.get_mut(reader.0) {
                state.asked.push(block.place);
            }
        }
        if by != reader {
            self.met(reader);
            self.met(by);
        }
        if is_landed { BlockAnswer::Take } else { BlockAnswer::Landing }
    }

    fn add(&mut self, reader: ReaderId, key: BlockKey, size: BlockSize) {
        let (place, slack) = (self.end, self.room / SLACK_PART);
        let mut owed = 0;
        let shares = self.is_in_step(reader);
        for (number, state) in self.readers.iter_mut().enumerate().filter(|(_, state)| shares && state.is_in_step) {
            owed |= ReaderId(number).bit();
            state.owed += size.kept;
            state.dues.push_back((place, state.taken + state.owed + slack));
        }
        if let Some(state) = self.readers.get_mut(reader.0) {
            state.asked.push(place);
        }
        let (is_landed, asked, parts) = (false, reader.bit(), Vec::new());
        self.blocks.insert(key, Block { place, size, is_landed, reader, owed, asked, parts });
        self.order.insert(place, key);
        self.end += size.kept;
        self.kept += size.kept;
    }

    fn remove(&mut self, place: u64) {
        let Some(key) = self.order.get(&place).copied() else { return };
        self.drop_block(key);
        self.leaving.push(key);
    }

    fn drop_block(&mut self, key: BlockKey) {
        let owed = self.blocks.get(&key).map_or(0, |block| block.owed);
        ReaderId::all_of(owed).for_each(|reader| self.settle_debt(reader, key));
        if let Some(block) = self.blocks.remove(&key) {
            for reader in ReaderId::all_of(block.asked) {
                if let Some(state) = self.readers.get_mut(reader.0) {
                    state.asked.retain(|asked| *asked != block.place);
                }
            }
            self.spare.forget(&block);
            self.order.remove(&block.place);
            self.kept -= block.size.kept;
        }
    }

    /// A block is not owed to a reader any more.
    fn settle_debt(&mut self, reader: ReaderId, key: BlockKey) {
        let (Some(block), Some(state)) = (self.blocks.get_mut(&key), self.readers.get_mut(reader.0)) else { return };
        if block.owed & reader.bit() != 0 {
            block.owed &= !reader.bit();
            state.owed -= block.size.kept;
            state.owed_landed -= usize::from(block.is_landed);
        }
    }

    fn note_spare(&mut self, key: BlockKey) {
        if let Some(block) = self.blocks.get(&key) {
            self.spare.note(block);
        }
    }

    /// A reader has taken so many bytes more. Blocks that it was to have taken before these are not
    /// owed to it any more: it has gone past them. That shows by the place of a block of another
    /// reader that it took, and by how much it took in all.
    fn advance(&mut self, reader: ReaderId, bytes: u64) {
        let slack = self.room / PASSING_PART;
        let Some(state) = self.readers.get_mut(reader.0) else { return };
        state.taken += bytes;
        state.waits_since = None;
        while let Some(state) = self.readers.get_mut(reader.0)
            && let Some(&(place, due)) = state.dues.front()
        {
            let key = self.order.get(&place).copied();
            let block = key.and_then(|key| self.blocks.get(&key));
            let is_owed = block.is_some_and(|block| block.owed & reader.bit() != 0);
            if is_owed && state.taken <= due && place + slack >= state.reach {
                return;
            }
            state.dues.pop_front();
            if let Some(key) = key {
                self.settle_debt(reader, key);
                self.note_spare(key);
            }
        }
    }

    /// The oldest block that is there.
    fn oldest(&self) -> Option<&Block> {
        self.order.values().filter_map(|key| self.blocks.get(key)).find(|block| block.is_landed)
    }

    /// Has a reader wait for those who are owed the oldest block, as long as they have credit.
    /// Gives for how long; `None` if debts were dropped instead.
    fn wait_for_others(&mut self, reader: ReaderId, now: Duration) -> Option<Duration> {
        let own = self.own_wait(reader, now)?;
        let wanted = self.oldest().map_or(0, Block::wanted);
        let behind = wanted & !reader.bit();
        let mut least = own;
        let mut is_any_let_go = false;
        for other in ReaderId::all_of(behind) {
            let credit = self.readers.get(other.0).map_or(Duration::ZERO, ReaderState::credit);
            if credit.is_zero() {
                self.let_go(other);
                is_any_let_go = true;
            }
            least = least.min(credit);
        }
        if is_any_let_go {
            return None;
        }
        self.held_by = Some((behind, now));
        Some(least)
    }

    /// The time for which a reader may wait that is owed blocks itself. It asks for blocks in its
    /// own order: if it has taken none of those for a while and waits for another one, it has no
    /// use for them, and they are not owed to it any more. `None` says that. If it has met nobody
    /// either, it is elsewhere in the source, and out of step. As long as a block that it asked for
    /// is being read, it waits for the source, however slow that is.
    fn own_wait(&mut self, reader: ReaderId, now: Duration) -> Option<Duration> {
        if self.awaits_source(reader) {
            return Some(CREDIT);
        }
        let owed = self.readers.get_mut(reader.0).filter(|state| state.owed_landed > 0);
        let Some(state) = owed else { return Some(CREDIT) };
        let waits = now.saturating_sub(*state.waits_since.get_or_insert(now));
        if waits < OWN_WAIT {
            return Some(OWN_WAIT - waits);
        }
        if std::mem::replace(&mut state.has_met, false) {
            self.forgive(reader)
        } else {
            self.let_go(reader)
        }
        None
    }

    /// Whether a block that a reader asked for is being read.
    fn awaits_source(&self, reader: ReaderId) -> bool {
        let is_read = |place: &u64| {
            let block = self.order.get(place).and_then(|key| self.blocks.get(key));
            block.is_some_and(|block| !block.is_landed)
        };
        self.readers.get(reader.0).is_some_and(|state| state.asked.iter().any(is_read))
    }

    /// Owes a reader nothing from now on, and waits for it no more.
    fn let_go(&mut self, reader: ReaderId) {
        self.forgive(reader);
        if let Some(state) = self.readers.get_mut(reader.0) {
            state.is_in_step = false;
        }
        self.withdraw(reader);
    }

    /// Lets go of the blocks that a reader asked for: they need not stay for it any more.
    pub(super) fn withdraw(&mut self, reader: ReaderId) {
        let asked = self.readers.get_mut(reader.0).map(|state| std::mem::take(&mut state.asked));
        for place in asked.into_iter().flatten() {
            if let Some(block) = self.order.get(&place).and_then(|key| self.blocks.get_mut(key)) {
                block.asked &= !reader.bit();
                self.spare.note(block);
            }
        }
    }

    /// A reader is not owed any of the blocks that are there.
    fn forgive(&mut self, reader: ReaderId) {
        let Some(state) = self.readers.get_mut(reader.0) else { return };
        (state.owed, state.owed_landed, state.waits_since) = (0, 0, None);
        for (place, _) in std::mem::take(&mut state.dues) {
            if let Some(block) = self.order.get(&place).and_then(|key| self.blocks.get_mut(key)) {
                block.owed &= !reader.bit();
                self.spare.note(block);
            }
        }
    }

    /// A reader is where another one is.
    fn met(&mut self, reader: ReaderId) {
        self.bring_in_step(reader);
        if let Some(state) = self.readers.get_mut(reader.0) {
            state.has_met = true;
        }
    }

    /// Brings a reader in step, unless others have waited for it too long of late.
    fn bring_in_step(&mut self, reader: ReaderId) {
        if let Some(state) = self.readers.get_mut(reader.0) {
            state.is_in_step |= !state.is_over && state.credit() >= CREDIT_TO_RETURN;
        }
    }

    fn is_in_step(&self, reader: ReaderId) -> bool {
        self.readers.get(reader.0).is_some_and(|state| state.is_in_step)
    }

    /// Charges the time for which others were waited for, and gives a part of all time back.
    fn settle(&mut self, now: Duration) {
        let given_back = now.saturating_sub(self.settled) / GIVEN_BACK_PART;
        self.settled = self.settled.max(now);
        for state in &mut self.readers {
            state.charged = state.charged.saturating_sub(given_back);
        }
        let Some((behind, since)) = &mut self.held_by else { return };
        let waited = now.saturating_sub(*since);
        *since = (*since).max(now);
        for other in ReaderId::all_of(*behind) {
            if let Some(state) = self.readers.get_mut(other.0) {
                state.charged += waited;
            }
        }
    }
}

impl ReaderState {
    /// The time for which others still wait for it.
    fn credit(&self) -> Duration {
        CREDIT.saturating_sub(self.charged)
    }
}

/// The time for which others wait at most for one reader at once.
const CREDIT: Duration = Duration::from_secs(5);
/// The time after which a reader that waits is not owed what it has not asked for: far longer than
/// its threads need to ask for blocks in their order.
const OWN_WAIT: Duration = Duration::from_millis(50);
/// The credit with which a reader is waited for again.
const CREDIT_TO_RETURN: Duration = Duration::from_secs(1);
/// The part of all time that a reader may keep others waiting for ever: a tenth.
const GIVEN_BACK_PART: u32 = 10;
/// The part of the room that a reader may take of others beyond what it is owed before a block,
/// until it has gone past that.
const SLACK_PART: u64 = 2;
/// The part of the room that may be in use where a reader out of step still brings blocks in: a
/// half.
const OUT_OF_STEP_PART: u64 = 2;
/// The part of the room by which a reader may take blocks in another order than they were read: a
/// quarter. What it has asked for stays for it in any case.
const PASSING_PART: u64 = 4;

#[cfg(test)]
mod tests;
