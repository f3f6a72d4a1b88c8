//! Errors of this side's user, files and environment before or beside a transfer, and their
//! messages.
//!
//! In: from every module of the program. Out: as a [`Fault`] to `output`, which prints it. The
//! engine's own faults pass through unchanged. Knows no exit codes but through [`FaultCode`].

mod exposed;
mod flaw;
mod location;
mod manifest_line;
mod origin;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

use longhaul_core::filter::FilterError;
use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_net::{NetError, system_words};

pub use exposed::Exposed;
pub(crate) use exposed::{EVERYBODY_WRITES, OTHERS_WRITE};
pub use flaw::Flaw;
pub use location::LocationFlaw;
pub use manifest_line::{LineFlaw, ManifestFlaw};
pub use origin::Origin;

/// An error that this crate itself finds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command line does not parse.
    #[error("{message}")]
    CommandLine {
        /// The parser's message, on one line.
        message: String,
        /// The parser's proposal.
        hint: String,
    },
    /// An option has a value that cannot be used.
    #[error("{origin}: {flaw}")]
    Option {
        /// The place where the value was written.
        origin: Origin,
        /// The flaw in it.
        flaw: Flaw,
    },
    /// A filter pattern cannot be used.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A location cannot be used.
    #[error("{location}: {flaw}")]
    Location {
        /// The location as written, escaped.
        location: String,
        /// The flaw in it.
        flaw: LocationFlaw,
    },
    /// Locations or options that do not go together.
    #[error("{why}")]
    Combination {
        /// The names of them, and the reason.
        why: &'static str,
        /// The advice what to do instead.
        hint: &'static str,
    },
    /// An option that means something else in other tools.
    #[error("{option} does not exist: {why}")]
    Foreign {
        /// The option.
        option: &'static str,
        /// The thing that is done anyway.
        why: &'static str,
        /// The advice what to write instead.
        hint: &'static str,
    },
    /// A config file says something that cannot be used.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The mistake, on one line.
        message: String,
    },
    /// A manifest has a line that cannot be used.
    #[error("{}:{line}: {flaw}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The flaw in it.
        flaw: ManifestFlaw,
    },
    /// A file that decides who is trusted can be changed by another user.
    #[error("{0}")]
    Exposed(Box<Exposed>),
    /// A file of ours cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The step that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// There is no place for the files of this user.
    #[error("neither XDG_CONFIG_HOME nor HOME is an absolute path, so there is no place for {what}")]
    NoHome {
        /// The file that would lie there.
        what: &'static str,
    },
    /// A name in the list of `--files-from` cannot be used.
    #[error("{list}: name {number}: {why}")]
    ListedName {
        /// The list.
        list: String,
        /// The number of the name in it, from 1.
        number: usize,
        /// The flaw in it.
        why: longhaul_core::PathError,
    },
    /// The daemon knows the key, or the name, already.
    #[error("{}: {what} is there already, in the [[client]] '{client}'", path.display())]
    Authorized {
        /// The daemon's config.
        path: PathBuf,
        /// `this key` or `this name`.
        what: &'static str,
        /// The client that has it.
        client: String,
    },
    /// A client is to have rights that the root denies to everybody.
    #[error("{}: root '{root}' allows no client to {}", path.display(), .rights.join(", "))]
    BeyondRoot {
        /// The daemon's config.
        path: PathBuf,
        /// The root.
        root: String,
        /// The names of the rights.
        rights: Vec<&'static str>,
    },
    /// There is an identity already.
    #[error("{} exists already", path.display())]
    IdentityStands {
        /// Its file.
        path: PathBuf,
    },
    /// There is no identity yet.
    #[error("{} does not exist", path.display())]
    NoIdentity {
        /// Its file.
        path: PathBuf,
    },
    /// A root's directory is no directory, or cannot be looked at.
    #[error("root '{root}': {}: {why}", dir.display())]
    RootDir {
        /// The root.
        root: String,
        /// The path that was to be its directory.
        dir: PathBuf,
        /// The reason.
        why: String,
    },
    /// Something else stands where a socket is to be.
    #[error("{} is no socket", path.display())]
    NoSocket {
        /// Its path.
        path: PathBuf,
    },
    /// A daemon has no socket for its administrator.
    #[error("{}: it names no socket for 'longhaul admin'", path.display())]
    NoAdminSocket {
        /// The daemon's config.
        path: PathBuf,
    },
    /// The config has no such client.
    #[error("{}: there is no client with this key or name", path.display())]
    NoSuchClient {
        /// The daemon's config.
        path: PathBuf,
    },
    /// A client stands in the config in a way that cannot be edited safely.
    #[error("{}: the client '{client}' cannot be taken out without changing something else", path.display())]
    NotEditable {
        /// The daemon's config.
        path: PathBuf,
        /// The client.
        client: String,
    },
    /// Roots of the command line that are one directory, or of which one lies in another.
    #[error("--root: {message}")]
    RootsOverlap {
        /// The roots, and what to do about them.
        message: String,
    },
    /// A daemon has nothing to serve.
    #[error("{}there is no root, so nothing would be served", named(path.as_ref()))]
    NothingServed {
        /// The daemon's config.
        path: Option<PathBuf>,
    },
    /// A key or a key file cannot be used.
    #[error(transparent)]
    Net(#[from] NetError),
    /// There is no config for a daemon, nor any root on the command line.
    #[error("there is no config for a daemon: {}", .looked_for.join(" and "))]
    NoServeConfig {
        /// The searched files, none of which exists.
        looked_for: Vec<String>,
    },
    /// The daemon cannot go on as the user of its config.
    #[error("cannot go on as the user '{user}'")]
    BecomeUser {
        /// The name of the user.
        user: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The user as whom the daemon goes on may not use something that it needs.
    #[error("the user '{user}' of the config cannot {doing} {} ({of})", path.display())]
    UserLacks {
        /// The name of the user.
        user: String,
        /// The use that is refused.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Its name in the config.
        of: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The config requires a confinement that the kernel has not.
    #[error("{layer} is not active, and the config says confine = \"required\": {why}")]
    Unconfined {
        /// The part that is missing.
        layer: &'static str,
        /// The reason.
        why: String,
    },
    /// A reload names a root that a confined daemon cannot reach.
    #[error(
        "{of}: {} lies beyond the places to which this daemon has confined itself: those of its roots as it \
         started, with their rights, and those of 'reload_beneath'", path.display()
    )]
    BeyondReach {
        /// The directory.
        path: PathBuf,
        /// The root.
        of: String,
    },
    /// The engine's fault.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Error {
    /// An I/O error on a file of ours.
    pub fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { doing, path, source }
    }

    fn code(&self) -> FaultCode {
        match self {
            Error::File { source, .. } => code_of(source),
            Error::BecomeUser { .. } | Error::UserLacks { .. } => FaultCode::Denied,
            Error::NoIdentity { .. } | Error::RootDir { .. } => FaultCode::NotFound,
            Error::Net(NetError::KeyFile { source, .. }) => code_of(source),
            Error::Net(NetError::KnownHostConflict { .. }) => FaultCode::Denied,
            Error::Fault(fault) => fault.code,
            _ => FaultCode::Usage,
        }
    }

    fn hint(&self) -> String {
        let fixed = match self {
            Error::CommandLine { hint, .. } => hint,
            Error::Option { flaw, .. } => return flaw.hint(),
            Error::Location { flaw, .. } => flaw.hint(),
            Error::Combination { hint, .. } | Error::Foreign { hint, .. } => hint,
            Error::Exposed(exposed) => return exposed.hint(),
            Error::IdentityStands { .. } => {
                "'longhaul key show' prints its public key; a new one needs another name, or that file gone"
            }
            Error::NoIdentity { .. } => "'longhaul key generate' makes it",
            Error::BeyondRoot { .. } => "leave these rights out, or add them to 'allow' of that root first",
            Error::NoSocket { .. } => "name another path, or move that file away",
            Error::NoAdminSocket { .. } => {
                "set state = \"DIR\" or admin_socket = \"PATH\" there and start the daemon again, or name its socket with --socket"
            }
            Error::NoSuchClient { .. } => "'longhaul key list' shows those that there are",
            Error::NotEditable { .. } => "take it out by hand",
            Error::NothingServed { .. } => {
                "add a [[root]] to it, give --root NAME=DIR, or let a client measure (bench = true)"
            }
            Error::NoServeConfig { .. } => {
                "'longhaul serve --root NAME=DIR' serves a directory without one; 'longhaul key authorize KEY --name NAME \
                 --root NAME=read' begins one"
            }
            Error::Manifest { .. } => {
                "give a list as --manifest or b3sum writes it, and the directory in which its names lie"
            }
            Error::BecomeUser { .. } => "start it as root, or as that user and without 'user' in the config",
            Error::UserLacks { .. } => {
                "give it to that user, or let the user's group in; each directory above needs x for that user"
            }
            Error::Unconfined { .. } => "use a kernel with it, or 'auto' for whatever the kernel has",
            Error::BeyondReach { .. } => {
                "start the daemon again for that, or leave it as it was; with the directory above it in 'reload_beneath' \
                 the next reload needs no start"
            }
            Error::NoHome { .. } => "set HOME, or name the file with its option",
            _ => "",
        };
        fixed.to_owned()
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        if let Error::Fault(fault) = error {
            return fault;
        }
        Fault::new(error.code(), Blame::Local, Chain(&error)).hint_in_words(error.hint())
    }
}

