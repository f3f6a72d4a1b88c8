//! `serve.toml`: the addresses, roots and clients of a daemon.
//!
//! In: the file's text and the roots of the command line. Out: the engine's [`ServeConfig`] to
//! `commands::serve`. Every mistake is found before anything is served, and named with line and
//! column. Knows no sockets.

mod addresses;
mod bounds;
mod confinement;
mod doubts;
mod file;
mod grants;
mod mover;
mod nested;
mod network;
mod policy;
mod stored;
mod user;
mod watch;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::ByteCount;
use longhaul_engine::{
    Bounds, DirectMode, EngineKind, Pin, Protection, RootConfig, ServeConfig, StateFiles, SumsCatalogue, SyncGroup,
    TargetDirs, TreePolicy,
};

use super::{CHECKSUMS, parse_rights};
use crate::error::{Error, Flaw, Origin};
use crate::location::parse_root;

pub use confinement::{Confine, Confinement};
pub use mover::MoverConfig;
pub use stored::grants_in;
pub use watch::{HttpPlace, Watching};

/// A daemon ready to be started.
#[derive(Debug)]
pub struct Daemon {
    /// The engine's settings.
    pub config: ServeConfig,
    /// The private key's file, if the config names one.
    pub identity: Option<PathBuf>,
    /// The directory for files of the whole daemon.
    pub state: Option<PathBuf>,
    /// The socket of the administrator, if the config names one.
    pub admin_socket: Option<PathBuf>,
    /// Its logs and its listener for whoever watches.
    pub watching: Watching,
    /// The mover that it runs beside itself.
    pub mover: Option<MoverConfig>,
    /// The powers that it gives up.
    pub confinement: Confinement,
    /// Line and column of the `targets` of each root of the file.
    root_places: Vec<(usize, usize)>,
}

/// A root given as `--root NAME=DIR[:RIGHTS]`. It is offered to every client of the config: with
/// the rights that the client's own `roots` name for it, or all of the root's if they do not name
/// it.
#[derive(Clone, Debug)]
pub struct CommandLineRoot(RootConfig);

impl CommandLineRoot {
    /// Reads such a root. The text behind the last colon is a list of rights if it looks like one,
    /// else part of the directory.
    ///
    /// # Errors
    /// [`Error::Option`] if it has no `=`, or its name cannot be a root's.
    pub fn parse(text: &OsStr) -> Result<CommandLineRoot, Error> {
        let flawed = |flaw| Error::Option { origin: Origin::Flag("root"), flaw };
        let bad = || {
            flawed(Flaw::Form {
                given: text.to_string_lossy().into_owned(),
                form: "NAME=DIR[:read,create,modify,delete]",
            })
        };
        let bytes = text.as_bytes();
        let equals = bytes.iter().position(|&b| b == b'=').ok_or_else(bad)?;
        let name = parse_root(&bytes[..equals]).map_err(|_| bad())?;
        root(name, &bytes[equals + 1..]).map_err(|flaw| flaw.map_or_else(bad, flawed))
    }

    /// Reads `DIR[:read,create,modify]`, likewise. Over ssh no names are moved away.
    ///
    /// # Errors
    /// [`Error::Option`] without a directory, and with the right `delete`.
    pub fn of_dir(text: &OsStr) -> Result<CommandLineRoot, Error> {
        let flawed = |flaw| Error::Option { origin: Origin::Flag("ssh-only"), flaw };
        let form = "DIR[:read,create,modify]";
        let bad = || flawed(Flaw::Form { given: text.to_string_lossy().into_owned(), form });
        let name = text.to_string_lossy().into_owned();
        let CommandLineRoot(root) = root(name, text.as_bytes()).map_err(|flaw| flaw.map_or_else(bad, flawed))?;
        if root.allow.delete {
            return Err(flawed(Flaw::Unknown { given: "delete".to_owned(), allowed: "read, create, modify" }));
        }
        Ok(CommandLineRoot(root))
    }
}

impl From<CommandLineRoot> for RootConfig {
    fn from(CommandLineRoot(root): CommandLineRoot) -> RootConfig {
        root
    }
}

/// The root of this name at `DIR[:RIGHTS]`.
///
/// # Errors
/// The flaw of the rights. `None` without a directory.
fn root(name: String, text: &[u8]) -> Result<CommandLineRoot, Option<Flaw>> {
    let (dir, rights) = match text.iter().rposition(|&b| b == b':') {
        Some(colon) if is_word_list(&text[colon + 1..]) => (&text[..colon], &text[colon + 1..]),
        _ => (text, &b"read"[..]),
    };
    if dir.is_empty() {
        return Err(None);
    }
    let allow = parse_rights(&String::from_utf8_lossy(rights))?;
    let dir = PathBuf::from(OsStr::from_bytes(dir));
    let (protect, policy) = (vec![Protection::Private], TreePolicy::served());
    let (targets, rate, sessions, memory) = (TargetDirs::one(dir), None, None, None);
    let bounds = Bounds::default();
    Ok(CommandLineRoot(RootConfig { name, targets, allow, protect, rate, sessions, memory, bounds, policy }))
}

