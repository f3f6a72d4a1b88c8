//! How much the holes of a source cost its side: processor time that nothing else bounds, as no
//! byte of them is read or sent.
//!
//! In: permits that readings share, and chunks in holes. Out: waits before a chunk is hashed. Must
//! not know whose readings they are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::PIECE_BYTES;
use super::pacer::Pacer;
use super::pulse::Pulse;

/// The permit to hash a hole: of all lanes that share it, one hashes at a time. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HolePermit(Arc<Mutex<()>>);

/// How holes count for a sending side. By default they cost nothing: a destination takes what is
/// sent, and has the same work.
#[derive(Clone, Debug, Default)]
pub(crate) struct HoleCosts {
    /// `None`: holes are hashed by all lanes, at any rate.
    permit: Option<HolePermit>,
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
    /// Holes count as bytes that are sent, and are hashed by the permit.
    pub(crate) fn by(permit: HolePermit) -> HoleCosts {
        HoleCosts { permit: Some(permit) }
    }

    /// The permit to hash them. `None`: none is needed.
    pub(super) fn permit(&self) -> Option<&HolePermit> {
        self.permit.as_ref()
    }

    /// Waits for as long as `len` bytes take at the rate of the session, if holes count.
    pub(super) fn pay(&self, len: u64, pacer: &Pacer, pulse: &Pulse) {
        let mut left = if self.permit.is_some() { len } else { 0 };
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
        HoleCosts::default().pay(1 << 40, &pacer, &pulse);
        assert_eq!(pulse.read().pieces, 0);
        HoleCosts::by(HolePermit::default()).pay(256 << 10, &pacer, &pulse);
        assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
        pacer.set_rate(None);
        HoleCosts::by(HolePermit::default()).pay(1 << 30, &pacer, &pulse);
    }

    #[test]
    fn a_lane_that_is_closed_waits_for_no_hole() {
        let (pacer, pulse) = (Pacer::new(Some(1)), Pulse::default());
        pulse.close();
        HoleCosts::by(HolePermit::default()).pay(64 << 20, &pacer, &pulse);
    }

    #[test]
    fn a_permit_is_the_last_when_all_that_shared_it_are_gone() {
        let permit = HolePermit::default();
        let other = HoleCosts::by(permit.clone());
        assert!(!permit.is_last());
        drop(other);
        assert!(permit.is_last());
    }
}
