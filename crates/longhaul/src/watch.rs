//! Tells the state of a daemon over HTTP, to whoever watches it: for reading alone.
//!
//! In: requests from this host, unless the administrator allows others. Out: `/livez`, `/readyz` and
//! `/metrics`, made of the engine's figures. `listener` accepts and bounds connections, `answer` is
//! the whole of HTTP, `roots` looks at the roots' file systems, `ready` judges, `metrics` writes
//! OpenMetrics, `process` looks at this process. Nothing here changes the daemon, and no byte of a
//! peer is parsed.

mod answer;
mod listener;
mod metrics;
mod process;
mod ready;
mod roots;

use std::sync::{Arc, OnceLock};

use longhaul_engine::{Liveness, ServiceHandle};

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
    audit: Option<AuditFile>,
    /// The names by which the listener may be asked for.
    hosts: Vec<String>,
}

impl Watched {
    /// A daemon that starts, and may be asked for by these names besides those of this host.
    pub fn starting(audit: Option<AuditFile>, hosts: Vec<String>) -> Watched {
        let (running, roots) = (OnceLock::new(), RootsSeen::default());
        Watched(Arc::new(Parts { running, roots, audit, hosts }))
    }

    /// The daemon runs from now on. Its roots are looked at for as long as it does.
    pub fn runs(&self, service: ServiceHandle, liveness: Liveness) {
        if self.0.running.set((service.clone(), liveness)).is_ok() {
            tokio::spawn(roots::look_now_and_then(self.clone(), service));
        }
    }
}
