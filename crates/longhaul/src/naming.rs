//! Whole names of failed files: the engine and the daemon know a file from some directory on, users
//! by the text that they typed.
//!
//! In: both ends as they were written on the command line, settled files, faults. Out: the same
//! faults to `output`, each about the whole path of its object, with its host if that is a daemon.
//! Looks at no file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_core::limits::RESERVED_PREFIX;
use longhaul_core::{Author, Blame, Escaped, Fault, RelPath};
use longhaul_engine::FileEvent;

use crate::destination::Destination;
use crate::location::{DaemonPath, LocalPath, SshPath};

/// Both ends of a transfer, as users know them.
#[derive(Clone, Debug)]
pub struct Naming {
    sources: Vec<SourceName>,
    destination: Destination,
    /// Whether the sources are at a daemon: a fault of this host is then a fault of the
    /// destination.
    is_pull: bool,
}

/// A source as it was written.
#[derive(Clone, Debug)]
struct SourceName {
    /// The directory in which its names begin, as printed: `lh://` and the daemon go before it.
    above: String,
    /// The daemon, as printed before that; empty for this host.
    host: String,
    /// The name with which its files begin. `None` if the content of a directory is sent.
    top: Option<Vec<u8>>,
}

impl Naming {
    /// The naming of a transfer with sources on this host.
    pub fn from_here(sources: &[LocalPath], destination: Destination) -> Naming {
        Naming { sources: sources.iter().map(SourceName::local).collect(), destination, is_pull: false }
    }

    /// The naming of a transfer with sources at a daemon.
    pub fn from_daemon(sources: &[DaemonPath], destination: Destination) -> Naming {
        Naming { sources: sources.iter().filter_map(SourceName::daemon).collect(), destination, is_pull: true }
    }

    /// The naming of a transfer with sources at a host that ssh leads to.
    pub fn from_ssh(sources: &[SshPath], destination: Destination) -> Naming {
        Naming { sources: sources.iter().map(SourceName::ssh).collect(), destination, is_pull: true }
    }

    /// Whether a fault was met at the destination.
    pub fn is_at_destination(&self, fault: &Fault) -> bool {
        let is_far = fault.author == Author::Peer || fault.blame == Blame::Peer;
        is_far != self.is_pull
    }

    /// A fault of one file. If the fault names no object of its own, it is about that file at the
    /// end where it went wrong.
    pub fn of_file(&self, file: &FileEvent, fault: &Fault) -> Fault {
        let fault = fault.clone();
        let placed = file.placed.escaped().to_string();
        let about_file = fault.object.is_empty() || *fault.object == *placed;
        if !self.is_at_destination(&fault) {
            // The side that reads a source names its files whole; a daemon does so from its root
            // on.
            let Some((host, path)) = self.source_of(&file.path).filter(|_| about_file || self.is_pull) else {
                return fault;
            };
            return fault.about(&path).renamed(format_args!("{host}{path}"));
        }
        match about_file {
            true => fault.about(&placed).renamed(self.destination.shown(file)),
            false if is_whole(&fault.object) => fault,
            false => {
                let whole = self.destination.beneath(&fault.object, file.renamed);
                fault.renamed(whole)
            }
        }
    }

    /// The host and the path of a source's entry with this name. `None` if several sources may have
    /// it.
    fn source_of(&self, path: &RelPath) -> Option<(&str, String)> {
        let top = path.split_top().map(|(name, _)| name.to_vec());
        let named = |source: &&SourceName| source.top.is_some() && source.top == top;
        let source = match self.sources.as_slice() {
            [only] => only,
            several => several.iter().find(named).or_else(|| {
                let mut meant = several.iter().filter(|source| source.top.is_none());
                meant.next().filter(|_| meant.next().is_none())
            })?,
        };
        let rest = match (&source.top, path.is_root()) {
            (Some(top), true) => Escaped(top).to_string(),
            _ if path.is_root() => String::new(),
            _ => path.escaped().to_string(),
        };
        Some((&source.host, joined(&source.above, &rest)))
    }
}

impl SourceName {
    fn local(source: &LocalPath) -> SourceName {
        let name = source.path.file_name().filter(|_| !source.slash);
        let above = match name {
            Some(_) => source.path.parent().unwrap_or(Path::new("")),
            None if source.path == Path::new(".") => Path::new(""),
            None => &source.path,
        };
        let above = Escaped(above.as_os_str().as_bytes()).to_string();
        SourceName { above, host: String::new(), top: name.map(OsStr::as_bytes).map(<[u8]>::to_vec) }
    }

    fn daemon(source: &DaemonPath) -> Option<SourceName> {
        let place = source.path.as_ref()?;
        let (above, top) = match (place.path.parent(), place.path.name()) {
            (Some(above), Some(name)) if !place.slash => (above, Some(name.to_vec())),
            _ => (place.path.clone(), None),
        };
        let below = if above.is_root() { String::new() } else { above.escaped().to_string() };
        let above = joined(&Escaped(place.root.as_bytes()).to_string(), &below);
        let host = format!("lh://{}/", crate::location::host_port(&source.host, source.port));
        Some(SourceName { above, host, top })
    }

