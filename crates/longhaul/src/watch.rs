//! Tells the state of a daemon over HTTP, to whoever watches it: for reading alone.
//!
//! In: requests from this host, unless the administrator allows others. Out: `/livez`, `/readyz`,
//! `/metrics`, `/status.json` and the page, made of the engine's figures. `listener` accepts and
//! bounds connections, `answer` is the whole of HTTP, `roots` looks at the roots' file systems,
//! `ready` judges, `metrics` writes OpenMetrics, `process` looks at this process, `history` keeps
//! the last hour, `status` gathers all of it, and `page` draws it. Nothing here changes the daemon,
//! and no byte of a peer is parsed.

mod answer;
mod history;
mod listener;
mod metrics;
mod page;
mod process;
mod ready;
mod roots;
mod status;

use std::sync::{Arc, OnceLock};

use longhaul_engine::{Liveness, ServiceHandle};

use self::history::History;
use self::roots::RootsSeen;
use crate::audit::AuditFile;

pub use listener::{HttpListener, serve};

/// A daemon as it is watched. Clones are of the same one.
#[derive(Clone)]
pub struct Watched(Arc<Parts>);

struct Parts {
    /// Empty as long as the daemon starts.
    running: OnceLock<(ServiceHandle, Liveness)>,
    roots: RootsSeen,
    history: History,
    audit: Option<AuditFile>,
    /// The names by which the listener may be asked for.
    hosts: Vec<String>,
}

impl Watched {
    /// A daemon that starts, and may be asked for by these names besides those of this host.
    pub fn starting(audit: Option<AuditFile>, hosts: Vec<String>) -> Watched {
        let (running, roots, history) = (OnceLock::new(), RootsSeen::default(), History::default());
        Watched(Arc::new(Parts { running, roots, history, audit, hosts }))
    }

    /// The daemon runs from now on. Its roots are looked at for as long as it does, and
    /// its sums.
    pub fn runs(&self, service: ServiceHandle, liveness: Liveness) {
        if self.0.running.set((service.clone(), liveness)).is_ok() {
            tokio::spawn(history::sample_now_and_then(self.clone(), service.clone()));
            tokio::spawn(roots::look_now_and_then(self.clone(), service));
        }
    }
}
