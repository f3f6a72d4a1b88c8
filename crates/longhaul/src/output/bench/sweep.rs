//! The cells of `bench disk`, and the depth and chunk size that they speak for.
//!
//! In: the engine's reports. Out: rows, objects, charts, and at the end what to choose and why. It
//! measures nothing.

use std::io;
use std::path::Path;

use longhaul_core::Fault;
use longhaul_engine::IoMode;
use longhaul_engine::lab::{Access, SweepCell, SweepChoice, SweepPoint, SweepReport, choose};
use serde::Serialize;

use super::super::events::millis;
use super::super::plot::{PlotLine, PlotPanel, PlotScale, size};
use super::super::units;
use super::lab::{LabEndBody, LabLines, LabTelling, LatencyBody, cpu_per_gb, percentiles};
use crate::exit::Exit;
use crate::settings::Talk;

/// Tells `bench disk`.
pub struct SweepTelling {
    lines: LabLines,
    runs: usize,
    reports: Vec<SweepReport>,
}

/// A cell of `bench disk` was measured.
#[derive(Serialize)]
struct SweepBody {
    /// Cells that were asked for and fit the memory.
    runs: usize,
    /// `read` or `write`.
    access: &'static str,
    /// The number of directories: the first ones that were given.
    targets: usize,
    /// Bytes of a request.
    chunk_bytes: u64,
    /// Requests in flight on each target.
    depth: usize,
    /// True if files are read and written past the page cache.
    direct: bool,
    /// Bytes that were moved.
    bytes: u64,
    /// Seconds from the first request to the end of the last, and of the sync after writes.
    seconds: f64,
    /// `bytes` over `seconds`, in bytes per second.
    bytes_per_s: u64,
    /// The times of the requests.
    latency_us: LatencyBody,
    /// CPU seconds of the process per 10^9 bytes, the kernel's work for it included.
    cpu_s_per_gb: f64,
    /// Processor cycles per byte. Null, as no cycle counter is read.
    cycles_per_byte: Option<f64>,
}

/// The last line of `bench disk`.
#[derive(Serialize)]
struct SweepSummaryBody {
    /// The fields that all last lines have.
    #[serde(flatten)]
    end: LabEndBody,
    /// Cells that were asked for and fit the memory.
    runs: usize,
    /// The settings to use with all targets at once, for reads and for writes.
    choices: Vec<ChoiceBody>,
}

/// A setting to use: the fewest bytes in flight within 3 % of the best rate.
#[derive(Serialize)]
struct ChoiceBody {
    /// `read` or `write`.
    access: &'static str,
    /// The number of targets.
    targets: usize,
    /// The value for `--depth`.
    depth: usize,
    /// The value for `--chunk-size`, in bytes.
    chunk_bytes: u64,
    /// The rate with these, in bytes per second.
    bytes_per_s: u64,
    /// The depth of the best rate.
    best_depth: usize,
    /// The chunk size of the best rate, in bytes.
    best_chunk_bytes: u64,
    /// The best rate, in bytes per second.
    best_bytes_per_s: u64,
}

impl SweepTelling {
    /// Tells a sweep.
    pub fn new(talk: Talk) -> SweepTelling {
        SweepTelling { lines: LabLines::new(talk, HEADER), runs: 0, reports: Vec::new() }
    }

    /// Tells how many cells follow, how many do not fit the memory, and how files are accessed.
    pub fn begin(&mut self, runs: usize, left_out: usize, mode: IoMode) {
        self.runs = runs;
        self.lines.mode(mode);
        if left_out > 0 {
            let cells = units::count(left_out as u64, "cell");
            self.lines.note(format_args!("{cells} left out that would take more memory than --memory"));
        }
    }

    /// Tells that two directories share a file system.
    pub fn shared(&self, one: &Path, other: &Path) {
        let (one, other) = (one.display(), other.display());
        self.lines
            .note(format_args!("'{one}' and '{other}' lie on one file system, so they share its disk and its queue"));
    }

    /// Tells the result of a cell.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, report: &SweepReport) -> io::Result<()> {
        let SweepReport { cell, bytes, seconds, latency, cpu_seconds } = *report;
        let SweepCell { access, targets, chunk_bytes, depth } = cell;
        let body = SweepBody {
            runs: self.runs,
            access: access.name(),
            targets,
            chunk_bytes,
            depth,
            direct: self.lines.is_direct(),
            bytes,
            seconds: millis(seconds),
            bytes_per_s: report.bytes_per_s() as u64,
            latency_us: latency.into(),
            cpu_s_per_gb: cpu_per_gb(cpu_seconds, bytes),
            cycles_per_byte: None,
        };
        let row = format!(
            "{:<6} {targets:>7} {:>8} {depth:>5} {:>9.1} {} {:>8.3} {:>8}\n",
            access.name(),
            size(chunk_bytes),
            report.bytes_per_s() / 1e6,
            percentiles(&latency),
            body.cpu_s_per_gb,
            "-",
        );
        self.reports.push(*report);
        self.lines.say("bench_disk", body, &row)
    }

    /// Tells which settings to choose, if the sweep came to its end.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn advise(&mut self) -> io::Result<()> {
        let advice: String = self.choices().iter().map(|(access, choice)| advice(*access, choice)).collect();
        self.lines.conclude(&advice)
    }

    /// The choices for all targets at once.
    fn choices(&self) -> Vec<(Access, SweepChoice)> {
        let targets = self.targets();
        let of = |access: Access| {
            let same = |report: &&SweepReport| report.cell.access == access && report.cell.targets == targets;
            let points: Vec<_> = self.reports.iter().filter(same).map(point).collect();
            choose(&points).map(|choice| (access, choice))
        };
        [Access::Read, Access::Write].into_iter().filter_map(of).collect()
    }

    fn targets(&self) -> usize {
        self.reports.iter().map(|report| report.cell.targets).max().unwrap_or(0)
    }
}

