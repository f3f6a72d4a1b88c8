//! The promises that a world may find broken.

use std::fmt;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// A final name shows nothing, the file that stood there, or a version that was offered, whole.
    Names,
    /// A file that is called committed is durable, with its digest.
    Committed,
    /// Bytes that are called durable are, and the next run continues them.
    Durable,
    /// After a success everything that was offered is durable.
    Complete,
    /// A file that another program put there after the look is not replaced.
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
    /// Its breach, in words.
    pub(crate) fn broken(self, what: impl fmt::Display) -> Broken {
        Broken { promise: self, what: what.to_string() }
    }
}

impl Broken {
    /// Adds words to the breach.
    pub(crate) fn with(self, more: impl fmt::Display) -> Broken {
        Broken { what: format!("{}{more}", self.what), ..self }
    }

    /// Puts the time before the words.
    pub(crate) fn when(self, when: &str) -> Broken {
        Broken { what: format!("{when} {}", self.what), ..self }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}
