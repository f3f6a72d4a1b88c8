//! Tables for users: medians of runs, ratios to limits.

use super::rounds::Run;
use super::stats::{median, ratios};

/// The thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Megabytes a second, CPU seconds per gigabyte.
    Bytes,
    /// Files a second, CPU seconds per 10,000 files.
    Files,
}

impl Scale {
    /// The amount that a run moved, in units of its rate.
    pub(crate) fn amount(self, run: &Run) -> f64 {
        match self {
            Scale::Bytes => run.bytes as f64 / 1e6,
            Scale::Files => run.files as f64,
        }
    }

    fn cpu(self, run: &Run, cpu_s: f64) -> f64 {
        match self {
            Scale::Bytes => cpu_s / (run.bytes as f64 / 1e9),
            Scale::Files => cpu_s / (run.files as f64 / 1e4),
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Scale::Bytes => ("MB/s", "CPU s/GB"),
            Scale::Files => ("files/s", "CPU s/10k files"),
        }
    }
}

/// Prints a line per contender, in the order of the first round.
pub(crate) fn print_runs(runs: &[Run], scale: Scale) {
    let (rate, cpu) = scale.names();
    let head = ["", rate, "min .. max", &format!("{cpu}: sender"), "receiver", "machine", "other CPU before"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(names(runs).into_iter().map(|name| row(runs, name, scale)));
    print!("{}", table(&rows));
    print_stages(runs, scale);
}

/// Prints the ratio of two contenders, round by round, and the target that it is measured by.
pub(crate) fn print_ratio(runs: &[Run], what: &str, limit: &str, target: Option<f64>) {
    let ratios = ratios(runs, what, limit);
    let each = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ");
    let target = target.map_or(String::new(), |target| format!(", target {target:.2}"));
    println!("{what} / {limit}: {:.2}{target}   (rounds: {each})", median(&ratios));
}

/// Columns as wide as their widest cell, the first one to the left.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| rows.iter().filter_map(|row| row.get(n)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let pad = |(n, cell): (usize, &String)| match n {
            0 => format!("{cell:<width$}", width = widths[n]),
            _ => format!("{cell:>width$}", width = widths[n]),
        };
        row.iter().enumerate().map(pad).collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(runs: &[Run], name: &str, scale: Scale) -> Vec<String> {
    let of: Vec<&Run> = runs.iter().filter(|run| run.what == name).collect();
    let rates: Vec<f64> = of.iter().map(|run| scale.amount(run) / run.seconds).collect();
    let (low, high) = rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    let cpu = |side: &dyn Fn(&Run) -> Option<f64>| {
        let each: Vec<f64> = of.iter().filter_map(|run| Some(scale.cpu(run, side(run)?))).collect();
        if each.is_empty() { "-".to_owned() } else { format!("{:.3}", median(&each)) }
    };
    let before: Vec<f64> = of.iter().map(|run| run.other_cpu_before).collect();
    vec![
        name.to_owned(),
        format!("{:.0}", median(&rates)),
        format!("{low:.0} .. {high:.0}"),
        cpu(&|run| run.sides.sender_cpu_s),
        cpu(&|run| run.sides.receiver_cpu_s),
        cpu(&|run| Some(run.machine_cpu_s)),
        format!(
            "{:.0} % (max {:.0} %)",
            100.0 * median(&before),
            100.0 * before.iter().fold(0.0, |a: f64, b| a.max(*b))
        ),
    ]
}

fn print_stages(runs: &[Run], scale: Scale) {
    for name in names(runs) {
        let of: Vec<&Run> = runs.iter().filter(|run| run.what == name && !run.sides.stages_cpu_s.is_empty()).collect();
        let Some(first) = of.first() else { continue };
        let stage = |stage: &str| {
            let of_stage = |run: &&Run| {
                run.sides.stages_cpu_s.iter().find(|(name, _)| name == stage).map(|(_, s)| scale.cpu(run, *s))
            };
            format!("{stage} {:.3}", median(&of.iter().filter_map(of_stage).collect::<Vec<_>>()))
        };
        let stages: Vec<String> = first.sides.stages_cpu_s.iter().map(|(name, _)| stage(name)).collect();
        println!("{name}, {} by stage: {}", scale.names().1, stages.join(", "));
    }
}

fn names(runs: &[Run]) -> Vec<&'static str> {
    runs.iter().filter(|run| run.round == 0).map(|run| run.what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["", "MB/s"], ["pipeline", "7"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "           MB/s\npipeline      7\n");
    }
}
