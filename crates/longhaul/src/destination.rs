//! The base of placed paths: the engine names files beneath a base that is the destination itself
//! or, if the one source takes the destination's name, the directory that holds it.
//!
//! In: the destination as written. Out: names as users see them to `output`, names and files of
//! this host to `manifest`. Each event tells which of the two the base is. Looks at no file and
//! asks no daemon.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::{DatasetName, Escaped, RelPath};
use longhaul_engine::FileEvent;

use crate::location::{DaemonPath, LocalPath, SshPath, host_port};

/// A destination whose mapping can be shown.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The destination itself and the directory that holds it, as printed before placed paths.
    shown: (String, String),
    /// The same on this host, if it is here.
    local: Option<(PathBuf, PathBuf)>,
    /// Whether everything goes into one place, in which names are no paths.
    is_stream: bool,
}

impl Destination {
    /// A destination on this host.
    pub fn local(dest: &LocalPath) -> Destination {
        let parent = dest.path.parent().unwrap_or(Path::new("")).to_owned();
        let shown = |path: &Path| Escaped(path.as_os_str().as_bytes()).to_string();
        let shown = (shown(&dest.path), shown(&parent));
        Destination { shown, local: Some((dest.path.clone(), parent)), is_stream: false }
    }

    /// A stream of this name.
    pub fn stream(name: impl std::fmt::Display) -> Destination {
        let name = name.to_string();
        Destination { shown: (name.clone(), name), local: None, is_stream: true }
    }

    /// A destination at a daemon.
    pub fn daemon(dest: &DaemonPath) -> Destination {
        let host = host_port(&dest.host, dest.port);
        let Some(place) = &dest.path else {
            return Destination { shown: Default::default(), local: None, is_stream: false };
        };
        let root = Escaped(place.root.as_bytes()).to_string();
        let shown = |path: &RelPath| {
            let slash = if path.is_root() { "" } else { "/" };
            format!("lh://{host}/{root}{slash}{}", Escaped(path.as_bytes()))
        };
        let parent = place.path.parent().unwrap_or_default();
        Destination { shown: (shown(&place.path), shown(&parent)), local: None, is_stream: false }
    }

    /// A destination at a host that ssh leads to.
    pub fn ssh(dest: &SshPath) -> Destination {
        let shown = |path: &[u8]| format!("{}:{}", dest.host, Escaped(path));
        let (parent, _) = dest.split();
        Destination { shown: (shown(&dest.path), shown(parent)), local: None, is_stream: false }
    }

    /// The directory of this name in it, into which everything goes instead.
    pub fn within(self, name: &DatasetName) -> Destination {
        let base = self.beneath(&name.escaped().to_string(), false);
        let below = |itself: PathBuf| (itself.join(OsStr::from_bytes(name.as_bytes())), itself);
        let Destination { shown: (above, _), local, is_stream } = self;
        Destination { shown: (base, above), local: local.map(|(itself, _)| below(itself)), is_stream }
    }

    /// The path where a file stands, for users.
    pub fn shown(&self, file: &FileEvent) -> String {
        let path = Escaped(file.placed.as_bytes()).to_string();
        self.beneath(if file.placed.is_root() { "" } else { &path }, file.renamed)
    }

    /// The same for any path, escaped. `renamed` tells whether the one source takes the
    /// destination's name.
    pub fn beneath(&self, path: &str, renamed: bool) -> String {
        let base = if renamed { &self.shown.1 } else { &self.shown.0 };
        if self.is_stream {
            return if path.is_empty() || path == base { base.clone() } else { format!("{base} ({path})") };
        }
        let is_whole = base.is_empty() || base.ends_with(['/', ':']);
        let slash = if is_whole || path.is_empty() { "" } else { "/" };
        format!("{base}{slash}{path}")
    }

