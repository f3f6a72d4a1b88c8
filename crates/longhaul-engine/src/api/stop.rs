//! How a run is stopped from outside.
//!
//! In: a trigger that a signal or a caller pulls. Out: the code with which the session loops end.
//! Knows no signals.

use std::sync::Arc;

use longhaul_core::FaultCode;
use tokio::sync::watch;

/// The code by which a daemon's administrator ends one session, whose client may dial again at
/// once. It has no other use as a stop.
pub(crate) const KICKED: FaultCode = FaultCode::Vanished;

/// Stops a run from outside. Clones watch the same trigger.
#[derive(Clone, Debug)]
pub struct Stop {
    code: watch::Receiver<Option<FaultCode>>,
    other: Option<watch::Receiver<Option<FaultCode>>>,
}

/// Pulls the trigger of a [`Stop`].
#[derive(Clone, Debug)]
pub struct StopTrigger {
    code: Arc<watch::Sender<Option<FaultCode>>>,
}

impl Stop {
    /// A trigger and what it stops.
    pub fn new() -> (StopTrigger, Stop) {
        let (tx, rx) = watch::channel(None);
        (StopTrigger { code: Arc::new(tx) }, Stop { code: rx, other: None })
    }

    /// Stops when either of two plain ones does.
    pub(crate) fn or(self, other: Stop) -> Stop {
        Stop { code: self.code, other: Some(other.code) }
    }

    /// The code with which the run must stop. `None` as long as nobody stopped it. It never waits:
    /// for threads that block.
    pub(crate) fn pulled(&self) -> Option<FaultCode> {
        let other = self.other.as_ref().and_then(|other| *other.borrow());
        (*self.code.borrow()).or(other)
    }

    /// Waits until the run must stop, and says with which code. Never, if the trigger is gone.
    pub async fn stopped(&mut self) -> FaultCode {
        match &mut self.other {
            None => pulled(&mut self.code).await,
            Some(also) => tokio::select! {
                biased;
                code = pulled(&mut self.code) => code,
                code = pulled(also) => code,
            },
        }
    }
}

async fn pulled(code: &mut watch::Receiver<Option<FaultCode>>) -> FaultCode {
    match code.wait_for(Option::is_some).await.map(|code| *code) {
        Ok(Some(code)) => code,
        _ => std::future::pending().await,
    }
}

impl StopTrigger {
    /// Ends the run with `code`: [`FaultCode::Interrupted`] or [`FaultCode::Terminated`]. The first
    /// call counts.
    pub fn stop(&self, code: FaultCode) {
        self.code.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(code);
            }
            first
        });
    }
}
