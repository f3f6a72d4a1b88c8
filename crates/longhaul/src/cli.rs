//! The command line: what may be written, and its help (the doc comments below are the help text).
//!
//! In: the process's arguments. Out: plain structs of unparsed texts to `settings` and `commands`,
//! which give them their types and merge them with the environment and the config file. Knows no
//! values, no defaults, no files. `filter` has the two options whose order counts, `stream` those
//! of a stream, `ssh` how ssh is run, `help` the text beneath the options, `lab` the `bench`
//! commands for disks, `misuse` and `foreign` the messages for lines that do not parse; the others
//! have the arguments of the commands that they are named after.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the doc comments are help texts, where brackets mean what may be left out"
)]

mod admin;
mod bench;
mod check;
mod filter;
mod foreign;
mod help;
pub mod job;
mod key;
mod lab;
mod manifest;
mod manual;
mod metadata;
mod misuse;
mod serve;
mod set;
mod ssh;
mod stream;
mod sync;

use std::ffi::OsString;

use clap::{ArgAction, Args, Parser, Subcommand};

pub use self::admin::{AdminArgs, AdminDrainArgs, AdminKickArgs, AdminRevokeArgs, AdminSetRateArgs, AdminVerb};
pub use self::bench::{BenchMatrixArgs, BenchNetArgs, BenchVerb};
pub use self::check::CheckArgs;
pub use self::filter::{EXCLUDE, FilterOptions, INCLUDE};
pub use self::foreign::ForeignOptions;
pub use self::key::{KeyListArgs, KeyRevokeArgs};
pub use self::lab::{BenchDiskArgs, BenchFillArgs, BenchIopsArgs, BenchPileupArgs, BenchScanArgs, LabOptions};
pub use self::manifest::{
    ManifestConsistencyArgs, ManifestDiffArgs, ManifestImportArgs, ManifestMakeArgs, ManifestMergeArgs,
    ManifestShowArgs, ManifestVerb,
};
pub use self::manual::{CompletionsArgs, ManArgs};
pub use self::metadata::MetadataOptions;
pub use self::misuse::explain;
pub use self::serve::ServeArgs;
pub use self::set::{
    SetAddArgs, SetArgs, SetDeedArgs, SetExportArgs, SetInitArgs, SetMvArgs, SetRebalanceArgs, SetReplaceArgs,
    SetRmArgs, SetVerb, SetVerifyArgs, TargetOptions,
};
pub use self::ssh::SshOptions;
pub use self::stream::StreamOptions;
pub use self::sync::{SyncArgs, SyncOptions};

