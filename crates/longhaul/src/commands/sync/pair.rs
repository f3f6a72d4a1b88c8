//! The two trees of a removal: the source, which has names no more, and the destination, which
//! still has them.
//!
//! In: two locations. Out: [`Pair`], and answers whether the source has a name. Follows no link
//! beneath either tree, and changes nothing. `dest` has the destination.

#![allow(clippy::disallowed_methods, reason = "it looks at the tops of trees that a user named")]

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_engine::{Remote, RemotePath, Siting, Stop, Tree, Whereabouts, locate};

use super::combination;
use super::dest::DestEnd;
use super::listed::{self, ListedAbove};
use crate::commands::{Context, block_on};
use crate::error::{Error, LocationFlaw};
use crate::keys;
use crate::location::{DaemonPath, Location, host_port};
use crate::output::Talker;
use crate::settings::{Talk, TransferSettings};
use crate::signals::{self, Asking, Hangup};

/// The two trees.
pub(super) struct Pair {
    /// The source.
    pub(super) source: SourceEnd,
    /// The destination.
    pub(super) dest: DestEnd,
}

/// The source, wherever it is.
pub(super) enum SourceEnd {
    /// On this host.
    Here {
        /// The directory, held.
        tree: Arc<Tree>,
        /// Its path, without links.
        path: PathBuf,
        /// Its device and inode.
        place: (u64, u64),
        /// The directory of the last name that was absent when the top was seen to have names.
        proven: Option<RelPath>,
    },
    /// At a daemon.
    There {
        /// The daemon.
        remote: Box<Remote>,
        /// The directory there.
        place: FarPlace,
        /// The names in the directories that were asked for last.
        listed: ListedAbove,
    },
}

/// A directory at a daemon.
pub(super) struct FarPlace {
    /// The root, and the path beneath it.
    pub(super) path: RemotePath,
    /// The location, with its port: `lh://HOST:PORT/ROOT/PATH`.
    pub(super) shown: String,
    /// The location of its root.
    pub(super) shown_root: String,
}

/// The signals of a run.
#[derive(Clone)]
pub(super) struct StepSignals {
    /// The signal that asked for the end.
    pub(super) stopped: Arc<OnceLock<FaultCode>>,
    /// Ends what is asked of a daemon.
    pub(super) stop: Stop,
    /// Whether there is nothing to stop in order.
    pub(super) asking: Asking,
}

impl StepSignals {
    /// Watches the signals of this process.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn watch() -> Result<StepSignals, Error> {
        let (asking, stopped, (trigger, stop)) = (Asking::default(), Arc::new(OnceLock::new()), Stop::new());
        let on_signal = Arc::clone(&stopped);
        signals::watch(asking.clone(), Hangup::Stops, move |code| {
            on_signal.set(code).unwrap_or_default();
            trigger.stop(code);
        })
        .map_err(Error::file("watch the signals of", "this process"))?;
        Ok(StepSignals { stopped, stop, asking })
    }
}

impl Pair {
    /// Opens the trees of a command line with these locations.
    ///
    /// # Errors
    /// A location that cannot be one of the two, or a tree that is not there; trees that lie in
    /// each other.
    pub(super) fn open(
        locations: &[OsString],
        settings: &TransferSettings,
        (talk, context, signals): (Talk, Context, &StepSignals),
    ) -> Result<Pair, Error> {
        let [source, dest] = locations else { return Err(combination(super::ONE_SOURCE, super::ONE_SOURCE_HINT)) };
        let remote = |daemon: &DaemonPath| {
            keys::remote(daemon, &settings.keys, &context.places(), Talker::new(talk), &signals.asking)
        };
        let (at, text) = (Location::parse(dest)?, dest.as_bytes());
        if let Location::Ssh(_) = &at {
            let why = "names are moved away by the host that has them, or by its daemon, and ssh leads to transfers";
            return Err(combination(why, "serve DEST, and name it as lh://HOST/ROOT/PATH"));
        }
        let (source, name) = match Location::parse(source)? {
            Location::Local(local) => {
                let name = local.path.file_name().filter(|_| !local.slash).map(OsStr::to_owned);
                (SourceEnd::here(&local.path)?, name)
            }
            Location::Daemon(daemon) => SourceEnd::there(&daemon, source.as_bytes(), || remote(&daemon))?,
            Location::Ssh(_) => {
                let why = "ssh leads to transfers, and a plan needs a source that can be listed";
                return Err(combination(why, "serve it, and name it as lh://HOST/ROOT/PATH"));
            }
        };
        let dest = match &at {
            Location::Daemon(daemon) => {
                DestEnd::there(daemon, (text, name.as_deref()), remote(daemon)?, &signals.stop)?
            }
            Location::Local(local) => DestEnd::here(&local.path, name.as_deref())?,
            Location::Ssh(_) => return Err(combination(super::ONE_SOURCE, super::ONE_SOURCE_HINT)),
        };
        let pair = Pair { source, dest };
        pair.need_apart(&signals.stop)?;
        Ok(pair)
    }

