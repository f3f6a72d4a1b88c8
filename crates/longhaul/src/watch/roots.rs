//! Looks at the file systems of the roots now and then, so that nobody who asks has to wait for a
//! disk.
//!
//! In: the running daemon. Out: the roots as they were last seen, and for how long they have not
//! answered. A disk that hangs holds one thread, and no other look begins meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::{RootFigures, ServiceHandle};

use super::Watched;

/// The roots as they were last seen.
#[derive(Default)]
pub(super) struct RootsSeen(Mutex<Option<(Instant, Vec<RootFigures>)>>);

impl RootsSeen {
    /// The roots, and how long ago they were seen. `None`: not yet.
    pub(super) fn last(&self) -> Option<(Duration, Vec<RootFigures>)> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().map(|(at, roots)| (at.elapsed(), roots.clone()))
    }

    fn saw(&self, roots: Vec<RootFigures>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), roots));
    }
}

/// Looks at the roots for as long as the daemon runs.
pub(super) async fn look_now_and_then(watched: Watched, service: ServiceHandle) {
    loop {
        let asked = service.clone();
        if let Ok(roots) = tokio::task::spawn_blocking(move || asked.look_at_roots()).await {
            watched.0.roots.saw(roots);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Roots that were seen longer ago do not answer.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(30);
