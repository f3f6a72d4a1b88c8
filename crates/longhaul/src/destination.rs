//! Where placed paths begin: the engine names files beneath a base that is the destination itself, or, when the one source
//! takes the destination's name, the directory that holds it.
//!
//! In: the destination as written, and what the sources ask for. Out: names as people see them to `output`, names and files
//! of this host to `manifest`. Looks at one name of this host, at no daemon.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::{Escaped, RelPath};
use longhaul_engine::FileEvent;

use crate::location::{DaemonPath, LocalPath, host_port};

/// A destination whose mapping can be shown.
#[derive(Clone, Debug)]
pub struct Destination {
    landing: Landing,
    /// The destination itself and the directory that holds it, as printed before placed paths.
    shown: (String, String),
    /// The same on this host, if it is here.
    local: Option<(PathBuf, PathBuf)>,
}

/// Which of the two the base is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landing {
    /// The destination itself.
    Beneath,
    /// The directory that holds it.
    Renamed,
    /// Only the daemon knows whether its destination is a directory: an event whose name was changed tells it.
    AsTold,
}

impl Destination {
    /// On this host. `beneath` if the sources are several, or the content of a directory.
    pub fn local(dest: &LocalPath, beneath: bool) -> Destination {
        let parent = dest.path.parent().unwrap_or(Path::new("")).to_owned();
        let landing = if beneath || dest.slash || dest.path.is_dir() { Landing::Beneath } else { Landing::Renamed };
        let shown = |path: &Path| Escaped(path.as_os_str().as_bytes()).to_string();
        let shown = (shown(&dest.path), shown(&parent));
        Destination { landing, shown, local: Some((dest.path.clone(), parent)) }
    }

    /// At a daemon.
    pub fn daemon(dest: &DaemonPath, beneath: bool) -> Destination {
        let host = host_port(&dest.host, dest.port);
        let Some(place) = &dest.path else {
            return Destination { landing: Landing::Beneath, shown: Default::default(), local: None };
        };
        let landing = if beneath || place.slash || place.path.is_root() { Landing::Beneath } else { Landing::AsTold };
        let root = Escaped(place.root.as_bytes()).to_string();
        let shown = |path: &RelPath| {
            let slash = if path.is_root() { "" } else { "/" };
            format!("lh://{host}/{root}{slash}{}", Escaped(path.as_bytes()))
        };
        let parent = place.path.parent().unwrap_or_default();
        Destination { landing, shown: (shown(&place.path), shown(&parent)), local: None }
    }

    /// Where a file stands, for people.
    pub fn shown(&self, file: &FileEvent) -> String {
        let base = if self.renamed(file) { &self.shown.1 } else { &self.shown.0 };
        let slash = if base.is_empty() || base.ends_with('/') { "" } else { "/" };
        let path = Escaped(file.placed.as_bytes());
        if file.placed.is_root() { base.clone() } else { format!("{base}{slash}{path}") }
    }

    /// A file's name relative to the destination if that is a directory after the run, else to the directory that holds it:
    /// so that `b3sum --check` is run in the destination.
    pub fn name<'a>(&self, file: &'a FileEvent) -> Cow<'a, [u8]> {
        match file.placed.split_top() {
            Some((_, rest)) if self.renamed(file) && !rest.is_root() => Cow::Owned(rest.as_bytes().to_vec()),
            _ => Cow::Borrowed(file.placed.as_bytes()),
        }
    }

    /// Whether a path of this host lies in the destination, by its name.
    pub fn holds(&self, path: &Path) -> bool {
        self.local.as_ref().is_some_and(|(itself, _)| path.starts_with(itself))
    }

    /// The directory of this host that placed names begin in.
    pub fn base(&self) -> Option<&Path> {
        let (itself, parent) = self.local.as_ref()?;
        Some(if self.landing == Landing::Renamed { parent } else { itself })
    }

    fn renamed(&self, file: &FileEvent) -> bool {
        match self.landing {
            Landing::Beneath => false,
            Landing::Renamed => true,
            Landing::AsTold => file.path != file.placed,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::location::Location;
    use longhaul_engine::FileStatus;

    /// A settled file of one byte.
    pub(crate) fn event(path: &[u8], placed: &[u8], status: FileStatus, b3: Option<[u8; 32]>) -> FileEvent {
        let path_of = |bytes: &[u8]| RelPath::new(bytes).unwrap();
        FileEvent { path: path_of(path), placed: path_of(placed), status, bytes: 1, b3, regular: true }
    }

    fn destination(text: &str, beneath: bool) -> Destination {
        match Location::parse(OsStr::new(text)).unwrap() {
            Location::Local(path) => Destination::local(&path, beneath),
            Location::Daemon(daemon) => Destination::daemon(&daemon, beneath),
        }
    }

    #[test]
    fn a_placed_file_is_shown_where_it_stands_and_named_relative_to_the_destination() {
        let dir = tempfile::tempdir().unwrap();
        let stands = dir.path().to_str().unwrap();
        let new = format!("{stands}/new");
        for (dest, beneath, path, placed, shown, name) in [
            (&*new, false, "s/a", "new/a", format!("{new}/a"), "a"),
            (&*new, false, "f", "new", new.clone(), "new"),
            (&*new, true, "a", "a", format!("{new}/a"), "a"),
            (stands, false, "s/a", "s/a", format!("{stands}/s/a"), "s/a"),
            ("new", false, "s/a", "new/a", "new/a".into(), "a"),
            ("/", false, "a", "a", "/a".into(), "a"),
            ("lh://h/r", false, "s/a", "s/a", "lh://h:7214/r/s/a".into(), "s/a"),
            ("lh://h/r/d/n", false, "s/a", "n/a", "lh://h:7214/r/d/n/a".into(), "a"),
            ("lh://h/r/n", false, "f", "n", "lh://h:7214/r/n".into(), "n"),
            ("lh://h/r/d", false, "s/a", "s/a", "lh://h:7214/r/d/s/a".into(), "s/a"),
            ("lh://[::1]:9/r/d/", false, "s/a", "s/a", "lh://[::1]:9/r/d/s/a".into(), "s/a"),
        ] {
            let destination = destination(dest, beneath);
            let file = event(path.as_bytes(), placed.as_bytes(), FileStatus::Planned, None);
            assert_eq!(destination.shown(&file), shown, "{dest} {path}");
            assert_eq!(&*destination.name(&file), name.as_bytes(), "{dest} {path}");
        }
    }
}
