//! The cells of `bench matrix`: an object a run for scripts, a table of medians at the end for
//! users.
//!
//! In: the engine's reports. Out: lines on standard output. The ratio of a cell is to
//! memory-to-memory of the same protection in the same round; the table has its median.

use std::io::{self, Stdout, Write};

use longhaul_core::Fault;
use longhaul_engine::{CellReport, HalfReport, Limited, Protection, Stage};
use serde::Serialize;

use super::super::events::{as_map, limits, millis, protection};
use super::super::{JsonLines, Talker, units};
use super::or_dash;
use crate::exit::Exit;
use crate::settings::Talk;

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixCell {
    /// Whether it reads from the disk, else from memory.
    pub from_disk: bool,
    /// Whether it writes to the disk, else to memory.
    pub to_disk: bool,
    /// The protection of the lanes.
    pub protect: Protection,
}

/// Tells the runs of `bench matrix`.
pub struct MatrixTelling {
    talker: Talker,
    json: bool,
    lines: JsonLines<Stdout>,
    rounds: u32,
    /// Whether files are read and written past the page cache.
    direct: bool,
    runs: Vec<MatrixRun>,
}

/// One run, in figures that are printed.
#[derive(Clone, Debug)]
struct MatrixRun {
    cell: MatrixCell,
    round: u32,
    bytes: u64,
    seconds: f64,
    bytes_per_s: f64,
    ratio: Option<f64>,
    cpu: MatrixCpuPerGb,
    /// CPU seconds per GB of both halves: read, hash, net, write, files.
    stages: [f64; 5],
    limits: Vec<Limited>,
}

/// CPU seconds per 10^9 bytes.
#[derive(Clone, Copy, Debug, Serialize)]
struct MatrixCpuPerGb {
    /// CPU seconds of the sending half.
    sender: f64,
    /// CPU seconds of the receiving half.
    receiver: f64,
    /// CPU seconds of the process that no stage of either half counted, such as session loops and
    /// the kernel's I/O threads.
    rest: f64,
}

/// A run of `bench matrix` was measured.
#[derive(Serialize)]
struct RunBody<'a> {
    /// The round, from 1.
    round: u32,
    /// Rounds that were asked for.
    rounds: u32,
    /// The end that is read: `memory` or `disk`.
    from: &'static str,
    /// The end that is written: `memory` or `disk`.
    to: &'static str,
    /// The protection of the lanes: `private` or `safe`.
    protect: &'static str,
    /// True if files are read and written past the page cache.
    direct: bool,
    /// Bytes that were committed.
    bytes: u64,
    /// Seconds from the first message until both halves had ended, with the last sync.
    seconds: f64,
    /// `bytes` over `seconds`, in bytes per second.
    bytes_per_s: u64,
    /// The rate over that of memory to memory, of the same round and protection. Null where that
    /// was not measured.
    ratio: Option<f64>,
    /// CPU seconds per 10^9 bytes.
    cpu_s_per_gb: MatrixCpuPerGb,
    /// CPU seconds of each half, by the stage that spent them.
    stages: Halves<'a>,
    /// The part that limited the run for the longest time, by the names of the `summary` of a
    /// transfer. Null where it is not known.
    limited_by: Option<&'static str>,
    /// The share of the time for which `limited_by` holds, 0 to 1.
    limited_share: Option<f64>,
    /// The share of each part that limited, 0 to 1, by its name; the largest is first.
    #[serde(serialize_with = "limits")]
    limits: &'a [Limited],
}

/// CPU seconds by stage.
#[derive(Serialize)]
struct Halves<'a> {
    /// Stages of the sending half.
    #[serde(serialize_with = "as_map")]
    sender: &'a [(Stage, f64)],
    /// Stages of the receiving half.
    #[serde(serialize_with = "as_map")]
    receiver: &'a [(Stage, f64)],
}

/// The last line of `bench matrix`.
#[derive(Serialize)]
struct MatrixSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Rounds that were asked for.
    rounds: u32,
    /// Runs that were measured.
    runs_done: usize,
    /// True if files are read and written past the page cache.
    direct: bool,
    /// One object for each cell that was measured.
    cells: Vec<CellBody>,
}

/// The medians of a cell.
#[derive(Serialize)]
struct CellBody {
    /// The end that is read: `memory` or `disk`.
    from: &'static str,
    /// The end that is written: `memory` or `disk`.
    to: &'static str,
    /// The protection of the lanes: `private` or `safe`.
    protect: &'static str,
    /// The median rate, in bytes per second.
    bytes_per_s: u64,
    /// The median of the runs' ratios. Null where there is none.
    ratio: Option<f64>,
    /// CPU seconds per 10^9 bytes, medians.
    cpu_s_per_gb: MatrixCpuPerGb,
}