impl Daemon {
    /// Reads the config at `path` (`None`: all defaults) and adds the roots of the command line.
    ///
    /// # Errors
    /// [`Error::Config`] at the place of a mistake, [`Error::Exposed`], [`Error::File`],
    /// [`Error::RootDir`], [`Error::Combination`] for a root that is given twice,
    /// [`Error::RootsOverlap`] for roots of the command line within each other,
    /// [`Error::NothingServed`].
    pub fn load(path: Option<&Path>, roots: Vec<CommandLineRoot>) -> Result<Daemon, Error> {
        let mut daemon = match path {
            Some(path) => Daemon::parse(path, &super::read(path)?, roots)?,
            None => Daemon::parse(Path::new("serve.toml"), "", roots)?,
        };
        daemon.config.file = path.map(Path::to_owned);
        daemon.config.state = daemon.state.as_deref().map_or_else(StateFiles::default, |state| StateFiles {
            quotas: Some(stored::stored_in(state)),
            catalogue: Some(SumsCatalogue::at(state.join(CHECKSUMS))),
        });
        for root in &daemon.config.roots {
            // Of a set a target may be missing; the engine looks at all of them.
            let [dir] = root.targets.dirs.as_slice() else { continue };
            let why = match std::fs::metadata(dir) {
                Ok(found) if found.is_dir() => continue,
                Ok(_) => "it is not a directory".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(Error::RootDir { root: root.name.clone(), dir: dir.clone(), why });
        }
        daemon.refuse_nested(path)?;
        daemon.refuse_nothing(path)?;
        Ok(daemon)
    }

    /// The settings of a daemon without a config file, a root or a client.
    pub fn without_file() -> ServeConfig {
        defaults()
    }

    /// Refuses a config by which nobody could ever do anything: it has no root, and no client that
    /// may measure.
    fn refuse_nothing(&self, path: Option<&Path>) -> Result<(), Error> {
        let measures = self.config.clients.iter().any(|client| client.bench);
        if self.config.roots.is_empty() && !measures {
            return Err(Error::NothingServed { path: path.map(Path::to_owned) });
        }
        Ok(())
    }

    /// Reads the config at `path` for itself, and looks at no directory of a root: its clients may
    /// name roots that only a command line knows.
    ///
    /// # Errors
    /// [`Error::Config`] at the place of a mistake, [`Error::Exposed`], [`Error::File`].
    pub fn load_alone(path: &Path) -> Result<Daemon, Error> {
        Daemon::parse_alone(path, &super::read(path)?)
    }

    /// Takes the text of the config at `path` for itself: its clients may name roots that only a
    /// command line knows.
    pub(crate) fn parse_alone(path: &Path, text: &str) -> Result<Daemon, Error> {
        file::parse(path, text, None)
    }

    fn parse(path: &Path, text: &str, added: Vec<CommandLineRoot>) -> Result<Daemon, Error> {
        let mut daemon = file::parse(path, text, Some(&added))?;
        for CommandLineRoot(root) in added {
            if daemon.config.roots.iter().any(|known| known.name == root.name) {
                let why = "a --root has the name of another root";
                return Err(Error::Combination { why, hint: "give it another name, or take the other out" });
            }
            for client in &mut daemon.config.clients {
                client.roots.entry(root.name.clone()).or_insert(root.allow);
            }
            daemon.config.roots.push(root);
        }
        Ok(daemon)
    }
}

/// Whether these bytes can only be meant as rights: they have at least one of the words, and
/// nothing but words.
fn is_word_list(bytes: &[u8]) -> bool {
    bytes.split(|&b| b == b',').any(|word| matches!(word, b"read" | b"create" | b"modify" | b"delete"))
        && bytes.iter().all(|b| b.is_ascii_lowercase() || *b == b',')
}

/// The config of an empty file.
fn defaults() -> ServeConfig {
    ServeConfig {
        file: None,
        listen: vec![format!("[::]:{}", crate::location::DEFAULT_PORT)],
        sessions: SESSIONS_DEFAULT,
        memory: SHARED_MEMORY_DEFAULT,
        idle: Some(IDLE_DEFAULT),
        partials: Some(PARTIALS_DEFAULT),
        unfinished: UNFINISHED_DEFAULT,
        sync: SyncGroup::default(),
        roots: Vec::new(),
        clients: Vec::new(),
        io: DirectMode::Auto,
        engine: EngineKind::Auto,
        depth: None,
        pin: Pin::Auto,
        rate: None,
        state: StateFiles::default(),
        bench_bytes: BENCH_BYTES_DEFAULT,
    }
}

/// The most bytes of a measurement by default: ten seconds at 50 Gbit/s.
const BENCH_BYTES_DEFAULT: ByteCount = ByteCount(64 << 30);
/// The least limit of a measurement: the smallest chunk.
const BENCH_BYTES_MIN: ByteCount = ByteCount(1 << 20);
const SESSIONS_DEFAULT: usize = 64;
const SESSIONS_MAX: i64 = 4096;
/// The largest weight: no fair share is beyond a thousand to one.
const WEIGHT_MAX: u32 = 1000;
const SHARED_MEMORY_DEFAULT: ByteCount = ByteCount(4 << 30);
/// The default time after which an idle session ends. It is longer than busy disks take; a guess,
/// not measured.
const IDLE_DEFAULT: Duration = Duration::from_secs(600);
/// The least such time: idle sessions are looked for once a second.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// The default age from which partials are removed. It is longer than a site's outage and the
/// holidays of the person who must run the command again, with a week to spare; a guess, not
/// measured.
const PARTIALS_DEFAULT: Duration = Duration::from_secs(14 * 86_400);
/// The default number of unfinished transfers of one client in a root: three a day and more for a
/// fortnight from each of twenty commands; a guess, not measured. Each leaves 256 temporaries at
/// most, besides those of small files.
const UNFINISHED_DEFAULT: usize = 1024;
const UNFINISHED_MAX: i64 = 1 << 20;
/// The least memory: four chunks of the default size. Less serves no transfer.
const MEMORY_MIN: ByteCount = ByteCount(16 << 20);

#[cfg(test)]
mod tests;
