//! Arrivals of `safe` lanes and what the sender declares of them over control: each waits for the
//! other.
//!
//! Takes both in any order; gives each pair once. What waits is bounded by what can honestly be on
//! its way. Judges nothing.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use longhaul_core::limits::{CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{Blame, Fault, FaultCode, LaneId};

use super::order::{Landed, Ticket};
use crate::time::Timestamp;
use crate::wire::message::Declared;

/// Halves of pairs.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    landed: HashMap<Ticket, (Timestamp, Landed)>,
    /// The same, oldest first.
    waiting: BTreeSet<(Timestamp, Ticket)>,
    declared: HashMap<Ticket, Declared>,
}

impl Arrivals {
    /// A unit arrived without an authentic digest: its declaration, if that has come.
    pub(super) fn land(&mut self, now: Timestamp, landed: Landed) -> Result<Option<(Landed, Declared)>, Fault> {
        let ticket = landed.ticket;
        if let Some(declared) = self.declared.remove(&ticket) {
            return Ok(Some((landed, declared)));
        }
        if self.landed.len() >= UNMATCHED_MAX {
            return Err(Fault::new(
                FaultCode::Lost,
                Blame::Path,
                "more data arrived than was asked for: someone writes to a lane who is not the sender",
            )
            .hint("run the same command again, or with --protect private"));
        }
        if self.landed.insert(ticket, (now, landed)).is_some() {
            return Err(Fault::new(FaultCode::Internal, Blame::Bug, "one arrival was reported twice"));
        }
        self.waiting.insert((now, ticket));
        Ok(None)
    }

    /// The sender says what an arrival was: that arrival, if it has come.
    pub(super) fn declare(&mut self, declared: Declared) -> Result<Option<(Landed, Declared)>, Fault> {
        let ticket = Ticket { lane: declared.lane, seq: declared.seq };
        if let Some((since, landed)) = self.landed.remove(&ticket) {
            self.waiting.remove(&(since, ticket));
            return Ok(Some((landed, declared)));
        }
        if self.declared.len() >= UNMATCHED_MAX {
            return Err(Fault::protocol("more digests declared than units wanted"));
        }
        match self.declared.insert(ticket, declared) {
            None => Ok(None),
            Some(_) => Err(Fault::protocol("two digests declared for one unit of a lane")),
        }
    }

    /// Nothing more arrives on a lane: what was declared of it and never came is forgotten.
    pub(super) fn close(&mut self, lane: LaneId) {
        self.declared.retain(|ticket, _| ticket.lane != lane);
    }

    /// The lanes of which something was declared that has not landed.
    pub(super) fn owing(&self) -> BTreeSet<LaneId> {
        self.declared.keys().map(|ticket| ticket.lane).collect()
    }

    /// Whether something was declared that has not landed.
    pub(super) fn is_owed(&self) -> bool {
        !self.declared.is_empty()
    }

    /// When the oldest arrival has waited too long.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(since, _)| since.after(UNDECLARED_MAX))
    }
}

/// An arrival whose declaration stays away so long has been forged, or the sender is broken.
pub(super) const UNDECLARED_MAX: Duration = Duration::from_secs(30);
/// Each unsettled small file is in one unit at a time, each wanted chunk too: an honest sender has
/// no more under way.
const UNMATCHED_MAX: usize = ENTRIES_UNSETTLED_MAX + CHUNKS_WANTED_MAX;
