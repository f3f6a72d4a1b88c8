//! Owns what can go wrong in setting an emulated network up. Takes facts from every module, gives
//! them to the caller. Must not decide what is done about it.

use std::io;

/// Why there is no emulated network, or why a word about one is not understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text that should have been a quantity or a setting.
    #[error("no {what}: {text:?}; it is written {wanted}")]
    Setting {
        /// What it should have been.
        what: &'static str,
        /// What was given.
        text: String,
        /// How it is written.
        wanted: &'static str,
    },
    /// A link, address or name beyond what there is.
    #[error("{what} {number} is out of range: {range}")]
    Range {
        /// What was counted.
        what: &'static str,
        /// What was given.
        number: u64,
        /// What is possible.
        range: &'static str,
    },
    /// The kernel refused what only root, or a user in a namespace of its own, may do.
    #[error(
        "cannot {doing} {name}: {source}; this needs root, or unprivileged user namespaces (user.max_user_namespaces above 0, no \
         lock by a security module) and a /dev/net/tun that may be opened"
    )]
    Denied {
        /// What was tried.
        doing: &'static str,
        /// On what.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel failed at something for another reason.
    #[error("cannot {doing} {name}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// On what.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread that enters a namespace ended without an answer.
    #[error("a thread of the emulator died while it tried to {doing}")]
    Thread {
        /// What was tried.
        doing: &'static str,
    },
}

impl Error {
    /// Tells lacking rights from everything else.
    pub(crate) fn system(doing: &'static str, name: &str, source: io::Error) -> Error {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Denied { doing, name, source },
            _ => Error::System { doing, name, source },
        }
    }
}
