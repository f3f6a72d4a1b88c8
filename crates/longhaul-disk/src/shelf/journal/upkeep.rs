//! The upkeep of a journal's copies: before anything is written, those that were left are made
//! alike, and one that is not there is made on another target.
//!
//! In: the copies of a journal, and the targets of its shelf. Out: copies that count, as many as
//! there should be where targets take them (COPIES-7, COPIES-9). Knows nothing of its content.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Copies, CopyState, Counted, Journal, act_on, is_among};
use crate::error::DiskError;
use crate::load::{PROBE_EVERY, TargetCondition};
use crate::shelf::copy::JournalCopy;
use crate::shelf::dir::ShelfDir;
use crate::shelf::hands::{Others, create_on};

impl Journal {
    /// Makes a journal ready to be written to.
    pub(super) fn make_ready(&self, copies: &mut Copies) -> Result<(), DiskError> {
        self.settle(copies)?;
        match copies.look {
            Some(when) if when <= Instant::now() => self.complete(copies),
            _ => Ok(()),
        }
    }

    /// Makes a copy on another target, if fewer count than should (COPIES-9). One that was given up
    /// may be made anew, once its target is well.
    fn complete(&self, copies: &mut Copies) -> Result<(), DiskError> {
        copies.look = Some(Instant::now() + LOOK_EVERY);
        let (before, believed) = (copies.live.len(), Arc::clone(&copies.live[0]));
        for dir in self.shelf.takers() {
            if copies.live.len() >= self.shelf.copies {
                break;
            }
            if copies.live.iter().any(|live| live.shelf().is(dir)) {
                continue;
            }
            if let Err(error) = self.add(copies, dir, &believed) {
                tracing::warn!(target: "longhaul::journal", tag = %self.tag, number = dir.number(), %error, "a copy of a journal cannot be made");
            }
        }
        if copies.live.len() >= self.shelf.copies {
            copies.look = None;
        }
        if copies.live.len() == before {
            return Ok(());
        }
        let trust = copies.epoch.trust;
        self.raise(copies, trust)?;
        let targets: Vec<u32> = copies.live.iter().map(|copy| copy.shelf().number()).collect();
        tracing::info!(target: "longhaul::journal", tag = %self.tag, ?targets, epoch = copies.epoch.number, "a journal has another copy");
        Ok(())
    }

    /// Makes a copy on a target like the one that is believed, and lets it count. One that was
    /// given up there, and on which something is still under way, stays as it is.
    fn add(&self, copies: &mut Copies, dir: &ShelfDir, believed: &Arc<JournalCopy>) -> Result<(), DiskError> {
        let idle = copies.idle.iter().find(|idle| idle.shelf().is(dir)).map(Arc::clone);
        let copy = match idle {
            Some(copy) => copy,
            None => {
                let made = Arc::new(dir.judged(create_on(dir, self.tag))?);
                copies.idle.push(Arc::clone(&made));
                made
            }
        };
        if !copy.revive() {
            return Ok(());
        }
        // Opened for itself: a target that hangs must not hold the lock of the other one.
        let source = believed.shelf().opened(self.tag)?.ok_or_else(|| believed.abandoned())?;
        let made = act_on(&[Arc::clone(&copy)], Others::Stand, move |copy| copy.become_like(&source));
        for (copy, result) in made {
            result.inspect_err(|_| copy.abandon())?;
            copies.idle.retain(|idle| !Arc::ptr_eq(idle, &copy));
            copies.live.push(copy);
        }
        Ok(())
    }

    /// Makes a journal that was left ready to be written to (COPIES-7).
    fn settle(&self, copies: &mut Copies) -> Result<(), DiskError> {
        let CopyState::Left(counted) = copies.state else { return Ok(()) };
        let believed = Arc::clone(&copies.live[0]);
        if counted == Counted::Otherwise {
            // A crash must not leave copies behind that are alike and say that they are all of it.
            // Where no copy takes its epoch, there may be another target.
            let trust = copies.epoch.trust;
            if let Err(error) = self.raise(copies, trust) {
                tracing::warn!(target: "longhaul::journal", tag = %self.tag, %error, "a copy of a journal takes no epoch");
            }
        }
        let found: Vec<_> = copies.live.drain(..).chain(copies.idle.drain(..)).collect();
        let mut first_error = None;
        let takes = |copy: &Arc<JournalCopy>| match copy.shelf().condition() {
            TargetCondition::Failed => false,
            TargetCondition::Hung => found.len() == 1,
            TargetCondition::Well | TargetCondition::Full => true,
        };
        for copy in &found {
            if copies.live.len() < self.shelf.copies && takes(copy) {
                match copy.shelf().judged(copy.become_like(believed.fd())) {
                    Ok(()) => copies.live.push(Arc::clone(copy)),
                    Err(error) => drop(first_error.get_or_insert(error)),
                }
            }
        }
        for dir in self.shelf.takers() {
            let has_one = found.iter().any(|copy| copy.shelf().is(dir));
            if copies.live.len() < self.shelf.copies && !has_one {
                let made = create_on(dir, self.tag).map(Arc::new);
                match dir.judged(made.and_then(|copy| copy.become_like(believed.fd()).map(|()| copy))) {
                    Ok(copy) => copies.live.push(copy),
                    Err(error) => drop(first_error.get_or_insert(error)),
                }
            }
        }
        copies.idle = found.iter().filter(|copy| !is_among(&copies.live, copy)).map(Arc::clone).collect();
        if copies.live.is_empty() {
            // It can be read, and no more.
            copies.idle.retain(|copy| !Arc::ptr_eq(copy, &believed));
            believed.abandon();
            copies.live.push(Arc::clone(&believed));
            return Err(first_error.or_else(|| believed.shelf().down()).unwrap_or_else(|| self.abandoned()));
        }
        let is_as_said = match counted {
            Counted::AsSaid(count) => {
                copies.live.len() == count && copies.live.iter().all(|copy| is_among(&found[..count], copy))
            }
            Counted::Otherwise => false,
        };
        if !is_as_said {
            let trust = copies.epoch.trust;
            self.raise(copies, trust)?;
        }
        copies.state = CopyState::Settled;
        copies.look = (copies.live.len() < self.shelf.copies).then(|| Instant::now() + LOOK_EVERY);
        let is_gone = |copy: &Arc<JournalCopy>| {
            copy.abandon();
            let unlinked = takes(copy).then(|| copy.unlink());
            if let Some(Err(error)) = &unlinked {
                tracing::debug!(target: "longhaul::journal", tag = %self.tag, %error, "a copy of a journal that does not count stays");
            }
            unlinked.is_some_and(|unlinked| unlinked.is_ok())
        };
        // One without a name must never count again.
        copies.idle.retain(|copy| !is_gone(copy));
        let targets: Vec<u32> = copies.live.iter().map(|copy| copy.shelf().number()).collect();
        tracing::info!(target: "longhaul::journal", tag = %self.tag, ?targets, epoch = copies.epoch.number, "the copies of a journal are made alike");
        Ok(())
    }
}

/// The time after which a target for a copy that is not there is looked for again: that in which
/// the state of a target changes.
pub(super) const LOOK_EVERY: Duration = PROBE_EVERY;