    /// A file's name relative to the destination if that is a directory after the run, else to the
    /// directory that holds it: `b3sum --check` is then run in the destination.
    pub fn name<'a>(&self, file: &'a FileEvent) -> Cow<'a, [u8]> {
        match file.placed.split_top() {
            Some((_, rest)) if file.renamed && !rest.is_root() => Cow::Owned(rest.as_bytes().to_vec()),
            _ => Cow::Borrowed(file.placed.as_bytes()),
        }
    }

    /// Whether a path of this host lies in the destination, by its name.
    pub fn holds(&self, path: &Path) -> bool {
        let whole = |path: &Path| std::path::absolute(path).ok();
        self.local.as_ref().is_some_and(|(itself, _)| {
            whole(itself).is_some_and(|itself| whole(path).is_some_and(|path| path.starts_with(itself)))
        })
    }

    /// The directories of this host in which placed names begin: of files that keep their names,
    /// and of one that takes another. `None` if the destination is at a daemon.
    pub fn bases(&self) -> Option<(&Path, &Path)> {
        self.local.as_ref().map(|(itself, parent)| (itself.as_path(), parent.as_path()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::location::Location;
    use longhaul_engine::{FileStatus, OwnFacts};

    /// A settled file of one byte.
    pub(crate) fn event(path: &[u8], placed: &[u8], status: FileStatus, b3: Option<[u8; 32]>) -> FileEvent {
        let path_of = |bytes: &[u8]| RelPath::new(bytes).unwrap();
        FileEvent {
            path: path_of(path),
            placed: path_of(placed),
            status,
            bytes: 1,
            b3,
            regular: true,
            renamed: false,
            own: OwnFacts::default(),
            sums: Default::default(),
        }
    }

    fn destination(text: &str) -> Destination {
        match Location::parse(OsStr::new(text)).unwrap() {
            Location::Local(path) => Destination::local(&path),
            Location::Daemon(daemon) => Destination::daemon(&daemon),
            Location::Ssh(path) => Destination::ssh(&path),
        }
    }

    #[test]
    fn files_of_a_dataset_are_shown_beneath_its_name() {
        let name = DatasetName::new("run-7").unwrap();
        for (dest, shown) in
            [("data", "data/run-7/f"), ("lh://h/r/in/", "lh://h:7214/r/in/run-7/f"), ("h:", "h:run-7/f")]
        {
            assert_eq!(destination(dest).within(&name).beneath("f", false), shown);
        }
        let local = destination("data").within(&name);
        assert_eq!(local.bases(), Some((Path::new("data/run-7"), Path::new("data"))));
    }

    #[test]
    fn a_file_in_a_stream_is_shown_with_the_name_of_the_stream() {
        let stream = Destination::stream("standard output");
        assert_eq!(stream.beneath("d/f", false), "standard output (d/f)");
        assert_eq!(stream.beneath("", false), "standard output");
        assert_eq!(stream.beneath("standard output", false), "standard output");
        assert_eq!(stream.bases(), None);
    }

    #[test]
    fn a_placed_file_is_shown_where_it_stands_and_named_relative_to_the_destination() {
        for (dest, renamed, placed, shown, name) in [
            ("/x/new", true, "new", "/x/new", "new"),
            ("/x/new", false, "new", "/x/new/new", "new"),
            ("/x/new", false, "a", "/x/new/a", "a"),
            ("/x/stands", false, "s/a", "/x/stands/s/a", "s/a"),
            ("new", true, "new", "new", "new"),
            ("new", false, "s/a", "new/s/a", "s/a"),
            ("/", false, "a", "/a", "a"),
            ("lh://h/r", false, "s/a", "lh://h:7214/r/s/a", "s/a"),
            ("lh://h/r/d/n", true, "n", "lh://h:7214/r/d/n", "n"),
            ("lh://h/r/d/n", false, "n", "lh://h:7214/r/d/n/n", "n"),
            ("lh://h/r/d", false, "s/a", "lh://h:7214/r/d/s/a", "s/a"),
            ("lh://[::1]:9/r/d/", false, "s/a", "lh://[::1]:9/r/d/s/a", "s/a"),
        ] {
            let destination = destination(dest);
            let file = FileEvent { renamed, ..event(placed.as_bytes(), placed.as_bytes(), FileStatus::Planned, None) };
            assert_eq!(destination.shown(&file), shown, "{dest} {placed}");
            assert_eq!(&*destination.name(&file), name.as_bytes(), "{dest} {placed}");
        }
    }
}
