//! How much the holes of a source cost its side: processor time that nothing else bounds, as no
//! byte of them is read or sent.
//!
//! In: permits that readings and pulls share, and chunks in holes. Out: waits before a chunk is
//! hashed. Must not know whose they are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::PIECE_BYTES;
use super::pacer::Pacer;
use super::pulse::Pulse;

/// The permit to hash a hole: of all lanes that share it, one hashes at a time. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HolePermit(Arc<Mutex<()>>);

/// How holes count for a sending side.
#[derive(Clone, Debug, Default)]
pub(crate) enum HoleCosts {
    /// They are hashed by all lanes, at any rate: the files are the user's own.
    #[default]
    Free,
    /// They are hashed by the permit, at any rate: a destination takes what is sent, and need not
    /// hash it as an honest one does.
    Shared(HolePermit),
    /// They are hashed by the permit, and count as bytes that are sent.
    Paid(HolePermit),
}

impl HolePermit {
    /// Waits until no other lane hashes a hole.
    pub(super) fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody else has it.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl HoleCosts {
    /// The permit to hash them. `None`: none is needed.
    pub(super) fn permit(&self) -> Option<&HolePermit> {
        match self {
            HoleCosts::Free => None,
            HoleCosts::Shared(permit) | HoleCosts::Paid(permit) => Some(permit),
        }
    }

    /// Waits for as long as `len` bytes take at the rate of the session, if holes count.
    pub(super) fn pay(&self, len: u64, pacer: &Pacer, pulse: &Pulse) {
        let mut left = if matches!(self, HoleCosts::Paid(_)) { len } else { 0 };
        while left > 0 {
            let piece = left.min(PIECE_BYTES as u64);
            let paid = pulse.paced(pacer, piece as usize) as u64;
            pulse.beat();
            left -= paid.clamp(1, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn holes_of_a_reading_take_their_time_at_a_rate_and_no_others_do() {
        let (pacer, pulse) = (Pacer::new(Some(1 << 20)), Pulse::default());
        let begun = Instant::now();
        HoleCosts::Free.pay(1 << 40, &pacer, &pulse);
        HoleCosts::Shared(HolePermit::default()).pay(1 << 40, &pacer, &pulse);
        assert_eq!(pulse.read().pieces, 0);
        HoleCosts::Paid(HolePermit::default()).pay(256 << 10, &pacer, &pulse);
        assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
        pacer.set_rate(None);
        HoleCosts::Paid(HolePermit::default()).pay(1 << 30, &pacer, &pulse);
    }

    #[test]
    fn a_lane_that_is_closed_waits_for_no_hole() {
        let (pacer, pulse) = (Pacer::new(Some(1)), Pulse::default());
        pulse.close();
        HoleCosts::Paid(HolePermit::default()).pay(64 << 20, &pacer, &pulse);
    }

    #[test]
    fn holes_of_readings_and_of_pulls_are_hashed_by_a_permit() {
        let permit = HolePermit::default();
        assert!(HoleCosts::default().permit().is_none());
        for costs in [HoleCosts::Shared(permit.clone()), HoleCosts::Paid(permit.clone())] {
            drop(costs.permit().expect("one is needed").take());
        }
    }

    #[test]
    fn a_permit_is_the_last_when_all_that_shared_it_are_gone() {
        let permit = HolePermit::default();
        let other = HoleCosts::Paid(permit.clone());
        assert!(!permit.is_last());
        drop(other);
        assert!(permit.is_last());
    }
}
