//! Owns the reads that were not begun: orders of the sender's machine, in one queue for each device
//! of the sources, without those that nobody wants any more.
//!
//! In: orders from the session loop. Out: orders to the threads that feed the lanes, one for each
//! device, which wait for buffers. While several devices have work, none is given more than its
//! share of the buffers at a time, so that a slow one does not keep the others waiting. When a file
//! is settled, its chunks that wait here are dropped, and so is its place in a bundle that waits.
//! The bundle itself stays, because the machine still expects a report on it. So there are never
//! more chunks and bundles than the machine has outstanding, and no more names than those of files
//! without outcome, whatever a receiver says of files whose turn has not come. It reads nothing and
//! knows no messages.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::Digest;
use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkMap, FileId};
use longhaul_disk::Medium;
use longhaul_proto::sender::Small;

use super::device_orders::{DeviceOrders, OrderKey};
use super::source::{Origin, Pending};

/// An order to read.
#[derive(Debug)]
pub(super) enum Order {
    Chunk(ChunkOrder),
    /// A bundle. The place of a file that nobody wants any more is empty.
    Bundle {
        bundle: BundleId,
        attempt: Attempt,
        files: Vec<Option<FileOrder>>,
    },
}

/// A file to pack.
pub(super) type FileOrder = (Small, Arc<Origin>);

/// A chunk to read.
#[derive(Clone, Debug)]
pub(crate) struct ChunkOrder {
    pub(crate) file: FileId,
    pub(crate) index: ChunkIndex,
    pub(crate) attempt: Attempt,
    pub(crate) map: ChunkMap,
    /// The digest of the chunk that the receiver holds. `None` if it holds none.
    pub(crate) expect: Option<Digest>,
    pub(crate) origin: Arc<Origin>,
}

/// The kind of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderKind {
    /// A chunk, which the disk's queue reads.
    Chunk,
    /// A bundle, which a thread packs.
    Bundle,
}

impl Order {
    /// Its kind.
    pub(super) fn kind(&self) -> OrderKind {
        match self {
            Order::Chunk(_) => OrderKind::Chunk,
            Order::Bundle { .. } => OrderKind::Bundle,
        }
    }

    /// Where the order begins on its device: the inode number of its first file. File systems give
    /// numbers of one neighbourhood to files of one neighbourhood, and a number is known without a
    /// further call, unlike the place of the first block.
    fn place(&self) -> u64 {
        match self {
            Order::Chunk(chunk) => chunk.origin.identity.ino,
            Order::Bundle { files, .. } => files.iter().flatten().next().map_or(0, |(_, origin)| origin.identity.ino),
        }
    }
}

/// The number of a device in a session: the place of its queue. The first that is ordered from has
/// 0.
pub(super) type DeviceNumber = usize;

/// The orders that wait. See the module.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: Mutex<OrderQueues>,
    changed: Condvar,
}

/// An order that the disk works on: it holds a part of its device's share until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    orders: Arc<Orders>,
    device: DeviceNumber,
    kind: OrderKind,
}

#[derive(Debug, Default)]
struct OrderQueues {
    /// The queue of each device.
    devices: Vec<DeviceOrders>,
    /// Buffers that all devices share. 0 as long as nobody said how many.
    slots: usize,
    /// Orders that were taken so far.
    taken: u64,
    /// The keys of the waiting chunks of each file.
    chunks: HashMap<FileId, VecDeque<(DeviceNumber, OrderKey)>>,
    /// The key of the waiting bundle of each small file, and its place in it.
    bundled: HashMap<FileId, (DeviceNumber, OrderKey, usize)>,
    /// Whether no order is begun for now.
    is_held: bool,
    /// Whether no more orders will come.
    is_closed: bool,
}

