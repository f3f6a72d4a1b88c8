//! The arguments of the `job` commands.
//!
//! In: arguments. Out: plain structs of unparsed texts to `commands`. Knows no values and no
//! defaults.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter::FilterOptions;
use super::{KeyOptions, TalkOptions, TransferArgs, help};

/// The `job` commands.
#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// Add a campaign to the queue: what is copied, where to, and by which rules
    #[command(override_usage = "longhaul job add [OPTIONS] SOURCE... DEST")]
    #[command(mut_arg("locations", |arg| arg.help(help::JOB_LOCATIONS)))]
    #[command(mut_arg("files_from", |arg| arg.hide(true)), mut_arg("from0", |arg| arg.hide(true)))]
    #[command(mut_arg("dry_run", |arg| arg.hide(true)), mut_arg("manifest", |arg| arg.hide(true)))]
    #[command(mut_arg("progress", |arg| arg.hide(true)))]
    #[command(mut_arg("detach", |arg| arg.hide(true)), mut_arg("attach", |arg| arg.hide(true)))]
    #[command(mut_arg("stop", |arg| arg.hide(true)), mut_arg("also", |arg| arg.help(help::JOB_ALSO)))]
    #[command(after_help = help::JOB_ADD)]
    Add(Box<JobAddArgs>),
    /// List a campaign's files and cut them into shards; with --shards, write lists instead, with
    /// no queue
    #[command(mut_arg("include", |arg| arg.help("With --shards: list what matches; of all --include and --exclude the first match decides")))]
    #[command(mut_arg("exclude", |arg| arg.help("With --shards: leave out what matches")))]
    #[command(after_help = help::JOB_PLAN)]
    Plan(JobPlanArgs),
    /// List the campaigns
    Ls(JobQueueArgs),
    /// Tell all that a campaign says, and what holds it
    Show(JobCampaignArgs),
    /// Tell what is left of a campaign, by link and by fault, and how long it takes
    Left(JobCampaignArgs),
    /// Wait until a campaign is done, cancelled, or cannot go on without a user
    #[command(after_help = help::JOB_WAIT)]
    Wait(JobWaitArgs),
    /// Tell what is left of a campaign again and again, until it is done
    Watch(JobWatchArgs),
    /// Let nothing of a campaign begin; what is being moved stops in order
    Hold(JobCampaignArgs),
    /// Let a campaign go on: one that is held, its shards that are held, and links that closed
    Release(JobCampaignArgs),
    /// End a campaign for good; what stands at its destination stays
    Cancel(JobCampaignArgs),
    /// Try files again that were given up
    Retry(JobRetryArgs),
    /// Change the priority, weight, deadline, hours and retry rules of a campaign; without options,
    /// tell them
    #[command(after_help = help::JOB_SET)]
    Set(JobSetArgs),
    /// List the files that failed, and how each did
    #[command(after_help = help::JOB_REPORT)]
    Report(JobCampaignArgs),
    /// Name the site of hosts, and bound the movers that are there at a time; without a name, list
    /// the sites
    #[command(after_help = help::JOB_SITE)]
    Site(JobSiteArgs),
    /// Bound the movers and the rate of a link, give it hours, or close it; without options, tell
    /// the rules of links
    #[command(override_usage = "longhaul job link [OPTIONS] [LINK | FROM TO]")]
    #[command(after_help = help::JOB_LINK)]
    Link(JobLinkArgs),
    /// Move shards: the mover
    #[command(visible_alias = "mover")]
    #[command(after_help = help::JOB_RUN)]
    Run(JobRunArgs),
    /// Read back what a campaign has delivered to this host, and tell what is lost, changed or
    /// damaged
    #[command(after_help = help::JOB_VERIFY)]
    Verify(JobVerifyArgs),
}

