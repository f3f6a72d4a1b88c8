//! Owns the errors of setting an emulated network up. Takes facts from every module, gives them to
//! the caller. Must not decide what is done about them.

use std::io;

/// The reason why there is no emulated network, or why a text about one is not understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text that should have been a quantity or a setting.
    #[error("no {what}: {text:?}; it is written {wanted}")]
    Setting {
        /// The kind of value that was expected.
        what: &'static str,
        /// The value that was given.
        text: String,
        /// The way to write it.
        wanted: &'static str,
    },
    /// A link, address or name is out of range.
    #[error("{what} {number} is out of range: {range}")]
    Range {
        /// The thing that was counted.
        what: &'static str,
        /// The value that was given.
        number: u64,
        /// The possible range.
        range: &'static str,
    },
    /// The kernel refused a step that only root, or a user in a namespace of its own, may do.
    #[error(
        "cannot {doing} {name}: {source}; this needs root, or unprivileged user namespaces (user.max_user_namespaces above 0, no \
         lock by a security module) and a /dev/net/tun that may be opened"
    )]
    Denied {
        /// The attempted step.
        doing: &'static str,
        /// The thing it was tried on.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel failed at something for another reason.
    #[error("cannot {doing} {name}: {source}")]
    System {
        /// The attempted step.
        doing: &'static str,
        /// The thing it was tried on.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread that enters a namespace ended without an answer.
    #[error("a thread of the emulator died while it tried to {doing}")]
    Thread {
        /// The attempted step.
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
