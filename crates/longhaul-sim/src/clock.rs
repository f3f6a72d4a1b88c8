//! The virtual clock: the coming events, in the order of their time.
//!
//! Takes events with the time that they need; gives them back one by one, and the time with them.
//! Knows nothing of the content of an event.

use std::collections::BTreeMap;

use longhaul_proto::Timestamp;

/// The time, and the coming events.
#[derive(Debug)]
pub(crate) struct Clock<E> {
    now: Timestamp,
    next: u64,
    queue: BTreeMap<(u64, u64), E>,
}

impl<E> Clock<E> {
    pub(crate) fn new() -> Clock<E> {
        Clock { now: Timestamp(0), next: 0, queue: BTreeMap::new() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// `event` happens at `at`, in microseconds, or now if that is past, behind all events of that
    /// time.
    pub(crate) fn at(&mut self, at: u64, event: E) {
        self.next += 1;
        self.queue.insert((at.max(self.now.0), self.next), event);
    }

    /// `event` happens in `us` microseconds.
    pub(crate) fn after(&mut self, us: u64, event: E) {
        self.at(self.now.0 + us, event);
    }

    /// The coming events, in their order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &E> {
        self.queue.values()
    }

    /// The next event; it is its time then.
    pub(crate) fn pop(&mut self) -> Option<E> {
        let ((at, _), event) = self.queue.pop_first()?;
        self.now = Timestamp(at);
        Some(event)
    }
}
