//! The rate of a run within this process, as it changes while the run reads.
//!
//! In: a rate, set at any time. Out: the same to both halves of the session that runs, and to one
//! that begins later. It knows no lanes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

use crate::session::SessionEvent;

/// A rate that may be set anew. Clones share it.
#[derive(Clone)]
pub(crate) struct RunRate(Arc<Mutex<RunRateState>>);

struct RunRateState {
    /// In bytes/s. `None`: no rate.
    rate: Option<u64>,
    /// The queues of the session.
    halves: Vec<UnboundedSender<SessionEvent>>,
}

impl RunRate {
    /// A run of this rate in bytes/s. `None`: no rate.
    pub(crate) fn new(rate: Option<u64>) -> RunRate {
        RunRate(Arc::new(Mutex::new(RunRateState { rate, halves: Vec::new() })))
    }

    /// The rate now, bytes/s. `None`: no rate.
    pub(super) fn now(&self) -> Option<u64> {
        self.lock().rate
    }

    /// Sets it anew, bytes/s. `None`: no rate.
    pub(crate) fn set(&self, rate: Option<u64>) {
        let mut state = self.lock();
        state.rate = rate;
        // A half that has ended hears nothing.
        state.halves.retain(|half| half.send(SessionEvent::OwnRate(rate)).is_ok());
    }

    /// Has a half of a session keep it from now on.
    pub(super) fn is_kept_by(&self, half: UnboundedSender<SessionEvent>) {
        let mut state = self.lock();
        if half.send(SessionEvent::OwnRate(state.rate)).is_ok() {
            state.halves.push(half);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunRateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    fn heard(half: &mut UnboundedReceiver<SessionEvent>) -> Vec<Option<u64>> {
        let rate = |event| match event {
            SessionEvent::OwnRate(rate) => rate,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| half.try_recv().ok()).map(rate).collect()
    }

    #[test]
    fn both_halves_hear_the_rate_of_now_and_each_later_one() {
        let rate = RunRate::new(Some(7));
        rate.set(Some(8));
        let ((one, mut first), (other, mut second)) = (unbounded_channel(), unbounded_channel());
        rate.is_kept_by(one);
        rate.set(Some(9));
        rate.is_kept_by(other);
        rate.set(None);
        assert_eq!(heard(&mut first), [Some(8), Some(9), None]);
        assert_eq!(heard(&mut second), [Some(9), None]);
        drop(first);
        rate.set(Some(1));
        assert_eq!((rate.lock().halves.len(), heard(&mut second)), (1, vec![Some(1)]));
    }
}
