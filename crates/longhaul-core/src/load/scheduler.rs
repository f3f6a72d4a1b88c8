//! [`ChunkScheduler`]: which target a chunk is written to, and which writes have to be made again
//! on another target because they do not come back: a pure machine.
//!
//! In: chunks that are to be written, the targets that may take each, the ends of writes, and the
//! time, which counts from any moment that the owner chose. Out: a target for each write, and the
//! writes that are overdue. Two rules hold:
//!
//! - No target holds more of the memory than its share ([`ChunkScheduler::new`]): buffers that lie
//!   at a target that hangs leave enough for the others.
//! - A write that is overdue is *hedged*: made again on a target that has no write of this chunk,
//!   from the same buffer. The first that completes is the one that counts.
//!
//! Knows no disk, no file and no buffer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::choice::{Candidate, soonest};
use super::latency::Latency;
use crate::place::TargetId;

/// The writes of chunks that are not at their end.
#[derive(Debug)]
pub struct ChunkScheduler {
    share_bytes: u64,
    /// The number of targets, and one more.
    parts: u64,
    targets: BTreeMap<TargetId, TargetQueue>,
    writes: BTreeMap<WriteId, ChunkWrite>,
    next: u64,
}

/// A chunk that is to be written: all its writes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u64);

/// A write that does not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The chunk.
    pub write: WriteId,
    /// The target of its last write.
    pub target: TargetId,
    /// The time since that began.
    pub waited: Duration,
}

/// The result of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// It went well.
    Written,
    /// It failed.
    Failed,
}

/// The meaning of the end of one write for its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// The chunk is written: by this write, before any other.
    First,
    /// The chunk was written before, or has failed.
    Late,
    /// This write failed, and another one of the chunk is under way.
    Waits,
    /// This write failed, and no other is under way: the chunk is to be written elsewhere, or
    /// fails.
    Alone,
}

/// The writes to one target.
#[derive(Clone, Copy, Debug, Default)]
struct TargetQueue {
    /// Bytes of buffers that its writes hold.
    pinned_bytes: u64,
    /// When a write to it came back last, well or not.
    answered: Duration,
}

#[derive(Debug)]
struct ChunkWrite {
    len: u64,
    attempts: Vec<WriteAttempt>,
    /// Whether its caller was told: its other writes only hold its buffer.
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct WriteAttempt {
    target: TargetId,
    began: Duration,
}

impl ChunkScheduler {
    /// A scheduler over so many targets, with so many bytes of buffers in all: each target may hold
    /// the share that is left if one more target held as much, and one chunk in any case.
    pub fn new(memory_bytes: u64, targets: usize) -> ChunkScheduler {
        let parts = targets as u64 + 1;
        ChunkScheduler {
            share_bytes: memory_bytes / parts,
            parts,
            targets: BTreeMap::new(),
            writes: BTreeMap::new(),
            next: 0,
        }
    }

    /// Takes note that there are so many bytes of buffers in all.
    pub fn has_memory(&mut self, bytes: u64) {
        self.share_bytes = bytes / self.parts;
    }

    /// Takes a chunk of `len` bytes that is to be written.
    pub fn take(&mut self, len: u64) -> WriteId {
        let id = WriteId(self.next);
        self.next += 1;
        self.writes.insert(id, ChunkWrite { len, attempts: Vec::new(), is_over: false });
        id
    }

    /// The target for the next write of a chunk: of those that hold no write of it, the one that
    /// will have it soonest. `None`: there is none, or that one holds its share of the memory and
    /// is to be waited for. A slower one would have the chunk later than if it waits; only a write
    /// that is made again goes to the soonest that has room now.
    pub fn choose(&self, id: WriteId, candidates: &[Candidate]) -> Option<TargetId> {
        let write = self.writes.get(&id)?;
        let has_room = |target: TargetId| {
            let pinned = self.pinned_bytes(target);
            pinned == 0 || pinned.saturating_add(write.len) <= self.share_bytes
        };
        let is_hedge = !write.attempts.is_empty();
        let is_free = |candidate: &&Candidate| {
            let holds_one = write.attempts.iter().any(|attempt| attempt.target == candidate.target);
            !holds_one && (!is_hedge || has_room(candidate.target))
        };
        let free: Vec<Candidate> = candidates.iter().filter(is_free).copied().collect();
        soonest(&free, write.len).filter(|target| has_room(*target))
    }

