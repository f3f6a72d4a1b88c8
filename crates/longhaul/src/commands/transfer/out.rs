//! The destination of a transfer on this host: a path, or one stream of bytes.
//!
//! In: the last location as it was written, and the options of streams. Out: the destination of a
//! job. Owns the rules of what a stream goes together with. Opens nothing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use longhaul_core::Escaped;
use longhaul_engine::{JobDestination, LocalDest, StreamDest, StreamForm, StreamPlace, TargetDirs, Verify};

use super::Far;
use crate::destination::Destination;
use crate::error::Error;
use crate::location::{LocalPath, Location};
use crate::settings::{StreamSettings, Talk, TransferSettings};

/// A destination on this host.
#[derive(Clone, Debug)]
pub(super) enum Here {
    /// A path.
    Path(LocalPath),
    /// A stream.
    Stream(StreamDest),
}

/// The destination of a transfer, wherever it is. `-` is standard output, and a path is a device
/// only if that is said: else a file would be meant for a name where a device stands by mistake.
pub(super) enum To {
    /// This host.
    Here(Here),
    /// Another host.
    Far(Far),
}

impl To {
    /// Reads the last location.
    pub(super) fn parse(text: &OsString, stream: StreamSettings) -> Result<To, Error> {
        let StreamSettings { shape, to_device } = stream;
        let out = |place| Ok(To::Here(Here::Stream(StreamDest { place, shape })));
        let wrong = |why, hint| Err(Error::Combination { why, hint });
        match Location::parse(text)? {
            Location::Local(_) if text == STDOUT && to_device => {
                wrong("--to-device wants the path of a device, but DEST is '-'", "leave one of them out")
            }
            Location::Local(_) if text == STDOUT => out(StreamPlace::Stdout),
            Location::Local(path) if to_device => out(StreamPlace::Device(path.path)),
            Location::Daemon(_) | Location::Ssh(_) if to_device => {
                wrong("--to-device wants the path of a device of this host", "leave it out")
            }
            _ if shape.form == StreamForm::Tar => wrong(
                "--tar writes an archive to '-' or to a device, but DEST is a directory or a file",
                "write '-' as DEST and send standard output to a file, or leave --tar out",
            ),
            location => Ok(match Far::of(location, text.as_encoded_bytes())? {
                Err(path) => To::Here(Here::Path(path)),
                Ok(far) => To::Far(far),
            }),
        }
    }
}

impl Here {
    /// Its name, for people.
    pub(super) fn destination(&self) -> Destination {
        match self {
            Here::Path(path) => Destination::local(path),
            Here::Stream(StreamDest { place: StreamPlace::Stdout, .. }) => Destination::stream("standard output"),
            Here::Stream(StreamDest { place: StreamPlace::Device(path), .. }) => {
                Destination::stream(Escaped(path.as_os_str().as_bytes()))
            }
        }
    }

    /// The same for the engine.
    pub(super) fn job(self, targets: Option<TargetDirs>) -> JobDestination {
        match self {
            Here::Path(LocalPath { path, slash }) => {
                JobDestination::Local(LocalDest { slash, targets, ..LocalDest::directory(path) })
            }
            Here::Stream(dest) => JobDestination::Stream(dest),
        }
    }

    /// Refuses what does not go together with a stream, before anything is opened.
    pub(super) fn check(&self, sources: usize, settings: &TransferSettings, talk: Talk) -> Result<(), Error> {
        let Here::Stream(StreamDest { place, shape }) = self else { return Ok(()) };
        let wrong = |why, hint| Err(Error::Combination { why, hint });
        if sources > 1 && shape.form == StreamForm::Plain {
            return wrong("several sources do not go into one stream", "give --tar, which writes them as an archive");
        }
        if settings.targets.is_some() {
            return wrong("--target spreads files over disks, and a stream is none", "leave it out");
        }
        if settings.engine.verify == Verify::Disk {
            return wrong("--verify disk reads back what was written, which a stream does not let", "leave it out");
        }
        if !settings.engine.metadata.preserve.sums.in_order().is_empty() {
            let why = "md5 and sha256 need what was written to be read once more, which a stream does not let";
            return wrong(why, "leave them out of --extra-checksum, or pipe the stream through tee and md5sum");
        }
        let to_stdout = *place == StreamPlace::Stdout && !settings.engine.dry_run;
        if talk.json && to_stdout {
            let hint = "leave --json out, or name a device with --to-device";
            return wrong("--json and the stream both want standard output", hint);
        }
        if to_stdout && settings.manifest.as_ref().is_some_and(|path| path.as_os_str() == STDOUT) {
            return wrong("--manifest and the stream both want standard output", "give --manifest a file");
        }
        Ok(())
    }

    /// Whether it is a stream.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Here::Stream(_))
    }
}

/// The location that means standard output.
const STDOUT: &str = "-";
