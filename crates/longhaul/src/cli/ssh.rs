//! The options of locations to which ssh leads, and their help.
//!
//! In: the process's arguments. Out: unparsed texts to `settings`. Knows no defaults and starts
//! nothing.

use std::ffi::OsString;

use clap::Args;

/// How a host is reached by ssh.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ssh")]
pub struct SshOptions {
    /// The command that leads to HOST of HOST:PATH, with its options: 'ssh -p 2222' [default: ssh]
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    pub ssh: Option<OsString>,
    /// Where longhaul is at that host [default: longhaul, as its shell finds it]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub remote_longhaul: Option<OsString>,
    /// Put this very program there if it is not there yet: into a directory of its own beneath
    /// ~/.cache/longhaul, checked before each start
    #[arg(long, hide_short_help = true, conflicts_with = "remote_longhaul")]
    pub install: bool,
    /// Ports of which one is listened at for lanes beside ssh, at either host: LOW-HIGH [default:
    /// any free one]
    #[arg(long, value_name = "LOW-HIGH", hide_short_help = true)]
    pub port_range: Option<OsString>,
}