    /// Begins a write of a chunk to a target.
    pub fn begin(&mut self, now: Duration, id: WriteId, target: TargetId) {
        let Some(write) = self.writes.get_mut(&id) else { return };
        write.attempts.push(WriteAttempt { target, began: now });
        self.targets.entry(target).or_default().pinned_bytes += write.len;
    }

    /// Ends a write of a chunk to a target.
    pub fn end(&mut self, now: Duration, id: WriteId, target: TargetId, result: WriteResult) -> WriteEnd {
        let Some(write) = self.writes.get_mut(&id) else { return WriteEnd::Late };
        let before = write.attempts.len();
        write.attempts.retain(|attempt| attempt.target != target);
        let (len, is_last) = (write.len, write.attempts.is_empty());
        if write.attempts.len() < before
            && let Some(queue) = self.targets.get_mut(&target)
        {
            queue.pinned_bytes = queue.pinned_bytes.saturating_sub(len);
            queue.answered = queue.answered.max(now);
        }
        let end = match (write.is_over, result) {
            (true, _) => WriteEnd::Late,
            (false, WriteResult::Written) => WriteEnd::First,
            (false, WriteResult::Failed) if is_last => WriteEnd::Alone,
            (false, WriteResult::Failed) => WriteEnd::Waits,
        };
        write.is_over |= result == WriteResult::Written;
        if is_last && end != WriteEnd::Alone {
            self.writes.remove(&id);
        }
        end
    }

    /// Gives a chunk up that has no write under way: it could be written nowhere.
    pub fn give_up(&mut self, id: WriteId) {
        self.writes.remove(&id);
    }

    /// The chunks that no write brought home in time, each with the last of its writes: that one
    /// has been under way for the `patience` of its target, and the target answered nothing for
    /// [`HANG_MIN`]; or the target answers others, and it alone has been under way for much longer.
    pub fn overdue(&self, now: Duration, patience: impl Fn(TargetId) -> Duration) -> Vec<Overdue> {
        let of = |(id, write): (&WriteId, &ChunkWrite)| {
            let last = write.attempts.last().filter(|_| !write.is_over)?;
            let (waited, patience) = (now.saturating_sub(last.began), patience(last.target));
            let silent = now.saturating_sub(self.targets.get(&last.target)?.answered);
            let is_overdue = waited >= patience && silent >= HANG_MIN || waited >= patience * STRAGGLER;
            is_overdue.then_some(Overdue { write: *id, target: last.target, waited })
        };
        self.writes.iter().filter_map(of).collect()
    }

    /// Whether any write of a chunk is under way.
    pub fn is_under_way(&self, id: WriteId) -> bool {
        self.writes.get(&id).is_some_and(|write| !write.attempts.is_empty())
    }

    /// Whether a chunk is not at its end.
    pub fn has(&self, id: WriteId) -> bool {
        self.writes.contains_key(&id)
    }

    /// Bytes of buffers that writes to a target hold.
    pub fn pinned_bytes(&self, target: TargetId) -> u64 {
        self.targets.get(&target).map_or(0, |queue| queue.pinned_bytes)
    }

