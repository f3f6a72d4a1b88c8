//! Owns one push of the large file: runs it over its path, watches the wire and both processes, and gives the figures.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_wan::Counters;
use serde::Serialize;

use crate::case::Case;
use crate::far::{Far, PAYLOAD_FROM_BYTES};
use crate::kit::{Account, Bench, FileData, Longhaul, Running, Sample, machine_busy_s, make_cold, run};
use crate::said::Said;

/// What a run came to.
#[derive(Serialize)]
pub(crate) struct Moved {
    #[serde(flatten)]
    pub(crate) case: Case,
    bytes: u64,
    /// From the start of the client to the first payload.
    pub(crate) handshake_s: f64,
    /// From there to when the client knew of the commit.
    pub(crate) seconds: f64,
    pub(crate) goodput_bits_per_s: f64,
    /// Of the emulated rate.
    pub(crate) ratio: f64,
    pub(crate) target: Option<f64>,
    pub(crate) client_bytes: u64,
    pub(crate) daemon_bytes: u64,
    client_cpu_s: f64,
    daemon_cpu_s: f64,
    /// Of all processors, for whomever.
    pub(crate) machine_cpu_share: f64,
    pub(crate) account: Account,
    pub(crate) said: Said,
    pub(crate) forward: Counters,
    wire: Vec<Sample>,
}

/// Pushes `source` once to an empty directory, which is removed again.
pub(crate) fn push(bench: &Bench, longhaul: &Longhaul, case: &Case, source: &FileData) -> Result<Moved> {
    let target = bench.scratch.subdir("target")?;
    make_cold(&source.path)?;
    run(&mut longhaul.warm_up().context("a program")?)?;
    let far = Far::new(longhaul, case, &target)?;
    let (busy, begun) = (machine_busy_s()?, Instant::now());
    let client = Running::start(far.push(longhaul, &source.path).arg("--json"))?;
    let mut watch =
        Watch { far: &far, mtu: case.mtu, begun, first: None, wire: Vec::new(), client_bytes: 0, over: false };
    client.look_until(LONGEST, |client| watch.look(client))?;
    let Watch { first, wire, client_bytes, .. } = watch;
    let (ran, ended) = (client.wait()?.good()?, begun.elapsed().as_secs_f64());
    let machine_cpu_share = (machine_busy_s()? - busy) / ended / std::thread::available_parallelism()?.get() as f64;
    let (forward, said) = (far.forward()?, Said::read(&ran.out, &source.b3)?);
    let (daemon_bytes, daemon_cpu_s) = (far.daemon.peak_rss()?, far.daemon.cpu_s()?);
    drop(far);
    fs::remove_dir_all(&target)?;
    let handshake_s = (first.context("no payload was seen")? - begun).as_secs_f64();
    let seconds = wire.last().context("no payload was seen")?.t_s;
    let goodput_bits_per_s = source.bytes as f64 * 8.0 / seconds;
    Ok(Moved {
        case: *case,
        bytes: source.bytes,
        handshake_s,
        seconds,
        goodput_bits_per_s,
        ratio: goodput_bits_per_s / case.rate.as_bits() as f64,
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

/// Looks at a push while it runs.
struct Watch<'a> {
    far: &'a Far,
    mtu: u32,
    begun: Instant,
    /// When payload was first under way.
    first: Option<Instant>,
    wire: Vec<Sample>,
    client_bytes: u64,
    /// The commit has been told.
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
        let due = self.wire.last().map_or(0.0, |last| last.t_s + SAMPLE_S);
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

/// How a client that moves one file says that it is whole, durable and in its place.
const COMMITTED: &str = "\"type\":\"file\"";
/// Between two looks at the wire, which cost a thread on each host.
const SAMPLE_S: f64 = 0.25;
const LONGEST: Duration = Duration::from_secs(600);