impl Orders {
    /// Adds a device with this number, or says of which kind it is before anything is ordered of
    /// it.
    pub(super) fn set_device(&self, device: DeviceNumber, medium: Medium) {
        let mut waiting = self.lock();
        if waiting.devices.len() <= device {
            waiting.devices.resize_with(device + 1, DeviceOrders::default);
        }
        waiting.devices[device] = DeviceOrders::new(medium);
    }

    /// Sets how many buffers all devices share.
    pub(super) fn set_slots(&self, slots: usize) {
        self.lock().slots = slots;
        self.changed.notify_all();
    }

    /// Adds an order to read from a device.
    pub(super) fn push(&self, device: DeviceNumber, order: Order, pending: Pending) {
        let mut waiting = self.lock();
        let OrderQueues { devices, chunks, bundled, .. } = &mut *waiting;
        let Some(queue) = devices.get_mut(device) else { return };
        let key = queue.next_key(order.place());
        match &order {
            Order::Chunk(chunk) => chunks.entry(chunk.file).or_default().push_back((device, key)),
            Order::Bundle { files, .. } => {
                let wanted = files.iter().enumerate().filter_map(|(which, file)| Some((which, file.as_ref()?)));
                bundled.extend(wanted.map(|(which, (small, _))| (small.file, (device, key, which))));
            }
        }
        queue.push(key, order, pending);
        self.changed.notify_all();
    }

