//! Decides when abandoned partials and staged datasets are collected: as the daemon starts, and
//! each hour.
//!
//! In: the roots that are served at that time. Out: a call of `journals/collect` for each root in
//! which clients may make files. It does not know when a partial is abandoned or how it is removed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_disk::Removed;

use super::current::Current;
use super::{Daemon, RootConfig, Stored};
use crate::journals::Principal;
use crate::workers::blocking;

/// Collects until the daemon stops. While the configuration keeps partials for ever it only ends
/// what a crash cut off of datasets' last steps. Does nothing in roots where nobody may make
/// anything.
pub(super) async fn collect(current: Arc<Current>) {
    loop {
        let daemon = current.now();
        for (root, tree, store) in daemon.roots.named.values().filter(|(root, ..)| root.allow.create) {
            let (age, tree, store, counts) =
                (daemon.config.partials, tree.clone(), store.clone(), counts(&daemon, root));
            let collecting = move || {
                let now = SystemTime::now();
                let partials = age.map_or(Ok(()), |age| store.collect(&tree, age, now));
                partials.and(store.look_after_stages(&tree, (age, now), &counts))
            };
            if let Err(fault) = blocking(collecting).await {
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

/// Takes what is removed of a staged dataset from the count of its client, if that is bounded.
fn counts(daemon: &Daemon, root: &RootConfig) -> impl Fn(&str, Removed) + Send + 'static {
    let (quotas, name, is_bounded) = (daemon.live.quotas.clone(), root.name.clone(), root.bounds.bounds_storage());
    let bounded = daemon.config.clients.iter().filter(|client| is_bounded || client.bounds.bounds_storage());
    let bounded: HashMap<_, _> =
        bounded.map(|client| (Principal::client(&client.key, "").principal, client.key)).collect();
    move |principal, Removed { files, bytes, .. }| {
        if let Some(key) = bounded.get(principal) {
            quotas.keep(&(*key, name.clone()), Stored::default(), Stored::default(), Stored { bytes, files });
        }
    }
}

/// Time between two collections. An age is days, so an hour more or less does not matter; a look
/// costs an `fstat` a journal.
const EVERY: Duration = Duration::from_secs(3600);
