//! Sets how many buffers a sending session reads ahead into.
//!
//! In: the lanes that stand, and the devices that are read. Out: the limit of the slab. It knows no
//! files.

use std::sync::Arc;

use longhaul_sys::Slab;

use crate::budget;
use crate::session::control::ControlLink;
use crate::session::source::SourceWorkers;

/// The buffers of a sending session, and how many of them it uses.
pub(super) struct ReadAhead {
    /// The buffers.
    pub(super) slab: Arc<Slab>,
    /// The number of requests that the disk keeps in flight.
    pub(super) depth: usize,
    /// The devices that were read at the last look. 0 before the first.
    pub(super) devices: usize,
}

impl ReadAhead {
    /// Reads as far ahead as the lanes that stand and the devices that are read need.
    pub(super) fn fit(&mut self, link: &ControlLink, workers: &SourceWorkers) {
        self.devices = workers.devices();
        let limit = budget::sender_slots(self.depth * self.devices, link.lanes()).min(self.slots(link));
        self.slab.set_limit(limit);
        workers.set_slots(limit);
    }

    /// Whether more devices are read than at the last look.
    pub(super) fn is_outgrown(&self, workers: &SourceWorkers) -> bool {
        workers.devices() > self.devices
    }

    /// Slots for reading. The windows of lanes, if there are any, have the rest of the memory.
    fn slots(&self, link: &ControlLink) -> usize {
        let slots = self.slab.slots();
        let least = self.depth + link.lanes() as usize;
        if link.any_windows() { budget::beside_windows(slots).max(least) } else { slots }
    }
}
