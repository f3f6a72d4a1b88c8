//! Owns the reads that were not begun: orders of the sender's machine, first come first served,
//! without those that nobody wants any more.
//!
//! In: orders from the session loop. Out: orders to the one thread that feeds the lanes, which
//! waits for buffers. When a file is settled, its chunks that wait here are dropped, and so is its
//! place in a bundle that waits. The bundle itself stays, because the machine still expects a
//! report on it. So there are never more chunks and bundles than the machine has outstanding, and
//! no more names than those of files without outcome, whatever a receiver says of files whose turn
//! has not come. It reads nothing and knows no messages.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::Digest;
use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkMap, FileId};
use longhaul_proto::sender::Small;

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

/// The orders that wait. See the module.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: Mutex<OrderQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OrderQueue {
    /// Orders by number of arrival, so that those of one file are found without a look at the
    /// others.
    queue: BTreeMap<u64, (Order, Pending)>,
    /// The number of the next order.
    next: u64,
    /// The numbers of the waiting chunks of each file.
    chunks: HashMap<FileId, VecDeque<u64>>,
    /// The number of the waiting bundle of each small file, and its place in it.
    bundled: HashMap<FileId, (u64, usize)>,
    /// Whether no order is begun for now.
    is_held: bool,
    /// Whether no more orders will come.
    is_closed: bool,
}

impl Orders {
    /// Adds an order.
    pub(super) fn push(&self, order: Order, pending: Pending) {
        let mut waiting = self.lock();
        let at = waiting.next;
        waiting.next += 1;
        match &order {
            Order::Chunk(chunk) => waiting.chunks.entry(chunk.file).or_default().push_back(at),
            Order::Bundle { files, .. } => {
                let wanted = files.iter().enumerate().filter_map(|(which, file)| Some((which, file.as_ref()?)));
                waiting.bundled.extend(wanted.map(|(which, (small, _))| (small.file, (at, which))));
            }
        }
        waiting.queue.insert(at, (order, pending));
        self.changed.notify_one();
    }

    /// Takes the next order, waiting for one. `None` when the last is taken and no more will come.
    pub(super) fn take(&self) -> Option<(Order, Pending)> {
        let mut waiting = self.lock();
        loop {
            if !waiting.is_held || waiting.is_closed {
                if let Some(next) = waiting.next() {
                    return Some(next);
                }
                if waiting.is_closed {
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
        for at in waiting.chunks.remove(&file).unwrap_or_default() {
            waiting.queue.remove(&at);
        }
        if let Some((at, which)) = waiting.bundled.remove(&file)
            && let Some((Order::Bundle { files, .. }, _)) = waiting.queue.get_mut(&at)
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

    fn lock(&self) -> MutexGuard<'_, OrderQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderQueue {
    fn next(&mut self) -> Option<(Order, Pending)> {
        let (at, next) = self.queue.pop_first()?;
        match &next.0 {
            Order::Chunk(chunk) => {
                if let Some(waiting) = self.chunks.get_mut(&chunk.file) {
                    // The oldest order is the oldest of its file.
                    waiting.pop_front();
                    if waiting.is_empty() {
                        self.chunks.remove(&chunk.file);
                    }
                }
            }
            Order::Bundle { files, .. } => {
                for (small, _) in files.iter().flatten() {
                    if self.bundled.get(&small.file).is_some_and(|(of, _)| *of == at) {
                        self.bundled.remove(&small.file);
                    }
                }
            }
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use longhaul_core::filter::Filter;
    use longhaul_core::{ChunkSize, Preserve};
    use longhaul_disk::{ScanRequest, Scanned, SourceTree, VoidSource};

    use super::*;

    fn origin() -> Arc<Origin> {
        let mut origin = None;
        let what = ScanRequest { filter: &Filter::default(), preserve: Preserve::default(), files_from: None };
        VoidSource { len: 1 << 30, files: 1 }.scan(&what, &mut |scanned| {
            if let Scanned::Entry { source, identity, .. } = scanned {
                origin = Some(Origin { at: source, identity, sparse: false });
            }
            ControlFlow::Continue(())
        });
        Arc::new(origin.expect("a file"))
    }

    fn chunk(file: u64, index: u64) -> Order {
        Order::Chunk(ChunkOrder {
            file: FileId(file),
            index: ChunkIndex(index),
            attempt: Attempt::FIRST,
            map: ChunkMap::new(1 << 30, ChunkSize::DEFAULT),
            expect: None,
            origin: origin(),
        })
    }

    fn taken(orders: &Orders) -> Option<(u64, u64)> {
        orders.take().map(|(order, _)| match order {
            Order::Chunk(chunk) => (chunk.file.0, chunk.index.0),
            Order::Bundle { bundle, .. } => (u64::MAX, bundle.0),
        })
    }

    #[test]
    fn what_is_ordered_of_files_that_are_at_their_end_does_not_wait_for_buffers() {
        let (orders, pending) = (Orders::default(), Pending::default());
        for file in 0..10_000 {
            (0..16).for_each(|index| orders.push(chunk(file, index), pending.clone()));
            assert!(orders.lock().queue.len() <= 2 * 16);
            if file > 0 {
                orders.forget(FileId(file - 1));
            }
        }
        assert_eq!((orders.lock().queue.len(), Arc::strong_count(&pending)), (16, 17));
        orders.push(Order::Bundle { bundle: BundleId(5), attempt: Attempt::FIRST, files: Vec::new() }, pending.clone());
        (0..16).for_each(|index| assert_eq!(taken(&orders), Some((9_999, index)), "in order"));
        orders.forget(FileId(9_999));
        orders.close();
        assert_eq!((taken(&orders), taken(&orders)), (Some((u64::MAX, 5)), None));
        assert!(orders.lock().chunks.is_empty());
    }

    #[test]
    fn what_a_file_takes_with_it_is_found_among_many_others() {
        let (orders, pending) = (Orders::default(), Pending::default());
        for bundle in 0..64 << 10 {
            let bundle = Order::Bundle { bundle: BundleId(bundle), attempt: Attempt::FIRST, files: Vec::new() };
            orders.push(bundle, pending.clone());
        }
        let began = std::time::Instant::now();
        for file in 0..64 << 10 {
            orders.push(chunk(file, 0), pending.clone());
            orders.forget(FileId(file));
        }
        // A look at all that wait for each of them would take minutes.
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        assert_eq!(orders.lock().queue.len(), 64 << 10);
    }

    #[test]
    fn nothing_is_kept_of_small_files_that_are_at_their_end() {
        let (orders, pending, origin) = (Orders::default(), Pending::default(), origin());
        let order = |bundle, files: std::ops::Range<u64>| {
            let small = |file| Small { file: FileId(file), len: 1, standing_root: None };
            let files = files.map(|file| Some((small(file), origin.clone()))).collect();
            orders.push(Order::Bundle { bundle: BundleId(bundle), attempt: Attempt::FIRST, files }, pending.clone());
        };
        let wanted = || match orders.take() {
            Some((Order::Bundle { bundle, files, .. }, _)) => {
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
            let orders = Arc::new(Orders::default());
            orders.hold(true);
            orders.push(chunk(1, 2), Pending::default());
            let taking = orders.clone();
            let thread = std::thread::spawn(move || taken(&taking));
            goes_on(&orders);
            assert_eq!(thread.join().expect("it is taken"), Some((1, 2)));
        }
    }
}
