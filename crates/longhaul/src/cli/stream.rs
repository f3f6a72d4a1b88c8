//! The options of a source or a destination that is one stream of bytes.
//!
//! In: the process's arguments, through `cli`. Out: unparsed texts to `settings`. Knows no values.

use std::ffi::OsString;

use clap::Args;

/// SOURCE or DEST as one stream of bytes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stream")]
pub struct StreamOptions {
    /// Where DEST is `-` (standard output) or a device: write a tar archive, of any number of files
    /// and directories; without it DEST takes the bytes of one file
    #[arg(long)]
    pub tar: bool,
    /// Write into the device or fifo that DEST names, as into standard output where DEST is `-`
    #[arg(long, hide_short_help = true)]
    pub to_device: bool,
    /// Write a stream in blocks of this size, 64KiB to 16MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub block_size: Option<OsString>,
    /// Fill the last block of a stream up with zeros
    #[arg(long, hide_short_help = true)]
    pub pad_last: bool,
    /// Fill so much of the buffers before the first block of a stream leaves, and again after each
    /// under-run: a size, or 1% to 100% [default: none]
    #[arg(long, value_name = "SIZE|PERCENT", hide_short_help = true)]
    pub prefill: Option<OsString>,
    /// Send what CMD writes to its standard output as one file, instead of a SOURCE: `sh -c` runs
    /// it. If it does not end with exit code 0, nothing is committed; of a pipeline only the last
    /// command counts, unless `bash -o pipefail -c '...'` runs it. No variable and no key sets
    /// this, --expect-bytes or --expect-b3
    #[arg(long, value_name = "CMD")]
    pub from_command: Option<OsString>,
    /// Commit a stream that is read (SOURCE is `-`, or --from-command) only if it has this length,
    /// else exit 6
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub expect_bytes: Option<OsString>,
    /// Commit it only if it has this BLAKE3 digest, 64 hex digits as b3sum prints them, else exit 6
    #[arg(long, value_name = "HEX", hide_short_help = true)]
    pub expect_b3: Option<OsString>,
}
