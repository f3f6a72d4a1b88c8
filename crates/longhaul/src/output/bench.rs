//! The results of measurements: a table for users, or a JSON object a run for scripts.
//!
//! `matrix` tells measurements within this process, `sweep`, `requests` and `spots` those of disks
//! alone, with `lab` for what they share. In: the engine's reports. Out: lines on
//! standard output, as each run ends. An unknown figure is `-` in the table and null in JSON.
//! Measures nothing.

mod lab;
mod matrix;
mod requests;
mod spots;
mod sweep;

use std::collections::BTreeMap;
use std::io::{self, Stdout, Write};
use std::time::Duration;

use longhaul_core::{ByteCount, Fault};
use longhaul_engine::{LaneFigures, Limited, NetReport, SentFigures, Stage, Way};
use serde::Serialize;

use super::events::{CpuPerGb, RoadReportBody, as_map, limits, millis, protection};
use super::{JsonLines, Talker, road, units, words};
use crate::exit::Exit;
use crate::settings::{NetCase, Talk};

pub use lab::LabTelling;
pub use matrix::{MatrixCell, MatrixTelling};
pub use requests::{IopsTelling, PileupTelling};
pub use spots::{FillTelling, ScanTelling};
pub use sweep::SweepTelling;

/// Tells the runs of `bench net`.
pub struct NetTelling {
    talker: Talker,
    json: bool,
    lines: JsonLines<Stdout>,
    runs: usize,
    done: usize,
    seconds: f64,
    best: Option<Best>,
}

/// The run that carried most.
#[derive(Clone, Copy, Serialize)]
struct Best {
    /// The number of the run, from 1.
    run: usize,
    /// Payload bytes per second of that run.
    bytes_per_s: u64,
}

/// The last line of `bench net`.
#[derive(Serialize)]
struct BenchSummaryBody {
    /// The name of the exit code; see [EXIT-CODES.md](EXIT-CODES.md).
    status: &'static str,
    /// The exit code.
    exit: u8,
    /// Runs that were asked for.
    runs: usize,
    /// Runs that were measured.
    runs_done: usize,
    /// Seconds of all runs together.
    seconds: f64,
    /// The run that carried most. Null where there was none.
    best: Option<Best>,
}

/// A run of `bench net` was measured.
#[derive(Serialize)]
struct NetBody<'a> {
    /// The number of the run, from 1.
    run: usize,
    /// Runs that were asked for.
    runs: usize,
    /// `push` or `pull`.
    direction: &'static str,
    /// The kind of lane that was asked for: `tcp`, `quic`, `udp` or `auto`.
    transport: &'static str,
    /// The protection of the lanes: `private` or `safe`.
    protect: &'static str,
    /// Lanes that were asked for. Null for `auto`.
    lanes_asked: Option<u32>,
    /// The rate that was asked for, in bytes per second. Null for none.
    rate_asked_bytes_per_s: Option<u64>,
    /// Seconds that were asked for. Null where only `--bytes` ends a run.
    seconds_asked: Option<u64>,
    /// Bytes that the daemon let the run move.
    bytes_allowed: u64,
    /// The chunk size in bytes. Null where no session stood.
    chunk_bytes: Option<u64>,
    /// The session's id, in hex. Null where no session stood.
    session: Option<&'a str>,
    /// The largest number of lanes that stood at once.
    lanes: u32,
    /// Lanes that the session began with; 0 where no session stood.
    lanes_first: u32,
    /// Lanes that stood at the end.
    lanes_last: u32,
    /// The number of lanes by congestion control. Null where this side does not know it, as of a
    /// pull.
    congestion: Option<BTreeMap<&'a str, u32>>,
    /// Payload bytes that the receiver had verified in time.
    bytes: u64,
    /// Seconds from the first request for payload until the last of `bytes` was known to be there.
    seconds: f64,
    /// `bytes` over `seconds`, in bytes per second.
    bytes_per_s: u64,
    /// All payload bytes that the receiver verified, those after the end of the time among them.
    bytes_moved: u64,
    /// Seconds from the first dial until the lanes had joined.
    setup_s: f64,
    /// CPU seconds per 10^9 bytes of `bytes_moved`.
    cpu_s_per_gb: CpuPerGb,
    /// The part that limited the run for the longest time, by the names of the `summary` of a
    /// transfer. Null where it is not known.
    limited_by: Option<&'static str>,
    /// The share of the time for which `limited_by` holds, 0 to 1.
    limited_share: Option<f64>,
    /// The share of each part that limited, 0 to 1, by its name; the largest is first.
    #[serde(serialize_with = "limits")]
    limits: &'a [Limited],
    /// CPU seconds of this side, by the stage that spent them.
    #[serde(serialize_with = "as_map")]
    stages: &'a [(Stage, f64)],
    /// The figures of all lanes together.
    #[serde(flatten)]
    path: BenchPathBody,
    /// One object for each lane, in the order in which they joined.
    per_lane: Vec<LaneBody<'a>>,
}

