//! The places that a daemon needs once it serves, as data; and those that a confined one reaches.
//!
//! In: its config and the places of its files. Out: a list of directories and files with the access
//! that each needs, and whether a place that a reload names is among them. It confines nothing.

use std::collections::HashMap;
use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_engine::ServeConfig;

use crate::config::Confinement;

/// The use of a place. Each takes in those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Files are read, directories are listed.
    Read,
    /// A file is written to.
    Write,
    /// Files, directories and links are made, written, renamed and removed.
    Change,
    /// Sockets are made there too.
    Own,
}

/// A place that a daemon needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The directory, with everything beneath it, or the file.
    pub path: PathBuf,
    /// The use of it.
    pub access: Access,
    /// Its name for an administrator, as `root 'data'`.
    pub of: String,
    /// Whether the daemon's user must be able to use it. Otherwise it may also be missing.
    pub checked: bool,
}

/// The files of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct OwnFiles<'a> {
    /// The config.
    pub config: Option<&'a Path>,
    /// The private key.
    pub identity: &'a Path,
    /// The directory for data of the whole daemon.
    pub state: Option<&'a Path>,
    /// The administrator's socket.
    pub socket: Option<&'a Path>,
    /// The audit log.
    pub audit: Option<&'a Path>,
    /// The socket of whoever watches.
    pub http: Option<&'a Path>,
}

/// All places that a daemon needs from then on.
pub fn needs(config: &ServeConfig, wanted: &Confinement, files: OwnFiles<'_>) -> Vec<Need> {
    let need = |path: PathBuf, access, of: &str, checked| Need { path, access, of: of.to_owned(), checked };
    let mut needs = roots(config);
    needs.extend(wanted.reload_beneath.iter().map(|dir| need(dir.clone(), Access::Change, "reload_beneath", false)));
    let own = files.state.map(|state| (state.to_owned(), "state"));
    let own = own.into_iter().chain(files.socket.map(|socket| (above(socket), "the administrator's socket")));
    let own = own.chain(files.http.map(|socket| (above(socket), "the socket of [watch]")));
    // The file is made anew at a hangup, when the one before was moved away.
    let own = own.chain(files.audit.map(|audit| (above(audit), "the audit log")));
    needs.extend(own.map(|(dir, of)| need(dir, Access::Own, of, true)));
    if let Some(config) = files.config {
        needs.push(need(config.to_owned(), Access::Read, "the config, for a reload", true));
    }
    // An editor puts another file in the place of one, so the directory is named; and a link may
    // lead to a file elsewhere.
    for file in files.config.into_iter().chain([files.identity]) {
        let real = file.canonicalize().map(|file| above(&file));
        needs
            .extend([Some(above(file)), real.ok()].into_iter().flatten().map(|dir| need(dir, Access::Read, "", false)));
    }
    needs.extend(std::env::current_exe().ok().map(|program| need(program, Access::Read, "", false)));
    // `/etc/resolv.conf` leads there on many hosts.
    let resolver = (!wanted.dial.is_empty()).then(|| need("/run/systemd/resolve".into(), Access::Read, "", false));
    needs.extend(resolver);
    needs.extend(SYSTEM_READ.iter().map(|path| need(path.into(), Access::Read, "", false)));
    needs.push(need("/dev/null".into(), Access::Write, "", false));
    needs
}

/// The places of the roots.
pub(super) fn roots(config: &ServeConfig) -> Vec<Need> {
    let of_root = |root: &longhaul_engine::RootConfig| {
        let is_changed = root.allow.may_change();
        let (access, of) = (if is_changed { Access::Change } else { Access::Read }, format!("root '{}'", root.name));
        // A target of a set may be missing, and the set is judged as it is opened.
        let checked = root.targets.dirs.len() == 1;
        let need = move |path: &PathBuf| Need { path: path.clone(), access, of: of.clone(), checked };
        root.targets.dirs.iter().map(need).collect::<Vec<_>>()
    };
    // Others are opened by processes of users alone.
    config.roots.iter().filter(|root| config.opens(root)).flat_map(of_root).collect()
}

