//! The source or destination of a transfer: a path of this host, of a host that ssh leads to, or a
//! daemon's root and a path beneath it.
//!
//! In: arguments as bytes. Out: [`Location`]s to `commands`. Owns the written forms and the flaws
//! of others. Looks at no file and asks no host.

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
    /// A path of a host that ssh leads to.
    Ssh(SshPath),
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

/// A path of a host that ssh leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshPath {
    /// `[user@]host`, as ssh takes it.
    pub host: String,
    /// The path as it was written, without slashes at its end (except `/` itself). Empty for the
    /// user's home.
    pub path: Vec<u8>,
    /// As [`LocalPath::slash`]. True of the home, which has no name there.
    pub slash: bool,
}

impl SshPath {
    /// The directory that is opened there, and a name in it, if the path has one.
    pub fn split(&self) -> (&[u8], Option<&[u8]>) {
        if self.slash {
            return (&self.path, None);
        }
        match self.path.iter().rposition(|byte| *byte == b'/') {
            None => (b"", Some(&self.path)),
            Some(0) => (b"/", Some(&self.path[1..])),
            Some(slash) => (&self.path[..slash], Some(&self.path[slash + 1..])),
        }
    }
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
            if scheme {
                return Err(flawed(LocationFlaw::Scheme));
            }
            return parse_ssh(bytes).map(Location::Ssh).map_err(flawed);
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

/// Reads `[user@]host:path`, an IPv6 address in brackets.
fn parse_ssh(bytes: &[u8]) -> Result<SshPath, LocationFlaw> {
    let after_user = bytes.iter().position(|&b| b == b'@').map_or(0, |at| at + 1);
    let bracket = bytes[after_user..].starts_with(b"[").then(|| bytes.windows(2).position(|two| two == b"]:"));
    let colon = match bracket {
        Some(end) => end.ok_or(LocationFlaw::Host)? + 1,
        None => bytes.iter().position(|&b| b == b':').ok_or(LocationFlaw::Host)?,
    };
    let host = std::str::from_utf8(&bytes[..colon]).map_err(|_| LocationFlaw::Host)?;
    let (user, name) = host.rsplit_once('@').map_or((None, host), |(user, name)| (Some(user), name));
    let name = match name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().map(|_| inner).map_err(|_| LocationFlaw::Host)?,
        None => name,
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || "#[]/\\'\"`$;|&()<>*?!~{}".contains(c);
    match name {
        "" => return Err(LocationFlaw::NoHost),
        // What ssh would take for an option.
        name if name.contains(odd) || name.starts_with('-') => return Err(LocationFlaw::Host),
        _ => {}
    }
    if user.is_some_and(|user| user.is_empty() || user.contains(odd) || user.starts_with('-')) {
        return Err(LocationFlaw::Host);
    }
    let path = &bytes[colon + 1..];
    if path.starts_with(b":") {
        return Err(LocationFlaw::RsyncModule);
    }
    if path.starts_with(b"~") && path != b"~" && !path.starts_with(b"~/") {
        return Err(LocationFlaw::OtherHome);
    }
    if path.contains(&0) {
        return Err(LocationFlaw::Path(longhaul_core::PathError::Nul));
    }
    let host = user.map_or_else(|| name.to_owned(), |user| format!("{user}@{name}"));
    if path.is_empty() {
        return Ok(SshPath { host, path: Vec::new(), slash: true });
    }
    let LocalPath { path, slash } = parse_local(path);
    let path = path.into_os_string().into_vec();
    let slash = slash || path == b"~";
    Ok(SshPath { host, path, slash })
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
