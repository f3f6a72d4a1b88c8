//! The options of a stream with their types.
//!
//! In: unparsed texts from `cli`, variables, the loaded `config.toml`. Out: [`StreamSettings`] to
//! `commands`. Whether there is a stream at all is decided by the locations, and not here.

use std::ffi::OsString;

use longhaul_core::digest::Hash32;
use longhaul_core::{ByteCount, Preserve};
use longhaul_engine::{LastBlock, StreamForm, StreamShape};

use super::Layers;
use crate::cli::StreamOptions;
use crate::error::Error;
use crate::values;

/// The form of a stream, if the destination is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSettings {
    /// The content and its blocks.
    pub shape: StreamShape,
    /// Whether a path names a device or fifo to write into.
    pub to_device: bool,
}

/// The source of a transfer, if it is a stream, and what proves the end of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputSettings {
    /// The command whose output is sent. `None`: sources are named.
    pub command: Option<OsString>,
    /// The length that the stream must have.
    pub expect_bytes: Option<u64>,
    /// The root that it must have.
    pub expect_root: Option<Hash32>,
}

/// Merges the options of a stream that is read.
pub(super) fn input(args: &StreamOptions, layers: &Layers) -> Result<InputSettings, Error> {
    let expect_bytes = layers.parsed("expect-bytes", &args.expect_bytes, values::size)?;
    Ok(InputSettings {
        command: layers.given("from-command", &args.from_command).map(|given| given.text),
        expect_bytes: expect_bytes.map(ByteCount::get),
        expect_root: layers.parsed("expect-b3", &args.expect_b3, values::root)?,
    })
}

/// Merges the options of a stream.
pub(super) fn stream(args: &StreamOptions, preserve: Preserve, layers: &Layers) -> Result<StreamSettings, Error> {
    let default = StreamShape::default();
    let is_padded = layers.switch("pad-last", args.pad_last)?;
    let shape = StreamShape {
        form: if layers.switch("tar", args.tar)? { StreamForm::Tar } else { StreamForm::Plain },
        block_bytes: layers.parsed("block-size", &args.block_size, values::block_size)?.unwrap_or(default.block_bytes),
        last: if is_padded { LastBlock::Padded } else { LastBlock::Short },
        prefill: layers.parsed("prefill", &args.prefill, values::prefill)?.unwrap_or_default(),
        preserve,
    };
    Ok(StreamSettings { shape, to_device: layers.switch("to-device", args.to_device)? })
}
