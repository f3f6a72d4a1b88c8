//! Medians, and ratios of runs that stood side by side in the same round.

use super::rounds::Run;

/// The middle value; of an even number of values the mean of both middles; without values not a
/// number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The ratios of the speed of `what` to that of `limit`, round by round.
pub(crate) fn ratios(runs: &[Run], what: &str, limit: &str) -> Vec<f64> {
    let seconds = |round: usize, name: &str| {
        runs.iter().find(|run| run.round == round && run.what == name).map(|run| run.seconds)
    };
    let rounds = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
    (0..rounds).filter_map(|round| Some(seconds(round, limit)? / seconds(round, what)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Sides;

    #[test]
    fn the_median_is_the_middle_of_what_is_there() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_compare_runs_of_the_same_round_only() {
        let run = |what, round, seconds| Run {
            what,
            round,
            bytes: 1,
            files: 1,
            seconds,
            sides: Sides::default(),
            machine_cpu_s: 0.0,
            other_cpu_before: 0.0,
        };
        let runs =
            [run("limit", 0, 1.0), run("ours", 0, 2.0), run("ours", 1, 4.0), run("limit", 1, 3.0), run("ours", 2, 9.0)];
        assert_eq!(ratios(&runs, "ours", "limit"), [0.5, 0.75]);
    }
}
