//! One file for three destinations: by one command that reads it once (`--also`), by three pushes
//! at the same time, and by one push to one of them, which is what the others are measured by.
//!
//! Takes the program under test; gives rates, and the bytes that were read from the source's disk.
//! Must not know how readings are shared.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use longhaul_wan::{Change, Config, Link, Wan};
use serde::Serialize;
use serde_json::Value;

use crate::disks::SlowDisks;
use crate::kit::{Bench, Daemon, Longhaul, Ran, Running, check_arrived, machine_busy_s, make_cold, median, table};

const DESTINATIONS: usize = 3;
const PROTECT: &str = "private";
/// Bytes per second that the slow disk gives.
const DISK_LIMIT: u64 = 100_000_000;
/// Each destination's line.
const LINE: &str = "rate=400Mbit/s,rtt=20ms,queue=1bdp";
const LINE_MTU: u32 = 9000;

/// The way in which destinations get the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// One push to one of them.
    Single,
    /// One command for all.
    Also,
    /// A push to each, all at once.
    Pushes,
}

/// One run.
#[derive(Serialize)]
struct Delivered {
    way: Way,
    round: usize,
    bytes: u64,
    seconds: f64,
    /// Bytes read from the source, as the command tells it. `None` of single pushes.
    told_read_bytes: Option<u64>,
    /// Bytes read from the source's disk. `None` where it is not counted.
    disk_read_bytes: Option<u64>,
    clients_cpu_s: f64,
    daemons_cpu_s: f64,
    machine_cpu_s: f64,
}

/// A source, and daemons that shall have it.
struct Ground<'a> {
    bench: &'a Bench,
    longhaul: &'a Longhaul,
    source: PathBuf,
    bytes: u64,
    targets: Vec<PathBuf>,
    daemons: Vec<Daemon>,
    /// The disk of the source, if it is a slow one.
    disk: Option<SlowDisks>,
    /// The lines to the daemons, if there are any.
    wan: Option<Wan>,
}

/// Destinations on loopback; the source lies on a disk that is slower than anything else.
pub(crate) fn from_a_slow_disk(bench: &Bench, longhaul: &Longhaul) -> Result<()> {
    let bytes = bench.options.amount(1_000_000_000, 100_000_000);
    let dir = bench.scratch.subdir("disks")?;
    let disk = SlowDisks::new(&dir, &[DISK_LIMIT], bytes + (1 << 30))?;
    let source = bench.scratch.file("disks/disk0/source", bytes)?.path;
    let targets = targets(bench, "disk")?;
    let daemons = targets.iter().map(|target| longhaul.serve(target)).collect::<Result<Vec<_>>>()?;
    let ground = Ground { bench, longhaul, source, bytes, targets, daemons, disk: Some(disk), wan: None };
    ground.compare("disk", "the source's disk gives 100 MB/s")
}

/// Destinations behind lines of their own, which are slower than the source's disk.
pub(crate) fn over_lines(bench: &Bench, longhaul: &Longhaul) -> Result<()> {
    let bytes = bench.options.amount(1_000_000_000, 100_000_000);
    let source = bench.scratch.file("lines-source", bytes)?.path;
    let mut link = Link { mtu: LINE_MTU, ..Link::default() };
    link.apply(&LINE.parse::<Change>()?);
    let wan = Wan::new(&Config { links: vec![link; DESTINATIONS], ..Config::default() })?;
    let targets = targets(bench, "lines")?;
    let serve = |(number, target): (usize, &PathBuf)| {
        let address: IpAddr = wan.far().address(number).into();
        longhaul.serve_at(target, address, |command| wan.far().adopt(command))
    };
    let daemons = targets.iter().enumerate().map(serve).collect::<Result<Vec<_>>>()?;
    let ground = Ground { bench, longhaul, source, bytes, targets, daemons, disk: None, wan: Some(wan) };
    ground.compare("lines", "each destination has a line of 400 Mbit/s and 20 ms")
}

fn targets(bench: &Bench, cell: &str) -> Result<Vec<PathBuf>> {
    (0..DESTINATIONS).map(|number| bench.scratch.subdir(&format!("{cell}-to{number}"))).collect()
}

