//! A virtual target: its disk, its mark, how fast it answers, and what is wrong with it when.
//!
//! In: orders, and the time. Out: when each comes back, and how. Knows no striped file.

use super::disk::{SetDir, SetDisk, SetName};
use super::texts::{Block, TextNo};
use crate::rng::Rng;

/// A target of a set.
#[derive(Debug)]
pub(crate) struct VirtualTarget {
    pub(crate) disk: SetDisk,
    /// The number that its mark says.
    pub(crate) mark: usize,
    /// Whether it is not mounted.
    pub(crate) is_away: bool,
    pub(crate) pace: Pace,
    pub(crate) faults: TargetFaults,
    /// When it is done with all that it was ordered.
    free_us: u64,
}

/// How long a target takes, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) write_us: u64,
    pub(crate) sync_us: u64,
    /// From this time on it takes so many times as long.
    pub(crate) slows_at: u64,
    pub(crate) slower: u64,
    /// The frequency in a thousand with which one write is passed by all others.
    pub(crate) stragglers: u32,
}

/// When a target does what: from a time, to a time. [`FOREVER`]: until the power was cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetFaults {
    /// It answers nothing.
    pub(crate) hangs: Vec<Span>,
    /// Everything fails with EIO.
    pub(crate) fails: Vec<Span>,
    /// Writes fail with ENOSPC.
    pub(crate) full: Vec<Span>,
    /// Syncs fail, and lose what they should have made durable.
    pub(crate) loses: Vec<Span>,
}

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A target that hangs or fails so long does until the power is cut.
pub(crate) const FOREVER: u64 = u64::MAX;

/// An order to a target that comes back later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Write {
        ino: usize,
        at: usize,
        blocks: [Block; 2],
    },
    /// Cuts a body and appends its footer.
    EndBody {
        ino: usize,
        end: usize,
        footer: TextNo,
    },
    /// Syncs a file and, if that is asked for, the directory in which its name is.
    Sync {
        ino: usize,
        names: Option<SetDir>,
    },
    SyncDir(SetDir),
    Rename(SetName, SetName),
    Remove(SetName),
}

/// How an order failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderError {
    Io,
    NoSpace,
    /// It does not answer.
    Hangs,
}

impl Span {
    fn has(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }
}

impl TargetFaults {
    /// Ends what lasts until the power is cut.
    fn end(&mut self, now: u64) {
        for span in self.hangs.iter_mut().chain(&mut self.fails) {
            if span.to == FOREVER && span.from <= now {
                span.to = now;
            }
        }
    }

    /// Whether it would go on without end.
    pub(crate) fn has_endless(&self) -> bool {
        self.hangs.iter().chain(&self.fails).any(|span| span.to == FOREVER)
    }
}

impl VirtualTarget {
    pub(crate) fn new(number: usize, pace: Pace, faults: TargetFaults) -> VirtualTarget {
        VirtualTarget { disk: SetDisk::default(), mark: number, is_away: false, pace, faults, free_us: 0 }
    }

    /// The end of the time in which it hangs now.
    pub(crate) fn hangs(&self, now: u64) -> Option<u64> {
        self.faults.hangs.iter().find(|span| span.has(now)).map(|span| span.to)
    }

    pub(crate) fn fails(&self, now: u64) -> bool {
        self.faults.fails.iter().any(|span| span.has(now))
    }

    fn is_full(&self, now: u64) -> bool {
        self.faults.full.iter().any(|span| span.has(now))
    }

    fn loses(&self, now: u64) -> bool {
        self.faults.loses.iter().any(|span| span.has(now))
    }

    /// Takes an order, and tells when it comes back. [`FOREVER`]: never.
    pub(crate) fn take(&mut self, rng: &mut Rng, now: u64, order: &Order) -> u64 {
        let cost = match order {
            Order::Write { .. } | Order::EndBody { .. } => self.pace.write_us,
            Order::Sync { .. } | Order::SyncDir(_) => self.pace.sync_us,
            Order::Rename(..) | Order::Remove(_) => 300,
        };
        let cost = cost * if now >= self.pace.slows_at { self.pace.slower } else { 1 } + rng.below(cost);
        let mut start = now.max(self.free_us);
        while let Some(end) = self.hangs(start) {
            start = end;
        }
        let mut end = start.saturating_add(cost);
        let begins = self.faults.hangs.iter().find(|span| span.from > start && span.from < end);
        if let Some(span) = begins.copied()
            && rng.permille(500)
        {
            end = span.to.saturating_add(cost);
        }
        if matches!(order, Order::Write { .. }) && rng.permille(self.pace.stragglers) {
            return end.saturating_add(2_000_000 + rng.below(30_000_000));
        }
        self.free_us = end;
        end
    }

    /// Whether something can be made on it now.
    pub(crate) fn answers(&self, now: u64) -> Result<(), OrderError> {
        match () {
            () if self.fails(now) || self.is_away => Err(OrderError::Io),
            () if self.hangs(now).is_some() => Err(OrderError::Hangs),
            () if self.is_full(now) => Err(OrderError::NoSpace),
            () => Ok(()),
        }
    }

    /// Carries out an order that comes back now and began at a moment.
    pub(crate) fn end(
        &mut self,
        rng: &mut Rng,
        (now, moment): (u64, u64),
        began: u64,
        order: &Order,
    ) -> Result<(), OrderError> {
        let (fails, is_full, loses) = (self.fails(now), self.is_full(now), self.loses(now));
        let disk = &mut self.disk;
        match *order {
            Order::Sync { ino, .. } if fails || loses => {
                disk.fail_sync(rng, ino);
                return Err(OrderError::Io);
            }
            _ if fails => return Err(OrderError::Io),
            Order::Write { .. } | Order::EndBody { .. } if is_full => return Err(OrderError::NoSpace),
            Order::Write { ino, at, blocks } => disk.write(moment, ino, at, &blocks),
            Order::EndBody { ino, end, footer } => {
                disk.set_len(moment, ino, end);
                disk.write(moment, ino, end, &footer.blocks());
            }
            Order::Sync { ino, names } => {
                disk.sync(began, ino);
                names.into_iter().for_each(|dir| disk.sync_dir(began, dir));
            }
            Order::SyncDir(_) if loses => return Err(OrderError::Io),
            Order::SyncDir(dir) => disk.sync_dir(began, dir),
            Order::Rename(from, to) => disk.rename(moment, from, to),
            Order::Remove(name) => disk.remove(moment, name),
        }
        Ok(())
    }

    /// Does a part of an order that is cut off in the middle, or none of it.
    pub(crate) fn cut_off(&mut self, rng: &mut Rng, moment: u64, order: &Order) {
        match *order {
            Order::Write { ino, at, blocks } => {
                for (at, block) in (at..).zip(blocks) {
                    if rng.permille(500) {
                        self.disk.write(moment, ino, at, &[block]);
                    }
                }
            }
            Order::EndBody { ino, end, footer } => {
                self.disk.set_len(moment, ino, end);
                self.disk.write(moment, ino, end, &footer.blocks()[..rng.index(3)]);
            }
            Order::Rename(from, to) if rng.permille(500) => self.disk.rename(moment, from, to),
            Order::Remove(name) if rng.permille(500) => self.disk.remove(moment, name),
            Order::Sync { .. } | Order::SyncDir(_) | Order::Rename(..) | Order::Remove(_) => {}
        }
    }

    /// Begins anew after the power was cut.
    pub(crate) fn begin_anew(&mut self, now: u64) {
        self.free_us = now;
        self.faults.end(now);
    }
}
