//! The choice of the target that will have some bytes soonest.
//!
//! In: what is known of each target that may take them. Out: one of them. No pattern is fixed: a
//! target that is slower, or has more to do, gets as much less as it is slower.

use crate::place::TargetId;

/// A target that may take some bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The target.
    pub target: TargetId,
    /// Bytes that it was given and has not written yet.
    pub assigned_bytes: u64,
    /// Bytes per second while it was busy. `None`: not known yet.
    pub rate: Option<f64>,
    /// Bytes free on it. `None`: not known.
    pub free_bytes: Option<u64>,
    /// Whether more than `free_bytes` certainly does not fit. False where files may be compressed.
    pub is_firm: bool,
    /// Bytes that should stay free on it, as long as another target has more than that.
    pub reserve_bytes: u64,
}

/// The room that a target has for some bytes, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// There is room for all that it was given, and its reserve stays free.
    Well,
    /// There is room for all that it was given.
    Barely,
    /// There is room for these bytes, though not for all that it was given: some of that may have
    /// its blocks already. Or it may fit if it is compressed.
    Perhaps,
}

/// The target with the least expected finish time for `len` more bytes, among those that have the
/// best room for them. A target whose rate is not known counts as fast as the fastest that is, and
/// as no slower than 100 MB/s: else it would never be known. Of targets that have nothing to do and
/// are about as fast, the one with the most free bytes: where the disks are faster than what comes,
/// they fill alike. `None` if no target has room.
pub fn soonest(candidates: &[Candidate], len: u64) -> Option<TargetId> {
    let unknown = candidates.iter().filter_map(|candidate| candidate.rate).fold(RATE_UNKNOWN, f64::max);
    let finish = |candidate: &Candidate| {
        let rate = candidate.rate.unwrap_or(unknown).max(STANDSTILL_RATE);
        candidate.assigned_bytes.saturating_add(len).saturating_add(FILE_COST_BYTES) as f64 / rate
    };
    let fitting = candidates.iter().filter_map(|candidate| Some((candidate.fit(len)?, candidate)));
    let best = fitting.min_by(|(fit, one), (other_fit, other)| {
        fit.cmp(other_fit)
            .then_with(|| finish(one).total_cmp(&finish(other)))
            .then_with(|| other.free_bytes.cmp(&one.free_bytes))
            .then_with(|| one.target.cmp(&other.target))
    });
    let (best_fit, best) = best?;
    if best.assigned_bytes > 0 {
        return Some(best.target);
    }
    let as_good = |other: &&Candidate| {
        other.assigned_bytes == 0
            && other.fit(len) == Some(best_fit)
            && finish(other) <= finish(best) * ABOUT_AS_FAST
            && other.free_bytes.is_some() == best.free_bytes.is_some()
    };
    let roomiest = candidates.iter().filter(as_good).max_by(|one, other| {
        one.free_bytes
            .cmp(&other.free_bytes)
            .then_with(|| finish(other).total_cmp(&finish(one)))
            .then_with(|| other.target.cmp(&one.target))
    });
    roomiest.or(Some(best)).map(|candidate| candidate.target)
}

impl Candidate {
    fn fit(&self, len: u64) -> Option<Fit> {
        let Some(free) = self.free_bytes else { return Some(Fit::Well) };
        let given = self.assigned_bytes.saturating_add(len);
        if free >= given.saturating_add(self.reserve_bytes) {
            Some(Fit::Well)
        } else if free >= given {
            Some(Fit::Barely)
        } else {
            (free >= len || !self.is_firm).then_some(Fit::Perhaps)
        }
    }
}

