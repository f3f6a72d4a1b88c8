//! Known hosts: the key of each known daemon, in a file of lines `host:port lhk1:...`, with `#`
//! comments.
//!
//! Owns that format. Takes its path from the settings; gives pinned keys to the code that dials.
//! Must not decide whether an unknown host is trusted.

#![allow(
    clippy::disallowed_methods,
    reason = "known_hosts is this side's own file: no root holds it and no peer names it"
)]

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::NetError;
use crate::keys::make_parents;
use crate::public_key::PublicKey;

/// The known hosts of one file. Names are compared without regard to case; an IPv6 address stands
/// in brackets.
#[derive(Debug)]
pub struct KnownHosts {
    path: PathBuf,
    known: Vec<Known>,
    lines: usize,
}

#[derive(Debug)]
struct Known {
    host: String,
    key: PublicKey,
    line: usize,
}

impl KnownHosts {
    /// Reads the file. A missing file means that no host is known.
    ///
    /// # Errors
    /// [`NetError::KnownHostLine`] for a line that is not `host:port lhk1:...`,
    /// [`NetError::KnownHostConflict`] for a host with two keys, [`NetError::KeyFile`] if the file
    /// cannot be read.
    pub fn load(path: &Path) -> Result<KnownHosts, NetError> {
        let bytes = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(|source| NetError::KeyFile { path: path.to_owned(), doing: "read", source })?,
        };
        let mut hosts = KnownHosts { path: path.to_owned(), known: Vec::new(), lines: 0 };
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            hosts.lines += 1;
            hosts.absorb(line)?;
        }
        Ok(hosts)
    }

    /// The key that `host` at `port` must show; `None` if it is unknown.
    pub fn lookup(&self, host: &str, port: u16) -> Option<PublicKey> {
        let name = canonical(host, port)?;
        self.known.iter().find(|known| known.host == name).map(|known| known.key)
    }

    /// Adds a line to the file (made with mode 0600 if it is new) and remembers it. A host that is
    /// known by this very key already stays as it is.
    ///
    /// # Errors
    /// [`NetError::KnownHostConflict`] if it is known by another key, [`NetError::BadAddress`] if
    /// the host cannot stand in such a line, [`NetError::KeyFile`] if the file cannot be written.
    pub fn append(&mut self, host: &str, port: u16, key: PublicKey) -> Result<(), NetError> {
        let bad = || NetError::BadAddress { addr: format!("{host}:{port}") };
        let host = canonical(host, port).ok_or_else(bad)?;
        let known = self.known.len();
        self.remember(host.clone(), key, self.lines + 1)?;
        if self.known.len() == known {
            return Ok(());
        }
        self.lines += 1;
        write_line(&self.path, &format!("{host} {key}\n")).map_err(|source| {
            self.known.truncate(known);
            NetError::KeyFile { path: self.path.clone(), doing: "add a line to", source }
        })
    }

    fn absorb(&mut self, line: &[u8]) -> Result<(), NetError> {
        let at = self.lines;
        let bad = |path: &Path, why| NetError::KnownHostLine { path: path.to_owned(), line: at, why };
        let text = std::str::from_utf8(line).map_err(|_| bad(&self.path, "not UTF-8"))?;
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        let mut words = text.split_whitespace();
        let (host, key) = match (words.next(), words.next(), words.next()) {
            (None, ..) => return Ok(()),
            (Some(host), Some(key), None) => (host, key),
            _ => return Err(bad(&self.path, "not of the form HOST:PORT KEY")),
        };
        let host = parse_host(host).ok_or_else(|| bad(&self.path, "not of the form HOST:PORT KEY"))?;
        let key = key.parse().map_err(|_| bad(&self.path, "the second word is not a key lhk1:..."))?;
        self.remember(host, key, at)
    }

    fn remember(&mut self, host: String, key: PublicKey, line: usize) -> Result<(), NetError> {
        match self.known.iter().find(|known| known.host == host) {
            Some(same) if same.key == key => {}
            Some(other) => {
                let (path, line, had) = (self.path.clone(), other.line, other.key);
                return Err(NetError::KnownHostConflict { path, line, host, known: had });
            }
            None => self.known.push(Known { host, key, line }),
        }
        Ok(())
    }
}

