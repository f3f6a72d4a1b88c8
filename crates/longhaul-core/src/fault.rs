//! A failure in the form for people, scripts and the other side: a stable code, whose fault it is,
//! whether a retry can help, the object, and a hint. Crates turn their own errors into this at
//! their boundary.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZero;

use crate::claim::{ShardClaim, fence_of_kept};
use crate::hint::{Again, Hint, Program};
use crate::text::PlainText;

/// The stable name of a failure. Codes are only ever appended. Programs match all of them, so that
/// the compiler asks which exit code a new one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultCode {
    /// A failure that is not a bug of longhaul and that no other code describes.
    Unclassified,
    /// The request contradicts itself or the configuration.
    Usage,
    /// A source or destination does not exist.
    NotFound,
    /// Keys, rights or permissions forbid it.
    Denied,
    /// The peer cannot be reached, or not now.
    Unreachable,
    /// The connection ended in the middle.
    Lost,
    /// The peer was silent for too long.
    TimedOut,
    /// The peer is at a limit of its own.
    Busy,
    /// Bytes that arrived are not those that were sent, after every try.
    Mismatch,
    /// The target has no space, no inodes or no quota left.
    NoSpace,
    /// The target is mounted read-only.
    ReadOnly,
    /// A device failed.
    Io,
    /// The name is taken and may not be replaced.
    Exists,
    /// The source changed while it was sent.
    Changed,
    /// The source went away after it was listed.
    Vanished,
    /// Another thing stands in the way (a symlink as parent, a directory where a file goes).
    InTheWay,
    /// This file system or host cannot do it.
    Unsupported,
    /// The peer broke the protocol.
    Protocol,
    /// The user stopped it.
    Interrupted,
    /// The system stopped it.
    Terminated,
    /// A bug of longhaul.
    Internal,
    /// A process, or its whole host, has as many files open as it may.
    Exhausted,
    /// One target of a set failed or is full, and others are not: what was to go there can go to
    /// them.
    TargetFailed,
    /// The destination keeps a newer claim on the shard, or another session has shown the same one
    /// since.
    Superseded,
    /// A dataset does not appear, as some of its files are not there.
    Incomplete,
    /// An earlier session of the same run has had its dataset appear.
    Published,
}

/// The party whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Blame {
    /// This host, its user or its configuration.
    Local,
    /// The other host.
    Peer,
    /// The network between the hosts.
    Path,
    /// A bug in longhaul.
    Bug,
}

/// The host that worded a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Author {
    /// This one: its words are the program's own.
    #[default]
    Local,
    /// The other one, which may say anything: its words are quoted wherever they are shown.
    Peer,
}

/// A failure, ready to be said. If the peer worded it, its display says so.
///
/// This is the whole of it, as a program may write it down. The wire has a form of its own: without
/// an author, as a fault that is read off the wire is the peer's, and with the hint as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its stable name.
    pub code: FaultCode,
    /// The party whose fault it is.
    pub blame: Blame,
    /// The object that it concerns: a path, an address or a kept claim, escaped for people. May be
    /// empty.
    pub object: PlainText,
    /// The event and its cause: one line, lower case, no full stop. If it names the object, that
    /// stands in single quotes.
    pub message: PlainText,
    /// The next step for the user. `None` where there is nothing to say.
    pub hint: Option<Hint>,
    /// The system's number of the failed call (`errno`), where a call of this host failed. It does
    /// not travel.
    pub os_error: Option<NonZero<i32>>,
    /// The side that worded it: this process by default, the peer for a fault that was read off the
    /// wire.
    pub author: Author,
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.author {
            Author::Local => write!(f, "{}", self.message),
            Author::Peer => write!(f, "the other side says: {}", self.message),
        }
    }
}

impl Author {
    /// The name scripts see in events.
    pub const fn name(self) -> &'static str {
        match self {
            Author::Local => "local",
            Author::Peer => "peer",
        }
    }
}

impl Fault {
    /// A fault without an object.
    pub fn new(code: FaultCode, blame: Blame, message: impl fmt::Display) -> Fault {
        let (object, hint, author) = (PlainText::default(), None, Author::Local);
        Fault { code, blame, object, message: PlainText::of(message), hint, os_error: None, author }
    }

    /// A breach of the protocol by the peer.
    pub fn protocol(message: impl fmt::Display) -> Fault {
        Fault::new(FaultCode::Protocol, Blame::Peer, message).hint(Program::UseCompatible)
    }

    /// The refusal of a claim where this fence is kept. The kept claim is its object.
    pub fn superseded(shown: &ShardClaim, kept_fence: u64, message: impl fmt::Display) -> Fault {
        let fault = Fault::new(FaultCode::Superseded, Blame::Local, message);
        fault.about(shown.kept(kept_fence)).hint(Again::WithHigherFence)
    }

    /// The fence that a destination keeps, where it refused a claim for it. `None` for any other
    /// fault.
    pub fn kept_fence(&self) -> Option<u64> {
        if self.code == FaultCode::Superseded { fence_of_kept(&self.object) } else { None }
    }

    /// The same fault with the object that it concerns.
    #[must_use]
    pub fn about(mut self, object: impl fmt::Display) -> Fault {
        self.object = PlainText::of(object);
        self
    }

