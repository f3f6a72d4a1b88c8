//! Owns the measurement of manners: what TCP connections under cubic have alone, what they and a
//! session have beside each other, for each share that a session may take, and what two sessions
//! have of one path.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::case::{BesideChoice, Case};
use crate::far::Far;
use crate::flow::{Carried, Flow};
use crate::kit::{Bench, Longhaul, Running, run, table};

/// A meeting on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Meeting {
    /// A session comes to one TCP connection.
    One,
    /// A session comes to ten.
    Ten,
    /// A session comes to another one.
    TwoSessions,
}

/// A path, a share, who met there, and what came of it.
#[derive(Serialize)]
struct Beside {
    #[serde(flatten)]
    case: Case,
    queue_bdp: f64,
    meeting: Meeting,
    share: String,
    transport: String,
    /// One flow with nothing beside it, on the same path.
    flow_alone_bits_per_s: f64,
    /// All flows, or the session that was there first.
    others_bits_per_s: f64,
    ours_bits_per_s: f64,
    /// The part that the session had of its fair part.
    of_fair_part: f64,
    /// Jain's index of all that met: 1 if all had the same.
    jain: f64,
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

/// A path with its queue, and where sessions put what they bring.
struct Place<'a> {
    longhaul: &'a Longhaul,
    case: Case,
    queue_bdp: f64,
    target: &'a Path,
    seconds: u64,
}

/// Runs and prints each path with each share and each meeting.
pub(crate) fn measure(bench: &Bench, longhaul: &Longhaul, choice: &BesideChoice) -> Result<()> {
    let target = bench.scratch.subdir("target")?;
    let seconds = bench.options.amount(SECONDS, SECONDS_QUICK);
    let mut rows = Vec::new();
    for &queue_bdp in &choice.queues {
        for &rtt in &choice.rtts {
            let case = Case { rate: choice.rate, rtt, loss: 0.0, mtu: 9000 };
            let place = Place { longhaul, case, queue_bdp, target: &target, seconds };
            let alone = place.alone()?;
            let mut keep = |row: Beside| {
                eprintln!("  {}", row.cells().join(", "));
                bench.recorder.record(&row).map(|()| rows.push(row))
            };
            for share in &choice.shares {
                let session = (share.as_str(), choice.transport.as_str());
                keep(place.beside(Meeting::One, session, &alone)?)?;
                if share == "fair" {
                    keep(place.beside(Meeting::Ten, session, &alone)?)?;
                    keep(place.two_sessions(session, &alone)?)?;
                }
            }
        }
    }
    fs::remove_dir_all(&target)?;
    print(&rows, choice);
    Ok(())
}

