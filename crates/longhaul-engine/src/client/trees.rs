//! Copies between trees that a user of the library made or opened, within this process.
//!
//! In: a source tree and a target. Out: a [`Report`]. `local_copy` plays both sides. It reaches no
//! other host.

use std::sync::Arc;
use std::time::Instant;

use longhaul_disk::{FsTarget, SourceTree, TargetTree};
use longhaul_proto::receiver::Landing;

use super::local_copy::Nobody;
use super::{Run, conclude};
use crate::api::{Observer, Report, Settings, Stop};
use crate::place;
use crate::session::opened::Destination;

/// Copies between two trees that a library user made, in this process: any [`SourceTree`] to any
/// [`TargetTree`], with [`EngineKind::Void`](longhaul_disk::EngineKind::Void) for trees without a
/// disk. No peer can ask for it.
pub async fn run_between(
    source: Arc<dyn SourceTree>,
    target: Arc<dyn TargetTree>,
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Report {
    let begun = Instant::now();
    let destination = Destination::fleeting(target, Landing::beneath(), String::new());
    let result = match Run::within_process(settings, observer.clone(), stop) {
        Ok(run) => run.embedded(source, destination, Arc::new(Nobody)).await,
        Err(fault) => Err(fault),
    };
    conclude(result, &*observer, begun)
}

/// Copies into a directory that a library user opened, in this process, with the journal that a
/// destination named on the command line has: what is cut off is gone on with by the next run. Each
/// half has an observer of its own.
pub async fn run_into(
    source: Arc<dyn SourceTree>,
    target: FsTarget,
    settings: Settings,
    observers: Observers,
    stop: Stop,
) -> Report {
    let begun = Instant::now();
    let Observers { sender, receiver } = observers;
    let opened = place::opened_destination(target, &settings);
    let begins = opened.and_then(|opened| Ok((opened, Run::within_process(settings, sender.clone(), stop)?)));
    let result = match begins {
        Ok((destination, run)) => run.embedded(source, destination, receiver).await,
        Err(fault) => Err(fault),
    };
    conclude(result, &*sender, begun)
}

/// The observers of the two halves of a copy within one process.
#[derive(Clone)]
pub struct Observers {
    /// Hears the sending half, and what ended the run.
    pub sender: Arc<dyn Observer>,
    /// Hears the receiving half: of each file before the sender does.
    pub receiver: Arc<dyn Observer>,
}
