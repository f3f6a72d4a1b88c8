//! Owns one push of the large file: runs it over its path, watches the wire and both processes, and
//! gives the figures.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_wan::Counters;
use serde::Serialize;

use crate::case::Case;
use crate::far::{Far, PAYLOAD_FROM_BYTES};
use crate::kit::{
    Account, Bench, FileData, Longhaul, Running, Sample, machine_busy_s, make_cold, run, steady_bits_per_s,
};
use crate::said::Said;

/// The file to move, its path and its options.
pub(crate) struct Job<'a> {
    pub(crate) case: Case,
    /// Options of the push.
    pub(crate) with: &'a [String],
    pub(crate) source: &'a FileData,
}

/// The results of a run.
#[derive(Serialize)]
pub(crate) struct Moved {
    #[serde(flatten)]
    pub(crate) case: Case,
    with: Vec<String>,
    bytes: u64,
    /// The time when the first payload was under way.
    #[serde(skip)]
    pub(crate) first: Instant,
    /// The seconds from the start of the client to the first payload.
    pub(crate) handshake_s: f64,
    /// The seconds from there until the client knew of the commit.
    pub(crate) seconds: f64,
    pub(crate) goodput_bits_per_s: f64,
    /// The goodput as a part of the emulated rate.
    pub(crate) ratio: f64,
    /// The seconds from the start of the client to its exit.
    whole_s: f64,
    /// The seconds from the passing of the last payload to the exit.
    pub(crate) to_exit_s: f64,
    /// The same in round trips of the path without a queue. `None` where it has none.
    pub(crate) to_exit_rtts: Option<f64>,
    /// Payload that lanes over UDP sent again, over that which the path lost.
    pub(crate) resent_of_lost: Option<f64>,
    /// The file's bits in a second of these, as a part of the emulated rate.
    pub(crate) whole_ratio: f64,
    pub(crate) target: Option<f64>,
    pub(crate) client_bytes: u64,
    pub(crate) daemon_bytes: u64,
    client_cpu_s: f64,
    daemon_cpu_s: f64,
    /// The busy share of all processors, for any process.
    pub(crate) machine_cpu_share: f64,
    pub(crate) account: Account,
    pub(crate) said: Said,
    pub(crate) forward: Counters,
    wire: Vec<Sample>,
}

/// Pushes the source once to an empty directory, which is removed again.
pub(crate) fn push(bench: &Bench, longhaul: &Longhaul, job: &Job<'_>) -> Result<Moved> {
    let target = bench.scratch.subdir("target")?;
    let far = Far::new(longhaul, &job.case, &target)?;
    let moved = push_over(&far, longhaul, job);
    drop(far);
    fs::remove_dir_all(&target)?;
    moved
}

/// Pushes the source over a path that stands already, to the directory that its daemon serves.
pub(crate) fn push_over(far: &Far, longhaul: &Longhaul, job: &Job<'_>) -> Result<Moved> {
    let Job { case, with, source } = job;
    make_cold(&source.path)?;
    run(&mut longhaul.warm_up().context("a program")?)?;
    let (before, busy, begun) = (far.forward()?, machine_busy_s()?, Instant::now());
    let client = Running::start(far.push(longhaul, &source.path).arg("--json").args(*with))?;
    let (near_end, wire) = (source.bytes, Vec::new());
    let mut watch = Watch { far, mtu: case.mtu, near_end, begun, first: None, wire, client_bytes: 0, over: false };
    client.look_until(LONGEST, |client| watch.look(client))?;
    let Watch { first, wire, client_bytes, .. } = watch;
    let (ran, ended) = (client.wait()?.good()?, begun.elapsed().as_secs_f64());
    let machine_cpu_share = (machine_busy_s()? - busy) / ended / std::thread::available_parallelism()?.get() as f64;
    let (forward, said) = (far.forward()?, Said::read(&ran.out, &source.b3)?);
    let (daemon_bytes, daemon_cpu_s) = (far.daemon.peak_rss()?, far.daemon.cpu_s()?);
    let first = first.context("no payload was seen")?;
    let handshake_s = (first - begun).as_secs_f64();
    let seconds = wire.last().context("no payload was seen")?.t_s;
    let goodput_bits_per_s = source.bytes as f64 * 8.0 / seconds;
    let to_exit_s = ended - handshake_s - last_payload_s(&wire);
    Ok(Moved {
        case: *case,
        with: with.to_vec(),
        bytes: source.bytes,
        first,
        handshake_s,
        seconds,
        goodput_bits_per_s,
        ratio: goodput_bits_per_s / case.rate.as_bits() as f64,
        whole_s: ended,
        to_exit_s,
        to_exit_rtts: Some(case.rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0).map(|rtt| to_exit_s / rtt),
        resent_of_lost: said.road.resent_of_lost(&before, &forward),
        whole_ratio: source.bytes as f64 * 8.0 / ended / case.rate.as_bits() as f64,
        target: case.target(),
        client_bytes,
        daemon_bytes,
        client_cpu_s: ran.cpu_s,
        daemon_cpu_s,
        machine_cpu_share,
        account: Account::of(&wire, source.bytes, case.rate.as_bits()),
        said,
        forward,
        wire,
    })
}

