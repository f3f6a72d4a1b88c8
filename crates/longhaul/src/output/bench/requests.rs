//! The rows of `bench iops` and `bench pileup`.
//!
//! In: the engine's reports. Out: rows, objects and charts. It measures nothing.

use std::io;

use longhaul_core::Fault;
use longhaul_engine::IoMode;
use longhaul_engine::lab::{PileupReport, PileupRun, RandomReport};
use serde::Serialize;

use super::super::events::millis;
use super::super::plot::{PlotLine, PlotPanel, PlotScale, size};
use super::super::units;
use super::lab::{LabEndBody, LabLines, LabTelling, LatencyBody, cpu_per_gb, percentiles};
use crate::exit::Exit;
use crate::settings::Talk;

/// Tells `bench iops`.
pub struct IopsTelling {
    lines: LabLines,
    request_bytes: u64,
    reads_percent: u64,
    reports: Vec<RandomReport>,
}

/// Random requests of `bench iops` were measured.
#[derive(Serialize)]
struct IopsBody {
    /// Workers, each pinned to a core.
    workers: usize,
    /// Requests that each worker kept in flight.
    outstanding: usize,
    /// Bytes of a request.
    request_bytes: u64,
    /// The share of reads that was asked for, 0 to 100.
    reads_percent: u64,
    /// True if the file is read and written past the page cache.
    direct: bool,
    /// Reads and writes that ended.
    requests: RequestsBody,
    /// Seconds from a worker's first request to the end of its last; of the slowest worker.
    seconds: f64,
    /// Reads and writes per second.
    requests_per_s: f64,
    /// The times of reads. Null where there were none.
    read_latency_us: Option<LatencyBody>,
    /// The times of writes. Null where there were none.
    write_latency_us: Option<LatencyBody>,
    /// CPU microseconds of the process per request, the kernel's work for it included.
    cpu_us_per_request: f64,
}

/// Numbers of requests.
#[derive(Serialize)]
struct RequestsBody {
    /// Reads that ended.
    reads: u64,
    /// Writes that ended.
    writes: u64,
}

/// Tells `bench pileup`.
pub struct PileupTelling {
    lines: LabLines,
    files: usize,
    request_bytes: u64,
    reports: Vec<PileupReport>,
}

/// A number of threads of `bench pileup` was measured.
#[derive(Serialize)]
struct PileupBody {
    /// Threads that read, one request each.
    threads: usize,
    /// Files that they read from.
    files: usize,
    /// Bytes of a request.
    request_bytes: u64,
    /// True if files are read past the page cache.
    direct: bool,
    /// Requests that ended.
    requests: u64,
    /// Bytes that were read.
    bytes: u64,
    /// Seconds from the first request to the end of the last.
    seconds: f64,
    /// `bytes` over `seconds`, in bytes per second.
    bytes_per_s: u64,
    /// Requests per second.
    requests_per_s: f64,
    /// The times of the requests.
    latency_us: LatencyBody,
    /// CPU seconds of the process per 10^9 bytes, the kernel's work for it included.
    cpu_s_per_gb: f64,
}

/// The last line of a measurement of a disk that has nothing to add.
#[derive(Serialize)]
pub(super) struct LabSummaryBody {
    /// The fields that all last lines have.
    #[serde(flatten)]
    pub(super) end: LabEndBody,
}

impl IopsTelling {
    /// Tells random requests.
    pub fn new(talk: Talk) -> IopsTelling {
        let lines = LabLines::new(talk, IOPS_HEADER);
        IopsTelling { lines, request_bytes: 0, reads_percent: 0, reports: Vec::new() }
    }

    /// Tells which requests follow, and how the file is accessed.
    pub fn begin(&mut self, request_bytes: u64, reads_percent: u64, mode: IoMode) {
        (self.request_bytes, self.reads_percent) = (request_bytes, reads_percent);
        self.lines.mode(mode);
        self.lines.note(format_args!("requests of {}, {reads_percent} % of them reads", size(request_bytes)));
    }

