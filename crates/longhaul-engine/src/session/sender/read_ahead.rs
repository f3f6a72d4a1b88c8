//! Sets how many buffers a sending session reads ahead into.
//!
//! In: the lanes that stand. Out: the limit of the slab. It knows no files.

use std::sync::Arc;

use longhaul_sys::Slab;

use crate::budget;
use crate::session::control::ControlLink;

/// The buffers of a sending session.
pub(super) struct ReadAhead {
    /// The buffers.
    pub(super) slab: Arc<Slab>,
    /// The number of requests that the disk keeps in flight.
    pub(super) depth: usize,
}

impl ReadAhead {
    /// Reads as far ahead as the lanes that stand need.
    pub(super) fn fit(&self, link: &ControlLink) {
        self.slab.set_limit(budget::sender_slots(self.depth, link.lanes()).min(self.slots(link)));
    }

    /// Slots for reading. The windows of lanes, if there are any, have the rest of the memory.
    fn slots(&self, link: &ControlLink) -> usize {
        let slots = self.slab.slots();
        let least = self.depth + link.lanes() as usize;
        if link.any_windows() { budget::beside_windows(slots).max(least) } else { slots }
    }
}
