//! The arguments of `serve`, and their help.
//!
//! In: the process's arguments. Out: unparsed texts to `commands`. Knows no defaults and serves
//! nothing.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use super::TalkOptions;

/// The arguments of `serve`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ServeArgs {
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<OsString>,
    /// Offer DIR as NAME to every client in the config; rights of read,create,modify,delete
    /// [default: read]
    #[arg(long, value_name = "NAME=DIR[:RIGHTS]", action = ArgAction::Append)]
    pub root: Vec<OsString>,
    /// Listen there for 'longhaul admin' [default: admin_socket of the config, else admin.sock in
    /// its state]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<OsString>,
    /// Read the config, say what is wrong with it, serve nothing
    #[arg(long)]
    pub check_config: bool,
    /// Serve the one client behind standard input and output, to which ssh has led it, and end with
    /// it; with DIR nothing but that directory: for the forced command of a key in authorized_keys
    /// [default rights: read]
    #[arg(long, value_name = "DIR[:RIGHTS]", num_args = 0..=1)]
    #[arg(conflicts_with_all = ["config", "root", "check_config"])]
    pub ssh_only: Option<Option<OsString>>,
    /// The first bytes of that client, which come through standard input too.
    #[arg(long, value_name = "HEX", requires = "ssh_only", hide = true)]
    pub ahead: Option<OsString>,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}
