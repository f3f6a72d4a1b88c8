//! The arguments of the `manifest` commands.
//!
//! In: arguments. Out: plain structs of unparsed texts to `commands`. Knows no values and no
//! defaults.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::filter::FilterOptions;
use super::help;
use super::{KeyOptions, TalkOptions};

/// The `manifest` commands.
#[derive(Debug, Subcommand)]
pub enum ManifestVerb {
    /// List a directory of this host, or one at a daemon, as a sealed manifest; go on where an
    /// earlier run was stopped
    #[command(mut_arg("include", |arg| arg.help("List what matches; of all --include and --exclude the first match decides")))]
    #[command(after_help = help::MANIFEST_MAKE)]
    Make(ManifestMakeArgs),
    /// Print what a sealed manifest says: its digest and sums, or all that is in it
    Show(ManifestShowArgs),
    /// Compare two sealed manifests: tell what the second has more, less, or otherwise
    #[command(mut_arg("quiet", |arg| arg.help("Tell differences and failures only, no sums")))]
    #[command(mut_arg("verbose", |arg| arg.help("Tell what is the same too; twice: what happens inside")))]
    #[command(after_help = help::MANIFEST_DIFF)]
    Diff(ManifestDiffArgs),
    /// Compare a storage with its catalogue: tell files that are lost, and dark ones that no
    /// catalogue has
    #[command(mut_arg("quiet", |arg| arg.help("Tell findings and failures only, no sums")))]
    #[command(after_help = help::MANIFEST_CONSISTENCY)]
    Consistency(ManifestConsistencyArgs),
    /// Make one sealed manifest of several: names that two have are united, unless they contradict
    /// each other
    Merge(ManifestMergeArgs),
    /// Make a sealed manifest of lists of other programs, in any order and of any length
    #[command(after_help = help::MANIFEST_IMPORT)]
    Import(ManifestImportArgs),
}

/// The arguments of `manifest make`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ManifestMakeArgs {
    /// The directory whose content is listed: DIR, or lh://HOST[:PORT]/ROOT/PATH, of which names,
    /// lengths and times are listed
    #[arg(value_name = "DIR|LOCATION")]
    pub dir: OsString,
    /// The directory of the manifest, which is made; if it lies in DIR, it is left out of the list
    #[arg(long, short = 'o', value_name = "OUT")]
    pub out: OsString,
    /// Checksums that each file is to have: of b3,sha256,md5,adler32,crc32c, or none, which reads
    /// no file [default: none]
    #[arg(long, value_name = "LIST")]
    pub checksum: Option<OsString>,
    /// Believe the checksums that a transfer kept with a file (--extra-checksum), or in this user's
    /// catalogue, if its length and time are those of then, and compute only the others: whoever
    /// may write to the file may have written them
    #[arg(long)]
    pub kept_checksums: bool,
    /// With --kept-checksums look in the catalogue of a daemon too: DIR is its `state` [default:
    /// that of this user alone]
    #[arg(long, value_name = "DIR", requires = "kept_checksums")]
    pub kept_in: Option<OsString>,
    /// Threads that list and read [default: 4 for each CPU, 64 at most]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub threads: Option<OsString>,
    /// `--include` and `--exclude`, in the order given.
    #[command(flatten)]
    pub filters: FilterOptions,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
    /// Keys: our own, and those that are trusted.
    #[command(flatten)]
    pub keys: KeyOptions,
}

/// The arguments of `manifest show`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ManifestShowArgs {
    /// The manifest: its directory, or its head in it
    #[arg(value_name = "MANIFEST")]
    pub manifest: OsString,
    /// Each name, a line, with its length and time; with --json with all that is known of it
    #[arg(long, short = 'l')]
    pub list: bool,
    /// A line for each file that has this checksum, as b3sum and md5sum print and check them: b3,
    /// sha256, md5, adler32, crc32c, sha1 or sha512
    #[arg(long, value_name = "CHECKSUM", conflicts_with = "list")]
    pub sums: Option<OsString>,
    /// Read all segments and tell whether they are whole
    #[arg(long)]
    pub check: bool,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `manifest diff`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ManifestDiffArgs {
    /// The first manifest, such as that of the source, or an earlier one
    #[arg(value_name = "A")]
    pub one: OsString,
    /// The second manifest
    #[arg(value_name = "B")]
    pub other: OsString,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `manifest consistency`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ManifestConsistencyArgs {
    /// The catalogue before the storage was listed: a sealed manifest, or a list with a path in
    /// each line
    #[arg(value_name = "BEFORE")]
    pub before: OsString,
    /// The list of the storage
    #[arg(value_name = "STORAGE")]
    pub storage: OsString,
    /// The catalogue after the storage was listed
    #[arg(value_name = "AFTER")]
    pub after: OsString,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `manifest merge`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ManifestMergeArgs {
    /// The manifests
    #[arg(value_name = "MANIFEST", required = true, num_args = 1..)]
    pub manifests: Vec<OsString>,
    /// The directory of the new manifest, which is made
    #[arg(long, short = 'o', value_name = "OUT")]
    pub out: OsString,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}

/// The arguments of `manifest import`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ManifestImportArgs {
    /// The lists, which may say different things of one name; `-` is standard input
    #[arg(value_name = "LIST", required = true, num_args = 1..)]
    pub lists: Vec<OsString>,
    /// The form of the lists: a checksum, for lines as b3sum, md5sum or xrdadler32 print them (b3,
    /// sha256, md5, adler32, crc32c, sha1, sha512); bagit, for a bag or one of its
    /// manifest-ALGORITHM.txt; rucio, for JSON lines with scope, name, bytes, adler32 and md5;
    /// paths, for a path in each line
    #[arg(long, value_name = "FORM")]
    pub format: OsString,
    /// The directory of the manifest, which is made
    #[arg(long, short = 'o', value_name = "OUT")]
    pub out: OsString,
    /// How much is said.
    #[command(flatten)]
    pub talk: TalkOptions,
}
