//! Owns the measurement of manners: what TCP connections have alone, what they and a session have
//! beside each other, for each share that a session may take, and what two sessions have of one
//! path.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::case::Case;
use crate::cells::Cells;
use crate::far::Far;
use crate::flow::{Carried, Congestion, Flow};
use crate::kit::{Bench, Longhaul, Running, run};
use crate::meetings::{BesideChoice, MeetingCell, Others, PathQueue};

/// The outcome of a meeting.
#[derive(Serialize)]
struct Beside {
    #[serde(flatten)]
    case: Case,
    #[serde(flatten)]
    meeting: MeetingCell,
    /// One flow with nothing beside it, on the same path. `None` if no flow took part.
    flow_alone_bits_per_s: Option<f64>,
    #[serde(flatten)]
    parts: Parts,
    /// The part of the rate that was on the wire in the last seconds of the session, when the flow
    /// had left. `None` if nobody left.
    after_it_left: Option<f64>,
    /// The queue that the session kept, by its own account, in bandwidth-delay products.
    queue_kept_bdp: Option<f64>,
    /// The share that it had beside others, by its own account.
    share_beside: Option<f64>,
    lanes: u64,
    /// The share of all packets for which the queue had no room.
    queue_share: f64,
}

/// The parts that all had who met.
#[derive(Serialize)]
struct Parts {
    /// All flows, or the session that was there first.
    others_bits_per_s: f64,
    ours_bits_per_s: f64,
    /// The part that one flow beside the session kept of what it has alone. `None` if no flow took
    /// part.
    of_alone: Option<f64>,
    /// The part that the session had of its fair part.
    of_fair_part: f64,
    /// Jain's index of all that met: 1 if all had the same.
    jain: f64,
}

/// A path with its queue, and where sessions put what they bring.
struct Place<'a> {
    longhaul: &'a Longhaul,
    case: Case,
    cell: &'a MeetingCell,
    target: &'a Path,
    seconds: u64,
}

/// Runs each chosen meeting, and records what came of it.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul, choice: &BesideChoice, cells: &Cells) -> Result<()> {
    let target = bench.scratch.subdir("target")?;
    let seconds = bench.options.amount(SECONDS, SECONDS_QUICK);
    let mut known = Known::default();
    for cell in choice.cells().into_iter().filter(|cell| cells.has(&cell.name())) {
        let case = Case { rate: cell.rate, rtt: cell.rtt, loss: 0.0, mtu: 9000 };
        let place = Place { longhaul, case, cell: &cell, target: &target, seconds };
        let alone = known.alone(&place)?;
        let row = match cell.others {
            Others::Session => place.two_sessions()?,
            _ => place.beside(alone.as_ref())?,
        };
        let [others, ours] = [row.parts.others_bits_per_s, row.parts.ours_bits_per_s].map(|bits| bits / 1e6);
        eprintln!("  {}: {others:.0} beside {ours:.0} Mbit/s", cell.name());
        bench.recorder.record_cell(&cell.name(), &row)?;
    }
    fs::remove_dir_all(&target)?;
    Ok(())
}

/// The flows that were measured alone, each once for its path.
#[derive(Default)]
struct Known(Vec<(Case, PathQueue, Congestion, Carried)>);

impl Known {
    /// The rate that one of the flows of this meeting has alone. `None` if it has none.
    fn alone(&mut self, place: &Place<'_>) -> Result<Option<Carried>> {
        let Some((congestion, _)) = place.cell.others.flows() else { return Ok(None) };
        let (case, queue) = (place.case, place.cell.queue);
        let found = self.0.iter().find(|known| (known.0, known.1, known.2) == (case, queue, congestion));
        if let Some((.., carried)) = found {
            return Ok(Some(*carried));
        }
        let carried = place.alone(congestion)?;
        self.0.push((case, queue, congestion, carried));
        Ok(Some(carried))
    }
}