/// The figures of the way between the hosts, over one lane or over all of them. Null is a figure
/// that this side does not know.
#[derive(Serialize)]
struct BenchPathBody {
    /// Bytes that the kernel sent, repeats among them. Only the sending side knows them.
    wire_bytes_sent: Option<u64>,
    /// Bytes that the kernel sent again. Only the sending side knows them.
    wire_bytes_resent: Option<u64>,
    /// `wire_bytes_resent` over `wire_bytes_sent`, 0 to 1.
    loss: Option<f64>,
    /// The shortest round trip, in microseconds.
    rtt_us_min: Option<u64>,
    /// The mean round trip, in microseconds. Only the sending side knows it.
    rtt_us_mean: Option<u64>,
    /// The mean deviation of round trips (RFC 6298), in microseconds. Only the sending side knows
    /// it.
    jitter_us: Option<u64>,
    /// The largest packet that the path takes, in bytes. Only the sending side knows it.
    path_mtu_bytes: Option<u32>,
    /// The payload of one TCP segment, in bytes. Only the sending side knows it.
    segment_bytes: Option<u32>,
    /// The effect of the run on its path, by the fields of the `summary` of a transfer. The field
    /// is absent where no lane went to another host, and of a single lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    road: Option<RoadReportBody>,
}

/// The figures of a lane.
#[derive(Serialize)]
struct LaneBody<'a> {
    /// The lane's number in its session.
    lane: u32,
    /// The congestion control. Null where this side does not know it.
    congestion: Option<&'a str>,
    /// Bytes of the lane's stream that were acknowledged or that came in: headers, digests and
    /// encryption are among them.
    wire_bytes: u64,
    /// The figures of the lane.
    #[serde(flatten)]
    path: BenchPathBody,
}

impl NetTelling {
    /// Tells a measurement of `runs` runs.
    pub fn new(talk: Talk, runs: usize) -> NetTelling {
        let (talker, lines) = (Talker::new(talk), JsonLines::new(io::stdout()));
        NetTelling { talker, json: talk.json, lines, runs, done: 0, seconds: 0.0, best: None }
    }

    /// Tells waiting users which run begins.
    pub fn begin(&self, case: &NetCase) {
        let (way, kind, protect) = (way(case.way), case.transport.name(), protection(case.protect));
        let lanes = case.lanes.map_or("auto".to_owned(), |lanes| lanes.to_string());
        let rate = case.rate.map_or(String::new(), |rate| format!(", at most {}", units::rate(rate as f64)));
        let number = self.done + 1;
        if number == 1 && !self.json {
            self.talker.note(LEGEND);
        }
        self.talker.note(format_args!("run {number} of {}: {way}, {kind}, {protect}, lanes {lanes}{rate}", self.runs));
    }

    /// Tells the result of a run.
    ///
    /// # Errors
    /// The error of writing to standard output.
    pub fn tell(&mut self, case: &NetCase, report: &NetReport, time: Option<Duration>) -> io::Result<()> {
        self.done += 1;
        self.seconds += report.seconds;
        let speed = bytes_per_s(report);
        if self.best.is_none_or(|best| speed > best.bytes_per_s) {
            self.best = Some(Best { run: self.done, bytes_per_s: speed });
        }
        // The note that data is not encrypted is not needed for made-up data; the number of lanes
        // is in the table.
        for fact in report.start.iter().flat_map(|start| &start.notes).filter(|_| self.talker.names_files()) {
            self.talker.note(words::note(*fact));
        }
        if self.json {
            return self.lines.say("bench_net", body(case, report, time, (self.done, self.runs)));
        }
        let header = if self.done == 1 { HEADER } else { "" };
        let mut out = io::stdout().lock();
        out.write_all(format!("{header}{}\n", row(case, report)).as_bytes())?;
        out.flush()?;
        drop(out);
        report.road.iter().for_each(|taken| self.talker.note(road::line(taken)));
        Ok(())
    }