    /// The same fault with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    /// The same fault with a hint in words of whoever uses the library; no words are no hint.
    #[must_use]
    pub fn hint_in_words(mut self, words: impl fmt::Display) -> Fault {
        self.hint = Hint::words(words);
        self
    }

    /// The same fault with the system's number of the call that failed.
    #[must_use]
    pub fn with_os_error(mut self, number: Option<i32>) -> Fault {
        self.os_error = number.and_then(NonZero::new);
        self
    }

    /// The same fault, worded by the other host.
    #[must_use]
    pub fn said_by_peer(mut self) -> Fault {
        self.author = Author::Peer;
        self
    }

    /// The same fault, worded by this process: both hosts are this one.
    #[must_use]
    pub fn said_here(mut self) -> Fault {
        self.author = Author::Local;
        self
    }

    /// The same fault as the other host sees it.
    #[must_use]
    pub fn seen_from_afar(mut self) -> Fault {
        self.author = Author::Peer;
        self.blame = match self.blame {
            Blame::Local => Blame::Peer,
            Blame::Peer => Blame::Local,
            same => same,
        };
        self
    }

    /// Whether the message names the object. It must be in quotes, as the letters of a name may
    /// occur in any word. An address, or a path of several names, is no word of any text and may
    /// stand without quotes.
    pub fn names_object(&self) -> bool {
        let (message, object) = (self.message.as_str(), self.object.as_str());
        let is_word = !object.contains(['/', ':']);
        let mut found = message.match_indices(object);
        !object.is_empty()
            && found.any(|(at, _)| {
                let (before, after) = (message[..at].chars().next_back(), message[at + object.len()..].chars().next());
                let quoted = before == Some('\'') && after == Some('\'');
                let apart = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || "'\"(),;:".contains(c));
                quoted || !is_word && apart(before) && apart(after)
            })
    }

    /// The same fault with a longer name of its object: the whole path, if the other side or a part
    /// of the program knows the path from some directory on.
    #[must_use]
    pub fn renamed(mut self, whole: impl fmt::Display) -> Fault {
        let whole = PlainText::of(whole);
        self.message =
            PlainText::from(self.message.replace(&format!("'{}'", self.object), &format!("'{whole}'")).as_str());
        self.object = whole;
        self
    }

    /// Whether the same command may succeed later without any change by hand.
    pub fn retry(&self) -> bool {
        matches!(
            self.code,
            FaultCode::Unreachable
                | FaultCode::Lost
                | FaultCode::TimedOut
                | FaultCode::Busy
                | FaultCode::Exhausted
                | FaultCode::Changed
        )
    }
}

impl FaultCode {
    /// The name scripts see in events.
    pub const fn name(self) -> &'static str {
        match self {
            FaultCode::Unclassified => "unclassified",
            FaultCode::Usage => "usage",
            FaultCode::NotFound => "not-found",
            FaultCode::Denied => "denied",
            FaultCode::Unreachable => "unreachable",
            FaultCode::Lost => "lost",
            FaultCode::TimedOut => "timed-out",
            FaultCode::Busy => "busy",
            FaultCode::Mismatch => "mismatch",
            FaultCode::NoSpace => "no-space",
            FaultCode::ReadOnly => "read-only",
            FaultCode::Io => "io",
            FaultCode::Exists => "exists",
            FaultCode::Changed => "changed",
            FaultCode::Vanished => "vanished",
            FaultCode::InTheWay => "in-the-way",
            FaultCode::Unsupported => "unsupported",
            FaultCode::Protocol => "protocol",
            FaultCode::Interrupted => "interrupted",
            FaultCode::Terminated => "terminated",
            FaultCode::Internal => "internal",
            FaultCode::Exhausted => "exhausted",
            FaultCode::TargetFailed => "target-failed",
            FaultCode::Superseded => "superseded",
            FaultCode::Incomplete => "incomplete",
            FaultCode::Published => "published",
        }
    }

    /// Whether a later session may continue a file that failed with this code. A ticket that ran
    /// out or a server that failed over is mended within the hour, and bytes that took days to
    /// arrive are still good. Nothing is kept only if the final name itself is unfit, or the
    /// received bytes are not to be trusted.
    pub const fn keeps_partial(self) -> bool {
        !matches!(self, FaultCode::Usage | FaultCode::Exists | FaultCode::InTheWay | FaultCode::Protocol)
    }

    /// Whether a destination that failed with this code will fail for every other file as well, so
    /// that the session ends.
    pub const fn ends_session(self) -> bool {
        matches!(self, FaultCode::NoSpace | FaultCode::ReadOnly) || self.spares_files()
    }

    /// Whether no file is lost to a session that ended with this code: another one may take all
    /// that it left.
    pub const fn spares_files(self) -> bool {
        matches!(self, FaultCode::Exhausted | FaultCode::TargetFailed | FaultCode::Superseded)
    }
}

impl Blame {
    /// The name scripts see in events.
    pub const fn name(self) -> &'static str {
        match self {
            Blame::Local => "local",
            Blame::Peer => "peer",
            Blame::Path => "path",
            Blame::Bug => "bug",
        }
    }
}
