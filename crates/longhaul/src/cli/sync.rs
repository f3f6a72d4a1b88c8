//! The arguments of `sync`.
//!
//! In: arguments. Out: plain structs of unparsed texts to `commands`. Knows no values and no
//! defaults.

use std::ffi::OsString;

use clap::Args;

use super::TransferArgs;

/// The arguments of `sync`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct SyncArgs {
    /// The rule of the comparison, and the steps about names that DEST alone has.
    #[command(flatten)]
    pub rule: SyncOptions,
    /// All that a transfer takes.
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// The rule by which two trees are compared, and the steps about names that only DEST has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sync")]
pub struct SyncOptions {
    /// How a file is told from the one of its name at DEST: metadata, its size and time; digest, of
    /// files of one size the content, which is read at both ends; manifest, by the two lists of
    /// --manifests, where only names on which they differ are looked at [default: metadata]
    #[arg(long, value_name = "HOW")]
    pub compare: Option<OsString>,
    /// The sealed manifest of SOURCE and that of DEST, for --compare manifest
    #[arg(long, value_names = ["OF_SOURCE", "OF_DEST"], num_args = 2)]
    pub manifests: Vec<OsString>,
    /// plan: move no data, and list what stands at DEST and not at SOURCE; apply, with the digest
    /// of such a plan behind DEST: move those names away, to a directory on the same file system. A
    /// daemon does so for who has the right 'delete' there
    #[arg(long, value_name = "STEP")]
    pub delete: Option<OsString>,
    /// Where the plan is written, or read [default: $XDG_STATE_HOME/longhaul/sync/DIGEST.plan]
    #[arg(long, value_name = "FILE", requires = "delete")]
    pub plan: Option<OsString>,
    /// Plan up to so many files [default: a tenth of those at DEST]
    #[arg(long, value_name = "N", requires = "delete")]
    pub max_delete: Option<OsString>,
}