fn above(file: &Path) -> PathBuf {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// The places that a confined process reaches, by device and inode, as the kernel holds them: a
/// directory that takes the place of another one is not reached.
#[derive(Debug, Default)]
pub(super) struct Reach {
    places: HashMap<(u64, u64), Access>,
}

impl Reach {
    /// Adds a place, by device and inode.
    pub(super) fn add(&mut self, place: (u64, u64), access: Access) {
        let known = self.places.entry(place).or_insert(access);
        *known = access.max(*known);
    }

    /// The number of places.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The first directory of a config's roots that lies beyond this reach. A directory
    /// that is missing is found missing when it is opened.
    pub(super) fn beyond(&self, config: &ServeConfig) -> Option<Need> {
        roots(config).into_iter().find(|need| need.path.canonicalize().is_ok_and(|path| !self.has(&path, need.access)))
    }

    /// Whether a place may be used in this way: it or a directory above it may.
    fn has(&self, path: &Path, access: Access) -> bool {
        let id = |path: &Path| metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let held = path.ancestors().filter_map(|path| self.places.get(&id(path)?));
        held.max().is_some_and(|held| *held >= access)
    }
}

/// The files of the system that a daemon may read: names of users and groups, whatever service the
/// host asks for them and the libraries that do; facts about disks, processors and network
/// interfaces; and its own process.
const SYSTEM_READ: &[&str] = &[
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/var/lib/sss",
    "/run/systemd/userdb",
    "/sys/block",
    "/sys/class/block",
    "/sys/class/net",
    "/sys/dev/block",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel",
    "/proc/sys/net",
    "/dev/urandom",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandLineRoot, Daemon};

    fn config(roots: &[&str]) -> ServeConfig {
        let roots = roots.iter().map(|text| CommandLineRoot::parse(text.as_ref()).unwrap().into()).collect();
        ServeConfig { roots, ..Daemon::without_file() }
    }

    #[test]
    fn roots_are_needed_as_their_rights_say_and_files_with_their_directories() {
        let files = OwnFiles {
            config: Some(Path::new("/c/serve.toml")),
            identity: Path::new("/k/identity"),
            state: Some(Path::new("/s")),
            socket: Some(Path::new("/a/admin.sock")),
            audit: Some(Path::new("/l/audit.jsonl")),
            http: Some(Path::new("/h/http.sock")),
        };
        let wanted = Confinement { reload_beneath: vec!["/more".into()], ..Confinement::default() };
        let needs = needs(&config(&["r=/r", "w=/w:create", "m=/m:read,modify"]), &wanted, files);
        for (path, access, checked) in [
            ("/r", Access::Read, true),
            ("/w", Access::Change, true),
            ("/m", Access::Change, true),
            ("/more", Access::Change, false),
            ("/s", Access::Own, true),
            ("/a", Access::Own, true),
            ("/l", Access::Own, true),
            ("/h", Access::Own, true),
            ("/c/serve.toml", Access::Read, true),
            ("/c", Access::Read, false),
            ("/k", Access::Read, false),
            ("/dev/null", Access::Write, false),
            ("/proc/self", Access::Read, false),
        ] {
            let found: Vec<_> = needs.iter().filter(|need| need.path == Path::new(path)).collect();
            assert!(found.iter().any(|need| (need.access, need.checked) == (access, checked)), "{path}: {found:?}");
        }
        let written = needs.iter().filter(|need| need.access != Access::Read).count();
        assert_eq!(written, 8, "what may be written is what is named above: {needs:?}");
    }

    #[test]
    fn a_root_of_a_reload_is_within_reach_beneath_a_place_and_with_no_more_rights_than_it_has() {
        let top = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let dir = top.path().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            dir
        };
        let mut reach = Reach::default();
        for (name, access) in [("read", Access::Read), ("written", Access::Change)] {
            let found = metadata(dir(name)).unwrap();
            reach.add((found.dev(), found.ino()), access);
        }
        let beyond = |root: &str| {
            let path = dir(root.split(':').next().unwrap());
            reach.beyond(&config(&[&format!("x={}", top.path().join(root).display())])).map(|need| need.path == path)
        };
        for (root, is_beyond) in [
            ("read", false),
            ("read/below", false),
            ("written:create", false),
            ("written/below:modify", false),
            ("read:create", true),
            ("other", true),
        ] {
            assert_eq!(beyond(root), is_beyond.then_some(true), "{root}");
        }
        std::fs::rename(top.path().join("written"), top.path().join("away")).unwrap();
        assert_eq!(beyond("written:create"), Some(true), "another directory of that name");
        assert_eq!(beyond("away:create"), None);
    }
}