    /// Refuses a tree that lies in the other one: names of the source itself would be planned. Two
    /// names, ports or roots may lead to one directory, so it is asked for where the trees really
    /// lie; what cannot be known is refused too.
    fn need_apart(&self, stop: &Stop) -> Result<(), Error> {
        let source = match &self.source {
            SourceEnd::Here { tree, .. } => whereabouts(tree)?,
            SourceEnd::There { remote, place, .. } => {
                let (remote, path) = ((**remote).clone(), place.path.clone());
                block_on(locate(remote, path, stop.clone()))??
            }
        };
        let siting = match &self.dest {
            DestEnd::Here { tree, .. } => source.siting(&whereabouts(tree)?),
            DestEnd::There(dest) => source.siting(dest.whereabouts()),
        };
        match siting {
            Siting::Apart => Ok(()),
            Siting::Nested => Err(combination("SOURCE and DEST lie in each other", "name two trees that are apart")),
            Siting::Unknown => Err(combination(
                "SOURCE and DEST may lie in each other: they are on one host, and what is above them is not known",
                "run it as a user who may look at the directories above both",
            )),
        }
    }
}

fn whereabouts(tree: &Tree) -> Result<Whereabouts, Fault> {
    Ok(tree.whereabouts(&RelPath::root())?)
}

/// The place at a daemon that a location names.
///
/// # Errors
/// [`LocationFlaw::NoRoot`] if it names the daemon alone.
pub(super) fn need_root(daemon: &DaemonPath, text: &[u8]) -> Result<RemotePath, Error> {
    daemon.path.clone().ok_or_else(|| {
        let location = longhaul_core::Escaped(text).to_string();
        Error::Location { location, flaw: LocationFlaw::NoRoot }
    })
}

impl FarPlace {
    /// A path at a daemon.
    pub(super) fn new(daemon: &DaemonPath, path: RemotePath) -> FarPlace {
        let host = host_port(&daemon.host, daemon.port);
        let beneath = if path.path.is_root() { String::new() } else { format!("/{}", path.path.escaped()) };
        let shown_root = format!("lh://{host}/{}", longhaul_core::Escaped(path.root.as_bytes()));
        FarPlace { path, shown: format!("{shown_root}{beneath}"), shown_root }
    }
}

impl SourceEnd {
    fn here(path: &Path) -> Result<SourceEnd, Error> {
        let tree = Tree::open(path).map_err(|error| Error::from(Fault::from(error)))?;
        let whole = std::fs::canonicalize(path).map_err(Error::file("examine", path))?;
        let found = std::fs::metadata(&whole).map_err(Error::file("examine", path))?;
        Ok(SourceEnd::Here { tree, path: whole, place: (found.dev(), found.ino()), proven: None })
    }

    /// The source at a daemon, and the name that it takes at the destination.
    fn there(
        daemon: &DaemonPath,
        text: &[u8],
        remote: impl FnOnce() -> Result<Remote, Error>,
    ) -> Result<(SourceEnd, Option<OsString>), Error> {
        let path = need_root(daemon, text)?;
        let own = path.path.name().unwrap_or(path.root.as_bytes());
        let name = (!path.slash).then(|| OsStr::from_bytes(own).to_owned());
        let place = FarPlace::new(daemon, path);
        Ok((SourceEnd::There { remote: Box::new(remote()?), place, listed: ListedAbove::default() }, name))
    }

    /// Its name in a plan.
    pub(super) fn written(&self) -> Vec<u8> {
        match self {
            SourceEnd::Here { path, .. } => path.as_os_str().as_bytes().to_vec(),
            SourceEnd::There { place, .. } => place.shown.clone().into_bytes(),
        }
    }

    /// The device that it is on. `None`: a daemon has it.
    pub(super) fn device(&self) -> Option<u64> {
        match self {
            SourceEnd::Here { tree, .. } => Some(tree.device()),
            SourceEnd::There { .. } => None,
        }
    }

    /// Whether there is nothing in it but what longhaul keeps.
    ///
    /// # Errors
    /// The fault of a top that cannot be listed.
    pub(super) fn is_empty(&mut self, stop: &Stop) -> Result<bool, Fault> {
        match self {
            SourceEnd::Here { path, .. } => {
                let mut found = false;
                longhaul_engine::list_local(path, |names| {
                    found |= !names.is_empty();
                    if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                Ok(!found)
            }
            SourceEnd::There { remote, place, listed } => listed.is_empty((remote, &place.path), stop),
        }
    }

    /// Whether nothing of any kind has a name.
    ///
    /// # Errors
    /// The fault of a name that cannot be looked at: nobody knows then. [`FaultCode::Usage`] if the
    /// source is not where it was, or has nothing any more: its disk may be gone.
    pub(super) fn is_absent(&mut self, path: &RelPath, stop: &Stop) -> Result<bool, Fault> {
        match self {
            SourceEnd::There { remote, place, listed } => return listed.lacks((remote, &place.path), path, stop),
            SourceEnd::Here { tree, proven, .. } => {
                if tree.facts(path)?.is_some() {
                    return Ok(false);
                }
                tree.check_place().map_err(|error| {
                    let message = format_args!("the source is not where it was: {error}");
                    Fault::new(FaultCode::Usage, Blame::Local, message).hint_in_words(listed::AGAIN)
                })?;
                if proven.as_ref().is_some_and(|dir| path.parent().as_ref() == Some(dir)) {
                    return Ok(true);
                }
            }
        }
        if self.is_empty(stop)? {
            return Err(listed::emptied());
        }
        if let SourceEnd::Here { proven, .. } = self {
            *proven = path.parent();
        }
        Ok(true)
    }
}