impl Ground<'_> {
    /// All ways in each round, in turns first.
    fn compare(&self, cell: &'static str, limit: &str) -> Result<()> {
        self.daemons.iter().try_for_each(|daemon| self.longhaul.trust(daemon))?;
        println!("{cell}: {} MB to {DESTINATIONS} destinations; {limit}", self.bytes / 1_000_000);
        let mut runs = Vec::new();
        for round in 0..self.bench.options.rounds() {
            let order = [Way::Single, Way::Also, Way::Pushes];
            let order = if round.is_multiple_of(2) { order } else { [Way::Pushes, Way::Also, Way::Single] };
            for way in order {
                let delivered = self.deliver(way, round)?;
                eprintln!("  {cell} round {} {way:?}: {:.2} s", round + 1, delivered.seconds);
                self.bench.recorder.record_cell(cell, &delivered)?;
                runs.push(delivered);
            }
        }
        print(&runs);
        Ok(())
    }

    fn deliver(&self, way: Way, round: usize) -> Result<Delivered> {
        make_cold(&self.source)?;
        self.longhaul.warm_up().context("a command that loads the program")?.output()?;
        let daemons = || self.daemons.iter().map(Daemon::cpu_s).sum::<Result<f64>>();
        let (cpu, busy, read) = (daemons()?, machine_busy_s()?, self.disk_read()?);
        let begun = Instant::now();
        let ran = self.run(self.commands(way))?;
        let seconds = begun.elapsed().as_secs_f64();
        let machine_cpu_s = machine_busy_s()? - busy;
        let disk_read_bytes = self.disk_read()?.zip(read).map(|(after, before)| after - before);
        self.check(way)?;
        Ok(Delivered {
            way,
            round,
            bytes: self.bytes,
            seconds,
            told_read_bytes: ran.iter().find_map(|ran| told_read(&ran.out)),
            disk_read_bytes,
            clients_cpu_s: ran.iter().map(|ran| ran.cpu_s).sum(),
            daemons_cpu_s: daemons()? - cpu,
            machine_cpu_s,
        })
    }

    /// The commands that run at the same time.
    fn commands(&self, way: Way) -> Vec<Command> {
        let push = |to: &Daemon| {
            let mut command = self.longhaul.transfer("push", PROTECT);
            command.arg(&self.source).arg(to.url(""));
            command
        };
        match way {
            Way::Single => vec![push(&self.daemons[0])],
            Way::Pushes => self.daemons.iter().map(push).collect(),
            Way::Also => {
                let mut command = push(&self.daemons[0]);
                self.daemons[1..].iter().for_each(|to| {
                    command.arg("--also").arg(to.url(""));
                });
                vec![command]
            }
        }
    }

    /// Runs them, each beneath the limit of the disk and at the near end of the lines.
    fn run(&self, commands: Vec<Command>) -> Result<Vec<Ran>> {
        let start = |mut command: Command| {
            if let Some(wan) = &self.wan {
                wan.near().adopt(&mut command);
            }
            let running = Running::start(&mut command)?;
            if let Some(disk) = &self.disk {
                disk.limit(running.pid())?;
            }
            Ok(running)
        };
        let running = commands.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        running.into_iter().map(|running| running.wait()?.good()).collect()
    }

    fn disk_read(&self) -> Result<Option<u64>> {
        let Some(disk) = &self.disk else { return Ok(None) };
        Ok(disk.read()?.first().copied())
    }

    /// Counts what arrived, and removes it.
    fn check(&self, way: Way) -> Result<()> {
        let count = if way == Way::Single { 1 } else { DESTINATIONS };
        for target in &self.targets[..count] {
            let path = target.join(self.source.file_name().context("a source with a name")?);
            check_arrived(&path, 1, self.bytes)?;
            fs::remove_file(&path)?;
            make_cold(target)?;
        }
        ensure!(self.targets.iter().all(|target| is_without_files(target)), "more has arrived than was sent");
        Ok(())
    }
}

/// Whether there is nothing but what a daemon keeps for itself.
fn is_without_files(target: &Path) -> bool {
    fs::read_dir(target).is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == ".longhaul"))
}

/// The bytes that a command with several destinations has read, as its events tell.
fn told_read(out: &str) -> Option<u64> {
    let mut events = out.lines().flat_map(serde_json::from_str::<Value>);
    events.find(|event| event["type"] == "deliveries")?["bytes_read"].as_u64()
}

fn print(runs: &[Delivered]) {
    let head = ["", "MB/s each", "read, told", "read, disk", "CPU s/GB: clients", "daemons", "machine CPU s"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for way in [Way::Single, Way::Also, Way::Pushes] {
        let of = |figure: &dyn Fn(&Delivered) -> Option<f64>| {
            let figures: Vec<f64> = runs.iter().filter(|run| run.way == way).filter_map(figure).collect();
            (!figures.is_empty()).then(|| median(&figures))
        };
        let times = |read: Option<f64>| read.map_or("-".to_owned(), |times| format!("{times:.3} times"));
        let count = if way == Way::Single { 1.0 } else { DESTINATIONS as f64 };
        let gb = |run: &Delivered| run.bytes as f64 * count / 1e9;
        let of_it = |bytes: u64, run: &Delivered| bytes as f64 / run.bytes as f64;
        let figure = |value: Option<f64>, decimals: usize| value.map_or("-".to_owned(), |v| format!("{v:.decimals$}"));
        rows.push(vec![
            format!("{way:?}"),
            figure(of(&|run| Some(run.bytes as f64 / 1e6 / run.seconds)), 1),
            times(of(&|run| Some(of_it(run.told_read_bytes?, run)))),
            times(of(&|run| Some(of_it(run.disk_read_bytes?, run)))),
            figure(of(&|run| Some(run.clients_cpu_s / gb(run))), 3),
            figure(of(&|run| Some(run.daemons_cpu_s / gb(run))), 3),
            figure(of(&|run| Some(run.machine_cpu_s)), 2),
        ]);
    }
    print!("{}", table(&rows));
    let rounds = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
    let at = |way, round| runs.iter().find(|run| run.way == way && run.round == round).map(|run| run.seconds);
    for (way, target) in [(Way::Also, ", target 0.90"), (Way::Pushes, "")] {
        let ratios: Vec<f64> =
            (0..rounds).filter_map(|round| Some(at(Way::Single, round)? / at(way, round)?)).collect();
        let each = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ");
        println!("{way:?}, each / Single: {:.2}{target}   (rounds: {each})", median(&ratios));
    }
}