    fn ssh(source: &SshPath) -> SourceName {
        let (above, top) = source.split();
        let (above, top) = (Escaped(above).to_string(), top.map(<[u8]>::to_vec));
        SourceName { above, host: format!("{}:", source.host), top }
    }
}

/// Two parts of a path, one of which may be empty.
fn joined(above: &str, rest: &str) -> String {
    match (above, rest) {
        ("", rest) => rest.to_owned(),
        (above, "") => above.to_owned(),
        (above, rest) if above.ends_with('/') => format!("{above}{rest}"),
        (above, rest) => format!("{above}/{rest}"),
    }
}

/// Whether an object is no path beneath the destination, but absolute, an address, or a file of our
/// own at the top of a root.
fn is_whole(object: &str) -> bool {
    object.starts_with('/') || object.contains("://") || object.as_bytes().starts_with(RESERVED_PREFIX)
}

#[cfg(test)]
mod tests {
    use longhaul_core::FaultCode;
    use longhaul_engine::FileStatus;

    use super::*;
    use crate::destination::tests::event;
    use crate::location::Location;

    fn location(text: &str) -> Location {
        Location::parse(OsStr::new(text)).expect("a location")
    }

    fn naming(sources: &[&str], dest: &str) -> Naming {
        let destination = match location(dest) {
            Location::Local(path) => Destination::local(&path),
            Location::Daemon(path) => Destination::daemon(&path),
            Location::Ssh(path) => Destination::ssh(&path),
        };
        let (mut local, mut remote, mut ssh) = (Vec::new(), Vec::new(), Vec::new());
        for source in sources {
            match location(source) {
                Location::Local(path) => local.push(path),
                Location::Daemon(path) => remote.push(path),
                Location::Ssh(path) => ssh.push(path),
            }
        }
        if !ssh.is_empty() {
            Naming::from_ssh(&ssh, destination)
        } else if remote.is_empty() {
            Naming::from_here(&local, destination)
        } else {
            Naming::from_daemon(&remote, destination)
        }
    }

    #[test]
    fn a_fault_is_about_the_whole_path_at_the_end_where_it_went_wrong() {
        let here =
            |object: &str| Fault::new(FaultCode::Io, Blame::Local, format!("cannot write '{object}'")).about(object);
        let there = |object: &str| here(object).seen_from_afar();
        for (sources, dest, path, fault, whole) in [
            (&["src/d"][..], "dst", "d/f", here("src/d/f"), "src/d/f"),
            (&["src/d"], "lh://h/r/n", "d/f", there("d/f"), "lh://h:7214/r/n/d/f"),
            (&["src/d"], "lh://h/r/n", "d/f", there("d"), "lh://h:7214/r/n/d"),
            (&["src/d"], "dst", "d/f", there("d/f").said_here(), "dst/d/f"),
            (&["src/d"], "dst", "d/f", there("/mnt/x").said_here(), "/mnt/x"),
            (&["src/d"], "me@h:n", "d/f", there("d/f"), "me@h:n/d/f"),
            (&["src/d"], "h:", "d/f", there("d/f"), "h:d/f"),
            (&["h:/src/d"], "dst/", "d/f", there("/src/d/f"), "h:/src/d/f"),
            (&["h:d"], "dst/", "d/f", there("d/f"), "h:d/f"),
            (&["lh://h/r/src/d"], "dst/", "d/f", here("d/f"), "dst/d/f"),
            (&["lh://h/r/src/d"], "dst/", "d/f", there("d/f"), "lh://h:7214/r/src/d/f"),
            (&["lh://h/r/src/"], "dst/", "d/f", there("d/f"), "lh://h:7214/r/src/d/f"),
            (&["lh://h/r/"], "dst/", "d/f", there("d/f"), "lh://h:7214/r/d/f"),
            (&["lh://h/r/x", "lh://h/s/d"], "dst", "d/f", there("d/f"), "lh://h:7214/s/d/f"),
        ] {
            let file = event(path.as_bytes(), path.as_bytes(), FileStatus::Skipped, None);
            let said = naming(sources, dest).of_file(&file, &fault);
            assert_eq!(said.object, whole, "{sources:?} {dest}");
            assert!(said.names_object() || said.message.contains(&*fault.object), "{said}");
        }
    }

    #[test]
    fn what_a_daemon_says_of_its_source_is_told_with_its_address() {
        let naming = naming(&["lh://h:1/r/src/d"], "dst");
        let file = event(b"d/f", b"d/f", FileStatus::Skipped, None);
        let fault =
            Fault::new(FaultCode::Denied, Blame::Peer, "cannot open 'r/src/d/f': denied").about("d/f").said_by_peer();
        assert_eq!(&*naming.of_file(&file, &fault).message, "cannot open 'lh://h:1/r/src/d/f': denied");
    }
}