    /// Takes the next order of a device, waiting for one and for a turn of the device. `None` when
    /// the last is taken and no more will come.
    pub(super) fn take(self: &Arc<Self>, device: DeviceNumber) -> Option<(Order, Pending, Turn)> {
        let mut waiting = self.lock();
        loop {
            if !waiting.is_held || waiting.is_closed {
                if let Some((order, pending)) = waiting.next(device) {
                    let turn = Turn { orders: self.clone(), device, kind: order.kind() };
                    return Some((order, pending, turn));
                }
                if waiting.is_closed && waiting.devices.get(device).is_none_or(DeviceOrders::is_empty) {
                    return None;
                }
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Drops the orders of a file that nobody wants any more. It costs no more than the file's own
    /// orders, however many others wait: a receiver says as often as it likes that a file is at its
    /// end.
    pub(super) fn forget(&self, file: FileId) {
        let mut waiting = self.lock();
        for (device, key) in waiting.chunks.remove(&file).unwrap_or_default() {
            if let Some(queue) = waiting.devices.get_mut(device) {
                queue.remove(key);
            }
        }
        if let Some((device, key, which)) = waiting.bundled.remove(&file)
            && let Some(queue) = waiting.devices.get_mut(device)
            && let Some(Order::Bundle { files, .. }) = queue.get_mut(key)
            && let Some(wanted) = files.get_mut(which)
        {
            *wanted = None;
        }
    }

    /// Stops or resumes the beginning of orders.
    pub(super) fn hold(&self, is_held: bool) {
        let mut waiting = self.lock();
        if std::mem::replace(&mut waiting.is_held, is_held) && !is_held {
            self.changed.notify_all();
        }
    }

    /// Takes no more orders.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, OrderQueues> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut waiting = self.orders.lock();
        if let Some(queue) = waiting.devices.get_mut(self.device) {
            queue.end_turn(self.kind);
        }
        let others_may_wait = waiting.devices.len() > 1;
        drop(waiting);
        if others_may_wait {
            self.orders.changed.notify_all();
        }
    }
}

impl OrderQueues {
    /// The next order of a device, if it has one and its share has room for it.
    fn next(&mut self, device: DeviceNumber) -> Option<(Order, Pending)> {
        let active = self.devices.iter().filter(|queue| queue.is_active(self.taken)).count();
        let (key, next) = self.devices.get_mut(device)?.take(self.taken, active, self.slots)?;
        self.taken += 1;
        match &next.0 {
            Order::Chunk(chunk) => {
                if let Some(waiting) = self.chunks.get_mut(&chunk.file) {
                    // Orders of one file are taken in the order in which they came.
                    waiting.pop_front();
                    if waiting.is_empty() {
                        self.chunks.remove(&chunk.file);
                    }
                }
            }
            Order::Bundle { files, .. } => {
                for (small, _) in files.iter().flatten() {
                    if self.bundled.get(&small.file).is_some_and(|(of, at, _)| (*of, *at) == (device, key)) {
                        self.bundled.remove(&small.file);
                    }
                }
            }
        }
        Some(next)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::ops::ControlFlow;

    use longhaul_core::filter::Filter;
    use longhaul_core::{ChunkSize, Preserve};
    use longhaul_disk::{ScanRequest, Scanned, SourceTree, VoidSource};

    use super::*;

    fn origin() -> Arc<Origin> {
        let mut origin = None;
        let filter = Filter::default();
        let what = ScanRequest::of_all(&filter, Preserve::default());
        VoidSource { len: 1 << 30, files: 1 }.scan(&what, &mut |scanned| {
            if let Scanned::Entry { source, identity, .. } = scanned {
                origin = Some(Origin { at: source, identity, sparse: false });
            }
            ControlFlow::Continue(())
        });
        Arc::new(origin.expect("a file"))
    }

    /// Orders of one device that does not rotate.
    fn of_one() -> Arc<Orders> {
        let orders = Arc::new(Orders::default());
        orders.set_device(0, Medium::Flash);
        orders
    }

    fn waiting(orders: &Orders) -> usize {
        orders.lock().devices.iter().map(DeviceOrders::len).sum()
    }

    /// An order for a chunk of a file of 1 GiB.
    pub(in crate::session) fn chunk(file: u64, index: u64) -> Order {
        Order::Chunk(ChunkOrder {
            file: FileId(file),
            index: ChunkIndex(index),
            attempt: Attempt::FIRST,
            map: ChunkMap::new(1 << 30, ChunkSize::DEFAULT),
            expect: None,
            origin: origin(),
        })
    }

    fn taken(orders: &Arc<Orders>) -> Option<(u64, u64)> {
        orders.take(0).map(|(order, ..)| match order {
            Order::Chunk(chunk) => (chunk.file.0, chunk.index.0),
            Order::Bundle { bundle, .. } => (u64::MAX, bundle.0),
        })
    }

    #[test]
    fn what_is_ordered_of_files_that_are_at_their_end_does_not_wait_for_buffers() {
        let (orders, pending) = (of_one(), Pending::default());
        for file in 0..10_000 {
            (0..16).for_each(|index| orders.push(0, chunk(file, index), pending.clone()));
            assert!(waiting(&orders) <= 2 * 16);
            if file > 0 {
                orders.forget(FileId(file - 1));
            }
        }
        assert_eq!((waiting(&orders), Arc::strong_count(&pending)), (16, 17));
        orders.push(
            0,
            Order::Bundle { bundle: BundleId(5), attempt: Attempt::FIRST, files: Vec::new() },
            pending.clone(),
        );
        (0..16).for_each(|index| assert_eq!(taken(&orders), Some((9_999, index)), "in order"));
        orders.forget(FileId(9_999));
        orders.close();
        assert_eq!((taken(&orders), taken(&orders)), (Some((u64::MAX, 5)), None));
        assert!(orders.lock().chunks.is_empty());
    }

    #[test]
    fn what_a_file_takes_with_it_is_found_among_many_others() {
        let (orders, pending) = (of_one(), Pending::default());
        for bundle in 0..64 << 10 {
            let bundle = Order::Bundle { bundle: BundleId(bundle), attempt: Attempt::FIRST, files: Vec::new() };
            orders.push(0, bundle, pending.clone());
        }
        let began = std::time::Instant::now();
        for file in 0..64 << 10 {
            orders.push(0, chunk(file, 0), pending.clone());
            orders.forget(FileId(file));
        }
        // A look at all that wait for each of them would take minutes.
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        assert_eq!(waiting(&orders), 64 << 10);
    }

    #[test]
    fn nothing_is_kept_of_small_files_that_are_at_their_end() {
        let (orders, pending, origin) = (of_one(), Pending::default(), origin());
        let order = |bundle, files: std::ops::Range<u64>| {
            let small = |file| Small { file: FileId(file), len: 1, standing_root: None };
            let files = files.map(|file| Some((small(file), origin.clone()))).collect();
            orders.push(0, Order::Bundle { bundle: BundleId(bundle), attempt: Attempt::FIRST, files }, pending.clone());
        };
        let wanted = || match orders.take(0) {
            Some((Order::Bundle { bundle, files, .. }, ..)) => {
                (bundle.0, files.iter().flatten().map(|(small, _)| small.file.0).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        order(0, 0..1000);
        order(1, 1000..1010);
        (0..1000).chain([1003]).for_each(|file| orders.forget(FileId(file)));
        assert_eq!(Arc::strong_count(&origin), 1 + 9);
        // The machine is to hear of a bundle too of which no file is left.
        assert_eq!(wanted(), (0, vec![]));
        // A file that is packed already does not reduce the next bundle.
        order(2, 1005..1006);
        assert_eq!(wanted(), (1, vec![1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008, 1009]));
        orders.forget(FileId(1005));
        orders.forget(FileId(1006));
        assert_eq!(wanted(), (2, vec![]));
        assert!(orders.lock().bundled.is_empty());
    }

    #[test]
    fn orders_that_are_held_wait_until_they_are_not_or_no_more_will_come() {
        for goes_on in [(|orders: &Orders| orders.hold(false)) as fn(&Orders), Orders::close] {
            let orders = of_one();
            orders.hold(true);
            orders.push(0, chunk(1, 2), Pending::default());
            let taking = orders.clone();
            let thread = std::thread::spawn(move || taken(&taking));
            goes_on(&orders);
            assert_eq!(thread.join().expect("it is taken"), Some((1, 2)));
        }
    }

    #[test]
    fn a_slow_device_does_not_take_the_buffers_of_a_fast_one() {
        let (orders, pending) = (Arc::new(Orders::default()), Pending::default());
        (0..2).for_each(|device| orders.set_device(device, Medium::Flash));
        orders.set_slots(8);
        // The slow one comes first, and takes all buffers as long as nobody else wants any.
        (0..100).for_each(|index| orders.push(0, chunk(0, index), pending.clone()));
        let take = |device| {
            orders.lock().next(device).map(|_| Turn { orders: orders.clone(), device, kind: OrderKind::Chunk })
        };
        let mut slow: Vec<_> = (0..8).map(|_| take(0).expect("a turn")).collect();
        (0..100).for_each(|index| orders.push(1, chunk(1, index), pending.clone()));
        let fast: Vec<_> = std::iter::from_fn(|| take(1)).collect();
        assert_eq!(fast.len(), 4, "its share");
        // What the slow one gives back goes to the other, until both have the same.
        for _ in 0..4 {
            assert!(take(0).is_none());
            slow.pop();
        }
        assert!(take(0).is_none());
        slow.pop();
        assert!(take(0).is_some());
        drop(fast);
        assert!(take(1).is_some());
    }

    #[test]
    fn a_feeder_goes_on_when_its_device_has_a_turn_again() {
        let (orders, pending) = (Arc::new(Orders::default()), Pending::default());
        (0..2).for_each(|device| orders.set_device(device, Medium::Flash));
        orders.set_slots(2);
        (0..2).for_each(|device| (0..2).for_each(|index| orders.push(device, chunk(9, index), pending.clone())));
        let turn = orders.take(0).expect("an order");
        let waits = orders.clone();
        let thread = std::thread::spawn(move || waits.take(0).is_some());
        drop(turn);
        assert!(thread.join().expect("it is taken"));
    }
}
