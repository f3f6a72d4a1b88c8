//! The arguments of target sets: the targets of a local destination, and the `set` commands.
//!
//! The doc comments are the help texts. Knows no values and no defaults.

use std::ffi::OsString;

use clap::{ArgAction, Args, Subcommand};

use super::{TalkOptions, TransferArgs};

/// The targets of a destination on this host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Disk")]
pub struct TargetOptions {
    /// Spread a destination on this host over several disks: a directory on one of them; repeat it
    /// for each. DEST is then a path beneath all of them, `.` their top
    #[arg(long, value_name = "DIR", action = ArgAction::Append)]
    pub target: Vec<OsString>,
    /// The layout over several targets: spread, whole files, each to the target that will have it
    /// soonest; or stripe, the chunks of each large file over all of them [default: spread]
    #[arg(long, value_name = "LAYOUT", hide_short_help = true)]
    pub layout: Option<OsString>,
    /// With the layout stripe: the length from which files are striped, at least 1MiB [default:
    /// 64MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub stripe_from: Option<OsString>,
    /// While a target is missing: refuse, readonly (unfinished files may finish, no new name
    /// comes), or continue as if it held nothing [default: readonly]
    #[arg(long, value_name = "RULE", hide_short_help = true)]
    pub on_missing: Option<OsString>,
    /// Let targets lie on one file system, where they are no faster than one
    #[arg(long, hide_short_help = true)]
    pub allow_same_device: bool,
}

/// The `set` commands.
#[derive(Debug, Subcommand)]
pub enum SetVerb {
    /// Make a target set of several directories on different disks
    Init(SetInitArgs),
    /// Add an empty directory on another disk to a set, as its last target
    Add(SetAddArgs),
    /// Put an empty directory on another disk in the place of a target that fails or is lost
    Replace(SetReplaceArgs),
    /// Write down that targets are mounted elsewhere now
    Mv(SetMvArgs),
    /// Take the last target from a set, once it is empty
    Rm(SetRmArgs),
    /// List the files of a set, each with its target, and how full the targets are
    Ls(SetArgs),
    /// Look for names that stand on two targets, targets and parts of striped files that are
    /// missing, and orphans; changes nothing
    Check(SetArgs),
    /// Read every chunk of the striped files and compare it with its digest, on all disks at once;
    /// go on where an earlier run was stopped
    Verify(SetVerifyArgs),
    /// Find striped files whose stripe files were lost, and make those again from their bodies
    Rebuild(SetDeedArgs),
    /// Tell orphans, the bodies that no striped file needs, and remove them if that is asked for
    Collect(SetDeedArgs),
    /// Move files and chunks until the targets are about equally full, or one is empty
    Rebalance(SetRebalanceArgs),
    /// Copy files of a set to plain files, to a stream or to a daemon
    Export(Box<SetExportArgs>),
}

