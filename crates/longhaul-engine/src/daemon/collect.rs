//! When abandoned partials are collected: as the daemon starts, and each hour. In: a daemon. What
//! is abandoned, and how it is removed, is `partials`' business.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Daemon;
use crate::workers::blocking;

/// Collects until the daemon stops, if it is to collect at all. In roots where nobody may make
/// anything nothing is removed.
pub(super) async fn collect(daemon: Arc<Daemon>) {
    let Some(age) = daemon.config.partials else { return };
    let mut stop = daemon.stop.clone();
    loop {
        for (root, tree, store) in daemon.roots.values().filter(|(root, ..)| root.allow.create) {
            let (tree, store) = (tree.clone(), store.clone());
            if let Err(fault) = blocking(move || store.collect(&tree, age, SystemTime::now())).await {
                tracing::warn!(target: "longhaul::journal", root = %root.name, %fault, "partials cannot be looked at");
            }
        }
        if tokio::time::timeout(EVERY, stop.stopped()).await.is_ok() {
            return;
        }
    }
}

/// An age is days; an hour more or less does not matter, and looking costs an `fstat` a journal.
const EVERY: Duration = Duration::from_secs(3600);
