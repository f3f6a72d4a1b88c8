//! The way to an end by a fault: written chunks are synced and journalled before the session is
//! given up, so that another one continues from there.
//!
//! Takes in nothing new: no message, no payload, and no chunk is asked for. Work of the disk that
//! is under way is waited for, a batch that is being renamed is finished, and all files with
//! unsynced bytes are synced at once. The time is bounded ([`DRAIN_MAX`]): a disk that hangs loses
//! the chunks that it has not synced.

use std::time::Duration;

use longhaul_core::Fault;

use super::large::{LargeStage, LargeTarget};
use super::{Receiver, ReceiverAction};
use crate::time::Timestamp;

impl Receiver {
    /// Ends the session with `fault`, once written chunks are durable or a few seconds have passed.
    pub fn abort(&mut self, fault: Fault) {
        if self.is_over() || self.is_draining() {
            return;
        }
        self.actions.flush();
        self.session.begin_drain(fault);
        self.end_drained();
    }

    /// Orders the next syncs and records, and ends the session if nothing is left to do.
    pub(super) fn drain_down(&mut self, now: Timestamp) {
        let Some(until) = self.session.drain_until(now, DRAIN_MAX) else { return };
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
        let is_due = |large: &LargeTarget| large.stage == LargeStage::Open && large.writing == 0 && large.written > 0;
        let due: Vec<_> = self.manifest.all_large().filter(|(_, large)| is_due(large)).map(|(id, _)| id).collect();
        for id in due {
            if let Some(large) = self.manifest.large(id)
                && large.failed.is_none()
            {
                self.unsynced.leave(id, large);
                large.begin_sync();
                self.actions.push(ReceiverAction::SyncData(id));
            }
        }
    }

    /// Ends the session if nothing is left to be made durable.
    fn end_drained(&mut self) {
        let at_work = self.manifest.all_large().any(|(_, large)| {
            let is_unsynced = large.failed.is_none() && large.written > 0 && large.stage == LargeStage::Open;
            large.is_at_disk() || is_unsynced
        });
        if !at_work && self.journal.is_idle() && !self.committer.is_busy() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        if let Some(fault) = self.session.end_drain() {
            self.actions.flush();
            self.actions.push(ReceiverAction::Abort(fault));
        }
    }
}

/// The longest drain. A user who interrupts waits no longer than 5 s (the contract): this, and some
/// time to end.
const DRAIN_MAX: Duration = Duration::from_secs(4);
