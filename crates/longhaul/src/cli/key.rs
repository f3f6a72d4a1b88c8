//! The arguments of the commands that list clients of a config and take them out.
//!
//! The doc comments are the help texts. Knows no values and no defaults.

use std::ffi::OsString;

use clap::Args;

/// The arguments of `key list`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct KeyListArgs {
    /// Events on standard output, one JSON object a line, `summary` last
    #[arg(long)]
    pub json: bool,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<OsString>,
}

/// The arguments of `key revoke`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct KeyRevokeArgs {
    /// The client: its public key, or its name in the config
    #[arg(value_name = "KEY|NAME")]
    pub client: String,
    /// The daemon's config [default: /etc/longhaul/serve.toml, else
    /// $XDG_CONFIG_HOME/longhaul/serve.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<OsString>,
}
