//! Owns the orders of one device that were not begun, and says which is the next and whether the
//! device may take one more.
//!
//! In: orders, with the place on the device where each begins. Out: one order at a time. On a
//! rotating device those that wait when a sweep begins are taken in the order of their places;
//! later ones wait for the next sweep, so that no order waits for more than one sweep. On any other
//! device they are taken as they came. It waits for nothing and knows no threads.

use std::collections::BTreeMap;

use longhaul_disk::Medium;

use super::orders::{Order, OrderKind};
use super::source::Pending;

/// Where an order stands in the queue of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OrderKey {
    /// The sweep that takes it. 0 on a device that needs none.
    sweep: u64,
    /// Where it begins. 0 on a device whose places are all alike.
    place: u64,
    /// How many orders came before it.
    arrival: u64,
}

/// The orders of one device. See the module.
#[derive(Debug, Default)]
pub(super) struct DeviceOrders {
    medium: Medium,
    queue: BTreeMap<OrderKey, (Order, Pending)>,
    /// Orders that came so far.
    arrivals: u64,
    /// The sweep that is under way.
    sweep: u64,
    /// Orders that the disk works on, and the bundles among them.
    turns: usize,
    bundles: usize,
    /// Orders of all devices that had been taken when the last one of this was. `None` before the
    /// first.
    last_taken: Option<u64>,
}

impl DeviceOrders {
    /// No orders, for a device of this kind.
    pub(super) fn new(medium: Medium) -> DeviceOrders {
        DeviceOrders { medium, ..DeviceOrders::default() }
    }

    /// The key of an order that comes now and begins at `place`.
    pub(super) fn next_key(&mut self, place: u64) -> OrderKey {
        let arrival = self.arrivals;
        self.arrivals += 1;
        match self.medium {
            Medium::Rotating => OrderKey { sweep: self.sweep + 1, place, arrival },
            Medium::Flash | Medium::Unknown => OrderKey { sweep: 0, place: 0, arrival },
        }
    }

    /// Adds an order.
    pub(super) fn push(&mut self, key: OrderKey, order: Order, pending: Pending) {
        self.queue.insert(key, (order, pending));
    }

    /// Drops an order.
    pub(super) fn remove(&mut self, key: OrderKey) {
        self.queue.remove(&key);
    }

    /// An order that waits.
    pub(super) fn get_mut(&mut self, key: OrderKey) -> Option<&mut Order> {
        self.queue.get_mut(&key).map(|(order, _)| order)
    }

    /// Whether no order waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of orders that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the device counts as one that others share buffers with: it has orders, or had some
    /// until a moment ago. `taken`: orders of all devices that were taken so far. A device whose
    /// next orders are on their way would otherwise find all buffers with its slower neighbours.
    pub(super) fn is_active(&self, taken: u64) -> bool {
        let lately = self.last_taken.is_some_and(|last| taken - last <= REMEMBERED_ORDERS);
        !self.queue.is_empty() || self.turns > 0 || lately
    }

    /// Takes the next order, if the device may have one more in hand: alone as many as there are,
    /// one of several no more than its share of `slots` buffers, and of the threads that pack.
    pub(super) fn take(&mut self, taken: u64, active: usize, slots: usize) -> Option<(OrderKey, (Order, Pending))> {
        let first = self.queue.first_entry()?;
        let is_bundle = first.get().0.kind() == OrderKind::Bundle;
        if active > 1 {
            let bundles_max = (PACKERS / active).max(1);
            if self.turns >= (slots / active).max(1) || (is_bundle && self.bundles >= bundles_max) {
                return None;
            }
        }
        let (key, next) = first.remove_entry();
        self.sweep = self.sweep.max(key.sweep);
        self.turns += 1;
        self.bundles += usize::from(is_bundle);
        self.last_taken = Some(taken);
        Some((key, next))
    }

    /// The disk is through with an order.
    pub(super) fn end_turn(&mut self, kind: OrderKind) {
        self.turns -= 1;
        self.bundles -= usize::from(kind == OrderKind::Bundle);
    }
}

