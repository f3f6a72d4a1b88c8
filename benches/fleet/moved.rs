//! Files that are moved with a queue, and the same ones without: ten movers over two daemons
//! against as many pushes of the same shards, and one mover against one push.
//!
//! Takes the program under test; gives rates and processor times. Must not know the rules of the
//! queue.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;

use crate::kit::{
    Bench, Daemon, Longhaul, Running, TreeData, check_arrived, cpu_s, make_cold, median, run as run_command, table,
};
use crate::postgres::Postgres;

const MOVERS: usize = 10;
const FILE_BYTES: usize = 4096;
const FILES_OF_DIR: u64 = 1000;
const PROTECT: &str = "private";

/// Two sources, each with a daemon to which it goes.
pub(crate) struct Ground<'a> {
    bench: &'a Bench,
    longhaul: &'a Longhaul,
    sources: [TreeData; 2],
    targets: [PathBuf; 2],
    daemons: [Daemon; 2],
    /// Files of a shard.
    of_shard: u64,
}

/// One run.
#[derive(Serialize)]
struct Moved {
    what: &'static str,
    round: usize,
    files: u64,
    /// Seconds in which it was planned, which `seconds` are without.
    plan_s: f64,
    seconds: f64,
    clients_cpu_s: f64,
    daemons_cpu_s: f64,
    postgres_cpu_s: f64,
}

/// How the files of a round are moved.
#[derive(Clone, Copy)]
struct MovedBy<'a> {
    what: &'static str,
    /// The place of the queue. `None`: none.
    queue: Option<&'a str>,
    server: Option<&'a Postgres>,
    clients: usize,
    daemons: usize,
}

