//! The common part of the tellings of all measurements of disks: rows of a table or JSON objects as
//! they come, and the last line.
//!
//! `sweep`, `requests` and `spots` tell one or two commands each. In: rows and bodies of those.
//! Out: lines on standard output, and the whole table for a plot's page. It knows no measurement.

use std::io::{self, Stdout, Write};
use std::time::Instant;

use longhaul_core::Fault;
use longhaul_engine::IoMode;
use longhaul_engine::lab::LatencyFigures;
use serde::Serialize;

use super::super::events::millis;
use super::super::plot::PlotPanel;
use super::super::{JsonLines, Talker};
use crate::exit::Exit;
use crate::settings::Talk;

/// The telling of a measurement of a disk.
pub trait LabTelling {
    /// The table so far, with its header.
    fn table(&self) -> &str;

    /// The charts of everything that was told so far.
    fn panels(&self) -> Vec<PlotPanel>;

    /// Writes the last line, with the fault if one ended the measurement.
    fn end(self, fault: Option<Fault>) -> Exit;
}

/// Lines of a table or of JSON, and what the last of them sums up.
pub(super) struct LabLines {
    talker: Talker,
    json: bool,
    lines: JsonLines<Stdout>,
    /// The table so far; it is printed as it grows.
    table: String,
    rows: usize,
    direct: bool,
    begun: Instant,
}

/// Percentiles of the time from a request's submission to its end, in microseconds.
#[derive(Clone, Copy, Serialize)]
pub(super) struct LatencyBody {
    /// Half of the requests took at most this.
    p50: f64,
    /// Nine of ten requests took at most this.
    p90: f64,
    /// 99 of 100 requests took at most this.
    p99: f64,
    /// The longest request.
    max: f64,
}

/// The fields that the last line of every measurement of a disk begins with.
#[derive(Serialize)]
pub(super) struct LabEndBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Objects that were told before this one.
    runs_done: usize,
    /// Seconds since the measurement began, the making of its files included.
    seconds: f64,
    /// True if files are read and written past the page cache.
    direct: bool,
}

impl From<LatencyFigures> for LatencyBody {
    fn from(figures: LatencyFigures) -> LatencyBody {
        let LatencyFigures { p50_us, p90_us, p99_us, max_us } = figures;
        let [p50, p90, p99, max] = [p50_us, p90_us, p99_us, max_us].map(millis);
        LatencyBody { p50, p90, p99, max }
    }
}

impl LabLines {
    /// Tells a measurement whose table has this header.
    pub(super) fn new(talk: Talk, header: &str) -> LabLines {
        let (talker, lines) = (Talker::new(talk), JsonLines::new(io::stdout()));
        LabLines {
            talker,
            json: talk.json,
            lines,
            table: header.to_owned(),
            rows: 0,
            direct: true,
            begun: Instant::now(),
        }
    }

    /// Tells waiting users what is done now.
    pub(super) fn note(&self, text: impl std::fmt::Display) {
        self.talker.note(text);
    }

    /// Takes the way in which files are read and written, and tells it where it is not the usual
    /// one.
    pub(super) fn mode(&mut self, mode: IoMode) {
        self.direct = mode == IoMode::Direct;
        if !self.direct {
            self.note(
                "no direct I/O here: the figures go through the page cache, whose pages are dropped before reads",
            );
        }
    }

    /// True if files are read and written past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// The table so far.
    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Tells a row of the table, or its object.
    pub(super) fn say(&mut self, kind: &'static str, body: impl Serialize, row: &str) -> io::Result<()> {
        let header = if self.rows == 0 { self.table.clone() } else { String::new() };
        self.rows += 1;
        self.table += row;
        if self.json {
            return self.lines.say(kind, body);
        }
        print(&format!("{header}{row}"))
    }

    /// Tells lines beneath the table.
    pub(super) fn conclude(&mut self, text: &str) -> io::Result<()> {
        self.table += text;
        if self.json { Ok(()) } else { print(text) }
    }

    /// Tells the last line and gives the exit code. `body` gets what the last lines of all
    /// measurements have.
    pub(super) fn end<B: Serialize>(mut self, fault: Option<Fault>, body: impl FnOnce(LabEndBody) -> B) -> Exit {
        let exit = fault.as_ref().map_or(Exit::Complete, |fault| fault.code.into());
        if let Some(fault) = &fault {
            self.talker.fault(fault);
        }
        if !self.json {
            return exit;
        }
        let end = LabEndBody {
            status: exit.status(),
            exit: exit.code(),
            runs_done: self.rows,
            seconds: millis(self.begun.elapsed().as_secs_f64()),
            direct: self.direct,
        };
        let told = fault.map_or(Ok(()), |fault| self.lines.fault(&fault));
        told.and_then(|()| self.lines.say("summary", body(end))).map_or_else(super::super::stdout_failed, |()| exit)
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// CPU seconds per 10^9 bytes. 0 without bytes.
pub(super) fn cpu_per_gb(cpu_seconds: f64, bytes: u64) -> f64 {
    if bytes == 0 { 0.0 } else { millis(cpu_seconds / (bytes as f64 / 1e9)) }
}

/// A time in a column of seven: `85 us`, `1.23 ms`, `2.50 s`.
pub(super) fn span_of(micros: f64) -> String {
    match micros {
        _ if micros < 1e3 => format!("{micros:.0} us"),
        _ if micros < 1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// The three columns of percentiles.
pub(super) fn percentiles(latency: &LatencyFigures) -> String {
    let [p50, p90, p99] = [latency.p50_us, latency.p90_us, latency.p99_us].map(span_of);
    format!("{p50:>9} {p90:>9} {p99:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        assert_eq!([85.2, 1234.0, 2.5e6].map(span_of), ["85 us", "1.23 ms", "2.50 s"]);
        assert_eq!((cpu_per_gb(1.0, 2_000_000_000), cpu_per_gb(1.0, 0)), (0.5, 0.0));
    }
}
