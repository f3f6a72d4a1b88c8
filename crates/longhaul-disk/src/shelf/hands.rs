//! [`on_each`]: does one thing on each copy of a journal, on a thread of each, so that a copy whose
//! target hangs is not waited for where another one stands.
//!
//! In: copies, and what is to be done. Out: the result on each; of one that is not waited for, an
//! error. It tells the load of a target that the target hangs. Knows nothing of epochs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::SessionTag;
use rustix::io::Errno;

use super::copy::JournalCopy;
use super::dir::{ShelfDir, shown};
use crate::error::DiskError;

/// An act on a copy.
pub(super) type Act = Arc<dyn Fn(&JournalCopy) -> Result<(), DiskError> + Send + Sync>;

/// A copy, and the result of what was done on it.
pub(super) type Acted = (Arc<JournalCopy>, Result<(), DiskError>);

/// The thread that acts on one copy, one thing after the other. It is begun with the first and ends
/// with the copy.
#[derive(Debug, Default)]
pub(super) struct Hand {
    orders: Mutex<Option<Sender<Order>>>,
    under_way: Arc<AtomicUsize>,
}

type Order = Box<dyn FnOnce() + Send>;

/// One thing that is under way, until it is dropped.
struct UnderWay(Arc<AtomicUsize>);

/// The state of what is done on some copies.
struct Awaited<'c> {
    copies: &'c [Arc<JournalCopy>],
    results: Vec<Option<Result<(), DiskError>>>,
    /// Whether a journal goes on if none of these answers.
    others_stand: bool,
    began: Instant,
}

/// Whether a journal has copies that go on, besides those on which something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    Stand,
    None,
}

/// Acts on each of some copies, at the same time, and waits for the results. A copy whose target
/// has answered nothing for the time that a request there is given is not waited for any more once
/// another one stands: its result is an error, and it is left to end when it can.
pub(super) fn on_each(copies: &[Arc<JournalCopy>], others: Others, act: &Act) -> Vec<Acted> {
    if let ([copy], Others::None) = (copies, others) {
        return vec![(Arc::clone(copy), act(copy))];
    }
    let (results, told) = channel();
    for (index, copy) in copies.iter().enumerate() {
        let (copy, act, results) = (Arc::clone(copy), Arc::clone(act), results.clone());
        let hand = Arc::clone(copy.hand());
        let under_way = hand.begin();
        hand.order(Box::new(move || {
            let result = act(&copy);
            // Whoever waits may close the journal: its copies are to be free then.
            drop((copy, act, under_way));
            let _ = results.send((index, result));
        }));
    }
    drop(results);
    let results = copies.iter().map(|_| None).collect();
    Awaited { copies, results, others_stand: others == Others::Stand, began: Instant::now() }.wait(&told)
}

/// Makes an empty copy on a target, while others stand. A target that answers nothing for the time
/// that a request there is given is not waited for; what it makes later is removed again.
pub(super) fn create_on(dir: &ShelfDir, tag: SessionTag) -> Result<JournalCopy, DiskError> {
    // Nothing lies between the two ends: what is not received is still the maker's.
    let (made, told) = sync_channel(0);
    let theirs = dir.clone();
    let make = move || {
        if let Err(SendError(Ok::<JournalCopy, DiskError>(late))) = made.send(theirs.create(tag)) {
            let _ = late.unlink();
        }
    };
    if thread::Builder::new().name("journal".into()).spawn(make).is_err() {
        return dir.create(tag);
    }
    let began = Instant::now();
    loop {
        match told.recv_timeout(dir.patience_left(began.elapsed()).clamp(LEAST_WAIT, LONGEST_WAIT)) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !dir.patience_left(began.elapsed()).is_zero() => {}
            Err(_) => {
                dir.hangs(began.elapsed());
                return Err(DiskError::call("wait for", shown(tag), Errno::TIMEDOUT));
            }
        }
    }
}

impl Hand {
    /// Whether something is under way, which nobody may wait for any more.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    fn begin(&self) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(Arc::clone(&self.under_way))
    }

    fn order(&self, order: Order) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.is_none() {
            let (sender, given) = channel::<Order>();
            let work = move || given.into_iter().for_each(|order| order());
            if thread::Builder::new().name("journal".into()).spawn(work).is_ok() {
                *orders = Some(sender);
            }
        }
        let unsent = match orders.as_ref() {
            Some(orders) => orders.send(order).err().map(|unsent| unsent.0),
            None => Some(order),
        };
        // The host has no more threads.
        if let Some(order) = unsent {
            order();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Awaited<'_> {
    fn wait(mut self, told: &Receiver<(usize, Result<(), DiskError>)>) -> Vec<Acted> {
        while self.results.iter().any(Option::is_none) {
            let told = match self.patience() {
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(most) => told.recv_timeout(most),
            };
            match told {
                Ok((index, result)) => self.results[index] = Some(result),
                Err(RecvTimeoutError::Timeout) => self.give_up_silent(),
                // A thread ended by a panic.
                Err(RecvTimeoutError::Disconnected) => self.give_up(|_| true),
            }
        }
        let results = self.results.into_iter().flatten();
        self.copies.iter().map(Arc::clone).zip(results).collect()
    }

    /// The time after which a copy may be given up. `None`: no other one stands, so none is.
    fn patience(&self) -> Option<Duration> {
        let stands = self.others_stand || self.results.iter().flatten().any(Result::is_ok);
        let left = self.unanswered().map(|copy| copy.shelf().patience_left(self.began.elapsed()));
        stands.then(|| left.min().unwrap_or_default().max(LEAST_WAIT))
    }

    fn unanswered(&self) -> impl Iterator<Item = &Arc<JournalCopy>> {
        self.copies.iter().zip(&self.results).filter(|(_, result)| result.is_none()).map(|(copy, _)| copy)
    }

    fn give_up_silent(&mut self) {
        let waited = self.began.elapsed();
        self.give_up(|copy| copy.shelf().patience_left(waited).is_zero());
    }

    fn give_up(&mut self, which: impl Fn(&JournalCopy) -> bool) {
        for (copy, result) in self.copies.iter().zip(&mut self.results) {
            if result.is_none() && which(copy) {
                copy.shelf().hangs(self.began.elapsed());
                *result = Some(Err(copy.unanswered()));
            }
        }
    }
}

/// The longest wait: no clock takes an endless one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The shortest wait, so that a clock that is read twice makes no busy loop.
const LEAST_WAIT: Duration = Duration::from_millis(10);
