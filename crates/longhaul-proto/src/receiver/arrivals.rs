//! Arrivals of `safe` lanes and their declarations over control: each waits for the other.
//!
//! Takes both in any order and gives each pair once. Both are bounded by the units that an honest
//! sender has on its way. Judges nothing.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use longhaul_core::limits::{CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{Blame, Fault, FaultCode, LaneId, hint};

use super::order::{Landed, Ticket};
use crate::time::Timestamp;
use crate::wire::message::Declared;

/// Arrivals and declarations without their other half.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    landed: HashMap<Ticket, (Timestamp, Landed)>,
    /// The arrivals of `landed`, oldest first.
    waiting: BTreeSet<(Timestamp, Ticket)>,
    declared: HashMap<Ticket, Declared>,
}

impl Arrivals {
    /// Takes a unit that arrived without an authentic digest. Gives its declaration, if that has
    /// come.
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
            .hint(hint::Again::Encrypted));
        }
        if self.landed.insert(ticket, (now, landed)).is_some() {
            return Err(Fault::new(FaultCode::Internal, Blame::Bug, "one arrival was reported twice"));
        }
        self.waiting.insert((now, ticket));
        Ok(None)
    }

    /// Takes a declaration. Gives the arrival that it describes, if that has come.
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

    /// Forgets the declarations of a closed lane, on which nothing more arrives.
    pub(super) fn close(&mut self, lane: LaneId) {
        self.declared.retain(|ticket, _| ticket.lane != lane);
    }

    /// The lanes with declared units that have not landed.
    pub(super) fn owing(&self) -> BTreeSet<LaneId> {
        self.declared.keys().map(|ticket| ticket.lane).collect()
    }

    /// Whether a declared unit has not landed.
    pub(super) fn is_owed(&self) -> bool {
        !self.declared.is_empty()
    }

    /// When the oldest arrival has waited too long for its declaration. `None` if none waits.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(since, _)| since.after(UNDECLARED_MAX))
    }
}

/// The longest wait of an arrival for its declaration. After that it was forged, or the sender is
/// broken.
pub(super) const UNDECLARED_MAX: Duration = Duration::from_secs(30);
/// The most arrivals or declarations that wait. Each unsettled small file is in one unit at a time,
/// each wanted chunk too: an honest sender has no more on its way.
const UNMATCHED_MAX: usize = ENTRIES_UNSETTLED_MAX + CHUNKS_WANTED_MAX;
