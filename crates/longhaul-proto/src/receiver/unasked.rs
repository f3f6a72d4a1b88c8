//! Small files that came before anybody asked for them: they wait for the survey of their page, and
//! are written or dropped by what that finds.
//!
//! In: one arrival, before the first page. Out: the order to write those files of it that the page
//! would have asked for, and to drop its payload otherwise. A file that is taken here is not asked
//! for; any other goes the way that it would have gone. Knows no lanes: this arrival came over the
//! control connection.

use std::collections::HashSet;
use std::sync::Arc;

use longhaul_core::{EntryKind, Fault, FileId};

use super::order::{EntryRef, Landed, Ticket};
use super::{EntryState, Receiver, ReceiverAction};
use crate::steps;
use crate::time::Timestamp;

/// The files that came unasked.
#[derive(Debug, Default)]
pub(super) enum UnaskedBundle {
    /// None yet.
    #[default]
    Absent,
    /// These came. Their page is not surveyed yet.
    Held(Box<Landed>),
    /// There are none any more: they are decided on, or the first page came without any.
    Over,
}

impl Receiver {
    /// Small files came unasked; their payload is held under the ticket of `landed`.
    pub fn handle_unasked(&mut self, now: Timestamp, landed: Landed) {
        if self.is_over() {
            return;
        }
        if self.is_draining() || self.session.is_ending() {
            return self.actions.push(ReceiverAction::DropPayload(landed.ticket));
        }
        let mut named = HashSet::new();
        let result = match self.expect_unasked() {
            Ok(()) if landed.rows.is_empty() => Err(Fault::protocol("no files came where nobody asked for any")),
            Ok(()) if !landed.rows.iter().all(|row| named.insert(row.file)) => {
                Err(Fault::protocol("a file that nobody asked for came twice in one bundle"))
            }
            other => other,
        };
        match result {
            Ok(()) => self.bundles.unasked = UnaskedBundle::Held(Box::new(landed)),
            Err(_) => self.actions.push(ReceiverAction::DropPayload(landed.ticket)),
        }
        self.after(now, result);
    }

    /// Small files came unasked, and there was no buffer for them.
    pub fn handle_unasked_dropped(&mut self, now: Timestamp) {
        if self.is_over() || self.is_draining() || self.session.is_ending() {
            return;
        }
        let result = self.expect_unasked().map(|()| self.bundles.unasked = UnaskedBundle::Over);
        self.after(now, result);
    }

    fn expect_unasked(&self) -> Result<(), Fault> {
        match self.bundles.unasked {
            UnaskedBundle::Absent => Ok(()),
            _ => Err(Fault::protocol("files that nobody asked for came twice, or behind their page")),
        }
    }

    /// A page came, with or without entries. No files come unasked any more.
    pub(super) fn expect_nothing_unasked(&mut self) {
        if matches!(self.bundles.unasked, UnaskedBundle::Absent) {
            self.bundles.unasked = UnaskedBundle::Over;
        }
    }

    /// Drops what came unasked and is not decided on.
    pub(super) fn drop_unasked(&mut self) {
        if let UnaskedBundle::Held(landed) = std::mem::replace(&mut self.bundles.unasked, UnaskedBundle::Over) {
            self.actions.push(ReceiverAction::DropPayload(landed.ticket));
        }
    }

    /// Takes those files that came unasked and are wanted by the answer to their page, in which the
    /// entry `first` has the first bit of `wanted`: they are wanted no more. Gives the order to
    /// write them. A file that is damaged, or not as it was offered, stays wanted.
    pub(super) fn take_unasked(&mut self, first: FileId, wanted: &mut [u8]) -> Option<ReceiverAction> {
        let UnaskedBundle::Held(landed) = std::mem::replace(&mut self.bundles.unasked, UnaskedBundle::Over) else {
            return None;
        };
        let Landed { ticket, rows, .. } = *landed;
        let mut files: Vec<Arc<EntryRef>> = Vec::new();
        // A bundle that is read back needs a verdict, and this one has none. A session that is to
        // end begins nothing.
        let may_take = !self.config.read_back && !self.is_draining() && !self.session.is_ending();
        for row in rows.iter().filter(|row| may_take && !row.same && row.declared == row.computed) {
            let at = row.file.0.checked_sub(first.0).and_then(|at| usize::try_from(at).ok());
            let Some((byte, bit)) = at.and_then(|at| Some((wanted.get_mut(at / 8)?, 1u8 << (at % 8)))) else {
                continue;
            };
            let Some(slot) = self.manifest.get_mut(row.file) else { continue };
            let is_as_offered = matches!(slot.entry.entry.kind, EntryKind::File { len, .. } if len == row.len);
            if *byte & bit == 0 || !is_as_offered || !matches!(slot.state, EntryState::Wanted) {
                continue;
            }
            *byte &= !bit;
            steps::step(&mut slot.state, EntryState::Staging(Some(row.computed)));
            self.tally.received += row.len;
            files.push(slot.entry.clone());
        }
        Some(match files.is_empty() {
            true => ReceiverAction::DropPayload(ticket),
            false => ReceiverAction::WriteBundle { ticket, files },
        })
    }
}

impl Ticket {
    /// The ticket of what comes unasked: no lane has this number.
    pub const UNASKED: Ticket = Ticket { lane: longhaul_core::LaneId(u32::MAX), seq: 0 };
}
