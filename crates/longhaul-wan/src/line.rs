//! Owns the things under way, in order of arrival. Takes each with the time it is due, gives it
//! back when it is due. Must not know what the things are.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Nanoseconds since the link was made.
pub(crate) type Time = u64;

/// Things under way. Nearly all arrive in the order in which they left, and those cost no sorting.
#[derive(Debug)]
pub(crate) struct Line<T> {
    ordered: VecDeque<(Time, T)>,
    /// The things that arrive out of order.
    strays: BinaryHeap<Reverse<Stray<T>>>,
    pushed: u64,
    /// The latest arrival among `ordered` so far.
    last: Time,
}

#[derive(Debug)]
struct Stray<T> {
    due: Time,
    number: u64,
    thing: T,
}

impl<T> Line<T> {
    /// Adds a thing that leaves now. If it is due earlier than others before it, it overtakes them.
    pub(crate) fn push(&mut self, due: Time, thing: T) {
        self.pushed += 1;
        if due >= self.last {
            self.last = due;
            self.ordered.push_back((due, thing));
        } else {
            self.strays.push(Reverse(Stray { due, number: self.pushed, thing }));
        }
    }

    /// The first thing that is due by now, with the time it was due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, T)> {
        if self.next().is_none_or(|due| due > now) {
            return None;
        }
        if self.stray_is_first() {
            return self.strays.pop().map(|Reverse(stray)| (stray.due, stray.thing));
        }
        self.ordered.pop_front()
    }

    /// The time when the first thing is due.
    pub(crate) fn next(&self) -> Option<Time> {
        let ordered = self.ordered.front().map(|(due, _)| *due);
        ordered.into_iter().chain(self.strays.peek().map(|Reverse(stray)| stray.due)).min()
    }

    fn stray_is_first(&self) -> bool {
        let Some(Reverse(stray)) = self.strays.peek() else { return false };
        self.ordered.front().is_none_or(|(due, _)| stray.due < *due)
    }
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { ordered: VecDeque::new(), strays: BinaryHeap::new(), pushed: 0, last: 0 }
    }
}

impl<T> Ord for Stray<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<T> PartialOrd for Stray<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Stray<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Stray<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(line: &mut Line<u32>, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| line.pop(now).map(|(_, thing)| thing)).collect()
    }

    #[test]
    fn things_arrive_when_they_are_due_and_not_before() {
        let mut line = Line::default();
        for (due, thing) in [(10, 1), (10, 2), (20, 3)] {
            line.push(due, thing);
        }
        assert_eq!((drain(&mut line, 9), line.next()), (vec![], Some(10)));
        assert_eq!((drain(&mut line, 10), line.next()), (vec![1, 2], Some(20)));
        assert_eq!((drain(&mut line, 99), line.next()), (vec![3], None));
    }

    #[test]
    fn what_takes_longer_is_overtaken_and_does_not_hold_others() {
        let mut line = Line::default();
        line.push(10, 1);
        line.push(50, 2);
        line.push(20, 3);
        line.push(60, 4);
        assert_eq!(drain(&mut line, 20), [1, 3]);
        assert_eq!(drain(&mut line, 60), [2, 4]);
    }

    #[test]
    fn a_shorter_way_lets_later_ones_arrive_first() {
        let mut line = Line::default();
        line.push(100, 1);
        line.push(30, 2);
        line.push(30, 3);
        line.push(110, 4);
        assert_eq!(drain(&mut line, 200), [2, 3, 1, 4]);
    }
}
