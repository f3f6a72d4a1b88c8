//! The flaws of a location's text, and the advice what to write instead.
//!
//! In: the reason of the parser in `location`. Out: words for `error`. Knows no location.

use longhaul_core::PathError;

/// The reason why a text is not a usable location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationFlaw {
    /// The text is empty.
    #[error("a location must not be empty")]
    Empty,
    /// `host:~name`.
    #[error("the home of another user is not looked up")]
    OtherHome,
    /// `host::module`, of rsync.
    #[error("HOST::MODULE is a daemon of rsync")]
    RsyncModule,
    /// Another scheme, like `http://`.
    #[error("unknown kind of location")]
    Scheme,
    /// `lh:///...`
    #[error("it names no host")]
    NoHost,
    /// A host name with characters that no host name has, or an unclosed bracket.
    #[error("its host is not a name or an address")]
    Host,
    /// `lh://user@host`.
    #[error("a daemon knows its clients by their keys, not by user names")]
    User,
    /// The port is not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// The daemon itself, where a path is needed.
    #[error("it names no root")]
    NoRoot,
    /// The first component cannot be a root's name.
    #[error("its first name cannot be a root")]
    Root,
    /// The rest cannot be a path.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl LocationFlaw {
    /// The advice what to write instead.
    pub fn hint(&self) -> &'static str {
        match self {
            LocationFlaw::OtherHome => "write its path, or HOST:./~NAME for a file of this name",
            LocationFlaw::RsyncModule => {
                "a daemon is lh://HOST[:PORT]/ROOT/PATH, a path over ssh HOST:PATH; a local name with a colon is written ./NAME"
            }
            LocationFlaw::Empty | LocationFlaw::Scheme => "write PATH, [USER@]HOST:PATH or lh://HOST[:PORT]/ROOT/PATH",
            LocationFlaw::NoRoot => "write lh://HOST/ROOT/PATH; 'longhaul ls lh://HOST/' lists the roots",
            LocationFlaw::User => "write lh://HOST[:PORT]/ROOT/PATH; --identity chooses a key",
            LocationFlaw::Host | LocationFlaw::NoHost | LocationFlaw::Port => {
                "write lh://HOST[:PORT]/ROOT/PATH, an IPv6 address in brackets: lh://[2001:db8::1]:7214/ROOT"
            }
            LocationFlaw::Root | LocationFlaw::Path(_) => "",
        }
    }
}