impl<'a> Ground<'a> {
    /// Makes the sources, of so many files together, and starts the daemons.
    pub(crate) fn new(bench: &'a Bench, longhaul: &'a Longhaul, files: Option<u64>) -> Result<Ground<'a>> {
        let (all, of_shard) = bench.options.amount((1_000_000, 10_000), (20_000, 500));
        // Both have whole shards, as a list has for a push.
        let files = (files.unwrap_or(all) / 2 / of_shard).max(1) * of_shard;
        let dirs = files.div_ceil(FILES_OF_DIR);
        let made = |name: &str| bench.scratch.tree(name, files, dirs, FILE_BYTES);
        let sources = [made("from0")?, made("from1")?];
        let targets = [bench.scratch.subdir("to0")?, bench.scratch.subdir("to1")?];
        let daemons = [longhaul.serve(&targets[0])?, longhaul.serve(&targets[1])?];
        Ok(Ground { bench, longhaul, sources, targets, daemons, of_shard })
    }

    /// Ten movers of a queue in PostgreSQL, and ten at a time of the pushes that they make.
    pub(crate) fn fleet(&self) -> Result<()> {
        let server = Postgres::with(&["shared_buffers=128MB"]);
        let manifests = self.bench.scratch.subdir("manifests")?;
        let url = format!("{}?manifests={}", server.url("postgres"), manifests.display());
        let all = MovedBy {
            what: "ten movers, PostgreSQL",
            queue: Some(&url),
            server: Some(&server),
            clients: MOVERS,
            daemons: 2,
        };
        let plain = MovedBy { what: "ten pushes, no queue", queue: None, server: None, ..all };
        self.compare("fleet", [all, plain], 0.8)
    }

    /// One mover of a queue in a file, and one push.
    pub(crate) fn alone(&self) -> Result<()> {
        let path = self.bench.scratch.path().join("queue.db");
        let path = path.to_str().context("a path of text")?;
        let all = MovedBy { what: "one mover, SQLite", queue: Some(path), server: None, clients: 1, daemons: 1 };
        let plain = MovedBy { what: "one push, no queue", queue: None, ..all };
        self.compare("alone", [all, plain], 0.97)
    }

    /// Both ways in each round, in turns first.
    fn compare(&self, cell: &'static str, ways: [MovedBy; 2], target: f64) -> Result<()> {
        let mut runs = Vec::new();
        for round in 0..self.bench.options.rounds() {
            let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for at in order {
                let moved = self.run(ways[at], round)?;
                self.bench.recorder.record_cell(cell, &moved)?;
                runs.push(moved);
            }
        }
        print(cell, &runs, ways.map(|way| way.what), target);
        Ok(())
    }

    fn run(&self, way: MovedBy, round: usize) -> Result<Moved> {
        let name = format!("round{round}");
        let plan_begun = Instant::now();
        let parts = match way.queue {
            Some(queue) => self.plan(way, queue, &name)?,
            None => self.parts(way)?,
        };
        let plan_s = plan_begun.elapsed().as_secs_f64();
        self.sources.iter().try_for_each(|source| make_cold(&source.path))?;
        let cpu = || -> Result<f64> { self.daemons.iter().map(Daemon::cpu_s).sum() };
        let before = (cpu()?, way.server.map_or(Ok(0.0), server_cpu_s)?);
        let begun = Instant::now();
        let clients_cpu_s = match way.queue {
            Some(queue) => self.drain(way, queue)?,
            None => self.push_all(way, &parts, &name)?,
        };
        let seconds = begun.elapsed().as_secs_f64();
        let after = (cpu()?, way.server.map_or(Ok(0.0), server_cpu_s)?);
        let files = self.check(way, &name)?;
        parts.iter().try_for_each(|(_, part)| fs::remove_file(part))?;
        Ok(Moved {
            what: way.what,
            round,
            files,
            plan_s,
            seconds,
            clients_cpu_s,
            daemons_cpu_s: after.0 - before.0,
            postgres_cpu_s: after.1 - before.1,
        })
    }

    /// The sources that go to a daemon: of one alone, both.
    fn sources_of(&self, way: MovedBy, daemon: usize) -> &[TreeData] {
        if way.daemons == 1 { &self.sources } else { std::slice::from_ref(&self.sources[daemon]) }
    }

    /// Adds and plans a campaign for each daemon. It has no lists.
    fn plan(&self, way: MovedBy, queue: &str, name: &str) -> Result<Vec<(usize, PathBuf)>> {
        for (number, daemon) in self.daemons.iter().take(way.daemons).enumerate() {
            let campaign = format!("{name}-{number}");
            let mut add = self.longhaul.job_add(queue, daemon, &campaign, PROTECT);
            add.args(["--shard-files", &self.of_shard.to_string()]);
            add.args(self.sources_of(way, number).iter().map(|source| &source.path));
            run_command(add.arg(format!("lh://{}/bench/{name}/", daemon.addr())))?;
            run_command(self.longhaul.job(queue, "plan").arg(campaign))?;
        }
        Ok(Vec::new())
    }

    /// Lists of names for pushes, as many as there would be shards; one for all if there is one
    /// client.
    fn parts(&self, way: MovedBy) -> Result<Vec<(usize, PathBuf)>> {
        let mut parts = Vec::new();
        if way.clients == 1 {
            return Ok(parts);
        }
        for (number, source) in self.sources.iter().enumerate().take(way.daemons) {
            let (out, count) = (self.bench.scratch.path().join(format!("parts{number}")), source.files / self.of_shard);
            let mut plan = self.longhaul.command();
            plan.args(["job", "plan", "--shards", &count.to_string(), "--out"]).arg(&out).arg(contents(source));
            run_command(&mut plan)?;
            parts.extend((1..=count).map(|part| (number, out.join(format!("part-{part}")))));
        }
        // Neither daemon is left for the end.
        parts.sort_by_key(|(number, part)| (part.file_name().map(|name| (name.len(), name.to_owned())), *number));
        Ok(parts)
    }

    /// Movers until the queue has nothing more. Gives their processor time.
    fn drain(&self, way: MovedBy, queue: &str) -> Result<f64> {
        let start = |_| Running::start(self.longhaul.job(queue, "run").args(["--drain", "-q"]));
        let movers = (0..way.clients).map(start).collect::<Result<Vec<_>>>()?;
        movers.into_iter().map(|mover| Ok(mover.wait()?.good()?.cpu_s)).sum()
    }

    /// As many pushes at a time as there are clients, until each list was pushed.
    fn push_all(&self, way: MovedBy, parts: &[(usize, PathBuf)], name: &str) -> Result<f64> {
        if way.clients == 1 {
            let daemon = &self.daemons[0];
            let mut push = self.longhaul.push_by_default(daemon);
            push.args(["-q", "--protect", PROTECT, "--retry-for", "0", "--progress", "none"]);
            push.args(self.sources.iter().map(|source| &source.path));
            return Ok(run_command(push.arg(format!("lh://{}/bench/{name}/", daemon.addr())))?.cpu_s);
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<f64> {
            let mut cpu_s = 0.0;
            while let Some((number, part)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (daemon, source) = (&self.daemons[*number], &self.sources[*number]);
                let top = format!("{name}/from{number}");
                let mut push = self.longhaul.push(daemon, PROTECT, &contents(source), &top);
                cpu_s += run_command(push.arg("-q").arg("--from0").arg("--files-from").arg(part))?.cpu_s;
            }
            Ok(cpu_s)
        };
        std::thread::scope(|scope| {
            let works: Vec<_> = (0..way.clients).map(|_| scope.spawn(work)).collect();
            works.into_iter().map(|work| work.join().map_err(|_| anyhow!("a push panicked"))?).sum()
        })
    }

    /// Counts what arrived, and removes it.
    fn check(&self, way: MovedBy, name: &str) -> Result<u64> {
        let mut files = 0;
        for number in 0..way.daemons {
            let top = self.targets[number].join(name);
            let sources = self.sources_of(way, number).iter();
            let (count, bytes) = sources.fold((0, 0), |sum, source| (sum.0 + source.files, sum.1 + source.bytes));
            check_arrived(&top, count, bytes)?;
            fs::remove_dir_all(top)?;
            files += count;
        }
        Ok(files)
    }
}