    /// Writes the last line, with the fault if one ended the measurement.
    pub fn end(mut self, fault: Option<Fault>) -> Exit {
        let exit = fault.as_ref().map_or(Exit::Complete, |fault| fault.code.into());
        if let Some(fault) = &fault {
            self.talker.fault(fault);
        }
        if !self.json {
            return exit;
        }
        let summary = BenchSummaryBody {
            status: exit.status(),
            exit: exit.code(),
            runs: self.runs,
            runs_done: self.done,
            seconds: millis(self.seconds),
            best: self.best,
        };
        let told = fault.map_or(Ok(()), |fault| self.lines.fault(&fault));
        told.and_then(|()| self.lines.say("summary", summary)).map_or_else(super::stdout_failed, |()| exit)
    }
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Push => "push",
        Way::Pull => "pull",
    }
}

fn bytes_per_s(report: &NetReport) -> u64 {
    if report.seconds > 0.0 { (report.bytes as f64 / report.seconds) as u64 } else { 0 }
}

fn per_gb(report: &NetReport) -> CpuPerGb {
    CpuPerGb::of(report.bytes_moved, report.sender_cpu, report.receiver_cpu)
}

fn body<'a>(case: &NetCase, report: &'a NetReport, time: Option<Duration>, (run, runs): (usize, usize)) -> NetBody<'a> {
    let start = report.start.as_ref();
    let sent: Vec<&SentFigures> = report.lanes.iter().filter_map(|lane| lane.sent.as_ref()).collect();
    let mut congestion = BTreeMap::new();
    sent.iter().for_each(|lane| *congestion.entry(lane.congestion.as_str()).or_insert(0) += 1);
    NetBody {
        run,
        runs,
        direction: way(case.way),
        transport: case.transport.name(),
        protect: protection(case.protect),
        lanes_asked: case.lanes,
        rate_asked_bytes_per_s: case.rate,
        seconds_asked: time.map(|time| time.as_secs()),
        bytes_allowed: report.bytes_allowed,
        chunk_bytes: start.map(|start| start.chunk.bytes()),
        session: start.map(|start| start.session.as_str()),
        lanes: report.stood.most,
        lanes_first: start.map_or(0, |start| start.lanes),
        lanes_last: report.stood.last,
        congestion: (!sent.is_empty()).then_some(congestion),
        bytes: report.bytes,
        seconds: millis(report.seconds),
        bytes_per_s: bytes_per_s(report),
        bytes_moved: report.bytes_moved,
        setup_s: millis(report.setup_seconds),
        cpu_s_per_gb: per_gb(report),
        limited_by: report.limits.first().map(|limited| limited.by.name()),
        limited_share: report.limits.first().map(|limited| millis(limited.share)),
        limits: &report.limits,
        stages: &report.stages,
        path: BenchPathBody { road: report.road.as_ref().map(RoadReportBody::of), ..path(&report.lanes) },
        per_lane: report.lanes.iter().map(lane_body).collect(),
    }
}

fn lane_body(lane: &LaneFigures) -> LaneBody<'_> {
    LaneBody {
        lane: lane.lane,
        congestion: lane.sent.as_ref().map(|sent| sent.congestion.as_str()),
        wire_bytes: lane.bytes,
        path: path(std::slice::from_ref(lane)),
    }
}

