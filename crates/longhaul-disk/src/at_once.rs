//! Does one thing on several disks at the same time, so that it takes as long as on the slowest.
//!
//! In: the parts of it. Out: the first error. Knows no disks.

use std::panic::resume_unwind;
use std::thread;

/// Calls `act` with each item, on a thread of its own for all but the first. Where the host has no
/// more threads it is called on this one.
pub(crate) fn at_once<T: Sync, E: Send>(items: &[T], act: impl Fn(&T) -> Result<(), E> + Sync) -> Result<(), E> {
    let Some((first, others)) = items.split_first() else { return Ok(()) };
    let act = &act;
    thread::scope(|scope| {
        let begin = |item| {
            let begun = thread::Builder::new().name("targets".into());
            (item, begun.spawn_scoped(scope, move || act(item)))
        };
        let others: Vec<_> = others.iter().map(begin).collect();
        let first = act(first);
        let ended = others.into_iter().map(|(item, begun)| match begun {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => act(item),
        });
        // All of them end before the first error is told.
        ended.fold(first, Result::and)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_items_are_worked_on_at_the_same_time_and_an_error_is_told_after_all_ended() {
        let meet = Barrier::new(3);
        let outcome = at_once(&[1, 2, 3], |number| {
            meet.wait();
            if *number == 2 { Err("two") } else { Ok(()) }
        });
        assert_eq!(outcome, Err("two"));
        assert_eq!(at_once(&[] as &[u8], |_| Err("never")), Ok(()));
    }
}
