//! The steps of `bench fill` and the regions of `bench scan`: rates along a file system or device.
//!
//! In: the engine's reports. Out: rows, objects and charts. It measures nothing.

use std::io;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_engine::IoMode;
use longhaul_engine::lab::{FillEnd, FillReport, FillSample, RegionReport, median_rate, slow_regions};
use serde::Serialize;

use super::super::events::millis;
use super::super::plot::{PlotLine, PlotPanel, PlotScale, size};
use super::super::units;
use super::lab::{LabEndBody, LabLines, LabTelling, LatencyBody, percentiles, span_of};
use crate::exit::Exit;
use crate::settings::Talk;

/// Tells `bench fill`.
pub struct FillTelling {
    lines: LabLines,
    samples: Vec<FillSample>,
    end: Option<FillReport>,
}

/// A step of `bench fill` was written and synced.
#[derive(Serialize)]
struct FillBody {
    /// Seconds since the first write.
    t_s: f64,
    /// The used share of the file system at the end of the step, 0 to 100, as `df` counts it.
    used_percent: f64,
    /// Bytes that are free still.
    available_bytes: u64,
    /// Bytes that were written in this step.
    bytes: u64,
    /// Bytes per second of this step, its sync included.
    bytes_per_s: u64,
    /// The times of the writes of this step.
    latency_us: LatencyBody,
}

/// The last line of `bench fill`.
#[derive(Serialize)]
struct FillSummaryBody {
    /// The fields that all last lines have.
    #[serde(flatten)]
    end: LabEndBody,
    /// Why it ended: `share` (that of `--to` is reached) or `reserve` (more would have taken what
    /// is to stay free). Null where a fault ended it.
    ended_by: Option<&'static str>,
    /// Bytes that were written, and are freed again.
    bytes: u64,
    /// Bytes per second over all steps, syncs included.
    bytes_per_s: u64,
}

/// Tells `bench scan`.
pub struct ScanTelling {
    lines: LabLines,
    regions: usize,
    reports: Vec<RegionReport>,
}

/// A region of `bench scan` was read.
#[derive(Serialize)]
struct RegionBody {
    /// The number of the region, from 0.
    region: usize,
    /// Regions in all.
    regions: usize,
    /// Its offset, in bytes.
    offset_bytes: u64,
    /// Bytes that were read.
    bytes: u64,
    /// Seconds from the first request to the end of the last.
    seconds: f64,
    /// `bytes` over `seconds`, in bytes per second. Null for a region that could not be read.
    bytes_per_s: Option<u64>,
    /// The times of the requests.
    latency_us: LatencyBody,
    /// Why it could not be read. Null if it could.
    fault: Option<String>,
}

/// The last line of `bench scan`.
#[derive(Serialize)]
struct ScanSummaryBody {
    /// The fields that all last lines have.
    #[serde(flatten)]
    end: LabEndBody,
    /// The median rate of the regions, in bytes per second.
    median_bytes_per_s: u64,
    /// The regions below half of that, and those that could not be read.
    slow: Vec<SlowBody>,
}

/// A slow region.
#[derive(Serialize)]
struct SlowBody {
    /// Its number, from 0.
    region: usize,
    /// Its offset, in bytes.
    offset_bytes: u64,
    /// Its rate, in bytes per second. Null if it could not be read.
    bytes_per_s: Option<u64>,
}

impl FillTelling {
    /// Tells a fill.
    pub fn new(talk: Talk) -> FillTelling {
        FillTelling { lines: LabLines::new(talk, FILL_HEADER), samples: Vec::new(), end: None }
    }

    /// Tells a step.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, sample: &FillSample) -> io::Result<()> {
        let body = FillBody {
            t_s: millis(sample.seconds),
            used_percent: millis(sample.share * 100.0),
            available_bytes: sample.available,
            bytes: sample.bytes,
            bytes_per_s: sample.bytes_per_s as u64,
            latency_us: sample.latency.into(),
        };
        let row = format!(
            "{:>9.1} {:>6.1} % {:>11} {:>9.1} {}\n",
            sample.seconds,
            sample.share * 100.0,
            ByteCount(sample.available).to_string(),
            sample.bytes_per_s / 1e6,
            percentiles(&sample.latency),
        );
        self.samples.push(*sample);
        self.lines.say("bench_fill", body, &row)
    }

    /// Tells why it ended, and the sums.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn sum_up(&mut self, report: &FillReport) -> io::Result<()> {
        self.end = Some(*report);
        if report.bytes > 0 {
            self.lines.mode(report.mode);
        }
        let why = match report.end {
            FillEnd::Share => "the share is reached",
            FillEnd::Reserve => "more would take what is to stay free",
        };
        let (bytes, rate) = (ByteCount(report.bytes), units::bytes_rate(rate_of(report)));
        self.lines.conclude(&format!("{why}: {bytes} written, {rate} over all, and removed again\n"))
    }
}

fn rate_of(report: &FillReport) -> f64 {
    report.bytes as f64 / report.seconds.max(1e-9)
}

impl LabTelling for FillTelling {
    fn table(&self) -> &str {
        self.lines.table()
    }

    fn panels(&self) -> Vec<PlotPanel> {
        let points = self.samples.iter().map(|sample| (sample.share * 100.0, sample.bytes_per_s / 1e6)).collect();
        let lines = vec![PlotLine { name: "writes, synced".to_owned(), points }];
        let (title, x, y) = ("Rate while a file system fills".to_owned(), "used (%)", "rate (MB/s)");
        vec![PlotPanel { title, x, scale: PlotScale::Linear, y, lines }]
    }

