//! Which targets are far slower than their siblings.
//!
//! In: the rate of each. Out: the slow ones. It says nothing of a target whose rate is not known,
//! and nothing where there is no sibling to compare with.

/// Whether each target is slow: below [`SLOW_SHARE`] of the median rate of its siblings, the other
/// targets whose rates are known.
pub fn slow(rates: &[Option<f64>]) -> Vec<bool> {
    let of_siblings = |at: usize| {
        let mut siblings: Vec<f64> =
            rates.iter().enumerate().filter(|(other, _)| *other != at).filter_map(|(_, rate)| *rate).collect();
        siblings.sort_by(f64::total_cmp);
        siblings.get(siblings.len() / 2).copied()
    };
    let is_slow = |(at, rate): (usize, &Option<f64>)| match (rate, of_siblings(at)) {
        (Some(rate), Some(median)) => *rate < median * SLOW_SHARE,
        _ => false,
    };
    rates.iter().enumerate().map(is_slow).collect()
}

/// The share of its siblings' median rate below which a target is slow. Disks of one kind differ by
/// a third from their first to their last track, and by less from each other.
pub const SLOW_SHARE: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_slow_beside_its_siblings_and_not_by_itself() {
        let known = |rates: &[f64]| slow(&rates.iter().map(|rate| Some(*rate)).collect::<Vec<_>>());
        assert_eq!(known(&[100.0, 98.0, 20.0, 101.0]), [false, false, true, false]);
        assert_eq!(known(&[100.0, 60.0, 70.0, 101.0]), [false; 4]);
        assert_eq!(known(&[100.0, 20.0]), [false, true]);
        assert_eq!(known(&[20.0]), [false]);
        assert_eq!(known(&[100.0, 100.0, 0.0, 0.0]), [false, false, true, true]);
        assert_eq!(slow(&[Some(20.0), None]), [false, false]);
        assert_eq!(slow(&[Some(100.0), None, Some(20.0)]), [false, false, true]);
        assert_eq!(slow(&[]), Vec::<bool>::new());
    }
}
