//! Says what a daemon needs of a place in which something that it remembers outlives it.
//!
//! In: a text, whole. Out: the same text to the next daemon. It knows no path and nothing of what
//! the text says.

use std::fmt;

use longhaul_core::Fault;

/// A text that outlives the daemon.
pub trait StateFile: fmt::Debug + Send + Sync {
    /// The text that was stored last. `None` if there is none yet.
    ///
    /// # Errors
    /// A [`Fault`] that names the place.
    fn load(&self) -> Result<Option<String>, Fault>;

    /// Stores a text in place of the last one: after a crash there is one of them, whole.
    ///
    /// # Errors
    /// A [`Fault`] that names the place.
    fn store(&self, text: &str) -> Result<(), Fault>;
}