    /// Tells the result of a case.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, report: &RandomReport) -> io::Result<()> {
        let requests = report.reads + report.writes;
        let cpu_us = report.cpu_seconds * 1e6 / requests.max(1) as f64;
        let of = |count: u64, figures| (count > 0).then(|| LatencyBody::from(figures));
        let body = IopsBody {
            workers: report.case.workers,
            outstanding: report.case.outstanding,
            request_bytes: self.request_bytes,
            reads_percent: self.reads_percent,
            direct: self.lines.is_direct(),
            requests: RequestsBody { reads: report.reads, writes: report.writes },
            seconds: millis(report.seconds),
            requests_per_s: millis(report.requests_per_s()),
            read_latency_us: of(report.reads, report.read_latency),
            write_latency_us: of(report.writes, report.write_latency),
            cpu_us_per_request: millis(cpu_us),
        };
        let none = || format!("{:>9} {:>9} {:>9}", "-", "-", "-");
        let columns = |count: u64, figures| if count > 0 { percentiles(figures) } else { none() };
        let row = format!(
            "{:>7} {:>11} {:>12.0} {} {} {cpu_us:>8.2}\n",
            report.case.workers,
            report.case.outstanding,
            report.requests_per_s(),
            columns(report.reads, &report.read_latency),
            columns(report.writes, &report.write_latency),
        );
        self.reports.push(*report);
        self.lines.say("bench_iops", body, &row)
    }
}

impl LabTelling for IopsTelling {
    fn table(&self) -> &str {
        self.lines.table()
    }

    /// One chart, with a line for each number of workers.
    fn panels(&self) -> Vec<PlotPanel> {
        let mut workers: Vec<usize> = self.reports.iter().map(|report| report.case.workers).collect();
        workers.sort_unstable();
        workers.dedup();
        let line = |workers: usize| {
            let same = self.reports.iter().filter(|report| report.case.workers == workers);
            let points = same.map(|report| (report.case.outstanding as f64, report.requests_per_s() / 1e3));
            PlotLine { name: units::count(workers as u64, "worker"), points: points.collect() }
        };
        let title = format!("Random requests of {}, {} % reads", size(self.request_bytes), self.reads_percent);
        let (x, y) = ("outstanding requests of each worker (number)", "requests (1000/s)");
        let lines = workers.into_iter().map(line).collect();
        vec![PlotPanel { title, x, scale: PlotScale::Doublings, y, lines }]
    }

    fn end(self, fault: Option<Fault>) -> Exit {
        self.lines.end(fault, |end| LabSummaryBody { end })
    }
}

impl PileupTelling {
    /// Tells threads that read from files.
    pub fn new(talk: Talk, run: &PileupRun) -> PileupTelling {
        let lines = LabLines::new(talk, PILEUP_HEADER);
        PileupTelling { lines, files: run.files, request_bytes: run.request_bytes, reports: Vec::new() }
    }

    /// Tells how the files are accessed.
    pub fn begin(&mut self, mode: IoMode) {
        self.lines.mode(mode);
    }

    /// Tells the result of a number of threads.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, report: &PileupReport) -> io::Result<()> {
        let requests_per_s = report.requests as f64 / report.seconds.max(1e-9);
        let body = PileupBody {
            threads: report.threads,
            files: self.files,
            request_bytes: self.request_bytes,
            direct: self.lines.is_direct(),
            requests: report.requests,
            bytes: report.bytes,
            seconds: millis(report.seconds),
            bytes_per_s: report.bytes_per_s() as u64,
            requests_per_s: millis(requests_per_s),
            latency_us: report.latency.into(),
            cpu_s_per_gb: cpu_per_gb(report.cpu_seconds, report.bytes),
        };
        let row = format!(
            "{:>7} {:>9.1} {requests_per_s:>12.0} {} {:>8.3}\n",
            report.threads,
            report.bytes_per_s() / 1e6,
            percentiles(&report.latency),
            body.cpu_s_per_gb,
        );
        self.reports.push(*report);
        self.lines.say("bench_pileup", body, &row)
    }
}

impl LabTelling for PileupTelling {
    fn table(&self) -> &str {
        self.lines.table()
    }

    fn panels(&self) -> Vec<PlotPanel> {
        let points = self.reports.iter().map(|report| (report.threads as f64, report.bytes_per_s() / 1e6)).collect();
        let name = units::count(self.files as u64, "file");
        let title = format!("Threads that read {} at random", size(self.request_bytes));
        let lines = vec![PlotLine { name, points }];
        vec![PlotPanel { title, x: "threads (number)", scale: PlotScale::Doublings, y: "rate (MB/s)", lines }]
    }

    fn end(self, fault: Option<Fault>) -> Exit {
        self.lines.end(fault, |end| LabSummaryBody { end })
    }
}

const IOPS_HEADER: &str =
    "                                            time of a read               time of a write      CPU us
workers outstanding   requests/s       p50       p90       p99       p50       p90       p99 /request
";

const PILEUP_HEADER: &str = "                                        time of a request          CPU
threads      MB/s   requests/s       p50       p90       p99     s/GB
";