/// The arguments of `set init`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetInitArgs {
    /// The directories, in the order of their numbers; the first one may be a tree that stands
    #[arg(value_name = "DIR", required = true, num_args = 2..)]
    pub dirs: Vec<OsString>,
    /// The layout: spread, whole files, each to the target that will have it soonest; or stripe,
    /// the chunks of each large file over all of them [default: spread]
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<OsString>,
    /// Let targets lie on one file system, where they are no faster than one
    #[arg(long)]
    pub allow_same_device: bool,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `set add`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetAddArgs {
    /// The set: one of its targets, whose mark says where the others are
    #[arg(long, value_name = "DIR", required_unless_present = "root")]
    pub set: Option<OsString>,
    /// The set that is this root of the daemon's config
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub root: Option<String>,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE", requires = "root")]
    pub config: Option<OsString>,
    /// The new target: an empty directory on another disk
    #[arg(value_name = "NEW")]
    pub new: OsString,
    /// Let it lie on the file system of another target
    #[arg(long)]
    pub allow_same_device: bool,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `set replace`.
#[derive(Debug, Args)]
#[command(args_override_self = true, group = clap::ArgGroup::new("deed").required(true).args(["plan", "apply"]))]
pub struct SetReplaceArgs {
    /// The target, as its set knows it, or where it is
    #[arg(value_name = "OLD")]
    pub old: OsString,
    /// The directory that takes its place: an empty one on another disk
    #[arg(value_name = "NEW")]
    pub new: OsString,
    /// Tell what would be copied, or what is lost
    #[arg(long)]
    pub plan: bool,
    /// Do it; the same command goes on where it was interrupted
    #[arg(long)]
    pub apply: bool,
    /// Replace OLD even if some of it cannot be copied, which is given up
    #[arg(long, conflicts_with = "lost")]
    pub give_up_unreadable: bool,
    /// OLD cannot be read at all: nothing is copied, and the striped files are told that had a part
    /// there. It needs --set or --root
    #[arg(long)]
    pub lost: bool,
    /// The set: another one of its targets, whose mark says where the others are
    #[arg(long, value_name = "DIR")]
    pub set: Option<OsString>,
    /// The set that is this root of the daemon's config
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub root: Option<String>,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE", requires = "root")]
    pub config: Option<OsString>,
    /// Copy at most so much per second [default: as fast as the disks are]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<OsString>,
    /// Let NEW lie on the file system of another target
    #[arg(long)]
    pub allow_same_device: bool,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `set mv`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetMvArgs {
    /// Where the set knows a target, and where it is mounted now. Name all targets that have moved,
    /// each with both places
    #[arg(value_names = ["OLD", "NEW"], required = true, num_args = 2..)]
    pub places: Vec<OsString>,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `set rm`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetRmArgs {
    /// The target: the last one of its set, which holds nothing any more
    #[arg(value_name = "DIR")]
    pub dir: OsString,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `set export`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetExportArgs {
    /// The set that SOURCE lies in: one of its targets, whose mark says where the others are
    #[arg(long, value_name = "DIR", required_unless_present = "root")]
    pub set: Option<OsString>,
    /// The set that is this root of the daemon's config
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    pub root: Option<String>,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE", requires = "root")]
    pub config: Option<OsString>,
    /// The transfer, whose sources are paths beneath the set.
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// The arguments of `set verify`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetVerifyArgs {
    /// Read at most so much per second, over all disks [default: as fast as they are]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<OsString>,
    /// Begin anew, if an earlier run was stopped
    #[arg(long)]
    pub restart: bool,
    /// The set.
    #[command(flatten)]
    pub set: SetArgs,
}

/// The arguments of commands that tell what they would do before they do it.
#[derive(Debug, Args)]
#[command(args_override_self = true, group = clap::ArgGroup::new("deed").required(true).args(["plan", "apply"]))]
pub struct SetDeedArgs {
    /// Tell what would be done
    #[arg(long)]
    pub plan: bool,
    /// Do it, unless a target is missing or a name cannot be looked at
    #[arg(long)]
    pub apply: bool,
    /// The set.
    #[command(flatten)]
    pub set: SetArgs,
}

/// The arguments of `set rebalance`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetRebalanceArgs {
    /// Move all that lies on this target to the others, and nothing else
    #[arg(long, value_name = "TARGET")]
    pub drain: Option<OsString>,
    /// Copy at most so much per second [default: as fast as the disks are]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<OsString>,
    /// The set, and whether it is done.
    #[command(flatten)]
    pub deed: SetDeedArgs,
}

/// The arguments that name a set.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SetArgs {
    /// A target of the set: its mark says where the others are. Or all of them, in their order
    #[arg(value_name = "DIR", num_args = 1.., required_unless_present = "root")]
    pub dirs: Vec<OsString>,
    /// The set that is this root of the daemon's config
    #[arg(long, value_name = "NAME", conflicts_with = "dirs")]
    pub root: Option<String>,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE", requires = "root")]
    pub config: Option<OsString>,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}
