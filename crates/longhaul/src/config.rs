//! The files that configure this program: their places, their reading, and the place of an error in
//! them.
//!
//! In: paths. Out: [`ClientFile`] to `settings`, [`Daemon`] to `commands::serve`, edits by `key
//! authorize` and `key revoke`. This module and those below it are the settings loader: they read
//! files of the operator, never data. They know nothing of sessions.

#![allow(clippy::disallowed_methods, reason = "the settings loader reads and writes the operator's own files")]

mod authorize;
mod client;
mod places;
mod revoke;
mod rights;
mod serve;
mod strict;
mod words;

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::Error;

pub use authorize::{NewClient, authorize};
pub use client::ClientFile;
#[cfg(test)]
pub(crate) use client::client_keys;
pub use places::{CHECKSUMS, Places};
pub use revoke::revoke;
pub use rights::parse_rights;
pub use serve::{CommandLineRoot, Confine, Confinement, Daemon, HttpPlace, MoverConfig, Watching, grants_in};
pub use strict::check as check_strictly;

/// Reads a config file. A file that others may write to is refused.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(Error::file("read", path))?;
    strict::check(path)?;
    let mut text = String::new();
    file.take(CONFIG_BYTES_MAX).read_to_string(&mut text).map_err(Error::file("read", path))?;
    Ok(text)
}

/// Replaces a file's text: after a crash the file has either the old text or the new one.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    replace_io(path, text).map_err(Error::file("write", path))
}

fn replace_io(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => PermissionsExt::from_mode(0o600),
        Err(error) => return Err(error),
    };
    let mut file = tempfile::Builder::new().prefix(".longhaul-").permissions(permissions.clone()).tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    // The umask may have taken bits that the old file had.
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// An error at a place of a file's text.
pub(crate) fn flawed(path: &Path, text: &str, span: Option<Range<usize>>, message: impl ToString) -> Error {
    let (line, column) = position(text, span.map_or(0, |span| span.start));
    let message = message.to_string().trim().replace('\n', ", ");
    Error::Config { path: path.to_owned(), line, column, message }
}

/// An error of the parser, in the words of TOML.
pub(crate) fn unparsed(path: &Path, text: &str, error: &toml::de::Error) -> Error {
    flawed(path, text, error.span(), words::plain(error.message()))
}

/// Line and column (in characters), both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The largest config file: far beyond any real one. A larger file is no config.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        for (at, want) in [(0, (1, 1)), (1, (1, 2)), (3, (2, 1)), (5, (2, 2)), (7, (2, 3)), (99, (2, 3))] {
            assert_eq!(position("ab\n\u{e9}\u{e9}", at), want, "{at}");
        }
    }

    #[test]
    fn a_config_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, "lanes = 1").unwrap();
        for (mode, fine) in [(0o600, true), (0o644, true), (0o664, false), (0o666, false), (0o602, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_ok(), fine, "{mode:o}");
        }
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.toml");
        replace(&path, "a").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
        replace(&path, "b").unwrap();
        assert_eq!((mode(), std::fs::read_to_string(&path).unwrap().as_str()), (0o664, "b"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