/// The arguments that name a queue.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobQueueArgs {
    /// The queue: a file on a local disk, beside which manifests lie, or a database for many hosts,
    /// as postgres://USER@HOST/DATABASE [default: $XDG_STATE_HOME/longhaul/queue.db]
    #[arg(long, value_name = "PLACE")]
    pub queue: Option<OsString>,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments that name a campaign.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobCampaignArgs {
    /// The campaign, by its name or its number, or all of a family by the family's name
    #[arg(value_name = "CAMPAIGN")]
    pub campaign: String,
    /// The queue.
    #[command(flatten)]
    pub queue: JobQueueArgs,
}

/// The arguments of `job add`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobAddArgs {
    /// The campaign's name, which no other has; that of several, which are NAME/1, NAME/2 and so on
    /// [default: campaign- and 8 random digits]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// From 0 to 9; campaigns of a higher one go first [default: 5]
    #[arg(long, value_name = "N")]
    pub priority: Option<OsString>,
    /// Its share among campaigns of one priority, from 1 to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    pub weight: Option<OsString>,
    /// The time at which it should be done, as 2026-12-24T18:00:00Z, or from now, as 36h or 10d
    /// [default: none]
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<OsString>,
    /// When it may move, and how fast: 'in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s'
    /// [default: always]
    #[arg(long, value_name = "HOURS")]
    pub calendar: Option<OsString>,
    /// How often files with a fault are tried, as changed=5,not-found=2 [default: 3 where the fault
    /// may pass, else 1]
    #[arg(long, value_name = "RULES")]
    pub retry_rules: Option<OsString>,
    /// Tell a hook of movers' hosts of the campaign: KEY, or KEY:EVENT,EVENT with events of shard,
    /// campaign and fault; may be repeated [default: none, and campaign,fault]
    #[arg(long, value_name = "HOOK")]
    pub hook: Vec<OsString>,
    /// Files of a shard, at most [default: 10000]
    #[arg(long, value_name = "N")]
    pub shard_files: Option<OsString>,
    /// Bytes of a shard, at most; a larger file is one of its own [default: 1TiB, or ten minutes
    /// of a link whose rate is known]
    #[arg(long, value_name = "SIZE")]
    pub shard_bytes: Option<OsString>,
    /// The queue: a file on a local disk, beside which manifests lie, or a database for many hosts,
    /// as postgres://USER@HOST/DATABASE [default: $XDG_STATE_HOME/longhaul/queue.db]
    #[arg(long, value_name = "PLACE")]
    pub queue: Option<OsString>,
    /// Add one campaign or none: a family is refused, before anything is added
    #[arg(long, hide = true)]
    pub one: bool,
    /// The transfers.
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// The arguments of `job plan`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobPlanArgs {
    /// The campaign, by its name or its number, or all of a family; with --shards the directory
    /// that is listed, or lh://HOST[:PORT]/ROOT/PATH
    #[arg(value_name = "CAMPAIGN|SOURCE")]
    pub what: OsString,
    /// Write this many lists part-1 to part-N, for --files-from with --from0
    #[arg(long, value_name = "N", requires = "out")]
    pub shards: Option<OsString>,
    /// The directory of the lists and of the manifest that they are made of, which is made; one
    /// with anything in it is refused
    #[arg(long, short = 'o', value_name = "DIR", requires = "shards")]
    pub out: Option<OsString>,
    /// `--include` and `--exclude`, in the order given.
    #[command(flatten)]
    pub filters: FilterOptions,
    /// The queue.
    #[command(flatten)]
    pub queue: JobQueueArgs,
    /// Keys: our own, and those that are trusted.
    #[command(flatten)]
    pub keys: KeyOptions,
}

/// The arguments of `job wait`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobWaitArgs {
    /// Wait no longer than this: 90s, 10m, 2h, 1d; exit 5 then [default: for ever]
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<OsString>,
    /// The campaign.
    #[command(flatten)]
    pub campaign: JobCampaignArgs,
}

/// The arguments of `job watch`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobWatchArgs {
    /// The time between two tellings: 1s to 1d [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub every: Option<OsString>,
    /// The campaign.
    #[command(flatten)]
    pub campaign: JobCampaignArgs,
}