impl Place<'_> {
    fn far(&self) -> Result<Far> {
        Far::with_queue(self.longhaul, &self.case, self.queue_bdp, self.target)
    }

    /// Measures one flow with nothing beside it.
    fn alone(&self) -> Result<Carried> {
        let far = self.far()?;
        let flow = Flow::start(&far)?;
        thread::sleep(SETTLES);
        let from = Instant::now();
        thread::sleep(SETTLES);
        flow.end(from, Instant::now())
    }

    fn session(&self, far: &Far, (share, transport): (&str, &str), seconds: u64) -> Command {
        let mut command = far.measure(self.longhaul, seconds);
        command.args(["--share", share, "--transport", transport]);
        command
    }

    /// A session comes to flows that have settled. One that was alone leaves before the session
    /// does, and what passes from then on is the session's.
    fn beside(&self, meeting: Meeting, session: (&str, &str), alone: &Carried) -> Result<Beside> {
        let far = self.far()?;
        let (count, more_s) = if meeting == Meeting::Ten { (10, 0) } else { (1, self.seconds / 2) };
        let flows = (0..count).map(|_| Flow::start(&far)).collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLES);
        let begun = Instant::now();
        let ours = Running::start(&mut self.session(&far, session, self.seconds + more_s))?;
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
        let others = theirs.iter().sum();
        let all: Vec<f64> = theirs.into_iter().chain([ours]).collect();
        self.row(meeting, session, alone, (others, &all), (&event, forward), after)
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
    fn two_sessions(&self, session: (&str, &str), alone: &Carried) -> Result<Beside> {
        let far = self.far()?;
        let first = Running::start(&mut self.session(&far, session, self.seconds + LATER.as_secs()))?;
        thread::sleep(LATER);
        let before = far.forward()?.delivered_bytes as f64 * PAYLOAD;
        let second = measured(&run(&mut self.session(&far, session, self.seconds))?.out)?;
        let first = measured(&first.wait()?.good()?.out)?;
        let all = [self.beside_rate(&first, before), self.beside_rate(&second, 0.0)];
        self.row(Meeting::TwoSessions, session, alone, (all[0], &all), (&second, far.forward()?), None)
    }

    fn row(
        &self,
        meeting: Meeting,
        (share, transport): (&str, &str),
        alone: &Carried,
        (others, all): (f64, &[f64]),
        (event, forward): (&Value, longhaul_wan::Counters),
        after_it_left: Option<f64>,
    ) -> Result<Beside> {
        let ours = *all.last().context("somebody met")?;
        let squares: f64 = all.iter().map(|rate| rate * rate).sum();
        let sum: f64 = all.iter().sum();
        Ok(Beside {
            case: self.case,
            queue_bdp: self.queue_bdp,
            meeting,
            share: share.to_owned(),
            transport: transport.to_owned(),
            flow_alone_bits_per_s: alone.goodput_bits_per_s,
            others_bits_per_s: others,
            ours_bits_per_s: ours,
            of_fair_part: ours / (self.case.rate.as_bits() as f64 / all.len() as f64),
            jain: sum * sum / (all.len() as f64 * squares).max(1.0),
            after_it_left,
            queue_kept_bdp: event["road"]["queue_bdp"].as_f64(),
            share_beside: event["road"]["share_beside"].as_f64(),
            lanes: event["lanes"].as_u64().unwrap_or(0),
            queue_share: forward.dropped_queue as f64 / forward.packets.max(1) as f64,
        })
    }
}

/// The event of a measurement.
fn measured(out: &str) -> Result<Value> {
    let events = out.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    events.into_iter().find(|event| event["type"] == "bench_net").context("nothing was measured")
}

impl Beside {
    fn cells(&self) -> Vec<String> {
        let mbit = |bits: f64| format!("{:.0}", bits / 1e6);
        let or_dash = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        let meeting = match self.meeting {
            Meeting::One => "1 TCP",
            Meeting::Ten => "10 TCP",
            Meeting::TwoSessions => "a session",
        };
        vec![
            format!("{} ms", self.case.rtt.as_millis()),
            format!("{} BDP", self.queue_bdp),
            self.share.clone(),
            meeting.to_owned(),
            mbit(self.flow_alone_bits_per_s),
            mbit(self.others_bits_per_s),
            mbit(self.ours_bits_per_s),
            format!("{:.2}", self.of_fair_part),
            format!("{:.2}", self.jain),
            or_dash(self.after_it_left),
            or_dash(self.queue_kept_bdp),
            or_dash(self.share_beside),
            format!("{:.2} %", self.queue_share * 100.0),
        ]
    }
}

fn print(rows: &[Beside], choice: &BesideChoice) {
    let head = [
        "round trip",
        "queue",
        "--share",
        "beside",
        "1 TCP alone",
        "theirs",
        "ours",
        "of fair part",
        "Jain",
        "after it left",
        "queue kept",
        "share told",
        "queue full",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Beside::cells));
    println!("a session over {} beside others at {}, in Mbit/s", choice.transport, choice.rate);
    print!("{}", table(&lines));
    println!(
        "`theirs`: of all others together; `after it left`: part of the rate; `queue kept` (BDP) and `share told`: the \
         session's own account; `queue full`: the packets of all that it had no room for"
    );
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
