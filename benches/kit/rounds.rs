//! Rounds of contenders on one course, each round in the reverse order of the last, so that a drift
//! of the machine favours none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::data::{check_arrived, make_cold, sync};
use super::process::machine_busy_s;
use super::record::Recorder;

/// The work that each contender does.
pub(crate) struct Course {
    /// The amount that each run moves.
    pub(crate) bytes: u64,
    /// The amount that each run moves.
    pub(crate) files: u64,
    /// The source, made cold before each run. `None` if nothing is read.
    pub(crate) source: Option<PathBuf>,
    /// The directory in which a fresh one is made for each run and checked afterwards. `None` if
    /// nothing is written.
    pub(crate) target: Option<PathBuf>,
    /// The treatment of the data that arrived.
    pub(crate) arrived: Arrived,
    /// Whether a sync of the target's file system counts with each run.
    pub(crate) final_sync: bool,
}

/// The treatment of arrived data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// It is removed at once: there is no room for all of it.
    Removed,
    /// It stays until the end. ext4 without a journal reuses the inode of a removed file only after
    /// a minute, and looks at each of them again for every file it makes: the next contender would
    /// pay for a removal.
    Kept,
}

/// A contender that does the work.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'static str,
    /// A command that loads the programs, run after the caches were emptied: their loading is not
    /// measured.
    pub(crate) warm_up: Option<Command>,
    pub(crate) go: Go<'a>,
}

/// The work of a contender in one run, into the directory given.
pub(crate) type Go<'a> = Box<dyn FnMut(&Path) -> Result<Sides> + 'a>;

/// The CPU time of each side, as far as it can be told apart.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sides {
    pub(crate) sender_cpu_s: Option<f64>,
    pub(crate) receiver_cpu_s: Option<f64>,
    /// The stages of the side that reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stages_cpu_s: Vec<(String, f64)>,
}

/// One run of one contender.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) what: &'static str,
    pub(crate) round: usize,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) sides: Sides,
    /// The CPU time that the whole machine spent meanwhile, for any process.
    pub(crate) machine_cpu_s: f64,
    /// Share of all processors that was busy just before, when nothing of ours ran.
    pub(crate) other_cpu_before: f64,
}

/// Runs all contenders as often as asked, records each run, and gives them all.
pub(crate) fn compete(
    recorder: &Recorder,
    rounds: usize,
    course: &Course,
    contenders: &mut [Contender<'_>],
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for round in 0..rounds {
        for n in 0..contenders.len() {
            let contender = if round % 2 == 0 { n } else { contenders.len() - 1 - n };
            let contender = &mut contenders[contender];
            let run = one(course, contender, round).with_context(|| format!("{} failed", contender.name))?;
            eprintln!("  round {}/{rounds} {}: {:.3} s", round + 1, run.what, run.seconds);
            recorder.record(&run)?;
            runs.push(run);
        }
    }
    Ok(runs)
}

fn one(course: &Course, contender: &mut Contender<'_>, round: usize) -> Result<Run> {
    let dir = course.target.as_ref().map(|target| target.join("run"));
    if let Some(dir) = &dir {
        fs::create_dir(dir)?;
        // Servers may run as users of their own.
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    }
    if let Some(source) = &course.source {
        make_cold(source)?;
    }
    if let Some(warm_up) = &mut contender.warm_up {
        warm_up.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    }
    let other_cpu_before = load()?;
    let (begun, busy) = (Instant::now(), machine_busy_s()?);
    let sides = (contender.go)(dir.as_deref().unwrap_or(Path::new("/nonexistent")))?;
    if let Some(dir) = dir.as_ref().filter(|_| course.final_sync) {
        sync(dir)?;
    }
    let (seconds, machine_cpu_s) = (begun.elapsed().as_secs_f64(), machine_busy_s()? - busy);
    if let Some(dir) = &dir {
        check_arrived(dir, course.files, course.bytes)?;
        match course.arrived {
            Arrived::Removed => fs::remove_dir_all(dir)?,
            Arrived::Kept => fs::rename(dir, dir.with_file_name(format!("run-{round}-{}", contender.name)))?,
        }
        // Data still to be written or freed counts for this run, not for the next one.
        sync(dir.parent().unwrap_or(dir))?;
    }
    let (what, bytes, files) = (contender.name, course.bytes, course.files);
    Ok(Run { what, round, bytes, files, seconds, sides, machine_cpu_s, other_cpu_before })
}

/// The share of all processors that is busy while this process only waits.
fn load() -> Result<f64> {
    let (begun, busy) = (Instant::now(), machine_busy_s()?);
    std::thread::sleep(LOAD_WINDOW);
    let cores = std::thread::available_parallelism()?.get() as f64;
    Ok((machine_busy_s()? - busy) / begun.elapsed().as_secs_f64() / cores)
}

/// The time of a measurement of the load. A tick of the counters is 10 ms: half a second tells 2 %.
const LOAD_WINDOW: Duration = Duration::from_millis(500);
