//! The arguments of the commands that look after a running daemon.
//!
//! The doc comments are the help texts. Knows no values and no defaults.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::TalkOptions;

/// The `admin` commands.
#[derive(Debug, Subcommand)]
pub enum AdminVerb {
    /// Tell how the daemon does: addresses, sessions, memory, rates, and whether it drains
    Status(AdminArgs),
    /// List the sessions that run
    Sessions(AdminArgs),
    /// List the clients that may connect
    Clients(AdminArgs),
    /// Have it read its configuration again: all of it, or nothing
    Reload(AdminArgs),
    /// Let no session begin, and those that run go on to their end
    Drain(AdminDrainArgs),
    /// Set the rate of all sessions, of a client or of a root, until the next reload
    SetRate(AdminSetRateArgs),
    /// End one session in order; its client may dial again
    Kick(AdminKickArgs),
    /// Know a client no more until the next reload, and end its sessions
    Revoke(AdminRevokeArgs),
}

/// The arguments that name a daemon of this host.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// The daemon's socket [default: the one that its config names]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<OsString>,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<OsString>,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `admin drain`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct AdminDrainArgs {
    /// End the sessions that still run after this time, in order: each can be gone on with; 0 ends
    /// them at once [default: they run to their end]
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<OsString>,
    /// Let sessions begin again
    #[arg(long, conflicts_with = "deadline")]
    pub end: bool,
    /// The daemon.
    #[command(flatten)]
    pub daemon: AdminArgs,
}

/// The arguments of `admin set-rate`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct AdminSetRateArgs {
    /// The rate, as 9.4Gbit/s or 250MB/s, at least 64KiB/s; or `none`
    #[arg(value_name = "RATE")]
    pub rate: OsString,
    /// Set that of the sessions of this client together
    #[arg(long, value_name = "NAME", conflicts_with = "root")]
    pub client: Option<String>,
    /// Set that of the sessions on this root together
    #[arg(long, value_name = "NAME")]
    pub root: Option<String>,
    /// The daemon.
    #[command(flatten)]
    pub daemon: AdminArgs,
}

/// The arguments of `admin kick`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct AdminKickArgs {
    /// The session, as `longhaul admin sessions` names it
    #[arg(value_name = "SESSION")]
    pub session: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: AdminArgs,
}

/// The arguments of `admin revoke`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct AdminRevokeArgs {
    /// The client, as the config names it
    #[arg(value_name = "CLIENT")]
    pub client: String,
    /// The daemon.
    #[command(flatten)]
    pub daemon: AdminArgs,
}
