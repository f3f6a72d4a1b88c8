//! Raw results: one JSON line per run in `target/bench/NAME.jsonl`, with the facts of the host and
//! the date.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;

use super::process::run;

/// The facts of a host on which figures depend, as far as a machine can tell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Host {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// Type and device of the file system under test.
    pub(crate) file_system: String,
    pub(crate) date: String,
}

/// Appends lines to a bench's file.
pub(crate) struct Recorder {
    bench: &'static str,
    quick: bool,
    host: Host,
    path: PathBuf,
}

/// The results of a cell of a table.
#[derive(Serialize)]
struct CellLine<'a, T: Serialize> {
    cell: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    v: u32,
    bench: &'a str,
    quick: bool,
    host: &'a Host,
    #[serde(flatten)]
    body: &'a T,
}

impl Host {
    /// The facts of this host, for data that lies in `dir`.
    pub(crate) fn look(dir: &Path) -> Result<Host> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let cpu =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let kib = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(Host {
            cpu: cpu.unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory_bytes: kib.context("the kernel does not say how much memory it has")? * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            file_system: file_system(dir)?,
            date: run(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?.out.trim().to_owned(),
        })
    }

    /// The same in one line.
    pub(crate) fn line(&self) -> String {
        let Host { cpu, cores, kernel, file_system, date, .. } = self;
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        format!("{cores} x {cpu}, {gib:.0} GiB, Linux {kernel}, {file_system}, {date}")
    }
}

impl Recorder {
    /// A recorder for the bench of this name, whose data lies in `dir`.
    pub(crate) fn new(bench: &'static str, quick: bool, dir: &Path, target_dir: &Path) -> Result<Recorder> {
        let above = target_dir.join("bench");
        fs::create_dir_all(&above)?;
        Ok(Recorder { bench, quick, host: Host::look(dir)?, path: above.join(format!("{bench}.jsonl")) })
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Appends one line.
    pub(crate) fn record(&self, body: &impl Serialize) -> Result<()> {
        let line = Line { v: 1, bench: self.bench, quick: self.quick, host: &self.host, body };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        Ok(file.write_all(&text)?)
    }

    /// Appends the line of a cell of this name, of which a table shows the last.
    pub(crate) fn record_cell(&self, cell: &str, body: &impl Serialize) -> Result<()> {
        self.record(&CellLine { cell, body })
    }

    /// The path of the lines, for users.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The type and device of the file system that `dir` lies on, as `/proc/self/mountinfo` has them.
fn file_system(dir: &Path) -> Result<String> {
    let dev = fs::metadata(dir)?.dev();
    let wanted = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let found = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&wanted));
    let words =
        found.and_then(|line| line.split_once(" - ")).map(|(_, rest)| rest.split(' ').take(2).collect::<Vec<_>>());
    Ok(words.map_or_else(|| "unknown file system".to_owned(), |words| words.join(" on ")))
}