/// The cost of a file that does not depend on its length: so many files of no bytes go to several
/// targets as well.
const FILE_COST_BYTES: u64 = 16 << 10;
/// Targets whose finish times differ by no more than this factor are about as fast: rates that were
/// measured in a few requests differ by as much.
const ABOUT_AS_FAST: f64 = 1.5;
/// A target that stands still is still a choice if there is no other, bytes per second.
const STANDSTILL_RATE: f64 = 1.0;
/// The least rate of a target of which nothing is known, bytes per second: about that of a rotating
/// disk. If the only one that is known is slow, the others are no slower.
const RATE_UNKNOWN: f64 = 100e6;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(target: u32, rate: Option<f64>) -> Candidate {
        Candidate {
            target: TargetId(target),
            assigned_bytes: 0,
            rate,
            free_bytes: Some(1 << 40),
            is_firm: true,
            reserve_bytes: 1 << 30,
        }
    }

    /// Gives `count` files of `len` bytes to targets of these rates, which write nothing meanwhile.
    fn given(rates: &[Option<f64>], count: usize, len: u64) -> Vec<u64> {
        let mut targets: Vec<_> = rates.iter().zip(0..).map(|(rate, n)| candidate(n, *rate)).collect();
        for _ in 0..count {
            let TargetId(at) = soonest(&targets, len).expect("room");
            targets[at as usize].assigned_bytes += len + FILE_COST_BYTES;
        }
        targets.iter().map(|target| target.assigned_bytes / (len + FILE_COST_BYTES)).collect()
    }

    #[test]
    fn each_target_gets_as_much_as_it_can_carry() {
        assert_eq!(given(&[None; 4], 400, 32 << 20), [100; 4]);
        assert_eq!(given(&[None; 4], 400, 0), [100; 4], "files without bytes are shared out as well");
        let shares = given(&[Some(100e6), Some(20e6), Some(100e6), Some(100e6)], 320, 32 << 20);
        assert!((18..=22).contains(&shares[1]), "{shares:?}");
        // One that is not known yet is tried as if it were fast.
        assert_eq!(given(&[Some(100e6), None], 2, 1 << 20), [1, 1]);
    }

    #[test]
    fn targets_that_have_nothing_to_do_and_are_about_as_fast_fill_alike() {
        let with =
            |target, rate, free_bytes| Candidate { free_bytes: Some(free_bytes), ..candidate(target, Some(rate)) };
        let (fast, roomy) = (with(0, 120e6, 10 << 30), with(1, 100e6, 20 << 30));
        assert_eq!(soonest(&[fast, roomy], 1 << 20), Some(TargetId(1)));
        let slow = with(1, 70e6, 20 << 30);
        assert_eq!(soonest(&[fast, slow], 1 << 20), Some(TargetId(0)), "speed counts where it differs");
        let busy = Candidate { assigned_bytes: 1 << 20, ..roomy };
        assert_eq!(soonest(&[fast, busy], 1 << 20), Some(TargetId(0)), "so does what is to be done");
        // The tie breaks as before where nothing differs.
        assert_eq!(soonest(&[with(0, 1e8, 1 << 40), with(1, 1e8, 1 << 40)], 1), Some(TargetId(0)));
    }

    #[test]
    fn a_target_that_stands_still_gets_nothing_while_others_move() {
        assert_eq!(given(&[Some(0.0), Some(50e6)], 100, 1 << 20), [0, 100]);
        assert_eq!(given(&[Some(0.0)], 3, 1 << 20), [3]);
        assert_eq!(given(&[Some(0.0), None, None], 100, 1 << 20), [0, 50, 50], "those not known are tried");
    }

    #[test]
    fn room_comes_before_speed_and_the_reserve_before_neither() {
        let fast_and_full = Candidate { free_bytes: Some(10 << 20), ..candidate(0, Some(1e9)) };
        let slow = candidate(1, Some(1e6));
        assert_eq!(soonest(&[fast_and_full, slow], 20 << 20), Some(TargetId(1)), "it does not fit the first");
        assert_eq!(soonest(&[fast_and_full, slow], 1 << 20), Some(TargetId(1)), "the reserve stays free");
        assert_eq!(soonest(&[fast_and_full], 1 << 20), Some(TargetId(0)), "unless there is no other");
        assert_eq!(soonest(&[fast_and_full], 20 << 20), None);
        let promised = Candidate { assigned_bytes: 1 << 40, ..candidate(0, Some(1e9)) };
        let roomy = Candidate { free_bytes: Some(2 << 30), ..candidate(1, Some(1e6)) };
        assert_eq!(soonest(&[promised, roomy], 1 << 20), Some(TargetId(1)), "it is full once all is written");
        assert_eq!(soonest(&[promised], 1 << 20), Some(TargetId(0)));
        let unknown = Candidate { free_bytes: None, ..candidate(2, Some(1e6)) };
        assert_eq!(soonest(&[unknown, fast_and_full], 20 << 20), Some(TargetId(2)));
        let compressing = Candidate { is_firm: false, ..fast_and_full };
        assert_eq!(soonest(&[compressing], 20 << 20), Some(TargetId(0)), "it may fit");
        assert_eq!(soonest(&[compressing, slow], 20 << 20), Some(TargetId(1)), "here it does");
        assert_eq!(soonest(&[], 1), None);
    }
}
