//! Turns at the processor: handshakes are worked on a few at a time, and networks take turns.
//!
//! A handshake costs a key exchange and signatures, a few tenths of a millisecond, and whoever dials decides when. Without this, one
//! address that dials thousands of times a second is served as often as it asks, and who dials once waits behind all of it.
//! Handshakes that were begun come before new ones: when there is more to do than can be done, those that were begun are ended,
//! and the others wait or give up before anything was spent on them. Takes sources; gives [`Turn`]s. Must not know what is computed.

use std::collections::{HashMap, VecDeque};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

use crate::crowd::{Network, Source};

/// The turns of one process. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<Inside>>);

#[derive(Debug)]
struct Inside {
    free: usize,
    begun: Ring<oneshot::Sender<Turn>>,
    new: Ring<oneshot::Sender<Turn>>,
}

/// What a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The first computation of a handshake.
    New,
    /// Any other of it.
    Begun,
}

/// Leave to compute; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn(Turns);

impl Turns {
    /// So many at a time.
    pub(crate) fn new(at_once: usize) -> Turns {
        let (begun, new) = (Ring::default(), Ring::default());
        Turns(Arc::new(Mutex::new(Inside { free: at_once.max(1), begun, new })))
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, source: Source, stage: Stage) -> Turn {
        let granted = {
            let mut inside = self.lock();
            if inside.free > 0 {
                inside.free -= 1;
                return Turn(self.clone());
            }
            let (grant, granted) = oneshot::channel();
            let queue = match stage {
                Stage::New => &mut inside.new,
                Stage::Begun => &mut inside.begun,
            };
            queue.push(source.network(), grant);
            granted
        };
        match granted.await {
            Ok(turn) => turn,
            // Nobody drops what waits in the queue while the queue lives.
            Err(_) => pending().await,
        }
    }

    /// Polls `work` at turns alone, the first of which is given: whatever it computes between two waits is one turn.
    pub(crate) async fn during<F: Future>(&self, source: Source, first: Turn, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut turn = Some(first);
        loop {
            let worked = poll_fn(|cx| match turn.take() {
                Some(_turn) => work.as_mut().poll(cx).map(Some),
                // There is something to do again.
                None => Poll::Ready(None),
            });
            if let Some(output) = worked.await {
                return output;
            }
            turn = Some(self.take(source, Stage::Begun).await);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut inside = self.0.lock();
            let Inside { begun, new, .. } = &mut *inside;
            let waits = |next: &oneshot::Sender<Turn>| !next.is_closed();
            let next = begun.pop(waits).or_else(|| new.pop(waits));
            inside.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // Whoever gives up waiting at this moment drops the turn that it was sent, which passes it on.
            let _ = next.send(Turn(self.0.clone()));
        }
    }
}

/// Queues that are served in turn, one for each network that waits.
#[derive(Debug)]
struct Ring<T> {
    turns: VecDeque<Network>,
    queues: HashMap<Network, VecDeque<T>>,
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { turns: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<T> Ring<T> {
    fn push(&mut self, network: Network, item: T) {
        let queue = self.queues.entry(network).or_default();
        if queue.is_empty() {
            self.turns.push_back(network);
        }
        queue.push_back(item);
    }

    /// The next that still `waits`. Those that gave up are dropped on the way, so that they take nobody's turn and do not pile up.
    fn pop(&mut self, waits: impl Fn(&T) -> bool) -> Option<T> {
        loop {
            let network = self.turns.pop_front()?;
            let Some(queue) = self.queues.get_mut(&network) else { continue };
            let next = std::iter::from_fn(|| queue.pop_front()).find(&waits);
            if queue.is_empty() {
                self.queues.remove(&network);
            } else {
                self.turns.push_back(network);
            }
            if next.is_some() {
                return next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::Pin;
    use std::task::Context;

    fn from(addr: &str) -> Source {
        Source::of(addr.parse().unwrap())
    }

    #[test]
    fn networks_take_turns_however_many_of_one_wait() {
        let (flooding, honest) = (from("192.0.2.1").network(), from("198.51.100.1").network());
        let mut ring = Ring::default();
        (0..100).for_each(|n| ring.push(flooding, n));
        ring.push(honest, 1000);
        ring.push(honest, 1001);
        // Some of them have given up, and take no turn.
        let order: Vec<_> = std::iter::from_fn(|| ring.pop(|n| *n >= 50)).collect();
        assert_eq!(order[..6], [50, 1000, 51, 1001, 52, 53]);
        assert_eq!(order.len(), 52);
        assert!(ring.turns.is_empty() && ring.queues.is_empty());
    }

    /// Whether a future comes to its end when it is polled now.
    async fn is_ready(future: &mut (impl Future<Output = Turn> + Unpin)) -> Option<Turn> {
        poll_fn(|cx| match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(turn) => Poll::Ready(Some(turn)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn block_on<T>(what: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(what)
    }

    #[test]
    fn who_has_begun_comes_first_and_who_gives_up_holds_nobody_up() {
        block_on(async {
            let turns = Turns::new(1);
            let (one, other) = (from("192.0.2.1"), from("198.51.100.1"));
            let held = turns.take(one, Stage::New).await;
            let (mut new, mut begun) =
                (Box::pin(turns.take(one, Stage::New)), Box::pin(turns.take(other, Stage::Begun)));
            let mut given_up = Box::pin(turns.take(other, Stage::Begun));
            assert!(is_ready(&mut new).await.is_none() && is_ready(&mut given_up).await.is_none());
            assert!(is_ready(&mut begun).await.is_none());
            drop(given_up);
            drop(held);
            assert!(is_ready(&mut new).await.is_none());
            let turn = is_ready(&mut begun).await.expect("its turn");
            drop(turn);
            // A turn that was given and not taken is passed on as well.
            let mut last = Box::pin(turns.take(other, Stage::New));
            assert!(is_ready(&mut last).await.is_none());
            drop(new);
            drop(is_ready(&mut last).await.expect("its turn"));
            assert_eq!(turns.lock().free, 1);
        });
    }

    #[test]
    fn work_is_polled_at_turns_alone() {
        block_on(async {
            let turns = Turns::new(1);
            let source = from("192.0.2.1");
            let polls = Cell::new(0);
            let first = turns.take(source, Stage::New).await;
            let work = poll_fn(|cx| {
                assert_eq!(turns.lock().free, 0, "it has the turn");
                polls.set(polls.get() + 1);
                cx.waker().wake_by_ref();
                if polls.get() < 3 { Poll::Pending } else { Poll::Ready(()) }
            });
            let mut work = Box::pin(turns.during(source, first, work));
            let once = |cx: &mut Context<'_>| Poll::Ready(work.as_mut().poll(cx).is_pending());
            assert!(poll_fn(once).await);
            assert_eq!((polls.get(), turns.lock().free), (1, 1), "it waits without a turn");
            let held = turns.take(source, Stage::New).await;
            let once = |cx: &mut Context<'_>| Poll::Ready(work.as_mut().poll(cx).is_pending());
            assert!(poll_fn(once).await);
            assert_eq!(polls.get(), 1, "another has the turn");
            drop(held);
            work.await;
            assert_eq!((polls.get(), turns.lock().free), (3, 1));
        });
    }
}