fn contents(source: &TreeData) -> PathBuf {
    source.path.join("")
}

/// The processor time of a server, with all that it has started.
fn server_cpu_s(server: &Postgres) -> Result<f64> {
    let file = fs::read_to_string(server.data().join("postmaster.pid"))?;
    let first: u32 = file.lines().next().context("the server has a process")?.parse()?;
    let mut sum = cpu_s(first)?;
    for task in fs::read_dir("/proc")? {
        let Some(pid) = task?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end between two looks.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent == Some(first) {
            sum += cpu_s(pid).unwrap_or(0.0);
        }
    }
    Ok(sum)
}

fn print(cell: &str, runs: &[Moved], names: [&'static str; 2], target: f64) {
    let head = [cell, "files/s", "CPU s/10k files: clients", "daemons", "PostgreSQL", "planned in s"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let of = |name: &str, figure: &dyn Fn(&Moved) -> f64| {
        let figures: Vec<f64> = runs.iter().filter(|run| run.what == name).map(figure).collect();
        median(&figures)
    };
    for name in names {
        let each = |figure: &dyn Fn(&Moved) -> f64| of(name, &|run| figure(run) / (run.files as f64 / 1e4));
        rows.push(vec![
            name.to_owned(),
            format!("{:.0}", of(name, &|run| run.files as f64 / run.seconds)),
            format!("{:.3}", each(&|run| run.clients_cpu_s)),
            format!("{:.3}", each(&|run| run.daemons_cpu_s)),
            format!("{:.3}", each(&|run| run.postgres_cpu_s)),
            format!("{:.1}", of(name, &|run| run.plan_s)),
        ]);
    }
    print!("{}", table(&rows));
    let at = |name: &str, round| runs.iter().find(|run| run.what == name && run.round == round);
    let rounds = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
    let pairs: Vec<_> = (0..rounds).filter_map(|round| Some((at(names[0], round)?, at(names[1], round)?))).collect();
    let rates: Vec<f64> = pairs.iter().map(|(with, without)| without.seconds / with.seconds).collect();
    // What the clients need beyond the pushes is counted as the queue's, whatever it is.
    let share = |(with, without): &(&Moved, &Moved)| {
        let own = with.postgres_cpu_s + (with.clients_cpu_s - without.clients_cpu_s).max(0.0);
        100.0 * own / (with.clients_cpu_s + with.daemons_cpu_s + with.postgres_cpu_s)
    };
    let shares: Vec<f64> = pairs.iter().map(share).collect();
    let each = rates.iter().map(|rate| format!("{rate:.2}")).collect::<Vec<_>>().join(" ");
    println!("{} / {}: {:.2}, target {target:.2}   (rounds: {each})", names[0], names[1], median(&rates));
    println!("the queue's part of all processor time, at most: {:.1} %, target 5 %", median(&shares));
}
