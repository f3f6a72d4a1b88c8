//! Bounds the arrivals without payload that wait for the session loop.
//!
//! In: lanes that bring units without a buffer, such as holes and chunks that the receiver has
//! already. Out: passes, which the loop gives back. An arrival with payload needs none, as it holds
//! a buffer. It knows nothing of units.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The passes of one session. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<GateShared>);

#[derive(Debug, Default)]
struct GateShared {
    state: Mutex<GateState>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    out: usize,
    /// Whether the session is over: nobody gives passes back any more, and nobody waits for one.
    is_closed: bool,
}

/// The permission for one arrival to wait for the loop. Dropping it lets another one in.
#[derive(Debug)]
pub(crate) struct Pass(Gate);

impl Gate {
    /// Waits until there is room for one more arrival.
    pub(super) fn enter(&self) -> Pass {
        let mut state = self.lock();
        while state.out >= BARE_MAX && !state.is_closed {
            state = self.0.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.out += 1;
        Pass(self.clone())
    }

    /// Lets every arrival through, because the session is over.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.0.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.lock().out -= 1;
        self.0.0.freed.notify_one();
    }
}

/// Arrivals without payload that may wait, at some 500 bytes each: more than a loop takes in before
/// lanes come to wait for it.
const BARE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_without_payload_wait_for_the_loop_and_not_for_one_that_is_over() {
        let gate = Gate::default();
        let mut passes: Vec<Pass> = (0..BARE_MAX).map(|_| gate.enter()).collect();
        let (entering, hear) = (gate.clone(), std::sync::mpsc::channel());
        let thread =
            std::thread::spawn(move || (0..2).for_each(|_| hear.0.send(entering.enter()).expect("it is heard")));
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert!(hear.1.try_recv().is_err(), "there is no room");
        passes.pop();
        let first = hear.1.recv().expect("it is let in");
        assert_eq!(gate.lock().out, BARE_MAX);
        gate.close();
        drop((first, hear.1.recv().expect("so is the next")));
        thread.join().expect("it ends");
        drop(passes);
        assert_eq!(gate.lock().out, 0);
    }
}