/// Move datasets disk to disk over long networks: verified by BLAKE3, committed whole
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, propagate_version = true, max_term_width = 120)]
#[command(after_help = help::PROGRAM, after_long_help = help::PROGRAM_LONG)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Verb,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Send local files to another host: over ssh, or to a daemon (or to a local directory)
    #[command(override_usage = "longhaul push [OPTIONS] SOURCE... [USER@]HOST:PATH|lh://HOST[:PORT]/ROOT/PATH")]
    #[command(mut_arg("locations", |arg| arg.help(help::PUSH_LOCATIONS).long_help(help::PUSH_LOCATIONS_LONG)))]
    #[command(mut_arg("sync_interval", |arg| arg.hide(true)), mut_arg("sync_bytes", |arg| arg.hide(true)))]
    #[command(after_help = help::PUSH, after_long_help = help::PUSH_LONG)]
    Push(TransferArgs),
    /// Fetch files from another host: over ssh, or from a daemon
    #[command(override_usage = "longhaul pull [OPTIONS] [USER@]HOST:PATH|lh://HOST[:PORT]/ROOT/PATH... DEST")]
    #[command(mut_arg("also", |arg| arg.hide(true)))]
    #[command(mut_arg("locations", |arg| arg.help(help::PULL_LOCATIONS).long_help(help::PULL_LOCATIONS_LONG)))]
    #[command(after_help = help::PULL, after_long_help = help::PULL_LONG)]
    Pull(TransferArgs),
    /// Copy within this host, or to or from another one: push or pull, whichever the locations say
    #[command(override_usage = "longhaul copy [OPTIONS] SOURCE... DEST")]
    #[command(mut_arg("locations", |arg| arg.help(help::COPY_LOCATIONS).long_help(help::COPY_LOCATIONS_LONG)))]
    #[command(after_help = help::COPY, after_long_help = help::COPY_LONG)]
    Copy(TransferArgs),
    /// Make DEST have what SOURCE has; in further steps, plan and move away what DEST alone has
    #[command(override_usage = help::SYNC_USAGE)]
    #[command(mut_arg("also", |arg| arg.hide(true)))]
    #[command(mut_arg("locations", |arg| arg.help(help::COPY_LOCATIONS).long_help(help::COPY_LOCATIONS_LONG)))]
    #[command(after_help = help::SYNC, after_long_help = help::SYNC_LONG)]
    Sync(SyncArgs),
    /// List names, sizes and times; `lh://host/` lists the roots that this key may see
    #[command(mut_arg("verbose", |arg| arg.help("Say what happens inside: twice for all of it")))]
    Ls(LsArgs),
    /// Read the files that a manifest names, and tell which are changed, missing or not in it
    #[command(mut_arg("quiet", |arg| arg.help("Tell differences and failures only, no sums")))]
    #[command(mut_arg("verbose", |arg| arg.help("Tell files that are as they should be too; twice: what happens inside")))]
    #[command(after_help = help::CHECK)]
    Check(CheckArgs),
    /// Make, show, compare, merge and import sealed manifests: lists of whole datasets
    #[command(subcommand)]
    Manifest(ManifestVerb),
    /// Replicate in bulk: campaigns in a queue that outlives hosts and months, and their mover
    #[command(subcommand)]
    Job(job::JobVerb),
    /// Serve directories to authorised clients
    #[command(mut_arg("json", |arg| arg.help("A `listening` event for each socket on standard output, one JSON object a line")))]
    #[command(mut_arg("quiet", |arg| arg.help("Log warnings and errors only")))]
    #[command(mut_arg("verbose", |arg| arg.help("Log more: what each connection came to, and why")))]
    #[command(after_help = help::SERVE, after_long_help = help::SERVE_LONG)]
    Serve(ServeArgs),
    /// Look after a running daemon of this host: sessions, clients, rates, reload, drain
    #[command(subcommand)]
    Admin(AdminVerb),
    /// Make and look over target sets: trees that are spread over several disks
    #[command(subcommand)]
    Set(SetVerb),
    /// Make, show, authorise, list, revoke and trust keys
    #[command(subcommand)]
    Key(KeyVerb),
    /// Measure what hosts and the way between them carry, with data made up for it
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Write the completions of a shell to standard output
    Completions(CompletionsArgs),
    /// Write the manual page to standard output, or the pages of all commands to a directory
    Man(ManArgs),
}

/// What `push`, `pull` and `copy` take.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct TransferArgs {
    /// What is copied, and where it goes: a directory lands as DEST/NAME, with a slash at its end
    /// as its contents; `-` is standard input, and DEST then the name of a file
    // One list, as clap cannot tell where several sources end when options stand between them.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... DEST")]
    pub locations: Vec<OsString>,
    /// Lanes and their kind.
    #[command(flatten)]
    pub network: NetworkOptions,
    /// What is kept in memory.
    #[command(flatten)]
    pub buffers: BufferOptions,
    /// How disks are read and written.
    #[command(flatten)]
    pub devices: DeviceOptions,
    /// The targets of a destination on this host.
    #[command(flatten)]
    pub targets: TargetOptions,
    /// How what was written becomes durable.
    #[command(flatten)]
    pub writes: WriteOptions,
    /// Which files, and what of them.
    #[command(flatten)]
    pub choice: ChoiceOptions,
    /// SOURCE or DEST as one stream of bytes.
    #[command(flatten)]
    pub stream: StreamOptions,
    /// What is told, and where.
    #[command(flatten)]
    pub output: OutputOptions,
    /// Who we are and whom we trust.
    #[command(flatten)]
    pub keys: KeyOptions,
    /// How a host is reached by ssh.
    #[command(flatten)]
    pub ssh: SshOptions,
    /// Options of other tools that mean something else here, or nothing.
    #[command(flatten)]
    pub foreign: ForeignOptions,
}

