//! Texts that an operator writes: keys, known hosts, config files, locations, requests to a
//! daemon's socket. The first byte chooses the parser.
//!
//! In: bytes from the fuzz target, or from the test that plays some in the gate (`tests/noise.rs`).
//! A parser that panics, or a key that does not read back, fails the target or test.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul::admin::Request;
use longhaul::config::{ClientFile, CommandLineRoot, Daemon};
use longhaul::location::Location;
use longhaul_net::{KnownHosts, PublicKey};

/// Gives `bytes` to the parser that the first byte names. Parsers that take only files read `file`,
/// which is made and removed.
pub(crate) fn parse(bytes: &[u8], file: &Path) {
    let Some((parser, bytes)) = bytes.split_first() else { return };
    let text = std::str::from_utf8(bytes);
    match (parser, text) {
        (b'k', Ok(text)) => {
            let Ok(key) = text.parse::<PublicKey>() else { return };
            assert_eq!(key.to_string().parse().ok(), Some(key));
        }
        (b'c', Ok(text)) => drop(ClientFile::parse(Path::new("config.toml"), text)),
        (b'a', _) => {
            let Some(request) = Request::parse(bytes) else { return };
            assert_eq!(Request::parse(&request.line()), Some(request));
        }
        (b'l', _) => drop(Location::parse(OsStr::from_bytes(bytes))),
        (b'r', _) => drop(CommandLineRoot::parse(OsStr::from_bytes(bytes))),
        (b'h', _) if std::fs::write(file, bytes).is_ok() => drop(KnownHosts::load(file)),
        (b's', _) if std::fs::write(file, bytes).is_ok() => drop(Daemon::load(Some(file), Vec::new())),
        _ => return,
    }
    let _ = std::fs::remove_file(file);
}