    /// Whether no chunk is to be written, and no write is under way.
    pub fn is_idle(&self) -> bool {
        self.writes.is_empty()
    }
}

/// The time that a request of a target is given: four times what 99 of 100 take, and
/// [`HANG_MIN`] at least.
pub fn patience(latency: Option<Latency>) -> Duration {
    latency.map_or(HANG_MIN, |latency| (latency.p99 * 4).max(HANG_MIN))
}

/// The least time after which a target counts as hanging. A disk that spins up, or an array that
/// resets a link, takes some seconds; less than this is everyday's variation.
pub const HANG_MIN: Duration = Duration::from_secs(2);
/// A write to a target that answers others is overdue after so many times its patience. A guess: a
/// request that starves behind others is not lost, and writing it twice costs as much as waiting.
const STRAGGLER: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(target: u32, rate: f64) -> Candidate {
        Candidate {
            target: TargetId(target),
            assigned_bytes: 0,
            rate: Some(rate),
            free_bytes: Some(1 << 40),
            is_firm: true,
            reserve_bytes: 0,
        }
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Takes a chunk of 4 MiB and begins its write, if any of these targets may have it.
    fn write(scheduler: &mut ChunkScheduler, now: Duration, candidates: &[Candidate]) -> Option<(WriteId, TargetId)> {
        let id = scheduler.take(4 * MIB);
        let Some(target) = scheduler.choose(id, candidates) else {
            scheduler.give_up(id);
            return None;
        };
        scheduler.begin(now, id, target);
        Some((id, target))
    }

    #[test]
    fn a_target_that_answers_nothing_holds_its_share_of_the_memory_and_no_more() {
        let mut scheduler = ChunkScheduler::new(64 * MIB, 3);
        let all = |scheduler: &ChunkScheduler| {
            [0, 1, 2].map(|n| Candidate { assigned_bytes: scheduler.pinned_bytes(TargetId(n)), ..at(n, 1e8) })
        };
        let begin = |scheduler: &mut ChunkScheduler, now| write(scheduler, now, &all(scheduler));
        let begun: Vec<_> = std::iter::from_fn(|| begin(&mut scheduler, secs(0))).collect();
        assert_eq!(begun.len(), 12, "four chunks each, and four are left");
        assert_eq!((0..3).map(|n| scheduler.pinned_bytes(TargetId(n))).collect::<Vec<_>>(), [16 * MIB; 3]);
        let (id, target) = begun[0];
        assert_eq!(scheduler.end(secs(1), id, target, WriteResult::Written), WriteEnd::First);
        assert_eq!(begin(&mut scheduler, secs(1)).map(|(_, target)| target), Some(target));
    }

    #[test]
    fn a_slow_target_gets_no_more_as_the_fast_ones_hold_their_share() {
        let mut scheduler = ChunkScheduler::new(64 * MIB, 3);
        let all = |scheduler: &ChunkScheduler| {
            let assigned = |n| scheduler.pinned_bytes(TargetId(n));
            [(0, 1e8), (1, 1e8), (2, 1e7)].map(|(n, rate)| Candidate { assigned_bytes: assigned(n), ..at(n, rate) })
        };
        let begun: Vec<_> = std::iter::from_fn(|| {
            let all = all(&scheduler);
            write(&mut scheduler, secs(0), &all)
        })
        .collect();
        // 16 MiB on each of the fast ones take 0.17 s; a chunk on the slow one takes 0.42 s.
        assert_eq!((begun.len(), scheduler.pinned_bytes(TargetId(2))), (8, 0));
        assert_eq!(scheduler.end(secs(1), begun[0].0, begun[0].1, WriteResult::Written), WriteEnd::First);
        let all = all(&scheduler);
        assert_eq!(write(&mut scheduler, secs(1), &all).map(|(_, target)| target), Some(begun[0].1));
    }

    #[test]
    fn a_target_takes_one_chunk_however_small_the_memory_is() {
        let mut scheduler = ChunkScheduler::new(MIB, 8);
        let only = [at(5, 1e8)];
        assert!(write(&mut scheduler, secs(0), &only).is_some());
        assert!(write(&mut scheduler, secs(0), &only).is_none());
    }

    #[test]
    fn a_write_that_does_not_come_back_is_made_again_elsewhere_and_the_first_end_counts() {
        let mut scheduler = ChunkScheduler::new(1 << 30, 2);
        let (hangs, other) = (at(0, 1e9), at(1, 1e8));
        let (id, target) = write(&mut scheduler, secs(10), &[hangs, other]).expect("room");
        assert_eq!(target, TargetId(0));
        let overdue = |scheduler: &ChunkScheduler, now| scheduler.overdue(now, |_| HANG_MIN);
        assert!(overdue(&scheduler, secs(11)).is_empty());
        let waited = secs(2);
        assert_eq!(overdue(&scheduler, secs(12)), [Overdue { write: id, target, waited }]);
        assert_eq!(scheduler.choose(id, &[hangs]), None, "not on the same target");
        assert_eq!(scheduler.choose(id, &[hangs, other]), Some(TargetId(1)));
        scheduler.begin(secs(12), id, TargetId(1));
        assert!(overdue(&scheduler, secs(13)).is_empty(), "the second write has its own time");
        assert_eq!(scheduler.end(secs(13), id, TargetId(1), WriteResult::Written), WriteEnd::First);
        assert!(overdue(&scheduler, secs(99)).is_empty(), "it is written");
        assert_eq!(scheduler.pinned_bytes(TargetId(0)), 4 * MIB, "its buffer is held there still");
        assert!(!scheduler.is_idle());
        assert_eq!(scheduler.end(secs(20), id, TargetId(0), WriteResult::Written), WriteEnd::Late);
        assert!(scheduler.is_idle());
        assert_eq!(scheduler.pinned_bytes(TargetId(0)), 0);
    }

    #[test]
    fn a_slow_target_that_answers_is_waited_for() {
        let mut scheduler = ChunkScheduler::new(1 << 30, 2);
        let slow = [at(0, 1e6)];
        let begun: Vec<_> = (0..8).filter_map(|_| write(&mut scheduler, secs(0), &slow)).collect();
        // One chunk each second: the last ones wait for longer than any patience of the first.
        for (n, (id, target)) in begun.iter().enumerate() {
            let now = secs(n as u64 + 1);
            assert!(scheduler.overdue(now, |_| HANG_MIN).is_empty(), "{now:?}");
            assert_eq!(scheduler.end(now, *id, *target, WriteResult::Written), WriteEnd::First);
        }
        // One that is passed by all others is not waited for without end.
        let (stuck, _) = write(&mut scheduler, secs(10), &slow).expect("room");
        for n in 11..20 {
            assert!(scheduler.overdue(secs(n), |_| HANG_MIN).is_empty());
            let (id, target) = write(&mut scheduler, secs(n), &slow).expect("room");
            scheduler.end(secs(n), id, target, WriteResult::Written);
        }
        assert_eq!(scheduler.overdue(secs(20), |_| HANG_MIN).first().map(|overdue| overdue.write), Some(stuck));
    }

    #[test]
    fn a_write_that_fails_goes_elsewhere_once_no_other_is_under_way() {
        let mut scheduler = ChunkScheduler::new(1 << 30, 2);
        let both = [at(0, 1e8), at(1, 1e8)];
        let (id, target) = write(&mut scheduler, secs(0), &both).expect("room");
        scheduler.begin(secs(3), id, TargetId(1));
        assert_eq!(scheduler.end(secs(4), id, target, WriteResult::Failed), WriteEnd::Waits);
        assert_eq!(scheduler.end(secs(5), id, TargetId(1), WriteResult::Failed), WriteEnd::Alone);
        assert_eq!(scheduler.choose(id, &both[..1]), Some(TargetId(0)), "the caller says which may have it");
        scheduler.give_up(id);
        assert!(scheduler.is_idle());
        // Both at once, and the later one fails: it changes nothing.
        let (id, _) = write(&mut scheduler, secs(0), &both).expect("room");
        scheduler.begin(secs(3), id, TargetId(1));
        assert_eq!(scheduler.end(secs(4), id, TargetId(1), WriteResult::Written), WriteEnd::First);
        assert_eq!(scheduler.end(secs(5), id, TargetId(0), WriteResult::Failed), WriteEnd::Late);
    }

    #[test]
    fn patience_is_four_times_the_p99_and_two_seconds_at_least() {
        let latency = |ms| Latency { p50: Duration::ZERO, p90: Duration::ZERO, p99: Duration::from_millis(ms) };
        assert_eq!(patience(None), secs(2));
        assert_eq!(patience(Some(latency(410))), secs(2));
        assert_eq!(patience(Some(latency(1500))), secs(6));
    }
}
