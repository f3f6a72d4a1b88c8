//! The arguments of `check`.
//!
//! In: arguments. Out: plain structs of unparsed texts to `commands`. Knows no values and no
//! defaults.

use std::ffi::OsString;

use clap::Args;

use super::{BufferOptions, DeviceOptions, KeyOptions, TalkOptions};

/// The arguments of `check`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct CheckArgs {
    /// A list of digests and names as --manifest and b3sum write it; `-` is standard input
    #[arg(value_name = "MANIFEST")]
    pub manifest: OsString,
    /// The directory in which the names lie, here or at a daemon (lh://HOST/ROOT/PATH); files in it
    /// that the list does not have are told too [default: the current one, and other files are not
    /// looked for]
    #[arg(value_name = "DIR|LOCATION")]
    pub dir: Option<OsString>,
    /// How the daemon and this user are known to each other.
    #[command(flatten)]
    pub keys: KeyOptions,
    /// The memory that it takes.
    #[command(flatten)]
    pub buffers: BufferOptions,
    /// How disks are read.
    #[command(flatten)]
    pub devices: DeviceOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}