/// The figures of several lanes together: sums of bytes, the shortest round trip, the means of
/// means, the smallest packets.
fn path(lanes: &[LaneFigures]) -> BenchPathBody {
    let sent: Vec<&SentFigures> = lanes.iter().filter_map(|lane| lane.sent.as_ref()).collect();
    let known = |bytes: u64| (!sent.is_empty()).then_some(bytes);
    let bytes = sent.iter().map(|lane| lane.bytes).sum::<u64>();
    let resent = sent.iter().map(|lane| lane.bytes_resent).sum::<u64>();
    let mean = |of: fn(&SentFigures) -> Option<Duration>| {
        let all: Vec<Duration> = sent.iter().filter_map(|lane| of(lane)).collect();
        all.iter().sum::<Duration>().checked_div(all.len() as u32).map(micros)
    };
    BenchPathBody {
        wire_bytes_sent: known(bytes),
        wire_bytes_resent: known(resent),
        // A loss in a million is still one.
        loss: (bytes > 0).then(|| (resent as f64 / bytes as f64 * 1e9).round() / 1e9),
        rtt_us_min: lanes.iter().filter_map(|lane| lane.rtt_min).min().map(micros),
        rtt_us_mean: mean(|lane| lane.rtt_mean),
        jitter_us: mean(|lane| lane.jitter),
        path_mtu_bytes: sent.iter().filter_map(|lane| lane.path_mtu).min(),
        segment_bytes: sent.iter().filter_map(|lane| lane.segment_bytes).min(),
        road: None,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn row(case: &NetCase, report: &NetReport) -> String {
    let path = path(&report.lanes);
    let ms = |us: Option<u64>| or_dash(us.map(|us| format!("{:.2}", us as f64 / 1e3)));
    let cpu = |seconds: Option<f64>| or_dash(seconds.map(|s| format!("{s:.2}")));
    let lanes = match case.lanes {
        Some(_) => report.stood.most.to_string(),
        None => format!("auto:{}", report.stood.most),
    };
    let limited = report.limits.first().map(|limited| format!("{} {:.0} %", limited.by.name(), limited.share * 100.0));
    let CpuPerGb { sender, receiver } = per_gb(report);
    format!(
        "{:<5} {:<5} {:<7} {:>8} {:>9} {:>11} {:>8} {:>7} {:>7} {:>5} {:>5}  {}",
        way(case.way),
        case.transport.name(),
        protection(case.protect),
        lanes,
        ByteCount(report.bytes).to_string(),
        units::bits(bytes_per_s(report) as f64),
        or_dash(path.loss.map(|loss| format!("{:.4}%", loss * 100.0))),
        ms(path.rtt_us_min),
        ms(path.rtt_us_mean),
        cpu(sender),
        cpu(receiver),
        or_dash(limited),
    )
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

const HEADER: &str =
    "way   kind  protect    lanes     bytes     carried    again  min ms mean ms  send  recv  limited by\n";
const LEGEND: &str = "again: part that was sent again; min, mean: round trip of the path; send, recv: CPU seconds per GB at either end; \
                      --json has more";

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(rtt_ms: u64, mean_ms: u64, sent: u64, resent: u64, mtu: u32) -> LaneFigures {
        let ms = Duration::from_millis;
        let sent = SentFigures {
            congestion: "bbr".to_owned(),
            bytes: sent,
            bytes_resent: resent,
            rtt_mean: Some(ms(mean_ms)),
            jitter: Some(ms(mean_ms / 10)),
            path_mtu: Some(mtu),
            segment_bytes: Some(mtu - 52),
        };
        LaneFigures { lane: 1, bytes: 9, rtt_min: Some(ms(rtt_ms)), sent: Some(sent) }
    }

    #[test]
    fn lanes_together_have_one_way() {
        let of = path(&[lane(20, 30, 1000, 1, 9000), lane(19, 50, 3000, 3, 1500)]);
        assert_eq!((of.wire_bytes_sent, of.wire_bytes_resent, of.loss), (Some(4000), Some(4), Some(0.001)));
        assert_eq!((of.rtt_us_min, of.rtt_us_mean, of.jitter_us), (Some(19_000), Some(40_000), Some(4_000)));
        assert_eq!((of.path_mtu_bytes, of.segment_bytes), (Some(1500), Some(1448)));
    }

    #[test]
    fn what_a_receiver_does_not_know_is_not_told() {
        let received = LaneFigures { sent: None, ..lane(20, 0, 0, 0, 1500) };
        let text = serde_json::to_value(path(&[received])).unwrap();
        assert_eq!(text["rtt_us_min"], 20_000);
        for unknown in ["wire_bytes_sent", "loss", "rtt_us_mean", "jitter_us", "path_mtu_bytes", "segment_bytes"] {
            assert!(text[unknown].is_null(), "{unknown}");
        }
    }
}
