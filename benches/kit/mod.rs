//! Shared parts of all benches: scratch data, processes and their cost, alternating rounds, tables,
//! raw records.
//!
//! Also compiled into `xtask` for its comparison with other tools. Takes programs to run and
//! amounts to move; gives medians and raw lines. Must not know the engine: a bench measures the
//! engine itself, beyond processes and files.

#![allow(dead_code, unused_imports, reason = "each bench uses its part")]
#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

mod account;
mod bench;
mod data;
mod longhaul;
mod options;
mod process;
mod record;
mod report;
mod rounds;
mod rsync;
mod stats;

pub(crate) use account::{Account, END_S, START_S, Sample, steady_bits_per_s};
pub(crate) use bench::Bench;
pub(crate) use data::{FileData, Scratch, TreeData, check_arrived, make_cold};
pub(crate) use longhaul::{Daemon, Longhaul, Summary};
pub(crate) use options::Options;
pub(crate) use process::{
    Kept, Ran, Running, cpu_s, free_port, machine_busy_s, own_cpu_s, peak_rss, run, thread_cpu_s,
};
pub(crate) use record::{Host, Recorder};
pub(crate) use report::{Scale, print_ratio, print_runs, table};
pub(crate) use rounds::{Arrived, Contender, Course, Run, Sides, compete};
pub(crate) use rsync::{RsyncDaemon, wait_for_port};
pub(crate) use stats::{median, ratios};