    fn end(self, fault: Option<Fault>) -> Exit {
        let report = self.end;
        let written = self.samples.iter().map(|sample| sample.bytes).sum();
        self.lines.end(fault, |end| FillSummaryBody {
            end,
            ended_by: report.map(|report| if report.end == FillEnd::Share { "share" } else { "reserve" }),
            bytes: written,
            bytes_per_s: report.map_or(0.0, |report| rate_of(&report)) as u64,
        })
    }
}

impl ScanTelling {
    /// Tells a scan.
    pub fn new(talk: Talk) -> ScanTelling {
        ScanTelling { lines: LabLines::new(talk, SCAN_HEADER), regions: 0, reports: Vec::new() }
    }

    /// Tells how much is read, and how.
    pub fn begin(&mut self, bytes: u64, regions: usize, mode: IoMode) {
        self.regions = regions;
        self.lines.mode(mode);
        self.lines.note(format_args!("{} in {}", ByteCount(bytes), units::count(regions as u64, "region")));
    }

    /// Tells a region.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, report: RegionReport) -> io::Result<()> {
        let rate = report.bytes_per_s();
        let body = RegionBody {
            region: report.region,
            regions: self.regions,
            offset_bytes: report.offset,
            bytes: report.bytes,
            seconds: millis(report.seconds),
            bytes_per_s: rate.map(|rate| rate as u64),
            latency_us: report.latency.into(),
            fault: report.fault.as_ref().map(|fault| fault.message.to_string()),
        };
        let carried = rate.map_or("-".to_owned(), |rate| format!("{:.1}", rate / 1e6));
        let row = format!(
            "{:>6} {:>11} {carried:>9} {} {:>9}{}\n",
            report.region,
            ByteCount(report.offset).to_string(),
            percentiles(&report.latency),
            span_of(report.latency.max_us),
            if rate.is_none() { "  unreadable" } else { "" },
        );
        self.reports.push(report);
        self.lines.say("bench_scan", body, &row)
    }

    /// Tells the slow spots.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn sum_up(&mut self) -> io::Result<()> {
        let median = units::bytes_rate(self.median());
        let slow = self.slow();
        if slow.is_empty() {
            return self
                .lines
                .conclude(&format!("no slow spot: every region has at least half of the median, {median}\n"));
        }
        let spot = |report: &&RegionReport| {
            let rate = report.bytes_per_s().map_or("unreadable".to_owned(), units::bytes_rate);
            format!("slow spot: region {} at {}: {rate}; the median is {median}\n", report.region, size(report.offset))
        };
        let spots: String = slow.iter().map(spot).collect();
        self.lines.conclude(&spots)
    }

    /// The fault of a scan with regions that could not be read. `None` if all could.
    pub fn unreadable(&self) -> Option<Fault> {
        let failed: Vec<_> = self.reports.iter().filter_map(|report| report.fault.as_ref()).collect();
        let first = failed.first()?;
        let regions = units::count(failed.len() as u64, "region");
        let message = format!("{regions} cannot be read; the first: {}", first.message);
        Some(Fault::new(FaultCode::Io, Blame::Local, message).with_os_error(first.os_error.map(Into::into)))
    }

    fn rates(&self) -> Vec<Option<f64>> {
        self.reports.iter().map(RegionReport::bytes_per_s).collect()
    }

    fn median(&self) -> f64 {
        median_rate(&self.rates())
    }

    fn slow(&self) -> Vec<&RegionReport> {
        slow_regions(&self.rates()).into_iter().filter_map(|at| self.reports.get(at)).collect()
    }
}

impl LabTelling for ScanTelling {
    fn table(&self) -> &str {
        self.lines.table()
    }

    /// The rate along the offsets; a region that could not be read is at 0.
    fn panels(&self) -> Vec<PlotPanel> {
        let place = |report: &RegionReport| report.offset as f64 / 1e9;
        let rate = |report: &RegionReport| report.bytes_per_s().unwrap_or(0.0) / 1e6;
        let points = self.reports.iter().map(|report| (place(report), rate(report))).collect();
        let ends = self.reports.first().map(place).into_iter().chain(self.reports.last().map(place));
        let median = ends.map(|at| (at, self.median() / 1e6)).collect();
        let line = |name: &str, points| PlotLine { name: name.to_owned(), points };
        let (title, x, y) = ("Rate of each region".to_owned(), "offset (GB)", "rate (MB/s)");
        let lines = vec![line("reads", points), line("median", median)];
        vec![PlotPanel { title, x, scale: PlotScale::Linear, y, lines }]
    }

    fn end(self, fault: Option<Fault>) -> Exit {
        let median_bytes_per_s = self.median() as u64;
        let slow = self.slow().into_iter().map(|report| SlowBody {
            region: report.region,
            offset_bytes: report.offset,
            bytes_per_s: report.bytes_per_s().map(|rate| rate as u64),
        });
        let slow: Vec<SlowBody> = slow.collect();
        self.lines.end(fault, |end| ScanSummaryBody { end, median_bytes_per_s, slow })
    }
}

const FILL_HEADER: &str = "                                              time of a write
  seconds     used        free      MB/s       p50       p90       p99
";

const SCAN_HEADER: &str = "                                        time of a request
region      offset      MB/s       p50       p90       p99   longest
";
