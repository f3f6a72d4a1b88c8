//! What is to be read and was not begun: orders of the sender's machine, first come first served, without those that nobody wants any
//! more.
//!
//! In: orders from the session loop. Out: to the one thread that feeds the lanes, which waits for buffers. A file at its end takes its orders with
//! it, so that there are never more than the machine has outstanding, whatever a receiver says of files whose turn has not come. Reads nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::digest::Digest;
use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkMap, FileId};
use longhaul_proto::sender::Small;

use super::reading::{Origin, Pending};

/// An order to read.
#[derive(Debug)]
pub(super) enum Order {
    Chunk(ChunkOrder),
    Bundle { bundle: BundleId, attempt: Attempt, files: Vec<(Small, Origin)> },
}

/// A chunk to read.
#[derive(Clone, Debug)]
pub(crate) struct ChunkOrder {
    pub(crate) file: FileId,
    pub(crate) index: ChunkIndex,
    pub(crate) attempt: Attempt,
    pub(crate) map: ChunkMap,
    /// The receiver holds a chunk of this digest.
    pub(crate) expect: Option<Digest>,
    pub(crate) origin: Origin,
}

/// The orders that wait. See the module.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By when they came, so that those of one file are found without looking at the others.
    queue: BTreeMap<u64, (Order, Pending)>,
    /// When the next comes.
    next: u64,
    /// When the chunks of each file came that wait.
    chunks: HashMap<FileId, VecDeque<u64>>,
    /// None is begun for now.
    is_held: bool,
    /// No more will come.
    is_closed: bool,
}

impl Orders {
    /// Adds an order.
    pub(super) fn push(&self, order: Order, pending: Pending) {
        let mut waiting = self.lock();
        let at = waiting.next;
        waiting.next += 1;
        if let Order::Chunk(chunk) = &order {
            waiting.chunks.entry(chunk.file).or_default().push_back(at);
        }
        waiting.queue.insert(at, (order, pending));
        self.changed.notify_one();
    }

    /// Takes the next order, waiting for one; none when the last is taken and no more will come.
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

    /// Nobody wants chunks of a file any more. Costs no more than its own orders, however many others wait: a receiver says as often
    /// as it likes that a file is at its end.
    pub(super) fn forget(&self, file: FileId) {
        let mut waiting = self.lock();
        for at in waiting.chunks.remove(&file).unwrap_or_default() {
            waiting.queue.remove(&at);
        }
    }

    /// Begins none of them from now on, or begins them again.
    pub(super) fn hold(&self, is_held: bool) {
        let mut waiting = self.lock();
        if std::mem::replace(&mut waiting.is_held, is_held) && !is_held {
            self.changed.notify_all();
        }
    }

    /// No more will come.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn next(&mut self) -> Option<(Order, Pending)> {
        let (_, next) = self.queue.pop_first()?;
        if let (Order::Chunk(chunk), _) = &next
            && let Some(waiting) = self.chunks.get_mut(&chunk.file)
        {
            // The first of all is the first of its file.
            waiting.pop_front();
            if waiting.is_empty() {
                self.chunks.remove(&chunk.file);
            }
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use longhaul_core::filter::Filter;
    use longhaul_core::{ChunkSize, Preserve};
    use longhaul_disk::{ScanRequest, Scanned, SourceTree, VoidSource};

    use super::*;

    fn origin() -> Origin {
        let mut origin = None;
        let what = ScanRequest { filter: &Filter::default(), preserve: Preserve::default(), files_from: None };
        VoidSource { len: 1 << 30, files: 1 }.scan(&what, &mut |scanned| {
            if let Scanned::Entry { source, identity, .. } = scanned {
                origin = Some(Origin { at: source, identity, sparse: false });
            }
            ControlFlow::Continue(())
        });
        origin.expect("a file")
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
        // Looking at all that wait for each of them takes minutes.
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        assert_eq!(orders.lock().queue.len(), 64 << 10);
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