impl Place<'_> {
    fn far(&self) -> Result<Far> {
        Far::with_queue(self.longhaul, &self.case, self.cell.queue, self.target)
    }

    /// Measures one flow with nothing beside it.
    fn alone(&self, congestion: Congestion) -> Result<Carried> {
        let far = self.far()?;
        let flow = Flow::start(&far, congestion)?;
        thread::sleep(SETTLES);
        let from = Instant::now();
        thread::sleep(SETTLES);
        flow.end(from, Instant::now())
    }

    fn session(&self, far: &Far, seconds: u64) -> Command {
        let mut command = far.measure(self.longhaul, seconds);
        command.args(["--share", &self.cell.share, "--transport", &self.cell.transport]);
        command
    }

    /// A session comes to flows that have settled, or to nobody. One flow that was alone leaves
    /// before the session does, and what passes from then on is the session's.
    fn beside(&self, alone: Option<&Carried>) -> Result<Beside> {
        let far = self.far()?;
        let (congestion, count) = self.cell.others.flows().unwrap_or((Congestion::Cubic, 0));
        let more_s = if count == 1 { self.seconds / 2 } else { 0 };
        let flows = (0..count).map(|_| Flow::start(&far, congestion)).collect::<Result<Vec<_>>>()?;
        if count > 0 {
            thread::sleep(SETTLES);
        }
        let begun = Instant::now();
        let ours = Running::start(&mut self.session(&far, self.seconds + more_s))?;
        let at = |seconds: f64| {
            let due = begun + Duration::from_secs_f64(seconds);
            ours.look_until(WITHIN, |ours| Ok(ours.ended()? || Instant::now() >= due))
        };
        let leave_s = self.seconds as f64;
        at(leave_s)?;
        let until = Instant::now();
        let carried: Vec<Carried> =
            flows.into_iter().map(|flow| flow.end(begun + MEETS, until)).collect::<Result<_>>()?;
        let left = far.forward()?.delivered_bytes;
        let mut after = None;
        if more_s > 0 {
            // It has half of that time to find out.
            at(leave_s + more_s as f64 / 2.0)?;
            let (from, before) = (Instant::now(), far.forward()?.delivered_bytes);
            at(leave_s + more_s as f64 - LEAVES)?;
            let bits = (far.forward()?.delivered_bytes - before) as f64 * 8.0;
            after = Some(bits / from.elapsed().as_secs_f64() / self.case.rate.as_bits() as f64);
        }
        let event = measured(&ours.wait()?.good()?.out)?;
        let forward = far.forward()?;
        let alone_bytes = if more_s > 0 { (forward.delivered_bytes - left) as f64 * PAYLOAD } else { 0.0 };
        let ours = self.beside_rate(&event, alone_bytes);
        let theirs: Vec<f64> = carried.iter().map(|flow| flow.goodput_bits_per_s).collect();
        let parts = self.parts(&theirs, ours, alone);
        Ok(self.row(parts, alone, (&event, forward), after))
    }

    /// The rate of a session beside others, of what it told: it had so many bytes on the wire
    /// without them.
    fn beside_rate(&self, event: &Value, alone_bytes: f64) -> f64 {
        let of = |field: &str| event[field].as_f64().unwrap_or(0.0);
        // Chunks are counted when they are whole, which is too coarse for a part of the time.
        let wire = of("wire_bytes_sent") - of("wire_bytes_resent") - alone_bytes;
        let bytes = if alone_bytes > 0.0 { wire } else { of("bytes") };
        (bytes * 8.0 / self.seconds as f64).max(0.0)
    }

    /// A session comes to another one, five seconds after that began. Both end together.
    fn two_sessions(&self) -> Result<Beside> {
        let far = self.far()?;
        let first = Running::start(&mut self.session(&far, self.seconds + LATER.as_secs()))?;
        thread::sleep(LATER);
        let before = far.forward()?.delivered_bytes as f64 * PAYLOAD;
        let second = measured(&run(&mut self.session(&far, self.seconds))?.out)?;
        let first = measured(&first.wait()?.good()?.out)?;
        let parts = self.parts(&[self.beside_rate(&first, before)], self.beside_rate(&second, 0.0), None);
        Ok(self.row(parts, None, (&second, far.forward()?), None))
    }

    fn parts(&self, theirs: &[f64], ours: f64, alone: Option<&Carried>) -> Parts {
        let all: Vec<f64> = theirs.iter().copied().chain([ours]).collect();
        let squares: f64 = all.iter().map(|rate| rate * rate).sum();
        let sum: f64 = all.iter().sum();
        let mean = theirs.iter().sum::<f64>() / theirs.len().max(1) as f64;
        Parts {
            others_bits_per_s: theirs.iter().fold(0.0, |sum, rate| sum + rate),
            ours_bits_per_s: ours,
            of_alone: alone.map(|alone| mean / alone.goodput_bits_per_s.max(1.0)),
            of_fair_part: ours / (self.case.rate.as_bits() as f64 / all.len() as f64),
            jain: sum * sum / (all.len() as f64 * squares).max(1.0),
        }
    }

    fn row(
        &self,
        parts: Parts,
        alone: Option<&Carried>,
        (event, forward): (&Value, longhaul_wan::Counters),
        after_it_left: Option<f64>,
    ) -> Beside {
        Beside {
            case: self.case,
            meeting: self.cell.clone(),
            flow_alone_bits_per_s: alone.map(|alone| alone.goodput_bits_per_s),
            parts,
            after_it_left,
            queue_kept_bdp: event["road"]["queue_bdp"].as_f64(),
            share_beside: event["road"]["share_beside"].as_f64(),
            lanes: event["lanes"].as_u64().unwrap_or(0),
            queue_share: forward.dropped_queue as f64 / forward.packets.max(1) as f64,
        }
    }
}

/// The event of a measurement.
fn measured(out: &str) -> Result<Value> {
    let events = out.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    events.into_iter().find(|event| event["type"] == "bench_net").context("nothing was measured")
}

/// The seconds for which the session runs beside others.
const SECONDS: u64 = 40;
const SECONDS_QUICK: u64 = 12;
/// The time until the flow has settled: slow start is over, and its losses are repaired.
const SETTLES: Duration = Duration::from_secs(10);
/// The time until both have met, which is not counted.
const MEETS: Duration = Duration::from_secs(3);
/// The time by which the second of two sessions is later, and ends earlier.
const LATER: Duration = Duration::from_secs(5);
/// Seconds before the end of a session that are not counted.
const LEAVES: f64 = 0.5;
/// The part of all bytes on the wire that is payload, with packets of 9000 bytes.
const PAYLOAD: f64 = 0.985;
const WITHIN: Duration = Duration::from_secs(600);