/// The beginning of a message about a config, if there is one.
fn named(path: Option<&PathBuf>) -> String {
    path.map(|path| format!("{}: ", path.display())).unwrap_or_default()
}

/// The code of an I/O error on a file that was named on this side: a missing or odd one is a
/// mistake in the request.
fn code_of(error: &io::Error) -> FaultCode {
    match error.kind() {
        io::ErrorKind::PermissionDenied => FaultCode::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultCode::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => FaultCode::ReadOnly,
        io::ErrorKind::NotFound
        | io::ErrorKind::AddrInUse
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput => FaultCode::Usage,
        _ => FaultCode::Io,
    }
}

/// An error and its causes on one line.
struct Chain<'a>(&'a dyn StdError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            match error.downcast_ref() {
                Some(said) => write!(f, ": {}", system_words(said))?,
                None => write!(f, ": {error}")?,
            }
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_file_says_what_where_and_why_and_keeps_its_code() {
        let error = |kind| Error::file("write", "/m/list")(io::Error::from(kind));
        let fault = Fault::from(error(io::ErrorKind::StorageFull));
        assert_eq!(fault.code, FaultCode::NoSpace);
        assert!(fault.message.starts_with("cannot write /m/list: "), "{}", fault.message);
        assert_eq!(Fault::from(error(io::ErrorKind::NotFound)).code, FaultCode::Usage);
        assert_eq!(Fault::from(error(io::ErrorKind::PermissionDenied)).code, FaultCode::Denied);
    }

    #[test]
    fn a_fault_of_the_engine_passes_unchanged() {
        let fault = Fault::new(FaultCode::Busy, Blame::Peer, "no session free").about("h:1");
        assert_eq!(Fault::from(Error::from(fault.clone())), fault);
    }
}
