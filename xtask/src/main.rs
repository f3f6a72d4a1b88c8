//! Chores of the workspace that are more than a line of shell, run as `cargo xtask NAME`.

#![allow(clippy::disallowed_methods, reason = "chores handle files of their own")]

mod cuts;
mod deb;
mod dist;
mod fleet;
mod handshakes;
mod kills;
#[path = "../../benches/kit/mod.rs"]
mod kit;
mod long;
mod medium;
mod paths;
mod peers;
mod sim;
#[path = "../../benches/kit/sniff.rs"]
mod sniff;
mod ssh;
mod swaps;

use anyhow::Result;
use clap::Parser;

/// Chores of the longhaul workspace
#[derive(Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
enum Xtask {
    /// Cut the power of a disk in mid-transfer at random moments, and see that what was committed
    /// is on it (needs root)
    Cuts(cuts::CutsArgs),
    /// Build the Debian package of the program, with units for its daemon, pages and completions
    Deb(deb::DebArgs),
    /// Build the program as it is handed out: stripped, with its debug information in a file beside
    /// it
    Dist,
    /// Kill movers of a queue in PostgreSQL again and again, and its server once, or those of a
    /// queue in a file, and see that each file is moved once
    Fleet(fleet::FleetArgs),
    /// Look at the packets of each transport's handshakes over an emulated path, and print their
    /// round trips (needs root)
    Handshakes(handshakes::HandshakesArgs),
    /// Kill real clients and daemons in mid-transfer at random moments, and see that what they
    /// promised is kept
    Kills(kills::KillsArgs),
    /// Play everything that is played from seeds for long: simulated worlds, media, power cuts,
    /// kills, fuzz targets, exchanges of names, runs over ssh, outages and
    /// others on a path
    Long(long::LongArgs),
    /// Run the engine on media that lose, tear and fail, a seed each, and print what broke a
    /// promise
    Medium(medium::MediumArgs),
    /// Cut lanes over UDP off for 3 and for 25 s in mid-transfer, and have sessions of each
    /// transport meet others on a path, for which the gate has no time (needs root)
    Paths,
    /// Install rsync, xrootd and GridFTP, move the same data by each, by cp and by longhaul; print
    /// the README's table
    Peers(peers::PeersArgs),
    /// Play both machines in simulated worlds, a seed each, and print what led to the first broken
    /// promise
    Sim(sim::SimArgs),
    /// Run longhaul over ssh again and again, and see that nothing is left behind (needs root)
    Ssh(ssh::SshArgs),
    /// Exchange directories with links that lead out of a root while a daemon works beneath them
    Swaps(swaps::SwapsArgs),
}

fn main() -> Result<()> {
    match Xtask::parse() {
        Xtask::Cuts(args) => cuts::run(&args),
        Xtask::Deb(args) => deb::run(&args),
        Xtask::Dist => dist::run(),
        Xtask::Fleet(args) => fleet::run(&args),
        Xtask::Handshakes(args) => handshakes::run(&args),
        Xtask::Kills(args) => kills::run(&args),
        Xtask::Long(args) => long::run(&args),
        Xtask::Medium(args) => medium::run(&args),
        Xtask::Paths => paths::run(),
        Xtask::Peers(args) => peers::run(&args),
        Xtask::Sim(args) => sim::run(&args),
        Xtask::Ssh(args) => ssh::run(&args),
        Xtask::Swaps(args) => swaps::run(&args),
    }
}
