//! Turns at the processor: handshakes are worked on a few at a time, and networks take turns.
//!
//! A handshake costs a key exchange and signatures, a few tenths of a millisecond, and the dialler
//! decides when. Without turns, one address that dials thousands of times a second would be served
//! as often as it asks, and a client that dials once would wait behind all of it. Within a network,
//! handshakes that were begun come before most new ones: under overload the begun ones are
//! finished, and the others wait or give up before anything was spent on them. A client that drips
//! bytes on many begun handshakes does not keep others waiting: other networks have their turns all
//! the same, and new handshakes of its own network have some. Takes sources; gives [`Turn`]s. Must
//! not know what is computed.

use std::collections::{HashMap, VecDeque};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

use crate::crowd::{Network, Source};

/// The turns of one process. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<TurnsState>>);

#[derive(Debug)]
struct TurnsState {
    free: usize,
    waiting: Ring<oneshot::Sender<Turn>>,
}

/// The kind of work that a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The first computation of a handshake.
    New,
    /// Any later computation of a handshake.
    Begun,
}

/// The permission to compute; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn(Turns);

impl Turns {
    /// Lets `at_once` holders compute at a time, at least one.
    pub(crate) fn new(at_once: usize) -> Turns {
        Turns(Arc::new(Mutex::new(TurnsState { free: at_once.max(1), waiting: Ring::default() })))
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
            inside.waiting.push(source.network(), stage, grant);
            granted
        };
        match granted.await {
            Ok(turn) => turn,
            // No entry is dropped from the queue while the queue lives.
            Err(_) => pending().await,
        }
    }

    /// Polls `work` only at turns, the first of which is given. The computation between two waits
    /// is one turn.
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

    fn lock(&self) -> MutexGuard<'_, TurnsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut inside = self.0.lock();
            let next = inside.waiting.pop(|next| !next.is_closed());
            inside.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // A waiter that gives up at this moment drops the turn that it was sent, which passes
            // it on.
            let _ = next.send(Turn(self.0.clone()));
        }
    }
}

/// Queues that are served in turn, one for each network that waits.
#[derive(Debug)]
struct Ring<T> {
    turns: VecDeque<Network>,
    queues: HashMap<Network, Queue<T>>,
}

/// The waiting handshakes of one network.
#[derive(Debug)]
struct Queue<T> {
    begun: VecDeque<T>,
    new: VecDeque<T>,
    /// Turns of begun handshakes, ahead of a waiting new one, since a new one had its turn.
    passed: u32,
}

impl<T> Default for Ring<T> {
    fn default() -> Ring<T> {
        Ring { turns: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { begun: VecDeque::new(), new: VecDeque::new(), passed: 0 }
    }
}

impl<T> Ring<T> {
    fn push(&mut self, network: Network, stage: Stage, item: T) {
        let queue = self.queues.entry(network).or_default();
        if queue.is_empty() {
            self.turns.push_back(network);
        }
        match stage {
            Stage::New => queue.new.push_back(item),
            Stage::Begun => queue.begun.push_back(item),
        }
    }

    /// The next that still `waits`. Entries that gave up are dropped on the way, so that they take
    /// no turn from others and do not pile up.
    fn pop(&mut self, waits: impl Fn(&T) -> bool) -> Option<T> {
        loop {
            let network = self.turns.pop_front()?;
            let Some(queue) = self.queues.get_mut(&network) else { continue };
            let next = queue.pop(&waits);
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

impl<T> Queue<T> {
    fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.new.is_empty()
    }

    /// The next that still `waits`: a begun one, unless [`PASSED_MAX`] of them came before a
    /// waiting new one.
    fn pop(&mut self, waits: impl Fn(&T) -> bool) -> Option<T> {
        let next = |queue: &mut VecDeque<T>| std::iter::from_fn(|| queue.pop_front()).find(&waits);
        let begun = if self.passed < PASSED_MAX { next(&mut self.begun) } else { None };
        if begun.is_some() {
            self.passed += u32::from(!self.new.is_empty());
            return begun;
        }
        self.passed = 0;
        next(&mut self.new).or_else(|| next(&mut self.begun))
    }
}

/// Turns of begun handshakes before a new one of their network. A handshake takes two turns once it
/// was begun, so that even in a flood no more are begun than can be finished.
const PASSED_MAX: u32 = 3;

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
        (0..100).for_each(|n| ring.push(flooding, Stage::New, n));
        ring.push(honest, Stage::New, 1000);
        ring.push(honest, Stage::New, 1001);
        // Some of them have given up, and take no turn.
        let order: Vec<_> = std::iter::from_fn(|| ring.pop(|n| *n >= 50)).collect();
        assert_eq!(order[..6], [50, 1000, 51, 1001, 52, 53]);
        assert_eq!(order.len(), 52);
        assert!(ring.turns.is_empty() && ring.queues.is_empty());
    }

    #[test]
    fn who_goes_on_with_what_it_has_begun_without_end_keeps_no_new_one_waiting() {
        let (dripping, honest) = (from("192.0.2.1").network(), from("198.51.100.1").network());
        let mut ring = Ring::default();
        let drip = |ring: &mut Ring<u32>| ring.push(dripping, Stage::Begun, 0);
        (0..2048).for_each(|_| drip(&mut ring));
        // One dials from elsewhere, and one from beside the client that drips.
        ring.push(honest, Stage::New, 1);
        ring.push(dripping, Stage::New, 2);
        let order: Vec<_> = (0..100)
            .filter_map(|_| {
                drip(&mut ring);
                ring.pop(|_| true)
            })
            .collect();
        let turn_of = |who| order.iter().position(|one| *one == who);
        assert_eq!((turn_of(1), turn_of(2)), (Some(1), Some(4)), "{order:?}");
    }

    #[test]
    fn what_was_begun_comes_before_most_that_is_new() {
        let network = from("192.0.2.1").network();
        let mut ring = Ring::default();
        (0..100).for_each(|n| ring.push(network, Stage::New, n));
        (100..107).for_each(|n| ring.push(network, Stage::Begun, n));
        let order: Vec<_> = std::iter::from_fn(|| ring.pop(|_| true)).take(11).collect();
        assert_eq!(order, [100, 101, 102, 0, 103, 104, 105, 1, 106, 2, 3]);
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
            let (mut new, mut begun) = (Box::pin(turns.take(one, Stage::New)), Box::pin(turns.take(one, Stage::Begun)));
            let mut given_up = Box::pin(turns.take(one, Stage::Begun));
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