/// Bundles packed at a time: reading small files waits for the disk more than for the processor.
pub(super) const PACKERS: usize = 4;
/// Orders of other devices after which a device without orders has no share any more. A guess: some
/// windows of wanted chunks of one file pass in that time.
const REMEMBERED_ORDERS: u64 = 256;

#[cfg(test)]
mod tests {
    use longhaul_core::{Attempt, BundleId};

    use super::*;

    fn order(bundle: u64) -> Order {
        Order::Bundle { bundle: BundleId(bundle), attempt: Attempt::FIRST, files: Vec::new() }
    }

    /// Adds orders that begin at these places, each named by its place.
    fn push(orders: &mut DeviceOrders, places: &[u64]) {
        for place in places {
            let key = orders.next_key(*place);
            orders.push(key, order(*place), Pending::default());
        }
    }

    /// Takes so many orders, each of which the disk is through with at once.
    fn take(orders: &mut DeviceOrders, count: usize) -> Vec<u64> {
        let taken = (0..count).map_while(|_| {
            let (_, (order, _)) = orders.take(0, 1, 8)?;
            orders.end_turn(OrderKind::Bundle);
            if let Order::Bundle { bundle, .. } = order { Some(bundle.0) } else { None }
        });
        taken.collect()
    }

    #[test]
    fn a_rotating_device_is_read_in_sweeps_and_any_other_as_it_was_ordered() {
        for (medium, first, rest) in [
            (Medium::Rotating, [10, 20], [20, 30, 5, 25, 40]),
            (Medium::Flash, [30, 10], [20, 20, 40, 25, 5]),
            (Medium::Unknown, [30, 10], [20, 20, 40, 25, 5]),
        ] {
            let mut orders = DeviceOrders::new(medium);
            push(&mut orders, &[30, 10, 20, 20]);
            assert_eq!(take(&mut orders, 2), first, "{medium:?}");
            // They come when a sweep is under way, and do not delay what waits for it.
            push(&mut orders, &[40, 25, 5]);
            assert_eq!(take(&mut orders, 9), rest, "{medium:?}");
        }
    }

    #[test]
    fn orders_that_keep_coming_near_the_head_do_not_keep_those_further_off_waiting() {
        let mut orders = DeviceOrders::new(Medium::Rotating);
        push(&mut orders, &[1, 1000]);
        let taken = (0..10).flat_map(|_| {
            push(&mut orders, &[1]);
            take(&mut orders, 1)
        });
        assert!(taken.take(3).any(|place| place == 1000));
    }

    #[test]
    fn one_of_several_devices_takes_its_share_and_one_alone_takes_all() {
        let taken = |active| {
            let mut orders = DeviceOrders::new(Medium::Flash);
            (0..100).for_each(|at| {
                let key = orders.next_key(at);
                orders.push(key, chunk(), Pending::default());
            });
            std::iter::from_fn(|| orders.take(0, active, 20)).count()
        };
        assert_eq!((taken(1), taken(2), taken(3), taken(50)), (100, 10, 6, 1));
        let packed = |active| {
            let mut orders = DeviceOrders::new(Medium::Flash);
            push(&mut orders, &[0; 100]);
            std::iter::from_fn(|| orders.take(0, active, 20)).count()
        };
        assert_eq!((packed(1), packed(2), packed(9)), (100, PACKERS / 2, 1));
    }

    #[test]
    fn a_device_keeps_its_share_for_a_while_after_its_last_order() {
        let mut orders = DeviceOrders::new(Medium::Flash);
        assert!(!orders.is_active(0), "nothing was ever read of it");
        push(&mut orders, &[0]);
        assert!(orders.is_active(0));
        assert!(orders.take(7, 2, 8).is_some());
        assert!(orders.is_active(7 + REMEMBERED_ORDERS + 1), "the disk works on it");
        orders.end_turn(OrderKind::Bundle);
        assert!(orders.is_active(7 + REMEMBERED_ORDERS));
        assert!(!orders.is_active(7 + REMEMBERED_ORDERS + 1));
    }

    fn chunk() -> Order {
        crate::session::orders::tests::chunk(0, 0)
    }
}
