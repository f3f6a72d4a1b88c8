//! Decides when abandoned partials are collected: as the daemon starts, and each hour.
//!
//! In: the roots that are served at that time. Out: a call of `journals/collect` for each root in
//! which clients may make files. It does not know when a partial is abandoned or how it is removed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::current::Current;
use crate::workers::blocking;

/// Collects until the daemon stops. Does nothing while the configuration keeps partials for ever,
/// or in roots where nobody may make anything.
pub(super) async fn collect(current: Arc<Current>) {
    loop {
        let daemon = current.now();
        for (root, tree, store) in daemon.roots.named.values().filter(|(root, ..)| root.allow.create) {
            let Some(age) = daemon.config.partials else { break };
            let (tree, store) = (tree.clone(), store.clone());
            if let Err(fault) = blocking(move || store.collect(&tree, age, SystemTime::now())).await {
                tracing::warn!(target: "longhaul::journal", root = %root.name, %fault, "partials cannot be looked at");
            }
        }
        let mut stop = daemon.stop.clone();
        // What is served may be another thing by then.
        drop(daemon);
        if tokio::time::timeout(EVERY, stop.stopped()).await.is_ok() {
            return;
        }
    }
}

/// Time between two collections. An age is days, so an hour more or less does not matter; a look
/// costs an `fstat` a journal.
const EVERY: Duration = Duration::from_secs(3600);
