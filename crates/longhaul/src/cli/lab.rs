//! The arguments of the `bench` commands that measure disks alone.
//!
//! In: arguments. Out: plain structs of unparsed texts to `settings::lab`.

use std::ffi::OsString;

use clap::Args;

use super::TalkOptions;

/// The options of every measurement of a disk.
#[derive(Debug, Args)]
pub struct LabOptions {
    /// Draw the result into FILE, which ends in .svg or .html; a page has the table too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plot: Option<OsString>,
    /// direct, buffered, or auto: direct where the file system takes it [default: auto]
    #[arg(long, value_name = "MODE", help_heading = "Disk")]
    pub io: Option<OsString>,
    /// I/O engine: uring, threads or auto [default: auto]
    #[arg(long, value_name = "ENGINE", help_heading = "Disk")]
    pub engine: Option<OsString>,
}

/// The arguments of `bench disk`.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_DISK_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
pub struct BenchDiskArgs {
    /// Directories on the disks to measure: the first alone, then the first two, and so on
    #[arg(value_name = "DIR", required = true, num_args = 1..=16)]
    pub dirs: Vec<OsString>,
    /// Fewer cells, and shorter ones: three chunk sizes, three depths, half a second each
    #[arg(long)]
    pub quick: bool,
    /// Chunk sizes, powers of two from 64KiB to 64MiB: 1MiB,4MiB [default: 64KiB to 32MiB]
    #[arg(long, value_name = "LIST")]
    pub chunk_size: Option<OsString>,
    /// Requests in flight on each target, 1 to 64: 1,4,16 [default: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "LIST")]
    pub depth: Option<OsString>,
    /// read, write or both [default: both]
    #[arg(long, value_name = "ACCESS")]
    pub access: Option<OsString>,
    /// Data a cell moves on each target at most, 1MiB to 1TiB; twice that must be free there
    /// [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<OsString>,
    /// How long a cell takes at most, before its last sync: 100ms to 1h [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub time: Option<OsString>,
    /// Buffers of a cell, at least 4MiB: a cell that needs more is left out, as a transfer could
    /// not do it either [default: that of a transfer]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<OsString>,
    /// The options of every measurement of a disk.
    #[command(flatten)]
    pub lab: LabOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `bench iops`.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_IOPS_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
pub struct BenchIopsArgs {
    /// A directory, in which a file is made and removed; or a file or block device, which is only
    /// read
    #[arg(value_name = "DIR|FILE")]
    pub place: OsString,
    /// Bytes of a request, 512 to 8KiB [default: the fewest that direct I/O takes there]
    #[arg(long, value_name = "SIZE")]
    pub request: Option<OsString>,
    /// The share of reads, 0% to 100%; the others write [default: 100%]
    #[arg(long, value_name = "PERCENT")]
    pub reads: Option<OsString>,
    /// Numbers of workers, 1 to 128, each pinned to a core [default: 14, or as many as there are
    /// cores]
    #[arg(long, value_name = "LIST")]
    pub workers: Option<OsString>,
    /// Requests that each worker keeps in flight, 1 to 128: 1,4,16,38 [default: 38]
    #[arg(long, value_name = "LIST")]
    pub outstanding: Option<OsString>,
    /// The file that is made in a directory, 1MiB to 1TiB [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<OsString>,
    /// How long each combination takes: 100ms to 1h [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub time: Option<OsString>,
    /// The options of every measurement of a disk.
    #[command(flatten)]
    pub lab: LabOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `bench pileup`.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_PILEUP_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
pub struct BenchPileupArgs {
    /// A directory, in which files are made and removed
    #[arg(value_name = "DIR")]
    pub dir: OsString,
    /// Numbers of threads, 1 to 128: 1,8,64 [default: 1,2,4,8,16,32,64]
    #[arg(long, value_name = "LIST")]
    pub threads: Option<OsString>,
    /// The number of files, 1 to 128 [default: 16]
    #[arg(long, value_name = "N")]
    pub files: Option<OsString>,
    /// The length of each file, 1MiB to 1TiB [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<OsString>,
    /// Bytes of a request, 4KiB to 1MiB [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    pub request: Option<OsString>,
    /// How long each number of threads takes: 100ms to 1h [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub time: Option<OsString>,
    /// The options of every measurement of a disk.
    #[command(flatten)]
    pub lab: LabOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `bench fill`.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_FILL_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
pub struct BenchFillArgs {
    /// A directory of the file system, in which files are made and removed
    #[arg(value_name = "DIR")]
    pub dir: OsString,
    /// The used share to reach, 1% to 100%, as df counts it [default: 90%]
    #[arg(long, value_name = "PERCENT")]
    pub to: Option<OsString>,
    /// Space kept free in any case, also when others write meanwhile [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub reserve: Option<OsString>,
    /// The options of every measurement of a disk.
    #[command(flatten)]
    pub lab: LabOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `bench scan`.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_SCAN_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
pub struct BenchScanArgs {
    /// A file or block device; it is opened for reading alone
    #[arg(value_name = "FILE|DEVICE")]
    pub path: OsString,
    /// Bytes of a region, at least 1MiB [default: a hundredth of all]
    #[arg(long, value_name = "SIZE")]
    pub region: Option<OsString>,
    /// Read only so much at the start of each region, at least 1MiB [default: all of it]
    #[arg(long, value_name = "SIZE")]
    pub sample: Option<OsString>,
    /// The options of every measurement of a disk.
    #[command(flatten)]
    pub lab: LabOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

const BENCH_DISK_HELP: &str = "Sequential reads and writes through the engine, the buffers and the queues of a transfer: a row for each \
access, number of targets, chunk size and depth, and at the end the --depth and --chunk-size that it would choose, and why. A cell \
that writes makes a new file, and its sync at the end is in its time. Files have no name from the start: nothing is left of them, \
whatever ends the program. Run it as nobody else uses the disks. With --json an object a cell (`bench_disk`, and `summary` last).

Exit codes: 0 all cells done · 2 usage or config · 3 no such directory · 4 not writable · 7 no space, or this host cannot · \
130/143 interrupted · 1 anything else";

const BENCH_IOPS_HELP: &str = "Requests at random offsets of one file: a row for each number of workers and of outstanding requests. Each \
worker has an engine of its own. With --json an object a row (`bench_iops`, and `summary` last).

Exit codes: 0 all done · 2 usage or config · 3 no such place · 4 not allowed · 7 no space, or this host cannot · 130/143 interrupted · \
1 anything else";

const BENCH_PILEUP_HELP: &str =
    "Threads that read at random from many files, as clients of a busy server do: a row for each number of \
threads. With --json an object a row (`bench_pileup`, and `summary` last).

Exit codes: 0 all done · 2 usage or config · 3 no such directory · 4 not writable · 7 no space, or this host cannot · \
130/143 interrupted · 1 anything else";

const BENCH_FILL_HELP: &str = "Writes until the file system is as full as --to says, and tells the rate along the way: a row for each \
fiftieth of it, synced. Everything is removed at the end, whatever ends the program. With --json an object a row (`bench_fill`, and \
`summary` last).

Exit codes: 0 the share or the reserve is reached · 2 usage or config · 3 no such directory · 4 not writable · 7 no space, or this host \
cannot · 130/143 interrupted · 1 anything else";

const BENCH_SCAN_HELP: &str =
    "Reads every region and shows those that are slow: below half of the median rate, or unreadable. Nothing is \
written. With --json an object a region (`bench_scan`, and `summary` last, which has the slow ones).

Exit codes: 0 all regions read · 2 usage or config · 3 no such file · 4 not allowed · 7 some regions cannot be read · \
130/143 interrupted · 1 anything else";