/// The arguments of `job retry`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobRetryArgs {
    /// Only files with this fault, by its name in EXIT-CODES.md [default: all]
    #[arg(long, value_name = "FAULT")]
    pub code: Option<String>,
    /// The campaign.
    #[command(flatten)]
    pub campaign: JobCampaignArgs,
}

/// The arguments of `job site`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobSiteArgs {
    /// The site: a name without a dot for several hosts, or a host as HOST[:PORT]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Have a host belong to the site, and to no other one: HOST[:PORT], or '.' for the hosts of
    /// movers; may be repeated
    #[arg(long, value_name = "HOST", requires = "name")]
    pub host: Vec<OsString>,
    /// Have a host belong to the site no more; may be repeated
    #[arg(long, value_name = "HOST", requires = "name")]
    pub drop: Vec<OsString>,
    /// Movers that may write to the site at a time, on all links together, 1 to 10000 [default: as
    /// before, and 64 of a new one]
    #[arg(long, value_name = "N", requires = "name")]
    pub movers_in: Option<OsString>,
    /// Movers that may read from the site at a time, likewise
    #[arg(long, value_name = "N", requires = "name")]
    pub movers_out: Option<OsString>,
    /// The queue.
    #[command(flatten)]
    pub queue: JobQueueArgs,
}

/// The arguments of `job set`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobSetArgs {
    /// From 0 to 9; campaigns of a higher one go first [default: as before]
    #[arg(long, value_name = "N")]
    pub priority: Option<OsString>,
    /// Its share among campaigns of one priority, from 1 to 1000 [default: as before]
    #[arg(long, value_name = "N")]
    pub weight: Option<OsString>,
    /// The time at which it should be done, as 2026-12-24T18:00:00Z, or from now, as 36h or 10d;
    /// 'none': it has none [default: as before]
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<OsString>,
    /// When it may move, and how fast: 'in Europe/Zurich: nights 8 Gbit/s, days 1 Gbit/s'; 'none':
    /// always [default: as before]
    #[arg(long, value_name = "HOURS")]
    pub calendar: Option<OsString>,
    /// How often files with a fault are tried, as changed=5,not-found=2, in place of all rules that
    /// it has; 'none': 3 where the fault may pass, else 1 [default: as before]
    #[arg(long, value_name = "RULES")]
    pub retry_rules: Option<OsString>,
    /// The campaign.
    #[command(flatten)]
    pub campaign: JobCampaignArgs,
}

/// The arguments of `job link`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobLinkArgs {
    /// The link, by its number; or the host that it is read from, as HOST[:PORT], or '.' for the
    /// hosts of movers
    #[arg(value_name = "LINK|FROM")]
    pub link: Option<OsString>,
    /// The host that it is written to, likewise
    #[arg(value_name = "TO", requires = "link")]
    pub to: Option<OsString>,
    /// Movers that may use it at a time, 1 to 10000 [default: as before, and 8 of a new one]
    #[arg(long, value_name = "N", requires = "link")]
    pub movers: Option<OsString>,
    /// Bytes or bits a second of all its movers together: 200MB/s, 1Gbit/s; 'none': no limit
    /// [default: as before]
    #[arg(long, value_name = "RATE", requires = "link")]
    pub rate: Option<OsString>,
    /// Its hours and maintenance windows: 'in UTC: 2026-12-01 06:00 to 2026-12-02 18:00 closed';
    /// 'none': always open [default: as before]
    #[arg(long, value_name = "HOURS", requires = "link")]
    pub calendar: Option<OsString>,
    /// Have it used, and forget its failures
    #[arg(long, requires = "link", conflicts_with_all = ["drain", "close"])]
    pub open: bool,
    /// Have movers finish the shards that they hold, and begin no other
    #[arg(long, requires = "link", conflicts_with = "close")]
    pub drain: bool,
    /// Have movers hand back the shards that they hold, and begin no other
    #[arg(long, requires = "link")]
    pub close: bool,
    /// The queue.
    #[command(flatten)]
    pub queue: JobQueueArgs,
}

