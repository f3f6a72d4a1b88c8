//! Seats of a bounded crowd, shared between tasks. A seat is taken, left, or lost to another
//! holder.
//!
//! Owns the lock around [`Crowd`], and the count of the lost seats. Takes sources; gives a [`Seat`]
//! that is left when it is dropped, and tells its holder when it is lost. Must not know the work
//! that is done at a seat.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::crowd::{Crowd, Source};

/// A bounded number of seats, shared fairly between sources: when all are taken, the source that
/// has most loses its oldest. Clones share them.
#[derive(Clone, Debug)]
pub struct Seats(Arc<Mutex<SeatsState>>);

#[derive(Debug)]
struct SeatsState {
    crowd: Crowd<oneshot::Sender<()>>,
    lost: Tally,
}

/// A seat; dropping it leaves.
#[derive(Debug)]
pub struct Seat {
    seats: Seats,
    number: u64,
}

/// Tells the holder of a seat that it was lost to another.
#[derive(Debug)]
pub struct Loss(oneshot::Receiver<()>);

impl Seats {
    /// Makes this many seats, at least one.
    #[must_use]
    pub fn new(seats: usize) -> Seats {
        Seats(Arc::new(Mutex::new(SeatsState { crowd: Crowd::new(seats), lost: Tally::default() })))
    }

    /// Takes a seat. If none is free, another holder loses one.
    pub fn enter(&self, source: Source) -> (Seat, Loss) {
        let (tell, lost) = oneshot::channel();
        let mut inside = self.lock();
        let (number, goes) = inside.crowd.enter(source, tell);
        if let Some((source, tell)) = goes {
            inside.lost.add(source);
            // It may be leaving at this moment.
            let _ = tell.send(());
        }
        (Seat { seats: self.clone(), number }, Loss(lost))
    }

    /// Takes a seat that is free, if `source` has fewer than `share`.
    pub fn enter_free(&self, source: Source, share: usize) -> Option<Seat> {
        let mut inside = self.lock();
        let SeatsState { crowd, .. } = &mut *inside;
        if crowd.len() >= crowd.seats() || crowd.len_of(source) >= share {
            return None;
        }
        let (number, _) = crowd.enter(source, oneshot::channel().0);
        Some(Seat { seats: self.clone(), number })
    }

    /// The number of seats.
    #[must_use]
    pub fn seats(&self) -> usize {
        self.lock().crowd.seats()
    }

    /// The number of seats that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().crowd.len()
    }

    /// The seats lost since the last call, by source.
    #[must_use]
    pub fn take_lost(&self) -> Tally {
        std::mem::take(&mut self.lock().lost)
    }

    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, SeatsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().crowd.leave(self.number);
    }
}

impl Loss {
    /// Resolves when the seat is lost; never once it was left.
    pub async fn happens(self) {
        if self.0.await.is_err() {
            pending::<()>().await;
        }
    }
}

/// Counts of an occurrence, in all and by source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    total: u64,
    by_source: HashMap<Source, u64>,
}

impl Tally {
    /// Counts one more occurrence.
    pub fn add(&mut self, source: Source) {
        self.total += 1;
        // A source that comes when this many are known already counts in the total alone: an
        // attacker has as many addresses as it likes.
        if self.by_source.len() < SOURCES_COUNTED_MAX || self.by_source.contains_key(&source) {
            *self.by_source.entry(source).or_default() += 1;
        }
    }

    /// Adds the counts of another tally.
    pub fn merge(&mut self, other: Tally) {
        self.total += other.total;
        for (source, count) in other.by_source {
            if self.by_source.len() < SOURCES_COUNTED_MAX || self.by_source.contains_key(&source) {
                *self.by_source.entry(source).or_default() += count;
            }
        }
    }

    /// The total count.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The sources with the highest counts, highest first.
    #[must_use]
    pub fn most(&self, count: usize) -> Vec<(Source, u64)> {
        let mut all: Vec<_> = self.by_source.iter().map(|(source, count)| (*source, *count)).collect();
        all.sort_by_key(|(source, count)| (std::cmp::Reverse(*count), *source));
        all.truncate(count);
        all
    }
}

/// Sources of which a count is kept, 40 bytes each.
const SOURCES_COUNTED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    fn from(addr: &str) -> Source {
        Source::of(addr.parse().unwrap())
    }

    fn block_on<T>(what: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(what)
    }

    #[test]
    fn a_lost_place_is_told_and_counted_and_one_that_was_left_is_not() {
        block_on(async {
            let seats = Seats::new(2);
            let (one, other) = (from("192.0.2.1"), from("198.51.100.1"));
            let (left, loss_of_left) = seats.enter(one);
            drop(left);
            let (_lost, loss) = seats.enter(one);
            let (_kept, kept) = seats.enter(one);
            let _other = seats.enter(other);
            loss.happens().await;
            let short = std::time::Duration::from_millis(1);
            assert!(timeout(short, kept.happens()).await.is_err());
            assert!(timeout(short, loss_of_left.happens()).await.is_err());
            let lost = seats.take_lost();
            assert_eq!((lost.total(), lost.most(5)), (1, vec![(one, 1)]));
            assert_eq!(seats.take_lost(), Tally::default());
        });
    }

    #[test]
    fn free_places_are_given_up_to_the_share() {
        let seats = Seats::new(4);
        let (one, other) = (from("192.0.2.1"), from("198.51.100.1"));
        let ones: Vec<_> = (0..9).map_while(|_| seats.enter_free(one, 3)).collect();
        assert_eq!(ones.len(), 3);
        let others: Vec<_> = (0..9).map_while(|_| seats.enter_free(other, 3)).collect();
        assert_eq!(others.len(), 1);
        drop(ones);
        assert!(seats.enter_free(one, 3).is_some());
    }

    #[test]
    fn a_tally_counts_all_and_remembers_the_first_sources() {
        let mut tally = Tally::default();
        for n in 0..u32::try_from(2 * SOURCES_COUNTED_MAX).unwrap() {
            tally.add(Source::Host(std::net::Ipv4Addr::from_bits(n).into()));
        }
        tally.add(from("0.0.0.7"));
        assert_eq!(tally.total(), 2 * SOURCES_COUNTED_MAX as u64 + 1);
        assert_eq!(tally.most(1), [(from("0.0.0.7"), 2)]);
        assert_eq!(tally.most(usize::MAX).len(), SOURCES_COUNTED_MAX);
    }
}
