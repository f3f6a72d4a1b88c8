//! The source or destination of a transfer: a path of this host, or a daemon's root and a path
//! beneath it.
//!
//! In: arguments as bytes. Out: [`Location`]s to `commands`. Owns the three written forms and the
//! flaws of others. Looks at no file and asks no host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use longhaul_core::{Escaped, RelPath, Word};
use longhaul_engine::RemotePath;

use crate::error::{Error, LocationFlaw};

/// The port of a daemon when none is written.
pub const DEFAULT_PORT: u16 = 7214;

/// A place as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this host.
    Local(LocalPath),
    /// A path at a daemon.
    Daemon(DaemonPath),
}

/// A path of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPath {
    /// The path, without trailing slashes (except `/` itself).
    pub path: PathBuf,
    /// Whether it ended in a slash, or in a component `.` or `..`: then it means the content of the
    /// directory, as for rsync.
    pub slash: bool,
}

/// A daemon, and perhaps a path that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonPath {
    /// Host name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The root and a path beneath it. `None` for the daemon itself.
    pub path: Option<RemotePath>,
}

impl Location {
    /// Reads a location; a colon before the first slash means another host, as for rsync.
    ///
    /// # Errors
    /// [`Error::Location`] for a text of no known form.
    pub fn parse(text: &OsStr) -> Result<Location, Error> {
        let bytes = text.as_bytes();
        let flawed = |flaw| Error::Location { location: Escaped(bytes).to_string(), flaw };
        if bytes.is_empty() {
            return Err(flawed(LocationFlaw::Empty));
        }
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            return parse_daemon(rest).map(Location::Daemon).map_err(flawed);
        }
        let before_slash = bytes.split(|&b| b == b'/').next().unwrap_or_default();
        if before_slash.contains(&b':') {
            let scheme = bytes[before_slash.len()..].starts_with(b"//") && before_slash.ends_with(b":");
            return Err(flawed(if scheme { LocationFlaw::Scheme } else { LocationFlaw::Ssh }));
        }
        Ok(Location::Local(parse_local(bytes)))
    }
}

/// Reads `HOST[:PORT]`, an IPv6 address in brackets.
///
/// # Errors
/// The [`LocationFlaw`] of the text.
pub fn parse_host(text: &[u8]) -> Result<(String, u16), LocationFlaw> {
    let text = std::str::from_utf8(text).map_err(|_| LocationFlaw::Host)?;
    if text.contains('@') {
        return Err(LocationFlaw::User);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']').ok_or(LocationFlaw::Host)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| LocationFlaw::Host)?;
            match rest {
                "" => (host, None),
                _ => (host, Some(rest.strip_prefix(':').ok_or(LocationFlaw::Port)?)),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(LocationFlaw::NoHost);
    }
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '[' | ']' | '/' | '\\');
    if host.contains(odd) {
        return Err(LocationFlaw::Host);
    }
    Ok((host.to_owned(), parse_port(port)?))
}

/// `host:port` as it is written, with brackets around an IPv6 address.
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn parse_port(text: Option<&str>) -> Result<u16, LocationFlaw> {
    let Some(text) = text else { return Ok(DEFAULT_PORT) };
    // `parse` alone would take "+7214".
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|&port| digits && port != 0).ok_or(LocationFlaw::Port)
}

fn parse_local(bytes: &[u8]) -> LocalPath {
    let end = bytes.iter().rposition(|&b| b != b'/').map_or(1, |last| last + 1);
    let kept = &bytes[..end];
    let last = kept.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let slash = end < bytes.len() || kept == b"/" || last == b"." || last == b"..";
    LocalPath { path: PathBuf::from(OsString::from_vec(kept.to_vec())), slash }
}

/// Reads the text behind `lh://`: bytes as they are, repeated slashes and `.` components as one,
/// `..` refused.
fn parse_daemon(rest: &[u8]) -> Result<DaemonPath, LocationFlaw> {
    let cut = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let (host, port) = parse_host(&rest[..cut])?;
    let names: Vec<&[u8]> = rest[cut..].split(|&b| b == b'/').collect();
    let slash = matches!(names.last(), Some(&b"" | &b"."));
    let mut names = names.into_iter().filter(|name| !name.is_empty() && *name != b".");
    let Some(root) = names.next() else { return Ok(DaemonPath { host, port, path: None }) };
    let root = Word::try_from(parse_root(root)?.as_str()).map_err(|_| LocationFlaw::Root)?;
    let path = names.try_fold(RelPath::root(), |path, name| path.join(name))?;
    Ok(DaemonPath { host, port, path: Some(RemotePath { root, path, slash }) })
}

/// Reads a root's name: one component of printable UTF-8.
///
/// # Errors
/// [`LocationFlaw::Path`] for `..` and other texts that no component may be, [`LocationFlaw::Root`]
/// for the rest.
pub fn parse_root(name: &[u8]) -> Result<String, LocationFlaw> {
    RelPath::root().join(name)?;
    let text = std::str::from_utf8(name).map_err(|_| LocationFlaw::Root)?;
    if Escaped(name).to_string() == text { Ok(text.to_owned()) } else { Err(LocationFlaw::Root) }
}

const SCHEME: &[u8] = b"lh://";

#[cfg(test)]
mod tests;
