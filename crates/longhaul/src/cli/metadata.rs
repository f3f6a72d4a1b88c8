//! The options of metadata: what is carried over beside the bytes of files, and kept with them.
//!
//! In: arguments. Out: unparsed texts. Knows no values and no defaults.

use std::ffi::OsString;

use clap::Args;

/// The metadata and checksums beside the bytes.
#[derive(Debug, Args)]
#[command(next_help_heading = "What is sent")]
pub struct MetadataOptions {
    /// Metadata to carry: of mode,times,links,hardlinks,sparse,xattrs,owner,acls; a list replaces
    /// the default, +x and -x change it; all, none [default: mode,times,links,sparse]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub preserve: Option<OsString>,
    /// Compute these checksums too of what is received, tell them with each file and keep them with
    /// it in an extended attribute: of adler32,crc32c, and of md5,sha256, for which the receiver
    /// reads files that come in chunks (usually above 256 KiB) once more [default: none]
    #[arg(long, value_name = "LIST")]
    pub extra_checksum: Option<OsString>,
    /// Users of owners and access lists, as FROM:TO,... or a file of such lines: names, numbers, or
    /// * for any other [default: the same name, or else the same number]
    #[arg(long, value_name = "RULES", hide_short_help = true)]
    pub map_user: Option<OsString>,
    /// The same for groups
    #[arg(long, value_name = "RULES", hide_short_help = true)]
    pub map_group: Option<OsString>,
    /// Carry owners and access lists over by their numbers, whatever their names
    #[arg(long, hide_short_help = true)]
    pub numeric_ids: bool,
}
