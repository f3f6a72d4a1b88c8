//! Owns what the daemon serves now.
//!
//! In: another [`Daemon`] in place of the one that was. Out: the one that is served, to each
//! conversation as it begins, which keeps it to its end. It knows no reason for a change.

use std::sync::{Arc, PoisonError, RwLock};

use super::Daemon;

/// The holder of what is served. Its lock is held only to take or to put.
pub(super) struct Current(RwLock<Arc<Daemon>>);

impl Current {
    /// Serves this first.
    pub(super) fn new(daemon: Daemon) -> Current {
        Current(RwLock::new(Arc::new(daemon)))
    }

    /// The daemon as it is served now.
    pub(super) fn now(&self) -> Arc<Daemon> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves another one to every conversation that begins from now on.
    pub(super) fn put(&self, next: Daemon) -> Arc<Daemon> {
        let next = Arc::new(next);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        next
    }
}