impl MatrixCell {
    /// All eight cells. Memory to memory comes first of each protection, as the others are measured
    /// against it. Every other round begins with the other protection, so that a drift of the
    /// machine favours neither.
    pub fn round(round: u32) -> Vec<MatrixCell> {
        let mut protections = [Protection::Safe, Protection::Private];
        protections.rotate_left(round as usize % 2);
        let ends = [(false, false), (true, false), (false, true), (true, true)];
        let cell = |protect| ends.map(|(from_disk, to_disk)| MatrixCell { from_disk, to_disk, protect });
        protections.into_iter().flat_map(cell).collect()
    }

    fn from(self) -> &'static str {
        end(self.from_disk)
    }

    fn to(self) -> &'static str {
        end(self.to_disk)
    }
}

fn end(disk: bool) -> &'static str {
    if disk { "disk" } else { "memory" }
}

impl MatrixTelling {
    /// Tells a measurement of `rounds` rounds.
    pub fn new(talk: Talk, rounds: u32) -> MatrixTelling {
        let (talker, lines) = (Talker::new(talk), JsonLines::new(io::stdout()));
        MatrixTelling { talker, json: talk.json, lines, rounds, direct: true, runs: Vec::new() }
    }

    /// Tells that the file system takes no direct I/O.
    pub fn buffered(&mut self, dir: &std::path::Path) {
        self.direct = false;
        self.talker.note(format_args!(
            "no direct I/O in {}: its figures go through the page cache; pages of what is read are dropped before each run",
            dir.display()
        ));
    }

    /// Tells that a round begins.
    pub fn begin(&self, round: u32) {
        self.talker.note(format_args!("round {} of {}", round + 1, self.rounds));
    }

    /// Tells the result of a cell.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, cell: MatrixCell, round: u32, report: &CellReport) -> io::Result<()> {
        let run = self.run(cell, round, report);
        if self.json {
            self.lines.say("bench_matrix", body(&run, report, (self.rounds, self.direct)))?;
        }
        self.runs.push(run);
        Ok(())
    }

    fn run(&self, cell: MatrixCell, round: u32, report: &CellReport) -> MatrixRun {
        let per_gb = |seconds: f64| millis(seconds / (report.bytes.max(1) as f64 / 1e9));
        let sum = |half: &HalfReport| per_gb(half.stages.iter().map(|(_, seconds)| seconds).sum());
        let of = |counted: Stage| {
            let both = report.sender.stages.iter().chain(&report.receiver.stages);
            per_gb(both.filter(|(stage, _)| *stage == counted).map(|(_, seconds)| seconds).sum())
        };
        let bytes_per_s = report.bytes as f64 / report.seconds.max(1e-9);
        let plain = self.runs.iter().find(|run| run.round == round && is_base(run.cell, cell.protect));
        let ratio =
            if is_base(cell, cell.protect) { Some(1.0) } else { plain.map(|run| bytes_per_s / run.bytes_per_s) };
        MatrixRun {
            cell,
            round,
            bytes: report.bytes,
            seconds: report.seconds,
            bytes_per_s,
            ratio: ratio.map(millis),
            cpu: MatrixCpuPerGb {
                sender: sum(&report.sender),
                receiver: sum(&report.receiver),
                rest: per_gb(report.rest_cpu),
            },
            stages: [Stage::Read, Stage::Hash, Stage::Net, Stage::Write, Stage::Files].map(of),
            limits: report.limits.clone(),
        }
    }

    /// Writes the table or the last line, with the fault if one ended the measurement.
    pub fn end(mut self, fault: Option<Fault>) -> Exit {
        let exit = fault.as_ref().map_or(Exit::Complete, |fault| fault.code.into());
        if let Some(fault) = &fault {
            self.talker.fault(fault);
        }
        let told = if self.json { self.last_line(exit, fault.as_ref()) } else { self.table() };
        told.map_or_else(super::super::stdout_failed, |()| exit)
    }

    fn last_line(&mut self, exit: Exit, fault: Option<&Fault>) -> io::Result<()> {
        if let Some(fault) = fault {
            self.lines.fault(fault)?;
        }
        let summary = MatrixSummaryBody {
            status: exit.status(),
            exit: exit.code(),
            rounds: self.rounds,
            runs_done: self.runs.len(),
            direct: self.direct,
            cells: self.cells().iter().map(|runs| medians(runs)).collect(),
        };
        self.lines.say("summary", summary)
    }

    fn table(&self) -> io::Result<()> {
        let cells = self.cells();
        if cells.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(HEADER.as_bytes())?;
        cells.iter().try_for_each(|runs| out.write_all(row(runs).as_bytes()))?;
        out.flush()
    }

    /// The runs of each cell that was measured.
    fn cells(&self) -> Vec<Vec<&MatrixRun>> {
        let of = |cell: MatrixCell| self.runs.iter().filter(|run| run.cell == cell).collect::<Vec<_>>();
        MatrixCell::round(0).into_iter().map(of).filter(|runs| !runs.is_empty()).collect()
    }
}