/// Lanes and their kind.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkOptions {
    /// Data connections, 1 to 128, or `auto` [default: auto]
    #[arg(long, value_name = "N|auto")]
    pub lanes: Option<OsString>,
    /// Kind of lane: tcp, quic, udp, or auto, which begins with tcp and goes over to udp where that
    /// carries more, or, with --share all, to quic [default: auto]
    #[arg(long, value_name = "KIND")]
    pub transport: Option<OsString>,
    /// Congestion control of the lanes: auto, or a name that the kernel offers; over quic auto,
    /// rate, bbr or cubic [default: auto]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub congestion: Option<OsString>,
    /// Dial from this address (and to that one), over which the daemon is reached; repeat for
    /// several network cards, and lanes are spread over all of them: LOCAL or LOCAL=REMOTE
    #[arg(long, value_name = "LOCAL[=REMOTE]", hide_short_help = true)]
    pub path: Vec<OsString>,
    /// Keep the whole transfer below this, paced: 9.4Gbit/s, 1Gbps, 250MB/s; at least 64KiB/s
    /// [default: none]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<OsString>,
    /// Share of the path when others use it too: fair, about as much as one other flow; polite,
    /// what they leave; all, whatever can be had, for a path of one's own, which the daemon must
    /// allow [default: fair]
    #[arg(long, value_name = "SHARE")]
    pub share: Option<OsString>,
    /// private: encrypted and verified; safe: NOT encrypted, readable on the way, still verified
    /// [default: private]
    #[arg(long, value_name = "LEVEL")]
    pub protect: Option<OsString>,
    /// Keep dialling again after a lost link, for so long since the last progress: 90s, 10m, 2h,
    /// 1d; 0 = exit 5 at once. A run over ssh whose way for UDP is closed dials once more, over
    /// TCP, whatever this says [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub retry_for: Option<OsString>,
    /// Give up a lane that moves nothing for so long while others do, and dial another: 1s to 1h
    /// [default: 20s]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    pub stall_timeout: Option<OsString>,
}

/// What is kept in memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub struct BufferOptions {
    /// Unit of reading, hashing and sending: a power of two, 1MiB to 64MiB, or `auto`: 4MiB, and
    /// less over a long path, so that all lanes begin and end together [default: auto]
    #[arg(long, value_name = "SIZE|auto", hide_short_help = true)]
    pub chunk_size: Option<OsString>,
    /// Buffers of this side.
    #[arg(long, value_name = "SIZE", hide_short_help = true, help = help::memory("this side"))]
    pub memory: Option<OsString>,
}

/// How disks are read and written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Disk")]
pub struct DeviceOptions {
    /// Requests in flight per disk.
    #[arg(long, value_name = "N|auto", hide_short_help = true, help = help::depth())]
    pub depth: Option<OsString>,
    /// direct, buffered, or auto: direct where the file system takes it [default: auto]
    #[arg(long, value_name = "MODE", hide_short_help = true)]
    pub io: Option<OsString>,
    /// I/O engine: uring, threads or auto [default: auto]
    #[arg(long, value_name = "ENGINE", hide_short_help = true)]
    pub engine: Option<OsString>,
    /// CPUs that I/O threads and lanes run on: auto, those of the memory node of their disk and
    /// network interface; none, any; or a list such as 0-3,8 [default: auto]
    #[arg(long, value_name = "CPUS", hide_short_help = true)]
    pub pin: Option<OsString>,
}

