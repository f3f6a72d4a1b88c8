//! Opens the file of the audit log, and looks whether anybody else could write or read it.
//!
//! In: a path. Out: the file, open for appending, its last line ended. No link is followed to it.
//! It writes nothing but that end.

#![allow(clippy::disallowed_methods, reason = "it opens the operator's own log file")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::config::check_strictly;
use crate::error::Error;

/// Opens the file, and makes it with mode 0600 if there is none.
///
/// # Errors
/// [`Error::Exposed`] if others may write to the file or to a directory above it; [`Error::File`]
/// if it cannot be opened, or is no file of this user alone.
pub(super) fn open(path: &Path) -> Result<File, Error> {
    check_strictly(path)?;
    let opened = |error| Error::file("open the audit log", path)(error);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32);
    let mut file = options.open(path).map_err(opened)?;
    let found = file.metadata().map_err(opened)?;
    let why = match () {
        () if !found.is_file() => Some("it is no regular file"),
        () if found.uid() != geteuid().as_raw() => Some("it belongs to another user"),
        () if found.mode() & OTHERS != 0 => Some("others may read it, or its group may write it (chmod 600)"),
        () if found.nlink() != 1 => Some("it has another name as well"),
        () => None,
    };
    if let Some(why) = why {
        return Err(opened(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    end_line(&mut file, found.len()).map_err(opened)?;
    Ok(file)
}

/// Looks whether the file could be opened. Makes nothing.
///
/// # Errors
/// The error of opening it.
pub fn check(path: &Path) -> Result<(), Error> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => open(path).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_strictly(path),
        Err(error) => Err(Error::file("examine", path)(error)),
    }
}

/// Ends the last line, if a crash left a part of one.
fn end_line(file: &mut File, len: u64) -> io::Result<()> {
    let mut last = [b'\n'];
    if len > 0 {
        file.read_exact_at(&mut last, len - 1)?;
    }
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

/// The bits of a mode that none but the owner and readers of the group may have.
const OTHERS: u32 = 0o037;
