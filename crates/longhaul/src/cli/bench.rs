//! The arguments of the `bench` commands.
//!
//! In: arguments. Out: plain structs of unparsed texts to `settings::bench`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::lab::{BenchDiskArgs, BenchFillArgs, BenchIopsArgs, BenchPileupArgs, BenchScanArgs};
use super::{BufferOptions, DeviceOptions, KeyOptions, TalkOptions, help};

/// The `bench` commands.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// Memory to memory, through the lanes of a transfer with a daemon: one run for each
    /// combination of what is listed
    Net(BenchNetArgs),
    /// Memory or disk to memory or disk, within this process: what each stage of a transfer costs
    Matrix(BenchMatrixArgs),
    /// Sequential reads and writes of disks: chunk sizes, depths and numbers of targets, and the
    /// --depth and --chunk-size to use
    Disk(BenchDiskArgs),
    /// Small requests at random offsets, read and written in any mix, by workers on cores of their
    /// own
    Iops(BenchIopsArgs),
    /// Many threads that read at random from many files: the rate against their number
    Pileup(BenchPileupArgs),
    /// Fill a file system up to a share: the rate along the way
    Fill(BenchFillArgs),
    /// Read a file or device region by region, and show slow spots
    Scan(BenchScanArgs),
}

/// What `bench net` takes.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_NET_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
pub struct BenchNetArgs {
    /// The daemon, which must allow this key to measure: `bench = true` in its [[client]]
    #[arg(value_name = "lh://HOST[:PORT]")]
    pub daemon: OsString,
    /// How long a run reads new data, 1 to 3600 [default: 10, or no limit with --bytes]
    #[arg(long, value_name = "N")]
    pub seconds: Option<OsString>,
    /// What a run moves at most, at least 1MiB; the daemon may allow less [default: what the daemon
    /// allows]
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<OsString>,
    /// push (from here), pull (to here) or both [default: both]
    #[arg(long, value_name = "WAY")]
    pub direction: Option<OsString>,
    /// Kinds of lane: of tcp,quic,udp,auto [default: tcp]
    #[arg(long, value_name = "LIST", help_heading = "Network")]
    pub transport: Option<OsString>,
    /// Protections: of private,safe [default: private]
    #[arg(long, value_name = "LIST", help_heading = "Network")]
    pub protect: Option<OsString>,
    /// Numbers of lanes, 1 to 128, or `auto`: 1,2,4,8 [default: auto]
    #[arg(long, value_name = "LIST", help_heading = "Network")]
    pub lanes: Option<OsString>,
    /// Rates to keep, or `none`: 1Gbit/s,2Gbit/s,none [default: none]
    #[arg(long, value_name = "LIST", help_heading = "Network")]
    pub rate: Option<OsString>,
    /// How lanes send.
    #[command(flatten)]
    pub sending: SendingOptions,
    /// What is kept in memory.
    #[command(flatten)]
    pub buffers: BufferOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
    /// Who we are and whom we trust.
    #[command(flatten)]
    pub keys: KeyOptions,
}

/// How lanes of a measurement send.
#[derive(Debug, Args)]
pub struct SendingOptions {
    /// TCP congestion control of the lanes: auto, or a name that the kernel offers [default: auto]
    #[arg(long, value_name = "NAME", help_heading = "Network")]
    pub congestion: Option<OsString>,
    /// Share of the path when others use it too: fair, polite or all [default: fair]
    #[arg(long, value_name = "SHARE", help_heading = "Network")]
    pub share: Option<OsString>,
}

/// What `bench matrix` takes.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_help = BENCH_MATRIX_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
#[command(mut_arg("memory", |memory| memory.help(help::memory("each half"))))]
pub struct BenchMatrixArgs {
    /// On the disk to measure; files are made in a new directory in it, and removed at the end
    /// [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<OsString>,
    /// The file of each run, 1MiB to 1TiB; twice that must be free [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub bytes: Option<OsString>,
    /// Runs of each cell, 1 to 100: the table shows medians [default: 3]
    #[arg(long, value_name = "N")]
    pub rounds: Option<OsString>,
    /// Lanes between the halves, 1 to 128, or `auto`: 4 [default: auto]
    #[arg(long, value_name = "N|auto")]
    pub lanes: Option<OsString>,
    /// What is kept in memory, by each half.
    #[command(flatten)]
    pub buffers: BufferOptions,
    /// How disks are read and written.
    #[command(flatten)]
    pub devices: DeviceOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

const BENCH_MATRIX_HELP: &str = "Eight cells: from memory or disk to memory or disk, safe and private. The real pipeline of both \
halves in one process, over socket pairs; a disk's end is durable when a run ends. What a disk costs is the difference between two \
cells. Run it as nobody else uses the machine. A table on standard output at the end, with --json an object a run (`bench_matrix`, and \
`summary` last).

Exit codes: 0 all runs done · 2 usage or config · 3 no such directory · 7 no space, or this host cannot · 130/143 interrupted · \
1 anything else";

const BENCH_NET_HELP: &str = "A line a run on standard output, with --json an object a line (`bench_net`, and `summary` last). Data is \
made up, sent, hashed and verified as in a transfer, and no disk is touched. What only the sending end knows of its lanes (what was sent \
again, mean round trip, jitter, path MTU) is told of pushes.

Exit codes: 0 all runs done · 2 usage or config · 4 denied · 5 temporary, a retry may work · 130/143 interrupted · 1 anything else";
