//! When a verifier is to stop, and waits that end then.
//!
//! In: a signal, and the time of its orders. Out: the code of its end. Must not know shards.

use std::convert::Infallible;

use longhaul_core::FaultCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::jobs::mover::Halt;

/// Says when to stop: as somebody asks for it, or as the time is over.
pub(super) async fn stop_in_time(
    mut halt: Halt,
    deadline: Option<Instant>,
    stopper: &watch::Sender<Option<FaultCode>>,
) -> Infallible {
    let over = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    let asked = async {
        match halt.wait_for(Option::is_some).await.map(|code| *code) {
            Ok(Some(code)) => code,
            _ => std::future::pending().await,
        }
    };
    let code = tokio::select! {
        code = asked => code,
        () = over => FaultCode::TimedOut,
    };
    stopper.send_replace(Some(code));
    std::future::pending().await
}

/// Waits for this, or until it is to stop.
pub(super) async fn wait(time: impl Future<Output = ()>, stopping: &mut Halt) {
    tokio::select! {
        () = time => {}
        _ = stopping.wait_for(Option::is_some) => {}
    }
}