/// The time when the last payload had passed, in seconds since the first.
fn last_payload_s(wire: &[Sample]) -> f64 {
    let end = wire.last().map_or(0, |last| last.bytes.saturating_sub(FAREWELL_BYTES));
    wire.iter().find(|sample| sample.bytes >= end).map_or(0.0, |sample| sample.t_s)
}

impl Moved {
    /// The name of the run, for users.
    pub(crate) fn name(&self) -> String {
        let with = self.with.iter().map(|option| format!(" {option}"));
        self.case.name() + &with.collect::<String>()
    }

    /// Bits/s on the wire between start and end, with the bytes that the path lost.
    pub(crate) fn steady_bits_per_s(&self) -> Option<f64> {
        steady_bits_per_s(&self.wire)
    }

    /// Bytes that the client sent again, as a part of the file.
    pub(crate) fn resent_share(&self) -> f64 {
        self.said.bytes_resent as f64 / self.bytes as f64
    }

    /// CPU seconds of the client and of the daemon for each GB.
    pub(crate) fn cpu_s_per_gb(&self) -> [f64; 2] {
        [self.client_cpu_s, self.daemon_cpu_s].map(|seconds| seconds / self.bytes as f64 * 1e9)
    }
}

/// Looks at a push while it runs.
struct Watch<'a> {
    far: &'a Far,
    mtu: u32,
    /// The bytes on the wire from which on the end is near: those of the payload.
    near_end: u64,
    begun: Instant,
    /// The time when payload was first under way.
    first: Option<Instant>,
    wire: Vec<Sample>,
    client_bytes: u64,
    /// Whether the commit has been told.
    over: bool,
}

impl Watch<'_> {
    /// Whether the push has ended.
    fn look(&mut self, client: &Running) -> Result<bool> {
        // Between its end and its burial it has no memory to speak of.
        self.client_bytes = self.client_bytes.max(client.peak_rss().unwrap_or(0));
        if self.over {
            return client.ended();
        }
        let now = Instant::now();
        let over = client.ended()? || client.out()?.contains(COMMITTED);
        // The last byte is looked for more often.
        let every = |last: &Sample| if last.bytes >= self.near_end { END_SAMPLE_S } else { SAMPLE_S };
        let due = self.wire.last().map_or(0.0, |last| last.t_s + every(last));
        if self.first.is_none() || over || (now - self.begun_payload()).as_secs_f64() >= due {
            self.sample(now)?;
        }
        self.over = over;
        Ok(false)
    }

    fn sample(&mut self, now: Instant) -> Result<()> {
        let counters = self.far.forward()?;
        if self.first.is_none() && counters.bytes < PAYLOAD_FROM_BYTES {
            return Ok(());
        }
        self.first = self.first.or(Some(now));
        let bytes = counters.delivered_bytes + counters.dropped_loss * u64::from(self.mtu);
        self.wire.push(Sample { t_s: (now - self.begun_payload()).as_secs_f64(), bytes });
        Ok(())
    }

    fn begun_payload(&self) -> Instant {
        self.first.unwrap_or(self.begun)
    }
}

/// The text by which a client that moves one file tells that it is whole, durable and in its place.
const COMMITTED: &str = "\"type\":\"file\"";
/// The seconds between two looks at the wire, which cost a thread on each host.
const SAMPLE_S: f64 = 0.25;
/// The same when the end is near.
const END_SAMPLE_S: f64 = 0.02;
/// Bytes on the wire that may follow the last payload: ends of lanes, and the goodbye.
const FAREWELL_BYTES: u64 = 20_000;
const LONGEST: Duration = Duration::from_secs(600);