/// How what was written becomes durable, and is looked at again.
#[derive(Debug, Args)]
#[command(next_help_heading = "Disk")]
pub struct WriteOptions {
    /// wire: digests of what arrives; disk: also of what was written, read back from the medium
    /// before it is committed, which takes 2 more chunks of memory at the receiver [default: wire]
    #[arg(long, value_name = "HOW")]
    pub verify: Option<OsString>,
    /// Where this side receives: make what was written durable after so long, 50ms to 1m; a crash
    /// costs no more [default: 1s]
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    pub sync_interval: Option<OsString>,
    /// The same, after so much: 1MiB to 64GiB [default: 1GiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub sync_bytes: Option<OsString>,
    /// Publish only as long as the destination keeps no newer claim on this shard, else exit 4:
    /// CAMPAIGN:SHARD:FENCE:ID, with 32 hex digits for campaign and id
    #[arg(long, value_name = "CLAIM", hide_short_help = true)]
    pub claim: Option<OsString>,
    /// Have all files appear together as DEST/NAME, with their sealed manifest in it, or none: NAME
    /// must be free, or with --if-exists replace the old one is kept as NAME.ID~ [default: each
    /// file appears when it is done]
    #[arg(long, value_name = "NAME")]
    pub as_dataset: Option<OsString>,
    /// Send the same to this destination too, and read SOURCE once for all; repeat it for each. One
    /// that falls behind reads for itself and holds none of the others
    #[arg(long, value_name = "DEST", help_heading = "Destinations")]
    pub also: Vec<OsString>,
}

/// Which files, and what of them.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is sent")]
pub struct ChoiceOptions {
    /// When the destination has the name: skip-same (same size and time), verify (same size:
    /// compare digests, send what differs), replace or fail [default: skip-same]
    #[arg(long, value_name = "RULE")]
    pub if_exists: Option<OsString>,
    /// Send only the names in FILE (`-`: standard input), relative to the one SOURCE, one a line;
    /// lines that begin with # or ; are comments
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<OsString>,
    /// Names in --files-from end in NUL, not in newline: then nothing in them is a comment
    #[arg(long)]
    pub from0: bool,
    /// `--include` and `--exclude`, in the order given.
    #[command(flatten)]
    pub filters: FilterOptions,
    /// The metadata and checksums beside the bytes.
    #[command(flatten)]
    pub metadata: MetadataOptions,
    /// Print the mapping and the bytes, move nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// What is told, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Write a line as `b3sum` prints it for every file that stands at the destination after the
    /// run, skipped ones too, which are read there; `-` is standard output. A run that ends early
    /// writes none
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<OsString>,
    /// Progress on standard error: bar, plain, none, or auto: a bar on a terminal, else lines
    /// [default: auto]
    #[arg(long, value_name = "FORM")]
    pub progress: Option<OsString>,
    /// From daemon to daemon: which one dials the other, destination or source [default:
    /// destination]
    #[arg(long, value_name = "SIDE", hide_short_help = true)]
    pub dialler: Option<OsString>,
    /// From daemon to daemon: leave once it runs; prints a name for --attach
    #[arg(long)]
    pub detach: bool,
    /// From daemon to daemon: move nothing, and wait for the end of the copy that --detach left by
    /// this name
    #[arg(long, value_name = "NAME", hide_short_help = true, conflicts_with_all = ["detach", "dry_run"])]
    pub attach: Option<OsString>,
    /// With --attach: stop that copy, and wait for its end; what has come is kept
    #[arg(long, hide_short_help = true, requires = "attach")]
    pub stop: bool,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// How much is said, and in which form.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct TalkOptions {
    /// Events on standard output, one JSON object a line, `summary` last
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Name each file; twice: say what happens inside
    #[arg(long, short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Colour of the labels on standard error: always, never, or auto: on a terminal, unless
    /// NO_COLOR is set [default: auto]
    #[arg(long, value_name = "WHEN")]
    pub color: Option<OsString>,
}

/// Who we are and whom we trust.
#[derive(Debug, Args)]
#[command(next_help_heading = "Keys")]
pub struct KeyOptions {
    /// This side's private key [default: $XDG_CONFIG_HOME/longhaul/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<OsString>,
    /// Keys of the daemons that are trusted [default: $XDG_CONFIG_HOME/longhaul/known_hosts]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub known_hosts: Option<OsString>,
    /// Trust the key of a daemon that was never seen before, and remember it
    #[arg(long)]
    pub trust_on_first_use: bool,
    /// Accept this key of the daemon and no other, for this run
    #[arg(long, value_name = "KEY")]
    pub peer_key: Option<OsString>,
}