/// Whether a cell is the one that others of this protection are measured against.
fn is_base(cell: MatrixCell, protect: Protection) -> bool {
    cell == MatrixCell { from_disk: false, to_disk: false, protect }
}

fn body<'a>(run: &'a MatrixRun, report: &'a CellReport, (rounds, direct): (u32, bool)) -> RunBody<'a> {
    RunBody {
        round: run.round + 1,
        rounds,
        from: run.cell.from(),
        to: run.cell.to(),
        protect: protection(run.cell.protect),
        direct,
        bytes: run.bytes,
        seconds: millis(run.seconds),
        bytes_per_s: run.bytes_per_s as u64,
        ratio: run.ratio,
        cpu_s_per_gb: run.cpu,
        stages: Halves { sender: &report.sender.stages, receiver: &report.receiver.stages },
        limited_by: run.limits.first().map(|limited| limited.by.name()),
        limited_share: run.limits.first().map(|limited| millis(limited.share)),
        limits: &run.limits,
    }
}

fn medians(runs: &[&MatrixRun]) -> CellBody {
    let of = |figure: fn(&MatrixRun) -> f64| median(runs.iter().map(|run| figure(run)).collect()).unwrap_or(0.0);
    let cell = runs[0].cell;
    CellBody {
        from: cell.from(),
        to: cell.to(),
        protect: protection(cell.protect),
        bytes_per_s: of(|run| run.bytes_per_s) as u64,
        ratio: median(runs.iter().filter_map(|run| run.ratio).collect()),
        cpu_s_per_gb: MatrixCpuPerGb {
            sender: of(|run| run.cpu.sender),
            receiver: of(|run| run.cpu.receiver),
            rest: of(|run| run.cpu.rest),
        },
    }
}

fn row(runs: &[&MatrixRun]) -> String {
    let CellBody { from, to, protect, bytes_per_s, ratio, cpu_s_per_gb: cpu } = medians(runs);
    let stage = |n: usize| median(runs.iter().map(|run| run.stages[n]).collect()).unwrap_or(0.0);
    let limits = runs.iter().filter_map(|run| run.limits.first());
    let limited = limits.max_by(|a, b| a.share.total_cmp(&b.share));
    let limited = or_dash(limited.map(|limited| format!("{} {:.0} %", limited.by.name(), limited.share * 100.0)));
    let [read, hash, net, write, files] = [0, 1, 2, 3, 4].map(stage);
    let ratio = or_dash(ratio.map(|ratio| format!("{ratio:.2}")));
    format!(
        "{from:<6} {to:<6} {protect:<7} {:>11} {ratio:>5}  {:>5.2} {:>5.2} {:>5.2}  {read:>5.2} {hash:>5.2} {net:>5.2} {write:>5.2} {files:>5.2}  {limited}\n",
        units::bits(bytes_per_s as f64),
        cpu.sender,
        cpu.receiver,
        cpu.rest,
    )
}

/// The median; with two figures in the middle, their mean. `None` without figures.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        len if len % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

const HEADER: &str = "CPU seconds per GB:                       of either half, other    of both halves, by stage
from   to     protect     carried ratio   send  recv other   read  hash   net write files  limited by\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f64) -> CellReport {
        CellReport {
            fault: None,
            bytes: 2_000_000_000,
            seconds,
            sender: HalfReport { stages: vec![(Stage::Read, 0.1), (Stage::Hash, 0.4)] },
            receiver: HalfReport { stages: vec![(Stage::Write, 0.2), (Stage::Hash, 0.4), (Stage::Net, 0.6)] },
            rest_cpu: 0.3,
            limits: Vec::new(),
        }
    }

    #[test]
    fn every_cell_is_measured_against_memory_to_memory_of_its_protection_and_round() {
        let mut telling = MatrixTelling::new(Talk { quiet: true, ..Talk::default() }, 2);
        for round in 0..2 {
            let cells = MatrixCell::round(round);
            assert_eq!(cells.len(), 8);
            for (n, cell) in cells.into_iter().enumerate() {
                let slow = if cell.protect == Protection::Private { 4.0 } else { 1.0 };
                telling.tell(cell, round, &report(slow * (n % 4 + 1) as f64 * f64::from(round + 1))).unwrap();
            }
        }
        let cells: Vec<_> = telling.cells().iter().map(|runs| medians(runs)).collect();
        let ratios: Vec<_> = cells.iter().map(|cell| cell.ratio.unwrap()).collect();
        assert_eq!(ratios, [1.0, 0.5, 0.333, 0.25, 1.0, 0.5, 0.333, 0.25]);
        assert_eq!((cells[0].protect, cells[4].protect), ("safe", "private"));
        let cpu = cells[3].cpu_s_per_gb;
        assert_eq!((cpu.sender, cpu.receiver, cpu.rest), (0.25, 0.6, 0.15));
        assert_eq!(telling.runs[0].stages, [0.05, 0.4, 0.3, 0.1, 0.0]);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }
}