/// The arguments of `job run`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobRunArgs {
    /// Serve only the links of this campaign, or of all of a family [default: all links]
    #[arg(value_name = "CAMPAIGN")]
    pub campaign: Option<String>,
    /// End once nothing is left that could be moved without a user
    #[arg(long)]
    pub drain: bool,
    /// End after this time and hand back what is being moved: 90s, 10m, 2h, 1d; exit 5 if something
    /// is left then [default: never]
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<OsString>,
    /// Shards that are moved at a time, 1 to 64 [default: 1]
    #[arg(long, value_name = "N")]
    pub movers: Option<OsString>,
    /// Buffers of each shard's transfer [default: as the campaign says]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<OsString>,
    /// Move campaigns of this owner too, by the public key that signed them; may be repeated
    /// [default: of a queue in a file, all owners; of one in a database, this user's own key]
    #[arg(long, value_name = "KEY")]
    pub owner: Vec<OsString>,
    /// Move the campaign of this name though nobody has signed it, as older versions added it: then
    /// whoever may write to the queue says what is moved; may be repeated [default: of a queue in a
    /// file without --owner, all campaigns]
    #[arg(long, value_name = "NAME")]
    pub allow_unsigned: Vec<String>,
    /// The file of this host's hooks [default: $XDG_CONFIG_HOME/longhaul/hooks.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub hooks: Option<PathBuf>,
    /// The queue.
    #[command(flatten)]
    pub queue: JobQueueArgs,
    /// Keys: our own, and those that are trusted.
    #[command(flatten)]
    pub keys: KeyOptions,
}

/// The arguments of `job verify` that have it copy bad files anew.
#[derive(Debug, Args)]
pub struct JobMendArgs {
    /// Copy lost and damaged files anew, each only if the copy has the digest that is recorded;
    /// what stood under its name is kept
    #[arg(long)]
    pub mend: bool,
    /// Copy bad files of these kinds anew, parted by commas: lost, damaged; implies --mend
    /// [default: lost,damaged]
    #[arg(long, value_name = "KINDS")]
    pub mend_kinds: Option<OsString>,
    /// Take copies from this directory, of this host or at a daemon, which has the names that DEST
    /// has; may be repeated: each is asked for what those before it did not give; implies --mend
    /// [default: the campaign's own sources]
    #[arg(long, value_name = "LOCATION")]
    pub mend_from: Vec<OsString>,
}

/// The arguments of `job verify`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct JobVerifyArgs {
    /// Read no faster than this, in bytes or bits a second: 200MB/s, 1Gbit/s [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub budget: Option<OsString>,
    /// Read each byte once in this time, 1h to 3650d: what was read later than that is not due
    /// [default: 90d]
    #[arg(long, value_name = "TIME")]
    pub cycle: Option<OsString>,
    /// End once nothing is due [default: wait for what comes to be due]
    #[arg(long)]
    pub once: bool,
    /// End after this time: 90s, 10m, 2h, 1d; the next run goes on there [default: never]
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<OsString>,
    /// Pass over files that have another length or time than they were delivered with: they were
    /// replaced on purpose
    #[arg(long)]
    pub ignore_changed: bool,
    /// Believe that files are lost, however many of a shard they are
    #[arg(long)]
    pub believe_losses: bool,
    /// The directory of this host that is the campaign's DEST, where DEST is written as a daemon's
    /// [default: the daemon reads the files]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// Buffers of the reading on this host [default: as of 'longhaul check']
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<OsString>,
    /// How bad files are copied anew.
    #[command(flatten)]
    pub mend: JobMendArgs,
    /// How a daemon that has the files and this user are known to each other [default: as the
    /// campaign says].
    #[command(flatten)]
    pub keys: KeyOptions,
    /// The campaign.
    #[command(flatten)]
    pub campaign: JobCampaignArgs,
}