/// What `ls` takes.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct LsArgs {
    /// Mode, size and time (UTC) before each name
    #[arg(short = 'l')]
    pub long: bool,
    /// Everything beneath each directory too; links are not followed
    #[arg(short = 'R')]
    pub recursive: bool,
    /// Sizes as 1.2 GiB instead of bytes, with -l
    #[arg(long)]
    pub human: bool,
    /// What is left of your unfinished files at LOCATION and beneath it: how much is held, since
    /// when, who writes it
    #[arg(long)]
    pub partials: bool,
    /// PATH, [USER@]HOST:PATH, lh://HOST[:PORT]/ROOT/PATH, or lh://HOST[:PORT]/ for the roots (with
    /// --partials: what is left in all of them)
    #[arg(value_name = "LOCATION", required = true, num_args = 1..)]
    pub locations: Vec<OsString>,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
    /// Who we are and whom we trust.
    #[command(flatten)]
    pub keys: KeyOptions,
    /// How a host is reached by ssh.
    #[command(flatten)]
    pub ssh: SshOptions,
}

/// The `key` commands.
#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make this user's identity and print its public key
    Generate(IdentityArgs),
    /// Print the public key of this user's identity
    Show(IdentityArgs),
    /// Let a client in: add a [[client]] to the daemon's config
    Authorize(AuthorizeArgs),
    /// List the clients that a daemon's config lets in
    List(KeyListArgs),
    /// Shut a client out: take its [[client]] out of the daemon's config
    Revoke(KeyRevokeArgs),
    /// Pin a daemon's key
    Trust(TrustArgs),
}

/// Which identity.
#[derive(Debug, Args)]
pub struct IdentityArgs {
    /// The private key's file [default: $XDG_CONFIG_HOME/longhaul/identity]
    #[arg(long, value_name = "FILE")]
    pub identity: Option<OsString>,
}

/// What `key authorize` takes.
#[derive(Debug, Args)]
pub struct AuthorizeArgs {
    /// The client's public key, as its `longhaul key show` prints it
    #[arg(value_name = "KEY")]
    pub key: String,
    /// What the daemon calls this client, in its config and its log
    #[arg(long, value_name = "N")]
    pub name: String,
    /// A root and what the client may do there: of read,create,modify,delete. May be left out with
    /// --bench
    #[arg(long, value_name = "NAME=RIGHTS", required_unless_present = "bench", action = ArgAction::Append)]
    pub root: Vec<String>,
    /// Let it measure the way to the daemon: `longhaul bench net`. For a client that is in the
    /// config already, write `bench = true` there
    #[arg(long)]
    pub bench: bool,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<OsString>,
}

/// What `key trust` takes.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The daemon; port 7214 if none is given
    #[arg(value_name = "HOST[:PORT]")]
    pub host: String,
    /// Its public key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Where to remember it [default: $XDG_CONFIG_HOME/longhaul/known_hosts]
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<OsString>,
}

impl TransferArgs {
    /// The sources, of which there may be none, and the destination behind them. `None` if no
    /// location is given.
    pub fn ends(&self) -> Option<(&[OsString], &OsString)> {
        let (dest, sources) = self.locations.split_last()?;
        Some((sources, dest))
    }
}

/// The name of `--path`.
pub const PATH: &str = "path";
/// The name of `--target`.
pub const TARGET: &str = "target";

/// Options that no variable and no key of `config.toml` sets: a file that lies about must not run a
/// command, and each of them is about one stream, one shard or one copy.
pub const ON_THE_COMMAND_LINE_ALONE: [&str; 10] =
    ["from-command", "expect-bytes", "expect-b3", "claim", "as-dataset", "also", "dialler", "detach", "attach", "stop"];

#[cfg(test)]
mod tests;
