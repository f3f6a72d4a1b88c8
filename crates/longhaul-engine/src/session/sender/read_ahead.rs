//! Sets how many buffers a sending session reads ahead into.
//!
//! In: the lanes that stand, the devices that are read, and the depth of their queues. Out: the
//! limit of the slab. It knows no files.

use std::sync::Arc;

use longhaul_disk::ChunkIo;
use longhaul_sys::Slab;

use crate::budget;
use crate::session::control::ControlLink;
use crate::session::source::SourceWorkers;

/// The buffers of a sending session, and how many of them it uses.
pub(super) struct ReadAhead {
    /// The buffers.
    slab: Arc<Slab>,
    io: ChunkIo,
    /// The number of requests that a disk was given at a time at the last look.
    depth: usize,
    /// The devices that were read at the last look. 0 before the first.
    devices: usize,
}

impl ReadAhead {
    /// The buffers of a session that reads through `io`.
    pub(super) fn new(slab: Arc<Slab>, io: ChunkIo) -> ReadAhead {
        ReadAhead { slab, depth: io.depth_now(), io, devices: 0 }
    }

    /// Reads as far ahead as the lanes that stand and the devices that are read need.
    pub(super) fn fit(&mut self, link: &ControlLink, workers: &SourceWorkers) {
        (self.devices, self.depth) = (workers.devices(), self.io.depth_now());
        let needed = budget::sender_slots(self.depth * self.devices, link.lanes());
        // A path that is long has many units on their way, each with its slot.
        let limit = if link.any_holding() { self.slab.slots() } else { needed.min(self.slots(link)) };
        self.slab.set_limit(limit);
        workers.set_slots(limit);
    }

    /// Whether more devices are read than at the last look, or they are given more or fewer
    /// requests at a time.
    pub(super) fn is_outdated(&self, workers: &SourceWorkers) -> bool {
        workers.devices() > self.devices || self.io.depth_now() != self.depth
    }

    /// Slots for reading. The windows of lanes, if there are any, have the rest of the memory.
    fn slots(&self, link: &ControlLink) -> usize {
        let slots = self.slab.slots();
        let least = self.depth + link.lanes() as usize;
        if link.any_windows() { budget::beside_windows(slots).max(least) } else { slots }
    }
}
