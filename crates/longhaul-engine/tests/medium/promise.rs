//! The promises that a world may find broken.

use std::fmt;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// A final name shows nothing, what stood there, or a version that was offered, whole.
    Names,
    /// What is called committed is durable, with its digest.
    Committed,
    /// What is called durable is, and is gone on with.
    Durable,
    /// After a success everything that was offered is durable.
    Complete,
    /// What somebody else put there after it was looked at is not replaced.
    Theirs,
    /// The same command, run again, comes to its end.
    Ends,
    /// A run that finds everything there does nothing.
    Idle,
    /// Nothing of longhaul's own is left.
    Tidy,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

impl Promise {
    /// It was broken so.
    pub(crate) fn broken(self, what: impl fmt::Display) -> Broken {
        Broken { promise: self, what: what.to_string() }
    }
}

impl Broken {
    /// Says more about it.
    pub(crate) fn with(self, more: impl fmt::Display) -> Broken {
        Broken { what: format!("{}{more}", self.what), ..self }
    }

    /// Says in front when it was.
    pub(crate) fn when(self, when: &str) -> Broken {
        Broken { what: format!("{when} {}", self.what), ..self }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}