fn parse_host(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    canonical(host, port.parse().ok()?)
}

/// The form in which a host and port are written here; `None` if they cannot be written so.
fn canonical(host: &str, port: u16) -> Option<String> {
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '#' | '[' | ']');
    if inner.is_empty() || !inner.chars().all(plain) {
        return None;
    }
    let inner = inner.to_lowercase();
    Some(if inner.contains(':') { format!("[{inner}]:{port}") } else { format!("{inner}:{port}") })
}

/// One write to a file opened for appending, so that two programs at once do not mix their lines.
fn write_line(path: &Path, line: &str) -> io::Result<()> {
    make_parents(path)?;
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let whole = if ends_with_newline(&mut file)? { line.to_owned() } else { format!("\n{line}") };
    file.write_all(whole.as_bytes())?;
    file.sync_all()
}

/// A file that a human edited may lack its last newline.
fn ends_with_newline(file: &mut fs::File) -> io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::keys::Identity;

    fn key() -> PublicKey {
        Identity::generate().unwrap().public()
    }

    #[test]
    fn what_was_appended_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("longhaul/known_hosts");
        let (a, b) = (key(), key());
        let mut hosts = KnownHosts::load(&path).unwrap();
        assert_eq!(hosts.lookup("node.example", 7214), None);
        hosts.append("Node.Example", 7214, a).unwrap();
        hosts.append("2001:db8::1", 7214, b).unwrap();
        hosts.append("node.example", 7214, a).unwrap();
        for hosts in [&hosts, &KnownHosts::load(&path).unwrap()] {
            assert_eq!(hosts.lookup("NODE.example", 7214), Some(a));
            assert_eq!(hosts.lookup("node.example", 7215), None);
            assert_eq!(hosts.lookup("[2001:DB8::1]", 7214), Some(b));
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("node.example:7214 {a}\n[2001:db8::1]:7214 {b}\n"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn comments_blank_lines_and_a_missing_last_newline_are_fine() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_hosts");
        let (a, b) = (key(), key());
        fs::write(&path, format!("# ours\n\n  h:1   {a}   # lab\n#x:2 y\nh:2 {b}")).unwrap();
        let mut hosts = KnownHosts::load(&path).unwrap();
        assert_eq!((hosts.lookup("h", 1), hosts.lookup("h", 2)), (Some(a), Some(b)));
        hosts.append("h", 3, a).unwrap();
        assert_eq!(KnownHosts::load(&path).unwrap().lookup("h", 3), Some(a));
    }

    #[test]
    fn a_malformed_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_hosts");
        let k = key();
        for bad in ["h:1", "h lhk1:x", "h:70000 x", &format!("h:1 {k} more"), &format!(":1 {k}"), "h:1 lhk1:AAAA"] {
            fs::write(&path, format!("# first\n{bad}\n")).unwrap();
            let error = KnownHosts::load(&path).unwrap_err();
            assert!(matches!(error, NetError::KnownHostLine { line: 2, .. }), "{bad:?}: {error}");
        }
        fs::write(&path, b"\n\n\xff\xfe\n").unwrap();
        assert!(matches!(KnownHosts::load(&path), Err(NetError::KnownHostLine { line: 3, .. })));
    }

    #[test]
    fn a_host_never_gets_a_second_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_hosts");
        let (a, b) = (key(), key());
        let mut hosts = KnownHosts::load(&path).unwrap();
        hosts.append("h", 1, a).unwrap();
        let conflict = hosts.append("H", 1, b).unwrap_err();
        assert!(matches!(conflict, NetError::KnownHostConflict { line: 1, known, .. } if known == a), "{conflict}");
        fs::write(&path, format!("h:1 {a}\nh:1 {b}\n")).unwrap();
        assert!(matches!(KnownHosts::load(&path), Err(NetError::KnownHostConflict { line: 1, .. })));
    }

    #[test]
    fn hosts_that_cannot_stand_in_a_line_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut hosts = KnownHosts::load(&dir.path().join("known_hosts")).unwrap();
        for bad in ["", "a b", "a\nb", "#a"] {
            assert!(matches!(hosts.append(bad, 1, key()), Err(NetError::BadAddress { .. })), "{bad:?}");
        }
    }
}
