//! The way to an end by a fault: written chunks are synced and journalled before the session is
//! given up, so that another one continues from there.
//!
//! Takes in nothing new: no message, no payload, and no chunk is asked for. Work of the disk that
//! is under way is waited for, a batch that is being renamed is finished, and all files with
//! unsynced bytes are synced at once. The time is bounded ([`DRAIN_MAX`]): a disk that hangs loses
//! the chunks that it has not synced.

use std::time::Duration;

use longhaul_core::Fault;

use super::large::LargeStage;
use super::{EntryState, Receiver, ReceiverAction, SessionPhase};
use crate::time::Timestamp;

/// The fault that ends a session, and the deadline.
#[derive(Debug)]
pub(super) struct Drain {
    fault: Fault,
    until: Option<Timestamp>,
}

impl Drain {
    /// When it must end. At once (0), as long as it has not begun.
    pub(super) fn deadline(&self) -> Timestamp {
        self.until.unwrap_or(Timestamp(0))
    }
}

impl Receiver {
    /// Ends the session with `fault`, once written chunks are durable or a few seconds have passed.
    pub fn abort(&mut self, fault: Fault) {
        if self.phase == SessionPhase::Over || self.is_draining() {
            return;
        }
        self.says.flush(&mut self.actions);
        self.drain = Some(Drain { fault, until: None });
        self.end_drained();
    }

    /// Orders the next syncs and records, and ends the session if nothing is left to do.
    pub(super) fn drain_down(&mut self, now: Timestamp) {
        let Some(drain) = &mut self.drain else { return };
        let until = *drain.until.get_or_insert(now.after(DRAIN_MAX));
        if now >= until {
            return self.give_up();
        }
        self.sync_written();
        self.write_journal();
        self.end_drained();
    }

    /// Syncs every file that has unsynced bytes and no write under way, so that one sync covers all
    /// of it.
    fn sync_written(&mut self) {
        let due: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(id, slot)| match &slot.state {
                EntryState::Large(large)
                    if large.stage == LargeStage::Open && large.writing == 0 && large.written > 0 =>
                {
                    Some(*id)
                }
                _ => None,
            })
            .collect();
        for id in due {
            if let Some(EntryState::Large(large)) = self.entries.get_mut(&id).map(|slot| &mut slot.state)
                && large.failed.is_none()
            {
                self.unsynced.leave(id, large);
                large.begin_sync();
                self.actions.push_back(ReceiverAction::SyncData(id));
            }
        }
    }

    /// Ends the session if nothing is left to be made durable.
    fn end_drained(&mut self) {
        let at_work = self.entries.values().any(|slot| match &slot.state {
            EntryState::Large(large) if large.failed.is_none() => {
                large.is_at_disk() || large.written > 0 && large.stage == LargeStage::Open
            }
            EntryState::Large(large) => large.is_at_disk(),
            _ => false,
        });
        if !at_work && self.journal.is_idle() && !self.committer.is_busy() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        if let Some(drain) = &self.drain {
            self.phase = SessionPhase::Over;
            self.says.flush(&mut self.actions);
            self.actions.push_back(ReceiverAction::Abort(drain.fault.clone()));
        }
    }
}

/// The longest drain. A user who interrupts waits no longer than 5 s (the contract): this, and some
/// time to end.
const DRAIN_MAX: Duration = Duration::from_secs(4);