impl LabTelling for SweepTelling {
    fn table(&self) -> &str {
        self.lines.table()
    }

    /// A chart for each access and number of targets, with a line for each depth.
    fn panels(&self) -> Vec<PlotPanel> {
        let mut panels = Vec::new();
        for targets in 1..=self.targets() {
            for access in [Access::Read, Access::Write] {
                let same = |report: &&SweepReport| (report.cell.access, report.cell.targets) == (access, targets);
                let reports: Vec<_> = self.reports.iter().filter(same).collect();
                if reports.is_empty() {
                    continue;
                }
                let name = units::count(targets as u64, "target");
                let title = format!("Sequential {}, {name}", access.name());
                let (x, y) = ("chunk size (bytes)", "rate (MB/s)");
                panels.push(PlotPanel { title, x, scale: PlotScale::Sizes, y, lines: lines_by_depth(&reports) });
            }
        }
        panels
    }

    fn end(self, fault: Option<Fault>) -> Exit {
        let (runs, targets) = (self.runs, self.targets());
        let choices = self.choices();
        let choices = choices.iter().map(|(access, choice)| choice_body(*access, targets, choice)).collect();
        self.lines.end(fault, |end| SweepSummaryBody { end, runs, choices })
    }
}

fn point(report: &SweepReport) -> SweepPoint {
    let SweepCell { chunk_bytes, depth, .. } = report.cell;
    SweepPoint { chunk_bytes, depth, bytes_per_s: report.bytes_per_s() }
}

fn lines_by_depth(reports: &[&SweepReport]) -> Vec<PlotLine> {
    let mut depths: Vec<usize> = reports.iter().map(|report| report.cell.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let line = |depth: usize| {
        let same = reports.iter().filter(|report| report.cell.depth == depth);
        let points = same.map(|report| (report.cell.chunk_bytes as f64, report.bytes_per_s() / 1e6));
        let mut points: Vec<_> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        PlotLine { name: format!("depth {depth}"), points }
    };
    depths.into_iter().map(line).collect()
}

fn choice_body(access: Access, targets: usize, choice: &SweepChoice) -> ChoiceBody {
    let SweepChoice { chosen, best } = choice;
    ChoiceBody {
        access: access.name(),
        targets,
        depth: chosen.depth,
        chunk_bytes: chosen.chunk_bytes,
        bytes_per_s: chosen.bytes_per_s as u64,
        best_depth: best.depth,
        best_chunk_bytes: best.chunk_bytes,
        best_bytes_per_s: best.bytes_per_s as u64,
    }
}

/// The setting to choose, and why, in a few lines of text.
fn advice(access: Access, choice: &SweepChoice) -> String {
    let SweepChoice { chosen, best } = choice;
    let doing = if access == Access::Read { "to read" } else { "to write" };
    let setting = |point: &SweepPoint| {
        let chunk = size(point.chunk_bytes).replace(' ', "");
        format!("--depth {} --chunk-size {chunk}", point.depth)
    };
    let in_flight = |point: &SweepPoint| size(point.chunk_bytes * point.depth as u64);
    let (chosen_rate, best_rate) = (units::bytes_rate(chosen.bytes_per_s), units::bytes_rate(best.bytes_per_s));
    let why = if chosen == best {
        format!("the best of all, {best_rate}, and nothing within 3 % of it has less in flight")
    } else {
        format!(
            "{chosen_rate} with {} in flight, within 3 % of the best,\n  {best_rate} with {} in flight ({})",
            in_flight(chosen),
            in_flight(best),
            setting(best),
        )
    };
    format!("{doing}: {}\n  {why}\n", setting(chosen))
}

const HEADER: &str = "                                          time of a request          CPU   cycles
access targets    chunk depth      MB/s       p50       p90       p99     s/GB    /byte
";

#[cfg(test)]
mod tests {
    use super::*;

    fn report(access: Access, (chunk_bytes, depth): (u64, usize), rate: u64) -> SweepReport {
        let cell = SweepCell { access, targets: 1, chunk_bytes, depth };
        let latency = longhaul_engine::lab::LatencyFigures::default();
        SweepReport { cell, bytes: rate, seconds: 1.0, latency, cpu_seconds: 0.1 }
    }

    #[test]
    fn a_chart_has_one_line_for_each_depth_and_its_points_in_order() {
        let mut telling = SweepTelling::new(Talk { json: true, quiet: true, ..Talk::default() });
        for cell in [(4 << 20, 1), (1 << 20, 1), (1 << 20, 8), (4 << 20, 8)] {
            telling.reports.push(report(Access::Read, cell, 100_000_000));
        }
        let panels = telling.panels();
        let [panel] = &panels[..] else { panic!("{panels:?}") };
        let names: Vec<_> = panel.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["depth 1", "depth 8"]);
        assert_eq!(panel.lines[0].points, [(1048576.0, 100.0), (4194304.0, 100.0)]);
    }

    #[test]
    fn advice_says_what_to_write_and_what_the_best_would_cost() {
        let choice = |chosen, best| SweepChoice { chosen, best };
        let point = |chunk_bytes, depth, bytes_per_s| SweepPoint { chunk_bytes, depth, bytes_per_s };
        let (less, best) = (point(4 << 20, 4, 0.98e9), point(8 << 20, 16, 1e9));
        let text = advice(Access::Read, &choice(less, best));
        for part in ["to read: --depth 4 --chunk-size 4MiB", "16 MiB in flight", "128 MiB in flight", "--depth 16"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(advice(Access::Write, &choice(best, best)).contains("the best of all"));
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}
